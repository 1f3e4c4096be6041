// kernels/fp8_pack/fp8_pack.cu: one block a row, which stays in L1 between its two readings.
#include "kernels/common/cuda.cuh"
#include "kernels/fp8_pack/fp8_pack.h"

namespace dsa {

void cuda::fp8_pack(const Fp8PackArgs& a, Queue& queue) {
  each_block(queue, a.rows, 256, [a] __device__(int64_t r) {
    __shared__ float maxima[256 / kWarp];
    const float* x = a.x + (a.pairs ? a.pairs[r] / a.top_k : r) * a.x_stride;
    float largest = 0;
    bool nan = false;
    for (int i = threadIdx.x; i < a.in_dim; i += blockDim.x) {
      largest = fmaxf(largest, fabsf(x[i]));
      nan |= x[i] != x[i];
    }
    largest = warp_max(largest);
    if (threadIdx.x % kWarp == 0) maxima[threadIdx.x / kWarp] = largest;
    nan = __syncthreads_or(nan);
    for (const float maximum : maxima) largest = fmaxf(largest, maximum);
    const float scale = nan ? NAN : largest == 0 ? 1 : largest / 448;
    if (threadIdx.x == 0) a.scales[r] = scale;

    for (int unit = threadIdx.x; unit < fp8_stretches(a.in_dim) * (kFp8Stretch / kFp8Unit);
         unit += blockDim.x) {
      uint32_t words[4] = {};
      for (int i = 0; i < kFp8Unit; ++i) {
        const int column = unit * kFp8Unit + i;
        if (column < a.in_dim) words[i / 4] |= uint32_t(f32_to_e4m3(x[column] / scale)) << i % 4 * 8;
      }
      *reinterpret_cast<uint4*>(a.codes + fp8_tile_offset(a.rows, r, unit * kFp8Unit)) = {words[0], words[1],
                                                                                          words[2], words[3]};
    }
  });
}

}  // namespace dsa
