/* plan/plan_read.c: a plan's file, JSON of schema 1, becomes a checked plan. docs/plan-file.md
 * describes it, plan_write.c writes it. */
#include "plan/plan_internal.h"

#include "base/checked.h"
#include "plan/digest.h"
#include "plan/profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *const vp_plan_place_words[]       = {"local", "in", "out", NULL};
const char *const vp_plan_pass_words[]        = {"forward", "backward",     "norm",
                                                 "update",  "last_forward", "last_backward"};
const char *const vp_plan_init_words[]        = {"zeros", "ones", "normal", "uniform", NULL};
const char *const vp_plan_ahead_words[]       = {"@before2", "@before", "", "@next"};
const char *const vp_plan_accumulate_words[]  = {"never", "by-phase", "always", NULL};
const char *const vp_plan_phase_words[]       = {"first", "middle", "last", "optimizer"};
const char *const vp_plan_label_place_words[] = {"each-token", "first-token", "last-token", NULL};
const char        vp_plan_space_letters[]     = "bpgwmvPGf-"; /* in the order of vp_space */

static const char *const time_classes[]    = {"measured", "assumed", NULL};
static const char *const outside_classes[] = {"assumed", "derived", "cited", "measured", NULL};
static const char *const proof_names[]     = {"optimal", "gap", "fallback", "infeasible", NULL};

#define ONLY_KEYS(node, ...) \
    VP_TRY(vp_json_only_keys((node), (const char *const[]){__VA_ARGS__, NULL}, err))

/* key: as vp_json_string() takes it. */
static vp_status parse_arg(const vp_json_node *node, const char *key, vp_arg *arg, vp_err *err)
{
    const char *text, *letter;
    char       *end;
    vp_status   st = VP_OK;

    VP_TRY(vp_json_string(node, key, &text, err));
    letter = *text ? strchr(vp_plan_space_letters, *text) : NULL;
    if (!letter)
        VP_TRY(vp_json_fail(
            node, key, err,
            "an argument looks like b3, p0, g0, w0, m0, v0, P0, G0, f1 or -, with +BYTES behind"));
    assert(letter - vp_plan_space_letters <= VP_SPACE_NONE);
    arg->space = (vp_space)(letter - vp_plan_space_letters);
    if (arg->space == VP_SPACE_NONE) {
        if (text[1])
            VP_TRY(vp_json_fail(node, key, err, "nothing may follow '-'"));
        return VP_OK;
    }
    arg->idx =
        text[1] >= '0' && text[1] <= '9' && strlen(text) < 40 ? strtoll(text + 1, &end, 10) : -1;
    if (arg->idx >= 0 && end[0] == '+' && end[1] >= '0' && end[1] <= '9')
        arg->offset_bytes = strtoll(end + 1, &end, 10);
    for (int i = 0; arg->idx >= 0 && *end && i < 4; i++)
        if (i != 2 && strcmp(end, vp_plan_ahead_words[i]) == 0 && arg->space <= VP_SPACE_STATE1) {
            arg->ahead = i - 2;
            end += strlen(end);
        }
    if (arg->idx < 0 || arg->idx > VP_PLAN_MAX_ROWS || *end || arg->offset_bytes == INT64_MAX)
        VP_TRY(vp_json_fail(node, key, err, "an argument looks like b3 or b3+1024"));
out:
    return st;
}

/* Which keys a step has, its kernel says. */
static vp_status only_step_keys(const vp_json_node *node, const vp_kernel_info *info, vp_err *err)
{
    const char *keys[15 + VP_MAX_INTS + VP_MAX_REALS + 1] = {
        "kernel",          "name",       "dtype",      "args",       "workspace",
        "workspace_bytes", "accumulate", "first_only", "later_only", "window_of_instance",
        "seconds",         "algorithm",  "stream",     "lost_s"};
    int n = 13 + (info == vp_kernel_info_of(VP_K_COPY_START)); /* lost_s */

    for (int k = 0; k < info->n_ints; k++)
        keys[n++] = info->ints[k].name;
    for (int k = 0; k < info->n_reals; k++)
        keys[n++] = info->reals[k];
    if (info->random)
        keys[n++] = "rng_id";
    assert(n < (int)(sizeof keys / sizeof *keys)); /* the last one ends the list */
    keys[n] = NULL;
    return vp_json_only_keys(node, keys, err);
}

static vp_status read_workspace(const vp_json_node *node, const vp_kernel_info *info, vp_step *s,
                                vp_err *err)
{
    vp_status st = VP_OK;

    if (!vp_json_has(node, "workspace") && !vp_json_has(node, "workspace_bytes"))
        return VP_OK;
    if (info->n_operands == VP_MAX_OPERANDS)
        VP_TRY(vp_json_fail(node, "workspace", err, "%s takes none", info->name));
    VP_TRY(vp_json_int(node, "workspace_bytes", 1, INT64_MAX, &s->workspace_bytes, err));
    VP_TRY(parse_arg(node, "workspace", &s->args[info->n_operands], err));
out:
    return st;
}

