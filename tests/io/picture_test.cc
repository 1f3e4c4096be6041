#include "io/picture.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "allocations.h"
#include "pictures.h"
#include "support/small_stack.h"
#include "support/temp_folder.h"

namespace dsa {
namespace {

using test::Bytes;
using test::Sample;

Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

template <size_t N>
Bytes literal(const char (&text)[N]) {  // zeros inside included
  return bytes_of({text, N - 1});
}

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Bytes big_endian(uint64_t value, int bytes) {
  Bytes out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(uint8_t(value >> (8 * i)));
  return out;
}

Bytes little_endian(uint64_t value, int bytes) {
  Bytes out = big_endian(value, bytes);
  std::reverse(out.begin(), out.end());
  return out;
}

Bytes first_half(const Bytes& bytes) { return {bytes.begin(), bytes.begin() + ptrdiff_t(bytes.size() / 2)}; }

uint32_t crc32(const uint8_t* data, size_t n) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < n; ++i) {
    crc ^= data[i];
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

Bytes png_chunk(std::string_view type, const Bytes& data) {
  const Bytes body = bytes_of(type) + data;
  return big_endian(data.size(), 4) + body + big_endian(crc32(body.data(), body.size()), 4);
}

Bytes png_header(uint32_t width, uint32_t height, uint8_t depth, uint8_t color) {
  return literal("\x89PNG\r\n\x1a\n") +
         png_chunk("IHDR", big_endian(width, 4) + big_endian(height, 4) + Bytes{depth, color, 0, 0, 0});
}

// Puts right what a change broke, so that more than the checksum is tested.
void repair_checksums(Bytes& png) {
  for (size_t at = 8; at + 12 <= png.size();) {
    const size_t length =
        size_t(png[at]) << 24 | size_t(png[at + 1]) << 16 | size_t(png[at + 2]) << 8 | png[at + 3];
    if (length > png.size() - at - 12) return;
    const Bytes crc = big_endian(crc32(&png[at + 4], length + 4), 4);
    std::copy(crc.begin(), crc.end(), png.begin() + ptrdiff_t(at + 8 + length));
    at += 12 + length;
  }
}

// An orientation in one IFD entry.
Bytes exif(uint32_t orientation) {
  return literal("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01") + big_endian(orientation, 2) + Bytes(6);
}

// A JPEG with an APP1 segment of this content behind its start.
Bytes with_app1(const Bytes& jpeg, const Bytes& content) {
  return Bytes(jpeg.begin(), jpeg.begin() + 2) + literal("\xff\xe1") + big_endian(content.size() + 2, 2) +
         content + Bytes(jpeg.begin() + 2, jpeg.end());
}

// A PNG with a chunk behind its header.
Bytes with_chunk(const Bytes& png, const Bytes& chunk) {
  constexpr int kHeader = 8 + 12 + 13;
  return Bytes(png.begin(), png.begin() + kHeader) + chunk + Bytes(png.begin() + kHeader, png.end());
}

// An uncompressed BMP of 8 bits with a palette of two, all pixels the first colour.
Bytes plain_bmp(int32_t width, int32_t height, bool with_pixels = true) {
  const size_t pixels = with_pixels ? size_t((width + 31) / 32 * 4) * size_t(std::abs(height)) : 0;
  return literal("BM") + little_endian(62 + pixels, 4) + Bytes(4) + little_endian(62, 4) +
         little_endian(40, 4) + little_endian(uint32_t(width), 4) + little_endian(uint32_t(height), 4) +
         little_endian(1, 2) + little_endian(1, 2) + Bytes(24) + Bytes{10, 20, 30, 0, 0, 0, 0, 0} +
         Bytes(pixels);
}

Bytes pixels_of(const Picture& picture) { return {picture.pixels(), picture.pixels() + picture.bytes()}; }

// A failure is a code and a sentence that can be shown.
Code code_of(const Status& status) {
  CHECK(!status.message().empty());
  CHECK(status.message().size() < 400);
  for (const char c : status.message()) CHECK(uint8_t(c) >= 0x20);
  return status.code();
}
Code code_of(const Bytes& encoded, const PictureLimits& limits = {}) {
  return code_of(Picture::decode(encoded, limits).status());
}

bool mentions(const Status& status, std::string_view part) {
  return status.message().find(part) != std::string::npos;
}

int worst_difference(const Bytes& a, const Bytes& b) {
  REQUIRE(a.size() == b.size());
  int worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

void check_sample(const Sample& sample, const Picture& picture) {
  CHECK(picture.width() == sample.width);
  CHECK(picture.height() == sample.height);
  REQUIRE(picture.channels() == sample.channels);
  CHECK(worst_difference(pixels_of(picture), test::picture_file(sample.raw)) <= sample.tolerance);
}

TEST_SUITE("io/picture") {
  TEST_CASE("every format and variant gives the picture it was made from") {
    for (const Sample& sample : test::samples()) {
      INFO(sample.name);
      check_sample(sample, Picture::decode(test::picture_file(sample.name)).value());
    }
  }

  TEST_CASE("a file is read as its bytes are, and its failures name it") {
    const std::string path = test::picture_path("rgb.png");
    CHECK(Picture::from_file(path).value().id() ==
          Picture::decode(test::picture_file("rgb.png")).value().id());
    CHECK(Picture::from_file(path + "x").status().code() == Code::not_found);
    test::TempFolder folder;
    const Status status = Picture::from_file(folder.write("a.jpg", "\xff\xd8\xff")).status();
    CHECK(status.code() == Code::image);
    CHECK(mentions(status, folder.file("a.jpg")));
    CHECK(Picture::from_file(folder.write("empty.png", "")).status().code() == Code::image);
  }

  TEST_CASE("IMG-01: eight orientations are one picture, through every decoder") {
    const Picture jpeg = Picture::decode(test::picture_file("exif1.jpg")).value();
    const Picture upright = Picture::decode(test::picture_file("rgb.png")).value();
    CHECK(jpeg.width() > jpeg.height());
    for (const char o : std::string("12345678")) {
      INFO("orientation ", o);
      const Picture turned = Picture::decode(test::picture_file(concat("exif", o, ".jpg"))).value();
      CHECK(turned.width() == jpeg.width());
      CHECK(turned.height() == jpeg.height());
      CHECK(worst_difference(pixels_of(turned), pixels_of(jpeg)) <=
            1);  // a transform of 8 x 8 rounds by direction
      CHECK(Picture::decode(test::picture_file(concat("exif", o, ".png"))).value().id() == upright.id());
    }
    for (const char* name : {"exif3.webp", "exif6.webp"})
      CHECK(Picture::decode(test::picture_file(name)).value().id() == upright.id());
  }

  TEST_CASE("IMG-01: pixels of a caller are turned by hand-worked maps") {
    const uint8_t stored[] = {1, 2, 3, 4, 5, 6};  // 3 x 2
    const std::array<std::array<int, 6>, 9> expected = {{{1, 2, 3, 4, 5, 6},
                                                         {1, 2, 3, 4, 5, 6},
                                                         {3, 2, 1, 6, 5, 4},
                                                         {6, 5, 4, 3, 2, 1},
                                                         {4, 5, 6, 1, 2, 3},
                                                         {1, 4, 2, 5, 3, 6},
                                                         {4, 1, 5, 2, 6, 3},
                                                         {6, 3, 5, 2, 4, 1},
                                                         {3, 6, 2, 5, 1, 4}}};
    for (int o = 0; o <= 8; ++o) {
      INFO("orientation ", o);
      const Picture picture = Picture::from_pixels({stored, 3, 2, 0, PixelFormat::gray8, o}).value();
      CHECK(picture.width() == (o >= 5 ? 2 : 3));
      CHECK(picture.height() == (o >= 5 ? 3 : 2));
      for (size_t i = 0; i < 6; ++i) CHECK(picture.pixels()[3 * i] == expected[size_t(o)][i]);
    }
  }

  TEST_CASE("pixels of a caller: channel orders, strides, alpha") {
    const uint8_t rows[] = {1,  2, 3,  255, 5,   6,  7,  255, 99,
                            99, 9, 10, 11,  255, 13, 14, 15,  255};  // stride 10
    const auto pixels = [&](PixelFormat format) {
      return pixels_of(Picture::from_pixels({rows, 2, 2, 10, format, 0}).value());
    };
    CHECK(pixels(PixelFormat::rgba8) == Bytes{1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15});  // opaque: RGB
    CHECK(pixels(PixelFormat::bgra8) == Bytes{3, 2, 1, 7, 6, 5, 11, 10, 9, 15, 14, 13});
    CHECK(pixels(PixelFormat::rgb8) == Bytes{1, 2, 3, 255, 5, 6, 9, 10, 11, 255, 13, 14});
    CHECK(pixels(PixelFormat::bgr8) == Bytes{3, 2, 1, 6, 5, 255, 11, 10, 9, 14, 13, 255});
    CHECK(pixels(PixelFormat::gray8) == Bytes{1, 1, 1, 2, 2, 2, 9, 9, 9, 10, 10, 10});
    const uint8_t clear[] = {1, 2, 3, 4, 5, 6, 7, 255};
    CHECK(pixels_of(Picture::from_pixels({clear, 2, 1, 0, PixelFormat::bgra8, 0}).value()) ==
          Bytes{3, 2, 1, 4, 7, 6, 5, 255});
  }

  TEST_CASE("pixels of a caller that cannot be are argument errors") {
    const uint8_t data[16] = {};
    const auto code = [](const Pixels& pixels) { return code_of(Picture::from_pixels(pixels).status()); };
    CHECK(code({nullptr, 1, 1, 0, PixelFormat::rgb8, 0}) == Code::argument);
    CHECK(code({data, 0, 1, 0, PixelFormat::rgb8, 0}) == Code::argument);
    CHECK(code({data, 1, -1, 0, PixelFormat::rgb8, 0}) == Code::argument);
    CHECK(code({data, 2, 2, 5, PixelFormat::rgb8, 0}) == Code::argument);
    CHECK(code({data, 2, 2, 0, PixelFormat(9), 0}) == Code::argument);
    CHECK(code({data, 2, 2, 0, PixelFormat::rgb8, 9}) == Code::argument);
    CHECK(code({data, 2, 2, 0, PixelFormat::rgb8, -1}) == Code::argument);
    CHECK(code({data, INT32_MAX, INT32_MAX, 0, PixelFormat::rgba8, 0}) == Code::limit);
  }

  TEST_CASE(
      "IMG-03: gray, palette and CMYK pictures have three channels, like the coloured one beside them") {
    for (const char* name :
         {"444.jpg", "gray.jpg", "gray_progressive.jpg", "cmyk.jpg", "ycck.jpg", "gray.png", "gray16.png",
          "gray1.png", "palette8.png", "palette1.png", "8.bmp", "plain.gif"}) {
      INFO(name);
      CHECK(Picture::decode(test::picture_file(name)).value().channels() == 3);
    }
    for (const char* name : {"gray_alpha.png", "gray_trns.png", "palette_trns.png"}) {
      INFO(name);
      CHECK(Picture::decode(test::picture_file(name)).value().channels() == 4);
    }
  }

  TEST_CASE("IMG-04: a format that we do not decode is named") {
    const std::pair<const char*, Bytes> others[] = {
        {"TIFF", literal("II*\0\x08\0\0\0")},
        {"TIFF", literal("MM\0*\0\0\0\x08")},
        {"HEIC", literal("\0\0\0\x18"
                         "ftypheic\0\0\0\0mif1heic")},
        {"HEIC", literal("\0\0\0\x18"
                         "ftypmif1\0\0\0\0mif1heic")},
        {"AVIF", literal("\0\0\0\x1c"
                         "ftypavif\0\0\0\0avifmif1miaf")},
        {"AVIF", literal("\0\0\0\x1c"
                         "ftypmif1\0\0\0\0mif1avifmiaf")},
        {"HEIF", literal("\0\0\0\x14"
                         "ftypmif1\0\0\0\0mif1")},
        {"ISO media", literal("\0\0\0\x14"
                              "ftypisom\0\0\0\0mp42")},
        {"JPEG XL", literal("\xff\x0a\xfa\x7f")},
        {"JPEG XL", literal("\0\0\0\x0cJXL \r\n\x87\n\0\0")},
        {"JPEG 2000", literal("\0\0\0\x0cjP  \r\n\x87\n\0\0")},
        {"SVG", literal("<svg xmlns='http://www.w3.org/2000/svg'/>")},
        {"SVG", literal("\xef\xbb\xbf<?xml version='1.0'?>\n<!-- a --><svg width='1'/>")},
        {"PDF", literal("%PDF-1.7\n")},
        {"Photoshop", literal("8BPS\0\1")},
        {"Windows icon", literal("\0\0\1\0\1\0")},
        {"known format", literal("hello")},
        {"known format", literal("\0")},
        {"known format", literal("RIFF\x04\0\0\0WAVE")},
        {"lossless", literal("\xff\xd8\xff\xc3\0\x0b\x08\0\1\0\1\1\1\x11\0")},
        {"arithmetic", literal("\xff\xd8\xff\xc9\0\x0b\x08\0\1\0\1\1\1\x11\0")},
        {"12 bits", literal("\xff\xd8\xff\xc1\0\x0b\x0c\0\1\0\1\1\1\x11\0")},
    };
    for (const auto& [name, bytes] : others) {
      INFO(name);
      const Status status = Picture::decode(bytes).status();
      CHECK(code_of(status) == Code::unsupported);
      CHECK(mentions(status, name));
    }
    Bytes rle = plain_bmp(4, 4);
    rle[30] = 1;
    CHECK(mentions(Picture::decode(rle).status(), "BMP picture: compression 1"));
    const Bytes apple = literal("\x89PNG\r\n\x1a\n") + png_chunk("CgBI", Bytes(4));
    CHECK(mentions(Picture::decode(apple).status(), "CgBI"));
    Bytes cmyk = test::picture_file("cmyk.jpg");
    std::copy_n("Other", 5, std::search(cmyk.begin(), cmyk.end(), "Adobe", "Adobe" + 5));
    CHECK(code_of(cmyk) == Code::unsupported);
  }

  TEST_CASE("IMG-05: extreme shapes decode and shrink to valid sizes") {
    for (const auto& [w, h, w1, h1] : {std::array{1093, 5, 224, 1},
                                       {5, 1093, 1, 224},
                                       {4000, 20, 224, 1},
                                       {10000, 10, 224, 1},
                                       {1, 10000, 1, 224}}) {
      INFO(w, " x ", h);
      const Bytes file = plain_bmp(w, h);
      const Picture whole = Picture::decode(file).value();
      CHECK(whole.width() == w);
      CHECK(whole.height() == h);
      const Picture shrunk = Picture::decode(file, {.max_side = 224}).value();
      CHECK(shrunk.width() == w1);
      CHECK(shrunk.height() == h1);
      CHECK(pixels_of(shrunk)[0] == 30);
    }
  }

  TEST_CASE("IMG-06: a huge photo is shrunk or refused, and refused from its header beyond max_pixels") {
    const Bytes photo = plain_bmp(8000, 6000);
    const Picture shrunk = Picture::decode(photo, {.max_side = 1024}).value();
    CHECK(shrunk.width() == 1024);
    CHECK(shrunk.height() == 768);
    const Status refused = Picture::decode(photo, {.max_side = 1024, .refuse_too_large = true}).status();
    CHECK(code_of(refused) == Code::limit);
    CHECK(refused.info().needed == 8000);
    CHECK(refused.info().available == 1024);

    const Bytes bigger = plain_bmp(12000, 9000);
    const test::Allocations allocations;
    const Status status = Picture::decode(bigger).status();
    CHECK(status.code() == Code::limit);
    CHECK(status.info().fix == Fix::input);
    CHECK(status.info().needed == 108'000'000);
    CHECK(status.info().available == 100'000'000);
    CHECK(allocations.peak_bytes() < 10'000);
  }

  TEST_CASE("the number of encoded bytes is limited too") {
    const Bytes file = test::picture_file("rgb.png");
    CHECK(Picture::decode(file, {.max_encoded_bytes = file.size()}).is_ok());
    const Status status = Picture::decode(file, {.max_encoded_bytes = file.size() - 1}).status();
    CHECK(code_of(status) == Code::limit);
    CHECK(status.info().needed == file.size());
    CHECK(status.info().available == file.size() - 1);
  }

  TEST_CASE("IMG-07: a decompression bomb is refused from its header") {
    Bytes jpeg = test::picture_file("420.jpg");
    const uint8_t sof[] = {0xff, 0xc0};
    const auto frame = std::search(jpeg.begin(), jpeg.end(), std::begin(sof), std::end(sof));
    std::fill_n(frame + 5, 4, uint8_t(0xff));  // 65535 x 65535
    Bytes gif = test::picture_file("plain.gif");
    std::fill_n(gif.begin() + 6, 4, uint8_t(0xff));
    Bytes webp = test::picture_file("animated.webp");
    const auto canvas = std::search(webp.begin(), webp.end(), "VP8X", "VP8X" + 4) + 12;
    std::fill_n(canvas, 6, uint8_t(0xff));  // 16777216 x 16777216
    Bytes still = test::picture_file("lossless.webp");
    std::fill_n(still.begin() + 21, 3, uint8_t(0xff));  // 16384 x 16384
    still[24] |= 0x0f;
    const Bytes tail = png_chunk("IDAT", Bytes(3000)) + png_chunk("IEND", {});
    const std::pair<const char*, Bytes> bombs[] = {
        {"PNG 1 bit", png_header(60000, 60000, 1, 0) + tail},
        {"PNG 1 bit", png_header(65500, 65500, 1, 0) + tail},
        {"PNG 16 bits", png_header(INT32_MAX, INT32_MAX, 16, 6) + tail},
        {"JPEG", jpeg},
        {"GIF", gif},
        {"animated WebP", webp},
        {"WebP", still},
    };
    for (const auto& [name, bytes] : bombs) {
      INFO(name);
      const test::Allocations allocations;
      const Status status = Picture::decode(bytes).status();
      CHECK(status.code() == Code::limit);
      CHECK(status.info().available == 100'000'000);
      CHECK(allocations.peak_bytes() < 10'000);
    }
    // A BMP holds its pixels as they are, so its header lies if the file is small.
    for (const int32_t height : {60000, -60000, INT32_MAX, -INT32_MAX, INT32_MIN}) {
      const Bytes bmp = plain_bmp(60000, height, false);
      const test::Allocations allocations;
      CHECK(Picture::decode(bmp).status().code() == Code::image);
      CHECK(allocations.peak_bytes() < 10'000);
    }
  }

  TEST_CASE("IMG-07: data beyond what the header explains is refused with bounded memory") {
    // 103 MB in the PNG of one pixel: a fixed Huffman block of one literal, then runs of 258 at distance 1.
    Bytes packed = {0x78, 0x01};
    uint32_t bits = 0;
    int num_bits = 0;
    const auto put = [&](uint32_t value, int n) {
      bits |= value << num_bits;
      for (num_bits += n; num_bits >= 8; num_bits -= 8, bits >>= 8) packed.push_back(uint8_t(bits));
    };
    put(3, 3);     // the last block, fixed codes
    put(0x0c, 8);  // literal 0 is 00110000, highest bit first
    for (int i = 0; i < 400'000; ++i) {
      put(0xa3, 8);  // length 258 is 11000101
      put(0, 5);     // distance 1
    }
    put(0, 7);
    put(0, 7);
    const Bytes bomb = png_header(1, 1, 8, 0) + png_chunk("IDAT", packed) + png_chunk("IEND", {});
    {
      const test::Allocations allocations;
      const Status status = Picture::decode(bomb).status();
      CHECK(status.code() == Code::image);
      CHECK(mentions(status, "more data than its header explains"));
      CHECK(allocations.peak_bytes() <= 32 + 4 * bomb.size() + (size_t(1) << 20) + 10'000);
    }
    // The other way round: too few rows.
    CHECK(code_of(png_header(500, 500, 8, 2) +
                  png_chunk("IDAT", literal("\x78\x01\x01\0\0\xff\xff\0\0\0\1")) + png_chunk("IEND", {})) ==
          Code::image);
    // A JPEG with a Huffman table of more codes than there are bytes.
    Bytes jpeg = test::picture_file("gray.jpg");
    const uint8_t dht[] = {0xff, 0xc4};
    const auto table = std::search(jpeg.begin(), jpeg.end(), std::begin(dht), std::end(dht));
    std::fill_n(table + 5, 16, uint8_t(0xff));
    CHECK(code_of(jpeg) == Code::image);
    // One with scans without end.
    const uint8_t sos[] = {0xff, 0xda};
    Bytes scans = test::picture_file("gray_progressive.jpg");
    const auto scan = std::search(scans.begin(), scans.end(), std::begin(sos), std::end(sos));
    Bytes many(scans.begin(), scan);
    for (int i = 0; i < 101; ++i) many = std::move(many) + literal("\xff\xda\0\x08\1\1\0\0\0\0\0");
    CHECK(code_of(many + literal("\xff\xd9")) == Code::limit);
  }

  TEST_CASE("IMG-07: what needs most memory stays within what is stated") {
    // A PNG of 16 bits and four channels, interlaced: each pass has rows of a filter byte and random samples.
    constexpr size_t kWidth = 500, kHeight = 300;
    std::mt19937 random(16);
    Bytes rows;
    for (const auto& [x0, y0, dx, dy] : {std::array<size_t, 4>{0, 0, 8, 8},
                                         {4, 0, 8, 8},
                                         {0, 4, 4, 8},
                                         {2, 0, 4, 4},
                                         {0, 2, 2, 4},
                                         {1, 0, 2, 2},
                                         {0, 1, 1, 2}})
      for (size_t y = y0; y < kHeight; y += dy) {
        rows.push_back(0);
        for (size_t x = x0; x < kWidth; x += dx)
          for (int i = 0; i < 8; ++i) rows.push_back(uint8_t(random()));
      }
    Bytes zlib = {0x78, 0x01};
    for (size_t at = 0; at < rows.size(); at += 65535) {  // stored blocks
      const size_t n = std::min<size_t>(65535, rows.size() - at);
      zlib = std::move(zlib) + Bytes{uint8_t(at + n == rows.size())} + little_endian(n, 2) +
             little_endian(~n, 2) + Bytes(rows.begin() + ptrdiff_t(at), rows.begin() + ptrdiff_t(at + n));
    }
    const Bytes header =
        literal("\x89PNG\r\n\x1a\n") +
        png_chunk("IHDR", big_endian(kWidth, 4) + big_endian(kHeight, 4) + Bytes{16, 6, 0, 0, 1});
    const Bytes png = header + png_chunk("IDAT", zlib) + png_chunk("IEND", {});
    const test::Allocations allocations;
    const Result<Picture> picture = Picture::decode(png);
    const size_t peak = allocations.peak_bytes();
    REQUIRE(picture.is_ok());
    CHECK(picture.value().channels() == 4);
    CHECK(picture.value().pixels()[0] == rows[1]);  // the upper half of the first sample
    CHECK(peak <= 32 * kWidth * kHeight + 4 * png.size() + (size_t(1) << 20));
  }

  TEST_CASE("IMG-13: malformed orientation data means upright") {
    const Bytes jpeg = test::picture_file("gray.jpg"), png = test::picture_file("rgb.png");
    const std::string jpeg_id = Picture::decode(jpeg).value().id(),
                      png_id = Picture::decode(png).value().id();
    const Bytes xmp = literal(
        "http://ns.adobe.com/xap/1.0/\0<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:Description "
        "tiff:Orientation='6'/></x:xmpmeta>");
    CHECK(Picture::decode(with_app1(jpeg, literal("Exif\0\0") + exif(6))).value().id() !=
          jpeg_id);  // the test can fail
    CHECK(Picture::decode(with_app1(jpeg, xmp)).value().id() == jpeg_id);

    std::vector<Bytes> malformed = {{},
                                    literal("II"),
                                    literal("MM\0*\xff\xff\xff\xff"),
                                    literal("II*\0\0\0\0\0"),
                                    literal("MM\0*\0\0\0\x08\xff\xff"),
                                    Bytes(500, 0xff)};
    for (const uint32_t orientation : {0, 9, 65535}) malformed.push_back(exif(orientation));
    const Bytes whole = exif(6);
    for (size_t n = 0; n < 20; ++n) malformed.emplace_back(whole.begin(), whole.begin() + ptrdiff_t(n));
    malformed.push_back(whole);
    malformed.back()[13] = 4;  // a LONG
    malformed.push_back(whole);
    malformed.back()[17] = 2;  // two values
    std::mt19937 random(13);
    for (int i = 0; i < 50; ++i) {
      malformed.emplace_back(64);
      for (uint8_t& byte : malformed.back()) byte = uint8_t(random());
    }
    for (const Bytes& tiff : malformed) {
      CHECK(Picture::decode(with_app1(jpeg, literal("Exif\0\0") + tiff)).value().id() == jpeg_id);
      CHECK(Picture::decode(with_chunk(png, png_chunk("eXIf", tiff))).value().id() == png_id);
    }
    // Neither the checksum of the chunk nor a second block matters.
    Bytes damaged = png_chunk("eXIf", exif(0));
    damaged.back() ^= 1;
    CHECK(Picture::decode(with_chunk(png, damaged + png_chunk("eXIf", exif(6)))).value().id() == png_id);
    CHECK(Picture::decode(with_app1(with_app1(jpeg, literal("Exif\0\0") + exif(6)), literal("Exif\0\0")))
              .value()
              .id() == jpeg_id);
    // WebP keeps EXIF behind its data.
    Bytes webp = test::picture_file("exif3.webp");
    const auto tag =
        std::find_end(webp.begin(), webp.end(), std::begin("\x12\x01"), std::begin("\x12\x01") + 2);
    CHECK(Picture::decode(webp).value().id() == png_id);
    tag[8] = 9;
    CHECK(Picture::decode(webp).is_ok());
    CHECK(Picture::decode(webp).value().id() != png_id);
  }

  TEST_CASE("IMG-14: what cannot be decoded is a typed error") {
    CHECK(code_of(Bytes{}) == Code::image);
    CHECK(code_of(literal("GIF8")) == Code::image);
    CHECK(code_of(literal("BM")) == Code::image);
    CHECK(code_of(literal("\x89PNG")) == Code::image);
    CHECK(code_of(literal("\xff\xd8\xff")) == Code::image);
    CHECK(code_of(literal("\xff\xd8\xff\xd9")) == Code::image);  // no scan
    CHECK(code_of(literal("RIFF\x04\0\0\0WEBP")) == Code::image);
    CHECK(code_of(first_half(test::picture_file("420.jpg"))) == Code::image);
    const Status status = Picture::decode(first_half(test::picture_file("rgb.png"))).status();
    CHECK(code_of(status) == Code::image);
    CHECK(status.info().fix == Fix::input);
    CHECK(status.info().position == test::picture_file("rgb.png").size() / 2);
  }

  TEST_CASE("IMG-14: a file that ends early is an error, wherever it ends; what follows its end is ignored") {
    for (const Sample& sample : test::samples()) {
      INFO(sample.name);
      const Bytes whole = test::picture_file(sample.name);
      const std::string id = Picture::decode(whole).value().id();
      CHECK(Picture::decode(whole + Bytes(100, 0xff)).value().id() == id);
      const size_t step = std::max<size_t>(1, whole.size() / 100);
      for (size_t n = 0; n < whole.size(); n += n + 20 < whole.size() && n > 60 ? step : 1) {
        INFO(n, " of ", whole.size(), " bytes");
        const Result<Picture> part = Picture::decode({whole.data(), n});
        // The end of a GIF is behind the first frame, padding behind the last row of a BMP.
        const bool may_lack_end = sample.name.ends_with(".gif") || sample.name.ends_with(".bmp");
        if (part.is_ok() && may_lack_end) {
          CHECK(part.value().id() == id);
          continue;
        }
        REQUIRE(!part.is_ok());
        const Code code = part.status().code();
        CHECK((code == Code::image || (code == Code::unsupported && n < 12)));
      }
    }
  }

  TEST_CASE("a checksum or structure that does not match is damage") {
    Bytes png = test::picture_file("palette_trns.png");
    for (const char* type : {"IHDR", "PLTE", "tRNS", "IDAT"}) {
      INFO(type);
      Bytes changed = png;
      std::search(changed.begin(), changed.end(), type, type + 4)[5] ^= 1;
      CHECK(code_of(changed) == Code::image);
    }
    Bytes unknown = with_chunk(test::picture_file("rgb.png"), png_chunk("ABCD", {}));
    CHECK(code_of(unknown) == Code::image);
    CHECK(code_of(with_chunk(test::picture_file("rgb.png"), png_chunk("IHDR", Bytes(13)))) == Code::image);
    // A colour that the palette lacks.
    Bytes bmp = plain_bmp(9, 1);
    bmp[46] = 1;  // colours used
    bmp.back() = 0;
    CHECK(Picture::decode(bmp).is_ok());
    bmp[62] = 0x80;
    CHECK(code_of(bmp) == Code::image);
  }

  TEST_CASE("the id is the XXH3-128 of size, channels and pixels") {
    // Python: xxhash.xxh3_128_hexdigest(struct.pack("<III", 37, 26, 3) + pixels)
    const char* kId = "7d7338ddbe0c28477f1286cba87329b5";
    for (const char* name : {"rgb.png", "opaque_rgba.png", "interlaced.png", "24.bmp", "lossless.webp"})
      CHECK(Picture::decode(test::picture_file(name)).value().id() == kId);
    const uint8_t data[12] = {};
    std::vector<std::string> ids;
    for (const Pixels& pixels : {Pixels{data, 4, 1, 0, PixelFormat::rgb8, 0},
                                 {data, 1, 4, 0, PixelFormat::rgb8, 0},
                                 {data, 2, 2, 0, PixelFormat::rgb8, 0},
                                 {data, 3, 1, 0, PixelFormat::rgba8, 0}})
      ids.push_back(Picture::from_pixels(pixels).value().id());
    std::sort(ids.begin(), ids.end());
    CHECK(std::unique(ids.begin(), ids.end()) == ids.end());
  }

  TEST_CASE("pictures decode on small stacks and on many threads at once") {
    const std::vector<Sample> samples = test::samples();
    test::on_small_stack(
        [&] {
          for (const Sample& sample : samples)
            REQUIRE(Picture::decode(test::picture_file(sample.name)).is_ok());
        },
        size_t(128) << 10);
    std::vector<std::thread> threads;
    std::array<int, 4> decoded{};
    for (int& n : decoded)
      threads.emplace_back([&] {
        for (const Sample& sample : samples) n += Picture::decode(test::picture_file(sample.name)).is_ok();
      });
    for (std::thread& thread : threads) thread.join();
    for (const int n : decoded) CHECK(n == int(samples.size()));
  }

#if DSA_COUNTS_ALLOCATIONS
  TEST_CASE("the n-th allocation fails, for each n: a typed error and no leak, or the right picture") {
    for (const Sample& sample : test::samples()) {
      if (sample.width > 1000 || sample.height > 1000) continue;
      // The lossless decoder of libwebp 1.2.4 does not survive this; alpha is coded with it too.
      if (sample.name.ends_with(".webp") && sample.name != "lossy.webp") continue;
      INFO(sample.name);
      const Bytes file = test::picture_file(sample.name);
      const std::string id = Picture::decode(file).value().id();
      for (int64_t n = 0;; ++n) {
        REQUIRE(n < 1000);
        const test::Allocations allocations(n);
        // The message of the failure may need the next allocation, which is there again.
        const Result<Picture> picture = Picture::decode(file, {.max_side = 20});
        if (allocations.count() <= n) break;
        if (picture.is_ok()) continue;
        const Code code = picture.status().code();
        CHECK((code == Code::out_of_memory || code == Code::image));
      }
      CHECK(Picture::decode(file).value().id() == id);
    }
  }
#endif

  TEST_CASE("ten thousand damaged files: a typed error or a picture, the same one twice, in bounded memory") {
    std::vector<Bytes> files;
    for (const Sample& sample : test::samples())
      if (sample.width < 1000 && sample.height < 1000) files.push_back(test::picture_file(sample.name));
    std::mt19937 random(2000);
    const auto below = [&](size_t n) { return n == 0 ? 0 : size_t(random()) % n; };
    constexpr PictureLimits kLimits = {.max_pixels = 1'000'000, .max_side = 300};
    // What Picture states, for the largest JPEG within the limit.
    const size_t most = 32 * (kLimits.max_pixels + 31 * 65536) + (size_t(1) << 20) + 10'000;

    int pictures = 0, failures = 0;
    for (int i = 0; i < 10'000; ++i) {
      INFO("file ", i);
      Bytes file = files[size_t(i) % files.size()];
      for (size_t changes = 1 + below(3); changes > 0; --changes) {
        const size_t at = below(file.size()), n = 1 + below(std::min<size_t>(64, file.size() - at));
        const auto begin = file.begin() + ptrdiff_t(at),
                   end = begin + ptrdiff_t(std::min(n, file.size() - at));
        switch (below(7)) {
          case 0: file.resize(at); break;
          case 1:
            for (size_t k = 0; k < 1 + at % 8 && !file.empty(); ++k)
              file[below(file.size())] ^= uint8_t(1 << below(8));
            break;
          case 2: std::fill(begin, end, uint8_t(below(2) * 255)); break;
          case 3: file.erase(begin, end); break;
          case 4: {
            const Bytes copy(begin, end);
            file.insert(file.begin() + ptrdiff_t(below(file.size())), copy.begin(), copy.end());
            break;
          }
          case 5: {
            const Bytes& other = files[below(files.size())];
            const size_t from = below(other.size());
            std::copy_n(other.begin() + ptrdiff_t(from),
                        std::min<size_t>(size_t(end - begin), other.size() - from), begin);
            break;
          }
          case 6:  // a number in the header
            if (file.size() > 40) file[2 + below(38)] = uint8_t(random());
            break;
        }
        if (file.empty()) break;
      }
      if (below(2) && file.size() > 8 && file[0] == 0x89) repair_checksums(file);

      size_t peak;
      Result<Picture> picture = Status();
      {
        const test::Allocations allocations;
        picture = Picture::decode(file, kLimits);
        peak = allocations.peak_bytes();
      }
      CHECK(peak <= most + 4 * file.size());
      if (!picture.is_ok()) {
        ++failures;
        const Code code = code_of(picture.status());
        CHECK((code == Code::image || code == Code::unsupported || code == Code::limit));
        continue;
      }
      ++pictures;
      const Picture& p = picture.value();
      CHECK((p.channels() == 3 || p.channels() == 4));
      CHECK((p.width() >= 1 && p.width() <= 300 && p.height() >= 1 && p.height() <= 300));
      CHECK(p.bytes() == size_t(p.width()) * size_t(p.height()) * size_t(p.channels()));
      CHECK(p.id() == Picture::decode(file, kLimits).value().id());
    }
    CHECK(pictures > 1000);
    CHECK(failures > 5000);
  }
}

}  // namespace
}  // namespace dsa
