"""Reference forward pass of the Kimi K3 / K3.1 model (text and pictures) in plain PyTorch, written from the specification.

One class serves three purposes: FP64 oracle for the fixtures, FP32 evaluation of exported checkpoints, BF16 training.
Sizes come from config.json, tensors from any safetensors folder of the family (BF16 or MXFP4 experts).

    python model.py --fixture DIR      compare with a fixture directory (expected.json, expected.safetensors, model*/)
"""
import argparse
import collections
import functools
import json
import os
import types

import torch
import torch.nn as nn
import torch.nn.functional as F

import quant

EPS = 1e-5          # all RMS norms that are not named below
EPS_LATENT = 1e-6   # q_a_layernorm, kv_a_layernorm
EPS_L2 = 1e-6       # added to the sum of squares of q and k in KDA
EPS_INDEX = 1e-6    # LayerNorm of the index key
EPS_TOWER = 2 ** -23    # the norms inside the vision tower
CHUNK, SUB = 64, 16


class Config:
    def __init__(self, d):
        t = d["text_config"] if "text_config" in d else d
        a = t["linear_attn_config"]
        self.raw = d
        self.hidden, self.layers, self.vocab = t["hidden_size"], t["num_hidden_layers"], t["vocab_size"]
        self.full = [i - 1 for i in a["full_attn_layers"]]
        assert sorted(a["full_attn_layers"] + a["kda_layers"]) == list(range(1, self.layers + 1))
        self.bank = t["attn_res_block_size"]
        self.kh, self.kd, self.bound = a["num_heads"], a["head_dim"], a["gate_lower_bound"]
        self.conv = a["short_conv_kernel_size"]
        self.heads, self.q_lora, self.kv_lora = t["num_attention_heads"], t["q_lora_rank"], t["kv_lora_rank"]
        self.nope, self.slot, self.v = t["qk_nope_head_dim"], t["qk_rope_head_dim"], t["v_head_dim"]
        dsa = t.get("dsa_config")
        self.dsa = dsa is not None
        self.ih, self.id, self.topk = (dsa["index_n_heads"], dsa["index_head_dim"], dsa["index_topk"]) if dsa else (0, 0, 0)
        self.experts, self.top, self.shared = t["num_experts"], t["num_experts_per_token"], t["num_shared_experts"]
        self.latent, self.width, self.dense = t["routed_expert_hidden_size"], t["moe_intermediate_size"], t["intermediate_size"]
        self.scaling = t["routed_scaling_factor"]
        self.b1, self.b2 = t["activation_situ_beta"], t["activation_situ_linear_beta"]
        self.eos = t.get("eos_token_id")
        self.pad = d.get("media_placeholder_token_id")
        v = d.get("vision_config")
        self.vision = v is not None
        if v:
            assert v["merge_kernel_size"] == [2, 2] and v["mm_projector_type"] == "patchmergerv2" and v["norm_type"] == "rmsnorm"
            self.patch, self.table = v["patch_size"], (v["init_pos_emb_height"], v["init_pos_emb_width"])
            self.vh, self.blocks, self.vheads = v["vt_hidden_size"], v["vt_num_hidden_layers"], v["vt_num_attention_heads"]
            self.qkv, self.vmlp = v["qkv_hidden_size"], v["vt_intermediate_size"]


# ------------------------------------------------------------------------------------------------ small pieces

def acc(x):
    """Statistics, softmax and states are FP32 (FP64 in the oracle)."""
    return x if x.dtype == torch.float64 else x.float()


def mm(x, w, dt):
    return F.linear(x.to(dt), w.to(dt))


def rms(x, w, eps=EPS):
    x = acc(x)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def situ(g, u, b1, b2):
    return b1 * torch.tanh(g / b1) * torch.sigmoid(g) * (b2 * torch.tanh(u / b2))


def situ_mlp(x, gate, up, down, b1, b2, dt):
    n = gate.shape[0]
    h = acc(mm(x, torch.cat((gate, up)), dt))
    return acc(mm(situ(h[..., :n], h[..., n:], b1, b2), down, dt))


def mix(sources, w, r):
    """Attention residual: softmax over the sources of (normalised source . (w * r)), then a sum of the RAW sources."""
    if len(sources) == 1:
        return sources[0]
    q = w * r
    s = torch.stack([(v * q).sum(-1) * torch.rsqrt(v.square().mean(-1) + EPS) for v in sources], -1)
    p = s.softmax(-1)
    return sum(p[..., j, None] * v for j, v in enumerate(sources))


# ------------------------------------------------------------------------------------------------ KDA

def short_conv(u, w, doc):
    """u [B,T,C], w [C,1,4]: causal depthwise convolution (tap 3 is the present token) and SiLU; no look across documents."""
    w = w.squeeze(1)
    y = u * w[:, -1]
    for back in range(1, w.shape[1]):
        prev = F.pad(u, (0, 0, back, 0))[:, :-back]
        if doc is not None:
            prev = prev * (F.pad(doc, (back, 0), value=-2)[:, :-back] == doc)[..., None]
        y = y + prev * w[:, w.shape[1] - 1 - back]
    return F.silu(y)


def kda_gate(z, A_log, bound):
    """z [B,T,H,D] -> log decay in (bound, 0)."""
    return bound * torch.sigmoid(A_log.exp()[:, None] * z)


