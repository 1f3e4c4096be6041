// io/picture_codec.h: what the decoders of picture formats have in common. Inside io only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"

namespace dsa {

// An encoded picture. Reads beyond its end give 0, so a header can be looked at before its length is.
class PictureBytes {
 public:
  PictureBytes() = default;
  PictureBytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}  // NOLINT: it is one

  const uint8_t* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  bool has(size_t at, size_t n) const { return at <= size() && n <= size() - at; }
  uint8_t operator[](size_t at) const { return at < size() ? bytes_[at] : 0; }
  uint32_t be16(size_t at) const { return uint32_t((*this)[at] << 8 | (*this)[at + 1]); }
  uint32_t le16(size_t at) const { return uint32_t((*this)[at + 1] << 8 | (*this)[at]); }
  uint32_t le24(size_t at) const { return le16(at) | uint32_t((*this)[at + 2]) << 16; }
  uint32_t be32(size_t at) const { return be16(at) << 16 | be16(at + 2); }
  uint32_t le32(size_t at) const { return le16(at + 2) << 16 | le16(at); }
  // The n bytes at `at`, fewer at the end.
  PictureBytes part(size_t at, size_t n) const {
    return at >= size() ? PictureBytes() : bytes_.subspan(at, n < size() - at ? n : size() - at);
  }
  PictureBytes from(size_t at) const { return part(at, size()); }
  bool starts_with(std::string_view text) const {
    return text == std::string_view(reinterpret_cast<const char*>(data()), size()).substr(0, text.size());
  }

 private:
  std::span<const uint8_t> bytes_;
};

// What a file says about its picture before that is decoded. Both sides are positive.
struct PictureHeader {
  uint32_t width = 0, height = 0;
  int orientation = 1;
};

struct DecodedPicture {
  std::shared_ptr<const uint8_t> pixels;  // [height, width, channels]
  int width = 0, height = 0;
  int channels = 0;  // gray, gray and alpha, RGB, RGBA
};

// read_header checks the structure of the whole file and allocates nothing. decode is called after it, with the same
// file, once the size is found acceptable; it may throw std::bad_alloc.
struct PictureCodec {
  const char* name;
  Result<PictureHeader> (*read_header)(PictureBytes file);
  Result<DecodedPicture> (*decode)(PictureBytes file, const PictureHeader& header);
};
extern const PictureCodec kJpeg, kPng, kGif, kBmp, kWebp;

// The orientation in a TIFF structure as EXIF keeps it, or 1; the rule stands at Picture.
int exif_orientation(PictureBytes tiff);

// Failures; `what` continues the sentence "PNG picture: ...".
Status damaged_picture(const char* format, size_t position, std::string_view what);
Status cut_off_picture(const char* format, PictureBytes file);
Status unsupported_picture(const char* format, std::string_view what);
Status no_memory_for_picture(const char* format, uint64_t bytes);

}  // namespace dsa
