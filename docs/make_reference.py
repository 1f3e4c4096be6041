"""Writes docs/reference.md from dsa_sdk.h.

python3 make_reference.py          writes the page
python3 make_reference.py --check  compares it with the one that is there
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER, PAGE = ROOT / "include" / "dsa_sdk.h", ROOT / "docs" / "reference.md"
SECTION = re.compile(r"^/\* ---- \d+ (.*?) -+ \*/$", flags=re.M)
FUNCTION = re.compile(r"^/\*\*\n(.*?)^ \*/\n(DSA_API .*?;)$", flags=re.M | re.S)
HEAD = """\
# API reference

Made by docs/make_reference.py from `include/dsa_sdk.h`; a test compares it. The header has the same text beside the
declarations.
"""


def code_of(text):
    """Codes and calls in code font; columns of the header become one line."""
    text = re.sub(r"(?<=[\w,]) {2,}", ": ", text)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"`([^`]*)`|\b((?:DSA|dsa)_[A-Za-z0-9_]+(?:\(\)|\*)?)", lambda m: f"`{m[1] or m[2]}`", text)
    return re.sub(r"(?<![`\w*])\*(?=\w)", r"\\*", text)


def uncommented(text):
    return re.sub(r"^ \* ?", "", text, flags=re.M)


def rules_of(opening):
    """The list "Rules that hold everywhere" of the first comment."""
    text = uncommented(opening[opening.index("Rules that hold everywhere") :]).removesuffix("/\n")
    head, *rules = re.split(r"^  - ", text, flags=re.M)
    return [f"## {head.strip().removesuffix(':')}", "", *(f"- {code_of(rule)}" for rule in rules), ""]


def function_of(comment, declaration):
    name = re.search(r"(dsa_\w+)\(", declaration)[1]
    declaration = re.sub(r"\n {8}", "\n", declaration.removeprefix("DSA_API "))
    about, *rest = re.split(r"^(@param|@return|On failure|Lifetime|Threading|Since)", uncommented(comment), flags=re.M)
    lines = [f"### {name}", "", "```c", declaration, "```", "", code_of(about), ""]
    for kind, text in zip(rest[::2], rest[1::2]):
        if kind == "@param":
            parameter, what = text.split(maxsplit=1)
            lines.append(f"- `{parameter}`: {code_of(what)}")
        elif kind == "@return":
            lines.append(f"- Returns {code_of(text)}")
        elif text.strip() != "-":
            lines.append(f"- {kind}: {code_of(text)}")
    return [*lines, ""]


def page():
    header = HEADER.read_text(encoding="utf-8")
    opening, *parts = SECTION.split(header)
    lines = [*HEAD.splitlines(), "", *rules_of(re.match(r"/\*.*?\*/\n", opening, flags=re.S)[0])]
    for title, body in zip(parts[::2], parts[1::2]):
        lines += [f"## {title[0].upper()}{title[1:]}", ""]
        functions = FUNCTION.findall(body)
        if functions:
            for comment, declaration in functions:
                lines += function_of(comment, declaration)
        else:
            lines += ["```c", body.strip(), "```", ""]
    declared = len(re.findall(r"^DSA_API ", header, flags=re.M))
    described = sum(line.startswith("### ") for line in lines)
    if declared != described:
        sys.exit(f"dsa_sdk.h declares {declared} functions, {described} have a comment that this script reads")
    return "\n".join(lines).rstrip() + "\n"


def main():
    made = page()
    if "--check" not in sys.argv:
        PAGE.write_text(made, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != made:
        print("docs/reference.md is not what dsa_sdk.h says; run docs/make_reference.py again")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
