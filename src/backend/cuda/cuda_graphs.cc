#include "backend/cuda/cuda_graphs.h"

namespace dsa {

cudaError_t CudaGraphs::run(uint64_t key, const std::function<void()>& work) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    make_room();
    entries_[key].used = ++uses_;
    work();
    return cudaSuccess;
  }
  Entry& entry = found->second;
  entry.used = ++uses_;
  if (entry.graph == nullptr && !entry.refused) entry.refused = record(work, entry.graph) != cudaSuccess;
  if (entry.graph != nullptr) return cudaGraphLaunch(entry.graph, stream_);
  work();
  return cudaSuccess;
}

// On failure nothing was launched, and no launch that could not be recorded is held against the queue.
cudaError_t CudaGraphs::record(const std::function<void()>& work, cudaGraphExec_t& graph) {
  cudaError_t failure = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  if (failure != cudaSuccess) return failure;
  const cudaError_t before = queue_.take_error();
  cudaGraph_t captured = nullptr;
  try {
    work();
  } catch (...) {
    (void)cudaStreamEndCapture(stream_, &captured);
    if (captured != nullptr) (void)cudaGraphDestroy(captured);
    throw;
  }
  const cudaError_t launch_failure = queue_.take_error();
  queue_.note(before);
  failure = cudaStreamEndCapture(stream_, &captured);
  if (failure == cudaSuccess) failure = launch_failure;
  if (failure == cudaSuccess) failure = cudaGraphInstantiate(&graph, captured, 0);
  if (captured != nullptr) (void)cudaGraphDestroy(captured);
  if (failure == cudaSuccess) return failure;
  (void)cudaGetLastError();  // no harm was done: the work can still run as it is
  graph = nullptr;
  return failure;
}

// Forgets the one that was not used for longest.
void CudaGraphs::make_room() {
  if (entries_.size() < kGraphsMax) return;
  auto oldest = entries_.begin();
  for (auto at = entries_.begin(); at != entries_.end(); ++at)
    if (at->second.used < oldest->second.used) oldest = at;
  if (oldest->second.graph != nullptr) (void)cudaGraphExecDestroy(oldest->second.graph);
  entries_.erase(oldest);
}

void CudaGraphs::clear() {
  for (auto& [key, entry] : entries_)
    if (entry.graph != nullptr) (void)cudaGraphExecDestroy(entry.graph);
  entries_.clear();
}

}  // namespace dsa
