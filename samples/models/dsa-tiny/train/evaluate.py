"""Evaluates an exported checkpoint, read by model.from_folder, on ../eval/*.jsonl.

    python evaluate.py --model DIR --out eval.json [--device cuda] [--quick]

An answer counts as right if greedy decoding yields it: with the right answer fed in, every one of its tokens is the most likely one.
For T4 and T5 one document has several answers (lines); each is counted by itself. No sampling, no partial credit.
"""
import argparse
import json
import os
import re
import time

import numpy as np
import torch

import documents
import model as M

HERE = os.path.dirname(os.path.abspath(__file__))


def random_set(I, visible, k):
    g = torch.Generator(device=I.device).manual_seed(7)
    return M.select_topk(torch.rand(I.shape, generator=g, device=I.device), visible, k)


def recent_set(I, visible, k):
    return M.select_topk(torch.arange(I.shape[-1], device=I.device).float().expand_as(I), visible, k)


def expected_answer(entry):
    """[(text, counted)] pieces of the answer; counted pieces are the ones asked for."""
    q, answers = entry["messages"][-1]["content"], entry["answers"]
    if entry["task"] == "T5":
        keys = q.split("\n\n")[1].split("\n")[1:]
        assert len(keys) == len(answers)
        return "\n".join(f"{k} = {a}" for k, a in zip(keys, answers))
    if entry["task"] == "T4":
        keys = re.findall(r"code of the (\w+ \w+)[.?]$", q.split("\n\n")[1], re.M)
        assert len(keys) == len(answers)
        return "\n".join(f"The code of the {k} is {a}." for k, a in zip(keys, answers))
    return answers[0]


def tokens_of(corpus, entry):
    prompt = corpus.chat_format.prompt([(m["role"], m["content"]) for m in entry["messages"]])
    body = corpus.encoder.encode(expected_answer(entry))
    return prompt, body + corpus.chat_format.close["assistant"]


@torch.no_grad()
def score(model, corpus, entries, device):
    """-> (answers right, answers, whole documents right). Short questions go in batches, padded behind their end."""
    right = total = whole = 0
    newline = corpus.encoder.encode("\n")[0]
    pairs = [tokens_of(corpus, e) for e in entries]
    at = 0
    while at < len(pairs):
        n = 50 if entries[at]["task"] in ("T1", "T3") else 1
        group = pairs[at:at + n]
        ids = torch.full((len(group), max(len(p) + len(a) for p, a in group)), corpus.encoder.special("[PAD]"), device=device)
        for row, (p, a) in zip(ids, group):
            row[:len(p) + len(a)] = torch.tensor(p + a, device=device)
        first = min(len(p) for p, _ in group)
        y, top = model.body(ids[:, :-1])[:2]
        hit = (M.mm(y[:, first - 1:], top.head, model.dt).argmax(-1) == ids[:, first:]).cpu().numpy()
        for row, (p, a), e in zip(hit, group, entries[at:at + n]):
            ok = row[len(p) - first:len(p) - first + len(a)]
            whole += bool(ok.all())
            lines = [np.arange(len(a))]
            if e["task"] in ("T4", "T5"):
                lines = np.split(lines[0], [i + 1 for i, t in enumerate(a) if t == newline])
            right += sum(bool(ok[part].all()) for part in lines)
            total += len(lines)
        at += n
    return right, total, whole


@torch.no_grad()
def story_loss(model, corpus, count, device, held_out=True):
    """Loss per story token: frames never trained on, or (held_out=False) new fillings of trained frames."""
    loss = n = 0
    for i in range(1, count + 1):
        t, w, _ = documents.document(corpus, "T2", 50 * i + (not held_out), held_out=held_out)
        x = torch.tensor(t[None].astype(np.int64), device=device)
        ce = torch.nn.functional.cross_entropy(model(x[:, :-1])[0].float(), x[0, 1:], reduction="none")
        k = torch.from_numpy(w[1:] > 0).to(device)
        loss += ce[k].sum().item()
        n += int(k.sum())
    return loss / n


def read_eval(task):
    return [json.loads(l) for l in open(os.path.join(HERE, "..", "eval", f"{task.lower()}.jsonl"), encoding="utf-8")]


def percent(r):
    return {"percent": round(100 * r[0] / r[1], 2), "right": r[0], "answers": r[1], "whole_documents": r[2]}


