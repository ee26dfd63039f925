/* Copies between device and host memory: a plan edited by hand moves one kept tensor of every block
 * out after its last use in forward and back before its first use in backward. It must pass the
 * checker, train the same bits however copies are delayed (on a card's backend: enqueued, and
 * recorded and replayed), and take the time that its events allow.
 * Plans with a wrong event are refused. */
#include "plan_test.h"

#include "kernels/cpu/cpu_internal.h"

#include "plan/simulate.h"

/* A step of the block's backward or forward that names a buffer. */
static bool uses(const vp_step *s, int64_t buffer)
{
    for (int k = 0; k < vp_step_n_operands(s); k++)
        if (s->args[k].space == VP_SPACE_BUFFER && s->args[k].idx == buffer)
            return true;
    return false;
}

static vp_step copy_start(vp_stream stream, int64_t from, int64_t to, int64_t bytes, int64_t copy)
{
    vp_step s = {
        .kernel = VP_K_COPY_START,
        .dtype  = VP_DTYPE_F32,
        .name   = "moved",
        .args   = {{.space = VP_SPACE_BUFFER, .idx = from}, {.space = VP_SPACE_BUFFER, .idx = to}},
        .copy_start = {.count = bytes, .copy = copy},
        .stream     = stream,
        .seconds    = 3e-4,
        .lost_s     = stream == VP_STREAM_TO_HOST ? 1e-4 : 0};

    return s;
}

static vp_step copy_done(int64_t copy)
{
    vp_step s = {.kernel    = VP_K_COPY_DONE,
                 .dtype     = VP_DTYPE_F32,
                 .name      = "moved",
                 .copy_done = {.copy = copy}};

    return s;
}

static void insert_step(vp_plan *plan, vp_program *p, vp_pass pass, int64_t at, vp_step s)
{
    int64_t  n     = p->n_steps[pass];
    vp_step *steps = vp_arena_array(plan->arena, n + 1, sizeof *steps);

    assert_non_null(steps);
    memcpy(steps, p->steps[pass], (size_t)at * sizeof *steps);
    memcpy(steps + at + 1, p->steps[pass] + at, (size_t)(n - at) * sizeof *steps);
    steps[at]        = s;
    p->steps[pass]   = steps;
    p->n_steps[pass] = n + 1;
}

/* Where the two copies stand in their pass: how many steps after the earliest place a copy_start
 * stands, and how many before the latest its copy_done. */
typedef struct slack {
    int64_t out_start, out_done, back_start;
} slack;

/* The first kept local buffer of a program that both passes use; -1: none. */
static int64_t movable(const vp_program *p)
{
    for (int64_t b = 1; b < p->n_buffers; b++)
        if (p->buffers[b].kept && p->buffers[b].place == VP_PLACE_LOCAL)
            return b;
    return -1;
}

/* Every buffer index of a program's steps from `first` on grows by `by`. */
static void shift_buffers(vp_program *p, int64_t first, int64_t by)
{
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++)
            for (int k = 0; k < VP_MAX_OPERANDS; k++)
                if (p->steps[pass][i].args[k].space == VP_SPACE_BUFFER &&
                    p->steps[pass][i].args[k].idx >= first)
                    p->steps[pass][i].args[k].idx += by;
}

/* Move one kept buffer of program `p` out and back: buffers b (forward), `back` in its place
 * (backward) and `host`. Returns false where it has none. */
