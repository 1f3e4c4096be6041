"""dsa_abi_json() of the loaded library names every function and constant of the header: json_matches.py HEADER PROGRAM."""

import json
import pathlib
import re
import subprocess
import sys

header = re.sub(r"/\*.*?\*/", " ", pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), flags=re.S)
abi = json.loads(subprocess.run([sys.argv[2], "--json"], check=True, capture_output=True, text=True).stdout)
functions = set(re.findall(r"\bDSA_API [^;(]*?(dsa_\w+)\(", header))
structs = set(re.findall(r"typedef struct (dsa_\w+) \{", header))
constants = {n for g in re.findall(r"\benum \{(.*?)\};", header, flags=re.S) for n in re.findall(r"\bDSA_\w+", g)}
assert functions == set(abi["functions"]), functions ^ set(abi["functions"])
assert structs == set(abi["structs"]), structs ^ set(abi["structs"])
assert constants <= set(abi["constants"]), constants - set(abi["constants"])
assert abi["constants"]["DSA_ERROR_CONTEXT_FULL"] == -205 and abi["api_level"] == abi["constants"]["DSA_API_LEVEL"]
for name, struct in abi["structs"].items():  # no padding: the fields fill the struct
    end = 0
    for field, at in struct["fields"].items():
        assert at["offset"] == end, (name, field)
        end += at["size"]
    assert end == struct["size"], name
print(f"{len(functions)} functions, {len(structs)} structs, {len(abi['constants'])} constants")
