// kernels/kernel_table.h: the operators of one backend, as function pointers.
#pragma once

#include <string>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/add/add.h"
#include "kernels/add_bias/add_bias.h"
#include "kernels/alpha_swiglu/alpha_swiglu.h"
#include "kernels/append_rows/append_rows.h"
#include "kernels/attn_residual/attn_residual.h"
#include "kernels/embedding/embedding.h"
#include "kernels/expand_pools/expand_pools.h"
#include "kernels/expert_combine/expert_combine.h"
#include "kernels/expert_down/expert_down.h"
#include "kernels/expert_gather/expert_gather.h"
#include "kernels/expert_groups/expert_groups.h"
#include "kernels/expert_linear/expert_linear.h"
#include "kernels/expert_plan/expert_plan.h"
#include "kernels/expert_up/expert_up.h"
#include "kernels/fp8_expert_linear/fp8_expert_linear.h"
#include "kernels/fp8_pack/fp8_pack.h"
#include "kernels/fp8_round/fp8_round.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/gather_rows/gather_rows.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gqa_attention/gqa_attention.h"
#include "kernels/grid_embedding/grid_embedding.h"
#include "kernels/hadamard/hadamard.h"
#include "kernels/head_linear/head_linear.h"
#include "kernels/head_norm/head_norm.h"
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/index_scores/index_scores.h"
#include "kernels/kda/kda.h"
#include "kernels/kda_decode/kda_decode.h"
#include "kernels/kda_gate/kda_gate.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear/linear.h"
#include "kernels/linears/linears.h"
#include "kernels/mxfp4_expert_linear/mxfp4_expert_linear.h"
#include "kernels/mxfp4_linear/mxfp4_linear.h"
#include "kernels/mxfp4_to_fp8/mxfp4_to_fp8.h"
#include "kernels/place_rows/place_rows.h"
#include "kernels/pool_keys/pool_keys.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/rope_2d/rope_2d.h"
#include "kernels/router/router.h"
#include "kernels/sample/sample.h"
#include "kernels/short_conv/short_conv.h"
#include "kernels/sigmoid_gate/sigmoid_gate.h"
#include "kernels/softmax_router/softmax_router.h"
#include "kernels/sparse_attention/sparse_attention.h"
#include "kernels/top_k/top_k.h"
#include "kernels/vision_attention/vision_attention.h"

// Every operator with its arguments, and those that have a SIMD version.
#define DSA_FOR_EACH_PLAIN_KERNEL(X)        \
  X(embedding, EmbeddingArgs)               \
  X(layer_norm, LayerNormArgs)              \
  X(add, AddArgs)                           \
  X(router, RouterArgs)                     \
  X(rope, RopeArgs)                         \
  X(hadamard, HadamardArgs)                 \
  X(fp8_round, Fp8RoundArgs)                \
  X(expert_plan, ExpertPlanArgs)            \
  X(expert_groups, ExpertGroupsArgs)        \
  X(expert_gather, ExpertGatherArgs)        \
  X(append_rows, AppendRowsArgs)            \
  X(place_rows, PlaceRowsArgs)              \
  X(gather_rows, GatherRowsArgs)            \
  X(grid_embedding, GridEmbeddingArgs)      \
  X(add_bias, AddBiasArgs)                  \
  X(softmax_router, SoftmaxRouterArgs)      \
  X(pool_keys, PoolKeysArgs)                \
  X(expand_pools, ExpandPoolsArgs)          \
  X(hyper_spread, HyperSpreadArgs)          \
  X(hyper_mean, HyperMeanArgs)              \
  X(mxfp4_exponents, Mxfp4ExponentsArgs)    \
  X(mxfp4_to_fp8, Mxfp4ToFp8Args)           \
  X(fp8_pack, Fp8PackArgs)                  \
  X(fp8_expert_linear, Fp8ExpertLinearArgs) \
  X(mxfp4_expert_linear, Mxfp4ExpertLinearArgs)
#define DSA_FOR_EACH_SIMD_KERNEL(X)        \
  X(rms_norm, RmsNormArgs)                 \
  X(linear, LinearArgs)                    \
  X(expert_linear, ExpertLinearArgs)       \
  X(mxfp4_linear, Mxfp4LinearArgs)         \
  X(head_linear, HeadLinearArgs)           \
  X(activation, ActivationArgs)            \
  X(sigmoid_gate, SigmoidGateArgs)         \
  X(attn_residual, AttnResidualArgs)       \
  X(expert_combine, ExpertCombineArgs)     \
  X(short_conv, ShortConvArgs)             \
  X(kda_gate, KdaGateArgs)                 \
  X(kda_step, KdaArgs)                     \
  X(kda_chunk, KdaArgs)                    \
  X(gated_norm, GatedNormArgs)             \
  X(index_scores, IndexScoresArgs)         \
  X(top_k, TopKArgs)                       \
  X(sparse_attention, SparseAttentionArgs) \
  X(gelu, GeluArgs)                        \
  X(rope_2d, Rope2dArgs)                   \
  X(vision_attention, VisionAttentionArgs) \
  X(gqa_attention, GqaAttentionArgs)       \
  X(alpha_swiglu, AlphaSwigluArgs)         \
  X(head_norm, HeadNormArgs)               \
  X(hyper_mix, HyperMixArgs)               \
  X(hyper_add, HyperAddArgs)               \
  X(sample, SampleArgs)
// Several operators in one, for backends that fuse.
#define DSA_FOR_EACH_FUSED_KERNEL(X) \
  X(linears, LinearsArgs)            \
  X(kda_decode, KdaDecodeArgs)       \
  X(expert_up, ExpertUpArgs)         \
  X(expert_down, ExpertDownArgs)
#define DSA_FOR_EACH_KERNEL(X) \
  DSA_FOR_EACH_PLAIN_KERNEL(X) \
  DSA_FOR_EACH_SIMD_KERNEL(X)  \
  DSA_FOR_EACH_FUSED_KERNEL(X)

namespace dsa {

struct KernelTable {
#define DSA_KERNEL_MEMBER(name, Args) void (*name)(const Args&, Queue&) = nullptr;
  DSA_FOR_EACH_KERNEL(DSA_KERNEL_MEMBER)
#undef DSA_KERNEL_MEMBER
};

struct KernelVariant {
  std::string name;  // "ref", "generic", "avx2", "avx512", "avx512vnni"
  KernelTable table;
};

// The reference: complete, plain, one thread.
const KernelTable& reference_kernels();
// All variants that this machine can run, the reference first, the best last. Each is complete: an operator that a
// variant does not have is the one of the variant before it.
const std::vector<KernelVariant>& cpu_kernel_variants();
// The best of them.
const KernelTable& cpu_kernels();

// Which variant the last one has each operator from; empty: it has none.
struct KernelCover {
  const char* op;
  std::string variant;
};
std::vector<KernelCover> kernel_cover(const std::vector<KernelVariant>& variants);

}  // namespace dsa
