/* vplan explain: what a plan does, buffer by buffer and step by step. */
#include "cli/cli.h"
#include "cli/rows.h"
#include "cli/screen.h"

#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/itemise.h"
#include "planner/reprice.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

/* A field of CSV (RFC 4180), escaped for a terminal first: names come from the plan file. */
static void put_field(const char *text)
{
    char shown[512];

    vp_text_escape(text, shown, sizeof shown);
    if (!strpbrk(shown, ",\"")) {
        fputs(shown, stdout);
        return;
    }
    putchar('"');
    for (const char *p = shown; *p; p++) {
        if (*p == '"')
            putchar('"');
        putchar(*p);
    }
    putchar('"');
}

typedef struct buffer_row {
    int64_t     id, offset, bytes, first, last;
    vp_memory   memory;
    const char *component, *name;
} buffer_row;

static vp_status list_buffers(vp_arena *arena, const vp_plan *plan, const vp_expansion *x,
                              buffer_row **rows, int64_t *n, vp_err *err)
{
    static const vp_memory memories[] = {VP_MEMORY_DEVICE, VP_MEMORY_HOST_PINNED};
    const int64_t          ends[]     = {plan->peak_bytes, plan->host_peak_bytes};
    vp_range              *gaps[2];
    int64_t                n_gaps[2], id = x->n_buffers;
    vp_status              st = VP_OK;

    for (int m = 0; m < 2; m++)
        VP_TRY(vp_expansion_padding(arena, x, memories[m], ends[m], &gaps[m], &n_gaps[m], err));
    *rows = vp_arena_array(arena, x->n_buffers + n_gaps[0] + n_gaps[1], sizeof **rows);
    VP_TRY_ALLOC(err, *rows);
    *n = 0;
    for (int64_t i = 0; i < x->n_buffers; i++)
        if (x->first_step[i] >= 0)
            (*rows)[(*n)++] = (buffer_row){.id        = i,
                                           .offset    = x->buffers[i].offset_bytes,
                                           .bytes     = x->buffers[i].bytes,
                                           .first     = x->first_step[i],
                                           .last      = x->last_step[i],
                                           .memory    = x->buffers[i].memory,
                                           .component = vp_component_name(x->buffers[i].component),
                                           .name      = x->buffers[i].name};
    for (int m = 0; m < 2; m++)
        for (int64_t i = 0; i < n_gaps[m]; i++)
            (*rows)[(*n)++] = (buffer_row){.id        = id++,
                                           .offset    = gaps[m][i].begin,
                                           .bytes     = gaps[m][i].end - gaps[m][i].begin,
                                           .last      = x->n_steps - 1,
                                           .memory    = memories[m],
                                           .component = vp_component_name(VP_COMP_PADDING),
                                           .name      = "padding"};
    assert(*n <= x->n_buffers + n_gaps[0] + n_gaps[1]);
out:
    return st;
}

static vp_status print_buffers(vp_arena *arena, const vp_plan *plan, bool json, vp_err *err)
{
    vp_expansion x;
    buffer_row  *rows;
    int64_t      n    = 0;
    json_t      *list = NULL;
    vp_status    st   = VP_OK;

    VP_TRY(
        vp_expansion_make(arena, plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, &x, err));
    VP_TRY(list_buffers(arena, plan, &x, &rows, &n, err));
    if (json)
        list = json_array();
    else
        printf("buffer,memory,offset,bytes,first_step,last_step,component,name\n");
    for (int64_t i = 0; i < n; i++) {
        const buffer_row *r = &rows[i];
        if (json) {
            json_array_append_new(
                list, json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:s, s:s}", "buffer",
                                (json_int_t)r->id, "memory", vp_memory_name(r->memory), "offset",
                                (json_int_t)r->offset, "bytes", (json_int_t)r->bytes, "first_step",
                                (json_int_t)r->first, "last_step", (json_int_t)r->last, "component",
                                r->component, "name", r->name));
            continue;
        }
        printf("%lld,%s,%lld,%lld,%lld,%lld,%s,", (long long)r->id, vp_memory_name(r->memory),
               (long long)r->offset, (long long)r->bytes, (long long)r->first, (long long)r->last,
               r->component);
        put_field(r->name);
        putchar('\n');
    }
    if (json)
        VP_TRY(vp_print_json(json_pack("{s:i, s:o}", "schema_version", 1, "buffers", list), err));