def unit_lower_inverse(L):
    """(I + L)^-1 for strictly lower triangular L [..., 64, 64]: 16-row tiles by the exact product (in FP64), then block inversion."""
    n, t = L.shape[-1] // SUB, L.dtype
    Lb = L.reshape(*L.shape[:-2], n, SUB, n, SUB)
    D = torch.stack([Lb[..., i, :, i, :] for i in range(n)], -3).double()
    eye = torch.eye(SUB, dtype=torch.float64, device=L.device)
    D2 = D @ D
    D4 = D2 @ D2
    X = ((eye - D) @ (eye + D2) @ ((eye + D4) @ (eye + D4 @ D4))).to(t)
    X, size = list(X.unbind(-3)), SUB
    while len(X) > 1:
        Y = []
        for i in range(0, len(X), 2):
            a, b = X[i], X[i + 1]
            c = L[..., (i + 1) * size:(i + 2) * size, i * size:(i + 1) * size]
            Y.append(torch.cat((F.pad(a, (0, size)), torch.cat((-(b @ c @ a), b), -1)), -2))
        X, size = Y, size * 2
    return X[0]


def kda_chunked(q, k, v, g, beta, doc=None):
    """q (scaled), k, v, g [B,T,H,D]; beta [B,T,H]; doc [B,T] restarts the state. T a multiple of 64. Returns [B,T,H,D].

    Chunks are joined by a parallel scan over the affine maps S -> M S + R instead of a loop."""
    B, T, H, D = q.shape
    N, n = T // CHUNK, CHUNK // SUB
    q, k, v, g = (t.transpose(1, 2).reshape(B, H, N, CHUNK, D) for t in (q, k, v, g))
    beta = beta.transpose(1, 2).reshape(B, H, N, CHUNK, 1)
    G = g.cumsum(-2)
    pos = torch.arange(CHUNK, device=q.device)
    low = pos[:, None] > pos
    diag = pos[:, None] >= pos
    if doc is not None:
        d = doc.reshape(B, 1, N, CHUNK)
        same = d[..., :, None] == d[..., None, :]
        low, diag = low & same, diag & same
        before = F.pad(d[..., -1], (1, 0), value=-2)[..., :-1]
        into = (d == before[..., None])[..., None]
        out = (d == d[..., -1:])[..., None]
        keep = (d[..., -1] == before)[..., None]
    # factors anchored at the row before each tile: rows <= 1, columns <= e^80
    ref = F.pad(G, (0, 0, 1, 0))[..., :-1, :].reshape(B, H, N, n, SUB, D)[..., :1, :]
    row = (G.reshape(B, H, N, n, SUB, D) - ref).exp()
    col = k.unsqueeze(3) * (ref - G.unsqueeze(3)).clamp(max=80.0).exp()
    A = ((k.reshape(B, H, N, n, SUB, D) * row) @ col.transpose(-1, -2)).reshape(B, H, N, CHUNK, CHUNK)
    Aq = ((q.reshape(B, H, N, n, SUB, D) * row) @ col.transpose(-1, -2)).reshape(B, H, N, CHUNK, CHUNK)
    zero = torch.zeros((), dtype=q.dtype, device=q.device)
    A, Aq = torch.where(low, A * beta, zero), torch.where(diag, Aq, zero)
    eG = G.exp()
    kin, qin, kout, dec = k * eG, q * eG, k * (G[..., -1:, :] - G).exp(), eG[..., -1, :]
    if doc is not None:
        kin, qin, kout, dec = kin * into, qin * into, kout * out, dec * keep
    WU = unit_lower_inverse(A) @ (torch.cat((kin, v), -1) * beta)
    W, U = WU[..., :D], WU[..., D:]
    step = torch.cat((torch.diag_embed(dec), torch.zeros_like(v[..., :1, :]).expand(B, H, N, D, D)), -1) \
        + kout.transpose(-1, -2) @ torch.cat((-W, U), -1)                                   # [D, D | D]: the map of each chunk
    span = 1
    while span < N:
        M, older = step[:, :, span:, :, :D], step[:, :, :-span]
        new = M @ older
        step = torch.cat((step[:, :, :span], torch.cat((new[..., :D], new[..., D:] + step[:, :, span:, :, D:]), -1)), 2)
        span *= 2
    S = F.pad(step[..., D:], (0, 0, 0, 0, 1, 0))[:, :, :-1]                                   # state before each chunk
    o = qin @ S + Aq @ (U - W @ S)
    return o.reshape(B, H, T, D).transpose(1, 2)


def kda_recurrent(q, k, v, g, beta, doc=None):
    B, T, H, D = q.shape
    S, o = torch.zeros(B, H, D, D, dtype=q.dtype, device=q.device), []
    for t in range(T):
        if doc is not None and t:
            S = S * (doc[:, t] == doc[:, t - 1])[:, None, None, None]
        S = S * g[:, t].exp()[..., None]
        u = v[:, t] - (k[:, t, :, None, :] @ S).squeeze(-2)
        S = S + beta[:, t, :, None, None] * k[:, t, :, :, None] * u[..., None, :]
        o.append((q[:, t, :, None, :] @ S).squeeze(-2))
    return torch.stack(o, 1)


def kda_output(o, gate, w):
    return rms(o, w) * gate


def kda_qk(q, k, D):
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + EPS_L2) * D ** -0.5
    return q, k * torch.rsqrt(k.square().sum(-1, keepdim=True) + EPS_L2)


