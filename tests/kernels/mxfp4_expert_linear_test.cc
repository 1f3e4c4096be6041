#include "kernels/mxfp4_expert_linear/mxfp4_expert_linear.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "kernels/fp8_expert_linear/fp8_expert_linear.h"
#include "kernels/fp8_pack/fp8_pack.h"
#include "kernels/mxfp4_to_fp8/mxfp4_to_fp8.h"
#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

// Groups of the given numbers of rows, one after the other, each with a matrix of random codes whose scales lie within
// `spread` in a row. `off` bytes before the scales keep them from lying at a word.
struct ExpertCase {
  std::vector<int> rows;
  int in_dim, out_dim, total, off;
  std::vector<int32_t> offsets{0};
  std::vector<uint8_t> blocks, scales, x;
  std::vector<int16_t> exponents;
  Values x_scales;

  ExpertCase(std::vector<int> group_rows, int in, int out, int spread = kMxfp4SpreadMax, int scales_off = 0)
      : rows(std::move(group_rows)),
        in_dim(in),
        out_dim(out),
        total(std::accumulate(rows.begin(), rows.end(), 0)),
        off(scales_off) {
    Random random(uint64_t(in * 31 + out));
    for (const int n : rows) offsets.push_back(offsets.back() + n);
    blocks.resize(rows.size() * matrix() / 2), scales.resize(size_t(off) + rows.size() * matrix() / 32);
    for (uint8_t& byte : blocks) byte = uint8_t(random.integer(0, 255));
    for (size_t o = 0; o < rows.size() * size_t(out); ++o) {
      const int64_t lowest = random.integer(100, 130);
      for (int b = 0; b < in / 32; ++b)
        scales[size_t(off) + o * size_t(in) / 32 + size_t(b)] =
            uint8_t(random.integer(lowest, lowest + spread));
    }
    exponents.resize(rows.size() * size_t(out));
    std::vector<uint8_t> spreads(exponents.size());
    BackwardQueue queue;
    ref::mxfp4_exponents(
        {blocks.data(), scales.data() + off, exponents.data(), spreads.data(), int64_t(exponents.size()), in},
        queue);
    const Values values = random.normals(size_t(total) * size_t(in));
    x.assign(size_t(fp8_tile_bytes(total, in)), 0x7f), x_scales = poisoned(size_t(total));
    ref::fp8_pack({values.data(), nullptr, x.data(), x_scales.data(), in, total, in, 1}, queue);
  }
  size_t matrix() const { return size_t(in_dim) * size_t(out_dim); }
  int64_t y_stride() const {
    return out_dim % 4 == 0 ? out_dim + 4 : out_dim + 3;  // rows of y lie at 16 bytes, or not
  }

  Values run(void (*kernel)(const Mxfp4ExpertLinearArgs&, Queue&)) const {
    Values y = poisoned(size_t(total) * size_t(y_stride()));
    std::vector<Mxfp4ExpertLinearGroup> groups;
    for (size_t g = 0; g < rows.size(); ++g)
      groups.push_back({blocks.data() + g * matrix() / 2, scales.data() + size_t(off) + g * matrix() / 32,
                        exponents.data() + g * size_t(out_dim), offsets.data() + g, y.data()});
    BackwardQueue queue;
    kernel({x.data(), x_scales.data(), groups.data(), int(rows.size()), total, in_dim, out_dim, y_stride()},
           queue);
    return y;
  }
  // The other route: codes in memory.
  Values run_both_steps(const KernelTable& kernels) const {
    Values y = poisoned(size_t(total) * size_t(y_stride()));
    const size_t bytes = size_t(fp8_tile_bytes(out_dim, in_dim));
    std::vector<uint8_t> codes(rows.size() * bytes, 0x7f);
    std::vector<Mxfp4ToFp8Group> expand;
    std::vector<Fp8ExpertLinearGroup> multiply;
    for (size_t g = 0; g < rows.size(); ++g) {
      expand.push_back({blocks.data() + g * matrix() / 2, scales.data() + size_t(off) + g * matrix() / 32,
                        exponents.data() + g * size_t(out_dim), codes.data() + g * bytes,
                        offsets.data() + g});
      multiply.push_back({expand[g].codes, expand[g].exponents, offsets.data() + g, y.data()});
    }
    BackwardQueue queue;
    kernels.mxfp4_to_fp8({expand.data(), int(rows.size()), in_dim, out_dim}, queue);
    kernels.fp8_expert_linear(
        {x.data(), x_scales.data(), multiply.data(), int(rows.size()), total, in_dim, out_dim, y_stride()},
        queue);
    return y;
  }
};

}  // namespace

