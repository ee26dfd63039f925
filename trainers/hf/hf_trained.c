#include "trainers/hf/hf_trained.h"

#include "base/units.h"
#include "trainers/hf/hf_find.h"
#include "trainers/hf/hf_matrices.h"
#include "trainers/torch/optimizer_settings.h"

#include <stdlib.h>
#include <string.h>

int64_t vp_hf_weight_bytes(const char *precision)
{
    return strcmp(precision, "fp32") == 0 || strstr(precision, "-mixed") ? 4 : 2;
}

int64_t vp_hf_adapter_bytes(const vp_hf_request *q)
{
    return vp_hf_halves_adapters(q) || vp_hf_trains_halves(q) ? 2 : 4;
}

/* Of an element of adapters, or of all where there are none. */
static int64_t element_bytes(const vp_hf_request *q)
{
    return vp_hf_has_adapters(q) ? vp_hf_adapter_bytes(q) : vp_hf_weight_bytes(q->precision);
}

/* Of a whole module that is trained beside adapters: a table that is asked for, or a head of classes. What else has no rank is
 * DoRA's, or tokens of a table. */
static bool is_copy(const vp_hf_request *q, const vp_recorded *step, int64_t i)
{
    bool has_others = q->lora.is_dora || q->lora.tokens;

    return vp_hf_saves_modules(q)
               ? vp_recorded_rows(step, i) != 0
               : !has_others && !vp_recorded_has_rank(step, i) && vp_hf_has_lora(q);
}

/* It is a copy of the frozen one, in its format: fp32 where that was prepared so. TRL's trainers make 16 bits of all that is
 * trained over quantised weights. */
static int64_t copy_bytes(const vp_hf_request *q)
{
    return vp_hf_upcasts(q) && !vp_hf_is_trl(q) ? 4 : vp_hf_weight_bytes(q->precision);
}

static int64_t trained_bytes(const vp_hf_request *q, const vp_recorded *step, int64_t i)
{
    return is_copy(q, step, i) ? copy_bytes(q) : element_bytes(q);
}

int64_t vp_hf_trained_elements(const vp_hf_request *q, const vp_recorded *step)
{
    int64_t        n, sum = 0, each = element_bytes(q), copied = copy_bytes(q);
    const int64_t *bytes = vp_recorded_parameters(step, &n);

    for (int64_t i = 0; i < n; i++)
        sum += bytes[i] / (is_copy(q, step, i) ? copied : each);
    return sum;
}

/* Of copies of whole modules the input's table comes first, the head last; peft makes them behind its adapters. */
static void list_with_copies(const vp_hf_request *q, const vp_recorded *step, const int64_t *bytes,
                             int64_t hidden, vp_hf_trained *out)
{
    enum { FIRST, BETWEEN, LAST, PLACES };
    int64_t n_first = strstr(q->lora.save, "embed_tokens") ? 1 : 0, n = 0;

    for (int place = FIRST; place < PLACES; place++)
        for (int64_t i = 0, n_copies = 0; i < out->n; i++) {
            bool copied = is_copy(q, step, i);
            int  of     = !copied ? BETWEEN : n_copies++ < n_first ? FIRST : LAST;
            if (of == place)
                out->list[n++] = (vp_trained){.bytes         = bytes[i],
                                              .element_bytes = trained_bytes(q, step, i),
                                              .columns       = copied ? hidden : q->lora.rank,
                                              .is_table      = place == FIRST};
        }
}

typedef enum grouping { BY_DECAY, MATRICES_FIRST, MATRICES_LAST } grouping;

/* Trainer has norms and biases in a group of their own, behind what has weight decay (get_decay_parameter_names).
 * Adapters have none; a head of classes beside them, which comes behind them all, has. */
static void list_in_groups(const vp_recorded *step, grouping how, vp_hf_trained *out)
{
    vp_trained *others  = out->list + out->n; /* room of the second half */
    int64_t     n_first = 0, n_others = 0;

    for (int64_t i = 0; i < out->n; i++)
        if (how == BY_DECAY ? vp_recorded_is_vector(step, i)
                            : out->list[i].is_matrix == (how == MATRICES_LAST))
            others[n_others++] = out->list[i];
        else
            out->list[n_first++] = out->list[i];
    memcpy(out->list + n_first, others, (size_t)n_others * sizeof *others);
    out->n_first = n_first;
}

