#include "kernels/fp8_expert_linear/fp8_expert_linear.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "kernels/fp8_pack/fp8_pack.h"
#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

struct Packed {
  std::vector<uint8_t> codes;
  Values scales;
};

Packed pack(void (*kernel)(const Fp8PackArgs&, Queue&), const Values& x, int in_dim, int64_t stride,
            const std::vector<int32_t>& pairs = {}, int top_k = 1) {
  const int rows = int(pairs.empty() ? x.size() / size_t(stride) : pairs.size());
  Packed p{std::vector<uint8_t>(size_t(fp8_tile_bytes(rows, in_dim)), 0x7f), poisoned(size_t(rows))};
  BackwardQueue queue;
  kernel({x.data(), pairs.empty() ? nullptr : pairs.data(), p.codes.data(), p.scales.data(), stride, rows,
          in_dim, top_k},
         queue);
  return p;
}

// Groups of the given numbers of rows, one after the other, each with a matrix of random codes.
struct ProductCase {
  std::vector<int> rows;
  int in_dim, out_dim, total;
  std::vector<int32_t> offsets{0};
  std::vector<uint8_t> weights;
  std::vector<int16_t> exponents;
  Packed x;

  ProductCase(std::vector<int> group_rows, int in, int out, bool positive = false)
      : rows(std::move(group_rows)),
        in_dim(in),
        out_dim(out),
        total(std::accumulate(rows.begin(), rows.end(), 0)) {
    Random random(uint64_t(in * 31 + out));
    for (const int n : rows) offsets.push_back(offsets.back() + n);
    Values values = random.normals(size_t(total) * in);
    if (positive)
      for (float& v : values) v = std::abs(v);
    x = pack(ref::fp8_pack, values, in, in);
    weights.assign(rows.size() * matrix(), 0);
    for (size_t g = 0; g < rows.size(); ++g)
      for (int o = 0; o < out; ++o) {
        exponents.push_back(int16_t(random.integer(115, 122)));
        for (int i = 0; i < in; ++i)  // the codes of MXFP4, subnormals among them
          weights[g * matrix() + size_t(fp8_tile_offset(out, o, i))] = uint8_t(f32_to_e4m3(std::ldexp(
              e2m1_to_f32(uint8_t(random.integer(0, positive ? 7 : 15))), int(random.integer(-8, 6)))));
      }
  }
  size_t matrix() const { return size_t(fp8_tile_bytes(out_dim, in_dim)); }

  Values run(void (*kernel)(const Fp8ExpertLinearArgs&, Queue&)) const {
    const int64_t y_stride =
        out_dim % 4 == 0 ? out_dim + 4 : out_dim + 3;  // rows of y lie at 16 bytes, or not
    Values y = poisoned(size_t(total) * size_t(y_stride));
    std::vector<Fp8ExpertLinearGroup> groups;
    for (size_t g = 0; g < rows.size(); ++g)
      groups.push_back({weights.data() + g * matrix(), exponents.data() + g * size_t(out_dim),
                        offsets.data() + g, y.data()});
    BackwardQueue queue;
    kernel(
        {x.codes.data(), x.scales.data(), groups.data(), int(rows.size()), total, in_dim, out_dim, y_stride},
        queue);
    return y;
  }
};

}  // namespace

TEST_SUITE("kernels/fp8_pack") {
  TEST_CASE("the values worked out by hand: the largest becomes 448") {
    const Values x = {1, -2, 0.5f, 0, 0, 0};
    const Packed p = pack(plain_kernels().fp8_pack, x, 3, 3);
    CHECK(p.scales == Values{2.f / 448, 1});
    CHECK(e4m3_to_f32(p.codes[0]) == 224);
    CHECK(e4m3_to_f32(p.codes[1]) == -448);
    CHECK(e4m3_to_f32(p.codes[2]) == 112);
    for (int i = 3; i < 128; ++i) CHECK(p.codes[size_t(i)] == 0);
    for (int i = 128; i < 256; ++i) CHECK(p.codes[size_t(i)] == 0);
  }

  TEST_CASE("the reference, bit for bit, with rows in the order asked for") {
    for (const auto& [rows, in_dim] : {std::pair{1, 1}, {3, 127}, {9, 128}, {17, 300}, {4, 7168}}) {
      Random random(3);
      const Values x = random.normals(size_t(rows) * size_t(in_dim + 2), 3);
      std::vector<int32_t> pairs;
      for (int i = 0; i < 2 * rows; ++i) pairs.push_back(int32_t(random.integer(0, 2 * rows - 1)));
      for (const bool chosen : {false, true}) {
        INFO(rows, " x ", in_dim, chosen ? " chosen" : "");
        const auto list = chosen ? pairs : std::vector<int32_t>{};
        const Packed p = pack(plain_kernels().fp8_pack, x, in_dim, in_dim + 2, list, 2),
                     want = pack(ref::fp8_pack, x, in_dim, in_dim + 2, list, 2);
        CHECK(p.codes == want.codes);
        CHECK(same_bits(p.scales, want.scales));
      }
    }
  }

  TEST_CASE("a broken row stays broken and breaks no other") {
    for (const float value : {float(NAN), INFINITY}) {
      Values x(3 * 40, 1.f);
      x[40 + 7] = value;
      const Packed p = pack(plain_kernels().fp8_pack, x, 40, 40);
      CHECK_FALSE(std::isfinite(p.scales[1] * e4m3_to_f32(p.codes[size_t(fp8_tile_offset(3, 1, 7))])));
      CHECK(p.scales[0] == 1.f / 448);
      CHECK(p.scales[2] == 1.f / 448);
    }
  }
}

TEST_SUITE("kernels/fp8_expert_linear") {
  TEST_CASE("the value worked out by hand") {
    ProductCase c({1}, 2, 1);
    c.x = pack(ref::fp8_pack, {224, 448}, 2, 2);
    c.weights[0] = f32_to_e4m3(2), c.weights[1] = f32_to_e4m3(-0.5f), c.exponents = {128};
    CHECK(c.run(plain_kernels().fp8_expert_linear)[0] == 2 * (448 - 224));
  }

  TEST_CASE("agrees with the reference, ragged in every direction, groups without rows among them") {
    for (const std::vector<int>& rows :
         {std::vector<int>{1}, {0, 0}, {3, 0, 130, 1}, {128, 7, 9}, {300, 5}, {61, 63, 65}})
      for (const auto& [in_dim, out_dim] :
           {std::pair{32, 1}, {128, 128}, {160, 130}, {900, 70}, {2880, 24}, {256, 600}}) {
        INFO(rows.size(), " groups, the first of ", rows[0], ", ", in_dim, " -> ", out_dim);
        const ProductCase c(rows, in_dim, out_dim);
        CHECK(relative_error(c.run(plain_kernels().fp8_expert_linear), c.run(ref::fp8_expert_linear)) < 1e-3);
      }
  }

  TEST_CASE("long sums of one sign keep their digits") {
    const ProductCase c({9}, 16384, 10, true);
    const Values y = c.run(plain_kernels().fp8_expert_linear), want = c.run(ref::fp8_expert_linear);
    CHECK(relative_error(y, want) < 1e-3);
  }
}
