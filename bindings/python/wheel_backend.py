"""Builds the wheel: this package, the shared library, and the libraries that a system may lack.

python -m build --wheel                    builds the library in build/release if need be
python -m build --wheel -C build=FOLDER    takes it from another CMake build

Nothing but CMake and the standard library is used, so an isolated build downloads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import pathlib
import platform
import re
import subprocess
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    build = pathlib.Path((config_settings or {}).get("build", ROOT / "build" / "release"))
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name'].replace('-', '_')}-{version()}"
    name = f"{stem}-py3-none-{platform_tag()}.whl"
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        install(build, tree)
        files = {f"dsa_sdk/{path.name}": path.read_bytes() for path in sorted((HERE / "dsa_sdk").glob("*.py*"))}
        files["dsa_sdk/py.typed"] = b""
        files |= {f"dsa_sdk/_lib/{soname}": path.read_bytes() for soname, path in libraries(tree)}
        info = f"{stem}.dist-info"
        files |= {f"{info}/licenses/{path.name}": path.read_bytes() for path in sorted(tree.rglob("licenses/dsa_sdk/*"))}
        files[f"{info}/METADATA"] = metadata(project).encode()
        files[f"{info}/WHEEL"] = wheel_file().encode()
        files[f"{info}/RECORD"] = record(files, f"{info}/RECORD").encode()
        write_archive(pathlib.Path(wheel_directory, name), files)
    return name


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    raise RuntimeError("there is no source distribution: the library is built from the repository; use --wheel")


def version() -> str:
    header = (ROOT / "include" / "dsa_sdk.h").read_text(encoding="utf-8")
    parts = (re.search(rf"#define DSA_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH"))
    return ".".join(part[1] for part in parts if part)


def platform_tag() -> str:
    """Runs where the C library is at least as new as the one it was built with."""
    library, number = platform.libc_ver()
    if library != "glibc":
        raise RuntimeError(f"wheels are made on systems with glibc, this one has '{library}'")
    return f"manylinux_{number.replace('.', '_')}_{platform.machine()}"


def install(build: pathlib.Path, tree: pathlib.Path) -> None:
    if not (build / "CMakeCache.txt").exists():
        cmake("-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DDSA_TESTS=OFF", "-DDSA_SAMPLES=OFF",
              "-DDSA_TOOLS=OFF")
    cmake("--build", build, "--target", "dsa_sdk")
    cmake("--install", build, "--prefix", tree, "--strip")
    cmake("--install", build, "--prefix", tree, "--component", "bundle")


def cmake(*arguments: str | pathlib.Path) -> None:
    subprocess.run(["cmake", *arguments], check=True, stdout=subprocess.DEVNULL)


def libraries(tree: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """Each library once, by the name that it is loaded by: archives of this kind hold no links."""
    found = sorted(tree.rglob("lib*.so.*"))
    targets = {path.resolve() for path in found if path.is_symlink()}
    for path in found:
        if path.is_symlink() or path not in targets:
            yield path.name, path.resolve()


def metadata(project: dict[str, Any]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version()}"]
    lines += [f"Summary: {project['description']}", f"License: {project['license']}"]
    lines += [f"Requires-Python: {project['requires-python']}", "Description-Content-Type: text/markdown", ""]
    return "\n".join([*lines, (HERE / project["readme"]).read_text(encoding="utf-8")])


def wheel_file() -> str:
    tag = f"py3-none-{platform_tag()}"
    return f"Wheel-Version: 1.0\nGenerator: wheel_backend\nRoot-Is-Purelib: false\nTag: {tag}\n"


def record(files: dict[str, bytes], own: str) -> str:
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{own},,\n"])


def write_archive(path: pathlib.Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)  # dated 1980: equal input gives equal archives
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
            archive.writestr(entry, data)