static vp_status read_step(vp_plan *plan, const vp_json_node *node, vp_step *s, vp_err *err)
{
    const char  *kernel, *dtype, *stream;
    vp_json_node args, arg;
    int64_t      n_args, rng_id = 0;
    int          choice = 0;
    vp_status    st     = VP_OK;

    VP_TRY(vp_json_string(node, "kernel", &kernel, err));
    s->kernel = vp_kernel_by_name(kernel);
    if (s->kernel == VP_N_KERNELS)
        VP_TRY(vp_json_fail(node, "kernel", err, "no such kernel"));
    const vp_kernel_info *info = vp_kernel_info_of(s->kernel);
    VP_TRY(only_step_keys(node, info, err));
    VP_TRY(vp_field_string(plan, node, "name", &s->name, err));
    s->dtype = VP_DTYPE_F32;
    if (vp_json_has(node, "dtype")) {
        VP_TRY(vp_json_string(node, "dtype", &dtype, err));
        s->dtype = vp_dtype_by_name(dtype);
        if (!vp_dtype_is_of_calls(s->dtype))
            VP_TRY(vp_json_fail(node, "dtype", err, "a kernel runs in fp32, tf32, bf16 or fp16"));
    }
    VP_TRY(vp_json_array(node, "args", &args, &n_args, err));
    if (n_args != info->n_operands)
        VP_TRY(
            vp_json_fail(node, "args", err, "%s takes %d arguments", info->name, info->n_operands));
    for (int k = 0; k < info->n_operands; k++) {
        VP_TRY(vp_json_element(&args, k, &arg, err));
        VP_TRY(parse_arg(&arg, NULL, &s->args[k], err));
    }
    VP_TRY(read_workspace(node, info, s, err));
    VP_TRY(vp_ints_read(node, s->kernel, INT64_MAX, s->ints, err));
    for (int k = 0; k < info->n_reals; k++)
        VP_TRY(vp_json_real(node, info->reals[k], 0, 1e30, &s->reals[k], err));
    if (vp_json_has(node, "accumulate"))
        VP_TRY(vp_field_word(node, "accumulate", vp_plan_accumulate_words, &choice, err));
    s->accumulate = (vp_accumulate)choice;
    if (vp_json_has(node, "stream")) {
        VP_TRY(vp_json_string(node, "stream", &stream, err));
        s->stream = vp_stream_by_name(stream);
        if (s->stream == VP_N_STREAMS)
            VP_TRY(vp_json_fail(node, "stream", err,
                                "is none of compute, to_host, to_device and host"));
    }
    if (vp_json_has(node, "first_only"))
        VP_TRY(vp_json_bool(node, "first_only", &s->first_only, err));
    if (vp_json_has(node, "later_only"))
        VP_TRY(vp_json_bool(node, "later_only", &s->later_only, err));
    if (s->first_only && s->later_only)
        VP_TRY(vp_json_fail(node, "later_only", err, "a step that is first_only never runs then"));
    if (vp_json_has(node, "window_of_instance"))
        VP_TRY(vp_json_bool(node, "window_of_instance", &s->window_of_instance, err));
    if (s->window_of_instance && vp_kernel_int(s->kernel, "window") < 0)
        VP_TRY(vp_json_fail(node, "window_of_instance", err, "%s has no window", info->name));
    if (info->random)
        VP_TRY(vp_json_int(node, "rng_id", 0, 65535, &rng_id, err));
    s->rng_id = (int)rng_id;
    VP_TRY(vp_json_real(node, "seconds", 0, 1e30, &s->seconds, err));
    if (vp_json_has(node, "lost_s"))
        VP_TRY(vp_json_real(node, "lost_s", 0, 1e30, &s->lost_s, err));
    VP_TRY(vp_algorithm_read(node, s->kernel, &s->algorithm, err));
    if (vp_algorithm_is_set(&s->algorithm) && !plan->algorithms_of)
        VP_TRY(vp_json_fail(node, "algorithm", err,
                            "the plan does not say whose it is: algorithms_of is missing"));
out:
    return st;
}

/* Steps, or the number of an earlier program that has the same ones. */
static vp_status read_pass(vp_plan *plan, const vp_json_node *node, const vp_bucket *b,
                           vp_program *p, int pass, vp_err *err)
{
    const char  *key = vp_plan_pass_words[pass];
    vp_json_node array, row;
    int64_t      earlier;
    vp_status    st = VP_OK;

    if (p > b->programs && json_is_integer(json_object_get(node->value, key))) {
        VP_TRY(vp_json_int(node, key, 0, p - b->programs - 1, &earlier, err));
        p->steps[pass]   = b->programs[earlier].steps[pass];
        p->n_steps[pass] = b->programs[earlier].n_steps[pass];
        return VP_OK;
    }
    VP_TRY(vp_field_rows(plan, node, key, sizeof(vp_step), &array, (void **)&p->steps[pass],
                         &p->n_steps[pass], err));
    for (int64_t i = 0; i < p->n_steps[pass]; i++) {
        VP_TRY(vp_json_element(&array, i, &row, err));
        VP_TRY(read_step(plan, &row, &p->steps[pass][i], err));
    }
out:
    return st;
}

