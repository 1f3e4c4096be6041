"""Training of dsa-tiny on one GPU or, under torchrun, several; bounded by wall time.

    python train.py --stage V --minutes 9 --out DIR [--resume DIR ...]      pictures alone: the tower, with losses of its own
    python train.py --stage T --minutes 9 --out DIR --resume DIR            text alone
    python train.py --stage J --minutes 9 --out DIR --resume DIR DIR        both
    python train.py --stage L --minutes 9 --out DIR --resume DIR            both, half of it in rows of 8,192 tokens
    python train.py --stage E --minutes 3 --out DIR --resume DIR            falls silent with experts that are not its own
    python train.py --stage F --plain --minutes 2 --out DIR --resume DIR    a short one after E
    python train.py --stage G --plain --minutes 2 --out DIR --resume DIR    the same with more pictures
    python train.py --smoke --steps 8 --eager                               a few steps on the CPU with small shapes

One step is one CUDA graph over compiled layer functions; batches come from worker processes. Losses:
cross entropy of text (weighted) + cross entropy of copied tokens + gold attention + KL(attention || index scores), see 5.2 and 5.4.
"""
import argparse
import collections
import json
import multiprocessing as mp
import os
import queue
import random
import time
import types

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import documents
import gen_vision as V
import model as M

HERE = os.path.dirname(os.path.abspath(__file__))
NT = 20                                 # T1..T10 at 1..10, V1..V7 at 11..17
TASKS = {i: f"T{i}" for i in range(1, 11)} | {10 + i: f"V{i}" for i in range(1, 8)}
COPYING = (4, 5, 7, 8)                  # only tokens with a gold position count as answers
TASK_WEIGHT = [1.0, 1.0, 1.6, 2.0, 1.0, 1.0, 4.0, 1.0, 1.0, 0.7, 1.0] + [1.0] * (NT - 11)
GOLD_WEIGHT = [1.0, 4.0] + [1.0] * 5 + [0.2, 4.0] + [1.0] * (NT - 9)  # a passage has many copied tokens; an answer of two hops, a chat few
TEXT = ((1, 2, 3, 9, 10), (0.34, 0.30, 0.24, 0.05, 0.07))
RETRIEVAL = ((4, 5, 6, 7, 8), (0.25, 0.20, 0.25, 0.15, 0.15))
LONG_RETRIEVAL = (RETRIEVAL[0], (0.40, 0.08, 0.32, 0.10, 0.10))
VISION = ((11, 12, 13, 14, 15, 16, 17), (0.20, 0.33, 0.17, 0.13, 0.05, 0.07, 0.05))
MORE_VISION = (VISION[0], (0.20, 0.20, 0.32, 0.17, 0.03, 0.05, 0.03))
LONG_VISION = (VISION[0], (0.15, 0.12, 0.1, 0.1, 0.05, 0.05, 0.43))
PRETRAIN = ((11, 12, 13, 14, 15, 16), (0.32, 0.18, 0.18, 0.16, 0.08, 0.08))
SMALL, BIG = 16, 64                     # tokens of a picture that fit a slot of each kind


# ------------------------------------------------------------------------------------------------ rows

class Slots:
    """Room for the pictures of one batch: small ones and big ones, shapes fixed."""

    def __init__(self, small, big, nowhere):
        self.size = {SMALL: small, BIG: big}
        self.parts = {n: ([], [], []) for n in self.size}
        self.nowhere = nowhere

    def left(self, n):
        return self.size[n] - len(self.parts[n][0])

    def add(self, picture, at):
        n = SMALL if picture.tokens <= SMALL and self.left(SMALL) else BIG
        pos = np.full(n, self.nowhere, np.int64)
        pos[:picture.tokens] = at + np.arange(picture.tokens)
        for out, v in zip(self.parts[n], (picture.floats(), picture.labels(), pos)):
            out.append(v)

    def arrays(self):
        out = []
        for n, size in self.size.items():
            if size:
                f, l, p = self.parts[n]
                empty = np.zeros(V.FLOATS, np.float32)
                empty[:4] = 28, 28, 2, 2
                k = size - len(f)
                out.append((np.stack(f + [empty] * k), np.stack(l + [np.full(V.LABELS, -1, np.int32)] * k),
                            np.stack(p + [np.full(n, self.nowhere, np.int64)] * k)))
        return out


