/* trainers/files/judge_uncounted.c: what files ask for and no estimate counts. Each is a note at its line, and fit is not answered,
 * for the answer would be another training's. */
#include "trainers/files/check_internal.h"

#include <stdio.h>
#include <string.h>

#define CUT        "cuts the layers themselves among the cards"
#define SEQUENCE   "cuts the sequence among the cards"
#define EIGHT      "holds the frozen weights in 8 bits"
#define PART       "trains a part of the weights"
#define OTHERS     "holds the frozen weights in bits of another kind"
#define UNSLOTHS   "puts Unsloth's own code in the model's place"
#define SHARDS     "cuts weights, gradients and states otherwise than FULL_SHARD"
#define KEEPS      "keeps gathered weights from the forward to the backward pass"
#define NARROW     "keeps it in fewer bits than Megatron does by itself"
#define MOVES      "moves what is kept to the host and back"
#define SMOOTHS    "keeps the logits once more, for a loss of Trainer's own"
#define ATTENDS    "computes attention by a package whose step was not recorded"
#define ATTENTIONS "eager|sdpa|flash_attention_2|flash_attention_3|flex_attention"
#define UNKNOWN    "is an optimizer whose step is not known"
/* dialect_native.c has a word for each */
#define TORCHS \
    "AdamW|SGD|RMSprop|Adam|Adagrad|torch.optim.AdamW|torch.optim.SGD|torch.optim.RMSprop|torch.optim.Adam|torch.optim.Adagrad"
#define LITGPTS \
    "bitsandbytes.optim.AdamW|bitsandbytes.optim.PagedAdamW|bitsandbytes.optim.AdamW8bit|bitsandbytes.optim.PagedAdamW8bit|bitsandbytes.optim.Lion|" \
    "bitsandbytes.optim.PagedLion|bitsandbytes.optim.Lion8bit|bitsandbytes.optim.PagedLion8bit|torchao.optim.AdamW8bit|torchao.optim.AdamW4bit|grokadamw.GrokAdamW"
#define LOSES     "makes a loss of its own from the logits"
#define BUFFERS   "makes completions for other steps than the one that learns from them"
#define GENERATES "generates what it trains on, beside a reference"
#define PROJECTS  "keeps other states than the optimizer that is named"

