#!/bin/bash
# tests/fuzz/fuzz_long.sh [NAME...]: each target under libFuzzer with address and undefined-behaviour sanitizers, built by clang into
# $BUILD/fuzz/. Part of `make check-long`; the last line counts.
#     tests/fuzz/fuzz_long.sh plan            one target
#     FUZZ_SECONDS     for each (600)
#     FUZZ_JOBS        how many at a time (one a core, 6 at most)
# What a target finds beyond the corpus is kept in $BUILD/fuzz/found-NAME/ and is where the next run begins; an input that fails is
# $BUILD/fuzz/NAME-crash-HASH (or -timeout-, -oom-): run $BUILD/fuzz/tests/fuzz/fuzz_NAME on it to see what it does.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}/fuzz
seconds=${FUZZ_SECONDS:-600}
jobs=${FUZZ_JOBS:-$(nproc)}
[ "$jobs" -le 6 ] || jobs=6
if ! command -v clang > /dev/null; then
    echo "SKIP: no clang here, and only clang has libFuzzer"
    exit 77
fi
[ $# -gt 0 ] || set -- config device plan profile recipe safetensors
mkdir -p "$build"
if ! env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -j"$jobs" BUILD="$build" CC=clang FUZZER=1 fuzz-programs > "$build/log" 2>&1; then
    cat "$build/log"
    echo "0 passed, 1 failed"
    exit 1
fi

# Most bytes of an input: a little more than the largest of the corpus needs.
max_bytes() {
    case $1 in
    plan) echo 65536 ;;
    *) echo 4096 ;;
    esac
}

run_one() {
    mkdir -p "$build/found-$1"
    rm -f "$build/$1.code"
    "$build/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len="$(max_bytes "$1")" \
        -artifact_prefix="$build/$1-" "$build/found-$1" "tests/fuzz/corpus/$1" > "$build/$1.log" 2>&1
    echo $? > "$build/$1.code"
}

for name; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    run_one "$name" &
done
wait
passed=0 failed=0
for name; do
    code=$(cat "$build/$name.code")
    if [ "$code" = 0 ]; then
        passed=$((passed + 1))
        echo "$name: $(grep '^Done' "$build/$name.log")"
    else
        failed=$((failed + 1))
        echo "FAIL: $name: exit $code"
        tail -n 60 "$build/$name.log"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
