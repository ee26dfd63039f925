/* trainers/files/target.h: what a trainer's files say, as data. A *dialect* is one kind of file with
 * its keys; a *saying* is what a dialect writes for a setting; a *target* is the set of dialects that
 * one `emit --for` writes. Nothing in emit.c or check.c asks for a trainer's name.
 *
 *     static const vp_saying says[] = {
 *         {VP_SETTING_MICRO_BATCH, "*", "micro_batch_size", "$"},
 *         {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing", "true"},
 *
 * Rows of one setting and word that stand together are one group: all of them are written, and the
 * word is read back where all of them hold. A row of any word ("W") is of those that no row above it
 * said. What is no word of its key is not written. A dialect that says two words in the same way (bf16 of
 * Trainer is bf16-mixed or bf16-amp, by what the weights were loaded as) leaves the choice to the
 * other files. */
#ifndef VP_TRAINERS_FILES_TARGET_H
#define VP_TRAINERS_FILES_TARGET_H

#include "base/version.h"
#include "trainers/files/document.h"
#include "trainers/files/settings.h"

/* The rows of the tables leave out their tail. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

typedef enum vp_key_type {
    VP_KEY_ANY,
    VP_KEY_BOOL,
    VP_KEY_FLAG, /* on a command line: there or not there */
    VP_KEY_INT,
    VP_KEY_REAL,
    VP_KEY_TEXT,
    VP_KEY_WORD, /* one of words */
    VP_KEY_LIST, /* texts; a saying joins them by "+" */
    VP_KEY_MAP
} vp_key_type;

/* A key that memory depends on, or that people get wrong. The others are in vp_dialect.known. */
typedef struct vp_key {
    const char *path;
    vp_key_type type;
    /* its default, as a value of the file, "1*" or "2*" another key, or "!" and one that it is the opposite of; NULL: none, or
     * not known */
    const char *otherwise;
    /* of a word: "none|cpu|nvme"; with "null" among them, or of a number alone, nothing is a value, not the default. Of a
     * text the usual ones: what is nearly one of them was not meant */
    const char *words;
    double      min, max; /* of a number; both 0: not bounded */
    const char *since;    /* version of the dialect's library that first has it */
    const char *until;    /* and that has it no more */
    const char *instead;  /* what to write in its place */
    const char *costs;    /* said where it is not written: what the default costs */
    bool        noop;     /* read without a word and without effect; instead says what does */
    bool        or_auto;  /* the word auto is one of its values */
    const char *alone;    /* of a list: the word that stands without brackets */
    bool        pattern;  /* of a list: vp_told_pattern() on a command line */
    bool        warned;   /* from until on its parser still takes it, with a warning */
    bool        if_true;  /* from until on its parser refuses what is not null, false or 0 */
    /* from this version on its parser reads "true" and "2" in quotes as what they say */
    const char *reads_text;
    bool
                elsewhere; /* in a script another call has it than the one that makes the arguments: nobody knows its default */
    const char *was, *changed; /* its default before that version, where it was another */
    bool        within; /* its default is one only where the map is written that it stands in */
    const char *opens;  /* its value may be the path of a file of this dialect; NULL: of none */
    const char         *
        formerly; /* of a word: what older versions called one, "bitsandbytes=bnb off=disabled"; NULL: nothing */
    const char *opens_with; /* a key without which nobody opens that file; NULL: none */
} vp_key;