TEST_SUITE("kernels/mxfp4_expert_linear") {
  TEST_CASE("the value worked out by hand") {
    ExpertCase c({1}, 32, 1);
    std::fill(c.blocks.begin(), c.blocks.end(), uint8_t(0));
    c.blocks[0] = 0xb7, c.scales = {128};  // 6 and -1.5, doubled
    c.exponents = {122};
    Values x(32, 0.f);
    x[0] = 224, x[1] = 448;
    BackwardQueue queue;
    ref::fp8_pack({x.data(), nullptr, c.x.data(), c.x_scales.data(), 32, 1, 32, 1}, queue);
    CHECK(c.run(plain_kernels().mxfp4_expert_linear)[0] == 12 * 224 - 3 * 448);
  }

  TEST_CASE("what both steps give, bit for bit, and the reference, ragged in every direction") {
    for (const std::vector<int>& rows :
         {std::vector<int>{1}, {0, 0}, {3, 0, 130, 1}, {128, 7, 9}, {300, 5}, {61, 63, 65}})
      for (const auto& [in_dim, out_dim] :
           {std::pair{32, 1}, {128, 128}, {160, 130}, {896, 70}, {2880, 10}, {256, 264}}) {
        INFO(rows.size(), " groups, the first of ", rows[0], ", ", in_dim, " -> ", out_dim);
        const ExpertCase c(rows, in_dim, out_dim);
        const Values y = c.run(plain_kernels().mxfp4_expert_linear);
        CHECK(same_bits(y, c.run_both_steps(plain_kernels())));
        CHECK(relative_error(y, c.run(ref::mxfp4_expert_linear)) < 1e-3);
      }
  }

  TEST_CASE("experts of all sizes in one launch") {
    for (const auto& [in_dim, out_dim] : {std::pair{160, 130}, {1056, 17}}) {
      const ExpertCase c({0, 1, 7, 129, 0, 1000, 64, 192, 193}, in_dim, out_dim);
      const Values y = c.run(plain_kernels().mxfp4_expert_linear);
      CHECK(same_bits(y, c.run_both_steps(plain_kernels())));
      CHECK(relative_error(y, c.run(ref::mxfp4_expert_linear)) < 1e-3);
    }
  }

  TEST_CASE("scales that lie anywhere, and rows of a spread that rounds") {
    for (const int off : {1, 2, 3}) {
      const ExpertCase c({5, 140}, 256, 40, 30, off);
      const Values y = c.run(plain_kernels().mxfp4_expert_linear);
      CHECK(same_bits(y, c.run_both_steps(plain_kernels())));
      CHECK(relative_error(y, c.run(ref::mxfp4_expert_linear)) < 1e-3);
    }
  }

  TEST_CASE("a row gives the same bits in any company") {
    const ExpertCase c({200}, 384, 260);
    const Values all = c.run(plain_kernels().mxfp4_expert_linear);
    for (const int r : {0, 77, 199}) {
      ExpertCase one = c;
      one.offsets = {r, r + 1};
      const Values y = one.run(plain_kernels().mxfp4_expert_linear);
      CHECK(same_bits(part(y, size_t(r), size_t(c.y_stride())), part(all, size_t(r), size_t(c.y_stride()))));
    }
  }
}
