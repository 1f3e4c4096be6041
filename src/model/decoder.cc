#include "model/decoder.h"

#include <algorithm>

#include "model/families/families.h"
#include "ops/ops.h"

namespace dsa {
namespace {

// The layout, and in it the places of the layers.
StateLayout state_layout_of(const ModelConfig& c, DecoderWeights& weights) {
  StateLayout placed;
  for (LayerWeights& w : weights.layers) {
    switch (w.attention) {
      case AttentionKind::kda: w.state_index = placed.kda_layers++; break;
      case AttentionKind::latent: w.state_index = placed.latent_layers++; break;
      case AttentionKind::grouped: w.state_index = placed.kv_layers++; break;
    }
    if (w.indexer == IndexerKind::full) w.index_layer = placed.index_layers++;
  }
  return dsa::state_layout_of(c);
}

// Reads every page of the files once, so that the first step does not wait for the disk.
Status read_ahead(const Checkpoint& checkpoint, const LoadProgress& progress) {
  constexpr size_t kPiece = size_t(64) << 20, kPage = 4096;
  uint64_t done = 0;
  for (const auto& file : checkpoint.files()) {
    volatile uint8_t sink = 0;
    for (size_t begin = 0; begin < file->size(); begin += kPiece) {
      if (progress && !progress(done, checkpoint.total_bytes()))
        return error(Code::cancelled, "the load was cancelled after ", done, " of ", checkpoint.total_bytes(),
                     " bytes");
      const size_t end = std::min(file->size(), begin + kPiece);
      for (size_t at = begin; at < end; at += kPage) sink = file->data()[at];
      done = std::min<uint64_t>(done + (end - begin), checkpoint.total_bytes());
    }
    (void)sink;
  }
  if (progress && !progress(checkpoint.total_bytes(), checkpoint.total_bytes()))
    return error(Code::cancelled, "the load was cancelled at its end");
  return Status::ok();
}

}  // namespace

Decoder::Decoder(std::shared_ptr<const ModelConfig> config, std::shared_ptr<const Checkpoint> checkpoint,
                 std::unique_ptr<DecoderWeights> weights, Backend& backend, const ModelOptions& options)
    : config_(std::move(config)),
      checkpoint_(std::move(checkpoint)),
      weights_(std::move(weights)),
      backend_(backend),
      options_(options),
      layout_(state_layout_of(*config_, *weights_)),
      activations_(
          std::make_unique<Activations>(*config_, options.max_step_tokens, options.max_step_sequences)),
      residuals_(create_residuals(*config_)) {
  if (config_->vision.layers > 0)
    vision_ = std::make_unique<VisionTower>(*config_, weights_->vision, backend_);
}

Result<Tensor> Decoder::run(const StepPlan& plan, const PagePool& pool) {
  Activations& a = *activations_;
  if (plan.tokens() > options_.max_step_tokens || int(plan.sequences.size()) > options_.max_step_sequences)
    return error(Code::limit, "a step of ", plan.tokens(), " tokens and ", plan.sequences.size(),
                 " sequences; the model was loaded for ", options_.max_step_tokens, " and ",
                 options_.max_step_sequences);
  for (const SequenceStep& s : plan.sequences)
    for (int t = 0; t < s.count; ++t)
      if (s.tokens[t] < 0 || s.tokens[t] >= config_->vocab)
        return error(Code::argument, "token ", s.tokens[t], " is not in the vocabulary of ", config_->vocab)
            .with_fix(Fix::input);
  batch_.set(plan, config_->hidden);
  a.set_tokens(batch_.tokens);
  Step s(backend_, pool, batch_, a, options_.route, a.workspace);

  ops::embedding(s, weights_->embedding, a.running);  // [tokens, hidden]
  ops::place_rows(s, a.running);                      // where features of pictures stand in for tokens
  residuals_->begin(s);
  for (size_t l = 0; l < weights_->layers.size(); ++l) layer(s, weights_->layers[l], int(l));
  output(s);
  return a.logits.first(int64_t(batch_.logit_rows.size()));
}

void Decoder::layer(Step& s, const LayerWeights& w, int number) {
  Activations& a = s.activations();
  const BlockContext c{*config_, options_, observer_};

  ops::rms_norm(s, residuals_->attention_input(s, w, number), w.attn_norm, config_->norm_eps, a.h);
  switch (w.attention) {
    case AttentionKind::kda: kda(s, c, w, a.h, a.out); break;
    case AttentionKind::latent: latent_attention(s, c, w, number, a.h, a.out); break;
    case AttentionKind::grouped: grouped_attention(s, c, w, a.h, a.out); break;
  }
  residuals_->add(s, a.out);

  // Behind the attention of the last layer only the rows whose logits are wanted go on.
  if (size_t(number) + 1 == weights_->layers.size()) {
    if (batch_.logit_rows.empty()) return;
    residuals_->keep(s, batch_.logit_rows);
  }
  ops::rms_norm(s, residuals_->mlp_input(s, w), w.mlp_norm, config_->norm_eps, a.h);  // [tokens, hidden]
  if (w.is_moe)
    moe(s, c, w.moe, a.h, a.out);
  else
    mlp(s, c, w.mlp, a.h, a.out);
  residuals_->add(s, a.out);
}

// Logits of the rows that the last layer kept.
void Decoder::output(Step& s) {
  Activations& a = s.activations();
  const int64_t rows = int64_t(batch_.logit_rows.size());
  if (rows == 0) return;
  ops::rms_norm(s, residuals_->output(s, *weights_), weights_->final_norm, config_->norm_eps, a.h);
  ops::linear(s, a.h, weights_->head, a.logits.first(rows));  // [sequences, vocab]
}

Result<std::unique_ptr<Decoder>> load_decoder(std::shared_ptr<const ModelConfig> config,
                                              std::shared_ptr<const Checkpoint> checkpoint, Backend& backend,
                                              const ModelOptions& options, const LoadProgress& progress) {
  if (options.max_step_tokens < 1 || options.max_step_sequences < 1)
    return error(Code::argument, "a step needs room for at least one token and one sequence");
  auto own_config = std::make_shared<ModelConfig>(*config);
  if (options.top_k > 0 && own_config->indexer.top_k > 0) {
    if (options.top_k % own_config->indexer.group != 0)
      return error(Code::argument, "top_k is ", options.top_k, ", expected a multiple of the ",
                   own_config->indexer.group, " positions that are selected together");
    own_config->indexer.top_k = options.top_k;
  }
  if (options.rotate_experts != 0 && own_config->moe.biased)
    return error(Code::unsupported, "experts with biases cannot be rotated");
  auto weights = std::make_unique<DecoderWeights>();
  WeightLoader loader(*checkpoint, own_config->tensor_prefix, *weights);
  const Family* family = find_family(own_config->architecture);
  DSA_ASSERT(family != nullptr);
  DSA_TRY(family->load(loader, *own_config, *weights));
  DSA_TRY(read_ahead(*checkpoint, progress));
  return std::make_unique<Decoder>(std::move(own_config), std::move(checkpoint), std::move(weights), backend,
                                   options);
}

uint64_t step_memory_bytes(const ModelConfig& config, const ModelOptions& options) {
  return Activations(config, options.max_step_tokens, options.max_step_sequences).bytes();
}

Result<std::unique_ptr<LanguageModel>> load_language_model(std::shared_ptr<const ModelConfig> config,
                                                           std::shared_ptr<const Checkpoint> checkpoint,
                                                           Backend& backend, const ModelOptions& options,
                                                           const LoadProgress& progress) {
  DSA_ASSIGN(std::unique_ptr<Decoder> decoder,
             load_decoder(std::move(config), std::move(checkpoint), backend, options, progress));
  return std::unique_ptr<LanguageModel>(std::move(decoder));
}

}  // namespace dsa
