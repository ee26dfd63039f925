/* planner/pricing.c: what a step of a scenario takes.
 *
 * Where nothing is copied while kernels run, a step takes the sum of its kernels' seconds, a smaller
 * last micro-step those of its own passes; updates
 * of what lies in host memory are simulated, each instance's by itself, since no copy is under way
 * between two of them. Where the host makes them in backward the whole step is: it takes at least its kernels,
 * and behind the last of them the updates of the embedding, whose gradients come last. Where blocks are streamed the whole step is simulated, and the integer
 * programs get what it takes at least: a block's kernels begin when its parameters are there, and
 * these are sent when the block before it begins, so that
 *
 *     forward   = max(embedding, w) + sum over blocks of max(c, w) - max(0, w - c) + head
 *     backward  = max(head, u)      + sum over blocks of max(c, u) - max(0, u - c of the first block)
 *                 + max(embedding, g)
 *
 * with c the kernels' time of a block, w the copies' of its parameters, u of its parameters and, from
 * the second micro-step on, of its gradients, and g of its gradients' way back: the first block's go
 * while the embedding's backward runs. The terms with a minus are for the block that fetches
 * nothing. Backward takes more where the second block's gradients are still on their way when the first
 * block ends: it is a bound there.
 *
 * Where kernels' processors make the copies, kernels lose some time behind each copy that is given: it is among a block's
 * c, of the embedding's and the head's terms what they fetch for blocks. What is lost to a block's gradients comes behind the
 * start of their way back, so that g counts from there on: it is less by that.
 *
 * In the first micro-step, which fetches no gradients, u is the longer one of w and g. A block begins
 * when the gradients of the second block before it are back, for which those of the blocks in between
 * wait: if block p ends at E, then p + 2 + i begins at E + (i + 1) g at the earliest, which is g for
 * each of the blocks p + 1 to p + 1 + i. So of any blocks those that are shorter than g may count as g, but for
 * the last of the chain, p, and for the first: it may if the embedding then counts as g too. Where blocks also
 * move activations through slots, d nanoseconds of copies each in a pass, these stand between those of one
 * block's parameters and the next one's: of any blocks one after the other all but one take u + d at least,
 * from the beginning of the first to that of the block behind the last. planner/streamed_space.c makes integer
 * programs of this. */
#include "base/checked.h"
#include "plan/simulate.h"
#include "planner/planner_internal.h"

#include <assert.h>
#include <math.h>

/* VP_OVERFLOW: more nanoseconds than 64 bits count. */
static int64_t to_ns(double seconds)
{
    return seconds < 9e9 ? llround(seconds * 1e9) : VP_OVERFLOW;
}

/* Nanoseconds of a program. */
typedef struct vp_program_price {
    /* kernels: of every micro-step, and of the optimizer's passes all; of the first micro-step only */
    int64_t kernels_ns[VP_N_PASSES], first_only_ns;
    /* copies to the device, of every micro-step and of later ones only, and to the host */
    int64_t in_ns[VP_N_PASSES], later_in_ns, out_ns[VP_N_PASSES];
    /* and what kernels lose to these */
    int64_t lost_in_ns[VP_N_PASSES], lost_later_in_ns, lost_out_ns[VP_N_PASSES];
} vp_program_price;

static void price_step(const vp_step *s, int pass, vp_program_price *out)
{
    int64_t  ns = to_ns(s->seconds);
    int64_t *to = s->first_only ? &out->first_only_ns : &out->kernels_ns[pass];

    if (s->kernel == VP_K_COPY_START) {
        int64_t *lost = s->stream == VP_STREAM_TO_HOST ? &out->lost_out_ns[pass]
                        : s->later_only                ? &out->lost_later_in_ns
                                                       : &out->lost_in_ns[pass];
        to            = s->stream == VP_STREAM_TO_HOST ? &out->out_ns[pass]
                        : s->later_only                ? &out->later_in_ns
                                                       : &out->in_ns[pass];
        *lost         = vp_add(*lost, to_ns(s->lost_s));
    }
    *to = vp_add(*to, ns);
}

