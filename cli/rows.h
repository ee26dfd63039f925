/* cli/rows.h: the options that several commands take. A command's row is one of these and what is
 * its own: the default, sometimes the words.
 *     {VP_ROW_SEQ(estimate_options, seq), .help = "...", .otherwise = "..."} */
#ifndef VP_CLI_ROWS_H
#define VP_CLI_ROWS_H

#include "cli/cli.h"

/* The adapters that are meant where --lora stands alone, or --qlora: the usual ones of QLoRA's scripts
 * (Dettmers et al. 2023: on all linear layers). */
#define VP_LORA_USUAL "r=16,alpha=32,targets=all-linear"

/* Of plan and tune, whose question has no usual answer. */
#define VP_SEQ_REQUIRED "--seq N is required: tokens of a sample, like --seq 2048"
#define VP_SYNC_NEEDS_CARDS \
    "--sync-each-batch: gradients of one card are not reduced; with --world N --parallel fsdp2 they are"
#define VP_GLOBAL_BATCH_REQUIRED \
    "--global-batch N is required: samples of one optimizer step, like --global-batch 32"

#define VP_ROW_DEVICE(type, field) \
    .name = "--device", .kind = VP_OPTION_INPUT, .at = offsetof(type, field), \
    .value = "NAME|FILE", .suggest = vp_word_of_device, .example = "4090"

#define VP_ROW_BUDGET(type, field) \
    .name = "--budget", .kind = VP_OPTION_AMOUNT, .at = offsetof(type, field), \
    .value = "SIZE|SHARE", .example = "80%"

#define VP_ROW_RESERVE(type, field) \
    .name = "--reserve", .kind = VP_OPTION_AMOUNT, .at = offsetof(type, field), \
    .value     = "SIZE|SHARE", \
    .help      = "Of the budget, what is kept free; a share is of what is usable", \
    .otherwise = "nothing", .example = "10%"

#define VP_ROW_SEQ(type, field) \
    .name = "--seq", .kind = VP_OPTION_COUNT, .at = offsetof(type, field), .value = "N", \
    .unit = "tokens", .min = 1, .example = "2048"

#define VP_ROW_PADDING(type, field) \
    .name = "--padding", .kind = VP_OPTION_CHOICE, .at = offsetof(type, field), \
    .words = "none|mask", .otherwise = "none", .example = "mask"

#define VP_ROW_MICRO_BATCH(type, field) \
    .name = "--micro-batch", .kind = VP_OPTION_COUNT, .at = offsetof(type, field), .value = "N", \
    .unit = "samples", .min = 1, .example = "4"

#define VP_ROW_CLASS(type, field) \
    { \
        .name = "--class", .kind = VP_OPTION_TEXT, .at = offsetof(type, field), .value = "NAME", \
        .help = "The class of transformers that is trained; the number of labels stands in the " \
                "config, in num_labels or id2label, and is 2 where it does not", \
        .otherwise = "the one that the config names", .example = "BertForSequenceClassification" \
    }

/* Which of them a device can do is asked later, and is the better reason: not checked here. */
#define VP_ROW_PRECISION(type, field) \
    .name = "--precision", .kind = VP_OPTION_CHOICE, .at = offsetof(type, field), \
    .word_at = vp_word_of_precision, .open = true, .example = "bf16-mixed"

#define VP_ROW_GRADIENTS(type, field) \
    .name = "--gradients", .kind = VP_OPTION_CHOICE, .at = offsetof(type, field), \
    .word_at = vp_word_of_gradients, .example = "bf16"

#define VP_ROW_OPTIMIZER(type, field) \
    .name = "--optimizer", .kind = VP_OPTION_CHOICE, .at = offsetof(type, field), \
    .word_at = vp_word_of_optimizer, .example = "adamw-8bit"

#define VP_ROW_ATTENTION(type, field) \
    .name = "--attention", .kind = VP_OPTION_CHOICE, .at = offsetof(type, field), \
    .word_at = vp_word_of_attention, .otherwise = "flash", .example = "math"

#define VP_ROW_RECOMPUTE(type, field) \
    .name = "--recompute", .kind = VP_OPTION_CHOICE, .at = offsetof(type, field), \
    .words = "none|attention|mlp|full|segments:N", .open = true, .example = "full"

#define VP_ROW_LOSS(type, field) \
    .name = "--loss", .kind = VP_OPTION_CHOICE, .at = offsetof(type, field), \
    .words = "full|chunked|chunked:N", .open = true, .example = "chunked:512"

#define VP_ROW_OUT(type, field, shown) \
    .name = "-o", .kind = VP_OPTION_OUTPUT, .at = offsetof(type, field), .example = shown

#define VP_ROW_FORCE(type, field) \
    { \
        .name = "--force", .kind = VP_OPTION_FLAG, .at = offsetof(type, field), \
        .help = "Replace files that exist" \
    }

#define VP_ROW_ALL(type, field) \
    { \
        .name = "--all", .kind = VP_OPTION_FLAG, .at = offsetof(type, field), \
        .help = "A line for every kind of tensor at the peak, instead of one for each group" \
    }

#define VP_ROW_HTML(type, field) \
    { \
        .name = "--html", .kind = VP_OPTION_OUTPUT, .at = offsetof(type, field), .value = "FILE", \
        .help = "Write a page: every tensor over the step, where it lies and while it does; it " \
                "needs no network and no script", \
        .otherwise = "none", .example = "plan.html" \
    }

#define VP_ROW_VERSIONS(type, field) \
    .name = "--versions", .kind = VP_OPTION_TEXT, .at = offsetof(type, field), \
    .value = "NAME=VERSION,...|PATH", .otherwise = "the newest that vplan knows", \
    .example = "transformers=5.17,trl=1.16"

#define VP_ROW_CALIBRATION(type, field) \
    .name = "--calibration", .kind = VP_OPTION_TEXT, .at = offsetof(type, field), \
    .value     = "FILE|none", \
    .otherwise = "$XDG_STATE_HOME/vplan/calibration, ~/.local/state without", .example = "none"

#define VP_ROWS(array) .rows = array, .n = sizeof array / sizeof *array

#endif
