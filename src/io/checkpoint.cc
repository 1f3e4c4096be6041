#include "io/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "io/json.h"

namespace dsa {

namespace {

constexpr uint64_t kLengthBytes = 8;                  // of the header length that a file begins with
constexpr uint64_t kMaxHeaderBytes = 100'000'000;     // the limit of the safetensors reference
constexpr size_t kMaxIndexBytes = size_t(256) << 20;  // half a million tensors need 50 MB
constexpr size_t kMaxRank = 8;
constexpr size_t kMaxListed = 8;  // names in one message
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

std::optional<DType> dtype_of(std::string_view name) {
  for (const DType dtype : {DType::bf16, DType::f32, DType::f16, DType::u8, DType::i8, DType::i32, DType::i64,
                            DType::f8_e4m3, DType::f8_e8m0, DType::boolean, DType::f64})
    if (name == dtype_name(dtype)) return dtype;
  return std::nullopt;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += concat(i ? ", " : "", shape[i]);
  return text + "]";
}

// Empty unless every item is an integer from 0 to 2^63 - 1.
std::optional<std::vector<int64_t>> sizes_of(const Json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<int64_t> sizes;
  sizes.reserve(std::min(list.size(), kMaxRank));
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))
      return std::nullopt;
    sizes.push_back(item.get<int64_t>());
  }
  return sizes;
}

// Bytes of a tensor. A zero among the dimensions does not excuse the others from fitting into 63 bits.
std::optional<uint64_t> tensor_bytes(const std::vector<int64_t>& shape, DType dtype) {
  uint64_t product = dtype_bytes(dtype);
  bool is_empty = false;
  for (const int64_t size : shape) {
    if (size == 0)
      is_empty = true;
    else if (product > uint64_t(std::numeric_limits<int64_t>::max()) / uint64_t(size))
      return std::nullopt;
    else
      product *= uint64_t(size);
  }
  return is_empty ? 0 : product;
}

// One entry of a header: {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, offsets within `data`.
Result<StoredTensor> read_entry(const std::string& where, const Json& entry, std::string_view data) {
  if (!entry.is_object()) return error(Code::format, where, " is not an object");
  const Json *dtype_name = nullptr, *shape = nullptr, *offsets = nullptr;
  for (const auto& [key, value] : entry.items()) {
    if (key == "dtype")
      dtype_name = &value;
    else if (key == "shape")
      shape = &value;
    else if (key == "data_offsets")
      offsets = &value;
    else
      return error(Code::format, where, " has ", in_quotes(key),
                   ", expected dtype, shape and data_offsets only");
  }
  if (!dtype_name || !dtype_name->is_string()) return error(Code::format, where, " has no dtype");
  if (!shape) return error(Code::format, where, " has no shape");
  if (!offsets) return error(Code::format, where, " has no data_offsets");

  const auto& name = dtype_name->get_ref<const std::string&>();
  const std::optional<DType> dtype = dtype_of(name);
  if (!dtype) return error(Code::format, where, " has dtype ", in_quotes(name), ", which we do not read");
  std::optional<std::vector<int64_t>> sizes = sizes_of(*shape);
  if (!sizes) return error(Code::corrupt, where, ": its shape is not a list of non-negative integers");
  if (sizes->size() > kMaxRank)
    return error(Code::format, where, " has ", sizes->size(), " dimensions, expected at most ", kMaxRank);
  const std::optional<uint64_t> bytes = tensor_bytes(*sizes, *dtype);
  if (!bytes)
    return error(Code::corrupt, where, ": shape ", shape_text(*sizes), " is too large for any file");

  const std::optional<std::vector<int64_t>> range = sizes_of(*offsets);
  if (!range || range->size() != 2 || (*range)[0] > (*range)[1])
    return error(Code::corrupt, where, ": data_offsets are not [begin, end]");
  const uint64_t begin = uint64_t((*range)[0]), end = uint64_t((*range)[1]);
  if (end - begin != *bytes)
    return error(Code::corrupt, where, ": data_offsets [", begin, ", ", end, "] span ", end - begin,
                 " bytes, expected ", *bytes, " for ", name, " ", shape_text(*sizes));
  if (end > data.size())
    return error(Code::corrupt, where, " ends at byte ", end, " of the data, but the file has ", data.size(),
                 ": it is truncated")
        .with_fix(Fix::download_again)
        .with_room(end, data.size());
  return StoredTensor{*dtype, std::move(*sizes), reinterpret_cast<const uint8_t*>(data.data()) + begin,
                      *bytes, 0};
}

