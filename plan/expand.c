#include "plan/expand.h"

#include "base/checked.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the ids of each kind of buffer begin. */
typedef struct numbering {
    int64_t n_micro_steps, n_instances;
    /* per fixed buffer */
    int64_t *fixed_first;
    /* per instance: its first parameter in the region */
    int64_t *param_first[VP_N_REGIONS];
    /* per template and parameter: how many before it have it; -1: it has none */
    int64_t **param_rank[VP_N_REGIONS];
    /* per instance: its first own buffer */
    int64_t *local_first;
    /* n_params: all regions together */
    int64_t n_fixed, n_params, n_local;
} numbering;

static bool has_out(const vp_program *p)
{
    return p->n_buffers > 0 && p->buffers[p->n_buffers - 1].place == VP_PLACE_OUT;
}

/* Which parameters of each template lie in the region. */
static vp_status rank_params(vp_arena *arena, const vp_plan *plan, vp_region h, numbering *n,
                             vp_err *err)
{
    assert(h < VP_N_REGIONS);
    n->param_rank[h] = vp_arena_array(arena, plan->n_templates, sizeof(int64_t *));
    if (!n->param_rank[h])
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t t = 0; t < plan->n_templates; t++) {
        const vp_plan_template *tmpl = &plan->templates[t];
        int64_t *rank = vp_arena_array(arena, tmpl->n_params + 1, sizeof *rank), n_have = 0;
        if (!rank)
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        for (int64_t k = 0; k < tmpl->n_params; k++)
            rank[k] =
                vp_plan_param_bytes(&plan->recipe, &tmpl->params[k].param, h) > 0 ? n_have++ : -1;
        rank[tmpl->n_params] = n_have;
        n->param_rank[h][t]  = rank;
    }
    return VP_OK;
}

int64_t vp_unrolled_micro_steps(const vp_bucket *bucket)
{
    return vp_min_i64(bucket->n_micro_steps, VP_MAX_UNROLLED);
}

/* Buffers of a fixed one: those of micro-steps that are not walked together. */
static int64_t n_of_fixed(const vp_bucket *bucket, const vp_plan_fixed *f, int64_t n_micro_steps)
{
    assert(n_micro_steps <= bucket->n_micro_steps);
    return f->per_micro_step ? n_micro_steps + (n_micro_steps < bucket->n_micro_steps) : 1;
}

static vp_status number(vp_arena *arena, const vp_plan *plan, const vp_bucket *bucket,
                        int64_t n_micro_steps, numbering *n, vp_err *err)
{
    assert(n_micro_steps >= 1);
    *n = (numbering){.n_micro_steps = n_micro_steps, .n_instances = bucket->n_instances};
    n->fixed_first = vp_arena_array(arena, plan->n_fixed, sizeof(int64_t));
    n->local_first = vp_arena_array(arena, bucket->n_instances + 1, sizeof(int64_t));
    for (int h = 0; h < VP_N_REGIONS; h++) {
        vp_status st      = rank_params(arena, plan, (vp_region)h, n, err);
        n->param_first[h] = vp_arena_array(arena, bucket->n_instances + 1, sizeof(int64_t));
        if (st != VP_OK)
            return st;
    }
    if (vp_arena_failed(arena))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t i = 0; i < plan->n_fixed; i++) {
        n->fixed_first[i] = n->n_fixed;
        n->n_fixed += n_of_fixed(bucket, &plan->fixed[i], n_micro_steps);
    }
    for (int64_t i = 0; i < bucket->n_instances; i++) {
        const vp_program *p = &bucket->programs[bucket->instances[i].program_idx];

        assert(bucket->instances[i].program_idx < bucket->n_programs);
        n->local_first[i] = n->n_local;
        n->n_local += p->n_buffers - (has_out(p) ? 1 : 0);
    }
    for (int h = 0; h < VP_N_REGIONS; h++)
        for (int64_t i = 0; i < bucket->n_instances; i++) {
            int64_t t            = bucket->programs[bucket->instances[i].program_idx].template_idx;
            n->param_first[h][i] = n->n_params;
            n->n_params += n->param_rank[h][t][plan->templates[t].n_params];
        }
    return VP_OK;
}