def kda(x, p, c, dt, doc=None, core=kda_chunked):
    B, T, _ = x.shape
    H, D = c.kh, c.kd
    n = H * D
    y = acc(mm(x, torch.cat((p.q_proj, p.k_proj, p.v_proj, p.g_proj, p.f_a_proj)), dt))
    qkv = short_conv(y[..., :3 * n], torch.cat((p.q_conv1d, p.k_conv1d, p.v_conv1d)), doc).view(B, T, 3, H, D)
    q, k = kda_qk(qkv[:, :, 0], qkv[:, :, 1], D)
    z = acc(mm(y[..., 4 * n:], p.f_b_proj, dt)) + p.dt_bias
    g = kda_gate(z.view(B, T, H, D), p.A_log, c.bound)
    beta = torch.sigmoid(acc(mm(x, p.b_proj, dt)))
    pad = -T % CHUNK if core is kda_chunked else 0
    v = qkv[:, :, 2]
    if pad:
        q, k, v, g = (F.pad(t, (0, 0, 0, 0, 0, pad)) for t in (q, k, v, g))
        beta = F.pad(beta, (0, 0, 0, pad))
        doc = F.pad(doc, (0, pad), value=-1) if doc is not None else None
    o = core(q, k, v, g, beta, doc)[:, :T]
    gate = torch.sigmoid(y[..., 3 * n:4 * n]).view(B, T, H, D)
    return acc(mm(kda_output(o, gate, p.o_norm).reshape(B, T, n), p.o_proj, dt))


# ------------------------------------------------------------------------------------------------ MLA with indexer

NEG = -1e30


def index_scores(xd, cq, p, c, dt):
    """Index scores I [B, query, key]: signed sum over heads, only the dot product passes the ReLU."""
    B, T, _ = xd.shape
    iq = mm(cq, p.ix_wq_b, dt).view(B, T, c.ih, c.id).transpose(1, 2)
    ik = F.layer_norm(acc(mm(xd, p.ix_wk, dt)), (c.id,), p.ix_k_norm, p.ix_k_bias, EPS_INDEX).to(dt)
    w = acc(mm(xd, p.ix_weights_proj, dt)) * (c.ih * c.id) ** -0.5
    s = acc(F.relu(iq @ ik[:, None].transpose(-1, -2)))
    return (s * w.transpose(1, 2)[..., None]).sum(1)


def select_topk(I, visible, k):
    """The set of the k largest scores of each query among the visible keys, as a mask."""
    if I.shape[-1] <= k:
        return visible
    kth = I.masked_fill(~visible, NEG).topk(k, -1).values[..., -1:]
    return visible & (I >= kth)


def mla_parts(x, p, c, dt):
    B, T, _ = x.shape
    cq = rms(mm(x, p.q_a_proj, dt), p.q_a_layernorm, EPS_LATENT)
    q = mm(cq, p.q_b_proj, dt).view(B, T, c.heads, c.nope + c.slot).transpose(1, 2)
    t = acc(mm(x, p.kv_a_proj, dt))
    lat = rms(t[..., :c.kv_lora], p.kv_a_layernorm, EPS_LATENT)
    kv = mm(lat, p.kv_b_proj, dt).view(B, T, c.heads, c.nope + c.v).transpose(1, 2)
    kr = t[..., c.kv_lora:].to(dt)[:, None].expand(B, c.heads, T, c.slot)
    return cq, q, torch.cat((kv[..., :c.nope], kr), -1), kv[..., c.nope:]


def mla_output(o, x, p, dt):
    o = acc(o.transpose(1, 2).reshape(*x.shape[:2], -1))
    return acc(mm(o * torch.sigmoid(acc(mm(x, p.g_proj, dt))), p.o_proj, dt))


def mla(x, p, c, dt, doc=None, sparse=True, select=select_topk, topk=None, gold=None, real=None, seen=None):
    """Gated MLA without rotary embedding over the selected positions.

    gold [B,T] (query position -> position of the source token, or -1) adds the training losses; then returns (y, losses):
      losses[0] = -mean log p(gold), [1] = -mean log softmax(I)(gold), [2] = KL(p || softmax(I)) over the visible (dense) or selected set.
    seen: dict that receives the index scores and the selection."""
    B, T, _ = x.shape
    cq, q, k, v = mla_parts(x, p, c, dt)
    pos = torch.arange(T, device=x.device)
    visible = (pos[:, None] >= pos)[None]
    if doc is not None:
        visible = visible & (doc[:, :, None] == doc[:, None, :])
    a = acc(q @ k.transpose(-1, -2)) * (c.nope + c.slot) ** -0.5
    chosen, I = visible, None
    if c.dsa and (sparse or gold is not None):
        I = index_scores(x.detach(), cq.detach(), p, c, dt)
        if sparse:
            chosen = select(I.detach(), visible, topk or c.topk)
    w = a.masked_fill(~chosen[:, None], NEG).softmax(-1)
    if seen is not None:
        seen.update(I=I, chosen=chosen)
    y = mla_output(w.to(dt) @ v, x, p, dt)
    if gold is None:
        return y
    has, at = gold >= 0, gold.clamp(min=0)[..., None]
    n = has.sum().clamp(min=1)
    pm = w.mean(1)
    lg = -(pm.gather(-1, at).squeeze(-1) + 1e-6).log()
    Iv = I.masked_fill(~visible, NEG)
    li = -Iv.log_softmax(-1).gather(-1, at).squeeze(-1)
    t = pm.detach()
    kl = (t * ((t + 1e-9).log() - I.masked_fill(~chosen, NEG).log_softmax(-1)).masked_fill(~chosen, 0)).sum(-1)
    inside = chosen.expand(B, T, T).gather(-1, at).squeeze(-1)
    return y, torch.stack([(lg * has).sum() / n, (li * has).sum() / n, (kl * real).sum() / real.sum().clamp(min=1),
                           (inside & has).sum() / n])


