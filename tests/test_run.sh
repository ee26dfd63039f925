#!/bin/bash
# tests/test_run.sh: tests/run.sh counts what passes and lets nothing that failed go by. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# made NAME LINE...: a test of these lines of bash
made() {
    local file=$work/$1
    shift
    { echo "#!/bin/bash"; printf '%s\n' "$@"; } > "$file"
    chmod +x "$file"
}

# expect NAME EXIT_CODE LAST_LINE TEXT TEST...: run.sh over these tests of $work
expect() {
    local name=$1 code=$2 last=$3 text=$4 got
    shift 4
    VPLAN_TEST_SECONDS=3 tests/run.sh "${@/#/$work/}" > "$work/log" 2>&1
    got=$?
    if [ $got = "$code" ] && [ "$(tail -n 1 "$work/log")" = "$last" ] && grep -qF -- "$text" "$work/log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL: $name: exit $got, wanted $code with '$text' and the last line '$last'; got"
        sed 's/^/    /' "$work/log"
    fi
}

made good.sh 'echo "3 passed, 0 failed"'
made some.sh 'echo "SKIP: no card here"' 'echo "2 passed, 0 failed, 08 skipped"'
made bad.sh 'echo "FAIL: the sky is green"' 'echo "2 passed, 1 failed"' 'exit 1'
made liar.sh 'echo "2 passed, 0 failed"' 'exit 1'
made careless.sh 'echo "2 passed, 1 failed"'
made silent.sh 'true'
made early.sh 'echo "2 passed, 0 failed"' 'echo "one more line"'
made dies.sh 'echo "2 passed, 0 failed"' 'kill -SEGV $$'
made skips.sh 'echo "SKIP no GPU"' 'exit 77'
made skips_unsaid.sh 'exit 77'
made hangs.sh 'sleep 30'
made tap 'echo "1..3"' 'echo "ok 1 - a"' 'echo "not ok 2 # SKIP b"' 'echo "ok 3 - c"'
made tap_two_groups 'printf "1..1\nok 1 - a\n# ok - x\n1..2\nok 1 - b\nok 2 - c\n"'
made tap_fails 'echo "1..2"' 'echo "ok 1 - a"' 'echo "not ok 2 - b"' 'echo "b: 1 != 2" >&2' 'exit 1'
made tap_stops 'echo "1..4"' 'echo "ok 1 - a"' 'exit 0'
made tap_dies 'echo "1..2"' 'echo "ok 1 - a"' 'kill -ABRT $$'
made no_tap 'echo fine'

expect "all pass" 0 "6 passed, 0 failed" "good.sh" good.sh good.sh
expect "skipped cases are counted and shown" 0 "5 passed, 0 failed, 8 skipped" "skipped: no card here" good.sh some.sh
expect "a failed case" 1 "5 passed, 1 failed" "FAIL: the sky is green" good.sh bad.sh
expect "exit 1 with no failed case" 1 "2 passed, 1 failed" "no failed case" liar.sh
expect "exit 0 with a failed case" 1 "2 passed, 2 failed" "in spite of" careless.sh
expect "no count" 1 "0 passed, 1 failed" "no count" silent.sh
expect "a count that is not last" 1 "0 passed, 1 failed" "no count" early.sh
expect "a death" 1 "2 passed, 1 failed" "signal 11" dies.sh
expect "77 with SKIP" 0 "0 passed, 0 failed, 1 skipped" "no GPU" skips.sh
expect "77 without SKIP" 1 "0 passed, 1 failed" "no count" skips_unsaid.sh
expect "a test that hangs" 1 "0 passed, 1 failed" "ended after 3 s" hangs.sh
expect "a test that is not there" 1 "0 passed, 1 failed" "no count" nowhere
expect "TAP" 0 "2 passed, 0 failed, 1 skipped" "skipped: b" tap
expect "TAP of two groups" 0 "3 passed, 0 failed" "ok " tap_two_groups
expect "TAP with a failure" 1 "1 passed, 1 failed" "b: 1 != 2" tap_fails
expect "TAP that stops early" 1 "1 passed, 1 failed" "3 of its cases never ran" tap_stops
expect "a program that dies" 1 "1 passed, 1 failed" "signal 6" tap_dies
expect "a program without TAP" 1 "0 passed, 1 failed" "no count" no_tap
expect "a failure is not lost among others" 1 "14 passed, 2 failed, 2 skipped" "FAIL" good.sh bad.sh good.sh tap tap_fails skips.sh good.sh
echo "$passed passed, $failed failed"
[ $failed = 0 ]
