// kernels/append_rows/append_rows.cu: one block a row; in fp8, one warp for the values of a scale, or for those without.
#include "kernels/append_rows/append_rows.h"
#include "kernels/common/cuda.cuh"

namespace dsa {
namespace {

void append_fp8(const AppendRowsArgs& a, Queue& queue) {
  const int groups = Fp8Row::groups(a.cache.coded), parts = groups + (a.cache.coded < a.cache.dim);
  each_warp(queue, int64_t(a.tokens) * parts, [a, groups, parts] __device__(int64_t i, int lane) {
    const int64_t t = i / parts;
    const int group = int(i % parts);
    const float* x = a.x + t * a.x_stride;
    const Fp8Row row = a.cache.row(a.sequence_of[t], a.positions[t]).fp8();
    if (group == groups) {
      for (int d = row.coded + lane; d < a.cache.dim; d += kWarp) row.others()[d - row.coded] = to_bf16(x[d]);
      return;
    }
    const int begin = group * kFp8Block + lane, end = min(row.coded, (group + 1) * kFp8Block);
    float largest = 0;
    bool nan = false;
    for (int d = begin; d < end; d += kWarp) largest = fmaxf(largest, fabsf(x[d])), nan |= x[d] != x[d];
    const float scale =
        __ballot_sync(kAllLanes, nan) ? bits_to_f32(0x7fc00000u) : Fp8Row::scale_of(warp_max(largest));
    if (lane == 0) row.scales()[group] = scale;
    for (int d = begin; d < end; d += kWarp) row.codes[d] = f32_to_e4m3(x[d] / scale);
  });
}

}  // namespace

void cuda::append_rows(const AppendRowsArgs& a, Queue& queue) {
  if (a.cache.format == CacheFormat::fp8) return append_fp8(a, queue);
  each_block(queue, a.tokens, threads_for(a.cache.dim), [a] __device__(int64_t t) {
    const float* x = a.x + t * a.x_stride;
    const CacheRow row = a.cache.row(a.sequence_of[t], a.positions[t]);
    for (int d = threadIdx.x; d < a.cache.dim; d += blockDim.x) row.set(d, x[d]);
  });
}

}  // namespace dsa
