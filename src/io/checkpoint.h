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
struct TensorListing;

class Checkpoint {
 public:
  static Result<std::shared_ptr<const Checkpoint>> open(const std::string& folder);
  // One file on its own, for fixtures and tests.
  static Result<std::shared_ptr<const Checkpoint>> open_file(const std::string& path);

  // What a folder says about its tensors before it is complete. Only damage is an error.
  static Result<TensorListing> list(const std::string& folder);

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

// The names of an index, and the headers of the files that are there. Empty: the folder has neither.
struct TensorListing {
  std::shared_ptr<const Checkpoint> headers;
  std::map<std::string, int, std::less<>> file_of;  // by the index: tensor name -> files
  std::vector<std::string> files;                   // that should be there
  std::vector<std::string> missing_files;

  // Of a folder that is complete.
  static TensorListing of(std::shared_ptr<const Checkpoint> checkpoint);

  bool is_empty() const { return files.empty(); }
  // False also for a tensor that its file turned out not to have.
  bool has(std::string_view name) const;
  // Calls f(name, tensor) for each; tensor is null where only the index knows it.
  template <class F>
  void for_each(const F& f) const {
    headers->for_each([&](std::string_view name, const StoredTensor& tensor) { f(name, &tensor); });
    for (const auto& [name, file] : file_of)
      if (headers->find(name) == nullptr && has(name)) f(name, static_cast<const StoredTensor*>(nullptr));
  }
};

}  // namespace dsa
