#include "model/fp8_workspace.h"

#include <algorithm>
#include <vector>

#include "ops/ops.h"

namespace dsa {
namespace {

// The matrices of one expert that read the same rows.
struct Stage {
  ExpertMatrix ExpertWeights::*matrices[2];
  int count;
  int64_t in_dim, out_dim;

  size_t matrix_bytes() const { return size_t(fp8_tile_bytes(out_dim, in_dim)); }
};

// Gate and up, then down.
std::vector<Stage> stages_of(const ModelConfig& c) {
  const int64_t width = c.expert_width(), dim = c.moe.expert_dim;
  const Stage first = c.moe.biased ? Stage{{&ExpertWeights::gate}, 1, width, 2 * dim}
                                   : Stage{{&ExpertWeights::gate, &ExpertWeights::up}, 2, width, dim};
  return {first, {{&ExpertWeights::down}, 1, dim, width}};
}

bool is_mxfp4(const MoeWeights& w) {
  return !w.experts.empty() && std::all_of(w.experts.begin(), w.experts.end(), [](const ExpertWeights& e) {
    for (const ExpertMatrix* m : {&e.gate, &e.up, &e.down})
      if (m->data != nullptr && m->type != DType::u8) return false;
    return true;
  });
}

// Everything in one piece; without memory it counts.
struct Layout {
  uint8_t *codes, *x;
  float* x_scales;
  std::vector<int16_t*> exponents;           // [layers], in the order of stages, experts, matrices, rows
  uint8_t* spreads;                          // of the rows of one layer
  size_t half_bytes = 0, rows_of_layer = 0;  // of codes; no bytes: no step expands

  Layout(const ModelConfig& c, const DecoderWeights& weights, const ModelOptions& options, Room& room) {
    const int64_t pairs = int64_t(options.max_step_tokens) * c.moe.top_k;
    size_t one_expert = 0;
    for (const Stage& stage : stages_of(c)) {
      one_expert = std::max(one_expert, size_t(stage.count) * stage.matrix_bytes());
      rows_of_layer += size_t(c.moe.experts) * size_t(stage.count) * size_t(stage.out_dim);
    }
    if (pairs >= int64_t(options.expand_rows) * c.moe.experts) {
      half_bytes = std::max(size_t(options.fp8_workspace_bytes) / 2, one_expert);
      half_bytes = (half_bytes + kStorageAlignment - 1) / kStorageAlignment * kStorageAlignment;
    }
    codes = static_cast<uint8_t*>(room.bytes(2 * half_bytes));
    x = static_cast<uint8_t*>(
        room.bytes(size_t(fp8_tile_bytes(pairs, std::max(c.expert_width(), c.moe.expert_dim)))));
    x_scales = room.array<float>(size_t(pairs));
    for (const LayerWeights& layer : weights.layers)
      exponents.push_back(is_mxfp4(layer.moe) ? room.array<int16_t>(rows_of_layer) : nullptr);
    spreads = room.array<uint8_t>(rows_of_layer);
  }
};

struct Tables {
  std::vector<Mxfp4ExpertLinearGroup*> direct;  // [layers, stages] of [experts, matrices]
  std::vector<Mxfp4ToFp8Group*> expand;         // the same
  std::vector<Fp8ExpertLinearGroup*> multiply;  // the same