out:
    return st;
}

typedef struct program_print {
    const vp_plan *plan;
    json_t        *list; /* or NULL: CSV */
} program_print;

static void join_operands(const vp_expanded_step *s, bool writes, char *buf, size_t buf_size)
{
    int64_t seen[VP_MAX_OPERANDS];
    int     n = 0;

    buf[0] = '\0';
    for (int k = 0; k < s->n_operands; k++) {
        int64_t b     = s->operands[k].buffer;
        bool    shows = b >= 0 && (s->operands[k].access == VP_UPDATE ||
                                (s->operands[k].access == VP_WRITE) == writes),
             twice    = false;
        for (int i = 0; i < n; i++)
            twice |= seen[i] == b;
        if (!shows || twice)
            continue;
        assert(n < VP_MAX_OPERANDS);
        seen[n++] = b;
        snprintf(buf + strlen(buf), buf_size - strlen(buf), "%s%lld", n > 1 ? ";" : "",
                 (long long)b);
    }
}

static vp_status print_step(const vp_expanded_step *s, void *ctx, vp_err *err)
{
    const program_print    *p        = ctx;
    const vp_bucket        *bucket   = &p->plan->buckets[0];
    const vp_plan_instance *instance = &bucket->instances[s->instance_idx];
    char                    reads[256], writes[256], block[96];

    (void)err;
    assert(s->instance_idx >= 0 && s->instance_idx < bucket->n_instances);
    join_operands(s, false, reads, sizeof reads);
    join_operands(s, true, writes, sizeof writes);
    snprintf(block, sizeof block, "%.64s.%lld",
             p->plan->templates[bucket->programs[instance->program_idx].template_idx].name,
             (long long)instance->index);
    if (p->list) {
        json_array_append_new(p->list,
                              json_pack("{s:I, s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:f}", "step",
                                        (json_int_t)s->idx, "phase", vp_pass_phase(s->pass),
                                        "micro_step", (json_int_t)s->micro_step, "block", block,
                                        "op", vp_kernel_info_of(s->step->kernel)->name, "stream",
                                        vp_stream_name(s->step->stream), "reads", reads, "writes",
                                        writes, "seconds", s->step->seconds));
        return VP_OK;
    }
    printf("%lld,%s,%lld,", (long long)s->idx, vp_pass_phase(s->pass), (long long)s->micro_step);
    put_field(block);
    printf(",%s,%s,%s,%s,%.17g\n", vp_kernel_info_of(s->step->kernel)->name,
           vp_stream_name(s->step->stream), reads, writes, s->step->seconds);
    return VP_OK;
}

static vp_status print_program(const vp_plan *plan, bool json, vp_err *err)
{
    program_print p  = {.plan = plan, .list = json ? json_array() : NULL};
    vp_status     st = VP_OK;

    if (!json)
        printf("step,phase,micro_step,block,op,stream,reads,writes,seconds\n");
    VP_TRY(vp_expand(plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, print_step, &p, err));
    if (json) {
        st     = vp_print_json(json_pack("{s:i, s:o}", "schema_version", 1, "steps", p.list), err);
        p.list = NULL;
    }
out:
    json_decref(p.list);
    return st;
}

/* ---- what if ---- */

/* One configuration near the plan's, as `vplan estimate` would be asked for it. */
typedef struct what_if {
    char    command[240];
    int64_t peak_bytes, device_bytes;
} what_if;

enum { N_WHAT_IFS = 8 };

typedef struct what_ifs {
    what_if rows[N_WHAT_IFS];
    int     n;
} what_ifs;

