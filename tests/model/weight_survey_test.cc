// A survey says of a folder what a load finds, and of a config what the published files hold.
#include "model/weight_survey.h"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>

#include "golden/fixture.h"
#include "support/temp_folder.h"

namespace dsa::test {
namespace {

const std::string kGolden = DSA_SOURCE_DIR "/tests/golden/";

std::shared_ptr<const ModelConfig> config_of(const std::string& path, const std::string& folder) {
  const auto json = read_json_file(path, {.python_numbers = true});
  REQUIRE_MESSAGE(json.is_ok(), json.status().message());
  const auto config = parse_model_config(json.value(), path, folder);
  REQUIRE_MESSAGE(config.is_ok(), config.status().message());
  return config.value();
}

WeightSurvey survey_of(const ModelConfig& config, const TensorListing& listing) {
  auto survey = WeightSurvey::of(config, listing);
  REQUIRE_MESSAGE(survey.is_ok(), survey.status().message());
  return std::move(survey).value();
}

WeightSurvey published(const std::string& name) {
  return survey_of(*config_of(DSA_SOURCE_DIR "/tests/model/published/" + name + ".json", ""), {});
}

TensorListing listing_of(const std::string& folder) {
  auto listing = Checkpoint::list(folder);
  REQUIRE_MESSAGE(listing.is_ok(), listing.status().message());
  return std::move(listing).value();
}

// The fixture's table of tensors as an index of one shard that is not there.
Json index_of(const std::string& folder) {
  Json weight_map = Json::object();
  listing_of(folder).headers->for_each([&](std::string_view name, const StoredTensor&) {
    weight_map[std::string(name)] = "model-00001-of-00001.safetensors";
  });
  return weight_map;
}

void write_index(const TempFolder& folder, const Json& weight_map) {
  folder.write("model.safetensors.index.json", Json{{"weight_map", weight_map}}.dump());
}

}  // namespace

TEST_SUITE("model/weight_survey") {
  TEST_CASE(
      "a complete folder: every tensor is found, none is left over, and the bytes are those of a load") {
    for (const char* name :
         {"kimi_k3/model-mxfp4", "kimi_k31/model-mxfp4", "kimi_k31/model", "kimi_k3_vl/model-mxfp4",
          "kimi_linear/model-mxfp4", "kimi_linear/model", "deepseek_v32/model-mxfp4",
          "glm_moe_dsa/model-mxfp4", "glm_moe_dsa/model", "gpt_oss/model-mxfp4", "gpt_oss/model",
          "glm5_next/model-mxfp4", "glm5_next_vl/model-mxfp4"}) {
      INFO(name);
      const std::string folder = kGolden + name;
      const auto config = config_of(folder + "/config.json", folder);
      const TensorListing listing = listing_of(folder);
      const WeightSurvey survey = survey_of(*config, listing);
      CHECK(survey.expected() == listing.headers->num_tensors());
      CHECK(survey.found() == survey.expected());
      CHECK(survey.missing() == 0);
      CHECK(survey.refused() == 0);
      CHECK(survey.unexpected().empty());
      CHECK(survey.unused().empty());
      CHECK(survey.bytes() == listing.headers->total_bytes());
      CHECK(survey.parameters() == config->parameters);
      CHECK(survey.active_parameters() == config->active_parameters);

      const auto model = load_model(folder, {}, 4, 1);
      REQUIRE(model.is_ok());
      CHECK(survey.converted_bytes() + step_memory_bytes(*config, {}) == model.value().decoder->host_bytes());
      CHECK(state_layout_of(*config, CacheFormat::f32).page_bytes() ==
            model.value().decoder->state_layout().page_bytes());
    }
  }

  TEST_CASE("an index alone: what it lacks is missing, what nobody asks for is unexpected") {
    const std::string folder = kGolden + "kimi_k31/model-mxfp4";
    const auto config = config_of(folder + "/config.json", folder);
    const TempFolder partial;
    Json names = index_of(folder);
    const uint64_t all = names.size();
    write_index(partial, names);
    const WeightSurvey whole = survey_of(*config, listing_of(partial.path()));
    CHECK(whole.found() == all);
    CHECK(whole.missing() == 0);
    CHECK(whole.unexpected().empty());

    const std::string expert = "language_model.model.layers.2.block_sparse_moe.experts.1.w2.weight_packed";
    names.erase(expert);
    names.erase("language_model.model.layers.3.self_attn.indexer.wk.weight");
    names["language_model.model.layers.1.self_attn.rotary_table"] = "model-00001-of-00001.safetensors";
    names["language_model.model.layers.5.self_attn.rotary_table"] = "model-00001-of-00001.safetensors";
    names["language_model.model.layers.8.eh_proj.weight"] = "model-00001-of-00001.safetensors";
    write_index(partial, names);
    const WeightSurvey survey = survey_of(*config, listing_of(partial.path()));
    CHECK(survey.missing() == 2);
    CHECK(survey.found() == all - 2);
    const auto pattern = survey.patterns().lower_bound(
        {"language_model.model.layers.*.block_sparse_moe.experts.*.w2.weight_packed", DType(0)});
    REQUIRE(pattern != survey.patterns().end());
    CHECK(pattern->second.missing == 1);
    CHECK(pattern->second.problem.find(expert) != std::string::npos);
    REQUIRE(survey.unexpected().size() == 1);
    const auto& [name, stranger] = *survey.unexpected().begin();
    CHECK(name == "language_model.model.layers.*.self_attn.rotary_table");
    CHECK(stranger.count == 2);
    REQUIRE(survey.unused().size() == 1);  // layer 8 of 8: a draft layer
    CHECK(survey.unused().begin()->second.count == 1);
  }

  TEST_CASE("shapes and formats that do not fit are refused in the words of a load") {
    const std::string folder = kGolden + "kimi_k31/model-mxfp4";
    const auto config = config_of(folder + "/config.json", folder);
    std::ifstream in(folder + "/model.safetensors", std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(in), {}};
    uint64_t length;
    memcpy(&length, file.data(), sizeof length);
    Json header = Json::parse(file.substr(8, length));
    const std::string data = file.substr(8 + length);
    const std::string shape = "language_model.model.layers.3.self_attn.q_b_proj.weight",
                      format = "language_model.model.norm.weight";
    header[shape]["shape"] = {96, 64};
    header[format]["dtype"] = "F16";
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    length = text.size();
    const TempFolder changed;
    changed.write("model.safetensors",
                  std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data);
    const TensorListing listing = listing_of(changed.path());
    const WeightSurvey survey = survey_of(*config, listing);
    CHECK(survey.refused() == 2);
    CHECK(survey.missing() == 0);
    std::string problems;
    for (const auto& [key, pattern] : survey.patterns()) problems += pattern.problem + "\n";
    CHECK(problems.find("'" + shape + "' is [96, 64], expected [192, 32]") != std::string::npos);
    CHECK(problems.find("'" + format + "' is F16, expected BF16 or F32") != std::string::npos);
  }

  TEST_CASE("a config alone: the published numbers of tensors and bytes") {
    // Kimi-K3 is published with 497,220 tensors and 1,560,860,324,864 bytes; 168 of them and 894.6e6 are its tower. Its
    // small F32 tensors are announced as BF16.
    const WeightSurvey k3 = published("kimi_k3");
    CHECK(k3.expected() == 497'220 - 168);
    CHECK(double(k3.bytes()) == doctest::Approx(1'560'860'324'864.0 - 894.6e6).epsilon(1e-4));
    CHECK(k3.from_config_alone());
    CHECK(k3.found() == 0);
    CHECK(k3.missing() == 0);

    CHECK(published("kimi_linear_48b").expected() == 20'493);
  }

  TEST_CASE("GLM-5.3-Flash's published index: 76,108 names, 1,760 of them of its draft layer") {
    Json names = Json::object();
    const auto add = [&](const std::string& prefix, std::initializer_list<const char*> list) {
      for (const char* name : list) names[prefix + name] = "model-00001-of-00062.safetensors";
    };
    const auto add_fp8 = [&](const std::string& prefix, std::initializer_list<const char*> list) {
      for (const char* name : list)
        for (const char* end : {".weight", ".weight_scale_inv"})
          names[prefix + name + end] = "model-00001-of-00062.safetensors";
    };
    const std::string text = "model.language_model.", visual = "model.visual.";
    add("", {"lm_head.weight"});
    add(text, {"embed_tokens.weight", "norm.weight"});
    for (int i = 0; i <= 45; ++i) {
      const std::string layer = concat(text, "layers.", i, ".");
      add(layer, {"input_layernorm.weight", "post_attention_layernorm.weight"});
      if (i < 45)
        add(layer,
            {"hc_attn_fn", "hc_ffn_fn", "hc_attn_base", "hc_ffn_base", "hc_attn_scale", "hc_ffn_scale"});
      else
        add(layer, {"enorm.weight", "hnorm.weight", "shared_head.norm.weight", "eh_proj.weight"});
      const std::string attention = layer + "self_attn.";
      if (i % 4 != 3 && i < 45) {
        add(attention,
            {"q_proj.weight", "k_proj.weight", "v_proj.weight", "q_conv1d.weight", "k_conv1d.weight",
             "v_conv1d.weight", "f_a_proj.weight", "f_b_proj.weight", "g_a_proj.weight", "g_b_proj.weight",
             "b_proj.weight", "A_log", "dt_bias", "o_norm.weight", "o_proj.weight"});
      } else {
        add_fp8(attention, {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"});
        add(attention, {"q_a_layernorm.weight", "kv_a_layernorm.weight", "kv_b_proj.weight"});
        add(attention + "indexer.",
            {"wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight",
             "index_kpool_compress_gate", "index_kpool_compress_ape"});
      }
      const std::string mlp = layer + "mlp.";
      if (i < 3) {
        add_fp8(mlp, {"gate_proj", "up_proj", "down_proj"});
        continue;
      }
      add(mlp, {"gate.weight", "gate.e_score_correction_bias"});
      add_fp8(mlp + "shared_experts.", {"gate_proj", "up_proj", "down_proj"});
      for (int e = 0; e < 288; ++e)
        add_fp8(concat(mlp, "experts.", e, "."), {"gate_proj", "up_proj", "down_proj"});
    }
    add(visual, {"patch_embed.proj.weight", "patch_embed.proj.bias", "post_layernorm.weight",
                 "downsample.weight", "downsample.bias", "merger.proj.weight",
                 "merger.post_projection_norm.weight", "merger.post_projection_norm.bias",
                 "merger.gate_proj.weight", "merger.up_proj.weight", "merger.down_proj.weight"});
    for (int b = 0; b < 24; ++b)
      add(concat(visual, "blocks.", b, "."),
          {"norm1.weight", "norm2.weight", "attn.qkv.weight", "attn.qkv.bias", "attn.q_norm.weight",
           "attn.k_norm.weight", "attn.proj.weight", "attn.proj.bias", "mlp.gate_proj.weight",
           "mlp.gate_proj.bias", "mlp.up_proj.weight", "mlp.up_proj.bias", "mlp.down_proj.weight",
           "mlp.down_proj.bias"});
    REQUIRE(names.size() == 76'108);

    const TempFolder folder;
    write_index(folder, names);
    const auto config = config_of(DSA_SOURCE_DIR "/tests/model/published/glm_53_flash.json", "");
    const WeightSurvey survey = survey_of(*config, listing_of(folder.path()));
    CHECK(survey.found() == 76'108 - 1'760);
    CHECK(survey.expected() == survey.found());
    CHECK(survey.unexpected().empty());
    uint64_t unused = 0;
    for (const auto& [name, pattern] : survey.unused()) unused += pattern.count;
    CHECK(unused == 1'760);
    CHECK(survey.parameters() == config->parameters);
  }

  TEST_CASE("a config that asks for more than any file holds is refused") {
    const auto json = read_json_file(DSA_SOURCE_DIR "/tests/model/published/glm_5.json");
    Json absurd = json.value();
    absurd["hidden_size"] = 1 << 24;
    absurd["q_lora_rank"] = 1 << 24;
    absurd["num_attention_heads"] = absurd["num_key_value_heads"] = 1 << 20;
    const auto config = parse_model_config(absurd, "config.json", "");
    CHECK(config.status().code() == Code::limit);
    CHECK(config.status().message().find("q_a_proj") != std::string::npos);
  }
}

}  // namespace dsa::test
