// Checkpoints that contradict their config. Each is written, changed in one place, from the fixture.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "golden/fixture.h"

namespace dsa::test {
namespace {

namespace fs = std::filesystem;

const std::string kFolder = DSA_SOURCE_DIR "/tests/golden/kimi_k31/model-mxfp4";

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The fixture in a temporary folder, after `change` has had its header and data.
class ChangedModel {
 public:
  explicit ChangedModel(const std::function<void(Json& header, std::string& data)>& change) {
    folder_ =
        fs::temp_directory_path() / ("dsa_weights_test_" + std::to_string(reinterpret_cast<uintptr_t>(this)));
    fs::create_directories(folder_);
    fs::copy_file(kFolder + "/config.json", folder_ / "config.json", fs::copy_options::overwrite_existing);
    const std::string file = read_file(kFolder + "/model.safetensors");
    uint64_t length;
    memcpy(&length, file.data(), sizeof length);
    Json header = Json::parse(file.substr(8, length));
    std::string data = file.substr(8 + length);
    change(header, data);
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    length = text.size();
    std::ofstream out(folder_ / "model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length) << text << data;
  }
  ~ChangedModel() { fs::remove_all(folder_); }

  Status load() const { return load_model(folder_.string(), {}, 64, 1).status(); }

 private:
  fs::path folder_;
};

const char* kScales = "language_model.model.layers.3.block_sparse_moe.experts.2.w1.weight_scale";

}  // namespace

TEST_SUITE("model/weights") {
  TEST_CASE("the unchanged copy loads") {
    CHECK(ChangedModel([](Json&, std::string&) {}).load().is_ok());
  }

  TEST_CASE("NUM-02 a scale code of 255 is refused with the tensor's name") {
    const Status status = ChangedModel([](Json& header, std::string& data) {
                            data[header[kScales]["data_offsets"][0].get<size_t>() + 3] = char(255);
                          }).load();
    CHECK(status.code() == Code::model);
    CHECK(status.message().find(kScales) != std::string::npos);
  }

  TEST_CASE("NUM-01 scales typed F8_E8M0 load like those typed U8; others are refused") {
    CHECK(ChangedModel([](Json& header, std::string&) { header[kScales]["dtype"] = "F8_E8M0"; })
              .load()
              .is_ok());
    const Status status =
        ChangedModel([](Json& header, std::string&) { header[kScales]["dtype"] = "I8"; }).load();
    CHECK(status.code() == Code::model);
    CHECK(status.message().find(kScales) != std::string::npos);
  }

  TEST_CASE("LOAD-11 each missing tensor is named") {
    for (const char* name : {"language_model.lm_head.weight", "language_model.model.layers.0.self_attn.A_log",
                             "language_model.model.layers.3.self_attn.indexer.wk.weight",
                             "language_model.model.layers.5.block_sparse_moe.experts.7.w2.weight_packed",
                             "language_model.model.layers.2.mlp_res_norm.weight"}) {
      const Status status = ChangedModel([&](Json& header, std::string&) { header.erase(name); }).load();
      INFO(name, ": ", status.message());
      CHECK_FALSE(status.is_ok());
      CHECK(status.message().find(name) != std::string::npos);
    }
  }

  TEST_CASE("a shape that does not fit the config is refused with both shapes") {
    const Status status =
        ChangedModel([](Json& header, std::string&) {
          header["language_model.model.layers.3.self_attn.q_b_proj.weight"]["shape"] = {96, 64};
        }).load();
    CHECK(status.code() == Code::model);
    CHECK(status.message().find("[96, 64]") != std::string::npos);
    CHECK(status.message().find("[192, 32]") != std::string::npos);
  }

  TEST_CASE("an indexer on a layer that the config does not name is refused") {
    const ChangedModel model([](Json&, std::string&) {});
    auto json = read_json_file(kFolder + "/config.json", {.python_numbers = true});
    REQUIRE(json.is_ok());
    Json changed = json.value();
    changed["text_config"]["dsa_config"]["dsa_layers"] = {4, 7};
    auto config = parse_model_config(changed, "config.json");
    REQUIRE(config.is_ok());
    auto checkpoint = Checkpoint::open(kFolder);
    auto backend = create_cpu_backend(1);
    const auto decoder = load_decoder(config.value(), checkpoint.value(), *backend.value(), {}, {});
    CHECK(decoder.status().code() == Code::model);
  }

  TEST_CASE("a load can be cancelled and leaves nothing") {
    auto json = read_json_file(kFolder + "/config.json", {.python_numbers = true});
    auto config = parse_model_config(json.value(), "config.json");
    auto checkpoint = Checkpoint::open(kFolder);
    auto backend = create_cpu_backend(1);
    uint64_t last = 0;
    const auto decoder = load_decoder(config.value(), checkpoint.value(), *backend.value(), {},
                                      [&](uint64_t done, uint64_t total) {
                                        CHECK(done >= last);
                                        CHECK(done <= total);
                                        last = done;
                                        return done < total;
                                      });
    CHECK(decoder.status().code() == Code::cancelled);
  }
}

}  // namespace dsa::test