// A shard is a plain file name: an index must not be able to point anywhere else.
bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name.find("..") != name.npos) return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || c == ':' || uint8_t(c) < 0x20 || c == 0x7F;
  });
}

// "'a', 'b' and 3 more"
std::string list_text(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxListed); ++i)
    text += (i ? ", " : "") + in_quotes(names[i]);
  return names.size() > kMaxListed ? concat(text, " and ", names.size() - kMaxListed, " more") : text;
}

// model.safetensors.index.json: which file holds which tensor.
struct Index {
  std::vector<std::string> files;      // sorted
  std::map<std::string, int> file_of;  // tensor name -> index into files
  std::vector<size_t> num_tensors;     // of each file
};

Result<Index> read_index(const std::string& path) {
  JsonLimits limits;
  limits.max_bytes = kMaxIndexBytes;
  DSA_ASSIGN(Json json, read_json_file(path, limits));
  const JsonRelease release(json);
  if (!json.is_object()) return error(Code::model, path, ": expected an object");
  const auto found = json.find("weight_map");
  if (found == json.end() || !found->is_object())
    return error(Code::model, path, ": has no object 'weight_map'");
  const auto& weight_map = found->get_ref<const Json::object_t&>();
  if (weight_map.empty()) return error(Code::model, path, ": 'weight_map' names no tensor");

  Index index;
  for (const auto& [tensor, file] : weight_map) {
    if (!file.is_string())
      return error(Code::model, path, ": the file of ", in_quotes(tensor), " is not a string");
    const auto& name = file.get_ref<const std::string&>();
    if (!is_plain_file_name(name))
      return error(Code::model, path, ": ", in_quotes(tensor), " is said to be in ", in_quotes(name),
                   ", expected a plain file name");
    index.files.push_back(name);
  }
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  index.num_tensors.resize(index.files.size());
  for (const auto& [tensor, file] : weight_map) {
    const auto& name = file.get_ref<const std::string&>();
    const int i = int(std::lower_bound(index.files.begin(), index.files.end(), name) - index.files.begin());
    index.file_of.emplace(tensor, i);
    ++index.num_tensors[size_t(i)];
  }
  return index;
}

}  // namespace

