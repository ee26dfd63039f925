/* Plans and calls as text in a study: what is written is read again, offload and number formats
 * included, and what is no plan of the model is refused. */
#include "base_test.h"
#include "plan_test.h"

#include "tuner/study.h"
#include "tuner/tune_internal.h"

static vp_plan_request request_of(const vp_model *model)
{
    return (vp_plan_request){
        .model = model, .recipe = vp_recipe_default(), .seq = 24, .global_batch = 4};
}

/* Any decisions that the words can say; whether a plan of them is good is not asked. */
static vp_scenario random_decisions(rng *r, const vp_plan_request *request)
{
    const vp_template *block =
        &request->model->graph.templates[vp_block_template(&request->model->graph)];
    uint64_t    ops = (UINT64_C(1) << block->n_ops) - 1;
    int64_t     n = request->model->graph.n_instances, left = n - 2;
    vp_scenario s     = {.recipe       = request->recipe,
                         .seq          = request->seq,
                         .global_batch = request->global_batch,
                         .micro_batch  = 1 + pick(r, request->global_batch),
                         .loss_chunk   = VP_TILE_TOKENS * pick(r, 3)};
    bool        moves = pick(r, 2);

    s.recipe.precision = (vp_precision)pick(r, n_precisions());
    if (vp_precision_takes(s.recipe.precision, VP_GRADIENTS_BF16))
        s.recipe.gradients = (vp_gradients)pick(r, VP_N_GRADIENTS);
    s.offload.states    = pick(r, 2) ? pick(r, n + 1) : 0;
    s.offload.host_step = s.offload.states > 0 && pick(r, 2) == 0;
    s.offload.blocks    = s.offload.states == n && vp_may_stream(&request->model->graph);
    while (moves && !s.offload.activations)
        s.offload.activations = ops & (uint64_t)pick(r, 1 << 30);
    s.offload.n_slots = moves ? 1 + (int)pick(r, VP_MAX_ACTIVATION_SLOTS) : 0;
    for (; left > 0; left -= s.runs[s.n_runs++].n_blocks)
        s.runs[s.n_runs] =
            (vp_block_run){.recompute = vp_recompute_set(request->model, VP_RECOMPUTE_FULL) &
                                        (uint64_t)pick(r, 1 << 30),
                           .n_blocks = 1 + pick(r, left),
                           .segment  = 1,
                           .offload  = s.offload.activations & (uint64_t)pick(r, 1 << 30)};
    return s;
}

static void decisions_are_read_as_they_were_written(void **state)
{
    rng       r         = {77};
    vp_arena *arena     = vp_arena_new();
    int       n_offload = 0;

    (void)state;
    for (int turn = 0; turn < 40 * N_FAMILIES; turn++) {
        char      config[1024];
        vp_model *model = model_of(random_config(&r, turn % N_FAMILIES, config, sizeof config), 0);
        vp_plan_request request = request_of(model);
        vp_scenario     s       = random_decisions(&r, &request), back, other;
        const char     *text    = vp_decisions_text(arena, model, &s);
        OK(vp_decisions_read(&request, text, &back, err));
        assert_true(vp_same_scenario(&s, &back));
        assert_string_equal(vp_decisions_text(arena, model, &back), text);
        other                = s; /* another offload is another plan */
        other.offload.states = s.offload.states ? 0 : 1;
        other.offload.blocks = false;
        assert_false(vp_same_scenario(&s, &other));
        assert_true(strcmp(vp_decisions_text(arena, model, &other), text) != 0);
        n_offload += vp_offload_kind_of(&s.offload) != VP_OFFLOAD_NONE;
        vp_model_free(model);
    }
    assert_true(n_offload > 10 * N_FAMILIES);
    vp_arena_free(arena);
}

