// tests/model/vision_reference.h: the vision tower once more, in f64 and plain loops, for small models.
#pragma once

#include <vector>

#include "io/checkpoint.h"
#include "model/vision_input.h"

namespace dsa::test {

// Features of one canvas: [tokens, text_hidden].
std::vector<float> reference_features(const VisionConfig& config, int text_hidden,
                                      const Checkpoint& checkpoint, const Canvas& canvas);

}  // namespace dsa::test
