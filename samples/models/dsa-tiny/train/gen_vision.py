"""V1 to V8: pictures as numbers (what stands where), questions and answers about them, and the painter that draws them.

    python gen_vision.py --icons DIR --flags DIR --labels icons.json --fonts FILE.ttf ... --fashion DIR --out atlas.npz

writes the atlas: icons, flags, digits of some typefaces, shapes and Fashion-MNIST as small textures. A picture is a vector of floats
(`picture`): size, background, and up to six sprites; `paint` turns it into pixels at given coordinates, on any device.
"""
import argparse
import gzip
import json
import math
import os
import random

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
VISION_TASKS = ("V1", "V2", "V3", "V4", "V5", "V6", "V7")
STYLES = ("noto", "noto-v1", "fxemoji", "twemoji", "emojione")
HELD_STYLE = "fluent-emoji-flat"
FLAGS = ("jp fr de it es pt gr se no fi dk pl at ch be nl ie ua ru il eg ng ke za ma dz in cn vn th np pk bd lk mn kr my ca us mx br ar cl "
         "pe cu jm pa uy is gb ro hu bg ee lt sa lb ge al au").split()
CLOTHES = ("T-shirt", "trousers *", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
SHAPES = ("circle", "square", "triangle", "star", "heart", "cross", "ring", "moon")
COLORS = {"red": (220, 30, 30), "orange": (255, 140, 0), "yellow": (250, 225, 30), "green": (30, 150, 50), "blue": (40, 70, 220),
          "purple": (130, 40, 170), "pink": (255, 150, 190), "brown": (125, 75, 35), "black": (15, 15, 15), "white": (250, 250, 250)}
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six")
ORDINALS = ("first", "second", "third")
SPRITES, HEAD, SPRITE = 6, 18, 13           # floats: head of a picture, each sprite
FLOATS = HEAD + SPRITES * SPRITE
LABELS = 1 + 5 + 12 + SPRITES * 7           # class, digits, pairs with counts, sprites (cell, class, color, four neighbours)
LEVELS = 3

WHAT = ("What is this?", "What do you see?", "Name the picture.", "What is in the picture?", "What does the picture show?",
        "Tell me what this is.", "What can you see here?", "Which thing is this?")
WHAT_HELD = ("What is shown here?", "What thing do you see?")
FLAG = ("Which flag is this?", "What flag is this?", "Whose flag is this?", "Which country has this flag?", "Name the flag.",
        "What country does this flag belong to?", "Tell me which flag this is.", "Do you know this flag?")
FLAG_HELD = ("Whose flag do you see?", "What is the country of this flag?")
READ = ("Which number is this?", "What number do you see?", "Read the number.", "What is the number?", "Read this.", "What number is written here?",
        "Tell me the number.", "Which number do you see?")
READ_HELD = ("What is this number?", "Read the number in the picture.")
COUNT = ("How many {x} are there?", "How many {x} do you see?", "Count the {x}.", "How many {x} are in the picture?", "How many {x} can you see?",
         "How many {x} does the picture show?", "Tell me how many {x} there are.", "What is the number of {x}?")
COUNT_HELD = ("How many {x} can you count?", "How many {x} are here?")
COLOR = ("What color is the {x}?", "What is the color of the {x}?", "Which color does the {x} have?", "Tell me the color of the {x}.",
         "Name the color of the {x}.", "Which color is the {x}?", "What color has the {x}?", "What color does the {x} have?")
COLOR_HELD = ("Which color has the {x}?", "What color do you see on the {x}?")
SHAPE = ("What shape is {x}?", "Which shape is {x}?", "What is the {x} thing?", "Name the {x} shape.", "Tell me which shape is {x}.",
         "What is {x} here?", "What shape has the color {x}?", "Which thing is {x}?")
SHAPE_HELD = ("What {x} shape do you see?", "Which shape do you see in {x}?")
SIDES = ("left of", "right of", "above", "below")
SIDE = ("What is {s} the {x}?", "What do you see {s} the {x}?", "What stands {s} the {x}?", "Name the thing {s} the {x}.", "Which thing is {s} the {x}?",
        "What can you see {s} the {x}?", "Tell me what is {s} the {x}.", "What is shown {s} the {x}?")
SIDE_HELD = ("What thing is {s} the {x}?", "Which thing do you see {s} the {x}?")
NTH = ("What does the {n} picture show?", "What is in the {n} picture?", "What do you see in the {n} picture?", "Tell me what the {n} picture shows.")
NTH_HELD = ("What is shown in the {n} picture?",)
SHOWN = ("What does the picture show?", "What is in the picture?", "What did the picture show?", "What was in the picture?", "Tell me what the picture shows.")
SHOWN_HELD = ("What do you see in the picture?",)


def read_concepts(path=os.path.join(HERE, "corpus", "concepts.txt")):
    """[(label, name, plural)]"""
    out = []
    for line in open(path, encoding="utf-8"):
        line = line.strip()
        if line and line[0] != "#":
            plural = line.endswith("*")
            label, _, name = line.rstrip("*").strip().partition(" = ")
            out.append((label, name or label, plural))
    return out


def a_thing(name):
    """"dog" -> "a dog", "grapes *" -> "grapes"."""
    if name.endswith("*"):
        return name[:-1].strip()
    return ("an " if name[0].lower() in "aeiou" else "a ") + name


def sentence(text):
    return text[0].upper() + text[1:] + "."


# ------------------------------------------------------------------------------------------------ atlas

def halves(t):
    """Three sizes of a premultiplied texture, each half of the one before."""
    out = [t]
    for _ in range(LEVELS - 1):
        t = t[:t.shape[0] // 2 * 2, :t.shape[1] // 2 * 2].astype(np.float32)
        out.append(np.round((t[0::2, 0::2] + t[1::2, 0::2] + t[0::2, 1::2] + t[1::2, 1::2]) / 4).astype(np.uint8))
        t = out[-1]
    return out


class Atlas:
    """All textures behind one another as premultiplied RGBA; texture id x LEVELS + level -> start, width, height."""

    def __init__(self, path):
        z = np.load(path, allow_pickle=False)
        texels, table = [], []

        def add(t):
            first = len(table)
            for s in halves(t) if t.shape[0] > 28 else [t]:
                table.append((size[0], s.shape[1], s.shape[0]))
                texels.append(s.reshape(-1, 4))
                size[0] += s.shape[0] * s.shape[1]
            table.extend(table[-1:] * (first + LEVELS - len(table)))
            return first // LEVELS
        size = [0]
        premultiplied = lambda t: np.concatenate((np.round(t[..., :3].astype(np.float32) * t[..., 3:] / 255).astype(np.uint8), t[..., 3:]), -1)
        mask = lambda t: np.repeat(t[..., None], 4, -1)
        add(np.zeros((32, 32, 4), np.uint8))                                    # texture 0: nothing
        self.icons, styles = {}, z["icon_style"]
        for image, concept, style in zip(z["icons"], z["icon_concept"], styles):
            self.icons.setdefault(int(concept), {})[str(style)] = add(premultiplied(image))
        self.flags = [add(premultiplied(t)) for t in z["flags"]]
        self.shapes = [add(mask(t)) for t in z["shapes"]]
        self.glyphs = [[add(mask(t)) for t in face] for face in z["glyphs"]]     # faces x digits; the last face is held out
        self.advance = z["advance"]
        gray = lambda t: np.concatenate((mask(t)[..., :3], np.full((*t.shape, 1), 255, np.uint8)), -1)
        self.clothes = [(add(gray(t)), int(c)) for t, c in zip(z["fashion"], z["fashion_class"])]
        self.clothes_test = [(add(gray(t)), int(c)) for t, c in zip(z["fashion_test"], z["fashion_test_class"])]
        self.texels = np.concatenate(texels)
        self.table = np.array(table, np.int32)
        self.names = [str(n) for n in z["names"]]
        self.flag_names = [str(n) for n in z["flag_names"]]
        self.first = np.cumsum([0, len(self.names), len(self.flag_names), len(CLOTHES), len(SHAPES), 10]).tolist()
        self.classes = self.first[-1]

    def size_of(self, texture, level=0):
        return self.table[texture * LEVELS + level]


def pack(icons, flags, labels, fonts, fashion, out, n_fashion, n_test):
    from PIL import Image, ImageDraw, ImageFont
    by_label = {c["label"]: c for c in json.load(open(labels))}
    concepts = read_concepts()
    pictures, concept, style = [], [], []
    for i, (label, _, _) in enumerate(concepts):
        for s in STYLES + (HELD_STYLE,):
            if s in by_label[label]["styles"]:
                pictures.append(np.asarray(Image.open(os.path.join(icons, f"{by_label[label]['hex']}_{s}.png")).convert("RGBA")))
                concept.append(i)
                style.append(s)
    countries = {c["code"].lower(): c["name"] for c in json.load(open(os.path.join(os.path.dirname(labels), "countries.json")))}
    the = {"nl": "the Netherlands", "us": "the United States", "gb": "the United Kingdom"}
    big = 4                                                                     # shapes and glyphs are drawn large and reduced
    shapes = []
    for name in SHAPES:
        n = 96 * big
        m = Image.new("L", (n, n))
        d = ImageDraw.Draw(m)
        box = (0, 0, n - 1, n - 1)
        u = lambda *p: [(x * (n - 1), y * (n - 1)) for x, y in p]
        if name in ("circle", "ring", "moon"):
            d.ellipse(box, fill=255)
            if name == "ring":
                d.ellipse((n * .24, n * .24, n * .76, n * .76), fill=0)
            if name == "moon":
                d.ellipse((n * .3, -n * .05, n * 1.25, n * .9), fill=0)
        elif name == "square":
            d.rectangle((n * .06, n * .06, n * .94, n * .94), fill=255)
        elif name == "triangle":
            d.polygon(u((.5, .04), (1, .94), (0, .94)), fill=255)
        elif name == "star":
            d.polygon([((.5 + r * math.sin(i * math.pi / 5)) * n, (.53 - r * math.cos(i * math.pi / 5)) * n)
                       for i in range(10) for r in [.52 if i % 2 == 0 else .21]], fill=255)
        elif name == "cross":
            d.rectangle((n * .34, 0, n * .66, n), fill=255)
            d.rectangle((0, n * .34, n, n * .66), fill=255)
        elif name == "heart":
            t = np.linspace(0, 2 * np.pi, 200)
            x, y = 16 * np.sin(t) ** 3, 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
            d.polygon([((a / 34 + .5) * n, (.46 - b / 32) * n) for a, b in zip(x, y)], fill=255)
        shapes.append(np.asarray(m.resize((96, 96), Image.Resampling.BOX)))
    glyphs, advance = [], []
    for f in fonts:
        font, face, widths = ImageFont.truetype(f, 76 * big), [], []
        boxes = [font.getbbox(str(i)) for i in range(10)]
        top, bottom = min(b[1] for b in boxes), max(b[3] for b in boxes)
        for i in range(10):
            m = Image.new("L", (64 * big, 80 * big))
            left, right = boxes[i][0], boxes[i][2]
            ImageDraw.Draw(m).text((32 * big - (left + right) / 2, 40 * big - (top + bottom) / 2), str(i), font=font, fill=255)
            face.append(np.asarray(m.resize((64, 80), Image.Resampling.BOX)))
            widths.append(font.getlength(str(i)) / big / 80)                    # in units of the height of the box
        glyphs.append(face)
        advance.append(widths)

    def idx(name, n):
        raw = gzip.open(os.path.join(fashion, name)).read()
        data = np.frombuffer(raw, np.uint8, offset=16 if "images" in name else 8)
        return (data.reshape(-1, 28, 28) if "images" in name else data)[:n]
    np.savez_compressed(out, icons=np.stack(pictures), icon_concept=np.array(concept), icon_style=np.array(style),
                        names=np.array([n + (" *" if p else "") for _, n, p in concepts]),
                        flags=np.stack([np.asarray(Image.open(os.path.join(flags, f + ".png")).convert("RGBA")) for f in FLAGS]),
                        flag_names=np.array([the.get(f, countries[f]) for f in FLAGS]), shapes=np.stack(shapes), glyphs=np.array(glyphs),
                        advance=np.array(advance, np.float32), fashion=idx("train-images-idx3-ubyte.gz", n_fashion),
                        fashion_class=idx("train-labels-idx1-ubyte.gz", n_fashion), fashion_test=idx("t10k-images-idx3-ubyte.gz", n_test),
                        fashion_test_class=idx("t10k-labels-idx1-ubyte.gz", n_test))


# ------------------------------------------------------------------------------------------------ pictures

class Picture:
    """floats: what `paint` draws; labels: what is to be seen, for the auxiliary losses; cells: merged token of each sprite's centre."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.h, self.w = -(-height // 28) * 2, -(-width // 28) * 2
        self.tokens = self.h * self.w // 4
        self.head = [width, height, self.h, self.w]
        self.sprites, self.marks = [], []
        self.cls, self.digits, self.pairs, self.jitter = -1, [], [], 0.0

    def background(self, rng, c0, c1, kind, noise):
        ang = rng.uniform(0, 2 * math.pi)
        self.head += [kind, *c0, *c1, math.cos(ang), math.sin(ang), rng.uniform(4, 30), noise, rng.uniform(0, 99)]

    def cell(self, x, y):
        return int(min(max(y, 0), self.height - 1) // 28) * (self.w // 2) + int(min(max(x, 0), self.width - 1) // 28)

    def sprite(self, atlas, texture, x, y, hx, hy, angle=0.0, mirror=False, tint=None, gain=(1, 1, 1)):
        tw = int(atlas.table[texture * LEVELS][1])
        level = min(LEVELS - 1, max(0, int(math.log2(max(1.0, tw / (4 * hx))) + 0.5)))
        c, s = math.cos(angle), math.sin(angle)
        a, b = c / hx, s / hx
        self.sprites.append([texture * LEVELS + level, x, y, -a if mirror else a, -b if mirror else b, -s / hy, c / hy,
                             *(tint if tint else gain), 1.0 if tint else 0.0, 0.0, 0.0])

    def mark(self, x, y, cls, color=-1, neighbours=(-1, -1, -1, -1)):
        self.marks.append([self.cell(x, y), cls, color, *neighbours])

    def floats(self):
        out = np.zeros(FLOATS, np.float32)
        out[:len(self.head)] = self.head
        for i, s in enumerate(self.sprites):
            out[HEAD + i * SPRITE:HEAD + (i + 1) * SPRITE] = s
        return out

    def labels(self):
        out = np.full(LABELS, -1, np.int32)
        out[0] = self.cls
        if self.digits:
            out[1:6] = 10
            out[1:1 + len(self.digits)] = self.digits
        for i, (pair, count) in enumerate(self.pairs[:6]):
            out[6 + 2 * i:8 + 2 * i] = pair, count
        cells = [m[0] for m in self.marks]
        for i, m in enumerate(self.marks):
            if cells.count(m[0]) == 1:
                out[18 + 7 * i:25 + 7 * i] = m
        return out


def some_size(rng, most, low=28, high=224, aspect=4.0):
    """Width and height with at most `most` tokens."""
    while True:
        w = int(round(math.exp(rng.uniform(math.log(low), math.log(high)))))
        r = math.exp(rng.uniform(-1, 1) * math.log(aspect) * rng.random())
        h = int(round(w * r))
        if low <= h <= high and -(-w // 28) * -(-h // 28) <= most and max(w, h) <= aspect * min(w, h):
            return w, h


def any_color(rng):
    return [rng.random(), rng.random(), rng.random()]


def any_background(rng, p):
    r = rng.random()
    c0 = any_color(rng) if rng.random() < 0.6 else [rng.uniform(0.75, 1)] * 3
    c1 = any_color(rng) if r > 0.5 else c0
    p.background(rng, c0, c1, 1.0 if r > 0.85 else 0.0, rng.choice((0.0, 0.0, 0.03, 0.08)))


class Painter:
    """Builds pictures from the atlas. rng: random.Random."""

    def __init__(self, atlas):
        self.atlas = atlas
        self.plain = [n for n in range(len(atlas.names))]

    def icon(self, rng, concept, held_style):
        styles = self.atlas.icons[concept]
        names = [HELD_STYLE] if held_style is True else [held_style] if held_style else [s for s in styles if s != HELD_STYLE]
        return styles[rng.choice(names)]

    def gains(self, rng):
        g = rng.uniform(0.75, 1.15)
        return tuple(g * rng.uniform(0.88, 1.12) for _ in range(3))

    def one(self, rng, most, texture, cls, turn=20.0, mirror=True, low=28, high=224, square=True, fill=(0.62, 1.0), jitter=True):
        w, h = some_size(rng, most, low, high)
        p = Picture(w, h)
        any_background(rng, p)
        side = min(w, h)
        r = max(min(11.0, side / 2), side / 2 * rng.uniform(*fill))
        hx, hy = r, r
        if not square:
            stretch = rng.uniform(1.0, 1.6)
            hx = min(w / 2, r * stretch)
        else:
            hx *= rng.uniform(0.9, 1.0)
        x, y = (n / 2 if n / 2 <= e else rng.uniform(e, n - e) for n, e in ((w, hx), (h, hy)))
        p.sprite(self.atlas, texture, x, y, hx, hy, math.radians(rng.uniform(-turn, turn)), mirror and rng.random() < 0.5,
                 gain=self.gains(rng) if jitter else (1, 1, 1))
        p.mark(x, y, cls)
        p.cls = cls
        return p

    def thing(self, rng, most, concept, held_style=False):
        return self.one(rng, most, self.icon(rng, concept, held_style), concept)

    def flag(self, rng, most, i):
        return self.one(rng, most, self.atlas.flags[i], self.atlas.first[1] + i, 6.0, False, square=False)

    def garment(self, rng, most, test):
        texture, cls = rng.choice(self.atlas.clothes_test if test else self.atlas.clothes)
        return self.one(rng, most, texture, self.atlas.first[2] + cls, 6.0, True, 44, 168, fill=(0.85, 1.0)), cls

    def number(self, rng, most, digits, held_face):
        """One line of digits."""
        faces = len(self.atlas.glyphs)
        face = faces - 1 if held_face else rng.randrange(faces - 1)
        advance = [float(self.atlas.advance[face][d]) for d in digits]
        space = rng.uniform(0.0, 0.12)
        total = sum(advance) + space * (len(digits) - 1)
        while True:
            w, h = some_size(rng, most)
            size = min(h * 1.2, w * 0.97 / total) * rng.uniform(0.6, 1.0)       # height of the box; the digits fill about 0.7 of it
            if size >= 17 and total * size <= w and size * 0.75 <= h:
                break
        p = Picture(w, h)
        dark = rng.random() < 0.5
        ink = any_color(rng)
        light = sum(ink) / 3
        while True:
            c0 = any_color(rng)
            if abs(sum(c0) / 3 - light) > 0.33:
                break
        p.background(rng, c0, [min(1, max(0, c + rng.uniform(-0.1, 0.1))) for c in c0] if dark else c0, 0.0, rng.choice((0.0, 0.03, 0.06)))
        turn = math.radians(rng.uniform(-4, 4)) if len(digits) < 4 else math.radians(rng.uniform(-1.5, 1.5))
        half = total * size / 2
        cx, cy = rng.uniform(half, w - half), rng.uniform(size * 0.375, h - size * 0.375) if h > size * 0.75 else h / 2
        at = -half
        for i, d in enumerate(digits):
            mid = at + advance[i] * size / 2
            at += (advance[i] + space) * size
            x, y = cx + mid * math.cos(turn), cy + mid * math.sin(turn)
            p.sprite(self.atlas, self.atlas.glyphs[face][d], x, y, size * 0.4, size / 2, turn, tint=ink)
            p.mark(x, y, self.atlas.first[4] + d, 10 + i)
        p.digits = list(digits)
        return p

    def places(self, rng, w, h, radii):
        """Centres without overlap, or None."""
        out = []
        for r in radii:
            for _ in range(12):
                x, y = rng.uniform(r, w - r), rng.uniform(r, h - r)
                if all(math.hypot(x - a, y - b) > (r + q) * 1.05 for a, b, q in out):
                    out.append((x, y, r))
                    break
            else:
                return None
        return out

    def shapes(self, rng, most, wanted=None):
        """n shapes; returns the picture and [(shape, color)]. wanted: number of equal ones."""
        n = rng.randint(1, SPRITES) if wanted is None else wanted
        pick = lambda: (rng.randrange(len(SHAPES)), rng.randrange(len(COLORS)))
        first, second = pick(), pick()
        what = rng.random()
        if wanted is not None or what < 0.45:           # equal ones and some of another kind
            k = n if wanted is not None else rng.randint(1, n)
            if wanted is not None:
                n = rng.randint(wanted, SPRITES)
            things = [first] * k + [second] * (n - k)
        else:
            things = [pick() for _ in range(n)]
        while True:
            w, h = some_size(rng, most, 56 if n > 3 else 40)
            radii = [max(8.0, min(w, h) * rng.uniform(0.12, 0.2 if n > 3 else 0.3)) for _ in things]
            places = self.places(rng, w, h, radii)
            if places:
                break
        colors = list(COLORS.values())
        used = [colors[c] for _, c in things]
        while True:
            c0 = [rng.uniform(60, 215)] * 3 if rng.random() < 0.5 else [rng.uniform(60, 240) for _ in range(3)]
            if all(sum(abs(a - b) for a, b in zip(c0, u)) > 150 for u in used) and max(c0) - min(c0) < 70:
                break
        p = Picture(w, h)
        c0 = [c / 255 for c in c0]
        p.background(rng, c0, c0, 0.0, rng.choice((0.0, 0.0, 0.03)))
        for (s, c), (x, y, r) in zip(things, places):
            tint = [min(255, max(0, v + rng.uniform(-12, 12))) / 255 for v in colors[c]]
            p.sprite(self.atlas, self.atlas.shapes[s], x, y, r, r, math.radians(rng.uniform(-12, 12)), tint=tint)
            p.mark(x, y, self.atlas.first[3] + s, c)
        pairs = {}
        for s, c in things:
            pairs[s * 10 + c] = pairs.get(s * 10 + c, 0) + 1
        p.pairs = list(pairs.items())
        while len(p.pairs) < 6:
            s, c = pick()
            if s * 10 + c not in pairs:
                p.pairs.append((s * 10 + c, 0))
        return p, things

    def relations(self, rng, most, held_style=False):
        """Two to four things in a row, a column or a square; returns the picture, the things and {(i, side): j}."""
        way = rng.choice(("row", "column", "square", "row", "column"))
        n = 4 if way == "square" else rng.choice((2, 2, 3))
        things = rng.sample(self.plain, n)
        nx, ny = {"row": (n, 1), "column": (1, n), "square": (2, 2)}[way]
        while True:
            s = rng.uniform(28, 64)
            w, h = int(nx * s * rng.uniform(1, 1.25)), int(ny * s * rng.uniform(1, 1.25))
            if max(w, h) <= 224 and -(-w // 28) * -(-h // 28) <= most and min(w, h) >= 28:
                break
        p = Picture(w, h)
        any_background(rng, p)
        sides, at = {}, [(i % nx, i // nx) for i in range(n)]
        for i, (cx, cy) in enumerate(at):
            for side, (dx, dy) in enumerate(((-1, 0), (1, 0), (0, -1), (0, 1))):
                if (cx + dx, cy + dy) in at:
                    sides[i, side] = at.index((cx + dx, cy + dy))
        for i, (cx, cy) in enumerate(at):
            r = min(w / nx, h / ny) / 2 * rng.uniform(0.8, 1.0)
            ux, uy = (w / nx - 2 * r) / 2, (h / ny - 2 * r) / 2
            x, y = (cx + 0.5) * w / nx + rng.uniform(-ux, ux), (cy + 0.5) * h / ny + rng.uniform(-uy, uy)
            p.sprite(self.atlas, self.icon(rng, things[i], held_style), x, y, r, r, math.radians(rng.uniform(-10, 10)), rng.random() < 0.5,
                     gain=self.gains(rng))
            none = self.atlas.classes
            p.mark(x, y, things[i], neighbours=[things[sides[i, s]] if (i, s) in sides else none for s in range(4)])
        return p, things, sides


# ------------------------------------------------------------------------------------------------ documents

class Vision:
    """Conversations about pictures: [(role, [text or Picture, ...], {character of an assistant text: cell} or None)]."""

    def __init__(self, atlas):
        self.atlas, self.painter = atlas, Painter(atlas)

    def name(self, cls):
        return (self.atlas.names + self.atlas.flag_names + list(CLOTHES))[cls]

    def messages(self, rng, task, held_out=False, most=64, style=False, held_face=False, filler=None, count=None, kind=None):
        """-> turns [(parts of the user, answer, [(first character, last, picture, cell)])]: where in a picture the answer stands."""
        a, pt = self.atlas, self.painter
        ask = lambda trained, held: rng.choice(held if held_out else trained)
        if task == "V1":
            c = rng.randrange(len(a.names))
            p = pt.thing(rng, most, c, style)
            text = sentence(a_thing(a.names[c]))
            return [([p, ask(WHAT, WHAT_HELD)], text, [(0, len(text) - 1, 0, p.marks[0][0])])]
        if task == "V5":
            i = rng.randrange(len(a.flags))
            p = pt.flag(rng, most, i)
            text = f"The flag of {a.flag_names[i]}."
            q = ask(FLAG, FLAG_HELD) if rng.random() < 0.8 or held_out else rng.choice(WHAT)
            return [([p, q], text, [(11, len(text) - 1, 0, p.marks[0][0])])]
        if task == "V6":
            p, c = pt.garment(rng, most, held_out)
            text = sentence(a_thing(CLOTHES[c]))
            return [([p, ask(WHAT, WHAT_HELD)], text, [(0, len(text) - 1, 0, p.marks[0][0])])]
        if task == "V4":
            n = rng.choice((1, 2, 3, 4, 5)) if count is None else count
            digits = [rng.randrange(10) for _ in range(n)]
            p = pt.number(rng, most, digits, held_face)
            return [([p, ask(READ, READ_HELD)], "".join(map(str, digits)), [(i, i + 1, 0, m[0]) for i, m in enumerate(p.marks)])]
        if task == "V3":
            p, things, sides = pt.relations(rng, most, style)
            out = []
            for i, side in rng.sample(sorted(sides), 1 if held_out else min(len(sides), rng.randint(1, 3))):
                q = ask(SIDE, SIDE_HELD).format(s=SIDES[side], x=self.name(things[i]).rstrip(" *"))
                text = sentence(a_thing(self.name(things[sides[i, side]])))
                out.append(([q], text, [(0, len(text) - 1, 0, p.marks[sides[i, side]][0])]))
            return [([p] + out[0][0], *out[0][1:])] + out[1:]
        if task == "V2":
            kind = kind or ("count" if not held_out and rng.random() < 0.45 else None)
            p, things = pt.shapes(rng, most, rng.randint(1, 6) if kind == "count" or kind is None and rng.random() < 0.4 else None)
            out = []
            for _ in range(1 if held_out else rng.randint(1, 3)):
                out.append(self.shape_question(rng, p, things, ask, kind))
            return [([p] + out[0][0], *out[0][1:])] + out[1:]
        if task == "V7":
            share = max(4, most // 3)
            if filler is None:
                n = rng.choice((2, 3))
                things = rng.sample(range(len(a.names)), n)
                ps = [pt.thing(rng, share, c, style) for c in things]
                i = rng.randrange(n)
                text = f"The {ORDINALS[i]} picture shows {a_thing(a.names[things[i]])}."
                start = len(f"The {ORDINALS[i]} picture shows ")
                return [(ps + [ask(NTH, NTH_HELD).format(n=ORDINALS[i])], text, [(start, len(text) - 1, i, ps[i].marks[0][0])])]
            c = rng.randrange(len(a.names))
            p = pt.thing(rng, most, c, style)
            text = f"The picture shows {a_thing(a.names[c])}."
            return [([p, filler + "\n\n" + ask(SHOWN, SHOWN_HELD)], text, [(18, len(text) - 1, 0, p.marks[0][0])])]
        raise ValueError(task)

    def shape_question(self, rng, p, things, ask, kind):
        names = list(COLORS)
        once_shape = [i for i, (s, _) in enumerate(things) if sum(s == t for t, _ in things) == 1]
        once_color = [i for i, (_, c) in enumerate(things) if sum(c == d for _, d in things) == 1]
        r = rng.random()
        if (kind == "color" or kind is None and r < 0.3) and once_shape:
            i = rng.choice(once_shape)
            text = names[things[i][1]]
            return [ask(COLOR, COLOR_HELD).format(x=SHAPES[things[i][0]])], text, [(0, len(text), 0, p.marks[i][0])]
        if (kind == "shape" or kind is None and r < 0.55) and once_color:
            i = rng.choice(once_color)
            text = SHAPES[things[i][0]]
            return [ask(SHAPE, SHAPE_HELD).format(x=names[things[i][1]])], text, [(0, len(text), 0, p.marks[i][0])]
        s, c = rng.choice(things) if kind != "count" else things[0]
        which = rng.random()
        plural = "crosses" if SHAPES[s] == "cross" else SHAPES[s] + "s"
        if which < 0.6:
            n, x = sum((s, c) == t for t in things), f"{names[c]} {plural}"
        elif which < 0.8:
            n, x = sum(s == t for t, _ in things), plural
        else:
            n, x = len(things), "shapes"
        return [ask(COUNT, COUNT_HELD).format(x=x)], NUMBERS[n], []


def media_pieces(encoder, width, height, tokens):
    """Token ids of a picture in a prompt, and where among them the first pad stands."""
    head = [encoder.special("<|media_begin|>"), *encoder.encode(f"image {width}x{height}"), encoder.special("<|media_content|>")]
    return head + [encoder.special("<|media_pad|>")] * tokens + [encoder.special("<|media_end|>")], len(head)


def document(encoder, chat_format, turns):
    """-> tokens, weight, gold, [(Picture, position of its first pad)]."""
    tokens, weights, gold, pictures = [], [], [], []

    def put(ids, weight=0.0):
        tokens.extend(ids)
        weights.extend([weight] * len(ids))
        gold.extend([-1] * len(ids))
    for parts, answer, marks in turns:
        put(chat_format.open["user"])
        for part in parts:
            if isinstance(part, str):
                put(encoder.encode(part))
            else:
                ids, first = media_pieces(encoder, part.width, part.height, part.tokens)
                pictures.append((part, len(tokens) + first))
                put(ids)
        put(chat_format.close["user"])
        put(chat_format.open["assistant"])
        at = 0
        for i in encoder.encode(answer):
            piece = encoder.decode([i])
            where = [pictures[n][1] + cell for first, last, n, cell in marks if first < at + len(piece) and at < last]
            put([i], 1.0)
            gold[-1] = where[0] if where else -1
            at += len(piece)
        first, *rest = chat_format.close["assistant"]
        put([first], 1.0)
        put(rest, 0.3)
    return np.array(tokens, np.int32), np.array(weights, np.float32), np.array(gold, np.int32), pictures


# ------------------------------------------------------------------------------------------------ drawing

def grid(h, w, patches):
    """Row and column of each patch of the h x w grids [S], in the order of 2 x 2 blocks -> two [S, patches]."""
    import torch
    p = torch.arange(patches, device=h.device)[None]
    block, q, bw = p // 4, p % 4, (w[:, None] / 2).int().clamp(min=1)
    return 2 * (block // bw) + q // 2, 2 * (block % bw) + q % 2


def ground(f, row, col):
    """Where the samples lie, four to a pixel, and the background there: x, y, rgb [3, S, L, 784]."""
    import torch
    k = torch.arange(14 * 14 * 4, device=f.device)
    sub, pix = k % 4, k // 4
    x = (col[..., None] * 14 + pix % 14 + 0.25 + 0.5 * (sub % 2)).float()
    y = (row[..., None] * 14 + pix // 14 + 0.25 + 0.5 * (sub // 2)).float()
    g = lambda i: f[:, i, None, None]
    u = (x / g(0) - 0.5) * g(11) + (y / g(1) - 0.5) * g(12)
    t = torch.where(g(4) > 0.5, 0.5 + 0.5 * torch.sin(u * g(13)), (u + 0.5).clamp(0, 1))
    n = torch.sin(x.floor() * 12.9898 + y.floor() * 78.233 + g(15)) * 437.585
    n = (n - n.floor() - 0.5) * 2 * g(14)
    return x, y, torch.stack([g(5 + i) + (g(8 + i) - g(5 + i)) * t + n for i in range(3)])


def lay(rgb, x, y, f, texels, table):
    """One sprite over what is there. f [S, SPRITE]."""
    import torch
    g = lambda i: f[:, i, None, None]
    dx, dy = x - g(1), y - g(2)
    u, v = dx * g(3) + dy * g(4), dx * g(5) + dy * g(6)
    inside = ((u.abs() < 1) & (v.abs() < 1)).float()
    tex = table[f[:, 0].long()]
    start, tw, th = (tex[:, i, None, None] for i in range(3))
    px = torch.minimum(((u + 1) * 0.5 * tw - 0.5).clamp(min=0), tw - 1.001)
    py = torch.minimum(((v + 1) * 0.5 * th - 0.5).clamp(min=0), th - 1.001)
    x0, y0 = px.floor(), py.floor()
    fx, fy = px - x0, py - y0
    i0 = start + y0.int() * tw + x0.int()
    corners = ((texels[i0], (1 - fx) * (1 - fy)), (texels[i0 + 1], fx * (1 - fy)), (texels[i0 + tw], (1 - fx) * fy), (texels[i0 + tw + 1], fx * fy))
    r, g_, b, alpha = (sum(((q >> (8 * i)) & 255).float() * w for q, w in corners) / 255 * inside for i in range(4))
    tinted = g(10) > 0.5
    over = [torch.where(tinted, alpha * g(7 + i), torch.minimum(c * g(7 + i), alpha)) for i, c in enumerate((r, g_, b))]
    return rgb * (1 - alpha) + torch.stack(over)


def develop(rgb, x, y, f):
    """Samples -> 8-bit values [S, L, 3 * 14 * 14], black outside of the picture."""
    g = lambda i: f[:, i, None, None]
    S, L, _ = x.shape
    v = (rgb.clamp(0, 1) * 255).view(3, S, L, 14 * 14, 4).mean(-1).round()
    real = ((x < g(0)) & (y < g(1))).view(S, L, 14 * 14, 4)[..., 0]
    return (v * real).permute(1, 2, 0, 3).reshape(S, L, 3 * 14 * 14)


def paint(f, row, col, texels, table, fn=None):
    """f [S, FLOATS]; row, col [S, L]; texels int32 RGBA, table [n, 3] -> 8-bit values [S, L, 588] as floats, in the order channel, row, column."""
    first, over, last = (fn.ground, fn.lay, fn.develop) if fn else (ground, lay, develop)
    x, y, rgb = first(f, row, col)
    for s in range(SPRITES):
        rgb = over(rgb, x, y, f[:, HEAD + s * SPRITE:HEAD + (s + 1) * SPRITE].contiguous(), texels, table)
    return last(rgb, x, y, f)


def textures(atlas, device):
    import torch
    return (torch.from_numpy(np.concatenate((atlas.texels, np.zeros((256, 4), np.uint8))).view(np.int32).reshape(-1).copy()).to(device),
            torch.from_numpy(atlas.table).to(device))


def pixels(picture, tex):
    """Picture -> uint8 [height, width, 3], on the CPU: what `paint` draws, without the padding."""
    import torch
    f = torch.from_numpy(picture.floats())[None].to(tex[0].device)
    h, w = f[:, 2], f[:, 3]
    row, col = grid(h, w, picture.h * picture.w)
    p = paint(f, row, col, *tex)[0].to(torch.uint8).view(-1, 3, 14, 14)
    out = torch.zeros(picture.h, picture.w, 3, 14, 14, dtype=torch.uint8, device=f.device)
    out[row[0].long(), col[0].long()] = p
    return out.permute(0, 3, 1, 4, 2).reshape(picture.h * 14, picture.w * 14, 3)[:picture.height, :picture.width].cpu().numpy()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    for n in ("icons", "flags", "labels", "fashion", "out"):
        p.add_argument("--" + n, required=True)
    p.add_argument("--fonts", nargs="+", required=True)
    p.add_argument("--fashion-count", type=int, default=16000)
    p.add_argument("--fashion-test", type=int, default=1000)
    a = p.parse_args()
    pack(a.icons, a.flags, a.labels, a.fonts, a.fashion, a.out, a.fashion_count, a.fashion_test)
