/* planner/request.h: what the planner is asked for, and why some requests cannot be planned.
 *     vp_refusal refusal = vp_request_refusal(&request);
 *     if (refusal.reason != VP_REFUSED_NOT) ... say so in the words of the front end ...
 *
 * The planner knows settings and numbers only. How a setting is spelled, as an option or as a key
 * of some file, is the front end's: cli/words.c. */
#ifndef VP_PLANNER_REQUEST_H
#define VP_PLANNER_REQUEST_H

#include "base/units.h"
#include "planner/assemble.h"

#define VP_RECOMPUTE_ANY VP_N_RECOMPUTES
#define VP_ATTENTION_ANY VP_N_ATTENTIONS
#define VP_OFFLOAD_ANY   VP_N_OFFLOADS
#define VP_CHUNK_ANY     (-1)
#define VP_CHUNK_CHUNKED (-2) /* some chunk: anything but all at once */

/* The loss of a micro-batch in at most so many chunks. Each is a few steps of its own in the
 * plan, about 3 KB of its file, which may have VP_PLAN_MAX_BYTES; and where there are 512 of them, smaller
 * ones would save less than 1/512 of what the whole loss takes. */
enum { VP_MAX_CHUNKS = 512 };

/* When parameters are updated: in backward wherever a scenario may, or nowhere, or in every scenario. */
typedef enum vp_updates { VP_UPDATES_ANY, VP_UPDATES_END, VP_UPDATES_BACKWARD } vp_updates;

typedef struct vp_plan_request {
    const vp_model   *model;
    const vp_device  *device;
    const vp_profile *profile; /* or NULL */
    /* planner/outline_store.h: of this model, kept for other requests about it; NULL: none are */
    struct vp_outline_store *outlines;
    vp_recipe                recipe;
    int64_t                  seq, global_batch;
    int64_t                  budget_bytes; /* of device_bytes */
    /* of what is usable, kept free: already taken from budget_bytes, and of any other budget or card */
    vp_amount reserve;
    int64_t   host_bytes;   /* of host memory; 0: nothing is offloaded */
    int64_t   pinned_bytes; /* of it, what may be pinned; 0: all */
    /* of a local drive, for master weights and states that the host has no room for: they lie there where
     * on_nvme, and nowhere else; the drive's seconds are in no plan's */
    int64_t nvme_bytes;
    bool    on_nvme;
    double  gap;      /* asked of the proof, relative to step time */
    bool    no_proof; /* do not run vplan-solve                    */
    bool    is_made;  /* the fastest plan will be made: it may be meanwhile */
    /* what a plan may be slower than the fastest, relative, where that saves memory */
    double within;
    /* and what a scenario's best may be slower to be among the answer's candidates: for whoever wants
     * more of them than the fastest */
    double listed;
    /* pins */
    int64_t      micro_batch; /* 0: free */
    vp_recompute recompute;   /* VP_RECOMPUTE_ANY: free */
    int64_t n_segments; /* of one length; 0: as recompute says, which is full beside a number */
    int64_t loss_chunk; /* tokens; 0: all at once; VP_CHUNK_ANY, VP_CHUNK_CHUNKED */
    vp_attention_kind attention; /* VP_ATTENTION_ANY: free */
    /* VP_OFFLOAD_ANY: free where there are host_bytes; a kind: all there is of it */
    vp_offload_kind offload;
    vp_updates      updates;
    /* free: another recipe than the one asked for may come out, of those that vp_request_allows() */
    bool any_precision, any_gradients, any_optimizer;
} vp_plan_request;

/* Whether a plan of this request may train in this precision with such gradients and this
 * optimizer. What was asked for it may. Where one of them is free, also what converges alike: the
 * same rule with its states kept otherwise; weights that are updated in fp32, in a number format
 * that the device has; gradients in any format that stands beside the precision. */
bool vp_request_allows(const vp_plan_request *request, vp_precision precision,
                       vp_gradients gradients, vp_optimizer optimizer);

