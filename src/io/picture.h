// io/picture.h: a picture as models see it: upright, 8 bits a channel, within limits, named by its content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace dsa {

struct PictureLimits {
  uint64_t max_encoded_bytes = uint64_t(64) << 20;
  uint64_t max_pixels = 100'000'000;
  int max_side = 0;               // 0: no limit
  bool refuse_too_large = false;  // a side beyond max_side: an error; otherwise the picture is shrunk to it
};

enum class PixelFormat { rgb8, rgba8, bgra8, bgr8, gray8 };

// Pixels of somebody else, read during the call.
struct Pixels {
  const uint8_t* data;
  int width, height;
  size_t stride;  // bytes from row to row; 0: rows follow each other
  PixelFormat format;
  int orientation;  // as in EXIF, 1 to 8; 0: upright
};

// Formats are recognised by their first bytes: JPEG (baseline, progressive, gray, Adobe CMYK and YCCK), PNG, GIF and
// animated WebP (first frame, on a transparent canvas), WebP, BMP (not compressed). 16 bits a channel keep their upper
// half.
//
// The structure of a file is checked, and its size against the limits, before anything is allocated for its pixels.
// Decoding then takes at most 32 bytes for each pixel, sides counted 31 longer, plus 4 times the encoded bytes and
// 1 MiB.
//
// A file that ends early is an error, and so is one with damaged data as far as its format tells: a JPEG needs its end
// marker, a PNG its IEND and right checksums, a GIF every pixel of the first frame, a BMP all rows, a WebP the length in
// its header. What follows the end is ignored.
//
// The EXIF orientation is applied. Only IFD0 of the first EXIF block counts (JPEG APP1, PNG eXIf, WebP EXIF), and there
// tag 0x0112 as one SHORT of 1 to 8; whatever else is found there, or orientation in XMP alone, means upright and never
// an error.
//
// Failures: unsupported (another format, which is named, or a variant that we do not decode), image (empty, damaged,
// cut off; with the byte position), limit (with room: pixels, bytes or the longer side), out_of_memory; from_file also
// those of MappedFile.
class Picture {
 public:
  static Result<Picture> decode(std::span<const uint8_t> encoded, const PictureLimits& limits = {});
  static Result<Picture> from_file(const std::string& path, const PictureLimits& limits = {});
  // argument: no pixels, a size, stride, format or orientation that cannot be.
  static Result<Picture> from_pixels(const Pixels& pixels, const PictureLimits& limits = {});

  Picture(Picture&&) = default;
  Picture& operator=(Picture&&) = default;
  Picture(const Picture&) = delete;  // up to hundreds of megabytes: share one instead
  Picture& operator=(const Picture&) = delete;

  int width() const { return width_; }
  int height() const { return height_; }
  int channels() const { return channels_; }                // 3: RGB; 4: RGBA, some of it transparent
  const uint8_t* pixels() const { return pixels_.data(); }  // [height, width, channels]
  size_t bytes() const { return pixels_.size(); }
  const std::string& id() const { return id_; }  // 32 hex digits: XXH3-128 of size, channels and pixels

 private:
  struct Source;
  Picture() = default;
  static Result<Picture> make(const Source& source, const PictureLimits& limits);

  int width_ = 0, height_ = 0, channels_ = 0;
  std::vector<uint8_t> pixels_;
  std::string id_;
};

}  // namespace dsa
