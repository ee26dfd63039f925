#include "cli/explain_tables.h"

#include "cli/cli.h"
#include "cli/screen.h"
#include "plan/expand.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

typedef struct buffer_row {
    int64_t     id, offset, bytes, first, last;
    vp_memory   memory;
    const char *component, *name;
} buffer_row;

static vp_status list_buffers(vp_arena *arena, const vp_plan *plan, const vp_expansion *x,
                              buffer_row **rows, int64_t *n, vp_err *err)
{
    vp_range *gaps[VP_N_MEMORIES];
    int64_t   n_gaps[VP_N_MEMORIES], id = x->n_buffers, n_rows = id;
    vp_status st = VP_OK;

    for (int m = 0; m < VP_N_MEMORIES; m++) {
        VP_TRY(vp_expansion_padding(arena, x, (vp_memory)m,
                                    vp_plan_memory_bytes(plan, (vp_memory)m), &gaps[m], &n_gaps[m],
                                    err));
        n_rows += n_gaps[m];
    }
    *rows = vp_arena_array(arena, n_rows, sizeof **rows);
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
    for (int m = 0; m < VP_N_MEMORIES; m++)
        for (int64_t i = 0; i < n_gaps[m]; i++, id++)
            (*rows)[(*n)++] = (buffer_row){.id        = id,
                                           .offset    = gaps[m][i].begin,
                                           .bytes     = gaps[m][i].end - gaps[m][i].begin,
                                           .last      = x->n_steps - 1,
                                           .memory    = (vp_memory)m,
                                           .component = vp_component_name(VP_COMP_PADDING),
                                           .name      = "padding"};
    assert(*n <= n_rows);
out:
    return st;
}

vp_status vp_explain_buffers(vp_arena *arena, const vp_plan *plan, bool json, vp_err *err)
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
        vp_screen_field(r->name);
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
    vp_screen_field(block);
    printf(",%s,%s,%s,%s,%.17g\n", vp_kernel_info_of(s->step->kernel)->name,
           vp_stream_name(s->step->stream), reads, writes, s->step->seconds);
    return VP_OK;
}

vp_status vp_explain_program(const vp_plan *plan, bool json, vp_err *err)
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