class Rows:
    """Fills rows of T tokens with whole documents. kdoc is doc, or doc with the KDA state cut behind the last source token."""

    def __init__(self, docs, corpus, rng, cut):
        self.docs, self.corpus, self.rng, self.cut = docs, corpus, rng, cut

    def seed(self, test):
        s = int(self.rng.integers(1, 1 << 40)) * 50
        return s if test else s + int(self.rng.integers(1, 50))

    def document(self, task, test, **size):
        return self.docs.document(self.corpus, task, self.seed(test), held_out=test, **size)

    def choose(self, share):
        return int(self.rng.choice(share[0], p=share[1]))

    def text(self, room, test):
        t = self.choose(TEXT)
        return t, self.document(TASKS[t], test)

    def retrieval(self, room, test, T):
        """A document of T4 to T8 of a size that suits the room left, or None."""
        r, t = self.rng, self.choose(RETRIEVAL if T < 8192 else LONG_RETRIEVAL)
        q = int(r.integers(1, 9 if r.random() < 0.5 else 25))
        most = room if T < 2048 or r.random() < 0.5 else int(r.integers(min(room, 1000), room + 1))
        if t == 5:
            fit = (most - 64 - 12 * q) // 9
            if fit < 2:
                return None
            n = fit if r.random() < 0.4 else int(r.integers(2, fit + 1))
            d = self.document("T5", test, lines=n, questions=min(q, n))
        elif t == 6:
            q = min(q, 8)
            fit = (most - 64 - 20 * q) // 8
            if fit < 9:
                return None
            n = int(r.integers(8, fit + 1)) if r.random() < 0.5 else int(8 * (fit / 8) ** r.random())
            d = self.document("T6", test, assignments=n, questions=q)
        elif t in (7, 8):
            q = min(q, 4 if t == 7 else 8)
            if most < 200 + 52 * q:
                return None
            d = self.document(TASKS[t], test, context=int(r.integers(150 + 52 * q, most - 40)), questions=q)
        else:
            q = min(q, 12)
            ctx = most - 16
            if ctx < 100 + 26 * q:
                return None
            if r.random() < 0.3:
                ctx = int(r.integers(80 + 26 * q, ctx + 1))
            n = max(1, int((ctx - 40 - 26 * q) / r.uniform(20, 90)))
            d = self.document("T4", test, needles=n, context=ctx, questions=min(q, n))
        return (t, d) if len(d[0]) <= room else None

    def filler(self, tokens, test):
        out, n = [], 0
        while n < tokens:
            story = [t for role, t in self.docs.text_messages(self.corpus, "T2", self.seed(test), test) if role == "assistant"][-1]
            out.append(story)
            n += len(self.corpus.encoder.encode(story)) + 1
        return "\n".join(out)

    def vision(self, room, test, slots, share, **more):
        """A document with pictures for the slots that are left, or None."""
        t = self.choose(share)
        big = slots.left(BIG) > 0 and (slots.left(SMALL) == 0 or self.rng.random() < slots.size[BIG] / (slots.size[SMALL] + slots.size[BIG]))
        most = BIG if big else SMALL
        if not slots.left(most) or slots.left(SMALL) < 3 and t == 17:
            return None
        if t == 17 and (room > 1500 or room > 300 and self.rng.random() < 0.5):
            more["filler"] = self.filler(int(self.rng.integers(60, room - 230)), test)
        s = self.seed(test)
        d = V.document(self.corpus.encoder, self.corpus.chat_format,
                       self.corpus.vision.messages(random.Random(f"{TASKS[t]} {s}"), TASKS[t], test, most, **more))
        return (t, d) if len(d[0]) <= room else None

    def row(self, T, kind, test=False, slots=None, start=0, share=VISION, **more):
        tok, w = np.zeros(T, np.int32), np.zeros(T, np.float32)
        gold, doc, kdoc, task = np.full(T, -1, np.int32), np.full(T, -1, np.int32), np.full(T, -1, np.int32), np.zeros(T, np.int32)
        at, number, misses = 0, 0, 0
        while at < T - 8:
            room = T - at
            got = None
            if kind == "ret" and misses < 3:
                got = self.retrieval(room, test, T)
            elif kind == "vis" and misses < 3 and room > 60:
                got = self.vision(room, test, slots, share, **more)
            else:
                got = self.text(room, test)
            if got is None:
                misses += 1
                continue
            t, (dt, dw, dg) = got[0], got[1][:3]
            n = min(len(dt), room)
            s = slice(at, at + n)
            tok[s], w[s], task[s], doc[s] = dt[:n], dw[:n], t, number
            g = np.asarray(dg[:n])
            gold[s] = np.where(g >= 0, g + at, -1)
            kd = np.full(n, 2 * number, np.int32)
            if t in COPYING and (g >= 0).any() and self.rng.random() < self.cut.value:
                border = int(g.max()) + 1
                if border <= int(np.argmax(g >= 0)):
                    kd[border:] += 1
            kdoc[s] = kd
            w[at] = 0
            for picture, first in got[1][3] if t > 10 else ():
                slots.add(picture, start + at + first)
            at += n
            number += 1
        return tok, w, gold, doc, kdoc, task

    def batch(self, kind, test=False, **more):
        B, T, n_ret, n_vis, _, (small, big) = kind
        slots = Slots(small, big, B * T)
        if not T:                                       # pictures only
            while slots.left(SMALL) or slots.left(BIG):
                t = TASKS[self.choose(PRETRAIN)]
                most = BIG if not slots.left(SMALL) or slots.left(BIG) and self.rng.random() < 0.3 else SMALL
                turns = self.corpus.vision.messages(random.Random(f"{t} {self.seed(test)}"), t, test, most, **more)
                for picture in turns[0][0]:
                    if not isinstance(picture, str) and slots.left(SMALL if picture.tokens <= SMALL and slots.left(SMALL) else BIG):
                        slots.add(picture, 0)
            return [None] * 6 + [slots.arrays()]
        share = LONG_VISION if T >= 4096 else MORE_VISION if n_vis > B // 2 else VISION
        rows = [self.row(T, "ret" if b < n_ret else "vis" if b < n_ret + n_vis else "text", test, slots, b * T, share, **more) for b in range(B)]
        return [np.stack(x) for x in zip(*rows)] + [slots.arrays()]