void vp_price_steps(const vp_assembly *a, vp_program *p)
{
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++) {
            vp_step *s = &p->steps[pass][i];
            if (s->seconds > 0) /* priced when it was lowered */
                continue;
            s->seconds = vp_cost_step(a->cost, &a->model->graph, s);
            s->lost_s  = vp_cost_lost(a->cost, s);
            if (a->cost->profile)
                s->algorithm = vp_profile_algorithm(a->cost->profile, s->kernel, s->dtype, s->ints,
                                                    vp_step_lacks(s));
        }
}

/* known: NULL, or what its norm and updates are known to take. */
static vp_program_price price_program(vp_assembly *a, int64_t program_idx, const int64_t *known)
{
    vp_program      *p           = &a->lowered[program_idx].program;
    vp_program_price out         = {.first_only_ns = 0};
    const bool       in_backward = vp_scenario_updates_in_backward(a->scenario);

    vp_price_steps(a, p);
    for (int pass = 0; pass < VP_N_PASSES; pass++) {
        if (known && (pass == VP_PASS_NORM || pass == VP_PASS_UPDATE)) {
            out.kernels_ns[pass] = known[pass - VP_PASS_NORM];
            continue;
        }
        for (int64_t i = 0; i < p->n_steps[pass]; i++) {
            const vp_step *s = &p->steps[pass][i];
            assert(!s->first_only || pass <= VP_PASS_BACKWARD);
            a->has_algorithm |= vp_algorithm_is_set(&s->algorithm);
            if (!in_backward || s->stream != VP_STREAM_HOST || a->cost->device->is_cpu)
                price_step(s, pass, &out); /* else beside the kernels */
        }
    }
    if (!known && a->host_states[program_idx] && !a->scenario->offload.blocks &&
        (!in_backward || program_idx == a->program_of[0]))
        out.kernels_ns[VP_PASS_UPDATE] = to_ns(vp_simulate_steps(
            p->steps[VP_PASS_UPDATE], p->n_steps[VP_PASS_UPDATE], a->cost->device->is_cpu));
    return out;
}

/* What a program's norm and updates are known to take; NULL: nothing is known. */
static const int64_t *known_phases(const vp_assembly *a, int64_t program_idx)
{
    return a->phase_of ? a->phase_of[program_idx]->kernels_ns
           : a->price  ? &a->price[program_idx].kernels_ns[VP_PASS_NORM]
                       : NULL;
}

void vp_price_of_phase(const vp_assembly *a, int64_t program_idx, int64_t ns[VP_N_PHASES])
{
    for (int k = 0; k < VP_N_PHASES; k++)
        ns[k] = a->price[program_idx].kernels_ns[VP_PASS_NORM + k];
}

void vp_price_head(const vp_lowered *l, vp_priced_head *out)
{
    const vp_program *p = &l->program;

    *out = (vp_priced_head){
        .kept_bytes   = p->kept_bytes,
        .height_bytes = {l->height_bytes[VP_PASS_FORWARD], l->height_bytes[VP_PASS_BACKWARD]}};
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++) {
            const vp_step *s      = &p->steps[pass][i];
            const bool     middle = pass == VP_PASS_BACKWARD && i >= l->middle.first &&
                                i < l->middle.first + l->middle.n_steps;
            int64_t *to = s->first_only ? &out->first_only_ns : &out->kernels_ns[pass];
            *to         = vp_add(*to, vp_mul(middle ? l->middle.n_times : 1, to_ns(s->seconds)));
        }
}

/* A program's price, but for what its own passes take in other chunks. */
static vp_program_price with_head(vp_program_price price, const vp_priced_head *head)
{
    const int passes[] = {VP_PASS_FORWARD, VP_PASS_BACKWARD, VP_PASS_LAST_FORWARD,
                          VP_PASS_LAST_BACKWARD};

    for (size_t k = 0; k < sizeof passes / sizeof *passes; k++)
        price.kernels_ns[passes[k]] = head->kernels_ns[passes[k]];
    price.first_only_ns = head->first_only_ns;
    return price;
}

