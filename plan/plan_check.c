/* The plan's checker. It knows kernels (plan/op.h) and what a plan means (plan/expand.h), and
 * nothing of how one is made. Offsets and sizes are taken as hostile: they may come from an
 * edited file. */
#include "plan/plan.h"

#include "base/checked.h"
#include "plan/expand.h"
#include "plan/plan_internal.h"
#include "plan/workspace.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool inside(int64_t offset, int64_t bytes, int64_t end)
{
    return offset >= 0 && bytes >= 0 && bytes <= end && offset <= end - bytes;
}

static vp_status check_templates(const vp_plan *plan, const char *file, vp_err *err)
{
    int64_t   end_bytes = 0; /* of the largest memory */
    vp_status st        = VP_OK;

    for (int m = 0; m < VP_N_MEMORIES; m++)
        end_bytes = vp_max_i64(end_bytes, vp_plan_memory_bytes(plan, (vp_memory)m));
    for (int64_t t = 0; t < plan->n_templates; t++)
        for (int64_t k = 0; k < plan->templates[t].n_params; k++) {
            const vp_plan_param *held  = &plan->templates[t].params[k];
            const vp_param      *p     = &held->param;
            int64_t              count = 1;
            vp_place_in_file     at = vp_place_of("templates[%d].parameters[%d]", (int)t, (int)k);
            for (int d = 0; d < p->rank; d++)
                count = vp_mul(count, p->shape[d]);
            NEED(count > 0 && count == p->n_elements, at.field,
                 "parameter %s: its shape does not give %lld elements", p->name,
                 (long long)p->n_elements);
            for (int h = 0; h < VP_N_REGIONS; h++) {
                int64_t bytes = vp_plan_param_bytes(&plan->recipe, p, (vp_region)h);
                NEED(!vp_overflowed(bytes) && inside(held->offset_bytes[h], bytes, end_bytes) &&
                         held->offset_bytes[h] % 4 == 0,
                     at.field,
                     "parameter %s lies outside the memory, or not at a multiple of 4 bytes",
                     p->name);
            }
        }
out:
    return st;
}

static int64_t held_bytes(const vp_plan *plan, const vp_plan_template *t, const vp_arg *arg)
{
    int64_t bytes = arg->idx < t->n_params
                        ? vp_plan_param_bytes(&plan->recipe, &t->params[arg->idx].param,
                                              (vp_region)(arg->space - VP_SPACE_PARAM))
                        : 0;
    return bytes > 0 ? bytes : -1;
}

static int64_t buffer_bytes(const vp_program *p, int64_t idx)
{
    return idx < p->n_buffers ? p->buffers[idx].bytes : -1;
}

/* The least of what is behind an argument of a neighbour's, for every instance of the program. */
static int64_t neighbours_bytes(const vp_plan *plan, const vp_bucket *bucket, const vp_program *p,
                                const vp_arg *arg)
{
    int64_t least = INT64_MAX;

    for (int64_t i = 0; i < bucket->n_instances; i++) {
        int64_t next = i + arg->ahead;
        if (&bucket->programs[bucket->instances[i].program_idx] != p)
            continue;
        if (next < 0 || next >= bucket->n_instances)
            return -1;
        const vp_program *of = &bucket->programs[bucket->instances[next].program_idx];
        least                = vp_min_i64(least, arg->space == VP_SPACE_BUFFER
                                                     ? buffer_bytes(of, arg->idx)
                                                     : held_bytes(plan, &plan->templates[of->template_idx], arg));
    }
    return least == INT64_MAX ? -1 : least;
}

