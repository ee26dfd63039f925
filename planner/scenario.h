/* planner/scenario.h: one configuration of a training step: what is asked for and what is chosen.
 *     vp_scenario s = {.recipe = vp_recipe_default(), .seq = 1024, .global_batch = 32,
 *                      .micro_batch = 4};
 *     vp_scenario_set_all(&s, model, vp_recompute_set(model, VP_RECOMPUTE_MLP)); */
#ifndef VP_PLANNER_SCENARIO_H
#define VP_PLANNER_SCENARIO_H

#include "models/model.h"
#include "planner/lowering/semantics.h"

typedef enum vp_recompute {
    VP_RECOMPUTE_NONE,
    VP_RECOMPUTE_ATTENTION, /* norm, QKV and attention of every block         */
    VP_RECOMPUTE_MLP,       /* norm, up-projection and activation             */
    VP_RECOMPUTE_FULL,      /* a block keeps only its input                   */
    VP_N_RECOMPUTES
} vp_recompute;

const char  *vp_recompute_name(vp_recompute r);
vp_recompute vp_recompute_by_name(const char *name); /* VP_N_RECOMPUTES if none */

/* The template that repeats between the first and the last instance; -1: none. */
int vp_block_template(const vp_graph *graph);

/* The set of a block's ops that a kind recomputes: bit i for op i of the block template. */
uint64_t vp_recompute_set(const vp_model *model, vp_recompute kind);

/* The next n_blocks blocks of the chain, run one way: each by itself (segment 1), or in segments
 * of several that keep the first block's input only and are recomputed as a whole (segment m
 * divides n_blocks; recompute is then all ops). */
typedef struct vp_block_run {
    uint64_t recompute;
    int64_t  n_blocks;
    int64_t  segment;
    uint64_t offload; /* bit i: what is kept of the output of op i is kept in host memory */
} vp_block_run;

/* Longest segment that a model's blocks may form: beyond, its steps would be the most of a plan's file. */
enum { VP_MAX_SEGMENT = 64 };
int64_t vp_max_segment(const vp_model *model);

enum { VP_MAX_RUNS = 128 };

/* flash recomputes the attention matrix in backward, math keeps it. */
typedef enum vp_attention_kind {
    VP_ATTENTION_FLASH,
    VP_ATTENTION_MATH,
    VP_N_ATTENTIONS
} vp_attention_kind;

const char       *vp_attention_name(vp_attention_kind a);
vp_attention_kind vp_attention_by_name(const char *name); /* VP_N_ATTENTIONS if none */

typedef enum vp_offload_kind {
    VP_OFFLOAD_NONE,
    VP_OFFLOAD_OPTIMIZER, /* master weights and optimizer states     */
    VP_OFFLOAD_HOST_STEP, /* these, and the host makes their updates */
    VP_OFFLOAD_PARAMS,    /* and the blocks' parameters and gradients */
    VP_OFFLOAD_PARAMS_HOST_STEP,
    /* what blocks keep for their backward, alone or with one of these */
    VP_OFFLOAD_ACTIVATIONS,
    VP_OFFLOAD_OPTIMIZER_ACTIVATIONS,
    VP_OFFLOAD_HOST_STEP_ACTIVATIONS,
    VP_OFFLOAD_PARAMS_ACTIVATIONS,
    VP_OFFLOAD_PARAMS_HOST_STEP_ACTIVATIONS,
    VP_N_OFFLOADS
} vp_offload_kind;

/* "optimizer+activations"; by_name takes the words in any order, VP_N_OFFLOADS if there is none such.
 * Both "params" and "host-step" hold states; "optimizer" beside them says no more. */
const char     *vp_offload_name(vp_offload_kind kind);
vp_offload_kind vp_offload_by_name(const char *name);

/* Whether a kind moves activations, and what it is without them. */
bool            vp_offload_moves(vp_offload_kind kind);
vp_offload_kind vp_offload_held(vp_offload_kind kind);

/* Whether a kind holds the blocks' parameters, and whether the host makes updates. */
bool vp_offload_streams(vp_offload_kind kind);
bool vp_offload_steps(vp_offload_kind kind);

/* What lies in the host's memory instead of the device's. */
typedef struct vp_offload {
    /* the master weights and optimizer states of the first so many instances of the chain, the
     * embedding counted as one and the head as the last; each comes to the device for its update,
     * through windows that lie where the activations were */
    int64_t states;
    /* these states never come to the device: the gradient of a parameter goes to host memory, the host
     * makes the update there, and the parameter comes back */
    bool host_step;
    /* they lie on a local drive instead, which copies read and write */
    bool nvme;
    /* the parameters and gradients of every block: a block's parameters come to one of three slots on
     * the device while the block before it runs, its gradients go back while the next one does */
    bool blocks;
    /* bit i: the output of op i of a block may be kept in host memory, and has a place in each of
     * n_slots slots on the device, 1 or 2, through which it goes there and comes back */
    uint64_t activations;
    int      n_slots;
} vp_offload;

/* Parameters of a block that may be streamed, activations that may have places, slots of these. Numbers
 * of copies, of VP_MAX_COPIES: those of an update's windows, of each parameter 5, of a frozen one 1, of each
 * place 1. */
enum { VP_MAX_STREAMED = 22, VP_MAX_MOVED = 24, VP_MAX_ACTIVATION_SLOTS = 2 };

/* Whether the copies of a block's parameters and gradients have numbers enough. */
bool vp_may_stream(const vp_graph *graph);

vp_offload_kind vp_offload_kind_of(const vp_offload *offload);

/* One configuration: what is asked for and what is chosen. */
typedef struct vp_scenario {
    vp_recipe recipe;
    int64_t   seq, global_batch;
    /* samples of a micro-step; the last one has what is left, micro_batch or fewer */
    int64_t           micro_batch;
    int64_t           loss_chunk; /* tokens, a multiple of 256; 0: all at once */
    vp_attention_kind attention;
    vp_offload        offload;
    bool              updates_at_end; /* all of them behind the last backward, whatever may be */
    int               n_runs;
    vp_block_run runs[VP_MAX_RUNS]; /* together all blocks of the model; last, as most have few */
} vp_scenario;

/* Micro-steps of a scenario, the smaller last one included; those of micro_batch samples; and the
 * samples of the smaller last one, 0: all are alike. */
int64_t vp_scenario_n_micro(const vp_scenario *s);
int64_t vp_scenario_n_full(const vp_scenario *s);
int64_t vp_scenario_last_batch(const vp_scenario *s);

/* All blocks one way. */
void vp_scenario_set_all(vp_scenario *s, const vp_model *model, uint64_t recompute);

/* All blocks in n segments, the longer ones first where n does not divide their number; n of them is
 * every block by itself, recomputed in full. False: not from 2 to their number, or a segment would
 * be longer than vp_max_segment(). */
bool vp_scenario_set_segments(vp_scenario *s, const vp_model *model, int64_t n);

/* The kind all blocks are of, or "mixed". */
const char *vp_scenario_recompute_name(const vp_scenario *s, const vp_model *model);

/* Whether each instance's updates are made in backward, when its gradients are complete: where a recipe lets
 * them, and there is one micro-step, or the host makes them. It costs nothing, and moves no bit. And whether
 * all instances' gradients then lie in one place: not where they go to host memory. */
bool vp_scenario_updates_in_backward(const vp_scenario *s);
bool vp_scenario_consumes_gradients(const vp_scenario *s);

/* The semantics vplan runs a recipe's precision and gradients with, and an attention. */
const vp_semantics *vp_semantics_of(const vp_recipe *recipe, vp_attention_kind attention);

#endif