typedef struct vp_saying {
    int         setting; /* vp_setting, or VP_ALWAYS */
    const char *word;    /* pattern: "full", "every:N", "*"; of VP_ALWAYS NULL, or VP_OFF */
    const char *key;     /* "" : the setting is said by the value of another row's group alone */
    /* "$": what stands for the letter in the word; "$word": the word; "$global": micro-batch x
     * accumulation x world; "$group": written alone, the completions of one prompt that whole groups of make those; "$each":
     * micro-batch x accumulation, read only; "$file:NAME": NAME is written, any text is read but another row's word;
     * "$set": read only, anything is there but false, "" and an empty list; "$nonzero": read only, a
     * number other than 0; "$count": read only, of how many there is a list; "$with:NAME": read only, NAME=X is in the text and X is not 0;
     * "$told", "$targets": of what an optimizer is told all but its targets, which may be nothing, and these; "$tells:NAME",
     * "$parts": NAME of it, and the targets as LLaMA-Factory's text has them;
     * "$has:NAME": NAME is a member of the list, whatever else is; "$without:NAME": of VP_OFF, it is none; NULL: the key must not
     * be there */
    const char *value;
    const char *when; /* "parallel=zero1|zero2,target=hf": all must hold; "!=" too; NULL: always */
    const char *since, *until;
    bool        read_only;  /* another spelling: never written */
    bool        of_command; /* counts in a command line alone: other files call other things so */
} vp_saying;

/* transformers/trainer.py, _wrap_model(), and training_args.py, train_batch_size. */
#define VP_DATA_PARALLEL \
    "one process that sees several cards trains by DataParallel: the micro-batch counts for each card, and the " \
    "first one gathers what all have computed, and more bytes than are said here"

/* Rows of a dialect whose evaluations are those of transformers' TrainingArguments; "false" is no, read as YAML. */
#define VP_EVALUATION_BY_TRAINER \
    {VP_SETTING_EVAL_BATCH, "none", "eval_strategy", "no"}, \
        {VP_SETTING_EVAL_BATCH, "none", "eval_strategy", "false", .read_only = true}, \
        {VP_SETTING_EVAL_BATCH, "N", "eval_strategy", "steps"}, \
        {VP_SETTING_EVAL_BATCH, "N", "per_device_eval_batch_size", "$"}, \
        {VP_SETTING_EVAL_BATCH, "N", "eval_strategy", "epoch", .read_only = true}, \
    { \
        VP_SETTING_EVAL_BATCH, "N", "per_device_eval_batch_size", "$", .read_only = true \
    }

/* bnb_4bit_quant_storage: its words; for FSDP to cut packed weights they have to be of the format that it computes in, to which it
 * casts what it gathers. */
#define VP_STORAGES "uint8|float16|float32|bfloat16|float64|int8"
#define VP_CUT_PACKED(key, type, precisions) \
    { \
        VP_ALWAYS, NULL, key, type, "tuning=qlora,parallel=fsdp|fsdp2,precision=" precisions \
    }
#define VP_PACKED_AS_COMPUTED(key) \
    VP_CUT_PACKED(key, "bfloat16", "bf16-mixed|bf16-amp|bf16"), \
        VP_CUT_PACKED(key, "float16", "fp16-mixed|fp16-amp|fp16"), \
        VP_CUT_PACKED(key, "float32", "fp32")

/* When cards that cut the gradients reduce them, where Accelerate's plugin is made of accelerator_config; since: see there. */
#define VP_SYNC_EACH "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
/* Of Seq2SeqTrainingArguments() alone (transformers/training_args_seq2seq.py of 5.17). */
#define VP_SEQ2SEQ_KNOWN \
    "sortish_sampler:b predict_with_generate:b generation_max_length:i generation_num_beams:i " \
    "generation_config"
#define VP_ACCELERATOR_KNOWN \
    "split_batches:b dispatch_batches:b even_batches:b use_seedable_sampler:b non_blocking:b " \
    "gradient_accumulation_kwargs use_configured_state:b"
#define VP_ACCUMULATION_KNOWN "adjust_scheduler:b sync_with_dataloader:b"
#define VP_SYNC_SECTIONS \
    {"accelerator_config", VP_STRANGERS_REFUSED, VP_ACCELERATOR_KNOWN}, \
    { \
        "accelerator_config.gradient_accumulation_kwargs", VP_STRANGERS_REFUSED, \
            VP_ACCUMULATION_KNOWN \
    }
