"""The mean of two checkpoints of one run: what the last stage gained on pictures beside what it lost on long texts.

    python average.py --of DIR DIR --share 0.5 --out DIR        share: of the second
"""
import argparse
import os

from safetensors.torch import load_file, save_file


def read(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("ckpt-") and name.endswith(".safetensors"):
            out.update(load_file(os.path.join(folder, name)))
    return out


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--of", nargs=2, required=True)
    p.add_argument("--share", type=float, default=0.5)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    first, second = (read(folder) for folder in a.of)
    os.makedirs(a.out, exist_ok=True)
    save_file({n: ((1 - a.share) * t.float() + a.share * second[n].float()).contiguous() for n, t in first.items()},
              os.path.join(a.out, "ckpt-0.safetensors"))
