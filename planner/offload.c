/* planner/offload.c: what lies in the host's memory and what is updated with it come together.
 *
 * Master weights and optimizer states are needed in the update only. There they pass through windows
 * on the device, piece by piece: while one piece is updated, the next one comes in and the one before
 * goes back. Three windows do for that, one for each. A parameter is cut where its update treats each
 * element by itself; the bits do not depend on the cut.
 *
 * Where the host makes the updates it is the other way round: the windows are in host memory, gradients
 * and parameters pass through them, and master weights and states stay where they are. What lies in host
 * memory as well, since blocks are streamed, passes through none. Of a segment one block's updates end before
 * the next one's begin, as if each stood by itself: then what they take is a sum over blocks, however these
 * are grouped, which the integer programs rely on. The host is brought the control block
 * first, behind the norm. In backward it alone waits for what it needs: kernels go on with the block before. */
#include "base/checked.h"
#include "planner/planner_internal.h"

#include <assert.h>
#include <string.h>

/* Pieces of the largest parameter, and what a piece has at least and at most: enough for a copy to
 * reach the link's rate, and few enough steps for the plan's file. */
enum { PIECES = 8, LEAST_PIECE = 4096, MOST_PIECE = 1 << 24 };

/* What passes through windows: master weights and states, or parameters and gradients where the host
 * makes the updates. */
static vp_region first_region(const vp_assembly *a)
{
    return a->scenario->offload.host_step ? VP_REGION_PARAM : VP_REGION_MASTER;
}

static int n_parts(const vp_assembly *a)
{
    return a->scenario->offload.host_step ? VP_REGION_MASTER - VP_REGION_PARAM : VP_N_WINDOW_PARTS;
}

static vp_region region_of(const vp_assembly *a, int part)
{
    assert(part >= 0 && part < n_parts(a));
    return (vp_region)((int)first_region(a) + part);
}

/* The part that an argument is of; -1: none. */
static int part_of(const vp_assembly *a, const vp_arg *arg)
{
    int part = (int)arg->space - VP_SPACE_PARAM - (int)first_region(a);

    return arg->space <= VP_SPACE_STATE1 && part >= 0 && part < n_parts(a) ? part : -1;
}

/* Whether an instance's updates are made where all of what they need lies: the host makes them, and its
 * parameters and gradients are in host memory, too. */
static bool is_in_place(const vp_assembly *a, int64_t instance_idx)
{
    return a->scenario->offload.host_step && a->scenario->offload.blocks && instance_idx > 0 &&
           instance_idx < a->graph.n_instances - 1;
}

/* Whether an update may be made piece by piece with the same bits: each element by itself, and nothing
 * rounded with random numbers, which count from a call's first element. */
static bool may_cut(const vp_step *update)
{
    bool by_element = vp_kernel_info_of(update->kernel)->kind == VP_KERNEL_UPDATE;
    bool has_states = vp_kernel_int(update->kernel, "state") >= 0;
    bool has_master = false;

    for (int k = 0; k < vp_step_n_operands(update); k++)
        has_master |= update->args[k].space == VP_SPACE_MASTER;
    return by_element && (!has_states || update->states.state == VP_STATE_F32) &&
           (has_master || update->dtype == VP_DTYPE_F32);
}

static int64_t largest_trained(const vp_graph *g)
{
    int64_t most = 0;

    for (int t = 0; t < g->n_templates; t++)
        for (int64_t k = 0; k < g->templates[t].n_params; k++)
            if (!g->templates[t].params[k].frozen)
                most = vp_max_i64(most, g->templates[t].params[k].n_elements);
    return most;
}

/* Whether something that an update needs lies in the other memory. */
static bool has_parts(const vp_assembly *a, const vp_step *update)
{
    for (int k = 0; k < vp_step_n_operands(update); k++)
        if (part_of(a, &update->args[k]) >= 0)
            return true;
    return false;
}

/* Elements of one piece of an update; all where it fetches nothing, as SGD's in fp32. */
static int64_t piece_elements(const vp_assembly *a, const vp_step *update, int64_t n_elements)
{
    int64_t piece =
        vp_round_up(vp_ceil_div(largest_trained(&a->model->graph), PIECES), LEAST_PIECE);

    piece = vp_min_i64(vp_max_i64(piece, LEAST_PIECE), MOST_PIECE);
    return may_cut(update) && has_parts(a, update) ? vp_min_i64(piece, n_elements) : n_elements;
}

static int slot_of(int64_t piece_idx)
{
    return (int)(piece_idx % VP_N_WINDOWS);
}

