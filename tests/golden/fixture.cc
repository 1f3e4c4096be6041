#include "golden/fixture.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backend/device.h"
#include "tests/support/guarded_backend.h"

namespace dsa::test {
namespace {

Result<const StoredTensor*> tensor_of(const Checkpoint& file, const std::string& name, DType dtype) {
  const StoredTensor* tensor = file.find(name);
  if (tensor == nullptr) return error(Code::not_found, "expected.safetensors: '", name, "' is missing");
  if (tensor->dtype != dtype)
    return error(Code::format, "expected.safetensors: '", name, "' is ", dtype_name(tensor->dtype),
                 ", expected ", dtype_name(dtype));
  return tensor;
}

Result<std::vector<int32_t>> read_tokens(const Checkpoint& file, const std::string& name) {
  DSA_ASSIGN(const StoredTensor* tensor, tensor_of(file, name, DType::i64));
  std::vector<int32_t> tokens;
  for (uint64_t i = 0; i < tensor->bytes / sizeof(int64_t); ++i) {
    int64_t token;
    memcpy(&token, tensor->data + i * sizeof token, sizeof token);
    tokens.push_back(int32_t(token));
  }
  return tokens;
}

std::vector<int32_t> sorted_positions(const Json& list) {
  std::vector<int32_t> positions;
  for (const Json& p : list) positions.push_back(p.get<int32_t>());
  std::sort(positions.begin(), positions.end());
  return positions;
}

}  // namespace

Result<std::vector<float>> read_floats(const Checkpoint& file, const std::string& name) {
  DSA_ASSIGN(const StoredTensor* tensor, tensor_of(file, name, DType::f32));
  std::vector<float> values(tensor->bytes / sizeof(float));
  memcpy(values.data(), tensor->data, tensor->bytes);
  return values;
}

Result<Expected> read_expected(const std::string& folder) {
  Expected e;
  DSA_ASSIGN(const auto file, Checkpoint::open_file(join_path(folder, "expected.safetensors")));
  DSA_ASSIGN(const Json json, read_json_file(join_path(folder, "expected.json")));
  DSA_ASSIGN(e.input_ids, read_tokens(*file, "input_ids"));
  DSA_ASSIGN(e.decode_tokens, read_tokens(*file, "decode_tokens"));
  DSA_ASSIGN(e.logits_last, read_floats(*file, "logits_last"));
  DSA_ASSIGN(e.decode_logits, read_floats(*file, "decode_logits"));
  const JsonFields fields(json, "expected.json");
  DSA_ASSIGN(e.family, fields.string("family"));
  DSA_ASSIGN(e.argmax_gap, fields.number("smallest_argmax_gap"));
  e.vocab = int(file->find("logits_last")->shape[1]);

  if (!fields.has("index_sets")) return e;
  const Json& sets = json["index_sets"];
  e.set_positions = sorted_positions(sets["positions"]);
  for (const auto& [layer, lists] : sets["prefill"].items())
    for (const Json& list : lists) e.prefill_sets[std::stoi(layer)].push_back(sorted_positions(list));
  if (sets.contains("last_decode")) {
    e.decode_set_position = sets["last_decode_position"].get<int>();
    for (const auto& [layer, list] : sets["last_decode"].items())
      e.decode_sets[std::stoi(layer)] = sorted_positions(list);
  }
  return e;
}

Result<LoadedModel> load_model(const std::string& folder, const ModelOptions& options, int64_t pages,
                               int threads, const std::string& device) {
  LoadedModel model;
  const std::string config_path = join_path(folder, "config.json");
  DSA_ASSIGN(const Json json, read_json_file(config_path, {.python_numbers = true}));
  DSA_ASSIGN(model.config, parse_model_config(json, config_path, folder));
  DSA_ASSIGN(auto checkpoint, Checkpoint::open(folder));
  if (device == "guarded") {
    model.backend = std::make_unique<GuardedBackend>();
  } else if (device == "cpu") {
    DSA_ASSIGN(model.backend, create_cpu_backend(threads));
  } else {
    DSA_ASSIGN(model.backend, create_gpu_backend(device, ""));
  }
  DSA_ASSIGN(model.decoder, load_decoder(model.config, checkpoint, *model.backend, options, {}));
  DSA_ASSIGN(model.pool, PagePool::create(model.decoder->state_layout(), pages, 0, model.backend->storage()));
  return model;
}

Result<std::vector<float>> append(LoadedModel& model, SequenceState& sequence, const int32_t* tokens,
                                  int count, std::span<const PlacedRows> placed) {
  StepPlan plan;
  plan.sequences.push_back({&sequence, tokens, count, true, placed});
  DSA_ASSIGN(Reservation pages, model.pool->reserve(plan));
  DSA_ASSIGN(const Tensor logits, model.decoder->run(plan, *model.pool));
  pages.commit();
  return std::vector<float>(logits.f32(), logits.f32() + logits.dim[1]);
}

int32_t argmax(const float* values, int n) { return int32_t(std::max_element(values, values + n) - values); }

void SelectionRecorder::attach(Decoder& decoder) {
  decoder.observe_selection([this](int layer, const Batch& batch, const Tensor& selected) {
    for (int t = 0; t < batch.tokens; ++t) {
      std::vector<int32_t>& set = sets_[{layer, batch.positions[size_t(t)]}];
      set.clear();
      if (selected.is_null()) {
        set.resize(size_t(batch.visible[size_t(t)]));
        std::iota(set.begin(), set.end(), 0);
        continue;
      }
      const int32_t* row = selected.i32() + t * selected.stride[0];
      std::copy_if(row, row + selected.dim[1], std::back_inserter(set), [](int32_t p) { return p >= 0; });
    }
  });
}

const std::vector<int32_t>* SelectionRecorder::find(int layer, int position) const {
  const auto found = sets_.find({layer, position});
  return found == sets_.end() ? nullptr : &found->second;
}

}  // namespace dsa::test
