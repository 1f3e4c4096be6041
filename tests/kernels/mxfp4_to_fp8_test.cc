#include "kernels/mxfp4_to_fp8/mxfp4_to_fp8.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

// One matrix of random codes. The scales of a row lie within `spread`, both ends included if the row is long enough.
struct ConversionCase {
  int in_dim, out_dim;
  std::vector<uint8_t> blocks, scales;
  std::vector<int16_t> exponents;
  std::vector<uint8_t> spreads;

  ConversionCase(int in, int out, int spread) : in_dim(in), out_dim(out) {
    Random random(uint64_t(in) * 31 + uint64_t(out));
    blocks.resize(size_t(in) * out / 2), scales.resize(size_t(in) * out / 32);
    for (uint8_t& byte : blocks) byte = uint8_t(random.integer(0, 255));
    for (int o = 0; o < out; ++o) {
      const int64_t lowest = random.integer(0, 254 - spread);
      for (int b = 0; b < in / 32; ++b)
        scales[size_t(o) * in / 32 + b] = uint8_t(b == 0   ? lowest
                                                  : b == 1 ? lowest + spread
                                                           : random.integer(lowest, lowest + spread));
    }
  }
  void find_exponents() {
    exponents.assign(size_t(out_dim), -999), spreads.assign(size_t(out_dim), 99);
    BackwardQueue queue;
    plain_kernels().mxfp4_exponents(
        {blocks.data(), scales.data(), exponents.data(), spreads.data(), out_dim, in_dim}, queue);
  }
  std::vector<uint8_t> codes(void (*kernel)(const Mxfp4ToFp8Args&, Queue&),
                             const int32_t* range = nullptr) const {
    std::vector<uint8_t> found(size_t(fp8_tile_bytes(out_dim, in_dim)), 0x7f);
    const std::vector<Mxfp4ToFp8Group> groups = {
        {blocks.data(), scales.data(), exponents.data(), found.data(), range}};
    BackwardQueue queue;
    kernel({groups.data(), 1, in_dim, out_dim}, queue);
    return found;
  }
  float value(int o, int i) const {
    return mxfp4_value(blocks.data() + size_t(o) * in_dim / 2, scales.data() + size_t(o) * in_dim / 32, i);
  }
};

}  // namespace

TEST_SUITE("kernels/mxfp4_to_fp8") {
  TEST_CASE(
      "units have four columns of each block and are swapped by their row, stretches follow each other") {
    CHECK(fp8_tile_offset(3, 0, 0) == 0);
    CHECK(fp8_tile_offset(3, 1, 0) == 128 + 16);
    CHECK(fp8_tile_offset(3, 2, 37) == 256 + 3 * 16 + 4 + 1);  // unit 1 of row 2, block 1
    CHECK(fp8_tile_offset(3, 0, 130) == 3 * 128 + 2);
    CHECK(fp8_tile_bytes(3, 129) == 768);
  }

  TEST_CASE("exponents: all-zero blocks do not count, a row of zeros has none") {
    ConversionCase c(96, 2, 0);
    std::fill(c.blocks.begin(), c.blocks.end(), uint8_t(0x80));  // zeros, half of them negative
    c.blocks[0] = 0x01, c.blocks[16] = 0x10;
    c.scales = {120, 125, 200, 3, 4, 5};
    c.find_exponents();
    CHECK(c.exponents == std::vector<int16_t>{125 - 6, 0});
    CHECK(c.spreads == std::vector<uint8_t>{5, 0});
  }

  TEST_CASE("within a spread of 14 every value survives bit for bit, at every scale") {
    for (const auto& [in_dim, out_dim] :
         {std::pair{32, 5}, {64, 33}, {96, 8}, {160, 9}, {2880, 3}, {7168, 2}})
      for (const int spread : {0, 7, kMxfp4SpreadMax}) {
        if (in_dim == 32 && spread > 0) continue;
        INFO(in_dim, " x ", out_dim, " spread ", spread);
        ConversionCase c(in_dim, out_dim, spread);
        c.find_exponents();
        const auto codes = c.codes(plain_kernels().mxfp4_to_fp8);
        for (int o = 0; o < out_dim; ++o) {
          REQUIRE(c.spreads[size_t(o)] <= spread);
          for (int i = 0; i < fp8_stretches(in_dim) * kFp8Stretch; ++i) {
            const uint8_t code = codes[size_t(fp8_tile_offset(out_dim, o, i))];
            if (i >= in_dim) {
              REQUIRE(code == 0);
            } else {
              const double found = std::ldexp(double(e4m3_to_f32(code)), c.exponents[size_t(o)] - 127);
              REQUIRE(float(found) == c.value(o, i));
              REQUIRE(std::signbit(found) == std::signbit(c.value(o, i)));
            }
          }
        }
      }
  }

  TEST_CASE("beyond the spread, and for any exponent, the codes are those of the reference") {
    for (const int exponent : {-6, 100, 118, 127, 140, 248}) {
      ConversionCase c(256, 20, 30);
      c.exponents.assign(20, int16_t(exponent));
      CHECK(c.codes(plain_kernels().mxfp4_to_fp8) == c.codes(ref::mxfp4_to_fp8));
    }
  }

  TEST_CASE("an expert without rows is left alone") {
    const ConversionCase c = [] {
      ConversionCase made(64, 3, 3);
      made.find_exponents();
      return made;
    }();
    const std::vector<int32_t> ranges = {7, 7, 8};
    CHECK(c.codes(plain_kernels().mxfp4_to_fp8, ranges.data()) == std::vector<uint8_t>(3 * 128, 0x7f));
    CHECK(c.codes(plain_kernels().mxfp4_to_fp8, ranges.data() + 1) == c.codes(ref::mxfp4_to_fp8));
  }
}