/* -1: this parameter has nothing in that region. */
static int64_t param_id(const numbering *n, vp_region h, int64_t instance_idx, int64_t template_idx,
                        int64_t param_idx)
{
    assert(instance_idx >= 0 && instance_idx < n->n_instances);
    int64_t rank = n->param_rank[h][template_idx][param_idx];
    return rank < 0 ? -1 : n->n_fixed + n->param_first[h][instance_idx] + rank;
}

static int64_t local_id(const numbering *n, const vp_bucket *bucket, int64_t micro_step,
                        int64_t instance_idx, int64_t idx)
{
    const vp_program *p     = &bucket->programs[bucket->instances[instance_idx].program_idx];
    int64_t           first = n->n_fixed + n->n_params + micro_step * n->n_local;

    assert(idx >= 0 && idx < p->n_buffers);
    assert(micro_step >= 0 && micro_step < n->n_micro_steps);
    if (p->buffers[idx].place == VP_PLACE_OUT) { /* the successor's input, its buffer 0 */
        assert(instance_idx + 1 < n->n_instances);
        return first + n->local_first[instance_idx + 1];
    }
    return first + n->local_first[instance_idx] + idx;
}

static vp_expanded_operand resolve(const vp_plan *plan, const vp_bucket *bucket, const numbering *n,
                                   int64_t micro_step, int64_t instance_idx, const vp_arg *arg)
{
    assert(instance_idx + arg->ahead >= 0 && instance_idx + arg->ahead < bucket->n_instances);
    instance_idx += arg->ahead;
    const vp_plan_instance *instance = &bucket->instances[instance_idx];
    const vp_program       *program  = &bucket->programs[instance->program_idx];
    int64_t                 micro    = micro_step < 0 ? 0 : micro_step;
    vp_expanded_operand     op       = {.buffer = -1};

    switch (arg->space) {
    case VP_SPACE_BUFFER:
        op.buffer       = local_id(n, bucket, micro, instance_idx, arg->idx);
        op.memory       = program->buffers[arg->idx].memory;
        op.offset_bytes = instance->base_bytes[op.memory] + program->buffers[arg->idx].offset_bytes;
        break;
    case VP_SPACE_PARAM:
    case VP_SPACE_GRAD:
    case VP_SPACE_MASTER:
    case VP_SPACE_STATE0:
    case VP_SPACE_STATE1: {
        assert(arg->idx >= 0 && arg->idx < plan->templates[program->template_idx].n_params);
        vp_region h = (vp_region)(arg->space - VP_SPACE_PARAM);
        op.buffer   = param_id(n, h, instance_idx, program->template_idx, arg->idx);
        assert(op.buffer >= 0); /* no step names what its parameter has not */
        op.memory       = instance->region_memory[h];
        op.offset_bytes = instance->region_base_bytes[h] +
                          plan->templates[program->template_idx].params[arg->idx].offset_bytes[h];
        break;
    }
    case VP_SPACE_SHARED_PARAM:
    case VP_SPACE_SHARED_GRAD: {
        assert(arg->idx >= 0 && arg->idx < plan->n_shared);
        vp_region h = arg->space == VP_SPACE_SHARED_GRAD ? VP_REGION_GRAD : VP_REGION_PARAM;
        const vp_plan_shared   *s     = &plan->shared[arg->idx];
        const vp_plan_instance *owner = &bucket->instances[s->instance_idx];
        const vp_program       *p     = &bucket->programs[owner->program_idx];
        op.buffer       = param_id(n, h, s->instance_idx, p->template_idx, s->param_idx);
        op.memory       = owner->region_memory[h];
        op.offset_bytes = owner->region_base_bytes[h] +
                          plan->templates[p->template_idx].params[s->param_idx].offset_bytes[h];
        break;
    }
    case VP_SPACE_FIXED: {
        assert(arg->idx >= 0 && arg->idx < plan->n_fixed);
        const vp_plan_fixed *f = &plan->fixed[arg->idx];
        op.buffer              = n->fixed_first[arg->idx] + (f->per_micro_step ? micro : 0);
        op.memory              = f->memory;
        op.offset_bytes        = f->offset_bytes + (f->per_micro_step ? micro * f->bytes : 0);
        break;
    }
    case VP_SPACE_NONE:
        return op;
    }
    op.offset_bytes += arg->offset_bytes;
    return op;
}

/* A copy that was started; bytes 0: it is done, or never was. */
typedef struct under_way {
    vp_expanded_operand from, to;
    int64_t             bytes, started;
} under_way;