#define VP_SYNC_BY_ACCELERATE(...) \
    {VP_SETTING_GRADIENT_SYNC, "step", VP_SYNC_EACH, "false", "parallel=fsdp|fsdp2", __VA_ARGS__}, \
        {VP_SETTING_GRADIENT_SYNC, "step", VP_SYNC_EACH, NULL, "parallel!=fsdp|fsdp2", __VA_ARGS__}, \
    { \
        VP_SETTING_GRADIENT_SYNC, "each", VP_SYNC_EACH, "true", NULL, __VA_ARGS__ \
    }

#define VP_ALWAYS (-1)
/* what no settings count, or none for which `when` holds: where people's own file has it on, editing turns it off */
#define VP_OFF           "off"
#define VP_HAS(name)     "$has:" name
#define VP_WITHOUT(name) "$without:" name

/* optim and lr_scheduler_type of transformers, which files of other trainers have too. */
#define VP_HF_OPTIMIZERS \
    "adamw_torch|adamw_torch_fused|adamw_torch_xla|adamw_torch_npu_fused|adafactor|" \
    "adamw_anyprecision|adamw_torch_4bit|adamw_torch_8bit|ademamix|sgd|adagrad|adamw_bnb_8bit|" \
    "adamw_8bit|ademamix_8bit|lion_8bit|lion_32bit|paged_adamw_32bit|paged_adamw_8bit|" \
    "paged_ademamix_32bit|paged_ademamix_8bit|paged_lion_32bit|paged_lion_8bit|rmsprop|" \
    "rmsprop_bnb|rmsprop_bnb_8bit|rmsprop_bnb_32bit|galore_adamw|galore_adamw_8bit|" \
    "galore_adafactor|galore_adamw_layerwise|galore_adamw_8bit_layerwise|" \
    "galore_adafactor_layerwise|lomo|adalomo|grokadamw|schedule_free_radam|schedule_free_adamw|" \
    "schedule_free_sgd|apollo_adamw|apollo_adamw_layerwise|stable_adamw|adamw_hf"
#define VP_HF_SCHEDULES \
    "linear|cosine|cosine_with_restarts|polynomial|constant|constant_with_warmup|inverse_sqrt|" \
    "reduce_lr_on_plateau|cosine_with_min_lr|cosine_warmup_with_min_lr|warmup_stable_decay|greedy"

/* Optimizers that project matrices: told of which layers by transformers' optim_target_modules, and by optim_args what else. optim: the
 * key that names one. */
#define VP_PROJECTS_BY(optim, name) \
    {VP_SETTING_OPTIMIZER, name ":T", optim, name}, \
        {VP_SETTING_OPTIMIZER, name ":T", "optim_args", "$told"}, \
    { \
        VP_SETTING_OPTIMIZER, name ":T", "optim_target_modules", "$targets" \
    }
#define VP_PROJECTS(optim) \
    VP_PROJECTS_BY(optim, "galore_adamw"), VP_PROJECTS_BY(optim, "galore_adamw_layerwise"), \
        VP_PROJECTS_BY(optim, "galore_adamw_8bit"), \
        VP_PROJECTS_BY(optim, "galore_adamw_8bit_layerwise"), \
        VP_PROJECTS_BY(optim, "galore_adafactor"), \
        VP_PROJECTS_BY(optim, "galore_adafactor_layerwise"), \
        VP_PROJECTS_BY(optim, "apollo_adamw"), VP_PROJECTS_BY(optim, "apollo_adamw_layerwise")
#define VP_LAYERWISE \
    "galore_adamw_layerwise|galore_adamw_8bit_layerwise|galore_adafactor_layerwise|apollo_adamw_layerwise"
