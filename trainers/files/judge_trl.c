/* trainers/files/judge_trl.c: what no rule of TRL's files can say, for their trainers share a dialect and not their keys: DPO's
 * keys, those that its rewrite of 0.29 took out, and the losses of SFT and DPO. Read in trl/trainer/dpo_config.py of 0.20 to 1.16,
 * sft_trainer.py and dpo_trainer.py of 1.16. */
#include "trainers/files/check_internal.h"

#include <stdio.h>
#include <string.h>

/* Keys of DPOConfig's that SFTConfig has not. */
static const char pair_keys[] =
    "beta loss_weights ld_alpha f_divergence_type f_alpha_divergence_coef label_smoothing "
    "use_weighting discopop_tau disable_dropout sync_ref_model ref_model_mixup_alpha "
    "ref_model_sync_steps precompute_ref_log_probs precompute_ref_batch_size";

/* Keys of SFTConfig's that GRPOConfig has not. */
static const char text_keys[] =
    "max_length packing packing_strategy padding_free eval_packing dataset_text_field dataset_kwargs "
    "truncation_mode completion_only_loss assistant_only_loss activation_offloading "
    "chat_template_path eos_token pad_token dataset_num_proc";

/* Keys that DPOConfig had before. */
static const struct {
    const char *key, *until, *instead;
} gone[] = {
    {"max_prompt_length", "0.29", "max_length, of prompt and answer together"},
    {"max_completion_length", "0.29", "max_length, of prompt and answer together"},
    {"rpo_alpha", "0.29", "loss_type: [sigmoid, sft] with loss_weights"},
    {"reference_free", "0.29", "nothing"},
    {"generate_during_eval", "0.29", "nothing"},
    {"use_logits_to_keep", "0.29", "nothing"},
    {"padding_value", "0.27", "nothing"},
    {"label_pad_token_id", "0.29", "nothing"},
    {"model_adapter_name", "0.29", "nothing"},
    {"ref_adapter_name", "0.29", "nothing"},
    {"force_use_ref_model", "0.29", "nothing"},
    {"ref_model_init_kwargs", "0.29", "model_init_kwargs"},
    {"use_liger_loss", "0.28", "use_liger_kernel"},
    {"is_encoder_decoder", "0.20", "nothing"},
    {"base_model_attribute_name", "0.29", "nothing"},
    {"tools", "0.29", "a column tools of the data"},
};

static const char sft_losses[] = "nll chunked_nll dft";
static const char dpo_losses[] =
    "sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot aot_unpaired apo_zero "
    "apo_down discopop sft sigmoid_norm";
/* of the trainers beside them, and of DPO before 0.29 */
static const char other_losses[] =
    "aot_pair apo_zero_unpaired kto kto_pair simpo alphapo grpo dr_grpo bnpo dapo cispo sapo luspo "
    "vespo";

static bool is_before(const vp_judged *x, const char *version)
{
    return vp_version_compare(vp_file_version(x->c, x->file, x->file->dialect), version) < 0;
}

/* Its own parser refuses what it does not know; a script's may have it. */
static void find_key(vp_judged *x, const vp_value *v, const char *instead, const char *text)
{
    bool is_own = vp_check_is_own(x->file);

    vp_find(x->c, x->file, is_own ? VP_ERROR : VP_WARNING, v, v->key, instead, "%s%s", text,
            is_own ? "" : "; a script with a parser of its own may have it");
}

static void judge_pairs(vp_judged *x)
{
    char text[64];

    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        const vp_value *v = vp_value_member(x->file->doc->root, gone[i].key);
        if (!v || is_before(x, gone[i].until))
            continue;
        snprintf(text, sizeof text, "is gone since trl %s", gone[i].until);
        find_key(x, v, gone[i].instead, text);
    }
}

static void judge_grpo(vp_judged *x)
{
    const vp_value *prompt = vp_value_member(x->file->doc->root, "max_prompt_length"),
                   *most   = vp_value_member(x->file->doc->root, "max_completion_length");

    for (const vp_value *v = x->file->doc->root->first; v; v = v->next)
        if (vp_listed(text_keys, v->key))
            find_key(x, v, NULL, "is no key of GRPOConfig's, which cuts no prompts");
    if (prompt)
        find_key(x, prompt, "nothing", "is gone from GRPOConfig, which cuts no prompts any more");
    if (!most || most->kind != VP_VALUE_NULL)
        return;
    vp_find(x->c, x->file, VP_NOTE, most, most->key, NULL,
            "is null: completions are as long as the model makes them; what that takes is not "
            "counted, and fit not answered");
    if (!x->c->uncounted)
        x->c->uncounted = vp_arena_printf(x->c->arena, "%s: null in %s", most->key, x->file->name);
}

