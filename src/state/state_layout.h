// state/state_layout.h: the sizes of what a sequence keeps, in floats. A model fills it once at load.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/paged.h"

namespace dsa {

struct StateLayout {
  // Per position: latents of the attention layers, index keys of those that select.
  int latent_layers = 0, latent_dim = 0;
  int index_layers = 0, index_dim = 0;
  // Per sequence: recurrent and convolution state of the KDA layers.
  int kda_layers = 0;
  size_t recurrent_floats = 0;  // one layer: heads * k_dim * v_dim
  size_t conv_floats = 0;       // one layer: (width - 1) * channels

  // A page holds kPageSize rows of each layer, layer after layer: all latents, then all index keys.
  size_t latent_offset(int layer) const { return size_t(layer) * kPageSize * latent_dim; }
  size_t index_offset(int layer) const {
    return latent_offset(latent_layers) + size_t(layer) * kPageSize * index_dim;
  }
  size_t page_floats() const { return index_offset(index_layers); }
  size_t kda_floats() const { return size_t(kda_layers) * (recurrent_floats + conv_floats); }
  uint64_t bytes_per_token() const { return page_floats() * sizeof(float) / kPageSize; }
};

}  // namespace dsa