/* ---- streamed blocks ---- */

/* The passes of every program that stand in a step, by program. */
enum { N_WALKED = VP_PASS_UPDATE + 1 };

static vp_timed_pass (*time_programs(const vp_assembly *a))[N_WALKED]
{
    vp_timed_pass(*timed)[N_WALKED] = vp_arena_array(a->arena, a->n_programs, sizeof *timed);

    for (int64_t k = 0; timed && k < a->n_programs; k++)
        for (int pass = a->untimed ? VP_PASS_NORM : 0; pass < N_WALKED; pass++) {
            const vp_program *p = &a->lowered[k].program;
            if (pass >= VP_PASS_NORM && a->phase_of)
                timed[k][pass] = a->phase_of[k]->timed[pass - VP_PASS_NORM];
            else if (!vp_pass_time(a->arena, p->steps[pass], p->n_steps[pass],
                                   a->cost->device->is_cpu, &timed[k][pass]))
                return NULL;
        }
    return timed;
}

/* As plan/expand.c walks a plan. No micro-step: the optimizer's passes alone, before which all copies have
 * been waited for. */
static vp_status simulate(const vp_assembly *a, int64_t n_micro, double *step_s,
                          double *optimizer_s, vp_err *err)
{
    const bool     in_backward = vp_scenario_updates_in_backward(a->scenario);
    int64_t        n           = a->graph.n_instances;
    vp_timed_pass *micro = vp_arena_array(a->arena, 2 * n, sizeof *micro), *last = micro,
                  *optimizer        = vp_arena_array(a->arena, 2 * n, sizeof *optimizer);
    vp_timed_pass(*timed)[N_WALKED] = time_programs(a);

    if (in_backward)
        last = vp_arena_array(a->arena, 4 * n, sizeof *last);
    if (vp_arena_failed(a->arena))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t i = 0; i < n; i++) {
        const int64_t        back = n - 1 - i; /* how many are before it in backward */
        const vp_timed_pass *own  = timed[a->program_of[i]];
        micro[i]                  = own[VP_PASS_FORWARD];
        micro[n + back]           = own[VP_PASS_BACKWARD];
        optimizer[i]              = own[VP_PASS_NORM];
        optimizer[n + i]          = own[VP_PASS_UPDATE];
        if (in_backward) {
            last[i]                = micro[i];
            last[n + 3 * back]     = micro[n + back];
            last[n + 3 * back + 1] = optimizer[i];
            last[n + 3 * back + 2] = optimizer[n + i];
        }
    }
    const vp_step_passes step = {.micro_step      = {micro, 2 * n},
                                 .last_micro_step = {last, in_backward ? 4 * n : 2 * n},
                                 .optimizer       = {optimizer, in_backward ? 0 : 2 * n},
                                 .n_micro_steps   = n_micro};
    *step_s                   = vp_simulate_passes(&step, optimizer_s);
    return VP_OK;
}

/* The norms and updates alone. What they take knows nothing of micro-batch and chunk: where they are those of an earlier
 * scenario they are not walked through again. */
static vp_status simulate_optimizer(const vp_assembly *a, double *optimizer_s, vp_err *err)
{
    const int64_t           n     = a->graph.n_instances;
    vp_lowered_store       *store = a->phase_of ? a->cost->store : NULL;
    const vp_priced_phase **of    = vp_arena_array(a->arena, n, sizeof *of);
    double                  step_s;
    vp_status               st = VP_OK;

    VP_TRY_ALLOC(err, of);
    for (int64_t i = 0; store && i < n; i++)
        of[i] = a->phase_of[a->program_of[i]];
    *optimizer_s = vp_lowered_store_find_walk(store, of, n);
    if (*optimizer_s >= 0)
        goto out;
    VP_TRY(simulate(a, 0, &step_s, optimizer_s, err));
    VP_TRY_ALLOC(err, !store || vp_lowered_store_put_walk(store, of, n, *optimizer_s));
out:
    return st;
}

