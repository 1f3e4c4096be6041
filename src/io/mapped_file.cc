#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

namespace dsa {

namespace {

Status file_error(const std::string& path, int number) {
  struct stat link;
  switch (number) {
    case ENOENT:
      if (lstat(path.c_str(), &link) == 0)
        return error(Code::not_found, path, ": a link to something that does not exist").with_native(number);
      return error(Code::not_found, path, ": no such file").with_native(number);
    case ENOTDIR: return error(Code::not_found, path, ": no such file").with_native(number);
    case EACCES:
    case EPERM: return error(Code::access, path, ": may not be read").with_native(number);
    case ELOOP: return error(Code::io, path, ": its links form a loop").with_native(number);
    case ENOMEM: return error(Code::out_of_memory, path, ": no address space to map it").with_native(number);
  }
  return error(Code::io, path, ": ", std::generic_category().message(number)).with_native(number);
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// A regular file, open for reading, and its size.
Result<FileDescriptor> open_file(const std::string& path, size_t* size) {
  if (path.find('\0') != std::string::npos)
    return error(Code::argument, "a path with a NUL byte: ", path.substr(0, path.find('\0')));
  // Opening a device can already do something, so it is looked at before, and again in case it was replaced.
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return file_error(path, errno);
  if (!S_ISREG(info.st_mode))
    return error(Code::io, path, ": is ", kind_of(info.st_mode), ", expected a file");
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0 || fstat(fd.get(), &info) != 0) return file_error(path, errno);
  if (!S_ISREG(info.st_mode))
    return error(Code::io, path, ": is ", kind_of(info.st_mode), ", expected a file");
  *size = size_t(info.st_size);
  return fd;
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  size_t size = 0;
  DSA_ASSIGN(const FileDescriptor fd, open_file(path, &size));
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->path_ = path;
  if (size == 0) return std::shared_ptr<const MappedFile>(file);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return file_error(path, errno);
  file->data_ = static_cast<const uint8_t*>(data);
  file->size_ = size;
  madvise(data, file->size_, MADV_DONTDUMP);  // weights are no news in a crash dump of the host
  return std::shared_ptr<const MappedFile>(file);
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<uint8_t*>(data_), size_);
}

Result<std::vector<uint8_t>> read_file(const std::string& path, uint64_t max_bytes) {
  size_t size = 0;
  DSA_ASSIGN(const FileDescriptor fd, open_file(path, &size));
  if (size > max_bytes)
    return error(Code::limit, path, ": ", size, " bytes, the limit is ", max_bytes)
        .with_fix(Fix::input)
        .with_room(size, max_bytes);
  std::vector<uint8_t> bytes;
  try {
    bytes.resize(size);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, path, ": no memory to read it")
        .with_fix(Fix::free_memory)
        .with_room(size, 0);
  }
  for (size_t at = 0; at < size;) {
    const ssize_t n = ::read(fd.get(), bytes.data() + at, size - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path, errno);
    if (n == 0) return error(Code::io, path, ": shrank from ", size, " to ", at, " bytes while it was read");
    at += size_t(n);
  }
  return bytes;
}

Result<FileReader> FileReader::open(const std::string& path) {
  size_t size = 0;
  DSA_ASSIGN(FileDescriptor fd, open_file(path, &size));
  return FileReader(path, fd.release(), size);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

Status FileReader::read(uint64_t offset, void* out, size_t bytes) const {
  for (size_t at = 0; at < bytes;) {
    const ssize_t n = ::pread(fd_, static_cast<char*>(out) + at, bytes - at, off_t(offset + at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path_, errno);
    if (n == 0)
      return error(Code::io, path_, ": ends at byte ", offset + at, ", expected ", offset + bytes,
                   ": it shrank while it was read");
    at += size_t(n);
  }
  return Status::ok();
}

bool path_exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

std::string join_path(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.back() == '/' ? folder + name : folder + '/' + name;
}

}  // namespace dsa
