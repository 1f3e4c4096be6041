// model/convert.h: a model folder whose routed experts are BF16, F32 or FP8, written again with MXFP4 experts.
//
// The new folder has the tensors of the old one, file by file and in the same order; an expert's X.weight is replaced by
// X.weight_packed and X.weight_scale (stacked experts: X by X_blocks and X_scales), everything else is copied. config.json
// says so: a folder with FP8 matrices keeps its quantization_config, which also decides about index keys, and gains a group
// for the experts; any other gets that of MXFP4. The remaining files are copied.
//
// Memory: headers, their tables and the errors of each tensor, below 2 KiB a tensor, and kConvertBufferBytes. No other byte
// of a tensor stays in memory, however large files and tensors are.
//
// A conversion that was stopped, killed or left without power goes on where it stopped, and its files are those of one that
// was not: dsa_convert.journal holds what is safely on the disk until everything is, and config.json comes last.
// dsa_convert.json, the errors of each tensor, is there when all is done.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/mxfp4_pack.h"

namespace dsa {

constexpr uint64_t kConvertBufferBytes = uint64_t(16) << 20;

struct ConvertedTensor {
  std::string name;
  RoundingErrors errors;
};

struct ConvertOptions {
  int threads = 0;                           // 0: all cores
  uint64_t mark_bytes = uint64_t(64) << 20;  // read between two marks in the journal: what a kill may cost
  // Called behind each tensor that was rounded now; a failure stops the conversion.
  std::function<Status(const ConvertedTensor&)> on_tensor = {};
};

struct Conversion {
  bool was_finished = false;                    // nothing was left to do
  size_t resumed = 0;                           // rounded tensors that an earlier run had left
  size_t tensors = 0;                           // rounded tensors
  RoundingErrors errors;                        // of them all
  uint64_t source_bytes = 0, target_bytes = 0;  // of all tensors
  std::string report;                           // dsa_convert.json
};

// Failures are typed and name the file: unsupported (a family that we do not know), format (experts that are MXFP4 already,
// or in a format that we do not read), numeric (a weight that is not finite), argument (the folders contain each other), state
// (the new folder holds something else), mismatch (it was begun from another source), busy (another process is at it),
// disk_full, access, and those of reading a model.
Result<Conversion> convert_to_mxfp4(const std::string& source, const std::string& target,
                                    const ConvertOptions& options = {});

}  // namespace dsa