def rotate_experts(model):
    for p in (model.w1, model.w3, model.w2):
        p.copy_(p.roll(1, 1))


def evaluate(folder, device, quick=False):
    t0 = time.time()
    corpus = documents.load()
    model = M.from_folder(folder, torch.float32, device)
    entries = {t: read_eval(t) for t in ("T1", "T3", "T4", "T5")}
    n_long = 6 if quick else 1000
    out = {}
    for t, e in entries.items():
        out[t] = percent(score(model, corpus, e[:n_long * 20] if t in ("T1", "T3") else e[:n_long], device))
        print(t, out[t], f"{time.time() - t0:.0f}s", flush=True)
    un = [e for e in entries["T3"] if e.get("unseen_pair")]
    out["T3"]["unseen_pairs"] = percent(score(model, corpus, un, device))
    out["T2_trained_frames_loss"] = round(story_loss(model, corpus, 40, device, False), 4)
    out["T2_held_out_frames_loss"] = round(story_loss(model, corpus, 40, device), 4)
    few = lambda t: entries[t][:min(n_long, 12)]
    for name, f in (("random_128", random_set), ("recent_128", recent_set)):
        model.select = f
        out[name] = {t: percent(score(model, corpus, few(t), device)) for t in ("T4", "T5")}
        print(name, out[name], f"{time.time() - t0:.0f}s", flush=True)
    model.select = M.select_topk
    model.sparse = False
    out["dense"] = {t: percent(score(model, corpus, few(t), device)) for t in ("T4", "T5")}
    model.sparse = True
    out["topk_16"] = {}
    model.topk = 16
    for t in ("T4", "T5"):
        out["topk_16"][t] = percent(score(model, corpus, few(t), device))
    model.topk = None
    saved = [p.clone() for p in (model.w1, model.w3, model.w2)]
    rotate_experts(model)
    out["experts_rotated"] = {t: percent(score(model, corpus, e if t == "T3" else e[:100] if t == "T1" else few(t), device)) for t, e in entries.items()}
    out["experts_rotated"]["T2_trained_frames_loss"] = round(story_loss(model, corpus, 40, device, False), 4)
    print("rotated", out["experts_rotated"], f"{time.time() - t0:.0f}s", flush=True)
    for p, s in zip((model.w1, model.w3, model.w2), saved):
        p.copy_(s)
    model.dt = torch.bfloat16
    out["bf16_activations"] = {t: percent(score(model, corpus, e[:150] if t in ("T1", "T3") else few(t), device)) for t, e in entries.items()}
    print("bf16", out["bf16_activations"], f"{time.time() - t0:.0f}s", flush=True)
    model.dt = torch.float32
    if not quick:
        try:
            out["longer"] = longer(model, corpus, device)
            print("longer", out["longer"], f"{time.time() - t0:.0f}s", flush=True)
        except torch.cuda.OutOfMemoryError as e:
            print("longer:", e)
    return out


def longer(model, corpus, device):
    """Beyond the gates: T5 with 2,000 lines, T4 with 300 needles in 16,384 tokens, from the generators' test seeds."""
    out = {}
    for name, task, size in (("T5_2000_lines", "T5", {"lines": 2000, "questions": 8}),
                             ("T4_300_needles_16k", "T4", {"needles": 300, "context": 16384, "questions": 8})):
        right = total = 0
        for i in range(1, 6):
            t, w, g = documents.document(corpus, task, 50 * (1000 + i), held_out=True, **size)
            x = torch.tensor(t[None].astype(np.int64), device=device)
            y, top = model.body(x[:, :-1])[:2]
            first = int(np.argmax(g >= 0))
            ok = np.zeros(len(t), bool)
            ok[first:] = (M.mm(y[:, first - 1:], top.head, model.dt).argmax(-1)[0] == x[0, first:]).cpu().numpy()
            at = np.flatnonzero(g >= 0).reshape(-1, 4)
            right += int(ok[at].all(-1).sum())
            total += len(at)
            del y
        out[name] = {"percent": round(100 * right / total, 2), "answers": total}
    return out


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(HERE, ".."))
    p.add_argument("--out", default="")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--quick", action="store_true")
    a = p.parse_args()
    with torch.no_grad():
        r = evaluate(a.model, a.device, a.quick)
    print(json.dumps(r))
    if a.out:
        json.dump(r, open(a.out, "w"), indent=1)
