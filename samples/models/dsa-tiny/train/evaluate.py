"""Evaluates an exported checkpoint, read by model.from_folder, on ../eval/*.jsonl.

    python evaluate.py --model DIR --out eval.json [--device cuda] [--quick]
    python evaluate.py --model DIR --out FILE --atlas atlas.npz [--count 400]     generated pictures: the gates of V1 to V8

For what counts as right see scoring.py. T2: "loss" is nats a token of stories of held-out plots; whether the names are consistent needs a
story that the model tells itself, which dsa_eval asks for.
"""
import argparse
import json
import math
import os
import time

import torch

import documents
import gen_vision
import model as M
import mutate
import picture_tests
import scoring
import train

HERE = os.path.dirname(os.path.abspath(__file__))
TASKS = ("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10")
LONG = ("T4", "T5", "T6", "T7", "T8")


def figures(score):
    out = {"percent": round(score.percent, 2), "right": score.right, "answers": score.answers, "loss": round(score.loss, 4)}
    if score.depths:
        out["worst_depth"] = round(100 * min(sum(hits) / len(hits) for hits in score.depths.values()), 1)
    return out


def by_kind(scores):
    """Figures of each kind; of stories only the loss."""
    out = {kind: figures(score) for kind, score in scores.items()}
    for kind in ("plots", "sentences never seen"):
        if kind in out:
            out[kind] = {"loss": out[kind]["loss"], "perplexity": round(math.exp(min(50, out[kind]["loss"])), 3)}
    return out


def rotate_experts(model):
    for p in (model.w1, model.w3, model.w2):
        p.copy_(p.roll(1, 1))


def evaluate(folder, device, quick=False):
    start, corpus = time.time(), documents.load()
    model = M.from_folder(folder, torch.float32, device)
    entries = {task: scoring.read_eval(task, folder) for task in TASKS}
    if quick:
        entries = {task: few(each, 2 if task in LONG else 20) for task, each in entries.items()}
    out = {}

    def ask(name, tasks, count=None):
        out[name] = {}
        for task in tasks:
            out[name][task] = by_kind(scoring.score(model, corpus, few(entries[task], count) if count else entries[task], device))
            print(name, task, out[name][task], f"{time.time() - start:.0f}s", flush=True)

    ask("results", TASKS)
    out["T4_worst_depth"] = figures(scoring.total(scoring.score(model, corpus, entries["T4"], device))).get("worst_depth")
    retrieval = ("T4", "T5", "T7")
    for name, select in (("random_128", mutate.random_set), ("recent_128", mutate.recent)):
        model.select = select
        ask(name, retrieval, 2)
    model.select = M.select_topk
    model.sparse = False
    ask("dense", retrieval, 2)
    model.sparse, model.topk = True, 16
    ask("topk_16", retrieval, 2)
    model.topk = None
    saved = [p.clone() for p in (model.w1, model.w3, model.w2)]
    rotate_experts(model)
    ask("experts_rotated", TASKS, 10)
    for p, s in zip((model.w1, model.w3, model.w2), saved):
        p.copy_(s)
    model.dt = torch.bfloat16
    ask("bf16_activations", TASKS, 10)
    return out


def see(folder, device, atlas, count):
    """Generated questions about pictures, by kind; V1 to V6 also by size of the picture."""
    start, corpus = time.time(), train.load(documents, atlas)
    model = M.from_folder(folder, torch.float32, device)
    textures, out, sizes = gen_vision.textures(corpus.vision.atlas, device), {}, {}
    for task, kinds in picture_tests.KINDS.items():
        out[task] = {}
        for kind in kinds:
            n = count if "long" not in kind else max(10, count // 8)
            entries = list(picture_tests.questions(corpus, task, kind, n))
            found = scoring.score(model, corpus, [{**picture_tests.with_images(e, textures), "kind": i} for i, e in enumerate(entries)], device)
            hits = [found[i].right for i in range(n)]
            out[task][kind] = {"percent": round(100 * sum(hits) / n, 2), "right": sum(hits), "answers": n}
            if len(kinds) == 1 or kind not in ("style never trained on", "typeface never trained on"):
                for name, belongs in picture_tests.SIZES.items() if task != "V7" else ():
                    of = [h for h, e in zip(hits, entries) if belongs(next(p for p in e["parts"] if not isinstance(p, str)))]
                    if of:
                        sizes.setdefault(task, {}).setdefault(name, []).extend(of)
            print(task, kind, out[task][kind], f"{time.time() - start:.0f}s", flush=True)
    out["V8"] = {t: {n: {"percent": round(100 * sum(h) / len(h), 2), "answers": len(h)} for n, h in s.items()} for t, s in sizes.items()}
    print("V8", out["V8"], flush=True)
    return out


def few(entries, count):
    """The first `count` entries of each kind."""
    seen, out = {}, []
    for entry in entries:
        seen[entry["kind"]] = seen.get(entry["kind"], 0) + 1
        if seen[entry["kind"]] <= count:
            out.append(entry)
    return out


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(HERE, ".."))
    p.add_argument("--out", default="")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--atlas", default="", help="only generated questions about pictures, drawn from this atlas")
    p.add_argument("--count", type=int, default=400)
    a = p.parse_args()
    with torch.no_grad():
        r = see(a.model, a.device, a.atlas, a.count) if a.atlas else evaluate(a.model, a.device, a.quick)
    print(json.dumps(r))
    if a.out:
        json.dump(r, open(a.out, "w"), indent=1)
