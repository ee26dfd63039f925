/* trainers/files/judge_megatron.c: what Megatron-LM's validate_args() refuses and no rule can say: sizes that do not divide each other,
 * options that a model wants, switches with a value, and names of other trainers' options (megatron/training/arguments.py, core 0.19). */
#include "trainers/files/check_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const vp_value *at(const vp_judged *x, const char *key)
{
    return vp_value_at(x->file->doc->root, key);
}

/* 0: it is not written, or the text does not say it. */
static int64_t number(const vp_judged *x, const char *key)
{
    char        buf[64], *end;
    const char *text = vp_effective(x->c, x->file, key, buf, sizeof buf);
    int64_t     n    = text ? strtoll(text, &end, 10) : 0;

    return text && *text && !*end && n > 0 && n < 1000000000 ? n : 0;
}

static double real(const vp_judged *x, const char *key)
{
    char        buf[64], *end;
    const char *text = vp_effective(x->c, x->file, key, buf, sizeof buf);
    double      r    = text ? strtod(text, &end) : -1;

    return text && *text && !*end ? r : -1;
}

static void refuse(vp_judged *x, vp_severity severity, const char *key, const char *message)
{
    vp_find(x->c, x->file, severity, at(x, key), key, NULL, "%s: Megatron refuses it", message);
}

/* Its own script, or options alone: others read some of its options their own way. */
static bool is_its(const vp_judged *x)
{
    return !x->file->doc->program || vp_check_is_run(x->file);
}

/* Whether a switch stands here, however it is said. */
static bool is_on(const vp_judged *x, const char *key)
{
    return vp_is_there(at(x, key));
}

/* How many a launcher on one machine starts; 0: not known. */
static int64_t processes(const vp_judged *x)
{
    const vp_value *nodes = vp_launch_option(x->c, "nnodes", NULL),
                   *each  = vp_launch_option(x->c, "nproc_per_node", NULL);
    char a[64], b[64];

    if (!each || (nodes && strcmp(vp_value_text(nodes, a, sizeof a), "1") != 0))
        return 0;
    return strtoll(vp_value_text(each, b, sizeof b), NULL, 10);
}

static void judge_sizes(vp_judged *x)
{
    vp_arena *arena  = x->c->arena;
    int64_t   hidden = number(x, "hidden_size"), heads = number(x, "num_attention_heads"),
            layers = number(x, "num_layers"), seq = number(x, "seq_length"),
            positions = number(x, "max_position_embeddings"),
            tensor    = number(x, "tensor_model_parallel_size"),
            pipeline  = number(x, "pipeline_model_parallel_size"),
            context   = number(x, "context_parallel_size");
    int64_t world     = processes(x);
    int64_t shares    = tensor * pipeline * context;
    double  lr = real(x, "lr"), least = real(x, "min_lr");

    if (hidden && heads && hidden % heads != 0 && !at(x, "kv_channels"))
        refuse(x, VP_ERROR, "num_attention_heads",
               vp_arena_printf(arena, "hidden-size %lld is no multiple of %lld heads",
                               (long long)hidden, (long long)heads));
    if (seq && positions && positions < seq)
        refuse(x, VP_ERROR, "seq_length",
               vp_arena_printf(arena, "%lld is more than max-position-embeddings %lld",
                               (long long)seq, (long long)positions));
    if (layers && pipeline > 1 && layers % pipeline != 0 &&
        !at(x, "decoder_first_pipeline_num_layers") && !at(x, "decoder_last_pipeline_num_layers") &&
        !is_on(x, "account_for_embedding_in_pipeline_split") &&
        !is_on(x, "account_for_loss_in_pipeline_split") && !at(x, "pipeline_model_parallel_layout"))
        refuse(x, VP_WARNING, "pipeline_model_parallel_size",
               vp_arena_printf(arena, "%lld layers are no multiple of %lld stages",
                               (long long)layers, (long long)pipeline));
    if (world > 0 && shares > 1 && world % shares != 0)
        refuse(x, VP_WARNING, /* of how many machines it is, people change */
               tensor > 1     ? "tensor_model_parallel_size"
               : pipeline > 1 ? "pipeline_model_parallel_size"
                              : "context_parallel_size",
               vp_arena_printf(arena,
                               "%lld processes are no multiple of tensor x pipeline x context "
                               "parallel, %lld x %lld x %lld",
                               (long long)world, (long long)tensor, (long long)pipeline,
                               (long long)context));
    if (is_on(x, "overlap_param_gather") && !is_on(x, "use_distributed_optimizer") &&
        !is_on(x, "use_megatron_fsdp") && !is_on(x, "use_custom_fsdp") &&
        !vp_check_holds(x->c, x->file, "optimizer", "=dist_muon"))
        refuse(x, VP_ERROR, "overlap_param_gather", "it wants --use-distributed-optimizer");
    if (vp_check_is_run(x->file) && !x->file->doc->has_gap) {
        if (at(x, "save") && !at(x, "save_interval"))
            refuse(x, VP_ERROR, "save", "it wants --save-interval");
        if (number(x, "expert_model_parallel_size") > 1 && !at(x, "num_experts") &&
            !at(x, "use_checkpoint_args"))
            refuse(x, VP_ERROR, "expert_model_parallel_size", "there are no --num-experts");
    }
    if (lr > 0 && least > lr)
        refuse(x, VP_ERROR, "min_lr", "it is more than lr");
}

