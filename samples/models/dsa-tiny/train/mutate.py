"""Which faults of an engine does the model notice? Applies each fault to the reference forward pass and asks again.

    python mutate.py --model DIR --out FILE [--device cuda] [--only NAME ...]
    python mutate.py --fixture DIR ... --out FILE [--only NAME ...]     how far each fault moves the logits of random checkpoints

Asks about 350 questions of the tasks, a few of them again with the smallest top-k at which the right code still answers ("T5 at top-k 8"), and
measures the loss of every answer in nats a token; T2 is the loss on stories of held-out plots. A fault is seen if one share of right answers
falls by 20 points or one of the losses rises by 0.15; "by" says where. "logits" is how far the logits of three prompts move, relative to the
largest: the SDK's test of goldens.json allows 1e-4 there and compares the tokens of the prompts as well ("prompt").
"""
import argparse
import json
import math
import os
import random
import time

import torch
import torch.nn.functional as F

import documents
import gen_retrieval
import model as M
import quant
import scoring

ORIGINAL = {n: getattr(M, n) for n in ("index_scores", "mla_parts", "mla_output", "short_conv", "kda_gate", "kda_qk", "kda_output", "mix",
                                       "route", "situ", "moe", "expert_sum", "mixnorm", "kda", "select_topk", "cells", "rotate", "merge",
                                       "patches", "canvas", "project_norm")}


POINTS, NATS, GOLDEN = 20, 0.15, 1e-4


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


def random_set(I, visible, k):
    g = torch.Generator(device=I.device).manual_seed(7)
    return M.select_topk(torch.rand(I.shape, generator=g, device=I.device), visible, k)


def recent(I, visible, k):
    return M.select_topk(torch.arange(I.shape[-1], device=I.device).float().expand_as(I), visible, k)


def previous_layer(m):
    """The first layer keeps its own set."""
    calls, last = 0, None

    def f(I, visible, k):
        nonlocal calls, last
        now = M.select_topk(I, visible, k)
        before, last = now if calls % len(m.c.full) == 0 else last, now
        calls += 1
        return before
    m.select = f


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
    """S <- decay S + beta k v, a chunk at a time in FP64, where e^(5 * 64) is no danger."""
    B, T, H, D = q.shape
    S, out = torch.zeros(B, H, D, D, device=q.device, dtype=torch.float64), []
    low = torch.ones(M.CHUNK, M.CHUNK, device=q.device, dtype=torch.bool).tril()
    for at in range(0, T, M.CHUNK):
        Q, K, V, G, w = (t[:, at:at + M.CHUNK].double().transpose(1, 2) for t in (q, k, v, g, b[..., None]))
        G, V = G.cumsum(-2), V * w
        a = ((Q * G.exp()) @ (K * (-G).exp()).transpose(-1, -2)).masked_fill(~low, 0)
        out.append((Q * G.exp() @ S + a @ V).to(q.dtype).transpose(1, 2))
        S = S * G[..., -1, :, None].exp() + (K * (G[..., -1:, :] - G).exp()).transpose(-1, -2) @ V
    return torch.cat(out, 1)


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


# ---- text: what the tokens of prompt and answer become

def rewrite(f):
    def set_fault(m):
        m.rewrite = f
    return set_fault


def swapped_marks(corpus, prompt, answer):
    marks = corpus.chat_format.marks
    other = {marks["open"]: marks["close"], marks["close"]: marks["open"]}
    return [other.get(i, i) for i in prompt], answer


def marks_as_text(corpus, prompt, answer):
    spelled = {i: corpus.encoder.encode(f"<|{name}|>") for name, i in corpus.chat_format.marks.items()}
    return [i for token in prompt for i in spelled.get(token, [token])], answer


def grouped_digits(corpus, prompt, answer):
    """Two or three digits in a row become one token, which a vocabulary that groups digits would have."""
    values = {int(token): value for value, token in enumerate(corpus.retrieval.digits)}
    out, run = [], []
    for token in list(prompt) + [None]:
        if token in values and len(run) < 3:
            run.append(token)
            continue
        number = sum(values[t] * 10**i for i, t in enumerate(reversed(run)))
        out += run if len(run) < 2 else [1000 + number]
        run = [token] if token in values else []
        out += [token] if token is not None and token not in values else []
    return out, answer


def with_bos(corpus, prompt, answer):
    return [corpus.encoder.special("[BOS]"), *prompt], answer


