#include "model/vision.h"

#include <doctest/doctest.h>

#include <atomic>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <new>

#include "golden/vision_fixture.h"
#include "model/families/families.h"
#include "model/vision_reference.h"
#include "support/pictures.h"

namespace {
std::atomic<int64_t> allocations{0}, failing{-1};
}  // namespace

// Out of line, or GCC sees malloc and free and finds that they do not match new and delete.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return allocations++ == failing ? nullptr : std::malloc(size ? size : 1);
}
[[gnu::noinline]] void* operator new(size_t size) {
  void* p = operator new(size, std::nothrow);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace dsa::test {
namespace {

const std::string kFolder = DSA_SOURCE_DIR "/tests/golden/kimi_k3_vl";
const std::string kModel = kFolder + "/model-mxfp4";

// The tower of the fixture alone, with a config that may be changed.
struct Tower {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::unique_ptr<Backend> backend;
  ModelConfig config;
  DecoderWeights weights;
  std::unique_ptr<VisionTower> vision;

  explicit Tower(int threads = 2) {
    auto json = read_json_file(kModel + "/config.json", {.python_numbers = true});
    REQUIRE(json.is_ok());
    auto parsed = parse_model_config(json.value(), "config.json", kModel);
    REQUIRE_MESSAGE(parsed.is_ok(), parsed.status().message());
    config = *parsed.value();
    config.vision.patch_limit = 65536;
    checkpoint = Checkpoint::open(kModel).value();
    backend = create_cpu_backend(threads).value();
    REQUIRE(load().is_ok());
    vision = std::make_unique<VisionTower>(config, weights.vision, *backend);
  }
  Status load() {
    const WeightLoader loader(*checkpoint, config.tensor_prefix, weights);
    return load_kimi_vision(loader, config, weights.vision);
  }
  Values features(std::vector<const Picture*> pictures) {
    auto pass = vision->begin(pictures);
    REQUIRE_MESSAGE(pass.is_ok(), pass.status().message());
    while (true) {
      const auto done = pass.value()->advance();
      REQUIRE(done.is_ok());
      if (done.value()) break;
    }
    const Tensor f = pass.value()->features();
    CHECK(f.dim[1] == config.hidden);
    return Values(f.f32(), f.f32() + f.count());
  }
};

double cosine(const float* a, const float* b, int n) {
  double dot = 0, aa = 0, bb = 0;
  for (int i = 0; i < n; ++i)
    dot += double(a[i]) * b[i], aa += double(a[i]) * a[i], bb += double(b[i]) * b[i];
  return dot / std::sqrt(aa * bb);
}

}  // namespace

TEST_SUITE("model/vision") {
  TEST_CASE("IMG-12 every token agrees with the reference at six sizes, the last row and column too") {
    Tower tower;
    // One token; padded; square; wide; tall and padded; more patches than a slice of work.
    for (const auto& [width, height] :
         {std::pair{28, 28}, {100, 70}, {224, 224}, {300, 90}, {57, 413}, {448, 336}}) {
      INFO(width, " x ", height);
      const Picture picture = wavy_picture(width, height);
      const PictureShape shape = tower.vision->shape(width, height);
      auto canvas = picture_canvas(tower.config.vision, picture);
      REQUIRE(canvas.is_ok());
      const Values expected =
          reference_features(tower.config.vision, tower.config.hidden, *tower.checkpoint, canvas.value());
      const Values actual = tower.features({&picture});
      REQUIRE(actual.size() ==
              size_t(shape.tokens) * size_t(tower.config.hidden));  // IMG-09: counted = computed
      CHECK(relative_error(actual, expected) < 1e-5);
      double worst = 1;
      for (int t = 0; t < shape.tokens; ++t)
        worst = std::min(worst, cosine(&actual[size_t(t * tower.config.hidden)],
                                       &expected[size_t(t * tower.config.hidden)], tower.config.hidden));
      CHECK(worst >= 0.999);
      // The comparison can fail: neighbours are not alike.
      if (shape.tokens > 1)
        CHECK(cosine(&actual[size_t((shape.tokens - 1) * tower.config.hidden)],
                     &expected[size_t((shape.tokens - 2) * tower.config.hidden)],
                     tower.config.hidden) < 0.999);
    }
  }

  TEST_CASE("IMG-08 pictures of different sizes in one pass give what each gives alone, in their order") {
    Tower tower;
    const Picture a = wavy_picture(100, 70, 1), b = wavy_picture(450, 310, 2), c = wavy_picture(20, 200, 3);
    Values alone;
    for (const Picture* picture : {&b, &a, &c, &a}) {
      const Values f = tower.features({picture});
      alone.insert(alone.end(), f.begin(), f.end());
    }
    CHECK(same_bits(tower.features({&b, &a, &c, &a}), alone));
  }

  TEST_CASE("IMG-10 features depend on the picture and on nothing that came before") {
    Tower tower;
    const Picture a = wavy_picture(100, 70, 1), b = wavy_picture(100, 70, 2);
    const Values first = tower.features({&a}), other = tower.features({&b});
    CHECK(relative_error(other, first) > 0.01);
    CHECK(same_bits(tower.features({&a}), first));
  }

  TEST_CASE("the number of threads changes nothing") {
    const Picture picture = wavy_picture(330, 200);
    Tower one(1), three(3);
    CHECK(same_bits(three.features({&picture}), one.features({&picture})));
  }

  TEST_CASE("two passes may take turns") {
    Tower tower;
    const Picture a = wavy_picture(100, 70, 1), b = wavy_picture(90, 130, 2);
    const Values alone_a = tower.features({&a}), alone_b = tower.features({&b});
    const Picture* of_a[] = {&a};
    const Picture* of_b[] = {&b};
    auto pass_a = tower.vision->begin(of_a), pass_b = tower.vision->begin(of_b);
    REQUIRE(pass_a.is_ok());
    REQUIRE(pass_b.is_ok());
    for (bool done_a = false, done_b = false; !done_a || !done_b;) {
      done_a = pass_a.value()->advance().value();
      done_b = pass_b.value()->advance().value();
    }
    const Tensor f = pass_a.value()->features(), g = pass_b.value()->features();
    CHECK(same_bits(Values(f.f32(), f.f32() + f.count()), alone_a));
    CHECK(same_bits(Values(g.f32(), g.f32() + g.count()), alone_b));
  }

  TEST_CASE("IMG-06 a pass that cannot have its memory is a typed error with the amount") {
    Tower tower;
    const Picture picture = wavy_picture(448, 448);
    tower.config.vision.mlp_dim = INT_MAX;  // 4 TiB for a slice
    const Picture* pictures[] = {&picture};
    const PictureShape shapes[] = {tower.vision->shape(448, 448)};
    const auto pass = tower.vision->begin(pictures);
    REQUIRE_FALSE(pass.is_ok());
    CHECK(pass.status().code() == Code::out_of_memory);
    CHECK(pass.status().info().needed == tower.vision->pass_bytes(shapes));
    CHECK(tower.vision->begin({}).status().code() == Code::argument);
  }

  TEST_CASE("the n-th allocation of begin fails, for each n: a typed error; advance allocates nothing") {
    Tower tower;
    const Picture a = wavy_picture(300, 200), b = wavy_picture(4000, 30, 2);
    const Picture* pictures[] = {&a, &b};
    const Values expected = tower.features({&a, &b});
    int64_t n = 0;
    for (bool begun = false; !begun; ++n) {
      allocations = 0;
      failing = n;
      auto pass = tower.vision->begin(pictures);
      failing = -1;
      begun = pass.is_ok();
      if (!begun) {
        REQUIRE(pass.status().code() == Code::out_of_memory);
        continue;
      }
      const int64_t before = allocations;
      while (!pass.value()->advance().value()) {
      }
      CHECK(allocations == before);
      const Tensor f = pass.value()->features();
      CHECK(same_bits(Values(f.f32(), f.f32() + f.count()), expected));
    }
    CHECK(n > 5);
  }

  TEST_CASE("memory grows with the patches, not with their square") {
    Tower tower;
    const PictureShape shape = tower.vision->shape(448, 448), four = tower.vision->shape(896, 896);
    REQUIRE(four.patches() == 4 * shape.patches());
    const PictureShape one[] = {shape}, larger[] = {four}, several[] = {shape, shape, shape, shape};
    CHECK(tower.vision->pass_bytes(larger) < 4 * tower.vision->pass_bytes(one));
    CHECK(tower.vision->pass_bytes(several) <= tower.vision->pass_bytes(larger));
  }

  TEST_CASE("weights that do not fit the config: the error names tensor, found and expected") {
    Tower tower;
    tower.config.vision.mlp_dim = 97;
    Status status = tower.load();
    CHECK(status.code() == Code::model);
    CHECK(status.message().find(
              "'vision_tower.encoder.blocks.0.mlp.fc0.weight' is [96, 48], expected [97, 48]") !=
          std::string::npos);
    tower.config.vision.mlp_dim = 96;
    tower.config.vision.layers = 3;
    status = tower.load();
    CHECK(status.code() == Code::model);
    CHECK(status.message().find("'vision_tower.encoder.blocks.2.norm0.weight' is missing") !=
          std::string::npos);
    tower.config.vision.layers = 2;
    tower.config.vision.table_columns = 11;
    CHECK(tower.load().message().find("[10, 12, 48], expected [10, 11, 48]") != std::string::npos);
  }

  TEST_CASE("IMG-11 features placed over media tokens give the same logits however the prompt is cut") {
    auto loaded = load_model(kModel, {.route = Route::exact});
    REQUIRE(loaded.is_ok());
    LoadedModel model = std::move(loaded).value();
    const auto expected = read_expected(kFolder);
    REQUIRE(expected.is_ok());
    const std::vector<int32_t>& ids = expected.value().input_ids;
    const auto picture = Picture::from_file(kFolder + "/image_a.png");
    REQUIRE(picture.is_ok());
    auto pass = run_vision(model, {&picture.value()});
    REQUIRE(pass.is_ok());
    const auto placed = place_features(kModel, *pass.value(), ids);
    REQUIRE_MESSAGE(placed.is_ok(), placed.status().message());
    const PlacedRows rows = placed.value();

    const auto logits_of = [&](const std::vector<int>& cuts, std::span<const PlacedRows> with) {
      SequenceState sequence(*model.pool, int(ids.size()));
      std::vector<float> logits;
      int begin = 0;
      for (size_t i = 0; i <= cuts.size(); ++i) {
        const int end = i < cuts.size() ? cuts[i] : int(ids.size());
        for (; begin < end;) {
          const int count = std::min(end - begin, model.decoder->max_step_tokens());
          auto result = append(model, sequence, ids.data() + begin, count, with);
          REQUIRE(result.is_ok());
          logits = std::move(result).value();
          begin += count;
        }
      }
      return logits;
    };
    const Values whole = logits_of({}, {&rows, 1});
    CHECK(relative_error(logits_of({}, {}), whole) > 0.01);  // the picture matters
    const float* want =
        expected.value().logits_last.data() + expected.value().logits_last.size() - whole.size();
    CHECK(relative_error(whole, Values(want, want + whole.size())) < 1e-3);

    for (int cut = rows.first - 1; cut <= rows.first + rows.count + 1; ++cut) {
      INFO("cut at ", cut);
      CHECK(relative_error(logits_of({cut}, {&rows, 1}), whole) < 1e-5);
    }
    std::vector<int> every;
    for (int cut = 1; cut < int(ids.size()); ++cut) every.push_back(cut);
    CHECK(relative_error(logits_of(every, {&rows, 1}), whole) < 1e-5);

    // In two pieces, out of order.
    const PlacedRows pieces[] = {{rows.first + 5, rows.count - 5, rows.rows + 5 * model.config->hidden},
                                 {rows.first, 5, rows.rows}};
    CHECK(relative_error(logits_of({rows.first + 3}, pieces), whole) < 1e-5);
  }

  TEST_CASE("IMG-11 in a batch each sequence gets its own rows") {
    auto loaded = load_model(kModel, {.route = Route::exact});
    REQUIRE(loaded.is_ok());
    LoadedModel model = std::move(loaded).value();
    const int hidden = model.config->hidden;
    Random random(4);
    const std::vector<int32_t> tokens = {5, 6, 377, 377, 9, 377, 3, 2};
    const Values a = random.normals(size_t(2 * hidden)), b = random.normals(size_t(3 * hidden));
    const PlacedRows of_a[] = {{2, 2, a.data()}}, of_b[] = {{3, 3, b.data()}, {100, 3, b.data()}};
    const auto alone = [&](std::span<const PlacedRows> placed) {
      SequenceState sequence(*model.pool, 20);
      return append(model, sequence, tokens.data(), int(tokens.size()), placed).value();
    };
    const Values alone_a = alone(of_a), alone_b = alone(of_b), plain = alone({});
    SequenceState first(*model.pool, 20), second(*model.pool, 20), third(*model.pool, 20);
    StepPlan plan;
    const int n = int(tokens.size());
    plan.sequences.push_back({&first, tokens.data(), n, true, of_b});
    plan.sequences.push_back({&second, tokens.data(), n, true});
    plan.sequences.push_back({&third, tokens.data(), n, true, of_a});
    auto pages = model.pool->reserve(plan);
    REQUIRE(pages.is_ok());
    const auto logits = model.decoder->run(plan, *model.pool);
    REQUIRE(logits.is_ok());
    pages.value().commit();
    const Values* want[] = {&alone_b, &plain, &alone_a};
    for (int i = 0; i < 3; ++i) {
      const float* row = logits.value().f32() + i * logits.value().stride[0];
      CHECK(relative_error(Values(row, row + logits.value().dim[1]), *want[i]) < 1e-5);
    }
    CHECK(relative_error(alone_a, plain) > 0.01);
    CHECK(relative_error(alone_b, alone_a) > 0.01);
  }
}

}  // namespace dsa::test
