// kernels/pool_keys/pool_keys_ref.cc: plain loops, f64 sums; sequences go to the threads.
#include <algorithm>
#include <cmath>

#include "kernels/pool_keys/pool_keys.h"

namespace dsa {
namespace {

// Key and gate of a token of the sequence: of this step, or of the open pool that the last one left.
struct Token {
  const float *key, *gate;
};

Token token_of(const PoolKeysArgs& a, const PoolSequence& s, int position) {
  if (position >= s.position) {
    const int64_t row = s.row_begin + position - s.position;
    return {a.keys + row * a.keys_stride, a.gates + row * a.gates_stride};
  }
  const float* row = s.open + int64_t(position % a.group) * 2 * a.dim;
  return {row, row + a.dim};
}

void pool(const PoolKeysArgs& a, const PoolSequence& s, int p, CacheRow out) {
  Token tokens[kPoolGroupMax];
  for (int j = 0; j < a.group; ++j) tokens[j] = token_of(a, s, p * a.group + j);
  for (int d = 0; d < a.dim; ++d) {
    double largest = -INFINITY, total = 0, sum = 0;
    for (int j = 0; j < a.group; ++j)
      largest = std::max(largest, double(tokens[j].gate[d]) + a.places[int64_t(j) * a.dim + d]);
    for (int j = 0; j < a.group; ++j) {
      const double weight = std::exp(tokens[j].gate[d] + double(a.places[int64_t(j) * a.dim + d]) - largest);
      total += weight;
      sum += weight * tokens[j].key[d];
    }
    out.set(d, float(sum / total));
  }
}

}  // namespace

void ref::pool_keys(const PoolKeysArgs& a, Queue& queue) {
  queue.parallel_for(a.num_sequences, [&](int64_t i) {
    const PoolSequence& s = a.sequences[i];
    const int end = s.position + s.rows, complete = end / a.group;
    for (int p = s.position / a.group; p < complete; ++p) pool(a, s, p, a.pools.row(int(i), p));
    for (int position = complete * a.group; position < end; ++position) {
      const Token token = token_of(a, s, position);
      float* row = s.next_open + int64_t(position % a.group) * 2 * a.dim;
      std::copy(token.key, token.key + a.dim, row);
      std::copy(token.gate, token.gate + a.dim, row + a.dim);
    }
    for (int r = 0; r < s.rows; ++r) a.pools_visible[s.row_begin + r] = (s.position + r + 1) / a.group;
  });
}

}  // namespace dsa
