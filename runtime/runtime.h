/* runtime/runtime.h: a plan becomes training steps.
 *     vp_run_opts opts = { .n_total_steps = 10 };
 *     VP_TRY(vp_runtime_new(plan, vp_backend_cpu(), &opts, &rt, err));
 *     VP_TRY(vp_runtime_draw(rt, err));                        // or vp_runtime_load(rt, dir,
 *     &report, err)
 *     VP_TRY(vp_runtime_step(rt, tokens, labels, &step, err)); // as often as wanted
 *     vp_runtime_free(rt);
 *
 * Executes a checked plan with nothing else: one arena of exactly the planned size, allocated once;
 * every kernel call at the plan's offsets; nothing allocated after vp_runtime_new(). What it binds
 * is recorded as it binds it, so the executed peak is an observation, not the plan's own figure.
 *
 * With opts.verify the step runs on two arenas side by side, filled with two different poison
 * bytes. A buffer's range is checked to hold poison at its birth and is poisoned again at its
 * death: a write outside the living buffers is found at the next birth there, a byte that was
 * never written still holds both poisons at death, and anything that depended on unwritten
 * memory makes the two arenas' parameters differ. */
#ifndef VP_RUNTIME_RUNTIME_H
#define VP_RUNTIME_RUNTIME_H

#include "kernels/backend.h"
#include "plan/expand.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct vp_run_opts {
    int64_t n_total_steps; /* what a schedule with total 0 counts to */
    int64_t seed;          /* for drawing parameters, -1: the recipe's */
    bool    verify;
    /* wait for each call, so that its time is its own; nothing is recorded */
    bool eager;
} vp_run_opts;

typedef struct vp_step_result {
    double loss;      /* mean over the targets of the global batch, before the step */
    double grad_norm; /* before clipping; not finite where skipped */
    double seconds;
    /* where the precision scales the loss: the next step's scale, and whether this step's gradients
     * were not all finite, so that it updated nothing; else 0 and false */
    double loss_scale;
    bool   skipped;
} vp_step_result;

typedef struct vp_runtime vp_runtime;

/* plan and backend are borrowed until vp_runtime_free(), which takes NULL. VP_ERR_DEVICE: the
 * arena cannot be had, or the plan is for another kind of device. VP_ERR_USAGE: verify on a
 * device. */
vp_status vp_runtime_new(const vp_plan *plan, const vp_backend *backend, const vp_run_opts *opts,
                         vp_runtime **out, vp_err *err);
void      vp_runtime_free(vp_runtime *rt);

/* Parameters drawn by their family's rule from (seed, name, element); optimizer states zero. */
vp_status vp_runtime_draw(vp_runtime *rt, vp_err *err);

/* What a folder lacked and was drawn, and what it holds that the plan has no use for. Names;
 * alive as long as the runtime. */
typedef struct vp_load_report {
    const char **drawn, **unused;
    int64_t      n_drawn, n_unused;
} vp_load_report;

/* Parameters from a Hugging Face folder, matched as transformers does: the inner model's prefix
 * ("transformer.", "model.", "bert.") may be missing there, or here; a head or pooler that is
 * not there at all is drawn as vp_runtime_draw() does; heads of other tasks and stored buffers
 * are unused. VP_ERR_INPUT: another shape; a tensor of the inner model that is missing or that
 * the plan lacks; a head that is there in part, or tied where the plan's is not; tied tensors
 * stored twice that differ. Optimizer states zero. */
vp_status vp_runtime_load(vp_runtime *rt, const char *dir, vp_load_report *report, vp_err *err);

/* Adapters from a folder as peft writes it, adapter_model.safetensors and adapter_config.json; the rest
 * of the parameters as it is. vp_runtime_load() does so too where its folder holds these beside the
 * model. VP_ERR_INPUT: a tensor that is missing or has another shape, one more, another scale. */
vp_status vp_runtime_load_adapters(vp_runtime *rt, const char *dir, vp_err *err);

/* A folder with what the plan trains: model.safetensors (fp32 values, where there are no master
 * weights in the precision's; names as in the plan) and config.json, or adapters as peft reads them.
 * Made if it is not there; overwrite as in base/file.h. */
vp_status vp_runtime_save(const vp_runtime *rt, const char *dir, bool overwrite, vp_err *err);

