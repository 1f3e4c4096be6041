// io/checkpoint.h: the tensors of a model folder, mapped, checked and found by name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "io/mapped_file.h"

namespace dsa {

struct StoredTensor {
  DType dtype;
  std::vector<int64_t> shape;  // at most 8 dimensions
  const uint8_t* data;         // inside the file mapping, alignment as in the file
  uint64_t bytes;
  int file;  // index into files()
};

// One safetensors file, or shards with model.safetensors.index.json. Every header was checked against the file before
// anything was allocated for it; nothing is copied.
//
// A folder with model.safetensors.index.json is read by it alone: the files it names must hold exactly the tensors it
// names, no more and no fewer. Without it, model.safetensors is read.
//
// Failures name file and tensor: not_found (missing files), corrupt (truncated, contradicting itself, a name twice),
// format (a dtype or entry that we do not read), model (index and files disagree), limit.
class Checkpoint {
 public:
  static Result<std::shared_ptr<const Checkpoint>> open(const std::string& folder);
  // One file on its own, for fixtures and tests.
  static Result<std::shared_ptr<const Checkpoint>> open_file(const std::string& path);

  // Null if there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }
  uint64_t total_bytes() const { return total_bytes_; }  // of all tensors
  size_t num_tensors() const { return tensors_.size(); }
  // Calls f(name, tensor) for each, by name.
  template <class F>
  void for_each(const F& f) const {
    for (const auto& [name, tensor] : tensors_) f(name, tensor);
  }

 private:
  Status add_file(const std::string& path, std::vector<std::string>* names);

  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::map<std::string, StoredTensor, std::less<>>
      tensors_;  // not hashed: names are hostile, and could all collide
  uint64_t total_bytes_ = 0;
};

}  // namespace dsa
