/* planner/planner_internal.h: a scenario on its way to a plan. Each file works out its part:
 * assemble.c the programs and their seconds, optimizer_phase.c what follows the last backward,
 * layout.c every offset, plan_of.c the plan itself. */
#ifndef VP_PLANNER_INTERNAL_H
#define VP_PLANNER_INTERNAL_H

#include "planner/assemble.h"
#include "planner/lowered_store.h"
#include "planner/lowering/lower.h"

/* The first fixed buffers; token types, lengths, angles, scratch and workspace follow where
 * there are any. */
/* Windows through which offloaded parts of a parameter pass: master weights and two states, each in
 * its own; or where the host makes the updates, in host memory, the parameter and its gradient. */
enum { VP_N_WINDOWS = 3, VP_N_WINDOW_PARTS = 3 };

/* Slots for the parameters and gradients of streamed blocks: one is used, one is filled, and the
 * gradients of one go back. */
enum { VP_N_SLOTS = 3 };

enum {
    VP_FIXED_CONTROL,
    VP_FIXED_TOKENS,
    VP_FIXED_LABELS,
    VP_MAX_FIXED = 9 + VP_MAX_ROPES + VP_N_WINDOWS * VP_N_WINDOW_PARTS +
                   2 * VP_N_SLOTS * VP_MAX_STREAMED + VP_MAX_ACTIVATION_SLOTS * VP_MAX_MOVED
};

/* The first number of a copy of each kind. */
enum {
    VP_FIRST_STREAM_COPY     = 2 * VP_N_WINDOWS * VP_N_WINDOW_PARTS,
    VP_FIRST_ACTIVATION_COPY = VP_FIRST_STREAM_COPY + 5 * VP_MAX_STREAMED
};

/* What a block's program has to know of another one, the last before it that works on its slot. */
typedef struct vp_slot_place {
    int      slot;
    bool     has_before;
    uint64_t recompute_before, offload_before;
    /* no block behind it works on its slot: what would be offloaded stays there */
    bool stays;
} vp_slot_place;

typedef struct vp_assembly {
    const vp_model          *model;
    vp_graph                 graph; /* the model's, blocks grouped as the scenario says */
    const vp_scenario       *scenario;
    vp_cost                 *cost;
    vp_arena                *arena;
    vp_lowered              *lowered;      /* the distinct programs                  */
    int                     *template_of;  /* each one's template                    */
    uint64_t                *recompute_of; /* and what it recomputes                 */
    uint64_t                *offload_of;   /* and whose outputs it keeps in host memory */
    bool                    *host_states;  /* whether it updates what lies in host memory */
    bool                    *unlike; /* whether its smaller last micro-step has other buffers */
    struct vp_program_price *price;  /* pricing.c's, of each program; NULL: not priced yet */
    /* of each program what its norm and updates are known to take, which then have no steps here; NULL:
     * they have */
    const vp_priced_phase **phase_of;
    bool                    needs_steps; /* they must have */
    const vp_priced_head   *head;        /* what the last program takes; NULL: what its steps say */
    /* where it takes a simulation to tell a step's seconds, they are not wanted */
    bool             untimed;
    vp_stream_place *stream_place;
    vp_slot_place   *slot_place;
    int64_t          n_programs;
    int64_t         *program_of; /* per instance                           */
    /* per template: of each region, parameters aligned */
    int64_t (*held_bytes)[VP_N_REGIONS];
    vp_plan_fixed fixed[VP_MAX_FIXED];
    int           n_fixed, types, lengths, angles, scratch, workspace; /* indices; -1: none */
    int           windows[VP_N_WINDOWS][VP_N_WINDOW_PARTS];            /* likewise         */
    int           host_control; /* the control block where the host makes updates; -1: none */
    int           slots;        /* the first fixed buffer of slot 0; -1: none */
    /* the first place of slot 0 for activations, -1: none; places of a slot; and each op's, -1: none */
    int     activation_slots, n_moved, place_of_op[64];
    int64_t host_stack_base; /* of what blocks keep in host memory */
    /* per program: what its gradients' norm reaches from the base, 0 without workspaces */
    int64_t   *norm_height;
    int64_t    region_base[VP_N_MEMORIES][VP_N_REGIONS], stack_base;
    vp_figures figures;
    bool       has_algorithm; /* some step has one */
} vp_assembly;

/* layout.c: which fixed buffers there are, without offsets: programs name them by index. */
vp_status vp_layout_list_fixed(vp_assembly *a, vp_err *err);

/* layout.c: the windows of what lies in host memory, once programs are lowered. */
vp_status vp_layout_list_windows(vp_assembly *a, vp_err *err);

