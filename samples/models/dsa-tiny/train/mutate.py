"""Which faults of an engine does the model notice? Applies each fault to the reference forward pass and asks again.

    python mutate.py --model DIR --out FILE [--device cuda] [--only NAME ...]

Prints, for each fault, the share of right answers (T1 facts, T3 sums, T4 needles and T5 lists of medium size) and the loss on
stories (trained frames, new fillings). `seen` is true if one share falls by 20 points or the loss rises by 0.15 nats.
"""
import argparse
import json
import math
import os
import time

import torch
import torch.nn.functional as F

import documents
import evaluate
import model as M
import quant

ORIGINAL = {n: getattr(M, n) for n in ("index_scores", "mla_parts", "mla_output", "short_conv", "kda_gate", "kda_qk", "kda_output", "mix",
                                       "route", "situ", "moe", "expert_sum", "mixnorm", "kda", "select_topk")}


def by_score(f):
    def set_fault(m):
        m.select = f
    return set_fault


def patch(**functions):
    def set_fault(m):
        for n, f in functions.items():
            setattr(M, n, f)
    return set_fault


def weights(f):
    def set_fault(m):
        with torch.no_grad():
            f(m)
    return set_fault


# ---- selection

def lowest(I, visible, k):
    return M.select_topk(-I, visible, k)


def first(I, visible, k):
    return M.select_topk(-torch.arange(I.shape[-1], device=I.device).float().expand_as(I), visible, k)


def off_by_one(I, visible, k):
    return F.pad(M.select_topk(I, visible, k), (1, 0))[..., :-1] & visible


def previous_layer():
    last = []

    def f(I, visible, k):
        now = M.select_topk(I, visible, k)
        last.append(now)
        return last[-2] if len(last) > 1 and last[-2].shape == now.shape else now
    return f


def index_variant(weight=True, relu=True, layer_norm=True):
    def f(xd, cq, p, c, dt):
        B, T, _ = xd.shape
        iq = M.mm(cq, p.ix_wq_b, dt).view(B, T, c.ih, c.id).transpose(1, 2)
        ik = M.mm(xd, p.ix_wk, dt)
        ik = F.layer_norm(ik, (c.id,), p.ix_k_norm, p.ix_k_bias, M.EPS_INDEX) if layer_norm else M.rms(ik, p.ix_k_norm) + p.ix_k_bias
        w = M.mm(xd, p.ix_weights_proj, dt) if weight else torch.ones(B, T, c.ih, device=xd.device)
        s = iq @ ik[:, None].transpose(-1, -2)
        return ((F.relu(s) if relu else s) * w.transpose(1, 2)[..., None]).sum(1)
    return f


# ---- MLA

def rotated_slot(x, p, c, dt):
    cq, q, k, v = ORIGINAL["mla_parts"](x, p, c, dt)
    half = c.slot // 2
    ang = torch.arange(x.shape[1], device=x.device)[:, None] * 10000.0 ** (-torch.arange(half, device=x.device) / half)
    cos, sin = ang.cos(), ang.sin()

    def rot(t):
        a, b = t[..., c.nope:c.nope + half], t[..., c.nope + half:]
        return torch.cat((t[..., :c.nope], a * cos - b * sin, b * cos + a * sin), -1)
    return cq, rot(q), rot(k), v


def other_scale(x, p, c, dt):
    cq, q, k, v = ORIGINAL["mla_parts"](x, p, c, dt)
    return cq, q * math.sqrt((c.nope + c.slot) / c.nope), k, v


def norm_over_all(x, p, c, dt):
    B, T, _ = x.shape
    cq, q, _, _ = ORIGINAL["mla_parts"](x, p, c, dt)
    t = M.mm(x, p.kv_a_proj, dt)
    t = t * torch.rsqrt(t.square().mean(-1, keepdim=True) + M.EPS_LATENT)
    kv = M.mm(t[..., :c.kv_lora] * p.kv_a_layernorm, p.kv_b_proj, dt).view(B, T, c.heads, c.nope + c.v).transpose(1, 2)
    kr = t[..., c.kv_lora:][:, None].expand(B, c.heads, T, c.slot)
    return cq, q, torch.cat((kv[..., :c.nope], kr), -1), kv[..., c.nope:]


