#!/usr/bin/env python3
"""dsa_convert as a program: run.py PROGRAM. Bytes, memory, kills, disks and folders that refuse.

The bytes are those of the rule in exact fractions, written here from its definition:

    block of 32:  s = the smallest power of two >= max|w| / 7,  q = w / s within [-6, 6], to the nearest of
                  0 0.5 1 1.5 2 3 4 6 and their negatives, ties to the even code; zero has no sign
"""
import fractions
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
FIXTURE = pathlib.Path(__file__).resolve().parent.parent / "golden" / "glm_moe_dsa" / "model"
LEVELS = [fractions.Fraction(v) for v in ("0", "1/2", "1", "3/2", "2", "3", "4", "6")]
SANITIZED = "--sanitized" in sys.argv[2:]
MEMORY_MAX = 40 << 20  # buffers of 16 MiB, the program, its libraries and threads; not what a thread sanitizer keeps beside them

failures = 0


def check(name, good, detail=""):
    global failures
    failures += not good
    print(f"{'ok      ' if good else 'FAILED  '}{name}" + ("" if good else f": {detail}"))


def convert(source, target, *options, **settings):
    return subprocess.run([PROGRAM, source, target, *options], capture_output=True, text=True, **settings)


def write_model(folder, tensors, shards=1):
    """tensors: name, dtype, shape, bytes or the length of a hole that reads as zeros."""
    folder.mkdir()
    shutil.copy(FIXTURE / "config.json", folder)
    (folder / "tokenizer.json").write_text("{}")
    weight_map = {}
    for shard in range(shards):
        header, at = {}, 0
        mine = tensors[shard::shards]
        for name, dtype, shape, data in mine:
            size = data if isinstance(data, int) else len(data)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            weight_map[name] = f"model-{shard}.safetensors"
            at += size
        text = json.dumps(header).encode()
        with open(folder / f"model-{shard}.safetensors", "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for _, _, _, data in mine:
                out.seek(data, os.SEEK_CUR) if isinstance(data, int) else out.write(data)
            out.truncate(8 + len(text) + at)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def tensor(folder, name):
    file = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"][name]
    data = (folder / file).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + length])[name]["data_offsets"]
    return data[8 + length + begin:8 + length + end]


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def pack(block):
    """The scale code and the 16 bytes of 32 values."""
    largest = max(abs(fractions.Fraction(v)) for v in block)
    exponent = 0
    if largest:
        exponent = -150
        while fractions.Fraction(2) ** exponent < largest / 7:
            exponent += 1
    exponent = min(max(exponent, -120), 120)
    codes = []
    for v in block:
        x = fractions.Fraction(v) / fractions.Fraction(2) ** exponent
        m = min(abs(x), fractions.Fraction(6))
        code = min(range(8), key=lambda c: (abs(LEVELS[c] - m), c % 2))
        codes.append(code | (8 if x < 0 and code else 0))
    return exponent + 127, bytes(codes[i] | codes[i + 1] << 4 for i in range(0, 32, 2))


def awkward_values(chance):
    """Blocks of BF16 values: of all sizes, ties, saturated, tiny, huge, zero."""
    bits_of = lambda v: struct.unpack("<I", struct.pack("<f", v))[0] >> 16
    blocks = [[0] * 32, [0x8000] * 32, [1] + [0] * 31, [0x7f7f, 0xff7f] * 16, [0x0080, 0x0001] * 16,
              [bits_of(7.0)] + [bits_of(i * 0.25) for i in range(31)], [bits_of(-6.5)] + [bits_of(-i / 8) for i in range(31)],
              [bits_of(7.03125)] + [bits_of(i * 0.25) for i in range(31)], [bits_of(6.96875)] + [bits_of(i / 4) for i in range(31)]]
    for exponent in range(-126, 126, 3):
        blocks.append([bits_of(chance.gauss(0, 1) * 2.0 ** exponent) for _ in range(32)])
    for _ in range(100):
        blocks.append([bits_of(chance.gauss(0, 0.02)) for _ in range(32)])
        blocks.append([bits_of(chance.choice([-1, 1]) * chance.randrange(29) / 4) for _ in range(32)])
    for _ in range(100):
        blocks.append([b if b & 0x7f80 != 0x7f80 else 0 for b in (chance.randrange(1 << 16) for _ in range(32))])
    return blocks


def test_bytes(work):
    blocks = awkward_values(random.Random(1))
    rows = len(blocks) // 2
    blocks = blocks[:rows * 2]
    stored = struct.pack(f"<{64 * rows}H", *(b for block in blocks for b in block))
    name = "model.layers.1.mlp.experts.0.up_proj.weight"
    source = write_model(work / "bytes", [(name, "BF16", [rows, 64], stored)])
    result = convert(source, work / "bytes-out", "--quiet")
    check("it converts awkward values", result.returncode == 0, result.stderr)
    expected = [pack([float_of(b << 16) for b in block]) for block in blocks]
    check("scale codes are those of exact arithmetic",
          tensor(work / "bytes-out", name + "_scale") == bytes(code for code, _ in expected))
    check("values are those of exact arithmetic",
          tensor(work / "bytes-out", name + "_packed") == b"".join(packed for _, packed in expected))


