#!/usr/bin/env python3
"""Writes the pictures that picture_test.cc decodes, and what it must get, into a folder.

    make_pictures.py FOLDER     needs NumPy and Pillow 11; pictures.txt says which versions wrote the committed ones

Pillow 13 resizes rows before columns where that is cheaper, and then differs in roundings from what models were trained
with.

pictures.txt: file, width, height, channels, tolerance, raw file. The raw file is [height, width, channels] as it was
before encoding; for lossy files as Pillow decodes it.
resizes.txt: raw file, width, height, channels, new width, new height, raw file as Pillow resizes it.
"""
import io
import pathlib
import struct
import sys
import zlib

import numpy as np
import PIL
from PIL import Image, ImageOps

if int(PIL.__version__.split(".")[0]) > 11:
    sys.exit("resizes need Pillow 11 or older")
folder = pathlib.Path(sys.argv[1])
pictures, resizes, raws = [], [], {}


def raw_file(array):
    """The name of the file with these values; equal ones share it."""
    data = np.ascontiguousarray(array, np.uint8).tobytes()
    if data not in raws:
        raws[data] = f"{len(raws):02}.raw"
        (folder / raws[data]).write_bytes(data)
    return raws[data]


def add(name, data, expected, tolerance=0):
    (folder / name).write_bytes(data)
    height, width, channels = expected.shape
    pictures.append(f"{name} {width} {height} {channels} {tolerance} {raw_file(expected)}")


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def add_lossy(name, data, tolerance, mode="RGB"):
    add(name, data, np.array(Image.open(io.BytesIO(data)).convert(mode)), tolerance)


# --- pictures: asymmetric, odd sides, smooth enough for lossy formats -------------------------------------------------
WIDTH, HEIGHT = 37, 26
y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
rgb = np.stack([x * 255 // (WIDTH - 1), y * 255 // (HEIGHT - 1), (x * 3 + y * 5) % 256], -1).astype(np.uint8)
rgb[3:9, 4:17] = (250, 20, 40)
gray = rgb[..., 2].copy()
alpha = ((x * 11 + y * 7) % 256).astype(np.uint8)
alpha[:5, :9] = 0
noise = np.random.default_rng(5).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)
rgba = np.dstack([np.where(alpha[..., None] == 0, noise, rgb), alpha])
gray_rgb = np.dstack([gray] * 3)
gray_rgba = np.dstack([gray_rgb, alpha])
indices = ((x // 3 + y // 4 * 5) % 16).astype(np.uint8)
palette = np.array([[i * 16, 255 - i * 9, i * i] for i in range(16)], np.uint8)
smooth = rgb.copy()
smooth[..., 2] = (x * 2 + y * 3)


# --- PNG ---------------------------------------------------------------------------------------------------------------
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(samples, depth):
    """Rows of samples as PNG and BMP keep them; [height, width * channels] in, one bytes object a row out."""
    if depth == 8:
        return [row.astype(np.uint8).tobytes() for row in samples]
    if depth == 16:
        return [row.astype(">u2").tobytes() for row in samples]
    rows = []
    for row in samples:
        bits = "".join(format(int(v), f"0{depth}b") for v in row)
        bits += "0" * (-len(bits) % 8)
        rows.append(bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8)))
    return rows


def png(samples, color, depth=8, interlaced=False, extra=b"", tail=b""):
    """samples: [height, width, channels]; extra: chunks before the data; tail: chunks behind it."""
    height, width, _ = samples.shape
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b""
    for x0, y0, dx, dy in passes:
        part = samples[y0::dy, x0::dx]
        if part.size:
            data += b"".join(b"\0" + row for row in packed(part.reshape(part.shape[0], -1), depth))
    ihdr = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", ihdr) + extra + chunk(b"IDAT", zlib.compress(data, 9)) + tail +
            chunk(b"IEND", b""))


def tiff(orientation, order="<", kind=3, count=1):
    value = struct.pack(order + "HH", orientation, 0) if kind == 3 else struct.pack(order + "I", orientation)
    return ((b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, 2) +
            struct.pack(order + "HHII", 0x0100, 4, 1, WIDTH) + struct.pack(order + "HHI", 0x0112, kind, count) + value +
            struct.pack(order + "I", 0))


