#include "plan/digest.h"

#include "base/sha256.h"
#include "base/text.h"

#include <string.h>

static const char KEY[] = "digest";

static vp_status find(const json_t *plan, char digest[65], vp_err *err)
{
    json_t   *rest = json_object();
    vp_text   text = {0};
    vp_sha256 h    = vp_sha256_begin();
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, rest && json_object_update(rest, (json_t *)(uintptr_t)plan) == 0);
    json_object_del(rest, KEY);
    VP_TRY_ALLOC(err, vp_json_dump(rest, &text));
    vp_sha256_add(&h, text.data, text.n_bytes);
    vp_sha256_hex(&h, digest);
out:
    vp_text_release(&text);
    json_decref(rest);
    return st;
}

vp_status vp_plan_sign(json_t *plan, vp_err *err)
{
    char      digest[65];
    vp_status st = VP_OK;

    VP_TRY(find(plan, digest, err));
    VP_TRY_ALLOC(err, json_object_set_new(plan, KEY, json_string(digest)) == 0);
out:
    return st;
}

vp_status vp_plan_is_signed(const json_t *plan, bool *is_signed, vp_err *err)
{
    const char *said = json_string_value(json_object_get(plan, KEY));
    char        digest[65];
    vp_status   st = VP_OK;

    *is_signed = false;
    if (!said)
        return VP_OK;
    VP_TRY(find(plan, digest, err));
    *is_signed = strcmp(said, digest) == 0;
out:
    return st;
}