/* bitsandbytes 0.50 has no kernel for bf16 gradients of its RMSprop with fp32 states, which small parameters have in
 * 8 bits too. */
static vp_status check_kernels(const vp_hf_request *q, const vp_hf_trained *t, vp_err *err)
{
    bool is_rmsprop = strncmp(q->optimizer, "rmsprop_bnb", strlen("rmsprop_bnb")) == 0;
    bool is_bf16    = strncmp(q->precision, "fp16", 4) != 0;
    bool is_wide    = strcmp(q->optimizer, "rmsprop_bnb_8bit") != 0;

    for (int64_t i = 0; i < t->n && is_rmsprop && is_bf16; i++)
        if (t->list[i].element_bytes == 2 &&
            (is_wide || vp_optimizer_step_is_small(&t->list[i]) || t->list[i].is_table))
            return VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, VP_HF_REFUSED_BY_CARD "optimizer",
                              "%s does not run here: bitsandbytes has no kernel for bf16 "
                              "gradients with fp32 states (ValueError); rmsprop and adamw_8bit run",
                              q->optimizer);
    return VP_OK;
}

/* Which are look-up tables: of positions and types all that there are, of tokens the first; another is the head. */
static void mark_tables(const vp_recorded *step, bool all, vp_hf_trained *out)
{
    int64_t of_tokens = 0, n;

    vp_recorded_parameters(step, &n);
    for (int64_t i = 0; i < out->n && i < n; i++) {
        int64_t rows          = vp_recorded_is_vector(step, i) ? 0 : vp_recorded_rows(step, i);
        out->list[i].is_table = all || (rows && rows != of_tokens);
        of_tokens             = of_tokens ? of_tokens : rows;
    }
}

/* Of a matrix that is trained; IA3 has vectors, which peft keeps as one row or one column. */
static int64_t columns_of(const vp_hf_request *q, const vp_recorded *step, int64_t hidden)
{
    int64_t        n;
    const int64_t *bytes = vp_recorded_parameters(step, &n);

    if (q->lora.virtual_tokens)
        return n ? bytes[0] / element_bytes(q) / q->lora.virtual_tokens : 0;
    return vp_hf_has_other_adapters(q) ? 1 : vp_hf_has_adapters(q) ? q->lora.rank : hidden;
}

vp_status vp_hf_trained_list(const vp_model *model, const vp_hf_request *q, const vp_recorded *step,
                             const vp_world *world, int64_t hidden, vp_hf_trained *out, vp_err *err)
{
    bool           has_prompt = q->lora.virtual_tokens > 0; /* an embedding */
    bool           has_head   = false;
    bool           has_tables = !vp_hf_freezes(q) || strcmp(q->freeze, "vision") == 0;
    int64_t        columns    = columns_of(q, step, hidden);
    int64_t        each       = element_bytes(q);
    const int64_t *bytes =
        world ? vp_world_trained(world, &out->n, &each) : vp_recorded_parameters(step, &out->n);
    vp_status st = VP_OK;

    out->list    = calloc(2 * (size_t)out->n + 1, sizeof *out->list);
    out->n_first = out->n;
    VP_TRY_ALLOC(err, out->list);
    for (int64_t i = 0; i < out->n; i++)
        out->list[i] = (vp_trained){.bytes = bytes[i], .element_bytes = each, .columns = columns};
    if (!(world && vp_world_joins(q->parallel)) &&
        (has_prompt || (!vp_hf_has_adapters(q) && has_tables)))
        mark_tables(step, has_prompt, out);
    if (!world && vp_hf_saves_modules(q))
        list_with_copies(q, step, bytes, hidden, out);
    else if (!world)
        for (int64_t i = 0; i < out->n; i++) {
            if (!is_copy(q, step, i))
                continue;
            out->list[i] = (vp_trained){
                .bytes = bytes[i], .element_bytes = trained_bytes(q, step, i), .columns = hidden};
            has_head = true;
        }
    if (vp_optimizer_step_asks_matrices(q->optimizer)) {
        if (vp_hf_has_adapters(q))
            vp_hf_adapter_matrices(q->lora.rank, out->list, out->n);
        else
            VP_TRY(vp_hf_matrices(model, q->optimizer, out->list, out->n, err));
        list_in_groups(step, strcmp(q->optimizer, "muon") == 0 ? MATRICES_FIRST : MATRICES_LAST,
                       out);
    } else if (!world && !vp_hf_is_plain(q) && (!vp_hf_has_adapters(q) || has_head))
        list_in_groups(step, BY_DECAY, out);
    VP_TRY(check_kernels(q, out, err));
out:
    return st;
}

