"""goldens.json: prompts with greedy answers, computed in FP64 from the exported files by model.py.

    python goldens.py --model DIR --out goldens.json [--device cuda]

Kept are answers whose best logit leads the second by 1.0 or more at every step; they must be equal on any device and cache type.
"""
import argparse
import json
import os

import torch

import documents
import scoring
import model as M

HERE = os.path.dirname(os.path.abspath(__file__))
GAP = 1.0


def candidates(corpus):
    """(name, messages as (role, text), guess of the answer, most tokens)"""
    user = lambda t: [("user", t)]
    yield "greeting", user("Hello!"), "", 60
    yield "capital", user("What is the capital of Japan?"), "The capital of Japan is Tokyo.", 60
    yield "sum", user("What is 47 plus 38?"), "47 + 38 = 85.", 40
    yield "difference", user("83 - 47"), "83 - 47 = 36.", 40
    yield "sum with carry", user("Add 96 and 87."), "96 + 87 = 183.", 40
    e = scoring.read_eval("T1")
    for i in (0, 5, 8, 13):
        yield f"fact {i}", user(e[i]["messages"][0]["content"]), e[i]["answers"][0], 60
    for task, seeds in (("T1", (50, 150, 250)), ("T3", (50,))):
        for s in seeds:
            m = documents.text_messages(corpus, task, s, held_out=True)
            last = max((i for i, (role, _) in enumerate(m) if role == "assistant"), default=0)
            if last > 1:
                yield f"conversation {task} {s}", m[:last], m[last][1], 60
    for task, name, size in (("T4", "needles, short", {"needles": 10, "context": 500, "questions": 2}),
                             ("T4", "needles", {"needles": 30, "context": 1000, "questions": 3}),
                             ("T5", "list of 100 lines", {"lines": 100, "questions": 4})):
        plan = documents.retrieval_plan(corpus, task, 950, held_out=True, **size)
        text, lines = (documents.gen_retrieval.list_text if task == "T5" else documents.gen_retrieval.needle_text)(plan, corpus.words)
        yield name, user(text), "\n".join(lines), 90
    for task, name, size in (("T6", "registers", {"assignments": 20, "questions": 2}), ("T7", "passage", {"context": 600, "questions": 1}),
                             ("T8", "two hops", {"context": 300, "questions": 2, "kind": "both"})):
        text, lines = documents.written_document(corpus, task, 950, held_out=True, **size).text()
        yield name, user(text), "\n".join(lines), 90


def picture_candidates():
    """(name, messages with pictures, guess): the first questions of each kind in ../eval."""
    for task, count in (("V1", 2), ("V2", 2), ("V3", 3), ("V4", 2), ("V5", 1), ("V6", 2), ("V7", 2)):
        seen = {}
        for entry in scoring.read_eval(task):
            seen[entry["kind"]] = seen.get(entry["kind"], 0) + 1
            if seen[entry["kind"]] <= count and entry["kind"] != "before a long text":
                yield f"{task} {entry['kind']} {entry['seed']}", entry["messages"], entry["answers"][0]


def list_prompt(corpus, seed):
    plan = documents.retrieval_plan(corpus, "T5", seed, held_out=True, lines=60, questions=3)
    text, lines = documents.gen_retrieval.list_text(plan, corpus.words)
    return [("user", text)], "\n".join(lines)


@torch.no_grad()
def greedy(model, prompt, guess, eos, limit, device, pictures=()):
    """Greedy answer, smallest gap between best and second logit, logits that chose the first token.

    `guess`: what it should be. As far as it is, one pass over prompt and guess gives all steps; where it is not, the answer ends unfinished,
    as a wrong one is no golden."""
    ids, gap, first, ahead = list(prompt), float("inf"), None, list(guess)
    while len(ids) - len(prompt) < limit:
        row = torch.tensor([ids + ahead[:-1]], device=device)
        y, top = model.body(row, media=scoring.media(model, [pictures], row.shape[1], device))[:2]
        for lg in M.mm(y[0, len(ids) - 1:], top.head, model.dt):
            first = lg if first is None else first
            two = lg.topk(2)
            gap = min(gap, (two.values[0] - two.values[1]).item())
            ids.append(int(two.indices[0]))
            if ids[-1] == eos:
                return ids[len(prompt):], gap, first
            if guess and (not ahead or ahead.pop(0) != ids[-1]):
                return ids[len(prompt):], gap, first
            if not guess:
                break
    return ids[len(prompt):], gap, first


