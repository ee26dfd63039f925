#include "trainers/hf/hf_world.h"

#include "base/checked.h"
#include "trainers/hf/hf_trained.h"

#include <string.h>

/* Trainer lets DDP look for weights that get no gradient, but of a whole model with checkpoints, which that would break
 * (transformers 5.17, trainer.py: find_unused). */
static bool finds_unused(const vp_hf_request *q)
{
    return !vp_hf_is_plain(q) &&
           (vp_hf_has_adapters(q) || strcmp(q->recompute ? q->recompute : "none", "none") == 0);
}

/* Then what the model returns is cloned (torch 2.11, distributed.py: _DDPSink): its logits, of which Accelerate has made a copy in
 * fp32 under autocast. TRL's and Liger's losses make none. Trainer's recorded step has let go of that copy, or of the logits
 * themselves, where its forward pass ends; a plain loop's that stands in has its logits still, and no copy, but of two stacks. */
static void add_output(const vp_hf_request *q, const vp_hf_found *found,
                       const vp_hf_estimate *estimate, vp_world_opts *out)
{
    const int64_t *at     = found->sizes.symbols.at;
    bool           writes = strcmp(estimate->task, "seq2seq") == 0;
    bool           has_logits =
        writes || strcmp(estimate->task, "clm") == 0 || strcmp(estimate->task, "mlm") == 0;
    bool    autocast = strstr(q->precision, "-mixed") || strstr(q->precision, "-amp");
    int64_t each     = autocast ? 4 : vp_hf_weight_bytes(q->precision);
    int64_t rows     = vp_mul(q->batch, writes ? at[VP_SYM_D] : estimate->seq);
    int64_t bytes    = vp_mul(vp_mul(rows, at[VP_SYM_V]), each);
    int64_t read     = vp_mul(q->batch, estimate->heard ? estimate->heard : estimate->seq);

    if (!out->finds_unused || !has_logits || vp_hf_is_trl(q) || vp_hf_has_liger(q))
        return;
    out->cast_bytes   = autocast || !found->plain || writes ? bytes : 0;
    out->clone_bytes  = bytes;
    out->states_bytes = writes ? vp_mul(vp_mul(read, at[VP_SYM_h]), each) : 0;
}

/* Of families whose layers are norms, attention and a gated product: what goes into q, k and v, into the gate and up, and down. The
 * input of o is attention's output, which is kept anyway; adapters of 16 bits keep the inputs of what they adapt. */
static void add_inputs(const vp_model *model, const vp_hf_request *q, const vp_hf_found *found,
                       vp_world_opts *out)
{
    static const char *const gated[]  = {"llama", "mistral", "qwen2",    "qwen3",
                                         "gemma", "granite", "ernie4_5", "smollm3"};
    const int64_t           *at       = found->sizes.symbols.at;
    const char              *targets  = q->lora.targets;
    bool                     halves   = vp_hf_halves_adapters(q);
    bool                     is_known = false, all = strcmp(targets, "all-linear") == 0;

    for (size_t i = 0; i < sizeof gated / sizeof *gated; i++)
        is_known |= strcmp(model->family, gated[i]) == 0;
    if (!is_known || strcmp(q->parallel, "zero3") != 0 || !vp_hf_has_lora(q))
        return;
    if (!halves || !(all || strstr(targets, "q_proj") || strstr(targets, "v_proj")))
        out->kept_bytes[0] = vp_mul(vp_mul(at[VP_SYM_N], at[VP_SYM_h]), out->weight_bytes);
    if (!halves || !(all || strstr(targets, "up_proj") || strstr(targets, "gate_proj")))
        out->kept_bytes[1] = vp_mul(vp_mul(at[VP_SYM_N], at[VP_SYM_h]), out->weight_bytes);
    if (!halves || !(all || strstr(targets, "down_proj")))
        out->kept_bytes[2] = vp_mul(vp_mul(at[VP_SYM_N], at[VP_SYM_f]), out->weight_bytes);
}

vp_world_opts vp_hf_world_opts(const vp_model *model, const vp_hf_request *q,
                               const vp_hf_found *found, const vp_hf_estimate *estimate)
{
    bool          adapted = vp_hf_has_adapters(q);
    vp_world_opts out     = {
            .parallel             = q->parallel,
            .offload              = q->offload ? q->offload : "none",
            .ranks                = q->world,
            .weight_bytes         = vp_hf_weight_bytes(vp_hf_computed_precision(q)),
            .master_bytes         = vp_hf_weight_bytes(vp_hf_meant_precision(q)),
            .adapter_bytes        = !adapted                   ? 0
                                    : vp_hf_halves_adapters(q) ? 2
                                                               : 4,
            .adapter_master_bytes = adapted ? vp_hf_kept_adapter_bytes(q) : 0,
            .adapter_rank         = q->lora.rank,
            .is_tied              = found->sizes.tied,
            .is_recomputed        = strcmp(q->recompute, "none") != 0,
            .is_reentrant         = adapted && vp_hf_is_reentrant(q), /* of whole models not known */
            .asks_for_head        = vp_hf_has_liger(q) || (vp_hf_is_trl(q) && !vp_hf_has_pairs(q)),
            .syncs_each           = q->syncs_each && vp_world_syncs_each(q->parallel, q->offload),
            .loads_in_parts       = !vp_hf_is_plain(q),
            .groups_vectors       = !vp_hf_is_plain(q),
            .finds_unused         = finds_unused(q) && vp_world_replicates(q->parallel),
            .device_bytes         = q->device_bytes,
    };

    add_output(q, found, estimate, &out);
    add_inputs(model, q, found, &out);
    return out;
}
