#include "bench/synthetic_model.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "io/json.h"
#include "kernels/common/numbers.h"

namespace dsa::bench {
namespace {

enum class Fill { zero, one, normal_f32, normal_bf16, nibbles, exponents };

struct Entry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  Fill fill;
  uint64_t bytes() const {
    uint64_t n = dtype == "F32" ? 4 : dtype == "BF16" ? 2 : 1;
    for (int64_t d : shape) n *= uint64_t(d);
    return n;
  }
};

class Tensors {
 public:
  void matrix(const std::string& name, int64_t rows, int64_t cols) {
    add(name + ".weight", "BF16", {rows, cols}, Fill::normal_bf16);
  }
  void norm(const std::string& name, int64_t n) { add(name + ".weight", "F32", {n}, Fill::one); }
  void vector(const std::string& name, std::vector<int64_t> shape, Fill fill) {
    add(name, "F32", std::move(shape), fill);
  }
  void mxfp4(const std::string& name, int64_t rows, int64_t cols) {
    add(name + ".weight_packed", "U8", {rows, cols / 2}, Fill::nibbles);
    add(name + ".weight_scale", "U8", {rows, cols / kMxfp4Block}, Fill::exponents);
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  void add(const std::string& name, const char* dtype, std::vector<int64_t> shape, Fill fill) {
    entries_.push_back({"language_model." + name, dtype, std::move(shape), fill});
  }
  std::vector<Entry> entries_;
};

Json config_of(const SyntheticShape& s) {
  Json kda = Json::array(), latent = Json::array();
  for (int l = 1; l <= s.layers; ++l) (l % 4 == 0 || l == s.layers ? latent : kda).push_back(l);
  Json text = {
      {"model_type", "kimi_linear"},
      {"vocab_size", s.vocab},
      {"hidden_size", s.hidden},
      {"num_hidden_layers", s.layers},
      {"max_position_embeddings", 65536},
      {"rms_norm_eps", 1e-5},
      {"hidden_act", "situ"},
      {"activation_situ_beta", 4.0},
      {"activation_situ_linear_beta", 25.0},
      {"attn_res_block_size", 4},
      {"first_k_dense_replace", 1},
      {"moe_layer_freq", 1},
      {"intermediate_size", 2 * s.hidden},
      {"latent_moe_use_norm", true},
      {"mla_use_nope", true},
      {"mla_use_output_gate", true},
      {"moe_intermediate_size", s.expert_dim},
      {"moe_renormalize", true},
      {"moe_router_activation_func", "sigmoid"},
      {"num_attention_heads", s.hidden / 128},
      {"num_key_value_heads", s.hidden / 128},
      {"num_experts", s.experts},
      {"num_experts_per_token", s.experts_per_token},
      {"num_shared_experts", 1},
      {"q_lora_rank", 512},
      {"kv_lora_rank", 512},
      {"qk_nope_head_dim", 128},
      {"qk_rope_head_dim", 64},
      {"v_head_dim", 128},
      {"routed_expert_hidden_size", s.latent_dim},
      {"routed_scaling_factor", 1.0},
      {"linear_attn_config",
       {{"full_attn_layers", latent},
        {"kda_layers", kda},
        {"gate_lower_bound", -5.0},
        {"head_dim", 128},
        {"num_heads", s.hidden / 128},
        {"short_conv_kernel_size", 4},
        {"use_full_rank_gate", true}}},
      {"dsa_config",
       {{"dsa_layers", latent}, {"index_head_dim", 128}, {"index_n_heads", 8}, {"index_topk", s.top_k}}}};
  return {{"architectures", {"KimiK31ForConditionalGeneration"}}, {"text_config", text}};
}

Tensors tensors_of(const ModelConfig& c) {
  Tensors t;
  const int64_t hidden = c.hidden, channels = int64_t(c.kda.heads) * c.kda.head_dim;
  const LatentAttentionConfig& a = c.latent;
  const auto mlp = [&](const std::string& name, int64_t dim) {
    t.matrix(name + "gate_proj", dim, hidden);
    t.matrix(name + "up_proj", dim, hidden);
    t.matrix(name + "down_proj", hidden, dim);
  };
  t.matrix("model.embed_tokens", c.vocab, hidden);
  t.matrix("lm_head", c.vocab, hidden);
  t.norm("model.norm", hidden);
  t.norm("model.output_attn_res_norm", hidden);
  t.matrix("model.output_attn_res_proj", 1, hidden);
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const std::string layer = concat("model.layers.", l, "."), attn = layer + "self_attn.";
    for (const char* name :
         {"input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"})
      t.norm(layer + name, hidden);
    t.matrix(layer + "self_attention_res_proj", 1, hidden);
    t.matrix(layer + "mlp_res_proj", 1, hidden);
    if (c.layers[l].attention == AttentionKind::kda) {
      for (const char* name : {"q_proj", "k_proj", "v_proj", "g_proj"})
        t.matrix(attn + name, channels, hidden);
      for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"})
        t.vector(attn + name, {channels, 1, c.kda.conv_width}, Fill::normal_f32);
      t.matrix(attn + "f_a_proj", c.kda.head_dim, hidden);
      t.matrix(attn + "f_b_proj", channels, c.kda.head_dim);
      t.vector(attn + "A_log", {c.kda.heads}, Fill::zero);
      t.vector(attn + "dt_bias", {channels}, Fill::zero);
      t.matrix(attn + "b_proj", c.kda.heads, hidden);
      t.norm(attn + "o_norm", c.kda.head_dim);
      t.matrix(attn + "o_proj", hidden, channels);
    } else {
      t.matrix(attn + "q_a_proj", a.q_rank, hidden);
      t.norm(attn + "q_a_layernorm", a.q_rank);
      t.matrix(attn + "q_b_proj", int64_t(a.heads) * (a.nope_dim + a.rope_dim), a.q_rank);
      t.matrix(attn + "kv_a_proj_with_mqa", a.latent_dim + a.rope_dim, hidden);
      t.norm(attn + "kv_a_layernorm", a.latent_dim);
      t.matrix(attn + "kv_b_proj", int64_t(a.heads) * (a.nope_dim + a.v_dim), a.latent_dim);
      t.matrix(attn + "g_proj", int64_t(a.heads) * a.v_dim, hidden);
      t.matrix(attn + "o_proj", hidden, int64_t(a.heads) * a.v_dim);
      t.matrix(attn + "indexer.wq_b", int64_t(c.indexer.heads) * c.indexer.dim, a.q_rank);
      t.matrix(attn + "indexer.wk", c.indexer.dim, hidden);
      t.norm(attn + "indexer.k_norm", c.indexer.dim);
      t.matrix(attn + "indexer.weights_proj", c.indexer.heads, hidden);
    }
    if (!c.layers[l].moe) {
      mlp(layer + "mlp.", c.mlp.dim);
      continue;
    }
    const std::string moe = layer + "block_sparse_moe.";
    t.matrix(moe + "gate", c.moe.experts, hidden);
    t.vector(moe + "gate.e_score_correction_bias", {c.moe.experts}, Fill::zero);
    t.matrix(moe + "routed_expert_down_proj", c.moe.latent_dim, hidden);
    t.matrix(moe + "routed_expert_up_proj", hidden, c.moe.latent_dim);
    t.norm(moe + "routed_expert_norm", c.moe.latent_dim);
    mlp(moe + "shared_experts.", c.moe.shared_dim);
    for (int e = 0; e < c.moe.experts; ++e) {
      const std::string expert = concat(moe, "experts.", e, ".");
      t.mxfp4(expert + "w1", c.moe.expert_dim, c.moe.latent_dim);
      t.mxfp4(expert + "w3", c.moe.expert_dim, c.moe.latent_dim);
      t.mxfp4(expert + "w2", c.moe.latent_dim, c.moe.expert_dim);
    }
  }
  return t;
}

// Cheap and even: a sum of two uniform numbers stands in for a normal one.
void fill(const Entry& entry, uint8_t* data, uint64_t& seed) {
  const auto next = [&seed] {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
  };
  const uint64_t n = entry.bytes();
  const float scale = 1.7f / std::sqrt(float(entry.shape.back()));
  const auto random = [&] {
    const uint64_t bits = next();
    return scale * (float(bits & 0xffffff) + float(bits >> 40) - 16777216.f) / 16777216.f;
  };
  switch (entry.fill) {
    case Fill::zero: memset(data, 0, n); break;
    case Fill::one:
      for (uint64_t i = 0; i < n / 4; ++i) reinterpret_cast<float*>(data)[i] = 1.f;
      break;
    case Fill::normal_f32:
      for (uint64_t i = 0; i < n / 4; ++i) reinterpret_cast<float*>(data)[i] = random();
      break;
    case Fill::normal_bf16:
      for (uint64_t i = 0; i < n / 2; ++i) reinterpret_cast<bf16*>(data)[i] = to_bf16(random());
      break;
    case Fill::nibbles:
      for (uint64_t i = 0; i + 8 <= n; i += 8) {
        const uint64_t bits = next();
        memcpy(data + i, &bits, 8);
      }
      break;
    case Fill::exponents:  // 2^-7 times up to 6, around 1 / sqrt(2048)
      for (uint64_t i = 0; i < n; ++i) data[i] = uint8_t(119 + next() % 2);
      break;
  }
}

// The bytes of weights that one token reads: all but the embedding and the experts that it does not choose.
uint64_t active_bytes(const Tensors& tensors, const ModelConfig& c) {
  double bytes = 0;
  for (const Entry& entry : tensors.entries()) {
    if (entry.name.find("embed_tokens") != std::string::npos) continue;
    const bool routed = entry.name.find(".experts.") != std::string::npos;
    bytes += double(entry.bytes()) * (routed ? double(c.moe.top_k) / c.moe.experts : 1.0);
  }
  return uint64_t(bytes);
}

}  // namespace

