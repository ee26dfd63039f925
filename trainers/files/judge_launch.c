/* trainers/files/judge_launch.c: how many processes start, on how many cards. */
#include "base/options.h"
#include "trainers/files/check_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* accelerate launch of 1.15, torchrun of torch 2.11, deepspeed 0.19: the options of their parsers. */
static const char launchers_options[] =
    "autotuning aws_access_key_id aws_secret_access_key bind_core_list bind_cores_to_rank "
    "config_file cpu debug deepspeed_config_file deepspeed_exclusion_filter "
    "deepspeed_hostfile deepspeed_inclusion_filter deepspeed_moe_layer_cls_names "
    "deepspeed_multinode_launcher downcast_bf16 duplicate_stderr_filters "
    "duplicate_stdout_filters dynamo_backend dynamo_mode dynamo_use_dynamic "
    "dynamo_use_fullgraph dynamo_use_regional_compilation enable_cpu_affinity "
    "enable_each_rank_log env event_log_handler exclude force_multi fp8_amax_compute_algo "
    "fp8_amax_history_len fp8_backend fp8_enable_fsdp_float8_all_gather fp8_format "
    "fp8_interval fp8_margin fp8_opt_level fp8_override_linear_precision fp8_pad_inner_dim "
    "fp8_use_autocast_during_eval fsdp_activation_checkpointing "
    "fsdp_activation_checkpointing_offload fsdp_auto_wrap_policy fsdp_backward_prefetch "
    "fsdp_cpu_ram_efficient_loading fsdp_forward_prefetch fsdp_min_num_params "
    "fsdp_offload_params fsdp_reshard_after_forward fsdp_sharding_strategy "
    "fsdp_state_dict_type fsdp_sync_module_states fsdp_transformer_layer_cls_to_wrap "
    "fsdp_use_orig_params fsdp_version gpu_ids gradient_accumulation_steps gradient_clipping "
    "hostfile include launcher launcher_args local_addr local_ranks_filter log_dir log_level "
    "logs_specs machine_rank main_process_ip main_process_port main_training_function "
    "master_addr master_port max_restarts megatron_lm_attention_backend "
    "megatron_lm_attention_dropout megatron_lm_attention_softmax_in_fp32 "
    "megatron_lm_calculate_per_token_loss megatron_lm_context_parallel_size "
    "megatron_lm_decoder_last_pipeline_num_layers megatron_lm_eod_mask_loss "
    "megatron_lm_expert_model_parallel_size megatron_lm_expert_tensor_parallel_size "
    "megatron_lm_gradient_clipping megatron_lm_hidden_dropout megatron_lm_no_load_optim "
    "megatron_lm_no_save_optim megatron_lm_num_micro_batches "
    "megatron_lm_optimizer_cpu_offload megatron_lm_overlap_cpu_optimizer_d2h_h2d "
    "megatron_lm_pp_degree megatron_lm_recompute_activations "
    "megatron_lm_recompute_granularity megatron_lm_recompute_method "
    "megatron_lm_recompute_num_layers megatron_lm_sequence_parallelism megatron_lm_tp_degree "
    "megatron_lm_use_custom_fsdp megatron_lm_use_distributed_optimizer "
    "megatron_lm_use_precision_aware_optimizer megatron_lm_use_rotary_position_embeddings "
    "mixed_precision module monitor_interval mpirun_hostfile multi_gpu nnodes no_local_rank "
    "no_python no_ssh no_ssh_check no_tpu_cluster node_rank nproc_per_node num_accelerators "
    "num_cpu_threads_per_process num_gpus num_machines num_nodes num_processes numa_binding "
    "offload_optimizer_device offload_optimizer_nvme_path offload_param_device "
    "offload_param_nvme_path parallelism_config_cp_backend "
    "parallelism_config_cp_comm_strategy parallelism_config_cp_size "
    "parallelism_config_dp_replicate_size parallelism_config_dp_shard_size "
    "parallelism_config_sp_attn_implementation parallelism_config_sp_backend "
    "parallelism_config_sp_seq_length parallelism_config_sp_seq_length_is_variable "
    "parallelism_config_sp_size parallelism_config_tp_size quiet rdzv_backend rdzv_conf "
    "rdzv_endpoint rdzv_id redirects role run_path same_network save_pid signals_to_handle "
    "ssh_port standalone start_method tee tpu tpu_cluster tpu_use_sudo use_deepspeed use_fsdp "
    "use_megatron_lm use_parallelism_config venv_script virtual_local_rank vm zero3_init_flag "
    "zero3_save_16bit_model zero_stage";

