#include "tuner/tune.h"

#include "core/checked.h"
#include "core/child.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/stats.h"
#include "core/text.h"
#include "core/units.h"
#include "tuner/correct.h"
#include "tuner/race.h"
#include "tuner/study.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_STEPS      = 4,        /* of a trial; the first does not count                  */
    MAX_STEPS      = 20,
    MAX_TRIES      = 2,        /* of a trial whose tuner dies while it runs              */
    MAX_RUNS       = 2,        /* of the best and what is near it                       */
    MAX_CONTENDERS = 6,
    MAX_NEAR       = 3,        /* plans run only because a race may show them faster   */
    MIN_ROUNDS     = 12,       /* of a race, and then as many as there were, up to       */
    MAX_ROUNDS     = 96,
    MAX_WALK       = 12,       /* plans looked at below the budget for one not yet tested */
    MAX_JSON_BYTES = 4 << 20
};
static const double ENOUGH_S    = 2;     /* of steps in a trial                          */
static const double RACE_S      = 180;   /* of a race; no rounds begin that would end later */
static const double SURE        = 2;     /* standard errors behind the fastest: out of the race */
static const double MEMORY_USED = 0.8;   /* at most, of what is free, by plans that race */
static const double WORTH_IT    = 0.01;  /* a plan that promises less is not run         */
static const double NEAR_BEST   = 0.1;   /* what is expected within this is run again    */
static const double MODEL_OFF   = 0.05;  /* of a corrected profile, typically, as ln(measured / predicted) */
static const double FAR_OFF     = 0.2;   /* a given profile at this distance from a trial is not used */

static const char *const verdict_names[VP_N_VERDICTS] = {"ok",  "oom-host",     "timeout",     "crash",
                                                         "nan", "wrong-result", "interrupted", "does-not-fit"};

const char *vp_verdict_name(vp_verdict v)
{
    return verdict_names[v];
}

/* One call of vp_tune(). */
typedef struct tuner {
    const vp_plan_request *request;          /* asked, but for the device below */
    const vp_tune_opts    *opts;
    vp_tune_result        *result;
    vp_plan_request        asked;
    vp_device              device;           /* with what lies outside the arena, as soon as it was measured */
    vp_study              *study;
    int64_t                request_id;
    char                   runner[1100];
    char                   backend[200], build[17];
    int64_t                free_bytes;       /* of the device, before anything ran */
    vp_profile            *base;             /* before corrections            */
    int64_t                profile_id;       /* of what plans are made with now; 0: not in the study yet */
    vp_profile_kind        profile_kind;
    bool                   base_is_given;
    vp_preset             *presets;          /* as planned with base          */
    int64_t                n_presets;
    vp_study_trial        *rows;             /* of result->trials, one each   */
    int64_t                cap_trials, cap_rows;
    int64_t                n_beside;         /* trials that are no preset     */
    int64_t                n_planned_for;    /* trials that the answer knows; -1: not all their runs */
    int64_t                n_near;           /* trials of MAX_NEAR            */
    struct contender {
        int64_t trial_idx;
        double  expected_s;
        double *step_s;                      /* of its rounds in the race                                                  */
        int64_t n_rounds;
        double  behind;                      /* ln of its seconds over the fastest's, when it left the race or the race ended */
    } contenders[MAX_CONTENDERS];            /* of which one is the best, in order of what is expected; in a race, of who is left */
    int64_t                n_contenders;
} tuner;

