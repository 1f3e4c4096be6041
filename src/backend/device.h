// backend/device.h: the GPUs of this machine, each with what keeps it from being used.
//
// Code for them lies in a module of its own, libdsa_sdk_cuda.so, which is loaded when somebody asks: a machine without a
// driver, or an installation without the module, only has reasons to tell.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"

namespace dsa {

constexpr const char* kCpuDevice = "cpu:0";

struct DeviceInfo {
  std::string id;            // "cuda:GPU-<uuid>"; "cuda" where nothing can be named
  std::string name, driver;  // "580.65 (CUDA 13.0)"
  Status why_not;            // ok: a kernel ran on it
  bool integrated = false, drives_display = false;
  uint64_t total_bytes = 0, free_bytes = 0;
  uint64_t backend_bytes = 0;          // that a backend takes before anybody asks
  int fp8_rows = 0, expand_rows = 0;   // Backend::fp8_rows(), expand_rows()
  std::vector<KernelVariant> kernels;  // plain to best; none where the module cannot be loaded
};

// Empty if there is no module; one entry with the reason if the module cannot be used at all. `module_dir` empty: the
// folder of this library.
std::vector<DeviceInfo> list_gpus(const std::string& module_dir);

// The CPU and, if there is a module, CUDA as the best of these GPUs has it.
std::vector<BackendKernels> backends_with(const std::vector<DeviceInfo>& gpus);

// `id` as listed, "cuda" for the first usable one, or "cuda:N" for number N of those listed.
Result<std::unique_ptr<Backend>> create_gpu_backend(const std::string& id, const std::string& module_dir);

}  // namespace dsa
