/* trainers/files/judge_storage.c: in which format packed weights are stored that FSDP shall cut: bnb_4bit_quant_storage. FSDP1 joins
 * weights of one format alone; both of them cast what they gather to the format they compute in (torch/distributed/fsdp of 2.11), which
 * makes other numbers of packed bits. */
#include "trainers/files/check_internal.h"

#include <stdio.h>
#include <string.h>

/* Where a file says that weights are packed, and as what. */
static const struct {
    const vp_dialect *dialect;
    const char       *packs, *storage;
} packings[] = {
    {&vp_dialect_trl, "load_in_4bit", "bnb_4bit_quant_storage"},
    {&vp_dialect_model, "quantization_config.load_in_4bit",
     "quantization_config.bnb_4bit_quant_storage"},
    {&vp_dialect_swift, "quant_bits", "bnb_4bit_quant_storage"},
};

/* NULL: not known. */
static const char *computed_in(const char *precision)
{
    if (!precision)
        return NULL;
    return strncmp(precision, "bf16", 4) == 0   ? "bfloat16"
           : strncmp(precision, "fp16", 4) == 0 ? "float16"
                                                : "float32";
}

/* fp32 weights in autocast: packed ones have the format of the autocast. */
static bool is_of_two_formats(const vp_checked *c)
{
    const char *precision = c->settings.value[VP_SETTING_PRECISION],
               *way       = c->settings.value[VP_SETTING_PARALLEL];

    return precision && strstr(precision, "-mixed") && !c->may_be[VP_SETTING_PRECISION] &&
           strcmp(way, "fsdp") == 0 && !c->may_be[VP_SETTING_PARALLEL];
}

static void judge(vp_checked *c, vp_checked_file *file, const char *packs, const char *key)
{
    const vp_value *packed = vp_value_at(file->doc->root, packs);
    const vp_value *stored = vp_value_at(file->doc->root, key);
    const char     *type = computed_in(c->settings.value[VP_SETTING_PRECISION]), *said = "uint8";
    char            instead[64];

    if (!packed || (stored && vp_value_is_unknown(file, stored, false)))
        return;
    if (stored && stored->kind == VP_VALUE_STRING)
        said = strrchr(stored->text, '.') ? strrchr(stored->text, '.') + 1 : stored->text;
    snprintf(instead, sizeof instead, "bnb_4bit_quant_storage: %s", type ? type : "bfloat16");
    if (is_of_two_formats(c))
        vp_find(c, file, VP_ERROR, packed, packs, "weights in bfloat16, or fsdp_version: 2",
                "FSDP1 joins weights of one format alone: packed ones and float32 are two");
    else if (strstr(said, "int8"))
        vp_find(c, file, VP_WARNING, packed, packs, instead,
                "packed weights are uint8 unless bnb_4bit_quant_storage says else: FSDP2 "
                "leaves them whole on each card, FSDP1 cannot join them with the others");
    else if (type && strcmp(said, type) != 0)
        vp_find(c, file, VP_ERROR, stored, key, type,
                "FSDP casts what it gathers to %s, packed weights too: what was packed is lost",
                type);
}

void vp_judge_storage(vp_checked *c)
{
    const char *tuning = c->settings.value[VP_SETTING_TUNING],
               *way    = c->settings.value[VP_SETTING_PARALLEL];

    if (!tuning || !way || strcmp(tuning, "qlora") != 0 || strncmp(way, "fsdp", 4) != 0)
        return;
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
        for (int f = 0; f < c->n_files; f++)
            if (c->files[f].doc && vp_dialect_is_based_on(c->files[f].dialect, packings[i].dialect))
                judge(c, &c->files[f], packings[i].packs, packings[i].storage);
}