/* The size behind an argument of a step in this pass, or -1 when it points nowhere. */
static int64_t storage_bytes(const vp_plan *plan, const vp_bucket *bucket, const vp_program *p,
                             int pass, const vp_arg *arg)
{
    const vp_plan_template *t = &plan->templates[p->template_idx];

    if (arg->idx < 0)
        return -1;
    switch (arg->space) {
    case VP_SPACE_BUFFER:
        return arg->ahead ? neighbours_bytes(plan, bucket, p, arg) : buffer_bytes(p, arg->idx);
    case VP_SPACE_PARAM:
    case VP_SPACE_GRAD:
    case VP_SPACE_MASTER:
    case VP_SPACE_STATE0:
    case VP_SPACE_STATE1:
        return arg->ahead ? neighbours_bytes(plan, bucket, p, arg) : held_bytes(plan, t, arg);
    case VP_SPACE_SHARED_PARAM:
    case VP_SPACE_SHARED_GRAD: {
        if (arg->idx >= plan->n_shared)
            return -1;
        const vp_plan_shared *s = &plan->shared[arg->idx];
        assert(s->instance_idx < bucket->n_instances); /* check_bucket() looks there first */
        const vp_program *owner = &bucket->programs[bucket->instances[s->instance_idx].program_idx];
        return vp_plan_param_bytes(
            &plan->recipe, &plan->templates[owner->template_idx].params[s->param_idx].param,
            arg->space == VP_SPACE_SHARED_GRAD ? VP_REGION_GRAD : VP_REGION_PARAM);
    }
    case VP_SPACE_FIXED:
        return arg->idx < plan->n_fixed ? vp_plan_fixed_bytes(bucket, &plan->fixed[arg->idx],
                                                              pass >= VP_PASS_LAST_FORWARD)
                                        : -1;
    case VP_SPACE_NONE:
        break;
    }
    return -1;
}

/* Rules of single kernels that a size cannot express. */
static vp_status check_kernel(const vp_plan *plan, const vp_step *s, const char *at,
                              const char *file, vp_err *err)
{
    const vp_kernel_info *info = vp_kernel_info_of(s->kernel);
    vp_status             st   = VP_OK;

    for (int i = 0; i < info->n_ints; i++) {
        NEED(s->ints[i] >= info->ints[i].min && s->ints[i] <= info->ints[i].max, at,
             "%s (%s): %s is out of range", s->name, info->name, info->ints[i].name);
    }
    for (int k = 0; k < info->n_operands; k++) {
        vp_presence there = vp_kernel_presence(s->kernel, s->ints, k);
        NEED(!info->operands[k].optional || there == VP_MAYBE ||
                 (s->args[k].space != VP_SPACE_NONE) == (there == VP_ALWAYS),
             at, "%s (%s): operand %s does not go with its attributes", s->name, info->name,
             info->operands[k].name);
    }
    if (s->kernel == VP_K_ATTENTION_FWD || s->kernel == VP_K_ATTENTION_BWD) {
        const vp_attention_ints *n = &s->attention;
        double                   p = s->attention_reals.p;
        NEED(n->heads % n->kv_heads == 0 && n->head_dim <= VP_MAX_HEAD_DIM && p >= 0 && p < 1, at,
             "%s: heads, kv_heads, head_dim or p out of range", s->name);
        NEED(n->layout != VP_QKV_PER_HEAD || n->heads == n->kv_heads, at,
             "%s: heads in turns have as many kv_heads", s->name);
    }
    if (s->kernel == VP_K_ROPE_FWD || s->kernel == VP_K_ROPE_BWD) {
        const vp_rope_ints *n = &s->rope;
        NEED(n->rotary_dim % 2 == 0 && n->rotary_dim <= n->head_dim &&
                 (n->layout != VP_QKV_APART || n->kv_heads == 0) &&
                 (n->layout != VP_QKV_PER_HEAD || n->heads == n->kv_heads),
             at, "%s: rotary_dim, heads or kv_heads out of range", s->name);
    }
    if (s->kernel == VP_K_EMBEDDING_FWD || s->kernel == VP_K_EMBEDDING_BWD) {
        const vp_embedding_ints *n = &s->embedding; /* backward's begin alike */
        const vp_arg *tokens = s->kernel == VP_K_EMBEDDING_FWD ? &s->args[VP_EMBEDDING_FWD_TOKENS]
                                                               : &s->args[VP_EMBEDDING_BWD_TOKENS];
        NEED(n->vocab >= (tokens->idx == plan->types_idx ? plan->n_token_types : plan->vocab_size),
             at, "%s: the table is smaller than the vocabulary", s->name);
        NEED(n->position_offset > 0 || !n->skip_padding, at, "%s: no position is left for padding",
             s->name);
    }
    if (s->kernel == VP_K_EMBEDDING_BWD)
        NEED(s->embedding_bwd.skip_row <= s->embedding_bwd.vocab, at,
             "%s: skip_row is outside the table", s->name);
    if (s->kernel == VP_K_DROPOUT)
        NEED(s->dropout_reals.p >= 0 && s->dropout_reals.p < 1, at, "%s: p out of range", s->name);
    if (s->kernel == VP_K_LAYERNORM_FWD || s->kernel == VP_K_RMSNORM_FWD)
        NEED(s->norm_reals.eps >= 0, at, "%s: eps is negative", s->name);
    if (s->kernel == VP_K_CROSS_ENTROPY)
        NEED(s->cross_entropy.vocab >= vp_plan_n_labels(plan), at,
             "%s: fewer logits than there are labels", s->name);
out:
    return st;
}

