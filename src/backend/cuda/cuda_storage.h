// backend/cuda/cuda_storage.h: the memory of one GPU. Every allocation is plain and lives until its last owner goes.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <span>

#include "backend/storage.h"
#include "kernels/common/cuda_queue.h"

namespace dsa {

// Makes a device the current one of this thread, and the one before again.
class CudaScope {
 public:
  explicit CudaScope(int ordinal) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = -1;
    if (before_ != ordinal) cudaSetDevice(ordinal);
    now_ = ordinal;
  }
  ~CudaScope() {
    if (before_ >= 0 && before_ != now_) cudaSetDevice(before_);
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  int before_ = -1, now_ = 0;
};

class CudaStorage final : public Storage {
 public:
  // Copies go in the order of `stream`, which lives longer.
  CudaStorage(int ordinal, cudaStream_t stream);
  ~CudaStorage() override;

  bool is_host() const override { return false; }
  uint64_t allocated_bytes() const override { return allocated_->load(std::memory_order_relaxed); }
  Result<Memory> allocate(size_t bytes, const char* what) override;
  Result<Mirror> allocate_mirror(size_t bytes, const char* what) override;
  void upload(const Mirror& mirror, size_t begin, size_t bytes) override;
  void download(const Mirror& mirror, size_t begin, size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void clear(void* to, size_t bytes) override;
  Status finish() override;
  uint64_t mark() override;
  Status wait(uint64_t mark) override;
  Status write(void* to, const void* from, size_t bytes) override;
  Status write_all(std::span<const Write> writes, const GoOn& go_on) override;
  Status read(void* to, const void* from, size_t bytes) override;

  // Errors of its launches show in finish() too.
  void watch(CudaQueue& queue) { queue_ = &queue; }
  // Held while something goes to the stream, and while the stream is recorded: then other threads wait.
  std::recursive_mutex& order() { return order_; }

 private:
  void note(cudaError_t error);  // keeps the first one until finish() or wait()
  Status take_error();
  Result<Memory> allocate_pinned(size_t bytes, const char* what);

  // Pinned pieces that take turns: one is filled while the other is on its way. A lane belongs to one thread.
  static constexpr int kLanes = 16, kPieces = 2;
  static constexpr size_t kPieceBytes = size_t(2) << 20;
  struct Lane {
    Memory pieces[kPieces];
    cudaEvent_t copied[kPieces] = {};
    int next = 0;
  };
  Status prepare(Lane& lane);
  // Brings up to a piece of memory to the device through the next piece of the lane.
  cudaError_t write_piece(Lane& lane, std::span<const Write> writes);
  class Upload;

  const int ordinal_;
  const cudaStream_t stream_;
  const std::shared_ptr<std::atomic<uint64_t>> allocated_;
  CudaQueue* queue_ = nullptr;
  std::recursive_mutex order_;
  std::mutex mutex_;
  cudaError_t error_ = cudaSuccess;
  cudaEvent_t marks_[kMarks] = {};
  uint64_t last_mark_ = 0;
  std::mutex write_mutex_;
  Lane lanes_[kLanes];
};

}  // namespace dsa
