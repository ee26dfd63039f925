#include "planner/solve/prove.h"

#include "base/child.h"
#include "base/file.h"
#include "base/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Backstops: the work is limited by counted nodes and pivots. The undivided program is silent to
 * its end. */
static const double SILENCE_S = 10, TOTAL_S = 30, MONOLITHIC_S = 90;
enum { MAX_SOLUTION_BYTES = 4 << 20 };

/* NULL: it ended well. */
static const char *end_note(vp_arena *arena, const vp_child_result *c, double total_s)
{
    const char *note;
    char        shown[200];

    if (c->end == VP_CHILD_EXITED && c->exit_code == 0)
        return c->n_out_lost > 0 ? "vplan-solve said more than 4 MiB" : NULL;
    note = c->end == VP_CHILD_EXITED
               ? vp_arena_printf(arena, "vplan-solve ended with exit code %d", c->exit_code)
           : c->end == VP_CHILD_SIGNALED
               ? vp_arena_printf(arena, "vplan-solve was ended by signal %d", c->term_signal)
           : c->end == VP_CHILD_TIMED_OUT
               ? vp_arena_printf(arena, "vplan-solve took more than %.0f s", total_s)
               : "vplan-solve was silent for 10 s";
    if (c->n_err && note)
        note = vp_arena_printf(arena, "%s: %s", note, vp_text_escape(c->err, shown, sizeof shown));
    return note;
}

static const char *malformed(vp_arena *arena, const vp_err *why)
{
    return vp_arena_printf(arena, "the answer of vplan-solve is malformed: %.300s", why->message);
}

/* Run vplan-solve on the problem, with an option or NULL. *doc is what it said, or NULL: then
 * *note says why. */
static vp_status ask(vp_arena *arena, const vp_ilp_problem *problem, char *option, double silence_s,
                     double total_s, vp_json_doc **doc, const char **note, double *seconds,
                     vp_err *err)
{
    json_t         *j     = vp_ilp_problem_to_json(problem);
    vp_text         text  = {0};
    vp_child_result child = {0};
    vp_err          why   = {0};
    char            program[1100];
    vp_status       st = VP_OK;

    *doc = NULL;
    VP_TRY_ALLOC(err, j && vp_json_dump(j, &text));
    if (vp_file_find_program("vplan-solve", program, sizeof program, &why) != VP_OK) {
        *note = "vplan-solve is not installed beside vplan";
        goto out;
    }
    char         *argv[] = {program, option, NULL};
    vp_child_opts opts   = {.argv             = argv,
                            .stdin_bytes      = text.data,
                            .n_stdin_bytes    = text.n_bytes,
                            .out              = VP_CHILD_CAPTURE,
                            .err              = VP_CHILD_CAPTURE,
                            .max_output_bytes = MAX_SOLUTION_BYTES,
                            .silence_s        = silence_s,
                            .timeout_s        = total_s,
                            .grace_s          = 1};
    if (vp_child_run(&opts, &child, &why) != VP_OK) {
        *note = vp_arena_printf(arena, "vplan-solve cannot be run: %.300s", why.message);
        goto out;
    }
    *seconds = child.seconds;
    *note    = end_note(arena, &child, total_s);
    if (!*note && vp_json_parse("vplan-solve", child.out, (int64_t)child.n_out, doc, &why) != VP_OK)
        *note = malformed(arena, &why);
out:
    vp_child_result_release(&child);
    vp_text_release(&text);
    json_decref(j);
    return st;
}

/* Take from the solver's answer only what can be checked here. */
static void take_proof(vp_arena *arena, const vp_ilp_problem *problem, const vp_json_doc *doc,
                       vp_proof *out)
{
    vp_json_node    root = vp_json_root(doc);
    vp_ilp_solution s    = {0};
    vp_text         text = {0};
    vp_err          why  = {0};
    int64_t         cost_ns;

    if (vp_ilp_solution_from_json(arena, &root, problem, &s, &why) != VP_OK) {
        out->note = malformed(arena, &why);
        return;
    }
    out->n_nodes  = s.n_nodes;
    out->n_pivots = s.n_pivots;
    if (s.found && vp_ilp_evaluate(problem, s.ilp_idx, s.counts, &cost_ns) &&
        cost_ns < problem->upper_ns) {
        out->found   = true;
        out->ilp_idx = s.ilp_idx;
        out->counts  = s.counts;
    }
    if (s.cutoff_ns >= 0 && vp_certificate_proves(problem, s.certificate, s.cutoff_ns))
        out->bound_ns = s.cutoff_ns;
    else
        out->note = "the certificate of vplan-solve does not prove its bound";
    if (s.certificate && vp_json_dump(s.certificate, &text))
        out->certificate_bytes = (int64_t)text.n_bytes;
    json_decref(s.certificate);
    vp_text_release(&text);
}