static void note(const tuner *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(const tuner *t, const char *fmt, ...)
{
    char    text[600];
    va_list args;

    if (!t->opts->note)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    t->opts->note(text);
}

/* ---- what runs here ---- */

static vp_status hash_file(const char *path, char text[65], vp_err *err)
{
    FILE          *f = fopen(path, "rbe");
    vp_sha256      h = vp_sha256_begin();
    unsigned char  piece[1 << 14];
    size_t         n;

    if (!f)
        return VP_FAIL_AT(err, VP_ERR_DEVICE, path, 0, NULL, "cannot be read: %s", strerror(errno));
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        vp_sha256_add(&h, piece, n);
    fclose(f);
    vp_sha256_hex(&h, text);
    return VP_OK;
}

/* Without a plan the runner must be told whose kernels are meant; NULL: the CPU's, where the words end. */
static char *backend_option(const tuner *t)
{
    static char option[] = "--backend";
    return t->request->device->is_cpu ? NULL : option;
}

static vp_status find_runner(tuner *t, vp_err *err)
{
    vp_child_result child = {0};
    vp_json_doc    *doc   = NULL;
    const char     *text;
    char            hash[65];
    vp_status       st = VP_OK;

    if (t->opts->runner)
        snprintf(t->runner, sizeof t->runner, "%s", t->opts->runner);
    else
        VP_TRY(vp_file_find_program("vplan-run", t->runner, sizeof t->runner, err));
    VP_TRY(hash_file(t->runner, hash, err));
    snprintf(t->build, sizeof t->build, "%.16s", hash);
    char *argv[] = {t->runner, "--describe", backend_option(t), "cuda", NULL};
    vp_child_opts run = {.argv = argv, .out = VP_CHILD_CAPTURE, .err = VP_CHILD_CAPTURE, .max_output_bytes = MAX_JSON_BYTES, .timeout_s = 60};
    VP_TRY(vp_child_run(&run, &child, err));
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (child.end != VP_CHILD_EXITED || child.exit_code != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s cannot say what runs here: %.400s", t->runner, child.n_err ? child.err : "it gave no reason"));
    VP_TRY(vp_json_parse("vplan-run --describe", child.out, (int64_t)child.n_out, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_string(&root, "description", &text, err));
    snprintf(t->backend, sizeof t->backend, "%s", text);
    VP_TRY(vp_json_int(&root, "free_bytes", 0, INT64_MAX, &t->free_bytes, err));
out:
    vp_json_doc_free(doc);
    vp_child_result_release(&child);
    return st;
}

/* ---- profile ---- */

static vp_status collect_program(const vp_program *p, vp_profile *calls, vp_err *err)
{
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++) {
            vp_profile_row row = {.kernel = p->steps[pass][i].kernel, .dtype = p->steps[pass][i].dtype};
            memcpy(row.ints, p->steps[pass][i].ints, sizeof row.ints);
            if (!vp_profile_add(calls, &row))
                return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        }
    return VP_OK;
}

/* Every distinct call of the space: recompute only repeats calls that are there already. Chunks of the loss are timed at the
 * smallest, at 1,024 tokens and whole, and scaled between. */
static vp_status collect_calls(const vp_plan_request *r, const vp_plan_answer *a, vp_profile *calls, vp_err *err)
{
    vp_cost   cost = {.device = r->device};
    vp_status st   = VP_OK;

    for (int64_t i = 0; i < a->n_scenarios; i++) {
        const vp_scenario *s    = &a->scenarios[i].scenario;
        vp_plan           *plan = NULL;
        if (s->loss_chunk != 0 && s->loss_chunk != VP_TILE_TOKENS && s->loss_chunk != 1024 && r->loss_chunk < 0)
            continue;
        VP_TRY(vp_assemble(r->model, s, &cost, &plan, err));
        for (int64_t k = 0; st == VP_OK && k < plan->buckets[0].n_programs; k++)
            st = collect_program(&plan->buckets[0].programs[k], calls, err);
        vp_plan_free(plan);
        VP_TRY(st);
    }
out:
    return st;
}

/* Time calls alone, in a child. */
static vp_status time_calls(const tuner *t, const vp_profile *calls, vp_profile **out, vp_err *err)
{
    json_t         *request = vp_profile_to_json(calls);
    vp_json_doc    *doc     = NULL;
    vp_text         text    = {0};
    vp_child_result child   = {0};
    char            seconds[32];
    vp_status       st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, request && vp_json_dump(request, &text));
    note(t, "timing %lld kernel calls", (long long)calls->n_rows);
    snprintf(seconds, sizeof seconds, "%lld", (long long)(t->opts->profile_s > 0 ? t->opts->profile_s : 120));
    char *argv[] = {(char *)(uintptr_t)t->runner, "--profile", "-", "--seconds", seconds, backend_option(t), "cuda", NULL};
    vp_child_opts run = {.argv = argv, .stdin_bytes = text.data, .n_stdin_bytes = text.n_bytes, .out = VP_CHILD_CAPTURE,
                         .err = VP_CHILD_CAPTURE, .max_output_bytes = MAX_JSON_BYTES, .timeout_s = 600};
    VP_TRY(vp_child_run(&run, &child, err));
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (child.end != VP_CHILD_EXITED || child.exit_code != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "profiling failed: %.400s", child.n_err ? child.err : "vplan-run gave no reason"));
    VP_TRY(vp_json_parse("profile", child.out, (int64_t)child.n_out, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_profile_from_json(&root, out, err));
out:
    vp_json_doc_free(doc);
    vp_child_result_release(&child);
    vp_text_release(&text);
    json_decref(request);
    return st;
}

/* t->base: what the study has of this device, backend and build; the calls it lacks are timed now and kept there. */
static vp_status measure_base(tuner *t, const vp_plan_answer *space, vp_err *err)
{
    vp_profile *calls = vp_profile_new(), *lacking = vp_profile_new(), *known = vp_profile_new(), *timed = NULL;
    bool        measured;
    int64_t     id;
    vp_status   st = VP_OK;

    t->profile_id   = 0;
    t->profile_kind = VP_PROFILE_CORRECTED;
    VP_TRY_ALLOC(err, calls && lacking && known);
    snprintf(known->device, sizeof known->device, "%s", t->request->device->name);
    snprintf(known->backend, sizeof known->backend, "%s", t->backend);
    VP_TRY(vp_study_measured(t->study, known->device, known->backend, t->build, known, err));
    VP_TRY(collect_calls(t->request, space, calls, err));
    for (int64_t i = 0; i < calls->n_rows; i++) {
        vp_profile_seconds(known, calls->rows[i].kernel, calls->rows[i].dtype, calls->rows[i].ints, &measured);
        if (!measured)
            VP_TRY_ALLOC(err, vp_profile_add(lacking, &calls->rows[i]));
    }
    if (lacking->n_rows) {
        VP_TRY(time_calls(t, lacking, &timed, err));
        memcpy(timed->device, known->device, sizeof timed->device);
        memcpy(timed->backend, known->backend, sizeof timed->backend);
        memcpy(timed->outside.device, known->device, sizeof timed->outside.device);
        if (known->n_rows > 0)
            timed->outside = (vp_outside){0}; /* modules of the calls known before were not loaded */
        VP_TRY(vp_study_add_profile(t->study, VP_PROFILE_MEASURED, timed, t->build, &id, err));
        t->profile_id = known->n_rows == 0 ? id : 0; /* else it is put together from several */
        vp_outside_take(&known->outside, &timed->outside);
        for (int64_t i = 0; i < timed->n_rows; i++)
            VP_TRY_ALLOC(err, vp_profile_add(known, &timed->rows[i]));
    }
    vp_profile_free(t->base);
    t->base = known;
    known   = NULL;
out:
    vp_profile_free(calls);
    vp_profile_free(lacking);
    vp_profile_free(known);
    vp_profile_free(timed);
    return st;
}

static vp_status copy_profile(const vp_profile *from, vp_profile **out, vp_err *err)
{
    *out = vp_profile_new();
    for (int64_t i = 0; *out && i < from->n_rows; i++)
        if (!vp_profile_add(*out, &from->rows[i])) {
            vp_profile_free(*out);
            *out = NULL;
        }
    if (!*out)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    memcpy((*out)->device, from->device, sizeof from->device);
    memcpy((*out)->backend, from->backend, sizeof from->backend);
    (*out)->outside = from->outside;
    return VP_OK;
}

/* ---- plans as text: one text, one plan ---- */

static json_t *recompute_names(const vp_template *block, uint64_t set)
{
    json_t *names = json_array();

    for (int i = 0; i < block->n_ops; i++)
        if (set >> i & 1)
            json_array_append_new(names, json_string(block->ops[i].name));
    return names;
}

static const char *decisions_text(vp_arena *arena, const vp_model *model, const vp_scenario *s)
{
    const vp_template *block  = &model->graph.templates[vp_block_template(&model->graph)];
    json_t            *blocks = json_array();

    for (int i = 0; i < s->n_runs; i++)
        json_array_append_new(blocks, json_pack("{s:I, s:I, s:o}", "n_blocks", (json_int_t)s->runs[i].n_blocks, "segment",
                                                (json_int_t)s->runs[i].segment, "recompute",
                                                s->runs[i].segment > 1 ? json_array() : recompute_names(block, s->runs[i].recompute)));
    json_t     *j    = json_pack("{s:I, s:I, s:s, s:s, s:s, s:o}", "micro_batch", (json_int_t)s->micro_batch, "loss_chunk_tokens",
                                 (json_int_t)s->loss_chunk, "attention", vp_attention_name(s->attention), "precision",
                                 vp_precision_name(s->recipe.precision), "optimizer", vp_optimizer_name(s->recipe.optimizer), "blocks", blocks);
    char       *dump = j ? json_dumps(j, JSON_COMPACT) : NULL;
    const char *text = dump ? vp_arena_strdup(arena, dump) : NULL;
    free(dump);
    json_decref(j);
    return text;
}

/* Attention, precision and optimizer: a study from before they were free says nothing of them, and means the request's. */
static vp_status read_kinds(const vp_json_node *root, vp_scenario *s, vp_err *err)
{
    const char *text;
    vp_status   st = VP_OK;

    if (vp_json_has(root, "attention")) {
        VP_TRY(vp_json_string(root, "attention", &text, err));
        s->attention = vp_attention_by_name(text);
    }
    if (vp_json_has(root, "precision")) {
        VP_TRY(vp_json_string(root, "precision", &text, err));
        s->recipe.precision = vp_precision_by_name(text);
    }
    if (vp_json_has(root, "optimizer")) {
        VP_TRY(vp_json_string(root, "optimizer", &text, err));
        if (vp_optimizer_by_name(text) == VP_N_OPTIMIZERS)
            VP_TRY(vp_json_fail(root, "optimizer", err, "no such optimizer"));
        if (vp_optimizer_by_name(text) != s->recipe.optimizer)
            vp_recipe_set_optimizer(&s->recipe, vp_optimizer_by_name(text));
    }
    if (s->attention == VP_N_ATTENTIONS || s->recipe.precision == VP_N_PRECISIONS)
        VP_TRY(vp_json_fail(root, NULL, err, "names an attention or a precision that there is not"));
out:
    return st;
}

static vp_status read_run(const vp_json_node *node, const vp_model *model, vp_block_run *run, vp_err *err)
{
    const vp_template *block = &model->graph.templates[vp_block_template(&model->graph)];
    vp_json_node       names, name;
    const char        *text;
    int64_t            n;
    vp_status          st = VP_OK;

    VP_TRY(vp_json_int(node, "n_blocks", 1, 1000000, &run->n_blocks, err));
    VP_TRY(vp_json_int(node, "segment", 1, vp_max_segment(model), &run->segment, err));
    VP_TRY(vp_json_array(node, "recompute", &names, &n, err));
    if (run->n_blocks % run->segment != 0 || (run->segment > 1 && n > 0))
        VP_TRY(vp_json_fail(node, NULL, err, "is no way to run blocks"));
    if (run->segment > 1)
        run->recompute = UINT64_MAX; /* of a segment everything */
    for (int64_t k = 0; k < n; k++) {
        int op = 0;
        VP_TRY(vp_json_element(&names, k, &name, err));
        VP_TRY(vp_json_as_string(&name, &text, err));
        while (op < block->n_ops && strcmp(block->ops[op].name, text) != 0)
            op++;
        if (op == block->n_ops || !(vp_recompute_set(model, VP_RECOMPUTE_FULL) >> op & 1))
            VP_TRY(vp_json_fail(&name, NULL, err, "is no op of this model's block that can be recomputed"));
        run->recompute |= (uint64_t)1 << op;
    }
out:
    return st;
}

static vp_status read_decisions(const tuner *t, const char *text, vp_scenario *out, vp_err *err)
{
    const vp_model *model = t->request->model;
    vp_json_doc    *doc = NULL;
    vp_json_node    runs, run;
    int64_t         n, n_blocks = 0;
    vp_status       st = VP_OK;

    *out = (vp_scenario){.recipe = t->request->recipe, .seq = t->request->seq, .global_batch = t->request->global_batch};
    VP_TRY(vp_json_parse("decisions", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_int(&root, "micro_batch", 1, out->global_batch, &out->micro_batch, err));
    VP_TRY(vp_json_int(&root, "loss_chunk_tokens", 0, INT64_C(1) << 40, &out->loss_chunk, err));
    VP_TRY(read_kinds(&root, out, err));
    VP_TRY(vp_json_array(&root, "blocks", &runs, &n, err));
    if (n > VP_MAX_RUNS || out->global_batch % out->micro_batch != 0 || out->loss_chunk % VP_TILE_TOKENS != 0)
        VP_TRY(vp_json_fail(&root, NULL, err, "are no plan of this request"));
    for (out->n_runs = 0; out->n_runs < n; out->n_runs++) {
        VP_TRY(vp_json_element(&runs, out->n_runs, &run, err));
        VP_TRY(read_run(&run, model, &out->runs[out->n_runs], err));
        n_blocks += out->runs[out->n_runs].n_blocks;
    }
    if (n_blocks != model->graph.n_instances - 2)
        VP_TRY(vp_json_fail(&root, "blocks", err, "has %lld blocks, the model %lld", (long long)n_blocks, (long long)model->graph.n_instances - 2));
out:
    vp_json_doc_free(doc);
    return st;
}

/* ---- trials: what is known of them ---- */

static bool same_scenario(const vp_scenario *a, const vp_scenario *b)
{
    return a->micro_batch == b->micro_batch && a->loss_chunk == b->loss_chunk && a->attention == b->attention
        && a->recipe.precision == b->recipe.precision && a->recipe.optimizer == b->recipe.optimizer && a->n_runs == b->n_runs
        && memcmp(a->runs, b->runs, (size_t)a->n_runs * sizeof *a->runs) == 0;
}

static int64_t find_trial(const vp_tune_result *r, const vp_scenario *s)
{
    int64_t k = 0;

    while (k < r->n_trials && !same_scenario(&r->trials[k].candidate.scenario, s))
        k++;
    return k;
}

static bool tested(const tuner *t, const vp_scenario *s)
{
    return find_trial(t->result, s) < t->result->n_trials;
}

static bool obeys_pins(const vp_plan_request *r, const vp_scenario *s)
{
    bool chunk = r->loss_chunk == VP_CHUNK_ANY || s->loss_chunk == r->loss_chunk || (r->loss_chunk == VP_CHUNK_CHUNKED && s->loss_chunk > 0);

    if (r->recompute != VP_RECOMPUTE_ANY)
        for (int i = 0; i < s->n_runs; i++)
            if (s->runs[i].segment > 1 || s->runs[i].recompute != vp_recompute_set(r->model, r->recompute))
                return false;
    return chunk && (!r->micro_batch || s->micro_batch == r->micro_batch) && (r->attention == VP_ATTENTION_ANY || s->attention == r->attention)
        && (r->any_precision || s->recipe.precision == r->recipe.precision) && (r->any_optimizer || s->recipe.optimizer == r->recipe.optimizer);
}

static vp_status add_trial(tuner *t, const vp_trial *trial, const vp_study_trial *row, vp_err *err)
{
    vp_tune_result *r = t->result;

    if (!vp_arena_grow(r->arena, (void **)&r->trials, r->n_trials, &t->cap_trials, sizeof *trial)
        || !vp_arena_grow(r->arena, (void **)&t->rows, r->n_trials, &t->cap_rows, sizeof *row))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    r->trials[r->n_trials] = *trial;
    t->rows[r->n_trials++] = *row;
    return VP_OK;
}

static vp_verdict verdict_by_name(const char *name)
{
    int v = 0;

    while (v < VP_N_VERDICTS && (!name || strcmp(verdict_names[v], name) != 0))
        v++;
    return (vp_verdict)v;
}

/* What the study has of this request. A plan whose tuner died MAX_TRIES times while it ran is taken to be the reason. */
static vp_status restore(tuner *t, vp_err *err)
{
    vp_study_trial *rows;
    int64_t         n, n_done = 0;
    vp_err          inner;
    vp_status       st = VP_OK;

    VP_TRY(vp_study_trials(t->study, t->result->arena, t->request_id, &rows, &n, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t n_interrupted = 0;
        for (int64_t k = 0; rows[i].state == VP_TRIAL_INTERRUPTED && k <= i; k++)
            n_interrupted += rows[k].state == VP_TRIAL_INTERRUPTED && strcmp(rows[k].decisions, rows[i].decisions) == 0;
        if (rows[i].state != VP_TRIAL_DONE && n_interrupted != MAX_TRIES)
            continue;
        vp_trial trial = {.id = rows[i].id, .preset = rows[i].preset, .from_study = true, .executed_bytes = rows[i].executed_bytes,
                          .measured_s = rows[i].measured_s, .n_runs = rows[i].n_runs, .evidence = rows[i].evidence,
                          .verdict = rows[i].state == VP_TRIAL_DONE ? verdict_by_name(rows[i].verdict) : VP_VERDICT_INTERRUPTED};
        inner = (vp_err){0};
        if (trial.verdict == VP_N_VERDICTS || read_decisions(t, rows[i].decisions, &trial.candidate.scenario, &inner) != VP_OK)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_STORAGE, t->opts->study, 0, trial.verdict == VP_N_VERDICTS ? "verdict" : "decisions", "trial %lld: %s",
                              (long long)rows[i].id, trial.verdict == VP_N_VERDICTS ? "is no verdict known here" : inner.message));
        vp_cost cost = {.device = t->request->device};
        VP_TRY(vp_assemble_figures(t->request->model, &trial.candidate.scenario, &cost, &trial.candidate.figures, err));
        trial.candidate.figures.step_time_s = rows[i].predicted_s;
        trial.candidate.fits                = trial.candidate.figures.device_bytes <= t->request->budget_bytes;
        if (tested(t, &trial.candidate.scenario) || !trial.candidate.fits || (!trial.preset && !obeys_pins(t->request, &trial.candidate.scenario)))
            continue;
        VP_TRY(add_trial(t, &trial, &rows[i], err));
        t->n_beside += trial.preset == NULL && rows[i].request_id == t->request_id;
        n_done++;
    }
    if (n_done)
        note(t, "%lld trial%s of the study %s not run again", (long long)n_done, n_done == 1 ? "" : "s", n_done == 1 ? "is" : "are");
out:
    return st;
}

/* ---- a trial ---- */

/* What one run of a child says. */
typedef struct answer {
    int64_t       executed_bytes;
    double        step_s[MAX_STEPS];
    int64_t       n_steps;
    vp_call_time *calls;
    int64_t       n_calls;
    vp_outside    outside;
} answer;

static vp_status read_call(const vp_json_node *node, vp_call_time *c, vp_err *err)
{
    const char *name;
    vp_status   st = VP_OK;

    VP_TRY(vp_json_string(node, "kernel", &name, err));
    c->row.kernel = vp_kernel_by_name(name);
    if (c->row.kernel == VP_N_KERNELS)
        VP_TRY(vp_json_fail(node, "kernel", err, "no such kernel"));
    c->row.dtype = VP_DTYPE_F32;
    if (vp_json_has(node, "dtype")) {
        VP_TRY(vp_json_string(node, "dtype", &name, err));
        c->row.dtype = vp_dtype_by_name(name);
        if (c->row.dtype == VP_N_DTYPES)
            VP_TRY(vp_json_fail(node, "dtype", err, "no such dtype"));
    }
    for (int k = 0; k < vp_kernel_info_of(c->row.kernel)->n_ints; k++)
        VP_TRY(vp_json_int(node, vp_kernel_info_of(c->row.kernel)->ints[k].name, 0, INT64_C(1) << 40, &c->row.ints[k], err));
    VP_TRY(vp_json_int(node, "calls", 1, INT64_MAX, &c->n_calls, err));
    VP_TRY(vp_json_real(node, "seconds", 0, 1e9, &c->row.seconds, err));
out:
    return st;
}

/* What `vplan-run --json` printed. outside and kernel_calls may be left out by another runner. */
static vp_status read_answer(vp_arena *arena, const char *text, size_t n_bytes, int64_t n_steps, answer *a, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_json_node memories, memory, list, node;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_parse("vplan-run", text, (int64_t)n_bytes, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_array(&root, "memories", &memories, &a->n_steps, err));
    VP_TRY(vp_json_element(&memories, 0, &memory, err));
    VP_TRY(vp_json_int(&memory, "executed_bytes", 0, INT64_MAX, &a->executed_bytes, err));
    VP_TRY(vp_json_array(&root, "steps", &list, &a->n_steps, err));
    if (a->n_steps != n_steps)
        VP_TRY(vp_json_fail(&root, "steps", err, "has %lld steps", (long long)a->n_steps));
    for (int64_t i = 0; i < n_steps; i++) {
        VP_TRY(vp_json_element(&list, i, &node, err));
        VP_TRY(vp_json_real(&node, "seconds", 0, 1e9, &a->step_s[i], err));
    }
    if (vp_json_has(&root, "outside")) {
        VP_TRY(vp_json_object(&root, "outside", &node, err));
        VP_TRY(vp_outside_from_json(&node, &a->outside, err));
    }
    if (!vp_json_has(&root, "kernel_calls"))
        goto out;
    VP_TRY(vp_json_array(&root, "kernel_calls", &list, &a->n_calls, err));
    a->calls = vp_arena_array(arena, a->n_calls, sizeof *a->calls);
    VP_TRY_ALLOC(err, a->calls);
    for (int64_t i = 0; i < a->n_calls; i++) {
        VP_TRY(vp_json_element(&list, i, &node, err));
        VP_TRY(read_call(&node, &a->calls[i], err));
    }
out:
    vp_json_doc_free(doc);
    return st;
}

/* Processes this kernel has killed for memory, here or anywhere it tells us of; -1: it does not tell. */
static int64_t count_oom_kills(void)
{
    static const char *const files[] = {"/proc/vmstat", "/sys/fs/cgroup/memory.events"};
    int64_t                  sum     = -1;
    char                     line[200];
    long long                n;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *f = fopen(files[i], "re");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "oom_kill %lld", &n) == 1)
                sum = (sum < 0 ? 0 : sum) + n;
        if (f)
            fclose(f);
    }
    return sum;
}