# ------------------------------------------------------------------------------------------------ mixture of experts

def route(logits, bias, top, scaling):
    """-> dense weights [.., E] (zero where not chosen) and the mask of the chosen."""
    s = torch.sigmoid(acc(logits))
    chosen = torch.zeros_like(s).scatter(-1, (s + bias).topk(top, -1).indices, 1.0)
    w = s * chosen
    return w / (w.sum(-1, keepdim=True) + 1e-20) * scaling, chosen


def expert_sum(z, w, w1, w3, w2, b1, b2, dt):
    """All experts on all tokens, weights zero outside the chosen: the same sum, no gather."""
    E, Fw, L = w1.shape
    h = acc(mm(z, torch.cat((w1, w3)).reshape(2 * E * Fw, L), dt))
    h = h.unflatten(-1, (2, E, Fw))
    h = situ(h[..., 0, :, :], h[..., 1, :, :], b1, b2) * w[..., None]
    return acc(mm(h.flatten(-2), w2.transpose(1, 2).reshape(E * Fw, L).t(), dt))


def moe(x, p, bias, w1, w3, w2, c, dt):
    w, chosen = route(F.linear(acc(x), acc(p.gate)), bias, c.top, c.scaling)
    z = mm(x, p.routed_expert_down_proj, dt)
    r = expert_sum(z, w, w1, w3, w2, c.b1, c.b2, dt)
    y = acc(mm(rms(r, p.routed_expert_norm), p.routed_expert_up_proj, dt))
    y = y + situ_mlp(x, p.sh_gate, p.sh_up, p.sh_down, c.b1, c.b2, dt)
    return y, chosen.flatten(0, -2).mean(0)


# ------------------------------------------------------------------------------------------------ vision

def cells(row, col, h, w, table):
    """Weights [.., L, rows * cols] of the position table for patch (row, col) of an h x w grid: bilinear, half-pixel centres."""
    def axis(i, n, size):
        at = ((i + 0.5) * (size / n) - 0.5).clamp(min=0)
        low = at.floor()
        f = (at - low)[..., None]
        hot = lambda j: (j[..., None] == torch.arange(size, device=i.device)).to(at.dtype)
        return (1 - f) * hot(low) + f * hot((low + 1).clamp(max=size - 1))
    return (axis(row, h, table[0])[..., :, None] * axis(col, w, table[1])[..., None, :]).flatten(-2)


