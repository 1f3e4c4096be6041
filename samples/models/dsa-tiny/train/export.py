"""config.json and the two safetensors shards of the trained model.

    python export.py --config-only            config.json, generation_config.json from the tokenizer's ids
    python export.py --ckpt DIR --out DIR     shards and index from the training state
"""
import argparse
import json
import os
import random
import struct

import torch

import model as M
import quant

HERE = os.path.dirname(os.path.abspath(__file__))
KDA = [1, 2, 3, 5, 6, 7]
FULL = [4, 8, 9]


VISION = {"activation_func": "gelu_pytorch_tanh", "attn_bias": False, "init_pos_emb_height": 16, "init_pos_emb_time": 4, "init_pos_emb_width": 16,
          "linear_bias": False, "merge_kernel_size": [2, 2], "merge_type": "sd2_tpool", "mlp_type": "mlp2", "mm_hidden_size": 128,
          "mm_projector_type": "patchmergerv2", "norm_type": "rmsnorm", "patch_embed_proj_bias": False, "patch_size": 14,
          "pos_emb_interpolation_mode": "bilinear", "pos_emb_type": "divided_fixed", "projector_hidden_act": "gelu", "projector_ln_eps": 1e-05,
          "qkv_hidden_size": 128, "text_hidden_size": 256, "video_attn_type": "spatial_temporal", "vt_hidden_size": 128,
          "vt_intermediate_size": 384, "vt_num_attention_heads": 1, "vt_num_hidden_layers": 4}
PICTURES = {"media_proc_cfg": {"fixed_output_tokens": None, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "in_patch_limit": 65536,
                               "merge_kernel_size": 2, "patch_limit_on_one_side": 512, "patch_size": 14, "transparent_bg_fill_stage": "after_resize"}}


def config(ids, vocab):
    """ids: {'bos', 'eos' (<|end_of_msg|>), 'pad', 'media'}"""
    group = {"input_activations": None, "output_activations": None, "targets": ["Linear"],
             "weights": {"actorder": None, "block_structure": None, "dynamic": False, "group_size": 32, "num_bits": 4, "observer": "minmax",
                         "scale_dtype": "torch.uint8", "strategy": "group", "symmetric": True, "type": "float", "zp_dtype": None}}
    text = {
        "model_type": "kimi_linear", "activation_situ_beta": 2.0, "activation_situ_linear_beta": 4.0, "attn_res_block_size": 4,
        "bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "first_k_dense_replace": 1, "hidden_act": "situ", "hidden_size": 256,
        "initializer_range": 0.02, "intermediate_size": 384, "kv_lora_rank": 512, "latent_moe_use_norm": True,
        "linear_attn_config": {"full_attn_layers": FULL, "gate_lower_bound": -5.0, "head_dim": 128, "kda_layers": KDA, "num_heads": 2,
                               "short_conv_kernel_size": 4, "use_full_rank_gate": True},
        "max_position_embeddings": 1048576, "mla_use_nope": True, "mla_use_output_gate": True, "moe_intermediate_size": 64,
        "moe_layer_freq": 1, "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "num_attention_heads": 2,
        "num_expert_group": 1, "num_experts": 24, "num_experts_per_token": 4, "num_hidden_layers": 9, "num_key_value_heads": 2,
        "num_nextn_predict_layers": 0, "num_shared_experts": 2, "pad_token_id": ids["pad"], "q_lora_rank": 128, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05, "routed_expert_hidden_size": 128, "routed_scaling_factor": 1.0,
        "tie_word_embeddings": False, "topk_group": 1, "topk_method": "noaux_tc", "use_cache": True, "use_grouped_topk": True,
        "v_head_dim": 128, "vocab_size": vocab,
        "dsa_config": {"dsa_layers": FULL, "index_head_dim": 128, "index_n_heads": 4, "index_topk": 128},
        "quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "quantization_status": "compressed",
                                "config_groups": {"group_0": group},
                                "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
                                           "re:.*lm_head.*", "re:.*vision_tower.*", "re:.*mm_projector.*"], "kv_cache_scheme": None}}
    return {"architectures": ["KimiK31ForConditionalGeneration"], "model_type": "kimi_k31", "bos_token_id": ids["bos"],
            "eos_token_id": ids["eos"], "pad_token_id": ids["pad"], "ignore_index": -100,
            "image_placeholder": "<|kimi_image_placeholder|>", "media_placeholder_token_id": ids["media"], "dtype": "bfloat16",
            "text_config": text, "tie_word_embeddings": False, "vision_config": VISION}