/* Times that a copy makes at least of what runs meanwhile. */
static int64_t at_least(int64_t kernels_ns, int64_t copies_ns)
{
    return vp_overflowed(kernels_ns) || vp_overflowed(copies_ns)
               ? VP_OVERFLOW
               : vp_max_i64(kernels_ns, copies_ns);
}

/* Backward of a program that has copies to wait for, over all micro-steps. */
static int64_t backward_ns(const vp_program_price *p, int64_t first_copies_ns, int64_t copies_ns,
                           int64_t n_micro)
{
    int64_t each_ns = vp_add(p->kernels_ns[VP_PASS_BACKWARD], p->lost_in_ns[VP_PASS_BACKWARD]);

    return vp_add(at_least(vp_add(each_ns, p->first_only_ns), first_copies_ns),
                  vp_mul(n_micro - 1, at_least(vp_add(each_ns, p->lost_later_in_ns), copies_ns)));
}

static vp_status price_streamed(vp_assembly *a, const vp_program_price *price, int64_t n_micro,
                                vp_err *err)
{
    const vp_graph         *g         = &a->graph;
    const vp_program_price *embedding = &price[a->program_of[0]];
    const vp_program_price *head      = &price[a->program_of[g->n_instances - 1]];
    const vp_program_price *block     = &price[a->program_of[1]];
    int64_t                 params_ns = embedding->in_ns[VP_PASS_FORWARD];
    int64_t   gradients_ns = head->later_in_ns, back_ns = block->out_ns[VP_PASS_BACKWARD], sum;
    double    optimizer_s = 0;
    vp_status st          = VP_OK;

    a->figures.step_time_s = -1;
    if (a->untimed)
        VP_TRY(simulate_optimizer(a, &optimizer_s, err));
    else
        VP_TRY(simulate(a, n_micro, &a->figures.step_time_s, &optimizer_s, err));
    /* copies of gradients that go back start before what kernels lose to them */
    back_ns = vp_max_i64(0, back_ns - block->lost_out_ns[VP_PASS_BACKWARD]);
    sum     = vp_mul(n_micro, vp_add(at_least(vp_add(embedding->kernels_ns[VP_PASS_FORWARD],
                                                     embedding->lost_in_ns[VP_PASS_FORWARD]),
                                              params_ns),
                                     head->kernels_ns[VP_PASS_FORWARD]));
    sum     = vp_add(sum, backward_ns(embedding, back_ns, back_ns, n_micro));
    sum     = vp_add(sum, backward_ns(head, params_ns, vp_add(params_ns, gradients_ns), n_micro));
    sum     = vp_add(sum, to_ns(optimizer_s));
    a->figures.outside_blocks_ns = sum;
    a->figures.streamed          = (vp_streamed_figures){
                 .params_ns         = params_ns,
                 .gradients_ns      = gradients_ns,
                 .back_ns           = back_ns,
                 .lost_params_ns    = embedding->lost_in_ns[VP_PASS_FORWARD],
                 .lost_gradients_ns = head->lost_later_in_ns,
                 .lost_back_ns      = block->lost_out_ns[VP_PASS_BACKWARD],
                 .forward_ns        = block->kernels_ns[VP_PASS_FORWARD],
                 .embedding_ns = vp_add(embedding->kernels_ns[VP_PASS_BACKWARD], embedding->first_only_ns)};
    if (vp_overflowed(sum))
        VP_TRY(
            VP_FAIL(err, VP_ERR_INPUT,
                    "a step of this configuration takes more nanoseconds than 64 bits can count"));
out:
    return st;
}

