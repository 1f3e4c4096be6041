"""The symbols of the shared library are those of the header: exports.py HEADER LIBRARY NM."""

import pathlib
import re
import subprocess
import sys

header = re.sub(r"/\*.*?\*/", " ", pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), flags=re.S)
declared = set(re.findall(r"\bDSA_API [^;(]*?(dsa_\w+)\(", header))
lines = subprocess.run([sys.argv[3], "-D", "--defined-only", sys.argv[2]], check=True, capture_output=True, text=True)
exported = {line.split()[-1].split("@")[0] for line in lines.stdout.splitlines() if line.strip()}
for name in sorted(declared - exported):
    print(f"declared, but not exported: {name}")
for name in sorted(exported - declared):
    print(f"exported, but not declared: {name}")
print(f"{len(declared)} functions declared, {len(exported)} exported")
sys.exit(0 if declared and declared == exported else 1)