def write_config(out):
    import sentencepiece as spm
    sp = spm.SentencePieceProcessor(model_file=os.path.join(HERE, "..", "tokenizer.model"))
    i = lambda piece: sp.piece_to_id(piece)
    ids = {"bos": i("[BOS]"), "eos": i("<|end_of_msg|>"), "pad": i("[PAD]"), "media": i("<|media_pad|>")}
    assert len(set(ids.values())) == 4, ids
    json.dump(config(ids, sp.vocab_size()), open(os.path.join(out, "config.json"), "w"), indent=2)
    json.dump({"bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "pad_token_id": ids["pad"], "do_sample": False},
              open(os.path.join(out, "generation_config.json"), "w"), indent=2)
    json.dump(PICTURES, open(os.path.join(out, "preprocessor_config.json"), "w"), indent=2)


def exported(model):
    """Name -> tensor as stored: experts packed, F32 where the format says so, everything else BF16 rounded to nearest even."""
    out = {}
    for n, p in model.tensors():
        p = p.detach().float().cpu()
        if n == M.TOWER["patch_proj"]:
            p = p.view(-1, 3, model.c.patch, model.c.patch)
        if n.endswith("A_log"):
            p = torch.nn.functional.pad(p, (0, 4 - p.numel()))
        out[n] = p.contiguous() if any(f in n for f in M.F32) else p.to(torch.bfloat16).contiguous()
    for i in range(model.c.layers - 1):
        out[f"{M.PREFIX}model.layers.{i + 1}.block_sparse_moe.gate.e_score_correction_bias"] = model.bias[i].float().cpu().clone()
    for n, p in model.experts():
        out[n + ".weight_packed"], out[n + ".weight_scale"] = quant.pack(p.detach().float().cpu())
    return out


DTYPE = {torch.float32: "F32", torch.bfloat16: "BF16", torch.uint8: "U8"}


def write_shard(path, tensors):
    """safetensors with the tensors in the given order (the library's own writer sorts them)."""
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for n, t in tensors:
        head[n] = {"dtype": DTYPE[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    h = json.dumps(head).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for _, t in tensors:
            f.write(t.view(torch.uint8).numpy().tobytes())
    return at


def write(model, out):
    t = exported(model)
    experts = sorted({n.rsplit(".", 2)[0] for n in t if ".experts." in n})
    units = [[n for n in t if n.startswith(e + ".")] for e in experts] + [[n] for n in t if ".experts." not in n]
    random.Random(20261129).shuffle(units)              # the tensors of an expert stay together, experts are not in id order
    total, half, shards = sum(x.nbytes for x in t.values()), 0, ([], [])
    for u in units:
        shards[0 if half < total / 2 else 1].extend(u)
        half += sum(t[n].nbytes for n in u)
    weight_map = {}
    for i, names in enumerate(shards):
        f = f"model-{i + 1:05d}-of-00002.safetensors"
        write_shard(os.path.join(out, f), [(n, t[n]) for n in names])
        assert os.path.getsize(os.path.join(out, f)) < 16 * 2 ** 20
        weight_map.update({n: f for n in names})
    json.dump({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))},
              open(os.path.join(out, "model.safetensors.index.json"), "w"), indent=0, separators=(",", ":"))


if __name__ == "__main__":
    import train
    p = argparse.ArgumentParser()
    p.add_argument("--config-only", action="store_true")
    p.add_argument("--ckpt")
    p.add_argument("--out", default=os.path.join(HERE, ".."))
    a = p.parse_args()
    if a.config_only:
        write_config(a.out)
    else:
        c = M.Config(json.load(open(os.path.join(a.out, "config.json") if os.path.exists(os.path.join(a.out, "config.json"))
                                    else os.path.join(HERE, "..", "config.json"))))
        m = M.Model(c, dt=torch.float32)
        if a.ckpt:
            train.resume(m, None, [a.ckpt])
        write(m, a.out)
