// kernels/sample/sample.h: one token for each row of logits.
//
//   best = the largest logit                         the lowest token of a tie; the answer at temperature 0
//   w(t, T)  = floor( 2^40 exp((logits[t] - best) / T) )          as sample_weight.h has it
//   order: larger logits first, lower tokens first among equals
//
//   top_k    keeps the first top_k tokens of the order; 0 keeps all
//   top_p    of those the shortest beginning whose sum of w(t, 1) is at least top_p of their whole sum, at least one
//   min_p    of those the tokens with w(t, 1) >= min_p 2^40
//   draw     the first token t, in ascending order, with sum of w(u, temperature) over the kept u <= t greater than
//            floor( draw 2^-64 total )
//
// Weights are integers, so that no order of the sums and no machine changes the answer: implementations agree on every
// token. A token below 2^-40 of the best one is never drawn. Rows with a NaN or +inf have no answer, nor those of -inf
// alone.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/kernel.h"

namespace dsa {

// What is asked of a row.
struct SampleRow {
  float temperature = 0;       // 0: the best token, and nothing below counts
  float top_p = 1, min_p = 0;  // in [0, 1]; 1 and 0: off
  uint32_t top_k = 0;          // 0: off
  uint64_t draw = 0;           // uniform over all 64-bit numbers
};

// What a row gives.
struct SampledToken {
  int32_t token;  // -1: none
  int32_t at;     // the first token whose logit is NaN or +inf; -1: there is none
  float logit;    // of that one; 0 if there is none
};

// What at least one of the rows asks for: kernels that nobody needs are not started.
struct SampleFlags {
  bool draws = false, cuts_k = false, cuts_p = false;  // a temperature; and with it a top_k, a top_p
};
inline SampleFlags sample_flags(std::span<const SampleRow> asked, int64_t vocab) {
  SampleFlags flags;
  for (const SampleRow& row : asked) {
    if (row.temperature == 0) continue;
    flags.draws = true;
    flags.cuts_k |= row.top_k > 0 && row.top_k < vocab;
    flags.cuts_p |= row.top_p < 1;
  }
  return flags;
}

struct SampleArgs {
  const float* logits;     // [rows, vocab]
  const SampleRow* asked;  // [rows]
  SampledToken* sampled;   // [rows]  output
  int32_t* tokens;         // [rows]  output; the token again, 0 where there is none: what the next step reads
  int64_t logits_stride;   // floats from row to row
  int rows, vocab;         // vocab at most 2^23
  SampleFlags flags;
};
DSA_DECLARE_KERNEL(sample, SampleArgs);

}  // namespace dsa
