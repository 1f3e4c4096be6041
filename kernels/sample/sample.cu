// kernels/sample/sample.cu: a vocabulary in parts, a block each. The last token that is kept is found digit by digit of its
// key, from the top: the blocks add weights up by digit, and those of the next launch find the digit in the sums. Sums are
// of integers, so that atomics leave no trace.
#include <algorithm>

#include "kernels/common/cuda.cuh"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_weight.h"

namespace dsa {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kBins = kThreads;                        // of a digit of 8 bits: one a thread
constexpr int kDigits = 4;                             // of a key
constexpr int kPart = 2048, kEach = kPart / kThreads;  // tokens of a block, of a thread
constexpr int kStages = 2 * kDigits, kLast = kStages;  // digits of top_k, then of top_p, then the sums
constexpr int kLow = 20;                               // bits of a weight that are added up by themselves

// What a row has in scratch memory.
struct Border {
  uint32_t key;    // as far as it is known
  uint32_t equal;  // tokens of that key that are kept
  uint64_t rest;   // what the digits below must still reach
};
struct RowSums {
  uint64_t bins[kStages][kBins];
  Border borders[kStages + 1];  // in front of each stage, as far as the row has it
  Border kept;                  // by top_k
};
// What a part has.
struct PartSums {
  uint64_t best;     // key, and behind it the complement of the token
  uint64_t weights;  // above the border
  int strange;       // the first token that is NaN or +inf; vocab if there is none
  int equal;         // tokens on the border
};
struct Scratch {
  RowSums* rows;
  PartSums* parts;  // [rows, parts]
  int num_parts;
  __device__ PartSums* of(int64_t r) const { return parts + r * num_parts; }
};

__device__ uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// f over all threads of the block, to each of them.
template <class T, class F>
__device__ T block_reduce(T x, const F& f) {
  __shared__ T all[kWarps];
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x = f(x, __shfl_xor_sync(kAllLanes, x, lanes));
  __syncthreads();  // those of the call before have been read
  if (threadIdx.x % kWarp == 0) all[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = all[0];
  for (int i = 1; i < kWarps; ++i) x = f(x, all[i]);
  return x;
}

// The sum over the threads below this one; `total` is that of all.
__device__ uint64_t sum_below(uint64_t x, uint64_t& total) {
  __shared__ uint64_t all[kWarps];
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  uint64_t sum = x;
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    const uint64_t below = __shfl_up_sync(kAllLanes, sum, lanes);
    if (lane >= lanes) sum += below;
  }
  __syncthreads();
  if (lane == kWarp - 1) all[warp] = sum;
  __syncthreads();
  uint64_t before = 0;
  total = 0;
  for (int i = 0; i < kWarps; ++i) {
    before += i < warp ? all[i] : 0;
    total += all[i];
  }
  return before + sum - x;
}

// Grid (parts, rows). The best token of each part, and whether there is one that is no number; the sums of the row begin at
// zero.
__global__ void __launch_bounds__(kThreads)
    best_kernel(const __grid_constant__ SampleArgs a, const __grid_constant__ Scratch scratch) {
  begin_kernel();
  const int part = int(blockIdx.x), r = int(blockIdx.y);
  const float* logits = a.logits + r * a.logits_stride;
  uint64_t best = 0;
  int strange = a.vocab;
  for (int i = 0; i < kEach; ++i) {
    const int t = part * kPart + i * kThreads + int(threadIdx.x);
    if (t >= a.vocab) break;
    const float logit = logits[t];
    if (logit <= 3.40282347e38f)
      best = larger(best, uint64_t(sample_key(logit)) << 32 | ~uint32_t(t));
    else
      strange = min(strange, t);
  }
  best = block_reduce(best, [](uint64_t x, uint64_t y) { return larger(x, y); });
  strange = block_reduce(strange, [](int x, int y) { return min(x, y); });
  if (threadIdx.x == 0) {
    PartSums& sums = scratch.of(r)[part];
    sums.best = best, sums.strange = strange;
  }
  if (!a.flags.cuts_k && !a.flags.cuts_p) return;
  uint64_t* bins = &scratch.rows[r].bins[0][0];
  for (int i = part * kThreads + int(threadIdx.x); i < kStages * kBins; i += scratch.num_parts * kThreads)
    bins[i] = 0;
}

struct Best {
  int token, strange;
  float logit;
  bool is_drawn;  // the row has an answer, and it is not simply the best token
};
__device__ Best best_of_row(const SampleArgs& a, const Scratch& scratch, int r) {
  const PartSums* parts = scratch.of(r);
  uint64_t best = 0;
  int strange = a.vocab;
  for (int i = int(threadIdx.x); i < scratch.num_parts; i += kThreads) {
    best = larger(best, parts[i].best);
    strange = min(strange, parts[i].strange);
  }
  best = block_reduce(best, [](uint64_t x, uint64_t y) { return larger(x, y); });
  strange = block_reduce(strange, [](int x, int y) { return min(x, y); });
  const float logit = sample_logit(uint32_t(best >> 32));
  const bool possible = strange == a.vocab && logit >= -3.40282347e38f;
  return {int(~uint32_t(best)), strange, logit, possible && a.asked[r].temperature > 0};
}

__device__ bool cuts_k(const SampleArgs& a, const SampleRow& row) {
  return row.top_k > 0 && row.top_k < uint32_t(a.vocab);
}

// The border in front of a stage, from the sums of the stage before; one for which nothing was cut yet has key 0 and keeps
// all. The same on all threads.
__device__ Border border_before(const SampleArgs& a, const RowSums& sums, const SampleRow& row, float best,
                                int stage) {
  __shared__ Border found;
  int last = stage - 1;  // the last stage that this row had
  if (stage == kLast && row.top_p >= 1) last = kDigits - 1;
  if (last < kDigits && !cuts_k(a, row)) last = -1;
  if (last < 0) return {0, ~0u, row.top_k};

  const int digit = last % kDigits, shift = 8 * (kDigits - 1 - digit);
  Border border = sums.borders[last];
  if (last == kDigits) border = {0, 0, 0};  // top_p begins anew
  const uint32_t bin = kBins - 1 - threadIdx.x;
  const uint64_t sum = sums.bins[last][bin];
  uint64_t total;
  const uint64_t above = sum_below(sum, total);
  if (last == kDigits) border.rest = sample_target(row.top_p, total);
  if (above < border.rest && border.rest <= above + sum) {
    border.key |= bin << shift;
    border.rest -= above;
    if (digit == kDigits - 1) {
      const uint64_t each =
          last < kDigits ? 1 : sample_weight(sample_logit(border.key), best, sample_scale(1));
      border.equal = uint32_t((border.rest + each - 1) / each);
    }
    found = border;
  }
  __syncthreads();
  return found;
}

// Whether a key has the digits of `known` that are found in front of `digit`.
__device__ bool has_prefix(uint32_t key, uint32_t known, int digit) {
  return digit == 0 || (key ^ known) >> 8 * (kDigits - digit) == 0;
}

// Grid (parts, rows). Sums by one digit of the keys: of tokens for top_k, of weights for top_p.
__global__ void __launch_bounds__(kThreads)
    digit_kernel(const __grid_constant__ SampleArgs a, const __grid_constant__ Scratch scratch, int stage) {
  __shared__ uint32_t low[kBins], high[kBins];  // a part is small enough for both
  begin_kernel();
  const int part = int(blockIdx.x), r = int(blockIdx.y);
  const SampleRow row = a.asked[r];
  if (stage < kDigits ? !cuts_k(a, row) : row.top_p >= 1) return;
  const Best best = best_of_row(a, scratch, r);
  if (!best.is_drawn) return;
  RowSums& sums = scratch.rows[r];
  const bool weighs = stage >= kDigits;
  const int digit = stage % kDigits, shift = 8 * (kDigits - 1 - digit);
  const Border border = border_before(a, sums, row, best.logit, stage);
  const Border kept = stage == kDigits ? border : weighs ? sums.kept : Border{0, ~0u, 0};
  const uint32_t known = digit == 0 ? 0 : border.key;
  if (part == 0 && threadIdx.x == 0) {
    sums.borders[stage] = border;
    if (stage == kDigits) sums.kept = border;
  }

  low[threadIdx.x] = high[threadIdx.x] = 0;
  __syncthreads();
  const float scale = sample_scale(1);
  const float* logits = a.logits + r * a.logits_stride;
  for (int i = 0; i < kEach; ++i) {
    const int t = part * kPart + i * kThreads + int(threadIdx.x);
    if (t >= a.vocab) break;
    const uint32_t key = sample_key(logits[t]);
    if (key <= kept.key || !has_prefix(key, known, digit)) continue;
    const uint64_t weight = weighs ? sample_weight(logits[t], best.logit, scale) : 1;
    const uint32_t bin = key >> shift & (kBins - 1);
    const uint32_t of_low = uint32_t(weight) & ((1u << kLow) - 1), of_high = uint32_t(weight >> kLow);
    if (of_low != 0) atomicAdd(&low[bin], of_low);
    if (of_high != 0) atomicAdd(&high[bin], of_high);
  }
  __syncthreads();
  uint64_t sum = low[threadIdx.x] + (uint64_t(high[threadIdx.x]) << kLow);
  // Those on the border of top_k count as many times as it keeps them.
  if (part == 0 && kept.key != 0 && has_prefix(kept.key, known, digit) &&
      (kept.key >> shift & (kBins - 1)) == threadIdx.x)
    sum += kept.equal * sample_weight(sample_logit(kept.key), best.logit, scale);
  if (sum != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(&sums.bins[stage][threadIdx.x]),
              static_cast<unsigned long long>(sum));
}

// Grid (parts, rows). The weights that are drawn from, of each part.
__global__ void __launch_bounds__(kThreads)
    weigh_kernel(const __grid_constant__ SampleArgs a, const __grid_constant__ Scratch scratch) {
  begin_kernel();
  const int part = int(blockIdx.x), r = int(blockIdx.y);
  const SampleRow row = a.asked[r];
  const Best best = best_of_row(a, scratch, r);
  if (!best.is_drawn) return;
  const Border border = border_before(a, scratch.rows[r], row, best.logit, kLast);
  const float scale = sample_scale(row.temperature), unit = sample_scale(1);
  const uint64_t weight_min = sample_weight_min(row.min_p);
  const float* logits = a.logits + r * a.logits_stride;
  uint64_t sum = 0;
  int equal = 0;
  for (int i = 0; i < kEach; ++i) {
    const int t = part * kPart + i * kThreads + int(threadIdx.x);
    if (t >= a.vocab) break;
    const uint32_t key = sample_key(logits[t]);
    equal += key == border.key;
    if (key > border.key && (weight_min == 0 || sample_weight(logits[t], best.logit, unit) >= weight_min))
      sum += sample_weight(logits[t], best.logit, scale);
  }
  sum = block_reduce(sum, [](uint64_t x, uint64_t y) { return x + y; });
  equal = block_reduce(equal, [](int x, int y) { return x + y; });
  if (threadIdx.x == 0) {
    PartSums& sums = scratch.of(r)[part];
    sums.weights = sum, sums.equal = equal;
    if (part == 0) scratch.rows[r].borders[kLast] = border;
  }
}

// Of tokens, or of parts: weights above the border, and how many lie on it.
struct Amount {
  uint64_t weights, equal;
};
// Amounts in order, one a thread, of which those on the border count as long as there is some of `equal` left.
struct Walk {
  uint64_t below, weight, total;  // weights in front of this one, of this one, of all
  uint64_t left;                  // of `equal`, at this one
};
__device__ Walk walk(const Amount& amount, uint64_t equal, uint64_t equal_weight) {
  Walk w;
  const uint64_t equal_below = sum_below(amount.equal, w.total);
  w.left = equal > equal_below ? equal - equal_below : 0;
  w.weight = amount.weights + (amount.equal < w.left ? amount.equal : w.left) * equal_weight;
  w.below = sum_below(w.weight, w.total);
  return w;
}

// One block a row: the part in which the draw lies, then the token.
__global__ void __launch_bounds__(kThreads)
    choose_kernel(const __grid_constant__ SampleArgs a, const __grid_constant__ Scratch scratch) {
  __shared__ int chosen_part, chosen;
  __shared__ uint64_t place_in_part, left_in_part;
  begin_kernel();
  const int r = int(blockIdx.x);
  const SampleRow row = a.asked[r];
  const float* logits = a.logits + r * a.logits_stride;
  const Best best = best_of_row(a, scratch, r);
  if (!best.is_drawn) {
    if (threadIdx.x != 0) return;
    const bool strange = best.strange < a.vocab;
    const bool possible = !strange && best.logit >= -3.40282347e38f;
    a.sampled[r] = {possible ? best.token : -1, strange ? best.strange : -1,
                    strange ? logits[best.strange] : 0.f};
    a.tokens[r] = possible ? best.token : 0;
    return;
  }
  const PartSums* parts = scratch.of(r);
  const Border border = scratch.rows[r].borders[kLast];
  const float scale = sample_scale(row.temperature), unit = sample_scale(1);
  const uint64_t weight_min = sample_weight_min(row.min_p);
  const auto weight_of = [&](float logit) {
    if (weight_min != 0 && sample_weight(logit, best.logit, unit) < weight_min) return uint64_t(0);
    return sample_weight(logit, best.logit, scale);
  };
  const uint64_t equal_weight = border.key != 0 ? weight_of(sample_logit(border.key)) : 0;
  // Neighbouring parts a thread, then neighbouring tokens.
  const int each = (scratch.num_parts + kThreads - 1) / kThreads, first_part = int(threadIdx.x) * each;
  Amount amount{0, 0};
  for (int i = first_part; i < first_part + each && i < scratch.num_parts; ++i)
    amount.weights += parts[i].weights, amount.equal += parts[i].equal;
  const Walk w = walk(amount, border.equal, equal_weight);
  uint64_t place = __umul64hi(row.draw, w.total);
  if (w.below <= place && place < w.below + w.weight) {
    uint64_t below = w.below, left = w.left;
    for (int i = first_part; i < first_part + each && i < scratch.num_parts; ++i) {
      const auto on_border = uint64_t(parts[i].equal), equal = on_border < left ? on_border : left;
      const uint64_t weight = parts[i].weights + equal * equal_weight;
      if (place < below + weight) {
        chosen_part = i, place_in_part = place - below, left_in_part = left;
        break;
      }
      below += weight, left -= equal;
    }
  }
  __syncthreads();
  place = place_in_part;
  const int first = chosen_part * kPart + int(threadIdx.x) * kEach;
  amount = {0, 0};
  for (int t = first; t < first + kEach && t < a.vocab; ++t) {
    const uint32_t key = sample_key(logits[t]);
    amount.weights += key > border.key ? weight_of(logits[t]) : 0;
    amount.equal += key == border.key;
  }
  const Walk in_part = walk(amount, left_in_part, equal_weight);
  if (in_part.below <= place && place < in_part.below + in_part.weight) {
    uint64_t below = in_part.below, left = in_part.left;
    for (int t = first; t < first + kEach && t < a.vocab; ++t) {
      const uint32_t key = sample_key(logits[t]);
      const bool counts = key == border.key && left > 0;
      below += key > border.key ? weight_of(logits[t]) : counts ? equal_weight : 0;
      left -= counts;
      if (place < below) {
        chosen = t;
        break;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  a.sampled[r] = {chosen, -1, 0.f};
  a.tokens[r] = chosen;
}

}  // namespace

void cuda::sample(const SampleArgs& a, Queue& queue) {
  auto& cuda_queue = static_cast<CudaQueue&>(queue);
  const int num_parts = int(ceil_div(a.vocab, kPart));
  const size_t row_bytes = sizeof(RowSums) + size_t(num_parts) * sizeof(PartSums);
  const int rows_max =
      int(cuda_queue.scratch_bytes() / row_bytes);  // of one round; many in the least scratch there is
  for (int begin = 0; begin < a.rows; begin += rows_max) {
    SampleArgs some = a;
    some.rows = std::min(rows_max, a.rows - begin);
    some.logits += begin * a.logits_stride;
    some.asked += begin, some.sampled += begin, some.tokens += begin;
    auto* rows = static_cast<RowSums*>(cuda_queue.scratch());
    const Scratch scratch{rows, reinterpret_cast<PartSums*>(rows + some.rows), num_parts};
    const dim3 grid{unsigned(num_parts), unsigned(some.rows)};
    launch(queue, grid, kThreads, 0, best_kernel, some, scratch);
    for (int stage = 0; stage < kStages; ++stage)
      if (stage < kDigits ? a.flags.cuts_k : a.flags.cuts_p)
        launch(queue, grid, kThreads, 0, digit_kernel, some, scratch, stage);
    if (a.flags.draws) launch(queue, grid, kThreads, 0, weigh_kernel, some, scratch);
    launch(queue, unsigned(some.rows), kThreads, 0, choose_kernel, some, scratch);
  }
}

}  // namespace dsa
