// kernels/cuda_kernels.h: the operators for GPUs. Pointers in Args, and in what they point to, are device pointers; the
// queue is a CudaQueue. A call returns when its kernels are launched.
#pragma once

#include "kernels/common/cuda_queue.h"
#include "kernels/kernel_table.h"

namespace dsa {

constexpr int kCudaCapabilityMin = 80;

// Complete. The best version of each operator for a device of this capability.
const KernelTable& cuda_kernels(int capability);

}  // namespace dsa