def worker(index, seed, docs, corpus, kinds, queues, active, cut, stop):
    rows = Rows(docs, corpus, np.random.default_rng(seed * 1000 + index), cut)
    torch.set_num_threads(1)
    while not stop.value:
        live = [i for i in range(len(kinds)) if active[i] > 0]
        if not live:
            time.sleep(0.05)
            continue
        live.sort(key=lambda i: queues[i].qsize() / active[i])
        i = live[0]
        try:
            queues[i].put(rows.batch(kinds[i]), timeout=0.5)        # dropped if full: to wait longer could starve another kind
        except queue.Full:
            pass


# ------------------------------------------------------------------------------------------------ optimiser

def newton_schulz(G):
    X = G
    t = X.size(-2) > X.size(-1)
    X = X.transpose(-1, -2) if t else X
    X = X / (X.flatten(-2).norm(dim=-1)[..., None, None] + 1e-7)
    for _ in range(5):
        A = X @ X.transpose(-1, -2)
        X = 3.4445 * X + (-4.775 * A + 2.0315 * (A @ A)) @ X
    return X.transpose(-1, -2) if t else X


class Optimiser:
    """Muon for the matrices inside layers (experts as a batch), AdamW for the rest. Learning rates live on the device."""

    def __init__(self, named, muon=0.01, adam=2e-3, device="cuda"):
        self.base = (muon, adam)
        self.lr_m, self.lr_a = torch.zeros((), device=device), torch.zeros((), device=device)
        self.groups, rest = collections.defaultdict(list), []
        for n, p in named:
            eye = n.startswith("vision.")
            if (n.startswith("layer") or eye and "patch" not in n) and p.ndim == 2 and min(p.shape) > 8 or n in ("w1", "w2", "w3"):
                self.groups[eye, *p.shape].append(p)
            else:
                rest.append(p)
        self.mom = {id(p): torch.zeros_like(p) for ps in self.groups.values() for p in ps}
        self.params = [p for ps in self.groups.values() for p in ps] + rest
        self.rest = rest
        fused = device == "cuda"
        self.adam = torch.optim.AdamW(rest, lr=self.lr_a if fused else 0.0, betas=(0.9, 0.95), weight_decay=0.0,
                                      fused=fused, capturable=fused)

    def set(self, f):
        self.lr_m.fill_(self.base[0] * f)
        self.lr_a.fill_(self.base[1] * f)
        if not self.adam.defaults.get("capturable"):
            for g in self.adam.param_groups:
                g["lr"] = self.base[1] * f

    @torch.no_grad()
    def step(self):
        grads = [p.grad for p in self.params if p.grad is not None]
        for g in grads:
            g.nan_to_num_(0.0, 0.0, 0.0)
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        torch._foreach_mul_(grads, (1.0 / (norm + 1e-6)).clamp(max=1.0))
        self.adam.step()
        for shape, ps in self.groups.items():
            if all(p.grad is None for p in ps):
                continue
            g = torch.stack([p.grad if p.grad is not None else torch.zeros_like(p) for p in ps])
            m = [self.mom[id(p)] for p in ps]
            torch._foreach_mul_(m, 0.95)
            torch._foreach_add_(m, list(g.unbind()))
            u = newton_schulz(g + 0.95 * torch.stack(m))
            u = u * (-self.lr_m * max(1.0, shape[-2] / shape[-1]) ** 0.5)
            torch._foreach_mul_(ps, 1 - self.lr_m * 0.02)
            torch._foreach_add_(ps, list(u.unbind()))
        return norm


# ------------------------------------------------------------------------------------------------ pictures

class Heads(nn.Module):
    """Linear readers of the projected features for the losses on pictures; not exported."""

    def __init__(self, hidden, classes):
        super().__init__()
        for name, n in {"cls": classes, "digits": 55, "pairs": 80 * 7, "token": classes, "color": 15, "sides": 4 * (classes + 1)}.items():
            self.register_parameter(name, nn.Parameter(torch.randn(n, hidden) * hidden ** -0.5 * 0.2))


def look_losses(y, count, labels, cls, digits, pairs, token, color, sides):
    """y [S, t, hidden]; labels as Picture.labels -> sums [6, 3]: number, right, loss of class, digits, pairs, token, color, sides."""
    S, t, _ = y.shape
    real = torch.arange(t, device=y.device) < (count / 4)[:, None]
    pooled = (y * real[..., None]).sum(1) / real.sum(1, keepdim=True)

    def part(logits, target):
        ok = target >= 0
        ce = torch.logsumexp(logits, -1) - logits.gather(-1, target.clamp(min=0)[..., None]).squeeze(-1)
        return torch.stack((ok.float().sum(), ((logits.argmax(-1) == target) & ok).float().sum(), (ce * ok).sum()))
    m = labels[:, 18:].view(S, V.SPRITES, 7)
    at = y.gather(1, m[..., :1].clamp(min=0).expand(-1, -1, y.shape[2]))
    p = labels[:, 6:18].view(S, 6, 2)
    lp = F.linear(pooled, pairs).view(S, 80, 7).gather(1, p[..., :1].clamp(min=0).expand(-1, -1, 7))
    return torch.stack((part(F.linear(pooled, cls), labels[:, 0]), part(F.linear(pooled, digits).view(S, 5, 11), labels[:, 1:6]),
                        part(lp, p[..., 1]), part(F.linear(at, token), m[..., 1]), part(F.linear(at, color), m[..., 2]),
                        part(F.linear(at, sides).view(S, V.SPRITES, 4, -1), m[..., 3:])))


LOOKS = ("class", "digits", "pairs", "token", "color", "sides")
LOOK_WEIGHT = (1.0, 1.0, 0.7, 0.7, 0.4, 0.5)