static bool edit_program(vp_plan *plan, vp_program *p, slack by)
{
    int64_t         b = movable(p), n = p->n_buffers, last = -1, first = -1, back, host, at;
    bool            has_out = p->buffers[n - 1].place == VP_PLACE_OUT;
    vp_plan_buffer *list;

    if (b < 0)
        return false;
    list = vp_arena_array(plan->arena, n + 2, sizeof *list);
    assert_non_null(list);
    back = has_out ? n - 1 : n;
    host = back + 1;
    shift_buffers(p, back, 2);
    memcpy(list, p->buffers, (size_t)back * sizeof *list);
    if (has_out)
        list[n + 1] = p->buffers[n - 1];
    list[back]      = list[b];
    list[back].name = "moved back";
    list[b].kept = list[back].kept = false;
    list[host]                     = (vp_plan_buffer){.name      = "moved out",
                                                      .component = VP_COMP_ACTIVATIONS,
                                                      .kept      = true,
                                                      .memory    = VP_MEMORY_HOST_PINNED,
                                                      .bytes     = list[b].bytes};
    p->buffers                     = list;
    p->n_buffers                   = n + 2;
    for (int64_t i = 0; i < p->n_steps[VP_PASS_FORWARD]; i++)
        last = uses(&p->steps[VP_PASS_FORWARD][i], b) ? i : last;
    for (int64_t i = p->n_steps[VP_PASS_BACKWARD] - 1; i >= 0; i--)
        if (uses(&p->steps[VP_PASS_BACKWARD][i], b)) {
            first = i;
            for (int k = 0; k < VP_MAX_OPERANDS; k++)
                if (p->steps[VP_PASS_BACKWARD][i].args[k].space == VP_SPACE_BUFFER &&
                    p->steps[VP_PASS_BACKWARD][i].args[k].idx == b)
                    p->steps[VP_PASS_BACKWARD][i].args[k].idx = back;
        }
    assert_true(last >= 0 && first >= 0);
    at = vp_min_i64(last + 1 + by.out_start, p->n_steps[VP_PASS_FORWARD]);
    insert_step(plan, p, VP_PASS_FORWARD, at,
                copy_start(VP_STREAM_TO_HOST, b, host, list[b].bytes, 0));
    insert_step(plan, p, VP_PASS_FORWARD,
                vp_max_i64(at + 1, p->n_steps[VP_PASS_FORWARD] - by.out_done), copy_done(0));
    insert_step(plan, p, VP_PASS_BACKWARD, first, copy_done(1));
    insert_step(plan, p, VP_PASS_BACKWARD, vp_max_i64(0, first - by.back_start),
                copy_start(VP_STREAM_TO_DEVICE, host, back, list[b].bytes, 1));
    return true;
}

/* Returns the number of programs that move something. */
static int move_one_tensor(vp_plan *plan, slack by)
{
    vp_bucket    *b    = &plan->buckets[0];
    int64_t       host = 0;
    int           n    = 0;
    vp_simulation s;

    for (int64_t i = 0; i < b->n_programs; i++)
        n += edit_program(plan, &b->programs[i], by);
    for (int64_t i = 0; i < b->n_instances; i++) {
        const vp_program *p = &b->programs[b->instances[i].program_idx];
        b->instances[i].base_bytes[VP_MEMORY_HOST_PINNED] = host;
        for (int64_t k = 0; k < p->n_buffers; k++)
            if (p->buffers[k].memory == VP_MEMORY_HOST_PINNED) {
                b->host_peak_bytes = host + p->buffers[k].bytes;
                host += vp_round_up(p->buffers[k].bytes, VP_ALIGN_BYTES);
            }
    }
    plan->host_peak_bytes = b->host_peak_bytes;
    OK(vp_simulate(plan, b, NULL, NULL, &s, err));
    plan->step_time_s = s.step_s;
    return n;
}

static vp_scenario plain_scenario(void)
{
    return (vp_scenario){
        .recipe = vp_recipe_default(), .seq = 24, .global_batch = 4, .micro_batch = 2};
}

/* A plan through its file. */
static vp_plan *through_file(const vp_plan *plan)
{
    json_t      *j    = vp_plan_to_json(plan);
    vp_text      text = {0};
    vp_json_doc *doc;
    vp_plan     *again = NULL;

    assert_non_null(j);
    assert_true(vp_json_dump(j, &text));
    OK(vp_json_parse("plan", text.data, (int64_t)text.n_bytes, &doc, err));
    vp_json_node root = vp_json_root(doc);
    OK(vp_plan_from_json(&root, &again, err));
    vp_json_doc_free(doc);
    vp_text_release(&text);
    json_decref(j);
    return again;
}

static void same_bits(const trained *a, const trained *b, const char *what)
{
    assert_int_equal(a->n_params, b->n_params);
    if (memcmp(a->params, b->params, (size_t)a->n_params * sizeof *a->params) != 0 ||
        memcmp(&a->last.loss, &b->last.loss, sizeof a->last.loss) != 0)
        fail_msg("%s: other bits", what);
}