static vp_status ask(const vp_model *model, const vp_plan *plan, int64_t micro_batch,
                     vp_recompute kind, int64_t chunk, vp_optimizer optimizer, what_ifs *w,
                     vp_err *err)
{
    /* bytes are asked for, not seconds */
    vp_device device = {
        .name = "cpu", .is_cpu = true, .fp32_flop_per_s = INFINITY, .memory_bytes_per_s = INFINITY};
    vp_cost     cost      = {.device = &device};
    vp_scenario s         = {.recipe       = plan->recipe,
                             .seq          = plan->buckets[0].seq,
                             .micro_batch  = micro_batch,
                             .global_batch = micro_batch,
                             .loss_chunk   = chunk};
    const char *attention = json_string_value(json_object_get(plan->settings, "attention"));
    vp_figures  f;
    what_if    *row      = &w->rows[w->n];
    char        loss[32] = "full";

    assert(w->n < N_WHAT_IFS);
    s.attention = attention ? vp_attention_by_name(attention) : VP_ATTENTION_FLASH;
    if (s.attention == VP_N_ATTENTIONS)
        return vp_fail(err, VP_ERR_INPUT, plan->model_name, 0, "settings.attention",
                       "the plan's attention is none of flash and math");
    vp_recipe_set_optimizer(&s.recipe, optimizer);
    vp_scenario_set_all(&s, model, vp_recompute_set(model, kind));
    vp_status st = vp_assemble_figures(model, &s, &cost, &f, err);
    if (st != VP_OK)
        return st;
    if (chunk)
        snprintf(loss, sizeof loss, "chunked:%lld", (long long)chunk);
    snprintf(row->command, sizeof row->command,
             "--seq %lld --micro-batch %lld --recompute %s --loss %s --optimizer %s%s%s%s%s",
             (long long)s.seq, (long long)micro_batch, vp_recompute_name(kind), loss,
             vp_optimizer_name(optimizer),
             s.recipe.precision != VP_PREC_FP32 ? " --precision " : "",
             s.recipe.precision != VP_PREC_FP32 ? vp_precision_name(s.recipe.precision) : "",
             s.attention != VP_ATTENTION_FLASH ? " --attention " : "",
             s.attention != VP_ATTENTION_FLASH ? vp_attention_name(s.attention) : "");
    /* the device asked about has none of its own */
    row->peak_bytes   = f.peak_bytes;
    row->device_bytes = vp_add(f.peak_bytes, plan->outside_bytes);
    w->n++;
    return VP_OK;
}

/* Each recompute kind at the plan's micro-batch and chunk, the loss the other way, half and
 * twice the micro-batch, no optimizer state. */
static vp_status ask_what_if(const vp_plan *plan, what_ifs *w, vp_err *err)
{
    const vp_bucket *b    = &plan->buckets[0];
    vp_optimizer     adam = plan->recipe.optimizer;
    int64_t      chunk = json_integer_value(json_object_get(plan->decisions, "loss_chunk_tokens"));
    vp_model    *model = NULL;
    vp_json_doc *doc   = NULL;
    vp_text      text  = {0};
    vp_status    st    = VP_OK;

    VP_TRY_ALLOC(err, vp_json_dump(plan->model_config, &text));
    VP_TRY(vp_json_parse(plan->model_name, text.data, (int64_t)text.n_bytes, &doc, err));
    vp_json_node config = vp_json_root(doc);
    VP_TRY(vp_model_from_config(plan->model_name, &config,
                                &(vp_model_opts){.dropout = plan->recipe.dropout}, &model, err));
    for (int kind = 0; kind < VP_N_RECOMPUTES; kind++)
        VP_TRY(ask(model, plan, b->micro_batch, (vp_recompute)kind, chunk, adam, w, err));
    VP_TRY(ask(model, plan, b->micro_batch, VP_RECOMPUTE_NONE, chunk ? 0 : 1024, adam, w, err));
    if (b->micro_batch > 1)
        VP_TRY(ask(model, plan, b->micro_batch / 2, VP_RECOMPUTE_NONE, chunk, adam, w, err));
    VP_TRY(ask(model, plan, b->micro_batch * 2, VP_RECOMPUTE_NONE, chunk, adam, w, err));
    if (adam != VP_OPT_SGD)
        VP_TRY(ask(model, plan, b->micro_batch, VP_RECOMPUTE_NONE, chunk, VP_OPT_SGD, w, err));
out:
    vp_model_free(model);
    vp_json_doc_free(doc);
    vp_text_release(&text);
    return st;
}

/* ---- the story ---- */

enum { N_LARGEST = 20 };

