// dsa_golden DIR [--weights model|model-mxfp4] [--route exact|fast|fp8] [--kv f32|bf16|fp8]
// [--device cpu|guarded|cuda]: runs a fixture folder and compares.
//
// Prints PASS|FAIL family max_rel=.. top1=n/n tokens=n/n selected=equal|different|none. max_rel is the
// largest difference of a logit over the largest logit. The exact route must stay within 1e-3 with every
// token and selected position equal; a fixture with pictures also has vision=.., the same measure over the patches and
// the outputs of the tower, with the same limit, and canvas=.., the largest difference of a resized pixel, at most 1.
//
// The fast route rounds activations to 8 bits and a sign for MXFP4 weights; with bf16 weights it rounds them to 12 bits
// and a sign and their activations to 14 and a sign; on a GPU it rounds activations of experts to 14 and a sign and cuts
// those of other products to 16 bits, or rounds them to bf16 in long steps. In a random model that now and then tips a router or a
// selection, and the row's logits then differ as a whole; between such rows the rounding is small. So it must keep the
// median row within 5 % of the largest logit, and the best token in nine of ten clear rows, those whose lead is larger
// than twice the median row's error; median_rel=.. and clear=kept/all say how far it did.
//
// fp8 is the fast route with the MXFP4 experts of steps of several tokens multiplied as FP8, where activations keep 4 bits:
// within 10 %, and two of three clear rows.
//
// A cache of bf16 or fp8 rounds what it keeps, and has the limits of the route fast or fp8 if the route has none of its own.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "golden/fixture.h"
#include "golden/vision_fixture.h"
#include "support/cache_format.h"

namespace dsa::test {
namespace {

constexpr double kExactTolerance = 1e-3;
constexpr int kCanvasTolerance = 1;  // rounding of the resize, and of half transparent pixels

struct Tolerance {
  double median, clear_share;
};
constexpr Tolerance kFastTolerance = {0.05, 0.9}, kFp8Tolerance = {0.1, 2. / 3};

struct Row {
  double error, lead;  // largest difference of a logit; expected best minus second
  bool same;           // the best token
};

// Rows whose lead is larger than twice the error of the median row, and those of them that keep their best token.
struct Clear {
  int rows = 0, kept = 0;
};

struct Report {
  std::string family;
  double error = 0, magnitude = 0;
  int top1 = 0, top1_of = 0, tokens = 0, tokens_of = 0;
  bool has_sets = false, sets_equal = true;
  bool has_vision = false;
  VisionReport vision;
  std::vector<Row> rows;

  double max_rel() const { return magnitude > 0 ? error / magnitude : error; }

  bool passes_vision() const {
    return vision.max_rel() <= kExactTolerance && vision.canvas <= kCanvasTolerance;
  }

  bool passes_exact() const {
    return max_rel() <= kExactTolerance && top1 == top1_of && tokens == tokens_of && sets_equal;
  }

