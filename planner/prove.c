#include "planner/prove.h"

#include "core/child.h"
#include "core/file.h"
#include "core/text.h"

#include <stdio.h>
#include <string.h>

static const double SILENCE_S = 10, TOTAL_S = 30; /* backstops: the work is limited by counted nodes and pivots */
enum { MAX_SOLUTION_BYTES = 4 << 20 };

static void note_end(vp_arena *arena, const vp_child_result *c, vp_proof *out)
{
    char shown[200];

    if (c->end == VP_CHILD_EXITED && c->exit_code == 0)
        return;
    out->note = c->end == VP_CHILD_EXITED     ? vp_arena_printf(arena, "vplan-solve ended with exit code %d", c->exit_code)
                : c->end == VP_CHILD_SIGNALED ? vp_arena_printf(arena, "vplan-solve was ended by signal %d", c->term_signal)
                                              : "vplan-solve was silent for 10 s";
    if (c->n_err && out->note)
        out->note = vp_arena_printf(arena, "%s: %s", out->note, vp_text_escape(c->err, shown, sizeof shown));
}

/* Take from the solver's answer only what can be checked here. */
static void read_answer(vp_arena *arena, const vp_ilp_problem *problem, const vp_child_result *c, vp_proof *out)
{
    vp_json_doc    *doc = NULL;
    vp_ilp_solution s   = {0};
    vp_text         text = {0};
    vp_err          why = {0};
    int64_t         cost_ns;

    if (c->n_out_lost > 0) {
        out->note = "vplan-solve said more than 4 MiB";
        return;
    }
    if (vp_json_parse("vplan-solve", c->out, (int64_t)c->n_out, &doc, &why) == VP_OK) {
        vp_json_node root = vp_json_root(doc);
        if (vp_ilp_solution_from_json(arena, &root, problem, &s, &why) == VP_OK) {
            out->n_nodes  = s.n_nodes;
            out->n_pivots = s.n_pivots;
            if (s.found && vp_ilp_evaluate(problem, s.program_idx, s.counts, &cost_ns) && cost_ns < problem->upper_ns) {
                out->found       = true;
                out->program_idx = s.program_idx;
                out->counts      = s.counts;
            }
            if (s.cutoff_ns >= 0 && vp_certificate_proves(problem, s.certificate, s.cutoff_ns))
                out->bound_ns = s.cutoff_ns;
            else
                out->note = "the certificate of vplan-solve does not prove its bound";
            if (s.certificate && vp_json_dump(s.certificate, &text))
                out->certificate_bytes = (int64_t)text.n_bytes;
            json_decref(s.certificate);
        }
    }
    if (why.code != VP_OK)
        out->note = vp_arena_printf(arena, "the answer of vplan-solve is malformed: %.300s", why.message);
    vp_text_release(&text);
    vp_json_doc_free(doc);
}

vp_status vp_prove(vp_arena *arena, const vp_ilp_problem *problem, vp_proof *out, vp_err *err)
{
    json_t         *j     = vp_ilp_problem_to_json(problem);
    vp_text         text  = {0};
    vp_child_result child = {0};
    vp_err          why   = {0};
    char            program[1100];
    vp_status       st = VP_OK;

    *out = (vp_proof){.bound_ns = -1};
    VP_TRY_ALLOC(err, j && vp_json_dump(j, &text));
    if (vp_file_find_program("vplan-solve", program, sizeof program, &why) != VP_OK) {
        out->note = "vplan-solve is not installed beside vplan";
        goto out;
    }
    char *argv[] = {program, NULL};
    vp_child_opts opts = {.argv = argv, .stdin_bytes = text.data, .n_stdin_bytes = text.n_bytes, .out = VP_CHILD_CAPTURE,
                          .err = VP_CHILD_CAPTURE, .max_output_bytes = MAX_SOLUTION_BYTES, .silence_s = SILENCE_S, .timeout_s = TOTAL_S, .grace_s = 1};
    if (vp_child_run(&opts, &child, &why) != VP_OK) {
        out->note = vp_arena_printf(arena, "vplan-solve cannot be run: %.300s", why.message);
        goto out;
    }
    note_end(arena, &child, out);
    if (!out->note)
        read_answer(arena, problem, &child, out);
out:
    vp_child_result_release(&child);
    vp_text_release(&text);
    json_decref(j);
    return st;
}