/* peft_model.py of 0.21: the class for CAUSAL_LM takes a method of the model's that one with a head of classes has not. */
static void judge_reward(vp_judged *x)
{
    const vp_value *on    = vp_value_member(x->file->doc->root, "use_peft");
    bool            other = false; /* a command may say what its file does not */

    for (int f = 0; f < x->c->n_files; f++)
        other = other || (x->c->files[f].doc && &x->c->files[f] != x->file &&
                          vp_value_at(x->c->files[f].doc->root, "lora_task_type"));
    if (!other && vp_check_is_own(x->file) && on &&
        vp_check_holds(x->c, x->file, "use_peft", "=true") &&
        vp_check_holds(x->c, x->file, "lora_task_type", "=CAUSAL_LM"))
        vp_find(x->c, x->file, VP_ERROR, on, "lora_task_type", "lora_task_type: SEQ_CLS",
                "is CAUSAL_LM: peft makes no such adapters of a model that gives a reward");
}

static void judge_loss(vp_judged *x, const vp_value *v, const char *words, const char *trainer,
                       const char *most)
{
    if (v->kind != VP_VALUE_STRING || vp_listed(words, v->text) || strchr(v->text, '$') ||
        (!v->quoted && x->file->doc->format == VP_FORMAT_PYTHON))
        return;
    if (vp_listed(dpo_losses, v->text) || vp_listed(other_losses, v->text))
        vp_find(x->c, x->file, VP_NOTE, v, "loss_type", NULL,
                "is a loss of another of TRL's trainers; %s", trainer);
    else if (vp_check_is_own(x->file))
        vp_find(x->c, x->file, VP_ERROR, v, "loss_type", most,
                "is no loss of TRL's: %s, and finds that out when it runs", trainer);
}

/* no_gradient_checkpointing: true of a file, which only a command has. */
static void judge_switches(vp_judged *x)
{
    for (const vp_value *v = x->file->doc->root->first; v && x->file->doc->format == VP_FORMAT_YAML;
         v                 = v->next) {
        const char   *name = strncmp(v->key, "no_", 3) == 0 ? v->key + 3 : NULL;
        const vp_key *k    = name ? vp_file_key(x->c, x->file, name, NULL) : NULL;
        if (k && k->type == VP_KEY_BOOL && vp_check_is_own(x->file))
            vp_find(x->c, x->file, VP_ERROR, v, v->key,
                    vp_arena_printf(x->c->arena, "%s: false", name),
                    "is a switch of a command's: TrlParser refuses it in a file");
    }
}

void vp_judge_trl(vp_judged *x)
{
    const vp_value *loss    = vp_value_member(x->file->doc->root, "loss_type");
    const vp_value *weights = vp_value_member(x->file->doc->root, "loss_weights");
    const char     *said, *method = vp_checked_method(x->c, &said);
    if (!method) /* of what is to be written the settings say it; of what was read too, if no file does */
        method = x->c->settings.value[VP_SETTING_METHOD];
    if (method && strcmp(method, vp_setting_otherwise(VP_SETTING_METHOD)) == 0)
        method = NULL;
    bool is_dpo = method && strcmp(method, "dpo") == 0;

    judge_switches(x);
    if (is_dpo)
        judge_pairs(x);
    if (method && strcmp(method, "grpo") == 0)
        judge_grpo(x);
    if (method && strcmp(method, "reward") == 0)
        judge_reward(x);
    for (const vp_value *v = method || !vp_check_is_own(x->file) ? NULL : x->file->doc->root->first;
         v; v              = v->next)
        if (vp_listed(pair_keys, v->key))
            find_key(x, v, NULL, "is a key of DPOConfig's: SFTConfig refuses it");
    if (!loss || (method && (!is_dpo || is_before(x, "0.29"))))
        return;
    if (!is_dpo && loss->kind == VP_VALUE_LIST) {
        vp_find(x->c, x->file, VP_ERROR, loss, "loss_type", NULL,
                "is a list: SFTTrainer takes one of nll and dft");
        return;
    }
    for (const vp_value *v = loss->kind == VP_VALUE_LIST ? loss->first : loss; v;
         v                 = v == loss ? NULL : v->next)
        if (is_dpo)
            judge_loss(x, v, dpo_losses, "DPOTrainer has sigmoid, hinge, ipo and others",
                                       "sigmoid");
        else
            judge_loss(x, v, sft_losses, "SFTTrainer has nll and dft", "nll");
    if (is_dpo && weights && weights->kind == VP_VALUE_LIST &&
        weights->n_children != (loss->kind == VP_VALUE_LIST ? loss->n_children : 1))
        vp_find(x->c, x->file, VP_ERROR, weights, "loss_weights", NULL,
                "has %lld weights for %lld losses: DPOConfig refuses it",
                (long long)weights->n_children,
                (long long)(loss->kind == VP_VALUE_LIST ? loss->n_children : 1));
}
