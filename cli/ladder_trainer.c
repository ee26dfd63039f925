/* cli/ladder_trainer.c: the two techniques that vplan's own step has not, by the estimate of those
 * of transformers' Trainer: adapters on a frozen model, and cards that share what they hold. */
#include "cli/ladder.h"

#include "dryrun/dryrun_run.h"
#include "trainers/hf/hf_estimate.h"
#include "trainers/torch/world.h"

#include <assert.h>
#include <stdio.h>

enum { RANK = 16, CARDS = 8, LEAST_16_BIT = 80 /* compute capability with bf16 */ };

static void train_adapters(vp_hf_request *q)
{
    q->lora      = (vp_hf_lora){.targets = "all-linear", .rank = RANK};
    q->precision = q->capability < LEAST_16_BIT ? "fp16-amp" : "bf16-amp";
}

static void share_all(vp_hf_request *q)
{
    q->world    = CARDS;
    q->parallel = "zero3";
}

static const struct {
    const char *name, *option;
    void (*apply)(vp_hf_request *q);
} ways[] = {
    {"LoRA r=16", "--lora r=16,targets=all-linear", train_adapters},
    {"ZeRO-3, 8 cards", "--world 8 --parallel zero3", share_all},
};

/* micro_batch and recompute as given, all else as Trainer has it by itself. */
static vp_status figures_of(const vp_ladder_start *at, int way, int64_t micro_batch,
                            const char *recompute, vp_ladder_figures *out, vp_err *err)
{
    vp_hf_estimate e;
    vp_hf_request  q  = {.trainer         = "hf",
                         .attention       = "sdpa:flash",
                         .optimizer       = "adamw_torch_fused",
                         .recompute       = recompute,
                         .lora            = {.targets = "none"},
                         .load            = "none",
                         .parallel        = "none",
                         .offload         = "none",
                         .clips           = true,
                         .world           = 1,
                         .batch           = micro_batch,
                         .accumulation    = 1,
                         .seq             = at->scenario.seq,
                         .default_seq     = at->scenario.seq,
                         .capability      = at->has_device ? at->device.compute_capability : 90,
                         .processors      = at->has_device ? at->device.multiprocessors : 132,
                         .workspace_bytes = VP_HF_WORKSPACE_OF_CARD};
    vp_status      st = VP_OK;

    q.precision = q.capability < LEAST_16_BIT ? "fp16-mixed" : "bf16-mixed";
    ways[way].apply(&q);
    VP_TRY(vp_hf_estimate_run(at->model, &q, &e, err));
    *out = (vp_ladder_figures){e.allocated_bytes, e.reserved_bytes, -1};
    if (at->has_device)
        out->device_bytes += vp_dryrun_context_of(&at->device).bytes;
    if (at->has_device && q.world > 1)
        out->device_bytes += vp_world_communicator_bytes(q.world);
out:
    return st;
}

void vp_ladder_beside(vp_ladder *l)
{
    const vp_ladder_start *at = &l->start;

    l->n_beside = 0;
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++) {
        vp_rung *rung = &l->beside[l->n_beside];
        vp_err   none = {0}; /* not recorded for this family: no row */

        assert(l->n_beside < VP_MAX_BESIDE);
        *rung = (vp_rung){.name = ways[i].name, .option = ways[i].option};
        if (!(at->has_device && at->device.is_cpu) &&
            figures_of(at, i, at->scenario.micro_batch, "none", &rung->alone, &none) == VP_OK &&
            figures_of(at, i, 1, "full", &rung->cumulative, &none) == VP_OK)
            l->n_beside++;
    }
}
