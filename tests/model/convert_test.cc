// Fixtures with other experts, written again with MXFP4 experts.
#include "model/convert.h"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "golden/fixture.h"
#include "support/temp_folder.h"
#include "support/tensor_file.h"
#include "support/values.h"

namespace dsa::test {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = DSA_SOURCE_DIR "/tests/golden/";
constexpr int kLastRows = 16;  // positions whose logits are compared

std::string read_all(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Every file below a folder, by name.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[entry.path().lexically_relative(folder)] = read_all(entry.path());
  return files;
}

bool is_stacked(const std::string& name) {
  return name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj");
}
bool is_expert(const std::string& name) {
  return (name.find(".experts.") != std::string::npos && name.ends_with(".weight")) || is_stacked(name);
}

Values floats_of(const StoredTensor& tensor) {
  Values values(tensor.bytes / dtype_bytes(tensor.dtype));
  REQUIRE(tensor.dtype == DType::bf16);
  for (size_t i = 0; i < values.size(); ++i) {
    bf16 value;
    memcpy(&value, tensor.data + i * sizeof value, sizeof value);
    values[i] = to_f32(value);
  }
  return values;
}

// Noise of a size relative to the root mean square of `values`.
void add_noise(Values& values, double relative, Random& random) {
  double squares = 0;
  for (const float v : values) squares += double(v) * v;
  const float size = float(relative * std::sqrt(squares / double(values.size())));
  for (float& v : values) v += size * random.normal();
}

enum class Format { bf16, fp8 };

// A fixture whose experts are what no MXFP4 value is: its own, with noise half their size, in BF16 or FP8, in two shards.
// `noise` on top of that; `values` takes the values that were written.
void write_source(const TempFolder& folder, const std::string& fixture, Format format, double noise = 0,
                  uint64_t seed = 0) {
  const std::string model = kGolden + fixture + "/model";
  const auto source = Checkpoint::open(model).value();
  Random own(7), other(seed);
  TensorFile shards[2];
  Json weight_map = Json::object();
  int tensors = 0;
  source->for_each([&](const std::string& name, const StoredTensor& tensor) {
    const int shard = ++tensors % 2;
    const auto add = [&](const std::string& n, const std::string& dtype, const std::vector<int64_t>& shape,
                         const void* data, size_t bytes) {
      shards[shard].add(n, dtype, shape, data, bytes);
      weight_map[n] = concat("model-", shard, ".safetensors");
    };
    if (!is_expert(name)) return add(name, dtype_name(tensor.dtype), tensor.shape, tensor.data, tensor.bytes);
    Values values = floats_of(tensor);
    add_noise(values, 0.5, own);
    if (noise > 0) add_noise(values, noise, other);
    if (format == Format::bf16) {
      std::vector<bf16> rounded(values.size());
      for (size_t i = 0; i < values.size(); ++i) rounded[i] = to_bf16(values[i]);
      return add(name, "BF16", tensor.shape, rounded.data(), rounded.size() * sizeof(bf16));
    }
    float scale = 0;  // one tile: the experts of the fixtures are small
    REQUIRE(std::max(tensor.shape[0], tensor.shape[1]) <= kFp8Block);
    for (const float v : values) scale = std::max(scale, std::abs(v) / 448);
    std::vector<uint8_t> codes(values.size());
    for (size_t i = 0; i < values.size(); ++i) codes[i] = f32_to_e4m3(values[i] / scale);
    add(name, "F8_E4M3", tensor.shape, codes.data(), codes.size());
    // Its scales may lie in the other file.
    shards[1 - shard].add(name + "_scale_inv", "F32", {1, 1}, &scale, sizeof scale);
    weight_map[name + "_scale_inv"] = concat("model-", 1 - shard, ".safetensors");
  });
  for (const int i : {0, 1}) shards[i].write(folder, concat("model-", i, ".safetensors"));
  folder.write("model.safetensors.index.json", Json({{"weight_map", weight_map}}).dump());
  Json config = read_json_file(model + "/config.json", {.python_numbers = true}).value();
  if (format == Format::fp8)
    config["quantization_config"] = {
        {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}};
  folder.write("config.json", config.dump());
  folder.write("tokenizer.json", "{\"any\": \"text\"}");
  folder.write("assets/note.txt", "a note");
  folder.write(".cache/lock", "of a tool");
}

// What a conversion stands for: its MXFP4 experts decoded to F32, under their old names.
void write_decoded(const TempFolder& folder, const std::string& converted, const std::string& source) {
  const auto file = Checkpoint::open(converted).value();
  TensorFile out;
  int decoded = 0;
  file->for_each([&](const std::string& name, const StoredTensor& tensor) {
    const bool stacked = name.ends_with("_blocks");
    if (name.ends_with("_scales") || name.ends_with(".weight_scale")) return;
    if (!stacked && !name.ends_with(".weight_packed"))
      return out.add(name, dtype_name(tensor.dtype), tensor.shape, tensor.data, tensor.bytes);
    const std::string base = name.substr(0, name.size() - 7);  // both endings have seven letters
    const StoredTensor* scales = file->find(base + (stacked ? "_scales" : "_scale"));
    REQUIRE(scales != nullptr);
    ++decoded;
    if (!stacked) {
      const int64_t rows = tensor.shape[0], columns = tensor.shape[1] * 2;
      Values values(size_t(rows * columns));
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          values[size_t(r * columns + c)] =
              mxfp4_value(tensor.data + r * columns / 2, scales->data + r * columns / kMxfp4Block, c);
      return out.add(base, "F32", {rows, columns}, values.data(), values.size() * sizeof(float));
    }
    const int64_t experts = tensor.shape[0], outs = tensor.shape[1], ins = tensor.shape[2] * kMxfp4Block;
    Values values(size_t(experts * outs * ins));
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t o = 0; o < outs; ++o)
        for (int64_t i = 0; i < ins; ++i)
          values[size_t((e * ins + i) * outs + o)] = mxfp4_value(
              tensor.data + (e * outs + o) * ins / 2, scales->data + (e * outs + o) * ins / kMxfp4Block, i);
    out.add(base, "F32", {experts, ins, outs}, values.data(), values.size() * sizeof(float));
  });
  CHECK(decoded > 0);
  out.write(folder);
  fs::copy_file(source + "/config.json", folder.file("config.json"));
}

