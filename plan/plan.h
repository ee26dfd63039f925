/* plan/plan.h: a plan: everything needed to train a model inside a memory budget, and nothing else.
 *     VP_TRY(vp_plan_read("plan.json", &plan, err));      // checked; it runs without model or
 *     planner
 *     vp_plan_free(plan);
 *
 * Shape of a plan. A model is a chain of *instances* (embedding, block 0, block 1, ..., head) of a
 * few *templates* (which parameters) and *programs* (which kernel calls, at which offsets). Offsets
 * in a program are relative to the instance's base, so 126 equal layers are one program and 126
 * short rows. plan/expand.h unrolls it; nobody else does.
 *
 * One optimizer step: micro-steps (the first writes parameter gradients, the others add to them),
 * each all forwards in chain order and all backwards in reverse; then the optimizer: gradient norm
 * over all parameters in chain order, clip scale, update. The last micro-step may have fewer
 * samples: it then has steps of its own, which use the first part of the same buffers.
 *
 * Or updates are made in backward: each instance's part of the norm and its updates follow its
 * backward in the last micro-step. Its gradients may then lie where the next one's will: with one
 * micro-step they are not needed any longer. No update knows the norm of all gradients, so that
 * nothing is clipped, and no step skipped.
 *
 * Steps stand in one order. Kernels run on the compute stream, each after the one before. A copy
 * between two memories is a pair of steps: copy_start gives it to the stream of its direction,
 * where it begins when the compute steps before it, the host's, and the copies before it on that stream
 * are done; copy_done, on the compute stream, waits for it. Between the two nobody may write what is
 * read or touch what is written, and both buffers live until copy_done. Where only the host waits, no
 * kernel touches what lies on the device for the rest of the step.
 *
 * Memory "device": parameters, gradients, master weights, optimizer states, batch, constants and
 * control lie below; above them the activation stack. Instance i's region begins at base_bytes:
 * first its input x (offset 0), then what it keeps for its backward (kept_bytes in all), then
 * what lives only inside one pass. The output of instance i is the input of instance i+1 and
 * lies at offset kept_bytes of i = offset 0 of i+1. In backward the gradient of a block's input
 * is written over that input. */
#ifndef VP_PLAN_PLAN_H
#define VP_PLAN_PLAN_H

#include "base/arena.h"
#include "base/err.h"
#include "plan/memory.h"
#include "plan/op.h"
#include "plan/recipe.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* What a buffer is for. X(NAME, text). */
#define VP_COMPONENT_TABLE(X) \
    X(PARAMETERS, "parameters") \
    X(MASTER, "master") \
    X(OPTIMIZER_STATE, "optimizer_state") \
    X(GRADIENTS, "gradients") \
    X(ACTIVATIONS, "activations") \
    X(TEMPORARIES, "temporaries") \
    X(WORKSPACE, "workspace") \
    X(STAGING, "staging") \
    X(BATCH_INPUT, "batch_input") \
    X(CONSTANTS, "constants") \
    X(CONTROL, "control") \
    X(PADDING, "padding")

typedef enum vp_component {
#define X(name, text) VP_COMP_##name,
    VP_COMPONENT_TABLE(X) VP_N_COMPONENTS
} vp_component;
#undef X

const char  *vp_component_name(vp_component c);
vp_component vp_component_by_name(const char *name); /* VP_N_COMPONENTS if none */

/* ---- parameters ---- */

typedef enum vp_init {
    VP_INIT_ZEROS,
    VP_INIT_ONES,
    VP_INIT_NORMAL,
    VP_INIT_UNIFORM, /* symmetric about 0 */
    VP_N_INITS
} vp_init;

static inline bool vp_init_has_std(vp_init init)
{
    return init == VP_INIT_NORMAL || init == VP_INIT_UNIFORM;
}

enum { VP_PARAM_MAX_RANK = 4 };

/* What is held for each parameter, in regions of their own. */
typedef enum vp_region {
    VP_REGION_PARAM,  /* as the kernels read it: the precision's dtype             */
    VP_REGION_GRAD,   /* its gradient: fp32, or as the recipe says                 */
    VP_REGION_MASTER, /* fp32, where the precision has master weights              */
    VP_REGION_STATE0, /* the optimizer's states                                    */
    VP_REGION_STATE1,
    VP_N_REGIONS
} vp_region;