#define VP_PROJECTS_RULES(optim, all) \
    {optim, \
     "=" VP_LAYERWISE, \
     "gradient_accumulation_steps", \
     ">1", \
     VP_ERROR, \
     "steps in the backward pass: Trainer refuses to accumulate beside it", \
     "gradient_accumulation_steps: 1"}, \
    { \
        optim, "=" VP_LAYERWISE "|galore_adamw|galore_adamw_8bit|galore_adafactor|apollo_adamw", \
            "optim_target_modules", "unset", VP_ERROR, \
            "Trainer refuses it without optim_target_modules", "optim_target_modules: " all \
    }

/* One letter from use_dora, eval_steps, datasets; and what transformers' own scripts call the model and the sequence. */
#define VP_SCRIPTS_HAVE \
    "use_lora eval_step dataset model_name save_step model_name_or_path block_size"

/* when: optimizers that vplan knows and transformers' Trainer has no word for. */
#define VP_NOT_TRAINERS "optimizer!=adamw_torch_forloop|adamw_bnb_32bit|sgd_momentum"

typedef enum vp_severity { VP_NOTE, VP_WARNING, VP_ERROR } vp_severity;

/* A finding at key where its condition holds and the other's does: "=true", "!=3", "<3", ">0", "set",
 * "unset", "=a|b". Conditions but set and unset look at the default where nothing is written. */
typedef struct vp_rule {
    const char *key, *is;
    const char *other, *other_is; /* NULL: no other */
    vp_severity severity;
    const char *message, *instead;
    const char *since, *until;
    bool        own; /* only where the file is surely its own parser's (vp_dialect.own) */
} vp_rule;

/* What becomes of a key that is not known. */
typedef enum vp_strangers {
    VP_STRANGERS_REFUSED,
    VP_STRANGERS_DROPPED, /* without a word */
    VP_STRANGERS_KEPT     /* the user's own, or of a plugin: nobody's mistake */
} vp_strangers;

typedef struct vp_section {
    const char  *path; /* "" is the root */
    vp_strangers strangers;
    /* names of its members, by spaces, besides those of keys[]; with ":b", ":i", ":r" or ":t" behind it a truth value, a whole
     * number, a number, a text; with ":B" a truth value that its parser reads out of a text as well */
    const char *known;
    /* a key that brings a schema of the user's own: where it is written strangers are kept */
    const char *unless;
    /* names that scripts have of their own, however near a known one */
    const char *scripts;
    /* what its reader puts before names that have it not: "fsdp_" makes version fsdp_version */
    const char *prefix;
} vp_section;

typedef struct vp_dialect {
    const char *name;    /* "deepspeed" */
    const char *library; /* whose version counts: "deepspeed" */
    const char *version; /* the newest that the tables were read from */
    /* what is written where nobody names a version: older ones have other keys, which the newest takes too; NULL: the newest */
    const char *writes;
    const char
        *oldest; /* that they were read from; NULL: the newest alone, or they changed little */
    const vp_key     *keys;
    int               n_keys;
    const vp_section *sections;
    int               n_sections;
    const vp_saying  *says;
    int               n_says;
    const vp_rule    *rules;
    int               n_rules;
    const char       *signs;      /* keys by which a file is known as its own; weigh most */
    const char       *flag_signs; /* the same on a command line; "": it has none; NULL: signs */
    const char       *programs;   /* names of what runs it: program, script; NULL: the user's */
    /* of files that share keys with a user's own script: keys that only its own parser has */
    const char *own;
    const char *options; /* of its own command, besides the keys; NULL: none */
    bool
        refuses; /* strangers that its section keeps are a script's own, and refused where its own program runs */
    const char  *
        refused_by; /* programs of its own by which they are refused, by the first also in the file that its config names; NULL: none */
    bool text_is_number; /* "2e-5" as text becomes a number in its parser */
    bool exponents;      /* 2e-5 is a number to its reader of YAML, "2e-5" is not */
    bool bool_is_number; /* false is 0 and 4.0 is 4 to its parser (pydantic) */
    bool
                maps_take_reals; /* 1e9 is a whole number in its maps, which pydantic reads; what stands above them is passed on */
    bool        hjson;      /* comments and commas too many are taken */
    bool        flags;      /* a command line */
    bool        no_scripts; /* no script of Python is one, */
    const char *but_with;   /* unless this key is in it; NULL: none is */
    vp_format   only;       /* the one form its files have; BY_NAME: any */
    /* keys whose product the processes are divided by before the global batch is; NULL */
    const char *shards;
    const char
        *nodes; /* a key that what it says of processes counts once more for each of; NULL: none */
    bool any_case; /* words are compared without case */
    /* what one process makes of several cards that it sees; NULL: nothing that files do not say */
    const char              *sees_cards;
    const struct vp_dialect *base;         /* whose keys it also has, */
    bool                     base_says;    /* and whose sayings and rules, */
    const char              *base_version; /* in this version unless another is named */
} vp_dialect;