/* Why a child killed by a signal is taken to have died. SIGKILL alone proves nothing. */
static vp_verdict judge_signal(vp_arena *arena, const vp_child_result *c, int64_t n_oom_kills, const char **evidence)
{
    int64_t now = count_oom_kills();

    if (c->term_signal == SIGKILL && n_oom_kills >= 0 && now > n_oom_kills) {
        *evidence = vp_arena_printf(arena, "killed; the kernel counted %lld kill%s for memory meanwhile", (long long)(now - n_oom_kills),
                                    now - n_oom_kills == 1 ? "" : "s");
        return VP_VERDICT_OOM_HOST;
    }
    *evidence = vp_arena_printf(arena, "ended by signal %d%s", c->term_signal, c->term_signal != SIGKILL ? ""
                                : n_oom_kills < 0 ? "; whether for memory cannot be told here" : "; not by the kernel for memory");
    return VP_VERDICT_CRASH;
}

static vp_verdict judge(const tuner *t, const vp_child_result *c, int64_t n_oom_kills, int64_t n_steps, const vp_trial *trial, answer *a,
                        const char **evidence)
{
    vp_arena *arena  = t->result->arena;
    vp_err    reason = {0};
    char      shown[600];

    *evidence = "";
    if (c->n_err) {
        vp_text_escape(c->err + (c->n_err > 400 ? c->n_err - 400 : 0), shown, sizeof shown);
        *evidence = vp_arena_strdup(arena, shown);
    }
    switch (c->end) {
    case VP_CHILD_TIMED_OUT:
    case VP_CHILD_SILENT:
        *evidence = vp_arena_printf(arena, "ended after %.0f s", c->seconds);
        return VP_VERDICT_TIMEOUT;
    case VP_CHILD_SIGNALED:
        return judge_signal(arena, c, n_oom_kills, evidence);
    case VP_CHILD_INTERRUPTED:
        return VP_VERDICT_INTERRUPTED;
    case VP_CHILD_EXITED:
        break;
    }
    if (c->exit_code == vp_status_exit_code(VP_ERR_DEVICE))
        return VP_VERDICT_OOM_HOST;
    if (c->exit_code == vp_status_exit_code(VP_ERR_INPUT) && strstr(c->err, "diverged"))
        return VP_VERDICT_NAN;
    if (c->exit_code != 0)
        return VP_VERDICT_CRASH;
    if (read_answer(arena, c->out, c->n_out, n_steps, a, &reason) != VP_OK) {
        *evidence = vp_arena_strdup(arena, vp_err_text(&reason, shown, sizeof shown));
        return VP_VERDICT_CRASH;
    }
    if (a->executed_bytes != trial->candidate.figures.peak_bytes) {
        *evidence = vp_arena_printf(arena, "executed %lld bytes, planned %lld", (long long)a->executed_bytes,
                                    (long long)trial->candidate.figures.peak_bytes);
        return VP_VERDICT_WRONG_RESULT;
    }
    *evidence = "";
    return VP_VERDICT_OK;
}