/* Parameters of one block of the template of an instance, which may be a segment's; all of them in the
 * first and the last instance. */
static int64_t params_of_block(const vp_assembly *a, int64_t instance_idx)
{
    const vp_graph *whole = &a->model->graph;
    const bool      block = instance_idx > 0 && instance_idx < a->graph.n_instances - 1;
    int             t     = a->graph.instances[instance_idx].template_idx;

    assert(!block ||
           a->graph.templates[t].n_params % whole->templates[vp_block_template(whole)].n_params ==
               0);
    return block ? whole->templates[vp_block_template(whole)].n_params
                 : a->graph.templates[t].n_params;
}

/* What the pieces of one template's updates need of each window. */
static void widen_windows(const vp_assembly *a, const vp_template *t, int64_t of_block,
                          int64_t bytes[VP_N_WINDOWS][VP_N_WINDOW_PARTS])
{
    int64_t n = 0; /* pieces so far */

    for (int64_t k = 0; k < t->n_params; k++) {
        const vp_param *p = &t->params[k];
        if (k % of_block == 0)
            n = 0;
        if (p->frozen)
            continue;
        vp_step update = vp_optimizer_phase_update(a, p, k);
        int64_t length = piece_elements(a, &update, p->n_elements);
        for (int64_t first = 0; first < p->n_elements; first += length, n++)
            for (int part = 0; part < n_parts(a); part++) {
                int64_t  whole = vp_plan_param_bytes(&a->scenario->recipe, p, region_of(a, part));
                int64_t  len   = vp_min_i64(length, p->n_elements - first);
                int64_t  need  = len == p->n_elements ? whole : whole / p->n_elements * len;
                int64_t *to    = &bytes[slot_of(n)][part];
                *to            = vp_max_i64(*to, need);
            }
    }
}

void vp_offload_window_bytes(const vp_assembly *a, int64_t bytes[VP_N_WINDOWS][VP_N_WINDOW_PARTS])
{
    const vp_graph *g = &a->graph;

    memset(bytes, 0, sizeof(int64_t[VP_N_WINDOWS][VP_N_WINDOW_PARTS]));
    for (int64_t i = 0; i < g->n_instances && i < a->scenario->offload.states; i++)
        if (!is_in_place(a, i) &&
            (i == 0 || g->instances[i].template_idx != g->instances[i - 1].template_idx))
            widen_windows(a, &g->templates[g->instances[i].template_idx], params_of_block(a, i),
                          bytes);
}

/* One update, or a part of it, with the copies that it needs. */
typedef struct piece {
    vp_step step;
    int     operand[VP_N_WINDOW_PARTS]; /* of the step: each part's; -1: it has none */
    vp_arg  home[VP_N_WINDOW_PARTS];    /* where it lies in the other memory         */
    int64_t bytes[VP_N_WINDOW_PARTS];
    int64_t block; /* of a segment */
} piece;

static piece make_piece(const vp_assembly *a, const vp_step *update, int64_t first, int64_t n,
                        int64_t n_elements, int slot, bool in_place)
{
    piece out = {.step = *update, .operand = {-1, -1, -1}};

    if (a->scenario->offload.host_step)
        out.step.stream = VP_STREAM_HOST;
    if (n < n_elements) {
        assert(may_cut(update) && update->update.count == n_elements);
        out.step.update.count = n; /* first of all their attributes */
    }
    for (int k = 0; k < vp_step_n_operands(update); k++) {
        vp_arg *arg  = &out.step.args[k];
        int     part = in_place ? -1 : part_of(a, arg);
        if (arg->space == VP_SPACE_FIXED && arg->idx == VP_FIXED_CONTROL &&
            out.step.stream == VP_STREAM_HOST)
            arg->idx = a->host_control;
        if (arg->space == VP_SPACE_NONE || arg->space == VP_SPACE_FIXED)
            continue; /* control, scratch, workspace */
        int64_t whole = vp_step_operand_bytes(update, update->ints, k);
        assert(n == n_elements || whole % n_elements == 0);
        arg->offset_bytes += n == n_elements ? 0 : whole / n_elements * first;
        if (part < 0)
            continue;
        out.operand[part] = k;
        out.home[part]    = *arg;
        out.bytes[part]   = vp_step_operand_bytes(&out.step, out.step.ints, k);
        *arg              = (vp_arg){.space = VP_SPACE_FIXED, .idx = a->windows[slot][part]};
        assert(arg->idx >= 0 && out.bytes[part] <= a->fixed[arg->idx].bytes);
    }
    return out;
}