def without_stop(corpus, prompt, answer):
    """Right only if the model ends the text by itself once it should have been stopped."""
    return prompt, [*answer, corpus.encoder.special("[EOS]")]


# ---- pictures

def nearest(row, col, h, w, table):
    at = lambda i, n, size: F.one_hot((((i + 0.5) * (size / n)).floor().long()).clamp(max=size - 1), size).to(row.dtype)
    return (at(row, h, table[0])[..., :, None] * at(col, w, table[1])[..., None, :]).flatten(-2)


def other_merge(x):
    N, L, D = x.shape
    return x.reshape(N, L // 4, 4, D)[:, :, [0, 2, 1, 3]].reshape(N, L // 4, 4 * D)


def transposed_patches(pixels, P=14):
    x, *where = ORIGINAL["patches"](pixels, P)
    return x.view(-1, 3, P, P).transpose(-1, -2).reshape(x.shape), *where


def not_normalised(pixels, P=14):
    x, *where = ORIGINAL["patches"](pixels, P)
    return x / 2 + 0.5, *where


FAULTS = {
    "none": lambda m: None,
    "selection: random set": by_score(random_set),
    "selection: most recent 128": by_score(recent),
    "selection: first 128": by_score(first),
    "selection: lowest scores": by_score(lowest),
    "selection: indices off by one": by_score(off_by_one),
    "selection: set of the previous layer": previous_layer,
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
    "KDA: erase term missing": core(no_erase),
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
    "vision: patches transposed": patch(patches=transposed_patches),
    "vision: rotation of rows and columns exchanged": patch(rotate=lambda x, row, col: ORIGINAL["rotate"](x, col, row)),
    "vision: position table nearest": patch(cells=nearest),
    "vision: merge order": patch(merge=other_merge),
    "vision: BGR": patch(patches=lambda pixels, P=14: ORIGINAL["patches"](pixels[..., ::-1], P)),
    "vision: padding white": patch(canvas=lambda image, proc: ORIGINAL["canvas"](image, proc, 255)),
    "vision: mean and standard deviation missing": patch(patches=not_normalised),
    "vision: norm of the projector missing": patch(project_norm=lambda y, w: y),
    "text: marks exchanged": rewrite(swapped_marks),
    "text: marks spelled out": rewrite(marks_as_text),
    "text: digits grouped by three": rewrite(grouped_digits),
    "text: BOS in front": rewrite(with_bos),
    "text: end of message not a stop": rewrite(without_stop),
}
# Why answers cannot show them; operator fixtures or goldens.json cover them.
INVISIBLE = {
    "selection: ReLU missing": "the logits move, but no answer turns",
    "selection: key norm RMS instead of LayerNorm": "the keys of these weights have nearly no mean",
    "selection: top-k 16": "a smaller set that still holds the right place; the sets in goldens.json show it",
    "selection: dense attention": "more than was asked for is no loss; the sets in goldens.json show it",
    "MLA: scale 128^-0.5": "the logits move, but no answer turns",
    "KDA: q not scaled": "a common factor, which the norm behind it removes",
    "experts: one scale per row": "the logits move, but no answer turns",
    "experts: biased scores as weights": "the logits move, but no answer turns",
    "experts: weights not renormalised": "a common factor, which the norm behind it removes",
    "vision: norm of the projector missing": "the features have nearly that norm already",
    "text: BOS in front": "the model reads on; the prompts in goldens.json are compared token by token",
}


# ---- questions

def long_entries(corpus, task, count, **size):
    """Medium-sized documents of T4 to T8, of test seeds that ../eval does not use."""
    out = []
    for seed in range(2000 * 50, (2000 + count) * 50, 50):
        if task in ("T4", "T5"):
            plan = documents.retrieval_plan(corpus, task, seed, held_out=True, **size)
            text, lines = (gen_retrieval.list_text if task == "T5" else gen_retrieval.needle_text)(plan, corpus.words)
        else:
            text, lines = documents.written_document(corpus, task, seed, held_out=True, **size).text()
        out.append({"task": task, "messages": [{"role": "user", "content": text}], "answers": lines})
    return out


def short_entries(task, kind, count):
    found = [entry for entry in scoring.read_eval(task) if entry["kind"] == kind]
    return random.Random(1).sample(found, min(count, len(found)))


def questions(corpus, size):
    """name -> entries."""
    pictures = lambda n: {"V1": short_entries("V1", "styles of the training", n), "V2": short_entries("V2", "color", n) + short_entries("V2", "shape", n),
                          "V3": short_entries("V3", "relations", n), "V4": short_entries("V4", "typefaces of the training", n),
                          "V5": short_entries("V5", "flags", n // 2), "V6": short_entries("V6", "clothes", n // 2)}
    if size == "pictures":
        return pictures(8)
    if size == "quick":
        return {"T2": short_entries("T2", "plots", 1), "T3 two digits": short_entries("T3", "two digits", 2),
                "T5": long_entries(corpus, "T5", 1, lines=20, questions=2), "T6": long_entries(corpus, "T6", 1, assignments=10, questions=2)}
    n, docs, scale = {"small": (8, 1, 0.5), "full": (24, 3, 1.0)}[size]
    part = lambda number: round(number * scale)
    return {
        "T1": short_entries("T1", "facts", n) + short_entries("T1", "chats", n // 2),
        "T2": short_entries("T2", "plots", n),
        "T3 two digits": short_entries("T3", "two digits", n), "T3 three digits": short_entries("T3", "three digits", n),
        "T3 thinking": short_entries("T3", "thinking", n // 2),
        "T4": long_entries(corpus, "T4", docs, needles=part(60), context=part(3000), questions=8),
        "T5": long_entries(corpus, "T5", docs, lines=part(300), questions=8),
        "T6": long_entries(corpus, "T6", docs, assignments=part(300), questions=8),
        "T7": long_entries(corpus, "T7", docs, context=part(2500), questions=4),
        "T8": long_entries(corpus, "T8", docs, context=part(1600), questions=8, kind="place")
        + long_entries(corpus, "T8", docs, context=part(1600), questions=8, kind="both"),
        "T9": short_entries("T9", "call", n // 2) + short_entries("T9", "use", n // 2),
        "T10": short_entries("T10", "asked", n // 2) + short_entries("T10", "response format", n // 2),
        **pictures(n),
    }


def golden_prompts(corpus):
    plan = documents.retrieval_plan(corpus, "T5", 5000 * 50, held_out=True, lines=24, questions=3)
    texts = ("What is the capital of Japan?", "What is 47 plus 38?", gen_retrieval.list_text(plan, corpus.words)[0])
    return [corpus.chat_format.prompt([("user", text)]) for text in texts]


SMALL_K = ("T4", "T5", "T7", "T8")


class Matrix:
    def __init__(self, folder, device, size):
        self.device, self.corpus = device, documents.load()
        self.base = M.from_folder(folder, torch.float32, device)
        self.state = {k: v.clone() for k, v in self.base.state_dict().items()}
        self.entries = questions(self.corpus, size)
        self.prompts = golden_prompts(self.corpus)
        self.logits, self.small_k = self.golden(self.base, self.prompts), {}

    def golden(self, m, prompts):
        out = []
        for prompt in prompts:
            y, top = m.body(torch.tensor([list(prompt)], device=self.device))[:2]
            out.append(M.mm(y[0, -1], top.head, m.dt))
        return out

    def ask(self, m, name, topk=None):
        f = getattr(m, "rewrite", None)
        before, m.topk = m.topk, topk or m.topk
        result = scoring.total(scoring.score(m, self.corpus, self.entries[name], self.device, f and (lambda p, a: f(self.corpus, p, a))))
        m.topk = before
        return result

    def find_small_k(self):
        """For each task the smallest top-k that keeps nine tenths of the right answers."""
        for name in (name for name in SMALL_K if name in self.entries):
            full = self.ask(self.base, name).percent
            for k in (1, 2, 4, 8, 16, 32, 64):
                if full > 0 and self.ask(self.base, name, k).percent >= 0.9 * full:
                    self.small_k[name] = k
                    break

    def measure(self, fault):
        m = M.Model(self.base.c, dt=torch.float32, quantise=False).to(self.device).eval().requires_grad_(False)
        m.load_state_dict(self.state)
        fault(m)
        percent, nats = {}, {}
        for name in self.entries:
            result = self.ask(m, name)
            if name != "T2":
                percent[name] = round(result.percent, 1)
            nats[name] = round(result.loss, 3)
        for name, k in self.small_k.items():
            result = self.ask(m, name, k)
            percent[f"{name} at top-k {k}"], nats[f"{name} at top-k {k}"] = round(result.percent, 1), round(result.loss, 3)
        f = getattr(m, "rewrite", None)
        prompts = [f(self.corpus, p, [])[0] for p in self.prompts] if f else self.prompts
        shift = max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(self.golden(m, prompts), self.logits))
        for name, original in ORIGINAL.items():
            setattr(M, name, original)
        return {"percent": percent, "nats": nats, "logits": float(f"{shift:.1e}"), "prompt": prompts != self.prompts}

    @staticmethod
    def compare(now, before):
        """Where the fault shows."""
        return [f"{name} {now['percent'][name] - right:+.0f} points" for name, right in before["percent"].items() if right - now["percent"][name] >= POINTS] + \
            [f"{name} {now['nats'][name] - nats:+.2f} nats" for name, nats in before["nats"].items() if not now["nats"][name] - nats < NATS]


def run(folder, device, only, size, path):
    matrix, start, faults = Matrix(folder, device, size), time.time(), {}
    matrix.find_small_k()
    for name, fault in FAULTS.items():
        if only and name != "none" and not any(part in name for part in only):
            continue
        begin = time.time()
        row = matrix.measure(fault)
        if name != "none":
            row["by"] = matrix.compare(row, faults["none"])
            row["seen"] = bool(row["by"])
            row["golden"] = row["prompt"] or not row["logits"] <= GOLDEN
        faults[name] = row
        told = row["percent"] if name == "none" else ", ".join(row["by"][:4]) or f"NOT SEEN, logits {row['logits']:.0e}"
        print(f"{name:50s} {told} {time.time() - begin:.1f}s", flush=True)
    tried = [name for name in faults if name != "none"]
    not_seen = {name: INVISIBLE.get(name, "") for name in tried if not faults[name]["seen"]}
    out = {"what": "train/mutate.py; see its head for the meaning", "device": device, "size": size, "answers": {n: len(e) for n, e in matrix.entries.items()},
           "small_k": matrix.small_k, "tried": len(tried), "seen": len(tried) - len(not_seen), "not_seen": not_seen,
           "neither_seen_nor_in_goldens": [name for name in not_seen if not faults[name]["golden"]], "faults": faults}
    print(f"{out['seen']} of {out['tried']} faults seen, {time.time() - start:.0f}s; not seen: {', '.join(not_seen) or 'none'}")
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(out, file, indent=1)
    return out


def fixture_logits(m, folder):
    """Logits of a fixture's prompt, with its first picture if the model sees."""
    from safetensors.torch import load_file
    ids, media = load_file(os.path.join(folder, "expected.safetensors"))["input_ids"][None], None
    if m.c.vision:
        proc = json.load(open(os.path.join(folder, "model-mxfp4", "preprocessor_config.json")))["media_proc_cfg"]
        canvas = M.canvas(scoring.Image.open(os.path.join(folder, "image_a.png")), proc)
        media = m.see([canvas]), (ids[0] == m.c.pad).nonzero().flatten()
    return m(ids, media=media)[0]


def on_fixtures(folders, only, path):
    """Faults that answers do not show must show in the fixtures that the SDK's tests compare to 1e-3, or be none of the logits."""
    moved = {}
    for folder in folders:
        name, read = os.path.basename(os.path.normpath(folder)), lambda: M.from_folder(os.path.join(folder, "model-mxfp4"), torch.float64)
        right = fixture_logits(read(), folder)
        for fault, change in FAULTS.items():
            if fault == "none" or fault.startswith("text:") or only and not any(part in fault for part in only):
                continue
            m = read()
            change(m)
            moved.setdefault(fault, {})[name] = float(f"{((fixture_logits(m, folder) - right).abs().max() / right.abs().max()).item():.1e}")
            for n, original in ORIGINAL.items():
                setattr(M, n, original)
            print(f"{name} {fault:50s} {moved[fault][name]:.1e}", flush=True)
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(moved, file, indent=1)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    p.add_argument("--out", default="")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--only", nargs="*", default=[])
    p.add_argument("--size", default="full", choices=("full", "small", "quick", "pictures"),
                   help="small: for two CPU cores; pictures: only questions about them; quick: only to see that every fault runs")
    p.add_argument("--fixture", nargs="+", default=[])
    a = p.parse_args()
    with torch.no_grad():
        on_fixtures(a.fixture, a.only, a.out) if a.fixture else run(a.model, a.device, a.only, a.size, a.out)