enum { MAX_OPTIONS = 256 };

/* An option that no launcher has and that is nearly one: argparse refuses it, or what begins an option is that one. */
static void judge_options(vp_checked *c, const vp_checked_file *file)
{
    const char *names[MAX_OPTIONS];
    int         n = 0;

    for (const char *p = launchers_options; *p && n < MAX_OPTIONS;
         p += strcspn(p, " "), p += *p == ' ')
        if (!(names[n++] = vp_arena_printf(c->arena, "%.*s", (int)strcspn(p, " "), p)))
            return;
    for (const vp_value *v = file->doc->launch->root->first; v; v = v->next) {
        int nearest = v->is_option && strlen(v->key) > 5 && !vp_listed(launchers_options, v->key)
                          ? vp_word_nearest(v->key, names, n)
                          : -1;
        if (nearest < 0 ||
            vp_word_distance(v->key, names[nearest]) > (strlen(v->key) < 12 ? 1 : 2) ||
            strncmp(names[nearest], v->key, strlen(v->key)) == 0)
            continue;
        vp_find(c, file, VP_ERROR, v, v->key, names[nearest],
                "no option of the launcher's: it ends with an error");
    }
}

/* A launcher that is told to start none. */
static bool judge_none(vp_checked *c, const vp_checked_file *file)
{
    static const char *const keys[]  = {"num_processes",  "nproc_per_node", "num_gpus",
                                        "NPROC_PER_NODE", "nnodes",         "num_nodes",
                                        "NNODES"};
    bool                     is_none = false;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const vp_value *v = vp_value_at(file->doc->launch->root, keys[i]);
        if (!v || v->kind != VP_VALUE_INT || v->integer != 0)
            continue;
        vp_find(c, file, VP_ERROR, v, keys[i], NULL, "0: no process would start");
        is_none = true;
    }
    return is_none;
}

/* A launcher that starts as many processes as the machine has cards: how many that is nobody wrote. */
static void judge_processes(vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++) {
        const vp_document *launch = c->files[f].doc ? c->files[f].doc->launch : NULL;
        const vp_value    *at     = launch ? vp_value_at(launch->root, "processes") : NULL;
        if (launch && launch->has_launcher)
            judge_options(c, &c->files[f]);
        if (launch && judge_none(c, &c->files[f]))
            continue;
        if (!launch || c->world ||
            (c->settings.value[VP_SETTING_WORLD] && !c->by_default[VP_SETTING_WORLD]) ||
            (!at && !launch->starts_all))
            continue;
        vp_find(
            c, &c->files[f], at ? VP_WARNING : VP_NOTE, at, "world", NULL,
            "how many processes the launcher starts is not written as a number: what follows is "
            "of one; --world N says it");
    }
}

/* Whether a model is loaded in parts, onto the cards there are; Trainer leaves it there (transformers/trainer.py, is_model_parallel). */
static bool spreads_layers(const vp_checked *c)
{
    static const char *const words[] = {"auto", "balanced", "balanced_low_0", "sequential"};

    for (int f = 0; f < c->n_files; f++) {
        const vp_value *map = c->files[f].doc && c->files[f].dialect == &vp_dialect_model
                                  ? vp_value_at(c->files[f].doc->root, "device_map")
                                  : NULL;
        for (size_t i = 0; map && map->text && i < sizeof words / sizeof *words; i++)
            if (strcmp(map->text, words[i]) == 0)
                return true;
    }
    return false;
}

