/* tests/test_plan_check.c: parts of the plan's checker by themselves, against plain second ones. */
#include "tests/base_test.h"
#include "tests/plan_test.h"

#include "base/arena.h"
#include "plan/plan_internal.h"

enum { MAX_BUFFERS = 40, N_STEPS = 30, N_ROUNDS = 4000 };

static uint32_t seed = 1;

static int64_t draw(int64_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)(((uint64_t)(seed >> 8) * (uint64_t)n) >> 24);
}

/* Sparse rounds fit and crowded ones do not; neighbours touch, overlap by 4 bytes or by all. */
static int draw_buffers(vp_expanded_buffer *buffers, int64_t *first, int64_t *last)
{
    int     n    = 1 + (int)draw(MAX_BUFFERS);
    int64_t room = draw(2) ? 100 : 4000;

    for (int i = 0; i < n; i++) {
        buffers[i] =
            (vp_expanded_buffer){.memory       = draw(4) ? VP_MEMORY_DEVICE : VP_MEMORY_HOST_PINNED,
                                 .offset_bytes = 4 * draw(room),
                                 .bytes        = 4 * (1 + draw(20))};
        snprintf(buffers[i].name, sizeof buffers[i].name, "b%d", i);
        first[i] = draw(10) ? draw(N_STEPS) : -1;
        last[i]  = first[i] < 0 ? -1 : first[i] + draw(N_STEPS - first[i]);
    }
    return n;
}

static bool two_overlap(const vp_expansion *x)
{
    for (int64_t i = 0; i < x->n_buffers; i++)
        for (int64_t j = 0; j < i; j++) {
            const vp_expanded_buffer *a = &x->buffers[i], *b = &x->buffers[j];
            if (x->first_step[i] >= 0 && x->first_step[j] >= 0 && a->memory == b->memory &&
                x->first_step[i] <= x->last_step[j] && x->first_step[j] <= x->last_step[i] &&
                a->offset_bytes < b->offset_bytes + b->bytes &&
                b->offset_bytes < a->offset_bytes + a->bytes)
                return true;
        }
    return false;
}

static void overlaps_are_found_as_by_looking_at_every_pair(void **state)
{
    static vp_expanded_buffer buffers[MAX_BUFFERS];
    int64_t                   first[MAX_BUFFERS], last[MAX_BUFFERS];
    int                       n_fine = 0, n_refused = 0;

    (void)state;
    for (int round = 0; round < N_ROUNDS; round++) {
        vp_expansion x     = {.buffers = buffers, .n_steps = N_STEPS};
        vp_arena    *arena = vp_arena_new();
        vp_err       err   = {0};
        int64_t      peak[VP_N_MEMORIES], want[VP_N_MEMORIES] = {0};

        assert_non_null(arena);
        x.n_buffers  = draw_buffers(buffers, first, last);
        x.first_step = first;
        x.last_step  = last;
        bool found   = vp_plan_check_overlap(arena, &x, "plan", peak, &err) != VP_OK;
        if (found != two_overlap(&x))
            fail_msg("round %d: %s", round, found ? err.message : "an overlap is not seen");
        n_refused += found;
        for (int64_t i = 0; i < x.n_buffers && !found; i++)
            if (first[i] >= 0 &&
                buffers[i].offset_bytes + buffers[i].bytes > want[buffers[i].memory])
                want[buffers[i].memory] = buffers[i].offset_bytes + buffers[i].bytes;
        for (int m = 0; m < VP_N_MEMORIES && !found; m++)
            assert_int_equal(peak[m], want[m]);
        n_fine += !found;
        vp_arena_free(arena);
    }
    assert_true(n_fine > 500 && n_refused > 500);
}