static int64_t steps_for(double step_s)
{
    double n = step_s > 0 ? ceil(ENOUGH_S / step_s) + 1 : MAX_STEPS;
    return n < MIN_STEPS ? MIN_STEPS : n > MAX_STEPS ? MAX_STEPS : (int64_t)n;
}

/* A trial's plan with the profile of now. */
static vp_status plan_json(const tuner *t, const vp_trial *trial, json_t **out, vp_err *err)
{
    vp_plan_request planned = *t->request;
    vp_plan        *plan = NULL;
    vp_status       st = VP_OK;

    *out            = NULL;
    planned.profile = t->result->profile;
    VP_TRY(vp_planner_make(&planned, &t->result->answer, &trial->candidate, &plan, err));
    *out = vp_plan_to_json(plan);
    VP_TRY_ALLOC(err, *out);
out:
    vp_plan_free(plan);
    return st;
}

/* Run the candidate's plan once. The plan goes through a pipe: nothing is left behind by a kill. */
static vp_status run_child(const tuner *t, const vp_trial *trial, int64_t n_steps, answer *a, vp_verdict *verdict, const char **evidence, vp_err *err)
{
    json_t         *json = NULL;
    vp_text         text = {0};
    vp_child_result child = {0};
    char            steps[16];
    vp_status       st = VP_OK;

    VP_TRY(plan_json(t, trial, &json, err));
    VP_TRY_ALLOC(err, vp_json_dump(json, &text));
    snprintf(steps, sizeof steps, "%lld", (long long)n_steps);
    char *argv[] = {(char *)(uintptr_t)t->runner, "-", "--steps", steps, "--json", NULL};
    vp_child_opts run = {.argv = argv, .stdin_bytes = text.data, .n_stdin_bytes = text.n_bytes, .out = VP_CHILD_CAPTURE, .err = VP_CHILD_CAPTURE,
                         .max_output_bytes = MAX_JSON_BYTES, .timeout_s = 60 + 20 * (double)n_steps * trial->candidate.figures.step_time_s};
    int64_t n_oom_kills = count_oom_kills();
    VP_TRY(vp_child_run(&run, &child, err));
    *verdict = judge(t, &child, n_oom_kills, n_steps, trial, a, evidence);
out:
    vp_child_result_release(&child);
    vp_text_release(&text);
    json_decref(json);
    return st;
}

