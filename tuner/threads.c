/* How many threads the CPU's kernels take in what follows: one each for as many cores as there are
 * is slower than fewer where others use the cores too, or where the kernels are small. */
#include "tuner/tune_internal.h"

#include "base/stats.h"
#include "base/units.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS     = 2, /* of each count, in turns: what disturbs one of them shows  */
    STEPS      = 5, /* of a run; the first does not count */
    SLOW_STEPS = 2
};
static const double SLOW_S    = 2;    /* a step from which on SLOW_STEPS and one round are run */
static const double HOPELESS  = 1.2;  /* over the fastest: fewer threads are not tried  */
static const double NO_FASTER = 0.98; /* of more threads' time: fewer take their place */

typedef struct count {
    int     threads;
    double  step_s[ROUNDS * STEPS];
    int64_t n;
} count;

static void set_threads(int n)
{
    char text[16];

    assert(n > 0);
    snprintf(text, sizeof text, "%d", n);
    setenv("OMP_NUM_THREADS", text, 1);
}

static vp_status read_steps(const char *text, size_t n_bytes, count *c, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_json_node root, steps, step;
    int64_t      n;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_parse("vplan-run", text, (int64_t)n_bytes, &doc, err));
    root = vp_json_root(doc);
    VP_TRY(vp_json_array(&root, "steps", &steps, &n, err));
    for (int64_t i = 1; i < n && c->n < ROUNDS * STEPS; i++) {
        VP_TRY(vp_json_element(&steps, i, &step, err));
        VP_TRY(vp_json_real(&step, "seconds", 1e-9, 1e9, &c->step_s[c->n++], err));
    }
out:
    vp_json_doc_free(doc);
    return st;
}

/* A few steps with so many threads; where they end badly, the count has no times. */
static vp_status run_steps(vp_session *s, const vp_text *plan, double step_s, count *c, vp_err *err)
{
    vp_child_result child = {0};
    vp_err          inner = {0};
    char            steps[16];
    int             n_steps = step_s > SLOW_S ? SLOW_STEPS : STEPS;
    vp_status       st      = VP_OK;

    snprintf(steps, sizeof steps, "%d", n_steps);
    char *argv[] = {s->runner, "-", "--steps", steps, "--json", NULL};
    vp_session_doing(s, "looking at %d thread%s", c->threads, c->threads == 1 ? "" : "s");
    set_threads(c->threads);
    VP_TRY(vp_session_run(s, argv, plan, 60 + 40 * n_steps * step_s, &child, err));
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (child.end == VP_CHILD_EXITED && child.exit_code == 0 &&
        read_steps(child.out, child.n_out, c, &inner) != VP_OK)
        c->n = 0;
out:
    vp_child_result_release(&child);
    return st;
}

static double median_of(const count *c)
{
    double sorted[ROUNDS * STEPS];

    memcpy(sorted, c->step_s, (size_t)c->n * sizeof *sorted);
    return c->n ? vp_median(sorted, c->n) : INFINITY;
}

/* All cores, half of them, and so on, as long as it helps. */
static vp_status try_counts(vp_session *s, const vp_text *plan, int most, double step_s,
                            count *counts, int *n, vp_err *err)
{
    double    fastest_s = INFINITY;
    vp_status st        = VP_OK;

    *n = 0;
    for (int k = most; k >= 1 && *n < VP_MAX_THREADS_TRIED; k /= 2) {
        count *c = &counts[(*n)++];
        *c       = (count){.threads = k};
        VP_TRY(run_steps(s, plan, step_s, c, err));
        if (median_of(c) > HOPELESS * fastest_s)
            break;
        fastest_s = fmin(fastest_s, median_of(c));
    }
    for (int r = 1; r < ROUNDS && step_s <= SLOW_S; r++)
        for (int i = 0; i < *n; i++)
            VP_TRY(run_steps(s, plan, step_s, &counts[i], err));
out:
    return st;
}

/* The fastest; of those that are as fast, the fewest threads. */
static void choose(vp_session *s, count *counts, int n, vp_tune_result *result)
{
    double best_s = INFINITY;
    char   time[32];

    for (int i = 0; i < n; i++) {
        double median_s = median_of(&counts[i]);
        if (!isfinite(median_s))
            continue;
        if (median_s <= best_s || median_s * NO_FASTER <= best_s)
            result->threads = counts[i].threads;
        best_s                           = fmin(best_s, median_s);
        result->tried[result->n_tried++] = (vp_threads_tried){
            counts[i].threads,
            {median_s, vp_middle_error(counts[i].step_s, counts[i].n) / median_s}};
        vp_session_note(s, "%d thread%s: %s a step", counts[i].threads,
                        counts[i].threads == 1 ? "" : "s",
                        vp_time_text(median_s, time, sizeof time));
    }
}

static vp_status first_plan(const vp_planning *planning, const vp_plan_answer *space, vp_text *text,
                            vp_err *err)
{
    vp_plan  *plan = NULL;
    json_t   *json = NULL;
    vp_status st   = VP_OK;

    assert(space->n_candidates > 0);
    VP_TRY(vp_planner_make(&planning->request, space, &space->candidates[0], &plan, err));
    json = vp_plan_to_json(plan);
    VP_TRY_ALLOC(err, json && vp_json_dump(json, text));
out:
    json_decref(json);
    vp_plan_free(plan);
    return st;
}

vp_status vp_threads_choose(vp_session *s, const vp_planning *planning, const vp_plan_answer *space,
                            vp_tune_result *result, vp_err *err)
{
    vp_text   plan = {0};
    count     counts[VP_MAX_THREADS_TRIED];
    int       n = 0, known = 0, most = s->n_threads;
    vp_status st = VP_OK;

    result->threads = most;
    if (!s->request->device->is_cpu || most <= 1 || getenv("OMP_NUM_THREADS"))
        return VP_OK;
    VP_TRY(vp_session_known_threads(s, &known, err));
    if (known > 0 && known <= most) {
        result->threads = known;
    } else {
        VP_TRY(first_plan(planning, space, &plan, err));
        VP_TRY(
            try_counts(s, &plan, most, space->candidates[0].figures.step_time_s, counts, &n, err));
        choose(s, counts, n, result);
    }
    set_threads(result->threads);
out:
    vp_text_release(&plan);
    return st;
}