static void a_tensor_moved_out_and_back_trains_the_same_bits(void **state)
{
    rng  r     = {7};
    bool host  = test_backend()->host_memory;
    int  moved = 0, n = 0, end = (long_run() ? 8 : 1) * 2 * N_FAMILIES;

    (void)state;
    for (int i = 0; i < end; i += test_part(), n++) {
        char        config[800], what[64];
        vp_scenario s     = plain_scenario();
        vp_model   *model = model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);
        s.recipe.precision = i % 2 ? VP_PREC_BF16_MIXED : VP_PREC_FP32;
        vp_plan *plan      = plan_of(model, s, (vp_recompute)pick(&r, 3)), *edited, *read;
        trained  a         = train(plan, 3, 1, false), b;

        snprintf(what, sizeof what, "model %d", i);
        edited = plan_of(
            model, s,
            vp_recompute_by_name(json_string_value(json_object_get(plan->decisions, "recompute"))));
        moved += move_one_tensor(edited, (slack){pick(&r, 3), pick(&r, 3), pick(&r, 6)});
        OK(vp_plan_check(edited, what, err));
        read = through_file(edited);
        /* an emulated card takes its order from the environment it began with */
        for (int seed = 0; seed < (host ? 4 : 2); seed++) {
            vp_cpu_streams_stress(host ? (uint64_t)seed : 0); /* the environment is read once */
            b = train_with(read, 3, 1,
                           (vp_run_opts){.verify = host && seed == 1, .eager = !host && seed == 1});
            same_bits(&a, &b, what);
            assert_int_equal(b.memory.of[VP_MEMORY_HOST_PINNED].executed_bytes,
                             read->host_peak_bytes);
            assert_int_equal(b.memory.of[VP_MEMORY_DEVICE].executed_bytes, read->peak_bytes);
            free(b.params);
        }
        vp_cpu_streams_stress(0);
        free(a.params);
        vp_plan_free(plan);
        vp_plan_free(edited);
        vp_plan_free(read);
        vp_model_free(model);
    }
    assert_true(moved >= n);
}

/* ---- time ---- */

static vp_status add_seconds(const vp_expanded_step *s, void *ctx, vp_err *err)
{
    (void)err;
    *(double *)ctx += s->step->seconds;
    return VP_OK;
}

static void without_copies_a_step_takes_the_sum_of_its_steps(void **state)
{
    rng r = {11};

    (void)state;
    for (int i = 0; i < 60; i++) {
        char        config[800];
        vp_scenario s     = plain_scenario();
        vp_model   *model = model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);
        s.global_batch    = s.micro_batch * (1 + pick(&r, 14));
        vp_plan      *plan = random_plan(&r, model, s);
        vp_simulation simulated;
        double        sum = 0;

        OK(vp_simulate(plan, &plan->buckets[0], NULL, NULL, &simulated, err));
        OK(vp_expand(plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, add_seconds, &sum,
                     err));
        assert_true(simulated.step_s >= sum * (1 - 1e-12) && simulated.step_s <= sum * (1 + 1e-12));
        assert_true(simulated.waited_s == 0 && simulated.busy_s[VP_STREAM_TO_HOST] == 0);
        vp_plan_free(plan);
        vp_model_free(model);
    }
}

/* The definition, by other means: each step's end is a recurrence over the whole list. */
typedef struct ends {
    double at[VP_N_STREAMS], copy[VP_MAX_COPIES];
} ends;

static vp_status next_end(const vp_expanded_step *s, void *ctx, vp_err *err)
{
    ends  *e     = ctx;
    double begin = e->at[VP_STREAM_COMPUTE];

    (void)err;
    if (s->step->kernel == VP_K_COPY_DONE) {
        double end               = e->copy[s->step->copy_done.copy];
        e->at[VP_STREAM_COMPUTE] = begin > end ? begin : end;
    } else if (s->step->kernel == VP_K_COPY_START) {
        begin                  = begin > e->at[s->step->stream] ? begin : e->at[s->step->stream];
        e->at[s->step->stream] = e->copy[s->step->copy_start.copy] = begin + s->step->seconds;
        e->at[VP_STREAM_COMPUTE] += s->step->lost_s;
    } else {
        e->at[VP_STREAM_COMPUTE] = begin + s->step->seconds;
    }
    return VP_OK;
}

