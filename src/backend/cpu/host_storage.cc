// backend/cpu/host_storage.cc: the memory of the host as a storage: a mirror is one piece, a copy between its sides none.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "backend/storage.h"

namespace dsa {
namespace {

std::atomic<uint64_t> allocated{0};

class HostStorage final : public Storage {
 public:
  bool is_host() const override { return true; }
  uint64_t allocated_bytes() const override { return allocated.load(std::memory_order_relaxed); }

  Result<Memory> allocate(size_t bytes, const char* what) override {
    const size_t rounded = aligned(bytes);
    void* memory = std::aligned_alloc(kStorageAlignment, rounded);
    return own(memory, bytes, what, [rounded](void* p) {
      std::free(p);
      allocated.fetch_sub(rounded, std::memory_order_relaxed);
    });
  }
  Result<Memory> allocate_sparse(size_t bytes, const char* what) override {
    const size_t rounded = aligned(bytes);
    void* memory =
        mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return own(memory == MAP_FAILED ? nullptr : memory, bytes, what, [rounded](void* p) {
      munmap(p, rounded);
      allocated.fetch_sub(rounded, std::memory_order_relaxed);
    });
  }
  Result<Mirror> allocate_mirror(size_t bytes, const char* what) override {
    DSA_ASSIGN(Memory memory, allocate(bytes, what));
    return Mirror{memory, memory};
  }

  void upload(const Mirror&, size_t, size_t) override {}
  void download(const Mirror&, size_t, size_t) override {}
  void copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void clear(void* to, size_t bytes) override { std::memset(to, 0, bytes); }
  Status finish() override { return Status::ok(); }
  Status write(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return Status::ok();
  }
  Status read(void* to, const void* from, size_t bytes) override { return write(to, from, bytes); }

 private:
  static size_t aligned(size_t bytes) {
    return (std::max<size_t>(bytes, 1) + kStorageAlignment - 1) / kStorageAlignment * kStorageAlignment;
  }
  template <class F>
  static Result<Memory> own(void* memory, size_t bytes, const char* what, const F& free) {
    if (memory == nullptr)
      return error(Code::out_of_memory, "no memory for ", what, ", ", bytes, " bytes")
          .with_fix(Fix::free_memory)
          .with_native(errno)
          .with_room(bytes, 0);
    allocated.fetch_add(aligned(bytes), std::memory_order_relaxed);
    return Memory(memory, free);
  }
};

}  // namespace

Storage& host_storage() {
  static HostStorage& storage = *new HostStorage();  // never destroyed: memory may go at exit
  return storage;
}

}  // namespace dsa
