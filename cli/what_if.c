#include "cli/what_if.h"

#include "base/checked.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "planner/assemble.h"
#include "planner/remake.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The card of the table that the plan was made for. Another one has no rates here, and bytes alone
 * are told. */
static bool find_device(const char *name, vp_device *out)
{
    vp_err ignored = {0};

    if (strcmp(name, "cpu") == 0)
        return vp_device_open(name, out, &ignored) == VP_OK;
    for (int i = 0; vp_device_at(i, out); i++)
        if (strcmp(out->name, name) == 0)
            return true;
    /* bytes are asked for, not seconds */
    *out = (vp_device){.name                  = "cpu",
                       .is_cpu                = true,
                       .fp32_flop_per_s       = INFINITY,
                       .memory_bytes_per_s    = INFINITY,
                       .host_link_bytes_per_s = INFINITY};
    return false;
}

/* "" where blocks run in more ways than one, which no option says. */
static void write_command(const vp_scenario *s, const vp_model *model, vp_what_if *row)
{
    char loss[32] = "full";

    row->command[0] = '\0';
    if (strcmp(vp_scenario_recompute_name(s, model), "mixed") == 0)
        return;
    if (s->loss_chunk)
        snprintf(loss, sizeof loss, "chunked:%lld", (long long)s->loss_chunk);
    snprintf(
        row->command, sizeof row->command,
        "--seq %lld --micro-batch %lld --recompute %s --loss %s --optimizer %s --precision %s%s%s%s",
        (long long)s->seq, (long long)s->micro_batch, vp_scenario_recompute_name(s, model), loss,
        vp_optimizer_name(s->recipe.optimizer), vp_precision_name(s->recipe.precision),
        s->recipe.gradients == VP_GRADIENTS_BF16 ? " --gradients bf16" : "",
        s->attention != VP_ATTENTION_FLASH ? " --attention " : "",
        s->attention != VP_ATTENTION_FLASH ? vp_attention_name(s->attention) : "");
}

static vp_status ask(const char *text, const vp_scenario *asked, vp_what_ifs *w, vp_err *err)
{
    vp_scenario s    = *asked;
    vp_what_if *row  = &w->rows[w->n];
    vp_cost     cost = {.device = &w->device, .profile = w->profile};
    vp_figures  f;
    vp_status   st = VP_OK;

    assert(w->n < VP_MAX_WHAT_IFS);
    VP_TRY(vp_assemble_figures(w->model, &s, &cost, &f, err));
    *row = (vp_what_if){.text       = text,
                        .peak_bytes = f.peak_bytes,
                        /* the device asked about has none of its own */
                        .device_bytes = vp_add(f.peak_bytes, w->plan->outside_bytes),
                        .step_time_s  = w->has_times ? f.step_time_s : -1};
    write_command(&s, w->model, row);
    w->n++;
out:
    return st;
}

static vp_status ask_kinds(vp_what_ifs *w, vp_err *err)
{
    static const char *const texts[VP_N_RECOMPUTES] = {"recompute none", "recompute attention",
                                                       "recompute mlp", "recompute full"};
    vp_status                st                     = VP_OK;

    for (int kind = 0; kind < VP_N_RECOMPUTES; kind++) {
        vp_scenario s         = w->like;
        s.offload.activations = 0; /* with what was kept there */
        s.offload.n_slots     = 0;
        vp_scenario_set_all(&s, w->model, vp_recompute_set(w->model, (vp_recompute)kind));
        VP_TRY(ask(texts[kind], &s, w, err));
    }
out:
    return st;
}

/* Half and twice the micro-batch, as far as it divides the global batch. */
static vp_status ask_batches(vp_what_ifs *w, vp_err *err)
{
    vp_scenario s  = w->like;
    int64_t     is = s.micro_batch;
    vp_status   st = VP_OK;

    if (is % 2 == 0) {
        s.micro_batch = is / 2;
        VP_TRY(ask("half the micro-batch", &s, w, err));
    }
    if (s.global_batch % (2 * is) == 0) {
        s.micro_batch = 2 * is;
        VP_TRY(ask("twice the micro-batch", &s, w, err));
    }
out:
    return st;
}

