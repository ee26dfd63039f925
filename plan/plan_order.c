/* plan/plan_order.c: a plan's steps one after another: everything is written before it is read, copies
 * and updates come in an order in which nothing is lost. Sizes and indices are in range already. */
#include "base/checked.h"
#include "plan/plan_internal.h"
#include "plan/simulate.h"

#include <assert.h>
#include <stdio.h>

/* The bytes of a buffer that hold data: one range, which grows as chunks are written side by
 * side. */
typedef struct filled {
    int64_t begin, end;
} filled;

static void fill(filled *f, int64_t begin, int64_t end)
{
    assert(begin >= 0 && begin <= end); /* operands lie inside their buffers */
    if (f->begin == f->end || begin > f->end || end < f->begin) {
        *f = (filled){begin, end};
        return;
    }
    f->begin = vp_min_i64(f->begin, begin);
    f->end   = vp_max_i64(f->end, end);
}

/* A copy between its two steps. */
typedef struct under_way {
    bool                is;
    vp_expanded_operand from, to;
    int64_t             bytes;
} under_way;

typedef struct sweep {
    const vp_plan      *plan;
    const vp_bucket    *bucket;
    const vp_expansion *x;
    const char         *file;
    filled             *written; /* per buffer */
    double              micro_step_s[VP_MAX_UNROLLED], optimizer_s;
    under_way           copies[VP_MAX_COPIES];
    bool                has_copies;
    int                 under_way[VP_MAX_COPIES], n_under_way; /* those of copies that are */
    int                *n_copied; /* per buffer: ends of copies under way; nearly all have none */
    /* per buffer: the step that began to copy the control block into it, and nothing has been written
     * there since; -1: none. And the last step that wrote the control block */
    int64_t *control_since;
    int64_t  control_written;
    bool    *host_knows; /* per buffer of the device: a copy of it that only the host waits for */
    bool    *settled;    /* per buffer: a parameter that was updated, or its gradient */
    int      n_norms;    /* that are complete: one, of all gradients */
} sweep;

static bool overlap(const vp_expanded_operand *a, int64_t a_bytes, const vp_expanded_operand *b,
                    int64_t b_bytes)
{
    return a->buffer == b->buffer && a->offset_bytes < b->offset_bytes + b_bytes &&
           b->offset_bytes < a->offset_bytes + a_bytes;
}

/* Whether an operand of a step may not be used while a copy is under way: nobody may write what it
 * reads, or touch what it writes. */
static bool disturbs(const vp_expanded_step *s, int k, const under_way *c)
{
    const vp_expanded_operand *a = &s->operands[k];
    int64_t                    bytes;

    if (a->buffer < 0 || (a->buffer != c->to.buffer && a->buffer != c->from.buffer))
        return false;
    bytes = vp_expanded_operand_bytes(s, k);
    return overlap(a, bytes, &c->to, c->bytes) ||
           (a->access != VP_READ && overlap(a, bytes, &c->from, c->bytes));
}

/* What the host makes: an update, of what lies in host memory, with the numbers of the control block as
 * the norm left them, or, in backward, the host before the step. */
static vp_status check_host_step(const sweep *w, const vp_expanded_step *s, vp_err *err)
{
    const vp_kernel_info *info = vp_kernel_info_of(s->step->kernel);
    const char           *file = w->file;
    vp_status             st   = VP_OK;

    NEED(info->kind == VP_KERNEL_UPDATE && s->pass == VP_PASS_UPDATE, NULL,
         "step %lld (%s): only updates, each element by itself, are made by the host",
         (long long)s->idx, s->step->name);
    for (int k = 0; k < s->n_operands; k++) {
        int64_t buffer = s->operands[k].buffer;
        if (buffer < 0)
            continue;
        NEED(vp_memory_is_host(s->operands[k].memory), NULL,
             "step %lld (%s): %s lies in %s, where the host does not reach it", (long long)s->idx,
             s->step->name, vp_step_operand_name(s->step, k),
             vp_memory_name(s->operands[k].memory));
        if (info->operands[k].elem != VP_AS_CONTROL)
            continue;
        int64_t last = w->plan->updates_in_backward ? -1 : w->control_written;
        NEED(s->step->args[k].offset_bytes == 0 && w->control_since[buffer] > last, NULL,
             "step %lld (%s): nobody has brought it the control block of this step",
             (long long)s->idx, s->step->name);
    }
out:
    return st;
}

