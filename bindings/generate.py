"""Writes from dsa_sdk.h what is the same for every program of a language.

python3 generate.py          writes the files below
python3 generate.py --check  compares them with those that are there
"""

import pathlib
import sys

from header import ROOT, Header

NOTE = "Made by bindings/generate.py from dsa_sdk.h; a test compares it."
WIDTH = 110


def wrapped(opening, items, closing, indent, trailing=","):
    """`opening` + items + `closing` on one line if they fit, else the items on lines of their own."""
    line = opening + ", ".join(items) + closing
    if len(line) <= WIDTH:
        return [line]
    lines, current = [opening], " " * indent
    for item in items:
        if len(current) + len(item) + 2 > WIDTH:
            lines.append(current.rstrip())
            current = " " * indent
        current += item + ", "
    lines.append(current.rstrip(", ") + trailing)
    outer = len(opening) - len(opening.lstrip())
    return [*lines, " " * outer + closing]


# ---- Python: ctypes -------------------------------------------------------------------------------------------

PYTHON_TYPES = {
    "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64", "size_t": "c_size_t",
    "float": "c_float", "double": "c_double", "char": "c_char",
}
PYTHON_BASE = '''
class Str(c.Structure):
    """dsa_str: a view of UTF-8 text."""

    ptr: int | None
    len: int


class Sized(c.Structure):
    """A struct that begins with its own size, as DSA_INIT makes it."""

    struct_size: int
    flags: int

    def __init__(self, **values: Any) -> None:
        super().__init__(struct_size=c.sizeof(type(self)), **values)


def _bind(library: c.CDLL, name: str, result: Any, *parameters: Any) -> Any:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = parameters
    return function
'''


def python_type(header, kind, member=False):
    if kind.parameters is not None:
        inner = ", ".join(python_type(header, p.type) for p in kind.parameters)
        return f"c.CFUNCTYPE({python_type(header, kind_of_result(kind))}, {inner})"
    base = header.aliases.get(kind.base, kind.base)
    if kind.stars == 0:
        if base in PYTHON_TYPES:
            return f"c.{PYTHON_TYPES[base]}"
        return {"void": "None", "dsa_str": "Str"}.get(base, base)
    if base == "char" and kind.stars == 1 and kind.const and not member:
        return "c.c_char_p"
    if kind.stars == 1 and (base == "void" or base in header.handles or member and base == "char"):
        return "c.c_void_p"
    return f"c.POINTER({python_type(header, kind.pointee, True)})"


def kind_of_result(kind):
    return type(kind)(kind.base, kind.stars)


def python_hint(header, kind):
    base = header.aliases.get(kind.base, kind.base)
    if kind.stars or kind.parameters is not None or base in [f.name for f in header.callbacks]:
        return "Any"
    return {"float": "float", "double": "float", "dsa_str": "Str"}.get(base, "int")


