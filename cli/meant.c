#include "cli/meant.h"
#include "cli/names.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What other programs call it, joined by '|', and what it is here: an option of ours, where the command
 * takes it, with a sentence in place of "did you mean it?"; without an option the sentence alone. The first
 * row that says something does. */
typedef struct meaning {
    const char *words, *option, *text;
} meaning;

static const meaning sizes[] = {
    {"-h", "--help", NULL},
    {"-b|--batch|--batch-size|--bs|--train-batch-size", "--global-batch",
     "did you mean --global-batch, the samples of a step, or --micro-batch, those at once?"},
    {"-b|--batch|--batch-size|--bs|--train-batch-size|--mbs|--micro-batch-size|"
     "--per-device-train-batch-size",
     "--micro-batch", NULL},
    {"--per-device-eval-batch-size|--eval-batch-size", "--eval-batch", NULL},
    {"--max-batch|--max-batch-size|--auto-find-batch-size", "--max",
     "did you mean --max micro-batch?"},
    {"-s|--seqlen|--seq-len|--seq-length|--sequence|--sequence-len|--sequence-length|--max-len|--max-length|"
     "--max-seq-len|--max-seq-length|--model-max-length|--cutoff-len|--block-size|--context|"
     "--context-len|--context-length|--context-size|--ctx|--ctx-len|--n-ctx|--tokens|--length",
     "--seq", NULL},
    {"--gradient-accumulation-steps|--gradient-accumulation|--grad-accum|--grad-acc|--accum|--ga|"
     "--accumulate-grad-batches",
     "--accumulation", NULL},
    {"--gradient-accumulation-steps|--gradient-accumulation|--grad-accum|--grad-acc|--accum|--ga|"
     "--accumulate-grad-batches|--accumulation",
     NULL,
     "accumulation is the global batch over the micro-batch: --global-batch N and --micro-batch N"},
    {"-m|--model|--model-name|--model-id|--model-name-or-path|--base-model", "--seq",
     "the model stands behind the command without an option, as in: vplan estimate qwen2.5-7b"},
    {"--epochs|--iterations|--iters|--max-steps", "--steps", NULL},
    {"--trials", "--max-trials", NULL},
};

static const meaning memory[] = {
    {"-d|-g|--gpu|--card|--gpu-name|--gpu-type|--hardware|--accelerator|--cuda", "--device", NULL},
    {"--vram|--mem|--memory|--limit|--gpu-memory|--gpu-mem|--max-memory|--size", "--budget", NULL},
    {"--cpu-memory|--ram|--host-mem", "--host-memory", NULL},
    {"--gpus|--num-gpus|--n-gpus|--ngpus|--n-gpu|--num-processes|--nproc-per-node|--world-size|--dp|"
     "--devices|--ranks",
     "--world", NULL},
    {"--gpus|--num-gpus|--n-gpus|--ngpus|--n-gpu|--world-size|--world|--parallel|--devices", NULL,
     "vplan's own runtime trains on one device; vplan estimate MODEL --trainer hf --world N "
     "counts what each of several takes"},
    {"--zero|--zero-stage|--deepspeed|--zero-optimization", "--parallel",
     "did you mean --parallel zero1, zero2 or zero3, with --world N?"},
    {"--fsdp|--fsdp2", "--parallel", "did you mean --parallel fsdp2, with --world N?"},
    {"--ddp", "--parallel", "did you mean --parallel ddp, with --world N?"},
    {"--tp|--tensor-parallel|--tensor-parallel-size|--pp|--pipeline-parallel|"
     "--pipeline-parallel-size",
     NULL,
     "tensor and pipeline parallel are not estimated; vplan dryrun runs a command that uses them"},
    {"--allocator|--expandable-segments|--pytorch-alloc-conf|--pytorch-cuda-alloc-conf",
     "--alloc-conf", NULL},
    {"--cpu-offload|--offload-optimizer|--offload-params|--offload-param", "--offload", NULL},
};