/* What holds the control block, or a copy of all of it, after a step that writes to a buffer. */
static void note_control(sweep *w, const vp_expanded_step *s, const vp_expanded_operand *to)
{
    const vp_expanded_buffer  *b    = &w->x->buffers[to->buffer];
    const vp_expanded_operand *from = &s->operands[VP_COPY_START_X];
    bool copies = s->started >= 0 && w->x->buffers[from->buffer].component == VP_COMP_CONTROL &&
                  from->offset_bytes == w->x->buffers[from->buffer].offset_bytes &&
                  to->offset_bytes == b->offset_bytes &&
                  s->copy_bytes >= vp_precision_control_bytes(w->plan->recipe.precision);

    w->control_since[to->buffer] = copies ? s->started : -1;
    if (b->component == VP_COMP_CONTROL)
        w->control_written = s->idx;
}

static void begin_copy(sweep *w, const vp_expanded_step *s)
{
    const int copy = (int)s->step->copy_start.copy;

    assert(w->n_under_way < VP_MAX_COPIES && !w->copies[copy].is);
    w->copies[copy] = (under_way){true, s->operands[VP_COPY_START_X], s->operands[VP_COPY_START_Y],
                                  s->step->copy_start.count};
    w->under_way[w->n_under_way++] = copy;
    assert(w->copies[copy].from.buffer >= 0 && w->copies[copy].to.buffer >= 0); /* check_step() */
    w->n_copied[w->copies[copy].from.buffer]++;
    w->n_copied[w->copies[copy].to.buffer]++;
}

static void end_copy(sweep *w, int copy)
{
    int i = 0;

    while (i < w->n_under_way && w->under_way[i] != copy)
        i++;
    assert(i < w->n_under_way);
    w->under_way[i]    = w->under_way[--w->n_under_way];
    w->copies[copy].is = false;
    w->n_copied[w->copies[copy].from.buffer]--;
    w->n_copied[w->copies[copy].to.buffer]--;
}

/* Kernels work on the device; a copy goes the way of its stream, and its two steps are a pair. */
static vp_status check_stream(sweep *w, const vp_expanded_step *s, vp_err *err)
{
    const char *file   = w->file;
    vp_stream   stream = s->step->stream;
    vp_status   st     = VP_OK;

    assert(stream < VP_N_STREAMS);
    NEED((s->step->kernel == VP_K_COPY_START) ==
             (stream == VP_STREAM_TO_HOST || stream == VP_STREAM_TO_DEVICE),
         NULL, "step %lld (%s): only a copy_start stands on a copy's stream", (long long)s->idx,
         s->step->name);
    if (stream == VP_STREAM_HOST && s->step->kernel != VP_K_COPY_DONE) {
        VP_TRY(check_host_step(w, s, err));
    } else if (s->step->kernel == VP_K_COPY_START) {
        under_way *c = &w->copies[s->step->copy_start.copy];
        NEED(!c->is, NULL, "step %lld (%s): copy %lld is under way already", (long long)s->idx,
             s->step->name, (long long)s->step->copy_start.copy);
        const vp_memory x = s->operands[VP_COPY_START_X].memory,
                        y = s->operands[VP_COPY_START_Y].memory;
        NEED(stream == VP_STREAM_TO_HOST ? x == VP_MEMORY_DEVICE && vp_memory_is_copied(y)
                                         : vp_memory_is_copied(x) && y == VP_MEMORY_DEVICE,
             NULL, "step %lld (%s): does not copy from %s to %s, as its stream %s does",
             (long long)s->idx, s->step->name,
             stream == VP_STREAM_TO_HOST ? "device" : "host-pinned or nvme",
             stream == VP_STREAM_TO_HOST ? "host-pinned or nvme" : "device",
             vp_stream_name(stream));
        w->has_copies = true;
    } else if (s->step->kernel == VP_K_COPY_DONE) {
        NEED(s->started >= 0, NULL, "step %lld (%s): no copy %lld is under way", (long long)s->idx,
             s->step->name, (long long)s->step->copy_done.copy);
        end_copy(w, (int)s->step->copy_done.copy);
        for (int k = 0; stream == VP_STREAM_HOST && k < s->n_operands; k++)
            w->host_knows[s->operands[k].buffer] |= s->operands[k].memory == VP_MEMORY_DEVICE;
    } else {
        for (int k = 0; k < s->n_operands; k++) {
            NEED(s->operands[k].buffer < 0 || !w->host_knows[s->operands[k].buffer], NULL,
                 "step %lld (%s): uses %s, of which only the host knows that it is copied",
                 (long long)s->idx, s->step->name, w->x->buffers[s->operands[k].buffer].name);
            NEED(s->operands[k].buffer < 0 || s->operands[k].memory == VP_MEMORY_DEVICE, NULL,
                 "step %lld (%s): %s lies in %s, where no kernel reaches it", (long long)s->idx,
                 s->step->name, vp_step_operand_name(s->step, k),
                 vp_memory_name(s->operands[k].memory));
        }
    }
    for (int k = 0; k < s->n_operands; k++) {
        int64_t b = s->operands[k].buffer;
        for (int i = 0; b >= 0 && w->n_copied[b] > 0 && i < w->n_under_way; i++)
            NEED(!disturbs(s, k, &w->copies[w->under_way[i]]), NULL,
                 "step %lld (%s): uses %s while copy %d is under way", (long long)s->idx,
                 s->step->name, w->x->buffers[b].name, w->under_way[i]);
    }
    if (s->step->kernel == VP_K_COPY_START)
        begin_copy(w, s);
out:
    return st;
}

