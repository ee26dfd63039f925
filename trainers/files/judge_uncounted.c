/* trainers/files/judge_uncounted.c: what files ask for and no estimate counts. Each is a note at its line, and fit is not answered,
 * for the answer would be another training's. */
#include "trainers/files/check_internal.h"

#include <stdio.h>
#include <string.h>

#define CUT      "cuts the layers themselves among the cards"
#define SEQUENCE "cuts the sequence among the cards"
#define EIGHT    "holds the frozen weights in 8 bits"
#define PROJECTS "keeps other states than the optimizer that is named"

static const struct {
    const char *dialect, *key, *is, *what; /* is as in vp_rule */
    const char *other, *other_is;
    const char *unless; /* a dialect: where no file is of it */
} uncounted[] = {
    {"megatron", "tensor_model_parallel_size", ">1", CUT},
    {"megatron", "pipeline_model_parallel_size", ">1", CUT},
    {"megatron", "context_parallel_size", ">1", SEQUENCE},
    {"megatron", "expert_model_parallel_size", ">1", CUT},
    {"torchtitan", "parallelism.tensor_parallel_degree", ">1", CUT},
    {"torchtitan", "parallelism.pipeline_parallel_degree", ">1", CUT},
    {"torchtitan", "parallelism.context_parallel_degree", ">1", SEQUENCE},
    {"torchtitan", "parallelism.expert_parallel_degree", ">1", CUT},
    {"torchtitan recipe", "parallelism.tensor_parallel_degree", ">1", CUT},
    {"torchtitan recipe", "parallelism.pipeline_parallel_degree", ">1", CUT},
    {"torchtitan recipe", "parallelism.context_parallel_degree", ">1", SEQUENCE},
    {"torchtitan recipe", "parallelism.expert_parallel_degree", ">1", CUT},
    {"training_args", "parallelism_config.tp_size", ">1", CUT},
    {"training_args", "parallelism_config.cp_size", ">1", SEQUENCE},
    {"training_args", "parallelism_config.sp_size", ">1", SEQUENCE},
    {"model_args", "tp_plan", "set", CUT},
    {"accelerate", "parallelism_config.parallelism_config_tp_size", ">1", CUT},
    {"accelerate", "parallelism_config.parallelism_config_cp_size", ">1", SEQUENCE},
    {"accelerate", "parallelism_config.parallelism_config_sp_size", ">1", SEQUENCE},
    {"deepspeed", "tensor_parallel.autotp_size", ">1", CUT},
    {"deepspeed", "optimizer.type", "!=AdamW|Adam|adamw|adam|auto", "is DeepSpeed's own optimizer"},
    {"deepspeed", "sequence_parallel_size", ">1", SEQUENCE},
    {"axolotl", "tensor_parallel_size", ">1", CUT},
    {"axolotl", "context_parallel_size", ">1", SEQUENCE},
    {"axolotl", "sequence_parallel_degree", ">1", SEQUENCE},
    {"axolotl", "expert_parallel_size", ">1", CUT},
    {"ms-swift", "sequence_parallel_size", ">1", SEQUENCE},
    {"ms-swift", "deepspeed_autotp_size", ">1", CUT},
    {"sft", "load_in_8bit", "=true", EIGHT},
    /* beside adapters both are counted: cli/check_fit.c */
    {"model_args", "quantization_config.load_in_8bit", "=true", EIGHT, .unless = "lora_config"},
    {"axolotl", "load_in_8bit", "=true", EIGHT, "adapter", "!=lora"},
    {"llamafactory", "quantization_bit", "=8", EIGHT},
    {"ms-swift", "quant_bits", "=8", EIGHT},
    {"unsloth", "load_in_8bit", "=true", EIGHT},
    {"litgpt", "quantize", "set", "holds the frozen weights in fewer bits"},
    {"litgpt", "lora_r", "set", "trains adapters"},
    {"litgpt", "lora_query", "set", "trains adapters"},
    {"torchtune", "model._component_", "~lora_", "trains adapters"},
    {"torchtune", "loss._component_", "~DPOLoss", "trains on pairs, beside a reference"},
    {"torchtune", "optimizer_in_bwd", "=true", "steps in the backward pass"},
    {"sft", "gradient_checkpointing_kwargs.selective", "=true",
     "keeps what some operations give, and recomputes the rest"},
    {"axolotl", "load_in_4bit", "=true", "makes the weights fp32, which adapter lora does not pack",
     "adapter", "=lora"},
    {"axolotl", "plugins", "~cut_cross_entropy", "never holds the logits of all tokens"},
    {"llamafactory", "use_galore", "=true", PROJECTS},
    {"llamafactory", "use_apollo", "=true", PROJECTS},
    {"llamafactory", "use_badam", "=true", PROJECTS},
    {"llamafactory", "use_muon", "=true", PROJECTS},
    {"llamafactory", "use_adam_mini", "=true", PROJECTS},
    {"ms-swift", "use_galore", "=true", PROJECTS},
};

/* `litgpt finetune_lora x`: what trains, the program says; finetune alone is lora. */
static void judge_program(vp_judged *x)
{
    static const char own[] = "finetune finetune_lora finetune_adapter finetune_adapter_v2";
    vp_value          at    = {.kind = VP_VALUE_NULL, .line = x->file->doc->root->line};
    const char *program     = x->file->dialect == &vp_dialect_litgpt ? x->file->doc->program : NULL;
    char        word[64];

    for (const char *p = program; p && *p; p += strcspn(p, " "), p += *p == ' ') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, " "), p);
        if (!vp_listed(own, word))
            continue;
        vp_find(x->c, x->file, VP_NOTE, &at, word, NULL,
                "trains adapters: what that takes is not counted, and fit not answered");
        x->c->findings[x->c->n_findings - 1].from = NULL;
        if (!x->c->uncounted)
            x->c->uncounted = vp_arena_printf(x->c->arena, "%s of %s", word, x->file->name);
    }
}

static bool is_among(const vp_checked *c, const char *dialect)
{
    for (int f = 0; dialect && f < c->n_files; f++)
        if (c->files[f].doc && c->files[f].dialect &&
            strcmp(c->files[f].dialect->name, dialect) == 0)
            return true;
    return false;
}

void vp_judge_uncounted(vp_judged *x)
{
    judge_program(x);
    for (const vp_dialect *d = x->file->dialect; d; d = d->base)
        for (size_t i = 0; i < sizeof uncounted / sizeof *uncounted; i++) {
            const vp_value *v = strcmp(uncounted[i].dialect, d->name) == 0
                                    ? vp_value_at(x->file->doc->root, uncounted[i].key)
                                    : NULL;
            if (!v || is_among(x->c, uncounted[i].unless) ||
                !vp_check_holds(x->c, x->file, uncounted[i].key, uncounted[i].is) ||
                (uncounted[i].other &&
                 !vp_check_holds(x->c, x->file, uncounted[i].other, uncounted[i].other_is)))
                continue;
            vp_find(x->c, x->file, VP_NOTE, v, uncounted[i].key, NULL,
                    "%s: what that takes is not counted, and fit not answered", uncounted[i].what);
            if (!x->c->uncounted)
                x->c->uncounted =
                    vp_arena_printf(x->c->arena, "%s in %s", uncounted[i].key, x->file->name);
        }
}