static const struct {
    const char *dialect, *key, *is, *what; /* is as in vp_rule */
    const char *other, *other_is;
    const char *unless; /* a dialect: where no file is of it */
} uncounted[] = {
    {"megatron", "tensor_model_parallel_size", ">1", CUT},
    {"megatron", "pipeline_model_parallel_size", ">1", CUT},
    {"megatron", "context_parallel_size", ">1", SEQUENCE},
    {"megatron", "expert_model_parallel_size", ">1", CUT},
    {"megatron", "num_experts", ">1", "trains experts in the place of MLPs"},
    {"megatron", "use_megatron_fsdp", "=true", SHARDS},
    {"megatron", "use_custom_fsdp", "=true", SHARDS},
    {"megatron", "use_torch_fsdp2", "=true", SHARDS},
    {"megatron", "fp8_format", "set", "computes in 8 bits"},
    {"megatron", "fp4_format", "set", "computes in 4 bits"},
    {"megatron", "main_grads_dtype", "!=fp32", NARROW},
    {"megatron", "main_params_dtype", "!=fp32", NARROW},
    {"megatron", "exp_avg_dtype", "!=fp32", NARROW},
    {"megatron", "exp_avg_sq_dtype", "!=fp32", NARROW},
    {"megatron", "cpu_offloading_num_layers", ">0", MOVES},
    {"megatron", "fine_grained_activation_offloading", "=true", MOVES},
    {"megatron", "mlp_chunks_for_training", ">1", "computes the MLPs in pieces"},
    {"megatron", "multi_latent_attention", "=true", "changes the model's attention"},
    {"megatron", "mtp_num_layers", ">0", "predicts more tokens, by layers of its own"},
    {"megatron", "freeze_all_layers", "=true", PART},
    {"megatron", "optimizer", "!=adam|sgd", UNKNOWN},
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
    {"training_args", "use_cpu", "=true", "trains on the CPU"},
    {"training_args", "label_smoothing_factor", ">0", SMOOTHS},
    {"llamafactory", "label_smoothing_factor", ">0", SMOOTHS},
    {"ms-swift", "label_smoothing_factor", ">0", SMOOTHS},
    {"model_args", "tp_plan", "set", CUT},
    {"accelerate", "parallelism_config.parallelism_config_tp_size", ">1", CUT},
    {"accelerate", "parallelism_config.parallelism_config_cp_size", ">1", SEQUENCE},
    {"accelerate", "parallelism_config.parallelism_config_sp_size", ">1", SEQUENCE},
    {"accelerate", "distributed_type", "=TP|MEGATRON_LM", CUT},
    {"accelerate", "fsdp_config.fsdp_sharding_strategy", "!=FULL_SHARD|1", SHARDS,
     "distributed_type", "=FSDP"},
    {"accelerate", "fsdp_config.fsdp_reshard_after_forward", "=false", KEEPS,
     "fsdp_config.fsdp_version", "=2"},
    {"training_args", "fsdp", "~shard_grad_op", SHARDS},
    {"training_args", "fsdp", "~no_shard", SHARDS},
    {"training_args", "fsdp", "~hybrid_shard", SHARDS},
    {"training_args", "fsdp_config.fsdp_reshard_after_forward", "!=true|full_shard|FULL_SHARD|1",
     SHARDS},
    {"fsdp_config", "fsdp_reshard_after_forward", "!=true|full_shard|FULL_SHARD|1", SHARDS},
    {"axolotl", "fsdp_config.reshard_after_forward", "=false", KEEPS},
    {"axolotl", "fsdp_config.fsdp_reshard_after_forward", "=false", KEEPS},
    {"axolotl", "fsdp_config.fsdp_sharding_strategy", "!=FULL_SHARD|1", SHARDS},
    {"axolotl", "fsdp", "~shard_grad_op", SHARDS},
    {"axolotl", "fsdp", "~hybrid_shard", SHARDS},
    {"axolotl", "fsdp", "~no_shard", SHARDS},
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
    {"litgpt", "optimizer", "!=" TORCHS "|" LITGPTS "|{...}", UNKNOWN},
    {"litgpt", "optimizer.class_path", "!=" TORCHS "|" LITGPTS, UNKNOWN},
    {"litgpt", "quantize", "set", "holds the frozen weights in fewer bits"},
    {"litgpt", "lora_r", "set", "trains adapters"},
    {"litgpt", "lora_query", "set", "trains adapters"},
    {"torchtune", "model._component_", "~lora_", "trains adapters"},
    {"torchtune", "loss._component_", "~DPOLoss", "trains on pairs, beside a reference"},
    {"torchtune", "optimizer_in_bwd", "=true", "steps in the backward pass"},
    {"sft", "gradient_checkpointing_kwargs.selective", "=true",
     "keeps what some operations give, and recomputes the rest"},
    {"sft", "steps_per_generation", "set", BUFFERS},
    {"sft", "generation_batch_size", "set", BUFFERS},
    {"sft", "center_rewards_coefficient", ">0", "adds the rewards' own size to the loss"},
    {"sft", "num_iterations", ">1", "asks the model once more, for what it said before it learnt"},
    {"sft", "reward_model_name_or_path", "set", "loads a model that judges"},
    {"sft", "cast_lm_head_to_fp32", "=true", "makes the head's weights fp32"},
    {"sft", "entropy_coef", ">0", "adds the entropy to the loss"},
    {"sft", "use_adaptive_entropy", "=true", "adds the entropy to the loss"},
    {"sft", "vllm_enable_sleep_mode", "=true", "has vLLM give its part of the card back",
     "use_vllm", "=true"},
    {"sft", "vllm_tensor_parallel_size", ">1", "cuts vLLM's model among the cards", "use_vllm",
     "=true"},
    {"sft", "use_transformers_continuous_batching", "=true",
     "makes completions by a cache of pages"},
    {"sft", "use_transformers_paged", "=true", "makes completions by a cache of pages"},
    {"sft", "cache_implementation", "set", "makes completions by a cache of another kind"},
    {"axolotl", "load_in_4bit", "=true", "makes the weights fp32, which adapter lora does not pack",
     "adapter", "=lora"},
    {"axolotl", "plugins", "~cut_cross_entropy", "never holds the logits of all tokens"},
    {"model_args", "attn_implementation", "!=" ATTENTIONS, ATTENDS},
    {"sft", "attn_implementation", "!=" ATTENTIONS, ATTENDS},
    {"axolotl", "xformers_attention", "=true", ATTENDS},
    {"axolotl", "sage_attention", "=true", ATTENDS},
    {"axolotl", "attn_implementation", "=xformers|sage|s2|fp8", ATTENDS},
    {"axolotl", "unfrozen_parameters", "set", PART},
    {"axolotl", "lisa_n_layers", ">0", PART},
    {"axolotl", "spectrum_top_fraction", "set", PART},
    {"axolotl", "tiled_mlp", "=true", "computes the MLPs in pieces"},
    {"axolotl", "layer_offloading", "=true", "moves layers to the host and back"},
    {"axolotl", "activation_offloading", "=legacy|disk",
     "moves what is kept to the host or a disk"},
    {"axolotl", "fp8", "=true", "computes in 8 bits"},
    {"axolotl", "qat", "set", "quantises as it trains"},
    {"axolotl", "gptq", "=true", OTHERS},
    {"axolotl", "nf4_backend", "=torchao", OTHERS},
    {"axolotl", "use_dft", "=true", LOSES},
    {"axolotl", "lora_fp32_gradients", "=true", "keeps the adapters' gradients in fp32"},
    {"axolotl", "adapter", "=mixlora", "trains experts of adapters"},
    {"axolotl", "mixlora_num_experts", ">0", "trains experts of adapters"},
    {"axolotl", "optimizer",
     "=optimi_adamw|ao_adamw_fp8|adopt_adamw|adamc|came_pytorch|muon|dion|sinkgd|polora|flash_adamw|"
     "flash_adam|flash_sgd|flash_sgdw|flash_lion|q_galore_adamw8bit",
     "is an optimizer of axolotl's own"},
    {"llamafactory", "use_unsloth", "=true", UNSLOTHS},
    {"llamafactory", "quantization_method", "!=bnb", OTHERS, "quantization_bit", "set"},
    {"llamafactory", "upcast_layernorm", "=true", "makes the norms' weights fp32"},
    {"llamafactory", "upcast_lmhead_output", "=true", "makes the logits fp32 once more"},
    {"llamafactory", "mixture_of_depths", "set", "changes the model's blocks"},
    {"llamafactory", "shift_attn", "=true", "changes the model's attention"},
    {"llamafactory", "fp8", "=true", "computes in 8 bits"},
    {"ms-swift", "tuner_type", "!=full|lora", "trains adapters of another kind"},
    {"ms-swift", "tuner_backend", "=unsloth", UNSLOTHS},
    {"ms-swift", "quant_method", "!=bnb", OTHERS},
    {"ms-swift", "freeze_parameters", "set", PART},
    {"ms-swift", "freeze_parameters_ratio", ">0", PART},
    {"ms-swift", "lisa_activated_layers", ">0", PART},
    {"torchtune", "tensor_parallel_dim", ">1", CUT},
    {"torchtune", "context_parallel_dim", ">1", SEQUENCE},
    {"torchtune", "teacher_model", "set", "runs a teacher beside what is trained"},
    {"torchtune", "enable_fp8_training", "=true", "computes in 8 bits"},
    {"llamafactory", "use_badam", "=true", "trains a block of layers at a time"},
    {"llamafactory", "use_muon", "=true", PROJECTS},
    {"llamafactory", "use_adam_mini", "=true", PROJECTS},
    {"llamafactory", "use_kt", "=true", "computes the experts on the CPU"},
    {"llamafactory", "use_dft_loss", "=true", LOSES},
    {"llamafactory", "use_asft_loss", "=true", LOSES},
    {"llamafactory", "use_eaft_loss", "=true", LOSES},
    {"ms-swift", "enable_dft_loss", "=true", LOSES},
    {"ms-swift", "enable_channel_loss", "=true", LOSES},
    {"torchtune", "quantizer._component_", "~QAT", "quantises as it trains"},
    {"torchtune", "grpo_samples", "set", GENERATES},
    {"torchtune", "ppo_epochs", "set", GENERATES},
    {"deepspeed", "data_efficiency.data_routing.random_ltd.enabled", "=true",
     "takes tokens out of the layers"},
    {"ms-swift", "use_galore", "=true", PROJECTS},
    {"ms-swift", "optimizer", "=galore|muon|muonclip", PROJECTS},
};