static vp_status read_program(vp_plan *plan, const vp_json_node *node, const vp_bucket *bucket,
                              vp_program *p, vp_err *err)
{
    vp_json_node array, row;
    const char  *component;
    int          choice;
    vp_status    st = VP_OK;

    ONLY_KEYS(node, "name", "template", "kept_bytes", "buffers", "forward", "backward", "norm",
              "update", "last_forward", "last_backward");
    VP_TRY(vp_field_string(plan, node, "name", &p->name, err));
    VP_TRY(vp_json_int(node, "template", 0, plan->n_templates - 1, &p->template_idx, err));
    VP_TRY(vp_json_int(node, "kept_bytes", 0, INT64_MAX, &p->kept_bytes, err));
    VP_TRY(vp_field_rows(plan, node, "buffers", sizeof *p->buffers, &array, (void **)&p->buffers,
                         &p->n_buffers, err));
    for (int64_t i = 0; i < p->n_buffers; i++) {
        vp_plan_buffer *b = &p->buffers[i];
        VP_TRY(vp_json_element(&array, i, &row, err));
        ONLY_KEYS(&row, "name", "component", "place", "kept", "memory", "offset_bytes", "bytes");
        VP_TRY(vp_field_string(plan, &row, "name", &b->name, err));
        VP_TRY(vp_json_string(&row, "component", &component, err));
        b->component = vp_component_by_name(component);
        if (b->component != VP_COMP_ACTIVATIONS && b->component != VP_COMP_TEMPORARIES &&
            b->component != VP_COMP_WORKSPACE && b->component != VP_COMP_STAGING)
            VP_TRY(vp_json_fail(
                &row, "component", err,
                "a block's own buffer is activations, temporaries, workspace or staging"));
        VP_TRY(vp_field_memory(&row, "memory", &b->memory, err));
        VP_TRY(vp_field_word(&row, "place", vp_plan_place_words, &choice, err));
        b->place = (vp_place)choice;
        VP_TRY(vp_json_bool(&row, "kept", &b->kept, err));
        VP_TRY(vp_json_int(&row, "offset_bytes", 0, INT64_MAX, &b->offset_bytes, err));
        VP_TRY(vp_json_int(&row, "bytes", 1, INT64_MAX, &b->bytes, err));
    }
    for (int pass = 0; pass < VP_N_PASSES; pass++) {
        if (pass >= VP_PASS_LAST_FORWARD && !vp_json_has(node, vp_plan_pass_words[pass]))
            continue;
        VP_TRY(read_pass(plan, node, bucket, p, pass, err));
    }
out:
    return st;
}

/* An array of exactly n whole numbers, none negative. */
static vp_status read_ints(const vp_json_node *node, const char *key, int n, int64_t *out,
                           vp_err *err)
{
    vp_json_node array, element;
    int64_t      n_found;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_array(node, key, &array, &n_found, err));
    if (n_found != n)
        VP_TRY(vp_json_fail(node, key, err, "must be %d numbers", n));
    for (int k = 0; k < n; k++) {
        VP_TRY(vp_json_element(&array, k, &element, err));
        VP_TRY(vp_json_as_int(&element, 0, INT64_MAX, &out[k], err));
    }
out:
    return st;
}

static vp_status read_template(vp_plan *plan, const vp_json_node *node, vp_plan_template *t,
                               vp_err *err)
{
    vp_json_node array, row, shape, dim;
    int64_t      rank;
    int          choice;
    vp_status    st = VP_OK;

    ONLY_KEYS(node, "name", "parameters");
    VP_TRY(vp_field_string(plan, node, "name", &t->name, err));
    VP_TRY(vp_field_rows(plan, node, "parameters", sizeof *t->params, &array, (void **)&t->params,
                         &t->n_params, err));
    for (int64_t i = 0; i < t->n_params; i++) {
        vp_param *p = &t->params[i].param;
        VP_TRY(vp_json_element(&array, i, &row, err));
        ONLY_KEYS(&row, "name", "index_offset", "shape", "init", "init_std", "decay",
                  "block_matrix", "frozen", "in_out", "zero_row", "offset_bytes");
        VP_TRY(vp_field_string(plan, &row, "name", &p->name, err));
        if (vp_json_has(&row, "index_offset"))
            VP_TRY(vp_json_int(&row, "index_offset", 0, VP_PLAN_MAX_ROWS, &p->index_offset, err));
        VP_TRY(vp_json_array(&row, "shape", &shape, &rank, err));
        if (rank > VP_PARAM_MAX_RANK)
            VP_TRY(
                vp_json_fail(&row, "shape", err, "has more than %d dimensions", VP_PARAM_MAX_RANK));
        p->rank       = (int)rank;
        p->n_elements = 1;
        for (int64_t d = 0; d < rank; d++) {
            VP_TRY(vp_json_element(&shape, d, &dim, err));
            VP_TRY(vp_json_as_int(&dim, 1, INT64_MAX, &p->shape[d], err));
            p->n_elements = vp_mul(p->n_elements, p->shape[d]);
        }
        if (vp_overflowed(vp_mul(p->n_elements, 4)))
            VP_TRY(vp_json_fail(&row, "shape", err, "more bytes than 64 bits can count"));
        VP_TRY(vp_field_word(&row, "init", vp_plan_init_words, &choice, err));
        p->init = (vp_init)choice;
        if (vp_init_has_std(p->init))
            VP_TRY(vp_json_real(&row, "init_std", 0, 1e6, &p->init_std, err));
        else if (vp_json_has(&row, "init_std"))
            VP_TRY(vp_json_fail(&row, "init_std", err,
                                "only init \"normal\" and \"uniform\" have one"));
        VP_TRY(vp_json_bool(&row, "decay", &p->decay, err));
        if (vp_json_has(&row, "block_matrix"))
            VP_TRY(vp_json_bool(&row, "block_matrix", &p->block_matrix, err));
        if (vp_json_has(&row, "frozen"))
            VP_TRY(vp_json_bool(&row, "frozen", &p->frozen, err));
        if (vp_json_has(&row, "in_out"))
            VP_TRY(vp_json_bool(&row, "in_out", &p->in_out, err));
        if (vp_json_has(&row, "zero_row"))
            VP_TRY(vp_json_int(&row, "zero_row", 1, p->shape[0], &p->zero_row, err));
        VP_TRY(read_ints(&row, "offset_bytes", VP_N_REGIONS, t->params[i].offset_bytes, err));
    }
out:
    return st;
}

