#include "model/weight_placement.h"

#include <algorithm>
#include <vector>

#include "kernels/common/numbers.h"

namespace dsa {
namespace {

// Calls f(pointer, bytes) for every pointer of a part of the model.
template <class F>
class Visitor {
 public:
  Visitor(const ModelConfig& config, const F& f) : c_(config), f_(f) {}

  void model(DecoderWeights& w) const {
    tensors({&w.embedding, &w.head, &w.output_mix, &w.final_norm});
    for (LayerWeights& layer : w.layers) this->layer(layer);
    vision(w.vision);
  }

 private:
  void tensor(Tensor& t) const {
    if (t.is_null()) return;
    int64_t last = 0;
    for (int i = 0; i < t.rank; ++i) last += (t.dim[i] - 1) * t.stride[i];
    f_(t.data, size_t(last + 1) * dtype_bytes(t.dtype));
    if (t.block_scales != nullptr) scales(t.block_scales, t.dim[0], t.dim[1]);
  }
  void tensors(std::initializer_list<Tensor*> all) const {
    for (Tensor* t : all) tensor(*t);
  }
  template <class T>
  void pointer(const T*& p, size_t bytes) const {
    void* plain = const_cast<void*>(static_cast<const void*>(p));  // weights are only read
    f_(plain, bytes);
    p = static_cast<const T*>(plain);
  }
  void scales(const float*& p, int64_t rows, int64_t columns) const {
    const auto blocks = [](int64_t n) { return size_t((n + kFp8Block - 1) / kFp8Block); };
    pointer(p, blocks(rows) * blocks(columns) * sizeof(float));
  }
  void expert(ExpertMatrix& m, int64_t rows, int64_t columns) const {
    if (m.data == nullptr) return;
    const size_t count = size_t(rows) * size_t(columns);
    pointer(m.data, m.type == DType::u8 ? count / 2 : count * dtype_bytes(m.type));
    if (m.scales != nullptr) pointer(m.scales, count / kMxfp4Block);
    if (m.block_scales != nullptr) scales(m.block_scales, rows, columns);
  }

  void mlp(MlpWeights& w) const { tensors({&w.gate, &w.up, &w.down}); }
  void layer(LayerWeights& w) const {
    tensors({&w.attn_mix, &w.mlp_mix, &w.attn_norm, &w.mlp_norm});
    for (HyperWeights* hyper : {&w.attn_hyper, &w.mlp_hyper})
      tensors({&hyper->fn, &hyper->base, &hyper->scale});
    KdaWeights& k = w.kda;
    tensors({&k.q, &k.k, &k.v, &k.conv, &k.f_a, &k.f_b, &k.a_log, &k.dt_bias, &k.b, &k.gate_down, &k.gate,
             &k.o_norm, &k.o});
    LatentAttentionWeights& l = w.latent;
    tensors({&l.q_down, &l.q_norm, &l.q_up, &l.kv_down, &l.kv_norm, &l.k_up, &l.v_up, &l.gate, &l.o});
    IndexerWeights& i = l.indexer;
    tensors({&i.q, &i.k, &i.k_norm, &i.k_norm_bias, &i.head_weights, &i.pool_gate, &i.pool_places});
    GroupedAttentionWeights& g = w.grouped;
    tensors({&g.q, &g.k, &g.v, &g.o, &g.q_bias, &g.k_bias, &g.v_bias, &g.o_bias, &g.sinks});
    moe(w.moe);
    mlp(w.mlp);
  }
  void moe(MoeWeights& w) const {
    tensors({&w.router, &w.router_bias, &w.latent_down, &w.latent_up, &w.latent_norm, &w.router_logit_bias,
             &w.gate_up_bias, &w.down_bias});
    const int64_t width = c_.expert_width(), dim = c_.moe.expert_dim;
    for (ExpertWeights& e : w.experts) {
      expert(e.gate, c_.moe.biased ? 2 * dim : dim, width);
      expert(e.up, dim, width);
      expert(e.down, width, dim);
    }
    mlp(w.shared);
  }
  void vision(VisionWeights& w) const {
    tensors({&w.patch, &w.patch_bias, &w.positions, &w.final_norm, &w.proj0, &w.proj2, &w.post, &w.downsample,
             &w.downsample_bias, &w.merge_proj, &w.merge_norm, &w.merge_norm_bias});
    for (VisionBlockWeights& b : w.blocks)
      tensors({&b.norm0, &b.norm1, &b.qkv, &b.o, &b.qkv_bias, &b.o_bias, &b.q_norm, &b.k_norm, &b.fc0, &b.fc1,
               &b.fc0_bias, &b.fc1_bias, &b.up, &b.up_bias});
    mlp(w.merge_mlp);
  }

  const ModelConfig& c_;
  const F& f_;
};

template <class F>
void for_each_pointer(DecoderWeights& weights, const ModelConfig& config, const F& f) {
  Visitor<F>(config, f).model(weights);
}

// Memory of the host that pointers refer to, and where it goes.
struct Range {
  const char* begin;
  const char* end;
  size_t offset;
};

// By address, ranges that overlap made one.
std::vector<Range> find_ranges(DecoderWeights& weights, const ModelConfig& config, size_t& total) {
  std::vector<Range> all, ranges;
  for_each_pointer(weights, config, [&](void*& p, size_t bytes) {
    all.push_back({static_cast<const char*>(p), static_cast<const char*>(p) + bytes, 0});
  });
  std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (const Range& range : all) {
    if (!ranges.empty() && range.begin < ranges.back().end)
      ranges.back().end = std::max(ranges.back().end, range.end);
    else
      ranges.push_back(range);
  }
  total = 0;
  for (Range& range : ranges) {
    range.offset = total;
    total +=
        (size_t(range.end - range.begin) + kStorageAlignment - 1) / kStorageAlignment * kStorageAlignment;
  }
  return ranges;
}

}  // namespace

uint64_t placed_weight_bytes(DecoderWeights& weights, const ModelConfig& config) {
  size_t total = 0;
  (void)find_ranges(weights, config, total);
  return total;
}

Status place_weights(DecoderWeights& weights, const ModelConfig& config, Storage& storage,
                     const LoadProgress& progress) {
  size_t total = 0;
  const std::vector<Range> ranges = find_ranges(weights, config, total);
  DSA_ASSIGN(weights.placed, storage.allocate(total, "the weights"));
  char* const memory = static_cast<char*>(weights.placed.get());
  std::vector<Write> writes;
  for (const Range& range : ranges)
    writes.push_back({memory + range.offset, range.begin, size_t(range.end - range.begin)});
  uint64_t done = 0;
  bool cancelled = false;
  const auto go_on = [&](uint64_t bytes) {
    done = bytes;
    cancelled = progress && !progress(done, total);
    return !cancelled;
  };
  const auto stopped = [&] {
    return cancelled ? error(Code::cancelled, "the load was cancelled after ", done, " of ", total, " bytes")
                     : Status::ok();
  };
  DSA_TRY(storage.write_all(writes, go_on));
  DSA_TRY(stopped());
  DSA_TRY(storage.finish());
  go_on(total);
  DSA_TRY(stopped());

  for_each_pointer(weights, config, [&](void*& p, size_t) {
    const char* from = static_cast<const char*>(p);
    const auto behind = std::upper_bound(ranges.begin(), ranges.end(), from,
                                         [](const char* a, const Range& b) { return a < b.begin; });
    const Range& range = behind[-1];
    p = memory + range.offset + (from - range.begin);
  });
  weights.converted.clear();
  weights.converted_bytes = 0;
  weights.placed_bytes = total;
  return Status::ok();
}

}  // namespace dsa
