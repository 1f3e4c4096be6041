// model/weights.h: the weights of each building block, as views of the checkpoint, and the loader that checks
// them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/storage.h"
#include "base/tensor.h"
#include "io/checkpoint.h"
#include "kernels/common/experts.h"
#include "model/model_config.h"
#include "model/weight_survey.h"
#include "ops/ops.h"

namespace dsa {

struct KdaWeights {
  Tensor q, k, v;    // [heads * dim, hidden]
  Tensor conv;       // [3 * heads * dim, width]  f32: the filters of q, k, v
  Tensor f_a, f_b;   // [rank, hidden], [heads * dim, rank]
  Tensor a_log;      // [>= heads]     f32
  Tensor dt_bias;    // [heads * dim]  f32
  Tensor b;          // [heads, hidden]
  Tensor gate_down;  // [dim, hidden]; null: the output gate is of full rank
  Tensor gate;       // [heads * dim, hidden or dim]
  Tensor o_norm, o;  // [dim] f32, [hidden, heads * dim]
};

struct IndexerWeights {
  Tensor q;                    // [heads * dim, q_rank]
  Tensor k;                    // [dim, hidden]
  Tensor k_norm, k_norm_bias;  // [dim]  f32; the bias may be null
  Tensor head_weights;         // [heads, hidden]
  Tensor pool_gate;            // [dim, hidden]; null: every position has a key of its own
  Tensor pool_places;          // [group, dim]  f32
};

struct LatentAttentionWeights {
  Tensor q_down, q_norm;    // [q_rank, hidden], [q_rank] f32; null: no query rank
  Tensor q_up;              // [heads * (nope + rope), q_rank or hidden]
  Tensor kv_down, kv_norm;  // [latent + rope, hidden], [latent] f32
  Tensor k_up, v_up;        // [heads, nope, latent], [heads, v_dim, latent]: views of one matrix
  Tensor gate, o;           // [heads * v_dim, hidden], null: no gate; [hidden, heads * v_dim]
  IndexerWeights indexer;
};

struct GroupedAttentionWeights {
  Tensor q, k, v, o;  // [heads * dim, hidden], [kv_heads * dim, hidden], [hidden, heads * dim]
  Tensor q_bias, k_bias, v_bias, o_bias;  // as many as the rows
  Tensor sinks;                           // [heads] f32
};

// The mixes of one block that reads and writes residual streams.
struct HyperWeights {
  Tensor fn;           // [mixes, streams * hidden]
  Tensor base, scale;  // [mixes], [3]  f32
};

struct MlpWeights {
  Tensor gate, up, down;  // [dim, hidden], [dim, hidden], [hidden, dim]
};

struct ExpertWeights {
  ExpertMatrix gate, up,
      down;  // [expert_dim, width], the same, [width, expert_dim]; width is latent or hidden
};

// Products of the experts of a layer with rows of FP8, for kernels; null: they have none.
struct Fp8Stage {
  const Mxfp4ExpertLinearGroup* direct = nullptr;  // [experts, matrices]  weights expanded within the product
  // The way through the workspace; null: there is no room for it.
  const Mxfp4ToFp8Group* expand = nullptr;         // [experts, matrices]
  const Fp8ExpertLinearGroup* multiply = nullptr;  // [experts, matrices]
  int matrices = 0, at_once = 0;                   // of an expert; experts for which there is room
  int in_dim = 0, out_dim = 0;
};

struct MoeWeights {
  Tensor router, router_bias;          // [experts, hidden], [experts] f32
  Tensor latent_down, latent_up;       // [latent, hidden], [hidden, latent]; null: no latent space
  Tensor latent_norm;                  // [latent] f32; null: no norm
  std::vector<ExpertWeights> experts;  // [experts]
  std::vector<DType> types;            // that they have
  const ExpertMatrix *gates = nullptr, *ups = nullptr, *downs = nullptr;  // [experts]  for kernels
  Fp8Stage fp8[2];                                                        // gate and up, then down
  MlpWeights shared;
  // Of experts with biases; ExpertWeights::gate then holds the rows of gate and up in turns.
  Tensor router_logit_bias;        // [experts]
  Tensor gate_up_bias, down_bias;  // [experts, 2 * expert_dim], [experts, hidden]
};

struct LayerWeights {
  AttentionKind attention = AttentionKind::kda;
  Tensor attn_mix, mlp_mix;  // [hidden] f32: the queries of attention residuals
  HyperWeights attn_hyper, mlp_hyper;
  Tensor attn_norm, mlp_norm;  // [hidden] f32
  KdaWeights kda;
  LatentAttentionWeights latent;
  GroupedAttentionWeights grouped;
  bool window = false;  // of grouped attention
  IndexerKind indexer = IndexerKind::none;
  bool is_moe = false;
  MoeWeights moe;
  MlpWeights mlp;
  int state_index = 0;  // among the layers of its attention kind
  int index_layer = 0;  // among the layers with index keys
};

// Biases and norms that a tower does not have are null.
struct VisionBlockWeights {
  Tensor norm0, norm1;        // [hidden] f32
  Tensor qkv, o;              // [3 * heads, dim, hidden], [hidden, heads * dim]
  Tensor qkv_bias, o_bias;    // [3 * heads * dim], [hidden] f32
  Tensor q_norm, k_norm;      // [dim] f32
  Tensor fc0, fc1;            // [mlp_dim, hidden], [hidden, mlp_dim]
  Tensor fc0_bias, fc1_bias;  // [mlp_dim], [hidden] f32
  Tensor up, up_bias;         // [mlp_dim, hidden], [mlp_dim] f32: of gated blocks, fc0 is the gate
};

struct VisionWeights {
  Tensor patch;       // [hidden, 3 * patch * patch]
  Tensor patch_bias;  // [hidden] f32; null: none
  Tensor positions;   // [rows, columns, hidden]; null: none
  std::vector<VisionBlockWeights> blocks;
  Tensor final_norm;          // [hidden] f32
  Tensor proj0, proj2, post;  // [merged, merged], [text hidden, merged], [text hidden] f32
  // Of a gated projector.
  Tensor downsample, downsample_bias;  // [text hidden, merged], [text hidden] f32
  Tensor merge_proj;                   // [text hidden, text hidden]
  Tensor merge_norm, merge_norm_bias;  // [text hidden] f32
  MlpWeights merge_mlp;                // projector_dim wide
};

struct DecoderWeights {
  Tensor embedding, head;         // [vocab, hidden]
  Tensor output_mix, final_norm;  // [hidden] f32; the mix belongs to attention residuals
  std::vector<LayerWeights> layers;
  VisionWeights vision;
  // Owners of what the views above show and the checkpoint does not hold.
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<void, Free>> converted;  // small tensors as f32, and what was not aligned
  uint64_t converted_bytes = 0;
  Memory placed;  // all of it, where kernels read no memory of the host
  uint64_t placed_bytes = 0;
};

// Finds tensors by name, checks shape and number format, and gives views. Errors name file, tensor, found,
// expected.
//
// Over a survey it notes what is asked for instead: nothing is read, nothing that is missing or does not fit is an
// error, and tensors may be null.
class WeightLoader {
 public:
  // What is read: everything, or headers alone, for the sizes of what a load would make; values are zeros then.
  enum class Reads { all, headers };

