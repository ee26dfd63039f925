/* planner/stream.c: blocks whose parameters and gradients lie in the host's memory.
 *
 * Their kernels work on slots, block i on slot i mod 3. While a block runs, the parameters of the next
 * one in the pass's order come into its slot; in later micro-steps the sums of its gradients so far
 * come with them in backward. After its backward a block's gradients go back while the block before
 * it runs, and must be there before their slot is filled again. What is at work with three slots:
 *
 *     backward of     block i + 1        block i            block i - 1
 *     slot i - 1      parameters in ----------------------> used
 *     slot i          used by i + 3 ...  used               gradients out ------>
 *     slot i + 1      used               gradients out ---> filled for i - 2
 *
 * The embedding fetches for the first block, the head for the last. The norm and the updates fetch
 * the gradients again, the updates the parameters too, and bring these back; updates that the host makes
 * fetch nothing. Frozen parameters have no gradients, and the updates leave them where they are. */
#include "base/checked.h"
#include "planner/planner_internal.h"

#include <assert.h>
#include <string.h>

enum { PARAM, GRAD, N_KINDS }; /* of what a slot holds */

static const vp_template *block_of(const vp_assembly *a)
{
    return &a->graph.templates[a->graph.instances[1].template_idx];
}

/* Those with gradients among the first n parameters: a frozen one has none. */
static int64_t n_trained(const vp_template *t, int64_t n)
{
    int64_t trained = 0;

    for (int64_t k = 0; k < n; k++)
        trained += !t->params[k].frozen;
    return trained;
}

/* Of the i-th instance, a block: blocks are the instances from 1 on. */
static int slot_of(int64_t i)
{
    return (int)((i - 1) % VP_N_SLOTS);
}

vp_stream_place vp_stream_place_of(const vp_scenario *s, int64_t n_instances, int64_t i)
{
    bool block = i > 0 && i < n_instances - 1;

    if (!s->offload.blocks || !block)
        return (vp_stream_place){.is = false};
    return (vp_stream_place){.is          = true,
                             .slot        = slot_of(i),
                             .first       = i == 1,
                             .last        = i == n_instances - 2,
                             .second_last = i == n_instances - 3};
}

/* A chain of fewer blocks has no use for more. */
static int n_slots(const vp_assembly *a)
{
    return (int)vp_min_i64(VP_N_SLOTS, a->graph.n_instances - 2);
}

vp_status vp_stream_list_slots(vp_assembly *a, vp_err *err)
{
    static const char *const kinds[N_KINDS] = {"parameters", "gradients"};
    vp_status                st             = VP_OK;

    a->slots = -1;
    if (!a->scenario->offload.blocks)
        return VP_OK;
    const vp_template *t = block_of(a);
    assert(vp_may_stream(&a->graph));
    for (int slot = 0; slot < n_slots(a); slot++)
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int64_t k = 0; k < t->n_params; k++) {
                if (kind == GRAD && t->params[k].frozen)
                    continue;
                vp_region   region = kind == PARAM ? VP_REGION_PARAM : VP_REGION_GRAD;
                const char *name =
                    vp_arena_printf(a->arena, "slot %d %s %d", slot + 1, kinds[kind], (int)k + 1);
                VP_TRY_ALLOC(err, name);
                int idx = vp_layout_add_fixed(
                    a, name, VP_COMP_STAGING,
                    vp_plan_param_bytes(&a->scenario->recipe, &t->params[k], region));
                a->slots = a->slots < 0 ? idx : a->slots;
            }
out:
    return st;
}

static vp_arg in_slot(const vp_assembly *a, int slot, int kind, int64_t param_idx)
{
    const vp_template *t      = block_of(a);
    int64_t            n_slot = t->n_params + n_trained(t, t->n_params);

    assert(slot >= 0 && slot < n_slots(a) && param_idx < t->n_params);
    assert(kind == PARAM || !t->params[param_idx].frozen);
    return (vp_arg){.space = VP_SPACE_FIXED,
                    .idx   = a->slots + slot * n_slot +
                           (kind == PARAM ? param_idx : t->n_params + n_trained(t, param_idx))};
}

/* ---- copies ---- */

/* What a copy is for; those of gradients that go back have numbers for each slot. */
typedef enum traffic { PARAMS_IN, GRADS_IN, BACK } traffic;

/* Copies are started and waited for in groups of all parameters: so many in a pass. */
enum { MOST_GROUPS = 6 };