static void a_step_has_a_first_and_a_last_micro_step_and_what_is_between(void **state)
{
    /* micro-steps, then how often first, middle and last run */
    static const int64_t cases[][4] = {{1, 1, 0, 0}, {2, 1, 0, 1}, {3, 1, 1, 1}, {8, 1, 6, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vp_phases p = vp_bucket_phases(&(vp_bucket){.n_micro_steps = cases[i][0]});
        assert_int_equal(p.first, cases[i][1]);
        assert_int_equal(p.middle, cases[i][2]);
        assert_int_equal(p.last, cases[i][3]);
    }
}

/* Tokens of five micro-steps, the last of one sample in place of three. */
static void a_batch_has_its_bytes_in_every_micro_step(void **state)
{
    vp_plan_fixed tokens = {.component      = VP_COMP_BATCH_INPUT,
                            .bytes          = 3 * 40,
                            .per_micro_step = true},
                  angles = {.component = VP_COMP_CONSTANTS, .bytes = 800};
    vp_bucket b          = {.n_micro_steps = 5, .micro_batch = 3, .last_micro_batch = 1};

    (void)state;
    assert_int_equal(vp_plan_fixed_total_bytes(&b, &tokens), 4 * 120 + 40);
    assert_int_equal(vp_plan_fixed_total_bytes(&b, &angles), 800);
}

/* The head in two chunks of 256 tokens: of what the second writes of a tensor, in the first's place,
 * nothing is there when the whole of it is read. */
static void a_chunk_that_nobody_writes_is_not_read(void **state)
{
    vp_model *model =
        tiny_model(&(tiny){.n_embd = 24, .n_layer = 1, .n_head = 3, .vocab = 61}, 0.0);
    vp_plan   *plan = plan_of(model,
                              (vp_scenario){.seq          = 256,
                                            .global_batch = 2,
                                            .micro_batch  = 2,
                                            .loss_chunk   = 256,
                                            .recipe       = vp_recipe_default()},
                              VP_RECOMPUTE_NONE);
    vp_bucket *b    = &plan->buckets[0];
    vp_err     why  = {0};
    int        n    = 0;

    (void)state;
    OK(vp_plan_check(plan, "plan", err));
    for (int64_t p = 0; p < b->n_programs; p++)
        for (int pass = 0; pass < VP_N_PASSES; pass++)
            for (int64_t i = 0; i < b->programs[p].n_steps[pass]; i++)
                for (int k = 0; k < vp_step_n_operands(&b->programs[p].steps[pass][i]); k++) {
                    vp_step *s    = &b->programs[p].steps[pass][i];
                    int64_t  keep = s->args[k].offset_bytes;
                    if (keep == 0 || s->args[k].space != VP_SPACE_BUFFER ||
                        vp_step_operand_access(s, k) == VP_READ)
                        continue;
                    n++;
                    why                     = (vp_err){0};
                    s->args[k].offset_bytes = 0;
                    assert_int_equal(vp_plan_check(plan, "plan", &why), VP_ERR_INPUT);
                    assert_non_null(strstr(why.message, "before anything wrote it"));
                    s->args[k].offset_bytes = keep;
                }
    assert_true(n > 0);
    vp_plan_free(plan);
    vp_model_free(model);
}

/* Kernels are given whole vectors of what lies there; a byte less was a store that no processor promises. */
static void regions_and_blocks_begin_at_whole_vectors(void **state)
{
    vp_model *model =
        tiny_model(&(tiny){.n_embd = 24, .n_layer = 1, .n_head = 3, .vocab = 61}, 0.0);
    vp_plan *plan =
        plan_of(model,
                (vp_scenario){
                    .seq = 32, .global_batch = 2, .micro_batch = 2, .recipe = vp_recipe_default()},
                VP_RECOMPUTE_NONE);
    vp_bucket *b = &plan->buckets[0];

    (void)state;
    OK(vp_plan_check(plan, "plan", err));
    for (int64_t i = 0; i < b->n_instances; i++)
        for (int h = 0; h < VP_N_REGIONS; h++)
            for (int64_t off = 1; off <= 32; off *= 2) {
                vp_err why = {0};
                b->instances[i].region_base_bytes[h] += off;
                assert_int_equal(vp_plan_check(plan, "plan", &why), VP_ERR_INPUT);
                assert_non_null(strstr(why.message, "multiple of 64 bytes"));
                b->instances[i].region_base_bytes[h] -= off;
            }
    OK(vp_plan_check(plan, "plan", err));
    vp_plan_free(plan);
    vp_model_free(model);
}

/* Blocks that differ in what they recompute have one list of updates: in the file it stands once, and each
 * program that is read has its own steps again. */
static void a_list_that_programs_share_is_read_as_each_ones(void **state)
{
    vp_model *model =
        tiny_model(&(tiny){.n_embd = 24, .n_layer = 3, .n_head = 3, .vocab = 61}, 0.0);
    vp_scenario s = {
        .seq = 32, .global_batch = 2, .micro_batch = 1, .recipe = vp_recipe_default(), .n_runs = 3};
    for (int i = 0; i < 3; i++)
        s.runs[i] = (vp_block_run){vp_recompute_set(model, (vp_recompute)i), 1, 1, 0};
    vp_plan      *plan = plan_with(model, s, 0), *again;
    json_t       *json = vp_plan_to_json(plan);
    char         *text = json ? json_dumps(json, 0) : NULL;
    const json_t *list =
        json_object_get(json_array_get(json_object_get(json, "buckets"), 0), "programs");
    vp_json_doc *doc;

    (void)state;
    assert_non_null(text);
    assert_int_equal(json_array_size(list), 5); /* embedding, three kinds of block, head */
    assert_true(json_is_array(json_object_get(json_array_get(list, 1), "update")));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 2), "update")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 3), "update")), 1);
    assert_true(json_is_array(json_object_get(json_array_get(list, 4), "update")));
    OK(vp_json_parse("plan", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    OK(vp_plan_from_json(&root, &again, err));
    same_steps(plan, again);
    vp_plan_free(again);
    vp_json_doc_free(doc);
    json_decref(json);
    free(text);
    vp_plan_free(plan);
    vp_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlaps_are_found_as_by_looking_at_every_pair),
        cmocka_unit_test(a_step_has_a_first_and_a_last_micro_step_and_what_is_between),
        cmocka_unit_test(a_chunk_that_nobody_writes_is_not_read),
        cmocka_unit_test(a_list_that_programs_share_is_read_as_each_ones),
        cmocka_unit_test(regions_and_blocks_begin_at_whole_vectors),
        cmocka_unit_test(a_batch_has_its_bytes_in_every_micro_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
