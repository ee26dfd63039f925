#include "plan/plan.h"

#include "base/checked.h"
#include "plan/workspace.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const component_names[] = {
#define X(name, text) text,
    VP_COMPONENT_TABLE(X)
#undef X
};

const char *vp_component_name(vp_component c)
{
    assert(c < VP_N_COMPONENTS);
    return component_names[c];
}

vp_component vp_component_by_name(const char *name)
{
    int c = 0;
    while (c < VP_N_COMPONENTS && strcmp(component_names[c], name) != 0)
        c++;
    return (vp_component)c;
}

const char *vp_proof_name(vp_proof_status s)
{
    static const char *const names[] = {"optimal", "gap", "fallback", "infeasible"};
    assert(s < VP_N_PROOFS);
    return names[s];
}

vp_plan *vp_plan_new(void)
{
    vp_plan *plan = calloc(1, sizeof *plan);

    if (plan && !(plan->arena = vp_arena_new())) {
        free(plan);
        return NULL;
    }
    if (plan)
        plan->mask_token = plan->types_idx = plan->lengths_idx = -1;
    return plan;
}

void vp_plan_free(vp_plan *plan)
{
    if (!plan)
        return;
    json_decref(plan->model_config);
    json_decref(plan->decisions);
    json_decref(plan->settings);
    json_decref(plan->assumptions);
    vp_arena_free(plan->arena);
    free(plan);
}

int64_t vp_plan_n_labels(const vp_plan *plan)
{
    return plan->n_classes ? plan->n_classes : plan->vocab_size;
}

static int64_t bytes_of(const vp_bucket *b, vp_memory memory)
{
    switch (memory) {
    case VP_MEMORY_HOST_PINNED:
        return b->host_peak_bytes - b->pageable_bytes;
    case VP_MEMORY_HOST:
        return b->pageable_bytes;
    default:
        assert(memory == VP_MEMORY_NVME);
        return b->nvme_bytes;
    }
}

int64_t vp_plan_memory_bytes(const vp_plan *plan, vp_memory memory)
{
    int64_t most = 0;

    if (memory == VP_MEMORY_DEVICE)
        return plan->peak_bytes;
    for (int64_t i = 0; i < plan->n_buckets; i++)
        most = vp_max_i64(most, bytes_of(&plan->buckets[i], memory));
    return most;
}

bool vp_plan_offloads(const vp_plan *plan)
{
    return plan->host_peak_bytes > 0 || vp_plan_memory_bytes(plan, VP_MEMORY_NVME) > 0;
}

int64_t vp_plan_tokens(const vp_plan *plan)
{
    assert(plan->n_buckets >= 1);
    return vp_mul(plan->global_batch, plan->buckets[0].seq);
}

bool vp_bucket_ends_smaller(const vp_bucket *b)
{
    return b->last_micro_batch < b->micro_batch;
}

int64_t vp_plan_fixed_bytes(const vp_bucket *b, const vp_plan_fixed *f, bool last)
{
    assert(b->micro_batch >= 1);
    return last && f->per_micro_step ? f->bytes / b->micro_batch * b->last_micro_batch : f->bytes;
}

int64_t vp_plan_fixed_total_bytes(const vp_bucket *b, const vp_plan_fixed *f)
{
    return vp_add(vp_mul(f->bytes, f->per_micro_step ? b->n_micro_steps - 1 : 0),
                  vp_plan_fixed_bytes(b, f, true));
}

vp_phases vp_bucket_phases(const vp_bucket *b)
{
    assert(b->n_micro_steps >= 1);
    return (vp_phases){.first  = 1,
                       .middle = vp_max_i64(0, b->n_micro_steps - 2),
                       .last   = b->n_micro_steps > 1 ? 1 : 0};
}

vp_update_shape vp_plan_param_shape(const vp_param *p)
{
    int64_t cols;

    assert(p->rank >= 0 && p->rank <= VP_PARAM_MAX_RANK);
    cols = p->rank > 1 ? p->shape[p->rank - 1] : p->n_elements;
    assert(vp_overflowed(p->n_elements) || (cols > 0 && p->n_elements % cols == 0));
    return (vp_update_shape){.rows         = p->n_elements / cols,
                             .cols         = cols,
                             .block_matrix = p->block_matrix,
                             .decay        = p->decay};
}

int64_t vp_plan_param_bytes(const vp_recipe *recipe, const vp_param *p, vp_region region)
{
    vp_update_shape shape = vp_plan_param_shape(p);

    if (p->frozen && region != VP_REGION_PARAM)
        return 0;
    switch (region) {
    case VP_REGION_PARAM:
        return vp_mul(p->n_elements, vp_dtype_bytes(vp_precision_dtype(recipe->precision)));
    case VP_REGION_GRAD:
        return vp_mul(p->n_elements, vp_dtype_bytes(vp_gradients_dtype(recipe->gradients)));
    case VP_REGION_MASTER:
        return vp_precision_has_master(recipe->precision) ? vp_mul(p->n_elements, 4) : 0;
    case VP_REGION_STATE0:
    case VP_REGION_STATE1:
        return vp_optimizer_state_bytes(recipe->optimizer, &shape,
                                        (int)(region - VP_REGION_STATE0));
    case VP_N_REGIONS:
        break;
    }
    assert(!"no such region");
    return VP_OVERFLOW;
}