/* Every gradient is summed before clip_scale, which updates at the end wait for; whatever uses a parameter or
 * adds to its gradient comes before its update. */
static vp_status check_updates(sweep *w, const vp_expanded_step *s, vp_err *err)
{
    bool        late = s->pass == VP_PASS_UPDATE && !w->plan->updates_in_backward;
    const char *file = w->file;
    vp_status   st   = VP_OK;

    NEED(s->step->kernel != VP_K_GRAD_SUMSQ || w->n_norms == 0, NULL,
         "step %lld (%s): adds to the gradients' norm after its end", (long long)s->idx,
         s->step->name);
    w->n_norms += s->step->kernel == VP_K_CLIP_SCALE;
    NEED(!late || w->n_norms == 1, NULL,
         "step %lld (%s): comes before the end of the gradients' norm", (long long)s->idx,
         s->step->name);
    for (int k = 0; k < s->n_operands; k++) {
        int64_t      b    = s->operands[k].buffer;
        vp_component what = b < 0 ? VP_COMP_PADDING : w->x->buffers[b].component;
        if (what != VP_COMP_PARAMETERS && what != VP_COMP_GRADIENTS)
            continue;
        NEED(s->pass >= VP_PASS_NORM || !w->settled[b], NULL,
             "step %lld (%s): uses %s after its update", (long long)s->idx, s->step->name,
             w->x->buffers[b].name);
        w->settled[b] |= s->pass == VP_PASS_UPDATE;
    }
out:
    return st;
}

