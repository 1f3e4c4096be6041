"""Pages against the repository: links lead somewhere, commands exist, and docs/errors.md has each code of dsa_sdk.h.

pages.py ROOT
"""

import pathlib
import re
import sys


def broken_links(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not (page.parent / target).exists():
            yield f"{page.name}: no {target}"


def unknown_commands(root, page):
    text = page.read_text(encoding="utf-8")
    commands = re.findall(r"^cmd_(\w+)\(\)", (root / "dev").read_text(encoding="utf-8"), flags=re.M)
    presets = re.findall(r'"name": "(\w+)"', (root / "CMakePresets.json").read_text(encoding="utf-8"))
    for command in re.findall(r"\./dev (\w+)", text):
        if command not in commands:
            yield f"{page.name}: ./dev has no command {command}"
    for preset in re.findall(r"--preset (\w+)", text):
        if preset not in presets:
            yield f"{page.name}: no preset {preset}"


def wrong_codes(root):
    """The table has the codes of the header in its order, each with a cause and a remedy."""
    header = (root / "include" / "dsa_sdk.h").read_text(encoding="utf-8")
    expected = re.findall(r"^  (DSA_[A-Z0-9_]+)\s*= (-?\d+),?", header.split("DSA_FIX_NONE")[0], flags=re.M)
    rows = re.findall(
        r"^\| `(DSA_\w+)` \| (-?\d+) \| (.*?) \| (.*?) \|$", (root / "docs" / "errors.md").read_text(encoding="utf-8"), flags=re.M
    )
    found = [(name, number) for name, number, _, _ in rows]
    if len(expected) < 40:
        yield f"dsa_sdk.h: found {len(expected)} codes"
    for code in expected:
        if code not in found:
            yield f"errors.md: no row for {code[0]} {code[1]}"
    for code in found:
        if code not in expected:
            yield f"errors.md: {code[0]} {code[1]} is not in dsa_sdk.h"
    if sorted(found) == sorted(expected) and found != expected:
        yield "errors.md: not in the order of dsa_sdk.h"
    for name, _, cause, remedy in rows:
        if not cause.strip() or not remedy.strip():
            yield f"errors.md: {name} lacks a cause or a remedy"


def main():
    root = pathlib.Path(sys.argv[1])
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    faults = [fault for page in pages for fault in [*broken_links(page), *unknown_commands(root, page)]]
    faults += wrong_codes(root)
    print("\n".join(faults) if faults else f"{len(pages)} pages are right")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
