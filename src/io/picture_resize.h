// io/picture_resize.h: the bicubic resize that vision models were trained with.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace dsa {

// Pillow's antialiased bicubic, bit for bit: weights f((x + 0.5 - center) / max(1, scale)) with the cubic of a = -0.5,
// normalized and rounded to 22 bits; columns first, then rows, 8 bits in between; a pass that changes nothing is left
// out. Pictures with alpha are resized with colours multiplied by it, so colours under alpha 0 have no effect.
//
//   src   [h, w, channels]    3: RGB, 4: RGBA; all sizes positive
//   out   [h1, w1, channels]
//
// out_of_memory if there is none.
Result<std::vector<uint8_t>> resize_bicubic(const uint8_t* src, int w, int h, int channels, int w1, int h1);

}  // namespace dsa