typedef struct story {
    const char  *profile;   /* that gives the times; NULL: the plan does */
    double       planned_s; /* what the plan itself says of a step       */
    vp_expansion x;
    vp_itemised  itemised;
    int64_t      largest[N_LARGEST]; /* buffers alive at the peak, largest first */
    int          n_largest;
    /* "backward of micro-step 0, h.3 mlp.c_fc (linear_bwd_weight)" */
    char     at[160];
    what_ifs what_if;
} story;

static vp_status find_peak_step(const vp_expanded_step *s, void *ctx, vp_err *err)
{
    story           *t    = ((void **)ctx)[0];
    const vp_plan   *plan = ((void **)ctx)[1];
    const vp_bucket *b    = &plan->buckets[0];

    (void)err;
    if (s->idx == t->itemised.peak_step)
        snprintf(
            t->at, sizeof t->at, "%s of micro-step %lld, %s.%lld %s (%s)", vp_pass_phase(s->pass),
            (long long)s->micro_step,
            plan->templates[b->programs[b->instances[s->instance_idx].program_idx].template_idx]
                .name,
            (long long)b->instances[s->instance_idx].index, s->step->name,
            vp_kernel_info_of(s->step->kernel)->name);
    return VP_OK;
}

static vp_status tell(vp_arena *arena, const vp_plan *plan, story *t, vp_err *err)
{
    const vp_bucket *b      = &plan->buckets[0];
    void            *ctx[2] = {t, (void *)(uintptr_t)plan};
    vp_status        st     = VP_OK;

    VP_TRY(vp_expansion_make(arena, plan, b, b->n_micro_steps, &t->x, err));
    VP_TRY(vp_itemise(arena, plan, b, &t->itemised, err));
    for (int64_t i = 0; i < t->x.n_buffers; i++) {
        int at = t->n_largest;
        if (t->x.first_step[i] < 0 || t->x.first_step[i] > t->itemised.peak_step ||
            t->x.last_step[i] < t->itemised.peak_step)
            continue;
        while (at > 0 && t->x.buffers[t->largest[at - 1]].bytes < t->x.buffers[i].bytes)
            at--;
        if (at == N_LARGEST)
            continue;
        int n_moved = (t->n_largest < N_LARGEST ? t->n_largest : N_LARGEST - 1) - at;
        assert(n_moved >= 0 && at + 1 + n_moved <= N_LARGEST);
        memmove(&t->largest[at + 1], &t->largest[at], (size_t)n_moved * sizeof *t->largest);
        t->largest[at] = i;
        t->n_largest += t->n_largest < N_LARGEST;
    }
    VP_TRY(vp_expand(plan, b, b->n_micro_steps, find_peak_step, ctx, err));
    assert(t->at[0] && t->n_largest > 0); /* the peak is at some step, of something */
    VP_TRY(ask_what_if(plan, &t->what_if, err));
out:
    return st;
}

static json_t *story_json(const vp_plan *plan, const story *t)
{
    json_t *largest = json_array(), *others = json_array();

    for (int i = 0; i < t->n_largest; i++)
        json_array_append_new(
            largest, json_pack("{s:s, s:I, s:s}", "name", t->x.buffers[t->largest[i]].name, "bytes",
                               (json_int_t)t->x.buffers[t->largest[i]].bytes, "component",
                               vp_component_name(t->x.buffers[t->largest[i]].component)));
    for (int i = 0; i < t->what_if.n; i++)
        json_array_append_new(
            others, json_pack("{s:s, s:I, s:I}", "estimate", t->what_if.rows[i].command,
                              "peak_bytes", (json_int_t)t->what_if.rows[i].peak_bytes,
                              "device_bytes", (json_int_t)t->what_if.rows[i].device_bytes));
    json_t *j = json_pack(
        "{s:i, s:s, s:O, s:O, s:O, s:I, s:I, s:I, s:s, s:s, s:f, s:s, s:o, s:o, s:o, s:o, s:o}",
        "schema_version", 1, "model", plan->model_name, "decisions", plan->decisions, "settings",
        plan->settings, "assumptions", plan->assumptions, "budget_bytes",
        (json_int_t)plan->budget_bytes, "peak_bytes", (json_int_t)plan->peak_bytes, "device_bytes",
        (json_int_t)(plan->peak_bytes + plan->outside_bytes), "peak_phase", t->itemised.peak_phase,
        "peak_at", t->at, "step_time_s", plan->step_time_s, "time_class", plan->time_class, "items",
        vp_items_json(&t->itemised), "phases", vp_phases_json(&t->itemised), "largest_at_peak",
        largest, "proof", vp_proof_json(plan), "what_if", others);
    if (t->profile)
        json_object_update_new(
            j, json_pack("{s:s, s:f}", "profile", t->profile, "planned_step_time_s", t->planned_s));
    vp_overhead_to_answer(plan, j);
    return j;
}

