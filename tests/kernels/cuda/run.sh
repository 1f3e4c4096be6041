#!/usr/bin/env bash
# tests/kernels/cuda/run.sh FOLDER: what a machine with a GPU has to say about the operators, in one go of two minutes.
# FOLDER holds cuda_kernels_test and dsa_bench_cuda. Each suite is a process of its own: a fault spoils one alone.
set -u
cd "${1:?the folder of the programs}"
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64
log=$(mktemp)
suites() { ./cuda_kernels_test --list-test-suites --no-version | grep '^kernels/'; }

for suite in $(suites); do
  if timeout 25 ./cuda_kernels_test --test-suite="$suite" --no-version >"$log" 2>&1; then
    echo "$suite: $(grep -o '[0-9]* passed' "$log" | tail -1)"
  else
    echo "$suite: FAILED"
    grep -vE '^=+$|^$' "$log" | head -n 12
  fi
done
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    for suite in kernels/mxfp4_linear kernels/top_k kernels/router kernels/fp8_expert_linear; do
      DSA_TEST_GUARD=1 timeout 40 compute-sanitizer --tool "$tool" ./cuda_kernels_test --test-suite="$suite" --no-version \
        >"$log" 2>&1
      echo "$tool $suite: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" || echo 'did not end')"
    done
  done
fi
timeout 60 ./dsa_bench_cuda
