// backend/cuda/cuda_backend.cc: the module: which GPUs there are, and a backend on one of them.
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "backend/cuda/cuda_errors.h"
#include "backend/cuda/cuda_graphs.h"
#include "backend/cuda/cuda_module.h"
#include "backend/cuda/cuda_storage.h"
#include "backend/signals.h"
#include "kernels/cuda_kernels.h"

namespace dsa {
namespace {

// Where the products of FP8 are tuned. On an H200, with matrices of 7168 -> 4096, FP8 is faster from 4 rows of an expert on, five
// times at 16 (dsa_bench_cuda overlap). Below, activations keep more of their bits. Weights that are expanded within the
// product are expanded again for each 256 rows: from some 640 on, once to memory is faster.
int fp8_rows_of(int capability) { return capability == 90 ? 16 : 0; }
int expand_rows_of(int capability) { return capability == 90 ? 640 : 0; }

class CudaBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> create(int ordinal, size_t scratch_bytes = kCudaScratchBytes) {
    const CudaScope scope(ordinal);
    std::unique_ptr<CudaBackend> backend(new CudaBackend(ordinal));
    if (const cudaError_t failure = read_cuda_device(ordinal, backend->device_); failure != cudaSuccess)
      return cuda_status(failure, "the properties of GPU ", ordinal);
    if (const cudaError_t failure = cudaStreamCreateWithFlags(&backend->stream_, cudaStreamNonBlocking);
        failure != cudaSuccess)
      return cuda_status(failure, "a stream on GPU ", ordinal);
    if (const cudaError_t failure = cudaStreamCreateWithFlags(&backend->side_, cudaStreamNonBlocking);
        failure != cudaSuccess)
      return cuda_status(failure, "a second stream on GPU ", ordinal);
    backend->storage_ = std::make_unique<CudaStorage>(ordinal, backend->stream_);
    DSA_ASSIGN(backend->scratch_, backend->storage_->allocate(scratch_bytes, "the scratch of operators"));
    backend->queue_ = std::make_unique<CudaQueue>(backend->device_, backend->stream_, backend->scratch_.get(),
                                                  scratch_bytes, backend->side_);
    backend->storage_->watch(*backend->queue_);
    backend->graphs_ = std::make_unique<CudaGraphs>(*backend->queue_);
    return std::unique_ptr<Backend>(std::move(backend));
  }
  ~CudaBackend() override {
    const CudaScope scope(ordinal_);
    if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
    graphs_.reset();
    queue_.reset();
    scratch_.reset();
    storage_.reset();
    for (cudaStream_t stream : {stream_, side_})
      if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }

  const char* name() const override { return "cuda"; }
  const KernelTable& kernels() const override { return cuda_kernels(device_.capability); }
  Queue& queue() override { return *queue_; }
  Queue& side() override { return queue_->side(); }
  void follow(Queue& queue, Queue& first) override {
    static_cast<CudaQueue&>(queue).follow(static_cast<CudaQueue&>(first));
  }
  Storage& storage() override { return *storage_; }
  std::shared_ptr<void> enter_thread() override { return std::make_shared<CudaScope>(ordinal_); }
  int fp8_rows() const override { return fp8_rows_of(device_.capability); }
  int expand_rows() const override { return expand_rows_of(device_.capability); }
  bool fuses() const override { return true; }
  bool samples() const override { return true; }
  bool can_replay() const override { return true; }
  void replay(uint64_t key, const std::function<void()>& work) override {
    const std::lock_guard order(storage_->order());
    queue_->note(graphs_->run(key, work));
  }

 private:
  explicit CudaBackend(int ordinal) : ordinal_(ordinal) {}

  const int ordinal_;
  CudaDevice device_;
  cudaStream_t stream_ = nullptr, side_ = nullptr;
  std::unique_ptr<CudaStorage> storage_;
  Memory scratch_;
  std::unique_ptr<CudaQueue> queue_;
  std::unique_ptr<CudaGraphs> graphs_;
};

// Adds four numbers on the device: nothing else proves that this build runs there.
Status run_a_kernel(int ordinal) {
  DSA_ASSIGN(const std::unique_ptr<Backend> backend, CudaBackend::create(ordinal, 0));
  const auto thread = backend->enter_thread();
  DSA_ASSIGN(const Mirror mirror, backend->storage().allocate_mirror(12 * sizeof(float), "a first kernel"));
  float *host = static_cast<float*>(mirror.host.get()), *device = static_cast<float*>(mirror.device.get());
  for (int i = 0; i < 12; ++i) host[i] = float(i);
  backend->storage().upload(mirror, 0, 12 * sizeof(float));
  backend->kernels().add({device, device + 4, device + 8, 4}, backend->queue());
  backend->storage().download(mirror, 0, 12 * sizeof(float));
  DSA_TRY(backend->storage().finish());
  for (int i = 0; i < 4; ++i)
    if (host[8 + i] != float(2 * i + 4))
      return error(Code::device_fault, "a first kernel computed ", host[8 + i], ", expected ", 2 * i + 4);
  return Status::ok();
}

std::string version_text(int version) { return concat(version / 1000, ".", version % 1000 / 10); }

std::string driver_text() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) return {};
  return "CUDA " + version_text(version);
}