static vp_status read_region_memories(const vp_json_node *node, vp_plan_instance *x, vp_err *err)
{
    vp_json_node array, element;
    const char  *name;
    int64_t      n;
    vp_status    st = VP_OK;

    if (!vp_json_has(node, "region_memory"))
        return VP_OK;
    VP_TRY(vp_json_array(node, "region_memory", &array, &n, err));
    if (n != VP_N_REGIONS)
        VP_TRY(vp_json_fail(node, "region_memory", err, "must be %d memories", VP_N_REGIONS));
    for (int h = 0; h < VP_N_REGIONS; h++) {
        VP_TRY(vp_json_element(&array, h, &element, err));
        VP_TRY(vp_json_as_string(&element, &name, err));
        VP_TRY(vp_field_memory_named(name, &element, NULL, &x->region_memory[h], err));
    }
out:
    return st;
}

static vp_status read_bucket(vp_plan *plan, const vp_json_node *node, vp_bucket *b, vp_err *err)
{
    vp_json_node array, row, phase;
    const char  *name;
    int64_t      n, repeat;
    vp_status    st = VP_OK;

    ONLY_KEYS(node, "seq", "frequency", "micro_batch", "n_micro_steps", "last_micro_batch",
              "phases", "peak_bytes", "host_peak_bytes", "pageable_bytes", "nvme_bytes", "programs",
              "instances");
    VP_TRY(vp_json_int(node, "seq", 1, INT64_C(1000000000), &b->seq, err));
    VP_TRY(vp_json_real(node, "frequency", 0, 1, &b->frequency, err));
    VP_TRY(vp_json_int(node, "micro_batch", 1, INT64_C(1000000000), &b->micro_batch, err));
    VP_TRY(vp_json_int(node, "n_micro_steps", 1, INT64_C(1000000000), &b->n_micro_steps, err));
    b->last_micro_batch = b->micro_batch;
    if (vp_json_has(node, "last_micro_batch"))
        VP_TRY(vp_json_int(node, "last_micro_batch", 1, b->micro_batch, &b->last_micro_batch, err));
    VP_TRY(vp_json_int(node, "peak_bytes", 1, INT64_MAX, &b->peak_bytes, err));
    VP_TRY(vp_field_bytes(node, "host_peak_bytes", INT64_MAX, &b->host_peak_bytes, err));
    VP_TRY(vp_field_bytes(node, "pageable_bytes", b->host_peak_bytes, &b->pageable_bytes, err));
    VP_TRY(vp_field_bytes(node, "nvme_bytes", INT64_MAX, &b->nvme_bytes, err));
    VP_TRY(vp_json_array(node, "phases", &array, &n, err));
    vp_phases     phases  = vp_bucket_phases(b);
    const int64_t wants[] = {phases.first, phases.middle, phases.last, 1};
    if (n != 4)
        VP_TRY(vp_json_fail(node, "phases", err, "are first, middle, last and optimizer"));
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(vp_json_element(&array, i, &phase, err));
        ONLY_KEYS(&phase, "name", "repeat");
        VP_TRY(vp_json_string(&phase, "name", &name, err));
        if (strcmp(name, vp_plan_phase_words[i]) != 0)
            VP_TRY(
                vp_json_fail(&phase, "name", err, "must be \"%s\" here", vp_plan_phase_words[i]));
        VP_TRY(vp_json_int(&phase, "repeat", 0, INT64_MAX, &repeat, err));
        if (repeat != wants[i])
            VP_TRY(vp_json_fail(&phase, "repeat", err, "does not follow from n_micro_steps"));
    }
    VP_TRY(vp_field_rows(plan, node, "programs", sizeof *b->programs, &array, (void **)&b->programs,
                         &b->n_programs, err));
    if (b->n_programs < 1)
        VP_TRY(vp_json_fail(node, "programs", err, "is empty"));
    for (int64_t i = 0; i < b->n_programs; i++) {
        VP_TRY(vp_json_element(&array, i, &row, err));
        VP_TRY(read_program(plan, &row, b, &b->programs[i], err));
    }
    VP_TRY(vp_field_rows(plan, node, "instances", sizeof *b->instances, &array,
                         (void **)&b->instances, &b->n_instances, err));
    if (b->n_instances < 1)
        VP_TRY(vp_json_fail(node, "instances", err, "is empty"));
    for (int64_t i = 0; i < b->n_instances; i++) {
        vp_plan_instance *x = &b->instances[i];
        VP_TRY(vp_json_element(&array, i, &row, err));
        ONLY_KEYS(&row, "program", "index", "chain", "base_bytes", "host_base_bytes",
                  "region_base_bytes", "region_memory", "window");
        if (vp_json_has(&row, "window"))
            VP_TRY(vp_json_int(&row, "window", 0, INT64_MAX, &x->window, err));
        VP_TRY(vp_json_int(&row, "program", 0, b->n_programs - 1, &x->program_idx, err));
        VP_TRY(vp_json_int(&row, "index", 0, VP_PLAN_MAX_ROWS, &x->index, err));
        VP_TRY(vp_json_int(&row, "chain", 0, VP_PLAN_MAX_ROWS, &x->chain_idx, err));
        VP_TRY(
            vp_json_int(&row, "base_bytes", 0, INT64_MAX, &x->base_bytes[VP_MEMORY_DEVICE], err));
        if (vp_json_has(&row, "host_base_bytes"))
            VP_TRY(vp_json_int(&row, "host_base_bytes", 0, INT64_MAX,
                               &x->base_bytes[VP_MEMORY_HOST_PINNED], err));
        VP_TRY(read_region_memories(&row, x, err));
        VP_TRY(read_ints(&row, "region_base_bytes", VP_N_REGIONS, x->region_base_bytes, err));
    }
