"""The samples in Python behave as those in C."""

import re
import signal
import subprocess
import sys
import textwrap
import time
import unittest

from support import FRANCE, MODEL, ROOT, script_environment

SAMPLES = ROOT / "samples"


def run(sample: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SAMPLES / sample, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        env=script_environment(),
    )


class Samples(unittest.TestCase):
    def test_chat(self):
        answered = run("chat.py", str(MODEL), FRANCE)
        self.assertEqual(answered.returncode, 0)
        self.assertIn("Paris", answered.stdout)
        talked = run("chat.py", str(MODEL), given="/image /nowhere.png\nHello.\nWhat is the capital of Japan?\n")
        self.assertEqual(talked.returncode, 0)
        self.assertIn("Tokyo", talked.stdout)
        self.assertIn("/nowhere.png", talked.stderr)
        self.assertEqual(run("chat.py").returncode, 2)
        self.assertEqual(run("chat.py", "/nowhere", "x").returncode, 1)

    def test_vision(self):
        self.assertEqual(run("vision.py").returncode, 2)
        failed = run("vision.py", str(MODEL), "/nowhere.png", "What is this?")
        self.assertEqual((failed.returncode, failed.stderr), (1, "NOT_FOUND: /nowhere.png: no such file\n"))

    def test_the_quick_start(self):
        """The programs of bindings/python/README.md, one after the other."""
        text = (ROOT / "bindings" / "python" / "README.md").read_text(encoding="utf-8")
        first, second = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
        first = first.replace("models/tiny", str(MODEL))
        inside = textwrap.indent(f"import asyncio\n\nasync def main():\n{textwrap.indent(second, '    ')}\nasyncio.run(main())", "    ")
        done = subprocess.run(
            [sys.executable, "-c", first + inside], capture_output=True, text=True, timeout=60, env=script_environment()
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, "Paris.*Tokyo")

    def test_chat_is_stopped(self):
        """Ctrl-C in the middle of a long answer: the code is 130; at the prompt: 0."""
        question = "Tell me a long story about a fox."
        child = subprocess.Popen(
            [sys.executable, SAMPLES / "chat.py", MODEL, question],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=script_environment(),
        )
        child.stdout.read(1)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=30)
        self.assertEqual((child.returncode, errors), (130, ""))
        child = subprocess.Popen(
            [sys.executable, SAMPLES / "chat.py", MODEL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=script_environment(),
        )
        self.assertEqual(child.stderr.read(2), "> ")
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=30)
        self.assertEqual(child.returncode, 0)


if __name__ == "__main__":
    unittest.main()