typedef struct vp_target_file {
    const vp_dialect *dialect;
    const char       *name; /* "ds_config.json" */
    vp_format         format;
    const char       *when;
    const char *template; /* of Python: the module's text, "@SETTINGS@" in it; NULL */
    /* the version before which the library was told by this file, where one is asked for by name */
    const char *until;
    const char *since;  /* and from which on it is */
    const char *launch; /* the command that runs it, where it is not the target's */
} vp_target_file;

/* What the files of a target have no key for, and the user's own code, the launch line or the trainer itself decides. */
typedef struct vp_told {
    const char *setting; /* its key; "seq" or, of these words alone, "loss=full|chunked" */
    const char *where;   /* how it is told */
    bool        beside;  /* a file says it too, to the script that is written with it */
} vp_told;

#define VP_TOLD_BY_LORACONFIG \
    {"lora_r", "LoraConfig"}, {"lora_alpha", "LoraConfig"}, {"lora_dropout", "LoraConfig"}, \
    { \
        "lora_targets", "LoraConfig" \
    }

#define VP_FIRST_LAYERS \
    "model.gradient_checkpointing_enable({\"use_reentrant\": False}), then gradient_checkpointing = " \
    "False of each layer behind the first N"
#define VP_TOLD_FIRST_LAYERS \
    { \
        "recompute=first:N", VP_FIRST_LAYERS \
    }

/* What stands beside packed weights is a script's to prepare. */
#define VP_TOLD_PREPARATION(before) \
    {"prepare=on", "prepare_model_for_kbit_training(model) before " before}, \
    { \
        "prepare=off", "no prepare_model_for_kbit_training()" \
    }
#define VP_TOLD_UNPREPARED \
    { \
        "prepare=off", "the trainer itself, which does not call prepare_model_for_kbit_training()" \
    }

typedef struct vp_target {
    const char           *name, *summary;
    const vp_target_file *files;
    int                   n_files;
    const vp_told        *script; /* ended by a row without a setting; NULL: none */
    /* the command that runs it; "$world" */
    const char *launch;
    bool        legacy;
} vp_target;

/* Whose sayings count besides d's, of a file of `first`: its base's, else those of people's scripts; NULL: nobody's. */
const vp_dialect *vp_dialect_below(const vp_dialect *first, const vp_dialect *d);

/* Whether a setting is read from this key. */
bool vp_is_said(const vp_dialect *d, const char *key);

/* Whether a saying of the dialect has this very word for the key: a name of its own where others write a path. */
bool vp_is_literal(const vp_dialect *d, const char *key, const char *text);

/* Target i; NULL past the end. */
const vp_target *vp_target_at(int i);
/* VP_ERR_USAGE with the nearest name. */
vp_status vp_target_named(const char *name, const vp_target **out, vp_err *err);

/* Whether a library of that name, or one that recordings name, has versions here; else *nearest is what may be meant, or NULL. */
bool vp_library_is_known(const char *name, const char **nearest);