  double median_error() const {  // of the rows
    std::vector<double> errors;
    for (const Row& row : rows) errors.push_back(row.error);
    std::nth_element(errors.begin(), errors.begin() + int64_t(errors.size() / 2), errors.end());
    return errors[errors.size() / 2];
  }
  double median_rel() const { return magnitude > 0 ? median_error() / magnitude : median_error(); }
  Clear clear() const {
    const double median = median_error();
    Clear c;
    for (const Row& row : rows) {
      if (row.lead <= 2 * median) continue;
      ++c.rows;
      c.kept += row.same;
    }
    return c;
  }
  bool passes_rounded(Tolerance tolerance) const {
    return std::isfinite(error) && median_rel() <= tolerance.median &&
           clear().kept >= tolerance.clear_share * clear().rows;
  }
};

double lead(const float* logits, int n) {
  const int32_t best = argmax(logits, n);
  double second = -INFINITY;
  for (int i = 0; i < n; ++i)
    if (i != best) second = std::fmax(second, logits[i]);
  return logits[best] - second;
}

// Compares one row; true if the best token is the same.
bool compare_row(const std::vector<float>& actual, const float* expected, int vocab, Report& report) {
  double row_error = 0;
  for (int i = 0; i < vocab; ++i) {
    const double difference = std::fabs(double(actual[size_t(i)]) - expected[i]);
    row_error = std::isnan(difference) ? INFINITY : std::fmax(row_error, difference);
    report.magnitude = std::fmax(report.magnitude, std::fabs(double(expected[i])));
  }
  report.error = std::fmax(report.error, row_error);
  const bool same = argmax(actual.data(), vocab) == argmax(expected, vocab);
  report.rows.push_back({row_error, lead(expected, vocab), same});
  return same;
}

void compare_set(const SelectionRecorder& recorder, int layer, int position,
                 const std::vector<int32_t>& expected, Report& report) {
  const std::vector<int32_t>* set = recorder.find(layer, position);
  report.has_sets = true;
  if (set == nullptr || *set != expected) report.sets_equal = false;
}

Result<Report> run(const std::string& folder, const std::string& weights, const ModelOptions& options,
                   const std::string& device) {
  DSA_ASSIGN(const Expected expected, read_expected(folder));
  DSA_ASSIGN(LoadedModel model, load_model(join_path(folder, weights), options, 1024, 2, device));
  SelectionRecorder recorder;
  recorder.attach(*model.decoder);
  const int prompt = int(expected.input_ids.size()), vocab = expected.vocab;
  const int last = int(expected.logits_last.size()) / vocab;
  Report report;
  report.family = expected.family;

  // Features of a picture stand in for the media tokens of the prompt.
  std::unique_ptr<VisionPass> pass;
  std::vector<PlacedRows> placed;
  if (model.decoder->vision() != nullptr) {
    report.has_vision = true;
    DSA_ASSIGN(report.vision, compare_vision(model, folder, pass));
    DSA_ASSIGN(const PlacedRows rows, place_features(join_path(folder, weights), *pass, expected.input_ids));
    placed.push_back(rows);
  }

  // The prompt up to its last positions in chunks, those one by one so that each gives logits.
  SequenceState sequence(*model.pool, prompt + int(expected.decode_tokens.size()));
  const int32_t* ids = expected.input_ids.data();
  for (int begin = 0; begin < prompt - last;) {
    const int count = std::min(prompt - last - begin, model.decoder->max_step_tokens());
    DSA_ASSIGN(const auto unused, append(model, sequence, ids + begin, count, placed));
    begin += count;
  }
  std::vector<float> logits;
  for (int i = 0; i < last; ++i) {
    DSA_ASSIGN(logits, append(model, sequence, ids + (prompt - last) + i, 1, placed));
    ++report.top1_of;
    report.top1 +=
        compare_row(logits, expected.logits_last.data() + size_t(i) * size_t(vocab), vocab, report);
  }

  // Greedy decoding, fed with the expected tokens so that one difference does not hide the rest.
  for (size_t i = 0; i < expected.decode_tokens.size(); ++i) {
    ++report.tokens_of;
    report.tokens += compare_row(logits, expected.decode_logits.data() + i * size_t(vocab), vocab, report) &&
                     argmax(logits.data(), vocab) == expected.decode_tokens[i];
    DSA_ASSIGN(logits, append(model, sequence, &expected.decode_tokens[i], 1));
  }

  for (const auto& [layer, sets] : expected.prefill_sets)
    for (size_t i = 0; i < sets.size(); ++i)
      compare_set(recorder, layer, expected.set_positions[i], sets[i], report);
  for (const auto& [layer, set] : expected.decode_sets)
    compare_set(recorder, layer, expected.decode_set_position, set, report);
  return report;
}

int main(int argc, char** argv) {
  std::string folder, weights = "model-mxfp4", route = "exact", device = "cpu";
  CacheFormat cache = CacheFormat::f32;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--weights" && i + 1 < argc)
      weights = argv[++i];
    else if (arg == "--route" && i + 1 < argc)
      route = argv[++i];
    else if (arg == "--kv" && i + 1 < argc && parse_cache_format(argv[i + 1], cache))
      ++i;
    else if (arg == "--device" && i + 1 < argc)
      device = argv[++i];
    else if (folder.empty() && arg[0] != '-')
      folder = arg;
    else
      folder = "", i = argc;
  }
  if (folder.empty() || (route != "exact" && route != "fast" && route != "fp8")) {
    fprintf(
        stderr,
        "usage: dsa_golden DIR [--weights model|model-mxfp4] [--route exact|fast|fp8] [--kv f32|bf16|fp8] "
        "[--device ID]\n");
    return 2;
  }
  const bool exact = route == "exact" && cache == CacheFormat::f32,
             fp8 = route == "fp8" || cache == CacheFormat::fp8;
  const auto result = run(folder, weights,
                          {.route = route == "exact" ? Route::exact : Route::fast,
                           .cache_format = cache,
                           .fp8_rows = route == "fp8" ? 1 : 0},
                          device);
  if (!result.is_ok()) {
    printf("FAIL %s: %s\n", folder.c_str(), result.status().message().c_str());
    return 1;
  }
  const Report& r = result.value();
  const bool pass = (exact ? r.passes_exact() : r.passes_rounded(fp8 ? kFp8Tolerance : kFastTolerance)) &&
                    r.passes_vision();
  printf("%s %s max_rel=%.2e top1=%d/%d tokens=%d/%d selected=%s", pass ? "PASS" : "FAIL", r.family.c_str(),
         r.max_rel(), r.top1, r.top1_of, r.tokens, r.tokens_of,
         !r.has_sets    ? "none"
         : r.sets_equal ? "equal"
                        : "different");
  if (!exact) printf(" median_rel=%.2e clear=%d/%d", r.median_rel(), r.clear().kept, r.clear().rows);
  if (r.has_vision) {
    printf(" vision=%.2e (patches %.1e", r.vision.max_rel(), r.vision.patches);
    for (const auto& [stage, error] : r.vision.stages) printf(", %s %.1e", stage.c_str(), error);
    printf(", features %.1e) canvas=%d", r.vision.features, r.vision.canvas);
  }
  printf("\n");
  return pass ? 0 : 1;
}

}  // namespace
}  // namespace dsa::test

int main(int argc, char** argv) { return dsa::test::main(argc, argv); }
