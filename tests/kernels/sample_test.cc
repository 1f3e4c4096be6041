#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/sample/sample_weight.h"
#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Answer {
  std::vector<SampledToken> sampled;
  std::vector<int32_t> tokens;
};

// `logits` holds one row for each of `asked`, kExtra values apart.
constexpr int kExtra = 3;
Answer run(const Variant<SampleArgs>& variant, const Values& logits, const std::vector<SampleRow>& asked) {
  const size_t rows = asked.size();
  Answer answer{std::vector<SampledToken>(rows + 1, {7, 7, 7}), std::vector<int32_t>(rows + 1, 7)};
  const int stride = int(logits.size() / rows);
  const SampleArgs args{
      logits.data(), asked.data(), answer.sampled.data(), answer.tokens.data(),
      stride,        int(rows),    stride - kExtra,       sample_flags(asked, stride - kExtra)};
  SerialQueue queue;
  variant.run(args, queue);
  CHECK(answer.sampled.back().token == 7);  // nothing is written behind the rows
  CHECK(answer.tokens.back() == 7);
  answer.sampled.pop_back();
  answer.tokens.pop_back();
  for (size_t i = 0; i < rows; ++i) CHECK(answer.tokens[i] == std::max(answer.sampled[i].token, 0));
  return answer;
}

int32_t token_of(const Variant<SampleArgs>& variant, Values logits, const SampleRow& asked) {
  logits.resize(logits.size() + kExtra, kInf);
  return run(variant, logits, {asked}).sampled[0].token;
}

// A draw at this share of the sum.
uint64_t at(double share) { return uint64_t(share * 0x1p64); }

void check_same(const Answer& found, const Answer& expected) {
  for (size_t i = 0; i < expected.sampled.size(); ++i) {
    INFO("row ", i);
    CHECK(found.sampled[i].token == expected.sampled[i].token);
    CHECK(found.sampled[i].at == expected.sampled[i].at);
    CHECK(f32_to_bits(found.sampled[i].logit) == f32_to_bits(expected.sampled[i].logit));
  }
}

const Variant<SampleArgs> kReference{"ref", ref::sample};

}  // namespace