// The logits of the last positions of the fixture's prompt.
Values logits_of(const std::string& fixture, const std::string& folder) {
  const auto expected = read_expected(kGolden + fixture).value();
  auto model = load_model(folder, {.route = Route::exact}, 64, 2);
  REQUIRE_MESSAGE(model.is_ok(), model.status().message());
  const int prompt = int(expected.input_ids.size());
  SequenceState sequence(*model.value().pool, prompt);
  Values logits;
  for (int at = 0; at < prompt;) {
    const int rest = prompt - kLastRows - at, count = rest > 0 ? std::min(100, rest) : 1;
    const auto row = append(model.value(), sequence, expected.input_ids.data() + at, count).value();
    at += count;
    if (at > prompt - kLastRows) logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

// The root mean square of the difference over that of `expected`.
double relative_rms(const Values& actual, const Values& expected) {
  REQUIRE(actual.size() == expected.size());
  double difference = 0, squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double(actual[i]) - expected[i], 2);
    squares += std::pow(double(expected[i]), 2);
  }
  return std::sqrt(difference / squares);
}

Conversion convert(const std::string& source, const std::string& target) {
  auto result = convert_to_mxfp4(source, target, {.threads = 2});
  REQUIRE_MESSAGE(result.is_ok(), result.status().message());
  return std::move(result).value();
}

struct Case {
  const char* fixture;
  Format format;
};
constexpr Case kCases[] = {{"kimi_k31", Format::bf16},
                           {"kimi_linear", Format::bf16},
                           {"glm_moe_dsa", Format::bf16},
                           {"glm_moe_dsa", Format::fp8},
                           {"gpt_oss", Format::bf16}};

}  // namespace