/* A parameter as its model knows it, wherever it lies. */
typedef struct vp_param {
    /* as in the checkpoint; "{}" stands for the instance's index + index_offset */
    const char *name;
    int64_t     index_offset; /* of the block within a segment of several                     */
    int         rank;
    int64_t     shape[VP_PARAM_MAX_RANK];
    vp_init     init;
    double      init_std;     /* where vp_init_has_std()               */
    bool        decay;        /* in the weight-decay group             */
    bool        block_matrix; /* weight of a linear inside a block    */
    bool        frozen;       /* not trained: it has no gradient, no master, no states */
    bool        in_out;       /* an adapted weight that lies (in, out)                 */
    int64_t     zero_row;     /* 1 + the row that is drawn as zeros (padding), 0: none */
    int64_t     n_elements;
} vp_param;

/* And as a plan places it. */
typedef struct vp_plan_param {
    vp_param param;
    /* from the instance's base of each region; 0 where there is none */
    int64_t offset_bytes[VP_N_REGIONS];
} vp_plan_param;

/* Bytes of this parameter in a region under a recipe, 0: none there; VP_OVERFLOW beyond 64
 * bits. */
int64_t vp_plan_param_bytes(const vp_recipe *recipe, const vp_param *p, vp_region region);

/* The parameter as its optimizer sees it. */
vp_update_shape vp_plan_param_shape(const vp_param *p);

/* ---- programs ---- */

/* Where an argument of a step lies. */
typedef enum vp_space {
    VP_SPACE_BUFFER,       /* program buffer idx, at the instance's base         */
    VP_SPACE_PARAM,        /* parameter idx of this instance's template          */
    VP_SPACE_GRAD,         /* its gradient                                       */
    VP_SPACE_MASTER,       /* its master copy                                    */
    VP_SPACE_STATE0,       /* its first optimizer state                          */
    VP_SPACE_STATE1,       /* its second                                         */
    VP_SPACE_SHARED_PARAM, /* plan->shared[idx]: another instance's parameter    */
    VP_SPACE_SHARED_GRAD,
    VP_SPACE_FIXED, /* plan->fixed[idx]                                   */
    VP_N_SPACES,
    VP_SPACE_NONE = VP_N_SPACES /* an optional operand left out                   */
} vp_space;

typedef struct vp_arg {
    vp_space space;
    /* of what is held for a parameter, or a buffer: the instance's own 0, its predecessor's -1, the one
     * before that -2, its successor's 1: what is needed is copied to the device while the instance
     * before it in the pass runs */
    int     ahead;
    int64_t idx;
    int64_t offset_bytes; /* into the buffer, for chunks */
} vp_arg;

typedef enum vp_accumulate {
    VP_ACC_NEVER,    /* write                                              */
    VP_ACC_BY_PHASE, /* write in the first micro-step, add in the others   */
    VP_ACC_ALWAYS    /* add                                                */
} vp_accumulate;

/* Streams of a block: its random ops count from 0, the updates of its parameters from here; 256
 * in all. */
enum { VP_UPDATE_RNG_FIRST = 128 };

/* One kernel call. */
typedef struct vp_step {
    vp_kernel   kernel; /* VP_N_KERNELS in programs that are only simulated */
    vp_dtype    dtype;  /* of the call: VP_DTYPE_F32 or VP_DTYPE_BF16       */
    const char *name;   /* of the model's op, like "attn.qkv"               */
    /* the kernel's operands, then its workspace where it has one */
    vp_arg  args[VP_MAX_OPERANDS];
    int64_t workspace_bytes; /* plan/workspace.h; 0: none                      */
    VP_NAMED_INTS;
    VP_NAMED_REALS;
    vp_accumulate accumulate;
    bool          first_only;         /* runs in the first micro-step only                */
    bool          later_only;         /* runs in all but the first                        */
    bool          window_of_instance; /* an attention whose window is its instance's */
    /* of a random kernel: unique in its template, below 2^16; see VP_UPDATE_RNG_FIRST */
    int rng_id;
    /* VP_STREAM_COMPUTE, but for copy_start; VP_STREAM_HOST for an update that the host makes, and for a
     * copy_done that only the host waits for */
    vp_stream stream;
    double    seconds; /* predicted                                        */
    double
        lost_s; /* of a copy_start: what kernels lose to the processors that make the copy, predicted */
    vp_algorithm algorithm; /* that the seconds were measured with, or unset    */
} vp_step;

