// kernels/fp8_pack/fp8_pack.cu: one block a row, which stays in L1 between its two readings.
#include "kernels/common/cuda.cuh"
#include "kernels/fp8_pack/fp8_pack.h"

namespace dsa {

constexpr int kThreads = 256, kUnits = kFp8Stretch / kFp8Unit;

void cuda::fp8_pack(const Fp8PackArgs& a, Queue& queue) {
  const bool aligned = uint64_t(a.x) % sizeof(float4) == 0 && a.x_stride % 4 == 0;
  each_block(queue, a.rows, kThreads, [a, aligned] __device__(int64_t r) {
    __shared__ float maxima[kThreads / kWarp];
    const float* x = a.x + (a.pairs ? a.pairs[r] / a.top_k : r) * a.x_stride;
    const auto four = [&](int column) {  // zeros behind the row
      if (aligned && column + 4 <= a.in_dim) return *reinterpret_cast<const float4*>(x + column);
      float values[4];
      for (int i = 0; i < 4; ++i) values[i] = column + i < a.in_dim ? x[column + i] : 0.f;
      return float4{values[0], values[1], values[2], values[3]};
    };
    float largest = 0;
    bool nan = false;
    for (int column = 4 * int(threadIdx.x); column < a.in_dim; column += 4 * kThreads) {
      const float4 v = four(column);
      largest = fmaxf(largest, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
      nan |= v.x != v.x || v.y != v.y || v.z != v.z || v.w != v.w;
    }
    largest = warp_max(largest);
    if (threadIdx.x % kWarp == 0) maxima[threadIdx.x / kWarp] = largest;
    nan = __syncthreads_or(nan);
    for (const float maximum : maxima) largest = fmaxf(largest, maximum);
    const float scale = nan ? NAN : largest == 0 ? 1 : largest / 448;
    if (threadIdx.x == 0) a.scales[r] = scale;

    for (int unit = threadIdx.x; unit < fp8_stretches(a.in_dim) * kUnits; unit += kThreads) {
      const int first = unit / kUnits * kFp8Stretch + unit % kUnits * 4;  // column
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 v = four(first + i * kMxfp4Block);
        words[i] = round_to_e4m3x4(v.x / scale, v.y / scale, v.z / scale, v.w / scale);
      }
      *reinterpret_cast<uint4*>(a.codes + fp8_tile_offset(a.rows, r, first)) = {words[0], words[1], words[2],
                                                                                words[3]};
    }
  });
}

}  // namespace dsa
