/* trainers/files/check_others.c: files of trainers that no table is of, known by a key or a command and named. */
#include "trainers/files/check_internal.h"

#include "trainers/files/python_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OWN_LOOP   "a training loop of the script's own around Accelerate"
#define IDLE       "a command or file of a trainer's that trains nothing"
#define GENERATING "TRL's trainers that generate (RLOO, PPO and others)"

/* Files of others that share keys with those of a target: known by one of these, and not judged. */
static const struct {
    const char *whose, *keys, *programs;
    const char *beside; /* only where one of these keys stands there too; NULL: alone */
    bool        flags;  /* only on a command line */
    bool        files;  /* only in a file */
} others[] = {
    {"GPT-NeoX", "pipe_parallel_size pipe-parallel-size attention_config attention-config"},
    {"torchtitan's command line from 0.3 on",
     "training.num_tokens_per_microbatch_per_dp_rank compile.mode", .flags = true},
    {"open-instruct", "dataset_mixer_list dataset_mix_dir hf_metadata_dataset", NULL,
     "model_name_or_path"},
    {"open-instruct", "with_tracking checkpointing_steps use_slow_tokenizer", NULL,
     "model_name_or_path", .files = true},
    {"nanotron", "parallelism.pp_engine parallelism.recompute_layer optimizer.optimizer_factory"},
    {"LLM Foundry", "device_train_microbatch_size"},
    {"LLaMA-Factory's v1", "kernel_config dist_config model_class"},
    {"LLaMA-Factory's Megatron modes",
     "tensor_model_parallel_size pipeline_model_parallel_size use_mca use_megatron_bridge", NULL,
     "finetuning_type"},
    {"the test recipes of Megatron-LM", "MODEL_ARGS"},
    {"ms-swift's Ray mode", "colocate_groups rollout.gpus train.gpus", NULL, "rlhf_type"},
    {"ms-swift's Megatron mode",
     "micro_batch_size global_batch_size lr_warmup_fraction tensor_model_parallel_size "
     "expert_model_parallel_size",
     "megatron", "tuner_type train_type rlhf_type"},
    {"LLaMA-Factory's evaluation", "n_shot task_dir", NULL, "model_name_or_path"},
    {"verl",
     "actor_rollout_ref model.partial_pretrain trainer.n_gpus_per_node optim.lr_warmup_steps_ratio",
     "verl.trainer.main_ppo verl.trainer.sft_trainer verl.trainer.fsdp_sft_trainer"},
    {"OpenRLHF", "micro_train_batch_size",
     "openrlhf.cli.train_sft openrlhf.cli.train_rm openrlhf.cli.train_dpo openrlhf.cli.train_kto "
     "openrlhf.cli.train_kd openrlhf.cli.train_ppo_ray"},
    {"NeMo", "exp_manager strategy._target_", NULL},
    {"NeMo Automodel", "step_scheduler", NULL},
    {"oumi", "training.trainer_type", NULL},
    {"oumi", "model.model_name model.model_max_length", NULL, "training"},
    /* of those that share keys with GRPO */
    {GENERATING, "normalize_advantages reward_clip_range", NULL, "model_name_or_path"},
    {GENERATING, NULL,
     "RLOOConfig PPOConfig OnlineDPOConfig NashMDConfig XPOConfig AsyncGRPOConfig "
     "GRPOWithReplayBufferConfig GMPOConfig MiniLLMConfig GOLDConfig GKDConfig SDPOConfig "
     "SDFTConfig SSDConfig IWOPDConfig DistillationConfig ServerDistillationConfig"},
    {"sentence-transformers", NULL,
     "SentenceTransformerTrainingArguments SparseEncoderTrainingArguments "
     "CrossEncoderTrainingArguments"},
    {OWN_LOOP, NULL, "Accelerator"},
};

