// model/residuals.h: how the outputs of blocks flow on to later blocks.
//
// Attention residuals: a block reads a softmax mix of banked sources and the running sum. The running sum is
// banked, raw, every `block` layers and then starts anew. Plain residuals and hyper-connections have their
// place beside it.
#pragma once

#include <algorithm>
#include <vector>

#include "model/activations.h"
#include "ops/ops.h"

namespace dsa {

class AttnResiduals {
 public:
  // The embeddings are the first running sum; `running` holds them.
  AttnResiduals(Step& step, int block, float eps)
      : step_(step), a_(step.activations()), block_(block), eps_(eps) {}

  // What the next block reads, into `x`: the mix, or the running sum while nothing is banked.
  const Tensor& mix(const Tensor& query, Tensor x) {
    int n = 0;
    for (int i = 0; i < num_banks_; ++i) sources_[n++] = a_.banks[size_t(i)].f32();
    if (has_running_) sources_[n++] = a_.running.f32();
    if (num_banks_ == 0) return a_.running;
    ops::attn_residual(step_, sources_, n, query, eps_, x);
    mixed_ = x;
    return mixed_;
  }

  // Before the attention of a layer is added: the first layer of each block banks the running sum.
  void bank(int layer) {
    if (layer % block_ != 0) return;
    std::swap(a_.banks[size_t(num_banks_++)].data, a_.running.data);
    has_running_ = false;
  }

  void add(const Tensor& y) {
    if (has_running_) {
      ops::add(step_, a_.running, y, a_.running);
    } else {
      std::copy(y.f32(), y.f32() + y.count(), a_.running.f32());
      has_running_ = true;
    }
  }

  // Goes on with some rows of the step only, ascending: of the last layer nothing else is read any more.
  void keep(const std::vector<int32_t>& rows) {
    const auto keep_in = [&](Tensor& source) {
      for (size_t i = 0; i < rows.size(); ++i) {
        const float* from = source.f32() + rows[i] * source.stride[0];
        std::copy(from, from + source.dim[1], source.f32() + int64_t(i) * source.stride[0]);
      }
    };
    for (int i = 0; i < num_banks_; ++i) keep_in(a_.banks[size_t(i)]);
    keep_in(a_.running);
    a_.set_tokens(int(rows.size()));
  }

 private:
  Step& step_;
  Activations& a_;
  int block_;
  float eps_;
  int num_banks_ = 0;
  bool has_running_ = true;
  Tensor mixed_;
  const float* sources_[AttnResidualArgs::kMaxSources];
};

}  // namespace dsa