/* Each differs in one place from the first, which is a plan. */
static void an_offload_that_the_model_cannot_have_is_refused(void **state)
{
    vp_model *model = tiny_model(&(tiny){.n_embd = 24, .n_layer = 2, .n_head = 3, .vocab = 61}, 0);
    vp_plan_request          request = request_of(model);
    static const char *const texts[] = {
        "{\"states\": 4, \"blocks\": true, \"slots\": 1, \"activations\": [\"attn.c_attn\"]}",
        "{\"states\": 3, \"blocks\": true, \"slots\": 1, \"activations\": [\"attn.c_attn\"]}",
        "{\"states\": 5, \"blocks\": true, \"slots\": 1, \"activations\": [\"attn.c_attn\"]}",
        "{\"states\": 4, \"blocks\": true, \"slots\": 0, \"activations\": [\"attn.c_attn\"]}",
        "{\"states\": 4, \"blocks\": true, \"slots\": 3, \"activations\": [\"attn.c_attn\"]}",
        "{\"states\": 4, \"blocks\": true, \"slots\": 1, \"activations\": []}",
        "{\"states\": 4, \"blocks\": true, \"slots\": 1, \"activations\": [\"mlp.act\"]}",
        "{\"states\": 4, \"blocks\": true, \"slots\": 1, \"activations\": [\"none\"]}",
        "{\"states\": 4, \"blocks\": 1, \"slots\": 1, \"activations\": [\"attn.c_attn\"]}"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char        text[512];
        vp_scenario s;
        vp_err      err = {0};
        snprintf(text, sizeof text,
                 "{\"micro_batch\": 2, \"loss_chunk_tokens\": 0, \"offload\": %s, \"blocks\": "
                 "[{\"n_blocks\": 2, \"segment\": 1, \"recompute\": [], \"offload\": "
                 "[\"attn.c_attn\"]}]}",
                 texts[i]);
        if (vp_decisions_read(&request, text, &s, &err) != (i ? VP_ERR_INPUT : VP_OK))
            fail_msg("%s: %s", text, err.message);
    }
    vp_model_free(model);
}

/* Without host memory nothing is offloaded, and a pin is kept to. */
static void an_offload_obeys_its_pins(void **state)
{
    vp_model *model = tiny_model(&(tiny){.n_embd = 24, .n_layer = 2, .n_head = 3, .vocab = 61}, 0);
    vp_plan_request request = request_of(model);
    vp_scenario     s       = {.recipe = request.recipe, .micro_batch = 1};

    (void)state;
    vp_device cpu;
    OK(vp_device_open("cpu", &cpu, err));
    request.device    = &cpu;
    request.recompute = VP_RECOMPUTE_ANY;
    request.offload   = VP_OFFLOAD_ANY;
    assert_true(vp_obeys_pins(&request, &s));
    s.offload.states = 4;
    assert_false(vp_obeys_pins(&request, &s));
    request.host_bytes = 1 << 20;
    assert_true(vp_obeys_pins(&request, &s));
    request.offload = VP_OFFLOAD_ACTIVATIONS;
    assert_false(vp_obeys_pins(&request, &s));
    request.offload = VP_OFFLOAD_OPTIMIZER;
    assert_true(vp_obeys_pins(&request, &s));
    vp_model_free(model);
}

static void calls_of_every_dtype_are_read_back(void **state)
{
    vp_err      err  = {0};
    const char *path = in_test_dir("dtypes.db");
    vp_study   *study;
    int64_t     profile_id;

    (void)state;
    CHECK_OK(vp_study_open(path, &study, &err));
    for (int d = 0; d < VP_N_DTYPES; d++) {
        vp_profile    *p   = vp_profile_new();
        vp_profile_row row = {.kernel   = VP_K_COPY,
                              .dtype    = (vp_dtype)d,
                              .elements = {.count = 70 + d},
                              .seconds  = 1 + d};
        strcpy(p->device, "cpu");
        strcpy(p->backend, "b");
        assert_true(vp_profile_add(p, &row));
        if (vp_dtype_is_of_calls(row.dtype))
            CHECK_OK(vp_study_add_profile(study, VP_PROFILE_MEASURED, p, "d", &profile_id, &err));
        vp_profile_free(p);
    }
    vp_profile *back = vp_profile_new();
    CHECK_OK(vp_study_measured(study, "cpu", "b", "d", back, &err));
    for (int d = 0; d < VP_N_DTYPES; d++) {
        bool    measured;
        int64_t ints[VP_MAX_INTS] = {70 + d};
        double  s = vp_profile_seconds(back, VP_K_COPY, (vp_dtype)d, ints, 0, &measured);
        assert_true(measured == vp_dtype_is_of_calls((vp_dtype)d) && (!measured || s == 1 + d));
    }
    vp_profile_free(back);
    vp_study_close(study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_are_read_as_they_were_written),
        cmocka_unit_test(an_offload_that_the_model_cannot_have_is_refused),
        cmocka_unit_test(an_offload_obeys_its_pins),
        cmocka_unit_test(calls_of_every_dtype_are_read_back),
    };
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