/* Integer data must come from where the runtime has range-checked it. */
static vp_status check_index_operand(const vp_plan *plan, const vp_step *s, int k, const char *at,
                                     const char *file, vp_err *err)
{
    const char          *name = vp_step_operand_name(s, k);
    const vp_arg        *a    = &s->args[k];
    const vp_plan_fixed *f    = a->space == VP_SPACE_FIXED ? &plan->fixed[a->idx] : NULL;
    bool                 right;

    assert(!f || (a->idx >= 0 && a->idx < plan->n_fixed)); /* storage_bytes() found it */

    if (strcmp(name, "tokens") == 0)
        right = f && (a->idx == plan->tokens_idx || a->idx == plan->types_idx);
    else if (strcmp(name, "labels") == 0)
        right = f && a->idx == plan->labels_idx;
    else if (strcmp(name, "lengths") == 0)
        right = f && a->idx == plan->lengths_idx;
    else if (strcmp(name, "control") == 0)
        right = f && (s->stream == VP_STREAM_HOST ? f->component == VP_COMP_STAGING
                                                  : a->idx == plan->control_idx);
    else if (strcmp(name, "angles") == 0)
        right = f && f->component == VP_COMP_CONSTANTS;
    else if (strcmp(name, "scratch") == 0)
        right = f && f->component == VP_COMP_TEMPORARIES;
    else if (strcmp(name, "workspace") == 0)
        right = f ? f->component == VP_COMP_TEMPORARIES || f->component == VP_COMP_WORKSPACE
                  : a->space == VP_SPACE_BUFFER;
    else /* or the window that it passes through; of the control block a copy goes to the host */
        right =
            !f || f->component == VP_COMP_STAGING ||
            (s->kernel == VP_K_COPY_START && k == VP_COPY_START_X && a->idx == plan->control_idx);
    if (!right)
        return VP_FAIL_AT(err, VP_ERR_INPUT, file, 0, at, "%s: operand %s is not where it must be",
                          s->name, name);
    return VP_OK;
}

