#include "io/picture.h"

#include <algorithm>
#include <new>
#include <string_view>

#include "io/mapped_file.h"
#include "io/picture_codec.h"
#include "io/picture_resize.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace dsa {

// Pixels as they come from a decoder or a caller.
struct Picture::Source {
  const uint8_t* data;
  uint32_t width, height;
  size_t stride;
  int channels;  // gray, gray and alpha, RGB, RGBA
  bool bgr;
  int orientation;  // 1 to 8
};

namespace {

constexpr uint64_t kMostPixels = uint64_t(1) << 29;  // whatever the limits: four channels of them fit an int

struct Magic {
  std::string_view bytes;
  size_t at;
  const char* name;
};

// Formats that we know and do not decode.
constexpr Magic kOtherFormats[] = {
    {{"II*\0", 4}, 0, "TIFF"},
    {{"MM\0*", 4}, 0, "TIFF"},
    {{"II+\0", 4}, 0, "BigTIFF"},
    {{"MM\0+", 4}, 0, "BigTIFF"},
    {"\xff\x0a", 0, "JPEG XL"},
    {{"\0\0\0\x0cJXL \r\n\x87\n", 12}, 0, "JPEG XL"},
    {{"\0\0\0\x0cjP  \r\n\x87\n", 12}, 0, "JPEG 2000"},
    {"\xff\x4f\xff\x51", 0, "JPEG 2000"},
    {"%PDF", 0, "PDF"},
    {"8BPS", 0, "Photoshop"},
    {{"\0\0\1\0", 4}, 0, "Windows icon"},
    {{"\0\0\2\0", 4}, 0, "Windows cursor"},
    {"qoif", 0, "QOI"},
    {"#?RADIANCE", 0, "Radiance HDR"},
    {"v/1\1", 0, "OpenEXR"},
    {"DDS ", 0, "DDS"},
};

// An ISO media file is what its brands say: the major one, then the compatible ones, which decide for "mif1" and "msf1".
const char* iso_media_format(PictureBytes file) {
  const size_t end = std::min<size_t>({file.be32(0), file.size(), 1024});
  const char* name = "ISO media";
  for (size_t at = 8; at + 4 <= end; at += at == 8 ? 8 : 4) {  // a version number follows the major brand
    const PictureBytes brand = file.part(at, 4);
    if (brand.starts_with("avif") || brand.starts_with("avis")) return "AVIF";
    if (brand.starts_with("heic") || brand.starts_with("heix") || brand.starts_with("hevc") ||
        brand.starts_with("hevx") || brand.starts_with("heim") || brand.starts_with("heis"))
      return "HEIC";
    if (brand.starts_with("mif1") || brand.starts_with("msf1")) name = "HEIF";
  }
  return name;
}

bool is_svg(PictureBytes file) {
  const PictureBytes head = file.part(0, 1024);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const size_t begin = text.find_first_not_of("\xef\xbb\xbf \t\r\n");
  return begin != text.npos && text[begin] == '<' && text.find("<svg") != text.npos;
}

Result<const PictureCodec*> find_codec(PictureBytes file) {
  if (file.size() == 0) return error(Code::image, "the picture is empty: 0 bytes").with_fix(Fix::input);
  if (file.starts_with("\xff\xd8\xff")) return &kJpeg;
  if (file.starts_with("\x89PNG")) return &kPng;
  if (file.starts_with("GIF8")) return &kGif;
  if (file.starts_with("RIFF") && file.from(8).starts_with("WEBP")) return &kWebp;
  const char* name = nullptr;
  for (const Magic& magic : kOtherFormats)
    if (!name && file.from(magic.at).starts_with(magic.bytes)) name = magic.name;
  if (file.from(4).starts_with("ftyp")) name = iso_media_format(file);
  if (!name && is_svg(file)) name = "SVG";
  if (!name && file.starts_with("BM")) return &kBmp;
  if (name)
    return error(Code::unsupported, name, " pictures are not supported, expected JPEG, PNG, WebP, GIF or BMP")
        .with_fix(Fix::input);
  return error(Code::unsupported, "a picture in no known format, expected JPEG, PNG, WebP, GIF or BMP")
      .with_fix(Fix::input);
}

Status check_size(uint64_t width, uint64_t height, const PictureLimits& limits) {
  const uint64_t most = std::min(limits.max_pixels, kMostPixels);
  if (width * height > most)  // sides have 31 bits
    return error(Code::limit, "a picture of ", width, " x ", height, " pixels, the limit is ", most)
        .with_fix(Fix::input)
        .with_room(width * height, most);
  const uint64_t side = std::max(width, height);
  if (limits.refuse_too_large && limits.max_side > 0 && side > uint64_t(limits.max_side))
    return error(Code::limit, "a picture of ", width, " x ", height, ", the limit of a side is ",
                 limits.max_side)
        .with_fix(Fix::input)
        .with_room(side, uint64_t(limits.max_side));
  return Status::ok();
}

Status no_memory(uint64_t width, uint64_t height) {
  return error(Code::out_of_memory, "no memory for a picture of ", width, " x ", height)
      .with_fix(Fix::free_memory)
      .with_room(width * height * 4, 0);
}

// Copies rows of source pixels to upright ones. Going right or down in the result is one step each in the source.
struct Walk {
  const uint8_t* origin;
  ptrdiff_t right, down;  // bytes
  int width, height;      // of the result
};

Walk upright_walk(const uint8_t* data, uint32_t width, uint32_t height, size_t stride, int channels,
                  int orientation) {
  const ptrdiff_t x = channels, y = ptrdiff_t(stride);
  const bool transposed = orientation >= 5;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const ptrdiff_t step_x = from_right ? -x : x, step_y = from_bottom ? -y : y;
  data += (from_right ? ptrdiff_t(width - 1) * x : 0) + (from_bottom ? ptrdiff_t(height - 1) * y : 0);
  return {data, transposed ? step_y : step_x, transposed ? step_x : step_y, int(transposed ? height : width),
          int(transposed ? width : height)};
}

template <int kFrom, int kTo>
void copy_pixels(const Walk& walk, size_t red, uint8_t* out) {
  for (int y = 0; y < walk.height; ++y) {
    const uint8_t* pixel = walk.origin + y * walk.down;
    for (int x = 0; x < walk.width; ++x, pixel += walk.right, out += kTo) {
      out[0] = pixel[kFrom < 3 ? 0 : red];
      out[1] = pixel[kFrom < 3 ? 0 : 1];
      out[2] = pixel[kFrom < 3 ? 0 : 2 - red];
      if constexpr (kTo == 4) out[3] = pixel[kFrom - 1];
    }
  }
}

bool has_transparency(const Walk& walk, int channels) {
  if (channels == 1 || channels == 3) return false;
  for (int y = 0; y < walk.height; ++y)
    for (int x = 0; x < walk.width; ++x)
      if (walk.origin[y * walk.down + x * walk.right + channels - 1] != 255) return true;
  return false;
}

std::string content_id(int width, int height, int channels, const std::vector<uint8_t>& pixels) {
  uint8_t size[12];  // little-endian, so that equal pictures have equal ids everywhere
  for (size_t i = 0; i < 12; ++i)
    size[i] = uint8_t(uint32_t(i < 4 ? width : i < 8 ? height : channels) >> (8 * (i % 4)));
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, size, sizeof(size));
  XXH3_128bits_update(&state, pixels.data(), pixels.size());
  XXH128_canonical_t hash;
  XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(&state));
  std::string id;
  for (const uint8_t byte : hash.digest)
    for (const int digit : {byte >> 4, byte & 15}) id += "0123456789abcdef"[digit];
  return id;
}

}  // namespace