/* An error's field is left to the caller. */
static vp_status check_operands(sweep *w, const vp_expanded_step *s, vp_err *err)
{
    const vp_kernel_info *info = vp_kernel_info_of(s->step->kernel);
    vp_status             st   = VP_OK;
    const char           *file = w->file;

    assert(s->micro_step < VP_MAX_UNROLLED);
    VP_TRY(check_updates(w, s, err));
    *(s->micro_step < 0 ? &w->optimizer_s : &w->micro_step_s[s->micro_step]) += s->step->seconds;
    VP_TRY(check_stream(w, s, err));
    for (int k = 0; k < s->n_operands; k++) {
        const vp_expanded_operand *a = &s->operands[k];
        if (a->buffer < 0)
            continue;
        assert(a->buffer < w->x->n_buffers);
        const vp_expanded_buffer *b     = &w->x->buffers[a->buffer];
        int64_t                   begin = a->offset_bytes - b->offset_bytes,
                end                     = begin + vp_expanded_operand_bytes(s, k);
        NEED(a->access == VP_WRITE ||
                 (begin >= w->written[a->buffer].begin && end <= w->written[a->buffer].end),
             NULL, "step %lld (%s): reads %s before anything wrote it", (long long)s->idx,
             s->step->name, b->name);
        if (a->access == VP_READ)
            continue;
        NEED(k < info->n_operands || s->started >= 0 || a->offset_bytes % VP_ALIGN_BYTES == 0, NULL,
             "step %lld (%s): its workspace is not at a multiple of %d bytes", (long long)s->idx,
             s->step->name, VP_ALIGN_BYTES);
        NEED(b->component != VP_COMP_BATCH_INPUT && b->component != VP_COMP_CONSTANTS, NULL,
             "step %lld (%s): writes the input %s", (long long)s->idx, s->step->name, b->name);
        NEED((b->component != VP_COMP_PARAMETERS && b->component != VP_COMP_MASTER) ||
                 s->pass == VP_PASS_UPDATE,
             NULL, "step %lld (%s): changes the parameter %s before the optimizer",
             (long long)s->idx, s->step->name, b->name);
        for (int j = 0; j < s->n_operands && s->started < 0; j++)
            NEED(j == k || s->operands[j].buffer != a->buffer ||
                     (s->operands[j].offset_bytes == a->offset_bytes &&
                      vp_step_operand_bytes(s->step, s->step->ints, j) ==
                          vp_step_operand_bytes(s->step, s->step->ints, k) &&
                      (vp_step_may_share(s->step, k, j) || vp_step_may_share(s->step, j, k))) ||
                     (s->operands[j].access == VP_READ && a->access == VP_READ),
                 NULL, "step %lld (%s): %s and %s of %s may not share a buffer", (long long)s->idx,
                 s->step->name, vp_step_operand_name(s->step, k), vp_step_operand_name(s->step, j),
                 info->name);
    }
    /* what a copy writes is there when it is done */
    for (int k = 0; k < s->n_operands && s->step->kernel != VP_K_COPY_START; k++)
        if (s->operands[k].buffer >= 0 && s->operands[k].access != VP_READ) {
            const vp_expanded_operand *a = &s->operands[k];
            int64_t begin                = a->offset_bytes - w->x->buffers[a->buffer].offset_bytes;
            fill(&w->written[a->buffer], begin, begin + vp_expanded_operand_bytes(s, k));
            note_control(w, s, a);
        }
out:
    return st;
}

static vp_status check_access(const vp_expanded_step *s, void *ctx, vp_err *err)
{
    sweep            *w = ctx;
    const vp_program *p = &w->bucket->programs[w->bucket->instances[s->instance_idx].program_idx];

    return vp_place_in_step(check_operands(w, s, err), w->plan, w->bucket, p, s->step, err);
}

vp_status vp_plan_check_order(vp_arena *arena, const vp_plan *plan, const vp_bucket *bucket,
                              const vp_expansion *x, const char *file, double *step_s, vp_err *err)
{
    const int64_t n_micro = vp_unrolled_micro_steps(bucket);
    vp_status     st      = VP_OK;

    sweep w = {.plan            = plan,
               .bucket          = bucket,
               .x               = x,
               .file            = file,
               .written         = vp_arena_array(arena, x->n_buffers, sizeof(filled)),
               .control_since   = vp_arena_array(arena, x->n_buffers, sizeof(int64_t)),
               .control_written = -1,
               .n_copied        = vp_arena_array(arena, x->n_buffers, sizeof(int)),
               .host_knows      = vp_arena_array(arena, x->n_buffers, sizeof(bool)),
               .settled         = vp_arena_array(arena, x->n_buffers, sizeof(bool))};
    VP_TRY_ALLOC(err, w.written && w.control_since && w.n_copied && w.host_knows && w.settled);
    for (int64_t i = 0; i < x->n_buffers; i++) {
        w.written[i].end   = x->buffers[i].persistent ? x->buffers[i].bytes : 0;
        w.control_since[i] = -1;
    }
    VP_TRY(vp_expand(plan, bucket, n_micro, check_access, &w, err));
    NEED(w.n_norms == 1, vp_place_of("buckets[%d].programs", (int)(bucket - plan->buckets)).field,
         "end the gradients' norm %d times", w.n_norms);
    for (int c = 0; c < VP_MAX_COPIES; c++)
        NEED(!w.copies[c].is,
             vp_place_of("buckets[%d].programs", (int)(bucket - plan->buckets)).field,
             "copy %d is started, and nothing waits for it", c);
    if (w.has_copies) {
        vp_simulation simulated;
        VP_TRY(vp_simulate(plan, bucket, NULL, NULL, &simulated, err));
        *step_s = simulated.step_s;
        goto out;
    }
    *step_s = w.optimizer_s + w.micro_step_s[0] + w.micro_step_s[1] + w.micro_step_s[2] +
              w.micro_step_s[1] * (double)(bucket->n_micro_steps - n_micro);
out:
    return st;
}
