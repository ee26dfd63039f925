#include "trainers/hf/hf_cudnn.h"

#include "base/checked.h"
#include "trainers/hf/hf_request.h"

#include <string.h>

bool vp_hf_prefers_cudnn(int capability)
{
    return capability / 10 == 9 || capability / 10 == 10;
}

/* It is the next product's input, which stays where that is trained, and as it is: fp32 adapters are given one of their format. */
static bool keeps_input(const vp_hf_request *q)
{
    return !vp_hf_has_adapters(q) ||
           (vp_hf_trains_halves(q) && strcmp(q->lora.targets, "all-linear") == 0);
}

bool vp_hf_copies_attention(const vp_model *model, const vp_hf_request *q, const char *attention,
                            bool has_mask)
{
    /* transformers 5.17, modeling_*.py: apply_rotary_pos_emb() or its caller ends in torch.cat() */
    static const char *const cats[] = {"gpt_neox", "phi", "phi3", "stablelm", "glm4"};

    if (!q->prefers_cudnn || !has_mask || strcmp(attention, "sdpa:flash") != 0 || q->versions ||
        strcmp(vp_hf_computed_precision(q), "fp32") == 0 || !keeps_input(q) || vp_hf_freezes(q) ||
        (strcmp(q->recompute, "none") != 0 && strcmp(q->recompute, "full") != 0))
        return false;
    for (size_t i = 0; i < sizeof cats / sizeof *cats; i++)
        if (strcmp(model->family, cats[i]) == 0)
            return true;
    return false;
}

int64_t vp_hf_copy_bytes(const vp_symbols *symbols)
{
    const int64_t *at = symbols->at;

    return vp_mul(vp_mul(2, vp_mul(at[VP_SYM_B], at[VP_SYM_S])),
                  vp_mul(at[VP_SYM_a], at[VP_SYM_d]));
}
