#!/usr/bin/env bash
# What the bindings add to a streamed token: run.sh [BUILD_FOLDER]. Each figure is the best of five; fails over the limits.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
readonly root build here=$root/tests/bench/overhead model=$root/samples/models/dsa-tiny
readonly kPythonLimit=20000 kRustLimit=2000 # nanoseconds over C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

lib=$build/lib
major=$(sed -n 's/#define DSA_VERSION_MAJOR //p' "$root/include/dsa_sdk.h")
build_programs() {
  local flags=(-std=c99 -O2 -I "$root/include" -L "$lib" -Wl,-rpath,"$lib")
  cc "${flags[@]}" -shared -fPIC -DDSA_FEED_MAJOR="\"$major\"" "$here/feed.c" -o "$work/feed.so" \
    -Wl,--no-as-needed -ldsa_sdk -ldl -pthread
  cc "${flags[@]}" "$here/overhead.c" -o "$work/overhead" -ldsa_sdk
  if command -v cargo >/dev/null; then
    DSA_SDK_DIR=$lib CARGO_TARGET_DIR=$build/../rust cargo build -q --release --offline --example overhead \
      --manifest-path "$root/bindings/rust/Cargo.toml"
  fi
}

best() {
  local i
  for i in 1 2 3 4 5; do "$@" || return; done | sort -g | head -n 1
}
in_c() { DSA_FEED_EVENTS=1000000 LD_PRELOAD=$work/feed.so "$work/overhead" "$model"; }
in_rust() { DSA_FEED_EVENTS=1000000 LD_PRELOAD=$work/feed.so "$build/../rust/release/examples/overhead" "$model"; }
in_python() {
  DSA_FEED_EVENTS=$1 DSA_SDK_LIBRARY=$work/feed.so PYTHONPATH=$root/bindings/python python3 "$here/overhead.py" "$model" "$2"
}
woken() { DSA_FEED_WAKE=1 in_python 10000 async; }

over=0
# measure NAME LIMIT COMMAND...: prints a line; the first one is what the others are compared with.
measure() {
  local name=$1 limit=$2 found added verdict=
  shift 2
  found=$(best "$@")
  : "${c:=$found}"
  added=$(awk "BEGIN { print $found - $c }")
  if [[ -n $limit ]]; then
    verdict="limit $limit"
    if awk "BEGIN { exit !($added > $limit) }"; then verdict="$verdict: OVER" over=1; fi
  fi
  printf '%9.1f ns  %9.1f ns over C  %-40s %s\n' "$found" "$added" "$name" "$verdict"
}

build_programs
measure "C, dsa_run_next and a copy" "" in_c
if command -v cargo >/dev/null; then measure "Rust, for event in run" $kRustLimit in_rust; fi
measure "Python, for event in run" $kPythonLimit in_python 200000 events
measure "Python, for text in run.text()" $kPythonLimit in_python 200000 text
measure "Python, async for text in run.text()" $kPythonLimit in_python 200000 async
measure "Python, async, a wake-up for each" "" woken
exit "$over"