/* One step of a program; an error's field is left to the caller. */
static vp_status check_step(const vp_plan *plan, const vp_bucket *bucket, const vp_program *p,
                            int pass, const vp_step *s, const char *file, vp_err *err)
{
    const vp_kernel_info *info = vp_kernel_info_of(s->kernel);
    const char           *why;
    vp_status             st = VP_OK;

    VP_TRY(check_kernel(plan, s, NULL, file, err));
    why = vp_step_contradiction(plan, bucket, p, pass, s);
    NEED(!why, NULL, "%s (%s) %s", s->name, info->name, why);
    NEED(s->workspace_bytes == vp_step_workspace_bytes((int)plan->compute_capability, s), NULL,
         "%s (%s): its workspace is not what it needs on this device", s->name, info->name);
    for (int k = 0; k < vp_step_n_operands(s); k++) {
        const vp_arg *a = &s->args[k];
        if (a->space == VP_SPACE_NONE) {
            NEED(k < info->n_operands && info->operands[k].optional, NULL,
                 "%s (%s): operand %s is missing", s->name, info->name, vp_step_operand_name(s, k));
            continue;
        }
        int64_t have = storage_bytes(plan, bucket, p, pass, a);
        int64_t need = vp_step_operand_bytes(s, s->ints, k);
        NEED(have >= 0, NULL, "%s (%s): operand %s points nowhere", s->name, info->name,
             vp_step_operand_name(s, k));
        NEED(a->offset_bytes % 4 == 0, NULL, "%s (%s): operand %s is not at a multiple of 4 bytes",
             s->name, info->name, vp_step_operand_name(s, k));
        NEED(!vp_overflowed(need) && inside(a->offset_bytes, need, have), NULL,
             "%s (%s): operand %s is smaller than the kernel needs", s->name, info->name,
             vp_step_operand_name(s, k));
        VP_TRY(check_index_operand(plan, s, k, NULL, file, err));
    }
out:
    return st;
}

static vp_status check_steps(const vp_plan *plan, const vp_bucket *bucket, const vp_program *p,
                             const char *file, vp_err *err)
{
    const char *why;
    int64_t     param_idx;
    vp_status   st = VP_OK;

    why = vp_program_contradiction(plan, p, &param_idx);
    NEED(!why, vp_place_of_program(plan, bucket, p, "update", 0).field, "%s %s",
         plan->templates[p->template_idx].params[param_idx].param.name, why);
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++)
            VP_TRY(
                vp_place_in_step(check_step(plan, bucket, p, pass, &p->steps[pass][i], file, err),
                                 plan, bucket, p, &p->steps[pass][i], err));
out:
    return st;
}

static vp_status check_programs(const vp_plan *plan, const vp_bucket *bucket, const char *file,
                                vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < bucket->n_programs; i++) {
        const vp_program *p = &bucket->programs[i];
        NEED(vp_bucket_ends_smaller(bucket) ||
                 p->n_steps[VP_PASS_LAST_FORWARD] + p->n_steps[VP_PASS_LAST_BACKWARD] == 0,
             vp_place_of("buckets[%d].programs[%d]", (int)(bucket - plan->buckets), (int)i).field,
             "%s: has steps of a smaller last micro-step, which there is not", p->name);
        NEED(p->kept_bytes >= 0 && p->kept_bytes <= plan->peak_bytes,
             vp_place_of("buckets[%d].programs[%d].kept_bytes", (int)(bucket - plan->buckets),
                         (int)i)
                 .field,
             "%s: kept_bytes is out of range", p->name);
        for (int64_t k = 0; k < p->n_buffers; k++) {
            const vp_plan_buffer *b  = &p->buffers[k];
            vp_place_in_file      at = vp_place_of_program(plan, bucket, p, "buffers", k);
            NEED(b->offset_bytes % 4 == 0, at.field,
                 "%s: buffer %s is not at a multiple of 4 bytes", p->name, b->name);
            NEED(b->bytes > 0 &&
                     inside(b->offset_bytes, b->bytes, vp_plan_memory_bytes(plan, b->memory)),
                 at.field, "%s: buffer %s lies outside the memory", p->name, b->name);
            NEED(b->place == VP_PLACE_LOCAL || b->memory == VP_MEMORY_DEVICE, at.field,
                 "%s: buffer %s is a block's input or output, which lie on the device", p->name,
                 b->name);
            NEED((b->place != VP_PLACE_IN || (k == 0 && b->offset_bytes == 0)) &&
                     (b->place != VP_PLACE_OUT ||
                      (k == p->n_buffers - 1 && b->offset_bytes == p->kept_bytes)),
                 at.field, "%s: buffer %s is not where a block's %s lies", p->name, b->name,
                 b->place == VP_PLACE_IN ? "input" : "output");
        }
    }
