/* The options of `vplan estimate` that only PyTorch trainers have. */
#include "cli/estimate.h"
#include "cli/rows.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const vp_option rows[] = {
    {VP_ROW_PADDING(vp_estimate_options, padding),
     .help = "Whether a mask that holds padding is passed to the model"},
    {.name  = "--packing",
     .kind  = VP_OPTION_COUNT,
     .at    = offsetof(vp_estimate_options, packing),
     .value = "N",
     .unit  = "documents",
     .min   = 1,
     .help =
         "SFTTrainer's packing, with --trainer trl: N documents fill a sequence of --seq tokens "
         "on average, and a batch is one row of them all, without padding",
     .otherwise = "a document a sequence",
     .example   = "4"},
    {.name      = "--task",
     .kind      = VP_OPTION_CHOICE,
     .at        = offsetof(vp_estimate_options, task),
     .words     = "clm|mlm|seq2seq|imgcls|seqcls|tokcls",
     .help      = "What the model learns: causal or masked language modelling, sequences from "
                  "sequences, classes of images, of texts or of tokens",
     .otherwise = "that of the class in the config",
     .example   = "mlm"},
    {.name  = "--target-seq",
     .kind  = VP_OPTION_COUNT,
     .at    = offsetof(vp_estimate_options, target_seq),
     .value = "N",
     .unit  = "tokens",
     .min   = 1,
     .help =
         "Tokens of the sequence that is to be written, with --task seq2seq; with --method grpo "
         "those of --seq that are the completion",
     .otherwise = "as many as --seq; of grpo 512, half of --seq at most",
     .example   = "64"},
    {.name  = "--images",
     .kind  = VP_OPTION_COUNT,
     .at    = offsetof(vp_estimate_options, images),
     .value = "N",
     .unit  = "pictures",
     .min   = 1,
     .help  = "Pictures of a sample, of a model that sees; --seq counts the tokens that they make "
              "in the text too, as SFTConfig's max_length does",
     .otherwise = "none, trained on texts alone",
     .example   = "1"},
    {.name      = "--image-size",
     .kind      = VP_OPTION_TEXT,
     .at        = offsetof(vp_estimate_options, image_size),
     .value     = "WxH",
     .help      = "With --images, of a model that takes any: pixels of each picture as the "
                  "processor hands it on (below its max_pixels)",
     .otherwise = "what the model's processor makes of all pictures",
     .example   = "1024x768"},
    {.name      = "--accumulation",
     .kind      = VP_OPTION_COUNT,
     .at        = offsetof(vp_estimate_options, accumulation),
     .value     = "N",
     .unit      = "micro-batches",
     .min       = 1,
     .help      = "Backward passes before the optimizer's step",
     .otherwise = "1",
     .example   = "4"},
    {.name = "--sync-each-batch",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_estimate_options, syncs_each),
     .help =
         "With --accumulation under fsdp or fsdp2: gradients are reduced after each micro-batch, "
         "as Accelerate's sync_each_batch has it. Otherwise each card keeps all of them, uncut, "
         "until the last one"},
    {.name  = "--method",
     .kind  = VP_OPTION_CHOICE,
     .at    = offsetof(vp_estimate_options, method),
     .words = "sft|dpo|reward|grpo",
     .help  = "Which of TRL's trainers, with --trainer trl: SFTTrainer; DPOTrainer, whose batch is "
              "pairs of sequences, and whose reference is a second model, or under adapters the "
              "model without them; RewardTrainer, pairs too, of a model with a head of one value "
              "a sequence; GRPOTrainer, whose batch is completions behind their prompts",
     .otherwise = "sft",
     .example   = "dpo"},
    {.name = "--vllm",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_estimate_options, vllm),
     .help = "With --method grpo: vLLM makes the completions (use_vllm). On the same card "
             "(vllm_mode colocate) it takes its vllm_gpu_memory_utilization besides: --reserve. "
             "Otherwise the model makes them, all of a step at once"},
    {.name      = "--eval-batch",
     .kind      = VP_OPTION_COUNT,
     .at        = offsetof(vp_estimate_options, eval_batch),
     .value     = "N",
     .unit      = "samples",
     .min       = 1,
     .help      = "Evaluate between steps, so many samples at once (Trainer's own "
                  "per_device_eval_batch_size is 8); the loss is wanted, no logits",
     .otherwise = "no evaluation",
     .example   = "8"},
    {.name      = "--workers",
     .kind      = VP_OPTION_COUNT,
     .at        = offsetof(vp_estimate_options, workers),
     .value     = "N",
     .unit      = "processes",
     .min       = 1,
     .max       = 4096,
     .help      = "Workers of the DataLoader (dataloader_num_workers): what they and the batches "
                  "that they make ahead take of the host's memory is told",
     .otherwise = "none, Trainer's own",
     .example   = "4"},
    {.name      = "--prefetch",
     .kind      = VP_OPTION_COUNT,
     .at        = offsetof(vp_estimate_options, prefetch),
     .value     = "N",
     .unit      = "batches",
     .min       = 1,
     .max       = 1000000,
     .help      = "Batches that each worker makes ahead (dataloader_prefetch_factor)",
     .otherwise = "2",
     .example   = "4"},
    {.name = "--no-pin-memory",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_estimate_options, no_pin_memory),
     .help = "The DataLoader does not copy its batches to pinned memory "
             "(dataloader_pin_memory: false)"},
    {.name  = "--lora",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(vp_estimate_options, lora),
     .value = "r=R,...",
     .help =
         "Train peft's adapters on a frozen model: r, alpha, targets=all-linear or "
         "modules joined by +, dropout, dtype=fp32|bf16, dora, rslora; save=embed_tokens+lm_head "
         "trains whole copies of these (modules_to_save), tokens=N so many rows of the "
         "table (trainable_token_indices); without r 8, without targets peft's own for "
         "the family",
     .alone     = VP_LORA_USUAL,
     .otherwise = "the whole model is trained",
     .example   = "r=16,targets=all-linear"},
    {.name  = "--peft",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(vp_estimate_options, peft),
     .value = "METHOD",
     .help  = "Train another method of peft's than LoRA on a frozen model: ia3, with peft's own "
              "targets for the family; prompt:tokens=N, so many virtual tokens before each "
              "sequence (PromptTuningConfig), beside the tokens of --seq; prefix:tokens=N, their "
              "keys and values in each layer (PrefixTuningConfig), without --recompute",
     .otherwise = "none",
     .example   = "prompt:tokens=20"},
    {.name  = "--freeze",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(vp_estimate_options, freeze),
     .value = "none|embeddings|layers:N|vision",
     .help  = "Parts of a model that is trained otherwise: what comes before its layers, or that "
              "and the first N layers (requires_grad_(False)); a head tied to the table is frozen "
              "with it. vision, with --images: the tower and the projector, which have no "
              "adapters then either (LLaMA-Factory's and ms-swift's default)",
     .otherwise = "nothing is frozen",
     .example   = "layers:8"},
    {.name      = "--load",
     .kind      = VP_OPTION_CHOICE,
     .at        = offsetof(vp_estimate_options, load),
     .words     = "none|int8|nf4|nf4-dq",
     .help      = "Hold the frozen model's linear layers in bitsandbytes' 4 bits (nf4-dq: their "
                  "scales quantised too) or 8 (int8); needs --lora",
     .otherwise = "none",
     .example   = "nf4"},
    {.name  = "--prepare",
     .kind  = VP_OPTION_CHOICE,
     .at    = offsetof(vp_estimate_options, prepare),
     .words = "on|off",
     .help  = "Whether peft's prepare_model_for_kbit_training() is called on a model whose weights "
              "are quantised: it makes fp32 what is not (norms, embeddings, the head), which takes "
              "more",
     .otherwise = "on; off with --trainer trl, whose trainers do not call it",
     .example   = "off"},
    {.name = "--qlora",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_estimate_options, qlora),
     .help =
         "As one trains with QLoRA: --load nf4-dq, --recompute full, 16-bit compute, and --lora "
         "r=16,targets=all-linear where that is not given"},
    {.name = "--liger",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_estimate_options, liger),
     .help = "With Liger's kernels in place of transformers' norms, rotary embeddings, MLP, head "
             "and loss (Trainer's use_liger_kernel); --loss liger has its head and loss alone"},
    {.name  = "--world",
     .kind  = VP_OPTION_COUNT,
     .at    = offsetof(vp_estimate_options, world),
     .value = "N",
     .unit  = "cards",
     .min   = 1,
     .max   = 65536,
     .help  = "Cards that train together, a process each; the answer is for the first one, which "
              "takes most",
     .otherwise = "1",
     .example   = "8"},
    {.name      = "--parallel",
     .kind      = VP_OPTION_CHOICE,
     .at        = offsetof(vp_estimate_options, parallel),
     .words     = "ddp|fsdp|fsdp2|zero1|zero2|zero3",
     .help      = "What the cards share: nothing (DistributedDataParallel), weights, gradients and "
                  "states (FSDP as Accelerate wraps a model, every layer: fsdp2 is fully_shard, "
                  "what transformers' Trainer means by fsdp; fsdp the older one), or by DeepSpeed "
                  "states (zero1), gradients too (zero2), weights too (zero3)",
     .otherwise = "ddp, with more than one card; nothing on one, which knows zero2 and zero3 too",
     .example   = "fsdp2"},
    {.name      = "--offload",
     .kind      = VP_OPTION_CHOICE,
     .at        = offsetof(vp_estimate_options, offload),
     .words     = "none|optimizer|params|activations",
     .help      = "What lies in host memory: by --parallel the optimizer's states and its step, or "
                  "the weights too (on one card optimizer with zero2, params with zero3); or, on one "
                  "card, what gradient checkpoints keep (gradient_checkpointing_kwargs' offload)",
     .otherwise = "none",
     .example   = "params"},
    {.name = "--compile",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_estimate_options, compiles),
     .help = "The model goes through torch.compile (Trainer's torch_compile): the eager step is "
             "counted, and the interval is as wide as compiled steps differed in dry runs"},
    {.name      = "--alloc-conf",
     .kind      = VP_OPTION_TEXT,
     .at        = offsetof(vp_estimate_options, alloc_conf),
     .value     = "NAME:VALUE,...",
     .help      = "Settings of PyTorch's caching allocator, as PYTORCH_ALLOC_CONF has them: "
                  "expandable_segments:True leaves fewer holes, max_split_size_mb:N, "
                  "roundup_power2_divisions:N",
     .otherwise = "PyTorch's own",
     .example   = "expandable_segments:True"},
    {.name  = "--resident",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(vp_estimate_options, resident),
     .value = "KIND[=MODEL]",
     .help =
         "What else stays on the card: ema, an average of what is trained; mer, a copy of it from "
         "before the step, for meta-experience replay, whose larger batch --micro-batch says; ewc, "
         "its Fisher information and old values, with their loss; reference or teacher, a second "
         "model, asked behind each forward pass, a teacher's logits kept for the loss; reward, one "
         "with a head of one value a sequence. With --method grpo the reference is the one that "
         "a beta other than 0 makes",
     .otherwise = "none",
     .example   = "ema"},
    {.name  = "--length-histogram",
     .kind  = VP_OPTION_INPUT,
     .at    = offsetof(vp_estimate_options, lengths),
     .value = "FILE",
     .help  = "Samples of different lengths, a line each: tokens, or tokens and how many samples "
              "have them. The longest, cut to --seq, decides; what an average batch takes, "
              "grouping and packing is told",
     .otherwise = "all samples have --seq tokens",
     .example   = "lengths.txt"},
    {.name  = "--measured",
     .kind  = VP_OPTION_INPUT,
     .at    = offsetof(vp_estimate_options, measured),
     .value = "FILE",
     .help  = "What a run was seen to take, a line each: load, forward, backward, step, allocated, "
              "reserved (torch.cuda's peaks) or process (nvidia-smi's), then a size; driver or "
              "torch, then a version. Says what is "
              "off and likely why; process less reserved is the context that this estimate uses",
     .otherwise = "nothing was measured",
     .example   = "seen.txt"},
    {VP_ROW_CALIBRATION(vp_estimate_options, calibration),
     .help =
         "Where what --measured found out about a card (its context, and PyTorch's cache beyond "
         "the estimate) is kept for later estimates on it, which name it; none: neither kept "
         "nor used. Deleting the file forgets it"},
    {.name  = "--versions",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(vp_estimate_options, versions),
     .value = "NAME=VERSION,...|PATH",
     .help  = "The libraries that the answer has to be about: torch, transformers, peft; or where "
              "they are: a Python environment (.venv), or a list of requirements (pip freeze). "
              "Those with which the step is not known are refused, with what it is known with",
     .otherwise = "the newest that were recorded, which the answer names",
     .example   = "transformers=4.57"},
    {.name = "--keep-output",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_estimate_options, keep_output),
     .help = "The loop keeps the model's output (the logits) until its next step"},
};
const vp_option_set vp_estimate_trainer_options = {
    .title = "options of PyTorch trainers", .rows = rows, .n = sizeof rows / sizeof *rows};

