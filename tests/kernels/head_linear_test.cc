#include "kernels/head_linear/head_linear.h"

#include <doctest/doctest.h>

#include "backend/cpu/thread_pool.h"
#include "tests/support/values.h"

namespace dsa {
namespace {

using namespace test;

struct Shape {
  int tokens, heads, in_dim, out_dim;
};

struct HeadLinearCase {
  Shape shape;
  DType type;
  bool transposed;
  Route route = Route::exact;
  int gap = 1;  // strides are larger than what they step over, by uneven numbers or by multiples of this one
  Values x, f32_weight;
  std::vector<bf16> bf16_weight;

  HeadLinearCase(Shape s, DType t, bool turned, int stride = 1)
      : shape(s), type(t), transposed(turned), gap(stride) {
    Random random(uint64_t(s.tokens * 7 + s.in_dim));
    x = random.normals(size_t(s.tokens) * x_token_stride());
    f32_weight = random.normals(size_t(s.heads) * head_size());
    bf16_weight = random.bf16_normals(size_t(s.heads) * head_size());
  }
  size_t x_head_stride() const { return size_t(shape.in_dim + (gap > 1 ? gap : 5)); }
  size_t y_head_stride() const { return size_t(shape.out_dim) + 1; }
  size_t x_token_stride() const { return size_t(shape.heads) * x_head_stride() + size_t(2 * gap); }
  size_t y_token_stride() const { return size_t(shape.heads) * y_head_stride() + 3; }
  size_t head_size() const { return size_t(shape.in_dim) * shape.out_dim + size_t(4 * gap); }

  Values run(void (*kernel)(const HeadLinearArgs&, Queue&), int first = 0, int tokens = -1) const {
    if (tokens < 0) tokens = shape.tokens;
    Values y = poisoned(size_t(tokens) * y_token_stride());
    const void* weight =
        type == DType::bf16 ? static_cast<const void*>(bf16_weight.data()) : f32_weight.data();
    ThreadPool queue(3);
    kernel({x.data() + size_t(first) * x_token_stride(), weight, type, y.data(), int64_t(x_token_stride()),
            int64_t(x_head_stride()), int64_t(y_token_stride()), int64_t(y_head_stride()),
            int64_t(head_size()), tokens, shape.heads, shape.in_dim, shape.out_dim, transposed, route},
           queue);
    return y;
  }
};

}  // namespace

TEST_SUITE("kernels/head_linear") {
  TEST_CASE("the reference gives the value worked out by hand") {
    for (const bool transposed : {false, true}) {
      HeadLinearCase c({1, 2, 2, 2}, DType::f32, transposed);
      for (int i = 0; i < 2; ++i) c.x[size_t(i)] = float(1 + i), c.x[c.x_head_stride() + i] = float(3 + i);
      for (int i = 0; i < 4; ++i)
        c.f32_weight[size_t(i)] = float(1 + i), c.f32_weight[c.head_size() + i] = float(5 + i);
      const Values y = c.run(ref::head_linear);
      const size_t h = c.y_head_stride();
      // Head 0: x = (1, 2), rows (1, 2), (3, 4). Head 1: x = (3, 4), rows (5, 6), (7, 8). Transposed: columns.
      CHECK(Values{y[0], y[1], y[h], y[h + 1]} ==
            (transposed ? Values{7, 10, 43, 50} : Values{5, 11, 39, 53}));
    }
  }

  TEST_CASE("every variant agrees with the reference and leaves the gaps alone") {
    for (const Shape shape : {Shape{1, 1, 1, 1},
                              {1, 3, 128, 512},
                              {2, 2, 65, 70},
                              {7, 3, 33, 9},
                              {19, 2, 512, 128},
                              {40, 1, 12, 130}})
      for (const DType type : {DType::f32, DType::bf16})
        for (const bool transposed : {false, true})
          for (const auto& variant : variants(&KernelTable::head_linear)) {
            INFO(variant.name, " ", dtype_name(type), transposed ? " transposed" : " plain", " at ",
                 shape.tokens, " x ", shape.heads, " x ", shape.in_dim, " -> ", shape.out_dim);
            const HeadLinearCase c(shape, type, transposed);
            CHECK(relative_error(c.run(variant.run), c.run(ref::head_linear)) < 1e-5);
          }
  }

  TEST_CASE("many tokens on the fast route: GPUs keep 16 bits of activations and round weights to bf16") {
    for (const Shape shape : {Shape{64, 2, 128, 48},
                              {65, 3, 64, 20},
                              {130, 1, 72, 33},
                              {63, 2, 64, 16},
                              {70, 2, 68, 16},
                              {513, 1, 64, 17}})
      for (const DType type : {DType::f32, DType::bf16})
        for (const bool transposed : {false, true})
          for (const auto& variant : variants(&KernelTable::head_linear)) {
            INFO(variant.name, " ", dtype_name(type), transposed ? " transposed" : " plain", " at ",
                 shape.tokens, " x ", shape.heads, " x ", shape.in_dim, " -> ", shape.out_dim);
            HeadLinearCase c(shape, type, transposed, 8);
            const Values exact = c.run(ref::head_linear);
            HeadLinearCase rounded = c;
            if (variant.name == "cuda" && shape.tokens >= kHeadLinearManyTokens && shape.in_dim % 8 == 0) {
              for (float& v : rounded.x)
                v = shape.tokens <= kLinearPiecesRows ? two_pieces(v) : to_f32(to_bf16(v));
              for (float& v : rounded.f32_weight) v = to_f32(to_bf16(v));
            }
            c.route = Route::fast;
            const Values fast = c.run(variant.run);
            CHECK(relative_error(fast, rounded.run(ref::head_linear)) < 1e-5);
            CHECK(relative_error(fast, exact) < 0.02);
          }
  }

  TEST_CASE("a token alone equals the same token among others, bit for bit") {
    for (const bool transposed : {false, true})
      for (const auto& variant : variants(&KernelTable::head_linear)) {
        INFO(variant.name, transposed ? " transposed" : " plain");
        const HeadLinearCase c({17, 2, 67, 75}, DType::bf16, transposed);
        Values alone;
        for (int t = 0; t < 17; ++t)
          for (const float v : c.run(variant.run, t, 1)) alone.push_back(v);
        for (int tokens = 1; tokens <= 17; ++tokens)
          CHECK(same_bits(c.run(variant.run, 0, tokens),
                          Values(alone.begin(), alone.begin() + tokens * int64_t(c.y_token_stride()))));
      }
  }
}

}  // namespace dsa
