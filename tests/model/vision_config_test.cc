// The vision part of config.json and preprocessor_config.json.
#include <doctest/doctest.h>

#include "io/json.h"
#include "model/model_config.h"
#include "support/temp_folder.h"

namespace dsa::test {
namespace {

const std::string kModel = DSA_SOURCE_DIR "/tests/golden/kimi_k3_vl/model-mxfp4";

Json read(const std::string& name) {
  auto json = read_json_file(kModel + "/" + name, {.python_numbers = true});
  REQUIRE(json.is_ok());
  return json.value();
}

Status parse(const Json& config, const Json& preprocessor) {
  const TempFolder folder;
  folder.write("preprocessor_config.json", preprocessor.dump());
  return parse_model_config(config, "config.json", folder.path()).status();
}

// With one value of vision_config, or of media_proc_cfg, replaced; null: taken out.
Status parse_vision(const std::string& key, const Json& value) {
  Json config = read("config.json");
  if (value.is_null())
    config["vision_config"].erase(key);
  else
    config["vision_config"][key] = value;
  return parse(config, read("preprocessor_config.json"));
}
Status parse_media(const std::string& key, const Json& value) {
  Json preprocessor = read("preprocessor_config.json");
  if (value.is_null())
    preprocessor["media_proc_cfg"].erase(key);
  else
    preprocessor["media_proc_cfg"][key] = value;
  return parse(read("config.json"), preprocessor);
}

bool names(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

}  // namespace

TEST_SUITE("model/vision_config") {
  TEST_CASE("the fixture's vision part") {
    const auto parsed = parse_model_config(read("config.json"), "config.json", kModel);
    REQUIRE_MESSAGE(parsed.is_ok(), parsed.status().message());
    const VisionConfig& v = parsed.value()->vision;
    CHECK(v.layers == 2);
    CHECK(v.hidden == 48);
    CHECK(v.heads == 2);
    CHECK(v.head_dim == 32);
    CHECK(v.mlp_dim == 96);
    CHECK(v.table_rows == 10);
    CHECK(v.table_columns == 12);
    CHECK(v.patch == 14);
    CHECK(v.merge == 2);
    CHECK(v.patch_limit == 40);
    CHECK(v.side_limit == 512);
    CHECK(v.norm_eps == 0x1p-23f);
    CHECK(v.projector_eps == 1e-5f);
    CHECK(v.mean[2] == 0.5f);
    CHECK(v.std[0] == 0.5f);
    // The fixture counts stored values, and A_log of four layers is stored as 128 where 3 heads use it.
    CHECK(parsed.value()->parameters == 915424 - 4 * 125);
  }

  TEST_CASE("K3's published numbers give its published parameters") {
    Json config = read("config.json");
    const auto without = [&] {
      Json text_only = config;
      text_only.erase("vision_config");
      return parse_model_config(text_only, "config.json").value()->parameters;
    };
    config["text_config"]["hidden_size"] = 7168;
    config["vision_config"].update(Json{{"vt_hidden_size", 1024},
                                        {"mm_hidden_size", 1024},
                                        {"vt_num_hidden_layers", 27},
                                        {"vt_num_attention_heads", 12},
                                        {"qkv_hidden_size", 1536},
                                        {"vt_intermediate_size", 4096},
                                        {"init_pos_emb_height", 64},
                                        {"init_pos_emb_width", 64},
                                        {"text_hidden_size", 7168}});
    const auto parsed = parse_model_config(config, "config.json", kModel);
    REQUIRE_MESSAGE(parsed.is_ok(), parsed.status().message());
    CHECK(double(parsed.value()->parameters - without()) == doctest::Approx(401.2e6 + 46.1e6).epsilon(2e-4));
  }

  TEST_CASE("a config without a vision part is a model that reads text; it needs no preprocessor") {
    Json config = read("config.json");
    config.erase("vision_config");
    const auto parsed = parse_model_config(config, "config.json", "/nowhere");
    REQUIRE(parsed.is_ok());
    CHECK(parsed.value()->vision.layers == 0);
  }

  TEST_CASE("LOAD-11 each key missing, or of another type, is an error that names it") {
    const Json config = read("config.json"), processor = read("preprocessor_config.json");
    for (const auto& [key, value] : config["vision_config"].items())
      for (const Json& other : {Json(), Json::array({"x", 1}), Json("x"), Json(-1)}) {
        const Status status = parse_vision(key, other);
        INFO(key, " ", other.dump(), ": ", status.message());
        const bool may_miss = key == "attn_bias" || key == "linear_bias" || key == "patch_embed_proj_bias";
        const bool unused = key == "init_pos_emb_time" || key == "video_attn_type";
        CHECK(status.is_ok() == (unused || (may_miss && other.is_null())));
        if (!status.is_ok()) CHECK(names(status, "'" + key + "'"));
      }
    for (const auto& [key, value] : processor["media_proc_cfg"].items())
      for (const Json& other : {Json(), Json::array({"x", 1}), Json("x"), Json(-1)}) {
        const Status status = parse_media(key, other);
        INFO(key, " ", other.dump(), ": ", status.message());
        CHECK(status.is_ok() == (key == "fixed_output_tokens" && other.is_null()));
        if (!status.is_ok()) {
          CHECK(names(status, "'" + key + "'"));
          CHECK(names(status, "preprocessor_config.json"));
        }
      }
  }

  TEST_CASE("a variant that we do not compute is refused by name") {
    for (const auto& [key, value] : {std::pair<const char*, Json>{"pos_emb_interpolation_mode", "bicubic"},
                                     {"norm_type", "layernorm"},
                                     {"activation_func", "gelu"},
                                     {"projector_hidden_act", "silu"},
                                     {"mm_projector_type", "mlp"},
                                     {"attn_bias", true},
                                     {"qkv_hidden_size", 65},
                                     {"qkv_hidden_size", 1024}}) {  // 512 a head
      const Status status = parse_vision(key, value);
      INFO(key, ": ", status.message());
      CHECK(status.code() == Code::unsupported);
      CHECK(names(status, key));
      if (value.is_string()) CHECK(names(status, value.get<std::string>()));
    }
    CHECK(parse_vision("merge_kernel_size", Json::array({2, 1})).code() == Code::unsupported);
    CHECK(parse_media("fixed_output_tokens", 64).code() == Code::unsupported);
    CHECK(parse_media("transparent_bg_fill_stage", "before_resize").code() == Code::unsupported);
  }

  TEST_CASE("numbers that contradict each other are refused with both") {
    CHECK(names(parse_vision("mm_hidden_size", 50), "is 50, expected 48"));
    CHECK(names(parse_vision("text_hidden_size", 128), "is 128, expected 64"));
    CHECK(names(parse_media("patch_size", 16), "is 16, expected 14 like config.json"));
    CHECK(names(parse_media("merge_kernel_size", 3), "is 3, expected 2 like config.json"));
    CHECK(names(parse_media("image_std", {0.5, 0.0, 0.5}), "'image_std'"));
    CHECK(parse_media("merge_kernel_size", Json::array({2, 2})).is_ok());
  }

  TEST_CASE("a preprocessor_config.json that is missing or no object is an error that names it") {
    const TempFolder folder;
    const Status missing = parse_model_config(read("config.json"), "config.json", folder.path()).status();
    CHECK(missing.code() == Code::not_found);
    CHECK(names(missing, "preprocessor_config.json"));
    for (const char* text : {"[]", "3", "{}", "{\"media_proc_cfg\": 3}", "{"}) {
      folder.write("preprocessor_config.json", text);
      const Status status = parse_model_config(read("config.json"), "config.json", folder.path()).status();
      INFO(text, ": ", status.message());
      CHECK_FALSE(status.is_ok());
      CHECK(names(status, "preprocessor_config.json"));
    }
  }
}

}  // namespace dsa::test