out:
    return st;
}

/* Bytes of a program's input or output; 0 if it has none. */
static int64_t boundary_bytes(const vp_program *p, vp_place place)
{
    const vp_plan_buffer *b = p->n_buffers == 0      ? NULL
                              : place == VP_PLACE_IN ? &p->buffers[0]
                                                     : &p->buffers[p->n_buffers - 1];
    return b && b->place == place ? b->bytes : 0;
}

/* Where blocks and regions begin in plans of all versions; those of today at multiples of VP_ALIGN_BYTES. */
enum { LEAST_ALIGN_BYTES = 64 };

static vp_status check_chain(const vp_plan *plan, const vp_bucket *bucket, const char *file,
                             vp_err *err)
{
    int64_t   base = -1, left = 0;
    vp_status st = VP_OK;

    for (int64_t i = 0; i < bucket->n_instances; i++) {
        const vp_plan_instance *x = &bucket->instances[i];
        const vp_program       *p = &bucket->programs[x->program_idx];
        const vp_plan_template *t = &plan->templates[p->template_idx];
        vp_place_in_file        at =
            vp_place_of("buckets[%d].instances[%d]", (int)(bucket - plan->buckets), (int)i);
        NEED(boundary_bytes(p, VP_PLACE_IN) == left, at.field,
             "instance %lld: its input is not its predecessor's output", (long long)i);
        NEED(x->base_bytes[VP_MEMORY_DEVICE] >= 0 &&
                 (base < 0 || x->base_bytes[VP_MEMORY_DEVICE] == base),
             at.field, "instance %lld does not begin where its predecessor's kept bytes end",
             (long long)i);
        for (int m = 0; m < VP_N_MEMORIES; m++)
            NEED(inside(x->base_bytes[m], 0, vp_plan_memory_bytes(plan, (vp_memory)m)) &&
                     x->base_bytes[m] % LEAST_ALIGN_BYTES == 0,
                 at.field,
                 "instance %lld lies outside the memory, or not at a multiple of %d bytes",
                 (long long)i, LEAST_ALIGN_BYTES);
        for (int h = 0; h < VP_N_REGIONS; h++)
            NEED(x->region_base_bytes[h] % LEAST_ALIGN_BYTES == 0, at.field,
                 "instance %lld: a region does not begin at a multiple of %d bytes", (long long)i,
                 LEAST_ALIGN_BYTES);
        base = vp_add(x->base_bytes[VP_MEMORY_DEVICE], p->kept_bytes);
        left = boundary_bytes(p, VP_PLACE_OUT);
        for (int64_t k = 0; k < p->n_buffers; k++)
            NEED(inside(vp_add(x->base_bytes[p->buffers[k].memory], p->buffers[k].offset_bytes),
                        p->buffers[k].bytes, vp_plan_memory_bytes(plan, p->buffers[k].memory)),
                 at.field, "instance %lld: buffer %s lies outside the memory", (long long)i,
                 p->buffers[k].name);
        for (int64_t k = 0; k < t->n_params; k++)
            for (int h = 0; h < VP_N_REGIONS; h++)
                NEED(inside(vp_add(x->region_base_bytes[h], t->params[k].offset_bytes[h]),
                            vp_plan_param_bytes(&plan->recipe, &t->params[k].param, (vp_region)h),
                            vp_plan_memory_bytes(plan, x->region_memory[h])),
                     at.field, "instance %lld: parameter %s lies outside the memory", (long long)i,
                     t->params[k].param.name);
    }
    NEED(left == 0, vp_place_of("buckets[%d].instances", (int)(bucket - plan->buckets)).field,
         "the last instance has an output that nobody reads");
out:
    return st;
}

