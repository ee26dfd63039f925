#include "plan/digest.h"

#include "base/sha256.h"
#include "base/text.h"

#include <assert.h>
#include <stdio.h>
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

/* Whether the text is what vp_json_dump() writes of a plan with this digest behind all else. Then
 * nothing has to be written again to find it. */
static bool is_as_dumped(const vp_json_doc *doc, const char *said)
{
    int64_t     n_bytes;
    const char *text = vp_json_text(doc, &n_bytes);
    char        tail[96], digest[65];
    int64_t     n_tail = snprintf(tail, sizeof tail, ",\n  \"%s\": \"%.64s\"\n}\n", KEY, said);
    vp_sha256   h      = vp_sha256_begin();

    assert(n_tail < (int64_t)sizeof tail);
    if (n_bytes < n_tail || memcmp(text + n_bytes - n_tail, tail, (size_t)n_tail) != 0)
        return false;
    vp_sha256_add(&h, text, (size_t)(n_bytes - n_tail));
    vp_sha256_add(&h, "\n}\n", 3);
    vp_sha256_hex(&h, digest);
    return strcmp(said, digest) == 0;
}

vp_status vp_plan_is_signed(const vp_json_node *plan, bool *is_signed, vp_err *err)
{
    const char *said = json_string_value(json_object_get(plan->value, KEY));
    char        digest[65];
    vp_status   st = VP_OK;

    *is_signed = said && is_as_dumped(plan->doc, said);
    if (!said || *is_signed)
        return VP_OK;
    VP_TRY(find(plan->value, digest, err));
    *is_signed = strcmp(said, digest) == 0;
out:
    return st;
}
