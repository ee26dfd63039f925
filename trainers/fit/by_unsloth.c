#include "trainers/fit/by_unsloth.h"

#include "base/checked.h"
#include "base/units.h"
#include "trainers/hf/hf_request.h"

#include <string.h>

/* Checkpoints below this stay on the card (unsloth_zoo/gradient_checkpointing.py: MINIMUM_SIZE), and below so many tokens of a
 * sequence all do (unsloth/models/_utils.py: apply_unsloth_gradient_checkpointing). */
static const int64_t LEAST_CHECKPOINT_BYTES = 2 * VP_MIB, LEAST_SEQ = 512;

/* Of what goes to host memory two staging buffers are on the card, and the last block's checkpoint does not go. */
enum { STAGED = 2, NOT_MOVED = 1 };

/* Elements of adapters and of their gradients, which SFTTrainer halves over quantised weights and Unsloth does not. */
enum { HALVED_BYTES = 2 };

/* xformers' attention keeps no scores on any card, bf16 or fp16, as flash attention does where PyTorch has it; a batch is one row
 * without padding (unsloth/trainer.py: padding_free). Importing it sets expandable segments (unsloth_zoo/__init__.py). */
static vp_hf_request nearest_request(const vp_hf_request *asked)
{
    vp_hf_request q = *asked;

    q.trainer    = "trl";
    q.attention  = "sdpa:flash";
    q.capability = asked->capability < 80 ? 80 : asked->capability;
    q.prepare    = VP_HF_PREPARE_AS_TRAINER;
    q.offloads   = false;
    q.padded     = false;
    q.terse      = true;
    q.alloc_conf = "expandable_segments:True";
    if (strcmp(q.precision, "fp16-amp") == 0) /* as wide */
        q.precision = "bf16-amp";
    return q;
}

/* Bytes of checkpoints that are in host memory, less what is staged of them. */
static int64_t moved_bytes(const vp_model *model, const vp_hf_request *asked, int64_t seq)
{
    int64_t each = 2 * asked->batch * seq * model->graph.hidden;
    int64_t n    = model->graph.n_instances - 2 - NOT_MOVED - STAGED; /* table and head beside */

    if (!asked->offloads || each <= LEAST_CHECKPOINT_BYTES || seq < LEAST_SEQ || n < 0)
        return 0;
    return vp_mul(n, each);
}

static bool begins(const char *phase, const char *word)
{
    return strncmp(phase, word, strlen(word)) == 0;
}

/* What a phase has more, or less. */
static int64_t otherwise(const char *phase, int64_t adapters, int64_t moved)
{
    bool forward = begins(phase, "forward"), backward = begins(phase, "backward");

    return adapters + (backward || begins(phase, "step") ? adapters : 0) -
           (forward || backward ? moved : 0);
}

/* Holes are as many as before. */
static void amend(vp_hf_estimate *e, int64_t adapters, int64_t moved)
{
    int64_t holes = e->reserved_bytes - e->allocated_bytes;

    e->allocated_bytes = 0;
    for (int i = 0; i < e->n_phases; i++) {
        vp_ledger_phase *p = &e->phases[i];
        p->allocated_bytes += otherwise(p->name, adapters, moved);
        if (p->allocated_bytes > e->allocated_bytes) {
            e->allocated_bytes = p->allocated_bytes;
            e->peak            = i;
        }
    }
    e->reserved_bytes = e->allocated_bytes + holes;
}

/* Whole models were not held against runs. Without checkpoints Unsloth's kernels keep less than peft's (a run of Qwen3 0.6B took 30 %
 * less than SFTTrainer's), by how much depends on them. */
vp_status vp_fit_by_unsloth(const vp_model *model, const vp_hf_request *asked, vp_hf_estimate *out,
                            bool *found, vp_err *err)
{
    vp_hf_request q   = nearest_request(asked);
    vp_err        why = {0};
    int64_t       moved, adapters;
    vp_status     st;

    *found = false;
    *out   = (vp_hf_estimate){0};
    if (!vp_hf_has_lora(asked) || strcmp(asked->recompute, "full") != 0)
        return VP_OK;
    moved = moved_bytes(model, asked, asked->seq);
    if (q.at_most_bytes)
        q.at_most_bytes = vp_add(q.at_most_bytes, moved);
    st = vp_hf_estimate_run(model, &q, out, &why);
    if (st == VP_ERR_INPUT)
        return VP_OK;
    if (st != VP_OK) {
        *err = why;
        return st;
    }
    *found   = true;
    adapters = strcmp(q.load, "none") != 0 ? vp_mul(HALVED_BYTES, out->n_trained) : 0;
    amend(out, adapters, moved);
    return VP_OK;
}