/* Add a run's steps and calls to the row; the median over all runs' steps but each first one. */
static vp_status take_answer(tuner *t, const answer *a, vp_study_trial *row, vp_trial *trial, vp_err *err)
{
    int64_t n       = 0;
    double *all     = vp_arena_array(t->result->arena, row->n_steps + a->n_steps, sizeof *all);
    double *counted = vp_arena_array(t->result->arena, row->n_steps + a->n_steps, sizeof *counted);

    if (!all || !counted)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (row->n_steps)
        memcpy(all, row->step_s, (size_t)row->n_steps * sizeof *all);
    memcpy(all + row->n_steps, a->step_s, (size_t)a->n_steps * sizeof *all);
    row->step_s = all;
    row->n_steps += a->n_steps;
    row->n_runs++;
    for (int64_t i = 0; i < row->n_steps; i++)
        if (i % a->n_steps != 0) /* every run of a plan has as many */
            counted[n++] = all[i];
    row->measured_s = vp_median(counted, n);
    if (a->n_calls) {
        row->calls   = a->calls;
        row->n_calls = a->n_calls;
    }
    if (a->outside.measured_by != VP_OUTSIDE_NOT_MEASURED) {
        vp_outside_take(&row->outside, &a->outside);
        memcpy(row->outside.device, t->device.name, sizeof row->outside.device);
        vp_outside_take(&t->base->outside, &row->outside);
    }
    row->executed_bytes   = a->executed_bytes;
    trial->executed_bytes = a->executed_bytes;
    trial->measured_s     = row->measured_s;
    trial->n_runs         = row->n_runs;
    return VP_OK;
}

/* Run a candidate that is not in result->trials yet; it is afterwards. */
static vp_status run_trial(tuner *t, const vp_candidate *candidate, const char *preset, vp_err *err)
{
    vp_trial        trial   = {.candidate = *candidate, .preset = vp_arena_strdup(t->result->arena, preset), .evidence = ""};
    vp_study_trial  row     = {.request_id = t->request_id, .preset = trial.preset, .predicted_bytes = candidate->figures.peak_bytes,
                               .predicted_s = candidate->figures.step_time_s, .evidence = ""};
    answer          a       = {0};
    char            x[32], y[32];
    vp_status       st = VP_OK;

    if (!t->profile_id)
        VP_TRY(vp_study_add_profile(t->study, t->profile_kind, t->result->profile, t->build, &t->profile_id, err));
    row.profile_id = t->profile_id;
    row.decisions  = decisions_text(t->result->arena, t->request->model, &candidate->scenario);
    VP_TRY_ALLOC(err, row.decisions);
    VP_TRY(vp_study_begin(t->study, t->request_id, &row, err));
    trial.id = row.id;
    VP_TRY(run_child(t, &trial, steps_for(candidate->figures.step_time_s), &a, &trial.verdict, &trial.evidence, err));
    if (trial.verdict == VP_VERDICT_INTERRUPTED) {
        VP_TRY(vp_study_cancel(t->study, row.id, err));
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    }
    VP_TRY_ALLOC(err, trial.evidence && !vp_arena_failed(t->result->arena));
    if (trial.verdict == VP_VERDICT_OK)
        VP_TRY(take_answer(t, &a, &row, &trial, err));
    note(t, "trial %lld: %s%s%s, %s predicted, %s measured", (long long)trial.id, preset ? preset : "", preset ? ": " : "", vp_verdict_name(trial.verdict),
         vp_time_text(candidate->figures.step_time_s, x, sizeof x), trial.measured_s > 0 ? vp_time_text(trial.measured_s, y, sizeof y) : "nothing");
    row.verdict  = vp_verdict_name(trial.verdict);
    row.evidence = trial.evidence;
    row.state    = VP_TRIAL_DONE;
    VP_TRY(vp_study_finish(t->study, &row, err));
    VP_TRY(add_trial(t, &trial, &row, err));
    t->n_beside += preset == NULL;
out:
    return st;
}

/* ---- the loop ---- */

/* With what lies outside the arena as measured, plans that were run may be too large for the budget after all. */
static void calibrate(tuner *t, const vp_profile *profile)
{
    vp_tune_result *result = t->result;
    int64_t         before_bytes = t->device.outside_bytes;
    char            x[32], y[32];

    if (!vp_device_calibrate(&t->device, profile))
        return;
    if (t->device.outside_bytes != before_bytes)
        note(t, "outside the arena: %s measured, was %s", vp_size_text(t->device.outside_bytes, x, sizeof x), vp_size_text(before_bytes, y, sizeof y));
    for (int64_t i = 0; i < result->n_trials; i++) {
        vp_candidate *c         = &result->trials[i].candidate;
        c->figures.device_bytes = vp_device_bytes(&t->device, c->figures.peak_bytes);
        c->fits                 = c->figures.device_bytes <= t->request->budget_bytes;
    }
}

/* Plan with profile, which becomes the result's. */
static vp_status plan_with(tuner *t, vp_profile *profile, bool prove, vp_err *err)
{
    calibrate(t, profile);
    vp_plan_request r = *t->request;

    vp_profile_free(t->result->profile);
    t->result->profile = profile;
    r.profile          = profile;
    r.no_proof         = !prove || t->request->no_proof;
    vp_plan_answer_release(&t->result->answer);
    return vp_planner_run(&r, &t->result->answer, err);
}

/* Plan with the base profile, and take the presets as they come out of it. */
static vp_status plan_with_base(tuner *t, vp_err *err)
{
    vp_profile *copy = NULL;
    vp_arena   *arena = t->result->arena;
    vp_status   st = VP_OK;

    VP_TRY(copy_profile(t->base, &copy, err));
    VP_TRY(plan_with(t, copy, false, err));
    const vp_plan_answer *a = &t->result->answer;
    t->presets   = vp_arena_array(arena, a->n_presets, sizeof *t->presets);
    t->n_presets = a->n_presets;
    VP_TRY_ALLOC(err, t->presets);
    for (int64_t i = 0; i < a->n_presets; i++)
        t->presets[i] = (vp_preset){vp_arena_strdup(arena, a->presets[i].name), a->presets[i].candidate};
out:
    return st;
}

static vp_status replan(tuner *t, bool prove, vp_err *err)
{
    vp_profile *corrected = NULL;
    vp_status   st = VP_OK;

    VP_TRY(vp_correct_profile(t->base, t->rows, t->result->n_trials, &corrected, err));
    t->profile_id   = 0;
    t->profile_kind = VP_PROFILE_CORRECTED;
    VP_TRY(plan_with(t, corrected, prove, err));
out:
    return st;
}

/* A given profile is believed until a trial contradicts it. */
static vp_status doubt_given(tuner *t, const vp_plan_answer *space, vp_err *err)
{
    double    off = t->base_is_given ? vp_profile_distance(t->base, t->rows, t->result->n_trials) : 0;
    vp_status st  = VP_OK;

    if (off <= FAR_OFF)
        return VP_OK;
    note(t, "the given profile is off by a factor of %.2f in what was run: measuring here", exp(off));
    t->base_is_given = false;
    VP_TRY(measure_base(t, space, err));
    VP_TRY(plan_with_base(t, err));
out:
    return st;
}

/* The fastest plan not yet tested: of the answer's, else, since that names one plan a scenario, the fastest that needs less
 * memory than those tested. fits false: none. */
static vp_status next_candidate(tuner *t, vp_candidate *out, vp_err *err)
{
    const vp_plan_answer *a = &t->result->answer;
    vp_plan_request       r = *t->request;
    int64_t               budget_bytes = t->request->budget_bytes;
    double                step_s;
    vp_status             st = VP_OK;

    *out      = (vp_candidate){0};
    r.profile = t->result->profile;
    for (int64_t i = 0; i < a->n_candidates && !out->fits; i++)
        if (!tested(t, &a->candidates[i].scenario) && obeys_pins(t->request, &a->candidates[i].scenario))
            *out = a->candidates[i];
    for (int k = 0; k < MAX_WALK; k++) {
        vp_candidate c = {0};
        VP_TRY(vp_planner_at_budget(&r, a, budget_bytes, &step_s, &c, err));
        if (step_s < 0 || (out->fits && step_s >= out->figures.step_time_s))
            break;
        if (!tested(t, &c.scenario)) {
            c.fits = true;
            *out   = c;
            break;
        }
        budget_bytes = c.figures.device_bytes - 1;
    }
out:
    return st;
}

