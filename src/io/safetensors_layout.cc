#include "io/safetensors_layout.h"

#include "io/json.h"

namespace dsa {
namespace {

constexpr char kBegin[] = R"({"__metadata__":{"format":"pt"})";  // some readers refuse a file without it
constexpr size_t kLengthBytes = 8;

std::string json_string(const std::string& text) { return Json(text).dump(); }

}  // namespace

size_t SafetensorsLayout::add(const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
  uint64_t bytes = dtype_bytes(dtype);
  std::string dims;
  for (const int64_t dim : shape) {
    bytes *= uint64_t(dim);
    dims += concat(dims.empty() ? "" : ",", dim);
  }
  entries_ += concat(",", json_string(name), R"(:{"dtype":")", dtype_name(dtype), R"(","shape":[)", dims,
                     R"(],"data_offsets":[)", begin_.back(), ",", begin_.back() + bytes, "]}");
  begin_.push_back(begin_.back() + bytes);
  return begin_.size() - 2;
}

uint64_t SafetensorsLayout::header_bytes() const {
  const uint64_t json = sizeof kBegin - 1 + entries_.size() + 1;
  return kLengthBytes + (json + 7) / 8 * 8;
}

std::string SafetensorsLayout::header() const {
  const uint64_t length = header_bytes() - kLengthBytes;
  std::string text;
  for (size_t i = 0; i < kLengthBytes; ++i) text += char(uint8_t(length >> (8 * i)));
  text += kBegin + entries_ + "}";
  text.resize(header_bytes(), ' ');
  return text;
}

void SafetensorsIndex::add(const std::string& name, const std::string& file) {
  entries_ += concat(entries_.empty() ? "\n    " : ",\n    ", json_string(name), ": ", json_string(file));
}

std::string SafetensorsIndex::text(uint64_t total_bytes) const {
  return concat("{\n  \"metadata\": {\"total_size\": ", total_bytes, "},\n  \"weight_map\": {", entries_,
                "\n  }\n}\n");
}

}  // namespace dsa
