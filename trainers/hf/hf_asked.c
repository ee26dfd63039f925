#include "trainers/hf/hf_asked.h"

#include "base/text.h"

#include <assert.h>
#include <string.h>

static void put_word(vp_text *out, const char *word)
{
    const char *text = word ? word : "";

    vp_text_append(out, text, strlen(text) + 1); /* a word ends in its 0 */
}

static void put_words(const vp_hf_request *q, vp_text *out)
{
    const char *const words[] = {q->trainer,   q->task,         q->precision, q->versions,
                                 q->attention, q->optimizer,    q->recompute, q->liger,
                                 q->freeze,    q->load,         q->resident,  q->parallel,
                                 q->offload,   q->lora.targets, q->lora.save};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        put_word(out, words[i]);
}

/* Of the batch whether it is one sample, for which there are programs of their own; all of it where its rows are joined. */
static void put_numbers(const vp_hf_request *q, vp_text *out)
{
    const int64_t numbers[]  = {q->packed,
                               q->packed ? q->batch : q->batch == 1,
                                q->world > 1,
                                q->eval_batch > 0,
                                q->seq,
                                q->default_seq,
                                q->target_seq,
                                q->images,
                                q->image_width,
                                q->image_height,
                                q->frozen_layers,
                                q->capability,
                                q->prepare,
                                q->lora.rank,
                                q->lora.virtual_tokens,
                                q->lora.tokens};
    const bool    switches[] = {
           q->offloads,     q->padded,         q->has_reference,       q->generates, q->counts_engine,
           q->keep_output,  q->clips,          q->prefers_cudnn,       q->compiles,  q->lora.is_bf16,
           q->lora.is_dora, q->of_usual_sizes, q->precision_is_default};

    vp_text_append(out, (const char *)numbers, sizeof numbers);
    vp_text_append(out, (const char *)switches, sizeof switches);
    vp_text_append(out, (const char *)&q->lora.dropout, sizeof q->lora.dropout);
    vp_text_append(out, (const char *)&q->second, sizeof q->second);
}

/* By what it is too: where a model that is gone was, another may be. */
static void put_model(const vp_model *model, vp_text *out)
{
    vp_text_append(out, (const char *)&model, sizeof model);
    put_word(out, model->name);
    put_word(out, model->family);
    put_word(out, model->class_name);
    vp_text_append(out, (const char *)&model->n_params, sizeof model->n_params);
}

/* All that a step is looked for by. */
static void put_step(const vp_model *model, const vp_hf_request *q, vp_text *out)
{
    static_assert(sizeof *q == 416, "a field of vp_hf_request: is a step looked for by it?");
    put_model(model, out);
    put_words(q, out);
    put_numbers(q, out);
}

/* What its bytes hang on besides, but for limits. */
static void put_play(const vp_hf_request *q, vp_text *out)
{
    const int64_t numbers[]  = {q->batch,      q->accumulation,    q->world,       q->eval_batch,
                                q->processors, q->workspace_bytes, q->device_bytes};
    const bool    switches[] = {q->syncs_each, q->addresses_rise, q->loads_only, q->rests_only,
                                q->checkpoints};

    put_word(out, q->alloc_conf);
    vp_text_append(out, (const char *)numbers, sizeof numbers);
    vp_text_append(out, (const char *)switches, sizeof switches);
}

static bool may_be_noted(const vp_hf_request *q)
{
    return q->shelf && q->terse;
}

bool vp_hf_is_noted_unrecorded(const vp_model *model, const vp_hf_request *q)
{
    vp_text key = {0};
    bool    is  = false;

    if (may_be_noted(q)) {
        put_step(model, q, &key);
        is = !key.failed && vp_hf_shelf_noted(q->shelf, key.data, key.n_bytes);
    }
    vp_text_release(&key);
    return is;
}

void vp_hf_note_unrecorded(const vp_model *model, const vp_hf_request *q)
{
    vp_text key = {0};

    if (may_be_noted(q)) {
        put_step(model, q, &key);
        if (!key.failed)
            vp_hf_shelf_note(q->shelf, key.data, key.n_bytes, NULL, 0);
    }
    vp_text_release(&key);
}

static bool is_unlimited(const vp_hf_request *q)
{
    return !q->at_most_bytes && !q->limit_bytes && !q->counts_needed && !q->counts_alone;
}

/* Of one that attends as it is asked to, the word is the request's, which may be gone when it is asked again. */
typedef struct answer {
    vp_hf_estimate found;
    bool           attends_as_asked;
} answer;

bool vp_hf_is_noted(const vp_model *model, const vp_hf_request *q, vp_hf_estimate *out)
{
    const answer *known = NULL;
    vp_text       key   = {0};

    if (may_be_noted(q) && is_unlimited(q)) {
        put_step(model, q, &key);
        put_play(q, &key);
        if (!key.failed)
            known = vp_hf_shelf_noted(q->shelf, key.data, key.n_bytes);
    }
    if (known) {
        *out           = known->found;
        out->attention = known->attends_as_asked ? q->attention : known->found.attention;
    }
    vp_text_release(&key);
    return known != NULL;
}

void vp_hf_note(const vp_model *model, const vp_hf_request *q, const vp_hf_estimate *found)
{
    answer  now = {.found = *found, .attends_as_asked = found->attention == q->attention};
    vp_text key = {0};

    if (may_be_noted(q) && is_unlimited(q)) {
        put_step(model, q, &key);
        put_play(q, &key);
        if (!key.failed)
            vp_hf_shelf_note(q->shelf, key.data, key.n_bytes, &now, sizeof now);
    }
    vp_text_release(&key);
}