/* Chains that are gone through before the solver is asked: of one integer program, and of all. */
enum { STATES_OF_ONE = 200000, STATES_OF_ALL = 2000000 };

/* The integer programs that may hold something below upper_ns: going through their chains proves nothing else, or
 * takes too long. Where there is none the one that took the least, so that the solver is always asked.
 * places: where each of them stands in the problem. */
static vp_status list_open(vp_arena *arena, const vp_ilp_problem *problem, vp_ilp_problem *open,
                           int64_t *places, vp_err *err)
{
    int64_t   n_left = STATES_OF_ALL, least = INT64_MAX;
    vp_status st = VP_OK;

    assert(problem->n_ilps > 0);
    *open        = *problem;
    open->n_ilps = 0;
    open->ilps   = vp_arena_array(arena, problem->n_ilps, sizeof *open->ilps);
    VP_TRY_ALLOC(err, open->ilps);
    places[0] = 0;
    for (int64_t i = 0; i < problem->n_ilps; i++) {
        const int64_t most = n_left < STATES_OF_ONE ? n_left : STATES_OF_ONE;
        int64_t       left = most;
        const bool    none =
            vp_chain_proves(&problem->ilps[i], problem->budget_bytes, problem->upper_ns, &left);
        n_left -= most - left;
        if (!none) {
            places[open->n_ilps]       = i;
            open->ilps[open->n_ilps++] = problem->ilps[i];
        } else if (open->n_ilps == 0 && most - left < least) {
            places[0] = i;
            least     = most - left;
        }
    }
    if (open->n_ilps == 0) {
        open->ilps[0] = problem->ilps[places[0]];
        open->n_ilps  = 1;
    }
out:
    return st;
}

vp_status vp_prove(vp_arena *arena, const vp_ilp_problem *problem, vp_proof *out, vp_err *err)
{
    int64_t       *places = vp_arena_array(arena, problem->n_ilps, sizeof *places);
    vp_ilp_problem open;
    vp_json_doc   *doc = NULL;
    double         seconds;
    vp_status      st = VP_OK;

    *out = (vp_proof){.bound_ns = -1};
    VP_TRY_ALLOC(err, places);
    VP_TRY(list_open(arena, problem, &open, places, err));
    VP_TRY(ask(arena, &open, NULL, SILENCE_S, TOTAL_S, &doc, &out->note, &seconds, err));
    if (doc)
        take_proof(arena, &open, doc, out);
    assert(out->ilp_idx >= 0 && out->ilp_idx < open.n_ilps);
    out->ilp_idx = places[out->ilp_idx];
out:
    vp_json_doc_free(doc);
    return st;
}

/* The sequence as counts, and what those cost here. */
static vp_status take_sequence(vp_arena *arena, const vp_ilp_problem *problem, vp_whole *out,
                               vp_err *err)
{
    const vp_monolithic *m  = &out->answer;
    vp_status            st = VP_OK;

    if (!m->found) {
        if (m->end == VP_MONOLITHIC_OPTIMAL)
            out->note = "vplan-solve says optimal and gives no solution";
        goto out;
    }
    int64_t *counts = vp_arena_array(arena, problem->ilps[m->ilp_idx].n_items, sizeof *counts);
    VP_TRY_ALLOC(err, counts);
    for (int64_t i = 0; i < problem->ilps[m->ilp_idx].n_blocks; i++)
        if (m->items[i] >= 0) /* vp_monolithic_from_json() has seen that there are such items */
            counts[m->items[i]]++;
    if (!vp_ilp_evaluate(problem, m->ilp_idx, counts, &out->cost_ns)) {
        out->cost_ns = -1;
        out->note =
            "the solution of the undivided program does not keep the rows of the divided one";
    }
out:
    return st;
}

vp_status vp_solve_monolithic(vp_arena *arena, const vp_ilp_problem *problem, vp_whole *out,
                              vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_err       why = {0};
    vp_status    st  = VP_OK;

    *out = (vp_whole){.answer.end = VP_MONOLITHIC_FAILED, .cost_ns = -1};
    VP_TRY(
        ask(arena, problem, "--monolithic", 0, MONOLITHIC_S, &doc, &out->note, &out->seconds, err));
    if (doc) {
        vp_json_node root = vp_json_root(doc);
        if (vp_monolithic_from_json(arena, &root, problem, &out->answer, &why) == VP_OK)
            VP_TRY(take_sequence(arena, problem, out, err));
        else
            out->note = malformed(arena, &why);
    }
out:
    vp_json_doc_free(doc);
    return st;
}
