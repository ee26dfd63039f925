#!/bin/bash
# scripts/lint.sh: what reads the sources without running them. Exit 1 if one has something to say.
#     clang-format    .clang-format, where version 14 is installed: another lays lines out otherwise
#     cppcheck        but for scripts/cppcheck.txt
#     clang-tidy      .clang-tidy
# The last line is `N passed, N failed, N skipped`, a case for each tool, as tests/run.sh counts.
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=$(nproc)
out=$(mktemp)
trap 'rm -f "$out"' EXIT
passed=0 failed=0 skipped=0

sources() { git ls-files "$@" | while read -r f; do [ ! -e "$f" ] || echo "$f"; done; }

# tool NAME COMMAND...: passes where the command exits 0.
tool() {
    local name=$1; shift
    if "$@" > "$out" 2>&1; then
        passed=$((passed + 1)); echo "ok    $name"
    else
        failed=$((failed + 1)); echo "FAIL  $name"
        grep -vE '^[0-9]+ warnings? (generated|treated)' "$out"
    fi
}

skip() { skipped=$((skipped + 1)); echo "SKIP: $1"; }

run_clang_format() { sources '*.c' '*.h' '*.cu' '*.cpp' | xargs clang-format --dry-run --Werror; }

# Folders in turn: a file alone would hide what another file of the folder says of it.
run_cppcheck() {
    cppcheck -q -j "$jobs" --std=c11 --enable=warning,portability,performance --inline-suppr --max-configs=1 --error-exitcode=1 \
        --suppressions-list=<(grep -v '^#' scripts/cppcheck.txt) --suppress=missingInclude -D_GNU_SOURCE -D__GNUC__=12 -I. \
        --template='{file}:{line}: {severity}: {message} [{id}]' \
        base plan models devices planner trainers kernels/cpu kernels/reference runtime tuner dryrun/*.c doctor report cli
}

# The flags of the Makefile that decide what a source means; -Wno-...: what gcc says is said by the build.
run_clang_tidy() {
    sources '*.c' | grep -vE '^(kernels/cuda|tests/cuda_emulator|dryrun/stand_in)/' |
        xargs -P "$jobs" -n 8 sh -c 'clang-tidy --quiet "$@" -- -std=c11 -D_GNU_SOURCE -I. -Itests -fopenmp' sh
}

if clang-format --version 2> /dev/null | grep -q 'version 14\.'; then
    tool "clang-format" run_clang_format
else
    skip "clang-format 14 is not here"
fi
for name in cppcheck clang-tidy; do
    if command -v "$name" > /dev/null; then tool "$name" "run_${name//-/_}"; else skip "$name is not here"; fi
done
[ $skipped = 0 ] && echo "$passed passed, $failed failed" || echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