typedef struct list {
    const vp_assembly *a;
    vp_pass            pass;
    vp_step           *steps;
    int64_t            n, cap;
} list;

static void add(list *l, const vp_step *s)
{
    assert(l->n < l->cap);
    l->steps[l->n++] = *s;
}

static int64_t number(const vp_assembly *a, traffic what, int slot, int64_t param_idx)
{
    const vp_template *t       = block_of(a);
    int64_t            trained = n_trained(t, t->n_params), n = VP_FIRST_STREAM_COPY;

    n += what == PARAMS_IN  ? param_idx
         : what == GRADS_IN ? t->n_params + n_trained(t, param_idx)
                            : t->n_params + (1 + slot) * trained + n_trained(t, param_idx);
    assert(n < VP_FIRST_ACTIVATION_COPY);
    return n;
}

/* Whether a parameter is among what is moved: a frozen one comes in for the kernels of a micro-step only. */
static bool is_moved(const list *l, traffic what, int64_t k)
{
    return !block_of(l->a)->params[k].frozen || (what == PARAMS_IN && l->pass <= VP_PASS_BACKWARD);
}

/* Each of a block's parameters or gradients into a slot, or back from it. ahead: whose they are. */
static void start(list *l, traffic what, int kind, int slot, int ahead, bool later_only)
{
    const vp_template *t = block_of(l->a);

    for (int64_t k = 0; k < t->n_params; k++) {
        if (!is_moved(l, what, k))
            continue;
        vp_arg home = {
            .space = kind == PARAM ? VP_SPACE_PARAM : VP_SPACE_GRAD, .idx = k, .ahead = ahead};
        vp_arg  here            = in_slot(l->a, slot, kind, k);
        vp_step s               = {.kernel     = VP_K_COPY_START,
                                   .dtype      = VP_DTYPE_F32,
                                   .name       = t->params[k].name,
                                   .later_only = later_only,
                                   .stream     = what == BACK ? VP_STREAM_TO_HOST : VP_STREAM_TO_DEVICE};
        s.args[VP_COPY_START_X] = what == BACK ? here : home;
        s.args[VP_COPY_START_Y] = what == BACK ? home : here;
        s.copy_start.count      = l->a->fixed[here.idx].bytes;
        s.copy_start.copy       = number(l->a, what, slot, k);
        add(l, &s);
    }
}

static void wait(list *l, traffic what, int slot, bool later_only)
{
    const vp_template *t = block_of(l->a);

    for (int64_t k = 0; k < t->n_params; k++) {
        if (!is_moved(l, what, k))
            continue;
        vp_step s        = {.kernel     = VP_K_COPY_DONE,
                            .dtype      = VP_DTYPE_F32,
                            .name       = t->params[k].name,
                            .later_only = later_only};
        s.copy_done.copy = number(l->a, what, slot, k);
        add(l, &s);
    }
}

/* ---- passes ---- */

/* The pass's own steps; a streamed block's on its slot. */
static void add_steps(list *l, const vp_program *p, vp_pass pass, const vp_stream_place *place)
{
    for (int64_t i = 0; i < p->n_steps[pass]; i++) {
        vp_step s = p->steps[pass][i];
        for (int k = 0; place->is && k < vp_step_n_operands(&s); k++) {
            vp_arg *arg  = &s.args[k];
            int     kind = arg->space == VP_SPACE_PARAM  ? PARAM
                           : arg->space == VP_SPACE_GRAD ? GRAD
                                                         : -1;
            if (kind >= 0) {
                int64_t offset_bytes = arg->offset_bytes;
                *arg                 = in_slot(l->a, place->slot, kind, arg->idx);
                arg->offset_bytes    = offset_bytes;
            }
        }
        add(l, &s);
    }
}

static int slot_after(int slot, int by)
{
    return (slot + by + VP_N_SLOTS) % VP_N_SLOTS;
}

