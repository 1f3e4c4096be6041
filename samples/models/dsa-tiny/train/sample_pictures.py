"""Draws samples/pictures: python sample_pictures.py --atlas atlas.npz --out DIR

Our own shapes and numbers, and things from Noto Emoji (Apache-2.0, Google)."""
import argparse
import math
import os
import random

from PIL import Image

import gen_vision as V


def blank(width, height, low, high):
    p = V.Picture(width, height)
    p.background(random.Random(1), low, high, 0.0, 0.0)
    return p


def draw(atlas):
    thing = lambda name: atlas.icons[next(i for i, n in enumerate(atlas.names) if n.rstrip(" *") == name)]["noto"]
    colors = {n: tuple(c / 255 for c in v) for n, v in V.COLORS.items()}
    p = blank(168, 112, (0.62, 0.62, 0.62), (0.62, 0.62, 0.62))
    for shape, color, x, y, r in (("circle", "blue", 34, 34, 22), ("circle", "blue", 120, 78, 21), ("star", "yellow", 86, 34, 22), ("heart", "red", 50, 84, 20)):
        p.sprite(atlas, atlas.shapes[V.SHAPES.index(shape)], x, y, r, r, tint=colors[color])
    yield "shapes", p
    p, size, face = blank(150, 56, (0.95, 0.95, 0.9), (0.95, 0.95, 0.9)), 56, 0
    for i, d in enumerate((4, 0, 7, 1)):
        p.sprite(atlas, atlas.glyphs[face][d], 75 + (i - 1.5) * size * float(atlas.advance[face][d]) * 1.05, 28, size * 0.4, size / 2, tint=(0.1, 0.1, 0.3))
    yield "number", p
    p = blank(150, 75, (0.85, 0.93, 1.0), (0.85, 0.93, 1.0))
    p.sprite(atlas, thing("dog"), 38, 38, 32, 32)
    p.sprite(atlas, thing("airplane"), 112, 38, 32, 32)
    yield "dog-and-airplane", p
    p = blank(224, 224, (0.8, 0.95, 0.85), (0.6, 0.8, 1.0))
    p.sprite(atlas, thing("elephant"), 112, 112, 96, 96, math.radians(5))
    yield "elephant", p
    p = blank(100, 140, (1.0, 0.9, 0.8), (1.0, 0.8, 0.8))
    p.sprite(atlas, thing("guitar"), 50, 70, 46, 46)
    yield "guitar", p


if __name__ == "__main__":
    a = argparse.ArgumentParser()
    a.add_argument("--atlas", required=True)
    a.add_argument("--out", required=True)
    a = a.parse_args()
    os.makedirs(a.out, exist_ok=True)
    atlas = V.Atlas(a.atlas)
    textures = V.textures(atlas, "cpu")
    for name, picture in draw(atlas):
        Image.fromarray(V.pixels(picture, textures)).save(os.path.join(a.out, name + ".png"), optimize=True)
