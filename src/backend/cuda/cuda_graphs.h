// backend/cuda/cuda_graphs.h: steps that were recorded, by their key.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>

#include "kernels/common/cuda_queue.h"

namespace dsa {

class CudaGraphs {
 public:
  // Of work that goes to this queue, which lives longer.
  explicit CudaGraphs(CudaQueue& queue) : queue_(queue), stream_(queue.stream()) {}
  ~CudaGraphs() { clear(); }
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  // The first time work of a key runs as it is, which also loads its kernels; the second time it is recorded. Work that
  // cannot be recorded always runs as it is. An error of a launch.
  cudaError_t run(uint64_t key, const std::function<void()>& work);
  void clear();

 private:
  static constexpr size_t kGraphsMax = 64;

  struct Entry {
    cudaGraphExec_t graph = nullptr;
    bool refused = false;
    uint64_t used = 0;
  };
  cudaError_t record(const std::function<void()>& work, cudaGraphExec_t& graph);
  void make_room();

  CudaQueue& queue_;
  const cudaStream_t stream_;
  std::map<uint64_t, Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace dsa