plte = chunk(b"PLTE", palette.tobytes())
add("rgb.png", saved(Image.fromarray(rgb), "PNG"), rgb)
add("rgba.png", saved(Image.fromarray(rgba), "PNG"), rgba)
add("opaque_rgba.png", saved(Image.fromarray(np.dstack([rgb, np.full_like(alpha, 255)])), "PNG"), rgb)
add("gray.png", saved(Image.fromarray(gray), "PNG"), gray_rgb)
add("gray_alpha.png", png(np.dstack([gray, alpha]), 4), gray_rgba)
add("gray1.png", png((gray // 128)[..., None], 0, 1), np.dstack([gray // 128 * 255] * 3))
add("gray2.png", png((gray // 64)[..., None], 0, 2), np.dstack([gray // 64 * 85] * 3))
add("gray4.png", png((gray // 16)[..., None], 0, 4), np.dstack([gray // 16 * 17] * 3))
add("palette8.png", png(indices[..., None], 3, extra=plte), palette[indices])
add("palette4.png", png(indices[..., None], 3, 4, extra=plte), palette[indices])
add("palette1.png", png((indices % 2)[..., None], 3, 1, extra=plte), palette[indices % 2])
add("palette_trns.png", png(indices[..., None], 3, 4, extra=plte + chunk(b"tRNS", bytes([0, 100, 255, 7]))),
    np.dstack([palette[indices], np.array([0, 100, 255, 7] + [255] * 12, np.uint8)[indices]]))
wide = rgb.astype(np.uint16) * 256 + 77
add("rgb16.png", png(wide, 2, 16), rgb)
add("rgba16.png", png(np.dstack([wide, alpha.astype(np.uint16) * 257]), 6, 16), np.dstack([rgb, alpha]))
add("gray16.png", png(wide[..., 2:], 0, 16), gray_rgb)
add("gray_alpha16.png", png(np.dstack([wide[..., 2], alpha.astype(np.uint16) * 257]), 4, 16), gray_rgba)
add("interlaced.png", png(rgb, 2, interlaced=True), rgb)
add("interlaced_rgba16.png", png(np.dstack([wide, alpha.astype(np.uint16) * 257]), 6, 16, True), np.dstack([rgb, alpha]))
add("interlaced_palette4.png", png(indices[..., None], 3, 4, True, plte), palette[indices])
key = (250, 20, 40)
keyed = np.dstack([rgb, np.where((rgb == key).all(-1), 0, 255)])
add("rgb_trns.png", png(rgb, 2, extra=chunk(b"tRNS", struct.pack(">HHH", *key))), keyed)
add("gray_trns.png", png(gray[..., None], 0, extra=chunk(b"tRNS", struct.pack(">H", int(gray[0, 0])))),
    np.dstack([gray_rgb, np.where(gray == gray[0, 0], 0, 255)]))


def sideways(array, orientation):
    """The stored picture that this orientation makes upright again."""
    if orientation >= 5:
        array = array.swapaxes(0, 1)
    if orientation in (2, 3, 7, 8):
        array = array[:, ::-1]
    if orientation in (3, 4, 6, 7):
        array = array[::-1]
    return np.ascontiguousarray(array)


for o in range(1, 9):
    stored = sideways(rgb, o)
    before = chunk(b"eXIf", tiff(o, ">")) if o % 2 else b""
    data = png(stored, 2, extra=before, tail=b"" if o % 2 else chunk(b"eXIf", tiff(o)))
    if o % 2:  # Pillow reads the chunk before the data only
        assert (np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(data)))) == rgb).all(), o
    add(f"exif{o}.png", data, rgb)

# --- JPEG --------------------------------------------------------------------------------------------------------------
add_lossy("444.jpg", saved(Image.fromarray(smooth), "JPEG", quality=90, subsampling=0), 3)
add_lossy("422.jpg", saved(Image.fromarray(smooth), "JPEG", quality=90, subsampling=1), 6)
add_lossy("420.jpg", saved(Image.fromarray(smooth), "JPEG", quality=90, subsampling=2), 6)
add_lossy("progressive.jpg", saved(Image.fromarray(smooth), "JPEG", quality=90, progressive=True), 6)
add_lossy("restart.jpg", saved(Image.fromarray(smooth), "JPEG", quality=90, restart_marker_blocks=2), 6)
add_lossy("gray.jpg", saved(Image.fromarray(smooth[..., 1]), "JPEG", quality=90), 3)
add_lossy("gray_progressive.jpg", saved(Image.fromarray(smooth[..., 1]), "JPEG", quality=90, progressive=True), 3)
ink = np.dstack([255 - smooth, (x * 3).astype(np.uint8)])
cmyk = saved(Image.fromarray(ink, "CMYK"), "JPEG", quality=95)
add_lossy("cmyk.jpg", cmyk, 3)
# Pillow stores a CMYK picture inverted; Y, Cb and Cr of the inverted colours in their place are YCCK.
ycc = np.array(Image.fromarray(255 - smooth).convert("YCbCr"))
ycck = bytearray(saved(Image.fromarray(255 - np.dstack([ycc, 255 - (x * 3).astype(np.uint8)]), "CMYK"), "JPEG", quality=95))
ycck[ycck.index(b"Adobe") + 11] = 2
add_lossy("ycck.jpg", bytes(ycck), 3)

# Blocks of one colour survive a turn exactly: eight orientations, one picture.
blocks = np.random.default_rng(7).integers(0, 256, (9, 12, 3)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
for o in range(1, 9):
    app1 = b"Exif\0\0" + tiff(o, "<>"[o % 2])
    plain = saved(Image.fromarray(sideways(blocks, o)), "JPEG", quality=90, subsampling=0)
    data = plain[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(app1)) + app1 + plain[2:]
    shown = np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    assert np.abs(shown.astype(int) - blocks).max() < 16, o
    add(f"exif{o}.jpg", data, shown, 3)

# --- BMP ---------------------------------------------------------------------------------------------------------------


def bmp(rows, bits, header=40, compression=0, masks=(), colors=b"", num_colors=0, top_down=False, width=WIDTH):
    """rows: bytes of each row, the upper one first."""
    height = len(rows)
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", header, width, -height if top_down else height, 1, bits, compression, 0, 0, 0,
                           num_colors, 0)
        info += b"".join(struct.pack("<I", m) for m in masks)
        info += bytes(max(0, header - len(info)))
    data = b"".join(row + bytes(-len(row) % 4) for row in (rows if top_down else rows[::-1]))
    begin = 14 + len(info) + len(colors)
    return b"BM" + struct.pack("<IHHI", begin + len(data), 0, 0, begin) + info + colors + data


bgr = rgb[..., ::-1]
colors4 = b"".join(bytes([c[2], c[1], c[0], 0]) for c in palette)
colors3 = b"".join(bytes([c[2], c[1], c[0]]) for c in palette)
add("24.bmp", saved(Image.fromarray(rgb), "BMP"), rgb)
add("24_top_down.bmp", bmp([r.tobytes() for r in bgr], 24, top_down=True), rgb)
add("24_core.bmp", bmp([r.tobytes() for r in bgr], 24, header=12), rgb)
add("32.bmp", bmp([r.tobytes() for r in np.dstack([bgr, alpha])], 32), rgb)
four = np.dstack([bgr, alpha])
v4 = (0xff0000, 0xff00, 0xff, 0xff000000)
add("32_alpha.bmp", bmp([r.tobytes() for r in four], 32, 108, 3, v4), np.dstack([rgb, alpha]))
zero = np.dstack([bgr, np.zeros_like(alpha)])
add("32_alpha_zero.bmp", bmp([r.tobytes() for r in zero], 32, 124, 3, v4), rgb)
r16, g16, b16 = (rgb[..., i].astype(np.uint32) for i in range(3))
v555 = (r16 >> 3 << 10 | g16 >> 3 << 5 | b16 >> 3).astype("<u2")
v565 = (r16 >> 3 << 11 | g16 >> 2 << 5 | b16 >> 3).astype("<u2")


def stretched(values, most):
    return np.round(values * 255.0 / most).astype(np.uint8)


add("16.bmp", bmp([r.tobytes() for r in v555], 16), np.dstack([stretched(v >> 3, 31) for v in (r16, g16, b16)]))
add("565.bmp", bmp([r.tobytes() for r in v565], 16, 40, 3, (31 << 11, 63 << 5, 31)),
    np.dstack([stretched(r16 >> 3, 31), stretched(g16 >> 2, 63), stretched(b16 >> 3, 31)]))
add("8.bmp", bmp(packed(indices, 8), 8, colors=colors4, num_colors=16), palette[indices])
add("4.bmp", bmp(packed(indices, 4), 4, colors=colors4, num_colors=16), palette[indices])
add("4_core.bmp", bmp(packed(indices, 4), 4, header=12, colors=colors3), palette[indices])
add("1.bmp", bmp(packed(indices % 2, 1), 1, colors=colors4[:8]), palette[indices % 2])

# --- GIF ---------------------------------------------------------------------------------------------------------------


def paletted(values):
    image = Image.fromarray(values, "P")
    image.putpalette(palette.tobytes())
    return image


opaque = palette[indices]
holes = np.dstack([opaque, np.where(indices == 3, 0, 255)])
holes[indices == 3] = 0
add("plain.gif", saved(paletted(indices), "GIF", interlace=0), opaque)
add("interlaced.gif", saved(paletted(indices), "GIF", interlace=1), opaque)
add("transparent.gif", saved(paletted(indices), "GIF", transparency=3), holes)
many = np.random.default_rng(11).integers(0, 16, (HEIGHT * 4, WIDTH * 4)).astype(np.uint8)  # fills the code table
add("noise.gif", saved(paletted(many), "GIF"), palette[many])
add("animated.gif", saved(paletted(indices), "GIF", save_all=True, append_images=[paletted(15 - indices)]), opaque)
# A frame that does not fill its canvas: what it leaves free is transparent.
part = bytearray(saved(paletted(indices), "GIF", interlace=0))
part[6:10] = struct.pack("<HH", WIDTH + 5, HEIGHT + 4)
at = part.index(b",\0\0\0\0" + struct.pack("<HH", WIDTH, HEIGHT))
part[at + 1:at + 5] = struct.pack("<HH", 2, 3)
canvas = np.zeros((HEIGHT + 4, WIDTH + 5, 4), np.uint8)
canvas[3:3 + HEIGHT, 2:2 + WIDTH] = np.dstack([opaque, np.full_like(alpha, 255)])
add("part.gif", bytes(part), canvas)

# --- WebP --------------------------------------------------------------------------------------------------------------
add_lossy("lossy.webp", saved(Image.fromarray(smooth), "WEBP", quality=85), 1)
add_lossy("lossy_alpha.webp", saved(Image.fromarray(np.dstack([smooth, alpha])), "WEBP", quality=85, exact=True), 1, "RGBA")
add("lossless.webp", saved(Image.fromarray(rgb), "WEBP", lossless=True), rgb)
add("lossless_alpha.webp", saved(Image.fromarray(rgba), "WEBP", lossless=True, exact=True), rgba)
frames = [Image.fromarray(rgb), Image.fromarray(255 - rgb)]
add("animated.webp", saved(frames[0], "WEBP", lossless=True, save_all=True, append_images=frames[1:]), rgb)
add("animated_alpha.webp", saved(Image.fromarray(rgba), "WEBP", lossless=True, exact=True, save_all=True,
                                 append_images=[Image.fromarray(rgba[::-1].copy())]),
    np.where(alpha[..., None] == 0, 0, rgba))  # Pillow clears hidden colours in animations
for o in (3, 6):
    add(f"exif{o}.webp", saved(Image.fromarray(sideways(rgb, o)), "WEBP", lossless=True, exif=b"Exif\0\0" * (o == 6) + tiff(o)),
        rgb)

# --- sizes at the border -----------------------------------------------------------------------------------------------
ramp = np.abs(np.arange(10000) % 500 - 250).astype(np.uint8)
for name, array in (("1x1", rgb[:1, :1]), ("10000x1", np.dstack([ramp[None]] * 3)), ("1x10000", np.dstack([ramp[:, None]] * 3))):
    image = Image.fromarray(np.ascontiguousarray(array))
    add(f"{name}.png", saved(image, "PNG"), array)
    add(f"{name}.jpg", saved(image, "JPEG", quality=90), array, 3)
    add(f"{name}.webp", saved(image, "WEBP", lossless=True), array)
    if name == "1x1":
        add(f"{name}.bmp", saved(image, "BMP"), array)
        add(f"{name}.gif", saved(image, "GIF"), array)

# --- resizes -----------------------------------------------------------------------------------------------------------
rough = np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)
rough[:, ::2] = rough[:, ::2] // 128 * 255  # overshoots both ends
rough_rgba = np.dstack([rough, alpha])
for source in (rough, rough_rgba):
    for size in ((11, 7), (60, 50), (36, 25), (WIDTH, 9), (12, HEIGHT), (1, 1), (100, 3), (WIDTH, HEIGHT), (2, 64)):
        resized = np.array(Image.fromarray(source).resize(size, Image.Resampling.BICUBIC))
        resizes.append(f"{raw_file(source)} {WIDTH} {HEIGHT} {source.shape[2]} {size[0]} {size[1]} {raw_file(resized)}")

(folder / "pictures.txt").write_text(f"# Pillow {PIL.__version__}, NumPy {np.__version__}\n" + "\n".join(pictures) + "\n")
(folder / "resizes.txt").write_text("\n".join(resizes) + "\n")
