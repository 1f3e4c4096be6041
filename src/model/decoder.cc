#include "model/decoder.h"

#include <algorithm>
#include <atomic>

#include "model/families/families.h"
#include "model/room.h"
#include "model/weight_placement.h"
#include "ops/ops.h"

namespace dsa {
namespace {

// The layout, and in it the places of the layers.
StateLayout state_layout_of(const ModelConfig& c, CacheFormat format, DecoderWeights& weights) {
  StateLayout placed;
  for (LayerWeights& w : weights.layers) {
    switch (w.attention) {
      case AttentionKind::kda: w.state_index = placed.kda_layers++; break;
      case AttentionKind::latent: w.state_index = placed.latent_layers++; break;
      case AttentionKind::grouped: w.state_index = placed.kv_layers++; break;
    }
    if (w.indexer == IndexerKind::full) w.index_layer = placed.index_layers++;
  }
  return dsa::state_layout_of(c, format);
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

// What kernels need beside weights and activations, made once by the host.
struct Tables {
  const float** sources = nullptr;  // [banks]
  float* frequencies = nullptr;     // [rope_dim / 2]
  struct Layer {
    ExpertMatrix *gates, *ups, *downs;  // [experts]
  };
  std::vector<Layer> layers;

  Tables(const ModelConfig& c, Room& room) {
    sources = room.array<const float*>(size_t(c.num_banks()) + 1);
    frequencies = room.array<float>(c.rope.frequencies.size());
    const size_t experts = size_t(c.moe.experts);
    for (const LayerConfig& layer : c.layers)
      layers.push_back(layer.moe ? Layer{room.array<ExpertMatrix>(experts), room.array<ExpertMatrix>(experts),
                                         room.array<ExpertMatrix>(experts)}
                                 : Layer{});
  }
};

BatchMemory::Limits batch_limits(const ModelConfig& c, const ModelOptions& options) {
  return {options.max_step_tokens, options.max_step_sequences, (c.max_context + kPageSize - 1) / kPageSize,
          c.vision.layers > 0 ? c.hidden : 0};
}

uint64_t activation_bytes(const ModelConfig& c, const ModelOptions& options) {
  Room room;
  const Activations counted(c, options.max_step_tokens, options.max_step_sequences, room);
  return room.used();
}
uint64_t table_bytes(const ModelConfig& c) {
  Room room;
  const Tables counted(c, room);
  return room.used();
}
uint64_t logit_bytes(const ModelConfig& c, const ModelOptions& options) {
  return uint64_t(options.max_step_sequences) * uint64_t(c.vocab) * sizeof(float);
}
uint64_t step_bytes(const ModelConfig& c, const ModelOptions& options, const StateLayout& layout) {
  return activation_bytes(c, options) + table_bytes(c) + logit_bytes(c, options) +
         BatchMemory::bytes(batch_limits(c, options), layout);
}

Result<Decoder::Memories> allocate(const ModelConfig& c, const ModelOptions& options,
                                   const StateLayout& layout, Storage& storage) {
  Decoder::Memories m;
  DSA_ASSIGN(m.activations, storage.allocate(activation_bytes(c, options), "the activations"));
  DSA_ASSIGN(m.logits, storage.allocate_mirror(logit_bytes(c, options), "the logits"));
  DSA_ASSIGN(m.tables, storage.allocate_mirror(table_bytes(c), "the tables of the model"));
  DSA_ASSIGN(m.batch, BatchMemory::create(batch_limits(c, options), layout, storage));
  m.bytes = step_bytes(c, options, layout);
  return m;
}

Activations activations_in(const ModelConfig& c, const ModelOptions& options, void* memory) {
  Room room(memory);
  return Activations(c, options.max_step_tokens, options.max_step_sequences, room);
}

// Recordings outlive a decoder, and the next one may get its memory.
uint64_t next_serial() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Decoder::Decoder(std::shared_ptr<const ModelConfig> config, std::shared_ptr<const Checkpoint> checkpoint,
                 std::unique_ptr<DecoderWeights> weights, Backend& backend, const ModelOptions& options,
                 const StateLayout& layout, Memories memories)
    : config_(std::move(config)),
      checkpoint_(std::move(checkpoint)),
      weights_(std::move(weights)),
      backend_(backend),
      options_(options),
      layout_(layout),
      serial_(next_serial()),
      memories_(std::move(memories)),
      activations_(
          std::make_unique<Activations>(activations_in(*config_, options, memories_.activations.get()))),
      residuals_(create_residuals(*config_)) {
  if (config_->vision.layers > 0)
    vision_ = std::make_unique<VisionTower>(*config_, weights_->vision, backend_);
}

Status Decoder::prepare() {
  fill_tables();
  if (options_.route == Route::fast)
    fp8_rows_ = options_.fp8_rows >= 0 ? options_.fp8_rows : backend_.fp8_rows();
  if (options_.expand_rows < 0) options_.expand_rows = backend_.expand_rows();
  if (fp8_rows_ > 0) {
    DSA_ASSIGN(fp8_workspace_, Fp8Workspace::create(*config_, *weights_, *activations_, options_, backend_));
    if (fp8_workspace_) fp8_workspace_bytes_ = Fp8Workspace::bytes(*config_, *weights_, options_);
    memories_.bytes += fp8_workspace_bytes_;
  }
  return backend_.storage().finish();
}

Decoder::~Decoder() = default;

void Decoder::fill_tables() {
  const ModelConfig& c = *config_;
  Room host_room(memories_.tables.host.get()), room(memories_.tables.device.get());
  const Tables made(c, host_room), tables(c, room);
  for (size_t i = 0; i < activations_->banks.size(); ++i) made.sources[i] = activations_->banks[i].f32();
  activations_->sources = tables.sources;
  std::copy(c.rope.frequencies.begin(), c.rope.frequencies.end(), made.frequencies);
  frequencies_ = Tensor(tables.frequencies, DType::f32, {int64_t(c.rope.frequencies.size())});
  for (size_t l = 0; l < c.layers.size(); ++l) {
    MoeWeights& w = weights_->layers[l].moe;
    for (size_t e = 0; e < w.experts.size(); ++e) {
      const ExpertWeights& expert = w.experts[(e + size_t(options_.rotate_experts)) % w.experts.size()];
      made.layers[l].gates[e] = expert.gate;
      made.layers[l].ups[e] = expert.up;
      made.layers[l].downs[e] = expert.down;
      for (const ExpertMatrix* matrix : {&expert.gate, &expert.up, &expert.down})
        if (matrix->data != nullptr &&
            std::find(w.types.begin(), w.types.end(), matrix->type) == w.types.end())
          w.types.push_back(matrix->type);
    }
    w.gates = tables.layers[l].gates;
    w.ups = tables.layers[l].ups;
    w.downs = tables.layers[l].downs;
  }
  backend_.storage().upload(memories_.tables, 0, room.used());
}

uint64_t Decoder::host_bytes() const {
  return (backend_.storage().is_host() ? memories_.bytes : 0) + weights_->converted_bytes;
}

uint64_t Decoder::device_bytes() const {
  if (backend_.storage().is_host()) return 0;
  return memories_.bytes + weights_->placed_bytes;
}

Result<Tensor> Decoder::run(const StepPlan& plan, const PagePool& pool) {
  DSA_TRY(put(plan, pool, {}));
  const int64_t rows = int64_t(batch_.logit_rows.size());
  backend_.storage().download(memories_.logits, 0, size_t(rows) * size_t(config_->vocab) * sizeof(float));
  DSA_TRY(backend_.storage().finish());
  return Tensor(memories_.logits.host.get(), DType::f32, {rows, config_->vocab});
}

Status Decoder::launch(const StepPlan& plan, const PagePool& pool, std::span<const SampleRow> asked) {
  DSA_ASSERT(launched_ - collected_ < uint64_t(kLaunchesMax));
  DSA_TRY(put(plan, pool, asked));
  const int side = int(launched_ % kLaunchesMax);
  memories_.batch.fetch_sampled(batch_, backend_.storage(), side);
  launches_[side] = {backend_.storage().mark(), asked.size()};
  ++launched_;
  return Status::ok();
}

Result<std::span<const SampledToken>> Decoder::collect() {
  DSA_ASSERT(collected_ < launched_);
  const int side = int(collected_++ % kLaunchesMax);
  DSA_TRY(backend_.storage().wait(launches_[side].mark));
  return memories_.batch.sampled(side, launches_[side].rows);
}

// Everything of a step but the wait for it.
Status Decoder::put(const StepPlan& plan, const PagePool& pool, std::span<const SampleRow> asked) {
  Activations& a = *activations_;
  if (plan.tokens() > options_.max_step_tokens || int(plan.sequences.size()) > options_.max_step_sequences)
    return error(Code::limit, "a step of ", plan.tokens(), " tokens and ", plan.sequences.size(),
                 " sequences; the model was loaded for ", options_.max_step_tokens, " and ",
                 options_.max_step_sequences);
  for (const SequenceStep& s : plan.sequences)
    for (int t = 0; s.tokens != nullptr && t < s.count; ++t)
      if (s.tokens[t] < 0 || s.tokens[t] >= config_->vocab)
        return error(Code::argument, "token ", s.tokens[t], " is not in the vocabulary of ", config_->vocab)
            .with_fix(Fix::input);
  const auto thread = backend_.enter_thread();
  const bool replays = can_replay(plan);
  batch_.set(plan, layout_, config_->hidden, replays ? batch_limits(*config_, options_).pages : 0, asked);
  a.set_tokens(batch_.tokens);
  const BatchView view = memories_.batch.publish(batch_, backend_.storage(), int(launched_ % kLaunchesMax));
  Step s(backend_, pool, batch_, view, a, options_.route, a.workspace);
  try {
    if (replays)
      replay(s, replay_key(pool));
    else
      forward(s);
  } catch (...) {  // the next step writes where this one may still read
    (void)backend_.storage().finish();
    throw;
  }
  return Status::ok();
}

// A replay counts as the step did that was recorded.
void Decoder::replay(Step& s, uint64_t key) {
  const ExpertCounts before = counts_;
  bool ran = false;
  backend_.replay(key, [&] {
    counts_ = before;
    forward(s);
    ran = true;
  });
  ExpertCounts& counts = counts_of_replays_[key];
  if (ran)
    counts = {counts_.rows - before.rows, counts_.fp8_rows - before.fp8_rows};
  else
    counts_.rows += counts.rows, counts_.fp8_rows += counts.fp8_rows;
}

// A step of one token for each sequence, that nobody looks into.
bool Decoder::can_replay(const StepPlan& plan) const {
  if (!backend_.can_replay() || !options_.replay || options_.selection != Selection::learned || observer_)
    return false;
  for (const SequenceStep& s : plan.sequences)
    if (s.count != 1 || !s.wants_logits || !s.placed.empty()) return false;
  return true;
}

// Everything that the launches of such a step depend on beside memory whose place does not change.
uint64_t Decoder::replay_key(const PagePool& pool) const {
  const bool selects = config_->indexer.top_k > 0 && !config_->indexer.selects_all(batch_.max_visible);
  const SampleFlags flags = sample_flags(batch_.asked, config_->vocab);
  const int choice = batch_.asked.empty() ? 0 : 1 + flags.draws + 2 * flags.cuts_k + 4 * flags.cuts_p;
  uint64_t key = 0xcbf29ce484222325u;
  const auto pages = uint64_t(reinterpret_cast<uintptr_t>(pool.latents(0, nullptr, 0).pages));
  for (const uint64_t part : {uint64_t(batch_.sequences), uint64_t(batch_.max_pages), uint64_t(selects),
                              uint64_t(choice), pages, serial_})
    key = (key ^ part) * 0x100000001b3u;
  return key;
}

void Decoder::forward(Step& s) {
  ops::embedding(s, weights_->embedding, s.activations().running);  // [tokens, hidden]
  ops::place_rows(s, s.activations().running);  // where features of pictures stand in for tokens
  residuals_->begin(s);
  for (size_t l = 0; l < weights_->layers.size(); ++l) layer(s, weights_->layers[l], int(l));
  output(s);
}

void Decoder::layer(Step& s, const LayerWeights& w, int number) {
  Activations& a = s.activations();
  const BlockContext c{*config_, options_, observer_, frequencies_, fp8_workspace_.get(), fp8_rows_, counts_};

  const auto output = [&] {
    const Tensor sum = residuals_->sum(s);
    return BlockOutput{sum.is_null() ? a.out : sum, sum};
  };
  const BlockInput in{residuals_->attention_input(s, w, number), w.attn_norm};
  switch (w.attention) {
    case AttentionKind::kda: kda(s, c, w, in, output()); break;
    case AttentionKind::latent: latent_attention(s, c, w, number, in, output()); break;
    case AttentionKind::grouped: grouped_attention(s, c, w, in, output()); break;
  }
  residuals_->add(s, a.out);

  // Behind the attention of the last layer only the rows whose logits are wanted go on.
  if (size_t(number) + 1 == weights_->layers.size()) {
    if (batch_.logit_rows.empty()) return;
    residuals_->keep(s);
    a.set_tokens(int(batch_.logit_rows.size()));
  }
  const BlockInput mlp_in{residuals_->mlp_input(s, w), w.mlp_norm};
  if (w.is_moe)
    moe(s, c, w.moe, mlp_in, output());
  else
    mlp(s, c, w.mlp, mlp_in, output());
  residuals_->add(s, a.out);
}

// Logits of the rows that the last layer kept.
void Decoder::output(Step& s) {
  Activations& a = s.activations();
  const int64_t rows = int64_t(batch_.logit_rows.size());
  if (rows == 0) return;
  const Tensor logits(memories_.logits.device.get(), DType::f32, {rows, config_->vocab});
  ops::norm_linears(s, residuals_->output(s, *weights_), weights_->final_norm, config_->norm_eps, a.h,
                    {{weights_->head, logits}});  // [sequences, vocab]
  if (!batch_.asked.empty()) ops::sample(s, logits);
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
  const StateLayout layout = state_layout_of(*own_config, options.cache_format, *weights);
  DSA_ASSIGN(Decoder::Memories memories, allocate(*own_config, options, layout, backend.storage()));
  if (backend.storage().is_host())
    DSA_TRY(read_ahead(*checkpoint, progress));
  else
    DSA_TRY(place_weights(*weights, *own_config, backend.storage(), progress));
  auto decoder = std::make_unique<Decoder>(std::move(own_config), std::move(checkpoint), std::move(weights),
                                           backend, options, layout, std::move(memories));
  DSA_TRY(decoder->prepare());
  return decoder;
}

Result<ModelSize> measure_model(const ModelConfig& config, const Checkpoint& checkpoint,
                                const ModelOptions& options) {
  DecoderWeights weights;
  WeightLoader loader(checkpoint, config.tensor_prefix, weights, WeightLoader::Reads::headers);
  const Family* family = find_family(config.architecture);
  DSA_ASSERT(family != nullptr);
  DSA_TRY(family->load(loader, config, weights));
  const StateLayout layout = state_layout_of(config, options.cache_format, weights);
  ModelSize size;
  size.weights = placed_weight_bytes(weights, config);
  size.step = step_bytes(config, options, layout);
  size.page = layout.page_bytes();
  size.state = layout.state_bytes();
  size.host = size.step - activation_bytes(config, options) +
              BatchMemory::bytes(batch_limits(config, options), layout);  // which the host has twice
  if (options.fp8_rows > 0 && options.route == Route::fast)
    size.fp8_workspace = Fp8Workspace::bytes(config, weights, options);
  return size;
}

uint64_t step_memory_bytes(const ModelConfig& config, const ModelOptions& options) {
  return step_bytes(config, options, state_layout_of(config, options.cache_format));
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