const char *vp_param_full_name(const vp_param *p, int64_t index, char *buf, size_t buf_size)
{
    const char *mark = strstr(p->name, "{}");

    if (mark)
        snprintf(buf, buf_size, "%.*s%lld%s", (int)(mark - p->name), p->name,
                 (long long)(index + p->index_offset), mark + 2);
    else
        snprintf(buf, buf_size, "%s", p->name);
    return buf;
}

/* ---- a step's operands ---- */

static bool is_workspace(const vp_step *s, int operand)
{
    assert(operand >= 0 && operand <= vp_kernel_info_of(s->kernel)->n_operands);
    return operand == vp_kernel_info_of(s->kernel)->n_operands;
}

int vp_step_n_operands(const vp_step *s)
{
    return vp_kernel_info_of(s->kernel)->n_operands + (s->workspace_bytes > 0);
}

int64_t vp_step_operand_bytes(const vp_step *s, const int64_t *ints, int operand)
{
    return is_workspace(s, operand) ? s->workspace_bytes
                                    : vp_kernel_operand_bytes(s->kernel, s->dtype, ints, operand);
}

const char *vp_step_operand_name(const vp_step *s, int operand)
{
    return is_workspace(s, operand) ? "workspace"
                                    : vp_kernel_info_of(s->kernel)->operands[operand].name;
}

static bool has_own_attention(const vp_step *s)
{
    enum { HOPPER = 90 }; /* of the cards with bf16 the one whose library takes most */
    int lengths = vp_kernel_operand(s->kernel, "lengths");

    return (s->kernel == VP_K_ATTENTION_FWD || s->kernel == VP_K_ATTENTION_BWD) &&
           s->dtype == VP_DTYPE_BF16 &&
           vp_cuda_attention_engine(&(vp_call_shape){.compute_capability = HOPPER,
                                                     .kernel             = s->kernel,
                                                     .dtype              = s->dtype,
                                                     .ints               = s->ints,
                                                     .reals              = s->reals,
                                                     .lengths            = s->args[lengths].space !=
                                                                VP_SPACE_NONE}) == VP_ATTENTION_OWN;
}

uint32_t vp_step_lacks(const vp_step *s)
{
    uint32_t absent = 0;

    for (int k = 0; k < vp_kernel_info_of(s->kernel)->n_operands; k++)
        absent |= s->args[k].space == VP_SPACE_NONE ? 1u << k : 0;
    return vp_kernel_lacks(s->kernel, s->dtype, absent) |
           (has_own_attention(s) ? VP_LACKS_LIBRARY : 0);
}

/* The parameter of an update whose master lies beside it in host memory: what is there is not read, and
 * all of it is written but where fp16's updates are skipped. */
static bool is_only_written(const vp_step *s, int operand)
{
    int master;

    if (s->stream != VP_STREAM_HOST || operand != 0 || s->dtype == VP_DTYPE_F16)
        return false;
    master = vp_kernel_operand(s->kernel, "master");
    return master >= 0 && s->args[master].space != VP_SPACE_NONE;
}

static vp_access access_of(const vp_kernel_info *info, const vp_step *s, int operand)
{
    return operand == info->n_operands || is_only_written(s, operand)
               ? VP_WRITE
               : info->operands[operand].access;
}

vp_access vp_step_operand_access(const vp_step *s, int operand)
{
    assert(operand >= 0 && operand < vp_step_n_operands(s));
    return access_of(vp_kernel_info_of(s->kernel), s, operand);
}

int vp_step_accesses(const vp_step *s, vp_access accesses[VP_MAX_OPERANDS])
{
    const vp_kernel_info *info = vp_kernel_info_of(s->kernel);
    int                   n    = info->n_operands + (s->workspace_bytes > 0);

    assert(n <= VP_MAX_OPERANDS);
    for (int k = 0; k < n; k++)
        accesses[k] = access_of(info, s, k);
    return n;
}

bool vp_step_may_share(const vp_step *s, int out, int in)
{
    return !is_workspace(s, out) && !is_workspace(s, in) && vp_kernel_may_share(s->kernel, out, in);
}

int64_t vp_step_workspace_bytes(int compute_capability, const vp_step *step)
{
    int           lengths  = vp_kernel_operand(step->kernel, "lengths");
    vp_step       windowed = *step;
    int64_t       bytes;
    vp_call_shape call = {.compute_capability = compute_capability,
                          .kernel             = step->kernel,
                          .dtype              = step->dtype,
                          .ints               = windowed.ints,
                          .reals              = step->reals,
                          .lengths = lengths >= 0 && step->args[lengths].space != VP_SPACE_NONE};

    assert(!step->window_of_instance || vp_kernel_int(step->kernel, "window") >= 0);
    bytes = vp_workspace_bytes(&call);
    /* without a window, and with one: its width does not matter */
    for (int w = 0; step->window_of_instance && w < 2; w++) {
        windowed.attention.window = w;
        bytes                     = vp_larger(bytes, vp_workspace_bytes(&call));
    }
    return bytes;
}
