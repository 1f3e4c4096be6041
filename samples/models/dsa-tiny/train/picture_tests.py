"""Questions about pictures for evaluation, from the test seeds: generated ones for the gates, and some as files in ../eval.

    python picture_tests.py --atlas atlas.npz       writes ../eval/v1.jsonl to v7.jsonl and ../eval/pictures/*.png

The files ask in trained wordings; beside them stands a kind ", new wordings" that is reported and has no gate.
"""
import argparse
import contextlib
import json
import random
from pathlib import Path

import numpy as np
from PIL import Image

import documents
import gen_vision as V
import train

FOLDER = Path(__file__).resolve().parent.parent / "eval"
KINDS = {"V1": {"styles of the training": {}, "style never trained on": {"style": True}},
         "V2": {"color": {"kind": "color"}, "shape": {"kind": "shape"}, "count": {"kind": "count"}},
         "V3": {"relations": {}},
         "V4": {"typefaces of the training": {}, "typeface never trained on": {"held_face": True}},
         "V5": {"flags": {}}, "V6": {"clothes": {}},
         "V7": {"one of several": {}, "before a text": {"filler": 1200}, "before a long text": {"filler": 4000}}}
SIZES = {"to 4 tokens": lambda p: p.tokens <= 4, "5 to 16 tokens": lambda p: 4 < p.tokens <= 16, "17 to 64 tokens": lambda p: p.tokens > 16,
         "long and narrow": lambda p: max(p.width, p.height) >= 2.5 * min(p.width, p.height),
         "no padding": lambda p: p.width % 28 == 0 and p.height % 28 == 0}
ANSWERS = {"color": V.COLORS, "shape": V.SHAPES, "count": V.NUMBERS}


@contextlib.contextmanager
def trained_wordings():
    """Inside, test questions are worded as in the training; their pictures stay those of the tests."""
    names = [name for name in vars(V) if name.endswith("_HELD") and hasattr(V, name[:-5])]
    kept = {name: getattr(V, name) for name in names}
    try:
        for name in names:
            setattr(V, name, getattr(V, name[:-5]))
        yield
    finally:
        for name, wordings in kept.items():
            setattr(V, name, wordings)


def questions(corpus, task, kind, count, style=None, plain=False):
    """`count` entries with Pictures in place of files; `plain` leaves out the noise of backgrounds, for small files."""
    more, seed = dict(KINDS[task][kind]), 0
    filler = more.pop("filler", 0)
    if style and not more.get("style"):
        more["style"] = style
    rows = train.Rows(documents, corpus, np.random.default_rng(5), train.fixed(0.0))
    while count:
        seed += documents.TEST_SEED_STEP
        rng = random.Random(f"{task} {kind} {seed}")
        if filler:
            more["filler"] = rows.filler(filler, True)
        parts, answer, _ = corpus.vision.messages(rng, task, True, rng.choice((16, 64)), **more)[0]
        if kind in ANSWERS and answer not in ANSWERS[kind]:
            continue
        if plain:
            for p in parts:
                if not isinstance(p, str):
                    p.head[14] = 0.0
        count -= 1
        yield {"task": task, "kind": kind, "seed": seed, "parts": parts, "answers": [answer]}


def with_images(entry, textures):
    """The entry as scoring.py reads it."""
    content = [{"type": "text", "text": p} if isinstance(p, str) else {"type": "image", "image": Image.fromarray(V.pixels(p, textures))}
               for p in entry["parts"]]
    return {**{k: v for k, v in entry.items() if k != "parts"}, "messages": [{"role": "user", "content": content}]}


COUNT = {"V1": 30, "V2": 25, "V3": 26, "V4": 20, "V5": 26, "V6": 30, "V7": 10}
NEW, NEW_COUNT = ", new wordings", 10


def main(atlas):
    corpus = train.load(documents, atlas)
    textures = V.textures(corpus.vision.atlas, "cpu")
    (FOLDER / "pictures").mkdir(exist_ok=True)
    total = 0
    for task, kinds in KINDS.items():
        with open(FOLDER / f"{task.lower()}.jsonl", "w", encoding="utf-8") as out:
            for kind in kinds:
                with trained_wordings():
                    entries = list(questions(corpus, task, kind, COUNT[task], "noto", True))
                if task in ("V1", "V2", "V3") and "never" not in kind:
                    entries += [{**entry, "kind": kind + NEW} for entry in questions(corpus, task, kind, NEW_COUNT, "noto", True)]
                for entry in entries:
                    content, number = [], 0
                    for p in entry.pop("parts"):
                        if isinstance(p, str):
                            content.append({"type": "text", "text": p})
                            continue
                        new = "-new" if entry["kind"].endswith(NEW) else ""
                        name = f"{task.lower()}-{list(kinds).index(kind)}{new}-{entry['seed']}-{number}.png"
                        number += 1
                        Image.fromarray(V.pixels(p, textures)).save(FOLDER / "pictures" / name, optimize=True)
                        total += (FOLDER / "pictures" / name).stat().st_size
                        content.append({"type": "image_url", "image_url": {"url": f"eval/pictures/{name}"}})
                    answers = entry.pop("answers")
                    entry |= {"messages": [{"role": "user", "content": content}], "answers": answers}
                    out.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{total / 1e6:.2f} MB of pictures")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--atlas", required=True)
    main(p.parse_args().atlas)
