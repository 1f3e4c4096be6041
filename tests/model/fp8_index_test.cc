// Which positions FP8 index keys select in the first layer, worked out again in f64 from the weights.
//
// Every number carries the standard deviation of what an f32 computation of it may be off: roundings of 2^-24 each,
// independent, n of them in a sum of n terms, and what its inputs bring. Rounding to FP8 removes it where all values within
// six deviations round alike, and makes it a whole step elsewhere. Scores that six deviations keep apart from the threshold
// then leave no choice: those positions must be selected, or must not be.
#include <doctest/doctest.h>

#include <cstring>

#include "golden/fixture.h"
#include "support/temp_folder.h"
#include "support/values.h"

namespace dsa::test {
namespace {

const std::string kFixture = DSA_SOURCE_DIR "/tests/golden/glm_moe_dsa";
const std::string kModel = kFixture + "/model";
constexpr double kUnit = 0x1p-24;  // the relative error of one f32 operation, at most
constexpr double kDeviations = 6;

struct Bounded {
  double value = 0, error = 0;
};
using Row = std::vector<Bounded>;
using Doubles = std::vector<double>;

class Weights {
 public:
  explicit Weights(std::shared_ptr<const Checkpoint> file) : file_(std::move(file)) {}
  Doubles operator()(const std::string& name) const {
    const StoredTensor* tensor = file_->find(name);
    REQUIRE_MESSAGE(tensor != nullptr, name);
    Doubles values(tensor->bytes / dtype_bytes(tensor->dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      float f = 0;
      bf16 b{};
      if (tensor->dtype == DType::f32)
        memcpy(&f, tensor->data + i * sizeof f, sizeof f);
      else
        memcpy(&b, tensor->data + i * sizeof b, sizeof b), f = to_f32(b);
      values[i] = double(f);
    }
    return values;
  }

 private:
  std::shared_ptr<const Checkpoint> file_;
};

double squared(double x) { return x * x; }

Row linear(const Doubles& w, const Row& x) {
  Row y(w.size() / x.size());
  for (size_t o = 0; o < y.size(); ++o) {
    double variance = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double a = w[o * x.size() + i];
      y[o].value += a * x[i].value;
      variance += squared(a * x[i].error) + double(x.size()) * squared(kUnit * a * x[i].value);
    }
    y[o].error = std::sqrt(variance);
  }
  return y;
}

// Root mean square norm, or with a bias layer norm.
Row norm(Row x, const Doubles& w, double eps, const Doubles* bias = nullptr) {
  const double n = double(x.size());
  if (bias) {
    double mean = 0, variance = 0;
    for (const Bounded& b : x)
      mean += b.value / n, variance += squared(b.error / n) + squared(kUnit * b.value) / n;
    for (Bounded& b : x) {
      b.error = std::sqrt(squared(b.error) + variance + squared(kUnit * b.value) + squared(kUnit * mean));
      b.value -= mean;
    }
  }
  double squares = 0, errors = 0;
  for (const Bounded& b : x) squares += b.value * b.value, errors += b.error * b.error;
  const double factor = 1 / std::sqrt(squares / n + eps);
  const double relative =
      std::sqrt(errors / squares / n) + std::sqrt(n) * kUnit;  // of the factor and the products
  for (size_t i = 0; i < x.size(); ++i) {
    const double y = x[i].value * factor * w[i];
    x[i].error = std::hypot(w[i] * factor * x[i].error, y * relative);
    x[i].value = y;
    if (bias) {
      x[i].value += (*bias)[i];
      x[i].error = std::hypot(x[i].error, kUnit * x[i].value);
    }
  }
  return x;
}

// Neighbouring lanes turn together.
void turn(Bounded* x, const std::vector<float>& frequencies, int position) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double angle =
        double(float(position) * frequencies[i]);  // an f32 product, by the operator's definition
    const double c = std::cos(angle), s = std::sin(angle);
    const Bounded a = x[2 * i], b = x[2 * i + 1];
    const double error = std::hypot(std::hypot(a.error, b.error), 2 * kUnit * std::hypot(a.value, b.value));
    x[2 * i] = {a.value * c - b.value * s, error};
    x[2 * i + 1] = {a.value * s + b.value * c, error};
  }
}

