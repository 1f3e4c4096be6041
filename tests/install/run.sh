#!/usr/bin/env bash
# The library as people receive it: run.sh [BUILD_FOLDER]. Installs it, moves the tree, and answers a question with a
# CMake project, pkg-config, functions resolved at run time, a wheel in a new environment, and a crate.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
readonly root build kQuestion="What is the capital of France?" kLimit=$((10 * 1024 * 1024))
model=$root/samples/models/dsa-tiny
work=$(mktemp -d)
static=$(sed -n 's/^DSA_STATIC:BOOL=//p' "$build/CMakeCache.txt")
cmake "$build" -DDSA_STATIC=ON >/dev/null # only adds a file to the installation
leave() {
  cmake "$build" -DDSA_STATIC="${static:-OFF}" >/dev/null
  rm -rf "$work"
}
trap leave EXIT
unset DSA_SDK_LIBRARY DSA_SDK_DIR LD_LIBRARY_PATH PYTHONPATH PKG_CONFIG_PATH

passed=0 failed=0
# check NAME COMMAND...: one line for each; what a failure printed follows.
check() {
  local name=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1)) && printf 'ok      %s\n' "$name"
  else
    failed=$((failed + 1)) && printf 'FAILED  %s\n' "$name" && cat "$work/log"
  fi
}
# answers COMMAND...: the answer has to be right.
answers() { "$@" "$model" "$kQuestion" | tee /dev/stderr | grep -q Paris; }

install_tree() {
  cmake --build "$build" --target dsa_sdk dsa_inspect dsa_convert && cmake --install "$build" --prefix "$work/first" --strip &&
    mv "$work/first" "$work/moved"
}
check "install, and move the tree" install_tree
prefix=$work/moved
lib=$(dirname "$(find "$prefix" -name libdsa_sdk.so)")
export PKG_CONFIG_PATH=$lib/pkgconfig

check "no path of this machine in it" bash -c "! grep -rlF -e '$root' -e '$work' --include='*.cmake' --include='*.pc' '$prefix'"
for name in dsa_sdk highway nlohmann-json pcre2 sentencepiece stb webp xxhash libstdc++; do
  check "licence of $name" test -s "$prefix/share/licenses/dsa_sdk/$name.txt"
done

check "dsa_convert converts" "$prefix/bin/dsa_convert" "$root/tests/golden/glm_moe_dsa/model" "$work/converted" --quiet

consumer() {
  cmake -S "$root/tests/install/consumer" -B "$work/consumer" -DSAMPLE="$root/samples/chat.c" \
    -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$work/consumer"
}
check "a CMake project" consumer
check "find_package(dsa_sdk) answers" answers "$work/consumer/by_cmake"
check "pkg-config in CMake answers" answers "$work/consumer/by_pkgconfig"
check "the static library answers" answers "$work/consumer/by_static"
check "functions resolved at run time answer" answers "$work/consumer/at_run_time" "$lib/libdsa_sdk.so"

inspects() { "$prefix/bin/dsa_inspect" "$model" | grep "0 missing, 0 refused, 0 unexpected" >/dev/null; }  # -q would close the pipe on it
check "the installed dsa_inspect knows every tensor of the model" inspects

newer_package() {
  mkdir -p "$work/newer" && printf '%s\n' "cmake_minimum_required(VERSION 3.25)" "project(newer LANGUAGES NONE)" \
    "find_package(dsa_sdk 9.0 REQUIRED)" >"$work/newer/CMakeLists.txt"
  ! cmake -S "$work/newer" -B "$work/newer/build" -DCMAKE_PREFIX_PATH="$prefix" 2>"$work/newer/log" &&
    grep -q "9.0" "$work/newer/log"
}
check "a version that is not there is refused" newer_package

compile() {
  # shellcheck disable=SC2046
  cc -std=c99 -Wall -Wextra "$root/samples/chat.c" -o "$work/plain" $(pkg-config --cflags --libs dsa_sdk)
}
check "cc with pkg-config" compile
check "and it answers" answers env LD_LIBRARY_PATH="$lib" "$work/plain"

older_library() {
  echo 'int dsa_version(void) { return 1; }' | cc -x c -shared -fPIC -o "$work/older.so" - || return
  local code=0
  "$work/consumer/at_run_time" "$work/older.so" "$model" x 2>"$work/missing" || code=$?
  [[ $code -eq 3 ]] && grep -q "missing: dsa_version_string" "$work/missing"
}
check "missing functions are named" older_library

wheel() {
  python3 -m venv "$work/tools" && "$work/tools/bin/pip" -q install build &&
    "$work/tools/bin/python" -m build --wheel -C build="$build" -o "$work/dist" "$root/bindings/python" &&
    python3 -m venv "$work/fresh" && "$work/fresh/bin/pip" -q install --no-index "$work"/dist/*.whl
}
check "python -m build, pip install in a new environment" wheel
# No variable is set, and the libraries of the system are not needed.
check "the wheel answers" answers env -i "$work/fresh/bin/python" "$root/tests/install/answer.py"
own_libraries() {
  env -i "$work/fresh/bin/python" -c 'import dsa_sdk; dsa_sdk.version(); print(open("/proc/self/maps").read())' |
    grep -E 'lib(dsa_sdk|pcre2-8|sentencepiece|webp)\.' | grep -v "dsa_sdk/_lib/" && return 1
  return 0
}
check "with the libraries inside it" own_libraries

if command -v cargo >/dev/null; then
  # The crates are taken from outside of the repository, with nothing built yet.
  cp -r "$root/bindings/rust" "$work/rust"
  crate() { (cd "$work/rust/dsa-sdk" && cargo run -q --offline ${features:+--features "$features"} --example chat -- "$@"); }
  by_folder() { DSA_SDK_DIR=$prefix CARGO_TARGET_DIR=$work/target-folder crate "$@"; }
  linked_in() { features=static by_folder "$@"; }
  by_pkg_config() { CARGO_TARGET_DIR=$work/target-pkg crate "$@"; }
  check "cargo run --example chat with DSA_SDK_DIR answers" answers by_folder
  check "cargo run --features static answers" answers linked_in
  check "cargo run --example chat with pkg-config answers" answers by_pkg_config
  refused() { ! PKG_CONFIG_PATH='' CARGO_TARGET_DIR=$work/target-none crate 2>"$work/refused" && grep -q DSA_SDK_DIR "$work/refused"; }
  check "without a library the crate says what to do" refused
fi

size() { stat -Lc %s "$1"; }
printf '%10d  %s\n' "$(size "$lib/libdsa_sdk.so")" libdsa_sdk.so "$(size "$lib/libdsa_sdk.a")" libdsa_sdk.a "$(du -sb "$prefix" | cut -f1)" "the whole tree" \
  "$(size "$work"/dist/*.whl)" "$(basename "$work"/dist/*.whl)"
check "the library has at most $kLimit bytes" test "$(size "$lib/libdsa_sdk.so")" -le "$kLimit"

printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed -eq 0 ]]
