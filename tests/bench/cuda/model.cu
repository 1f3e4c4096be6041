#include <cstdio>
#include <memory>
#include <vector>

#include "backend/device.h"
#include "bench/cuda/ceilings.cuh"
#include "bench/cuda/model.h"
#include "bench/model_bench.h"

namespace dsa::bench {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "dsa_bench_cuda: %s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

// Grid   enough blocks of 256 threads for a word each, at most 2^20; threads go on to further words.
__global__ void __launch_bounds__(256)
    fill_kernel(const __grid_constant__ FillRule rule, uint64_t first, uint8_t* to, uint64_t bytes) {
  const uint64_t words = (bytes + 7) / 8;
  for (uint64_t i = blockIdx.x * uint64_t{256} + threadIdx.x; i < words; i += uint64_t(gridDim.x) * 256) {
    const uint64_t word = synthetic_word(rule, first + i);
    if (8 * i + 8 <= bytes)
      memcpy(__builtin_assume_aligned(to + 8 * i, 8), &word, 8);
    else
      for (uint64_t j = 0; 8 * i + j < bytes; ++j) to[8 * i + j] = uint8_t(word >> 8 * j);
  }
}

MakeWeights make_on_device(cudaStream_t stream) {
  return [stream](const FillRule& rule, uint64_t begin, void* to, uint64_t bytes) -> Status {
    if (begin % 8 != 0 || reinterpret_cast<uintptr_t>(to) % 8 != 0)
      return error(Code::internal, "a piece of a tensor begins within a word");
    const uint64_t blocks = std::min<uint64_t>((bytes + 2047) / 2048, uint64_t{1} << 20);
    fill_kernel<<<unsigned(blocks), 256, 0, stream>>>(rule, begin / 8, static_cast<uint8_t*>(to), bytes);
    if (const cudaError_t failure = cudaGetLastError(); failure != cudaSuccess)
      return error(Code::device_fault, "weights cannot be made: ", cudaGetErrorString(failure));
    return Status::ok();
  };
}

// Events before and after each operator. Those of a replay are nodes of a graph: so no launch is waited for.
class EventClock final : public OperatorClock {
 public:
  explicit EventClock(cudaStream_t stream) : stream_(stream) {}
  ~EventClock() override {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  void begin(Queue& queue) override { record(queue); }
  void end(const char* op, Queue& queue) override {
    record(queue);
    operators_.push_back(op);
  }
  OperatorTimes take() override {
    check(cudaStreamSynchronize(stream_), "a timed step");
    OperatorTimes times;
    for (size_t i = 0; i < operators_.size(); ++i) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, events_[2 * i], events_[2 * i + 1]), "an event");
      test::note(times, operators_[i], ms * 1e-3);
    }
    operators_.clear();
    used_ = 0;
    return times;
  }
  void replay(const std::function<void()>& work) override {
    capturing_ = true;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "a recording");
    work();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph), "a recording");
    capturing_ = false;
    count_kernels(graph);
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, graph, 0), "a recording");
    check(cudaGraphLaunch(exec, stream_), "a recording");
    check(cudaStreamSynchronize(stream_), "a timed step");
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
  int64_t kernels() const override { return kernels_; }

 private:
  void record(Queue& queue) {
    if (used_ == events_.size()) check(cudaEventCreate(&events_.emplace_back()), "an event");
    check(cudaEventRecordWithFlags(events_[used_++], static_cast<CudaQueue&>(queue).stream(),
                                   capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault),
          "an event");
  }
  void count_kernels(cudaGraph_t graph) {
    size_t count = 0;
    check(cudaGraphGetNodes(graph, nullptr, &count), "a recording");
    std::vector<cudaGraphNode_t> nodes(count);
    check(cudaGraphGetNodes(graph, nodes.data(), &count), "a recording");
    kernels_ = 0;
    for (cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type;
      check(cudaGraphNodeGetType(node, &type), "a recording");
      kernels_ += type == cudaGraphNodeTypeKernel ? 1 : 0;
    }
  }

  const cudaStream_t stream_;
  bool capturing_ = false;
  std::vector<cudaEvent_t> events_;  // of the operators, two for each
  size_t used_ = 0;
  std::vector<const char*> operators_;
  int64_t kernels_ = 0;
};

// Reads of 2 GiB, far more than caches hold.
class ReadBandwidth {
 public:
  ReadBandwidth(const CudaDevice& device, cudaStream_t stream) : device_(device), stream_(stream) {
    check(cudaMalloc(&memory_, kBytes), "memory to read");
    check(cudaMemset(memory_, 1, kBytes), "memory to read");
    check(cudaEventCreate(&begin_), "an event"), check(cudaEventCreate(&end_), "an event");
  }
  ~ReadBandwidth() {
    cudaFree(memory_);
    cudaEventDestroy(begin_), cudaEventDestroy(end_);
  }
  double operator()() {
    auto* data = static_cast<uint4*>(memory_);
    check(cudaEventRecord(begin_, stream_), "an event");
    read_kernel<<<unsigned(device_.multiprocessors * 2), 1024, 0, stream_>>>(data, kBytes / sizeof(uint4),
                                                                             data);
    check(cudaEventRecord(end_, stream_), "an event");
    check(cudaStreamSynchronize(stream_), "a read");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "an event");
    return double(kBytes) / (ms * 1e-3);
  }

 private:
  static constexpr size_t kBytes = size_t{2} << 30;
  const CudaDevice& device_;
  cudaStream_t stream_;
  void* memory_ = nullptr;
  cudaEvent_t begin_, end_;
};

Status run(const ModelBenchOptions& options) {
  DSA_ASSIGN(const auto backend, create_gpu_backend("cuda", ""));
  const auto thread = backend->enter_thread();
  // The backend has a CUDA run time of its own; streams and memory are those of the driver, and the same.
  auto& queue = static_cast<CudaQueue&>(backend->queue());
  EventClock clock(queue.stream());
  ReadBandwidth read(queue.device(), queue.stream());
  return model_bench({*backend,
                      clock,
                      make_on_device(queue.stream()),
                      {{"a read", [&](const SyntheticModel&) { return read(); }}}},
                     options);
}

}  // namespace

int cuda_model_bench(int argc, char** argv) {
  ModelBenchOptions options{.shape = "kimi-linear-48b",
                            .batches = {1, 8, 32},
                            .contexts = {2048, 4096},
                            .prompts = {512, 1024, 2048, 4096, 8192}};
  if (!read_model_options(argc, argv, options)) return 2;
  const Status status = run(options);
  if (!status.is_ok()) fprintf(stderr, "dsa_bench_cuda: %s\n", status.message().c_str());
  return status.is_ok() ? 0 : 1;
}

}  // namespace dsa::bench
