/* One block, lowered: what is saved, what is recomputed, where things lie. Expected values are
 * worked by hand. */
#include "plan_test.h"

#include "tests/lowering/eager_gpt2.h"

#include "planner/lowering/lower.h"
#include "planner/lowering/pack.h"

enum { BLOCK = 1 };

static vp_lowered lower_block(vp_arena *arena, const vp_model *model, const vp_semantics *semantics,
                              int64_t batch, int64_t seq, uint64_t recompute, vp_dtype in_dtype)
{
    vp_lower_opts opts = {.symbols   = {batch, seq, 1, 1},
                          .recompute = recompute,
                          .in_dtype  = in_dtype,
                          .span_idx  = {1, 2}};
    vp_lowered    l    = {0};

    OK(vp_lower(arena, &model->graph, BLOCK, semantics, &opts, &l, err));
    return l;
}

static int64_t saved_bytes(const vp_lowered *l)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < l->n_saved; i++)
        sum += l->saved[i].bytes;
    return sum;
}

/* fp32, width h, MLP 4h, N tokens, a heads: x h, ln_1 h, qkv 3h, attention h, h h, ln_2 h, fc
 * 4h, act 4h = 16h floats; mean and rstd of two norms 4 floats; lse a floats. 4 * (16h + 4 + a)
 * bytes a token. */
static void vplan_keeps_16h_floats_a_token(void **state)
{
    vp_arena  *arena = vp_arena_new();
    vp_model  *model = tiny_model(&(tiny){.n_embd = 48, .n_layer = 2, .n_head = 3, .vocab = 50}, 0);
    vp_lowered l     = lower_block(arena, model, &vp_semantics_vplan_fp32, 2, 32, 0, VP_DTYPE_NONE);

    (void)state;
    assert_int_equal(saved_bytes(&l), 64 * 4 * (16 * 48 + 4 + 3));
    vp_arena_free(arena);
    vp_model_free(model);
}

static void full_recompute_keeps_the_input_only(void **state)
{
    vp_arena  *arena = vp_arena_new();
    vp_model  *model = tiny_model(&(tiny){.n_embd = 48, .n_layer = 2, .n_head = 3, .vocab = 50}, 0);
    vp_lowered l =
        lower_block(arena, model, &vp_semantics_vplan_fp32, 2, 32, UINT64_MAX, VP_DTYPE_NONE);

    (void)state;
    assert_int_equal(l.n_saved, 1);
    assert_string_equal(l.saved[0].name, "x");
    assert_int_equal(l.program.kept_bytes, 64 * 48 * 4);
    /* forward again but for the block's last projection and sum, whose result nobody needs */
    assert_int_equal(l.program.n_steps[VP_PASS_FORWARD], 8);
    assert_int_equal(l.program.n_steps[VP_PASS_BACKWARD], 12 + 7);
    vp_arena_free(arena);
    vp_model_free(model);
}

static int n_calls(const vp_lowered *l, vp_kernel kernel)
{
    int n = 0;

    for (int64_t i = 0; i < l->program.n_steps[VP_PASS_FORWARD]; i++)
        n += l->program.steps[VP_PASS_FORWARD][i].kernel == kernel;
    return n;
}

/* Of 10 ops two norms, two linears, attention and gelu stay, and two linears that add. With dropout
 * between them linears and additions are apart. */
