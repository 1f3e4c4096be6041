"""What dsa_sdk.h declares, read once for all that is generated from it."""

import dataclasses
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src" / "api"))
from make_abi import fields_of, one_line  # noqa: E402  the reader of dsa_abi_json()

SIZES = {"char": 1, "int32_t": 4, "uint32_t": 4, "float": 4, "double": 8, "int64_t": 8, "uint64_t": 8, "size_t": 8}


@dataclasses.dataclass(frozen=True)
class Type:
    """`const dsa_str *` is base dsa_str, one star, const. A pointer to a function has `parameters`."""

    base: str
    stars: int = 0
    const: bool = False
    parameters: "tuple[Parameter, ...] | None" = None

    @property
    def pointee(self):
        return Type(self.base, self.stars - 1, self.const)


@dataclasses.dataclass(frozen=True)
class Parameter:
    name: str
    type: Type


@dataclasses.dataclass(frozen=True)
class Field(Parameter):
    offset: int
    size: int


@dataclasses.dataclass(frozen=True)
class Struct:
    name: str
    fields: tuple[Field, ...]

    @property
    def size(self):
        return self.fields[-1].offset + self.fields[-1].size  # the header has no padding

    @property
    def options(self):
        """Begins with its size, so DSA_INIT applies."""
        return self.fields[0].name == "struct_size"


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    result: Type
    parameters: tuple[Parameter, ...]


def parse_type(text):
    text = one_line(text)
    pointer = re.match(r"(.*?)\(\*\)\((.*)\)$", text)
    if pointer:
        return Type(parse_type(pointer[1]).base, parse_type(pointer[1]).stars, False, parse_parameters(pointer[2]))
    words = [w for w in re.sub(r"\*", " * ", text).split() if w != "struct"]
    names = [w for w in words if w not in ("const", "*")]
    if len(names) != 1:
        raise ValueError(f"not a type: '{text}'")
    return Type(names[0], words.count("*"), "const" in words)


def parse_parameters(text):
    parameters = []
    for each in filter(None, (one_line(p) for p in text.split(","))):
        if each != "void":
            kind, name = re.match(r"(.*[ *])(\w+)$", each).groups()
            parameters.append(Parameter(name, parse_type(kind)))
    return tuple(parameters)


class Header:
    def __init__(self, path=ROOT / "include" / "dsa_sdk.h"):
        text = re.sub(r"/\*.*?\*/", " ", path.read_text(encoding="utf-8"), flags=re.S)
        self.macros = {  # name: (C type, value)
            name: ("uint32_t", int(value.rstrip("u"), 0))
            for name, value in re.findall(r"^#define (DSA_\w+)[ \t]+(0x[0-9a-fA-F]+u?|\d+)[ \t]*$", text, flags=re.M)
        }
        for name, kind in re.findall(r"^#define (DSA_\w+)[ \t]+\(\((\w+)\)-1\)[ \t]*$", text, flags=re.M):
            self.macros[name] = (kind, -1)
        text = re.sub(r"^#.*?(?<!\\)$", "", re.sub(r"\\\n", " ", text), flags=re.M)
        self.constants = {}  # of the enums
        for group in re.findall(r"\benum \{(.*?)\};", text, flags=re.S):
            value = -1
            for each in filter(None, (one_line(n) for n in group.split(","))):
                name, _, given = (part.strip() for part in each.partition("="))
                value = int(given, 0) if given else value + 1
                self.constants[name] = value
        self.aliases = dict(
            (name, kind) for kind, name in re.findall(r"^typedef (\w+) (dsa_\w+);", text, flags=re.M)
        )
        self.handles = re.findall(r"^typedef struct (dsa_\w+)\s+\1;", text, flags=re.M)
        self.callbacks = [
            Function(name, parse_type(result), parse_parameters(parameters))
            for result, name, parameters in re.findall(r"^typedef (\w+)\s+\(\*(dsa_\w+)\)\((.*?)\);", text, flags=re.M | re.S)
        ]
        self.structs = []
        for name, body in re.findall(r"typedef struct (dsa_\w+) \{(.*?)\} \1;", text, flags=re.S):
            fields, offset = [], 0
            for field, kind in fields_of(body):
                kind = parse_type(kind)
                fields.append(Field(field, kind, offset, self.size_of(kind)))
                offset += fields[-1].size
            self.structs.append(Struct(name, tuple(fields)))
        self.functions = []
        for declaration in re.findall(r"\bDSA_API (.*?);", text, flags=re.S):
            result, name, parameters = re.match(r"(.*?)(dsa_\w+)\((.*)\)$", one_line(declaration)).groups()
            self.functions.append(Function(name, parse_type(result), parse_parameters(parameters)))

    def size_of(self, kind):
        """On a system with 64 bits, the only ones that the generated layout is compared on."""
        if kind.stars or kind.parameters is not None or any(kind.base == c.name for c in self.callbacks):
            return 8
        base = self.aliases.get(kind.base, kind.base)
        return SIZES[base] if base in SIZES else next(s.size for s in self.structs if s.name == base)
