#!/usr/bin/env bash
# Runs one fuzzer for some seconds over a copy of its corpus; a find fails the run and is left beside the binaries.
#   cmake --preset fuzz && cmake --build --preset fuzz && tests/fuzz/run.sh build/fuzz/bin NAME [SECONDS]
set -euo pipefail
bin=$1 name=$2 seconds=${3:-60}
here=$(dirname "${BASH_SOURCE[0]}")
corpus=$(mktemp -d)
trap 'rm -r "$corpus"' EXIT
[[ ! -d $here/corpus/$name ]] || cp "$here/corpus/$name"/* "$corpus"
options=(-max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0)
[[ $name == tokenizer || $name == tiktoken || $name == picture ]] || options+=(-dict="$here/json.dict")
"$bin/${name}_fuzz" "${options[@]}" -artifact_prefix="$bin/$name-" "$corpus"
