#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

Values rounded(Values x, int dim) {
  BackwardQueue queue;
  plain_kernels().fp8_round({x.data(), int64_t(x.size()) / dim, dim}, queue);
  return x;
}

}  // namespace

TEST_SUITE("kernels/fp8_round") {
  TEST_CASE("e4m3: codes decode as published, and every code survives a round trip") {
    CHECK(e4m3_to_f32(0x00) == 0);
    CHECK(e4m3_to_f32(0x01) == 0x1p-9f);
    CHECK(e4m3_to_f32(0x07) == 7 * 0x1p-9f);
    CHECK(e4m3_to_f32(0x08) == 0x1p-6f);
    CHECK(e4m3_to_f32(0x38) == 1);
    CHECK(e4m3_to_f32(0xbc) == -1.5f);
    CHECK(e4m3_to_f32(0x7e) == 448);
    CHECK(std::isnan(e4m3_to_f32(0x7f)));
    CHECK(std::isnan(e4m3_to_f32(0xff)));
    for (int code = 0; code < 256; ++code)
      CHECK(f32_to_e4m3(e4m3_to_f32(uint8_t(code))) == (code == 0xff ? 0x7f : code));
  }

  TEST_CASE("e4m3: ties go to the even code, beyond the largest saturates") {
    for (int code = 0; code < 0x7e; ++code) {
      const float low = e4m3_to_f32(uint8_t(code)), high = e4m3_to_f32(uint8_t(code + 1));
      const float middle = (low + high) / 2;
      CHECK(f32_to_e4m3(middle) == (code % 2 ? code + 1 : code));
      CHECK(f32_to_e4m3(std::nextafter(middle, 0.f)) == code);
      CHECK(f32_to_e4m3(-std::nextafter(middle, 1e9f)) == (code + 1) + 128);
    }
    CHECK(f32_to_e4m3(1e9f) == 0x7e);
    CHECK(f32_to_e4m3(-INFINITY) == 0xfe);
  }

  TEST_CASE("the values worked out by hand: scale 2^-7") {
    Values x(128);
    x[0] = 3, x[1] = 1, x[2] = -0.1f;
    const Values y = rounded(x, 128);
    CHECK(y[0] == 3);
    CHECK(y[1] == 1);
    CHECK(y[2] == -0.1015625f);
    CHECK(y[3] == 0);
  }

  TEST_CASE("groups have scales of their own, rows too; NaN stays where it is") {
    Values x(2 * 160, 1e-3f);
    x[0] = 448 * 1024, x[160 + 140] = NAN;
    const Values y = rounded(x, 160);
    CHECK(y[0] == 448 * 1024);
    for (int d = 1; d < 128; ++d) CHECK(y[d] == 0);  // far below the step beside such a value
    for (int d = 128; d < 160; ++d) CHECK(y[d] == doctest::Approx(1e-3).epsilon(0.04));
    CHECK(y[160] == doctest::Approx(1e-3).epsilon(0.04));
    CHECK(std::isnan(y[160 + 140]));
    CHECK(y[160 + 141] == doctest::Approx(1e-3).epsilon(0.04));
  }

  TEST_CASE("no value moves by more than a sixteenth, or half a step of the smallest codes") {
    Random random(3);
    const Values x = random.normals(4 * 128, 3), y = rounded(x, 128);
    for (size_t r = 0; r < 4; ++r) {
      float largest = 0;
      for (size_t d = 0; d < 128; ++d) largest = std::max(largest, std::abs(x[r * 128 + d]));
      const float scale = std::exp2(std::ceil(std::log2(largest / 448)));
      for (size_t i = r * 128; i < (r + 1) * 128; ++i)
        CHECK(std::abs(y[i] - x[i]) <= std::max(std::abs(x[i]) / 16, scale * 0x1p-10f));
    }
  }
}