static void a_residual_is_added_by_the_product_before_it(void **state)
{
    static const vp_kernel calls[] = {VP_K_LAYERNORM_FWD,  VP_K_LINEAR_FWD,    VP_K_ATTENTION_FWD,
                                      VP_K_LINEAR_ADD_FWD, VP_K_LAYERNORM_FWD, VP_K_LINEAR_FWD,
                                      VP_K_ACTIVATION_FWD, VP_K_LINEAR_ADD_FWD};
    vp_arena              *arena   = vp_arena_new();
    vp_model *model = tiny_model(&(tiny){.n_embd = 48, .n_layer = 2, .n_head = 3, .vocab = 50}, 0);
    vp_model *drops =
        tiny_model(&(tiny){.n_embd = 48, .n_layer = 2, .n_head = 3, .vocab = 50}, 0.1);
    vp_lowered     l = lower_block(arena, model, &vp_semantics_vplan_fp32, 2, 32, 0, VP_DTYPE_NONE);
    const vp_step *s = l.program.steps[VP_PASS_FORWARD];

    (void)state;
    assert_int_equal(l.program.n_steps[VP_PASS_FORWARD], 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(s[i].kernel, calls[i]);
    /* the block's input to the first; to the second what the first made, and the second norm read */
    assert_int_equal(s[3].args[VP_LINEAR_ADD_FWD_ADDED].idx, s[0].args[VP_LAYERNORM_FWD_X].idx);
    assert_int_equal(s[7].args[VP_LINEAR_ADD_FWD_ADDED].idx, s[3].args[VP_LINEAR_ADD_FWD_Y].idx);
    assert_int_equal(s[4].args[VP_LAYERNORM_FWD_X].idx, s[3].args[VP_LINEAR_ADD_FWD_Y].idx);
    l = lower_block(arena, drops, &vp_semantics_vplan_fp32, 2, 32, 0, VP_DTYPE_NONE);
    assert_int_equal(n_calls(&l, VP_K_ADD), 2);
    assert_int_equal(n_calls(&l, VP_K_LINEAR_ADD_FWD), 0);
    vp_arena_free(arena);
    vp_model_free(model);
    vp_model_free(drops);
}

/* Gemma 2 norms what its projections make before it is added. */
static void a_sum_of_what_is_no_product_is_an_addition(void **state)
{
    vp_arena *arena = vp_arena_new();
    vp_model *model = model_of(
        "{\"model_type\": \"gemma2\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"head_dim\": 16, \"intermediate_size\": 192, \"vocab_size\": 50}",
        0);
    vp_lowered l = lower_block(arena, model, &vp_semantics_vplan_fp32, 2, 32, 0, VP_DTYPE_NONE);

    (void)state;
    assert_int_equal(n_calls(&l, VP_K_ADD), 2);
    assert_int_equal(n_calls(&l, VP_K_LINEAR_ADD_FWD), 0);
    vp_arena_free(arena);
    vp_model_free(model);
}

/* Backward of 4 linears is 2 calls each, of 2 norms, activation and attention 1 each; additions
 * cost nothing. */
static void backward_without_recompute_is_twelve_calls(void **state)
{
    vp_arena  *arena = vp_arena_new();
    vp_model  *model = tiny_model(&(tiny){.n_embd = 48, .n_layer = 2, .n_head = 3, .vocab = 50}, 0);
    vp_lowered l     = lower_block(arena, model, &vp_semantics_vplan_fp32, 2, 32, 0, VP_DTYPE_NONE);

    (void)state;
    assert_int_equal(l.program.n_steps[VP_PASS_BACKWARD], 4 * 2 + 2 + 1 + 1);
    vp_arena_free(arena);
    vp_model_free(model);
}

/* Widths that are multiples of 16 floats: the packed height is the most bytes alive, in both
 * passes, for every set of recomputed ops. */
static void blocks_pack_without_a_gap(void **state)
{
    vp_model *gpt2  = tiny_model(&(tiny){.n_embd = 64, .n_layer = 2, .n_head = 4, .vocab = 50}, 0);
    vp_model *llama = model_of(
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"intermediate_size\": 192, \"vocab_size\": 50}",
        0);

    (void)state;
    for (uint64_t again = 0; again < 256; again++) {
        vp_arena  *arena = vp_arena_new();
        vp_lowered l =
            lower_block(arena, gpt2, &vp_semantics_vplan_fp32, 2, 64, again, VP_DTYPE_NONE);
        for (int pass = 0; pass < 2; pass++)
            assert_int_equal(vp_round_up(l.height_bytes[pass], VP_ALIGN_BYTES), l.live_bytes[pass]);
        vp_arena_free(arena);
    }
    for (uint64_t again = 0; again < 8192; again += 5) {
        vp_arena  *arena = vp_arena_new();
        vp_lowered l =
            lower_block(arena, llama, &vp_semantics_vplan_bf16, 2, 64, again, VP_DTYPE_NONE);
        for (int pass = 0; pass < 2; pass++)
            assert_int_equal(vp_round_up(l.height_bytes[pass], VP_ALIGN_BYTES), l.live_bytes[pass]);
        vp_arena_free(arena);
    }
    vp_model_free(gpt2);
    vp_model_free(llama);
}

static vp_model *dropout_from_config(int64_t h, int64_t heads)
{
    vp_json_doc *doc;
    vp_model    *model;
    char         text[300];

    snprintf(
        text, sizeof text,
        "{\"model_type\": \"gpt2\", \"n_embd\": %lld, \"n_layer\": 2, \"n_head\": %lld, \"vocab_size\": 60, \"n_positions\": 1024}",
        (long long)h, (long long)heads);
    OK(vp_json_parse("hf", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    OK(vp_model_from_config("hf", &root, &(vp_model_opts){.dropout_from_config = true}, &model,
                            err));
    vp_json_doc_free(doc);
    return model;
}

/* transformers' eager GPT-2 block in pure bf16, bytes a token (2 a value):
 *   inputs of two norms 2*2h, their outputs, inputs of c_attn and c_fc 2*2h          8h
 *   qkv 6h, attention output (also input of c_proj) 2h                                8h
 *   masks of two dropouts, one byte each                                              2h
 *   gelu_new over 4h values: x, tanh, 1 + tanh, 0.5 x: 4 * 8h, its result 8h         40h
 *   mean and rstd of two norms 16, lse of a heads 4a                             16 + 4a
 * together 58h + 16 + 4a. */
static void eager_bf16_saves_58h_a_token(void **state)
{
    vp_arena  *arena = vp_arena_new();
    vp_model  *model = dropout_from_config(48, 3);
    vp_lowered l = lower_block(arena, model, &vp_torch_eager_gpt2_bf16, 2, 32, 0, VP_DTYPE_BF16);

    (void)state;
    assert_int_equal(saved_bytes(&l), 64 * (58 * 48 + 16 + 4 * 3));
    assert_int_equal(l.out_dtype, VP_DTYPE_BF16);
    vp_arena_free(arena);
    vp_model_free(model);
}

/* Under autocast: inputs of two norms in fp32 2*4h, bf16 copies of their outputs 2*2h: 12h; qkv
 * 6h, attention 2h; masks 2h; gelu_new: pow's input cast to fp32 16h, tanh 16h, 1 + tanh 16h,
 * 0.5 x in bf16 8h, bf16 copy of the result 8h: 64h. 86h + 16 + 4a a token; and a bf16 copy of
 * every linear's weight: 2 * (3h*h + h*h + 4h*h + 4h*h) = 24 h*h. The residual stream stays
 * fp32. */
static void eager_autocast_saves_86h_a_token_and_the_weights_once_more(void **state)
{
    vp_arena  *arena = vp_arena_new();
    vp_model  *model = dropout_from_config(48, 3);
    vp_lowered l = lower_block(arena, model, &vp_torch_eager_gpt2_autocast, 2, 32, 0, VP_DTYPE_F32);

    (void)state;
    assert_int_equal(saved_bytes(&l), 64 * (86 * 48 + 16 + 4 * 3) + 24 * 48 * 48);
    assert_int_equal(l.out_dtype, VP_DTYPE_F32);
    vp_arena_free(arena);
    vp_model_free(model);
}

/* ---- packing ---- */

static void check_packing(const vp_pack_item *items, int64_t n, int64_t height)
{
    int64_t top = 0;

    for (int64_t i = 0; i < n; i++) {
        top = vp_max_i64(top, items[i].offset + items[i].bytes);
        for (int64_t k = 0; k < i; k++)
            assert_true(items[i].last < items[k].first || items[k].last < items[i].first ||
                        items[i].offset + items[i].bytes <= items[k].offset ||
                        items[k].offset + items[k].bytes <= items[i].offset);
    }
    assert_int_equal(top, height);
}

static void packed_buffers_never_overlap_and_reach_the_stated_height(void **state)
{
    rng r = {5};

    (void)state;
    for (int turn = 0; turn < 500; turn++) {
        vp_pack_item items[40];
        int64_t      n = 1 + pick(&r, 40), height, bound, floor_end = 0;
        for (int64_t i = 0; i < n; i++) {
            items[i]      = (vp_pack_item){.bytes = 1 + pick(&r, 500), .first = pick(&r, 30)};
            items[i].last = items[i].first + pick(&r, 12);
            if (i < 3) { /* a stack below, each with its own end */
                items[i].fixed  = true;
                items[i].offset = floor_end;
                floor_end += vp_round_up(items[i].bytes, 64);
            }
        }
        OK(vp_pack(items, n, 64, &height, err));
        check_packing(items, n, height);
        OK(vp_pack_bound(items, n, 64, &bound, err));
        assert_true(vp_round_up(height, 64) >= bound);
    }
}

/* What has no place below 2^63 is an error, where the end of what it lies above is beyond it too. */
static void what_does_not_fit_in_64_bits_is_refused(void **state)
{
    int n_refused = 0;

    (void)state;
    for (int64_t less = 1; less < 200; less++) {
        vp_pack_item items[] = {{.bytes = INT64_MAX - less, .first = 0, .last = 1},
                                {.bytes = 40, .first = 1, .last = 2}};
        vp_err       err     = {0};
        int64_t      height  = 0;
        vp_status    st      = vp_pack(items, 2, 64, &height, &err);
        if (st == VP_OK) {
            const vp_pack_item *lower = &items[items[0].offset > items[1].offset];
            const vp_pack_item *upper = &items[lower == &items[0]];
            assert_true(lower->offset + lower->bytes <= upper->offset);
            assert_true(upper->offset <= INT64_MAX - upper->bytes);
        } else {
            assert_int_equal(st, VP_ERR_INPUT);
            n_refused++;
        }
    }
    assert_in_range(n_refused, 1, 198);
}

/* The lowest height there is: some order puts each item as low as those before it allow (an
 * optimum, pushed down, is such a one). */
static int64_t lowest(vp_pack_item *items, int64_t n, bool *placed, int64_t height)
{
    int64_t best = INT64_MAX;
    bool    done = true;

    for (int64_t i = 0; i < n; i++) {
        if (placed[i])
            continue;
        int64_t offset = 0;
        for (int64_t k = 0; k < n; k++) /* pushed up by what it meets, from the beginning again */
            if (placed[k] && items[k].first <= items[i].last && items[i].first <= items[k].last &&
                items[k].offset < offset + items[i].bytes &&
                items[k].offset + items[k].bytes > offset) {
                offset = vp_round_up(items[k].offset + items[k].bytes, 64);
                k      = -1;
            }
        done            = false;
        placed[i]       = true;
        items[i].offset = offset;
        best =
            vp_min_i64(best, lowest(items, n, placed, vp_max_i64(height, offset + items[i].bytes)));
        placed[i] = false;
    }
    return done ? height : best;
}

static void no_packing_is_lower_than_the_stated_least(void **state)
{
    rng r     = {9};
    int n_met = 0, n_whole = 0;

    (void)state;
    for (int turn = 0; turn < 3000; turn++) {
        vp_pack_item items[9];
        bool         placed[9] = {false};
        int64_t n_fixed = pick(&r, 4), n = n_fixed + 1 + pick(&r, 5), unit = pick(&r, 2) ? 64 : 1,
                height, least, whole, end = 0, top = 0;
        for (int64_t i = 0; i < n; i++) {
            items[i]      = (vp_pack_item){.bytes = unit * (1 + pick(&r, unit == 1 ? 500 : 8)),
                                           .first = pick(&r, 8),
                                           .fixed = i < n_fixed};
            items[i].last = items[i].first + pick(&r, 5);
            if (!items[i].fixed)
                continue;
            items[i].offset = end + (pick(&r, 3) ? 0 : 64 * pick(&r, 4));
            end             = vp_round_up(items[i].offset + items[i].bytes, 64);
            top             = items[i].offset + items[i].bytes;
            placed[i]       = true;
        }
        OK(vp_pack_least(items, n, 64, &least, err));
        OK(vp_pack_least_whole(items, n, 64, &whole, err));
        OK(vp_pack(items, n, 64, &height, err));
        int64_t best = lowest(items, n, placed, top);
        if (least > best || best > height)
            fail_msg("turn %d: least %lld, lowest %lld, packed %lld", turn, (long long)least,
                     (long long)best, (long long)height);
        if (whole > vp_round_up(best, 64) || whole % 64)
            fail_msg("turn %d: %lld of whole items, lowest %lld", turn, (long long)whole,
                     (long long)best);
        n_met += least == best;
        n_whole += whole == vp_round_up(best, 64) && vp_round_up(least, 64) < whole;
    }
    assert_true(n_met > 2000); /* and they say something */
    assert_true(n_whole > 20);
}

/* Bytes 64 to 128 are taken in steps 3 to 5, bytes 192 to 256 in two steps before or behind. 128 bytes that are
 * alive in step 3 or 5 and beside the others find no room below, and reach to 384; those that end before step 3
 * or begin after step 5 lie at 0. */
static void what_is_born_where_another_ends_stands_beside_it(void **state)
{
    /* first, last; those of bytes 192 to 256; least */
    static const int64_t cases[][5] = {
        {0, 2, 0, 1, 256}, {0, 3, 0, 1, 384}, {5, 8, 7, 8, 384}, {6, 8, 7, 8, 256}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t *c       = cases[i];
        vp_pack_item   items[] = {
              {.bytes = 64, .first = 3, .last = 5, .fixed = true, .offset = 64},
              {.bytes = 64, .first = c[2], .last = c[3], .fixed = true, .offset = 192},
              {.bytes = 128, .first = c[0], .last = c[1]}};
        int64_t least;
        OK(vp_pack_least(items, 3, 64, &least, err));
        assert_int_equal(least, c[4]);
    }
}

/* The fold: an arena is as high as its fullest instance, kept bytes of those before it below. */
static void the_arena_is_the_fold_of_its_instances(void **state)
{
    rng r = {77};

    (void)state;
    for (int turn = 0; turn < 60; turn++) {
        int64_t     heads = 1 + pick(&r, 4);
        vp_model   *model = tiny_model(&(tiny){.n_embd  = heads * (4 + pick(&r, 9)),
                                               .n_layer = 1 + pick(&r, 6),
                                               .n_head  = heads,
                                               .vocab   = 20 + pick(&r, 99)},
                                       0);
        vp_scenario s     = {.recipe       = vp_recipe_default(),
                             .seq          = 5 + pick(&r, 60),
                             .global_batch = 2,
                             .micro_batch  = 1 + pick(&r, 2)};
        vp_plan    *plan  = random_plan(&r, model, s);
        vp_bucket  *b     = &plan->buckets[0];
        int64_t     base = b->instances[0].base_bytes[VP_MEMORY_DEVICE], peak = base;
        for (int64_t i = 0; i < b->n_instances; i++) {
            const vp_program *p = &b->programs[b->instances[i].program_idx];
            assert_int_equal(b->instances[i].base_bytes[VP_MEMORY_DEVICE], base);
            for (int64_t k = 0; k < p->n_buffers; k++)
                peak = vp_max_i64(peak, base + p->buffers[k].offset_bytes + p->buffers[k].bytes);
            base += p->kept_bytes;
        }
        assert_int_equal(peak, plan->peak_bytes);
        vp_plan_free(plan);
        vp_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vplan_keeps_16h_floats_a_token),
        cmocka_unit_test(full_recompute_keeps_the_input_only),
        cmocka_unit_test(a_residual_is_added_by_the_product_before_it),
        cmocka_unit_test(a_sum_of_what_is_no_product_is_an_addition),
        cmocka_unit_test(backward_without_recompute_is_twelve_calls),
        cmocka_unit_test(blocks_pack_without_a_gap),
        cmocka_unit_test(eager_bf16_saves_58h_a_token),
        cmocka_unit_test(eager_autocast_saves_86h_a_token_and_the_weights_once_more),
        cmocka_unit_test(no_packing_is_lower_than_the_stated_least),
        cmocka_unit_test(what_is_born_where_another_ends_stands_beside_it),
        cmocka_unit_test(packed_buffers_never_overlap_and_reach_the_stated_height),
        cmocka_unit_test(what_does_not_fit_in_64_bits_is_refused),
        cmocka_unit_test(the_arena_is_the_fold_of_its_instances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
