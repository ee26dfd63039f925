/* A recipe file: what is read is written back the same, and its learning rates are numbers. */
#include "fuzz.h"

#include "plan/recipe.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vp_json_doc *doc    = fuzz_parse(data, size), *again;
    vp_recipe    recipe = vp_recipe_default(), back;
    vp_err       err    = {0};
    vp_status    st;

    if (!doc)
        return 0;
    vp_json_node root = vp_json_root(doc);
    st                = vp_recipe_from_json(&root, &recipe, &err);
    if (st == VP_OK) {
        fuzz_n_accepted++;
        vp_text text = fuzz_text(vp_recipe_to_json(&recipe));
        back         = vp_recipe_default();
        MUST_OK(vp_json_parse("written", text.data, (int64_t)text.n_bytes, &again, &err));
        root = vp_json_root(again);
        MUST_OK(vp_recipe_from_json(&root, &back, &err));
        vp_text text_again = fuzz_text(vp_recipe_to_json(&back));
        MUST(strcmp(text.data, text_again.data) == 0);
        for (int64_t step = 0; step < 4; step++)
            for (int64_t n = 1; n < 1000; n *= 7) {
                double lr = vp_recipe_lr(&recipe, step * step * step, n);
                MUST(isfinite(lr) && lr >= 0 && lr <= recipe.lr * 1.000001);
            }
        vp_text_release(&text);
        vp_text_release(&text_again);
        vp_json_doc_free(again);
    } else {
        fuzz_check_refusal(st, &err);
    }
    vp_json_doc_free(doc);
    return 0;
}
