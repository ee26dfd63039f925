#include "trainers/hf/hf_attention.h"

#include "base/version.h"
#include "trainers/hf/hf_estimate.h"
#include "trainers/hf/hf_versions.h"

#include <string.h>

/* The release that steps are of where none is asked for. */
static const char RECORDED[] = "5.17";

/* Classes whose attention is eager, or flash-attn's, alone. */
static const struct {
    const char *family, *since, *until; /* releases of transformers; NULL: every one */
} without_sdpa[] = {
    {"bloom", NULL, NULL},      {"codegen", NULL, "5.24"}, {"convnext", NULL, NULL},
    {"deberta-v2", NULL, NULL}, {"gemma2", "5.21", NULL}, /* its scores are capped */
    {"gpt_neo", NULL, NULL},    {"gpt_oss", NULL, NULL},   {"gptj", NULL, "5.24"},
    {"mpnet", NULL, NULL},      {"mt5", NULL, "5.15"},     {"swin", NULL, "5.9"},
    {"t5", NULL, "5.15"},
};

bool vp_hf_lacks_sdpa(const char *family, const char *attention, const char *versions)
{
    const char *asked = vp_hf_asked_version(versions, "transformers");

    if (strncmp(attention, "sdpa", 4) != 0)
        return false;
    for (size_t i = 0; i < sizeof without_sdpa / sizeof *without_sdpa; i++)
        if (strcmp(without_sdpa[i].family, family) == 0)
            return vp_version_within(asked ? asked : RECORDED, without_sdpa[i].since,
                                     without_sdpa[i].until);
    return false;
}

vp_status vp_hf_check_attention(const char *family, const char *attention, const char *versions,
                                vp_err *err)
{
    const char *asked = vp_hf_asked_version(versions, "transformers");

    if (!vp_hf_lacks_sdpa(family, attention, versions))
        return VP_OK;
    asked = asked ? asked : RECORDED;
    return VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, VP_HF_REFUSED_BY_CARD "attention",
                      "attention %s: transformers %.*s has none for %s, and loading it so ends in "
                      "an error; eager runs",
                      attention, (int)strcspn(asked, ","), asked, family);
}