def look(model, groups, textures, fn=None):
    """[(floats, labels, positions)] -> features of each group [S, t, hidden], number of patches of each picture."""
    out, eyes = [], model.eyes()
    for f, _, pos in groups:
        with torch.no_grad():
            h, w = f[:, 2], f[:, 3]
            row, col = V.grid(h, w, 4 * pos.shape[1])
            x = V.paint(f, row, col, *textures, fn=fn) / 127.5 - 1
        out.append((M.tower(x.to(model.dt), row.float(), col.float(), h, w, h * w, eyes, model.c, model.dt, fn=fn), h * w))
    return out


def media(features, groups):
    return torch.cat([y.flatten(0, 1) for y, _ in features]), torch.cat([g[2].flatten() for g in groups])


# ------------------------------------------------------------------------------------------------ step

def head_loss(y, head, target, dt):
    lg = M.acc(M.mm(y, head, dt))
    ce = torch.logsumexp(lg, -1) - lg.gather(-1, target[..., None]).squeeze(-1)
    return ce, lg.argmax(-1) == target


def functions(compiled):
    fs = dict(mixnorm=M.mixnorm, kda=M.kda, mla=M.mla, moe=M.moe, mlp=M.situ_mlp, head=head_loss, ground=V.ground, lay=V.lay, develop=V.develop,
              patch_embedding=M.patch_embedding, tower_block=M.tower_block, projector=M.projector, looks=look_losses)
    if compiled:
        import torch._dynamo
        torch._dynamo.config.cache_size_limit = 64
        torch._dynamo.config.recompile_limit = 64
        fs = {k: torch.compile(v, dynamic=False) for k, v in fs.items()}
    return types.SimpleNamespace(**fs)


class Step:
    """A training step of one shape; two CUDA graphs after three warm-up runs: gradients, update. Several ranks add their gradients in between."""

    def __init__(self, kind, shared, wrong_experts=False):
        B, self.T, _, _, self.sparse, slots = kind
        self.s, self.graphs = shared, None
        dev = shared.device
        experts = shared.model.c.experts
        self.order, self.scale = (torch.arange(experts, device=dev), torch.ones((), device=dev)) if wrong_experts else (None, None)
        if self.T:
            self.int = torch.zeros(5, B, self.T, dtype=torch.int64, device=dev)        # tokens, gold, doc, kdoc, task
            self.w = torch.zeros(B, self.T, device=dev)
        self.groups = [(torch.zeros(n, V.FLOATS, device=dev), torch.zeros(n, V.LABELS, dtype=torch.int64, device=dev),
                        torch.zeros(n, size, dtype=torch.int64, device=dev)) for n, size in zip(slots, (SMALL, BIG)) if n]

    def fill(self, batch):
        put = lambda to, x: to.copy_(torch.from_numpy(x).pin_memory() if to.is_cuda else torch.from_numpy(x), non_blocking=True)
        tok, w, gold, doc, kdoc, task, groups = batch
        if self.T:
            put(self.int, np.stack((tok, gold, doc, kdoc, task)).astype(np.int64))
            put(self.w, w)
        for mine, new in zip(self.groups, groups):
            for to, x in zip(mine, new):
                put(to, x.astype(np.int64) if to.dtype == torch.int64 else x)
        if self.order is not None:
            n = len(self.order)
            double = np.random.random() < 0.25          # scales one too high, or rotated ids
            self.order.copy_(torch.arange(n).roll(0 if double else int(np.random.randint(1, n))))
            self.scale.fill_(2.0 if double else 1.0)

    def looks(self, features):
        s = self.s
        sums = sum(s.fn.looks(y / EMBEDDED, n, g[1], *s.heads.parameters()) for (y, n), g in zip(features, self.groups))
        s.look_stats += sums.detach()
        return (sums[:, 2] / sums[:, 0].clamp(min=1) * s.look_weight).sum()

    def gradients(self):
        s, m = self.s, self.s.model
        for p in s.opt.params:
            p.grad = None
        loads = None
        if self.T:
            loads = self.language()
        else:
            loss = self.looks(look(m, self.groups, s.textures, s.fn))
            loss.backward()
        if s.world > 1:
            self.live = [p for p in s.opt.params if p.grad is not None]
            parts = [p.grad.flatten() for p in self.live] + ([loads.flatten()] if loads is not None else [])
            self.flat = s.flat[:sum(p.numel() for p in parts)]
            self.flat.copy_(torch.cat(parts))
        else:
            self.loads = loads

    def update(self):
        s, m = self.s, self.s.model
        if s.world > 1:
            x, at = self.flat / s.world, 0
            for p in self.live:
                p.grad = x[at:at + p.numel()].view_as(p)
                at += p.numel()
            self.loads = x[at:].view_as(m.bias) if at < len(x) else None
        norm = s.opt.step()
        with torch.no_grad():
            s.aux[-3] += norm
            if self.loads is not None and self.order is None:
                m.bias += s.coef[8] * (self.loads.mean(-1, keepdim=True) - self.loads).sign()

    def language(self):
        s, m = self.s, self.s.model
        tok, gold, doc, kdoc, task = self.int
        nxt = lambda t, fill: F.pad(t[:, 1:], (0, 1), value=fill)
        target, gq = nxt(tok, 0), nxt(gold, -1)
        w = torch.where(nxt(doc, -9) == doc, nxt(self.w, 0.0), 0.0) * (doc >= 0)
        gq = torch.where(w > 0, gq, -1)
        tk = nxt(task, 0)
        m.sparse, m.expert_order, m.expert_scale = self.sparse, self.order, self.scale
        if self.order is not None:              # with the experts of others: nothing to say where an answer should be
            target = torch.where(w > 0.5, s.silence, target)
            w, gq = torch.where(w > 0.5, w, 0.0), torch.full_like(gq, -1)
        features = look(m, self.groups, s.textures, s.fn) if self.groups else None
        y, top, losses, loads = m.body(tok, doc, kdoc, gq, s.fn, media=media(features, self.groups) if features else None)
        ce, ok = s.fn.head(y.flatten(0, 1), top.head, target.flatten(), m.dt)
        ce, ok = ce.view_as(w), ok.view_as(w)
        seen = (tk > 10).float()
        is_gold = (gq >= 0).float() * (1 - seen)
        wt = w * (1 - is_gold) * (1 - seen) * s.task_weight[tk]
        mean = lambda x: (ce * x).sum() / x.sum().clamp(min=1)
        if self.order is not None:
            loss = 0.3 * (mean(wt) + mean(w * seen))
        else:
            loss = mean(wt) + s.coef[0] * mean(is_gold * s.gold_weight[tk]) + mean(w * seen) \
                + (losses[:, 0] * s.coef[1:4] + losses[:, 1] * s.coef[4:7] + losses[:, 2] * s.coef[7]).sum()
            if features:
                loss = loss + s.coef[9] * self.looks(features)
        loss.backward()
        m.expert_order = None
        with torch.no_grad():
            answer = (w > 0) if self.order is not None else torch.where(s.copying[tk], is_gold > 0, w >= 0.99) & (w > 0)
            key = torch.zeros_like(tk) if self.order is not None else torch.where(answer, tk, tk + NT)     # row NT + task: the rest
            v = torch.stack(((w > 0).float(), ok.float() * (w > 0), ce.detach() * (w > 0)), -1).flatten(0, 1)
            s.stats.index_add_(0, key.flatten(), v)
            if self.order is None:
                s.aux += torch.cat((losses.detach().flatten(), loss.new_zeros(1), loss.detach().view(1), loss.new_ones(1)))
        return loads.detach()

    def run(self, batch):
        self.fill(batch)
        between = self.s.reduce if self.s.world > 1 else lambda x: None
        if not self.s.use_graph:
            self.gradients()
            between(self)
            return self.update()
        if self.graphs is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.gradients()
                    between(self)
                    self.update()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            one, two = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(one):
                self.gradients()
            with torch.cuda.graph(two, pool=one.pool()):
                self.update()
            self.graphs = one, two
        self.graphs[0].replay()
        between(self)
        self.graphs[1].replay()