/* `litgpt finetune_lora x`: what trains, the program says; finetune alone is lora, `finetune full` of older versions is not. */
static void judge_program(vp_judged *x)
{
    static const char own[] = "finetune finetune_lora finetune_adapter finetune_adapter_v2";
    vp_value          at    = {.kind = VP_VALUE_NULL, .line = x->file->doc->root->line};
    const char *program     = x->file->dialect == &vp_dialect_litgpt ? x->file->doc->program : NULL;
    char        word[64];

    for (const char *p = program; p && *p; p += strcspn(p, " "), p += *p == ' ') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, " "), p);
        bool is_full = strncmp(p, "finetune full", strlen("finetune full")) == 0;
        if (!vp_listed(own, word) || is_full)
            continue;
        vp_find(x->c, x->file, VP_NOTE, &at, word, NULL,
                "trains adapters: what that takes is not counted, and fit not answered");
        x->c->findings[x->c->n_findings - 1].from = NULL;
        if (!x->c->uncounted)
            x->c->uncounted = vp_arena_printf(x->c->arena, "%s of %s", word, x->file->name);
    }
}

/* axolotl/utils/schemas/config.py of 0.18, check_auto_enable_lora_kernels(). */
static void judge_kernels(vp_judged *x)
{
    static const char *const own[]  = {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel",
                                       "lora_embedding_kernel"};
    static const char *const bars[] = {"rl", "trust_remote_code", "nvfp4_merge_aware"};
    bool                     said = false, on = false, barred = false;

    if (x->file->dialect != &vp_dialect_axolotl ||
        !vp_check_holds(x->c, x->file, "adapter", "=lora|qlora"))
        return;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        said = said || vp_check_holds(x->c, x->file, own[i], "set");
        on   = on || vp_check_holds(x->c, x->file, own[i], "=true");
    }
    for (size_t i = 0; i < sizeof bars / sizeof *bars; i++)
        barred = barred || (vp_check_holds(x->c, x->file, bars[i], "set") &&
                            !vp_check_holds(x->c, x->file, bars[i], "=false"));
    barred = barred || (vp_check_holds(x->c, x->file, "adapter", "=lora") &&
                        vp_check_holds(x->c, x->file, "load_in_8bit", "=true"));
    if (on || (!said && !barred))
        vp_find(x->c, x->file, VP_NOTE, vp_value_at(x->file->doc->root, "adapter"), "adapter", NULL,
                "axolotl computes the adapters by kernels of its own%s; what peft's layers keep "
                "is counted",
                on ? "" : ", unless lora_mlp_kernel and its like are false");
}

