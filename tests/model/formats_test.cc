// Checkpoints with FP8 matrices, written from the BF16 fixture: every second matrix, so that formats mix in each block.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>

#include "golden/fixture.h"
#include "support/temp_folder.h"
#include "support/tensor_file.h"
#include "support/values.h"

namespace dsa::test {
namespace {

const std::string kFixture = DSA_SOURCE_DIR "/tests/golden/glm_moe_dsa";
const std::string kModel = kFixture + "/model";

// Matrices that published FP8 checkpoints hold in FP8.
bool is_fp8_name(const std::string& name) {
  for (const char* part : {"embed_tokens", "lm_head", "norm", "mlp.gate.", "weights_proj"})
    if (name.find(part) != std::string::npos) return false;
  return name.ends_with(".weight");
}

Json config() {
  auto json = read_json_file(kModel + "/config.json", {.python_numbers = true});
  REQUIRE(json.is_ok());
  return json.value();
}

// The fixture with every second matrix rounded to FP8: as FP8, or as the f32 values that the codes stand for. `change` is
// called with each scale tensor.
void write_model(const TempFolder& folder, bool as_fp8,
                 const std::function<bool(const std::string& name, Values& scales)>& change = {}) {
  const auto source = Checkpoint::open(kModel).value();
  TensorFile file;
  int matrices = 0;
  source->for_each([&](const std::string& name, const StoredTensor& tensor) {
    if (!is_fp8_name(name) || ++matrices % 2 == 0) {
      file.add(name, dtype_name(tensor.dtype), tensor.shape, tensor.data, tensor.bytes);
      return;
    }
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const int64_t across = (columns + 127) / 128;
    Values scales(size_t((rows + 127) / 128 * across)), values(size_t(rows * columns));
    std::vector<uint8_t> codes(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      bf16 value;
      memcpy(&value, tensor.data + i * sizeof value, sizeof value);
      values[i] = to_f32(value);
      float& scale = scales[size_t(int64_t(i) / columns / 128 * across + int64_t(i) % columns / 128)];
      scale = std::max(scale, std::abs(values[i]) / 448);
    }
    for (int64_t i = 0; i < rows * columns; ++i)
      codes[size_t(i)] =
          f32_to_e4m3(values[size_t(i)] / scales[size_t(i / columns / 128 * across + i % columns / 128)]);
    for (int64_t i = 0; i < rows * columns; ++i)
      values[size_t(i)] = fp8_value(codes.data(), scales.data(), columns, i / columns, i % columns);
    if (as_fp8) {
      file.add(name, "F8_E4M3", tensor.shape, codes.data(), codes.size());
      if (!change || change(name, scales))
        file.add(name + "_scale_inv", "F32", {(rows + 127) / 128, across}, scales.data(),
                 scales.size() * sizeof(float));
    } else {
      file.add(name, "F32", tensor.shape, values.data(), values.size() * sizeof(float));
    }
  });
  CHECK(matrices > 100);
  folder.write("config.json", config().dump());
  file.write(folder);
}

std::vector<float> logits_of(const std::string& folder) {
  const auto expected = read_expected(kFixture).value();
  auto model = load_model(folder, {}, 64, 2);
  REQUIRE_MESSAGE(model.is_ok(), model.status().message());
  SequenceState sequence(*model.value().pool, 512);
  std::vector<float> logits;
  for (size_t at = 0; at < expected.input_ids.size();) {
    const int count = int(std::min<size_t>(100, expected.input_ids.size() - at));
    logits = append(model.value(), sequence, expected.input_ids.data() + at, count).value();
    at += size_t(count);
  }
  return logits;
}

}  // namespace

TEST_SUITE("model/formats") {
  TEST_CASE("FP8 matrices compute what the values of their codes compute, in every block") {
    const TempFolder fp8, plain;
    write_model(fp8, true);
    write_model(plain, false);
    CHECK(relative_error(logits_of(fp8.path()), logits_of(plain.path())) < 1e-4);
  }

  TEST_CASE("scales that are missing, not finite, or beside a matrix that is not FP8 are refused by name") {
    const std::string name = "model.layers.0.self_attn.indexer.wk.weight";
    for (const char* what : {"missing", "not finite"}) {
      INFO(what);
      const TempFolder folder;
      std::string damaged;
      write_model(folder, true, [&](const std::string& tensor, Values& scales) {
        if (!damaged.empty()) return true;
        damaged = tensor;
        scales[0] = INFINITY;
        return what[0] == 'n';
      });
      const Status status = load_model(folder.path(), {}, 64, 1).status();
      CHECK(status.code() == Code::model);
      CHECK(status.message().find(damaged + "_scale_inv") != std::string::npos);
    }
    const TempFolder folder;
    const auto source = Checkpoint::open(kModel).value();
    TensorFile file;
    source->for_each([&](const std::string& tensor, const StoredTensor& stored) {
      file.add(tensor, dtype_name(stored.dtype), stored.shape, stored.data, stored.bytes);
    });
    const float one = 1;
    file.add(name + "_scale_inv", "F32", {1, 1}, &one, sizeof one);
    file.write(folder);
    folder.write("config.json", config().dump());
    const Status status = load_model(folder.path(), {}, 64, 1).status();
    CHECK(status.code() == Code::model);
    CHECK(status.message().find("'" + name + "'") != std::string::npos);
  }
}

}  // namespace dsa::test