/* layout.c: every base and offset, and the figures in bytes. VP_ERR_INPUT: beyond 64 bits. */
vp_status vp_layout_place(vp_assembly *a, vp_err *err);

/* optimizer_phase.c: the norm, clipping and update steps of each program, with their workspaces. */
vp_status vp_optimizer_phase_add(vp_assembly *a, vp_err *err);

/* optimizer_phase.c: bytes that the update of a parameter needs; 0: none. */
int64_t vp_optimizer_phase_workspace(const vp_assembly *a, const vp_param *p, int64_t idx);

/* optimizer_phase.c: the update of a parameter, all of it on the device. */
vp_step vp_optimizer_phase_update(const vp_assembly *a, const vp_param *p, int64_t idx);

/* Where what is held of an instance's parameters lies. */
vp_memory vp_region_memory(const vp_scenario *s, int64_t n_instances, int64_t instance_idx,
                           vp_region region);

/* layout.c: whether what an instance has in a region has a place of its own. Gradients that are used up in
 * its backward share one with all other instances', but for those that another instance adds to. */
bool vp_layout_stays(const vp_assembly *a, int64_t instance_idx, vp_region region);

/* layout.c: sequence, micro-batch and micro-steps, and nothing else of its bucket. */
vp_bucket vp_layout_bucket(const vp_scenario *s);

/* last_step.c: the steps of a last micro-step of fewer samples, lowered as *last, become passes of
 * *to, the program of the others. *alike false: it has buffers that the others have not. */
vp_status vp_last_step_add(vp_arena *arena, const vp_lowered *last, vp_lowered *to, bool *alike,
                           vp_err *err);

/* offload.c: the bytes that windows need. */
void vp_offload_window_bytes(const vp_assembly *a, int64_t bytes[VP_N_WINDOWS][VP_N_WINDOW_PARTS]);

/* offload.c: in backward, behind the head's: what the host has of the control block. */
vp_status vp_offload_bring_control(vp_assembly *a, vp_err *err);

/* offload.c: the updates of a program whose master weights and states lie in host memory. */
vp_status vp_offload_updates(vp_assembly *a, int64_t program_idx, vp_err *err);

/* stream.c: the slots of streamed blocks. */
vp_status vp_stream_list_slots(vp_assembly *a, vp_err *err);

/* stream.c: where an instance of the chain stands. */
vp_stream_place vp_stream_place_of(const vp_scenario *s, int64_t n_instances, int64_t instance_idx);

/* stream.c: every program from one on with its copies, in the passes up to one, once all its steps are there. */
vp_status vp_stream_add_copies(vp_assembly *a, int64_t first_program, vp_pass last_pass,
                               vp_err *err);

/* activations.c: where instance i of the chain stands; s's run says what it and others offload. */
vp_slot_place vp_slot_place_of(const vp_scenario *s, int64_t n_instances, int64_t instance_idx);

/* activations.c: the run of a scenario that block i of the chain, 1 the first, is in. */
const vp_block_run *vp_run_of(const vp_scenario *s, int64_t instance_idx);

/* activations.c: the slots. */
vp_status vp_activations_list_slots(vp_assembly *a, vp_err *err);

/* activations.c: every program's steps work on slots, with the copies between these and host memory. */
vp_status vp_activations_move(vp_assembly *a, vp_err *err);

/* layout.c: bytes of what a program keeps in host memory. */
int64_t vp_layout_host_bytes(const vp_program *p);

/* layout.c: a fixed buffer more; its index. */
int vp_layout_add_fixed(vp_assembly *a, const char *name, vp_component component, int64_t bytes);

/* pricing.c: seconds of those steps of a program that have none yet. */
void vp_price_steps(const vp_assembly *a, vp_program *p);

/* pricing.c: seconds of every step, and the figures in nanoseconds. Where programs were priced already, they
 * are the same but for the last one's forward and backward. VP_ERR_INPUT: beyond 64 bits. */
vp_status vp_price(vp_assembly *a, vp_err *err);

/* pricing.c: nanoseconds of the steps of a head's passes, which have seconds; a chunk that stands for others as often. */
void vp_price_head(const vp_lowered *l, vp_priced_head *out);

/* pricing.c: nanoseconds of a priced program's norm and updates. */
void vp_price_of_phase(const vp_assembly *a, int64_t program_idx, int64_t ns[VP_N_PHASES]);

/* plan_of.c: everything worked out, written into a plan whose arena holds the programs. */
vp_status vp_plan_of_assembly(vp_assembly *a, vp_plan *plan, vp_err *err);

#endif
