"""What the tests share: the bundled model, loaded once, and scripts in an interpreter of their own."""

import functools
import math
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import dsa_sdk as dsa

# A shell that starts this in the background may have told it to ignore Ctrl-C, and then children would too.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = pathlib.Path(dsa.__file__).resolve().parent.parent
MODEL = ROOT / "samples" / "models" / "dsa-tiny"
FRANCE = "What is the capital of France?"
END_OF_MESSAGE = 4

# Goes on until a limit or a cancel stops it.
ENDLESS = dsa.Sampling(temperature=0, bias={END_OF_MESSAGE: -math.inf})


@functools.cache
def runtime() -> dsa.Runtime:
    return dsa.Runtime()


@functools.cache
def model() -> dsa.Model:
    return runtime().load(MODEL)


def python(script: str, *, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script with MODEL and dsa in scope."""
    return subprocess.run(
        command(script),
        capture_output=True,
        text=True,
        timeout=timeout,
        env=script_environment(**environment),
    )


def command(script: str) -> list[str]:
    return [sys.executable, "-c", f"import dsa_sdk as dsa\nMODEL = {str(MODEL)!r}\n{textwrap.dedent(script)}"]


def script_environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PACKAGE), "DSA_SDK_LIBRARY": dsa.library_path(), **more}