typedef struct walk {
    const vp_plan   *plan;
    const vp_bucket *bucket;
    const numbering *n;
    vp_expand_fn     fn;
    void            *ctx;
    int64_t          idx;
    under_way        copies[VP_MAX_COPIES];
} walk;

/* A copy's two steps name the same buffers. */
static void pair_copy(walk *w, vp_expanded_step *x)
{
    under_way *c;

    if (x->step->kernel == VP_K_COPY_START) {
        assert(x->step->copy_start.copy < VP_MAX_COPIES);
        w->copies[x->step->copy_start.copy] =
            (under_way){x->operands[VP_COPY_START_X], x->operands[VP_COPY_START_Y],
                        x->step->copy_start.count, x->idx};
    } else if (x->step->kernel == VP_K_COPY_DONE) {
        assert(x->step->copy_done.copy < VP_MAX_COPIES);
        c = &w->copies[x->step->copy_done.copy];
        if (c->bytes > 0) {
            x->n_operands                = VP_N_COPY_START_OPERANDS;
            x->operands[VP_COPY_START_X] = c->from;
            x->operands[VP_COPY_START_Y] = c->to;
            x->copy_bytes                = c->bytes;
            x->started                   = c->started;
        }
        c->bytes = 0;
    }
}

int64_t vp_expanded_operand_bytes(const vp_expanded_step *step, int operand)
{
    if (step->step->kernel == VP_K_COPY_DONE)
        return step->copy_bytes;
    return vp_step_operand_bytes(step->step, step->ints, operand);
}

/* Where the steps of a pass stand: those of a smaller last micro-step have a place of their own. */
static vp_pass place_of_steps(const walk *w, vp_pass pass, int64_t micro_step)
{
    if (!vp_bucket_ends_smaller(w->bucket) || micro_step != w->n->n_micro_steps - 1)
        return pass;
    assert(pass <= VP_PASS_BACKWARD);
    return pass == VP_PASS_FORWARD ? VP_PASS_LAST_FORWARD : VP_PASS_LAST_BACKWARD;
}

static vp_status walk_pass(walk *w, vp_pass pass, int64_t micro_step, int64_t instance_idx,
                           vp_err *err)
{
    const vp_program *p  = &w->bucket->programs[w->bucket->instances[instance_idx].program_idx];
    const vp_pass     at = place_of_steps(w, pass, micro_step);
    vp_access         accesses[VP_MAX_OPERANDS];
    vp_status         st = VP_OK;

    for (int64_t i = 0; i < p->n_steps[at]; i++) {
        const vp_step *step = &p->steps[at][i];
        vp_step        windowed;
        vp_expanded_step
            x; /* its operands are set as far as there are any: no more is worth a step */

        if ((step->first_only && micro_step > 0) || (step->later_only && micro_step == 0))
            continue;
        x.idx          = w->idx;
        x.pass         = pass;
        x.micro_step   = micro_step;
        x.instance_idx = instance_idx;
        x.step         = step;
        x.ints         = step->ints;
        x.n_operands   = vp_step_accesses(step, accesses);
        x.started      = -1;
        x.copy_bytes   = 0;
        x.accumulate   = step->accumulate == VP_ACC_ALWAYS ||
                       (step->accumulate == VP_ACC_BY_PHASE && micro_step > 0);
        x.rng_op =
            ((uint32_t)w->bucket->instances[instance_idx].chain_idx << 8) + (uint32_t)step->rng_id;
        if (step->window_of_instance) {
            windowed                  = *step;
            windowed.attention.window = w->bucket->instances[instance_idx].window;
            x.ints                    = windowed.ints;
        }
        for (int k = 0; k < x.n_operands; k++) {
            x.operands[k] =
                resolve(w->plan, w->bucket, w->n, micro_step, instance_idx, &step->args[k]);
            x.operands[k].access = accesses[k] != VP_ACCUMULATE ? accesses[k]
                                   : x.accumulate               ? VP_UPDATE
                                                                : VP_WRITE;
        }
        pair_copy(w, &x);
        VP_TRY(w->fn(&x, w->ctx, err));
        w->idx++;
    }
out:
    return st;
}