/* Operands of a step: the kernel's own, and one more that is its workspace, where it has one.
 * Their bytes (VP_OVERFLOW beyond 64 bits), names, accesses, and whether operand `out` may lie
 * where `in` lies. */
int         vp_step_n_operands(const vp_step *s);
int64_t     vp_step_operand_bytes(const vp_step *s, const int64_t *ints, int operand);
const char *vp_step_operand_name(const vp_step *s, int operand);
vp_access   vp_step_operand_access(const vp_step *s, int operand);
/* The same of all its operands, as many as it returns. */
int vp_step_accesses(const vp_step *s, vp_access accesses[VP_MAX_OPERANDS]);
/* vp_kernel_lacks() of its call, and VP_LACKS_LIBRARY. */
uint32_t vp_step_lacks(const vp_step *s);
bool     vp_step_may_share(const vp_step *s, int out, int in);

/* Workspace that a step needs on a device of this compute capability (0: the CPU); of an
 * attention whose window is its instance's, what every window can need. Bytes, VP_OVERFLOW
 * beyond 64 bits. */
int64_t vp_step_workspace_bytes(int compute_capability, const vp_step *step);

typedef enum vp_pass {
    VP_PASS_FORWARD,
    VP_PASS_BACKWARD,
    VP_PASS_NORM,
    VP_PASS_UPDATE,
    /* forward and backward of a last micro-step that has fewer samples than the others */
    VP_PASS_LAST_FORWARD,
    VP_PASS_LAST_BACKWARD,
    VP_N_PASSES
} vp_pass;

typedef enum vp_place {
    VP_PLACE_LOCAL, /* the program's own                                       */
    VP_PLACE_IN,    /* this instance's input, at offset 0                      */
    VP_PLACE_OUT    /* the next instance's input, at offset kept_bytes         */
} vp_place;

typedef struct vp_plan_buffer {
    const char  *name; /* like "attn.qkv" or "grad attn.qkv" */
    vp_component component;
    vp_place     place;
    bool         kept;         /* written in forward, read in backward */
    vp_memory    memory;       /* of an input or output: the device's  */
    int64_t      offset_bytes; /* from the instance's base in that memory */
    int64_t      bytes;
} vp_plan_buffer;

typedef struct vp_program {
    const char     *name; /* "block recompute=mlp" */
    int64_t         template_idx;
    int64_t         kept_bytes; /* what stays between forward and backward, aligned */
    vp_plan_buffer *buffers;
    int64_t         n_buffers;
    vp_step        *steps[VP_N_PASSES];
    int64_t         n_steps[VP_N_PASSES];
} vp_program;

typedef struct vp_plan_template {
    const char    *name; /* "embedding", "block", "head" */
    vp_plan_param *params;
    int64_t        n_params;
} vp_plan_template;

typedef struct vp_plan_instance {
    int64_t program_idx, index; /* index: what "{}" in names stands for          */
    /* place of its first block in the model's chain: random streams count from it, so that they
     * do not depend on how blocks are grouped */
    int64_t chain_idx;
    int64_t window; /* of attentions that take it from here; 0: none */
    int64_t base_bytes[VP_N_MEMORIES];
    /* where its parameters, gradients and states lie: each kind in a memory of its own */
    vp_memory region_memory[VP_N_REGIONS];
    int64_t   region_base_bytes[VP_N_REGIONS];
} vp_plan_instance;

/* A parameter used by more than its owner (a tied embedding). */
typedef struct vp_plan_shared {
    int64_t instance_idx, param_idx;
} vp_plan_shared;

#define VP_MAX_ROPE_SCALE 1e6 /* published ones are below 2 */

