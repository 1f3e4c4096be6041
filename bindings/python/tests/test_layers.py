"""The generated layer is current, the annotations hold, and a library that does not fit is refused."""

import inspect
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import dsa_sdk as dsa
from dsa_sdk import _c
from support import PACKAGE, ROOT, python



def compiler():
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("g++")


class Generated(unittest.TestCase):
    def test_files_are_current(self):
        done = subprocess.run(
            [sys.executable, ROOT / "bindings" / "generate.py", "--check"], capture_output=True, text=True
        )
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_every_struct_has_the_size_that_the_header_gives(self):
        sys.path.insert(0, str(ROOT / "bindings"))
        from header import Header

        import ctypes

        for struct in Header().structs:
            self.assertEqual(ctypes.sizeof(_c.STRUCTS[struct.name]), struct.size, struct.name)

    @unittest.skipUnless(shutil.which("mypy"), "mypy is not installed")
    def test_strict_types(self):
        samples = sorted((ROOT / "samples").glob("*.py"))
        command = ["mypy", "--strict", "dsa_sdk", "wheel_backend.py", *samples]
        done = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_everything_public_is_exported(self):
        public = {name for name, value in vars(dsa).items() if not name.startswith("_") and not inspect.ismodule(value)}
        self.assertEqual(public, set(dsa.__all__))


@unittest.skipUnless(compiler(), "there is no C compiler")
class OtherLibraries(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def library(self, abi: str) -> str:
        """A library that says no more than this about itself."""
        source, path = self.folder / "fake.c", self.folder / "libfake.so"
        quoted = abi.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        source.write_text(f'const char *dsa_abi_json(void) {{ return "{quoted}"; }}\n')
        subprocess.run([compiler(), "-x", "c", "-shared", "-fPIC", "-o", path, source], check=True)
        return str(path)

    def refusal(self, library: str) -> str:
        script = "try:\n    dsa.version()\nexcept ImportError as error:\n    print(error)"
        done = python(script, DSA_SDK_LIBRARY=library)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def real(self) -> str:
        from dsa_sdk._library import library

        return library().dsa_abi_json().decode()

    def test_a_moved_field(self):
        found = self.refusal(self.library(self.real().replace('"finish": {"offset": 12', '"finish": {"offset": 20')))
        self.assertIn(f"these bindings were made for {dsa.__version__}, level", found)
        self.assertIn("field 'finish' of dsa_result is 4 bytes at 20, expected 4 bytes at 12", found)

    def test_another_constant(self):
        found = self.refusal(self.library(self.real().replace('"DSA_ERROR_BUSY": -104', '"DSA_ERROR_BUSY": -199')))
        self.assertIn("DSA_ERROR_BUSY is -199, expected -104", found)

    def test_an_older_library(self):
        older = self.real().replace('"dsa_run_next":', '"dsa_run_previous":')
        self.assertIn("function dsa_run_next is missing", self.refusal(self.library(older)))

    def test_something_else(self):
        self.assertIn("is not a DSA SDK library", self.refusal(self.library("{}")))
        self.assertIn("is not a DSA SDK library", self.refusal("libm.so.6"))
        self.assertIn("cannot be loaded", self.refusal("/nowhere/libdsa_sdk.so"))

    def test_what_only_a_newer_library_knows_is_no_obstacle(self):
        from dsa_sdk._library import _difference
        import json

        abi = json.loads(self.real())
        abi["api_level"] += 1
        abi["constants"]["DSA_API_LEVEL"] += 1
        abi["constants"]["DSA_NEW"] = 5
        abi["functions"]["dsa_new"] = "void dsa_new(void)"
        abi["structs"]["dsa_event"]["fields"]["later"] = {"offset": 72, "size": 8, "type": "uint64_t"}
        abi["structs"]["dsa_event"]["size"] = 80
        self.assertEqual(_difference(abi), "")

    def test_a_choice_that_comes_too_late(self):
        dsa.version()
        with self.assertRaisesRegex(dsa.StateError, "too late"):
            dsa.load("/nowhere/libdsa_sdk.so")
        dsa.load(dsa.library_path())  # the same one is no change


if __name__ == "__main__":
    unittest.main()
