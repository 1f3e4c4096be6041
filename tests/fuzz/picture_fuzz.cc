// An encoded picture. The checksums of a PNG are put right, as a fuzzer would seldom guess them.
#include <vector>

#include "fuzz.h"
#include "io/picture.h"

using dsa::fuzz::require;

namespace {

uint32_t be32(const uint8_t* at) {
  return uint32_t(at[0]) << 24 | uint32_t(at[1]) << 16 | uint32_t(at[2]) << 8 | at[3];
}

void repair_checksums(std::vector<uint8_t>& png) {
  for (size_t at = 8; at + 12 <= png.size();) {
    const size_t length = be32(&png[at]);
    if (length > png.size() - at - 12) return;
    uint32_t crc = ~0u;
    for (size_t i = at + 4; i < at + 8 + length; ++i) {
      crc ^= png[i];
      for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
    }
    for (size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = uint8_t(~crc >> (24 - 8 * i));
    at += 12 + length;
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> file(data, data + size);
  if (dsa::fuzz::text(data, size).starts_with("\x89PNG")) repair_checksums(file);
  constexpr dsa::PictureLimits kLimits = {.max_pixels = 1 << 18, .max_side = 256};
  const auto picture = dsa::Picture::decode(file, kLimits);
  if (!picture.is_ok()) {
    dsa::fuzz::require_readable(picture.status());
    const dsa::Code code = picture.status().code();
    require(code == dsa::Code::image || code == dsa::Code::unsupported || code == dsa::Code::limit,
            "a failure says what is wrong with the picture");
    require(picture.status().info().position <= file.size() || code != dsa::Code::image,
            "a position is in the file");
    return 0;
  }
  const dsa::Picture& p = picture.value();
  require(p.width() >= 1 && p.width() <= 256 && p.height() >= 1 && p.height() <= 256,
          "sides are within limits");
  require(p.channels() == 3 || p.channels() == 4, "a picture is RGB or RGBA");
  require(p.bytes() == size_t(p.width()) * size_t(p.height()) * size_t(p.channels()),
          "a picture has all its pixels");
  require(dsa::Picture::decode(file, kLimits).value().id() == p.id(), "a file is one picture");
  return 0;
}