static vp_status run_presets(tuner *t, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t p = 0; p < t->n_presets; p++) {
        const vp_candidate *c = &t->presets[p].candidate;
        int64_t             k = find_trial(t->result, &c->scenario);
        if (k < t->result->n_trials) {
            t->n_beside -= t->result->trials[k].preset == NULL && t->rows[k].request_id == t->request_id;
            t->result->trials[k].preset = t->presets[p].name;
        } else if (c->fits) {
            VP_TRY(run_trial(t, c, t->presets[p].name, err));
        }
    }
out:
    return st;
}

/* What the profile of now says of a plan that ran. */
static vp_status predicted_now(const tuner *t, const vp_scenario *s, double *step_s, vp_err *err)
{
    vp_cost    cost = {.device = t->request->device, .profile = t->result->profile};
    vp_figures figures;
    vp_status  st = VP_OK;

    VP_TRY(vp_assemble_figures(t->request->model, s, &cost, &figures, err));
    *step_s = figures.step_time_s;
out:
    return st;
}

/* What is expected of trials, from what each measured and what the profile, which knows them all, says of it now. Both are right with their own
 * weight: the profile is off by MODEL_OFF, a measurement by as much as measurements scatter about the profile. On a quiet machine what was
 * measured counts, on a busy one what is predicted. */
typedef struct expectation {
    double  off;                 /* median of ln(measured / predicted)        */
    double *step_s;              /* by trial; INFINITY of one that cannot be the best */
} expectation;

static vp_status expect(const tuner *t, expectation *e, vp_err *err)
{
    int64_t   n = t->result->n_trials, n_off = 0;
    double   *predicted = vp_arena_array(t->result->arena, n, sizeof *predicted);
    double   *off       = vp_arena_array(t->result->arena, n, sizeof *off);
    vp_status st = VP_OK;

    e->step_s = vp_arena_array(t->result->arena, n, sizeof *e->step_s);
    VP_TRY_ALLOC(err, predicted && off && e->step_s);
    for (int64_t i = 0; i < n; i++) {
        const vp_trial *x = &t->result->trials[i];
        e->step_s[i] = INFINITY;
        if (x->verdict != VP_VERDICT_OK)
            continue;
        VP_TRY(predicted_now(t, &x->candidate.scenario, &predicted[i], err));
        off[n_off++] = log(x->measured_s / predicted[i]);
    }
    e->off = vp_median(off, n_off);
    for (int64_t i = 0; i < n_off; i++)
        off[i] = fabs(off[i] - e->off);
    double scatter = 1.4826 * vp_median(off, n_off); /* the standard deviation, were it normal */
    double weight  = MODEL_OFF * MODEL_OFF / (MODEL_OFF * MODEL_OFF + scatter * scatter);
    for (int64_t i = 0; i < n; i++) {
        const vp_trial *x = &t->result->trials[i];
        if (x->verdict == VP_VERDICT_OK && x->candidate.fits && obeys_pins(t->request, &x->candidate.scenario))
            e->step_s[i] = exp(weight * log(x->measured_s) + (1 - weight) * (log(predicted[i]) + e->off));
    }
out:
    return st;
}

/* The best plan that nobody ran, by the profile refined with all trials, and what it is predicted to take over what is expected of the best that
 * ran. *over_best INFINITY: there is none. */
static vp_status next_untested(tuner *t, vp_candidate *c, double *over_best, vp_err *err)
{
    expectation e;
    double      best_s = INFINITY;
    vp_status   st = VP_OK;

    *over_best = INFINITY;
    if (t->n_planned_for != t->result->n_trials)
        VP_TRY(replan(t, false, err));
    t->n_planned_for = t->result->n_trials;
    VP_TRY(next_candidate(t, c, err));
    if (!c->fits)
        goto out;
    VP_TRY(expect(t, &e, err));
    for (int64_t i = 0; i < t->result->n_trials; i++)
        best_s = fmin(best_s, e.step_s[i]);
    *over_best = c->figures.step_time_s * exp(e.off) / best_s;
out:
    return st;
}

/* Run the best not yet tested, as long as it promises something. */
static vp_status improve(tuner *t, vp_err *err)
{
    vp_candidate c;
    double       over_best;
    vp_status    st = VP_OK;

    for (t->n_planned_for = -1;;) {
        VP_TRY(next_untested(t, &c, &over_best, err));
        if (!c.fits) {
            t->result->stopped_because = "every plan that was found within the budget was run";
            break;
        }
        if (over_best > 1 - WORTH_IT) {
            t->result->stopped_because = "no untested plan is predicted to beat the best measured one by 1 %";
            break;
        }
        if (t->n_beside >= t->opts->max_trials) {
            t->result->stopped_because = "--max-trials plans were run beside the presets";
            break;
        }
        VP_TRY(run_trial(t, &c, NULL, err));
    }
out:
    return st;
}

/* Run what promises nothing, but lies so near that the profile cannot tell: a race can. */
static vp_status run_near(tuner *t, vp_err *err)
{
    vp_candidate c;
    double       over_best;
    vp_status    st = VP_OK;

    for (; t->n_near < MAX_NEAR && t->n_beside < t->opts->max_trials; t->n_near++) {
        VP_TRY(next_untested(t, &c, &over_best, err));
        if (over_best > 1 + MODEL_OFF)
            break;
        VP_TRY(run_trial(t, &c, NULL, err));
    }
out:
    return st;
}

static int by_expected(const void *a, const void *b)
{
    const struct contender *x = a, *y = b;
    return (x->expected_s > y->expected_s) - (x->expected_s < y->expected_s);
}

/* Those near the best by what is expected, and at least two: one trial that a quiet moment made fast must not win alone. */
static vp_status choose_contenders(tuner *t, vp_err *err)
{
    int64_t           n   = t->result->n_trials;
    struct contender *all = vp_arena_array(t->result->arena, n, sizeof *all);
    expectation       e;
    vp_status         st = VP_OK;

    VP_TRY_ALLOC(err, all);
    VP_TRY(expect(t, &e, err));
    t->n_contenders = 0;
    for (int64_t i = 0; i < n; i++)
        all[i] = (struct contender){.trial_idx = i, .expected_s = e.step_s[i]};
    qsort(all, (size_t)n, sizeof *all, by_expected);
    for (int64_t i = 0; i < n && i < MAX_CONTENDERS && isfinite(all[i].expected_s) && (i < 2 || all[i].expected_s <= (1 + NEAR_BEST) * all[0].expected_s); i++)
        t->contenders[t->n_contenders++] = all[i];
out:
    return st;
}

/* How many of the contenders, the first ones, fit side by side. */
static int64_t n_together(const tuner *t)
{
    double  left_bytes = MEMORY_USED * (double)t->free_bytes;
    int64_t n = 0;

    while (n < t->n_contenders && (left_bytes -= (double)t->result->trials[t->contenders[n].trial_idx].candidate.figures.device_bytes) >= 0)
        n++;
    return n;
}

