// tests/kernels/emulated/main.cc: the operator tests on the generic CUDA kernels, run by the CPU.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <stdexcept>

#include "kernels/cuda_kernels.h"
#include "tests/support/values.h"

namespace {

dsa::CudaQueue* device_queue = nullptr;
dsa::KernelVariant* device_variant = nullptr;

// A table whose operators throw what went wrong.
dsa::KernelTable throwing_table() {
  dsa::KernelTable table;
#define DSA_SET_KERNEL(name, Args)                                                               \
  table.name = [](const dsa::Args& args, dsa::Queue&) {                                          \
    dsa::cuda_kernels(device_queue->device().capability).name(args, *device_queue);              \
    if (device_queue->take_error() != cudaSuccess) throw std::runtime_error("launch of " #name); \
  };
  DSA_FOR_EACH_KERNEL(DSA_SET_KERNEL)
#undef DSA_SET_KERNEL
  return table;
}

}  // namespace

const dsa::KernelVariant* dsa::test::device_kernels() { return device_variant; }
bool dsa::test::reaches_far_pages() { return true; }

int main(int argc, char** argv) {
  dsa::CudaDevice device;
  if (dsa::read_cuda_device(0, device) != cudaSuccess) return 1;
  std::vector<uint64_t> scratch(dsa::kCudaScratchBytes / 8 + 64, ~uint64_t{0});
  void* begin = reinterpret_cast<void*>((uintptr_t(scratch.data()) + 255) / 256 * 256);
  device_queue = new dsa::CudaQueue(device, nullptr, begin, dsa::kCudaScratchBytes);
  device_variant = new dsa::KernelVariant{"cuda", throwing_table()};
  const int status = doctest::Context(argc, argv).run();
  delete device_variant;
  delete device_queue;
  return status;
}
