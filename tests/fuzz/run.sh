#!/bin/sh
# Runs every fuzzer (cmake --preset fuzz && cmake --build --preset fuzz) for some seconds over a copy of its corpus; a find is left in the current folder.
#   tests/fuzz/run.sh build/fuzz/bin [SECONDS] [NAME...]
set -eu
bin=$1 seconds=${2:-60}
here=$(dirname "$0")
shift; [ $# -gt 0 ] && shift
for name in ${*:-safetensors config_json chat_json tokenizer}; do
  corpus=$(mktemp -d)
  cp "$here/corpus/$name"/* "$corpus"
  dictionary=; [ "$name" = tokenizer ] || dictionary=-dict=$here/json.dict
  echo "== $name"
  "$bin/${name}_fuzz" $dictionary -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 "$corpus" 2>&1 | grep -E "ERROR|SUMMARY|broken|exec_per|number_of|units_added|Test unit|runtime error|#[0-9]+ 0x" || true
  rm -r "$corpus"
done