static const meaning numbers[] = {
    {"--fp16|--half|--float16", "--precision", "did you mean --precision fp16-mixed?"},
    {"--bf16|--bfloat16|--amp|--mixed-precision", "--precision",
     "did you mean --precision bf16-mixed?"},
    {"--fp32|--float32", "--precision", "did you mean --precision fp32?"},
    {"--tf32", "--precision", "did you mean --precision tf32?"},
    {"--dtype|--torch-dtype", "--precision", NULL},
    {"--fp8", NULL, "fp8 is not supported yet"},
    {"--load-in-4bit|--4bit|--quantize|--quantization|--quantization-bit|--bnb|--nf4|--int4",
     "--qlora", "did you mean --qlora, or --load nf4 with --lora?"},
    {"--load-in-8bit|--8bit|--int8", "--load", "did you mean --load int8, with --lora?"},
    {"--lora-r|--lora-rank|--lora-alpha|--lora-dropout|--lora-target|--lora-target-modules|--rank|"
     "--use-lora|--use-peft|--adapter",
     "--lora", "did you mean --lora r=16,alpha=32?"},
    {"--optim", "--optimizer", NULL},
    {"--adam-8bit|--8bit-adam|--adam8bit", "--optimizer", "did you mean an --optimizer of 8 bits?"},
    {"--gradient-checkpointing|--checkpointing|--checkpoint|--grad-checkpointing|"
     "--activation-checkpointing|--recomputation|--remat",
     "--recompute", "did you mean --recompute full?"},
    {"--flash-attention|--flash-attn|--flash|--use-flash-attn|--use-flash-attention-2|--attn|"
     "--attn-implementation|--sdpa",
     "--attention", NULL},
    {"--use-liger-kernel|--use-liger|--liger-kernel", "--liger", NULL},
    {"--torch-compile|--compiled", "--compile", NULL},
    {"--resume|--resume-from-checkpoint|--save", "--eval-batch",
     "no option is needed: the lines host and resuming say what saving and going on from a "
     "checkpoint take"},
    {"--lr|--learning-rate", "--recipe", "the learning rate stands in the file of --recipe"},
    {"--weight-decay", "--recipe", "weight decay stands in the file of --recipe"},
    {"--dropout", "--recipe", "dropout stands in the file of --recipe"},
    {"--lr|--learning-rate|--weight-decay|--epochs|--max-steps|--seed", "--max",
     "it changes no bytes of a step"},
    {"--load|--load-in-4bit|--load-in-8bit", NULL,
     "vplan's own runtime has no quantised weights: vplan plan --trainer hf --qlora"},
    {"--qlora", NULL,
     "QLoRA is not supported by vplan's own runtime: vplan plan --trainer hf --qlora"},
    {"--lora", NULL, "adapters are said where a model is planned: vplan plan, tune or estimate"},
    {"--freeze", NULL, "frozen parts are estimated only: vplan estimate --freeze"},
};

static const meaning files[] = {
    {"--out|--output|--output-dir", "-o", NULL},
    {"--overwrite|-f", "--force", NULL},
    {"--quiet|--silent", "-q", NULL},
    {"--verbose", "-v", NULL},
    {"--csv", NULL, "vplan explain PLAN prints CSV with --buffers and with --program"},
};

#define TABLE(rows) \
    { \
        rows, sizeof(rows) / sizeof *(rows) \
    }
static const struct {
    const meaning *rows;
    size_t         n;
} tables[] = {TABLE(sizes), TABLE(memory), TABLE(numbers), TABLE(files)};

/* Whether name is one of the words, with '_' for '-' and in any case. */
static bool is_among(const char *words, const char *name)
{
    size_t n = strlen(name);

    for (; *words; words += strcspn(words, "|"), words += *words == '|') {
        size_t i = 0;
        if (strcspn(words, "|") != n)
            continue;
        while (i < n &&
               (strncasecmp(words + i, name + i, 1) == 0 || (words[i] == '-' && name[i] == '_')))
            i++;
        if (i == n)
            return true;
    }
    return false;
}

/* Which other commands take an option of this name; false: none. */
static bool elsewhere(const char *name, char *buf, size_t buf_size)
{
    enum { MAX_LISTED = 3 };
    const vp_command *c;
    size_t            n       = 0;
    int               n_found = 0;

    for (int i = 0; (c = vp_command_at(i)) && n < buf_size; i++) {
        const vp_option_set *sets[VP_MAX_SETS];
        int                  n_sets = vp_command_sets(c, sets);
        if (vp_option_find(sets, n_sets, name))
            n += (size_t)snprintf(buf + n, buf_size - n, "%svplan %s",
                                  n_found++ ? ", " : "it is an option of ", c->name);
    }
    if (n_found > MAX_LISTED)
        snprintf(buf, buf_size, "it is an option of other commands");
    return n_found > 0;
}

static bool takes(const vp_command *command, const char *option)
{
    const vp_option_set *sets[VP_MAX_SETS];

    return vp_option_find(sets, vp_command_sets(command, sets), option) != NULL;
}

bool vp_option_meant(const vp_command *command, const char *name, char *buf, size_t buf_size)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (size_t i = 0; i < tables[t].n; i++) {
            const meaning *m = &tables[t].rows[i];
            if (!is_among(m->words, name) || (m->option && !takes(command, m->option)))
                continue;
            if (m->text)
                snprintf(buf, buf_size, "%s", m->text);
            else
                snprintf(buf, buf_size, "did you mean %s?", m->option);
            return true;
        }
    return elsewhere(name, buf, buf_size);
}

