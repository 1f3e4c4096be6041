// io/mapped_file.h: a file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace dsa {

// Links are followed wherever they lead, as caches of models are made of links. The file must not shrink while it is
// mapped: no check can protect a reader from that.
class MappedFile {
 public:
  // Regular files only; a missing (not_found), unreadable (access), looping or special file (io) is a typed error with
  // the path. An empty file is mapped as no bytes.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile() = default;

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// A whole file, copied into memory: it may shrink meanwhile, which is an io error. Opened and refused as MappedFile does;
// `limit`, with room, beyond max_bytes.
Result<std::vector<uint8_t>> read_file(const std::string& path, uint64_t max_bytes);

// A file that is read piece by piece, where a mapping would keep what was read in memory. Opened and refused as MappedFile
// does.
class FileReader {
 public:
  static Result<FileReader> open(const std::string& path);
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&&) = delete;
  ~FileReader();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // All of the bytes, or an io error: a file that shrank meanwhile is one.
  Status read(uint64_t offset, void* out, size_t bytes) const;

 private:
  FileReader(std::string path, int fd, uint64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}

  std::string path_;
  int fd_;
  uint64_t size_;
};

// True if `path` names something, whatever it is.
bool path_exists(const std::string& path);
std::string join_path(const std::string& folder, const std::string& name);

}  // namespace dsa