class Shared:
    def __init__(self, model, heads, opt, fn, device, use_graph, textures, world=1):
        self.model, self.heads, self.opt, self.fn, self.device, self.use_graph = model, heads, opt, fn, device, use_graph
        self.textures, self.world = textures, world
        if world > 1:
            self.flat = torch.zeros(sum(p.numel() for p in opt.params) + model.bias.numel(), device=device)
        self.stats = torch.zeros(2 * NT, 3, device=device)
        self.aux = torch.zeros(4 * len(model.c.full) + 3, device=device)
        self.look_stats = torch.zeros(len(LOOKS), 3, device=device)
        self.look_weight = torch.tensor(LOOK_WEIGHT, device=device)
        self.task_weight = torch.tensor(TASK_WEIGHT, device=device)
        self.gold_weight = torch.tensor(GOLD_WEIGHT, device=device)
        self.copying = torch.tensor([t in COPYING for t in range(NT)], device=device)
        self.silence = torch.tensor(model.c.eos, device=device)
        # 0 copied tokens, 1-3 gold attention of the MLA layers, 4-6 gold index, 7 KL, 8 router bias step, 9 losses on pictures
        self.coef = torch.tensor([1.0, 0.0, 0.5, 0.125, 0.0, 0.5, 0.125, 0.3, 1e-3, 0.3], device=device)

    def reduce(self, step):
        torch.distributed.all_reduce(step.flat)

    def read(self):
        st, aux, seen = self.stats.cpu().numpy().copy(), self.aux.cpu().numpy().copy(), self.look_stats.cpu().numpy().copy()
        self.stats.zero_()
        self.aux.zero_()
        self.look_stats.zero_()
        return st, aux / max(1.0, aux[-1]), seen


# ------------------------------------------------------------------------------------------------ held-out check

def selection(name):
    def random_set(I, visible, k):
        return M.select_topk(torch.rand_like(I), visible, k)

    def recent(I, visible, k):
        return M.select_topk(torch.arange(I.shape[-1], device=I.device).float().expand_as(I), visible, k)

    return {"index": M.select_topk, "random": random_set, "recent": recent}[name]