// By the definition, not by rounds of sums and differences.
void spread(Bounded* x, size_t dim) {
  double variance = 0, squares = 0;
  for (size_t i = 0; i < dim; ++i) variance += squared(x[i].error), squares += squared(x[i].value);
  const double error =
      std::sqrt(variance + std::log2(double(dim)) * squared(kUnit) * squares) / std::sqrt(double(dim));
  Row y(dim);
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < dim; ++j) y[i].value += (__builtin_popcountll(i & j) % 2 ? -1 : 1) * x[j].value;
    y[i].value /= std::sqrt(double(dim));
    y[i].error = error;
  }
  std::copy(y.begin(), y.end(), x);
}

// The nearest E4M3 value, ties to the even code; the values by the definition of the format.
double nearest_e4m3(double x) {
  static const Doubles levels = [] {
    Doubles all;
    for (int code = 0; code < 127; ++code)
      all.push_back(code < 8 ? std::ldexp(code, -9) : std::ldexp(8 + code % 8, code / 8 - 10));
    return all;
  }();
  const double m = std::min(std::abs(x), levels.back());
  const size_t above = size_t(std::lower_bound(levels.begin(), levels.end(), m) - levels.begin());
  size_t best = above;
  if (above > 0) {
    const double up = levels[above] - m, down = m - levels[above - 1];
    if (down < up || (down == up && above % 2 == 1)) best = above - 1;
  }
  return std::copysign(levels[best], x);
}

void round_fp8(Bounded* x, size_t dim) {
  double largest = 1e-4, low = 1e-4, high = 1e-4;
  for (size_t i = 0; i < dim; ++i) {
    const double m = std::abs(x[i].value);
    largest = std::max(largest, m);
    low = std::max(low, m - kDeviations * x[i].error);
    high = std::max(high, m + kDeviations * x[i].error);
  }
  const auto scale_of = [](double v) { return std::exp2(std::ceil(std::log2(v / 448))); };
  const double scale = scale_of(largest);
  for (size_t i = 0; i < dim; ++i) {
    const double y = nearest_e4m3(x[i].value / scale) * scale;
    double error = 0;
    for (const double s :
         {scale_of(low), scale_of(high)})  // two where the largest value is near a power of two
      for (const double end : {x[i].value - kDeviations * x[i].error, x[i].value + kDeviations * x[i].error})
        error = std::max(error, std::abs(nearest_e4m3(end / s) * s - y));
    x[i] = {y, error};
  }
}

struct Indexer {
  std::vector<Row> q, k, weights;  // of each position
};

// Queries, keys and head weights of layer 0.
Indexer first_indexer(const ModelConfig& c, const std::vector<int32_t>& ids, bool fp8) {
  const Weights w(Checkpoint::open(kModel).value());
  const std::string layer = "model.layers.0.", attention = layer + "self_attn.",
                    name = attention + "indexer.";
  const Doubles embedding = w("model.embed_tokens.weight"), input_norm = w(layer + "input_layernorm.weight"),
                q_down = w(attention + "q_a_proj.weight"), q_norm = w(attention + "q_a_layernorm.weight"),
                q_up = w(name + "wq_b.weight"), k_proj = w(name + "wk.weight"),
                k_norm = w(name + "k_norm.weight"), k_bias = w(name + "k_norm.bias"),
                head_weights = w(name + "weights_proj.weight");
  const size_t hidden = size_t(c.hidden), dim = size_t(c.indexer.dim);
  REQUIRE(c.indexer.rope == RopeKind::pairs);
  Indexer out;
  for (size_t t = 0; t < ids.size(); ++t) {
    Row x(hidden);
    for (size_t i = 0; i < hidden; ++i) x[i].value = embedding[size_t(ids[t]) * hidden + i];
    const Row h = norm(x, input_norm, double(c.norm_eps));
    Row q = linear(q_up, norm(linear(q_down, h), q_norm, double(c.latent.norm_eps)));
    Row k = norm(linear(k_proj, h), k_norm, double(c.indexer.norm_eps), &k_bias);
    for (Row* rows : {&q, &k})
      for (size_t at = 0; at < rows->size(); at += dim) {
        turn(rows->data() + at, c.rope.frequencies, int(t));
        if (!fp8) continue;
        spread(rows->data() + at, dim);
        round_fp8(rows->data() + at, dim);
      }
    out.q.push_back(std::move(q));
    out.k.push_back(std::move(k));
    out.weights.push_back(linear(head_weights, h));
  }
  return out;
}

