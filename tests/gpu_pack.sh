#!/bin/bash
# tests/gpu_pack.sh [CUDA_ARCHS]: gpu-pack.tar.xz, what a machine with a GPU but without our libraries needs to run tests/gpu_check.sh: the host programs
# and tests built here, which look for their libraries in gpu-pack/lib, those libraries but libc's and the compiler's, and, with a CUDA toolkit here,
# vplan-cuda.so for the compute capabilities given (90). At most 15 MiB. What is compiled stays in build/gpu-pack.
set -eu
cd "$(dirname "$0")/.."
archs=${1:-90}
build=build/gpu-pack
programs="vplan vplan-run vplan-solve tests/test_kernels tests/test_kernels_random tests/test_kernels_attention tests/test_kernels_rope tests/test_kernels_embedding tests/test_kernels_passes tests/test_kernels_tf32 tests/test_kernels_optimizer tests/test_kernels_rounding tests/test_golden tests/test_plans"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/gpu-pack/lib" "$work/gpu-pack/tests"

# Not LD_LIBRARY_PATH, which PyTorch would read too; RPATH, not RUNPATH, so that the libraries find each other.
make --no-print-directory -j"$(nproc)" BUILD=$build LDFLAGS="-Wl,--disable-new-dtags,-rpath,'\$\$ORIGIN/lib:\$\$ORIGIN/../lib'" \
    $(for p in $programs; do echo "$build/$p"; done)
plugin=
if make -n BUILD=$build $build/vplan-cuda.so > /dev/null 2>&1; then
    plugin=vplan-cuda.so
    make --no-print-directory -j"$(nproc)" BUILD=$build CUDA_ARCHS="$archs" $build/$plugin
else
    echo "no CUDA toolkit here: vplan-cuda.so is compiled where the GPU is"
fi
for p in $programs $plugin; do
    cp "$build/$p" "$work/gpu-pack/$p"
    strip "$work/gpu-pack/$p"
done
for p in $programs; do
    ldd "$build/$p"
done | sed -nE 's/.*=> ([^ ]+) .*/\1/p' | sort -u | grep -vE '/(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux[^/]*)\.so' | while read -r library; do
    cp -L "$library" "$work/gpu-pack/lib/"
done
XZ_OPT=-T0 tar -C "$work" -cJf gpu-pack.tar.xz gpu-pack
size=$(du -m gpu-pack.tar.xz | cut -f1)
echo "gpu-pack.tar.xz: $size MiB"
[ "$size" -le 15 ]
