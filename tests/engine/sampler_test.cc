#include "engine/sampler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>

using namespace dsa;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TokenId sample(std::vector<float> logits, const Sampling& sampling, uint64_t seed = 1,
               std::vector<TokenId> history = {}) {
  Sampler sampler(int(logits.size()));
  Random random(seed);
  auto token = sampler.sample(logits.data(), sampling, random, history);
  REQUIRE(token.is_ok());
  return token.value();
}

std::vector<int> draw(const std::vector<float>& logits, const Sampling& sampling, int n, uint64_t seed = 7) {
  Sampler sampler(int(logits.size()));
  Random random(seed);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < n; ++i) ++counts[size_t(sampler.sample(logits.data(), sampling, random, {}).value())];
  return counts;
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(float(std::log(p)));
  return logits;
}

// Sum of (seen - expected)^2 / expected.
double chi_square(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  double n = 0, sum = 0;
  for (const int count : counts) n += count;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = n * probabilities[i];
    if (expected > 0) sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

Sampling plain(float temperature = 1) {
  Sampling sampling;
  sampling.temperature = temperature;
  return sampling;
}

}  // namespace

TEST_SUITE("engine/sampler") {
  TEST_CASE("temperature 0 is the most likely token, the lowest id on a tie") {
    CHECK(sample({0, 3, 3, 1}, {}) == 1);
    CHECK(sample({-5, -2, -9}, {}) == 1);
    CHECK(sample({-kInf, -2, -kInf}, {}) == 1);
  }

  TEST_CASE("the most likely token of a large vocabulary, wherever it is") {
    constexpr size_t kVocab = 5003;
    Sampler sampler(kVocab);
    Random random(1);
    std::vector<float> logits(kVocab);
    for (size_t i = 0; i < kVocab; ++i) logits[i] = -float((i * 7919) % 977) - 1;
    for (const size_t best :
         {size_t{0}, size_t{31}, size_t{32}, size_t{2047}, size_t{2048}, size_t{4999}, kVocab - 1}) {
      std::vector<float> changed = logits;
      changed[best] = 3;
      CHECK(sampler.sample(changed.data(), {}, random, {}).value() == TokenId(best));
      for (const size_t later : {best + 1, best + 40, best + 2500})
        if (later < kVocab) changed[later] = 3;
      CHECK(sampler.sample(changed.data(), {}, random, {}).value() == TokenId(best));
    }
  }

  TEST_CASE("tiny temperatures are stable, impossible values are refused") {
    for (const float t : {1e-4f, 1e-8f, std::numeric_limits<float>::denorm_min()})
      for (uint64_t seed = 1; seed < 50; ++seed) CHECK(sample({1, 1.01f, 0.5f}, plain(t), seed) == 1);
    const auto code = [](auto change) {
      Sampling s = plain();
      change(s);
      return check_sampling(s, 10).code();
    };
    for (const float bad : {-1.f, kNan, kInf}) {
      CHECK(code([&](Sampling& s) { s.temperature = bad; }) == Code::argument);
      CHECK(code([&](Sampling& s) { s.top_p = bad; }) == Code::argument);
      CHECK(code([&](Sampling& s) { s.min_p = bad; }) == Code::argument);
      CHECK(code([&](Sampling& s) { s.repeat_penalty = bad; }) == Code::argument);
    }
    CHECK(code([](Sampling& s) { s.top_p = 1.5f; }) == Code::argument);
    CHECK(code([](Sampling& s) { s.repeat_penalty = 0; }) == Code::argument);
    CHECK(code([](Sampling& s) { s.presence_penalty = kNan; }) == Code::argument);
    CHECK(code([](Sampling& s) { s.frequency_penalty = kInf; }) == Code::argument);
    CHECK(code([](Sampling& s) { s.bias = {{10, 0.f}}; }) == Code::argument);
    CHECK(code([](Sampling& s) { s.bias = {{-1, 0.f}}; }) == Code::argument);
    CHECK(code([](Sampling& s) { s.bias = {{1, kNan}}; }) == Code::argument);
    CHECK(code([](Sampling& s) { s.bias = {{1, kInf}}; }) == Code::argument);
    CHECK(code([](Sampling& s) { s.bias = {{1, -kInf}}; }) == Code::ok);
  }

  TEST_CASE("top_k: 0 and more than there are is off, 1 is the best") {
    const std::vector<double> p = {0.1, 0.2, 0.4, 0.3};
    const auto seen = [&](uint32_t k) {
      Sampling s = plain();
      s.top_k = k;
      return draw(logits_of(p), s, 4000);
    };
    for (const uint32_t k : {0u, 4u, 5u}) CHECK(chi_square(seen(k), p) < 16.3);  // 3 degrees, 0.1 %
    CHECK(seen(1) == std::vector<int>{0, 0, 4000, 0});
    const auto two = seen(2);
    CHECK(two[0] + two[1] == 0);
    CHECK(chi_square(two, {0, 0, 4 / 7., 3 / 7.}) < 10.8);
  }

  TEST_CASE("top_k keeps the lower ids of a tie") {
    Sampling s = plain();
    s.top_k = 2;
    const auto counts = draw({1, 1, 1, 1}, s, 1000);
    CHECK(counts[0] > 400);
    CHECK(counts[1] > 400);
    CHECK(counts[2] + counts[3] == 0);
  }

  TEST_CASE("top_p: 0 and almost 0 keep the best, 1 keeps all") {
    const std::vector<double> p = {0.1, 0.2, 0.4, 0.3};
    Sampling s = plain();
    for (const float top_p : {0.f, 1e-9f, 0.39f}) {
      s.top_p = top_p;
      CHECK(draw(logits_of(p), s, 500) == std::vector<int>{0, 0, 500, 0});
    }
    s.top_p = 0.65f;  // 0.4 + 0.3
    CHECK(chi_square(draw(logits_of(p), s, 4000), {0, 0, 4 / 7., 3 / 7.}) < 10.8);
    CHECK(draw(logits_of(p), s, 4000)[1] == 0);

    s.top_p = 1;
    const std::vector<double> flat(1000, 0.001);
    const auto counts = draw(std::vector<float>(1000, 0.5f), s, 20000);
    for (const int count : counts) CHECK(count > 0);
    CHECK(chi_square(counts, flat) < 1144);  // 999 degrees, 0.1 %
  }

  TEST_CASE("min_p alone works") {
    Sampling s = plain();
    s.min_p = 0.5f;
    const auto counts = draw(logits_of({0.5, 0.3, 0.2}), s, 4000);
    CHECK(counts[2] == 0);
    CHECK(chi_square(counts, {5 / 8., 3 / 8., 0}) < 10.8);
  }

  TEST_CASE("the temperature comes after the filters") {
    // At temperature 1 the best has 0.5; a temperature of 10 before top_p would keep more.
    Sampling s = plain(10);
    s.top_p = 0.5f;
    CHECK(draw(logits_of({0.25, 0.5, 0.25}), s, 200) == std::vector<int>{0, 200, 0});
    const std::vector<double> p = {0.1, 0.2, 0.7};
    std::vector<double> softer;
    double total = 0;
    for (const double x : p) softer.push_back(std::sqrt(x)), total += softer.back();
    for (double& x : softer) x /= total;
    CHECK(chi_square(draw(logits_of(p), plain(2), 20000), softer) < 13.8);
  }

  TEST_CASE("penalties count once per distinct token, and push negative logits down") {
    Sampling s;
    s.repeat_penalty = 1.1f;
    s.repeat_window = 100;
    const std::vector<TokenId> eighty(80, 0);
    CHECK(sample({3.f, 2.7272f, 0}, s, 1, eighty) == 0);  // 3 / 1.1 = 2.72727
    CHECK(sample({3.f, 2.7274f, 0}, s, 1, eighty) == 1);
    CHECK(sample({-3.f, -3.2999f}, s, 1, eighty) == 1);  // -3 * 1.1 = -3.3
    CHECK(sample({-3.f, -3.3001f}, s, 1, eighty) == 0);
    s.repeat_penalty = 1;
    s.presence_penalty = 0.5f;
    CHECK(sample({1.f, 0.49f}, s, 1, eighty) == 0);
    CHECK(sample({1.f, 0.51f}, s, 1, eighty) == 1);
    s.presence_penalty = 0;
    s.frequency_penalty = 0.01f;
    CHECK(sample({1.f, 0.19f}, s, 1, eighty) == 0);  // 1 - 80 * 0.01
    CHECK(sample({1.f, 0.21f}, s, 1, eighty) == 1);
    s.frequency_penalty = 10;
    s.repeat_window = 2;
    CHECK(sample({1.f, 0.f, -50.f}, s, 1, {0, 1, 1}) == 0);  // token 0 is out of the window
    s.repeat_window = 0;
    CHECK(sample({1.f, 0.f}, s, 1, eighty) == 0);
  }

  TEST_CASE("bias: added first, -inf forbids") {
    Sampling s;
    s.bias = {{0, -kInf}, {2, 5.f}};
    CHECK(sample({9, 1, 0}, s) == 2);
    s.temperature = 1;
    CHECK(draw({9, 9, 0}, s, 300)[0] == 0);
  }

  TEST_CASE("NaN, +inf and nothing possible are numeric errors") {
    Sampler sampler(4);
    Random random(1);
    for (const Sampling& s : {Sampling(), plain()}) {
      for (const std::vector<float>& bad : {std::vector<float>{0, kNan, 1, 2},
                                            {kNan, kNan, kNan, kNan},
                                            {-kInf, -kInf, -kInf, -kInf},
                                            {0, kInf, kInf, 1},
                                            {kInf, 0, 0, 0}})
        CHECK(sampler.sample(bad.data(), s, random, {}).status().code() == Code::numeric);
      const std::vector<float> some = {-kInf, 2, -kInf, -kInf};
      CHECK(sampler.sample(some.data(), s, random, {}).value() == 1);
    }
    Sampling none = plain();
    none.bias = {{0, -kInf}, {1, -kInf}, {2, -kInf}, {3, -kInf}};
    CHECK(sampler.sample(std::vector<float>{1, 2, 3, 4}.data(), none, random, {}).status().code() ==
          Code::numeric);
  }

  TEST_CASE("a seed gives the same tokens, another one others, and the numbers are even") {
    const std::vector<float> flat(50, 0.f);
    CHECK(draw(flat, plain(), 100, 3) == draw(flat, plain(), 100, 3));
    CHECK(draw(flat, plain(), 100, 3) != draw(flat, plain(), 100, 4));
    CHECK(draw_seed() != draw_seed());
    CHECK(chi_square(draw(flat, plain(), 10000), std::vector<double>(50, 0.02)) < 85.4);  // 49 degrees, 0.1 %
    // Successive draws are independent: all pairs of 5 x 5 occur evenly.
    Sampler sampler(5);
    Random random(11);
    std::vector<int> pairs(25);
    const std::vector<float> five(5, 0.f);
    TokenId last = 0;
    for (int i = 0; i < 20000; ++i) {
      const TokenId token = sampler.sample(five.data(), plain(), random, {}).value();
      ++pairs[size_t(last * 5 + token)];
      last = token;
    }
    CHECK(chi_square(pairs, std::vector<double>(25, 0.04)) < 51.2);  // 24 degrees, 0.1 %
    Random a(1), b(2);
    CHECK(a.next() != b.next());
    for (int i = 0; i < 1000; ++i) {
      const double u = a.uniform();
      CHECK(u >= 0);
      CHECK(u < 1);
    }
  }
}
