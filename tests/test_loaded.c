/* What was loaded once is given to the next step that loads the same: its answer is that of a step which loads by itself. */
#include "tests/base_test.h"

#include "base/file.h"
#include "models/model.h"
#include "trainers/hf/hf_estimate.h"
#include "trainers/hf/hf_shelf.h"

#include <string.h>
#include <unistd.h>

static const vp_hf_request usual = {.trainer         = "hf",
                                    .precision       = "bf16-amp",
                                    .attention       = "sdpa:flash",
                                    .optimizer       = "adamw_torch_fused",
                                    .recompute       = "full",
                                    .lora            = {.targets = "all-linear", .rank = 16},
                                    .load            = "none",
                                    .freeze          = "none",
                                    .parallel        = "none",
                                    .clips           = true,
                                    .batch           = 1,
                                    .accumulation    = 2,
                                    .seq             = 512,
                                    .capability      = 90,
                                    .processors      = 132,
                                    .workspace_bytes = VP_HF_WORKSPACE_OF_CARD};

/* Recordings lie beside the program, which is a folder above this one. */
static int find_recordings(void **state)
{
    char   folder[4096], link[4200];
    vp_err err = {0};
    (void)state;

    CHECK_OK(vp_file_own_folder(folder, sizeof folder, &err));
    snprintf(link, sizeof link, "%srecordings", folder);
    return symlink("../recordings", link) == 0 || access(link, R_OK) == 0 ? 0 : -1;
}

static vp_status check_same(const vp_model *model, const vp_hf_request *asked, vp_hf_shelf *shelf)
{
    vp_hf_request  with = *asked;
    vp_hf_estimate own = {0}, given = {0};
    vp_err         whys[2] = {{0}};
    vp_status      st[2];

    st[0]      = vp_hf_estimate_run(model, asked, &own, &whys[0]);
    with.shelf = shelf;
    st[1]      = vp_hf_estimate_run(model, &with, &given, &whys[1]);
    assert_int_equal(st[0], st[1]);
    assert_string_equal(whys[0].message, whys[1].message);
    assert_int_equal(own.n_phases, given.n_phases);
    for (int i = 0; i < own.n_phases; i++) {
        const vp_ledger_phase *a = &own.phases[i], *b = &given.phases[i];
        assert_string_equal(a->name, b->name);
        assert_true(a->allocated_bytes == b->allocated_bytes &&
                    a->reserved_bytes == b->reserved_bytes && a->end_bytes == b->end_bytes &&
                    a->end_reserved_bytes == b->end_reserved_bytes);
        assert_memory_equal(a->owners, b->owners, sizeof a->owners);
    }
    assert_true(own.n_params == given.n_params && own.n_trained == given.n_trained);
    assert_true(own.pinned_bytes == given.pinned_bytes && own.host_bytes == given.host_bytes);
    assert_int_equal(own.is_too_large_at_rest, given.is_too_large_at_rest);
    assert_int_equal(own.is_needed_too_large, given.is_needed_too_large);
    return st[0];
}

/* Every way of sharing, weights whole and packed, batches and what is recomputed, the allocator's settings and limits: one shelf. */
static void steps_of_a_shelf_are_those_of_none(void **state)
{
    static const char *const ways[]  = {"none", "ddp", "fsdp", "fsdp2", "zero2", "zero3"};
    static const char *const loads[] = {"none", "nf4-dq"}, *const again[] = {"none", "full"};
    static const char *const models[] = {"llama-3.2-1b", "qwen2.5-0.5b"};
    const int64_t            limits[] = {0, 1 << 30, (int64_t)2 << 30, (int64_t)6 << 30};
    vp_hf_shelf             *shelf    = vp_hf_shelf_new();
    int                      n_fit = 0, n_too_large = 0;
    (void)state;

    for (int m = 0; m < 2; m++) {
        vp_model_opts opts  = {.dropout_from_config = true};
        vp_model     *model = NULL;
        vp_err        err   = {0};
        CHECK_OK(vp_model_open(models[m], &opts, &model, &err));
        for (int i = 0; i < 6 * 2 * 2 * 2 * 4; i++) {
            vp_hf_request q = usual;
            q.parallel      = ways[i % 6];
            q.world         = i % 6 ? 2 + 2 * m : 1;
            q.load          = loads[i / 6 % 2];
            q.recompute     = again[i / 12 % 2];
            q.batch         = 1 + i / 24 % 2;
            q.alloc_conf    = i % 5 == 0 ? "expandable_segments:True" : NULL;
            q.at_most_bytes = limits[i / 48];
            if (i % 7 == 0)
                q.lora.targets = "none";
            if (i % 7 == 0 || strncmp(q.parallel, "zero", 4) == 0)
                q.precision = "bf16-mixed";
            vp_status st = check_same(model, &q, shelf);
            n_fit += st == VP_OK;
            n_too_large += st == VP_ERR_NO_FIT;
        }
        vp_model_free(model);
    }
    print_message("%d fit, %d are too large\n", n_fit, n_too_large);
    assert_true(n_fit > 100 && n_too_large > 100); /* the others were not recorded */
    vp_hf_shelf_free(shelf);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_a_shelf_are_those_of_none),
    };
    return cmocka_run_group_tests(tests, find_recordings, NULL);
}
