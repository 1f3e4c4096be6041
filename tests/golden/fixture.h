// tests/golden/fixture.h: a folder with a tiny checkpoint and what an independent implementation computed for it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "model/decoder.h"
#include "state/sequence_state.h"

namespace dsa::test {

// expected.safetensors and expected.json of one fixture folder.
struct Expected {
  std::string family;
  std::vector<int32_t> input_ids, decode_tokens;
  int vocab = 0;
  std::vector<float> logits_last;    // [last positions of the prompt, vocab]
  std::vector<float> decode_logits;  // [decode steps, vocab]
  double argmax_gap = 0;             // smallest gap between the best two logits along the way
  // Selected positions per layer: of the last prompt positions, and of the last decode step.
  std::vector<int> set_positions;
  std::map<int, std::vector<std::vector<int32_t>>> prefill_sets;
  int decode_set_position = -1;
  std::map<int, std::vector<int32_t>> decode_sets;
};

Result<Expected> read_expected(const std::string& folder);
// The values of one tensor of expected.safetensors.
Result<std::vector<float>> read_floats(const Checkpoint& file, const std::string& name);

// A model from a folder, ready to run sequences step by step.
struct LoadedModel {
  std::shared_ptr<const ModelConfig> config;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<PagePool> pool;
};

// `device`: "cpu", "guarded" (support/guarded_backend.h), or a GPU as in backend/device.h.
Result<LoadedModel> load_model(const std::string& folder, const ModelOptions& options, int64_t pages = 1024,
                               int threads = 2, const std::string& device = "cpu");

// Appends `count` tokens in one step, commits, and returns the logits of the last one.
Result<std::vector<float>> append(LoadedModel& model, SequenceState& sequence, const int32_t* tokens,
                                  int count, std::span<const PlacedRows> placed = {});

// Index of the largest value, the lowest on a tie.
int32_t argmax(const float* values, int n);

// Collects what each layer selects: [layer][position] -> positions.
class SelectionRecorder {
 public:
  void attach(Decoder& decoder);
  const std::vector<int32_t>* find(int layer, int position) const;
  void clear() { sets_.clear(); }
  const std::map<std::pair<int, int>, std::vector<int32_t>>& sets() const { return sets_; }

 private:
  std::map<std::pair<int, int>, std::vector<int32_t>> sets_;
};

}  // namespace dsa::test
