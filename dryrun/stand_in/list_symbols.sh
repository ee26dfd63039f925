#!/bin/sh
# list_symbols.sh TORCH_LIB_DIR...: the CUDA-side functions that PyTorch's libraries import, for symbols.txt.
# Run it over every supported version when one is added; needs nm and strings (binutils).
set -eu
for dir in "$@"; do
    for so in "$dir"/*.so; do
        nm -D --undefined-only "$so" | awk '{print $NF}'
    done
    # looked up by name at run time
    strings -n 6 "$dir/libc10_cuda.so" | grep -E '^cu[A-Z][a-z][A-Za-z0-9]+$' || true
done | sed 's/@.*//' | awk '
    /^cublasLt/   { print "libcublasLt", $1; next }
    /^cublas/     { print "libcublas", $1; next }
    /^cudnn/      { print "libcudnn", $1; next }
    /^cusparseLt/ { print "libcusparseLt", $1; next }
    /^cusparse/   { print "libcusparse", $1; next }
    /^cusolver/   { print "libcusolver", $1; next }
    /^cufft/      { print "libcufft", $1; next }
    /^curand/     { print "libcurand", $1; next }
    /^cupti/      { print "libcupti", $1; next }
    /^cuFile/     { print "libcufile", $1; next }
    /^nvrtc/      { print "libnvrtc", $1; next }
    /^nvshmem/    { print "libnvshmem", $1; next }
    /^nccl/       { print "libnccl", $1; next }
    /^nvml/       { print "libnvidia-ml", $1; next }
    /^(cuda[A-Z]|__cuda)/ { print "libcudart", $1; next }
    /^cu[A-Z]/    { print "libcuda", $1; next }
    /^nvtx/       { print "libnvToolsExt", $1; next }
' | LC_ALL=C sort -u