/* The angles of rotary position embeddings: at position p, pair i turns by p * inv_freq[i];
 * cosines and sines are multiplied by scale (YaRN's and LongRoPE's attention factor). */
typedef struct vp_rope_table {
    double *inv_freq;
    int64_t n; /* half the rotary dimensions; 0: no angles */
    double  scale;
} vp_rope_table;

/* A buffer that belongs to no block: batch, control, constants, working memory of the optimizer. */
typedef struct vp_plan_fixed {
    const char   *name;
    vp_component  component;
    bool          per_micro_step; /* one for each micro-step, one after the other */
    vp_memory     memory;         /* of working memory and staging; of all others the device's */
    int64_t       offset_bytes;
    int64_t       bytes;  /* of one */
    vp_rope_table angles; /* of a constant: fp32 cosines (seq, n), then sines (seq, n) */
} vp_plan_fixed;

/* Where labels that are classes stand among the tokens of a sample; the other tokens have none. */
typedef enum vp_label_place {
    VP_LABEL_AT_EACH,
    VP_LABEL_AT_FIRST,
    VP_LABEL_AT_LAST
} vp_label_place;

/* ---- the plan ---- */

typedef enum vp_proof_status {
    VP_PROOF_OPTIMAL,
    VP_PROOF_GAP,
    VP_PROOF_FALLBACK,
    VP_PROOF_INFEASIBLE,
    VP_N_PROOFS
} vp_proof_status;

const char *vp_proof_name(vp_proof_status s);

typedef struct vp_preset_result {
    const char *name;
    int64_t     peak_bytes;
    double      step_time_s;
    bool        fits;
} vp_preset_result;

/* A shape of variable-length training with its share of the steps. A plan has one program set a
 * bucket; today's plans have one bucket. */
typedef struct vp_bucket {
    int64_t seq;
    double  frequency;   /* of the optimizer steps; they sum to 1 */
    int64_t micro_batch; /* samples                               */
    int64_t n_micro_steps;
    /* samples of the last micro-step: micro_batch, or fewer; all of them are the global batch */
    int64_t           last_micro_batch;
    vp_program       *programs;
    int64_t           n_programs;
    vp_plan_instance *instances; /* in chain order */
    int64_t           n_instances;
    int64_t           peak_bytes;      /* largest offset + bytes of memory "device"    */
    int64_t           host_peak_bytes; /* of "host-pinned" and "host", summed          */
    int64_t           pageable_bytes;  /* and of these, "host"                         */
    int64_t           nvme_bytes;      /* and of "nvme"                                */
} vp_bucket;

typedef struct vp_plan {
    vp_arena *arena; /* owns everything below but the JSON values */

    const char *model_name, *family;
    json_t     *model_config; /* the config.json object, for a saved folder */
    int64_t     n_params, vocab_size;
    /* of masked language modelling; -1: none. Else the next token is the label, */
    int64_t        mask_token;
    int64_t        n_classes;     /* or one of these classes is; 0: a token */
    vp_label_place label_place;   /* of classes */
    int64_t        n_token_types; /* rows of the token-type table; 0: the model has none */
    vp_recipe      recipe;

    const char *device;
    /* that the workspaces are made for, 90 for 9.0; 0: the CPU backend */
    int64_t compute_capability;
    bool    updates_in_backward;
    int64_t budget_bytes;         /* of device_bytes */
    int64_t global_batch;         /* samples         */
    json_t *decisions, *settings; /* objects of plain values, for people and scripts */
    json_t *assumptions;          /* array of sentences */

    vp_plan_template *templates;
    int64_t           n_templates;
    vp_plan_shared   *shared;
    int64_t           n_shared;
    vp_plan_fixed    *fixed;
    int64_t           n_fixed;
    /* in fixed */
    int64_t tokens_idx, labels_idx, control_idx;
    /* token types and samples' lengths; -1: not used */
    int64_t    types_idx, lengths_idx;
    vp_bucket *buckets;
    int64_t    n_buckets;

    int64_t peak_bytes;      /* of memory "device": the largest bucket's  */
    int64_t host_peak_bytes; /* of the host's memories, likewise; 0: none is used */
    /* on the device, outside the arena, with what the arena is rounded up by */
    int64_t outside_bytes;
    /* measured | cited | derived | assumed; NULL: nothing lies outside, as on the CPU */
    const char *outside_class;
    /* who says so: where measured by a profile, its backend; "" or NULL: nobody */
    const char *outside_of;
    int64_t     process_predicted_bytes; /* cpu; -1: not predicted                    */
    double      step_time_s;
    const char *time_class; /* measured | assumed */
    /* library and device that the steps' algorithms are for; NULL: no step has one */
    const char *algorithms_of;

    vp_proof_status proof;
    double          proof_gap, bound_s; /* negative: none */
    /* the proof is about a faster plan, which this one comes near with less memory: its step;
     * negative: it is about this plan */
    double fastest_s;
    /* read from a file that is as it was written (plan/digest.h) */
    bool              is_signed;
    int64_t           least_budget_bytes; /* -1: not known  */
    vp_preset_result *presets;
    int64_t           n_presets;
} vp_plan;