/* Commands of trainers that train nothing: a program, and which words behind it say so; NULL: the program does. */
static const struct {
    const char *programs, *words;
} idle[] = {
    {"swift swift/cli/main.py", "infer deploy export eval rollout app web-ui sample merge-lora"},
    {"swift/cli/infer.py swift/cli/deploy.py swift/cli/export.py swift/cli/eval.py "
     "swift/cli/rollout.py swift/cli/app.py swift/cli/sample.py swift/cli/merge_lora.py",
     NULL},
    {"llamafactory-cli lmf", "chat api webchat webui export eval env"},
    {"axolotl",
     "preprocess inference evaluate fetch merge-lora merge-sharded-fsdp-weights quantize lm-eval vllm-serve"},
    {"axolotl.cli.preprocess axolotl.cli.inference axolotl.cli.evaluate axolotl.cli.merge_lora "
     "axolotl.cli.merge_sharded_fsdp_weights axolotl.cli.quantize",
     NULL},
    {"litgpt", "download chat generate generate_speculatively generate_adapter generate_full "
               "generate_sequentially generate_tp evaluate serve merge_lora convert_to_litgpt "
               "convert_from_litgpt convert_pretrained_checkpoint"},
    {"trl", "env vllm-serve chat"},
};

/* Files of trainers that train nothing: the key that says so, and those that any training's file has. */
static const struct {
    const char *keys, *beside, *lacks;
} idle_files[] = {
    /* LLaMA-Factory's examples/merge_lora and examples/inference */
    {"export_dir infer_backend", "model_name_or_path",
     "stage do_train dataset output_dir per_device_train_batch_size"},
};

/* The first of these keys, paths from the root, that is there; NULL. */
static const vp_value *first_of(const vp_document *doc, const char *keys)
{
    const vp_value *found = NULL;

    for (const char *p = keys; p && *p && !found; p += strcspn(p, " "), p += *p == ' ') {
        char path[128];
        snprintf(path, sizeof path, "%.*s", (int)strcspn(p, " "), p);
        found = vp_value_at(doc->root, path);
        if (found && found->is_variable)
            found = NULL; /* a name of the script's own */
    }
    return found;
}

/* The command's words, program and what it does, that train nothing; NULL: it may train. */
static const char *idle_words(const vp_document *doc)
{
    for (size_t i = 0; doc->program && i < sizeof idle / sizeof *idle; i++)
        for (const char *p = doc->program; vp_check_is_program(idle[i].programs, doc) && *p;) {
            char word[64];
            snprintf(word, sizeof word, "%.*s", (int)strcspn(p, " "), p);
            if (!idle[i].words || vp_listed(idle[i].words, word))
                return p;
            p += strcspn(p, " ");
            p += *p == ' ';
        }
    return NULL;
}

/* A word of a name's, between "/", ".", "_" and "-", is one of these. */
static bool has_part(const char *name, size_t n, const char *parts)
{
    char   word[64];
    size_t m;

    for (size_t at = 0; at < n; at += m + 1) {
        m = strcspn(name + at, "/._- ");
        m = m < n - at ? m : n - at;
        snprintf(word, sizeof word, "%.*s", (int)m, name + at);
        if (m > 0 && vp_listed(parts, word))
            return true;
    }
    return false;
}

/* Whether a command's script is called after what generates, serves or converts, and after no training: a path's last name, or a
 * module. NULL: it is not. */
static const char *idle_script(const vp_document *doc)
{
    static const char idles[] =
        "generate generation inference infer serve server chat predict prediction "
        "evaluate evaluation eval convert conversion merge export preprocess tokenize";
    static const char trains[] = "sft dpo orpo kto ppo grpo rlhf reward rm distill distillation";

    for (const char *p = doc->format == VP_FORMAT_FLAGS ? doc->program : NULL; p && *p;) {
        size_t      n    = strcspn(p, " ");
        const char *name = memrchr(p, '/', n);
        name             = name ? name + 1 : p;
        size_t m         = (size_t)(p + n - name);
        bool   is_script = (m > 3 && memcmp(name + m - 3, ".py", 3) == 0) ||
                         (name == p && memchr(p, '.', n) && !memchr(p, '=', n));
        if (is_script && has_part(name, m, idles) && !has_part(name, m, trains) &&
            !memmem(name, m, "train", 5) && !memmem(name, m, "tun", 3))
            return name;
        p += n + (p[n] == ' ');
    }
    return NULL;
}

