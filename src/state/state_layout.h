// state/state_layout.h: the sizes of what a sequence keeps. A model fills it once at load.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/paged.h"

namespace dsa {

struct StateLayout {
  CacheFormat format =
      CacheFormat::f32;  // of what is kept per position; fp8: of latents, and bf16 of the others
  // Per position: latents of the attention layers; keys and values of those with heads of their own; index keys of
  // those that select, of which several positions may share one.
  int latent_layers = 0, latent_dim = 0, latent_coded = 0;  // values of a row; those that fp8 codes
  int kv_layers = 0, kv_dim = 0;
  int index_layers = 0, index_dim = 0, index_group = 1;  // a divisor of kPageSize
  // Per sequence: recurrent and convolution state of the KDA layers; the open pool of each index layer.
  int kda_layers = 0;
  size_t recurrent_floats = 0;  // one layer: heads * k_dim * v_dim
  size_t conv_floats = 0;       // one layer: (width - 1) * channels

  // A page holds kPageSize positions, layer after layer: all latents, then keys and values of each layer, then all
  // index keys. Offsets in bytes, multiples of 16.
  size_t latent_offset(int layer) const { return size_t(layer) * latent_bytes(); }
  size_t key_offset(int layer) const {
    return latent_offset(latent_layers) + size_t(layer) * 2 * rows_bytes(kPageSize, kv_dim);
  }
  size_t value_offset(int layer) const { return key_offset(layer) + rows_bytes(kPageSize, kv_dim); }
  size_t index_offset(int layer) const {
    return key_offset(kv_layers) + size_t(layer) * rows_bytes(index_rows(), index_dim);
  }
  int index_rows() const { return kPageSize / index_group; }
  size_t page_bytes() const { return index_offset(index_layers); }
  uint64_t bytes_per_token() const { return page_bytes() / kPageSize; }

  // What is not paged: KDA layer after KDA layer, then the open pools.
  size_t kda_floats() const { return size_t(kda_layers) * (recurrent_floats + conv_floats); }
  size_t open_pool_floats() const { return size_t(index_group - 1) * 2 * index_dim; }  // of one index layer
  size_t fixed_floats() const { return kda_floats() + size_t(index_layers) * open_pool_floats(); }
  size_t state_bytes() const { return (fixed_floats() * sizeof(float) + 255) / 256 * 256; }  // of one copy

  CacheFormat rows_format() const { return format == CacheFormat::fp8 ? CacheFormat::bf16 : format; }
  size_t rows_bytes(int rows, int dim) const {
    return (size_t(rows) * cache_row_bytes(rows_format(), dim, 0) + 15) / 16 * 16;
  }
  size_t latent_bytes() const {
    return (size_t(kPageSize) * cache_row_bytes(format, latent_dim, latent_coded) + 15) / 16 * 16;
  }
};

}  // namespace dsa
