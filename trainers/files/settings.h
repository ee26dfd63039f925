/* trainers/files/settings.h: one point of a trainer's language, in words that are no trainer's.
 *     vp_settings s;
 *     VP_TRY(vp_settings_read(arena, "settings.json", &s, err));
 *     puts(s.value[VP_SETTING_PRECISION]);     // "bf16-mixed"
 *
 * A value is text in its canonical form, so that two settings are the same where their texts are. */
#ifndef VP_TRAINERS_FILES_SETTINGS_H
#define VP_TRAINERS_FILES_SETTINGS_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "plan/plan.h"

/* X(name, key in files, what it is where nothing is said (NULL: must be said), its words)
 * In words, N is a whole number from 1, R a number from 0, W any word of a trainer's, T that and
 * behind a colon what it is told ("apollo_adamw:rank=8"), L names joined by "+". */
#define VP_SETTING_TABLE(X) \
    X(METHOD, "method", "sft", "sft|dpo|reward|grpo") \
    X(PARALLEL, "parallel", "none", "none|ddp|fsdp|fsdp2|zero1|zero2|zero3") \
    X(WORLD, "world", "1", "N") \
    X(MICRO_BATCH, "micro_batch", NULL, "N") \
    X(ACCUMULATION, "accumulation", "1", "N") \
    X(GRADIENT_SYNC, "gradient_sync", "step", "step|each") \
    X(SEQ, "seq", NULL, "N") \
    X(COMPLETION, "completion", "512", "N") \
    X(GENERATOR, "generator", "model", "model|vllm") \
    X(PRECISION, "precision", NULL, "fp32|bf16-mixed|bf16-amp|bf16|fp16-mixed|fp16-amp|fp16") \
    X(OPTIMIZER, "optimizer", NULL, "T") \
    X(RECOMPUTE, "recompute", "none", \
      "none|full|full:reentrant|selective|every:N|first:N|chunks:N|blocks:L|attention|mlp") \
    X(OFFLOAD_OPTIMIZER, "offload_optimizer", "none", "none|cpu") \
    X(OFFLOAD_PARAMS, "offload_params", "none", "none|cpu") \
    X(OFFLOAD_ACTIVATIONS, "offload_activations", "none", "none|cpu") \
    X(LOSS, "loss", "full", "full|chunked|chunked:N|liger|liger-all") \
    X(ATTENTION, "attention", "sdpa", \
      "eager|sdpa|sdpa:flash|sdpa:efficient|sdpa:math|sdpa:cudnn|flash2|flash3|flex") \
    X(CLIP_NORM, "clip_norm", "1.0", "R") \
    X(TUNING, "tuning", "full", "full|lora|qlora") \
    X(QUANT, "quant", "nf4-dq", "nf4|nf4-dq") \
    X(PREPARE, "prepare", "trainer", "trainer|on|off") \
    X(LORA_R, "lora_r", NULL, "N") \
    X(LORA_ALPHA, "lora_alpha", NULL, "N") \
    X(LORA_DROPOUT, "lora_dropout", NULL, "R") \
    X(LORA_TARGETS, "lora_targets", NULL, "L") \
    X(LORA_SAVE, "lora_save", "none", "L") \
    X(EVAL_BATCH, "eval_batch", "none", "none|N") \
    X(ALLOCATOR, "allocator", "default", "default|expandable")

typedef enum vp_setting {
#define X(name, key, otherwise, words) VP_SETTING_##name,
    VP_SETTING_TABLE(X)
#undef X
        VP_N_SETTINGS
} vp_setting;

typedef struct vp_settings vp_settings;

/* The setting that has to be another for this one to count, as s says or by default; VP_N_SETTINGS: it counts. Some are about adapters
 * alone (QUANT, PREPARE: about those over 4-bit weights), COMPLETION and GENERATOR about the method that writes what it trains on. nf4 is
 * plain NF4, nf4-dq NF4 whose scales are quantised too. PREPARE: whether peft's prepare_model_for_kbit_training() makes fp32 what is
 * not quantised; trainer: as the trainer does it unasked. COMPLETION: tokens at the end of SEQ that are written, by GENERATOR: the
 * model itself, or vLLM. */
vp_setting vp_setting_waits_for(vp_setting setting, const vp_settings *s);
bool       vp_setting_counts(vp_setting setting, const vp_settings *s);

const char *vp_setting_key(vp_setting s);
const char *vp_setting_words(vp_setting s);
const char *vp_setting_otherwise(vp_setting s); /* NULL: none */

/* What vplan's own name of a setting's word, or estimate's, is among the trainers'; any other text is itself. */
const char *vp_setting_synonym(vp_setting s, const char *text);

/* The canonical text of a value ("2.0" of a norm given as 2), or NULL: not one of the setting's. */
const char *vp_setting_canonical(vp_arena *arena, vp_setting s, const char *text);

/* Whether word has the form of pattern: "every:N" of "every:2"; "*" is any. *argument (NULL, or
 * points into word): what stands for the letter. */
bool vp_word_is(const char *word, const char *pattern, const char **argument);
/* Of the first n letters of "a|b:N", whether word has one's form. */
bool vp_word_is_among(const char *word, const char *patterns, size_t n);

struct vp_settings {
    const char *value[VP_N_SETTINGS];     /* NULL: not said */
    const char *trainer, *model, *device; /* NULL: not said */
    const char *model_class;              /* "BertForSequenceClassification"; NULL: not said */
    int64_t     n_labels;                 /* of a classifier; 0: not said */
    bool        padded;                   /* what was predicted is with a mask that holds padding */
    json_t     *versions; /* borrowed from the document: {"transformers": "5.17"}; NULL */
    json_t     *asked;    /* the same of those that somebody asked for; NULL */
    int64_t     allocated_bytes, reserved_bytes, device_bytes; /* -1: not said */
    int64_t     reserved_high_bytes; /* upper end of an interval about reserved_bytes; -1: none */
    double      step_time_s;         /* -1 */
    json_t     *document;            /* the caller's reference: vp_settings_release() */
    /* defaults that were taken, as sentences */
    const char *assumed[VP_N_SETTINGS];
    int         n_assumed;
};

#define VP_SETTINGS_UNSAID \
    (vp_settings) \
    { \
        .allocated_bytes = -1, .reserved_bytes = -1, .device_bytes = -1, \
        .reserved_high_bytes = -1, .step_time_s = -1 \
    }

/* A file that `plan --trainer -o` or a person wrote (kind settings), or a plan file. VP_ERR_INPUT
 * with file and field: a value that no trainer has a word for; of a plan, what no settings say. */
vp_status vp_settings_read(vp_arena *arena, const char *path, vp_settings *out, vp_err *err);
void      vp_settings_release(vp_settings *s);

/* What is not said gets its default, which is listed in assumed; VP_ERR_INPUT: it has none. */
vp_status vp_settings_complete(vp_arena *arena, vp_settings *s, const char *file, vp_err *err);

/* The "common" object: numbers as numbers, offload in one word. NULL: out of memory. */
json_t *vp_settings_common_json(const vp_settings *s);

#endif