static vp_status walk_all(walk *w, vp_err *err)
{
    const bool in_backward = w->plan->updates_in_backward;
    int64_t    n           = w->bucket->n_instances;
    vp_status  st          = VP_OK;

    for (int64_t micro = 0; micro < w->n->n_micro_steps; micro++) {
        for (int64_t i = 0; i < n; i++)
            VP_TRY(walk_pass(w, VP_PASS_FORWARD, micro, i, err));
        for (int64_t i = n - 1; i >= 0; i--) {
            VP_TRY(walk_pass(w, VP_PASS_BACKWARD, micro, i, err));
            if (in_backward && micro == w->n->n_micro_steps - 1) {
                VP_TRY(walk_pass(w, VP_PASS_NORM, -1, i, err));
                VP_TRY(walk_pass(w, VP_PASS_UPDATE, -1, i, err));
            }
        }
    }
    for (int64_t i = 0; i < n && !in_backward; i++)
        VP_TRY(walk_pass(w, VP_PASS_NORM, -1, i, err));
    for (int64_t i = 0; i < n && !in_backward; i++)
        VP_TRY(walk_pass(w, VP_PASS_UPDATE, -1, i, err));
out:
    return st;
}

vp_status vp_expand(const vp_plan *plan, const vp_bucket *bucket, int64_t n_micro_steps,
                    vp_expand_fn fn, void *ctx, vp_err *err)
{
    vp_arena *arena = vp_arena_new();
    numbering n;
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(number(arena, plan, bucket, n_micro_steps, &n, err));
    walk w = {.plan = plan, .bucket = bucket, .n = &n, .fn = fn, .ctx = ctx};
    VP_TRY(walk_all(&w, err));
out:
    vp_arena_free(arena);
    return st;
}

/* ---- everything in arrays ---- */

/* The m-th of a fixed buffer; m n_micro_steps: all that follow. */
static vp_expanded_buffer fixed_at(const vp_bucket *bucket, const vp_plan_fixed *f, int64_t m,
                                   int64_t n_micro_steps)
{
    vp_expanded_buffer b = {.memory       = f->memory,
                            .offset_bytes = f->offset_bytes + m * f->bytes,
                            .bytes        = vp_plan_fixed_bytes(bucket, f, m == n_micro_steps - 1),
                            .component    = f->component,
                            .persistent   = f->component != VP_COMP_TEMPORARIES &&
                                          f->component != VP_COMP_WORKSPACE &&
                                          f->component != VP_COMP_STAGING,
                            .instance_idx = -1};

    if (m ==
        n_micro_steps) { /* they begin where the last that is walked ends, maybe a smaller one */
        b.offset_bytes += vp_plan_fixed_bytes(bucket, f, true) - f->bytes;
        b.bytes      = f->offset_bytes + vp_plan_fixed_total_bytes(bucket, f) - b.offset_bytes;
        b.persistent = b.not_walked = true; /* its place is taken all the time */
        snprintf(b.name, sizeof b.name, "%s.%lld to %lld", f->name, (long long)m,
                 (long long)bucket->n_micro_steps - 1);
    } else if (f->per_micro_step) {
        snprintf(b.name, sizeof b.name, "%s.%lld", f->name, (long long)m);
    } else {
        snprintf(b.name, sizeof b.name, "%s", f->name);
    }
    return b;
}

static void describe_fixed(const vp_plan *plan, const vp_bucket *bucket, const numbering *n,
                           vp_expanded_buffer *buffers)
{
    for (int64_t i = 0; i < plan->n_fixed; i++)
        for (int64_t m = 0; m < n_of_fixed(bucket, &plan->fixed[i], n->n_micro_steps); m++)
            buffers[n->fixed_first[i] + m] = fixed_at(bucket, &plan->fixed[i], m, n->n_micro_steps);
}

