"""Reads every #include of src/ and kernels/ and compares it with the map of the rooms.

Dependencies run one way, api -> engine -> model -> ops -> backend -> kernels; text, state and io stand beside that
line, base lies beneath it. `python3 layering.py ROOT` prints each include that runs the other way.
"""

import pathlib
import re
import sys

# What the files of a room may include, apart from their own room.
ALLOWED = {
    "base": {"kernels/common"},
    "io": {"base"},
    "text": {"io", "base"},
    "kernels": {"base"},
    "backend": {"kernels", "base"},
    "state": {"backend", "kernels/common", "base"},
    "ops": {"state", "backend", "kernels", "base"},
    "model": {"ops", "state", "backend", "io", "kernels", "base"},
    "engine": {"model", "text", "ops", "state", "backend", "base"},
    "api": {"engine", "model", "text", "base", "dsa_sdk.h"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def is_allowed(room, target):
    if target.startswith(room + "/"):
        return True
    return any(target == entry or target.startswith(entry + "/") for entry in ALLOWED[room])


def main(root):
    files = includes = 0
    wrong = []
    for path in sorted([*root.glob("src/*/**/*"), *root.glob("kernels/**/*")]):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh", ".c"}:
            continue
        parts = path.relative_to(root).parts
        room = parts[1] if parts[0] == "src" else "kernels"
        files += 1
        for target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            includes += 1
            if room not in ALLOWED or not is_allowed(room, target):
                wrong.append(f'{path.relative_to(root)}: a file of {room} includes "{target}"')
    for line in wrong:
        print(line)
    print(f"{includes} includes in {files} files, {len(wrong)} against the map")
    return 1 if wrong or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