/* How the blocks run, in chain order. */
static void print_runs(const json_t *runs)
{
    char      shown[128];
    long long first = 0;

    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i), *ops = json_object_get(run, "recompute");
        long long     n   = json_integer_value(json_object_get(run, "n_blocks")),
                  segment = json_integer_value(json_object_get(run, "segment"));
        vp_text text      = {0};
        vp_text_printf(&text, n > 1 ? "%lld to %lld: " : "%lld: ", first, first + n - 1);
        if (segment > 1)
            vp_text_printf(&text, "in segments of %lld, recomputed whole", segment);
        else
            vp_text_printf(&text, "recompute%s", json_array_size(ops) ? "" : " nothing");
        for (size_t k = 0; segment == 1 && k < json_array_size(ops); k++)
            vp_text_printf(
                &text, " %s",
                vp_text_escape(json_string_value(json_array_get(ops, k)), shown, sizeof shown));
        vp_screen_line(i ? "" : "blocks", "%s", text.data ? text.data : "");
        vp_text_release(&text);
        first += n;
    }
}

static void print_decisions(const vp_plan *plan)
{
    const char *key;
    json_t     *value;
    char        shown[128];

    json_object_foreach (plan->decisions, key, value) {
        if (json_is_integer(value))
            printf("  %-20s %lld\n", key, (long long)json_integer_value(value));
        else if (json_is_string(value))
            printf("  %-20s %s\n", key,
                   vp_text_escape(json_string_value(value), shown, sizeof shown));
        else if (json_is_array(value))
            print_runs(value);
    }
}

/* As the planner wrote it; what a plan by hand leaves out is flash. */
static vp_attention_kind attention_of(const vp_plan *plan)
{
    const char       *word = json_string_value(json_object_get(plan->settings, "attention"));
    vp_attention_kind kind = word ? vp_attention_by_name(word) : VP_ATTENTION_FLASH;

    return kind == VP_N_ATTENTIONS ? VP_ATTENTION_FLASH : kind;
}

static void print_story(const vp_plan *plan, const story *t)
{
    char a[64], c[64], shown[512], outside[400];

    snprintf(shown, sizeof shown, "%s a step (%s)", vp_time_text(plan->step_time_s, c, sizeof c),
             plan->time_class);
    vp_screen_answer(plan->peak_bytes + plan->outside_bytes, plan->budget_bytes, shown);
    vp_screen_line("model", "%s on %s", vp_text_escape(plan->model_name, shown, sizeof shown),
                   plan->device);
    if (t->profile)
        printf("times by %s; the plan says %s\n", vp_text_escape(t->profile, shown, sizeof shown),
               vp_time_text(t->planned_s, a, sizeof a));
    vp_screen_recipe(&plan->recipe, attention_of(plan));
    print_decisions(plan);
    printf("\n");
    vp_screen_line("peak", "%s, in %s",
                   vp_size_text(plan->peak_bytes + plan->outside_bytes, a, sizeof a), t->at);
    printf("\n%-58s %12s\n", "at the peak", "bytes");
    for (int64_t i = 0; i < t->itemised.n_items; i++)
        printf("%-58s %12s\n", t->itemised.items[i].name,
               vp_size_text(t->itemised.items[i].bytes, a, sizeof a));
    if (plan->outside_bytes) {
        snprintf(shown, sizeof shown, "outside the arena (context, libraries; %s)",
                 vp_overhead_class_text(plan, outside, sizeof outside));
        printf("%-58s %12s\n", shown, vp_size_text(plan->outside_bytes, a, sizeof a));
    }
    printf("%-58s %12s\n", "all of it",
           vp_size_text(plan->peak_bytes + plan->outside_bytes, a, sizeof a));
    printf("\nlargest tensors alive at the peak\n");
    for (int i = 0; i < t->n_largest; i++)
        printf("  %12s  %-16s %s\n", vp_size_text(t->x.buffers[t->largest[i]].bytes, a, sizeof a),
               vp_component_name(t->x.buffers[t->largest[i]].component),
               vp_text_escape(t->x.buffers[t->largest[i]].name, shown, sizeof shown));
    printf("\nwhat if: what one micro-step needs, as vplan estimate gives it\n");
    for (int i = 0; i < t->what_if.n; i++) {
        snprintf(shown, sizeof shown, "%10s",
                 vp_size_text(t->what_if.rows[i].device_bytes, a, sizeof a));
        vp_screen_line(shown, " %s", t->what_if.rows[i].command);
    }
    printf("\n");
    vp_screen_phases(&t->itemised, plan->outside_bytes);
    vp_screen_line("next",
                   "vplan run, or --buffers and --program: every buffer, every step as CSV");
}

