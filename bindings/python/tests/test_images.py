"""Pictures by every door: equal pixels are the same picture, wherever they came from."""

import importlib.util
import pathlib
import struct
import tempfile
import unittest
import zlib

import dsa_sdk as dsa
from support import MODEL, model, runtime

SIGHTED = runtime().open(MODEL).info.has_images


def png(width: int, height: int, rows: list[bytes]) -> bytes:
    """An RGB picture, written by hand."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


WIDTH, HEIGHT = 5, 3
ROWS = [bytes((x * 40 + y * 7 + c * 90) % 256 for x in range(WIDTH) for c in range(3)) for y in range(HEIGHT)]
PIXELS = b"".join(ROWS)


class Interface:
    """An array as others describe theirs."""

    def __init__(self, data: bytes, shape: tuple, strides: tuple | None = None, kind: str = "|u1"):
        import ctypes

        self.memory = ctypes.create_string_buffer(data, len(data))
        where = (ctypes.addressof(self.memory), False)
        self.__array_interface__ = {"shape": shape, "typestr": kind, "data": where, "strides": strides, "version": 3}


class Images(unittest.TestCase):
    def setUp(self):
        self.expected = dsa.Image.open(runtime(), png(WIDTH, HEIGHT, ROWS))

    def same(self, source, **options):
        image = dsa.Image.open(runtime(), source, **options)
        self.assertEqual((image.size, image.id), ((WIDTH, HEIGHT), self.expected.id))

    def test_files_and_bytes(self):
        encoded = png(WIDTH, HEIGHT, ROWS)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "ä picture.png")
            path.write_bytes(encoded)
            self.same(path)
            self.same(str(path))
        self.same(bytearray(encoded))
        self.same(memoryview(encoded))

    def test_arrays(self):
        shape = (HEIGHT, WIDTH, 3)
        self.same(memoryview(PIXELS).cast("B", shape))
        self.same(Interface(PIXELS, shape))
        padded = b"".join(row + b"pad" for row in ROWS)
        self.same(Interface(padded, shape, (WIDTH * 3 + 3, 3, 1)))
        swapped = b"".join(PIXELS[i : i + 3][::-1] for i in range(0, len(PIXELS), 3))
        self.same(Interface(swapped, shape), order="bgr")
        opaque = b"".join(PIXELS[i : i + 3] + b"\xff" for i in range(0, len(PIXELS), 3))
        self.same(Interface(opaque, (HEIGHT, WIDTH, 4)))
        gray = dsa.Image.open(runtime(), Interface(bytes(range(6)), (2, 3)))
        self.assertEqual(gray.size, (3, 2))

    def test_what_is_no_picture(self):
        for source in (
            Interface(PIXELS, (HEIGHT, WIDTH, 3), kind="<f4"),
            Interface(PIXELS, (HEIGHT * WIDTH * 3,)),
            Interface(PIXELS[:30], (3, 5, 2)),
            memoryview(bytes(16)).cast("I"),
            12,
            None,
        ):
            with self.subTest(type(source)), self.assertRaises(dsa.ArgumentError):
                dsa.Image.open(runtime(), source)
        with self.assertRaises(dsa.ContentError):
            dsa.Image.open(runtime(), png(WIDTH, HEIGHT, ROWS)[:40])
        with self.assertRaises(dsa.NotFound):
            dsa.Image.open(runtime(), "/nowhere.png")
        with self.assertRaises(dsa.LimitExceeded):
            dsa.Image.open(runtime(), png(WIDTH, HEIGHT, ROWS), max_pixels=10)
        with self.assertRaises(dsa.LimitExceeded):
            dsa.Image.open(runtime(), png(WIDTH, HEIGHT, ROWS), max_side=4, refuse_too_large=True)
        self.assertEqual(dsa.Image.open(runtime(), png(8, 2, [bytes(24)] * 2), max_side=4).size, (4, 1))

    def test_in_prompts(self):
        prompt = dsa.Prompt(runtime()).user("What is this? ", self.expected)
        with self.assertRaises(dsa.StateError):
            dsa.Prompt(runtime()).image(self.expected)
        named = {"type": "image_url", "image_url": {"url": "a"}}
        chat_form = dsa.Prompt(runtime()).messages([{"role": "user", "content": [named]}])
        chat_form.bind_image("a", self.expected)
        with self.assertRaises(dsa.ArgumentError):
            chat_form.bind_image("a", self.expected)
        self.expected.close()  # the prompts keep it
        for each in (prompt, chat_form):
            with model().session() as chat:
                if SIGHTED:
                    with chat.run(each, max_tokens=4) as run:
                        self.assertGreater(run.wait().image_tokens, 0)
                else:
                    with self.assertRaisesRegex(dsa.Unsupported, "reads text only"):
                        chat.ask(each)

    def test_preparing(self):
        if not SIGHTED:
            with self.assertRaisesRegex(dsa.Unsupported, "reads text only"):
                self.expected.prepare(model())
            return
        with runtime().load(MODEL) as loaded:
            with self.expected.prepare(loaded) as operation:
                self.assertTrue(operation.wait(30))
                self.assertEqual(operation.progress.stage, dsa.Stage.IMAGE)
            self.assertEqual(loaded.stats.images_encoded, 1)
            dropped = self.expected.prepare(loaded)
        del dropped

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "NumPy is not installed")
    def test_numpy(self):
        import numpy

        array = numpy.frombuffer(PIXELS, numpy.uint8).reshape(HEIGHT, WIDTH, 3)
        self.same(array)  # read-only memory
        self.same(array[:, :, ::-1], order="bgr")
        self.same(array[::-1].copy()[::-1])
        wide = numpy.zeros((HEIGHT, WIDTH + 4, 3), numpy.uint8)
        wide[:, 2 : WIDTH + 2] = array
        self.same(wide[:, 2 : WIDTH + 2])
        self.same(numpy.asfortranarray(array))

    @unittest.skipUnless(importlib.util.find_spec("PIL"), "Pillow is not installed")
    def test_pillow(self):
        import PIL.Image

        picture = PIL.Image.frombytes("RGB", (WIDTH, HEIGHT), PIXELS)
        self.same(picture)
        self.same(picture.convert("RGBA"))
        turned = picture.transpose(PIL.Image.Transpose.ROTATE_90)
        turned.getexif()[0x0112] = 6  # to be shown turned by 90 degrees clockwise
        self.same(turned)
        palette = PIL.Image.new("P", (WIDTH, HEIGHT), 1)
        palette.putpalette([0, 0, 0, 10, 20, 30])
        plain = dsa.Image.open(runtime(), PIL.Image.new("RGB", (WIDTH, HEIGHT), (10, 20, 30)))
        self.assertEqual(dsa.Image.open(runtime(), palette).id, plain.id)


if __name__ == "__main__":
    unittest.main()