/* What `vplan-run --compare` printed of the first n contenders, behind the rounds they have. */
static vp_status read_rounds(tuner *t, int64_t n, const char *text, size_t n_bytes, int64_t n_more, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_json_node plans, plan, steps;
    int64_t      n_here, executed_bytes;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_parse("vplan-run --compare", text, (int64_t)n_bytes, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_array(&root, "plans", &plans, &n_here, err));
    if (n_here != n)
        VP_TRY(vp_json_fail(&root, "plans", err, "has %lld plans", (long long)n_here));
    for (int64_t i = 0; i < n; i++) {
        struct contender *x = &t->contenders[i];
        VP_TRY(vp_json_element(&plans, i, &plan, err));
        VP_TRY(vp_json_int(&plan, "executed_bytes", 0, INT64_MAX, &executed_bytes, err));
        if (executed_bytes != t->result->trials[x->trial_idx].candidate.figures.peak_bytes)
            VP_TRY(vp_json_fail(&plan, "executed_bytes", err, "is not what was planned"));
        VP_TRY(vp_json_array(&plan, "step_s", &steps, &n_here, err));
        if (n_here != n_more)
            VP_TRY(vp_json_fail(&plan, "step_s", err, "has %lld steps", (long long)n_here));
        for (int64_t r = 0; r < n_more; r++) {
            vp_json_node s;
            VP_TRY(vp_json_element(&steps, r, &s, err));
            VP_TRY(vp_json_as_real(&s, 1e-9, 1e9, &x->step_s[x->n_rounds + r], err));
        }
    }
    for (int64_t i = 0; i < n; i++)
        t->contenders[i].n_rounds += n_more;
out:
    vp_json_doc_free(doc);
    return st;
}

/* n_more rounds of the first n contenders, all alive in one process, a step of each in turns. *done false: that failed, and why was said. */
static vp_status run_rounds(tuner *t, int64_t n, int64_t n_more, double round_s, bool *done, double *spent_s, vp_err *err)
{
    json_t         *plans = json_array(), *plan;
    vp_text         text  = {0};
    vp_child_result child = {0};
    vp_err          why   = {0};
    char            steps[24];
    vp_status       st = VP_OK;

    *done = false;
    VP_TRY_ALLOC(err, plans);
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(plan_json(t, &t->result->trials[t->contenders[i].trial_idx], &plan, err));
        VP_TRY_ALLOC(err, json_array_append_new(plans, plan) == 0);
    }
    VP_TRY_ALLOC(err, vp_json_dump(plans, &text));
    note(t, "a race of %lld plans: %lld steps of each, in turns", (long long)n, (long long)n_more);
    snprintf(steps, sizeof steps, "%lld", (long long)n_more);
    char *argv[] = {t->runner, "--compare", "-", "--steps", steps, "--json", NULL};
    vp_child_opts run = {.argv = argv, .stdin_bytes = text.data, .n_stdin_bytes = text.n_bytes, .out = VP_CHILD_CAPTURE, .err = VP_CHILD_CAPTURE,
                         .max_output_bytes = MAX_JSON_BYTES, .timeout_s = 120 + 20 * (double)n_more * round_s};
    VP_TRY(vp_child_run(&run, &child, err));
    *spent_s += child.seconds;
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (child.end != VP_CHILD_EXITED || child.exit_code != 0)
        note(t, "no race: %.400s", child.n_err ? child.err : "it ended without an answer");
    else if (read_rounds(t, n, child.out, child.n_out, n_more, &why) != VP_OK)
        note(t, "no race: %s", why.message);
    else
        *done = true;
out:
    vp_child_result_release(&child);
    vp_text_release(&text);
    json_decref(plans);
    return st;
}

/* Judge the first *n contenders by all their rounds. Who is surely behind the fastest goes behind those who are left, *n of them. *fastest_s is the
 * fastest's seconds; *told whether the rounds tell those who are left apart by what would be worth it. */
static vp_status judge_rounds(tuner *t, int64_t *n, double *fastest_s, bool *told, vp_err *err)
{
    const double     *step_s[MAX_CONTENDERS];
    double            seconds[MAX_CONTENDERS], error[MAX_CONTENDERS];
    struct contender  left[MAX_CONTENDERS], behind[MAX_CONTENDERS];
    int64_t           n_left = 0, n_behind = 0;
    vp_status         st = VP_OK;

    for (int64_t i = 0; i < *n; i++)
        step_s[i] = t->contenders[i].step_s;
    VP_TRY(vp_race_estimate(step_s, *n, t->contenders[0].n_rounds, seconds, error, err));
    *told      = true;
    *fastest_s = INFINITY;
    for (int64_t i = 0; i < *n; i++)
        *fastest_s = fmin(*fastest_s, seconds[i]);
    for (int64_t i = 0; i < *n; i++) {
        struct contender *x = &t->contenders[i];
        x->behind           = log(seconds[i] / *fastest_s);
        if (x->behind > SURE * error[i]) {
            behind[n_behind++] = *x;
        } else {
            left[n_left++] = *x;
            *told &= SURE * error[i] <= WORTH_IT;
        }
    }
    memcpy(t->contenders, left, (size_t)n_left * sizeof *left);
    memcpy(t->contenders + n_left, behind, (size_t)n_behind * sizeof *behind);
    *n = n_left;
out:
    return st;
}

static vp_status take_race(tuner *t, int64_t n, double fastest_s, vp_err *err)
{
    char      before[32], after[32];
    vp_status st = VP_OK;

    for (int64_t i = 0; i < n; i++) {
        const struct contender *c   = &t->contenders[i];
        vp_trial               *x   = &t->result->trials[c->trial_idx];
        vp_study_trial         *row = &t->rows[c->trial_idx];
        double                 *all = vp_arena_array(t->result->arena, row->n_steps + c->n_rounds, sizeof *all), seconds = fastest_s * exp(c->behind);
        VP_TRY_ALLOC(err, all);
        if (row->n_steps)
            memcpy(all, row->step_s, (size_t)row->n_steps * sizeof *all);
        memcpy(all + row->n_steps, c->step_s, (size_t)c->n_rounds * sizeof *all);
        note(t, "trial %lld in the race: %s after %lld rounds, was %s alone", (long long)x->id, vp_time_text(seconds, after, sizeof after),
             (long long)c->n_rounds, vp_time_text(x->measured_s, before, sizeof before));
        row->step_s = all;
        row->n_steps += c->n_rounds;
        row->n_runs     = row->n_runs < MAX_RUNS ? MAX_RUNS : row->n_runs + 1;
        row->measured_s = x->measured_s = seconds;
        x->n_runs       = row->n_runs;
        VP_TRY(vp_study_finish(t->study, row, err));
    }
out:
    return st;
}

/* The contenders that fit side by side take turns, a step each: on a machine that others use too the only way to tell plans apart that differ by less
 * than its weather. Who is surely behind leaves, the rest go on with twice the rounds, until one is left, or the rounds tell them apart by what would
 * be worth it, or a limit. *done false: no race could be held, and why was said. */
static vp_status race(tuner *t, int64_t n, bool *done, vp_err *err)
{
    int64_t   n_racing = n, n_rounds = 0, n_more = MIN_ROUNDS;
    double    fastest_s = 0, spent_s = 0, round_s;
    bool      told = false, ran;
    vp_status st = VP_OK;

    *done = false;
    for (int64_t i = 0; i < n; i++) {
        t->contenders[i].n_rounds = 0;
        t->contenders[i].step_s   = vp_arena_array(t->result->arena, MAX_ROUNDS, sizeof(double));
        VP_TRY_ALLOC(err, t->contenders[i].step_s);
    }
    while (n_racing > 1 && !told && n_more > 0) {
        round_s = 0;
        for (int64_t i = 0; i < n_racing; i++)
            round_s += t->contenders[i].expected_s;
        if (*done && spent_s + (double)n_more * round_s > RACE_S)
            break;
        VP_TRY(run_rounds(t, n_racing, n_more, round_s, &ran, &spent_s, err));
        if (!ran)
            break;
        *done = true;
        VP_TRY(judge_rounds(t, &n_racing, &fastest_s, &told, err));
        n_rounds += n_more;
        n_more = vp_min_i64(n_rounds, MAX_ROUNDS - n_rounds);
    }
    if (*done)
        VP_TRY(take_race(t, n, fastest_s, err));
out:
    return st;
}

