/* trainers/files/launch_handed.c: what the command `trl` hands on to accelerate launch: whatever of its words and of its file the parser
 * of its script has no argument for. Read in trl 1.16 (cli/commands/training.py, scripts/utils.py) and accelerate 1.15
 * (commands/launch.py). */
#include "trainers/files/launch.h"

#include <string.h>

/* Options of accelerate launch that no argument of TRL's is called as; gradient_accumulation_steps and debug are the script's. */
static const char *const options[] = {"num_processes",
                                      "num_machines",
                                      "mixed_precision",
                                      "config_file",
                                      "multi_gpu",
                                      "cpu",
                                      "use_deepspeed",
                                      "use_fsdp",
                                      "use_parallelism_config",
                                      "use_megatron_lm",
                                      "gpu_ids",
                                      "same_network",
                                      "machine_rank",
                                      "main_process_ip",
                                      "main_process_port",
                                      "rdzv_backend",
                                      "rdzv_conf",
                                      "max_restarts",
                                      "monitor_interval",
                                      "tee",
                                      "log_dir",
                                      "role",
                                      "num_cpu_threads_per_process",
                                      "enable_cpu_affinity",
                                      "main_training_function",
                                      "downcast_bf16",
                                      "dynamo_backend",
                                      "dynamo_mode",
                                      "dynamo_use_fullgraph",
                                      "dynamo_use_dynamic",
                                      "dynamo_use_regional_compilation",
                                      "deepspeed_config_file",
                                      "zero_stage",
                                      "offload_optimizer_device",
                                      "offload_param_device",
                                      "offload_optimizer_nvme_path",
                                      "offload_param_nvme_path",
                                      "gradient_clipping",
                                      "zero3_init_flag",
                                      "zero3_save_16bit_model",
                                      "deepspeed_hostfile",
                                      "deepspeed_exclusion_filter",
                                      "deepspeed_inclusion_filter",
                                      "deepspeed_multinode_launcher",
                                      "deepspeed_moe_layer_cls_names",
                                      "mpirun_hostfile",
                                      "fsdp_version",
                                      "fsdp_offload_params",
                                      "fsdp_min_num_params",
                                      "fsdp_sharding_strategy",
                                      "fsdp_reshard_after_forward",
                                      "fsdp_auto_wrap_policy",
                                      "fsdp_transformer_layer_cls_to_wrap",
                                      "fsdp_backward_prefetch",
                                      "fsdp_state_dict_type",
                                      "fsdp_forward_prefetch",
                                      "fsdp_use_orig_params",
                                      "fsdp_cpu_ram_efficient_loading",
                                      "fsdp_sync_module_states",
                                      "fsdp_activation_checkpointing",
                                      "fsdp_activation_checkpointing_offload",
                                      NULL};

bool vp_launch_is_handed(const char *key)
{
    for (const char *const *o = options; *o; o++)
        if (strcmp(*o, key) == 0)
            return true;
    return false;
}

vp_status vp_launch_hand_on(vp_document *doc, vp_err *err)
{
    vp_value *last = NULL, *next;

    for (vp_value *v = doc->root->first; v; v = next) {
        next = v->next;
        if (!vp_launch_is_handed(v->key)) {
            last = v;
            continue;
        }
        if (!doc->launch)
            doc->launch = vp_document_new(doc->arena, doc->name, VP_FORMAT_FLAGS);
        vp_value *to = doc->launch ? vp_value_add(doc->launch, doc->launch->root, v->key) : NULL;
        if (!to)
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        const char *key = to->key;
        *to             = *v;
        to->key = key, to->next = NULL;
        *(last ? &last->next : &doc->root->first) = next;
        doc->root->n_children--;
        doc->root->index = NULL;
    }
    doc->root->last = last;
    return VP_OK;
}

vp_status vp_launch_take_handed(vp_document *command, vp_err *err)
{
    static const char *const trl[] = {"trl", NULL};

    return vp_launch_is_begun_by(command->program, trl) ? vp_launch_hand_on(command, err) : VP_OK;
}