static vp_status ask_recipes(vp_what_ifs *w, vp_err *err)
{
    vp_scenario  s    = w->like;
    vp_optimizer is   = s.recipe.optimizer;
    vp_precision half = vp_default_precision(&w->device);
    vp_status    st   = VP_OK;

    if (vp_precision_dtype(s.recipe.precision) == VP_DTYPE_F32 && half != VP_PREC_FP32) {
        s.recipe.precision = half;
        VP_TRY(ask(half == VP_PREC_FP16_MIXED ? "precision fp16-mixed" : "precision bf16-mixed", &s,
                   w, err));
        s = w->like;
    }
    if (s.recipe.gradients == VP_GRADIENTS_FP32 &&
        vp_precision_takes(s.recipe.precision, VP_GRADIENTS_BF16)) {
        s.recipe.gradients = VP_GRADIENTS_BF16;
        VP_TRY(ask("gradients bf16", &s, w, err));
        s = w->like;
    }
    if (is == VP_OPT_ADAMW) {
        vp_recipe_set_optimizer(&s.recipe, VP_OPT_ADAMW_8BIT);
        VP_TRY(ask("optimizer adamw-8bit", &s, w, err));
    }
    if (is != VP_OPT_SGD) {
        vp_recipe_set_optimizer(&s.recipe, VP_OPT_SGD);
        VP_TRY(ask("optimizer sgd", &s, w, err));
    }
out:
    return st;
}

/* The plan's own configuration, block by block. */
static vp_status make_like(vp_what_ifs *w, const char *file, vp_err *err)
{
    const vp_plan *plan = w->plan;
    vp_json_doc   *doc  = NULL;
    vp_text        text = {0};
    vp_err         why  = {0};
    json_t        *said = json_pack("{s:O, s:O, s:[]}", "decisions", plan->decisions, "settings",
                                    plan->settings, "fixed");
    vp_status      st   = VP_OK;

    VP_TRY_ALLOC(err, said && vp_json_dump(said, &text));
    VP_TRY(vp_json_parse(plan->model_name, text.data, (int64_t)text.n_bytes, &doc, err));
    vp_json_node root = vp_json_root(doc);
    st                = vp_plan_scenario(plan, &root, w->model, &w->like, &why);
    if (st != VP_OK) /* its line is one of no file */
        st = VP_FAIL_AT(err, st, file, 0, why.field, "%s", why.message);
out:
    vp_json_doc_free(doc);
    vp_text_release(&text);
    json_decref(said);
    return st;
}

vp_status vp_ask_what_if(const vp_plan *plan, const char *file, const vp_profile *profile,
                         vp_what_ifs *w, vp_err *err)
{
    vp_model    *model = NULL;
    vp_json_doc *doc   = NULL;
    vp_text      text  = {0};
    vp_scenario  s;
    vp_status    st = VP_OK;

    VP_TRY_ALLOC(err, vp_json_dump(plan->model_config, &text));
    VP_TRY(vp_json_parse(plan->model_name, text.data, (int64_t)text.n_bytes, &doc, err));
    vp_json_node config = vp_json_root(doc);
    VP_TRY(vp_model_from_config(
        plan->model_name, &config,
        &(vp_model_opts){.dropout = plan->recipe.dropout, .lora = &plan->recipe.lora}, &model,
        err));
    *w           = (vp_what_ifs){.plan = plan, .model = model, .profile = profile};
    w->has_times = find_device(plan->device, &w->device) &&
                   (profile || strcmp(plan->time_class, "assumed") == 0);
    VP_TRY(make_like(w, file, err));
    VP_TRY(ask_kinds(w, err));
    s            = w->like;
    s.loss_chunk = s.loss_chunk ? 0 : 1024;
    VP_TRY(ask(s.loss_chunk ? "loss in chunks" : "loss all at once", &s, w, err));
    VP_TRY(ask_batches(w, err));
    if (!w->like.offload.states) /* which states there are decides what can be offloaded */
        VP_TRY(ask_recipes(w, err));
out:
    w->model = NULL;
    vp_model_free(model);
    vp_json_doc_free(doc);
    vp_text_release(&text);
    return st;
}