/* The model whole, adapters folded into the weights they stand beside: W + s B A, in W's dtype. */
vp_status vp_runtime_save_merged(const vp_runtime *rt, const char *dir, bool overwrite,
                                 vp_err *err);

/* Whether a folder of the model, or of adapters, could be written there, asked before training rather
 * than after; makes the folder. */
vp_status vp_runtime_check_save(const char *dir, bool adapters, bool overwrite, vp_err *err);

/* A global batch: tokens and labels are (global_batch, seq); a label of -100 does not count.
 * token_types (global_batch, seq) where the model has them, NULL: all 0. lengths (global_batch),
 * tokens of each sample that are not padding at its end, where the plan has them, NULL: seq. */
typedef struct vp_batch {
    const int32_t *tokens, *labels, *token_types, *lengths;
} vp_batch;

/* One optimizer step. VP_ERR_INPUT: an id outside the vocabulary, or no target at all.
 * VP_ERR_INTERNAL: verify found something. */
vp_status vp_runtime_step(vp_runtime *rt, const vp_batch *batch, vp_step_result *result,
                          vp_err *err);

/* A parameter of the plan: where it lies now, in the first arena, which is the backend's memory.
 * The gradient is what the last step left. */
typedef struct vp_runtime_param {
    char              name[160];
    const vp_backend *backend;
    const vp_param   *param;
    vp_dtype          dtype;  /* of data                                    */
    void             *data;   /* what kernels read                          */
    float            *master; /* NULL where the precision has none          */
    vp_dtype          grad_dtype;
    void             *grad;
} vp_runtime_param;

int64_t vp_runtime_n_params(const vp_runtime *rt);
void    vp_runtime_param_at(const vp_runtime *rt, int64_t idx, vp_runtime_param *out);

/* Elements first .. first + n in fp32: the master's where there is one. */
vp_status vp_runtime_param_get(const vp_runtime_param *p, int64_t first, int64_t n, float *out,
                               vp_err *err);
/* Elements of its gradient. */
vp_status vp_runtime_grad_get(const vp_runtime_param *p, int64_t first, int64_t n, float *out,
                              vp_err *err);
vp_status vp_runtime_param_set(const vp_runtime_param *p, int64_t first, int64_t n,
                               const float *values, vp_err *err);

/* Of one memory; all 0 where the plan does not use it. */
typedef struct vp_memory_use {
    /* the plan's */
    int64_t predicted_bytes;
    /* largest offset + bytes of any operand bound */
    int64_t executed_bytes;
    /* verify: bytes ever written, counted; else all, of the device's the resident ones of the mapping */
    int64_t touched_bytes;
} vp_memory_use;

typedef struct vp_memory_report {
    vp_memory_use of[VP_N_MEMORIES];
    /* of the mapping, by the kernel's count */
    int64_t resident_bytes;
    /* of the arena, covered by no buffer ever */
    int64_t padding_bytes;
    /* verify: bytes of buffers that died without having been written, else 0 */
    int64_t never_written_bytes;
    /* of the host, for what a step on a device is given and gives; 0: none */
    int64_t pinned_bytes;
    /* what pinning these and the host arena took */
    double  pinning_s;
    int64_t n_buffers;
} vp_memory_report;

void vp_runtime_memory(const vp_runtime *rt, vp_memory_report *out);

/* What the calls of one kernel with one shape took together in the last step, by the monotonic
 * clock around each. Their sum is the step but for the copies into the arena and the walk over
 * the plan. With verify a call runs on both arenas and both count. A backend that only enqueues
 * is clocked where opts.eager waits for each call; else seconds are 0. */
typedef struct vp_kernel_time {
    vp_kernel kernel;
    vp_dtype  dtype;
    int64_t   ints[VP_MAX_INTS];
    uint32_t  lacks; /* vp_kernel_lacks() */
    int64_t   n_calls;
    double    seconds;
} vp_kernel_time;

/* In the order of their first call; the runtime's own, until its next step. */
const vp_kernel_time *vp_runtime_kernel_times(const vp_runtime *rt, int64_t *n);

/* SHA-256 over the parameters' fp32 values, little-endian, in plan order. */
vp_status vp_runtime_sha256(const vp_runtime *rt, char text[65], vp_err *err);

#endif