/* All of them, what was asked for first; returns how many. */
enum { VP_MAX_RECIPES = VP_N_PRECISIONS * VP_N_GRADIENTS * VP_N_OPTIMIZERS };
int vp_request_recipes(const vp_plan_request *request, vp_recipe recipes[VP_MAX_RECIPES]);

/* The micro-batches that a request may take, ascending: every divisor of the global batch (where
 * there are more than 64, from one to the next 1/8 more at least), and where it leaves a smaller last
 * micro-step, those that make up to 16 micro-steps, and those near each number of four binary digits
 * and zeros, so that two neighbours are within 1/8. Of those that make as many micro-steps the smallest stands for all: it needs the fewest bytes, and by the roofline, where
 * a call's seconds are convex in its samples, no other is faster. Only the one pinned, where one is.
 * Where recipes or attentions are free, or host memory is there, each stands for many scenarios: if the number of
 * micro-batches times recipes, times attentions, times 4 with host memory is more than 720, they are 1/4, 1/2,
 * twice or four times apart instead. *many: they were more than 64.
 * They live in arena; NULL: out of memory. */
int64_t *vp_request_micro_batches(const vp_plan_request *request, vp_arena *arena, int64_t *n,
                                  bool *many);

/* Those that are left out by that next to one that is not. */
int64_t *vp_request_micro_batches_near(const vp_plan_request *request, vp_arena *arena,
                                       int64_t micro_batch, int64_t *n);

/* Longest segment that integer programs hold: 6 blocks, or the square root of their number, where what is
 * kept between segments and what is made again in one balance; a longer one needs more. Shorter than
 * the chain. */
int64_t vp_longest_segment(const vp_model *model);

/* The length of the segments that are pinned; 0: none are. */
int64_t vp_request_segment(const vp_plan_request *request);

/* Whether blocks run as the pins say. */
bool vp_request_allows_runs(const vp_plan_request *request, const vp_scenario *s);

/* Whether micro-batch, recompute kind or loss chunk is given. */
bool vp_request_is_pinned(const vp_plan_request *request);

/* Whether blocks may move activations to host memory, and whether some must. */
bool vp_request_moves(const vp_plan_request *request);
bool vp_request_must_move(const vp_plan_request *request);

/* Whether the host may make updates: of optimizers whose update treats each element by itself, where there
 * is something that then need not come to the device. */
bool vp_request_may_step(const vp_plan_request *request);

/* The most host memory that plans may take of whose host memory so much is not pinned. */
int64_t vp_request_host_room(const vp_plan_request *request, int64_t pageable_bytes);

/* What else a request may offload, from nothing to the most: VP_OFFLOAD_OPTIMIZER in eighths of the
 * chain, then VP_OFFLOAD_PARAMS where the blocks have few enough parameters; each followed by the same
 * with updates made by the host, where they may be: on a card only where they are pinned, since nobody has
 * measured what its host takes. Returns how many. */
enum { VP_MAX_OFFLOAD_LEVELS = 19 };
int vp_request_offloads(const vp_plan_request *request, vp_offload *levels);

typedef enum vp_refusal_reason {
    VP_REFUSED_NOT,
    VP_REFUSED_SEQ,         /* longer than the model's positions                        */
    VP_REFUSED_MICRO_BATCH, /* does not divide the global batch                         */
    VP_REFUSED_TOKENS,      /* global batch times sequence: more than 64 bits count     */
    VP_REFUSED_SEGMENTS,    /* not so many of one length, from 2 to vp_longest_segment() */
    VP_REFUSED_LOSS_CHUNK   /* too small: the loss of a micro-batch in too many chunks  */
} vp_refusal_reason;

typedef struct vp_refusal {
    vp_refusal_reason reason;
    int64_t           asked; /* the setting's value */
    /* what it offends: the positions; the global batch; of a chunk the least that is taken; the blocks */
    int64_t limit;
    /* of a chunk: what it cuts into how many; at most VP_MAX_CHUNKS are taken */
    int64_t micro_batch, seq, n_chunks;
    int64_t longest; /* segment there may be */
} vp_refusal;

/* Front ends ask before they plan: vp_planner_run() takes only requests that are not refused. */
vp_refusal vp_request_refusal(const vp_plan_request *request);

#endif
