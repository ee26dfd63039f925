#!/bin/bash
# tests/gpu_pack.sh: gpu-pack/, what a machine with a GPU but without our libraries needs to run tests/gpu_check.sh: the host programs and tests
# built here, and the shared libraries they use beside libc. At most 60 MiB.
set -eu
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
make --no-print-directory -j"$(nproc)" BUILD="$BUILD" all test-programs
rm -rf gpu-pack
mkdir -p gpu-pack/lib gpu-pack/tests
programs="vplan vplan-run vplan-solve tests/test_kernels tests/test_kernels_attention tests/test_kernels_optimizer tests/test_golden tests/test_plans"
for p in $programs; do
    cp "$BUILD/$p" "gpu-pack/$p"
    strip "gpu-pack/$p"
    ldd "$BUILD/$p"
done | sed -nE 's/.*=> ([^ ]+) .*/\1/p' | sort -u | grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | while read -r library; do
    cp -L "$library" gpu-pack/lib/
done
size=$(du -sm gpu-pack | cut -f1)
echo "gpu-pack: $size MiB"
[ "$size" -le 60 ]
