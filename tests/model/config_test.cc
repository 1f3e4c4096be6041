#include <doctest/doctest.h>

#include "io/json.h"
#include "model/model_config.h"

namespace dsa::test {
namespace {

const std::string kPath = DSA_SOURCE_DIR "/tests/golden/kimi_k31/model-mxfp4/config.json";

Json config_json() {
  auto json = read_json_file(kPath, {.python_numbers = true});
  REQUIRE(json.is_ok());
  return json.value();
}

Status parse_status(const Json& json) { return parse_model_config(json, "config.json").status(); }

}  // namespace

TEST_SUITE("model/config") {
  TEST_CASE("K3.1's config as building blocks") {
    const auto parsed = parse_model_config(config_json(), "config.json");
    REQUIRE(parsed.is_ok());
    const ModelConfig& c = *parsed.value();
    CHECK(c.family == "kimi_k3");
    CHECK(c.layers.size() == 8);
    CHECK(c.layers[3].attention == AttentionKind::latent);  // the lists are 1-based
    CHECK(c.layers[7].attention == AttentionKind::latent);
    CHECK(c.layers[2].attention == AttentionKind::kda);
    CHECK(c.layers[3].indexer == IndexerKind::full);
    CHECK_FALSE(c.layers[0].moe);
    CHECK(c.layers[1].moe);
    CHECK(c.indexer.top_k == 32);
    CHECK(c.eos_tokens == std::vector<int32_t>{370});
    CHECK(c.parameters > 900000);
  }

  TEST_CASE("LOAD-11 each key missing, or of another type, is an error that names it") {
    const Json original = config_json();
    for (const auto& [key, value] : original["text_config"].items()) {
      Json without = original;
      without["text_config"].erase(key);
      const Status status = parse_status(without);
      INFO(key);
      if (!status.is_ok()) CHECK(status.message().find(key) != std::string::npos);
      Json other = original;
      other["text_config"][key] = Json::array({"x", 1});
      const Status other_status = parse_status(other);
      if (!other_status.is_ok()) CHECK(other_status.message().find(key) != std::string::npos);
    }
    for (const char* key :
         {"hidden_size", "vocab_size", "num_hidden_layers", "linear_attn_config", "rms_norm_eps",
          "num_experts", "q_lora_rank", "attn_res_block_size", "latent_moe_use_norm", "hidden_act"}) {
      Json without = original;
      without["text_config"].erase(key);
      INFO(key);
      CHECK_FALSE(parse_status(without).is_ok());
    }
  }

  TEST_CASE("MOE-08 an activation that we do not know is refused by name") {
    Json json = config_json();
    json["text_config"]["hidden_act"] = "gelu_new";
    CHECK(parse_status(json).code() == Code::unsupported);
    CHECK(parse_status(json).message().find("gelu_new") != std::string::npos);
  }

  TEST_CASE("LIN-02 a gate bound outside what the chunked form can compute is refused") {
    for (double bound : {-20.0, 0.0, 1.0}) {
      Json json = config_json();
      json["text_config"]["linear_attn_config"]["gate_lower_bound"] = bound;
      CHECK(parse_status(json).code() == Code::unsupported);
    }
  }

  TEST_CASE("an unknown architecture is refused with the known ones") {
    Json json = config_json();
    json["architectures"] = Json::array({"NobodyForCausalLM"});
    const Status status = parse_status(json);
    CHECK(status.code() == Code::unsupported);
    CHECK(status.message().find("NobodyForCausalLM") != std::string::npos);
    CHECK(status.message().find("KimiK31ForConditionalGeneration") != std::string::npos);
  }

  TEST_CASE("layer lists that overlap or leave a gap are refused") {
    Json json = config_json();
    json["text_config"]["linear_attn_config"]["kda_layers"] = {1, 2, 3, 4, 5, 6};
    CHECK(parse_status(json).code() == Code::model);
    json["text_config"]["linear_attn_config"]["kda_layers"] = {1, 2, 3, 5};
    CHECK(parse_status(json).code() == Code::model);
  }
}

}  // namespace dsa::test
