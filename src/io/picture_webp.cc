// WebP: the container is walked here, the pictures in it are decoded by libwebp.
#include <webp/decode.h>

#include <vector>

#include "io/picture_codec.h"

namespace dsa {

namespace {

constexpr char kName[] = "WebP";

constexpr uint32_t chunk(const char (&name)[5]) {
  return uint32_t(name[3]) << 24 | uint32_t(name[2]) << 16 | uint32_t(name[1]) << 8 | uint32_t(name[0]);
}

struct Layout {
  uint32_t width, height;  // the canvas
  uint32_t left = 0, top = 0;
  PictureBytes frame;  // what libwebp gets: the file, or the chunks of the first frame of an animation
  WebPBitstreamFeatures features;
  int orientation = 1;
};

Status read_features(PictureBytes bytes, WebPBitstreamFeatures* features) {
  const VP8StatusCode code = WebPGetFeatures(bytes.data(), bytes.size(), features);
  if (code == VP8_STATUS_OUT_OF_MEMORY) return no_memory_for_picture(kName, 0);
  if (code != VP8_STATUS_OK || features->width <= 0 || features->height <= 0)
    return damaged_picture(kName, 0, "its header is damaged");
  return Status::ok();
}

Result<Layout> read_layout(PictureBytes file) {
  const uint64_t size = 8 + uint64_t(file.le32(4));
  if (file.size() < 12 || size > file.size()) return cut_off_picture(kName, file);
  const PictureBytes riff = file.part(0, size_t(size));

  Layout layout{};
  layout.orientation = 1;
  bool has_exif = false, animated = false;
  for (size_t at = 12; riff.has(at, 8);) {
    const uint32_t type = riff.le32(at), length = riff.le32(at + 4);
    if (!riff.has(at + 8, length)) return damaged_picture(kName, at, "a chunk beyond the end of the file");
    PictureBytes data = riff.part(at + 8, length);
    if (type == chunk("VP8X")) {
      animated = data[0] & 2;
      layout.width = data.le24(4) + 1;
      layout.height = data.le24(7) + 1;
    } else if (type == chunk("ANMF") && animated && layout.frame.size() == 0) {
      constexpr size_t kFrameHeader = 16;
      layout.left = 2 * data.le24(0);
      layout.top = 2 * data.le24(3);
      layout.frame = data.from(kFrameHeader);
      if (layout.frame.size() == 0) return damaged_picture(kName, at, "an empty frame");
    } else if (type == chunk("EXIF") && !has_exif) {
      has_exif = true;
      if (data.starts_with(std::string_view("Exif\0\0", 6)))
        data = data.from(6);  // some writers keep JPEG's prefix
      layout.orientation = exif_orientation(data);
    }
    at += 8 + size_t(length) + (length & 1);
  }
  if (animated && layout.frame.size() == 0)
    return damaged_picture(kName, file.size(), "an animation without frames");
  if (!animated) layout.frame = riff;
  DSA_TRY(read_features(layout.frame, &layout.features));
  const uint32_t width = uint32_t(layout.features.width), height = uint32_t(layout.features.height);
  if (!animated) {
    layout.width = width;
    layout.height = height;
  } else if (layout.left + width > layout.width || layout.top + height > layout.height) {
    return damaged_picture(kName, 0,
                           concat("a frame of ", width, " x ", height, " at ", layout.left, ", ", layout.top,
                                  " on ", layout.width, " x ", layout.height));
  }
  return layout;
}

Result<PictureHeader> read_header(PictureBytes file) {
  DSA_ASSIGN(const Layout layout, read_layout(file));
  return PictureHeader{.width = layout.width, .height = layout.height, .orientation = layout.orientation};
}

Result<DecodedPicture> decode(PictureBytes file, const PictureHeader&) {
  DSA_ASSIGN(const Layout layout, read_layout(file));
  const bool fills_canvas =
      uint32_t(layout.features.width) == layout.width && uint32_t(layout.features.height) == layout.height;
  const int channels = fills_canvas && !layout.features.has_alpha ? 3 : 4;
  const size_t row_bytes = size_t(layout.width) * size_t(channels);
  auto canvas = std::make_shared<std::vector<uint8_t>>(row_bytes * layout.height);

  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return unsupported_picture(kName, "this version of libwebp");
  const size_t begin = layout.top * row_bytes + layout.left * size_t(channels);
  config.output.colorspace = channels == 3 ? MODE_RGB : MODE_RGBA;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = canvas->data() + begin;
  config.output.u.RGBA.stride = int(row_bytes);
  config.output.u.RGBA.size = canvas->size() - begin;
  const VP8StatusCode code = WebPDecode(layout.frame.data(), layout.frame.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (code == VP8_STATUS_OUT_OF_MEMORY) return no_memory_for_picture(kName, canvas->size());
  if (code == VP8_STATUS_NOT_ENOUGH_DATA || code == VP8_STATUS_SUSPENDED) return cut_off_picture(kName, file);
  if (code != VP8_STATUS_OK)
    return damaged_picture(kName, size_t(layout.frame.data() - file.data()), "its data is damaged");
  return DecodedPicture{{canvas, canvas->data()}, int(layout.width), int(layout.height), channels};
}

}  // namespace

const PictureCodec kWebp = {kName, read_header, decode};

}  // namespace dsa
