#include "runtime/compare.h"

#include "base/stats.h"
#include "runtime/data.h"

#include <assert.h>
#include <stdlib.h>

static vp_status open_lane(const vp_plan *plan, const vp_backend *backend,
                           const vp_compare_opts *opts, vp_lane *lane, vp_err *err)
{
    int64_t     n_rounds = VP_COMPARE_WARM_UP + opts->n_rounds;
    vp_run_opts run      = {.n_total_steps = n_rounds, .seed = opts->seed};
    vp_status   st       = VP_OK;

    lane->steps = calloc((size_t)n_rounds, sizeof *lane->steps);
    VP_TRY_ALLOC(err, lane->steps);
    VP_TRY(vp_runtime_new(plan, backend, &run, &lane->runtime, err));
    VP_TRY(vp_runtime_draw(lane->runtime, err));
out:
    return st;
}

/* One step on the tokens of its round. */
static vp_status step(const vp_plan *plan, vp_lane *lane, int64_t round, int64_t n_rounds,
                      vp_err *err)
{
    int64_t   n_tokens = vp_plan_tokens(plan);
    int32_t  *tokens   = malloc((size_t)n_tokens * 2 * sizeof *tokens);
    vp_data  *data     = NULL;
    vp_status st       = VP_OK;

    assert(round >= 0 && round < n_rounds);
    VP_TRY_ALLOC(err, tokens);
    VP_TRY(vp_data_open(NULL, plan, n_rounds, &data, err));
    VP_TRY(vp_data_step(data, round, tokens, tokens + n_tokens, err));
    VP_TRY(vp_runtime_step(lane->runtime,
                           &(vp_batch){.tokens = tokens, .labels = tokens + n_tokens},
                           &lane->steps[round], err));
    if (round >= VP_COMPARE_WARM_UP)
        VP_TRY(vp_call_times_add(&lane->times, lane->runtime, err));
out:
    vp_data_close(data);
    free(tokens);
    return st;
}

static vp_status summarise(const vp_lane *first, vp_lane *lane, int64_t n, vp_err *err)
{
    const vp_step_result *a  = first->steps + VP_COMPARE_WARM_UP,
                         *b  = lane->steps + VP_COMPARE_WARM_UP;
    double          *seconds = malloc((size_t)n * 2 * sizeof *seconds), *ratios = seconds + n;
    vp_memory_report memory;
    vp_status        st = VP_OK;

    assert(n > 0); /* quartiles of nothing are nothing */
    VP_TRY_ALLOC(err, seconds);
    for (int64_t i = 0; i < n; i++) {
        seconds[i] = b[i].seconds;
        ratios[i]  = b[i].seconds / a[i].seconds;
    }
    lane->median_s   = vp_median(seconds, n);
    lane->over_first = vp_median(ratios, n);
    assert(n == 1 || ratios[0] <= ratios[n - 1]); /* vp_median() has sorted them */
    lane->low  = ratios[n / 4];
    lane->high = ratios[n * 3 / 4];
    vp_call_times_median(&lane->times);
    vp_runtime_memory(lane->runtime, &memory);
    lane->executed_bytes = memory.of[VP_MEMORY_DEVICE].executed_bytes;
out:
    free(seconds);
    return st;
}

static vp_status of_plan(vp_status st, int64_t i, int64_t n, vp_err *err)
{
    vp_err inner = *err;

    assert(i >= 0 && i < n);
    if (st == VP_OK || n < 2)
        return st;
    *err = (vp_err){0};
    return vp_fail(err, st, inner.file, inner.line, inner.field, "plan %lld: %s", (long long)i + 1,
                   inner.message);
}

vp_status vp_compare(vp_plan *const *plans, int64_t n, const vp_backend *backend,
                     const vp_compare_opts *opts, vp_lane *lanes, vp_err *err)
{
    int64_t   n_rounds = VP_COMPARE_WARM_UP + opts->n_rounds;
    vp_status st       = VP_OK;

    assert(n > 0 && opts->n_rounds > 0);
    for (int64_t i = 0; i < n; i++)
        lanes[i] = (vp_lane){0};
    for (int64_t i = 0; i < n; i++)
        VP_TRY(of_plan(open_lane(plans[i], backend, opts, &lanes[i], err), i, n, err));
    for (int64_t round = 0; round < n_rounds; round++)
        for (int64_t k = 0; k < n; k++) {
            /* Each lane comes at each place, and after each other lane, in its turn: forwards
             * from a first that moves on, then backwards. */
            int64_t i = round % 2 == 0 ? (round / 2 + k) % n : (round / 2 + n - 1 - k) % n;
            VP_TRY(of_plan(step(plans[i], &lanes[i], round, n_rounds, err), i, n, err));
        }
    for (int64_t i = 0; i < n; i++)
        VP_TRY(summarise(&lanes[0], &lanes[i], opts->n_rounds, err));
out:
    return st;
}

void vp_lanes_release(vp_lane *lanes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        vp_runtime_free(lanes[i].runtime);
        vp_call_times_release(&lanes[i].times);
        free(lanes[i].steps);
        lanes[i] = (vp_lane){0};
    }
}