/* Once more, in a process of its own. */
static vp_status run_again(tuner *t, int64_t trial_idx, vp_err *err)
{
    vp_trial       *x   = &t->result->trials[trial_idx];
    vp_study_trial *row = &t->rows[trial_idx];
    int64_t         n_steps = row->n_steps / (row->n_runs > 0 ? row->n_runs : 1); /* as before, within what a trial takes */
    vp_verdict      verdict;
    const char     *evidence;
    answer          a = {0};
    char            before[32], after[32];
    vp_status       st = VP_OK;

    vp_time_text(x->measured_s, before, sizeof before);
    n_steps = n_steps < MIN_STEPS ? MIN_STEPS : n_steps > MAX_STEPS ? MAX_STEPS : n_steps;
    VP_TRY(run_child(t, x, n_steps, &a, &verdict, &evidence, err));
    if (verdict == VP_VERDICT_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (verdict == VP_VERDICT_OK) {
        VP_TRY(take_answer(t, &a, row, x, err));
    } else {
        x->n_runs = ++row->n_runs; /* it cannot be relied on */
        row->measured_s   = x->measured_s = 0;
        x->verdict        = verdict;
        x->evidence       = evidence;
        VP_TRY_ALLOC(err, evidence);
    }
    note(t, "trial %lld again: %s, %s, was %s", (long long)x->id, vp_verdict_name(verdict),
         x->measured_s > 0 ? vp_time_text(x->measured_s, after, sizeof after) : "nothing", before);
    row->verdict  = vp_verdict_name(x->verdict);
    row->evidence = x->evidence;
    VP_TRY(vp_study_finish(t->study, row, err));
out:
    return st;
}

/* What is so near that one run each does not tell it apart: those that fit side by side in a race, else again, one after the other. *learnt false: all
 * of it was run before. */
static vp_status run_off(tuner *t, bool *learnt, vp_err *err)
{
    int64_t   n_new = 0, n;
    bool      done  = false;
    vp_status st    = VP_OK;

    VP_TRY(choose_contenders(t, err));
    if ((n = n_together(t)) > 1)
        t->n_contenders = n;
    for (int64_t i = 0; i < t->n_contenders; i++)
        n_new += t->rows[t->contenders[i].trial_idx].n_runs < MAX_RUNS;
    *learnt = t->n_contenders > 1 && n_new > 0;
    if (!*learnt)
        goto out;
    if (n > 1)
        VP_TRY(race(t, n, &done, err));
    for (int64_t i = 0; !done && i < t->n_contenders; i++)
        if (t->rows[t->contenders[i].trial_idx].n_runs < MAX_RUNS)
            VP_TRY(run_again(t, t->contenders[i].trial_idx, err));
out:
    return st;
}

static vp_status list_unfit_presets(tuner *t, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t p = 0; p < t->n_presets; p++)
        if (!tested(t, &t->presets[p].candidate.scenario))
            VP_TRY(add_trial(t, &(vp_trial){.preset = t->presets[p].name, .candidate = t->presets[p].candidate, .verdict = VP_VERDICT_DOES_NOT_FIT,
                                            .evidence = ""}, &(vp_study_trial){0}, err));
out:
    return st;
}

static void take_if_faster(const vp_trial **best, const vp_trial *x)
{
    if (x->verdict == VP_VERDICT_OK && x->candidate.fits && (!*best || x->measured_s < (*best)->measured_s))
        *best = x;
}

/* Of the contenders, whose measurements belong together; the best preset too, where one is among them. */
static void choose_best(const tuner *t)
{
    vp_tune_result *r = t->result;

    for (int64_t i = 0; i < t->n_contenders; i++) {
        const vp_trial *x = &r->trials[t->contenders[i].trial_idx];
        take_if_faster(&r->best, x);
        if (x->preset)
            take_if_faster(&r->best_preset, x);
    }
    bool none = r->best == NULL, no_preset = r->best_preset == NULL; /* each can have failed when it ran again */
    for (int64_t i = 0; i < r->n_trials; i++) {
        const vp_trial *x = &r->trials[i];
        if (none && obeys_pins(t->request, &x->candidate.scenario))
            take_if_faster(&r->best, x);
        if (no_preset && x->preset)
            take_if_faster(&r->best_preset, x);
    }
}

/* ---- the whole ---- */

static vp_status open_request(tuner *t, vp_err *err)
{
    char     *config = json_dumps(t->request->model->config, JSON_COMPACT | JSON_SORT_KEYS);
    json_t   *recipe_json = vp_recipe_to_json(&t->request->recipe);
    char     *recipe = recipe_json ? json_dumps(recipe_json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    char      hash[65];
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, config && recipe);
    vp_sha256 h = vp_sha256_begin();
    vp_sha256_add(&h, config, strlen(config));
    vp_sha256_hex(&h, hash);
    vp_study_request r = {.model = t->request->model->name, .model_sha256 = hash, .recipe = recipe, .seq = t->request->seq,
                          .global_batch = t->request->global_batch, .budget_bytes = t->request->budget_bytes,
                          .device = t->request->device->name, .backend = t->backend, .build = t->build};
    VP_TRY(vp_study_request_id(t->study, &r, &t->request_id, err));
out:
    free(config);
    free(recipe);
    json_decref(recipe_json);
    return st;
}

vp_status vp_tune(const vp_plan_request *request, const vp_tune_opts *opts, vp_tune_result *result, vp_err *err)
{
    tuner           t     = {.opts = opts, .result = result, .base_is_given = request->profile != NULL};
    vp_plan_answer  space = {0};
    vp_plan_request first = *request;
    bool            learnt;
    vp_status       st    = VP_OK;

    t.asked        = *request;
    t.device       = *request->device;
    t.asked.device = &t.device;
    t.request      = &t.asked;
    *result = (vp_tune_result){.arena = vp_arena_new(), .stopped_because = "nothing fits the budget"};
    VP_TRY_ALLOC(err, result->arena);
    VP_TRY(vp_study_open(opts->study, &t.study, err));
    first.no_proof = true;
    VP_TRY(vp_planner_run(&first, &space, err));
    if (space.n_candidates == 0) {
        result->answer = space;
        space          = (vp_plan_answer){0};
        goto out;
    }
    VP_TRY(find_runner(&t, err));
    VP_TRY(open_request(&t, err));
    VP_TRY(restore(&t, err));
    t.profile_kind = VP_PROFILE_GIVEN;
    if (request->profile) {
        VP_TRY(copy_profile(request->profile, &t.base, err));
        if (strcmp(t.base->backend, t.backend) != 0)
            t.base->outside = (vp_outside){0}; /* of another driver or library: what is measured here counts */
        for (int64_t i = 0; i < result->n_trials; i++)
            vp_outside_take(&t.base->outside, &t.rows[i].outside);
    } else {
        VP_TRY(measure_base(&t, &space, err));
    }
    VP_TRY(plan_with_base(&t, err));
    if (result->answer.n_candidates == 0) /* with what was measured outside the arena */
        goto out;
    if (result->n_trials == 0)
        VP_TRY(run_trial(&t, &result->answer.candidates[0], NULL, err));
    VP_TRY(doubt_given(&t, &space, err));
    VP_TRY(run_presets(&t, err));
    do { /* what a race taught can make another plan promising, or bring another near the best */
        VP_TRY(improve(&t, err));
        VP_TRY(run_near(&t, err));
        VP_TRY(run_off(&t, &learnt, err));
    } while (learnt);
    VP_TRY(replan(&t, true, err));
    VP_TRY(list_unfit_presets(&t, err));
    choose_best(&t);
out:
    vp_study_close(t.study);
    vp_profile_free(t.base);
    vp_plan_answer_release(&space);
    return st;
}

vp_status vp_tune_best_plan(const vp_plan_request *request, const vp_tune_result *result, vp_plan **out, vp_err *err)
{
    const vp_plan_answer *a = &result->answer;
    const vp_candidate   *c = &result->best->candidate;
    vp_plan_request       r = *request;
    vp_device             device = *request->device;

    if (result->profile)
        vp_device_calibrate(&device, result->profile);
    r.device  = &device;
    r.profile = result->profile;
    return vp_planner_make(&r, a, a->n_candidates && same_scenario(&a->candidates[0].scenario, &c->scenario) ? &a->candidates[0] : c, out, err);
}

void vp_tune_result_release(vp_tune_result *result)
{
    vp_profile_free(result->profile);
    vp_plan_answer_release(&result->answer);
    vp_arena_free(result->arena);
    *result = (vp_tune_result){0};
}