/* Adds the versions that the target's files are written for where none is named. VP_ERR_NOMEM; VP_ERR_USAGE: one is older than the
 * tables. */
vp_status vp_target_writes_for(const vp_target *t, json_t *versions, vp_err *err);

/* Whether the settings and their versions are told by this file. */
bool vp_target_file_holds(const vp_target *t, const vp_target_file *file, const vp_settings *s);

/* Every dialect once; NULL past the end. */
const vp_dialect *vp_dialect_at(int i);

/* The key of this path, in the dialect or in what it is based on; NULL. The newest of several
 * whose versions do not overlap, unless version says which. */
const vp_key *vp_dialect_key(const vp_dialect *d, const char *path, const char *version);

/* Whether it is that one, or based on it. d may be NULL. */
bool vp_dialect_is_based_on(const vp_dialect *d, const vp_dialect *of);
/* Whether the dialect has the same keys with the same defaults, sayings and rules in both versions of its library. */
bool vp_dialect_is_alike(const vp_dialect *d, const char *a, const char *b);

/* The version of a dialect's library: asked for, else the table's. of: the dialect that it is the
 * base of, or itself. */
const char *vp_dialect_version(const vp_dialect *d, const vp_dialect *of, const json_t *versions);

/* Whether "a=b|c,d!=e" holds of the settings; what they do not say holds. target NULL: any. */
/* Completions of one prompt by GRPO: GRPOConfig's 8, or the most below that of which whole groups fill a step, and a batch of an
 * evaluation. 0: there is none, for it takes two. The settings say micro-batch, accumulation and cards. */
int vp_group_of(const vp_settings *s);
#define VP_NO_GROUP \
    "a step has whole groups of completions of one prompt, of 2 to 8 in the file that is written " \
    "(num_generations)"

bool vp_when_holds(const char *when, const vp_settings *s, const char *target);

/* NAME of "$has:NAME" or "$without:NAME"; NULL: the value is another. */
const char *vp_saying_member(const vp_saying *say);

/* A list's members joined by "+", however long; of what is no list its text. NULL: out of memory. */
const char *vp_list_text(vp_arena *arena, const vp_value *v);

/* Whether a list's text ("a+b") has the name, however its module is spelt: what stands behind the last dot is it. *at, *n: that
 * member's part of the text; NULL: not asked. */
bool vp_list_has(const char *list, const char *name, const char **at, size_t *n);

/* The text that a saying's value stands for; argument: what stands for its word's letter. NULL: out of
 * memory. */
const char *vp_saying_text(vp_arena *arena, const vp_settings *s, const vp_saying *say,
                           const char *argument);

/* Of no file: what it says counts beside transformers' arguments on a command line. */
extern const vp_dialect vp_dialect_scripts;

extern const vp_dialect vp_dialect_transformers, vp_dialect_trl, vp_dialect_model, vp_dialect_lora,
    vp_dialect_fsdp, vp_dialect_accelerate, vp_dialect_deepspeed, vp_dialect_axolotl,
    vp_dialect_llamafactory, vp_dialect_lightning, vp_dialect_litgpt, vp_dialect_torchtune,
    vp_dialect_torchtitan, vp_dialect_torchtitan_recipe, vp_dialect_unsloth, vp_dialect_megatron,
    vp_dialect_torch, vp_dialect_swift, vp_dialect_swift_fsdp, vp_dialect_accelerator,
    vp_dialect_launch, vp_dialect_trainer_call, vp_dialect_sft_call, vp_dialect_dpo_call;
extern const vp_target vp_target_hf, vp_target_trl, vp_target_accelerate, vp_target_deepspeed,
    vp_target_axolotl, vp_target_llamafactory, vp_target_lightning, vp_target_litgpt,
    vp_target_torchtune, vp_target_torchtitan, vp_target_megatron, vp_target_torch, vp_target_swift,
    vp_target_unsloth;

#endif