static void describe_params(const vp_plan *plan, const vp_bucket *bucket, const numbering *n,
                            vp_region h, vp_expanded_buffer *buffers)
{
    static const vp_component components[VP_N_REGIONS] = {VP_COMP_PARAMETERS, VP_COMP_GRADIENTS,
                                                          VP_COMP_MASTER, VP_COMP_OPTIMIZER_STATE,
                                                          VP_COMP_OPTIMIZER_STATE};
    const char               *state_name =
        h >= VP_REGION_STATE0
                          ? vp_optimizer_state_name(plan->recipe.optimizer, (int)(h - VP_REGION_STATE0))
                          : NULL;
    char prefix[64] = "";

    if (state_name)
        snprintf(prefix, sizeof prefix, "%s ", state_name);
    else if (h != VP_REGION_PARAM)
        snprintf(prefix, sizeof prefix, h == VP_REGION_GRAD ? "grad " : "master ");
    const size_t n_prefix = strlen(prefix);
    for (int64_t i = 0; i < bucket->n_instances; i++) {
        const vp_plan_instance *instance     = &bucket->instances[i];
        int64_t                 template_idx = bucket->programs[instance->program_idx].template_idx;
        const vp_plan_template *t            = &plan->templates[template_idx];
        for (int64_t k = 0; k < t->n_params; k++) {
            int64_t id = param_id(n, h, i, template_idx, k);
            if (id < 0)
                continue;
            vp_expanded_buffer *b = &buffers[id];
            b->component          = components[h];
            b->memory             = instance->region_memory[h];
            b->offset_bytes       = instance->region_base_bytes[h] + t->params[k].offset_bytes[h];
            b->bytes              = vp_plan_param_bytes(&plan->recipe, &t->params[k].param, h);
            b->instance_idx       = i;
            b->persistent         = h != VP_REGION_GRAD;
            b->state_name         = state_name;
            memcpy(b->name, prefix, n_prefix);
            vp_param_full_name(&t->params[k].param, instance->index, b->name + n_prefix,
                               sizeof b->name - n_prefix);
        }
    }
}

static void describe_locals(const vp_plan *plan, const vp_bucket *bucket, const numbering *n,
                            vp_expanded_buffer *buffers)
{
    for (int64_t m = 0; m < n->n_micro_steps; m++)
        for (int64_t i = 0; i < bucket->n_instances; i++) {
            const vp_plan_instance *instance = &bucket->instances[i];
            const vp_program       *p        = &bucket->programs[instance->program_idx];
            char                    prefix[sizeof((vp_expanded_buffer *)0)->name];
            snprintf(prefix, sizeof prefix, "%s.%lld ", plan->templates[p->template_idx].name,
                     (long long)instance->index);
            const size_t n_prefix = strlen(prefix);
            for (int64_t k = 0; k < p->n_buffers - (has_out(p) ? 1 : 0); k++) {
                const vp_plan_buffer *local = &p->buffers[k];
                vp_expanded_buffer   *b     = &buffers[local_id(n, bucket, m, i, k)];
                b->component                = local->component;
                b->memory                   = local->memory;
                b->offset_bytes = instance->base_bytes[local->memory] + local->offset_bytes;
                b->bytes        = local->bytes;
                b->instance_idx = i;
                b->local_name   = local->name;
                b->kept         = local->kept;
                memcpy(b->name, prefix, n_prefix); /* there is a zero behind all of them */
                memcpy(b->name + n_prefix, local->name,
                       strnlen(local->name, sizeof b->name - 1 - n_prefix));
            }
        }
}

typedef struct lifetimes {
    const vp_expansion *x;
    int64_t             n_steps;
    /* buffers from here on are a smaller last micro-step's: as large as what its steps use */
    int64_t smaller_from;
} lifetimes;

/* Take in what a step uses of a smaller last micro-step's buffer. */
static void grow(vp_expanded_buffer *b, const vp_expanded_step *step, int operand)
{
    int64_t end = step->operands[operand].offset_bytes + vp_expanded_operand_bytes(step, operand);

    assert(step->operands[operand].memory == b->memory);
    b->bytes = vp_max_i64(b->bytes, end - b->offset_bytes);
}

static vp_status note_use(const vp_expanded_step *step, void *ctx, vp_err *err)
{
    lifetimes *l = ctx;

    (void)err;
    for (int k = 0; k < step->n_operands; k++) {
        int64_t b = step->operands[k].buffer;
        assert(b < l->x->n_buffers);
        if (b < 0)
            continue;
        if (b >= l->smaller_from)
            grow(&l->x->buffers[b], step, k);
        if (l->x->first_step[b] < 0)
            l->x->first_step[b] = step->idx;
        l->x->last_step[b] = step->idx;
    }
    assert(step->idx == l->n_steps); /* steps come numbered, none left out */
    l->x->passes[l->n_steps++] = (unsigned char)step->pass;
    return VP_OK;
}