// Why no device can be asked for; ok if some can.
Status check_driver(int& count) {
  const cudaError_t failure = cudaGetDeviceCount(&count);
  if (failure == cudaSuccess && count > 0) return Status::ok();
  (void)cudaGetLastError();
  count = 0;
  if (failure == cudaSuccess || failure == cudaErrorNoDevice)
    return error(Code::no_device, "the driver finds no GPU").with_native(failure);
  int driver = 0;
  if (cuda_code(failure) == Code::driver) {
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
      return error(Code::driver, "there is no NVIDIA driver")
          .with_native(failure)
          .with_fix(Fix::update_driver);
    return error(Code::driver, "the driver is for CUDA ", version_text(driver), ", expected ",
                 version_text(CUDART_VERSION), " or newer")
        .with_native(failure)
        .with_fix(Fix::update_driver);
  }
  return cuda_status(failure, "the driver cannot be used");
}

// What a device of this capability runs; of none: what the build has.
std::vector<KernelVariant> kernels_of(int capability) {
  std::vector<KernelVariant> variants{{"cuda", cuda_kernels(kCudaCapabilityMin)}};
  if (capability == 90 || capability == 0) variants.push_back({"sm90", cuda_kernels(90)});
  return variants;
}

DeviceInfo describe(int ordinal) {
  DeviceInfo info;
  info.id = concat("cuda:", ordinal);
  info.driver = driver_text();
  cudaDeviceProp properties;
  if (const cudaError_t failure = cudaGetDeviceProperties(&properties, ordinal); failure != cudaSuccess) {
    info.name = concat("GPU ", ordinal);
    info.why_not = cuda_status(failure, "the properties of GPU ", ordinal);
    return info;
  }
  const auto* id = reinterpret_cast<const unsigned char*>(properties.uuid.bytes);
  char uuid[64];
  std::snprintf(uuid, sizeof uuid, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10], id[11], id[12],
                id[13], id[14], id[15]);
  info.id = concat("cuda:GPU-", uuid);
  char bus[32] = "";
  (void)cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal);
  info.name = concat(properties.name, " at ", bus);
  info.integrated = properties.integrated != 0;
  int timeout = 0;
  info.drives_display =
      cudaDeviceGetAttribute(&timeout, cudaDevAttrKernelExecTimeout, ordinal) == cudaSuccess && timeout != 0;
  info.total_bytes = properties.totalGlobalMem;
  info.backend_bytes = kCudaScratchBytes;
  const int capability = 10 * properties.major + properties.minor;
  info.fp8_rows = fp8_rows_of(capability);
  info.expand_rows = expand_rows_of(capability);
  info.kernels = kernels_of(capability);
  if (capability < kCudaCapabilityMin) {
    info.why_not = error(Code::backend, properties.name, " has compute capability ", properties.major, ".",
                         properties.minor, ", expected ", kCudaCapabilityMin / 10, ".",
                         kCudaCapabilityMin % 10, " or newer");
    return info;
  }
  info.why_not = run_a_kernel(ordinal);
  if (info.why_not.code() == Code::backend)
    info.why_not = error(Code::backend, properties.name, " has compute capability ", properties.major, ".",
                         properties.minor, ", this build has code for ", DSA_CUDA_ARCHITECTURES);
  (void)cudaGetLastError();
  const CudaScope scope(ordinal);
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) info.free_bytes = free;
  return info;
}

DeviceInfo no_device(const Status& why_not) {
  DeviceInfo none;
  none.id = "cuda";
  none.name = "CUDA";
  none.driver = driver_text();
  none.why_not = why_not;
  none.kernels = kernels_of(0);
  return none;
}

std::vector<DeviceInfo> find_devices() {
  int count = 0;
  const Status usable = check_driver(count);
  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) devices.push_back(describe(ordinal));
  if (devices.empty()) devices.push_back(no_device(usable));
  return devices;
}

// The first use of a device sets up its context: on a thread of our own, so that no thread of the host has it current.
// No exception leaves: the module may have a C++ run time of its own.
Status on_own_thread(const std::function<void()>& f) {
  std::exception_ptr thrown;
  const auto body = [&] {
    try {
      f();
    } catch (...) {
      thrown = std::current_exception();
    }
  };
  try {
    std::thread thread;
    {
      const SignalsBlocked blocked;
      thread = std::thread(body);
    }
    thread.join();
    if (thrown) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "out of host memory while GPUs are looked at");
  } catch (const std::system_error& e) {
    return error(Code::out_of_memory, "cannot start a thread that looks at GPUs: ", e.what())
        .with_native(e.code().value());
  } catch (const std::exception& e) {
    return error(Code::internal, "an exception while GPUs are looked at: ", e.what());
  }
  return Status::ok();
}

std::vector<DeviceInfo> list() {
  std::vector<DeviceInfo> devices;
  const Status status = on_own_thread([&] { devices = find_devices(); });
  if (!status.is_ok()) devices = {no_device(status)};
  return devices;
}

Result<int> find_ordinal(const std::string& id, const std::vector<DeviceInfo>& devices) {
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool wanted = id == "cuda" ? devices[i].why_not.is_ok() || i + 1 == devices.size()
                                     : id == devices[i].id || id == concat("cuda:", i);
    if (!wanted) continue;
    if (!devices[i].why_not.is_ok()) return devices[i].why_not;
    return int(i);
  }
  return error(Code::no_device, "there is no device '", id, "', the last of ", devices.size(), " is '",
               devices.back().id, "'")
      .with_fix(Fix::input);
}

Result<std::unique_ptr<Backend>> create(const std::string& id) {
  std::optional<Result<std::unique_ptr<Backend>>> created;
  DSA_TRY(on_own_thread([&] {
    const auto ordinal = find_ordinal(id, find_devices());
    if (ordinal.is_ok())
      created = CudaBackend::create(ordinal.value());
    else
      created = ordinal.status();
  }));
  return *std::move(created);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const CudaModule* dsa_cuda_module() {
  static const CudaModule module{cuda_module_build(), list, create};
  return &module;
}

}  // namespace dsa
