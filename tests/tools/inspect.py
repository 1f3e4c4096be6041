#!/usr/bin/env python3
"""Runs dsa_inspect on one model and checks what it prints.

    inspect.py PROGRAM published NAME CONFIG   parameters within 0.1 % of published_totals.json, no operator missing
    inspect.py PROGRAM folder FOLDER           every tensor found, none left over
    inspect.py PROGRAM damaged FOLDER          a copy with tensors missing, strange and refused
    inspect.py PROGRAM refused CONFIG          refused and unknown models; wrong arguments
"""
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

TOLERANCE = 1e-3
TOTALS = pathlib.Path(__file__).parent / "published_totals.json"


def expect(condition, *what):
    if not condition:
        sys.exit(" ".join(str(part) for part in what))


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def inspect(program, path, status=0):
    """The JSON report of a path; text says the same numbers and answers with the same status."""
    report, text = run(program, "--json", path), run(program, path)
    expect(report.returncode == status, "exit status", report.returncode, "expected", status, report.stderr)
    expect(text.returncode == status, "text: exit status", text.returncode, "expected", status)
    found, lines = json.loads(report.stdout), text.stdout
    for key, value in found["parameters"].items():
        expect(value == 0 or any(line.split() == [key, f"{value:,}"] for line in lines.splitlines()), key, value)
    expect(f"operators: {len(found['operators'])} needed" in lines, "the text has another number of operators")
    table = lines[lines.index("operators:"):].splitlines()
    for operator in found["operators"]:
        row = next((l.split() for l in table if l.split()[:1] == [operator["name"]]), None)
        kernels = [operator["kernels"][backend["name"]] or "missing" for backend in found["backends"]]
        expect(row and row[1:1 + len(kernels)] == kernels, operator["name"], row, "expected", kernels)
    tensors = found["tensors"]
    expect(f"tensors: {tensors['expected']:,} expected" in lines, "the text has another number of tensors")
    if tensors["source"] != "config":
        for key in ("found", "missing", "refused", "unexpected", "unused"):
            expect(f" {tensors[key]:,} {key}" in lines, key, tensors[key])
    for key in ("weights", "experts", "converted", "step"):
        expect(f"{found['bytes'][key]:,} bytes" in lines, key, found["bytes"][key])
    expect(("plan: fits" in lines) == found["plan"]["feasible"], "the text has another plan")
    return found


def check_covered(found):
    expect(found["operators"], "no operators")
    lacking = [lack for lack in found["missing_operators"] if lack["backend"] == "cpu"]
    expect(not lacking and all(o["covered"] for o in found["operators"]), "missing operators:", lacking)


def published(program, name, config):
    totals = json.loads(TOTALS.read_text())[name]
    found = inspect(program, config)
    check_covered(found)
    for key in ("total", "active_per_token"):
        if key in totals:
            value = found["parameters"][key]
            expect(abs(value / totals[key] - 1) <= TOLERANCE, f"{key} is {value}, published are {totals[key]}")


def folder(program, path):
    found = inspect(program, path)
    check_covered(found)
    tensors = found["tensors"]
    expect(tensors["expected"] > 0 and tensors["found"] == tensors["expected"], "found", tensors["found"])
    for key in ("missing", "refused", "unexpected", "unused", "missing_files"):
        expect(not tensors[key], key, tensors[key])
    expect(found["complete"], "not complete")


def damaged(program, path):
    """One tensor away, one too many, one in a format that nothing reads: in an index and in a header."""
    path = pathlib.Path(path)
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name)
        for entry in path.iterdir():
            if entry.suffix in (".json", ".safetensors"):
                shutil.copy(entry, copy)
        index_path = copy / "model.safetensors.index.json"
        index = json.loads(index_path.read_text())
        tensors = index["weight_map"]
        gone = next(n for n in sorted(tensors) if n.endswith("experts.3.w1.weight_packed"))
        wrong = next(n for n in sorted(tensors) if n.endswith("lm_head.weight"))
        shard = copy / tensors[wrong]
        data = shard.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        header[wrong]["dtype"] = "F16"
        text = json.dumps(header).encode()
        shard.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])
        (copy / tensors.pop(gone)).touch()
        for other in sorted(set(tensors.values()) - {shard.name}):
            (copy / other).unlink()
        tensors["model.surprise"] = shard.name + "-of-another"
        index_path.write_text(json.dumps(index))
        found = inspect(program, copy, status=3)
        problems = [p["problem"] for p in found["tensors"]["patterns"] if "problem" in p]
        expect(found["tensors"]["missing"] == 1 and any(f"'{gone}' is missing" in p for p in problems), problems)
        expect(found["tensors"]["refused"] == 1 and any(f"'{wrong}' is F16" in p for p in problems), problems)
        expect([p["path"] for p in found["precision"] if p["format"] == "F16"] == ["refused"], found["precision"])
        strange = found["tensors"]["unexpected_patterns"]
        expect([p["pattern"] for p in strange] == ["model.surprise"], strange)
        expect(found["tensors"]["missing_files"], "no file is missing")
        expect(not found["complete"], "complete")


def refused(program, config):
    def answer(changed, *words):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "config.json"
            path.write_text(json.dumps(changed))
            done, report = run(program, path), run(program, "--json", path)
        expect(done.returncode == 1 and report.returncode == 1, "exit status", done.returncode)
        error = json.loads(report.stdout)["error"]
        expect(done.stderr == f"{error['name']}: {error['message']}\n", done.stderr, error)
        for word in words:
            expect(word in error["message"], word, "is not in", error["message"])
        return error["name"]

    original = json.loads(pathlib.Path(config).read_text())
    v4 = answer({**original, "architectures": ["DeepseekV4ForCausalLM"]}, "deepseek_v4 needs blocks that are missing",
                "compressors", "grouped low-rank output projection", "sqrt(softplus)", "learned mixer")
    expect(v4 == "DSA_ERROR_UNSUPPORTED", v4)
    expect(answer({**original, "architectures": ["Nobody"]}, "'Nobody'", "GptOssForCausalLM") == "DSA_ERROR_UNSUPPORTED")
    expect(answer({**original, "hidden_size": "wide"}, "hidden_size") == "DSA_ERROR_MODEL")
    expect(answer({**original, "surprise": 7}, "'surprise'") == "DSA_ERROR_UNSUPPORTED")
    expect(answer({**original, "experts_per_token": 3}, "'experts_per_token' is 3, expected 4") == "DSA_ERROR_MODEL")
    for arguments, status in ((["/nowhere"], 1), ([], 2), (["--what", "x"], 2), (["a", "b"], 2), (["--json"], 2)):
        expect(run(program, *arguments).returncode == status, arguments)


def main():
    program, mode, *arguments = sys.argv[1:]
    {"published": published, "folder": folder, "damaged": damaged, "refused": refused}[mode](program, *arguments)


if __name__ == "__main__":
    main()