static void copies_overlap_with_kernels_and_are_waited_for(void **state)
{
    rng r = {13};

    (void)state;
    for (int i = 0; i < 60; i++) {
        char        config[800];
        vp_scenario s     = plain_scenario();
        vp_model   *model = model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);
        s.global_batch    = s.micro_batch * (1 + pick(&r, 14));
        vp_plan      *plan = plan_of(model, s, VP_RECOMPUTE_NONE);
        vp_simulation got;
        ends          want = {{0}, {0}};

        move_one_tensor(plan, (slack){0, 0, pick(&r, 9)});
        OK(vp_simulate(plan, &plan->buckets[0], NULL, NULL, &got, err));
        OK(vp_expand(plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, next_end, &want,
                     err));
        if (got.step_s < want.at[0] * (1 - 1e-12) || got.step_s > want.at[0] * (1 + 1e-12))
            fail_msg("model %d: %.17g s, by the definition %.17g", i, got.step_s, want.at[0]);
        assert_true(got.step_s <= got.busy_s[0] + got.waited_s + 1e-12 &&
                    got.step_s >= got.busy_s[0]);
        vp_plan_free(plan);
        vp_model_free(model);
    }
}

/* ---- what the checker refuses ---- */

static void refused(const vp_plan *plan, const char *words)
{
    vp_err err = {0};

    assert_int_equal(vp_plan_check(plan, "plan", &err), VP_ERR_INPUT);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" has no \"%s\"", err.message, words);
}

static vp_step *find(vp_plan *plan, vp_kernel kernel, int nth)
{
    for (int64_t p = 0; p < plan->buckets[0].n_programs; p++)
        for (int pass = 0; pass < 2; pass++)
            for (int64_t i = 0; i < plan->buckets[0].programs[p].n_steps[pass]; i++)
                if (plan->buckets[0].programs[p].steps[pass][i].kernel == kernel && nth-- == 0)
                    return &plan->buckets[0].programs[p].steps[pass][i];
    fail_msg("no such step");
    return NULL;
}

/* A copy of 2 s and one of 3 s to the host, begun at once, are done after 5 s: one stream does one thing at a time. */
static void copies_of_one_stream_come_one_after_the_other(void **state)
{
    vp_step steps[] = {{.kernel          = VP_K_COPY_START,
                        .stream          = VP_STREAM_TO_HOST,
                        .seconds         = 2,
                        .copy_start.copy = 0},
                       {.kernel          = VP_K_COPY_START,
                        .stream          = VP_STREAM_TO_HOST,
                        .seconds         = 3,
                        .copy_start.copy = 1},
                       {.kernel = VP_K_COPY_DONE, .copy_done.copy = 1}};

    (void)state;
    assert_float_equal(vp_simulate_steps(steps, 3, false), 5, 1e-12);
}

/* A kernel of 1 s, a copy of 3 s from then on, of which kernels lose some, and a kernel of 1 s that nobody waits for and
 * then one that waits for the copy. 0.5 s lost: the copy ends at 4, the kernels before it are done at 2.5. 3 s
 * lost: these end at 5, long after the copy. */
static void kernels_lose_what_their_processors_copy(void **state)
{
    const double   lost_s[] = {0, 0.5, 3}, want_s[] = {5, 5, 6};
    vp_step        steps[] = {{.kernel = VP_K_ZERO, .seconds = 1},
                              {.kernel = VP_K_COPY_START, .stream = VP_STREAM_TO_DEVICE, .seconds = 3},
                              {.kernel = VP_K_ZERO, .seconds = 1},
                              {.kernel = VP_K_COPY_DONE},
                              {.kernel = VP_K_ZERO, .seconds = 1}};
    const int      n       = sizeof steps / sizeof *steps;
    vp_timed_pass  pass;
    vp_step_passes step  = {.micro_step = {&pass, 1}, .last_micro_step = {&pass, 1}};
    vp_arena      *arena = vp_arena_new();

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int cpu = 0; cpu < 2; cpu++) {
            double optimizer_s;
            steps[1].lost_s    = lost_s[i];
            step.n_micro_steps = 1;
            assert_float_equal(vp_simulate_steps(steps, n, cpu), want_s[i], 1e-12);
            assert_true(vp_pass_time(arena, steps, n, cpu, &pass));
            assert_float_equal(vp_simulate_passes(&step, &optimizer_s), want_s[i], 1e-12);
            step.n_micro_steps = 20; /* more than are walked */
            assert_float_equal(vp_simulate_passes(&step, &optimizer_s), 20 * want_s[i], 1e-9);
        }
    vp_arena_free(arena);
}

