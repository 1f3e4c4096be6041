// Models on a device whose memory the host may not touch: what a load takes there, and what it says if there is no room.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/guarded_backend.h"
#include "tests/support/loaded_model.h"

using namespace dsa;
using namespace dsa::test;

namespace {

ModelFiles open(const std::string& name) { return open_model(DSA_SOURCE_DIR "/tests/golden/" + name); }

}  // namespace

TEST_SUITE("model/placement") {
  TEST_CASE("GPU-04 replayed steps give the bits of steps that run as they are") {
    for (const char* name : kModelFolders) {
      INFO(name);
      const ModelFiles files = open(name);
      GuardedBackend plain_backend, replaying_backend;
      plain_backend.replays = false;
      LoadedModel plain(files, plain_backend), replayed(files, replaying_backend);
      check_decode_steps_are_equal(plain, replayed);
      CHECK(plain_backend.replayed == 0);
      CHECK(replaying_backend.replayed > 120);
    }
  }

  TEST_CASE("tokens that steps choose, launched before those in front of them are read, are the host's") {
    for (const char* name : kModelFolders) {
      INFO(name);
      const ModelFiles files = open(name);
      GuardedBackend backend;
      backend.sampling = true;
      LoadedModel model(files, backend);
      backend.storage().late = true;
      check_chosen_tokens(model, 30);
      CHECK(backend.storage().marks_ahead() == 29);
    }
  }

  TEST_CASE("steps of fused operators give the logits of steps of single ones") {
    for (const char* name : kModelFolders) {
      INFO(name);
      const ModelFiles files = open(name);
      GuardedBackend single_backend, fused_backend;
      fused_backend.fused = true;
      // On the fast route the CPU rounds what goes into single products, and not what goes into fused ones.
      const ModelOptions exact = {.route = Route::exact};
      LoadedModel single(files, single_backend, exact), fused(files, fused_backend, exact);
      const int vocab = single.decoder->vocab_size();
      const auto logits_of = [&](LoadedModel& model) {
        Random tokens(5);
        SequenceState a(*model.pool, 64), b(*model.pool, 64);
        std::vector<Values> logits = {model.step({&a}, {random_tokens(tokens, 20, vocab)}),
                                      model.step({&b}, {random_tokens(tokens, 3, vocab)})};
        for (int i = 0; i < 12; ++i)
          logits.push_back(
              model.step({&a, &b}, {random_tokens(tokens, 1, vocab), random_tokens(tokens, 1, vocab)}));
        return logits;
      };
      const std::vector<Values> expected = logits_of(single), found = logits_of(fused);
      for (size_t i = 0; i < expected.size(); ++i) CHECK(relative_error(found[i], expected[i]) < 2e-4);
    }
  }

  TEST_CASE("the size from headers alone is what a load takes of the device, and nothing is left behind") {
    for (const char* name : kModelFolders) {
      INFO(name);
      const ModelFiles files = open(name);
      const auto size = measure_model(*files.config, *files.checkpoint, {});
      REQUIRE_MESSAGE(size.is_ok(), size.status().message());
      GuardedBackend backend;
      {
        uint64_t last = 0, total = 0;
        const auto decoder =
            load_decoder(files.config, files.checkpoint, backend, {}, [&](uint64_t done, uint64_t all) {
              CHECK(done >= last);
              last = done, total = all;
              return true;
            });
        REQUIRE_MESSAGE(decoder.is_ok(), decoder.status().message());
        CHECK(last == total);
        CHECK(total == size.value().weights);
        CHECK(decoder.value()->device_bytes() == size.value().weights + size.value().step);
        // Every piece is rounded to whole pages here.
        CHECK(backend.storage().allocated_bytes() >= decoder.value()->device_bytes());
        CHECK(backend.storage().allocated_bytes() <= decoder.value()->device_bytes() + 8 * 4096);
        CHECK(decoder.value()->state_layout().state_bytes() == size.value().state);
        CHECK(decoder.value()->state_layout().page_bytes() == size.value().page);
      }
      CHECK(backend.storage().allocated_bytes() == 0);
    }
  }

  TEST_CASE(
      "experts go through the FP8 workspace, whatever its size, and come out as FP8 activations allow") {
    // In a random model rounding now and then tips a router or a selection, and then the row differs as a whole.
    constexpr int kPrompts = 5;
    for (const char* name : {"kimi_k31/model-mxfp4", "kimi_k3_vl/model-mxfp4", "deepseek_v32/model-mxfp4",
                             "glm5_next_vl/model-mxfp4", "gpt_oss/model-mxfp4"}) {
      INFO(name);
      const ModelFiles files = open(name);
      // wrong: each expert does another's work; direct: no step expands
      ModelOptions fused, expanded, one_expert, serial, wrong, direct;
      fused.route = Route::exact;
      expanded.fp8_rows = one_expert.fp8_rows = direct.fp8_rows = 1;
      direct.expand_rows = 1000;
      one_expert.fp8_workspace_bytes = 1;
      serial = one_expert;
      expanded.overlap = one_expert.overlap = true;
      Random random(3);
      std::vector<std::vector<int32_t>> prompts;
      for (int i = 0; i < kPrompts; ++i) prompts.push_back(random_tokens(random, 150, files.config->vocab));
      std::vector<std::vector<Values>> logits;
      wrong.route = Route::exact;
      wrong.rotate_experts = files.config->moe.biased ? 0 : 1;
      for (const ModelOptions* options : {&fused, &expanded, &one_expert, &serial, &wrong, &direct}) {
        GuardedBackend backend;
        backend.take_exact_linear();
        LoadedModel model(files, backend, *options);
        logits.emplace_back();
        for (const std::vector<int32_t>& prompt : prompts) {
          SequenceState state(*model.pool, 256);
          logits.back().push_back(model.step({&state}, {prompt}));
        }
        const auto moe_layers = std::count_if(files.config->layers.begin(), files.config->layers.end(),
                                              [](const LayerConfig& layer) { return layer.moe; });
        CHECK(model.decoder->fp8_layers() == (options->fp8_rows > 0 ? moe_layers : 0));
        // Behind the attention of the last layer a single row goes on, too few for FP8.
        const ExpertCounts counts = model.decoder->expert_counts();
        const auto rows_of_layer = uint64_t(kPrompts * 150 * files.config->moe.top_k);
        CHECK(counts.rows == uint64_t(moe_layers - 1) * rows_of_layer + rows_of_layer / 150);
        CHECK(counts.fp8_rows == (options->fp8_rows > 0 ? uint64_t(moe_layers - 1) * rows_of_layer : 0));
        const auto size = measure_model(*files.config, *files.checkpoint, *options);
        REQUIRE(size.is_ok());
        CHECK(model.decoder->device_bytes() ==
              size.value().weights + size.value().step + size.value().fp8_workspace);
      }
      std::vector<double> errors, wrong_errors;
      for (size_t i = 0; i < prompts.size(); ++i) {
        wrong_errors.push_back(relative_error(logits[4][i], logits[0][i]));
        CHECK(same_bits(logits[1][i], logits[2][i]));
        CHECK(same_bits(logits[1][i], logits[3][i]));
        CHECK(same_bits(logits[1][i], logits[5][i]));
        CHECK_FALSE(same_bits(logits[0][i], logits[1][i]));
        errors.push_back(relative_error(logits[1][i], logits[0][i]));
      }
      std::sort(errors.begin(), errors.end());
      std::sort(wrong_errors.begin(), wrong_errors.end());
      CHECK(errors[size_t(kPrompts) / 2] < 0.25);
      if (!files.config->moe.biased) CHECK(errors.back() < wrong_errors.front());
    }
  }

  TEST_CASE(
      "SES-01 the n-th allocation of a load fails, for each n: a typed error, and nothing is left behind") {
    const ModelFiles files = open("kimi_k31/model-mxfp4");
    GuardedBackend backend;
    int64_t n = 0;
    for (bool loaded = false; !loaded; ++n) {
      backend.storage().fail_after(n);
      const auto decoder = load_decoder(files.config, files.checkpoint, backend, {}, {});
      loaded = decoder.is_ok();
      if (loaded) break;
      CHECK(decoder.status().code() == Code::out_of_device_memory);
      CHECK(decoder.status().info().needed > 0);
      CHECK(backend.storage().allocated_bytes() == 0);
    }
    CHECK(n >= 4);
  }

  TEST_CASE("a load that is cancelled leaves nothing behind") {
    const ModelFiles files = open("kimi_k31/model-mxfp4");
    GuardedBackend backend;
    int calls = 0;
    const auto decoder = load_decoder(files.config, files.checkpoint, backend, {},
                                      [&](uint64_t, uint64_t) { return ++calls < 5; });
    REQUIRE_FALSE(decoder.is_ok());
    CHECK(decoder.status().code() == Code::cancelled);
    CHECK(calls == 5);
    CHECK(backend.storage().allocated_bytes() == 0);
  }
}