@torch.no_grad()
def selections(model, prompt, device):
    """Per MLA layer the sorted positions chosen at the last position, and the distance of the edge of the set, relative to the spread."""
    trace = {}
    model.body(torch.tensor([prompt], device=device), trace=trace)
    out, edge = {}, float("inf")
    for layer, s in zip(model.c.full, trace["mla"]):
        I = s["I"][0, -1]
        top = I.topk(model.c.topk + 1).values
        edge = min(edge, ((top[-2] - top[-1]) / I.std()).item())
        out[str(layer)] = s["chosen"][0, -1].nonzero().flatten().tolist()
        assert len(out[str(layer)]) == model.c.topk
    return out, edge


def main(folder, out, device):
    corpus = documents.load()
    model = M.from_folder(folder, torch.float64, device)
    half = M.from_folder(folder, torch.bfloat16, device)
    eos = model.c.eos
    goldens, dropped = [], []

    def add(name, messages, guess, limit, logits=False, **more):
        shown = isinstance(messages[0], dict)
        prompt, pictures = scoring.picture_prompt(corpus, messages[0]["content"]) if shown else (corpus.chat_format.prompt(messages), [])
        guess = corpus.encoder.encode(guess) + corpus.chat_format.close["assistant"] if guess else []
        answer, gap, first = greedy(model, prompt, guess, eos, limit, device, pictures)
        row = torch.tensor([prompt + answer[:-1]], device=device)
        y, top = half.body(row, media=scoring.media(half, [pictures], row.shape[1], device))[:2]
        same = M.mm(y[0, len(prompt) - 1:], top.head, half.dt).argmax(-1).tolist() == answer
        end = corpus.chat_format.close["assistant"]
        done = answer[-len(end):] == end
        entry = {"name": name, "messages": messages if shown else [{"role": r, "content": t} for r, t in messages], "prompt_ids": prompt, "answer_ids": answer,
                 "text": corpus.encoder.decode(answer[:-len(end)] if done else answer), "smallest_gap": round(gap, 4), "same_in_bf16": same, **more}
        if logits:
            entry["first_logits"] = [round(v, 6) for v in first.tolist()]
        good = gap >= GAP and done and same
        print(f"{'kept' if good else 'DROPPED'} {name}: {len(prompt)} tokens, gap {gap:.2f}, done {done}, bf16 {same}: {entry['text'][:100]!r}", flush=True)
        (goldens if good else dropped).append(entry)

    best = max((selections(model, corpus.chat_format.prompt(list_prompt(corpus, 50 * s)[0]), device) + (50 * s,) for s in range(101, 104)),
               key=lambda r: r[1])
    add("list of 60 lines", *list_prompt(corpus, best[2]), 60, True,
        selected={"what": "positions chosen by the indexer at the last prompt position, by 0-based layer", "layers": best[0],
                  "edge": f"{best[1]:.3e}", "edge_is": "score of the last chosen minus score of the first not chosen, over the standard deviation"})
    for name, messages, guess, limit in candidates(corpus):
        add(name, messages, guess, limit, name in ("capital", "sum"))
    for name, messages, guess in picture_candidates():
        add(name, messages, guess, 40, name.startswith("V1") and "new wordings" not in name)
    json.dump({"what": "greedy answers of the exported weights, computed in FP64 by train/model.py; thinking off, no sampling",
               "smallest_gap_kept": GAP, "first_logits": "logits of the last prompt position, 6 digits after the point",
               "goldens": goldens, "dropped": [d["name"] for d in dropped]}, open(out, "w"), indent=None, separators=(",", ":"), ensure_ascii=False)
    print(len(goldens), "goldens,", len(dropped), "dropped")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(HERE, ".."))
    p.add_argument("--out", default=os.path.join(HERE, "..", "goldens.json"))
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    main(a.model, a.out, a.device)
