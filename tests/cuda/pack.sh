#!/usr/bin/env bash
# pack.sh BUILD ARCHIVE: what a machine with a GPU needs to run the CUDA tests away from the sources, about 45 MiB. There:
#   tar xzf ARCHIVE && cuda-tests/run.sh
set -euo pipefail
build=$1 archive=$2
sources="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
folder="$packed/cuda-tests"
mkdir -p "$folder"/{bin,lib,tree/tests/golden,tree/samples/models}
for program in dsa_golden cuda_test cuda_kernels_test dsa_bench_cuda dsa_eval device; do
  if [[ -x $build/bin/$program ]]; then cp "$build/bin/$program" "$folder/bin/"; fi
done
cp "$build/lib/libdsa_sdk_cuda.so" "$folder/lib/"
cp -L "$build/lib/libdsa_sdk.so.0" "$folder/lib/"
# The libraries that the machine may lack, but for cuBLASLt, which comes with CUDA.
for file in "$folder"/bin/* "$folder/lib/libdsa_sdk.so.0"; do
  ldd "$file" | sed -nE 's/.* => (\/[^ ]+) .*/\1/p' |
    grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcublasLt|libdsa_sdk)\.so' || true
done | sort -u | while read -r library; do cp -L "$library" "$folder/lib/"; done
strip "$folder"/bin/* "$folder"/lib/*
cp -r "$sources"/tests/golden/*/ "$folder/tree/tests/golden/"
cp -r "$sources/samples/models/dsa-tiny" "$folder/tree/samples/models/"
cp "$sources/tests/cuda/run.sh" "$folder/"
tar czf "$archive" -C "$packed" cuda-tests