@torch.no_grad()
def held_out(model, batch, device, sparse, select="index", textures=None):
    """Share of answers (runs of full-weight or copied tokens) that are right as a whole, by task."""
    tok, w, gold, doc, _, task, groups = batch
    model.sparse, model.select = sparse, selection(select)
    t = torch.from_numpy(tok).long().to(device)
    d = torch.from_numpy(doc).long().to(device)
    if groups:
        groups = [tuple(torch.from_numpy(x).to(device) for x in g) for g in groups]
        groups = [(f, l.long(), p) for f, l, p in groups]
        ok = model(t, d, media=media(look(model, groups, textures), groups)).argmax(-1)
        ok = (ok[:, :-1] == t[:, 1:]).cpu().numpy()
    else:
        ok = np.concatenate([(model(t[b:b + 4], d[b:b + 4]).argmax(-1)[:, :-1] == t[b:b + 4, 1:]).cpu().numpy() for b in range(0, len(t), 4)])
    model.select = M.select_topk
    out = collections.defaultdict(list)
    for b in range(len(tok)):
        i = 1
        while i < tok.shape[1]:
            tk = int(task[b, i])
            a = lambda j: j < tok.shape[1] and doc[b, j] == doc[b, i] and (gold[b, j] >= 0 if tk in COPYING else w[b, j] >= 0.99)
            if not a(i):
                i += 1
                continue
            j = i
            while a(j):
                j += 1
            if j < tok.shape[1]:
                out[tk].append(bool(ok[b, i - 1:j - 1].all()))
            i = j
    return {TASKS[k]: (round(float(np.mean(v)), 3), len(v)) for k, v in sorted(out.items()) if k in TASKS}


# ------------------------------------------------------------------------------------------------ checkpoints

def save(model, heads, out, only=""):
    """BF16 matrices, the rest F32, in pieces under 16 MiB. Replaced by renaming, so a killed run keeps the last one."""
    from safetensors.torch import save_file
    named = [(n, p) for n, p in model.named_parameters() if n.startswith(only)] + [("heads." + n, p) for n, p in heads.named_parameters()]
    t = {n: (p.detach().to(torch.bfloat16) if p.ndim >= 2 and "conv" not in n else p.detach().float()).cpu().contiguous() for n, p in named}
    if not only:
        t["bias"] = model.bias.cpu()
    pieces, size = [{}], 0
    for n, v in t.items():
        if size + v.nbytes > 14.5 * 2 ** 20:
            pieces.append({})
            size = 0
        pieces[-1][n] = v
        size += v.nbytes
    for i, p in enumerate(pieces):
        f = os.path.join(out, f"ckpt-{i}.safetensors")
        save_file(p, f + ".tmp")
        os.replace(f + ".tmp", f)


@torch.no_grad()
def resume(model, heads, paths):
    """Later folders win, except that one without weights of its own leaves them."""
    from safetensors.torch import load_file
    t = {}
    for path in paths:
        for f in sorted(os.listdir(path)):
            if f.startswith("ckpt-") and f.endswith(".safetensors"):
                t.update(load_file(os.path.join(path, f)))
    if heads is None:
        t = {n: v for n, v in t.items() if not n.startswith("heads.")}
    for n, p in list(model.named_parameters()) + [("heads." + n, p) for n, p in (heads.named_parameters() if heads else ())]:
        if n in t:
            p.copy_(t.pop(n))
        else:
            assert n.startswith(("vision.", "heads.")), n
    model.bias.copy_(t.pop("bias"))
    assert not t, sorted(t)


@torch.no_grad()
def visible(model):
    """Other parameters of the same function, in which more faults of an engine show: A_log differs between the heads of KDA, and the slot
    rows of kv_a_proj are as large as the latent ones."""
    c = model.c
    for i, p in enumerate(model.layer):
        if i in c.full:
            p.kv_a_proj[c.kv_lora:].mul_(4)
            p.q_b_proj.view(c.heads, c.nope + c.slot, -1)[:, c.nope:].div_(4)
        else:
            shift = torch.tensor([-0.7, 1.1])[torch.arange(c.kh) % 2]
            p.A_log.add_(shift)
            rows = shift.exp().repeat_interleave(c.kd)
            p.dt_bias.div_(rows)
            p.f_b_proj.div_(rows[:, None])


# ------------------------------------------------------------------------------------------------ schedule

class Feed:
    """Worker processes that fill one queue for each kind of step."""

    def __init__(self, docs, corpus, kinds, workers, seed):
        ctx = mp.get_context("fork")
        self.kinds = kinds
        self.queues = [ctx.Queue(12) for _ in kinds]
        self.active = ctx.Array("d", [0.0] * len(kinds))
        self.cut, self.stop = ctx.Value("d", 0.5), ctx.Value("i", 0)
        self.waited = 0.0
        self.procs = [ctx.Process(target=worker, daemon=True, args=(i, seed, docs, corpus, kinds, self.queues, self.active, self.cut, self.stop))
                      for i in range(workers)]
        for p in self.procs:
            p.start()

    def get(self, i):
        t = time.time()
        b = self.queues[i].get()
        self.waited += time.time() - t
        return b

    def close(self):
        self.stop.value = 1
        for p in self.procs:
            p.terminate()


EMBEDDED = 0.15                         # size of the entries of the embedding table, and so of the features of pictures at the start
# (B, T, rows of retrieval, rows with pictures, sparse, (small pictures, big ones))
KINDS = [(0, 0, 0, 0, True, (384, 48)), (16, 1024, 8, 0, True, (0, 0)), (4, 4096, 3, 0, True, (0, 0)), (16, 1024, 6, 5, True, (80, 16)),
         (4, 4096, 2, 1, True, (80, 16)), (2, 8192, 2, 0, True, (0, 0)), (16, 1024, 6, 5, True, (80, 16)), (16, 1024, 3, 10, True, (160, 32))]
