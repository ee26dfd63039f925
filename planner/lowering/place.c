/* planner/lowering/place.c: from a flow of values to a program with offsets. */
#include "planner/lowering/lowering_internal.h"

#include "base/checked.h"
#include "planner/lowering/pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* First and last step of each pass at which something is used; -1: never. */
typedef struct span {
    int64_t first[2], last[2];
} span;

typedef struct storage {
    span     life;
    vp_place place;
    int64_t  bytes;
    int64_t  representative; /* its first value */
    bool     kept;
    int      maker;   /* of what is kept, as vp_value says */
    bool     in_host; /* which is kept in host memory      */
    int64_t  buffer_idx, offset;
} storage;

typedef struct placing {
    vp_flow *flow;
    span    *value_life;
    storage *storages;
    int64_t  n_storages;
} placing;

/* ---- sharing ---- */

static void note(span *s, int pass, int64_t step)
{
    assert(step >= 0);
    if (s->first[pass] < 0 || step < s->first[pass])
        s->first[pass] = step;
    if (step > s->last[pass])
        s->last[pass] = step;
}

static void find_lives(placing *p)
{
    vp_flow *f = p->flow;

    for (int64_t v = 0; v < f->n_values; v++)
        p->value_life[v] = (span){{-1, -1}, {-1, -1}};
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < f->n_steps[pass]; i++)
            for (int k = 0; k < f->steps[pass][i].n_operands; k++)
                if (f->steps[pass][i].value[k] >= 0)
                    note(&p->value_life[f->steps[pass][i].value[k]], pass, i);
    /* What lies at the block's boundary is there when a pass begins, or still there when it
     * ends. */
    if (f->in >= 0) {
        note(&p->value_life[f->in], VP_PASS_FORWARD, 0);
        note(&p->value_life[f->in], VP_PASS_FORWARD, f->n_steps[VP_PASS_FORWARD]);
        note(&p->value_life[f->in], VP_PASS_BACKWARD, 0);
        note(&p->value_life[f->in], VP_PASS_BACKWARD, f->n_steps[VP_PASS_BACKWARD]);
    }
    if (f->out >= 0) {
        note(&p->value_life[f->out], VP_PASS_FORWARD, f->n_steps[VP_PASS_FORWARD]);
        note(&p->value_life[f->grad_out], VP_PASS_BACKWARD, 0);
    }
}

static void absorb(placing *p, int64_t value, int64_t into)
{
    storage *s = &p->storages[into];

    assert(into >= 0 && into < p->flow->n_values && p->flow->values[value].storage < 0);
    for (int pass = 0; pass < 2; pass++)
        if (p->value_life[value].first[pass] >= 0) {
            note(&s->life, pass, p->value_life[value].first[pass]);
            note(&s->life, pass, p->value_life[value].last[pass]);
        }
    if (p->flow->values[value].place != VP_PLACE_LOCAL)
        s->place = p->flow->values[value].place;
    if (p->flow->values[value].forward) /* the last is what is kept */
        s->maker = p->flow->values[value].maker;
    p->flow->values[value].storage = into;
}

static int64_t open_storage(placing *p, int64_t value)
{
    storage *s = &p->storages[p->n_storages];

    assert(p->n_storages < p->flow->n_values); /* a value opens one at most */

    *s = (storage){.life           = {{-1, -1}, {-1, -1}},
                   .place          = p->flow->values[value].place,
                   .bytes          = p->flow->values[value].bytes,
                   .representative = value,
                   .buffer_idx     = -1};
    absorb(p, value, p->n_storages);
    return p->n_storages++;
}