def big_model(folder, experts=24):
    """Experts and an embedding of 16 MiB each; a few have values."""
    chance = random.Random(2)
    row = struct.pack("<4096H", *(0x3c00 + chance.randrange(512) for _ in range(4096)))
    tensors = [("model.embed_tokens.weight", "BF16", [2048, 4096], 2048 * 8192)]
    for e in range(experts):
        data = row * 2048 if e % 6 == 0 else 2048 * 8192
        tensors.append((f"model.layers.1.mlp.experts.{e}.down_proj.weight", "BF16", [2048, 4096], data))
    return write_model(folder, tensors, shards=3)


def test_memory(work, source):
    """400 MiB are read: the peak of the memory of the program, as the system counts it."""
    process, peak = subprocess.Popen([PROGRAM, source, work / "whole"], stdout=subprocess.PIPE, text=True), 0
    for _ in process.stdout:  # one line a tensor, and one at the very end
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        peak = max([peak] + [int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:")])
    process.stdout.close()
    check("it converts files of 130 MiB", process.wait() == 0)
    if not SANITIZED:
        check(f"in at most {MEMORY_MAX >> 20} MiB of memory", 0 < peak < MEMORY_MAX, f"{peak >> 20} MiB")
    print(f"        peak {peak / (1 << 20):.1f} MiB")


def test_kills(work, source):
    expected = files(work / "whole")
    for after in (0, 1, 9, 17, 23):
        target = work / f"killed-{after}"
        process = subprocess.Popen([PROGRAM, source, target], stdout=subprocess.PIPE, text=True)
        for _ in range(after):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        result = convert(source, target)
        good = result.returncode == 0 and files(target) == expected
        check(f"killed behind {after} tensors, it ends with the same bytes", good, result.stderr)
        if after >= 9:
            check("and did not begin again", "went on behind" in result.stdout, result.stdout)
    again = convert(source, work / "whole")
    check("a finished one says so", again.returncode == 0 and "nothing to do" in again.stdout, again.stdout)


def test_refusals(work, source):
    def refused(name, result, *parts):
        check(name, result.returncode == 1 and all(p in result.stderr for p in parts), result.stderr or result.stdout)

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, 20 << 20))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    refused("a disk without room is an error", convert(source, work / "full", preexec_fn=small_files),
            "DSA_ERROR_DISK_FULL", "model-0.safetensors")
    result = convert(source, work / "full", "--quiet")
    check("and with room it goes on", result.returncode == 0 and files(work / "full") == files(work / "whole"), result.stderr)
    refused("a folder that cannot be made is an error", convert(source, "/proc/none/out"), "DSA_ERROR_")
    if os.geteuid() != 0:  # root may write anywhere
        (work / "locked").mkdir(mode=0o500)
        refused("a folder that may not be written is an error", convert(source, work / "locked" / "out"), "DSA_ERROR_ACCESS")
    (work / "foreign").mkdir()
    (work / "foreign" / "thesis.txt").write_text("years of work")
    refused("a folder with other files is left alone", convert(source, work / "foreign"), "DSA_ERROR_STATE", "not empty")
    refused("MXFP4 experts are refused", convert(FIXTURE.parent / "model-mxfp4", work / "none"), "DSA_ERROR_FORMAT", "MXFP4")
    result = convert(FIXTURE.parent / "model-mxfp4", work / "none", "--json")
    check("errors as JSON", json.loads(result.stdout)["error"] == "DSA_ERROR_FORMAT", result.stdout)
    result = convert(source, work / "whole", "--json")
    total = json.loads(result.stdout)["total"]
    check("figures as JSON", 0 < total["relative_rms_error"] < 0.2 and total["values"] == 24 << 23, result.stdout[:200])
    check("wrong arguments are told apart", convert(source, work / "x", "--what").returncode == 2)
    first = subprocess.Popen([PROGRAM, source, work / "two"], stdout=subprocess.PIPE, text=True)
    first.stdout.readline()
    first.send_signal(signal.SIGSTOP)
    refused("a second process is refused", convert(source, work / "two"), "DSA_ERROR_BUSY")
    first.kill()
    first.wait()
    first.stdout.close()


with tempfile.TemporaryDirectory(prefix="dsa-convert-") as folder:
    base = pathlib.Path(folder)
    test_bytes(base)
    model = big_model(base / "big")
    test_memory(base, model)
    test_kills(base, model)
    test_refusals(base, model)
sys.exit(1 if failures else 0)