def python_file(header):
    lines = [f'"""{NOTE} One to one and private: dsa_sdk is the package to use."""', "",
             "from __future__ import annotations", "", "import ctypes as c", "from collections.abc import Callable",
             "from typing import Any", ""]
    constants = {name: value for name, (_, value) in header.macros.items() if value >= 0} | header.constants
    lines += [f"{name} = {value}" for name, value in constants.items()]
    lines += [f"{name} = {value if kind[0] != 's' else 'c.c_size_t(-1).value'}"
              for name, (kind, value) in header.macros.items() if value < 0]
    lines.append("")
    lines += PYTHON_BASE.splitlines()
    structs = [s for s in header.structs if s.name != "dsa_str"]
    for struct in structs:
        lines += ["", "", f"class {struct.name}({'Sized' if struct.options else 'c.Structure'}):"]
        lines += [f"    {f.name}: {python_hint(header, f.type)}" for f in struct.fields
                  if not struct.options or f.name not in ("struct_size", "flags")]
    lines += ["", ""]
    for callback in header.callbacks:
        kinds = [python_type(header, t) for t in (callback.result, *(p.type for p in callback.parameters))]
        lines += wrapped(f"{callback.name} = c.CFUNCTYPE(", kinds, ")", 4)
    lines += ["", 'Str._fields_ = [("ptr", c.c_void_p), ("len", c.c_size_t)]']
    for struct in structs:
        fields = [f'("{f.name}", {python_type(header, f.type, True)})' for f in struct.fields]
        lines += wrapped(f"{struct.name}._fields_ = [", fields, "]", 4)
    lines += ["", "STRUCTS: dict[str, type[c.Structure]] = {", '    "dsa_str": Str,']
    lines += [f'    "{s.name}": {s.name},' for s in structs]
    lines += ["}", "CONSTANTS = {"]
    lines += [f'    "{name}": {name},' for name in constants]
    lines += ["}", "", "", "class Library:", '    """The functions of one loaded library."""', ""]
    for function in header.functions:
        hints = [python_hint(header, p.type) for p in function.parameters]
        result = "bytes" if function.result.stars else "None" if function.result.base == "void" else "int"
        lines += wrapped(f"    {function.name}: Callable[[", hints, f"], {result}]", 8)
    lines += ["", "    def __init__(self, library: c.CDLL) -> None:"]
    for function in header.functions:
        kinds = [python_type(header, function.result), *(python_type(header, p.type) for p in function.parameters)]
        lines += wrapped(f"        self.{function.name} = _bind(", ["library", f'"{function.name}"', *kinds], ")", 12)
    return lines


# ---- Rust -----------------------------------------------------------------------------------------------------

RUST_TYPES = {
    "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "size_t": "usize", "float": "f32",
    "double": "f64", "char": "c_char", "void": "c_void",
}


def rust_name(name):
    return f"r#{name}" if name in ("type", "where") else name


def rust_type(kind):
    if kind.parameters is not None:
        return f"Option<{rust_function(kind.parameters, kind_of_result(kind))}>"
    base = RUST_TYPES.get(kind.base, kind.base)
    for star in range(kind.stars):
        base = f"*{'const' if kind.const and star == 0 else 'mut'} {base}"
    return base


def rust_function(parameters, result):
    inner = ", ".join(f"{rust_name(p.name)}: {rust_type(p.type)}" for p in parameters)
    returned = "" if result.base == "void" and not result.stars else f" -> {rust_type(result)}"
    return f'unsafe extern "C" fn({inner}){returned}'


def rust_file(header):
    lines = [f"// {NOTE}", "use std::os::raw::{c_char, c_void};", ""]
    lines += [f"pub type {name} = {RUST_TYPES[kind]};" for name, kind in header.aliases.items()]
    lines.append("")
    for name, (kind, value) in header.macros.items():
        shown = f"{RUST_TYPES[kind]}::MAX" if value < 0 and kind == "size_t" else value
        lines.append(f"pub const {name}: {RUST_TYPES[kind]} = {shown};")
    lines += [f"pub const {name}: i32 = {value};" for name, value in header.constants.items()]
    for name in header.handles:
        lines += ["", "#[repr(C)]", f"pub struct {name} {{", "    _private: [u8; 0],", "}"]
    lines.append("")
    for callback in header.callbacks:
        lines.append(f"pub type {callback.name} = Option<{rust_function(callback.parameters, callback.result)}>;")
    for struct in header.structs:
        lines += ["", "#[repr(C)]", "#[derive(Clone, Copy)]", f"pub struct {struct.name} {{"]
        lines += [f"    pub {rust_name(f.name)}: {rust_type(f.type)}," for f in struct.fields]
        lines.append("}")
        if struct.options:
            lines += [f"impl {struct.name} {{", "    /// All zero but `struct_size`, as DSA_INIT makes it.",
                      "    pub fn init() -> Self {",
                      "        // Every field is a number, a pointer or an optional function: zero is a value of each.",
                      "        let mut value: Self = unsafe { std::mem::zeroed() };",
                      "        value.struct_size = std::mem::size_of::<Self>() as u32;", "        value", "    }", "}"]
    lines += ["", 'extern "C" {']
    for function in header.functions:
        text = rust_function(function.parameters, function.result)
        named = text.replace('unsafe extern "C" fn', f"fn {function.name}", 1)
        lines.append(f"    pub {named};")
    lines.append("}")
    return lines