out:
    return st;
}

static vp_status read_angles(vp_plan *plan, const vp_json_node *row, vp_rope_table *a, vp_err *err)
{
    vp_json_node node, list, element;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_object(row, "angles", &node, err));
    ONLY_KEYS(&node, "inv_freq", "scale");
    VP_TRY(vp_json_real(&node, "scale", 0, VP_MAX_ROPE_SCALE, &a->scale, err));
    VP_TRY(vp_field_rows(plan, &node, "inv_freq", sizeof *a->inv_freq, &list, (void **)&a->inv_freq,
                         &a->n, err));
    for (int64_t i = 0; i < a->n; i++) {
        VP_TRY(vp_json_element(&list, i, &element, err));
        VP_TRY(vp_json_as_real(&element, 0, 1e18, &a->inv_freq[i], err));
    }
    if (a->n < 1)
        VP_TRY(vp_json_fail(&node, "inv_freq", err, "is empty"));
out:
    return st;
}

/* What a fixed buffer is called says what it is; constants are called as the model likes. */
static int64_t *fixed_slot(vp_plan *plan, const char *name, vp_component *component)
{
    const struct {
        const char  *name;
        vp_component component;
        int64_t     *slot;
    } known[] = {
        {"control", VP_COMP_CONTROL, &plan->control_idx},
        {"tokens", VP_COMP_BATCH_INPUT, &plan->tokens_idx},
        {"labels", VP_COMP_BATCH_INPUT, &plan->labels_idx},
        {"token types", VP_COMP_BATCH_INPUT, &plan->types_idx},
        {"lengths", VP_COMP_BATCH_INPUT, &plan->lengths_idx},
    };

    for (int i = 0; i < (int)(sizeof known / sizeof *known); i++)
        if (strcmp(known[i].name, name) == 0) {
            *component = known[i].component;
            return known[i].slot;
        }
    return NULL;
}

static vp_status read_fixed(vp_plan *plan, const vp_json_node *root, vp_err *err)
{
    vp_json_node array, row;
    const char  *component;
    vp_status    st = VP_OK;

    plan->tokens_idx = plan->labels_idx = plan->control_idx = plan->types_idx = plan->lengths_idx =
        -1;
    VP_TRY(vp_field_rows(plan, root, "fixed", sizeof *plan->fixed, &array, (void **)&plan->fixed,
                         &plan->n_fixed, err));
    for (int64_t i = 0; i < plan->n_fixed; i++) {
        vp_plan_fixed *f = &plan->fixed[i];
        VP_TRY(vp_json_element(&array, i, &row, err));
        ONLY_KEYS(&row, "name", "component", "per_micro_step", "memory", "offset_bytes", "bytes",
                  "angles");
        VP_TRY(vp_field_memory(&row, "memory", &f->memory, err));
        VP_TRY(vp_field_string(plan, &row, "name", &f->name, err));
        VP_TRY(vp_json_string(&row, "component", &component, err));
        f->component = vp_component_by_name(component);
        bool works   = f->component == VP_COMP_TEMPORARIES || f->component == VP_COMP_WORKSPACE ||
                     f->component == VP_COMP_STAGING;
        vp_component must = works ? f->component : VP_COMP_CONSTANTS;
        int64_t     *slot = fixed_slot(plan, f->name, &must);
        if (f->component != must)
            VP_TRY(vp_json_fail(
                &row, "component", err,
                "is not what a fixed buffer of this name is: control, batch_input, constants, temporaries, workspace or staging"));
        if (f->component == VP_COMP_CONSTANTS)
            VP_TRY(read_angles(plan, &row, &f->angles, err));
        else if (vp_json_has(&row, "angles"))
            VP_TRY(vp_json_fail(&row, "angles", err, "only constants have them"));
        VP_TRY(vp_json_bool(&row, "per_micro_step", &f->per_micro_step, err));
        VP_TRY(vp_json_int(&row, "offset_bytes", 0, INT64_MAX, &f->offset_bytes, err));
        VP_TRY(vp_json_int(&row, "bytes", 1, INT64_MAX, &f->bytes, err));
        if (slot && *slot >= 0)
            VP_TRY(vp_json_fail(&row, "name", err, "stands there twice"));
        if (slot)
            *slot = i;
    }
    if (plan->tokens_idx < 0 || plan->labels_idx < 0 || plan->control_idx < 0)
        VP_TRY(vp_json_fail(root, "fixed", err, "must hold tokens, labels and control"));
out:
    return st;
}

static vp_status check_names(const vp_json_node *run, const char *key, vp_err *err)
{
    vp_json_node ops, op;
    const char  *name;
    int64_t      n;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_array(run, key, &ops, &n, err));
    for (int64_t k = 0; k < n; k++) {
        VP_TRY(vp_json_element(&ops, k, &op, err));
        VP_TRY(vp_json_as_string(&op, &name, err));
    }
out:
    return st;
}

/* The decisions' list of runs of blocks: [{n_blocks, segment, recompute: [name of an op, ...]}], and
 * maybe offload: [name of an op, ...]. */
