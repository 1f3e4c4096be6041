// Each family: its published config in building blocks, and 500 damaged configs and tensor tables.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <set>

#include "golden/fixture.h"
#include "support/temp_folder.h"
#include "support/values.h"

namespace dsa::test {
namespace {

const std::string kGolden = DSA_SOURCE_DIR "/tests/golden/";

Json read_json(const std::string& path) {
  auto json = read_json_file(path, {.python_numbers = true});
  REQUIRE_MESSAGE(json.is_ok(), json.status().message());
  return std::move(json).value();
}

Json published(const std::string& name) {
  return read_json(DSA_SOURCE_DIR "/tests/model/published/" + name + ".json");
}

std::shared_ptr<const ModelConfig> parsed(const Json& json) {
  auto config = parse_model_config(json, "config.json");
  REQUIRE_MESSAGE(config.is_ok(), config.status().message());
  return config.value();
}

Status parse_status(const Json& json) { return parse_model_config(json, "config.json").status(); }

// Parses the config and loads the weights of `folder` as far as checking goes.
Status load_status(const Json& json, const std::string& folder) {
  static const std::unique_ptr<Backend>& backend =
      *new std::unique_ptr<Backend>(create_cpu_backend(1).value());
  auto config = parse_model_config(json, "config.json");
  if (!config.is_ok()) return config.status();
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint.is_ok()) return checkpoint.status();
  const ModelOptions options{.max_step_tokens = 1, .max_step_sequences = 1};
  return load_decoder(config.value(), checkpoint.value(), *backend, options, {}).status();
}

bool is_typed(const Status& status) {
  return status.code() == Code::model || status.code() == Code::unsupported || status.code() == Code::json ||
         status.code() == Code::corrupt || status.code() == Code::format || status.code() == Code::limit;
}

// Keys that no forward pass reads, whatever they say. Kimi-Linear has a rope_theta and turns nothing.
bool is_inert(const std::string& family, const std::string& key) {
  static const std::set<std::string> all = {
      "architectures", "attention_dropout", "bos_token_id",    "dtype",
      "head_dim",      "initializer_range", "model_type",      "num_nextn_predict_layers",
      "pad_token_id",  "use_cache",         "use_grouped_topk"};
  return all.count(key) || (family == "kimi_linear" && key == "rope_theta");
}

// Booleans that may say either.
bool is_free(const std::string& key) {
  return key == "norm_topk_prob" || key == "moe_renormalize" || key == "indexer_rope_interleave" ||
         key == "index_kpool_always_select_tail" || key == "truncate";
}

// Numbers that need not be whole.
bool is_real(const std::string& key) {
  for (const char* real : {"beta_fast", "beta_slow", "factor", "mscale", "mscale_all_dim", "rope_theta"})
    if (key == real) return true;
  return false;
}

// Where the keys of the decoder stand: in the config itself, or in its text_config.
Json::json_pointer decoder_keys(const Json& config) {
  return config.contains("text_config") ? Json::json_pointer("/text_config") : Json::json_pointer();
}

// Every key below `at`, objects inside it included; `top`: the keys of the decoder itself.
void for_each_key(const std::string& family, const Json& object, const Json::json_pointer& at, bool top,
                  const std::function<void(const Json::json_pointer&, const std::string&, const Json&)>& f) {
  for (const auto& [key, value] : object.items()) {
    if (key == "quantization_config" || (top && is_inert(family, key))) continue;
    f(at / key, key, value);
    if (value.is_object()) for_each_key(family, value, at / key, false, f);
  }
}

// Values that no key takes that has `value` in a sound config.
std::vector<Json> damaged(const std::string& family, const std::string& key, const Json& value) {
  std::vector<Json> all = {Json::array({"x", -1}), Json{{"x", 1}}, -1e30, "x!"};
  if (key != "gate_lower_bound") all.push_back(-1);
  if (value.is_boolean()) all.insert(all.end(), {2, 0.5});
  if (value.is_boolean() && !is_free(key)) all.push_back(!value.get<bool>());
  if (value.is_number() && is_real(key))
    all.insert(all.end(), {true, "7", 1e300, NAN});
  else if (value.is_number_integer() && key == "eos_token_id")
    all.insert(all.end(), {0.5, 1 << 30, true, "7"});
  else if (value.is_number_integer())
    all.insert(all.end(), {0.5, int64_t(1) << 40, true, "7", 1e300});
  else if (value.is_number_float())
    all.insert(all.end(), {true, "7", NAN});
  if (value.is_string()) all.insert(all.end(), {"", value.get<std::string>() + "_", true, 1.5});
  if (value.is_array()) {
    Json longer = value, shorter = value, doubled = value;
    longer.push_back("y");
    shorter.erase(shorter.size() - 1);
    doubled[0] = value[value.size() - 1];
    all.insert(all.end(), {longer, true});
    if (key != "eos_token_id") all.insert(all.end(), {shorter, 3});
    if (key != "eos_token_id" && doubled != value && !(family == "gpt_oss" && key == "layer_types"))
      all.push_back(doubled);
  }
  if (value.is_object()) all.insert(all.end(), {Json::object(), Json::array(), true});
  return all;
}

// A key may be refused under its own name, or because a tensor has another shape than it asks for.
bool names(const Status& status, const std::string& key) {
  const std::string& text = status.message();
  return text.find("'" + key + "'") != std::string::npos || text.find(key + ":") != std::string::npos ||
         text.find("'model.") != std::string::npos || text.find("'language_model.") != std::string::npos ||
         text.find("'lm_head") != std::string::npos;
}

// The keys of one part of the config, the decoder's or the tower's.
int damage_config(const std::string& family, const std::string& folder, const Json::json_pointer& part) {
  const Json original = read_json(folder + "/config.json");
  int mutations = 0;
  for_each_key(family, original[part], part, true,
               [&](const Json::json_pointer& at, const std::string& key, const Json& value) {
                 if (value.is_null()) return;
                 for (const Json& bad : damaged(family, key, value)) {
                   Json changed = original;
                   changed[at] = bad;
                   const Status status = load_status(changed, folder);
                   INFO(at.to_string(), " = ", bad.dump(), ": ", status.message());
                   CHECK_FALSE(status.is_ok());
                   CHECK(is_typed(status));
                   CHECK(names(status, key));
                   ++mutations;
                 }
               });
  for (const char* key : {"hidden_size",
                          "vocab_size",
                          "num_hidden_layers",
                          "rms_norm_eps",
                          "hidden_act",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "kv_lora_rank",
                          "qk_nope_head_dim",
                          "qk_rope_head_dim",
                          "v_head_dim",
                          "moe_intermediate_size",
                          "intermediate_size",
                          "routed_scaling_factor",
                          "num_local_experts",
                          "num_experts_per_tok",
                          "sliding_window",
                          "depth",
                          "num_heads",
                          "patch_size",
                          "projection_intermediate_size",
                          "out_hidden_size"}) {
    Json changed = original;
    if (changed[part].erase(key) == 0) continue;  // this part has no such key
    const Status status = load_status(changed, folder);
    INFO(key, ": ", status.message());
    CHECK(is_typed(status));
    CHECK(names(status, key));
    ++mutations;
  }
  for (const char* key :
       {"alibi_slopes", "attention_temperature", "logit_scale", "qk_norm_kind", "residual_multiplier"}) {
    Json changed = original;
    changed[part][key] = 3;
    CHECK(load_status(changed, folder).code() == Code::unsupported);
    CHECK(load_status(changed, folder).message().find(key) != std::string::npos);
    changed[part][key] = false;  // says off
    CHECK(load_status(changed, folder).is_ok());
    ++mutations;
  }
  return mutations;
}

// The tensors of the fixture with one entry of the table changed.
int damage_tensors(const std::string& folder, int wanted) {
  std::ifstream in(folder + "/model.safetensors", std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  uint64_t length;
  memcpy(&length, file.data(), sizeof length);
  const Json original = Json::parse(file.substr(8, length)), config = read_json(folder + "/config.json");
  std::vector<std::string> tensors;
  for (const auto& [name, entry] : original.items())
    if (name != "__metadata__") tensors.push_back(name);

  const TempFolder copy;
  Random random(1);
  for (int i = 0; i < wanted; ++i) {
    Json header = original;
    const std::string name = tensors[size_t(random.integer(0, int64_t(tensors.size()) - 1))];
    Json& entry = header[name];
    const int kind = i % 6;
    if (kind == 0) header.erase(name);
    if (kind == 1) header[name + "_"] = entry, header.erase(name);
    if (kind == 2) entry["shape"].push_back(2), entry["shape"][0] = entry["shape"][0].get<int64_t>() / 2;
    if (kind == 3) entry["shape"][0] = entry["shape"][0].get<int64_t>() + 1;
    if (kind == 4) entry["dtype"] = entry["dtype"] == "BF16" ? "F16" : entry["dtype"] == "F32" ? "I32" : "I8";
    if (kind == 5) entry["data_offsets"][1] = entry["data_offsets"][1].get<int64_t>() + 64;
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    uint64_t new_length = text.size();
    copy.write("model.safetensors",
               std::string(reinterpret_cast<const char*>(&new_length), sizeof new_length) + text +
                   file.substr(8 + length));
    const Status status = load_status(config, copy.path());
    INFO(name, " changed in way ", kind, ": ", status.message());
    CHECK_FALSE(status.is_ok());
    CHECK(is_typed(status));
    CHECK(status.message().find(name) != std::string::npos);
  }
  return wanted;
}

void damage(const std::string& family) {
  const std::string folder = kGolden + family + "/model-mxfp4";
  REQUIRE(load_status(read_json(folder + "/config.json"), folder).is_ok());
  const int mutations = damage_config(family, folder, decoder_keys(read_json(folder + "/config.json")));
  CHECK(mutations > 150);
  CHECK(mutations + damage_tensors(folder, 500 - mutations) == 500);
}

}  // namespace

TEST_SUITE("model/families") {
  TEST_CASE("kimi_linear: 500 damaged configs and tensor tables are refused by name") {
    damage("kimi_linear");
  }
  TEST_CASE("deepseek_v32: 500 damaged configs and tensor tables are refused by name") {
    damage("deepseek_v32");
  }
  TEST_CASE("glm_moe_dsa: 500 damaged configs and tensor tables are refused by name") {
    damage("glm_moe_dsa");
  }

  TEST_CASE("kimi_k3: 500 damaged configs and tensor tables of K3.1 are refused by name") {
    damage("kimi_k31");
  }

  TEST_CASE("gpt_oss: 500 damaged configs and tensor tables are refused by name") { damage("gpt_oss"); }
  TEST_CASE("glm5_next: 500 damaged configs and tensor tables are refused by name") { damage("glm5_next"); }
  TEST_CASE("glm5_next: damaged configs and tensor tables of its tower are refused by name") {
    const std::string folder = kGolden + "glm5_next_vl/model-mxfp4";
    CHECK(damage_config("glm5_next", folder, Json::json_pointer("/vision_config")) > 100);
    CHECK(damage_tensors(folder, 200) == 200);
  }

  TEST_CASE("published configs give the published numbers of parameters, within 0.1 %") {
    const auto total = [](const char* name) { return double(parsed(published(name))->parameters); };
    CHECK(total("kimi_k3") == doctest::Approx(2.7795e12).epsilon(1e-3));
    CHECK(double(parsed(published("kimi_k3"))->active_parameters) == doctest::Approx(104.2e9).epsilon(1e-3));
    // K3.1 adds an indexer of 32 heads of 128 to each of 24 layers.
    CHECK(total("kimi_k31_pro") - total("kimi_k3") == 24 * (4096.0 * 1536 + 128 * (7168 + 2) + 32 * 7168));
    CHECK(total("kimi_linear_48b") ==
          doctest::Approx(91.5 * (1 << 30) / 2).epsilon(1e-3));  // 91.5 GiB of BF16
    // DeepSeek-V3 has 671e9 without its draft layer; V3.2 adds an indexer of 64 heads of 128 to each of 61 layers.
    CHECK(total("deepseek_v32") - 61 * (8192.0 * 1536 + 128 * (7168 + 2) + 64 * 7168) ==
          doctest::Approx(671e9).epsilon(1e-3));
    CHECK(total("gpt_oss_20b") == doctest::Approx(20.91e9).epsilon(1e-3));
    CHECK(double(parsed(published("gpt_oss_20b"))->active_parameters) ==
          doctest::Approx(3.61e9).epsilon(2e-3));
    CHECK(total("gpt_oss_120b") == doctest::Approx(116.83e9).epsilon(1e-3));
    CHECK(double(parsed(published("gpt_oss_120b"))->active_parameters) ==
          doctest::Approx(5.13e9).epsilon(2e-3));
    // The table of tensors that gives the published 328,326,771,576 bytes, without its scales and its draft layer.
    CHECK(parsed(published("glm_53_flash"))->parameters == 313890438974u);
    CHECK(total("glm_5") == doctest::Approx(744e9).epsilon(1e-3));
    CHECK(total("glm_5") - total("glm_52") == 57 * (4096.0 * 2048 + 128 * (6144 + 2) + 32 * 6144));
  }

  TEST_CASE("Kimi-Linear's config as building blocks") {
    const auto c = parsed(published("kimi_linear_48b"));
    CHECK(c->residual == ResidualKind::plain);
    CHECK(c->kda.gate_lower_bound == 0);
    CHECK(c->kda.low_rank_output);
    CHECK(c->latent.q_rank == 0);
    CHECK(c->latent.rope == RopeKind::none);  // rope_theta is there and unused
    CHECK_FALSE(c->latent.output_gate);
    CHECK(c->mlp.activation.kind == ActivationKind::swiglu);
    CHECK(c->expert_width() == 2304);
    int latent = 0;
    for (const LayerConfig& layer : c->layers) latent += layer.attention == AttentionKind::latent;
    CHECK(latent == 7);
    CHECK(c->layers[26].attention == AttentionKind::latent);
  }

  TEST_CASE("gpt-oss's config as building blocks: YaRN without truncation on every lane, windows in turns") {
    const auto c = parsed(published("gpt_oss_20b"));
    CHECK(c->rope.amplitude == doctest::Approx(1.3465736));
    CHECK(c->grouped.scale == 0.125f);
    CHECK(c->rope.frequencies.size() == 32);
    CHECK(c->rope.frequencies[10] == doctest::Approx(1.933500e-2).epsilon(1e-6));
    CHECK(c->rope.frequencies[16] == doctest::Approx(4.564839e-4).epsilon(1e-6));
    CHECK(c->rope.frequencies[31] == doctest::Approx(3.023511e-7).epsilon(1e-6));
    CHECK(c->grouped.window == 128);
    for (size_t l = 0; l < 24; ++l) CHECK(c->layers[l].window == (l % 2 == 0));
    CHECK(c->moe.biased);
    CHECK(c->moe.limit == 7);
  }

  TEST_CASE("GLM-5.3-Flash's config as building blocks: pools, streams, a bounded gate, a tower") {
    const auto c = parsed(published("glm_53_flash"));
    CHECK(c->residual == ResidualKind::hyper);
    CHECK(c->hyper.streams == 4);
    CHECK(c->hyper.iterations == 20);
    CHECK(c->indexer.group == 4);
    CHECK(c->indexer.slots() == 2051);
    CHECK(c->indexer.selects_all(2051));
    CHECK_FALSE(c->indexer.selects_all(2052));
    CHECK(c->kda.gate_lower_bound == -5);
    CHECK(c->kda.low_rank_output);
    CHECK(c->latent.scale == 0.0625f);
    CHECK(c->latent.norm_eps == 1e-5f);
    CHECK(c->mlp.activation.limit == 10);
    int full = 0;
    for (const LayerConfig& layer : c->layers) full += layer.indexer == IndexerKind::full;
    CHECK(full == 11);
    CHECK(c->vision.area_min == 12544);
    CHECK(c->vision.area_max == 6272000);
    // The canvas, the content and the tokens of pictures: height, width of each.
    const int pictures[][7] = {{100, 130, 112, 140, 100, 130, 20},
                               {40, 60, 112, 140, 93, 140, 20},
                               {70, 33, 168, 84, 168, 79, 18},
                               {28, 28, 112, 112, 112, 112, 16},
                               {1, 1, 112, 112, 112, 112, 16},
                               {336, 448, 336, 448, 336, 448, 192},
                               {1080, 1920, 1092, 1932, 1080, 1920, 2691},
                               {3000, 4000, 2156, 2884, 2156, 2874, 7931},
                               {10, 2000, 28, 2016, 10, 2000, 72},
                               {6000, 6000, 2492, 2492, 2492, 2492, 7921}};
    for (const auto& p : pictures) {
      INFO(p[0], " x ", p[1]);
      const PictureShape shape = picture_shape(c->vision, p[1], p[0]);
      CHECK(shape.rows * 14 == p[2]);
      CHECK(shape.columns * 14 == p[3]);
      CHECK(shape.height == p[4]);
      CHECK(shape.width == p[5]);
      CHECK(shape.tokens == p[6]);
    }
  }

  TEST_CASE(
      "DeepSeek-V3.2's config as building blocks: YaRN on scores and frequencies, index lanes in halves") {
    const auto c = parsed(published("deepseek_v32"));
    CHECK(c->latent.scale == doctest::Approx(0.13523378).epsilon(1e-6));
    CHECK(c->rope.amplitude == 1);
    CHECK(c->rope.frequencies[16] == doctest::Approx(5.5e-3).epsilon(1e-5));
    CHECK(c->latent.rope == RopeKind::pairs);
    CHECK(c->indexer.rope == RopeKind::halves);
    CHECK(c->indexer.fp8_keys);  // as the FP8 checkpoint's own code
    CHECK(c->moe.groups == 8);
    CHECK(c->moe.top_groups == 4);
  }

  TEST_CASE("GLM-5.2's config as building blocks: layers share selections, by each of the three keys") {
    Json json = published("glm_52");
    const auto c = parsed(json);
    CHECK(c->latent.scale == 0.0625f);
    CHECK(c->latent.rope == RopeKind::pairs);
    CHECK(c->indexer.rope == RopeKind::pairs);
    std::vector<IndexerKind> kinds;
    int full = 0;
    for (const LayerConfig& layer : c->layers) kinds.push_back(layer.indexer);
    for (const IndexerKind kind : kinds) full += kind == IndexerKind::full;
    CHECK(full == 21);
    CHECK(kinds[74] == IndexerKind::full);
    CHECK(kinds[3] == IndexerKind::shared);

    const auto same = [&](const Json& other) {
      const auto config = parsed(other);
      for (size_t l = 0; l < kinds.size(); ++l)
        if (config->layers[l].indexer != kinds[l]) return false;
      return true;
    };
    std::string pattern;
    for (const IndexerKind kind : kinds) pattern += kind == IndexerKind::full ? 'F' : 'S';
    json.erase("indexer_types");
    CHECK(same(json));  // index_topk_freq 4, index_skip_topk_offset 3
    json.erase("index_topk_freq");
    CHECK_FALSE(same(json));
    json["index_topk_pattern"] = pattern;
    CHECK(same(json));
    json["index_topk_pattern"] = "S" + pattern.substr(1);
    CHECK(parse_status(json).message().find("index_topk_pattern") != std::string::npos);
  }

  TEST_CASE("a rope_theta that is nowhere is an error, not a default") {
    Json json = published("glm_5");
    json.erase("rope_parameters");
    CHECK(parse_status(json).message().find("rope_theta") != std::string::npos);
  }

  TEST_CASE("DeepSeek-V4 is refused with the blocks that are missing") {
    const Status status =
        parse_status({{"architectures", {"DeepseekV4ForCausalLM"}}, {"model_type", "deepseek_v4"}});
    CHECK(status.code() == Code::unsupported);
    for (const char* block : {"sliding window", "compressors", "turned back", "grouped low-rank",
                              "sqrt(softplus)", "hyper-connections"}) {
      INFO(block);
      CHECK(status.message().find(block) != std::string::npos);
    }
  }

  TEST_CASE("the code in docs/new-family.md is that of kimi_linear.cc") {
    const auto lines_of = [](const std::string& path) {
      std::ifstream in(DSA_SOURCE_DIR "/" + path);
      std::vector<std::string> lines;
      for (std::string line; std::getline(in, line);) lines.push_back(line);
      return lines;
    };
    const auto source = lines_of("src/model/families/kimi_linear.cc");
    bool inside = false;
    int compared = 0;
    for (const std::string& line : lines_of("docs/new-family.md")) {
      if (line.starts_with("```")) {
        inside = !inside;
      } else if (inside) {
        INFO(line);
        CHECK(std::find(source.begin(), source.end(), line) != source.end());
        ++compared;
      }
    }
    CHECK(compared >= 8);
  }

  TEST_CASE("a family takes at most 400 lines of its own") {
    for (const char* family : {"kimi_k3", "kimi_linear", "deepseek_v32", "glm_moe_dsa", "deepseek_v4"}) {
      std::ifstream in(DSA_SOURCE_DIR "/src/model/families/" + std::string(family) + ".cc");
      int lines = 0;
      for (std::string line; std::getline(in, line);) ++lines;
      INFO(family);
      CHECK(lines > 10);
      CHECK(lines <= 400);
    }
  }
}

}  // namespace dsa::test