def rust_layout_file(header):
    lines = [f"// {NOTE}", "layouts! {"]
    for struct in header.structs:
        fields = [f"{rust_name(f.name)} {f.offset} {f.size}" for f in struct.fields]
        lines += wrapped(f"    {struct.name} {struct.size}: ", fields, ";", 8, "")
    return [*lines, "}"]


# ---- C: functions resolved at run time ------------------------------------------------------------------------

LOAD_HEAD = """\
/* dsa_sdk_load.h: resolves every function of dsa_sdk.h at run time, for programs that must start without the library.
 *
 *     dsa_sdk_functions dsa;
 *     const char *missing[8];
 *     const int n = dsa_sdk_load("./libdsa_sdk.so.0", &dsa, missing, 8);
 *     if (n == 0) puts(dsa.dsa_version_string());
 *
 * A library that is older than this header lacks functions: they are NULL, and named in `missing`. Link with -ldl where
 * dlopen() is not a part of the C library.
 *
 * NOTE
 */
#ifndef DSA_SDK_LOAD_H
#define DSA_SDK_LOAD_H

#include <dlfcn.h>
#include <string.h>

#include "dsa_sdk.h"

#ifdef __cplusplus
extern "C" {
#endif
"""
LOAD_TAIL = """
/* Opens the library and fills the table. Returns 0 if every function was found, else the number of those that were not,
 * or -1 if the library cannot be opened; dlerror() says why. `missing` receives at most `cap` of their names and may be
 * NULL if `cap` is 0. The library stays loaded. */
static inline int dsa_sdk_load(const char *path, dsa_sdk_functions *out, const char **missing, size_t cap) {
  static const char *const names[] = {
NAMES
  };
  void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const size_t count = sizeof(names) / sizeof(names[0]);
  size_t i;
  int absent = 0;
  memset(out, 0, sizeof(*out));
  if (library == NULL) return -1;
  for (i = 0; i < count; ++i) {
    void *const function = dlsym(library, names[i]);
    if (function == NULL) {
      if ((size_t)absent < cap) missing[absent] = names[i];
      ++absent;
    } else {
      memcpy((char *)out + i * sizeof(function), &function, sizeof(function)); /* in the order of the names */
    }
  }
  return absent;
}

#ifdef __cplusplus
}
#endif

#endif /* DSA_SDK_LOAD_H */"""


def c_type(kind):
    return f"{'const ' if kind.const else ''}{kind.base} {'*' * kind.stars}"


def load_file(header):
    lines = LOAD_HEAD.replace("NOTE", NOTE).splitlines()
    lines += ["", "/* One pointer for each function, in the order of the header. */", "typedef struct dsa_sdk_functions {"]
    for function in header.functions:
        parameters = [f"{c_type(p.type)}{p.name}" for p in function.parameters] or ["void"]
        lines += wrapped(f"  {c_type(function.result)}(*{function.name})(", parameters, ");", 6, "")
    lines.append("} dsa_sdk_functions;")
    names = ",\n".join(f'    "{function.name}"' for function in header.functions)
    lines += LOAD_TAIL.replace("NAMES", names).splitlines()
    return lines


FILES = {
    "bindings/python/dsa_sdk/_c.py": python_file,
    "bindings/rust/dsa-sdk-sys/src/bindings.rs": rust_file,
    "bindings/rust/dsa-sdk-sys/tests/layout.inc": rust_layout_file,
    "include/dsa_sdk_load.h": load_file,
}


def main():
    header, stale = Header(), []
    for name, make in FILES.items():
        path, made = pathlib.Path(ROOT, name), "\n".join(make(header)) + "\n"
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != made:
            stale.append(name)
    for name in stale:
        print(f"{name} is not what dsa_sdk.h says; run bindings/generate.py again")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
