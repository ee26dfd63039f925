/* A plan file: what is accepted is unrolled, itemised and written back the same; whether it is what its
 * own model makes is found, or refused. */
#include "fuzz.h"

#include "base/checked.h"
#include "plan/expand.h"
#include "planner/itemise.h"
#include "planner/remake.h"

static void follow(const vp_plan *plan)
{
    vp_err       err = {0};
    vp_json_doc *doc;
    vp_plan     *back;

    MUST(vp_plan_tokens(plan) > 0);
    for (int64_t i = 0; i < plan->n_buckets; i++) {
        const vp_bucket *b     = &plan->buckets[i];
        vp_arena        *arena = vp_arena_new();
        vp_expansion     x;
        vp_itemised      items;
        vp_range        *gaps;
        int64_t          n_gaps, sum = 0;
        MUST(arena);
        MUST_OK(vp_expansion_make(arena, plan, b, vp_min_i64(b->n_micro_steps, 3), &x, &err));
        MUST_OK(
            vp_expansion_padding(arena, &x, VP_MEMORY_DEVICE, b->peak_bytes, &gaps, &n_gaps, &err));
        MUST_OK(vp_itemise(arena, plan, b, &items, &err));
        for (int64_t k = 0; k < items.n_items; k++)
            sum += items.items[k].bytes;
        MUST(sum == items.peak_bytes);
        vp_arena_free(arena);
    }
    vp_text text = fuzz_text(vp_plan_to_json(plan));
    MUST_OK(vp_json_parse("written", text.data, (int64_t)text.n_bytes, &doc, &err));
    vp_json_node root = vp_json_root(doc);
    MUST_OK(vp_plan_from_json(&root, &back, &err));
    vp_text text_again = fuzz_text(vp_plan_to_json(back));
    MUST(strcmp(text.data, text_again.data) == 0);
    vp_text_release(&text);
    vp_text_release(&text_again);
    vp_plan_free(back);
    vp_json_doc_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vp_json_doc *doc  = fuzz_parse(data, size);
    vp_plan     *plan = NULL;
    vp_err       err  = {0};
    vp_status    st;

    if (!doc)
        return 0;
    vp_json_node root = vp_json_root(doc);
    st                = vp_plan_from_json(&root, &plan, &err);
    if (st == VP_OK) {
        fuzz_n_accepted++;
        follow(plan);
        st = vp_plan_check_remade(plan, &root, &err);
        if (st != VP_OK)
            fuzz_check_refusal(st, &err);
    } else {
        fuzz_check_refusal(st, &err);
    }
    vp_plan_free(plan);
    vp_json_doc_free(doc);
    return 0;
}
