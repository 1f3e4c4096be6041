// tests/support/tensor_file.h: a safetensors file, tensor by tensor.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "support/temp_folder.h"

namespace dsa::test {

class TensorFile {
 public:
  void add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
           const void* data, size_t bytes) {
    header_[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes}}};
    data_.append(static_cast<const char*>(data), bytes);
  }
  void write(const TempFolder& folder, const std::string& name = "model.safetensors") const {
    std::string text = header_.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    folder.write(name, std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data_);
  }

 private:
  Json header_ = Json::object();
  std::string data_;
};

}  // namespace dsa::test