bool vp_argument_meant(const vp_command *command, const char *word, char *buf, size_t buf_size)
{
    char    shown[64];
    vp_err  ignored = {0};
    int64_t bytes;
    bool    is_card = takes(command, "--device") && vp_names_a_card(word),
         is_size    = !is_card && takes(command, "--budget") &&
                   word[strspn(word, "0123456789.")] != '\0' &&
                   vp_size_parse(word, &bytes, &ignored) == VP_OK;

    const char *option = is_card                   ? "--device"
                         : is_size                 ? "--budget"
                         : takes(command, "--oom") ? "--oom"
                                                   : NULL;

    if (option)
        snprintf(buf, buf_size, "did you mean %s %s?", option,
                 vp_text_escape(word, shown, sizeof shown));
    return option != NULL;
}

bool vp_command_meant(const char *word, char *buf, size_t buf_size)
{
    static const struct {
        const char *words, *command;
    } commands[] = {
        {"memory|mem|fit|fits|size|vram|calc|calculate|profile", "estimate"},
        {"optimize|optimise|search", "plan"},
        {"train|launch|exec", "run"},
        {"autotune|sweep", "tune"},
        {"lint|validate|verify", "check"},
        {"trace|simulate", "dryrun"},
        {"oom|diagnose|debug", "doctor"},
        {"gpus|gpu|cards|hardware", "devices"},
        {"list|ls", "models"},
        {"trainers|frameworks", "targets"},
        {"version|-v|-V", "--version"},
    };
    char        shown[96];
    const char *model;

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (is_among(commands[i].words, word)) {
            snprintf(buf, buf_size, "did you mean %s?", commands[i].command);
            return true;
        }
    model = *word == '-' ? NULL : vp_built_in_name(word);
    if (model)
        snprintf(buf, buf_size, "it is a model: vplan estimate %s",
                 vp_text_escape(word, shown, sizeof shown));
    else if (*word == '-')
        snprintf(
            buf, buf_size,
            "options stand behind a command, which vplan --help lists: vplan estimate MODEL --device 4090");
    return model || *word == '-';
}

const char *vp_value_meant(const char *text)
{
    static const struct {
        const char *words, *value;
    } values[] = {
        {"fp16|float16|half|f16|16|16-mixed|fp16-amp|mixed-fp16", "fp16-mixed"},
        {"bfloat16|bf16-amp|mixed|amp|mixed-bf16|auto", "bf16-mixed"},
        {"float32|float|32|f32|full|32-true", "fp32"},
        {"adamw-8bit|adamw-bnb-8bit|paged-adamw-8bit|adam-8bit|8bit|adam8bit|adamw8bit|paged-adamw",
         "adamw-8bit"},
        {"adam|adamw-torch|adamw-torch-fused|adamw-hf|adamw-fused", "adamw"},
        {"flash2|flash-attention|flash-attention-2|flash-attn|fa2|sdpa|sdpa:flash", "flash"},
        {"eager|naive|vanilla", "math"},
    };

    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (is_among(values[i].words, text))
            return values[i].value;
    return NULL;
}

/* A trainer whose settings plan knows, and whose training step is another's here. */
#define PLANNED(word, name, near) \
    { \
        word, \
            "vplan plan MODEL --trainer " name " --seq N --global-batch N says what its settings " \
            "take; the nearest step here is that of --trainer " near \
    }
static const struct {
    const char *words, *text;
} planned[] = {
    PLANNED("unsloth", "unsloth", "trl"),
    PLANNED("axolotl", "axolotl", "hf"),
    PLANNED("llamafactory|llama-factory|llama_factory", "llamafactory", "hf"),
    PLANNED("ms-swift|swift", "ms-swift", "hf"),
    PLANNED("accelerate", "accelerate", "torch"),
    PLANNED("deepspeed", "deepspeed", "torch"),
    PLANNED("lightning|pytorch-lightning", "lightning", "torch"),
    PLANNED("litgpt", "litgpt", "torch"),
    PLANNED("torchtune", "torchtune", "torch"),
    PLANNED("torchtitan", "torchtitan", "torch"),
    PLANNED("megatron|megatron-lm", "megatron", "torch"),
};

const char *vp_trainer_meant(const char *text)
{
    for (size_t i = 0; i < sizeof planned / sizeof *planned; i++)
        if (is_among(planned[i].words, text))
            return planned[i].text;
    if (is_among("transformers|huggingface|hugging-face|trainer|lora|peft", text))
        return "hf";
    if (is_among("sft|sfttrainer|dpo|dpotrainer", text))
        return "trl";
    return is_among("pytorch|loop", text) ? "torch" : NULL;
}