void vp_hf_trained_assume(const vp_hf_request *q, vp_hf_estimate *out)
{
    int n = (int)vp_optimizer_name_length(q->optimizer);

    if (strcmp(q->optimizer, "schedule_free_radam") == 0)
        vp_hf_assume(out, "schedule_free_radam: a step as from the sixth on; with beta2 of 0.999 "
                          "the first five have no denominators");
    if (strcmp(q->optimizer, "adamw_torch_8bit") == 0 ||
        strcmp(q->optimizer, "adamw_torch_4bit") == 0)
        vp_hf_assume(out,
                     "%s: kernels that Inductor has compiled before; a first run tries them in its "
                     "first step, on copies of what they read",
                     q->optimizer);
    if ((strcmp(q->optimizer, "adafactor") == 0 || strcmp(q->optimizer, "adalomo") == 0) &&
        !vp_hf_has_adapters(q))
        vp_hf_assume(out, "%s: rows and columns by the model's width; 0.1 %% of the bytes at most",
                     q->optimizer);
    if (strcmp(q->optimizer, "grokadamw") == 0)
        vp_hf_assume(out,
                     "grokadamw: its three states are in host memory, as large as what is trained "
                     "each, and come to the card one parameter after the other");
    if (strncmp(q->optimizer, "galore_", strlen("galore_")) == 0)
        vp_hf_assume(out,
                     "%.*s: its SVDs converge by Jacobi's method, in the workspace that cuSOLVER "
                     "12.0.4 tells without a card; no other version was asked",
                     n, q->optimizer);
    if (strcmp(q->optimizer, "muon") == 0)
        vp_hf_assume(out, "muon: torch.optim.Muon steps the layers' matrices, then AdamW "
                          "(foreach) tables, head, norms and biases");
    else if (vp_optimizer_step_asks_matrices(q->optimizer))
        vp_hf_assume(out,
                     "%.*s: the second step is one that renews projections, as every "
                     "update_proj_gap-th does",
                     n, q->optimizer);
}

void vp_hf_trained_assume_idle(const vp_model *model, const vp_hf_request *q, int64_t adapters,
                               vp_hf_estimate *out)
{
    char        count[32];
    const char *held = json_is_object(vp_model_field(model, "audio_config"))
                           ? "the towers of images and of sounds are held and never run"
                           : "the tower of images is held and never run";

    if (!vp_model_field(model, "vision_config"))
        return;
    if (q->images && adapters)
        vp_hf_assume(out,
                     "the tower's last layer is not asked for its output: %s parameters of "
                     "adapters on it get no gradient, and are not counted as trained",
                     vp_count_text(adapters, count, sizeof count));
    else if (q->images)
        return;
    else if (!vp_hf_has_tower(model))
        vp_hf_assume(out, "text alone, as AutoModelForCausalLM loads it; no tower of images, which "
                          "Qwen3_5ForConditionalGeneration holds, the class that SFTTrainer makes "
                          "of a name");
    else if (adapters)
        vp_hf_assume(out,
                     "trained on texts alone: %s; %s parameters of adapters there get no gradient, "
                     "and are not counted as trained",
                     held, vp_count_text(adapters, count, sizeof count));
    else
        vp_hf_assume(out, "trained on texts alone: %s, without gradients", held);
}