typedef struct explain_options {
    const char *profile;
    bool        buffers, program;
} explain_options;

static const vp_option rows[] = {
    {.name = "--buffers",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(explain_options, buffers),
     .help = "Every buffer of one optimizer step as CSV: buffer, memory, offset, bytes, first and "
             "last step, component, name"},
    {.name = "--program",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(explain_options, program),
     .help = "Every step as CSV: step, phase, micro-step, block, op, stream, buffers read, "
             "buffers written, seconds"},
    {.name      = "--profile",
     .kind      = VP_OPTION_INPUT,
     .at        = offsetof(explain_options, profile),
     .value     = "FILE",
     .help      = "Times by this profile (see vplan-run --profile): what the plan would take "
                  "there; decisions and proof stay as they were planned",
     .otherwise = "the times the plan was made with",
     .example   = "profile.json"},
};
static const vp_option_set options = {VP_ROWS(rows)};

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    explain_options w       = {0};
    story           t       = {0};
    vp_arena       *arena   = vp_arena_new();
    vp_plan        *plan    = NULL;
    vp_profile     *profile = NULL;
    vp_command_line line;
    const char     *path;
    vp_status       st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(vp_cli_parse(&vp_cmd_explain, argc, argv, cli, (void *[]){&w}, &line, err));
    path      = line.words[0];
    t.profile = w.profile;
    if (!path)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "vplan explain PLAN: which plan?"));
    if (w.buffers && w.program)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--buffers and --program are two tables: one at a time"));
    VP_TRY(vp_plan_read(path, &plan, err));
    if (!plan->is_signed)
        fprintf(stderr,
                "note: the plan is not as vplan wrote it; vplan run takes it with --unsigned\n");
    t.planned_s = plan->step_time_s;
    if (t.profile) {
        VP_TRY(vp_profile_read(t.profile, &profile, err));
        VP_TRY(vp_plan_reprice(plan, t.profile, profile, err));
    }
    if (w.buffers) {
        VP_TRY(print_buffers(arena, plan, cli->json, err));
    } else if (w.program) {
        VP_TRY(print_program(plan, cli->json, err));
    } else {
        VP_TRY(tell(arena, plan, &t, err));
        if (cli->json)
            VP_TRY(vp_print_json(story_json(plan, &t), err));
        else
            print_story(plan, &t);
    }
out:
    vp_profile_free(profile);
    vp_plan_free(plan);
    vp_arena_free(arena);
    return st;
}

const vp_command vp_cmd_explain = {
    .name      = "explain",
    .summary   = "what is alive at a plan's peak; every buffer and step",
    .usage     = {"PLAN [options]"},
    .about     = {"What a plan decides, what is alive at its peak, at which step that is, the "
                      "largest tensors there, and what if: the peaks that vplan estimate gives for "
                      "other recompute kinds, losses, micro-batches and optimizers."},
    .examples  = {"vplan explain plan.json", "vplan explain plan.json --buffers"},
    .sets      = {&options},
    .argument  = VP_TAKES_FILE,
    .max_words = 1,
    .run       = run,
};