static vp_status check_fixed(const vp_plan *plan, const vp_bucket *bucket, const char *file,
                             vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < plan->n_fixed; i++) {
        const vp_plan_fixed *f     = &plan->fixed[i];
        int64_t              bytes = vp_plan_fixed_total_bytes(bucket, f);
        NEED(f->bytes > 0 && f->offset_bytes % 4 == 0 &&
                 inside(f->offset_bytes, bytes, vp_plan_memory_bytes(plan, f->memory)),
             vp_place_of("fixed[%d]", (int)i).field, "buffer %s lies outside the memory", f->name);
        NEED(f->memory == VP_MEMORY_DEVICE || f->component == VP_COMP_STAGING,
             vp_place_of("fixed[%d]", (int)i).field, "%s must lie on the device", f->name);
    }
    NEED(plan->fixed[plan->control_idx].bytes >=
                 vp_precision_control_bytes(plan->recipe.precision) &&
             plan->fixed[plan->control_idx].offset_bytes % 8 == 0 &&
             !plan->fixed[plan->control_idx].per_micro_step,
         "fixed", "the control block is too small or misplaced");
    int64_t ids = vp_mul(vp_mul(bucket->micro_batch, bucket->seq), 4);
    NEED(plan->fixed[plan->tokens_idx].bytes == ids && plan->fixed[plan->labels_idx].bytes == ids &&
             plan->fixed[plan->tokens_idx].per_micro_step &&
             plan->fixed[plan->labels_idx].per_micro_step,
         "fixed", "tokens and labels must hold one int32 for each token of a micro-step");
    NEED((plan->types_idx < 0) == (plan->n_token_types == 0) &&
             (plan->types_idx < 0 || (plan->fixed[plan->types_idx].bytes == ids &&
                                      plan->fixed[plan->types_idx].per_micro_step)),
         "fixed",
         "token types are there when the model has them, one int32 for each token of a micro-step");
    NEED(plan->lengths_idx < 0 ||
             (plan->fixed[plan->lengths_idx].bytes == vp_mul(bucket->micro_batch, 4) &&
              plan->fixed[plan->lengths_idx].per_micro_step),
         "fixed", "lengths must hold one int32 for each sample of a micro-step");
    for (int64_t i = 0; i < plan->n_fixed; i++)
        if (plan->fixed[i].component == VP_COMP_CONSTANTS)
            NEED(plan->fixed[i].bytes == vp_mul(vp_mul(bucket->seq, plan->fixed[i].angles.n), 8) &&
                     !plan->fixed[i].per_micro_step,
                 vp_place_of("fixed[%d]", (int)i).field,
                 "%s must hold a cosine and a sine for each position and pair",
                 plan->fixed[i].name);
out:
    return st;
}

/* A small file may repeat a large program often: what it unrolls to is bounded before anything
 * is unrolled. The largest models have tens of thousands of buffers. */
enum { MAX_UNROLLED_BUFFERS = 1000000, MAX_UNROLLED_STEPS = 5000000, MAX_HOLDINGS = 5 };

