#include "cli/check_unsaid.h"

#include "trainers/hf/hf_adapters.h"
#include "trainers/hf/hf_attention.h"
#include "trainers/hf/hf_sizes.h"
#include "trainers/hf/hf_versions.h"

#include <string.h>
#include <strings.h>

/* The format of the model's weights, as its config.json has it, or the published one of a built-in model's; NULL: not known. */
static const char *published_format(const vp_checked *c, const vp_check_fit_options *o,
                                    const vp_model *model)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    const char              *named  = o->named ? o->named : vp_checked_model(c);
    const vp_zoo_entry      *entry  = vp_zoo_find(o->model);

    for (int i = 0; i < 4; i++) {
        const json_t *v =
            i < 2 ? vp_model_field(model, keys[i]) : vp_model_text_field(model, keys[i - 2]);
        if (json_is_string(v))
            return json_string_value(v);
    }
    bool is_same = !named || !strchr(named, '/') ||
                   (entry && entry->hub_id && strcasecmp(entry->hub_id, named) == 0);
    return entry ? vp_zoo_dtype(o->model, !is_same) : NULL;
}

/* Transformers takes sdpa where its class has it. */
static void take_attention(vp_checked *c, const vp_model *model)
{
    if (c->settings.value[VP_SETTING_ATTENTION] || c->unread[VP_SETTING_ATTENTION] ||
        !vp_hf_lacks_sdpa(model->family, "sdpa", vp_hf_versions_of(c->arena, c->versions)))
        return;
    c->settings.value[VP_SETTING_ATTENTION] = "eager";
    c->by_default[VP_SETTING_ATTENTION]     = true;
}

vp_status vp_check_take_unsaid(vp_checked *c, const vp_check_fit_options *o, const vp_model *model,
                               vp_err *err)
{
    char      targets[256];
    vp_err    none = {0};
    vp_status st   = VP_OK;

    vp_check_published(c, published_format(c, o, model));
    const char *family = vp_hf_recorded_family(model);
    if (vp_hf_lora_targets(family, NULL, targets, sizeof targets, &none) == VP_OK)
        vp_check_adapted(c, family, targets);
    take_attention(c, model);
    VP_TRY(vp_check_targets(c, family, vp_hf_lora_lacks, err));
    VP_TRY(vp_check_order(c, err));
out:
    return st;
}
