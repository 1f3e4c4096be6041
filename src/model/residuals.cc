#include "model/residuals.h"

#include <algorithm>

#include "ops/ops.h"

namespace dsa {
namespace {

// Moves the kept rows of one source to its front.
void keep_rows(const Tensor& source, const std::vector<int32_t>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* from = source.f32() + rows[i] * source.stride[0];
    std::copy(from, from + source.dim[1], source.f32() + int64_t(i) * source.stride[0]);
  }
}

class PlainResiduals final : public Residuals {
 public:
  void begin(Step&) override {}
  const Tensor& attention_input(Step& s, const LayerWeights&, int) override {
    return s.activations().running;
  }
  const Tensor& mlp_input(Step& s, const LayerWeights&) override { return s.activations().running; }
  void add(Step& s, const Tensor& y) override {
    ops::add(s, s.activations().running, y, s.activations().running);
  }
  void keep(Step& s, const std::vector<int32_t>& rows) override {
    keep_rows(s.activations().running, rows);
    s.activations().set_tokens(int(rows.size()));
  }
  const Tensor& output(Step& s, const DecoderWeights&) override { return s.activations().running; }
};

class AttnResiduals final : public Residuals {
 public:
  AttnResiduals(int block, float eps) : block_(block), eps_(eps) {}

  // The embeddings are the first running sum.
  void begin(Step&) override { num_banks_ = 0, has_running_ = true; }

  const Tensor& attention_input(Step& s, const LayerWeights& w, int layer) override {
    const Tensor& input = mix(s, w.attn_mix);
    if (layer % block_ == 0) bank(s.activations());
    return input;
  }
  const Tensor& mlp_input(Step& s, const LayerWeights& w) override { return mix(s, w.mlp_mix); }

  void add(Step& s, const Tensor& y) override {
    const Tensor& running = s.activations().running;
    if (has_running_)
      ops::add(s, running, y, running);
    else
      std::copy(y.f32(), y.f32() + y.count(), running.f32());
    has_running_ = true;
  }

  void keep(Step& s, const std::vector<int32_t>& rows) override {
    Activations& a = s.activations();
    for (int i = 0; i < num_banks_; ++i) keep_rows(a.banks[size_t(i)], rows);
    keep_rows(a.running, rows);
    a.set_tokens(int(rows.size()));
  }

  const Tensor& output(Step& s, const DecoderWeights& w) override { return mix(s, w.output_mix); }

 private:
  // The mix, or the running sum while nothing is banked.
  const Tensor& mix(Step& s, const Tensor& query) {
    Activations& a = s.activations();
    int n = 0;
    for (int i = 0; i < num_banks_; ++i) sources_[n++] = a.banks[size_t(i)].f32();
    if (has_running_) sources_[n++] = a.running.f32();
    input_ =
        num_banks_ == 0 ? a.running : a.x;  // banking moves the memory that the view points to, not the view
    if (num_banks_ > 0) ops::attn_residual(s, sources_, n, query, eps_, a.x);
    return input_;
  }

  // The running sum becomes a source and starts anew.
  void bank(Activations& a) {
    std::swap(a.banks[size_t(num_banks_++)].data, a.running.data);
    has_running_ = false;
  }

  int block_;
  float eps_;
  int num_banks_ = 0;
  bool has_running_ = true;
  Tensor input_;
  const float* sources_[AttnResidualArgs::kMaxSources];
};

class HyperResiduals final : public Residuals {
 public:
  explicit HyperResiduals(const ModelConfig& config) : config_(config.hyper), norm_eps_(config.norm_eps) {}

  void begin(Step& s) override { ops::hyper_spread(s, s.activations().running, s.activations().streams); }
  const Tensor& attention_input(Step& s, const LayerWeights& w, int) override { return mix(s, w.attn_hyper); }
  const Tensor& mlp_input(Step& s, const LayerWeights& w) override { return mix(s, w.mlp_hyper); }
  void add(Step& s, const Tensor& y) override {
    Activations& a = s.activations();
    ops::hyper_add(s, y, a.hyper_coefficients, a.streams);  // [tokens, streams, hidden]
  }
  void keep(Step& s, const std::vector<int32_t>& rows) override {
    keep_rows(flat(s.activations()), rows);
    s.activations().set_tokens(int(rows.size()));
  }
  const Tensor& output(Step& s, const DecoderWeights&) override {
    Activations& a = s.activations();
    ops::hyper_mean(s, a.streams, a.x);  // [tokens, hidden]
    return a.x;
  }

 private:
  static Tensor flat(const Activations& a) {
    return a.streams.reshape({a.streams.dim[0], a.streams.dim[1] * a.streams.dim[2]});
  }

  const Tensor& mix(Step& s, const HyperWeights& w) {
    Activations& a = s.activations();
    ops::exact_linear(s, flat(a), w.fn, a.hyper_logits);  // [tokens, mixes]
    ops::hyper_mix(s, a.streams, a.hyper_logits, w.base, w.scale, config_.iterations, norm_eps_, config_.eps,
                   a.x, a.hyper_coefficients);
    return a.x;
  }

  HyperConfig config_;
  float norm_eps_;
};

}  // namespace

std::unique_ptr<Residuals> create_residuals(const ModelConfig& config) {
  switch (config.residual) {
    case ResidualKind::attn_residual:
      return std::make_unique<AttnResiduals>(config.residual_block, config.norm_eps);
    case ResidualKind::plain: return std::make_unique<PlainResiduals>();
    case ResidualKind::hyper: return std::make_unique<HyperResiduals>(config);
  }
  return nullptr;
}

}  // namespace dsa