static bool is_among(const vp_checked *c, const char *dialect)
{
    for (int f = 0; dialect && f < c->n_files; f++)
        if (c->files[f].doc && c->files[f].dialect &&
            strcmp(c->files[f].dialect->name, dialect) == 0)
            return true;
    return false;
}

/* A key of accelerate's file that the launcher's option of that name beats. */
static bool is_beaten(const vp_judged *x, const char *key)
{
    const char *dot = strrchr(key, '.');

    return x->file->dialect == &vp_dialect_accelerate && dot && strncmp(dot + 1, "fsdp_", 5) == 0 &&
           vp_launch_option(x->c, dot + 1, NULL);
}

/* DeepSpeed's engine without ZeRO, stage 0 or no word of it, is no DistributedDataParallel: it has buckets, and in bf16 an optimizer,
 * of its own. No other trainer's step under it was played. */
static void judge_stage(vp_judged *x)
{
    static const char key[] = "zero_optimization.stage";

    if (x->file->dialect != &vp_dialect_deepspeed || !x->c->target ||
        strcmp(x->c->target->name, "deepspeed") == 0 || !vp_check_holds(x->c, x->file, key, "=0"))
        return;
    vp_find(x->c, x->file, VP_NOTE, vp_value_at(x->file->doc->root, key), key, NULL,
            "ZeRO is off: every card holds all of weights, gradients and states; what DeepSpeed's "
            "engine takes besides is not counted, and fit not answered");
    if (!x->c->uncounted)
        x->c->uncounted =
            vp_arena_printf(x->c->arena, "DeepSpeed without ZeRO (%s 0) in %s", key, x->file->name);
}

void vp_judge_uncounted(vp_judged *x)
{
    judge_program(x);
    judge_stage(x);
    judge_kernels(x);
    vp_judge_own(x);
    for (const vp_dialect *d = x->file->dialect; d; d = d->base)
        for (size_t i = 0; i < sizeof uncounted / sizeof *uncounted; i++) {
            const vp_value *v = strcmp(uncounted[i].dialect, d->name) == 0
                                    ? vp_value_at(x->file->doc->root, uncounted[i].key)
                                    : NULL;
            if (!v || is_among(x->c, uncounted[i].unless) || is_beaten(x, uncounted[i].key) ||
                !vp_check_holds(x->c, x->file, uncounted[i].key, uncounted[i].is) ||
                (uncounted[i].other &&
                 !vp_check_holds(x->c, x->file, uncounted[i].other, uncounted[i].other_is)))
                continue;
            if (strcmp(uncounted[i].key, "attn_implementation") == 0 &&
                (v->kind != VP_VALUE_STRING || vp_value_is_unknown(x->file, v, true)))
                continue; /* none, or what nobody reads */
            vp_find(x->c, x->file, VP_NOTE, v, uncounted[i].key, NULL,
                    "%s: what that takes is not counted, and fit not answered", uncounted[i].what);
            if (!x->c->uncounted)
                x->c->uncounted =
                    vp_arena_printf(x->c->arena, "%s in %s", uncounted[i].key, x->file->name);
        }
}