TEST_SUITE("kernels/sample") {
  TEST_CASE("every implementation gives the tokens worked out by hand") {
    const float l1 = std::log(0.1f), l2 = std::log(0.2f), l3 = std::log(0.3f), l4 = std::log(0.4f);
    for (const auto& variant : implementations(&KernelTable::sample)) {
      INFO(variant.name);
      const auto token = [&](const Values& logits, const SampleRow& asked) {
        return token_of(variant, logits, asked);
      };
      CHECK(token({0, 3, 3, 1}, {}) == 1);  // the lower of the two
      CHECK(token({-0.f, 0.f}, {}) == 0);
      CHECK(token({-kInf, -2, -kInf}, {}) == 1);

      const Values p = {l1, l2, l4, l3};  // 0.1 | 0.3 | 0.7 | 1
      CHECK(token(p, {.temperature = 1, .draw = 0}) == 0);
      CHECK(token(p, {.temperature = 1, .draw = at(0.0999)}) == 0);
      CHECK(token(p, {.temperature = 1, .draw = at(0.1001)}) == 1);
      CHECK(token(p, {.temperature = 1, .draw = at(0.2999)}) == 1);
      CHECK(token(p, {.temperature = 1, .draw = at(0.6999)}) == 2);
      CHECK(token(p, {.temperature = 1, .draw = ~uint64_t{0}}) == 3);
      // 0.4 and 0.3 are left: tokens 2 and 3.
      for (const SampleRow& two : {SampleRow{.temperature = 1, .top_k = 2},
                                   {.temperature = 1, .top_p = 0.69f},
                                   {.temperature = 1, .min_p = 0.6f},
                                   {.temperature = 1, .min_p = 0.6f, .top_k = 3}}) {
        SampleRow row = two;
        row.draw = 0;
        CHECK(token(p, row) == 2);
        row.draw = at(0.5713);  // 4 / 7 = 0.57143
        CHECK(token(p, row) == 2);
        row.draw = at(0.5715);
        CHECK(token(p, row) == 3);
      }
      // top_k first: 0.4 of the 0.7 that are left are more than half of them.
      CHECK(token(p, {.temperature = 1, .top_p = 0.57f, .top_k = 2, .draw = ~uint64_t{0}}) == 2);
      CHECK(token(p, {.temperature = 1, .top_p = 0.57f, .draw = ~uint64_t{0}}) == 3);
      for (const float top_p : {0.f, 1e-9f, 0.39f})
        CHECK(token(p, {.temperature = 9, .top_p = top_p, .draw = at(0.999)}) == 2);
      // The temperature comes after the cuts: 2 makes 0.4 : 0.1 of 0.16 : 0.01.
      CHECK(token({std::log(0.16f), std::log(0.01f)}, {.temperature = 2, .draw = at(0.799)}) == 0);
      CHECK(token({std::log(0.16f), std::log(0.01f)}, {.temperature = 2, .draw = at(0.801)}) == 1);
      // Of a tie at a border the lower tokens stay.
      CHECK(token({1, 1, 1, 1}, {.temperature = 1, .top_k = 2, .draw = at(0.999)}) == 1);
      CHECK(token({1, 1, 1, 1}, {.temperature = 1, .top_p = 0.7f, .draw = at(0.999)}) == 2);
      CHECK(token({1, 1, 1, 1}, {.temperature = 1, .top_p = 0.5f, .top_k = 2, .draw = at(0.999)}) == 0);
      CHECK(token({0, 1, 0, 0}, {.temperature = 1, .top_k = 3, .draw = at(0.999)}) == 2);
      // Far below the best one, and at temperatures near none.
      CHECK(token({0, -30, -kInf}, {.temperature = 1, .draw = ~uint64_t{0}}) == 0);
      for (const float t : {1e-4f, 1e-8f, std::numeric_limits<float>::denorm_min()})
        CHECK(token({1, 1.01f, 0.5f}, {.temperature = t, .draw = ~uint64_t{0}}) == 1);
      CHECK(token({-3e38f, 3e38f, 0}, {.temperature = 3e38f, .draw = at(0.999)}) == 2);
    }
  }

  TEST_CASE("rows without an answer: the first logit that is NaN or +inf is named, and nothing above -inf") {
    for (const auto& variant : implementations(&KernelTable::sample))
      for (const SampleRow& asked :
           {SampleRow{}, {.temperature = 1}, {.temperature = 1, .top_p = 0.5f, .top_k = 2}}) {
        INFO(variant.name);
        constexpr int kVocab = 5000;
        Random random(3);
        Values logits = random.normals(4 * (kVocab + kExtra));
        logits[4100] = kNan, logits[4500] = kInf;
        logits[1 * (kVocab + kExtra) + 4999] = kInf;
        for (int i = 0; i < kVocab; ++i) logits[size_t(2 * (kVocab + kExtra) + i)] = -kInf;
        const Answer answer = run(variant, logits, {asked, asked, asked, asked});
        CHECK(answer.sampled[0].token == -1);
        CHECK(answer.sampled[0].at == 4100);
        CHECK(std::isnan(answer.sampled[0].logit));
        CHECK(answer.sampled[1].token == -1);
        CHECK(answer.sampled[1].at == 4999);
        CHECK(answer.sampled[1].logit == kInf);
        CHECK(answer.sampled[2].token == -1);
        CHECK(answer.sampled[2].at == -1);
        CHECK(answer.sampled[3].token >= 0);
      }
  }

  TEST_CASE(
      "every variant gives the reference's token: each combination, ties at the borders, flat and steep "
      "rows") {
    for (const int vocab : {1, 2, 33, 2048, 5003})
      for (const float scale : {0.f, 0.01f, 1.f, 8.f, 60.f}) {
        Random random(uint64_t(vocab) * 100 + uint64_t(scale));
        std::vector<SampleRow> asked;
        for (const float temperature : {0.f, 0.7f, 1.f, 1.5f})
          for (const uint32_t top_k : {0u, 1u, 20u, 4000u})
            for (const float top_p : {0.f, 0.1f, 0.95f, 1.f})
              for (const float min_p : {0.f, 0.05f})
                asked.push_back(
                    {temperature, top_p, min_p, top_k, uint64_t(random.integer(0, INT64_MAX)) * 2});
        asked.back().draw = ~uint64_t{0};
        Values logits = random.normals(asked.size() * size_t(vocab + kExtra), scale);
        for (size_t i = 0; i < logits.size(); ++i) {
          if (i / size_t(vocab + kExtra) % 3 == 1) logits[i] = std::round(logits[i]);  // ties
          const int64_t impossible = i / size_t(vocab + kExtra) % 4 == 0 ? 8 : 0;      // of ten tokens
          if (random.integer(0, 9) <= impossible) logits[i] = -kInf;
        }
        for (size_t r = 0; r < asked.size(); ++r) logits[r * size_t(vocab + kExtra)] = 0;  // one is possible
        const Answer expected = run(kReference, logits, asked);
        for (const auto& variant : variants(&KernelTable::sample)) {
          INFO(variant.name, ", vocab ", vocab, ", scale ", scale);
          check_same(run(variant, logits, asked), expected);
        }
      }
  }

  TEST_CASE("rows of a large vocabulary, equal ones among them") {
    constexpr int kVocab = 163840;
    for (const auto& variant : variants(&KernelTable::sample)) {
      INFO(variant.name);
      Random random(5);
      std::vector<SampleRow> asked = {{},
                                      {.temperature = 1, .top_p = 0.95f},
                                      {.temperature = 0.6f, .top_k = 50},
                                      {.temperature = 1, .top_p = 0.5f, .min_p = 0.01f},
                                      {.temperature = 1, .top_p = 0.9f, .top_k = 100000}};
      for (SampleRow& row : asked) row.draw = uint64_t(random.integer(0, INT64_MAX)) * 2;
      Values logits = random.normals(asked.size() * size_t(kVocab + kExtra), 2);
      for (size_t i = 3 * size_t(kVocab + kExtra); i < logits.size(); ++i) logits[i] = 0.25f;
      check_same(run(variant, logits, asked), run(kReference, logits, asked));
    }
  }

  TEST_CASE("weights: one at the best token, exp elsewhere, nothing far below") {
    CHECK(sample_weight(3, 3, sample_scale(1)) == kSampleWeightOne);
    CHECK(sample_weight(-3, 3, sample_scale(1e-30f)) == 0);
    CHECK(sample_weight(-kInf, 3, sample_scale(1)) == 0);
    CHECK(sample_weight(-3, 3, sample_scale(3e38f)) == kSampleWeightOne);
    double worst = 0;
    for (int i = 0; i < 20000; ++i) {
      const float difference = float(i) * 1e-3f;
      const double expected = std::exp(-double(difference)) * 0x1p40;
      worst = std::max(worst, std::abs(double(sample_weight(-difference, 0, sample_scale(1))) - expected) /
                                  std::max(expected, 0x1p20));
    }
    CHECK(worst < 2e-6);
  }
}