  Tables(const ModelConfig& c, const DecoderWeights& weights, Room& room) {
    for (const LayerWeights& layer : weights.layers)
      for (const Stage& stage : stages_of(c)) {
        const size_t n = is_mxfp4(layer.moe) ? size_t(c.moe.experts) * size_t(stage.count) : 0;
        direct.push_back(room.array<Mxfp4ExpertLinearGroup>(n));
        expand.push_back(room.array<Mxfp4ToFp8Group>(n));
        multiply.push_back(room.array<Fp8ExpertLinearGroup>(n));
      }
  }
};

bool has_layer(const DecoderWeights& weights) {
  return std::any_of(weights.layers.begin(), weights.layers.end(),
                     [](const LayerWeights& layer) { return is_mxfp4(layer.moe); });
}

size_t table_bytes(const ModelConfig& c, const DecoderWeights& weights) {
  Room room;
  const Tables counted(c, weights, room);
  return room.used();
}

}  // namespace

uint64_t Fp8Workspace::bytes(const ModelConfig& c, const DecoderWeights& weights,
                             const ModelOptions& options) {
  if (!has_layer(weights)) return 0;
  Room room;
  const Layout counted(c, weights, options, room);
  return room.used() + table_bytes(c, weights);
}

Result<std::unique_ptr<Fp8Workspace>> Fp8Workspace::create(const ModelConfig& c, DecoderWeights& weights,
                                                           const Activations& a, const ModelOptions& options,
                                                           Backend& backend) {
  if (!has_layer(weights)) return std::unique_ptr<Fp8Workspace>();
  std::unique_ptr<Fp8Workspace> workspace(new Fp8Workspace);
  Storage& storage = backend.storage();
  Room counted;
  const Layout unused(c, weights, options, counted);
  DSA_ASSIGN(workspace->memory_, storage.allocate(counted.used(), "the FP8 workspace"));
  DSA_ASSIGN(workspace->tables_,
             storage.allocate_mirror(table_bytes(c, weights), "the tables of the FP8 workspace"));
  Room room(workspace->memory_.get()), made_room(workspace->tables_.host.get()),
      table_room(workspace->tables_.device.get());
  const Layout layout(c, weights, options, room);
  const Tables made(c, weights, made_room), tables(c, weights, table_room);
  workspace->x_ = layout.x;
  workspace->x_scales_ = layout.x_scales;

  const std::vector<Stage> stages = stages_of(c);
  const Tensor outputs[2][2] = {{c.moe.biased ? a.expert_gate_up : a.expert_gate, a.expert_up},
                                {a.expert_y, {}}};
  std::vector<uint8_t> spreads(layout.rows_of_layer);
  Step step(backend);
  const auto thread = backend.enter_thread();
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    MoeWeights& w = weights.layers[l].moe;
    if (!is_mxfp4(w)) continue;
    size_t row = 0;    // of exponents
    int64_t part = 0;  // parts of the layer take turns in the halves
    for (size_t i = 0; i < stages.size(); ++i) {
      const Stage& stage = stages[i];
      const bool expands = layout.half_bytes > 0;
      const int64_t at_once =
          expands ? int64_t(layout.half_bytes / (size_t(stage.count) * stage.matrix_bytes())) : c.moe.experts;
      Mxfp4ExpertLinearGroup* direct = made.direct[l * stages.size() + i];
      Mxfp4ToFp8Group* expand = made.expand[l * stages.size() + i];
      Fp8ExpertLinearGroup* multiply = made.multiply[l * stages.size() + i];
      for (int64_t e = 0; e < c.moe.experts; ++e) {
        // Experts may be rotated, for experiments.
        const ExpertWeights& expert = w.experts[size_t((e + options.rotate_experts) % c.moe.experts)];
        for (int m = 0; m < stage.count; ++m, ++direct, ++expand, ++multiply) {
          const ExpertMatrix& matrix = expert.*stage.matrices[m];
          const auto* blocks = static_cast<const uint8_t*>(matrix.data);
          int16_t* exponents = layout.exponents[l] + row;
          ops::mxfp4_exponents(step, blocks, matrix.scales, stage.out_dim, int(stage.in_dim), exponents,
                               layout.spreads + row);
          row += size_t(stage.out_dim);
          const int32_t* range = a.offsets.i32() + e;
          *direct = {blocks, matrix.scales, exponents, range, outputs[i][m].f32()};
          if (!expands) continue;
          uint8_t* codes = layout.codes + size_t((part + e / at_once) % 2) * layout.half_bytes +
                           size_t(e % at_once * stage.count + m) * stage.matrix_bytes();
          *expand = {blocks, matrix.scales, exponents, codes, range};
          *multiply = {codes, exponents, range, outputs[i][m].f32()};
        }
      }
      part += (c.moe.experts + at_once - 1) / at_once;
      w.fp8[i] = {tables.direct[l * stages.size() + i],
                  expands ? tables.expand[l * stages.size() + i] : nullptr,
                  expands ? tables.multiply[l * stages.size() + i] : nullptr,
                  stage.count,
                  int(std::min<int64_t>(at_once, c.moe.experts)),
                  int(stage.in_dim),
                  int(stage.out_dim)};
    }
    DSA_TRY(storage.finish());
    DSA_TRY(storage.read(spreads.data(), layout.spreads, spreads.size()));
    if (*std::max_element(spreads.begin(), spreads.end()) > kMxfp4SpreadMax)
      w.fp8[0] = w.fp8[1] = Fp8Stage();
    else
      ++workspace->layers_;
  }
  storage.upload(workspace->tables_, 0, table_room.used());
  DSA_TRY(storage.finish());
  return workspace;
}

}  // namespace dsa
