// tests/kernels/cuda/main.cc: the operator tests on a GPU. Everything the tests allocate lies in memory of the host that
// the GPU reads and writes too, so that their vectors go to the kernels as they are. Exit status 77: no GPU.
//
// DSA_TEST_GUARD=1 gives every allocation memory of its own, for compute-sanitizer.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <stdexcept>

#include "kernels/cuda_kernels.h"
#include "tests/support/values.h"

namespace {

// Blocks of powers of two, cut from one allocation and kept for the next of their size.
class Arena {
 public:
  cudaError_t open(size_t bytes, bool guard) {
    guard_ = guard;
    if (guard) return open_ = true, cudaSuccess;
    const cudaError_t error = cudaHostAlloc(reinterpret_cast<void**>(&begin_), bytes, cudaHostAllocDefault);
    if (error == cudaSuccess) open_ = true, used_ = begin_, end_ = begin_ + bytes;
    return error;
  }
  void* allocate(size_t bytes) {
    if (!open_) return malloc(bytes);
    const std::lock_guard lock(mutex_);
    void* memory = nullptr;
    if (guard_) {
      return cudaHostAlloc(&memory, bytes + kTag, cudaHostAllocDefault) == cudaSuccess ? tag(memory)
                                                                                       : nullptr;
    }
    const int size_class = std::bit_width(std::max(bytes, kSmallest) - 1);
    if (free_[size_class]) {
      memory = free_[size_class];
      free_[size_class] = *static_cast<void**>(memory);
    } else if (size_t(end_ - used_) >= size_t{1} << size_class) {
      memory = used_;
      used_ += size_t{1} << size_class;
      classes_[size_t(static_cast<char*>(memory) - begin_) / kSmallest] = uint8_t(size_class);
    }
    return memory ? memset(memory, 0xff, bytes) : nullptr;
  }
  void release(void* memory) {
    if (memory == nullptr) return;
    if (guard_ && tagged(memory)) {
      const std::lock_guard lock(mutex_);
      cudaFreeHost(static_cast<char*>(memory) - kTag);
    } else if (begin_ <= memory && memory < end_) {
      const std::lock_guard lock(mutex_);
      const int size_class = classes_[size_t(static_cast<char*>(memory) - begin_) / kSmallest];
      *static_cast<void**>(memory) = free_[size_class];
      free_[size_class] = memory;
    } else {
      free(memory);
    }
  }

  static constexpr size_t kBytes = size_t{3} << 30;

 private:
  static constexpr size_t kSmallest = 64, kTag = 64;
  static constexpr uint64_t kMark = 0x6b72616d2e617364;

  static void* tag(void* memory) {
    *static_cast<uint64_t*>(memory) = kMark;
    return static_cast<char*>(memory) + kTag;
  }
  // What was allocated before the arena was opened comes from malloc and has no mark.
  static bool tagged(void* memory) {
    return uintptr_t(memory) % 64 == 0 &&
           *reinterpret_cast<uint64_t*>(static_cast<char*>(memory) - kTag) == kMark;
  }

  bool open_ = false, guard_ = false;
  char *begin_ = nullptr, *used_ = nullptr, *end_ = nullptr;
  void* free_[64] = {};
  std::mutex mutex_;
  uint8_t classes_[kBytes / kSmallest] = {};  // of the blocks, where they begin
};
constinit Arena arena;

dsa::CudaQueue* device_queue = nullptr;
dsa::KernelVariant* device_variant = nullptr;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// A table whose operators wait for their kernels and throw what went wrong.
dsa::KernelTable waiting_table() {
  dsa::KernelTable table;
#define DSA_SET_KERNEL(name, Args)                                                  \
  table.name = [](const dsa::Args& args, dsa::Queue&) {                             \
    dsa::cuda_kernels(device_queue->device().capability).name(args, *device_queue); \
    check(device_queue->take_error(), "launch of " #name);                          \
    check(cudaStreamSynchronize(device_queue->stream()), #name);                    \
  };
  DSA_FOR_EACH_KERNEL(DSA_SET_KERNEL)
#undef DSA_SET_KERNEL
  return table;
}

}  // namespace

void* operator new(size_t bytes) {
  if (void* memory = arena.allocate(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t) {
  return operator new(bytes);
}  // blocks are 64-byte aligned
void operator delete(void* memory) noexcept { arena.release(memory); }
void operator delete(void* memory, size_t) noexcept { arena.release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { arena.release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { arena.release(memory); }

const dsa::KernelVariant* dsa::test::device_kernels() { return device_variant; }
bool dsa::test::reaches_far_pages() { return false; }

int main(int argc, char** argv) {
  dsa::CudaDevice device;
  cudaError_t error = dsa::read_cuda_device(0, device);
  if (error != cudaSuccess || device.capability < dsa::kCudaCapabilityMin) {
    printf("skipped: %s\n", error != cudaSuccess ? cudaGetErrorString(error) : "the GPU is too old");
    return 77;
  }
  void* scratch = nullptr;
  cudaStream_t stream = nullptr;
  const char* guard = getenv("DSA_TEST_GUARD");
  if ((error = cudaStreamCreate(&stream)) != cudaSuccess ||
      (error = cudaMalloc(&scratch, dsa::kCudaScratchBytes)) != cudaSuccess ||
      (error = cudaMemset(scratch, 0xff, dsa::kCudaScratchBytes)) != cudaSuccess ||
      (error = arena.open(Arena::kBytes, guard && *guard == '1')) != cudaSuccess) {
    fprintf(stderr, "the GPU cannot be set up: %s\n", cudaGetErrorString(error));
    return 1;
  }
  device_queue = new dsa::CudaQueue(device, stream, scratch, dsa::kCudaScratchBytes);
  device_variant = new dsa::KernelVariant{"cuda", waiting_table()};
  return doctest::Context(argc, argv).run();  // nothing is freed: the arena serves until the end
}
