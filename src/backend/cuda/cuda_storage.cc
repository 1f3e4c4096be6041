#include "backend/cuda/cuda_storage.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_errors.h"
#include "backend/signals.h"

namespace dsa {
namespace {

constexpr int kCopyThreads = 8;                 // one thread does not read as fast as the bus writes
constexpr size_t kCopyAlone = size_t(1) << 20;  // bytes that one thread copies sooner than several start

// memcpy by several threads.
void copy_host(char* to, const char* from, size_t bytes) {
  const size_t threads = std::min<size_t>({bytes / kCopyAlone + 1, size_t(kCopyThreads),
                                           std::max<size_t>(1, std::thread::hardware_concurrency())});
  if (threads <= 1) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto part = [&](size_t i) {
    const size_t begin = bytes * i / threads, end = bytes * (i + 1) / threads;
    std::memcpy(to + begin, from + begin, end - begin);
  };
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  try {
    const SignalsBlocked blocked;
    while (others.size() + 1 < threads) others.emplace_back(part, others.size() + 1);
  } catch (const std::exception&) {  // no more threads: this one copies what is left
  }
  for (size_t i = others.size() + 1; i < threads; ++i) part(i);
  part(0);
  for (std::thread& other : others) other.join();
}

}  // namespace

CudaStorage::CudaStorage(int ordinal, cudaStream_t stream)
    : ordinal_(ordinal), stream_(stream), allocated_(std::make_shared<std::atomic<uint64_t>>(0)) {}

CudaStorage::~CudaStorage() {
  const CudaScope scope(ordinal_);
  for (cudaEvent_t event : copied_)
    if (event != nullptr) cudaEventDestroy(event);
}

Result<Memory> CudaStorage::allocate(size_t bytes, const char* what) {
  const CudaScope scope(ordinal_);
  void* memory = nullptr;
  const size_t taken = std::max<size_t>(bytes, 1);
  if (const cudaError_t failure = cudaMalloc(&memory, taken); failure != cudaSuccess) {
    (void)cudaGetLastError();  // an allocation that fails harms nothing
    if (failure != cudaErrorMemoryAllocation) return cuda_status(failure, "no device memory for ", what);
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) free = 0;
    return error(Code::out_of_device_memory, "no device memory for ", what, ": ", bytes, " bytes needed, ",
                 free, " of ", total, " free")
        .with_fix(Fix::lower_budget)
        .with_native(failure)
        .with_room(bytes, free);
  }
  allocated_->fetch_add(taken, std::memory_order_relaxed);
  return Memory(memory, [ordinal = ordinal_, taken, allocated = allocated_](void* p) {
    const CudaScope again(ordinal);
    (void)cudaFree(p);
    allocated->fetch_sub(taken, std::memory_order_relaxed);
  });
}

Result<Memory> CudaStorage::allocate_pinned(size_t bytes, const char* what) {
  const CudaScope scope(ordinal_);
  void* memory = nullptr;
  if (const cudaError_t failure = cudaHostAlloc(&memory, std::max<size_t>(bytes, 1), cudaHostAllocPortable);
      failure != cudaSuccess) {
    (void)cudaGetLastError();
    if (failure != cudaErrorMemoryAllocation) return cuda_status(failure, "no pinned memory for ", what);
    return error(Code::out_of_memory, "no pinned memory for ", what, ", ", bytes, " bytes")
        .with_fix(Fix::free_memory)
        .with_native(failure)
        .with_room(bytes, 0);
  }
  return Memory(memory, [ordinal = ordinal_](void* p) {
    const CudaScope again(ordinal);
    (void)cudaFreeHost(p);
  });
}

Result<Mirror> CudaStorage::allocate_mirror(size_t bytes, const char* what) {
  Mirror mirror;
  DSA_ASSIGN(mirror.device, allocate(bytes, what));
  DSA_ASSIGN(mirror.host, allocate_pinned(bytes, what));
  return mirror;
}

void CudaStorage::note(cudaError_t error) {
  if (error == cudaSuccess) return;
  const std::lock_guard lock(mutex_);
  if (error_ == cudaSuccess) error_ = error;
}

void CudaStorage::upload(const Mirror& mirror, size_t begin, size_t bytes) {
  if (bytes == 0) return;
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  note(cudaMemcpyAsync(static_cast<char*>(mirror.device.get()) + begin,
                       static_cast<const char*>(mirror.host.get()) + begin, bytes, cudaMemcpyHostToDevice,
                       stream_));
}

void CudaStorage::download(const Mirror& mirror, size_t begin, size_t bytes) {
  if (bytes == 0) return;
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  note(cudaMemcpyAsync(static_cast<char*>(mirror.host.get()) + begin,
                       static_cast<const char*>(mirror.device.get()) + begin, bytes, cudaMemcpyDeviceToHost,
                       stream_));
}

void CudaStorage::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
}

void CudaStorage::clear(void* to, size_t bytes) {
  if (bytes == 0) return;
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  note(cudaMemsetAsync(to, 0, bytes, stream_));
}

Status CudaStorage::finish() {
  const CudaScope scope(ordinal_);
  if (queue_ != nullptr) note(queue_->take_error());
  note(cudaStreamSynchronize(stream_));
  cudaError_t failure;
  {
    const std::lock_guard lock(mutex_);
    failure = std::exchange(error_, cudaSuccess);
  }
  if (failure == cudaSuccess) return Status::ok();
  (void)cudaGetLastError();
  return cuda_status(failure, "the device failed in a step");
}

Status CudaStorage::prepare_pieces() {
  for (int i = 0; i < kPieces; ++i) {
    if (!pieces_[i]) {
      DSA_ASSIGN(pieces_[i], allocate_pinned(kPieceBytes, "copies to the device"));
    }
    if (copied_[i] == nullptr)
      if (const cudaError_t failure = cudaEventCreateWithFlags(&copied_[i], cudaEventDisableTiming);
          failure != cudaSuccess)
        return cuda_status(failure, "copies to the device");
  }
  return Status::ok();
}

Status CudaStorage::write(void* to, const void* from, size_t bytes) {
  const CudaScope scope(ordinal_);
  const std::lock_guard lock(write_mutex_);
  DSA_TRY(prepare_pieces());
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t n = std::min(kPieceBytes, bytes - at);
    const int i = next_piece_;
    next_piece_ = (i + 1) % kPieces;
    cudaError_t failure =
        cudaEventSynchronize(copied_[i]);  // the copy before from this piece; at once if there is none
    if (failure == cudaSuccess) {
      copy_host(static_cast<char*>(pieces_[i].get()), static_cast<const char*>(from) + at, n);
      const std::lock_guard order(order_);
      failure =
          cudaMemcpyAsync(static_cast<char*>(to) + at, pieces_[i].get(), n, cudaMemcpyHostToDevice, stream_);
      if (failure == cudaSuccess) failure = cudaEventRecord(copied_[i], stream_);
    }
    if (failure != cudaSuccess) return cuda_status(failure, "a copy to the device failed");
  }
  return Status::ok();
}

Status CudaStorage::read(void* to, const void* from, size_t bytes) {
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  cudaError_t failure = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_);
  if (failure == cudaSuccess) failure = cudaStreamSynchronize(stream_);
  if (failure == cudaSuccess) return Status::ok();
  note(failure);
  return cuda_status(failure, "a copy from the device failed");
}

}  // namespace dsa
