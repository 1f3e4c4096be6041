// dsa_bench vision: pictures through a tower of K3's widths with random weights, cut to kLayers blocks. Operations per
// second of the whole pass, beside those of the dense products within it, measured in the same pass.
#include <cmath>
#include <cstdio>
#include <deque>

#include "bench/bench.h"
#include "io/picture.h"
#include "model/vision.h"

namespace dsa::bench {
namespace {

constexpr int kRounds = 3;
constexpr int kLayers = 2;

ModelConfig k3_config() {
  ModelConfig c;
  c.hidden = 7168;
  VisionConfig& v = c.vision;
  v.layers = kLayers, v.hidden = 1024, v.heads = 12, v.head_dim = 128, v.mlp_dim = 4096;
  v.table_rows = v.table_columns = 64;
  v.norm_eps = 0x1p-23f, v.projector_eps = 1e-5f;
  v.patch = 14, v.merge = 2, v.patch_limit = 65536, v.side_limit = 512;
  for (int i = 0; i < 3; ++i) v.mean[i] = v.std[i] = 0.5f;
  return c;
}

// Weights that keep rows at about their size.
class RandomWeights {
 public:
  explicit RandomWeights(const ModelConfig& c) {
    const VisionConfig& v = c.vision;
    const int64_t heads = int64_t(v.heads) * v.head_dim;
    weights.patch = matrix(v.hidden, v.patch_values());
    weights.positions = matrix(int64_t(v.table_rows) * v.table_columns, v.hidden)
                            .reshape({v.table_rows, v.table_columns, v.hidden});
    for (int l = 0; l < v.layers; ++l) {
      VisionBlockWeights& block = weights.blocks.emplace_back();
      block.norm0 = ones(v.hidden);
      block.norm1 = ones(v.hidden);
      block.qkv = matrix(3 * heads, v.hidden).reshape({3 * int64_t(v.heads), v.head_dim, v.hidden});
      block.o = matrix(v.hidden, heads);
      block.fc0 = matrix(v.mlp_dim, v.hidden);
      block.fc1 = matrix(v.hidden, v.mlp_dim);
    }
    weights.final_norm = ones(v.hidden);
    weights.proj0 = matrix(v.merged(), v.merged());
    weights.proj2 = matrix(c.hidden, v.merged());
    weights.post = ones(c.hidden);
  }
  VisionWeights weights;

 private:
  Tensor matrix(int64_t rows, int64_t columns) {
    std::vector<bf16>& values = matrices_.emplace_back(size_t(rows * columns));
    for (bf16& value : values) {
      state_ = state_ * 1664525 + 1013904223;
      value = to_bf16((float(state_ >> 8) / float(1 << 23) - 1) * 1.7f / std::sqrt(float(columns)));
    }
    return Tensor(values.data(), DType::bf16, {rows, columns});
  }
  Tensor ones(int64_t n) { return Tensor(vectors_.emplace_back(size_t(n), 1.f).data(), DType::f32, {n}); }

  std::deque<std::vector<bf16>> matrices_;
  std::deque<std::vector<float>> vectors_;
  uint32_t state_ = 1;
};

// Two for each product of a pass.
struct Operations {
  double linear = 0, attention = 0;

  Operations(const ModelConfig& c, const PictureShape& shape) {
    const VisionConfig& v = c.vision;
    const double n = double(shape.patches()), heads = double(v.heads) * v.head_dim;
    linear = 2 * n * v.hidden * (v.patch_values() + v.layers * (4 * heads + 2 * double(v.mlp_dim))) +
             2.0 * shape.tokens * v.merged() * (double(v.merged()) + c.hidden);
    attention = v.layers * 4 * n * n * heads;
  }
};

Result<Picture> noise_picture(int side) {
  std::vector<uint8_t> pixels(size_t(side) * size_t(side) * 3);
  uint32_t state = 7;
  for (uint8_t& p : pixels) p = uint8_t((state = state * 1664525 + 1013904223) >> 24);
  return Picture::from_pixels({pixels.data(), side, side, 0, PixelFormat::rgb8, 0});
}

Status run(int threads) {
  const ModelConfig config = k3_config();
  const RandomWeights random(config);
  DSA_ASSIGN(const auto backend, create_cpu_backend(threads));
  HostClock clock;
  TimedBackend timed(*backend, clock);
  VisionTower tower(config, random.weights, timed);
  printf("vision tower: hidden %d, %d heads of %d, mlp %d, %d of 27 blocks, projector to %d, %d threads\n",
         config.vision.hidden, config.vision.heads, config.vision.head_dim, config.vision.mlp_dim, kLayers,
         config.hidden, threads);
  printf("%-12s %8s %10s %10s %16s %16s %16s %10s\n", "picture", "patches", "begin ms", "pass ms",
         "pass GFLOP/s", "linear GFLOP/s", "attn. GFLOP/s", "of linear");
  for (const int side : {448, 1120}) {
    DSA_ASSIGN(const Picture picture, noise_picture(side));
    const Picture* const pictures[] = {&picture};
    const PictureShape shape = tower.shape(side, side);
    const Operations operations(config, shape);
    std::vector<double> begins, passes, linears, attentions;
    OperatorTimes shown;
    for (int round = 0; round < kRounds; ++round) {
      clock.take();
      std::unique_ptr<VisionPass> pass;
      Status status;
      begins.push_back(seconds([&] {
        auto begun = tower.begin(pictures);
        status = begun.status();
        if (begun.is_ok()) pass = std::move(begun).value();
      }));
      DSA_TRY(status);
      passes.push_back(seconds([&] {
        while (true) {
          const auto done = pass->advance();
          status = done.status();
          if (!done.is_ok() || done.value()) break;
        }
      }));
      DSA_TRY(status);
      shown = clock.take();
      linears.push_back(shown["linear"].seconds + shown["head_linear"].seconds);
      attentions.push_back(shown["vision_attention"].seconds);
    }
    const double pass = (operations.linear + operations.attention) / median_of(passes);
    const double linear = operations.linear / median_of(linears);
    printf("%4d x %-5d %8lld %10.1f %10.1f %16.1f %16.1f %16.1f %9.0f%%\n", side, side,
           (long long)shape.patches(), median_of(begins) * 1e3, median_of(passes) * 1e3, pass * 1e-9,
           linear * 1e-9, operations.attention / median_of(attentions) * 1e-9, 100 * pass / linear);
    print_shares("  last pass", shown, passes.back());
  }
  return Status::ok();
}

}  // namespace

int vision_bench(int threads) {
  const Status status = run(threads);
  if (!status.is_ok()) fprintf(stderr, "dsa_bench: %s\n", status.message().c_str());
  return status.is_ok() ? 0 : 1;
}

}  // namespace dsa::bench
