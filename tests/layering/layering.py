#!/usr/bin/env python3
"""Compares every #include of src/ and kernels/ with the house map of the style guide, section 1.

    layering.py [ROOT]     exit status 1 and a list if a file includes what its room must not know

Before it looks at the tree it plants forbidden includes in a made-up one and fails unless it finds exactly those.
"""
import pathlib
import re
import sys
import tempfile

# api -> engine -> model -> ops -> backend -> kernels; text, state and io stand beside that line, base beneath it.
# A room may include itself and what is listed here.
MAY_INCLUDE = {
    "base": set(),
    "kernels/common": {"base"},
    "kernels": {"kernels/common", "base"},
    "backend": {"kernels", "kernels/common", "base"},
    "io": {"base"},
    "text": {"io", "base"},
    "state": {"backend", "kernels/common", "base"},
    "ops": {"backend", "state", "kernels", "kernels/common", "base"},
    "model": {"ops", "backend", "state", "io", "kernels/common", "base"},
    "engine": {"model", "ops", "backend", "state", "text", "io", "base"},
    "api": {"engine", "text", "io", "base", "include"},
    "tools": {"engine", "model", "io", "base", "include"},
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
SOURCES = {".h", ".cc", ".c", ".cu", ".cuh", ".inc"}


def room_of(path):
    """The room of a file below the root, or of an include as it is written; None for what is not ours."""
    parts = pathlib.PurePosixPath(path).parts
    if parts[0] == "src":
        parts = parts[1:]
    if parts[0] == "kernels":
        return "kernels/common" if parts[1] == "common" else "kernels"
    if parts[-1] == "dsa_sdk.h":
        return "include"
    return parts[0] if parts[0] in MAY_INCLUDE and len(parts) > 1 else None


def included_path(root, source, name):
    """The included file below the root; a name is relative to the root, to src/, to include/ or to the file itself."""
    for base in (root, root / "src", root / "include", source.parent):
        if (base / name).is_file():
            return (base / name).resolve().relative_to(root).as_posix()
    return name


def violations(root):
    root = root.resolve()
    found = []
    for source in sorted(p for top in ("src", "kernels") for p in (root / top).rglob("*") if p.suffix in SOURCES):
        name = source.relative_to(root).as_posix()
        room = room_of(name)
        text = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), source.read_text(encoding="utf-8"))
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            where = f"{name}:{line}: {room or 'no room'} includes {match.group(2)}"
            if room is None:
                found.append(f"{where}; this file is in no room of the map")
                continue
            target_path = included_path(root, source, match.group(2))
            target = room_of(target_path)
            if target is None:
                if match.group(1) == '"' and (root / target_path).is_file():
                    found.append(f"{where}, which is in no room of the map")
                continue
            if target != room and target not in MAY_INCLUDE[room]:
                allowed = ", ".join(sorted(MAY_INCLUDE[room])) or "itself"
                found.append(f"{where}, expected only: {allowed}")
    return found


def check_ourselves():
    files = {
        "src/base/status.h": "",
        "src/engine/engine.h": '#include "model/model.h"\n#include <vector>\n',
        "src/model/model.h": '// #include "engine/engine.h"\n/* #include "api/x.h" */\n#include "ops/ops.h"\n',
        "src/ops/ops.h": '#include "kernels/add/add.h"\n',
        "kernels/add/add.h": '#include "kernels/common/kernel.h"\n#include "../../src/base/status.h"\n',
        "kernels/common/kernel.h": '#include "base/status.h"\n',
        # Forbidden, each for its own reason:
        "src/model/upward.cc": '\n#include "engine/engine.h"\n',
        "src/text/aside.cc": '  #  include <model/model.h>\n',
        "src/base/above.cc": '#include "io/json.h"\n',
        "src/model/past.cc": '#include "kernels/add/add.h"\n',
        "kernels/add/relative.cc": '#include "../../src/ops/ops.h"\n',
        "src/attic/lost.cc": '#include <vector>\n',
        "src/io/attic.cc": '#include "attic/old.h"\n',
        "src/attic/old.h": "",
    }
    expected = ["kernels/add/relative.cc:1:", "src/attic/lost.cc:1:", "src/base/above.cc:1:", "src/io/attic.cc:1:",
                "src/model/past.cc:1:", "src/model/upward.cc:2:", "src/text/aside.cc:1:"]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        found = violations(root)
    if [f.split(" ")[0] for f in found] != expected:
        sys.exit("layering.py does not find what was planted:\n" + "\n".join(found))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    check_ourselves()
    found = violations(root)
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