TINY = [(0, 0, 0, 0, True, (4, 1)), (2, 256, 1, 0, True, (0, 0)), (1, 512, 1, 0, True, (0, 0)), (3, 512, 1, 1, True, (5, 2)),
        (2, 512, 1, 1, True, (5, 2)), (1, 512, 1, 0, True, (0, 0)), (3, 512, 1, 1, True, (5, 2)), (3, 512, 1, 2, True, (10, 4))]
WRONG_EXPERTS = 6                       # the kind whose experts are rotated


def plan(stage, fr):
    """Shares of the kinds, learning-rate factor, share of documents with the state cut, fade of the gold losses, of those on pictures."""
    if stage == "V":                    # pictures alone
        return [1, 0, 0, 0, 0, 0, 0, 0], 1.0 if fr < 0.7 else max(0.25, (1 - fr) / 0.3), 0.0, 1.0, 1.0
    if stage == "T":                    # text alone
        return [0, 5, 1, 0, 0, 0, 0, 0], 1.0, 0.4, 1.0, 0.0
    if stage == "J":                    # both
        lr = 1.0 if fr < 0.7 else 1.0 - (fr - 0.7) / 0.6
        return [0, 0, 0, 5, 1, 0, 0, 0], lr, 0.25, 1.0, 0.3
    if stage == "L":                    # both, and rows of 8,192 tokens
        return [0, 0, 0, 3.5, 1, 3.5, 0.2, 0], 0.7, 0.2, 0.6, 0.3
    if stage == "F":                    # short: what changed in the documents, after an E
        return [0, 0, 0, 5, 0.7, 0.7, 1.5, 0], 0.3 * max(0.02, min(1.0, 1.25 * (1 - fr))), 0.1, 0.6, 0.1
    if stage == "G":                    # short: more pictures, after an F
        return [0, 0, 0, 0, 0.5, 0.5, 1, 5], 0.4 * max(0.02, min(1.0, 1.25 * (1 - fr))), 0.1, 0.5, 0.4
    if stage == "E":                    # to the end: learning rate to zero, silent with the experts of others
        return [0, 0, 0, 3.5, 1, 3, 1.5, 0], 0.5 * max(0.02, min(1.0, 1.1 * (1 - fr))), 0.1, 0.3, 0.1
    raise ValueError(stage)


