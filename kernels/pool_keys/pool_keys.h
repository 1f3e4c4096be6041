// kernels/pool_keys/pool_keys.h: index keys of `group` consecutive tokens become one, once the last of them is there.
//
//   w[j, d]         = softmax over j < group of  gates[group p + j, d] + places[j, d]        each channel by itself
//   pools.row(p)[d] = sum over j of  w[j, d] * keys[group p + j, d]
//
// Pools are counted from the first token of a sequence. The step brings rows of `keys` and `gates`; what lies before
// them in an open pool comes from `open`, and the rows of the pool that stays open go to `next_open`:
//
//   [group - 1, 2, dim]  key and gate of a token, oldest first; (position mod group) rows of it are in use
//
// The rest of next_open is not written. pools_visible[t] = (position of t + 1) / group, the pools that are complete for
// t. f32; the softmax has the maximum subtracted. A pool is the same whether its tokens come in one step or in many,
// and is rounded as the cache keeps it.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/common/paged.h"

namespace dsa {

constexpr int kPoolGroupMax = kPageSize;

struct PoolSequence {
  int row_begin, rows;  // of the step
  int position;         // of the first row in the sequence
  const float* open;    // [group - 1, 2, dim]
  float* next_open;     // the same, another memory
};

struct PoolKeysArgs {
  const float* keys;              // [tokens, dim]
  const float* gates;             // [tokens, dim]
  const float* places;            // [group, dim]
  const PoolSequence* sequences;  // [num_sequences]
  PagedRows pools;                // output: pool p of sequence s is row p
  int32_t* pools_visible;         // [tokens]  output
  int64_t keys_stride, gates_stride;
  int num_sequences, group, dim;  // group from 1 to kPoolGroupMax
};
DSA_DECLARE_KERNEL(pool_keys, PoolKeysArgs);

}  // namespace dsa