static vp_status check_runs(const vp_json_node *decisions, const char *key, vp_err *err)
{
    static const char *const keys[] = {"n_blocks", "segment", "recompute", "offload", NULL};
    vp_json_node             runs, run;
    int64_t                  n, n_blocks;
    vp_status                st = VP_OK;

    VP_TRY(vp_json_array(decisions, key, &runs, &n, err));
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(vp_json_element(&runs, i, &run, err));
        VP_TRY(vp_json_only_keys(&run, keys, err));
        VP_TRY(vp_json_int(&run, "n_blocks", 1, VP_PLAN_MAX_ROWS, &n_blocks, err));
        VP_TRY(vp_json_int(&run, "segment", 1, VP_PLAN_MAX_ROWS, &n_blocks, err));
        VP_TRY(check_names(&run, "recompute", err));
        if (vp_json_has(&run, "offload"))
            VP_TRY(check_names(&run, "offload", err));
    }
out:
    return st;
}

/* Decisions and settings repeat, for people and scripts, what the plan does: plain values, and
 * where the plan says the same elsewhere, the same. */
static vp_status read_summary(const vp_json_node *root, const char *key, const char *const *keys,
                              json_t **out, vp_err *err)
{
    vp_json_node node;
    const char  *name;
    json_t      *value;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_object(root, key, &node, err));
    VP_TRY(vp_json_only_keys(&node, keys, err));
    json_object_foreach (node.value, name, value)
        if (strcmp(name, "blocks") == 0)
            VP_TRY(check_runs(&node, name, err));
        else if (json_is_object(value) || json_is_array(value))
            VP_TRY(vp_json_fail(&node, name, err, "must be a plain value"));
    *out = json_incref(node.value);
out:
    return st;
}

static vp_status check_summary(const vp_plan *plan, const vp_json_node *root, vp_err *err)
{
    const vp_bucket *b = &plan->buckets[0];
    const struct {
        const char *object, *key;
        int64_t     value;
    } said[] = {
        {"decisions", "micro_batch", b->micro_batch},
        {"decisions", "n_micro_steps", b->n_micro_steps},
        {"settings", "seq", b->seq},
        {"settings", "global_batch", plan->global_batch},
    };
    vp_json_node node;
    const char  *device;
    int64_t      value;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_object(root, "settings", &node, err));
    VP_TRY(vp_json_string(&node, "device", &device, err));
    if (strcmp(device, plan->device) != 0)
        VP_TRY(vp_json_fail(&node, "device", err, "is not the device the plan is made for"));
    for (int i = 0; i < (int)(sizeof said / sizeof *said); i++) {
        VP_TRY(vp_json_object(root, said[i].object, &node, err));
        VP_TRY(vp_json_int(&node, said[i].key, 1, INT64_MAX, &value, err));
        if (value != said[i].value)
            VP_TRY(vp_json_fail(&node, said[i].key, err, "is %lld, but the plan is made for %lld",
                                (long long)value, (long long)said[i].value));
    }
out:
    return st;
}

static vp_status read_answers(vp_plan *plan, const vp_json_node *root, vp_err *err)
{
    vp_json_node node, array, row;
    int          choice;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_object(root, "prediction", &node, err));
    ONLY_KEYS(&node, "peak_bytes", "host_peak_bytes", "outside_bytes", "outside_class",
              "outside_of", "process_predicted_bytes", "step_time_s", "time_class");
    VP_TRY(vp_json_int(&node, "peak_bytes", 1, INT64_MAX, &plan->peak_bytes, err));
    VP_TRY(vp_field_bytes(&node, "host_peak_bytes", INT64_MAX, &plan->host_peak_bytes, err));
    VP_TRY(vp_json_int(&node, "outside_bytes", 0, INT64_MAX, &plan->outside_bytes, err));
    if (vp_json_has(&node, "outside_class")) { /* left out by the CPU's plans and by older ones */
        VP_TRY(vp_field_word(&node, "outside_class", outside_classes, &choice, err));
        plan->outside_class = outside_classes[choice];
    } else if (plan->outside_bytes > 0) {
        plan->outside_class = outside_classes[0];
    }
    if (vp_json_has(&node, "outside_of"))
        VP_TRY(vp_field_string(plan, &node, "outside_of", &plan->outside_of, err));
    VP_TRY(vp_field_int(&node, "process_predicted_bytes", &plan->process_predicted_bytes, err));
    VP_TRY(vp_json_real(&node, "step_time_s", 0, 1e30, &plan->step_time_s, err));
    VP_TRY(vp_field_word(&node, "time_class", time_classes, &choice, err));
    plan->time_class = time_classes[choice];
    VP_TRY(vp_json_object(root, "proof", &node, err));
    ONLY_KEYS(&node, "status", "gap", "bound_s", "fastest_s", "least_budget_bytes");
    VP_TRY(vp_field_word(&node, "status", proof_names, &choice, err));
    plan->proof = (vp_proof_status)choice;
    VP_TRY(vp_field_real(&node, "gap", &plan->proof_gap, err));
    VP_TRY(vp_field_real(&node, "bound_s", &plan->bound_s, err));
    VP_TRY(vp_field_real(&node, "fastest_s", &plan->fastest_s, err));
    VP_TRY(vp_field_int(&node, "least_budget_bytes", &plan->least_budget_bytes, err));
    VP_TRY(vp_field_rows(plan, root, "presets", sizeof *plan->presets, &array,
                         (void **)&plan->presets, &plan->n_presets, err));
    for (int64_t i = 0; i < plan->n_presets; i++) {
        vp_preset_result *r = &plan->presets[i];
        VP_TRY(vp_json_element(&array, i, &row, err));
        ONLY_KEYS(&row, "name", "peak_bytes", "step_time_s", "fits");
        VP_TRY(vp_field_string(plan, &row, "name", &r->name, err));
        VP_TRY(vp_json_int(&row, "peak_bytes", 0, INT64_MAX, &r->peak_bytes, err));
        VP_TRY(vp_json_real(&row, "step_time_s", 0, 1e30, &r->step_time_s, err));
        VP_TRY(vp_json_bool(&row, "fits", &r->fits, err));
    }
