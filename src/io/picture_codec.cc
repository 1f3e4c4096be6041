#include "io/picture_codec.h"

namespace dsa {

int exif_orientation(PictureBytes tiff) {
  const bool little = tiff.starts_with(std::string_view("II*\0", 4));
  if (!little && !tiff.starts_with(std::string_view("MM\0*", 4))) return 1;
  const auto u16 = [&](size_t at) { return little ? tiff.le16(at) : tiff.be16(at); };
  const auto u32 = [&](size_t at) { return little ? tiff.le32(at) : tiff.be32(at); };
  constexpr uint32_t kOrientation = 0x0112, kShort = 3;
  const size_t ifd = u32(4), num_entries = u16(ifd);
  for (size_t i = 0; i < num_entries; ++i) {
    const size_t entry = ifd + 2 + i * 12;  // tag, type, count, value
    if (!tiff.has(entry, 12)) return 1;
    if (u16(entry) != kOrientation) continue;
    const uint32_t value = u16(entry + 8);
    return u16(entry + 2) == kShort && u32(entry + 4) == 1 && value >= 1 && value <= 8 ? int(value) : 1;
  }
  return 1;
}

Status damaged_picture(const char* format, size_t position, std::string_view what) {
  return error(Code::image, format, " picture: ", what, " (byte ", position, ")")
      .with_fix(Fix::input)
      .with_position(position);
}

Status cut_off_picture(const char* format, PictureBytes file) {
  return error(Code::image, format, " picture: cut off after ", file.size(), " bytes")
      .with_fix(Fix::input)
      .with_position(file.size());
}

Status unsupported_picture(const char* format, std::string_view what) {
  return error(Code::unsupported, format, " picture: ", what, " is not supported").with_fix(Fix::input);
}

Status no_memory_for_picture(const char* format, uint64_t bytes) {
  return error(Code::out_of_memory, format, " picture: no memory to decode it")
      .with_fix(Fix::free_memory)
      .with_room(bytes, 0);
}

}  // namespace dsa