TEST_SUITE("model/convert") {
  TEST_CASE("a converted model computes what its MXFP4 values stand for, and the rest is the source's") {
    for (const Case& c : kCases) {
      INFO(std::string(c.fixture), c.format == Format::fp8 ? " with FP8 experts" : "");
      const TempFolder source, target, decoded;
      write_source(source, c.fixture, c.format);
      const Conversion conversion = convert(source.path(), target.path());
      CHECK(conversion.tensors > 0);
      CHECK(conversion.target_bytes < conversion.source_bytes);
      write_decoded(decoded, target.path(), source.path());
      CHECK(relative_error(logits_of(c.fixture, target.path()), logits_of(c.fixture, decoded.path())) < 1e-4);

      const auto before = Checkpoint::open(source.path()).value(),
                 after = Checkpoint::open(target.path()).value();
      size_t kept = 0;
      before->for_each([&](const std::string& name, const StoredTensor& tensor) {
        const StoredTensor* same = after->find(name);
        if (is_expert(name) || name.ends_with("_scale_inv")) {
          CHECK(same == nullptr);
          return;
        }
        REQUIRE(same != nullptr);
        CHECK(same->shape == tensor.shape);
        CHECK(memcmp(same->data, tensor.data, tensor.bytes) == 0);
        ++kept;
      });
      CHECK(after->num_tensors() == kept + 2 * conversion.tensors);
      auto files = files_of(target.path());
      CHECK(files.erase("tokenizer.json") + files.erase("assets/note.txt") == 2);
      for (const char* ours : {"config.json", "model.safetensors.index.json", "model-0.safetensors",
                               "model-1.safetensors", "dsa_convert.json"})
        CHECK(files.erase(ours) == 1);
      CHECK(files.empty());
    }
  }

  // Rounding is noise: with 0.112 of a weight's root mean square on normal weights (the figure of the format at this
  // rule), the logits must move as they do when normal noise of that size falls on the same experts. The bound is 1.5
  // times the worst of three such noises: the fixtures amplify any noise, and not each alike.
  TEST_CASE("logits move as much as noise of the size of the rounding moves them") {
    for (const Case& c : kCases) {
      INFO(std::string(c.fixture), c.format == Format::fp8 ? " with FP8 experts" : "");
      const TempFolder source, target;
      write_source(source, c.fixture, c.format);
      const Conversion conversion = convert(source.path(), target.path());
      const double size = conversion.errors.relative_rms();
      CHECK(size > 0.09);
      CHECK(size < 0.13);
      const Values expected = logits_of(c.fixture, source.path());
      double moved_by_noise = 0;
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        const TempFolder noisy;
        write_source(noisy, c.fixture, c.format, size, seed);
        moved_by_noise = std::max(moved_by_noise, relative_rms(logits_of(c.fixture, noisy.path()), expected));
      }
      const double moved = relative_rms(logits_of(c.fixture, target.path()), expected);
      INFO("rounding of ", size, " moves the logits by ", moved, ", noise by ", moved_by_noise);
      CHECK(moved > 0);
      CHECK(moved < 1.5 * moved_by_noise);
    }
  }

  TEST_CASE("FP8 stays in the config, which decides about index keys; other experts get that of MXFP4") {
    const TempFolder fp8, bf16, from_fp8, from_bf16;
    write_source(fp8, "glm_moe_dsa", Format::fp8);
    write_source(bf16, "kimi_k31", Format::bf16);
    convert(fp8.path(), from_fp8.path());
    convert(bf16.path(), from_bf16.path());
    const Json kept = read_json_file(from_fp8.file("config.json")).value();
    CHECK(kept["quantization_config"]["quant_method"] == "fp8");
    CHECK(kept["quantization_config"]["config_groups"]["group_0"]["format"] == "mxfp4-pack-quantized");
    const Json changed = read_json_file(from_bf16.file("config.json")).value();
    CHECK(changed["text_config"]["quantization_config"]["format"] == "mxfp4-pack-quantized");
    CHECK_FALSE(changed.contains("quantization_config"));
  }

  TEST_CASE("stopped behind any tensor, it goes on there and writes the same bytes") {
    for (const char* fixture : {"glm_moe_dsa", "gpt_oss"}) {
      INFO(std::string(fixture));
      const TempFolder source, whole;
      write_source(source, fixture, Format::bf16);
      const size_t tensors = convert(source.path(), whole.path()).tensors;
      const auto expected = files_of(whole.path());
      for (const uint64_t mark_bytes : {uint64_t(1), uint64_t(20000), uint64_t(1) << 40}) {
        const TempFolder target;
        size_t runs = 0, resumed = 0, step = tensors / 7 + 1;
        for (;; ++runs) {
          REQUIRE(runs < 100);
          size_t now = 0;
          const auto result = convert_to_mxfp4(
              source.path(), target.path(),
              {.threads = 1, .mark_bytes = mark_bytes, .on_tensor = [&](const ConvertedTensor&) {
                 // A run gets a few tensors further than the one before.
                 return ++now > step + runs ? error(Code::cancelled, "stopped") : Status::ok();
               }});
          if (result.is_ok()) {
            resumed = result.value().resumed;
            break;
          }
          CHECK(result.status().code() == Code::cancelled);
          CHECK(fs::exists(target.file("dsa_convert.journal")));
          CHECK_FALSE(fs::exists(target.file("config.json")));
          if (mark_bytes > 1 << 30) step *= 2;  // nothing but whole files is kept
        }
        CHECK(runs >= 2);
        CHECK(resumed > 0);
        CHECK(files_of(target.path()) == expected);
      }
    }
  }

  TEST_CASE("what a kill leaves in the middle of a write is written again") {
    const TempFolder source, whole, target;
    write_source(source, "glm_moe_dsa", Format::bf16);
    convert(source.path(), whole.path());
    size_t now = 0;
    const auto stopped = convert_to_mxfp4(
        source.path(), target.path(), {.mark_bytes = 20000, .on_tensor = [&](const ConvertedTensor&) {
                                         return ++now > 20 ? error(Code::cancelled, "stopped") : Status::ok();
                                       }});
    REQUIRE(stopped.status().code() == Code::cancelled);
    // Half a line in the journal, and bytes that no mark covers.
    std::ofstream(target.file("dsa_convert.journal"), std::ios::app) << "{\"tensor\":\"model.lay";
    {
      std::fstream partial(target.file("model-0.safetensors.partial"), std::ios::in | std::ios::out);
      REQUIRE(partial.good());
      partial.seekp(-1000, std::ios::end);
      partial << "left by a write that was cut off";
    }
    CHECK(convert(source.path(), target.path()).resumed > 0);
    CHECK(files_of(target.path()) == files_of(whole.path()));
  }

  TEST_CASE("a finished conversion says so and changes nothing; one of another source is refused") {
    const TempFolder source, other, target;
    write_source(source, "glm_moe_dsa", Format::bf16);
    write_source(other, "kimi_k31", Format::bf16);
    const Conversion first = convert(source.path(), target.path());
    CHECK_FALSE(first.was_finished);
    const auto files = files_of(target.path());
    const Conversion again = convert(source.path(), target.path());
    CHECK(again.was_finished);
    CHECK(again.report == first.report);
    CHECK(files_of(target.path()) == files);
    const Status status = convert_to_mxfp4(other.path(), target.path()).status();
    CHECK(status.code() == Code::mismatch);
    CHECK(files_of(target.path()) == files);

    // A source that changes while its conversion waits.
    const TempFolder begun;
    const auto stop = [](const ConvertedTensor&) { return error(Code::cancelled, "stopped"); };
    CHECK(convert_to_mxfp4(source.path(), begun.path(), {.on_tensor = stop}).status().code() ==
          Code::cancelled);
    fs::last_write_time(source.file("model-0.safetensors"),
                        fs::file_time_type::clock::now() + std::chrono::hours(1));
    CHECK(convert_to_mxfp4(source.path(), begun.path()).status().code() == Code::mismatch);
  }

  TEST_CASE("the report holds the errors of each tensor") {
    const TempFolder source, target;
    write_source(source, "glm_moe_dsa", Format::bf16);
    const Conversion conversion = convert(source.path(), target.path());
    const Json report = parse_json(conversion.report, "report").value();
    REQUIRE(report["tensors"].size() == conversion.tensors);
    const auto before = Checkpoint::open(source.path()).value(),
               after = Checkpoint::open(target.path()).value();
    for (const Json& line : report["tensors"]) {
      const auto name = line["name"].get<std::string>();
      const Values w = floats_of(*before->find(name));
      const StoredTensor *packed = after->find(name + "_packed"), *scales = after->find(name + "_scale");
      double squares = 0, errors = 0, largest = 0;
      size_t saturated = 0;
      for (size_t i = 0; i < w.size(); ++i) {
        const double e = std::abs(double(w[i]) - mxfp4_value(packed->data, scales->data, int64_t(i)));
        squares += double(w[i]) * w[i], errors += e * e, largest = std::max(largest, e);
        saturated += std::abs(w[i]) > 6 * e8m0_to_f32(scales->data[i / kMxfp4Block]);
      }
      CHECK(line["relative_rms_error"].get<double>() ==
            doctest::Approx(std::sqrt(errors / squares)).epsilon(1e-5));
      CHECK(line["max_error"].get<double>() == doctest::Approx(largest).epsilon(1e-5));
      CHECK(line["saturated_share"].get<double>() * double(w.size()) == doctest::Approx(double(saturated)));
    }
  }

  TEST_CASE("what cannot be converted is refused by name, before anything is written") {
    const TempFolder source;
    write_source(source, "glm_moe_dsa", Format::bf16);
    const auto refused = [](const std::string& from, const std::string& to, Code code,
                            const std::string& part) {
      const Status status = convert_to_mxfp4(from, to).status();
      INFO(status.message());
      CHECK(status.code() == code);
      CHECK(status.message().find(part) != std::string::npos);
    };
    const TempFolder fresh;
    refused(kGolden + "glm_moe_dsa/model-mxfp4", fresh.path(), Code::format, "MXFP4 already");
    refused(kGolden + "gpt_oss/model-mxfp4", fresh.path(), Code::format, "MXFP4 already");
    refused("/nowhere/at/all", fresh.path(), Code::not_found, "config.json");
    refused(source.path(), source.path(), Code::argument, "contains");
    refused(source.path(), source.file("inside"), Code::argument, "contains");
    CHECK(files_of(fresh.path()).empty());

    const TempFolder foreign;
    foreign.write("thesis.txt", "years of work");
    refused(source.path(), foreign.path(), Code::state, "not empty");
    refused(source.path(), foreign.file("thesis.txt"), Code::argument, "expected a folder");
    CHECK(files_of(foreign.path()).size() == 1);

    const TempFolder unknown;
    Json config = read_json_file(source.file("config.json")).value();
    config["architectures"] = {"OtherForCausalLM"};
    unknown.write("config.json", config.dump());
    refused(unknown.path(), fresh.path(), Code::unsupported, "OtherForCausalLM");
    config["architectures"] = {"DeepseekV4ForCausalLM"};
    unknown.write("config.json", config.dump());
    refused(unknown.path(), fresh.path(), Code::unsupported, "deepseek_v4");

    // Weights of its own, one fault each.
    const auto faulty = [&](const std::string& dtype, const std::vector<int64_t>& shape,
                            std::vector<float> values, Code code, const std::string& part) {
      const TempFolder folder, target;
      config["architectures"] = {"GlmMoeDsaForCausalLM"};
      folder.write("config.json", config.dump());
      TensorFile file;
      file.add("model.layers.1.mlp.experts.0.up_proj.weight", dtype, shape, values.data(),
               values.size() * sizeof(float));
      file.write(folder);
      refused(folder.path(), target.path(), code, part);
      CHECK(fs::exists(target.file("config.json")) == (code == Code::ok));
    };
    Values values(64, 1.f);
    faulty("F32", {2, 32}, values, Code::ok, "");
    faulty("I32", {2, 32}, values, Code::format, "I32");
    faulty("F32", {64}, values, Code::model, "1 dimensions");
    faulty("F32", {4, 16}, values, Code::unsupported, "16 columns");
    faulty("F8_E4M3", {8, 32}, values, Code::model, "weight_scale_inv");
    values[40] = NAN;
    faulty("F32", {2, 32}, values, Code::numeric, "block 1");
    values[40] = INFINITY;
    faulty("F32", {2, 32}, values, Code::numeric, "experts.0.up_proj.weight");
  }
}

}  // namespace dsa::test
