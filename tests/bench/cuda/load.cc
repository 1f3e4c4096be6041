#include "bench/cuda/load.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "backend/device.h"
#include "bench/bench.h"
#include "bench/synthetic_model.h"
#include "dsa_sdk.h"
#include "model/decoder.h"
#include "support/temp_folder.h"

namespace dsa::bench {
namespace {

constexpr size_t kPinned = size_t(256) << 20;

Status cuda(cudaError_t failure, const char* what) {
  if (failure == cudaSuccess) return Status::ok();
  return error(Code::device_fault, what, ": ", cudaGetErrorString(failure));
}

Status sdk(dsa_status status) {
  if (status == DSA_OK) return Status::ok();
  dsa_error e = DSA_INIT(dsa_error);
  (void)dsa_last_error(&e);
  return error(Code::backend, std::string(e.message.ptr, e.message.len));
}

// Pinned memory of the host, and as much of the device.
struct Pinned {
  void *host = nullptr, *device = nullptr;
  ~Pinned() {
    cudaFreeHost(host);
    cudaFree(device);
  }
  Status allocate() {
    DSA_TRY(cuda(cudaHostAlloc(&host, kPinned, cudaHostAllocDefault), "pinned memory"));
    std::memset(host, 1, kPinned);
    return cuda(cudaMalloc(&device, kPinned), "device memory");
  }
  Result<double> bytes_per_second() {
    std::vector<double> times;
    Status status;
    for (int i = 0; i < 8; ++i)
      times.push_back(seconds([&] {
        status = cuda(cudaMemcpyAsync(device, host, kPinned, cudaMemcpyHostToDevice), "a copy");
        if (status.is_ok()) status = cuda(cudaDeviceSynchronize(), "a copy");
      }));
    DSA_TRY(status);
    return double(kPinned) / median_of(times);
  }
};

// memcpy from the mapping of the weights into pinned memory, by several threads, a MiB each in turn.
double copy_bytes_per_second(const MappedFile& file, void* pinned, int threads) {
  constexpr size_t kPiece = size_t(1) << 20;
  const size_t pieces = file.size() / kPiece;
  const double time = seconds([&] {
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i)
      all.emplace_back([&, i] {
        for (size_t p = size_t(i); p < pieces; p += size_t(threads))
          std::memcpy(static_cast<char*>(pinned) + p * kPiece % kPinned, file.data() + p * kPiece, kPiece);
      });
    for (std::thread& thread : all) thread.join();
  });
  return double(pieces * kPiece) / time;
}

Status write_package(const Json& config, const std::string& folder) {
  DSA_ASSIGN(const SyntheticModel model, make_synthetic_model(config, InFile::all));
  const MappedFile& file = *model.checkpoint->files()[0];
  const auto write = [&](const char* name, const void* data, size_t bytes) {
    FILE* out = std::fopen((folder + "/" + name).c_str(), "wb");
    const bool good = out != nullptr && std::fwrite(data, 1, bytes, out) == bytes;
    return (out == nullptr || std::fclose(out) == 0) && good
               ? Status::ok()
               : error(Code::io, "the package cannot be written to ", folder);
  };
  const std::string text = config.dump();
  DSA_TRY(write("config.json", text.data(), text.size()));
  return write("model.safetensors", file.data(), file.size());
}

// Through the C interface, from the call to the model.
Result<double> seconds_of_load(const std::string& folder) {
  dsa_runtime* runtime = nullptr;
  dsa_package* package = nullptr;
  dsa_plan* plan = nullptr;
  dsa_model* model = nullptr;
  const dsa_str cuda_id = {"cuda", 4};
  dsa_source source = DSA_INIT(dsa_source);
  source.path = {folder.data(), folder.size()};
  dsa_plan_request request = DSA_INIT(dsa_plan_request);
  request.device_ids = &cuda_id;
  request.num_device_ids = 1;
  request.context_tokens = 4096;
  Status status = sdk(dsa_runtime_create(nullptr, &runtime));
  if (status.is_ok()) status = sdk(dsa_package_open(runtime, &source, &package));
  if (status.is_ok()) status = sdk(dsa_plan_create(package, &request, &plan));
  double time = 0;
  if (status.is_ok())
    time = seconds([&] { status = sdk(dsa_model_load(package, plan, nullptr, nullptr, nullptr, &model)); });
  if (status.is_ok()) status = sdk(dsa_model_close(model, 20000));
  dsa_model_release(model);
  dsa_plan_release(plan);
  dsa_package_release(package);
  dsa_runtime_release(runtime);
  DSA_TRY(status);
  return time;
}

// The part of a load in which weights are copied: from the first report of progress to the last.
Result<double> seconds_of_copies(const std::string& folder, Backend& backend, uint64_t& bytes) {
  DSA_ASSIGN(Json json, read_json_file(folder + "/config.json"));
  DSA_ASSIGN(const auto config, parse_model_config(json, "config.json", folder));
  DSA_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  using Clock = std::chrono::steady_clock;
  Clock::time_point first, last;
  const auto progress = [&](uint64_t done, uint64_t total) {
    last = Clock::now();
    if (done == 0) first = last;
    bytes = total;
    return true;
  };
  DSA_TRY(load_decoder(config, checkpoint, backend, {}, progress).status());
  return std::chrono::duration<double>(last - first).count();
}

Status run(const std::string& shape) {
  Pinned pinned;
  DSA_TRY(pinned.allocate());
  const test::TempFolder folder;
  DSA_TRY(write_package(shape_config(shape), folder.path()));
  DSA_ASSIGN(const double bus, pinned.bytes_per_second());
  printf("copy from pinned memory to the device: %.2f GB/s\n", bus * 1e-9);
  for (int i = 0; i < 2; ++i) {
    DSA_ASSIGN(const double time, seconds_of_load(folder.path()));
    printf("load %d of %s through the C interface: %.3f s\n", i + 1, shape.c_str(), time);
  }
  DSA_ASSIGN(const auto backend, create_gpu_backend("cuda", ""));
  const auto thread = backend->enter_thread();
  for (int i = 0; i < 3; ++i) {
    uint64_t bytes = 0;
    DSA_ASSIGN(const double time, seconds_of_copies(folder.path(), *backend, bytes));
    const double rate = double(bytes) / time;
    printf("weights to the device: %.2f GB in %.3f s, %.2f GB/s = %.0f %% of pinned\n", double(bytes) * 1e-9,
           time, rate * 1e-9, 100 * rate / bus);
  }
  DSA_ASSIGN(const auto checkpoint, Checkpoint::open(folder.path()));
  for (const int threads : {1, 4, 8, 16})
    printf("memcpy from the mapping to pinned memory, %2d threads: %.2f GB/s\n", threads,
           copy_bytes_per_second(*checkpoint->files()[0], pinned.host, threads) * 1e-9);
  return Status::ok();
}

}  // namespace

int cuda_load_bench(int argc, char** argv) {
  const std::string shape = argc > 0 ? argv[0] : "kimi-linear-slice";
  if (argc > 1 || shape_config(shape).is_null()) {
    fprintf(stderr, "usage: load [SHAPE]\n");
    for (const ShapeName& name : shape_names()) fprintf(stderr, "  %-20s %s\n", name.name, name.what);
    return 2;
  }
  const Status status = run(shape);
  if (!status.is_ok()) fprintf(stderr, "dsa_bench_cuda: %s\n", status.message().c_str());
  return status.is_ok() ? 0 : 1;
}

}  // namespace dsa::bench
