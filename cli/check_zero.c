#include "cli/check_zero.h"

#include "base/units.h"

#include <string.h>

/* As counted: trainers/torch/world_zero.c, world_zero3_fetch.c. */
static const double BUCKET = 5e8, AHEAD = 5e7, WHOLE = 1e9, PERSISTENT = 1e5;

/* Of the width's square: a matrix of keys, with one head of 16. */
static const double LEAST_SHARE = 16;

typedef struct zero {
    vp_arena       *arena;
    const char     *file;
    const vp_value *root;
    double          n, hidden, each; /* the model's weights, its width, bytes of a weight */
    vp_check_zero  *out;
} zero;

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* What the file says of zero_optimization's key, 1e9 too; "auto" is what Trainer makes of it (transformers/integrations/deepspeed.py,
 * trainer_config_finalize()): `of_auto`. */
static double number(const zero *z, const char *key, double otherwise, double of_auto)
{
    const vp_value *v =
        vp_value_at(z->root, vp_arena_printf(z->arena, "zero_optimization.%s", key));

    if (v && (v->kind == VP_VALUE_INT || v->kind == VP_VALUE_REAL) && v->real >= 0)
        return v->real;
    return v && v->text && strcmp(v->text, "auto") == 0 ? of_auto : otherwise;
}

/* by: elements more than are counted; below 0: fewer. */
static void add(zero *z, const char *key, double value, double by)
{
    int64_t bytes = (int64_t)((by < 0 ? -by : by) * z->each);
    char    text[32];

    if (bytes < (1 << 20))
        return;
    *(by < 0 ? &z->out->less_bytes : &z->out->more_bytes) += bytes;
    if (z->out->n_lines < VP_ZERO_LINES)
        z->out->lines[z->out->n_lines++] =
            vp_arena_printf(z->arena, "%s of %s, %.0f: up to %s %s", key, z->file, value,
                            vp_size_text(bytes, text, sizeof text),
                            by < 0 ? "less than is counted" : "more than was recorded, added here");
}

/* Two of it are there at once: the bucket itself, and a copy that is reduced. */
static double of_bucket(const zero *z, double bucket)
{
    return bucket + least(bucket, z->n);
}

static void find(zero *z, const char *parallel)
{
    double          square  = z->hidden * z->hidden;
    double          bucket  = number(z, "reduce_bucket_size", BUCKET, square);
    const vp_value *overlap = vp_value_at(z->root, "zero_optimization.overlap_comm");

    add(z, "reduce_bucket_size", bucket, of_bucket(z, bucket) - of_bucket(z, BUCKET));
    if (strcmp(parallel, "zero3") != 0) { /* a second bucket, filled while the first is reduced */
        if (overlap && overlap->kind == VP_VALUE_BOOL && overlap->boolean)
            add(z, "overlap_comm with a bucket", bucket, of_bucket(z, bucket));
        return;
    }
    /* weights up to that size stay whole on every card (DeepSpeed, parameter_offload.py); what a layer's least matrix has is not
     * known here, so that all do */
    double whole_up_to = number(z, "stage3_param_persistence_threshold", PERSISTENT, PERSISTENT);
    if (whole_up_to > PERSISTENT && whole_up_to >= square / LEAST_SHARE)
        add(z, "stage3_param_persistence_threshold", whole_up_to, z->n);
    double live   = number(z, "stage3_max_live_parameters", WHOLE, WHOLE);
    double reused = number(z, "stage3_max_reuse_distance", WHOLE, WHOLE);
    double ahead  = number(z, "stage3_prefetch_bucket_size", AHEAD, 0.9 * square);
    double whole  = live < reused ? reused : live;

    add(z, "stage3_prefetch_bucket_size", ahead,
        least(least(ahead, whole), z->n) - least(AHEAD, z->n));
    add(z, live < reused ? "stage3_max_reuse_distance" : "stage3_max_live_parameters", whole,
        least(whole, z->n) - least(WHOLE, z->n));
}

void vp_check_zero_find(vp_arena *arena, const vp_checked *c, const vp_model *model,
                        vp_check_zero *out)
{
    const char *parallel  = c->settings.value[VP_SETTING_PARALLEL],
               *precision = c->settings.value[VP_SETTING_PRECISION];

    *out = (vp_check_zero){0};
    for (int f = 0; f < c->n_files && parallel && strncmp(parallel, "zero", 4) == 0; f++) {
        const vp_checked_file *file = &c->files[f];
        if (!file->doc || file->dialect != &vp_dialect_deepspeed)
            continue;
        find(&(zero){.arena  = arena,
                     .file   = file->name,
                     .root   = file->doc->root,
                     .n      = (double)model->n_params,
                     .hidden = (double)model->graph.hidden,
                     .each   = precision && strcmp(precision, "fp32") == 0 ? 4 : 2,
                     .out    = out},
             parallel);
        return;
    }
}
