// kernels/linears/lists.cuh: how the products of linears are shared out among blocks.
#pragma once

#include <algorithm>

#include "kernels/common/few_rows.cuh"
#include "kernels/linears/linears.h"

namespace dsa {

// Products with one input after a norm are one list of tiles, others are lists of their own. Blocks [begin[i], begin[i + 1]) take
// list i.
struct Blocks {
  int begin[LinearsArgs::kMax + 1];
};
inline int num_lists(const LinearsArgs& a) { return a.norm ? 1 : a.num_products; }
__host__ __device__ inline int tiles_of(const LinearsArgs::Product& p) { return (p.out_dim + 15) / 16; }
// Of a list that begins with product `first`.
__host__ __device__ inline int tiles_of_list(const LinearsArgs& a, int first) {
  int tiles = 0;
  for (int i = first; i < (a.norm ? a.num_products : first + 1); ++i) tiles += tiles_of(a.products[i]);
  return tiles;
}
// The product of tile i of a list that begins with product `first`; i becomes the tile within it.
__device__ inline int product_of(const LinearsArgs& a, int first, int& i) {
  int product = first;
  for (; a.norm && i >= tiles_of(a.products[product]); ++product) i -= tiles_of(a.products[product]);
  return product;
}

// Up to `all` blocks, each list as many as its weights deserve; none more than its rounds. All run at once: one more would
// double the time.
inline Blocks share_out(const LinearsArgs& a, const int64_t* rounds, int64_t all) {
  const int lists = num_lists(a);
  int64_t work = 0;
  for (int i = 0; i < lists; ++i) work += rounds[i] * a.products[i].in_dim;
  Blocks blocks = {};
  for (int i = 0; i < lists; ++i) {
    const int64_t fair = 1 + rounds[i] * a.products[i].in_dim * (all - lists) / work;
    blocks.begin[i + 1] = blocks.begin[i] + int(std::min(rounds[i], fair));
  }
  return blocks;
}

}  // namespace dsa
