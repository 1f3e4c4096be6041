// io/output_file.h: files that are written so that a reader finds all of a file or none of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace dsa {

// Written as PATH.partial, named PATH by commit(). What a killed program leaves behind can be opened again.
//
// Failures name the path: disk_full (also beyond a quota or a limit on the size of files), access, not_found, io.
class OutputFile {
 public:
  // Room for all `bytes` is taken at once. `keep`: a partial file of that size keeps its content.
  static Result<OutputFile> open(const std::string& path, uint64_t bytes, bool keep = false);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // without commit() the partial file stays

  Status write(uint64_t offset, const void* data, size_t bytes);
  Status sync();    // what was written survives a loss of power
  Status commit();  // syncs, closes and renames

 private:
  OutputFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

// A small file at once.
Status write_file(const std::string& path, std::string_view content);

// Lines that are added one behind the other and survive a kill, one program at a time.
class Journal {
 public:
  // A new file, or the one that is there; busy if another process has it open.
  static Result<Journal> open(const std::string& path);
  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal();

  // The whole lines that were there.
  const std::string& content() const { return content_; }
  // Drops everything from this byte on.
  Status truncate(size_t bytes);
  // Adds whole lines and waits until they are on the disk.
  Status append(std::string_view lines);
  Status remove();

 private:
  Journal(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_, content_;
  int fd_;
  size_t size_ = 0;
};

// A new folder, with those above it; one that is there is fine.
Status make_folder(const std::string& path);
// The names in a folder survive a loss of power.
Status sync_folder(const std::string& path);
// disk_full with both figures if the disk of `folder` has less room.
Status check_room(const std::string& folder, uint64_t bytes);

}  // namespace dsa
