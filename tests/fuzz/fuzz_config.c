/* A config.json: what is accepted counts its parameters, lowers at a tiny batch, nothing and
 * everything recomputed, and, where it has few blocks, becomes a plan that its own reader
 * accepts. */
#include "fuzz.h"

#include "base/checked.h"
#include "models/model.h"
#include "planner/assemble.h"
#include "planner/lowering/lower.h"

enum { FEW_INSTANCES = 6 };

static void check_count(const vp_model *model)
{
    const vp_graph *g = &model->graph;
    int64_t         n = 0;

    for (int64_t i = 0; i < g->n_instances; i++) {
        const vp_template *t = &g->templates[g->instances[i].template_idx];
        for (int64_t k = 0; k < t->n_params; k++) {
            int64_t elements = 1;
            for (int d = 0; d < t->params[k].rank; d++)
                elements = vp_mul(elements, t->params[k].shape[d]);
            n = vp_add(n, elements);
        }
    }
    MUST(n > 0 && n == model->n_params);
}

/* VP_ERR_INPUT is an answer too: sizes beyond 64 bits. With bounds alone it is the same answer,
 * and heights that no offsets undercut. */
static void lower(const vp_model *model, const vp_recipe *recipe)
{
    const vp_graph *g = &model->graph;

    for (int again = 0; again < 2; again++)
        for (int t = 0; t < g->n_templates; t++) {
            vp_lower_opts opts    = {.symbols     = {1, vp_min_i64(3, g->max_seq), 1, 1},
                                     .span_idx    = {0, 1, 3, 4},
                                     .control_idx = 2,
                                     .angles_idx  = 5};
            vp_arena     *arena   = vp_arena_new();
            vp_lowered    lowered = {0}, bounds = {0};
            vp_err        err = {0};
            MUST(arena);
            opts.recompute =
                again ? ~UINT64_C(0) >> (64 - vp_min_i64(g->templates[t].n_ops, 64)) : 0;
            vp_status st = vp_lower(arena, g, t, vp_semantics_of(recipe, VP_ATTENTION_FLASH), &opts,
                                    &lowered, &err);
            opts.heights = VP_HEIGHTS_LEAST;
            MUST(st == vp_lower(arena, g, t, vp_semantics_of(recipe, VP_ATTENTION_FLASH), &opts,
                                &bounds, &(vp_err){0}));
            for (int pass = 0; st == VP_OK && pass < 2; pass++)
                MUST(bounds.height_bytes[pass] <= lowered.height_bytes[pass]);
            if (st == VP_OK)
                MUST(vp_round_up(lowered.height_bytes[1], VP_ALIGN_BYTES) >=
                         lowered.live_bytes[1] &&
                     lowered.program.kept_bytes >= 0);
            else
                MUST(st == VP_ERR_INPUT && err.message[0]);
            vp_arena_free(arena);
        }
}

static void make_plan(const vp_model *model, const vp_recipe *recipe)
{
    vp_device    device   = {.name               = "cpu",
                             .is_cpu             = true,
                             .fp32_flop_per_s    = 1e11,
                             .memory_bytes_per_s = 1e10,
                             .usable_bytes       = INT64_MAX};
    vp_cost      cost     = {.device = &device};
    vp_scenario  scenario = {.recipe       = *recipe,
                             .seq          = vp_min_i64(3, model->graph.max_seq),
                             .global_batch = 2,
                             .micro_batch  = 1};
    vp_plan     *plan = NULL, *back = NULL;
    vp_json_doc *doc = NULL;
    vp_err       err = {0};

    vp_scenario_set_all(&scenario, model, vp_recompute_set(model, VP_RECOMPUTE_MLP));
    if (vp_assemble(model, &scenario, &cost, &plan, &err) != VP_OK) {
        MUST(err.code == VP_ERR_INPUT && err.message[0]);
        return;
    }
    vp_text text = fuzz_text(vp_plan_to_json(plan));
    if (vp_json_parse("plan", text.data, (int64_t)text.n_bytes, &doc, &err) == VP_OK) {
        vp_json_node root = vp_json_root(doc);
        MUST_OK(vp_plan_from_json(&root, &back, &err));
    } else {
        /* a config nearly too deep for a file: the plan around it is too deep */
        MUST(err.code == VP_ERR_INPUT);
    }
    vp_text_release(&text);
    vp_json_doc_free(doc);
    vp_plan_free(back);
    vp_plan_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vp_json_doc *doc    = fuzz_parse(data, size);
    vp_recipe    recipe = vp_recipe_default();

    for (int from_config = 0; doc && from_config < 2; from_config++) {
        vp_model    *model = NULL;
        vp_json_node root  = vp_json_root(doc);
        vp_err       err   = {0};
        vp_status    st    = vp_model_from_config(
                  "input", &root, &(vp_model_opts){.dropout = 0.1, .dropout_from_config = from_config},
                  &model, &err);
        if (st == VP_OK) {
            fuzz_n_accepted++;
            check_count(model);
            lower(model, &recipe);
            if (model->graph.n_instances <= FEW_INSTANCES)
                make_plan(model, &recipe);
        } else {
            fuzz_check_refusal(st, &err);
        }
        vp_model_free(model);
    }
    vp_json_doc_free(doc);
    return 0;
}
