# shellcheck shell=bash
# tests/check.sh: counts the cases of a test script that is written in bash, and looks at what a command printed. Sourced, with
# `work` a folder to write in:
#     . tests/check.sh
#     ok "no model is a usage error" exits 2 "$vplan" plan
#     ok "and says so" says "no model"
#     finish
passed=0 failed=0 skipped=0
export XDG_STATE_HOME=$work/state # what a test finds out about a card is not its user's, nor the other way round

ok() { # ok NAME COMMAND...: a case: the command succeeds
    local name=$1
    shift
    if "$@" > "$work/why" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL: $name"
        sed 's/^/    /' "$work/why" | head -20
    fi
}

exits() { # exits CODE COMMAND...: with this code; what it prints goes to $work/out and $work/err
    local want=$1 got
    shift
    "$@" > "$work/out" 2> "$work/err" < /dev/null
    got=$?
    [ $got = "$want" ] || { echo "exit $got, wanted $want: $*"; cat "$work/err"; return 1; }
}

says() { # says TEXT: it stands in what the last command printed
    grep -qF -- "$1" "$work/err" "$work/out" || { echo "no '$1' in:"; cat "$work/err" "$work/out"; return 1; }
}

json() { # json EXPRESSION...: true, in Python, of the document d that the last command printed
    json_of "$work/out" "$@"
}

json_of() { # json_of FILE EXPRESSION...: the same of a file
    python3 - "$@" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
def value(t, name): return t["settings"].get(name)  # of a trial of `vplan tune -- CMD`
for e in sys.argv[2:]:
    if not eval(e):
        sys.exit(f"not so: {e}\n{json.dumps(d)[:3000]}")
PY
}

skip() { # skip WHY
    skipped=$((skipped + 1))
    echo "SKIP: $1"
}

finish() { # the last line, and the exit code
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
    exit
}