static vp_status check_extent(const vp_plan *plan, const vp_bucket *bucket, int64_t n_micro,
                              const char *file, vp_err *err)
{
    int64_t   n_buffers = 0, n_steps = 0, n_listed = 0;
    vp_status st = VP_OK;

    assert(n_micro >= 1 && n_micro <= VP_MAX_UNROLLED);
    for (int64_t i = 0; i < bucket->n_programs; i++) /* programs may share their lists, too */
        for (int pass = 0; pass < VP_N_PASSES; pass++)
            n_listed += bucket->programs[i].n_steps[pass];
    NEED(n_listed <= MAX_UNROLLED_STEPS,
         vp_place_of("buckets[%d].programs", (int)(bucket - plan->buckets)).field,
         "have %lld steps; at most %d are supported", (long long)n_listed, MAX_UNROLLED_STEPS);
    for (int64_t i = 0; i < bucket->n_instances; i++) {
        const vp_program *p = &bucket->programs[bucket->instances[i].program_idx];
        n_buffers +=
            plan->templates[p->template_idx].n_params * MAX_HOLDINGS + n_micro * p->n_buffers;
        n_steps += n_micro * (p->n_steps[VP_PASS_FORWARD] + p->n_steps[VP_PASS_BACKWARD]) +
                   p->n_steps[VP_PASS_NORM] + p->n_steps[VP_PASS_UPDATE];
    }
    NEED(n_steps > 0, vp_place_of("buckets[%d].programs", (int)(bucket - plan->buckets)).field,
         "have no step, so that no buffer is ever alive");
    NEED(n_buffers <= MAX_UNROLLED_BUFFERS && n_steps <= MAX_UNROLLED_STEPS,
         vp_place_of("buckets[%d].instances", (int)(bucket - plan->buckets)).field,
         "are %lld buffers and %lld steps when unrolled; at most %d and %d are supported",
         (long long)n_buffers, (long long)n_steps, MAX_UNROLLED_BUFFERS, MAX_UNROLLED_STEPS);
out:
    return st;
}

/* What the bucket says of its memories, against what its buffers reach. */
static vp_status check_ends(const vp_plan *plan, const vp_bucket *b,
                            const int64_t reached[VP_N_MEMORIES], const char *file, vp_err *err)
{
    const struct {
        const char *key;
        int64_t     said, reached;
    } rows[] = {
        {"host_peak_bytes", b->host_peak_bytes,
         vp_add(reached[VP_MEMORY_HOST_PINNED], reached[VP_MEMORY_HOST])},
        {"pageable_bytes", b->pageable_bytes, reached[VP_MEMORY_HOST]},
        {"nvme_bytes", b->nvme_bytes, reached[VP_MEMORY_NVME]},
        {"peak_bytes", b->peak_bytes, reached[VP_MEMORY_DEVICE]},
    };
    vp_status st = VP_OK;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        NEED(rows[i].said == rows[i].reached,
             vp_place_of("buckets[%d].%s", (int)(b - plan->buckets), rows[i].key).field,
             "is %lld, its buffers reach %lld", (long long)rows[i].said,
             (long long)rows[i].reached);
out:
    return st;
}

/* step_s: out, of one optimizer step of this bucket. */
static vp_status check_bucket(const vp_plan *plan, const vp_bucket *bucket, const char *file,
                              double *step_s, vp_err *err)
{
    vp_arena    *arena   = vp_arena_new();
    int64_t      n_micro = vp_unrolled_micro_steps(bucket);
    int64_t      peak_bytes[VP_N_MEMORIES];
    vp_expansion x;
    vp_status    st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    NEED(vp_add(vp_mul(bucket->micro_batch, bucket->n_micro_steps - 1), bucket->last_micro_batch) ==
             plan->global_batch,
         vp_place_of("buckets[%d].micro_batch", (int)(bucket - plan->buckets)).field,
         "%lld micro-steps of %lld samples, the last of %lld, are not the global batch %lld",
         (long long)bucket->n_micro_steps, (long long)bucket->micro_batch,
         (long long)bucket->last_micro_batch, (long long)plan->global_batch);
    VP_TRY(check_extent(plan, bucket, n_micro, file, err));
    VP_TRY(check_fixed(plan, bucket, file, err));
    VP_TRY(check_programs(plan, bucket, file, err));
    VP_TRY(check_chain(plan, bucket, file, err));
    for (int64_t i = 0; i < plan->n_shared; i++) {
        const vp_plan_shared *s = &plan->shared[i];
        NEED(
            s->instance_idx < bucket->n_instances &&
                s->param_idx <
                    plan->templates[bucket->programs[bucket->instances[s->instance_idx].program_idx]
                                        .template_idx]
                        .n_params,
            vp_place_of("shared[%d]", (int)i).field, "points nowhere");
    }
    for (int64_t i = 0; i < bucket->n_programs; i++)
        VP_TRY(check_steps(plan, bucket, &bucket->programs[i], file, err));
    VP_TRY(vp_expansion_make(arena, plan, bucket, n_micro, &x, err));
    VP_TRY(vp_plan_check_overlap(arena, &x, file, peak_bytes, err));
    VP_TRY(check_ends(plan, bucket, peak_bytes, file, err));
    VP_TRY(vp_plan_check_order(arena, plan, bucket, &x, file, step_s, err));
out:
    vp_arena_free(arena);
    return st;
}

