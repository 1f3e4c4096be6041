"""Writes abi_table.inc from dsa_sdk.h: every struct, field, constant and function, for dsa_abi_json().

python3 make_abi.py HEADER TABLE          writes the table
python3 make_abi.py HEADER TABLE --check  compares it with the one that is there
"""

import pathlib
import re
import sys

IN = "uint32_t struct_size; uint32_t flags; const dsa_ext *next;"
OUT = "uint32_t struct_size; uint32_t flags;"


def one_line(text):
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\* ", "*", text)


def fields_of(body):
    """(name, type) of each member; `uint64_t needed, available` are two."""
    body = re.sub(r"\bDSA_IN\b", IN, body)
    body = re.sub(r"\bDSA_OUT\b", OUT, body)
    for member in filter(None, (one_line(m) for m in body.split(";"))):
        function = re.match(r"(.*)\(\*(\w+)\)\((.*)\)$", member)
        if function:
            yield function[2], f"{function[1].strip()} (*)({function[3]})"
            continue
        first, *others = member.split(",")
        kind, name = re.match(r"(.*[ *])(\w+)$", first).groups()
        for each in [name, *others]:
            yield each.strip(" *"), kind.strip()


def table(header):
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.S)
    macros = re.findall(r"^#define (DSA_\w+)[ \t]+(?:\(\([^)]*\)-1\)|0x[0-9a-fA-F]+u?|\d+)[ \t]*$", text, flags=re.M)
    text = re.sub(r"^#.*?(?<!\\)$", "", re.sub(r"\\\n", " ", text), flags=re.M)
    lines = ["// Made by make_abi.py from dsa_sdk.h; ctest compares it."]
    for name, body in re.findall(r"typedef struct (dsa_\w+) \{(.*?)\} \1;", text, flags=re.S):
        lines.append(f"DSA_ABI_STRUCT({name})")
        lines += [f'DSA_ABI_FIELD({name}, {field}, "{kind}")' for field, kind in fields_of(body)]
    for name in macros:
        if name not in ("DSA_NTS",):
            lines.append(f"DSA_ABI_CONSTANT({name})")
    for group in re.findall(r"\benum \{(.*?)\};", text, flags=re.S):
        names = [one_line(n).split(" ")[0] for n in group.split(",") if n.strip()]
        for name in names:
            lines.append(f"DSA_ABI_CONSTANT({name})")
            if "DSA_OK" in names:
                lines.append(f"DSA_ABI_STATUS({name})")
    for declaration in re.findall(r"\bDSA_API (.*?);", text, flags=re.S):
        declaration = one_line(declaration)
        name = re.search(r"(dsa_\w+)\(", declaration)[1]
        lines.append(f'DSA_ABI_FUNCTION({name}, "{declaration}")')
    return "\n".join(lines) + "\n"


def main():
    header, path = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    made = table(header.read_text(encoding="utf-8"))
    if "--check" in sys.argv:
        if path.read_text(encoding="utf-8") == made:
            return 0
        print(f"{path} is not what {header} says; run make_abi.py again")
        return 1
    path.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
