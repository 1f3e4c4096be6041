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
from PIL import Image

import export
import gen_vision
import model as M

FOLDER = Path(__file__).resolve().parent.parent
BY_LINE = ("T4", "T5", "T6", "T7", "T8")
PICTURES = export.PICTURES["media_proc_cfg"]
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


def picture_prompt(corpus, parts):
    """(prompt, [(canvas, position of its first pad)]) of a user's message of text and pictures."""
    form, ids, pictures = corpus.chat_format, list(corpus.chat_format.open["user"]), []
    for part in parts:
        if part["type"] == "text":
            ids += corpus.encoder.encode(part["text"])
            continue
        image = part["image"] if "image" in part else Image.open(FOLDER / part["image_url"]["url"])
        canvas = M.canvas(image, PICTURES)
        pieces, first = gen_vision.media_pieces(corpus.encoder, *image.size, canvas.shape[0] * canvas.shape[1] // 28**2)
        pictures.append((canvas, len(ids) + first))
        ids += pieces
    return ids + form.close["user"] + form.open["assistant"], pictures


def tokens_of(corpus, entry):
    """[(prompt, answer, pictures)]: one, or one for each turn of a chat."""
    content = entry["messages"][0]["content"] if "messages" in entry else ""
    if isinstance(content, list):
        prompt, pictures = picture_prompt(corpus, content)
        return [(prompt, corpus.encoder.encode(entry["answers"][0]) + corpus.chat_format.close["assistant"], pictures)]
    return [(*pair, []) for pair in text_tokens(corpus, entry)]


def text_tokens(corpus, entry):
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


def media(model, rows, width, device):
    """Features of the pictures of all rows, and their places."""
    if not any(rows):
        return None
    features = model.see([canvas for row in rows for canvas, _ in row])
    places = [torch.arange(c.shape[0] * c.shape[1] // 28**2) + first + r * width for r, row in enumerate(rows) for c, first in row]
    return features, torch.cat(places).to(device)


@torch.no_grad()
def teacher_forced(model, pairs, pad, device):
    """For each pair (whether each answer token is the most likely one, its nats). Pairs of like length share a batch, padded behind their end."""
    out = [None] * len(pairs)
    length = lambda i: len(pairs[i][0]) + len(pairs[i][1])
    order = sorted(range(len(pairs)), key=length)
    while order:
        longest = length(order[-1])
        count = max(1, min(64, SCORES // longest**2))
        group, order = order[-count:], order[:-count]
        ids = torch.full((len(group), longest), pad)
        for row, i in zip(ids, group):
            row[:length(i)] = torch.tensor(list(pairs[i][0]) + list(pairs[i][1]))
        ids = ids.to(device)
        y, top = model.body(ids[:, :-1], media=media(model, [pairs[i][2] for i in group], longest - 1, device))[:2]
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
        for prompt, answer, pictures in tokens_of(corpus, entry):
            pairs.append((*(rewrite(prompt, answer) if rewrite else (prompt, answer)), pictures))
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