/* Whether the file says something that no training does. *at: the key that says so; NULL: its command does. */
static bool is_idle(const vp_document *doc, const vp_value **at)
{
    *at = NULL;
    if (idle_words(doc) || idle_script(doc))
        return true;
    for (size_t i = 0; i < sizeof idle_files / sizeof *idle_files; i++) {
        *at = first_of(doc, idle_files[i].keys);
        if (*at && first_of(doc, idle_files[i].beside) && !first_of(doc, idle_files[i].lacks))
            return true;
    }
    *at = NULL;
    return false;
}

/* class Mine(SDPOConfig), which a parser reads: one of these by its name's end. */
static bool is_class(const char *programs, const char *parsed)
{
    char word[64];

    for (const char *p = parsed ? programs : NULL; p && *p; p += strcspn(p, " "), p += *p == ' ') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, " "), p);
        if (vp_python_ends_in(word, "Config") && vp_python_ends_in(parsed, word))
            return true;
    }
    return false;
}

/* Whose the file is, where it is one of theirs; NULL. *at: the key that says so; NULL: its command does. */
const char *vp_check_others(const vp_document *doc, const vp_value **at)
{
    if (is_idle(doc, at))
        return IDLE;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        *at = NULL;
        if (vp_check_is_program(others[i].programs, doc) ||
            is_class(others[i].programs, doc->parsed))
            return others[i].whose;
        if (others[i].flags ? doc->format != VP_FORMAT_FLAGS
                            : others[i].files && doc->format == VP_FORMAT_FLAGS)
            continue;
        if (others[i].beside && !first_of(doc, others[i].beside))
            continue;
        *at = first_of(doc, others[i].keys);
        if (*at)
            return others[i].whose;
    }
    return NULL;
}

bool vp_check_is_idle(const vp_document *doc)
{
    const vp_value *at;

    return is_idle(doc, &at);
}

bool vp_check_is_of_others(const vp_document *doc)
{
    const vp_value *at;
    const char     *whose = vp_check_others(doc, &at);

    return whose && strcmp(whose, IDLE) != 0;
}

/* Where the script makes what its loop goes by. */
static const vp_value *loop_of(const vp_document *doc)
{
    const vp_value *v = doc->root->first;

    while (v && !(v->call && vp_python_ends_in(v->call, "Accelerator")))
        v = v->next;
    return v ? v : doc->root;
}

/* A file of a trainer that no table is of. */
void vp_check_find_others(vp_checked *c, const vp_checked_file *file, const vp_value *at,
                          const char *whose)
{
    bool            is_loop = strcmp(whose, OWN_LOOP) == 0;
    char            shown[80];
    const vp_value *place = at ? at : is_loop ? loop_of(file->doc) : file->doc->root;

    if (strcmp(whose, IDLE) == 0)
        vp_find(c, file, VP_ERROR, place, at ? at->key : "", NULL,
                at ? "not judged: a file that trains nothing: %s, and neither stage nor dataset"
                : idle_words(file->doc)
                    ? "not judged: a command that trains nothing: %s"
                    : "not judged: by its name a script that trains nothing: %s",
                at ? at->key : vp_text_escape(file->doc->program, shown, sizeof shown));
    else if (is_loop)
        vp_find(c, file, VP_ERROR, place, "", NULL,
                "not judged: " OWN_LOOP
                ": what it keeps between its steps stands in its statements, "
                "not in settings; vplan dryrun -- COMMAND runs it without a GPU");
    else
        vp_find(c, file, VP_ERROR, place, at ? at->key : "", NULL,
                "not judged: %s of %s, whose files are no target's; %s",
                at                                      ? "a key"
                : file->doc->format == VP_FORMAT_PYTHON ? "a call"
                                                        : "a command",
                whose, "vplan dryrun -- COMMAND runs its training without a GPU");
    c->n_unjudged++;
    if (!c->others && file->doc->format == VP_FORMAT_PYTHON)
        c->others = vp_arena_printf(c->arena, "%s:%d is of %s", file->name,
                                    place->line ? place->line : 1, whose);
}