out:
    return st;
}

/* The checker names fields; the document knows their lines, and whether it is as it was written. */
static vp_status check_located(vp_plan *plan, const vp_json_node *root, vp_err *err)
{
    vp_err       found = {0};
    vp_json_node at    = *root;
    vp_status    st    = vp_plan_check(plan, vp_json_name(root->doc), &found);

    if (st == VP_OK)
        return vp_plan_is_signed(root, &plan->is_signed, err);
    if (st != VP_ERR_INPUT || strlen(found.field) >= sizeof at.path)
        return vp_fail(err, st, found.file, found.line, found.field, "%s", found.message);
    strcpy(at.path, found.field);
    return vp_json_fail(&at, NULL, err, "%s", found.message);
}

static const char *const plan_keys[]     = {"schema_version",
                                            "model",
                                            "recipe",
                                            "device",
                                            "compute_capability",
                                            "algorithms_of",
                                            "budget_bytes",
                                            "global_batch",
                                            "decisions",
                                            "settings",
                                            "assumptions",
                                            "prediction",
                                            "proof",
                                            "presets",
                                            "fixed",
                                            "templates",
                                            "shared",
                                            "buckets",
                                            "digest",
                                            "updates_in_backward",
                                            NULL};
static const char *const decision_keys[] = {"micro_batch",
                                            "n_micro_steps",
                                            "last_micro_batch",
                                            "recompute",
                                            "blocks",
                                            "loss_chunk_tokens",
                                            "offload",
                                            "offloaded_instances",
                                            "nvme",
                                            "updates",
                                            NULL};
static const char *const setting_keys[]  = {"trainer",      "device",    "seq",
                                            "global_batch", "precision", "optimizer",
                                            "attention",    "dropout",   NULL};

/* What somebody took for a plan: a model's config, a trainer's settings, or neither's. */
static vp_status refuse_other_files(const vp_json_node *root, vp_err *err)
{
    bool      has_version = vp_json_has(root, "schema_version");
    vp_status st          = VP_OK;

    if (vp_json_has(root, "model_type") && !has_version)
        VP_TRY(
            vp_json_fail(root, "schema_version", err,
                         "is missing: this is a model's config, no plan; vplan plan makes one of "
                         "it, with -o plan.json"));
    if (vp_json_has(root, "common") && !vp_json_has(root, "templates"))
        VP_TRY(vp_json_fail(root, "common", err,
                            "this is no plan but settings for a trainer; vplan emit writes its "
                            "files from them"));
    if (json_is_object(root->value) && !has_version && !vp_json_has(root, "templates") &&
        !vp_json_has(root, "decisions"))
        VP_TRY(vp_json_fail(root, NULL, err,
                            "this is no plan file; vplan plan MODEL -o plan.json writes one"));
out:
    return st;
}