Result<Picture> Picture::make(const Source& source, const PictureLimits& limits) {
  const Walk walk = upright_walk(source.data, source.width, source.height, source.stride, source.channels,
                                 source.orientation);
  Picture picture;
  picture.width_ = walk.width;
  picture.height_ = walk.height;
  picture.channels_ = has_transparency(walk, source.channels) ? 4 : 3;
  picture.pixels_.resize(size_t(walk.width) * size_t(walk.height) * size_t(picture.channels_));
  const size_t red = source.bgr ? 2 : 0;
  uint8_t* out = picture.pixels_.data();
  switch (source.channels * 10 + picture.channels_) {
    case 13: copy_pixels<1, 3>(walk, red, out); break;
    case 23: copy_pixels<2, 3>(walk, red, out); break;
    case 24: copy_pixels<2, 4>(walk, red, out); break;
    case 33: copy_pixels<3, 3>(walk, red, out); break;
    case 43: copy_pixels<4, 3>(walk, red, out); break;
    case 44: copy_pixels<4, 4>(walk, red, out); break;
  }

  const int side = std::max(walk.width, walk.height);
  if (limits.max_side > 0 && side > limits.max_side) {
    const auto shrunk = [&](int n) {
      return std::max(1, int((int64_t(n) * limits.max_side + side / 2) / side));
    };
    const int width = shrunk(walk.width), height = shrunk(walk.height);
    DSA_ASSIGN(picture.pixels_,
               resize_bicubic(out, walk.width, walk.height, picture.channels_, width, height));
    picture.width_ = width;
    picture.height_ = height;
  }
  picture.id_ = content_id(picture.width_, picture.height_, picture.channels_, picture.pixels_);
  return picture;
}