/* One process that sees several cards. */
static void judge_seen(vp_checked *c)
{
    const char *world =
        c->by_default[VP_SETTING_WORLD] ? NULL : c->settings.value[VP_SETTING_WORLD];
    const char *makes = NULL;

    for (int f = 0; f < c->n_files; f++)
        if (c->files[f].doc && c->files[f].dialect && c->files[f].dialect->sees_cards &&
            (c->files[f].doc->root->first ||
             vp_check_is_run_by(c->files[f].dialect, c->files[f].doc)))
            makes = c->files[f].dialect->sees_cards;
    if (world && strcmp(world, "1") != 0)
        return; /* a launcher starts several, whatever the script sets */
    for (int f = 0; makes && f < c->n_files; f++) {
        const vp_document *launch = c->files[f].doc ? c->files[f].doc->launch : NULL;
        const vp_value    *cards  = launch ? vp_value_at(launch->root, "cards") : NULL;
        char               instead[64];
        if (!cards || cards->integer < 2 || launch->has_launcher ||
            vp_value_at(launch->root, "processes"))
            continue;
        if (spreads_layers(c)) {
            vp_find(c, &c->files[f], VP_NOTE, cards, "CUDA_VISIBLE_DEVICES", NULL,
                    "device_map lays the model's layers out over the cards that are seen: what "
                    "each of them holds is not counted, and fit not answered");
            c->uncounted = c->uncounted ? c->uncounted : "device_map over several cards";
            continue;
        }
        snprintf(instead, sizeof instead, "torchrun --nproc_per_node %lld, or one card",
                 (long long)cards->integer);
        vp_find(c, &c->files[f], VP_WARNING, cards, "CUDA_VISIBLE_DEVICES",
                vp_arena_strdup(c->arena, instead), "%s", makes);
    }
}

#define BY_CARDS "CUDA_VISIBLE_DEVICES"

/* ms-swift lays the layers out over the cards that are each process's, two or more; beside DeepSpeed and FSDP it refuses that
 * (swift/utils/env.py, is_mp(); swift/arguments/sft_args.py, _init_deepspeed(), _init_fsdp()). */
static void judge_shares(vp_checked *c, const vp_checked_file *file)
{
    static const char *const each[]    = {"NPROC_PER_NODE", "nproc_per_node"};
    static const char *const engines[] = {"deepspeed", "fsdp"};
    const vp_document       *doc = file->doc, *launch = doc->launch;
    const vp_value          *cards = vp_value_at(launch->root, "cards");
    const vp_value          *mode =
        doc->environment ? vp_value_member(doc->environment, "SWIFT_SINGLE_DEVICE_MODE") : NULL;
    const vp_value *all       = vp_value_at(launch->root, "processes");
    int64_t         processes = 1;

    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        const vp_value *v = vp_value_at(launch->root, each[i]);
        processes         = !v ? processes : v->kind == VP_VALUE_INT ? v->integer : 0;
    }
    if (!cards || cards->kind != VP_VALUE_INT || processes < 1 || cards->integer <= processes ||
        (all && all->kind != VP_VALUE_INT) || vp_value_at(launch->root, "num_processes") ||
        vp_value_at(doc->root, "use_ray") || vp_value_at(doc->root, "device_map") || mode)
        return;
    if (cards->integer % processes) {
        vp_find(c, file, VP_ERROR, cards, BY_CARDS, NULL,
                "%lld cards and %lld processes: ms-swift wants as many for each",
                (long long)cards->integer, (long long)processes);
        return;
    }
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        const vp_value *v = vp_value_at(doc->root, engines[i]);
        if (!v || v->kind == VP_VALUE_NULL)
            continue;
        vp_find(c, file, VP_ERROR, v, engines[i],
                vp_arena_printf(c->arena, "NPROC_PER_NODE=%lld", (long long)cards->integer),
                "ms-swift refuses it where a process has several cards, over which it would lay "
                "the layers out: %lld process%s on %lld cards",
                (long long)processes, processes == 1 ? "" : "es", (long long)cards->integer);
        return;
    }
    vp_find(c, file, VP_NOTE, cards, BY_CARDS, NULL,
            "ms-swift lays the model's layers out over the cards of a process, here %lld: what "
            "each of them holds is not counted, and fit not answered",
            (long long)(cards->integer / processes));
    c->uncounted = c->uncounted ? c->uncounted : "layers over several cards";
}

