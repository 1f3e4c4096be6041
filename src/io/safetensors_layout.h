// io/safetensors_layout.h: the header of a safetensors file that is about to be written, and where its tensors will lie.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"

namespace dsa {

// Tensors lie one behind the other in the order in which they are added. The header is padded to a multiple of eight bytes.
class SafetensorsLayout {
 public:
  // Which tensor this is, counted from 0.
  size_t add(const std::string& name, DType dtype, const std::vector<int64_t>& shape);

  // Everything in front of the tensors: its length, and its JSON.
  std::string header() const;
  uint64_t offset(size_t tensor) const {
    return header_bytes() + begin_[tensor];
  }  // from the start of the file
  uint64_t data_bytes() const { return begin_.back(); }
  uint64_t file_bytes() const { return header_bytes() + data_bytes(); }

 private:
  uint64_t header_bytes() const;

  std::string entries_;
  std::vector<uint64_t> begin_ = {0};  // and the end of the last
};

// model.safetensors.index.json, tensor by tensor.
class SafetensorsIndex {
 public:
  void add(const std::string& name, const std::string& file);
  std::string text(uint64_t total_bytes) const;

 private:
  std::string entries_;
};

}  // namespace dsa
