// kernels/head_linear/head_linear_simd.cc: plain, the heads are the groups of dot_rows.h; transposed, the
// lanes lie along the outputs and every sum runs over i in order.
#include "kernels/common/dot_rows.h"
#include "kernels/head_linear/head_linear.h"

namespace dsa {
namespace DSA_ISA {

template <class T>
static void plain(const HeadLinearArgs& a, Queue& queue) {
  const auto group = [&](int h) {
    const T* weight = static_cast<const T*>(a.weight) + h * a.weight_head_stride;
    return DotGroup<PlainWeights<T>>{
        a.x + h * a.x_head_stride, {weight, a.in_dim}, a.y + h * a.y_head_stride, a.tokens};
  };
  dot_groups<PlainWeights<T>>(queue, a.heads, group, a.x_token_stride, a.y_token_stride, a.in_dim, a.out_dim,
                              a.in_dim * int64_t(sizeof(T)));
}

constexpr int kVectors = 4;  // of outputs in a tile
constexpr int kTileOuts = kVectors * kLanes;
constexpr int64_t kTransposedItem = 64 << 10;  // multiplications that are worth a thread's while

// R tokens x kVectors vectors of outputs, of which the last may be cut: `outs` counts the outputs.
template <int R, class T>
static inline void transposed_tile(const HeadLinearArgs& a, const float* x, const T* w, float* y, int outs) {
  Vec sums[R][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = zero();

  if (outs == kTileOuts) {
    for (int i = 0; i < a.in_dim; ++i, w += a.out_dim) {
      Vec weight[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) weight[v] = load(w + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vec value = set(x[r * a.x_token_stride + i]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(value, weight[v], sums[r][v]);
      }
    }
  } else {
    for (int i = 0; i < a.in_dim; ++i, w += a.out_dim)
      for (int v = 0; v < kVectors; ++v) {
        const int n = outs - v * kLanes;
        if (n <= 0) break;
        const Vec weight = n >= kLanes ? load(w + v * kLanes) : load(w + v * kLanes, size_t(n));
        for (int r = 0; r < R; ++r) sums[r][v] = fma(set(x[r * a.x_token_stride + i]), weight, sums[r][v]);
      }
  }

  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) {
      const int n = outs - v * kLanes;
      float* out = y + r * a.y_token_stride + v * kLanes;
      if (n >= kLanes)
        store(sums[r][v], out);
      else if (n > 0)
        store(sums[r][v], out, size_t(n));
    }
}

// An item is a head, or a part of its tokens when there are few heads and many tokens; a tile of weights
// stays in L1 while the tokens of the item pass.
template <class T>
static void transposed(const HeadLinearArgs& a, Queue& queue) {
  const int tiles = (a.out_dim + kTileOuts - 1) / kTileOuts;
  const int64_t token_cost = int64_t(a.in_dim) * (a.out_dim < kTileOuts ? a.out_dim : kTileOuts) + 1;
  int64_t parts_max = a.tokens * token_cost / kTransposedItem;
  int64_t parts = queue.threads() == 1 ? 1 : 4 * queue.threads() / (int64_t(a.heads) * tiles) + 1;
  if (parts_max < 1) parts_max = 1;
  if (parts > parts_max) parts = parts_max;

  queue.parallel_for(int64_t(a.heads) * tiles * parts, [&](int64_t item) {
    const int64_t h = item / (tiles * parts), part = item % parts;
    const int o = int(item / parts % tiles) * kTileOuts;
    const int outs = a.out_dim - o < kTileOuts ? a.out_dim - o : kTileOuts;
    const int begin = int(a.tokens * part / parts), end = int(a.tokens * (part + 1) / parts);
    const T* w = static_cast<const T*>(a.weight) + h * a.weight_head_stride + o;
    for (int t = begin; t < end; t += kRowTile)
      with_rows<kRowTile>(end - t < kRowTile ? end - t : kRowTile, [&](auto rows) {
        transposed_tile<rows()>(a, a.x + t * a.x_token_stride + h * a.x_head_stride, w,
                                a.y + t * a.y_token_stride + h * a.y_head_stride + o, outs);
      });
  });
}

void head_linear(const HeadLinearArgs& a, Queue& queue) {
  if (a.weight_type == DType::bf16)
    a.transposed ? transposed<bf16>(a, queue) : plain<bf16>(a, queue);
  else
    a.transposed ? transposed<float>(a, queue) : plain<float>(a, queue);
}

}  // namespace DSA_ISA
}  // namespace dsa