/* Where activations move, or the host updates in backward, the whole step is simulated, too. */
static vp_status price_moved(vp_assembly *a, int64_t n_micro, vp_err *err)
{
    double    optimizer_s;
    vp_status st = VP_OK;

    a->figures.step_time_s = -1;
    if (a->untimed)
        return VP_OK;
    VP_TRY(simulate(a, n_micro, &a->figures.step_time_s, &optimizer_s, err));
    /* whole nanoseconds, as sums are: the same kernels take the same time */
    a->figures.step_time_s = (double)llround(a->figures.step_time_s * 1e9) * 1e-9;
out:
    return st;
}

/* What blocks' norms and updates take in backward: a copy that is under way may hide them. */
static void price_in_backward(vp_assembly *a, const vp_program_price *price)
{
    int64_t sum_ns = 0, least_ns = INT64_MAX;

    for (int64_t i = 1; i < a->graph.n_instances - 1; i++) {
        const vp_program_price *p = &price[a->program_of[i]];
        int64_t ns = vp_add(p->kernels_ns[VP_PASS_NORM], p->kernels_ns[VP_PASS_UPDATE]);
        sum_ns     = vp_add(sum_ns, ns);
        least_ns   = vp_min_i64(least_ns, ns);
    }
    if (vp_scenario_updates_in_backward(a->scenario) && sum_ns > 0) {
        a->figures.in_backward_ns       = sum_ns;
        a->figures.least_in_backward_ns = least_ns;
    }
}

vp_status vp_price(vp_assembly *a, vp_err *err)
{
    const vp_graph *g      = &a->graph;
    int64_t         n_full = vp_scenario_n_full(a->scenario), total_ns = 0, blocks_ns = 0,
            first_only_ns         = 0;
    vp_program_price       *price = vp_arena_array(a->arena, a->n_programs, sizeof *price);
    const vp_program_price *known = a->price;

    if (!price)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t k = 0; k < a->n_programs; k++) {
        int64_t n = 0, passes_ns, once_ns;
        if (known && k == a->n_programs - 1 && a->head)
            price[k] = with_head(known[k], a->head);
        else
            price[k] =
                known && k < a->n_programs - 1 ? known[k] : price_program(a, k, known_phases(a, k));
        for (int64_t i = 0; i < g->n_instances; i++)
            n += a->program_of[i] == k;
        passes_ns = vp_mul(
            vp_add(price[k].kernels_ns[VP_PASS_FORWARD], price[k].kernels_ns[VP_PASS_BACKWARD]),
            n_full);
        passes_ns = vp_add(passes_ns, vp_add(price[k].kernels_ns[VP_PASS_LAST_FORWARD],
                                             price[k].kernels_ns[VP_PASS_LAST_BACKWARD]));
        once_ns   = vp_add(price[k].first_only_ns, vp_add(price[k].kernels_ns[VP_PASS_NORM],
                                                          price[k].kernels_ns[VP_PASS_UPDATE]));
        total_ns  = vp_add(total_ns, vp_mul(n, vp_add(passes_ns, once_ns)));
        if (k != a->program_of[0] && k != a->program_of[g->n_instances - 1]) {
            blocks_ns     = vp_add(blocks_ns, vp_mul(n, passes_ns));
            first_only_ns = vp_add(first_only_ns, vp_mul(n, price[k].first_only_ns));
        }
    }
    if (vp_overflowed(total_ns))
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "a step of this configuration takes more nanoseconds than 64 bits can count");
    a->price                     = price;
    a->figures.step_time_s       = (double)total_ns * 1e-9;
    a->figures.outside_blocks_ns = total_ns - blocks_ns;
    a->figures.first_only_ns     = first_only_ns;
    price_in_backward(a, price);
    /* where copies run beside kernels all micro-steps are alike */
    assert((!a->scenario->offload.blocks && !a->scenario->offload.activations) ||
           vp_scenario_last_batch(a->scenario) == 0);
    if (a->scenario->offload.blocks)
        return price_streamed(a, price, n_full, err);
    return a->scenario->offload.activations ||
                   (a->scenario->offload.host_step && vp_scenario_updates_in_backward(a->scenario))
               ? price_moved(a, n_full, err)
               : VP_OK;
}