/* Whether value `a`, which operand `out` of step i writes, may lie where operand `in` lies. */
static bool may_take_over(const placing *p, int pass, int64_t i, int out, int in)
{
    const vp_flow_step *step = &p->flow->steps[pass][i];
    const vp_value     *a    = &p->flow->values[step->value[out]];

    if (step->value[in] < 0 || step->access[in] != VP_READ ||
        !vp_step_may_share(&step->step, out, in) || step->step.args[in].offset_bytes ||
        step->step.args[out].offset_bytes)
        return false;
    assert(out != in && p->flow->values[step->value[in]].storage >= 0); /* read: made before */
    int64_t        id         = p->flow->values[step->value[in]].storage;
    const storage *s          = &p->storages[id];
    bool           ends_here  = s->life.last[pass] == i;
    bool           kept       = pass == VP_PASS_FORWARD && s->life.first[VP_PASS_BACKWARD] >= 0;
    bool           two_places = a->place != VP_PLACE_LOCAL && s->place != VP_PLACE_LOCAL;

    if (!ends_here || kept || two_places || s->place == VP_PLACE_IN || a->place == VP_PLACE_IN ||
        s->bytes != a->bytes)
        return false;
    /* another operand in the same place must allow it too */
    for (int k = 0; k < step->n_operands; k++)
        if (k != out && step->value[k] >= 0 && p->flow->values[step->value[k]].storage == id &&
            !vp_step_may_share(&step->step, out, k))
            return false;
    return true;
}

static void share_storages(placing *p, bool in_place)
{
    vp_flow *f = p->flow;

    for (int64_t v = 0; v < f->n_values; v++)
        f->values[v].storage = -1;
    if (f->in >= 0) {
        int64_t id = open_storage(p, f->in);
        if (f->grad_in >= 0 && f->values[f->grad_in].place == VP_PLACE_IN)
            absorb(p, f->grad_in, id);
    }
    for (int pass = 0; pass < 2; pass++) {
        /* the output's gradient comes in the output's place */
        if (pass == VP_PASS_BACKWARD && f->out >= 0)
            absorb(p, f->grad_out, f->values[f->out].storage);
        for (int64_t i = 0; i < f->n_steps[pass]; i++) {
            const vp_flow_step *step = &f->steps[pass][i];
            for (int k = 0; k < step->n_operands; k++) {
                int64_t v = step->value[k];
                if (v < 0 || f->values[v].storage >= 0)
                    continue;
                for (int in = step->n_operands - 1; in_place && in >= 0 && f->values[v].storage < 0;
                     in--)
                    if (in != k && may_take_over(p, pass, i, k, in))
                        absorb(p, v, f->values[step->value[in]].storage);
                if (f->values[v].storage < 0)
                    open_storage(p, v);
            }
        }
    }
    for (int64_t s = 0; s < p->n_storages; s++)
        p->storages[s].kept = p->storages[s].place == VP_PLACE_LOCAL &&
                              p->storages[s].life.first[VP_PASS_FORWARD] >= 0 &&
                              p->storages[s].life.first[VP_PASS_BACKWARD] >= 0;
}

/* ---- offsets ---- */

/* Input, then kept storages as they are produced; those in host memory one behind the other there. */
static int64_t stack_kept(placing *p)
{
    int64_t end      = p->flow->in >= 0 ? vp_round_up(p->storages[0].bytes, VP_ALIGN_BYTES) : 0,
            host_end = 0;

    for (int64_t i = 0; i < p->flow->n_steps[VP_PASS_FORWARD]; i++)
        for (int64_t s = 0; s < p->n_storages; s++)
            if (p->storages[s].kept && p->storages[s].life.first[VP_PASS_FORWARD] == i) {
                int64_t *at = p->storages[s].in_host ? &host_end : &end;
                assert(vp_overflowed(*at) || *at % VP_ALIGN_BYTES == 0);
                p->storages[s].offset = *at;
                *at = vp_add(*at, vp_round_up(p->storages[s].bytes, VP_ALIGN_BYTES));
            }
    return vp_overflowed(host_end) ? host_end : end;
}