  WeightLoader(const Checkpoint& checkpoint, std::string prefix, DecoderWeights& owner,
               Reads reads = Reads::all)
      : checkpoint_(&checkpoint), prefix_(std::move(prefix)), owner_(owner), reads_(reads) {}
  WeightLoader(WeightSurvey& survey, std::string prefix, DecoderWeights& owner)
      : survey_(&survey), prefix_(std::move(prefix)), owner_(owner) {}

  // The same with another prefix.
  WeightLoader with_prefix(std::string prefix) const {
    WeightLoader other = *this;
    other.prefix_ = std::move(prefix);
    return other;
  }

  // `assumed` is the answer of a config alone.
  bool has(const std::string& name, bool assumed) const;
  // Whether the tensor is there must be as wanted: "'<name>' is missing, but <why>".
  Status expect(const std::string& name, bool wanted, const char* why) const;
  // A matrix as it lies in the file: bf16, f32, or FP8 with the scales of its tiles in <name>_scale_inv.
  Status matrix(const std::string& name, std::vector<int64_t> shape, Tensor& out);
  // The same for operators that read no FP8: an FP8 matrix is expanded here, once.
  Status plain_matrix(const std::string& name, std::vector<int64_t> shape, Tensor& out);
  // A small tensor of any float format, converted to f32. `at_least`: the first dimension may be longer.
  Status vector(const std::string& name, std::vector<int64_t> shape, Tensor& out, bool at_least = false);
  // Element-wise product of two vectors, as f32.
  Status product(const std::string& a, std::vector<int64_t> shape_a, const std::string& b,
                 std::vector<int64_t> shape_b, Tensor& out);
  // Calls f(e, weights) for each expert.
  using ExpertLoader = std::function<Status(int64_t e, ExpertWeights& out)>;
  Status for_each_expert(int64_t experts, std::vector<ExpertWeights>& out, const ExpertLoader& f);
  // An MXFP4 matrix (X.weight_packed, X.weight_scale) or one that matrix() reads (X.weight): what is there decides.
  Status expert_matrix(const std::string& name, int64_t out_dim, int64_t in_dim, ExpertMatrix& out);
  // The matrices of all experts in one tensor: MXFP4 (X_blocks, X_scales), or plain (X), which lies transposed and is
  // turned here, once.
  Status stacked_experts(const std::string& name, int64_t experts, int64_t out_dim, int64_t in_dim,
                         ExpertMatrix ExpertWeights::*pick, std::vector<ExpertWeights>& out);
  // f32 memory that lives as long as the weights, zeros; null over a survey, which fills nothing.
  float* own(size_t floats);

 private:
  Result<const StoredTensor*> find(const std::string& name, const std::vector<int64_t>& shape, TensorUse use,
                                   bool at_least = false);
  Status matrix_of(TensorUse use, const std::string& name, const std::vector<int64_t>& shape, Tensor& out);
  Status vector_of(TensorUse use, const std::string& name, const std::vector<int64_t>& shape, Tensor& out,
                   bool at_least);
  Result<const float*> block_scales(const std::string& name, const std::vector<int64_t>& shape);
  Status check_exponents(const StoredTensor& scales, const std::string& name) const;
  const void* aligned(const StoredTensor& tensor);
  void* own_bytes(size_t bytes);
  bool reads_all() const { return reads_ == Reads::all; }
  std::string file_of(const StoredTensor& tensor) const;
  const StoredTensor* stored(const std::string& name) const;

  const Checkpoint* checkpoint_ = nullptr;  // one of the two
  WeightSurvey* survey_ = nullptr;
  std::string prefix_;
  DecoderWeights& owner_;
  Reads reads_ = Reads::all;
};

}  // namespace dsa