/* Process i of a machine takes the card i of those that it sees (torch.cuda.set_device): there is none. */
static void find_few(vp_checked *c, const vp_checked_file *file, const vp_value *at,
                     const char *key, int64_t processes, int64_t cards)
{
    if (cards > 0 && processes > cards)
        vp_find(c, file, VP_ERROR, at, key, NULL,
                "%lld processes on a machine that shows them %lld card%s: the others end in "
                "\"invalid device ordinal\"",
                (long long)processes, (long long)cards, cards > 1 ? "s" : "");
}

/* Of accelerate's file: gpu_ids are the cards that are seen (accelerate/utils/launch.py of 1.15). */
static void judge_ids(vp_checked *c, const vp_checked_file *file)
{
    const vp_value *ids       = vp_value_at(file->doc->root, "gpu_ids"),
                   *processes = vp_value_at(file->doc->root, "num_processes"),
                   *machines  = vp_value_at(file->doc->root, "num_machines");
    const char *text          = ids ? ids->text : NULL;
    int64_t     n             = 1;

    if (!text || !processes || processes->kind != VP_VALUE_INT ||
        (machines && (machines->kind != VP_VALUE_INT || machines->integer != 1)) || !text[0] ||
        strspn(text, "0123456789, ") != strlen(text))
        return;
    for (const char *p = text; *p; p++)
        n += *p == ',';
    find_few(c, file, processes, "num_processes", processes->integer, n);
}

/* CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 4 */
static void judge_started(vp_checked *c, const vp_checked_file *file)
{
    const vp_document *launch = file->doc->launch;
    const vp_value    *cards  = vp_value_at(launch->root, "cards"),
                   *each      = vp_value_at(launch->root, "nproc_per_node"),
                   *all       = vp_value_at(launch->root, "num_processes"),
                   *machines  = vp_value_at(launch->root, "num_machines");

    if (!each && !(machines && machines->integer != 1))
        each = all;
    if (cards && each && each->kind == VP_VALUE_INT && cards->kind == VP_VALUE_INT)
        find_few(c, file, each, each->key, each->integer, cards->integer);
}

/* `accelerate launch --use_fsdp`: what its options say otherwise than the steps that are known. Its file's keys are in
 * judge_uncounted.c, and whose policy counts in judge_wrap.c. */
static void judge_fsdp(vp_checked *c, const vp_checked_file *file)
{
    static const struct {
        const char *key, *known, *what;
    } options[] = {
        {"fsdp_sharding_strategy", "FULL_SHARD 1", "cuts weights, gradients and states otherwise"},
        {"fsdp_reshard_after_forward", "true FULL_SHARD", "keeps what it gathers"}};
    const vp_value *root = file->doc->launch->root, *at = NULL;
    const char     *what = NULL, *key = NULL;

    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const vp_value *v = vp_value_at(root, options[i].key);
        if (!v || !v->text || vp_listed(options[i].known, v->text))
            continue;
        at   = v;
        key  = options[i].key;
        what = options[i].what;
    }
    if (!at)
        return;
    vp_find(c, file, VP_NOTE, at, key, NULL,
            "%s: what that takes is not counted, and fit not answered", what);
    if (!c->uncounted)
        c->uncounted = vp_arena_printf(c->arena, "--%s of %s", key, file->name);
}

void vp_judge_launch(vp_checked *c)
{
    judge_processes(c);
    judge_seen(c);
    for (int f = 0; f < c->n_files; f++)
        if (c->files[f].doc && c->files[f].doc->launch && c->files[f].dialect == &vp_dialect_swift)
            judge_shares(c, &c->files[f]);
    for (int f = 0; f < c->n_files; f++) {
        if (!c->files[f].doc)
            continue;
        if (c->files[f].dialect == &vp_dialect_accelerate)
            judge_ids(c, &c->files[f]);
        if (c->files[f].doc->launch) {
            judge_started(c, &c->files[f]);
            judge_fsdp(c, &c->files[f]);
        }
    }
    vp_judge_wrap(c);
}