Status Checkpoint::add_file(const std::string& path, std::vector<std::string>* names) {
  DSA_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  const std::string_view text = file->text();
  if (text.size() < kLengthBytes)
    return error(Code::corrupt, path, ": ", text.size(), " bytes, too short for a safetensors file")
        .with_fix(Fix::download_again);
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) header_bytes |= uint64_t(uint8_t(text[i])) << (8 * i);
  if (header_bytes > kMaxHeaderBytes)
    return error(Code::corrupt, path, ": a header of ", header_bytes, " bytes, expected at most ",
                 kMaxHeaderBytes);
  if (header_bytes > text.size() - kLengthBytes)
    return error(Code::corrupt, path, ": a header of ", header_bytes, " bytes, but ",
                 text.size() - kLengthBytes, " follow: it is truncated")
        .with_fix(Fix::download_again)
        .with_room(header_bytes, text.size() - kLengthBytes);
  const std::string_view header = text.substr(kLengthBytes, header_bytes);
  const std::string_view data = text.substr(kLengthBytes + header_bytes);
  if (header.empty() || header[0] != '{')
    return error(Code::corrupt, path, ": the header is not a JSON object");

  struct Span {
    uint64_t begin, end;
    const std::string* name;
  };
  std::vector<Span> spans;
  bool has_metadata = false;
  JsonLimits limits;
  limits.max_bytes = kMaxHeaderBytes;
  limits.max_values = 100'000;
  limits.max_depth = 4;
  const int file_index = int(files_.size());
  const Status status = for_each_member(header, path, limits, [&](std::string& name, Json& entry) -> Status {
    if (name == "__metadata__") {
      if (has_metadata) return error(Code::corrupt, path, ": '__metadata__' comes twice");
      has_metadata = true;
      if (!entry.is_object()) return error(Code::format, path, ": '__metadata__' is not an object");
      for (const auto& [key, value] : entry.items())
        if (!value.is_string())
          return error(Code::format, path, ": '__metadata__' ", in_quotes(key), " is not a string");
      return Status::ok();
    }
    DSA_ASSIGN(StoredTensor tensor, read_entry(concat(path, ": ", in_quotes(name)), entry, data));
    tensor.file = file_index;
    const auto [it, is_new] = tensors_.try_emplace(std::move(name), std::move(tensor));
    if (!is_new) {
      const int other = it->second.file;
      if (other == file_index) return error(Code::corrupt, path, ": ", in_quotes(it->first), " comes twice");
      return error(Code::corrupt, in_quotes(it->first), " is in ", files_[size_t(other)]->path(), " and in ",
                   path);
    }
    total_bytes_ += it->second.bytes;
    if (names) names->push_back(it->first);
    if (it->second.bytes > 0) {
      const uint64_t begin = uint64_t(it->second.data - reinterpret_cast<const uint8_t*>(data.data()));
      spans.push_back({begin, begin + it->second.bytes, &it->first});
    }
    return Status::ok();
  });
  if (status.code() == Code::json)  // in a header that is damage
    return error(Code::corrupt, status.message()).with_position(kLengthBytes + status.info().position);
  DSA_TRY(status);

  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i].begin < spans[i - 1].end)
      return error(Code::corrupt, path, ": ", in_quotes(*spans[i - 1].name), " ends at byte ",
                   spans[i - 1].end, " and ", in_quotes(*spans[i].name), " begins at ", spans[i].begin,
                   ": they overlap");
  files_.push_back(std::move(file));
  return Status::ok();
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open_file(const std::string& path) {
  auto checkpoint = std::make_shared<Checkpoint>();
  DSA_TRY(checkpoint->add_file(path, nullptr));
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::string& folder) {
  const std::string index_path = join_path(folder, kIndexName);
  if (!path_exists(index_path)) {
    const std::string single = join_path(folder, kSingleName);
    if (!path_exists(single))
      return error(Code::not_found, folder, ": has neither ", kIndexName, " nor ", kSingleName);
    return open_file(single);
  }

  DSA_ASSIGN(const Index index, read_index(index_path));
  std::vector<std::string> missing;
  for (const std::string& file : index.files)
    if (!path_exists(join_path(folder, file))) missing.push_back(file);
  if (!missing.empty())
    return error(Code::not_found, index_path, ": ", missing.size(), " of ", index.files.size(),
                 " files are missing: ", list_text(missing))
        .with_fix(Fix::download_again);

  auto checkpoint = std::make_shared<Checkpoint>();
  std::vector<std::string> names;
  for (size_t i = 0; i < index.files.size(); ++i) {
    const std::string path = join_path(folder, index.files[i]);
    names.clear();
    DSA_TRY(checkpoint->add_file(path, &names));
    std::vector<std::string> strangers;
    for (const std::string& name : names) {
      const auto it = index.file_of.find(name);
      if (it == index.file_of.end())
        strangers.push_back(name);
      else if (size_t(it->second) != i)
        return error(Code::model, path, ": ", in_quotes(name), " is here, but ", index_path,
                     " says it is in ", in_quotes(index.files[size_t(it->second)]));
    }
    if (!strangers.empty())
      return error(Code::model, path, ": ", strangers.size(), " tensors are not in ", index_path, ": ",
                   list_text(strangers));
    if (names.size() == index.num_tensors[i]) continue;
    std::vector<std::string> absent;
    for (const auto& [name, file] : index.file_of)
      if (size_t(file) == i && !checkpoint->find(name)) absent.push_back(name);
    return error(Code::model, path, ": ", absent.size(), " tensors that ", index_path,
                 " names are absent: ", list_text(absent));
  }
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

Result<TensorListing> Checkpoint::list(const std::string& folder) {
  TensorListing listing;
  const std::string index_path = join_path(folder, kIndexName);
  if (path_exists(index_path)) {
    DSA_ASSIGN(Index index, read_index(index_path));
    listing.files = std::move(index.files);
    listing.file_of.insert(index.file_of.begin(), index.file_of.end());
  } else if (path_exists(join_path(folder, kSingleName))) {
    listing.files = {kSingleName};
  }
  auto headers = std::make_shared<Checkpoint>();
  for (const std::string& file : listing.files) {
    const std::string path = join_path(folder, file);
    if (path_exists(path))
      DSA_TRY(headers->add_file(path, nullptr));
    else
      listing.missing_files.push_back(file);
  }
  listing.headers = std::move(headers);
  return listing;
}

TensorListing TensorListing::of(std::shared_ptr<const Checkpoint> checkpoint) {
  TensorListing listing;
  for (const auto& file : checkpoint->files())
    listing.files.push_back(file->path().substr(file->path().find_last_of('/') + 1));
  listing.headers = std::move(checkpoint);
  return listing;
}

bool TensorListing::has(std::string_view name) const {
  if (headers->find(name) != nullptr) return true;
  const auto at = file_of.find(name);
  return at != file_of.end() &&
         std::binary_search(missing_files.begin(), missing_files.end(), files[size_t(at->second)]);
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace dsa