typedef struct list {
    vp_step *steps;
    int64_t  n, cap;
} list;

static void add(list *l, const vp_step *s)
{
    assert(l->n < l->cap);
    l->steps[l->n++] = *s;
}

/* Numbers of copies: those under way at once differ. */
static int64_t copy_in(int slot, int part)
{
    return (int64_t)slot * 2 * VP_N_WINDOW_PARTS + part;
}

static int64_t copy_out(int slot, int part)
{
    return copy_in(slot, part) + VP_N_WINDOW_PARTS;
}

/* in: to where the update is made, which is the device, or the host. */
static void start(list *l, const piece *p, int slot, bool in)
{
    bool to_device = in == (p->step.stream == VP_STREAM_COMPUTE);

    for (int part = 0; part < VP_N_WINDOW_PARTS; part++) {
        if (p->operand[part] < 0)
            continue;
        vp_access access = vp_step_operand_access(&p->step, p->operand[part]);
        if (access == (in ? VP_WRITE : VP_READ))
            continue;
        const vp_arg *window    = &p->step.args[p->operand[part]];
        vp_step       s         = {.kernel = VP_K_COPY_START,
                                   .dtype  = VP_DTYPE_F32,
                                   .name   = p->step.name,
                                   .stream = to_device ? VP_STREAM_TO_DEVICE : VP_STREAM_TO_HOST};
        s.args[VP_COPY_START_X] = in ? p->home[part] : *window;
        s.args[VP_COPY_START_Y] = in ? *window : p->home[part];
        s.copy_start.count      = p->bytes[part];
        s.copy_start.copy       = in ? copy_in(slot, part) : copy_out(slot, part);
        add(l, &s);
    }
}

static void wait(list *l, const piece *p, int slot, bool in, vp_stream who)
{
    for (int part = 0; part < VP_N_WINDOW_PARTS; part++) {
        if (p->operand[part] < 0 ||
            vp_step_operand_access(&p->step, p->operand[part]) == (in ? VP_WRITE : VP_READ))
            continue;
        vp_step s = {
            .kernel = VP_K_COPY_DONE, .dtype = VP_DTYPE_F32, .name = p->step.name, .stream = who};
        s.copy_done.copy = in ? copy_in(slot, part) : copy_out(slot, part);
        add(l, &s);
    }
}

/* The host's copy of the control block. */
static void bring_control(const vp_assembly *a, list *l)
{
    /* a number of a part that only the device's windows have */
    const int64_t copy = copy_in(0, VP_N_WINDOW_PARTS - 1);
    vp_step       s    = {.kernel = VP_K_COPY_START,
                          .dtype  = VP_DTYPE_F32,
                          .name   = "control",
                          .stream = VP_STREAM_TO_HOST};
    vp_step       done = {.kernel = VP_K_COPY_DONE, .dtype = VP_DTYPE_F32, .name = "control"};

    assert(n_parts(a) < VP_N_WINDOW_PARTS);
    s.args[VP_COPY_START_X] = (vp_arg){.space = VP_SPACE_FIXED, .idx = VP_FIXED_CONTROL};
    s.args[VP_COPY_START_Y] = (vp_arg){.space = VP_SPACE_FIXED, .idx = a->host_control};
    s.copy_start.count      = a->fixed[a->host_control].bytes;
    s.copy_start.copy = done.copy_done.copy = copy;
    add(l, &s);
    add(l, &done);
}

/* Elements of a piece of a program's update. */
static int64_t cut_at(const vp_assembly *a, const vp_step *update, int64_t n_elements,
                      bool in_place)
{
    return in_place ? n_elements : piece_elements(a, update, n_elements);
}

/* Elements of the parameter that an update is of. */
static int64_t elements_of(const vp_template *t, const vp_step *update)
{
    assert(update->args[0].space == VP_SPACE_PARAM && update->args[0].idx < t->n_params);
    return t->params[update->args[0].idx].n_elements;
}

