// model/weight_placement.h: brings weights to where kernels read them.
//
// Where kernels read the memory of the host, weights stay in the mapping of the checkpoint. Elsewhere every piece that
// is referred to is copied once, as it lies in the file, into one allocation.
#pragma once

#include "backend/storage.h"
#include "model/language_model.h"
#include "model/weights.h"

namespace dsa {

// What place_weights() will allocate.
uint64_t placed_weight_bytes(DecoderWeights& weights, const ModelConfig& config);

// On return the weights refer to the new memory, and what was converted on the way is freed. Code::cancelled if
// `progress` says so.
Status place_weights(DecoderWeights& weights, const ModelConfig& config, Storage& storage,
                     const LoadProgress& progress);

}  // namespace dsa
