#include <doctest/doctest.h>

#include "tests/support/experts.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/expert_groups") {
  TEST_CASE("groups of two products, of the experts that have rows and whose matrix is of the type") {
    const Ids offsets = {0, 2, 2, 3, 7};  // expert 1 has no rows
    uint8_t blocks[8] = {}, scales[8] = {};
    float plain[4] = {};
    const ExpertMatrix gates[4] = {{DType::u8, blocks, scales, nullptr},
                                   {DType::u8, blocks + 1, scales + 1, nullptr},
                                   {DType::f32, plain, nullptr, plain + 1},
                                   {DType::u8, blocks + 3, scales + 3, nullptr}};
    const ExpertMatrix ups[4] = {{DType::u8, blocks + 4, scales + 4, nullptr},
                                 {DType::u8, blocks + 5, scales + 5, nullptr},
                                 {DType::u8, blocks + 6, scales + 6, nullptr},
                                 {DType::f32, plain + 2, nullptr, nullptr}};
    float y0[70], y1[70];
    std::vector<Mxfp4LinearGroup> groups(6, {blocks, scales, 77, 77, y0});
    ExpertGroupsArgs args{.offsets = offsets.data(),
                          .products = {{gates, y0}, {ups, y1}},
                          .mxfp4 = groups.data(),
                          .linear = nullptr,
                          .type = DType::u8,
                          .y_stride = 10,
                          .num_products = 2,
                          .experts = 4,
                          .num_groups = int(groups.size())};
    BackwardQueue queue;
    reference_kernels().expert_groups(args, queue);
    const auto same = [](const Mxfp4LinearGroup& g, const ExpertMatrix& m, int begin, int rows,
                         const float* y) {
      return g.blocks == m.data && g.scales == m.scales && g.row_begin == begin && g.rows == rows && g.y == y;
    };
    CHECK(same(groups[0], gates[0], 0, 2, y0));
    CHECK(same(groups[1], ups[0], 0, 2, y1));
    CHECK(same(groups[2], ups[2], 2, 1, y1 + 20));
    CHECK(same(groups[3], gates[3], 3, 4, y0 + 30));
    CHECK(groups[4].rows == 0);
    CHECK(groups[5].rows == 0);

    std::vector<ExpertLinearGroup> linear(3, {plain, 77, 77, y0});
    args.mxfp4 = nullptr;
    args.linear = linear.data();
    args.type = DType::f32;
    args.num_groups = int(linear.size());
    reference_kernels().expert_groups(args, queue);
    CHECK(linear[0].weight == plain);
    CHECK(linear[0].weight_scales == plain + 1);
    CHECK(linear[0].row_begin == 2);
    CHECK(linear[0].rows == 1);
    CHECK(linear[0].y == y0 + 20);
    CHECK(linear[1].weight == plain + 2);
    CHECK(linear[1].rows == 4);
    CHECK(linear[1].y == y1 + 30);
    CHECK(linear[2].rows == 0);
  }
}