/* A command that says most of a model. */
static void judge_missing(vp_judged *x)
{
    static const char *const needed[] = {"num_layers",       "hidden_size",
                                         "seq_length",       "num_attention_heads",
                                         "micro_batch_size", "max_position_embeddings"};
    enum { N_NEEDED = sizeof needed / sizeof *needed };
    const vp_document *doc = x->file->doc;
    int                n   = 0;

    for (int i = 0; i < N_NEEDED; i++)
        n += at(x, needed[i]) != NULL;
    for (const vp_remark *r = doc->remarks; r; r = r->next)
        n -= r->is_torn || r->is_gap ? N_NEEDED : 0;
    if (n < N_NEEDED - 1 || doc->has_gap || at(x, "yaml_cfg") || at(x, "use_checkpoint_args") ||
        at(x, "encoder_seq_length") || at(x, "encoder_num_layers") || at(x, "decoder_num_layers") ||
        at(x, "hybrid_layer_pattern"))
        return;
    for (int i = 0; i < N_NEEDED; i++)
        if (!at(x, needed[i]))
            vp_find(x->c, x->file, VP_ERROR, NULL, needed[i], NULL,
                    "is missing: Megatron ends with an error without it");
}

static void judge_options(vp_judged *x)
{
    static const char *const others[][2] = {
        {"per_device_train_batch_size", "--micro-batch-size"},
        {"train_batch_size", "--global-batch-size"},
        {"gradient_accumulation_steps", "--global-batch-size"},
        {"gradient_checkpointing", "--recompute-granularity full"},
        {"learning_rate", "--lr"},
        {"num_train_epochs", "--train-iters"},
        {"max_steps", "--train-iters"},
        {"max_seq_length", "--seq-length"},
        {"max_length", "--seq-length"},
        {"max_grad_norm", "--clip-grad"},
        {"warmup_steps", "--lr-warmup-iters"},
        {"warmup_ratio", "--lr-warmup-fraction"},
        {"lr_scheduler_type", "--lr-decay-style"},
        {"cpu_offloading", "--cpu-offloading-num-layers"},
    };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (at(x, others[i][0]) && vp_check_is_run(x->file))
            vp_find(x->c, x->file, VP_ERROR, at(x, others[i][0]), others[i][0], others[i][1],
                    "no option of Megatron's, whose parser refuses it unless the script adds it");
    for (const vp_value *v = x->file->doc->root->first; v; v = v->next) {
        const vp_key *k     = vp_file_key(x->c, x->file, v->key, NULL);
        const char   *known = k ? NULL : vp_check_known_at(x->file, "", v->key);
        size_t        n     = strlen(v->key);
        bool          is_switch =
            (k && k->type == VP_KEY_FLAG) || (known && strncmp(known + n, ":b", 2) == 0);
        if (is_switch && v->text && v->text[0] && !strchr(v->text, '$') && vp_check_is_run(x->file))
            vp_find(x->c, x->file, VP_ERROR, v, v->key, NULL,
                    "is a switch and takes no value: argparse refuses %.40s", v->text);
    }
}

void vp_judge_megatron(vp_judged *x)
{
    if (x->file->doc->format != VP_FORMAT_FLAGS || !is_its(x))
        return;
    judge_sizes(x);
    judge_missing(x);
    judge_options(x);
}