def rotate(x, row, col):
    """x [N, heads, L, D]: neighbouring pairs; even pairs turn by the column, odd ones by the row."""
    D = x.shape[-1]
    freq = 10000.0 ** (-4 * torch.arange(D // 4, dtype=x.dtype, device=x.device) / D)
    ang = torch.stack((col[..., None] * freq, row[..., None] * freq), -1).flatten(-2)[:, None]
    a, b, cos, sin = x[..., 0::2], x[..., 1::2], ang.cos(), ang.sin()
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def merge(x):
    """Patches stand in the order of their 2 x 2 blocks, (0,0) (0,1) (1,0) (1,1)."""
    return x.reshape(x.shape[0], x.shape[1] // 4, 4 * x.shape[2])


def patch_embedding(x, row, col, h, w, proj, table, dt):
    pos = cells(row, col, h[:, None], w[:, None], table.shape[:2]) @ table.flatten(0, 1).to(row.dtype)
    return acc(mm(x, proj, dt)) + pos


def tower_block(e, norm0, wqkv, wo, norm1, fc0, fc1, row, col, mask, heads, dt):
    N, L, _ = e.shape
    D = wo.shape[1] // heads
    qkv = acc(mm(rms(e, norm0, EPS_TOWER), wqkv, dt)).view(N, L, 3, heads, D).transpose(1, 3)
    q, k, v = rotate(qkv[:, :, 0], row, col), rotate(qkv[:, :, 1], row, col), qkv[:, :, 2]
    a = acc(q.to(dt) @ k.to(dt).transpose(-1, -2)) * D ** -0.5
    o = a.masked_fill(~mask[:, None, None], NEG).softmax(-1).to(dt) @ v.to(dt)
    e = e + acc(mm(o.transpose(1, 2).reshape(N, L, heads * D), wo, dt))
    f = F.gelu(acc(mm(rms(e, norm1, EPS_TOWER), fc0, dt)), approximate="tanh")
    return e + acc(mm(f, fc1, dt))


def final_norm(e, w):
    return rms(e, w, EPS_TOWER)


def project(e, proj_0, proj_2, dt):
    return acc(mm(F.gelu(acc(mm(merge(e), proj_0, dt))), proj_2, dt))


def project_norm(y, w):
    return rms(y, w)


def projector(e, norm, proj_0, proj_2, post, dt):
    return project_norm(project(final_norm(e, norm), proj_0, proj_2, dt), post)


def tower(x, row, col, h, w, count, p, c, dt, trace=None, fn=None):
    """x [N, L, 588] patches (channel, row, column), the first count[n] of them real; row, col [N, L]; h, w [N] -> [N, L / 4, hidden]."""
    f = fn or types.SimpleNamespace(patch_embedding=patch_embedding, tower_block=tower_block, projector=projector)
    mask = torch.arange(x.shape[1], device=x.device) < count[:, None]
    e = f.patch_embedding(x, row, col, h, w, p.patch_proj, p.pos_emb, dt)
    if trace is not None:
        trace["patch_embed"] = e
    for b in range(c.blocks):
        e = f.tower_block(e, p.norm0[b], p.wqkv[b], p.wo[b], p.norm1[b], p.fc0[b], p.fc1[b], row, col, mask, c.vheads, dt)
    if trace is not None:
        trace["tower_out"] = final_norm(e, p.final_norm)
    return f.projector(e, p.final_norm, p.proj_0, p.proj_2, p.post_norm, dt)


def canvas(image, proc, fill=0):
    """PIL image -> uint8 [H, W, 3], resized into the limits, composited on the chessboard if transparent, padded to multiples of 28."""
    import numpy as np
    from PIL import Image
    W, H = image.size
    P, side = proc["patch_size"], proc["patch_limit_on_one_side"]
    s = min(1.0, (proc["in_patch_limit"] / (max(1, W // P) * max(1, H // P))) ** 0.5, side * P / W, side * P / H)
    W1, H1 = (min(side * P, max(1, int(n * s))) for n in (W, H))
    clear = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    image = image.convert("RGBA" if clear else "RGB")
    if (W1, H1) != (W, H):
        image = image.resize((W1, H1), Image.Resampling.BICUBIC)
    if clear:
        y, x = np.mgrid[:H1, :W1] // 8
        board = Image.fromarray(np.where((x + y) % 2, 180, 255).astype(np.uint8)).convert("RGBA")
        image = Image.alpha_composite(board, image).convert("RGB")
    unit = P * proc["merge_kernel_size"]
    out = np.full((-(-H1 // unit) * unit, -(-W1 // unit) * unit, 3), fill, np.uint8)
    out[:H1, :W1] = np.asarray(image)
    return out


def merge_order(h, w):
    """Rows and columns of the patches of an h x w grid in the order of their 2 x 2 blocks."""
    row, col = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    order = lambda t: t.reshape(h // 2, 2, w // 2, 2).transpose(1, 2).flatten()
    return order(row), order(col)


def patches(pixels, P=14):
    """uint8 [H, W, 3] -> values [h * w, 588] in merge order, rows, columns, (h, w)."""
    x = (torch.from_numpy(pixels.copy()).double() / 255 - 0.5) / 0.5
    h, w = x.shape[0] // P, x.shape[1] // P
    x = x.reshape(h, P, w, P, 3).permute(0, 2, 4, 1, 3).reshape(h, w, 3 * P * P)
    row, col = merge_order(h, w)
    return x[row, col], row, col, (h, w)


# ------------------------------------------------------------------------------------------------ names

COMMON = {"input_layernorm": "input_layernorm.weight", "post_attention_layernorm": "post_attention_layernorm.weight",
          "self_attention_res_norm": "self_attention_res_norm.weight", "mlp_res_norm": "mlp_res_norm.weight",
          "self_attention_res_proj": "self_attention_res_proj.weight", "mlp_res_proj": "mlp_res_proj.weight",
          "g_proj": "self_attn.g_proj.weight", "o_proj": "self_attn.o_proj.weight"}
KDA = {n: f"self_attn.{n}.weight" for n in ("q_proj", "k_proj", "v_proj", "q_conv1d", "k_conv1d", "v_conv1d", "f_a_proj", "f_b_proj",
                                            "b_proj", "o_norm")} | {"A_log": "self_attn.A_log", "dt_bias": "self_attn.dt_bias"}
MLA = {n: f"self_attn.{n}.weight" for n in ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_layernorm", "kv_b_proj")} | {
    "kv_a_proj": "self_attn.kv_a_proj_with_mqa.weight"}
INDEX = {"ix_wq_b": "self_attn.indexer.wq_b.weight", "ix_wk": "self_attn.indexer.wk.weight",
         "ix_k_norm": "self_attn.indexer.k_norm.weight", "ix_k_bias": "self_attn.indexer.k_norm.bias",
         "ix_weights_proj": "self_attn.indexer.weights_proj.weight"}
DENSE = {f"{n}_proj": f"mlp.{n}_proj.weight" for n in ("gate", "up", "down")}
MOE = {n: f"block_sparse_moe.{n}.weight" for n in ("gate", "routed_expert_down_proj", "routed_expert_up_proj", "routed_expert_norm")} | {
    f"sh_{n}": f"block_sparse_moe.shared_experts.{n}_proj.weight" for n in ("gate", "up", "down")}
TOP = {"embed": "model.embed_tokens.weight", "head": "lm_head.weight", "norm": "model.norm.weight",
       "out_norm": "model.output_attn_res_norm.weight", "out_proj": "model.output_attn_res_proj.weight"}
F32 = ("conv1d", "A_log", "dt_bias", "o_norm", "e_score_correction_bias")     # stored as F32, everything else BF16
PREFIX = "language_model."
TOWER = {"patch_proj": "vision_tower.patch_embed.proj.weight", "pos_emb": "vision_tower.patch_embed.pos_emb.weight",
         "final_norm": "vision_tower.encoder.final_layernorm.weight", "proj_0": "mm_projector.proj.0.weight",
         "proj_2": "mm_projector.proj.2.weight", "post_norm": "mm_projector.post_norm.weight"}
BLOCK = {n: f"{n}.weight" for n in ("norm0", "norm1", "wqkv", "wo")} | {n: f"mlp.{n}.weight" for n in ("fc0", "fc1")}


@functools.cache
def tuple_type(names):
    return collections.namedtuple("Layer", names)


class Model(nn.Module):
    def __init__(self, c, dt=torch.bfloat16, quantise=True):
        super().__init__()
        self.c, self.dt, self.quantise, self.sparse, self.topk = c, dt, quantise, True, None
        self.select, self.core = select_topk, kda_chunked
        self.expert_order = None                # a permutation: expert e does the work of expert_order[e] ...
        self.expert_scale = None                # ... with all its weights times this
        self.banks_at, self.bank_mixed = (lambda i: i % c.bank == 0), False
        d, n, E = c.hidden, c.kh * c.kd, c.experts
        s = {"input_layernorm": d, "post_attention_layernorm": d, "self_attention_res_norm": d, "mlp_res_norm": d,
             "self_attention_res_proj": (1, d), "mlp_res_proj": (1, d)}
        kda_s = s | {"g_proj": (n, d), "o_proj": (d, n), "q_proj": (n, d), "k_proj": (n, d), "v_proj": (n, d), "q_conv1d": (n, 1, c.conv),
                     "k_conv1d": (n, 1, c.conv), "v_conv1d": (n, 1, c.conv), "A_log": c.kh, "dt_bias": n, "f_a_proj": (c.kd, d),
                     "f_b_proj": (n, c.kd), "b_proj": (c.kh, d), "o_norm": c.kd}
        mla_s = s | {"g_proj": (c.heads * c.v, d), "o_proj": (d, c.heads * c.v), "q_a_proj": (c.q_lora, d), "q_a_layernorm": c.q_lora,
                     "q_b_proj": (c.heads * (c.nope + c.slot), c.q_lora), "kv_a_proj": (c.kv_lora + c.slot, d),
                     "kv_a_layernorm": c.kv_lora, "kv_b_proj": (c.heads * (c.nope + c.v), c.kv_lora)}
        if c.dsa:
            mla_s |= {"ix_wq_b": (c.ih * c.id, c.q_lora), "ix_wk": (c.id, d), "ix_k_norm": c.id, "ix_k_bias": c.id,
                      "ix_weights_proj": (c.ih, d)}
        dense_s = {"gate_proj": (c.dense, d), "up_proj": (c.dense, d), "down_proj": (d, c.dense)}
        moe_s = {"gate": (E, d), "routed_expert_down_proj": (c.latent, d), "routed_expert_up_proj": (d, c.latent),
                 "routed_expert_norm": c.latent, "sh_gate": (c.shared * c.width, d), "sh_up": (c.shared * c.width, d),
                 "sh_down": (d, c.shared * c.width)}
        make = lambda shape: nn.Parameter(torch.zeros(shape))
        self.layer = nn.ModuleList()
        for i in range(c.layers):
            m = nn.Module()
            for k, v in ((mla_s if i in c.full else kda_s) | (moe_s if i else dense_s)).items():
                m.register_parameter(k, make(v))
            self.layer.append(m)
        for k, v in {"embed": (c.vocab, d), "head": (c.vocab, d), "norm": d, "out_norm": d, "out_proj": (1, d)}.items():
            self.register_parameter(k, make(v))
        n_moe = c.layers - 1
        self.w1, self.w3 = make((n_moe, E, c.width, c.latent)), make((n_moe, E, c.width, c.latent))
        self.w2 = make((n_moe, E, c.latent, c.width))
        self.register_buffer("bias", torch.zeros(n_moe, E))
        if c.vision:
            v, D = nn.Module(), c.vh
            for k, shape in {"patch_proj": (D, 3 * c.patch ** 2), "pos_emb": (*c.table, D), "final_norm": D, "proj_0": (4 * D, 4 * D),
                             "proj_2": (d, 4 * D), "post_norm": d}.items():
                v.register_parameter(k, make(shape))
            for k, shape in {"norm0": (D,), "norm1": (D,), "wqkv": (3 * c.qkv, D), "wo": (D, c.qkv), "fc0": (c.vmlp, D),
                             "fc1": (D, c.vmlp)}.items():
                v.register_module(k, nn.ParameterList([make(shape) for _ in range(c.blocks)]))
            self.vision = v
        self.init()

    @torch.no_grad()
    def init(self):
        for name, p in self.named_parameters():
            parts = name.split(".")
            leaf = parts[-2] if parts[-1].isdigit() else parts[-1]
            if leaf.endswith("norm") or leaf in ("norm0", "norm1"):
                p.fill_(1.0)
            elif leaf in ("self_attention_res_proj", "mlp_res_proj", "out_proj", "ix_k_bias", "A_log", "f_b_proj"):
                p.zero_()
            elif leaf == "dt_bias":
                p.uniform_(-10.3, -3.3)             # half-life of a channel log-uniform from 4 to 4,096 tokens
            elif leaf in ("embed", "pos_emb"):
                p.normal_(std=0.02)
            elif leaf in ("q_conv1d", "k_conv1d", "v_conv1d"):
                p.uniform_(-0.5, 0.5)
            elif leaf in ("w1", "w2", "w3"):
                p.normal_(std=p.shape[-1] ** -0.5)
            else:
                p.uniform_(-p.shape[-1] ** -0.5, p.shape[-1] ** -0.5)

    # ---- names

    def tensors(self):
        """(checkpoint name, parameter) for everything but the experts."""
        c = self.c
        for a, n in TOP.items():
            yield PREFIX + n, getattr(self, a)
        for i, m in enumerate(self.layer):
            names = COMMON | ((MLA | (INDEX if c.dsa else {})) if i in c.full else KDA) | (MOE if i else DENSE)
            for a, n in names.items():
                yield f"{PREFIX}model.layers.{i}.{n}", getattr(m, a)

        if c.vision:
            for a, n in TOWER.items():
                yield n, getattr(self.vision, a)
            for a, n in BLOCK.items():
                for b in range(c.blocks):
                    yield f"vision_tower.encoder.blocks.{b}.{n}", getattr(self.vision, a)[b]

    def experts(self):
        for i in range(self.c.layers - 1):
            for e in range(self.c.experts):
                for n in ("w1", "w3", "w2"):
                    yield f"{PREFIX}model.layers.{i + 1}.block_sparse_moe.experts.{e}.{n}", getattr(self, n)[i, e]

    @torch.no_grad()
    def load(self, tensors):
        left = set(tensors)

        def take(n):
            left.discard(n)
            return tensors[n]

        for n, p in self.tensors():
            t = take(n)
            p.copy_((t.flatten()[:p.numel()] if n.endswith("A_log") else t).reshape(p.shape))
            if n.endswith("A_log"):
                assert (t.flatten()[p.numel():] == 0).all()
        for n, p in self.experts():
            p.copy_(quant.unpack(take(n + ".weight_packed"), take(n + ".weight_scale")) if n + ".weight_packed" in tensors
                    else take(n + ".weight"))
        for i in range(self.c.layers - 1):
            self.bias[i].copy_(take(f"{PREFIX}model.layers.{i + 1}.block_sparse_moe.gate.e_score_correction_bias"))
        assert not left, f"tensors not used: {sorted(left)[:5]}"
        return self

    # ---- forward

    def parts(self):
        """Parameters as the exported model will have them: norms rounded to BF16 (matrices are rounded by mm), experts to MXFP4."""
        rounded = self.dt == torch.bfloat16
        rb = (lambda t: t.to(torch.bfloat16).float()) if rounded else (lambda t: t)
        keep = ("q_conv1d", "k_conv1d", "v_conv1d", "A_log", "dt_bias", "o_norm")
        out = []
        for m in self.layer:
            d = {k: (rb(v) if (k not in keep and (v.ndim == 1 or v.shape[0] == 1 or k == "gate")) else v) for k, v in m.named_parameters()}
            out.append(tuple_type(tuple(d))(**d))
        top = types.SimpleNamespace(**{k: (rb(v) if v.ndim == 1 or v.shape[0] == 1 else v)
                                       for k, v in self.named_parameters(recurse=False)})
        top.vision = self.eyes() if self.c.vision else None
        q = quant.fake_quant if self.quantise else (lambda t: t)
        experts = [q(w) for w in (self.w1, self.w3, self.w2)]
        if self.expert_order is not None:
            experts = [w.index_select(1, self.expert_order) * self.expert_scale for w in experts]
        return out, top, *(w.unbind() for w in experts)

    def eyes(self):
        """The tower and projector with the same rounding."""
        rb = (lambda t: t.to(torch.bfloat16).float()) if self.dt == torch.bfloat16 else (lambda t: t)
        v = {k: (rb(t) if t.ndim == 1 or k == "pos_emb" else t) for k, t in self.vision.named_parameters(recurse=False)}
        return types.SimpleNamespace(**v | {k: [rb(t) if t.ndim == 1 else t for t in getattr(self.vision, k)] for k in BLOCK})

    def see(self, pictures, trace=None):
        """List of uint8 [H, W, 3] canvases -> the features of all of them, one after another [tokens, hidden]."""
        dev, eyes, out = self.embed.device, self.eyes(), []
        ft = torch.float64 if self.dt == torch.float64 else torch.float32
        for pixels in pictures:
            x, row, col, (h, w) = patches(pixels, self.c.patch)
            n = lambda v: torch.tensor([v], dtype=ft, device=dev)
            f = tower(x[None].to(ft).to(dev), row[None].to(dev, ft), col[None].to(dev, ft), n(h), n(w), n(h * w), eyes, self.c, self.dt, trace)
            out.append(f[0])
        return torch.cat(out)

    def forward(self, tokens, doc=None, kdoc=None, gold=None, fn=None, trace=None, media=None):
        """tokens [B,T] -> logits [B,T,V]. fn: namespace of (compiled) functions. With gold: (logits, losses [MLA, 4], load [MoE, E])."""
        y, top, losses, loads = self.body(tokens, doc, kdoc, gold, fn, trace, media)
        logits = acc(mm(y, top.head, self.dt))
        return logits if gold is None else (logits, losses, loads)

    # banks_at and bank_mixed exist for mutate.py only
    def body(self, tokens, doc=None, kdoc=None, gold=None, fn=None, trace=None, media=None):
        """media: (features [n, hidden], flat positions [n] in tokens) put in place of the embeddings; position B * T is nowhere."""
        c, dt = self.c, self.dt
        fn = fn or types.SimpleNamespace(mixnorm=mixnorm, kda=kda, mla=mla, moe=moe, mlp=situ_mlp)
        layers, top, w1, w3, w2 = self.parts()
        kdoc = doc if kdoc is None else kdoc
        real = None if gold is None else (doc >= 0 if doc is not None else torch.ones_like(gold, dtype=torch.bool))
        P, bank, losses, loads = acc(F.embedding(tokens, top.embed.to(dt) if dt == torch.bfloat16 else top.embed)), [], [], []
        if media is not None:
            nowhere = F.pad(P.flatten(0, 1), (0, 0, 0, 1))
            P = nowhere.index_copy(0, media[1], media[0].to(P.dtype))[:-1].view_as(P)
        for i, p in enumerate(layers):
            x = fn.mixnorm(bank + [P] if bank else [P], p.self_attention_res_norm, p.self_attention_res_proj, p.input_layernorm, dt)
            if self.banks_at(i):
                bank.append(mix(bank + [P], p.self_attention_res_norm, p.self_attention_res_proj[0]) if self.bank_mixed else P)
                P = None
            if i in c.full:
                seen = {} if trace is not None else None
                a = fn.mla(x, p, c, dt, doc, self.sparse, self.select, self.topk, gold, real, seen)
                if gold is not None:
                    a, l = a
                    losses.append(l)
                if trace is not None:
                    trace.setdefault("mla", []).append(seen)
            else:
                a = fn.kda(x, p, c, dt, kdoc, self.core)
            P = a if P is None else P + a
            x = fn.mixnorm(bank + [P], p.mlp_res_norm, p.mlp_res_proj, p.post_attention_layernorm, dt)
            if i == 0:
                f = fn.mlp(x, p.gate_proj, p.up_proj, p.down_proj, c.b1, c.b2, dt)
            else:
                f, load = fn.moe(x, p, self.bias[i - 1], w1[i - 1], w3[i - 1], w2[i - 1], c, dt)
                loads.append(load)
            P = P + f
            if trace is not None:
                trace.setdefault("layer", []).append(P)
        y = fn.mixnorm(bank + [P], top.out_norm, top.out_proj, top.norm, dt)
        return y, top, torch.stack(losses) if losses else None, torch.stack(loads)


def mixnorm(sources, w, r, norm, dt):
    return rms(mix(sources, w, r.reshape(-1)), norm).to(dt)


# ------------------------------------------------------------------------------------------------ loading

def read_folder(path):
    from safetensors.torch import load_file
    index = os.path.join(path, "model.safetensors.index.json")
    files = sorted(set(json.load(open(index))["weight_map"].values())) if os.path.exists(index) else ["model.safetensors"]
    out = {}
    for f in files:
        out.update(load_file(os.path.join(path, f)))
    return out


def from_folder(path, dt=torch.float32, device="cpu"):
    """Independent reader of an exported checkpoint: weights exactly as stored, no fake quantisation on top."""
    c = Config(json.load(open(os.path.join(path, "config.json"))))
    m = Model(c, dt=dt, quantise=False).to(dt if dt == torch.float64 else torch.float32)
    return m.load(read_folder(path)).to(device).eval().requires_grad_(False)


def check_vision(path, name, m, want, ids):
    from PIL import Image
    proc = json.load(open(os.path.join(path, name, "preprocessor_config.json")))["media_proc_cfg"]
    for i in "bc":
        off = (torch.from_numpy(canvas(Image.open(os.path.join(path, f"image_{i}.png")), proc)).int() - want[f"image_{i}_canvas"].int()).abs().max()
        assert off <= 1, (i, off)
    pixels = canvas(Image.open(os.path.join(path, "image_a.png")), proc)
    x, row, col, (h, w) = patches(pixels)
    flat, tr = row * w + col, {}
    feat = m.see([pixels], tr)
    e = [(x - want["pixel_values"].flatten(1)[flat]).abs().max().item(), (tr["patch_embed"][0] - want["vision_patch_embed"][flat]).abs().max().item(),
         (tr["tower_out"][0] - want["vision_tower_out"][flat]).abs().max().item(), (feat - want["vision_merged"]).abs().max().item()]
    print(f"{path} {name}: pixels, patches, tower, projector", *(f"{v:.1e}" for v in e), flush=True)
    assert max(e) < 2e-5
    return feat, (ids[0] == m.c.pad).nonzero().flatten()


def check_fixture(path):
    from safetensors.torch import load_file
    want, info = load_file(os.path.join(path, "expected.safetensors")), json.load(open(os.path.join(path, "expected.json")))
    ids = want["input_ids"][None]
    for name in ("model", "model-mxfp4"):
        m, media = from_folder(os.path.join(path, name), torch.float64), None
        if m.c.vision:
            media = check_vision(path, name, m, want, ids)
        for core in (kda_recurrent, kda_chunked):
            m.core, tr = core, {}
            lg = m(ids, trace=tr, media=media)[0]
            n = want["logits_last"].shape[0]
            e1 = (lg[-n:] - want["logits_last"]).abs().max().item()
            e2 = max((t[0, -1] - w).abs().max().item() for t, w in zip(tr["layer"], want["layer_out_last"]))
            print(f"{path} {name} {core.__name__}: logits {e1:.1e} layer outputs {e2:.1e}", flush=True)
            assert e1 < 2e-5 and e2 < 2e-5
            if m.c.dsa:
                for layer, s in zip(m.c.full, tr["mla"]):
                    for pos, sel in zip(info["index_sets"]["positions"], info["index_sets"]["prefill"][str(layer)]):
                        assert s["chosen"][0, pos].nonzero().flatten().tolist() == sel, (layer, pos)
        seq, e3 = ids, 0
        for step, tok in enumerate(want["decode_tokens"].tolist()):
            lg = m(seq, media=media)[0, -1]
            e3 = max(e3, (lg - want["decode_logits"][step]).abs().max().item())
            assert lg.argmax().item() == tok, f"greedy token {step}"
            seq = torch.cat((seq, torch.tensor([[tok]])), 1)
        print(f"  {len(want['decode_tokens'])} greedy tokens equal, logits {e3:.1e}; selections equal: {m.c.dsa}", flush=True)


if __name__ == "__main__":
    a = argparse.ArgumentParser()
    a.add_argument("--fixture", nargs="+", default=[])
    for f in a.parse_args().fixture:
        check_fixture(f)
