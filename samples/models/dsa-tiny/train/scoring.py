"""Questions of ../eval as tokens, and how a model of model.py answers them.

An answer counts as right if greedy decoding yields it: with the right answer fed in, every one of its tokens is the most likely one. In T4 to T8
each line of an answer counts by itself, a chat only as a whole.
"""
import collections
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import model as M

FOLDER = Path(__file__).resolve().parent.parent
BY_LINE = ("T4", "T5", "T6", "T7", "T8")
SCORES = 1 << 26  # attention scores of one head in a batch; bounds the memory


def read_eval(task, folder=FOLDER):
    """The records of a task; one that asks its text in several ways becomes several."""
    entries = []
    with open(Path(folder) / "eval" / f"{task.lower()}.jsonl", encoding="utf-8") as lines:
        for entry in map(json.loads, lines):
            text, asked = entry.pop("text", ""), entry.pop("asked", [{}])
            for one in asked:
                more = {"messages": [{"role": "user", "content": text + one.pop("question")}]} if one else {}
                entries.append({**entry, **more, **one})
    return entries


def tokens_of(corpus, entry):
    """[(prompt, answer)]: one pair, or one for each turn of a chat."""
    form, encode = corpus.chat_format, corpus.encoder.encode
    end = form.close["assistant"]
    if "turns" in entry:
        messages, pairs = [], []
        for turn, answer in zip(entry["turns"], entry["answers"], strict=True):
            messages.append(("user", turn["content"]))
            pairs.append((form.prompt(messages), encode(answer) + end))
            messages.append(("assistant", answer))
        return pairs
    prompt = entry.get("tokens") or form.prompt([(m["role"], m["content"]) for m in entry["messages"]], entry.get("thinking", False))
    if "answer_tokens" in entry:
        return [(prompt, entry["answer_tokens"])]
    answer = "\n".join(entry["answers"])
    if entry.get("thinking"):
        _, body, tail = form.parts("thought", (entry["thought"], answer))
        return [(prompt, body + tail)]
    return [(prompt, encode(answer) + end)]


@dataclass
class Score:
    right: int = 0
    answers: int = 0
    nats: float = 0.0
    tokens: int = 0
    depths: dict = field(default_factory=lambda: collections.defaultdict(list))

    @property
    def percent(self):
        return 100 * self.right / max(1, self.answers)

    @property
    def loss(self):
        """Nats a token of the answers."""
        return self.nats / max(1, self.tokens)

    def add(self, entry, hits, nats, answer, newline):
        """hits, nats: one array for each pair of tokens_of."""
        self.nats += float(sum(part.sum() for part in nats))
        self.tokens += sum(map(len, nats))
        if entry["task"] not in BY_LINE:
            self.right += all(bool(part.all()) for part in hits)
            self.answers += 1
            return
        lines = np.split(hits[0], [i + 1 for i, token in enumerate(answer) if token == newline])
        for number, line in enumerate(lines):
            self.right += bool(line.all())
            if "depths" in entry:
                self.depths[entry["depths"][number]].append(bool(line.all()))
        self.answers += len(lines)


@torch.no_grad()
def teacher_forced(model, pairs, pad, device):
    """For each pair (whether each answer token is the most likely one, its nats). Pairs of like length share a batch, padded behind their end."""
    out = [None] * len(pairs)
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
    while order:
        longest = len(pairs[order[-1]][0]) + len(pairs[order[-1]][1])
        count = max(1, min(64, SCORES // longest**2))
        group, order = order[-count:], order[:-count]
        ids = torch.full((len(group), longest), pad)
        for row, i in zip(ids, group):
            row[:sum(map(len, pairs[i]))] = torch.tensor(list(pairs[i][0]) + list(pairs[i][1]))
        ids = ids.to(device)
        y, top = model.body(ids[:, :-1])[:2]
        row = torch.tensor([r for r, i in enumerate(group) for _ in pairs[i][1]], device=device)
        place = torch.tensor([len(pairs[i][0]) + j for i in group for j in range(len(pairs[i][1]))], device=device)
        target = ids[row, place]
        logits = M.mm(y[row, place - 1], top.head, model.dt).float()
        hit = (logits.argmax(-1) == target).cpu().numpy()
        nats = (logits.logsumexp(-1) - logits.gather(-1, target[:, None])[:, 0]).cpu().numpy()
        at = 0
        for i in group:
            n = len(pairs[i][1])
            out[i] = hit[at:at + n], nats[at:at + n]
            at += n
    return out


def score(model, corpus, entries, device, rewrite=None):
    """{kind: Score}. `rewrite(prompt, answer)` changes the tokens first, for faults of a tokenizer or a chat format."""
    pairs, owners = [], []
    for number, entry in enumerate(entries):
        for prompt, answer in tokens_of(corpus, entry):
            pairs.append(rewrite(prompt, answer) if rewrite else (prompt, answer))
            owners.append(number)
    found = collections.defaultdict(list)
    for owner, pair, result in zip(owners, pairs, teacher_forced(model, pairs, corpus.encoder.special("[PAD]"), device)):
        found[owner].append((pair[1], *result))
    newline, out = corpus.encoder.encode("\n")[0], collections.defaultdict(Score)
    for number, entry in enumerate(entries):
        answers, hits, nats = zip(*found[number])
        out[entry.get("kind", "")].add(entry, hits, nats, answers[0], newline)
    return dict(out)


def total(scores):
    """One Score of several."""
    out = Score()
    for one in scores.values():
        out.right, out.answers, out.nats, out.tokens = out.right + one.right, out.answers + one.answers, out.nats + one.nats, out.tokens + one.tokens
        for depth, hits in one.depths.items():
            out.depths[depth] += hits
    return out