vp_status vp_plan_from_json(const vp_json_node *root, vp_plan **out, vp_err *err)
{
    vp_plan     *plan = vp_plan_new();
    vp_json_node node, array, row;
    const char  *sentence;
    int64_t      version, n;
    int          choice;
    vp_status    st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, plan);
    VP_TRY(refuse_other_files(root, err));
    VP_TRY(vp_json_int(root, "schema_version", 0, INT64_MAX, &version, err));
    if (version != VP_PLAN_SCHEMA)
        VP_TRY(vp_json_fail(root, "schema_version", err, "is %lld; this vplan reads version %d",
                            (long long)version, VP_PLAN_SCHEMA));
    VP_TRY(vp_json_only_keys(root, plan_keys, err));
    VP_TRY(vp_json_object(root, "model", &node, err));
    ONLY_KEYS(&node, "name", "family", "params_total", "vocab_size", "config", "mask_token",
              "n_token_types", "n_classes", "label_place");
    VP_TRY(vp_field_string(plan, &node, "name", &plan->model_name, err));
    VP_TRY(vp_field_string(plan, &node, "family", &plan->family, err));
    VP_TRY(vp_json_int(&node, "params_total", 1, INT64_MAX, &plan->n_params, err));
    VP_TRY(vp_json_int(&node, "vocab_size", 1, INT64_C(100000000), &plan->vocab_size, err));
    VP_TRY(vp_field_int(&node, "mask_token", &plan->mask_token, err));
    if (plan->mask_token >= plan->vocab_size)
        VP_TRY(vp_json_fail(&node, "mask_token", err, "is not in the vocabulary"));
    if (vp_json_has(&node, "n_classes")) {
        if (plan->mask_token >= 0)
            VP_TRY(vp_json_fail(&node, "n_classes", err,
                                "labels are classes or hidden tokens, not both"));
        VP_TRY(vp_json_int(&node, "n_classes", 1, INT64_C(100000000), &plan->n_classes, err));
        VP_TRY(vp_field_word(&node, "label_place", vp_plan_label_place_words, &choice, err));
        plan->label_place = (vp_label_place)choice;
    }
    if (vp_json_has(&node, "n_token_types"))
        VP_TRY(
            vp_json_int(&node, "n_token_types", 1, INT64_C(100000000), &plan->n_token_types, err));
    VP_TRY(vp_json_object(&node, "config", &row, err));
    plan->model_config = json_incref(row.value);
    VP_TRY(vp_json_object(root, "recipe", &node, err));
    VP_TRY(vp_recipe_from_json(&node, &plan->recipe, err));
    VP_TRY(vp_field_string(plan, root, "device", &plan->device, err));
    if (vp_json_has(root, "compute_capability"))
        VP_TRY(vp_json_int(root, "compute_capability", 10, 1000, &plan->compute_capability, err));
    if (vp_json_has(root, "updates_in_backward"))
        VP_TRY(vp_json_bool(root, "updates_in_backward", &plan->updates_in_backward, err));
    if (vp_json_has(root, "algorithms_of"))
        VP_TRY(vp_field_string(plan, root, "algorithms_of", &plan->algorithms_of, err));
    VP_TRY(vp_json_int(root, "budget_bytes", 0, INT64_MAX, &plan->budget_bytes, err));
    VP_TRY(vp_json_int(root, "global_batch", 1, INT64_C(1000000000), &plan->global_batch, err));
    VP_TRY(read_summary(root, "decisions", decision_keys, &plan->decisions, err));
    VP_TRY(read_summary(root, "settings", setting_keys, &plan->settings, err));
    VP_TRY(vp_json_array(root, "assumptions", &node, &n, err));
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(vp_json_element(&node, i, &row, err));
        VP_TRY(vp_json_as_string(&row, &sentence, err));
    }
    plan->assumptions = json_incref(node.value);
    VP_TRY(read_answers(plan, root, err));
    VP_TRY(read_fixed(plan, root, err));
    VP_TRY(vp_field_rows(plan, root, "templates", sizeof *plan->templates, &array,
                         (void **)&plan->templates, &plan->n_templates, err));
    if (plan->n_templates < 1)
        VP_TRY(vp_json_fail(root, "templates", err, "is empty"));
    for (int64_t i = 0; i < plan->n_templates; i++) {
        VP_TRY(vp_json_element(&array, i, &row, err));
        VP_TRY(read_template(plan, &row, &plan->templates[i], err));
    }
    VP_TRY(vp_field_rows(plan, root, "shared", sizeof *plan->shared, &array, (void **)&plan->shared,
                         &plan->n_shared, err));
    for (int64_t i = 0; i < plan->n_shared; i++) {
        VP_TRY(vp_json_element(&array, i, &row, err));
        ONLY_KEYS(&row, "instance", "parameter");
        VP_TRY(
            vp_json_int(&row, "instance", 0, VP_PLAN_MAX_ROWS, &plan->shared[i].instance_idx, err));
        VP_TRY(
            vp_json_int(&row, "parameter", 0, VP_PLAN_MAX_ROWS, &plan->shared[i].param_idx, err));
    }
    VP_TRY(vp_field_rows(plan, root, "buckets", sizeof *plan->buckets, &array,
                         (void **)&plan->buckets, &plan->n_buckets, err));
    if (plan->n_buckets < 1)
        VP_TRY(vp_json_fail(root, "buckets", err, "is empty"));
    for (int64_t i = 0; i < plan->n_buckets; i++) {
        VP_TRY(vp_json_element(&array, i, &row, err));
        VP_TRY(read_bucket(plan, &row, &plan->buckets[i], err));
    }
    VP_TRY(check_located(plan, root, err));
    VP_TRY(check_summary(plan, root, err));
    assert(plan->tokens_idx < plan->n_fixed && plan->labels_idx < plan->n_fixed &&
           plan->control_idx < plan->n_fixed);
    *out = plan;
    plan = NULL;
out:
    vp_plan_free(plan);
    return st;
}

vp_status vp_plan_read(const char *path, vp_plan **out, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_status    st  = VP_OK;

    *out = NULL;
    VP_TRY(vp_json_read(path, VP_PLAN_MAX_BYTES, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_plan_from_json(&root, out, err));
out:
    vp_json_doc_free(doc);
    return st;
}

vp_status vp_plan_read_all(const char *path, vp_plan **plans, int64_t max, int64_t *n, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_json_node node;
    int64_t      n_plans = 0;
    vp_status    st      = VP_OK;

    *n = 0;
    VP_TRY(vp_json_read(path, VP_PLAN_MAX_BYTES, &doc, err));
    vp_json_node root = vp_json_root(doc);
    n_plans           = json_is_array(root.value) ? (int64_t)json_array_size(root.value) : 1;
    if (n_plans < 1 || n_plans > max)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 1, NULL,
                          "%lld plans: %lld at most can be taken here, and one at least",
                          (long long)n_plans, (long long)max));
    if (!json_is_array(root.value)) {
        VP_TRY(vp_plan_from_json(&root, &plans[0], err));
        *n = 1;
        goto out;
    }
    for (; *n < n_plans; ++*n) {
        vp_err why = {0};
        VP_TRY(vp_json_element(&root, *n, &node, err));
        st = vp_plan_from_json(&node, &plans[*n], &why);
        /* what is wrong with a plan as a whole is told of a document that is one plan */
        if (st != VP_OK)
            st = vp_fail(err, st, why.file, why.line, NULL, "plan %lld: %s%s%s", (long long)*n + 1,
                         why.field, why.field[0] ? ": " : "", why.message);
        VP_TRY(st);
    }
out:
    for (int64_t i = 0; st != VP_OK && i < *n; i++)
        vp_plan_free(plans[i]);
    if (st != VP_OK)
        *n = 0;
    vp_json_doc_free(doc);
    return st;
}
