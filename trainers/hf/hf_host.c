#include "trainers/hf/hf_host.h"

#include "base/checked.h"
#include "trainers/hf/hf_find.h"
#include "trainers/hf/hf_request.h"
#include "trainers/hf/hf_trained.h"

#include <string.h>

/* save_pretrained()'s max_shard_size: all tensors of a file are copied to the host before the first is written
 * (safetensors/torch.py, save_file). */
static const int64_t SHARD_BYTES = 50LL * 1000 * 1000 * 1000;

bool vp_hf_knows_checkpoints(const vp_hf_request *q)
{
    return !vp_hf_is_plain(q) && (!vp_hf_is_shared(q) || vp_world_replicates(q->parallel));
}

const char *vp_hf_stored_format(const vp_model *model)
{
    const char *dtype = json_string_value(json_object_get(model->config, "dtype"));

    return dtype ? dtype : json_string_value(json_object_get(model->config, "torch_dtype"));
}

/* Weights in the format of their file are read from its pages as they come to the card; others are cast first, all of
 * them on the host. Quantised ones come to the card one by one. */
static int64_t loading(const vp_model *model, const vp_hf_request *q, int64_t weights)
{
    const char *stored  = vp_hf_stored_format(model);
    const char *element = vp_hf_weight_bytes(vp_hf_computed_precision(q)) == 4 ? "float32"
                          : strncmp(q->precision, "fp16", 4) == 0              ? "float16"
                                                                               : "bfloat16";

    if (vp_hf_is_quantised(q) || (stored && strcmp(stored, element) == 0))
        return 0;
    return weights;
}

vp_hf_host vp_hf_host_of(const vp_model *model, const vp_hf_request *q, const vp_recorded *step,
                         const vp_optimizer_step *optimizer)
{
    bool           adapted = vp_hf_has_adapters(q);
    int64_t        n, trained = 0, weights;
    const int64_t *list = vp_recorded_parameters(step, &n);

    for (int64_t i = 0; i < n; i++)
        trained = vp_add(trained, list[i]);
    weights = adapted ? 0 : trained;
    if (!vp_hf_has_reference(q)) /* whose weights the frozen ones are */
        weights = vp_add(weights, vp_recorded_frozen_bytes(step));
    trained = vp_add(trained, vp_recorded_idle_bytes(step));
    return (vp_hf_host){.is_known     = true,
                        .load_bytes   = loading(model, q, weights),
                        .save_bytes   = vp_min_i64(adapted ? trained : weights, SHARD_BYTES),
                        .resume_bytes = vp_optimizer_step_resume_bytes(optimizer)};
}

/* Its groups have states by the parameters themselves, and those that were read are not the model's. */
void vp_hf_host_assume(const vp_hf_request *q, vp_hf_estimate *out)
{
    if (strcmp(q->optimizer, "grokadamw") == 0)
        vp_hf_assume(out, "grokadamw 0.1.2: a run that goes on from a checkpoint reads its states, "
                          "finds none of them, begins new ones and keeps both");
}