def no_gate(o, x, p, dt):
    return M.mm(o.transpose(1, 2).reshape(*x.shape[:2], -1), p.o_proj, dt)


# ---- KDA

def chunk_ids(x, size=64):
    return (torch.arange(x.shape[1], device=x.device) // size)[None].expand(x.shape[0], -1)


def conv_dropped(u, w, doc):
    return ORIGINAL["short_conv"](u, w, chunk_ids(u))


def decay_after(q, k, v, g, b, doc=None):
    return M.kda_chunked(q * g.exp(), k, v, F.pad(g, (0, 0, 0, 0, 1, 0))[:, :-1], b, doc)


def no_erase(q, k, v, g, b, doc=None):
    B, T, H, D = q.shape
    S, o = torch.zeros(B, H, D, D, device=q.device), []
    for t in range(T):
        S = S * g[:, t].exp()[..., None] + b[:, t, :, None, None] * k[:, t, :, :, None] * v[:, t, :, None, :]
        o.append((q[:, t, :, None, :] @ S).squeeze(-2))
    return torch.stack(o, 1)


def core(f):
    """The padding to whole chunks depends on the identity of the core, so the faulty core does it itself."""
    def padded(q, k, v, g, b, doc=None):
        T = q.shape[1]
        n = -T % M.CHUNK
        q, k, v, g = (F.pad(t, (0, 0, 0, 0, 0, n)) for t in (q, k, v, g))
        return f(q, k, v, g, F.pad(b, (0, 0, 0, n)), None)[:, :T]

    def set_fault(m):
        m.core = padded
    return set_fault


def conv_reversed(m):
    for n, p in m.named_parameters():
        if n.endswith("conv1d"):
            p.copy_(p.flip(-1))


# ---- residuals

def mix_with(score=True, raw=True):
    def f(sources, w, r):
        if len(sources) == 1:
            return sources[0]
        n = [v * torch.rsqrt(v.square().mean(-1, keepdim=True) + M.EPS) for v in sources]
        s = torch.stack([(v * (w * r)).sum(-1) for v in n], -1)
        p = (s if score else s * 0).softmax(-1)
        return sum(p[..., j, None] * v for j, v in enumerate(sources if raw else n))
    return f


def bank_late(m):
    m.banks_at = lambda i: i % m.c.bank == 1 or i == 0


def bank_mixed(m):
    m.bank_mixed = True


def neighbour_mixers(m):
    names = ("self_attention_res_norm", "self_attention_res_proj", "mlp_res_norm", "mlp_res_proj")
    for layer in m.layer:
        a, b, c, d = (getattr(layer, n) for n in names)
        a2, b2 = a.clone(), b.clone()
        a.copy_(c), b.copy_(d), c.copy_(a2), d.copy_(b2)


def plain_sum(sources, w, r):
    return sum(sources)


# ---- experts

def each_expert(f):
    def g(m):
        for p in (m.w1, m.w3, m.w2):
            p.copy_(f(p))
    return weights(g)


def nibbles(p):
    return p.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


def row_scale(p):
    q, e = quant.quantise(p)
    return quant.dequantise(q, e[..., :1].expand_as(e))


def route_biased(logits, bias, top, scaling):
    s = torch.sigmoid(logits) + bias
    chosen = torch.zeros_like(s).scatter(-1, s.topk(top, -1).indices, 1.0)
    w = s * chosen
    return w / w.sum(-1, keepdim=True) * scaling, chosen


def route_plain(logits, bias, top, scaling):
    s = torch.sigmoid(logits)
    chosen = torch.zeros_like(s).scatter(-1, (s + bias).topk(top, -1).indices, 1.0)
    return s * chosen * scaling, chosen


def route_no_bias(logits, bias, top, scaling):
    return ORIGINAL["route"](logits, bias * 0, top, scaling)


def route_top1(logits, bias, top, scaling):
    return ORIGINAL["route"](logits, bias, 1, scaling)


def moe_without(norm):
    def f(x, p, bias, w1, w3, w2, c, dt):
        w, chosen = M.route(F.linear(M.acc(x), M.acc(p.gate)), bias, c.top, c.scaling)
        z = M.mm(x, p.routed_expert_down_proj, dt)
        if norm == "missing":
            r = M.expert_sum(z, w, w1, w3, w2, c.b1, c.b2, dt)
        else:
            h = torch.einsum("btl,efl->btef", z, w1), torch.einsum("btl,efl->btef", z, w3)
            o = torch.einsum("btef,elf->btel", M.situ(*h, c.b1, c.b2), w2)
            r = (M.rms(o, p.routed_expert_norm) * w[..., None]).sum(-2)
        y = M.mm(r, p.routed_expert_up_proj, dt)
        return y + M.situ_mlp(x, p.sh_gate, p.sh_up, p.sh_down, c.b1, c.b2, dt), chosen.flatten(0, -2).mean(0)
    return f


FAULTS = {
    "none": lambda m: None,
    "selection: random set": by_score(evaluate.random_set),
    "selection: most recent 128": by_score(evaluate.recent_set),
    "selection: first 128": by_score(first),
    "selection: lowest scores": by_score(lowest),
    "selection: indices off by one": by_score(off_by_one),
    "selection: set of the previous layer": lambda m: by_score(previous_layer())(m),
    "selection: head weights ignored": patch(index_scores=index_variant(weight=False)),
    "selection: ReLU missing": patch(index_scores=index_variant(relu=False)),
    "selection: key norm RMS instead of LayerNorm": patch(index_scores=index_variant(layer_norm=False)),
    "selection: top-k 16": lambda m: setattr(m, "topk", 16),
    "selection: dense attention": lambda m: setattr(m, "sparse", False),
    "MLA: slot rotated": patch(mla_parts=rotated_slot),
    "MLA: scale 128^-0.5": patch(mla_parts=other_scale),
    "MLA: output gate missing": patch(mla_output=no_gate),
    "MLA: latent norm over 576": patch(mla_parts=norm_over_all),
    "KDA: state zeroed every 64 tokens": core(lambda q, k, v, g, b, doc: M.kda_chunked(q, k, v, g, b, chunk_ids(q))),
    "KDA: conv history dropped every 64 tokens": patch(short_conv=conv_dropped),
    "KDA: conv taps reversed": weights(conv_reversed),
    "KDA: decay after the update": core(decay_after),
    "KDA: erase term missing": lambda m: setattr(m, "core", no_erase),
    "KDA: gate as softplus": patch(kda_gate=lambda z, A, bound: -A.exp()[:, None] * F.softplus(z)),
    "KDA: A_log of the wrong head": patch(kda_gate=lambda z, A, bound: ORIGINAL["kda_gate"](z, A.flip(0), bound)),
    "KDA: A_log per channel": patch(kda_gate=lambda z, A, bound: bound * torch.sigmoid(F.pad(A, (0, z.shape[-1] - len(A))).exp() * z)),
    "KDA: q not scaled": patch(kda_qk=lambda q, k, D: tuple(a * s for a, s in zip(ORIGINAL["kda_qk"](q, k, D), (D ** 0.5, 1)))),
    "KDA: output gate before the norm": patch(kda_output=lambda o, gate, w: M.rms(o * gate, w)),
    "residuals: uniform mix": patch(mix=mix_with(score=False)),
    "residuals: plain sum": patch(mix=plain_sum),
    "residuals: normalised sources": patch(mix=mix_with(raw=False)),
    "residuals: bank of the mixed vector": bank_mixed,
    "residuals: bank one layer late": bank_late,
    "residuals: mixers of attention and FFN exchanged": weights(neighbour_mixers),
    "experts: nibbles swapped": each_expert(nibbles),
    "experts: scale one too high": each_expert(lambda p: p * 2),
    "experts: one scale per row": each_expert(row_scale),
    "experts: ids rotated by one": each_expert(lambda p: p.roll(1, 1)),
    "experts: w1 and w3 exchanged": weights(lambda m: (lambda a: (m.w1.copy_(m.w3), m.w3.copy_(a)))(m.w1.clone())),
    "experts: biased scores as weights": patch(route=route_biased),
    "experts: bias ignored": patch(route=route_no_bias),
    "experts: weights not renormalised": patch(route=route_plain),
    "experts: top 1": patch(route=route_top1),
    "experts: norm on each expert": patch(moe=moe_without("each")),
    "experts: latent norm missing": patch(moe=moe_without("missing")),
    "experts: caps of SiTU missing": patch(situ=lambda g, u, b1, b2: F.silu(g) * u),
    "experts: caps 4 / 25": patch(situ=lambda g, u, b1, b2: ORIGINAL["situ"](g, u, 4.0, 25.0)),
}
SHORT_ONLY = {"KDA: erase term missing"}


def retrieval_entries(corpus, task, count, size):
    write = documents.gen_retrieval.list_text if task == "T5" else documents.gen_retrieval.needle_text
    out = []
    for seed in range(2000 * 50, (2000 + count) * 50, 50):
        plan = documents.retrieval_plan(corpus, task, seed, held_out=True, **size)
        out.append({"task": task, "messages": [{"role": "user", "content": write(plan, corpus.words)[0]}],
                    "answers": [documents.gen_retrieval.code(plan.digits[i]) for i in plan.asked]})
    return out


def run(folder, device, only, quick, small, path):
    corpus = documents.load()
    base = M.from_folder(folder, torch.float32, device)
    state = {k: v.clone() for k, v in base.state_dict().items()}
    n, docs = (2, 1) if quick else (50, 2) if small else (100, 5)
    t4, t5 = ((20, 600, 1), (20, 1)) if quick else ((40, 1500, 8), (150, 8)) if small else ((60, 3000, 8), (300, 8))
    entries = {"T1": evaluate.read_eval("T1")[:n], "T3": evaluate.read_eval("T3")[:n],
               "T4": retrieval_entries(corpus, "T4", docs, dict(zip(("needles", "context", "questions"), t4))),
               "T5": retrieval_entries(corpus, "T5", docs, dict(zip(("lines", "questions"), t5)))}
    out = {}
    for name, f in FAULTS.items():
        if only and name != "none" and not any(o in name for o in only):
            continue
        t0 = time.time()
        m = M.Model(base.c, dt=torch.float32, quantise=False).to(device).eval().requires_grad_(False)
        m.load_state_dict(state)
        f(m)
        r = {}
        for t, e in entries.items():
            if name in SHORT_ONLY and t in ("T4", "T5"):
                continue
            a = evaluate.score(m, corpus, e, device)
            r[t] = round(100 * a[0] / a[1], 1)
        r["T2_loss"] = round(evaluate.story_loss(m, corpus, 1 if quick else 6 if small else 16, device, False), 3)
        for k, v in ORIGINAL.items():
            setattr(M, k, v)
        if name != "none":
            b = out["none"]
            r["seen"] = any(b[t] - r[t] >= 20 for t in entries if t in r) or not r["T2_loss"] - b["T2_loss"] < 0.15
        out[name] = r
        if path:
            json.dump(out, open(path, "w"), indent=1)
        print(f"{name:48s} {r} {time.time() - t0:.1f}s", flush=True)
    return out


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    p.add_argument("--out", default="")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--only", nargs="*", default=[])
    p.add_argument("--small", action="store_true", help="for two CPU cores: 50 short questions, 16 retrieval answers from 1,400 tokens, 6 stories")
    p.add_argument("--quick", action="store_true", help="only to see that every fault runs")
    a = p.parse_args()
    with torch.no_grad():
        run(a.model, a.device, a.only, a.quick, a.small, a.out)
