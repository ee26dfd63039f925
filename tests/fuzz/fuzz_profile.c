/* A profile: what is read is written back the same; every measured call costs what was measured,
 * any other call a number or nothing. */
#include "fuzz.h"

#include "plan/profile.h"

#include <math.h>

static void follow(const vp_profile *profile)
{
    vp_profile  *back;
    vp_json_doc *doc;
    vp_err       err = {0};
    bool         measured;

    for (int64_t i = 0; i < profile->n_rows; i++) {
        const vp_profile_row *row               = &profile->rows[i];
        const vp_kernel_info *info              = vp_kernel_info_of(row->kernel);
        int64_t               ints[VP_MAX_INTS] = {0};
        MUST(vp_profile_seconds(profile, row->kernel, row->dtype, row->ints, row->lacks,
                                &measured) == row->seconds &&
             measured);
        for (int k = 0; k < info->n_ints; k++) /* another call that can be */
            ints[k] = info->ints[k].max < 3 ? row->ints[k] : row->ints[k] / 2 + 3;
        double s =
            vp_profile_seconds(profile, row->kernel, row->dtype, ints, row->lacks, &measured);
        MUST(isfinite(s) && s >= 0);
    }
    vp_text text = fuzz_text(vp_profile_to_json(profile));
    MUST_OK(vp_json_parse("written", text.data, (int64_t)text.n_bytes, &doc, &err));
    vp_json_node root = vp_json_root(doc);
    MUST_OK(vp_profile_from_json(&root, &back, &err));
    vp_text text_again = fuzz_text(vp_profile_to_json(back));
    MUST(strcmp(text.data, text_again.data) == 0);
    vp_text_release(&text);
    vp_text_release(&text_again);
    vp_profile_free(back);
    vp_json_doc_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vp_json_doc *doc     = fuzz_parse(data, size);
    vp_profile  *profile = NULL;
    vp_err       err     = {0};
    vp_status    st;

    if (!doc)
        return 0;
    vp_json_node root = vp_json_root(doc);
    st                = vp_profile_from_json(&root, &profile, &err);
    if (st == VP_OK) {
        fuzz_n_accepted++;
        follow(profile);
    } else {
        fuzz_check_refusal(st, &err);
    }
    vp_profile_free(profile);
    vp_json_doc_free(doc);
    return 0;
}