/* The steps that are walked, and a few that are not: those of other than the first micro-steps, and so on. */
static int64_t most_steps(const vp_bucket *bucket, int64_t n_micro_steps)
{
    int64_t n = 0;

    for (int64_t i = 0; i < bucket->n_instances; i++) {
        const vp_program *p = &bucket->programs[bucket->instances[i].program_idx];
        n += n_micro_steps * (p->n_steps[VP_PASS_FORWARD] + p->n_steps[VP_PASS_BACKWARD]);
        for (int pass = VP_PASS_NORM; pass < VP_N_PASSES; pass++)
            n += p->n_steps[pass];
    }
    return n;
}

vp_status vp_expansion_make(vp_arena *arena, const vp_plan *plan, const vp_bucket *bucket,
                            int64_t n_micro_steps, vp_expansion *out, vp_err *err)
{
    numbering n;
    vp_status st = VP_OK;

    VP_TRY(number(arena, plan, bucket, n_micro_steps, &n, err));
    *out         = (vp_expansion){.n_buffers = n.n_fixed + n.n_params + n_micro_steps * n.n_local};
    out->buffers = vp_arena_array(arena, out->n_buffers, sizeof *out->buffers);
    out->first_step = vp_arena_array(arena, out->n_buffers, sizeof(int64_t));
    out->last_step  = vp_arena_array(arena, out->n_buffers, sizeof(int64_t));
    out->passes     = vp_arena_array(arena, most_steps(bucket, n_micro_steps), 1);
    VP_TRY_ALLOC(err, vp_arena_failed(arena) ? NULL : out);
    describe_fixed(plan, bucket, &n, out->buffers);
    for (int h = 0; h < VP_N_REGIONS; h++)
        describe_params(plan, bucket, &n, (vp_region)h, out->buffers);
    describe_locals(plan, bucket, &n, out->buffers);

    for (int64_t i = 0; i < out->n_buffers; i++)
        out->first_step[i] = out->last_step[i] = -1;
    lifetimes l = {.x = out, .smaller_from = out->n_buffers};
    if (vp_bucket_ends_smaller(bucket))
        l.smaller_from -= n.n_local;
    for (int64_t i = l.smaller_from; i < out->n_buffers; i++)
        out->buffers[i].bytes = 0;
    walk w = {.plan = plan, .bucket = bucket, .n = &n, .fn = note_use, .ctx = &l};
    VP_TRY(walk_all(&w, err));
    out->n_steps = l.n_steps;
    assert(out->n_steps == w.idx);
    const bool reserved = !plan->updates_in_backward; /* gradients */
    for (int64_t i = 0; i < out->n_buffers; i++)
        if (out->buffers[i].persistent ||
            (reserved && out->buffers[i].component == VP_COMP_GRADIENTS)) {
            out->first_step[i] = 0; /* reserved for the whole step, whenever it is first written */
            out->last_step[i]  = out->n_steps - 1;
        }
out:
    return st;
}

static int by_begin(const void *a, const void *b)
{
    const vp_range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

vp_status vp_expansion_padding(vp_arena *arena, const vp_expansion *x, vp_memory memory,
                               int64_t peak_bytes, vp_range **ranges, int64_t *n, vp_err *err)
{
    vp_range *used   = vp_arena_array(arena, x->n_buffers, sizeof *used);
    vp_range *gaps   = vp_arena_array(arena, x->n_buffers + 1, sizeof *gaps);
    int64_t   n_used = 0, n_gaps = 0, covered = 0;

    if (vp_arena_failed(arena))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t i = 0; i < x->n_buffers; i++)
        if (x->first_step[i] >= 0 && x->buffers[i].memory == memory)
            used[n_used++] = (vp_range){x->buffers[i].offset_bytes,
                                        x->buffers[i].offset_bytes + x->buffers[i].bytes};
    qsort(used, (size_t)n_used, sizeof *used, by_begin);
    for (int64_t i = 0; i < n_used; i++) {
        if (used[i].begin > covered)
            gaps[n_gaps++] = (vp_range){covered, used[i].begin};
        covered = vp_max_i64(covered, used[i].end);
    }
    if (covered < peak_bytes)
        gaps[n_gaps++] = (vp_range){covered, peak_bytes};
    assert(n_gaps <= x->n_buffers + 1);
    *ranges = gaps;
    *n      = n_gaps;
    return VP_OK;
}

const char *vp_pass_phase(vp_pass pass)
{
    return pass == VP_PASS_FORWARD    ? "forward"
           : pass == VP_PASS_BACKWARD ? "backward"
                                      : "optimizer";
}