static vp_status pack_pass(placing *p, int pass, int64_t kept_bytes, vp_heights heights,
                           vp_lowered *out, vp_err *err)
{
    vp_pack_item *items = calloc((size_t)p->n_storages + 1, sizeof *items);
    int64_t      *owner = calloc((size_t)p->n_storages + 1, sizeof *owner);
    int64_t       n     = 0;
    bool          met   = true;
    vp_status     st    = VP_OK;

    VP_TRY_ALLOC(err, items && owner);
    for (int64_t s = 0; s < p->n_storages; s++) {
        storage *x     = &p->storages[s];
        bool     fixed = x->kept || x->place != VP_PLACE_LOCAL;
        if (x->place == VP_PLACE_OUT)
            x->offset = kept_bytes;
        if (x->life.first[pass] < 0 || x->in_host)
            continue;
        owner[n] = s;
        items[n++] =
            (vp_pack_item){.bytes  = x->bytes,
                           .first  = x->kept && pass == VP_PASS_BACKWARD ? 0 : x->life.first[pass],
                           .last   = x->kept && pass == VP_PASS_FORWARD ? p->flow->n_steps[pass]
                                                                        : x->life.last[pass],
                           .fixed  = fixed,
                           .offset = x->offset};
    }
    VP_TRY(vp_pack_bound(items, n, VP_ALIGN_BYTES, &out->live_bytes[pass], err));
    if (heights == VP_HEIGHTS_LEAST)
        VP_TRY(vp_pack_least(items, n, VP_ALIGN_BYTES, &out->height_bytes[pass], err));
    else if (p->flow->n_middle)
        VP_TRY(
            vp_pack_in_first_orders(items, n, VP_ALIGN_BYTES, &out->height_bytes[pass], &met, err));
    else
        VP_TRY(vp_pack(items, n, VP_ALIGN_BYTES, &out->height_bytes[pass], err));
    out->middle.unsure |= !met;
    assert(out->height_bytes[pass] >= 0);
    for (int64_t i = 0; i < n; i++) {
        /* what is fixed stays, and nothing reaches beyond the height */
        assert(!items[i].fixed || p->storages[owner[i]].offset == items[i].offset);
        assert(
            heights == VP_HEIGHTS_LEAST ||
            (items[i].offset >= 0 && items[i].offset <= out->height_bytes[pass] - items[i].bytes));
        p->storages[owner[i]].offset = items[i].offset;
    }
out:
    free(items);
    free(owner);
    return st;
}

/* ---- results ---- */

static void list_saved(const placing *p, vp_lowered *out)
{
    const vp_flow *f = p->flow;

    for (int64_t s = 0; s < p->n_storages; s++) {
        const storage  *x = &p->storages[s];
        const vp_value *v = &f->values[x->representative];
        if (x->kept || x->place == VP_PLACE_IN)
            out->saved[out->n_saved++] = (vp_saved){v->name, v->dtype, v->bytes};
    }
}

static void list_buffers(placing *p, vp_program *program, int *makers)
{
    const vp_flow *f = p->flow;

    for (int turn = 0; turn < 4; turn++) /* input, kept, inside a pass, output */
        for (int64_t s = 0; s < p->n_storages; s++) {
            storage        *x = &p->storages[s];
            const vp_value *v = &f->values[x->representative];
            int class         = x->place == VP_PLACE_IN    ? 0
                                : x->place == VP_PLACE_OUT ? 3
                                : x->kept                  ? 1
                                                           : 2;
            if (class != turn)
                continue;
            x->buffer_idx              = program->n_buffers;
            makers[program->n_buffers] = x->kept ? x->maker : 0;
            program->buffers[program->n_buffers++] =
                (vp_plan_buffer){.name      = v->name,
                                 .component = v->component,
                                 .place     = x->place,
                                 .kept      = x->kept || x->place != VP_PLACE_LOCAL,
                                 .memory    = x->in_host ? VP_MEMORY_HOST_PINNED : VP_MEMORY_DEVICE,
                                 .offset_bytes = x->offset,
                                 .bytes        = x->bytes};
        }
}

