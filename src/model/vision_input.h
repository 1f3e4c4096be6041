// model/vision_input.h: from a picture to the patches that the tower reads.
//
// patch_limit
//   scale = min( 1, sqrt( patch_limit / (max(1, W div patch) * max(1, H div patch)) ),
//                side_limit * patch / W, side_limit * patch / H )
//   The picture is resized to the floor of its scaled sides, laid over a chessboard where it is transparent, padded with
//   black on the right and at the bottom to whole tokens, and normalised.
//
// area_range, with unit = patch * merge and up(v) the next multiple of unit
//   H', W' = up(H), up(W)
//   H' W' < area_min:  s = sqrt(area_min / (H W));  H', W' = up(ceil(H s)), up(ceil(W s))
//   H' W' > area_max:  the largest height m <= H with up(m) up(max(1, floor(W m / H))) <= area_max, by bisection
//   scale = min(H' / H, W' / W), at most 1 if H W >= area_min
//   The picture, without its transparency, is resized to the floor of its scaled sides, padded with black to H' x W', and
//   normalised.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "io/picture.h"
#include "model/model_config.h"

namespace dsa {

struct PictureShape {
  int width = 0, height = 0;  // pixels, after the resize
  int rows = 0, columns = 0;  // patches, after the padding
  int tokens = 0;

  int64_t patches() const { return int64_t(rows) * columns; }
};

// Of a picture of positive sides.
PictureShape picture_shape(const VisionConfig& config, int width, int height);

// The padded picture, 8 bits a channel.
struct Canvas {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3]
};

// out_of_memory if there is none.
Result<Canvas> picture_canvas(const VisionConfig& config, const Picture& picture);

// Patches [first, first + count) of a canvas, row-major over its grid: f32 [count, 3, patch, patch].
void canvas_patches(const VisionConfig& config, const Canvas& canvas, int64_t first, int64_t count,
                    float* out);

}  // namespace dsa
