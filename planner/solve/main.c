/* vplan-solve: one problem (JSON, planner/solve/problem.h) from standard input, one solution to
 * standard output.
 *     vplan-solve                  counts and a certificate
 *     vplan-solve --monolithic     the same choice as one undivided integer program, without
 *     certificate */
#include "base/options.h"
#include "planner/solve/solve_internal.h"

#include <stdio.h>
#include <sys/resource.h>

enum { MAX_PROBLEM_BYTES = 64 << 20, MONOLITHIC_S = 60 };

/* AddressSanitizer reserves terabytes of addresses; without it an allocation beyond the limit
 * fails and is handled. */
#if !defined(__SANITIZE_ADDRESS__) && defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

static void limit_memory(int64_t max_bytes)
{
#ifndef __SANITIZE_ADDRESS__
    struct rlimit limit = {.rlim_cur = (rlim_t)max_bytes, .rlim_max = (rlim_t)max_bytes};

    if (max_bytes)
        setrlimit(RLIMIT_AS, &limit);
#else
    (void)max_bytes;
#endif
}

/* Takes the reference; NULL: out of memory. */
static vp_status write_document(json_t *root, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, root);
    if (json_dumpf(root, stdout, JSON_COMPACT) || putchar('\n') == EOF || fflush(stdout))
        st = VP_FAIL(err, VP_ERR_STORAGE, "the solution could not be written");
out:
    json_decref(root);
    return st;
}

typedef struct arguments {
    bool monolithic, help;
} arguments;

static const vp_option rows[] = {
    {.name = "--monolithic",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(arguments, monolithic),
     .help = "Solve the same choice as one undivided integer program, without a certificate"},
    {.name = "--help",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(arguments, help),
     .help = "Say this, and stop"},
};
static const vp_option_set        set    = {NULL, rows, sizeof rows / sizeof *rows};
static const vp_option_set *const sets[] = {&set};

static vp_status print_help(vp_err *err)
{
    vp_text   text = {0};
    vp_status st   = VP_OK;

    vp_text_printf(&text, "usage: vplan-solve [--monolithic] < PROBLEM\n");
    vp_options_help(sets, 1, &text);
    VP_TRY_ALLOC(err, !text.failed);
    if (fputs(text.data, stdout) == EOF || fflush(stdout))
        st = VP_FAIL(err, VP_ERR_STORAGE, "standard output cannot be written");
out:
    vp_text_release(&text);
    return st;
}

int main(int argc, char **argv)
{
    const vp_options_spec spec = {.sets = sets, .n_sets = 1};
    arguments             args = {0};
    vp_command_line       line;
    vp_err                err   = {0};
    vp_arena             *arena = vp_arena_new();
    vp_json_doc          *doc   = NULL;
    vp_json_node          root;
    vp_ilp_problem        p     = {0};
    vp_ilp_solution       s     = {0};
    vp_monolithic         whole = {0};
    char                  text[2048];
    vp_status             st = VP_OK;

    VP_TRY_ALLOC(&err, arena);
    VP_TRY(vp_options_parse(&spec, argc - 1, argv + 1, (void *[]){&args}, &line, &err));
    if (args.help) {
        VP_TRY(print_help(&err));
        goto out;
    }
    VP_TRY(vp_json_read("-", MAX_PROBLEM_BYTES, &doc, &err));
    root = vp_json_root(doc);
    VP_TRY(vp_ilp_problem_from_json(arena, &root, &p, &err));
    limit_memory(p.max_memory_bytes);
    if (args.monolithic) {
        VP_TRY(vp_monolithic_solve(arena, &p, MONOLITHIC_S, &whole, &err));
        VP_TRY(write_document(vp_monolithic_to_json(&whole, &p), &err));
    } else {
        VP_TRY(vp_branch_solve(arena, &p, &s, &err));
        VP_TRY(write_document(vp_ilp_solution_to_json(&s, &p), &err));
    }
out:
    if (st != VP_OK)
        fprintf(stderr, "vplan-solve: %s\n", vp_err_text(&err, text, sizeof text));
    json_decref(s.certificate);
    vp_json_doc_free(doc);
    vp_arena_free(arena);
    return vp_status_exit_code(st);
}
