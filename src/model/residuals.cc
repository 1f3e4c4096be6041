#include "model/residuals.h"

#include "ops/ops.h"

namespace dsa {
namespace {

// Moves the rows whose logits are wanted to the front of a source.
void keep_rows(Step& s, const Tensor& source) {
  const int64_t rows = int64_t(s.batch().logit_rows.size());
  if (rows == source.dim[0]) return;  // all of them
  const Tensor kept(s.activations().kept.data, DType::f32, {rows, source.dim[1]});
  ops::gather_rows(s, source, Tensor(const_cast<int32_t*>(s.view().logit_rows), DType::i32, {rows}), kept);
  ops::copy(s, kept, source.first(rows));
}

class PlainResiduals final : public Residuals {
 public:
  void begin(Step&) override {}
  const Tensor& attention_input(Step& s, const LayerWeights&, int) override {
    return s.activations().running;
  }
  const Tensor& mlp_input(Step& s, const LayerWeights&) override { return s.activations().running; }
  Tensor sum(Step& s) override { return s.activations().running; }
  void add(Step&, const Tensor&) override {}  // blocks have done so
  void keep(Step& s) override { keep_rows(s, s.activations().running); }
  const Tensor& output(Step& s, const DecoderWeights&) override { return s.activations().running; }
};

class AttnResiduals final : public Residuals {
 public:
  AttnResiduals(int block, float eps) : block_(block), eps_(eps) {}

  // The embeddings are the first running sum. It lies behind the banked sources, so banking it only counts it.
  void begin(Step&) override { num_banks_ = 0, has_running_ = true; }

  const Tensor& attention_input(Step& s, const LayerWeights& w, int layer) override {
    const Tensor& input = mix(s, w.attn_mix);
    if (layer % block_ == 0) {
      ++num_banks_;
      has_running_ = false;
    }
    return input;
  }
  const Tensor& mlp_input(Step& s, const LayerWeights& w) override { return mix(s, w.mlp_mix); }

  void add(Step& s, const Tensor& y) override {
    const Tensor& running = s.activations().banks[size_t(num_banks_)];
    if (has_running_)
      ops::add(s, running, y, running);
    else
      ops::copy(s, y, running);
    has_running_ = true;
  }

  void keep(Step& s) override {
    for (int i = 0; i < num_sources(); ++i) keep_rows(s, s.activations().banks[size_t(i)]);
  }

  const Tensor& output(Step& s, const DecoderWeights& w) override { return mix(s, w.output_mix); }

 private:
  int num_sources() const { return num_banks_ + has_running_; }

  // The mix, or the running sum while nothing is banked.
  const Tensor& mix(Step& s, const Tensor& query) {
    const Activations& a = s.activations();
    if (num_banks_ == 0) return a.banks.front();
    ops::attn_residual(s, a.sources, num_sources(), query, eps_, a.x);
    return a.x;
  }

  int block_;
  float eps_;
  int num_banks_ = 0;
  bool has_running_ = true;
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
  void keep(Step& s) override { keep_rows(s, flat(s.activations())); }
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
