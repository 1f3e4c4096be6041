#include "io/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "io/mapped_file.h"

namespace dsa {
namespace {

constexpr uint64_t kJournalBytesMax = uint64_t(1) << 30;

Status write_error(const std::string& path, int number) {
  switch (number) {
    case ENOSPC: return error(Code::disk_full, path, ": no room left on its disk").with_native(number);
    case EDQUOT: return error(Code::disk_full, path, ": beyond the quota of its disk").with_native(number);
    case EFBIG:
      return error(Code::disk_full, path, ": beyond the size that a file may have").with_native(number);
    case EACCES:
    case EPERM:
    case EROFS: return error(Code::access, path, ": may not be written").with_native(number);
    case ENOENT:
    case ENOTDIR: return error(Code::not_found, path, ": its folder does not exist").with_native(number);
  }
  return error(Code::io, path, ": ", std::generic_category().message(number)).with_native(number);
}

Status write_all(const std::string& path, int fd, uint64_t offset, const void* data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t n = ::pwrite(fd, static_cast<const char*>(data) + at, bytes - at, off_t(offset + at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return write_error(path, errno);
    at += size_t(n);
  }
  return Status::ok();
}

std::string partial(const std::string& path) { return path + ".partial"; }

}  // namespace

Result<OutputFile> OutputFile::open(const std::string& path, uint64_t bytes, bool keep) {
  const std::string name = partial(path);
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return write_error(name, errno);
  OutputFile file(path, fd);
  struct stat info;
  if (fstat(fd, &info) != 0) return write_error(name, errno);
  if (keep && uint64_t(info.st_size) == bytes) return file;
  if (ftruncate(fd, 0) != 0) return write_error(name, errno);
  if (bytes == 0) return file;
  int number;
  do number = posix_fallocate(fd, 0, off_t(bytes));
  while (number == EINTR);
  // Not every file system can set room aside; there the file grows as it is written.
  if (number == EOPNOTSUPP || number == EINVAL) number = ftruncate(fd, off_t(bytes)) == 0 ? 0 : errno;
  if (number != 0) return write_error(name, number);
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status OutputFile::write(uint64_t offset, const void* data, size_t bytes) {
  return write_all(partial(path_), fd_, offset, data, bytes);
}

Status OutputFile::sync() {
  if (fdatasync(fd_) != 0) return write_error(partial(path_), errno);
  return Status::ok();
}

Status OutputFile::commit() {
  if (fsync(fd_) != 0) return write_error(partial(path_), errno);
  if (::close(std::exchange(fd_, -1)) != 0) return write_error(partial(path_), errno);
  if (::rename(partial(path_).c_str(), path_.c_str()) != 0) return write_error(path_, errno);
  return Status::ok();
}

Status write_file(const std::string& path, std::string_view content) {
  DSA_ASSIGN(OutputFile file, OutputFile::open(path, content.size()));
  DSA_TRY(file.write(0, content.data(), content.size()));
  return file.commit();
}

Result<Journal> Journal::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return write_error(path, errno);
  Journal journal(path, fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return error(Code::busy, path, ": another process works on this folder");
    return write_error(path, errno);
  }
  DSA_ASSIGN(const std::vector<uint8_t> bytes, read_file(path, kJournalBytesMax));
  journal.content_.assign(bytes.begin(), bytes.end());
  journal.content_.resize(journal.content_.rfind('\n') + 1);  // nothing, if there is no whole line
  journal.size_ = journal.content_.size();
  return journal;
}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)),
      content_(std::move(other.content_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_) {}

Journal::~Journal() {
  if (fd_ >= 0) ::close(fd_);
}

Status Journal::truncate(size_t bytes) {
  if (ftruncate(fd_, off_t(bytes)) != 0) return write_error(path_, errno);
  size_ = bytes;
  return Status::ok();
}

Status Journal::append(std::string_view lines) {
  DSA_TRY(write_all(path_, fd_, size_, lines.data(), lines.size()));
  size_ += lines.size();
  if (fdatasync(fd_) != 0) return write_error(path_, errno);
  return Status::ok();
}

Status Journal::remove() {
  if (::unlink(path_.c_str()) != 0) return write_error(path_, errno);
  return Status::ok();
}

Status make_folder(const std::string& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (!failure) return Status::ok();
  if (failure.value() == EEXIST || failure.value() == ENOTDIR)
    return error(Code::argument, path, ": is a file or below one, expected a folder")
        .with_native(failure.value());
  return write_error(path, failure.value());
}

Status sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return write_error(path, errno);
  const int number = fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return number == 0 || number == EINVAL ? Status::ok() : write_error(path, number);
}

Status check_room(const std::string& folder, uint64_t bytes) {
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) return write_error(folder, errno);
  const uint64_t available = uint64_t(info.f_bavail) * info.f_frsize;
  if (bytes <= available) return Status::ok();
  return error(Code::disk_full, folder, ": needs ", bytes, " bytes, its disk has ", available)
      .with_room(bytes, available);
}

}  // namespace dsa