Result<Picture> Picture::decode(std::span<const uint8_t> encoded, const PictureLimits& limits) {
  const PictureBytes file(encoded);
  DSA_ASSIGN(const PictureCodec* codec, find_codec(file));
  if (file.size() > limits.max_encoded_bytes)
    return error(Code::limit, codec->name, " picture: ", file.size(), " bytes, the limit is ",
                 limits.max_encoded_bytes)
        .with_fix(Fix::input)
        .with_room(file.size(), limits.max_encoded_bytes);
  DSA_ASSIGN(const PictureHeader header, codec->read_header(file));
  DSA_TRY(check_size(header.width, header.height, limits));
  try {
    DSA_ASSIGN(const DecodedPicture decoded, codec->decode(file, header));
    return make({.data = decoded.pixels.get(),
                 .width = header.width,
                 .height = header.height,
                 .stride = size_t(header.width) * size_t(decoded.channels),
                 .channels = decoded.channels,
                 .bgr = false,
                 .orientation = header.orientation},
                limits);
  } catch (const std::bad_alloc&) {
    return no_memory(header.width, header.height);
  }
}

Result<Picture> Picture::from_file(const std::string& path, const PictureLimits& limits) {
  DSA_ASSIGN(const auto file, MappedFile::open(path));
  Result<Picture> picture = decode({file->data(), file->size()}, limits);
  if (picture.is_ok()) return picture;
  ErrorInfo info = picture.status().info();
  info.message = path + ": " + info.message;
  return Status(std::move(info));
}

Result<Picture> Picture::from_pixels(const Pixels& pixels, const PictureLimits& limits) {
  if (!pixels.data) return error(Code::argument, "the pixels are NULL").with_fix(Fix::input);
  if (pixels.width <= 0 || pixels.height <= 0)
    return error(Code::argument, "pixels of ", pixels.width, " x ", pixels.height, ", expected 1 x 1 or more")
        .with_fix(Fix::input);
  if (pixels.orientation < 0 || pixels.orientation > 8)
    return error(Code::argument, "the orientation is ", pixels.orientation, ", expected 0 to 8")
        .with_fix(Fix::input);
  int channels = 0;
  switch (pixels.format) {
    case PixelFormat::gray8: channels = 1; break;
    case PixelFormat::rgb8:
    case PixelFormat::bgr8: channels = 3; break;
    case PixelFormat::rgba8:
    case PixelFormat::bgra8: channels = 4; break;
  }
  if (channels == 0)
    return error(Code::argument, "the pixel format is ", int(pixels.format), ", expected 0 to 4")
        .with_fix(Fix::input);
  const size_t row_bytes = size_t(pixels.width) * size_t(channels);
  const size_t stride = pixels.stride ? pixels.stride : row_bytes;
  if (stride < row_bytes)
    return error(Code::argument, "the stride is ", stride, " bytes, a row has ", row_bytes)
        .with_fix(Fix::input);
  DSA_TRY(check_size(uint64_t(pixels.width), uint64_t(pixels.height), limits));
  try {
    return make({.data = pixels.data,
                 .width = uint32_t(pixels.width),
                 .height = uint32_t(pixels.height),
                 .stride = stride,
                 .channels = channels,
                 .bgr = pixels.format == PixelFormat::bgr8 || pixels.format == PixelFormat::bgra8,
                 .orientation = std::max(1, pixels.orientation)},
                limits);
  } catch (const std::bad_alloc&) {
    return no_memory(uint64_t(pixels.width), uint64_t(pixels.height));
  }
}

}  // namespace dsa