/* A zeroed plan with its arena; NULL: out of memory. vp_plan_free() takes NULL. */
vp_plan *vp_plan_new(void);
void     vp_plan_free(vp_plan *plan);

/* Where a memory ends, in the largest bucket. */
int64_t vp_plan_memory_bytes(const vp_plan *plan, vp_memory memory);

/* Whether anything lies in another memory than the device's. */
bool vp_plan_offloads(const vp_plan *plan);

/* Tokens of one optimizer step. */
int64_t vp_plan_tokens(const vp_plan *plan);

/* Labels are below this. */
int64_t vp_plan_n_labels(const vp_plan *plan);

/* Steps of each phase: the first micro-step, the middle ones (repeated), the last, the
 * optimizer. */
typedef struct vp_phases {
    int64_t first, middle, last; /* repeat counts; last is 0 when there is only one micro-step */
} vp_phases;
vp_phases vp_bucket_phases(const vp_bucket *bucket);

/* Whether the last micro-step has fewer samples than the others, and steps of its own. */
bool vp_bucket_ends_smaller(const vp_bucket *bucket);

/* Bytes of a fixed buffer in one micro-step, and in all of them: a smaller last one has fewer
 * samples in each batch input. VP_OVERFLOW beyond 64 bits. */
int64_t vp_plan_fixed_bytes(const vp_bucket *bucket, const vp_plan_fixed *f, bool last);
int64_t vp_plan_fixed_total_bytes(const vp_bucket *bucket, const vp_plan_fixed *f);

/* A parameter's full name in the checkpoint. Lives in buf, which it returns. */
const char *vp_param_full_name(const vp_param *p, int64_t index, char *buf, size_t buf_size);

/* ---- its file: plan/plan_read.c ---- */

enum { VP_PLAN_SCHEMA = 1 };

/* A plan file is at most that long: the largest models, streamed, are half of it. */
#define VP_PLAN_MAX_BYTES ((int64_t)16 << 20)

/* A new JSON object, NULL when memory ran out. */
json_t *vp_plan_to_json(const vp_plan *plan);

/* Read, bound-check and vp_plan_check() a plan; no unchecked plan leaves this function. */
vp_status vp_plan_read(const char *path, vp_plan **out, vp_err *err);
vp_status vp_plan_from_json(const vp_json_node *root, vp_plan **out, vp_err *err);

/* The same of a file that holds a plan or an array of up to max plans; plans (max) are the
 * caller's. */
vp_status vp_plan_read_all(const char *path, vp_plan **plans, int64_t max, int64_t *n, vp_err *err);
vp_status vp_plan_write(const vp_plan *plan, const char *path, bool overwrite, vp_err *err);

/* ---- its checker: plan/plan_check.c ---- */

/* Slow, obvious, sharing no code with the planner: every offset inside the arena, every operand
 * as large as its kernel's shape rule asks, no two living buffers overlapping, every read
 * written before, sizes and peaks as stated, micro-batch times micro-steps equal to the global
 * batch. VP_ERR_INPUT names the first thing that is wrong; file is for the message. */
vp_status vp_plan_check(const vp_plan *plan, const char *file, vp_err *err);

#endif