/* Every update of a program, in pieces; NULL: out of memory, or none. */
static piece *cut_updates(const vp_assembly *a, const vp_program *p, const vp_template *t,
                          int64_t of_block, bool in_place, int64_t *n)
{
    piece  *pieces;
    int64_t begin = 0;

    *n = 0;
    for (int64_t i = 0; i < p->n_steps[VP_PASS_UPDATE]; i++) {
        int64_t n_elements = elements_of(t, &p->steps[VP_PASS_UPDATE][i]);
        *n +=
            vp_ceil_div(n_elements, cut_at(a, &p->steps[VP_PASS_UPDATE][i], n_elements, in_place));
    }
    pieces = vp_arena_room(a->arena, *n, sizeof *pieces);
    *n     = 0;
    for (int64_t i = 0; pieces && i < p->n_steps[VP_PASS_UPDATE]; i++) {
        const vp_step *update     = &p->steps[VP_PASS_UPDATE][i];
        int64_t        n_elements = elements_of(t, update);
        int64_t        length     = cut_at(a, update, n_elements, in_place);
        int64_t        block      = update->args[0].idx / of_block;
        if (*n > 0 && pieces[*n - 1].block != block)
            begin = *n;
        for (int64_t first = 0; first < n_elements; first += length, ++*n) {
            pieces[*n]       = make_piece(a, update, first, vp_min_i64(length, n_elements - first),
                                          n_elements, slot_of(*n - begin), in_place);
            pieces[*n].block = block;
        }
    }
    return pieces;
}

vp_status vp_offload_bring_control(vp_assembly *a, vp_err *err)
{
    vp_program *p   = &a->lowered[a->program_of[a->graph.n_instances - 1]].program;
    list        out = {.cap = 2 + p->n_steps[VP_PASS_UPDATE]};

    out.steps = vp_arena_room(a->arena, out.cap, sizeof *out.steps);
    if (!out.steps)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    bring_control(a, &out);
    for (int64_t i = 0; i < p->n_steps[VP_PASS_UPDATE]; i++)
        add(&out, &p->steps[VP_PASS_UPDATE][i]);
    p->steps[VP_PASS_UPDATE]   = out.steps;
    p->n_steps[VP_PASS_UPDATE] = out.n;
    return VP_OK;
}

/* Piece j comes in, then piece j - 1 is updated and goes back; piece j's window is free when what went
 * back from it is there. */
static void pass_through_windows(list *out, const piece *pieces, int64_t n, vp_stream who)
{
    for (int64_t j = 0; j < n + VP_N_WINDOWS; j++) {
        if (j >= VP_N_WINDOWS)
            wait(out, &pieces[j - VP_N_WINDOWS], slot_of(j), false, who);
        if (j < n)
            start(out, &pieces[j], slot_of(j), true);
        if (j >= 1 && j <= n) {
            wait(out, &pieces[j - 1], slot_of(j - 1), true, who);
            add(out, &pieces[j - 1].step);
            start(out, &pieces[j - 1], slot_of(j - 1), false);
        }
    }
}

vp_status vp_offload_updates(vp_assembly *a, int64_t program_idx, vp_err *err)
{
    vp_program        *p           = &a->lowered[program_idx].program;
    const vp_template *t           = &a->graph.templates[a->template_of[program_idx]];
    const bool         in_backward = vp_scenario_updates_in_backward(a->scenario);
    const vp_stream    who         = in_backward ? VP_STREAM_HOST : VP_STREAM_COMPUTE;
    int64_t            n, instance_idx = 0;

    assert(!in_backward || a->scenario->offload.host_step);
    for (int64_t k = 0; k < program_idx; k++)
        if (a->host_states[k] && a->template_of[k] == a->template_of[program_idx]) {
            p->steps[VP_PASS_UPDATE]   = a->lowered[k].program.steps[VP_PASS_UPDATE];
            p->n_steps[VP_PASS_UPDATE] = a->lowered[k].program.n_steps[VP_PASS_UPDATE];
            return VP_OK; /* the same parameters' */
        }
    while (a->program_of[instance_idx] != program_idx)
        instance_idx++;
    piece *pieces =
        cut_updates(a, p, t, params_of_block(a, instance_idx), is_in_place(a, instance_idx), &n);
    list out = {.cap = 2 + n * (1 + 4 * VP_N_WINDOW_PARTS)};

    out.steps = vp_arena_room(a->arena, out.cap, sizeof *out.steps);
    if (vp_arena_failed(a->arena))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (a->scenario->offload.host_step && instance_idx == 0 && !in_backward)
        bring_control(a, &out); /* all others come after it */
    for (int64_t begin = 0, end; begin < n; begin = end) {
        for (end = begin; end < n && pieces[end].block == pieces[begin].block;)
            end++;
        pass_through_windows(&out, &pieces[begin], end - begin, who);
    }
    p->steps[VP_PASS_UPDATE]   = out.steps;
    p->n_steps[VP_PASS_UPDATE] = out.n;
    return VP_OK;
}
