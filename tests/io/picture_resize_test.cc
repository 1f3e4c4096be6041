#include "io/picture_resize.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "io/picture.h"
#include "pictures.h"

namespace dsa {
namespace {

TEST_SUITE("io/picture_resize") {
  TEST_CASE("every resize is Pillow's, bit for bit") {
    for (std::istringstream& line : test::picture_list("resizes.txt")) {
      std::string source, expected;
      int w, h, channels, w1, h1;
      line >> source >> w >> h >> channels >> w1 >> h1 >> expected;
      INFO(w, " x ", h, " x ", channels, " to ", w1, " x ", h1);
      const test::Bytes pixels = test::picture_file(source);
      REQUIRE(pixels.size() == size_t(w * h * channels));
      CHECK(resize_bicubic(pixels.data(), w, h, channels, w1, h1).value() == test::picture_file(expected));
    }
  }

  TEST_CASE("the canvas of the Kimi K3 fixture, within the 1 that it allows") {
    const Picture picture = Picture::from_file(test::picture_path("kimi_k3_vl_image_b.png")).value();
    REQUIRE(picture.width() == 150);
    REQUIRE(picture.height() == 133);
    REQUIRE(picture.channels() == 3);
    const test::Bytes resized = resize_bicubic(picture.pixels(), 150, 133, 3, 100, 88).value();
    const test::Bytes canvas = test::picture_file("kimi_k3_vl_image_b_canvas.raw");  // padded to 112 x 112
    int worst = 0;
    for (size_t y = 0; y < 88; ++y)
      for (size_t x = 0; x < 300; ++x)
        worst = std::max(worst, std::abs(resized[y * 300 + x] - canvas[y * 336 + x]));
    CHECK(worst <= 1);
  }

  TEST_CASE("IMG-02: colours under alpha 0 have no effect on a resize") {
    test::Bytes noise = test::picture_file("01.raw"), black = noise;  // RGBA with noise where alpha is 0
    size_t hidden = 0;
    for (size_t i = 0; i < black.size(); i += 4)
      if (black[i + 3] == 0) {
        ++hidden;
        std::fill_n(&black[i], 3, uint8_t(0));
      }
    REQUIRE(hidden > 20);
    REQUIRE(noise != black);
    for (const auto& [w1, h1] : {std::pair{11, 7}, {50, 60}, {37, 9}, {12, 26}})
      CHECK(resize_bicubic(noise.data(), 37, 26, 4, w1, h1).value() ==
            resize_bicubic(black.data(), 37, 26, 4, w1, h1).value());
  }

  TEST_CASE("one colour stays that colour at every size") {
    for (const auto& [w, h] : {std::pair{1, 1}, {1, 300}, {300, 1}, {7, 5}})
      for (const auto& [w1, h1] : {std::pair{1, 1}, {1, 200}, {200, 1}, {31, 17}}) {
        test::Bytes pixels;
        for (int i = 0; i < w * h; ++i) pixels.insert(pixels.end(), {0, 128, 255});
        const test::Bytes out = resize_bicubic(pixels.data(), w, h, 3, w1, h1).value();
        REQUIRE(out.size() == size_t(w1 * h1 * 3));
        for (size_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == (i % 3 == 0 ? 0 : i % 3 == 1 ? 128 : 255));
      }
  }
}

}  // namespace
}  // namespace dsa
