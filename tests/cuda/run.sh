#!/usr/bin/env bash
# run.sh [PART...]: runs what pack.sh packed on this machine's GPU. Parts: devices kernels goldens engine eval sanitize
# bench model load; without one, all but the last four. One line for each suite of kernels and each golden, the end of the
# rest. Needs cuBLASLt of CUDA 13, and compute-sanitizer to sanitize.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cublas=$(find /usr /opt -name 'libcublasLt.so.13' 2>/dev/null | head -n 1)
export LD_LIBRARY_PATH="$here/lib:$(dirname "$cublas"):${LD_LIBRARY_PATH:-}" DSA_TEST_ROOT="$here/tree"
[[ $# -gt 0 ]] || set -- devices kernels goldens engine eval
status=0

# part NAME LINES COMMAND...: the last lines of its output, and how long it took.
part() {
  local name=$1 lines=$2 begin=$SECONDS code
  shift 2
  "$@" >"$here/$name.log" 2>&1
  code=$?
  tail -n "$lines" "$here/$name.log"
  echo "[$name: exit status $code, $((SECONDS - begin)) s]"
  [[ $code -eq 0 ]] || status=1
}

# Each suite is a process of its own: a fault spoils one alone.
kernels() {
  local code=0 suite suites
  suites=$("$here/bin/cuda_kernels_test" --list-test-suites --no-version | grep '^kernels/') || return 1
  for suite in $suites; do
    if timeout 25 "$here/bin/cuda_kernels_test" --test-suite="$suite" --no-version >"$here/suite.log" 2>&1; then
      echo "$suite: $(grep -o '[0-9]* passed' "$here/suite.log" | tail -n 1)"
    else
      code=1
      echo "$suite: FAILED"
      grep -vE '^=+$|^$' "$here/suite.log" | head -n 12
    fi
  done
  return $code
}

# A few operators under compute-sanitizer, every buffer an allocation of its own.
sanitize() {
  local code=0 tool suite line
  for tool in memcheck racecheck; do
    for suite in kernels/mxfp4_linear kernels/top_k kernels/router kernels/fp8_expert_linear kernels/mxfp4_expert_linear; do
      line=$(DSA_TEST_GUARD=1 timeout 40 compute-sanitizer --tool "$tool" "$here/bin/cuda_kernels_test" \
             --test-suite="$suite" --no-version 2>&1 | grep -E 'ERROR SUMMARY|RACECHECK SUMMARY')
      echo "$tool $suite: ${line:-did not end}"
      [[ $line == *": 0 "* ]] || code=1
    done
  done
  return $code
}

goldens() {
  local code=0 case route line
  for case in kimi_k31:model-mxfp4 kimi_k3:model-mxfp4 kimi_linear:model-mxfp4 kimi_linear:model kimi_k31:model kimi_k3_vl:model-mxfp4 \
              deepseek_v32:model-mxfp4 glm_moe_dsa:model-mxfp4 glm_moe_dsa:model gpt_oss:model-mxfp4 gpt_oss:model \
              glm5_next:model-mxfp4 glm5_next_vl:model-mxfp4; do
    for route in exact fast fp8 "fast --kv fp8"; do
      # gpt_oss keeps no latents; the selections of deepseek_v32 tip with any rounding of its cache, bf16 too.
      [[ $route != *kv* || $case != @(gpt_oss|deepseek_v32):* ]] || continue
      line=$("$here/bin/dsa_golden" "$here/tree/tests/golden/${case%%:*}" --weights "${case##*:}" --route $route \
             --device cuda 2>&1 | tail -n 1)
      echo "$case $route: $line"
      [[ $line == PASS* ]] || code=1
    done
  done
  return $code
}

for name in "$@"; do
  case $name in
    devices) part devices 20 "$here/bin/device" ;;
    kernels) part kernels 200 kernels ;;
    sanitize) part sanitize 20 sanitize ;;
    goldens) part goldens 60 goldens ;;
    engine)
      part engine 30 "$here/bin/cuda_test"
      part answer 3 "$here/bin/device" "$here/tree/samples/models/dsa-tiny" cuda "What is the capital of France?"
      ;;
    eval)
      part eval 20 "$here/bin/dsa_eval" "$here/tree/samples/models/dsa-tiny" --limit 50 --device cuda
      part eval-fp8 20 "$here/bin/dsa_eval" "$here/tree/samples/models/dsa-tiny" --limit 50 --device cuda --kv fp8
      ;;
    bench) part bench 60 "$here/bin/dsa_bench_cuda" ;;
    model) part model 60 "$here/bin/dsa_bench_cuda" model ;;
    load) part load 20 "$here/bin/dsa_bench_cuda" load ;;
    *) echo "no part '$name'" >&2; exit 2 ;;
  esac
done
exit $status
