#include "model/vision_input.h"

#include <doctest/doctest.h>

#include "support/pictures.h"

namespace dsa::test {
namespace {

// As K3 publishes it.
VisionConfig k3_config() {
  VisionConfig c;
  c.patch = 14, c.merge = 2, c.patch_limit = 65536, c.side_limit = 512;
  for (int i = 0; i < 3; ++i) c.mean[i] = c.std[i] = 0.5f;
  return c;
}

Canvas canvas_of(const VisionConfig& config, const Picture& picture) {
  auto canvas = picture_canvas(config, picture);
  REQUIRE_MESSAGE(canvas.is_ok(), canvas.status().message());
  return std::move(canvas).value();
}

}  // namespace

TEST_SUITE("model/vision_input") {
  TEST_CASE("IMG-09 the token counts of published examples") {
    struct Example {
      int width, height, tokens;
    };
    for (const Example& e : {Example{100, 100, 16},
                             {224, 224, 64},
                             {640, 480, 414},
                             {1920, 1080, 2691},
                             {4000, 3000, 15444},
                             {8000, 8000, 16641},
                             {20000, 100, 512},
                             {1861, 7041, 16817},
                             {1500, 500, 972},
                             {2875, 1500, 5562}}) {
      INFO(e.width, " x ", e.height);
      const PictureShape shape = picture_shape(k3_config(), e.width, e.height);
      CHECK(shape.tokens == e.tokens);
      CHECK(shape.patches() == 4 * int64_t(e.tokens));
    }
    const PictureShape wide = picture_shape(k3_config(), 20000, 100);
    CHECK(wide.width == 7168);
    CHECK(wide.height == 35);
    CHECK(wide.rows == 4);
    CHECK(wide.columns == 512);
  }

  TEST_CASE("IMG-05 extreme aspect ratios have a valid grid") {
    for (const auto& [width, height] : {std::pair{1093, 5},
                                        {5, 1093},
                                        {2000, 10},
                                        {10, 2000},
                                        {10000, 10},
                                        {1, 1},
                                        {1, 100000},
                                        {1000000, 1}}) {
      INFO(width, " x ", height);
      const PictureShape shape = picture_shape(k3_config(), width, height);
      CHECK(shape.width >= 1);
      CHECK(shape.height >= 1);
      CHECK(shape.rows % 2 == 0);
      CHECK(shape.columns % 2 == 0);
      CHECK(shape.rows <= 512);
      CHECK(shape.columns <= 512);
      CHECK(shape.rows * 14 - shape.height < 28);
      CHECK(shape.columns * 14 - shape.width < 28);
      CHECK(shape.tokens == shape.rows * shape.columns / 4);
    }
    const Picture picture = wavy_picture(1093, 5);
    const Canvas canvas = canvas_of(k3_config(), picture);
    CHECK(canvas.width == 1120);
    CHECK(canvas.height == 28);
  }

  TEST_CASE(
      "IMG-06 a huge photo is scaled to the limits, and its count is known before anything is computed") {
    for (const auto& [width, height] : {std::pair{8000, 6000}, {12000, 9000}, {60000, 60000}, {6000, 8000}}) {
      INFO(width, " x ", height);
      const PictureShape shape = picture_shape(k3_config(), width, height);
      // The limit holds before the padding, which adds at most a row and a column of tokens.
      CHECK(shape.tokens <= 16384 + shape.rows / 2 + shape.columns / 2 + 1);
      CHECK(shape.tokens > 15000);
      CHECK(double(shape.width) / shape.height == doctest::Approx(double(width) / height).epsilon(2e-3));
    }
  }

  TEST_CASE("a picture that fits keeps its pixels; black lies on the right and at the bottom") {
    const Picture picture = wavy_picture(45, 30);
    const Canvas canvas = canvas_of(k3_config(), picture);
    REQUIRE(canvas.width == 56);
    REQUIRE(canvas.height == 56);
    for (int y = 0; y < 56; ++y)
      for (int x = 0; x < 56; ++x)
        for (int c = 0; c < 3; ++c) {
          const int found = canvas.pixels[size_t((y * 56 + x) * 3 + c)];
          REQUIRE(found == (x < 45 && y < 30 ? picture.pixels()[(y * 45 + x) * 3 + c] : 0));
        }
  }

  TEST_CASE(
      "IMG-02 the chessboard shows through transparency, after the resize, and hidden colours have no "
      "effect") {
    VisionConfig config = k3_config();
    std::vector<uint8_t> pixels(40 * 24 * 4), hidden;
    for (size_t i = 0; i < pixels.size(); i += 4) {
      const size_t x = i / 4 % 40;
      pixels[i] = 10, pixels[i + 1] = 20, pixels[i + 2] = 30;
      pixels[i + 3] = x < 16 ? 0 : x < 32 ? 128 : 255;
    }
    hidden = pixels;
    Random random(3);
    for (size_t i = 0; i < hidden.size(); i += 4)
      if (hidden[i + 3] == 0)
        for (size_t c = 0; c < 3; ++c) hidden[i + c] = uint8_t(random.integer(0, 255));

    const Canvas canvas = canvas_of(config, picture_of(40, 24, pixels));
    const auto at = [&](int x, int y, int c) {
      return int(canvas.pixels[size_t((y * canvas.width + x) * 3 + c)]);
    };
    CHECK(at(0, 0, 0) == 255);
    CHECK(at(7, 7, 2) == 255);
    CHECK(at(8, 0, 0) == 180);
    CHECK(at(0, 8, 1) == 180);
    CHECK(at(15, 15, 1) == 255);
    CHECK(at(16, 0, 0) == 132);  // (10 * 128 + 255 * 127) / 255 = 132.02
    CHECK(at(24, 0, 0) == 95);   // (10 * 128 + 180 * 127) / 255 = 94.67
    CHECK(at(32, 8, 2) == 30);
    CHECK(canvas_of(config, picture_of(40, 24, hidden)).pixels == canvas.pixels);

    // With a resize the squares are still 8 pixels wide.
    config.patch_limit = 1;
    const Canvas small = canvas_of(config, picture_of(40, 24, pixels));
    const PictureShape shape = picture_shape(config, 40, 24);
    REQUIRE(shape.width < 40);
    CHECK(small.pixels[0] == 255);
    CHECK(small.pixels[8 * 3] == 180);
    CHECK(canvas_of(config, picture_of(40, 24, hidden)).pixels == small.pixels);
  }

  TEST_CASE("patches go channel, row, column, and from -1 to 1; a part of them equals the whole") {
    VisionConfig config = k3_config();
    config.patch = 2;
    config.mean[2] = 0, config.std[2] = 1;
    Canvas canvas{4, 4, {}};
    for (int i = 0; i < 48; ++i) canvas.pixels.push_back(uint8_t(i == 0 ? 255 : i == 1 ? 0 : 5 * i));
    std::vector<float> patches(4 * 12), last(12);
    canvas_patches(config, canvas, 0, 4, patches.data());
    CHECK(patches[0] == 1);                                  // red at the top left
    CHECK(patches[4] == -1);                                 // green there
    CHECK(patches[8] == doctest::Approx(10 / 255.0));        // blue, with another mean
    CHECK(patches[1] == doctest::Approx(15 / 127.5 - 1));    // red, one to the right
    CHECK(patches[2] == doctest::Approx(60 / 127.5 - 1));    // red, one below
    CHECK(patches[12] == doctest::Approx(30 / 127.5 - 1));   // the second patch begins two to the right
    CHECK(patches[24] == doctest::Approx(120 / 127.5 - 1));  // the third two below
    canvas_patches(config, canvas, 3, 1, last.data());
    CHECK(std::equal(last.begin(), last.end(), patches.begin() + 36));
  }
}

}  // namespace dsa::test