static void a_plan_with_a_wrong_event_is_refused(void **state)
{
    vp_model *model =
        tiny_model(&(tiny){.n_embd = 24, .n_layer = 3, .n_head = 3, .vocab = 61}, 0.0);
    vp_scenario s = plain_scenario();

    (void)state;
    for (int wrong = 0; wrong < 8; wrong++) {
        static const char *const words[] = {
            "under way already",         "no copy",
            "while copy 1 is under way", "only a copy_start",
            "no kernel reaches it",      "does not copy from",
            "before anything wrote it",  "while copy 0 is under way"};
        vp_plan *plan = plan_of(model, s, VP_RECOMPUTE_NONE);
        assert_true(move_one_tensor(plan, (slack){0, 0, 2}) >= 1);
        OK(vp_plan_check(plan, "plan", err));
        vp_step *out = find(plan, VP_K_COPY_START, 0), *done = find(plan, VP_K_COPY_DONE, 0);
        vp_step  keep = *out;
        switch (wrong) {
        case 0: /* nobody waits before it starts again */
            done->copy_done.copy                          = 1;
            find(plan, VP_K_COPY_DONE, 1)->copy_done.copy = 0;
            *done = copy_start(VP_STREAM_TO_HOST, keep.args[0].idx, keep.args[1].idx,
                               keep.copy_start.count, 0);
            break;
        case 1:
            done->copy_done.copy = 5;
            break;
        case 2: { /* what is on its way back is read before it is waited for */
            vp_program *p = &plan->buckets[0].programs[1];
            int64_t     i = find(plan, VP_K_COPY_DONE, 1) - p->steps[VP_PASS_BACKWARD];
            vp_step     t = p->steps[VP_PASS_BACKWARD][i];
            p->steps[VP_PASS_BACKWARD][i]     = p->steps[VP_PASS_BACKWARD][i + 1];
            p->steps[VP_PASS_BACKWARD][i + 1] = t;
            break;
        }
        case 3:
            out->stream = VP_STREAM_COMPUTE;
            break;
        case 4: { /* a kernel reads the host's copy itself */
            vp_program *p = &plan->buckets[0].programs[1];
            for (int64_t i = p->n_steps[VP_PASS_BACKWARD] - 1; i >= 0; i--) {
                vp_step *b = &p->steps[VP_PASS_BACKWARD][i];
                for (int k = 0; k < vp_step_n_operands(b) && b->kernel != VP_K_COPY_START; k++)
                    if (b->args[k].space == VP_SPACE_BUFFER &&
                        strcmp(p->buffers[b->args[k].idx].name, "moved back") == 0)
                        b->args[k].idx = keep.args[1].idx;
            }
            break;
        }
        case 5:
            out->stream = VP_STREAM_TO_DEVICE;
            break;
        case 6: { /* it never went out */
            vp_program *p = &plan->buckets[0].programs[1];
            int64_t     n = 0;
            for (int64_t i = 0; i < p->n_steps[VP_PASS_FORWARD]; i++)
                if (p->steps[VP_PASS_FORWARD][i].kernel != VP_K_COPY_START &&
                    p->steps[VP_PASS_FORWARD][i].kernel != VP_K_COPY_DONE)
                    p->steps[VP_PASS_FORWARD][n++] = p->steps[VP_PASS_FORWARD][i];
            p->n_steps[VP_PASS_FORWARD] = n;
            break;
        }
        case 7: { /* what goes out is written once more while it does */
            vp_program *p = &plan->buckets[0].programs[1];
            int64_t     i = out - p->steps[VP_PASS_FORWARD], writer = -1;
            for (int64_t k = 0; k < i; k++)
                for (int a = 0; a < vp_step_n_operands(&p->steps[VP_PASS_FORWARD][k]); a++)
                    if (vp_step_operand_access(&p->steps[VP_PASS_FORWARD][k], a) == VP_WRITE &&
                        p->steps[VP_PASS_FORWARD][k].args[a].space == VP_SPACE_BUFFER &&
                        p->steps[VP_PASS_FORWARD][k].args[a].idx == keep.args[0].idx)
                        writer = k;
            assert_true(writer >= 0);
            insert_step(plan, p, VP_PASS_FORWARD, i + 1, p->steps[VP_PASS_FORWARD][writer]);
            break;
        }
        }
        refused(plan, words[wrong]);
        vp_plan_free(plan);
    }
    vp_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_copies_a_step_takes_the_sum_of_its_steps),
        cmocka_unit_test(copies_overlap_with_kernels_and_are_waited_for),
        cmocka_unit_test(copies_of_one_stream_come_one_after_the_other),
        cmocka_unit_test(kernels_lose_what_their_processors_copy),
        cmocka_unit_test(a_plan_with_a_wrong_event_is_refused),
        cmocka_unit_test(a_tensor_moved_out_and_back_trains_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
