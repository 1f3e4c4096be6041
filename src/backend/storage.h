// backend/storage.h: the memory that kernels read and write, and how the host gets at it.
//
// The host touches it through a Storage alone. On a CPU the two are one memory and most copies are none.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/status.h"

namespace dsa {

// Freed with its last owner, which may live longer than the storage.
using Memory = std::shared_ptr<void>;

// The same bytes on both sides; one piece where kernels read the memory of the host.
struct Mirror {
  Memory host, device;
};

// From memory of the host to that of kernels.
struct Write {
  void* to;
  const void* from;
  size_t bytes;
};

constexpr size_t kStorageAlignment = 256;

class Storage {
 public:
  virtual ~Storage() = default;

  // True if kernels read the memory of the host.
  virtual bool is_host() const = 0;
  // Bytes that are allocated for kernels.
  virtual uint64_t allocated_bytes() const = 0;

  // out_of_memory or out_of_device_memory names `what`, the bytes needed and those left.
  virtual Result<Memory> allocate(size_t bytes, const char* what) = 0;
  // The same for memory of which little may ever be touched: on the host it is address space.
  virtual Result<Memory> allocate_sparse(size_t bytes, const char* what) { return allocate(bytes, what); }
  virtual Result<Mirror> allocate_mirror(size_t bytes, const char* what) = 0;

  // These go in the order of the queue; what fails shows in the next finish(). The host side of a mirror stays as it is
  // until then.
  virtual void upload(const Mirror& mirror, size_t begin, size_t bytes) = 0;
  virtual void download(const Mirror& mirror, size_t begin, size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  virtual void clear(void* to, size_t bytes) = 0;
  // Waits until everything is done; the first failure since the last call.
  virtual Status finish() = 0;
  // A point in the order of the queue, and the wait until all before it is done; the first failure since the last wait. Of
  // the last kMarks points.
  static constexpr int kMarks = 4;
  virtual uint64_t mark() { return 0; }
  virtual Status wait([[maybe_unused]] uint64_t mark) { return finish(); }

  // From any memory of the host, which is free again on return, in the order of the queue; and to it, done on return.
  virtual Status write(void* to, const void* from, size_t bytes) = 0;
  // Many at once, as fast as it goes. `go_on` is asked with the bytes done, first with 0, at most kBytesBetween apart,
  // on this thread; if it answers no, the rest is left out.
  using GoOn = std::function<bool(uint64_t done)>;
  static constexpr size_t kBytesBetween = size_t(64) << 20;
  virtual Status write_all(std::span<const Write> writes, const GoOn& go_on);
  virtual Status read(void* to, const void* from, size_t bytes) = 0;
};

// The memory of the host.
Storage& host_storage();

}  // namespace dsa