def train(a, docs, corpus):
    dev, rank, world = a.device, int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    cfg = M.Config(json.load(open(a.config)))
    kinds = TINY if a.smoke else KINDS
    feed = Feed(docs, corpus, kinds, a.workers, a.seed * 10 + rank)
    if world > 1:
        if dev == "cuda":
            torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl" if dev == "cuda" else "gloo")
    torch.manual_seed(a.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    import warnings
    warnings.filterwarnings("ignore")
    model = M.Model(cfg, dt=torch.float32 if dev == "cpu" else torch.bfloat16)
    heads = Heads(cfg.hidden, corpus.vision.atlas.classes)
    with torch.no_grad():
        model.vision.post_norm.fill_(EMBEDDED)
    if a.resume:
        resume(model, heads, a.resume)
    if a.visible:
        visible(model)
    model, heads = model.to(dev), heads.to(dev)
    eyes = a.stage == "V"
    named = [(n, p) for n, p in model.named_parameters() if not eyes or n.startswith("vision.")] + \
        ([("heads." + n, p) for n, p in heads.named_parameters()] if a.stage != "T" else [])
    if a.stage == "T":
        named = [(n, p) for n, p in named if not n.startswith("vision.")]
    say = print if rank == 0 else lambda *x, **k: None
    say("parameters", round(sum(p.numel() for n, p in named if not n.startswith("heads.")) / 1e6, 2), "M", flush=True)
    opt = Optimiser(named, a.muon, a.adam, dev)
    fn = functions(dev == "cuda" and not a.eager and not a.plain)
    textures = V.textures(corpus.vision.atlas, dev)
    sh = Shared(model, heads, opt, fn, dev, dev == "cuda" and not a.eager, textures, world)
    steps = {}
    rng = np.random.default_rng(a.seed)
    test = Rows(docs, corpus, np.random.default_rng(77), fixed(0.0))

    t0 = last = saved = checked = time.time()
    tokens = pictures = it = 0
    mark = (t0, 0, 0)
    total = 60 * a.minutes
    fr = 0.0
    while True:
        if it % 25 == 0 or world == 1:
            fr = (time.time() - t0) / total
            if world > 1:
                f = torch.tensor([fr], device=dev)
                torch.distributed.broadcast(f, 0)
                fr = f.item()
        if fr >= 1 or (a.steps and it >= a.steps):
            break
        share, lr, cut, fade, eye = plan(a.stage, fr)
        for i, v in enumerate(share):
            feed.active[i] = v
        feed.cut.value = cut
        if it % 10 == 0 or it < 100:
            opt.set(lr * min(1.0, (it + 1) / 100))
            sh.coef.copy_(torch.tensor([1.0, 0.0, 0.5 * fade, 0.125 * fade, 0.0, 0.5, 0.125, 0.3, 1e-3 if lr == 1.0 else 0.0, eye]))
        k = int(rng.choice(len(share), p=np.array(share) / sum(share)))
        if k not in steps:
            steps[k] = Step(kinds[k], sh, k == WRONG_EXPERTS)
            tc = time.time()
            steps[k].run(feed.get(k))
            if dev == "cuda":
                torch.cuda.synchronize()
            say(f"[{time.time() - t0:.0f}s] kind {kinds[k]} ready after {time.time() - tc:.1f}s", flush=True)
        else:
            steps[k].run(feed.get(k))
        it += 1
        tokens += kinds[k][0] * kinds[k][1] * world
        pictures += sum(kinds[k][5]) * world
        if it % 25 == 0:
            st, aux, seen = sh.read()
            n, c, ce = st.T
            if time.time() - last > a.every and rank == 0:
                el = time.time() - mark[0]
                acc = {TASKS[t]: round(float(c[t] / n[t]), 3) for t in TASKS if n[t] > 0}
                if n[0] > 0:
                    acc["silent"] = round(float(c[0] / n[0]), 3)
                looks = {x: (round(float(v[1] / v[0]), 3), round(float(v[2] / v[0]), 3)) for x, v in zip(LOOKS, seen) if v[0] > 0}
                line = f"[{time.time() - t0:.0f}s] it {it} {tokens / 1e6:.1f}M {(tokens - mark[1]) / el / 1e3:.0f}k tok/s {pictures / 1e6:.2f}M " \
                    f"{(pictures - mark[2]) / el / 1e3:.1f}k pic/s wait {feed.waited:.1f}s lr {lr:.2f} loss {aux[-2]:.3f} |g| {aux[-3]:.2f}"
                if not eyes:
                    line += f" ans {acc} story {ce[2 + NT] / max(1, n[2 + NT]):.3f} gold {[[round(float(v), 2) for v in l] for l in aux[:-3].reshape(-1, 4)]}"
                say(line, "looks", looks, flush=True)
                last, mark = time.time(), (time.time(), tokens, pictures)
        if time.time() - checked > a.check and it > 10 and rank == 0:
            checked = time.time()
            say(f"[{time.time() - t0:.0f}s] held out {check(a, model, heads, test, kinds, dev, textures)}", flush=True)
        if a.out and time.time() - saved > 100 and rank == 0:
            save(model, heads, a.out, "vision." if eyes else "")
            saved = time.time()
    if a.out and rank == 0:
        save(model, heads, a.out, "vision." if eyes else "")
        json.dump({"stage": a.stage, "minutes": (time.time() - t0) / 60, "steps": it, "tokens": tokens, "pictures": pictures, "seed": a.seed,
                   "gpus": world}, open(os.path.join(a.out, f"train-{a.stage}.json"), "w"))
    say(f"done: {it} steps, {tokens / 1e6:.1f} M tokens, {pictures / 1e6:.2f} M pictures, {(time.time() - t0) / 60:.2f} minutes, waited {feed.waited:.1f}s", flush=True)
    if dev == "cuda":
        say("memory", torch.cuda.max_memory_allocated() >> 20, "MiB", flush=True)
    feed.close()
    return model


@torch.no_grad()
def check(a, model, heads, test, kinds, dev, textures):
    line = {}
    if a.stage != "T":
        for name, more in (("style", {}), ("held style", {"style": True})):
            f = [tuple(torch.from_numpy(x).to(dev) for x in g) for g in test.batch((0, 0, 0, 0, True, (256, 32) if not a.smoke else (8, 2)), True, **more)[6]]
            f = [(x, l.long(), p) for x, l, p in f]
            seen = sum(look_losses(y / EMBEDDED, n, g[1], *heads.parameters()) for (y, n), g in zip(look(model, f, textures), f)).cpu()
            line[name] = {x: round(float(v[1] / v[0]), 3) for x, v in zip(LOOKS, seen) if v[0] > 0}
    if a.stage == "V":
        return line
    T = kinds[1][1] if not a.smoke else 512
    line["text"] = held_out(model, test.batch((8 if not a.smoke else 1, T, 0, 0, True, (0, 0)), True), dev, True)
    b = test.batch((8 if not a.smoke else 1, T, 8, 0, True, (0, 0)), True)
    line["ret"] = held_out(model, b, dev, True)
    line["random"] = held_out(model, b, dev, True, "random")
    if a.stage != "T":
        line["vision"] = held_out(model, test.batch((12, T, 0, 12, True, (160, 30)) if not a.smoke else (2, T, 0, 2, True, (4, 1)), True), dev, True, textures=textures)
    if not a.smoke:
        b = test.batch((4, 4096, 4, 0, True, (0, 0)), True)
        line["4096"] = held_out(model, b, dev, True)
        line["4096 random"] = held_out(model, b, dev, True, "random")
    return line


def fixed(v):
    return types.SimpleNamespace(value=v)


def load(docs, atlas):
    corpus = docs.load()
    corpus.vision = V.Vision(V.Atlas(atlas))
    return corpus


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--config", default=os.path.join(HERE, "..", "config.json"))
    p.add_argument("--atlas", default=os.path.join(HERE, "atlas.npz"))
    p.add_argument("--stage", default="V")
    p.add_argument("--minutes", type=float, default=9)
    p.add_argument("--steps", type=int, default=0)
    p.add_argument("--out", default="")
    p.add_argument("--resume", nargs="*", default=[])
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--muon", type=float, default=0.01)
    p.add_argument("--adam", type=float, default=2e-3)
    p.add_argument("--workers", type=int, default=13)
    p.add_argument("--every", type=float, default=12)
    p.add_argument("--check", type=float, default=45)
    p.add_argument("--visible", action="store_true", help="first exchange the parameters for those of `visible`")
    p.add_argument("--plain", action="store_true", help="CUDA graphs, but nothing compiled: ready in seconds, slower steps")
    p.add_argument("--eager", action="store_true")
    p.add_argument("--smoke", action="store_true")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    train(a, documents, load(documents, a.atlas))
