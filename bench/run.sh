#!/bin/sh
# Every benchmark that this machine can run; results to $BUILD/bench/. A part that cannot run says why and is skipped.
#
#     bench/run.sh [step] [kernels] [plan] [regret] [prediction] [per-layer] [offload] [trainer]     (the first three; `make bench` calls it)
#
#     BUILD           folder of the programs (build)
#     PYTHON_TORCH    a Python with torch and transformers, for step (python3)
#     COMMIT          what is measured (the commit checked out here, -dirty where tracked files differ from it)
#
# The first three take about ten minutes on two quiet cores, regret about an hour, prediction about twenty minutes. Exit 1 when a part failed; a skipped part is not a failure.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
BUILD=${BUILD:-$here/../build}
COMMIT=${COMMIT:-$(git -C "$here" describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null || echo unknown)}
export BUILD PYTHONDONTWRITEBYTECODE=1
[ $# -gt 0 ] || set -- step kernels plan
ran=0 skipped=0 failed=0
for part; do
    case $part in
    step) program=step_vs_torch.py ;;
    kernels) program=bench_kernels.py ;;
    plan) program=plan_time.py ;;
    regret) program=tune_regret.py ;;
    prediction) program=step_prediction.py ;;
    per-layer) program=per_layer_ilp.py ;;
    offload) program=offload_plans.py ;;
    trainer) program=trainer_time.py ;;
    *) echo "bench/run.sh: no part $part: step, kernels, plan, regret, prediction, per-layer, offload or trainer" >&2; exit 2 ;;
    esac
    printf '\n== %s (bench/%s)\n' "$part" "$program"
    python3 "$here/$program" --commit "$COMMIT"
    case $? in
    0) ran=$((ran + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)); echo "bench: $part failed" >&2 ;;
    esac
done
printf '\n%d ran, %d skipped, %d failed; results in %s/bench\n' "$ran" "$skipped" "$failed" "$BUILD"
[ "$failed" -eq 0 ]