static void list_steps(const placing *p, vp_program *program)
{
    const vp_flow *f = p->flow;

    assert(program->n_buffers == p->n_storages);
    for (int pass = 0; pass < 2; pass++) {
        program->n_steps[pass] = f->n_steps[pass];
        for (int64_t i = 0; i < f->n_steps[pass]; i++) {
            vp_step *step = &program->steps[pass][i];
            *step         = f->steps[pass][i].step;
            for (int k = 0; k < f->steps[pass][i].n_operands; k++)
                if (f->steps[pass][i].value[k] >= 0) {
                    assert(step->args[k].space == VP_SPACE_BUFFER);
                    step->args[k].idx =
                        p->storages[f->values[f->steps[pass][i].value[k]].storage].buffer_idx;
                }
        }
    }
}

/* Where the chunk stands that stands for others. Chunks' buffers are of two kinds: those of one chunk, and those
 * of all, which live longer whatever stands between. So the first orders of vp_pack(), which look at sizes and at who
 * lives longer, put the buffers of one chunk and those of all where they would with more chunks, and reach
 * as high. What lives before or behind all chunks must live shorter than those of all of them, too. */
static void find_middle(const vp_flow *f, vp_middle_chunk *out)
{
    const vp_flow_step *steps = f->steps[VP_PASS_BACKWARD];
    const int64_t       n     = f->n_steps[VP_PASS_BACKWARD];
    int64_t             end   = 0;

    out->n_times = f->n_middle;
    if (!f->n_middle)
        return;
    while (out->first < n && !steps[out->first].in_middle)
        out->first++;
    for (end = out->first; end < n && steps[end].in_middle;)
        end++;
    out->n_steps = end - out->first;
    out->unsure |= out->n_steps < 1 || out->first > 3 * out->n_steps || n - end > 2 * out->n_steps;
}

vp_status vp_place_flow(vp_flow *f, const vp_semantics *semantics, const vp_lower_opts *opts,
                        vp_lowered *out, vp_err *err)
{
    placing     p       = {.flow = f};
    vp_program *program = &out->program;
    vp_status   st      = VP_OK;

    p.value_life     = vp_arena_room(f->arena, f->n_values, sizeof *p.value_life);
    p.storages       = vp_arena_room(f->arena, f->n_values, sizeof *p.storages);
    out->saved       = vp_arena_room(f->arena, f->n_values, sizeof *out->saved);
    program->buffers = vp_arena_room(f->arena, f->n_values, sizeof *program->buffers);
    out->makers      = vp_arena_room(f->arena, f->n_values, sizeof *out->makers);
    VP_TRY_ALLOC(err, !vp_arena_failed(f->arena));
    find_lives(&p);
    share_storages(&p, semantics->executable);
    for (int64_t s = 0; s < p.n_storages; s++)
        p.storages[s].in_host = p.storages[s].kept && p.storages[s].maker &&
                                p.storages[s].maker <= 64 &&
                                (opts->offload >> (p.storages[s].maker - 1) & 1);
    list_saved(&p, out);
    if (!semantics->executable)
        goto out;
    program->kept_bytes = stack_kept(&p);
    for (int pass = 0; pass < 2; pass++)
        if (opts->heights != VP_HEIGHTS_NONE)
            VP_TRY(pack_pass(&p, pass, program->kept_bytes, opts->heights, out, err));
    find_middle(f, &out->middle);
    list_buffers(&p, program, out->makers);
    for (int pass = 0; pass < 2; pass++)
        program->steps[pass] = vp_arena_room(f->arena, f->n_steps[pass], sizeof(vp_step));
    VP_TRY_ALLOC(err, !vp_arena_failed(f->arena));
    list_steps(&p, program);
out:
    return st;
}