Bounded score(const Row& q, const Row& k, const Row& weights) {
  Bounded sum;
  const size_t dim = k.size();
  double variance = 0;
  for (size_t h = 0; h < weights.size(); ++h) {
    double dot = 0, dot_variance = 0;
    for (size_t d = 0; d < dim; ++d) {
      const Bounded &a = q[h * dim + d], &b = k[d];
      dot += a.value * b.value;
      dot_variance += squared(a.value * b.error) + squared(a.error * b.value) + squared(a.error * b.error) +
                      double(dim) * squared(kUnit * a.value * b.value);
    }
    const double relu = std::max(dot, 0.0), w = weights[h].value;
    sum.value += w * relu;
    variance += squared(w) * dot_variance + squared(weights[h].error * relu) +
                double(weights.size()) * squared(kUnit * w * relu);
  }
  sum.error = kDeviations * std::sqrt(variance);
  return sum;
}

struct Verdict {
  int64_t positions = 0, decided = 0, wrong = 0;
};

// Compares what the engine selected in layer 0 with what the bounds of the scores leave open.
Verdict judge(const Indexer& indexer, const SelectionRecorder& recorder, int top_k) {
  Verdict verdict;
  for (size_t t = size_t(top_k); t < indexer.q.size(); ++t) {
    const std::vector<int32_t>* set = recorder.find(0, int(t));
    REQUIRE(set != nullptr);
    REQUIRE(int(set->size()) == top_k);
    std::vector<Bounded> scores;
    Doubles low, high;
    for (size_t p = 0; p <= t; ++p) {
      scores.push_back(score(indexer.q[t], indexer.k[p], indexer.weights[t]));
      low.push_back(scores[p].value - scores[p].error);
      high.push_back(scores[p].value + scores[p].error);
    }
    // The threshold, the smallest score selected, lies between these.
    const auto kth = [&](Doubles values) {
      std::nth_element(values.begin(), values.begin() + top_k - 1, values.end(), std::greater<>());
      return values[size_t(top_k - 1)];
    };
    const auto next = [&](Doubles values) {
      std::nth_element(values.begin(), values.begin() + top_k, values.end(), std::greater<>());
      return values[size_t(top_k)];
    };
    const double in_above = next(high), out_below = kth(low);
    for (size_t p = 0; p <= t; ++p) {
      const bool is_in = std::binary_search(set->begin(), set->end(), int32_t(p));
      const bool must = low[p] > in_above, must_not = high[p] < out_below;
      ++verdict.positions;
      verdict.decided += must || must_not;
      verdict.wrong += (must && !is_in) || (must_not && is_in);
    }
  }
  return verdict;
}

}  // namespace

TEST_SUITE("model/fp8_index") {
  TEST_CASE(
      "FP8 index keys select the positions that an f64 computation of the rounded keys leaves no doubt "
      "about") {
    const auto expected = read_expected(kFixture).value();
    const TempFolder fp8;
    Json config = read_json_file(kModel + "/config.json", {.python_numbers = true}).value();
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    fp8.write("config.json", config.dump());
    fp8.link(kModel + "/model.safetensors", "model.safetensors");

    Verdict verdicts[2][2];  // [keys of the engine][keys of the reference]: exact, FP8
    for (const bool engine_fp8 : {false, true}) {
      auto model = load_model(engine_fp8 ? fp8.path() : kModel, {.route = Route::exact}, 64, 2);
      REQUIRE_MESSAGE(model.is_ok(), model.status().message());
      CHECK(model.value().config->indexer.fp8_keys == engine_fp8);
      SelectionRecorder recorder;
      recorder.attach(*model.value().decoder);
      SequenceState sequence(*model.value().pool, 512);
      for (size_t at = 0; at < expected.input_ids.size(); at += 100) {
        const int count = int(std::min<size_t>(100, expected.input_ids.size() - at));
        REQUIRE(append(model.value(), sequence, expected.input_ids.data() + at, count).is_ok());
      }
      for (const bool fp8_keys : {false, true})
        verdicts[engine_fp8][fp8_keys] =
            judge(first_indexer(*model.value().config, expected.input_ids, fp8_keys), recorder,
                  model.value().config->indexer.top_k);
    }
    for (const bool fp8_keys : {false, true}) {
      INFO("keys: ", std::string(fp8_keys ? "FP8" : "exact"));
      const Verdict &same = verdicts[fp8_keys][fp8_keys], &other = verdicts[!fp8_keys][fp8_keys];
      CHECK(same.positions > 10'000);
      CHECK(double(same.decided) > 0.99 * double(same.positions));
      CHECK(same.wrong == 0);
      CHECK(other.wrong > 100);  // keys that are not rounded, or are though they should not be, are found out
    }
  }
}

}  // namespace dsa::test