/* The option given that only PyTorch's trainers have, TRL's before those of all; NULL: none. */
static const char *trainers_own(const vp_estimate_options *o)
{
    return o->method         ? "method"
           : o->packing      ? "packing"
           : o->versions     ? "versions"
           : o->resident     ? "resident"
           : o->lengths      ? "length-histogram"
           : o->measured     ? "measured"
           : o->calibration  ? "calibration"
           : o->padding      ? "padding"
           : o->accumulation ? "accumulation"
           : o->syncs_each   ? "sync-each-batch"
           : o->vllm         ? "vllm"
           : o->eval_batch   ? "eval-batch"
           : o->workers      ? "workers"
           : o->prefetch     ? "prefetch"
           : o->peft         ? "peft"
           : o->freeze       ? "freeze"
           : o->load         ? "load"
           : o->prepare      ? "prepare"
           : o->liger        ? "liger"
           : o->compiles     ? "compile"
           : o->keep_output  ? "keep-output"
           : o->task         ? "task"
           : o->images       ? "images"
           : o->image_size   ? "image-size"
           : o->target_seq   ? "target-seq"
           : o->world        ? "world"
           : o->parallel     ? "parallel"
           : o->offload      ? "offload"
           : o->alloc_conf   ? "alloc-conf"
                             : NULL;
}

static const char *trainer_of(const char *option)
{
    return strcmp(option, "method") == 0 || strcmp(option, "packing") == 0 ? "trl" : "hf";
}

const char *vp_estimate_trainer_meant(const vp_estimate_options *o)
{
    const char *option = trainers_own(o);

    return option ? trainer_of(option) : o->qlora || o->lora ? "hf" : "vplan";
}

vp_status vp_estimate_only_vplan(const vp_estimate_options *o, vp_err *err)
{
    const char *given = trainers_own(o);

    if (o->qlora)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--qlora: vplan's own runtime does not train over NF4: --trainer hf");
    if (given)
        return VP_FAIL(err, VP_ERR_USAGE, "--%s is for --trainer %s", given, trainer_of(given));
    return VP_OK;
}
