#!/bin/bash
# tests/test_readme.sh: every transcript in README.md, docs/own-runtime.md, planner/README.md and docs/plan-file.md is what the program prints now;
# tests/readme.py says what is compared and what is masked. --update rewrites them. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
exec python3 tests/readme.py "$@"