Result<SyntheticModel> make_synthetic_model(const SyntheticShape& shape) {
  SyntheticModel model;
  DSA_ASSIGN(model.config, parse_model_config(config_of(shape), "synthetic config"));
  const Tensors tensors = tensors_of(*model.config);

  Json header = Json::object();
  uint64_t at = 0;
  for (const Entry& entry : tensors.entries()) {
    header[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {at, at + entry.bytes()}}};
    at += entry.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');

  const uint64_t size = 8 + text.size() + at;
  const int fd = memfd_create("dsa_synthetic", 0);
  if (fd < 0 || ftruncate(fd, off_t(size)) != 0)
    return error(Code::out_of_memory, "no memory file of ", size, " bytes");
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return error(Code::out_of_memory, "no map of ", size, " bytes");
  auto* bytes = static_cast<uint8_t*>(memory);
  const uint64_t length = text.size();
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, text.data(), text.size());
  uint64_t seed = 88172645463325252u, offset = 8 + text.size();
  for (const Entry& entry : tensors.entries()) {
    fill(entry, bytes + offset, seed);
    offset += entry.bytes();
  }
  munmap(memory, size);

  auto checkpoint = Checkpoint::open_file("/proc/self/fd/" + std::to_string(fd));
  close(fd);  // the map keeps the memory
  DSA_TRY(checkpoint.status());
  model.checkpoint = std::move(checkpoint).value();
  model.active_weight_bytes = active_bytes(tensors, *model.config);
  return model;
}

}  // namespace dsa::bench