static void block_pass(list *l, const vp_program *p, vp_pass pass, const vp_stream_place *x)
{
    int next = slot_after(x->slot, 1), before = slot_after(x->slot, -1);

    switch (pass) {
    case VP_PASS_FORWARD:
        wait(l, PARAMS_IN, x->slot, false);
        if (!x->last)
            start(l, PARAMS_IN, PARAM, next, 1, false);
        add_steps(l, p, pass, x);
        break;
    case VP_PASS_BACKWARD:
        wait(l, PARAMS_IN, x->slot, false);
        wait(l, GRADS_IN, x->slot, true);
        if (!x->first)
            start(l, PARAMS_IN, PARAM, before, -1, false);
        if (!x->last && !x->second_last) /* two blocks on, in the same slot as the one before */
            wait(l, BACK, before, false);
        if (!x->first)
            start(l, GRADS_IN, GRAD, before, -1, true);
        add_steps(l, p, pass, x);
        start(l, BACK, GRAD, x->slot, 0, false);
        break;
    case VP_PASS_NORM:
        wait(l, GRADS_IN, x->slot, false);
        if (!x->last)
            start(l, GRADS_IN, GRAD, next, 1, false);
        add_steps(l, p, pass, x);
        break;
    default:
        wait(l, PARAMS_IN, x->slot, false);
        wait(l, GRADS_IN, x->slot, false);
        if (!x->last) {
            start(l, PARAMS_IN, PARAM, next, 1, false);
            start(l, GRADS_IN, GRAD, next, 1, false);
        }
        add_steps(l, p, pass, x);
        start(l, BACK, PARAM, x->slot, 0, false);
        wait(l, BACK, x->slot, false);
    }
}

/* The embedding fetches for the first block, in backward it sees the last gradients off. */
static void embedding_pass(list *l, const vp_program *p, vp_pass pass)
{
    const vp_stream_place none     = {.is = false};
    int64_t               n_blocks = l->a->graph.n_instances - 2;

    if (pass == VP_PASS_FORWARD || pass == VP_PASS_UPDATE)
        start(l, PARAMS_IN, PARAM, slot_of(1), 1, false);
    if (pass == VP_PASS_NORM || pass == VP_PASS_UPDATE)
        start(l, GRADS_IN, GRAD, slot_of(1), 1, false);
    add_steps(l, p, pass, &none);
    for (int64_t i = 2; pass == VP_PASS_BACKWARD && i >= 1; i--)
        if (i <= n_blocks)
            wait(l, BACK, slot_of(i), false);
}

static void head_pass(list *l, const vp_program *p, vp_pass pass)
{
    const vp_stream_place none = {.is = false};
    int                   slot = slot_of(l->a->graph.n_instances - 2);

    if (pass == VP_PASS_BACKWARD) {
        start(l, PARAMS_IN, PARAM, slot, -1, false);
        start(l, GRADS_IN, GRAD, slot, -1, true);
    }
    add_steps(l, p, pass, &none);
}

/* Whether two blocks' steps of a pass are the same if they were before: their copies are. */
static bool alike(const vp_stream_place *x, const vp_stream_place *y)
{
    return x->is && y->is && x->slot == y->slot && x->first == y->first && x->last == y->last &&
           x->second_last == y->second_last;
}

vp_status vp_stream_add_copies(vp_assembly *a, int64_t first_program, vp_pass last_pass,
                               vp_err *err)
{
    if (!a->scenario->offload.blocks)
        return VP_OK;
    int64_t n_params = block_of(a)->n_params;
    /* what the host updates it needs not fetch */
    if (a->scenario->offload.host_step && last_pass == VP_PASS_UPDATE)
        last_pass = VP_PASS_NORM;
    const vp_step **without = vp_arena_array(a->arena, a->n_programs, sizeof *without);
    if (!without)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int pass = 0; pass <= (int)last_pass; pass++)
        for (int64_t k = first_program; k < a->n_programs; k++) {
            vp_program *p    = &a->lowered[k].program;
            int64_t     same = first_program;
            list        l    = {
                          .a = a, .pass = (vp_pass)pass, .cap = p->n_steps[pass] + MOST_GROUPS * n_params};
            without[k] = p->steps[pass];
            while (same < k && (without[same] != without[k] ||
                                !alike(&a->stream_place[same], &a->stream_place[k])))
                same++;
            if (same < k) { /* updates, of which blocks share one list */
                p->steps[pass]   = a->lowered[same].program.steps[pass];
                p->n_steps[pass] = a->lowered[same].program.n_steps[pass];
                continue;
            }
            l.steps = vp_arena_room(a->arena, l.cap, sizeof *l.steps);
            if (!l.steps)
                return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
            if (a->stream_place[k].is)
                block_pass(&l, p, (vp_pass)pass, &a->stream_place[k]);
            else if (k == a->program_of[0])
                embedding_pass(&l, p, (vp_pass)pass);
            else
                head_pass(&l, p, (vp_pass)pass);
            p->steps[pass]   = l.steps;
            p->n_steps[pass] = l.n;
        }
    return VP_OK;
}