vp_status vp_plan_check(const vp_plan *plan, const char *file, vp_err *err)
{
    int64_t   peak_bytes = 0, host_peak_bytes = 0, n_params = 0;
    double    frequency = 0, step_s = 0, sum_s = 0;
    vp_status st = VP_OK;

    NEED(plan->n_buckets >= 1 && plan->n_templates >= 1 && plan->n_fixed >= 3, "buckets",
         "the plan is empty");
    NEED(vp_precision_compute(plan->recipe.precision) != VP_DTYPE_TF32 ||
             plan->compute_capability >= VP_TF32_CAPABILITY,
         "recipe.precision", "tf32 needs a compute capability of 8.0, and the plan's is %lld.%lld",
         (long long)plan->compute_capability / 10, (long long)plan->compute_capability % 10);
    NEED(!plan->updates_in_backward || vp_recipe_updates_alone(&plan->recipe),
         "updates_in_backward",
         "no update may be made before the norm of all gradients is known: the recipe clips by it, "
         "scales the loss, or its optimizer works on whole matrices");
    VP_TRY(check_templates(plan, file, err));
    for (int64_t i = 0; i < plan->n_buckets; i++) {
        const vp_bucket *b = &plan->buckets[i];
        VP_TRY(check_bucket(plan, b, file, &step_s, err));
        sum_s += b->frequency * step_s;
        peak_bytes      = vp_max_i64(peak_bytes, b->peak_bytes);
        host_peak_bytes = vp_max_i64(host_peak_bytes, b->host_peak_bytes);
        frequency += b->frequency;
    }
    NEED(frequency > 0.999999 && frequency < 1.000001, "buckets",
         "the frequencies do not sum to 1");
    NEED(peak_bytes == plan->peak_bytes, "prediction.peak_bytes",
         "is %lld, the plan's buffers reach %lld", (long long)plan->peak_bytes,
         (long long)peak_bytes);
    NEED(host_peak_bytes == plan->host_peak_bytes, "prediction.host_peak_bytes",
         "is %lld, the plan's buffers reach %lld", (long long)plan->host_peak_bytes,
         (long long)host_peak_bytes);
    NEED(plan->step_time_s >= sum_s * (1 - 1e-9) && plan->step_time_s <= sum_s * (1 + 1e-9),
         "prediction.step_time_s", "is %.17g, the steps' seconds sum to %.17g", plan->step_time_s,
         sum_s);
    NEED(vp_add(plan->peak_bytes, plan->outside_bytes) <= plan->budget_bytes, "budget_bytes",
         "the plan needs %lld bytes on the device, more than its budget",
         (long long)vp_add(plan->peak_bytes, plan->outside_bytes));
    for (int64_t i = 0; i < plan->buckets[0].n_instances; i++) {
        const vp_program *p = &plan->buckets[0].programs[plan->buckets[0].instances[i].program_idx];
        for (int64_t k = 0; k < plan->templates[p->template_idx].n_params; k++)
            n_params =
                vp_add(n_params, plan->templates[p->template_idx].params[k].param.n_elements);
    }
    NEED(n_params == plan->n_params, "model.params_total", "is %lld, the templates hold %lld",
         (long long)plan->n_params, (long long)n_params);
out:
    return st;
}
