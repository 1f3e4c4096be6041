// kernels/append_rows/append_rows_ref.cc: one row after the other.
#include <cmath>

#include "kernels/append_rows/append_rows.h"

namespace dsa {
namespace {

void write(const float* x, int dim, const Fp8Row& row) {
  for (int begin = 0; begin < row.coded; begin += kFp8Block) {
    const int end = row.coded < begin + kFp8Block ? row.coded : begin + kFp8Block;
    float largest = 0;
    bool nan = false;
    for (int d = begin; d < end; ++d) largest = std::fmax(largest, std::fabs(x[d])), nan |= std::isnan(x[d]);
    const float scale = nan ? NAN : Fp8Row::scale_of(largest);
    row.scales()[begin / kFp8Block] = scale;
    for (int d = begin; d < end; ++d) row.codes[d] = f32_to_e4m3(x[d] / scale);
  }
  for (int d = row.coded; d < dim; ++d) row.others()[d - row.coded] = to_bf16(x[d]);
}

}  // namespace

void ref::append_rows(const AppendRowsArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const CacheRow row = a.cache.row(a.sequence_of[t], a.positions[t]);
    const float* x = a.x + t * a.x_stride;
    if (row.format == CacheFormat::fp8) return write(x, a.cache.dim, row.fp8());
    for (int d = 0; d < a.cache.dim; ++d) row.set(d, x[d]);
  });
}

}  // namespace dsa
