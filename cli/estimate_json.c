/* An answer of `vplan estimate --trainer` as JSON, and its sums. */
#include "cli/estimate_answer.h"
#include "cli/loader_text.h"
#include "cli/padding.h"
#include "cli/words.h"

#include "base/units.h"
#include "trainers/hf/hf_find.h"
#include "trainers/hf/hf_trained.h"
#include "trainers/torch/world.h"

#include <string.h>

int64_t vp_estimate_device_bytes(const vp_estimate_answer *a)
{
    return a->estimate.reserved_bytes + a->context.bytes;
}

bool vp_estimate_fits(const vp_estimate_answer *a)
{
    return a->budget_bytes < 0 || vp_estimate_device_bytes(a) <= a->budget_bytes;
}

/* On the card, with so many reserved bytes on so many cards. */
bool vp_estimate_has_communicator(const vp_estimate_answer *a)
{
    return a->has_device && (!a->measured_in || vp_measured_context(&a->measured) < 0);
}

int64_t vp_estimate_bytes_with(const vp_estimate_answer *a, int64_t reserved_bytes, int64_t world)
{
    return reserved_bytes + a->context.bytes +
           (vp_estimate_has_communicator(a)
                ? vp_world_communicator_bytes(world) - vp_world_communicator_bytes(a->request.world)
                : 0);
}

/* What was put together from several steps is not PyTorch's own count of one. */
static const char *class_of(const vp_hf_estimate *e)
{
    return e->is_composed ? "assumed" : "derived";
}

static json_t *items_json(const vp_hf_estimate *e, const vp_ledger_phase *p)
{
    json_t *items = json_array();

    for (int i = 0; i < VP_N_OWNERS; i++)
        if (p->owners[i])
            json_array_append_new(items, json_pack("{s:s, s:I, s:s}", "name",
                                                   vp_owner_words((vp_owner)i), "bytes",
                                                   (json_int_t)p->owners[i], "class", class_of(e)));
    return items;
}

/* Where device_bytes lies: of the rows played 95 in 100 have reserved bytes within so much of the
 * estimate, and the context is known between its least and most. */
static const double PROBABILITY = 0.95;

static double reserved_share(const vp_estimate_answer *a)
{
    double share = vp_hf_reserved_share(&a->request);

    return a->estimate.stands_in && share < VP_HF_STAND_IN_SHARE ? VP_HF_STAND_IN_SHARE : share;
}

static json_t *interval_of(const vp_estimate_answer *a, int64_t reserved)
{
    double low = reserved_share(a), high = low;

    if (a->request.compiles) {
        low  = low < VP_HF_COMPILED_LOW ? VP_HF_COMPILED_LOW : low;
        high = high < VP_HF_COMPILED_HIGH ? VP_HF_COMPILED_HIGH : high;
    }
    return json_pack(
        "{s:I, s:I, s:f}", "low_bytes",
        (json_int_t)(reserved - (int64_t)(low * (double)reserved) + a->context.least_bytes),
        "high_bytes",
        (json_int_t)(reserved + (int64_t)(high * (double)reserved) + a->context.bytes),
        "probability", PROBABILITY);
}

json_t *vp_estimate_interval(const vp_estimate_answer *a)
{
    return interval_of(a, a->estimate.reserved_bytes);
}

static json_t *phases_json(const vp_estimate_answer *a)
{
    const vp_hf_estimate *e      = &a->estimate;
    json_t               *phases = json_array();

    for (int i = 0; i < e->n_phases; i++)
        json_array_append_new(
            phases,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:o, s:o}", "name", e->phases[i].name,
                      "peak_bytes", (json_int_t)e->phases[i].allocated_bytes, "allocated_bytes",
                      (json_int_t)e->phases[i].allocated_bytes, "reserved_bytes",
                      (json_int_t)e->phases[i].reserved_bytes, "device_bytes",
                      (json_int_t)(e->phases[i].reserved_bytes + a->context.bytes), "class",
                      class_of(e), "interval", interval_of(a, e->phases[i].reserved_bytes), "items",
                      items_json(e, &e->phases[i])));
    return phases;
}

int64_t vp_estimate_padded_bytes(const vp_estimate_answer *a)
{
    return a->padded_reserved_bytes
               ? vp_estimate_bytes_with(a, a->padded_reserved_bytes, a->request.world)
               : 0;
}

json_t *vp_estimate_assumptions(const vp_estimate_answer *a)
{
    json_t *list = json_array();
    char    text[160];

    json_array_append_new(list, json_sprintf("libraries: %s", a->estimate.versions));
    if (a->seq_is_default)
        json_array_append_new(
            list,
            strcmp(a->estimate.task, "imgcls") == 0
                ? json_sprintf(
                      "--seq not given: %lld, the tokens of a picture of the config's size",
                      (long long)a->estimate.seq)
                : json_sprintf("--seq not given: %lld, the smaller of the model's positions and %d",
                               (long long)a->estimate.seq, VP_ESTIMATE_SEQ));
    if (a->measured_in && vp_measured_context(&a->measured) >= 0)
        json_array_append_new(list,
                              json_sprintf("context and libraries: %lld bytes, as %s has them",
                                           (long long)a->context.bytes, a->measured_in));
    if (*a->calibration.card)
        json_array_append_new(
            list, vp_calibration_said(&a->calibration, a->calibration_path, a->is_kept));
    if (!a->has_device)
        json_array_append_new(list, json_string("no device given: kernels of an H100"));
    if (a->request.generates) /* too few runs for a share of them */
        json_array_append_new(
            list, json_sprintf("interval: %.0f %% of the reserved bytes; eleven dry runs that made "
                               "their completions were within 7 %%, none on a real GPU",
                               100 * reserved_share(a)));
    else if (!a->request.compiles)
        json_array_append_new(
            list,
            json_sprintf(
                "interval: %.0f %% of the reserved bytes, which held for 95 of 100 steps that "
                "PyTorch ran on a simulated GPU%s; none was measured on a real one",
                100 * reserved_share(a), a->has_device ? ", and the CUDA context's own" : ""));
    if (a->loader.workers)
        json_array_append_new(list, json_string(vp_loader_assumed));
    if (a->has_device && a->request.world > 1)
        json_array_append_new(
            list, json_sprintf("NCCL takes %lld MB of each card outside PyTorch's allocator, as it "
                               "did on A100s",
                               (long long)vp_world_communicator_bytes(a->request.world) / 1000000));
    if (a->max && strcmp(a->max, "seq") == 0)
        json_array_append_new(list,
                              json_string("--max seq: looked for among multiples of 8 tokens"));
    if (a->precision_is_default && vp_hf_has_adapters(&a->request) &&
        !vp_hf_is_quantised(&a->request) && vp_hf_weight_bytes(a->request.precision) == 4)
        json_array_append_new(
            list, json_string("frozen weights are fp32, as this trainer loads them unasked; "
                              "--precision bf16-amp, which plan --trainer takes, has them in 16 "
                              "bits"));
    if (a->precision_is_default)
        json_array_append_new(list,
                              json_sprintf("--precision not given: %s", a->request.precision));
    if (a->is_tf32)
        json_array_append_new(list,
                              json_string("--precision tf32: fp32, whose products in TF32 take "
                                          "the same bytes"));
    if (a->batch_is_default)
        json_array_append_new(list,
                              json_sprintf("--micro-batch not given: %lld, this trainer's own",
                                           (long long)a->request.batch));
    if (a->assumes_no_padding)
        json_array_append_new(
            list, json_string(vp_padding_text(vp_estimate_padded_bytes(a), text, sizeof text)));
    for (int i = 0; i < a->estimate.n_assumptions; i++)
        json_array_append_new(list, json_string(a->estimate.assumptions[i]));
    return list;
}

static json_t *lora_json(const vp_hf_request *q)
{
    json_t *j =
        json_pack("{s:I, s:s, s:f, s:s, s:b, s:s?, s:I, s:s}", "rank", (json_int_t)q->lora.rank,
                  "targets", q->lora.targets, "dropout", q->lora.dropout, "dtype",
                  vp_hf_trains_halves(q) ? "bf16" : "fp32", "dora", q->lora.is_dora, "save",
                  q->lora.save, "tokens", (json_int_t)q->lora.tokens, "load", q->load);

    if (vp_hf_is_quantised(q))
        json_object_set_new(j, "prepare", json_string(vp_hf_upcasts(q) ? "on" : "off"));
    return j;
}

static json_t *peft_json(const vp_hf_request *q)
{
    json_t *j = json_pack("{s:s}", "method", q->lora.targets);

    if (q->lora.virtual_tokens)
        json_object_set_new(j, "tokens", json_integer(q->lora.virtual_tokens));
    return j;
}

static json_t *remedies_json(const vp_estimate_answer *a)
{
    json_t *list = json_array();

    for (int i = 0; i < a->n_remedies; i++)
        json_array_append_new(
            list,
            json_pack("{s:s, s:I, s:I, s:s, s:o, s:s}", "option", a->remedies[i].option,
                      "saves_bytes",
                      (json_int_t)(a->estimate.reserved_bytes - a->remedies[i].reserved_bytes),
                      "device_bytes",
                      (json_int_t)vp_estimate_bytes_with(a, a->remedies[i].reserved_bytes,
                                                         a->remedies[i].world),
                      "class", "derived", "fits",
                      a->budget_bytes < 0 ? json_null() : json_boolean(a->remedies[i].fits),
                      "costs", a->remedies[i].costs));
    return list;
}

/* null where it fits, where nothing was asked to fit into, or where nothing is enough. */
static json_t *fitting_json(const vp_estimate_answer *a)
{
    return a->has_fitting ? json_pack("{s:s, s:I, s:s, s:b, s:b}", "options",
                                      a->fitting.options + 1, "device_bytes",
                                      (json_int_t)vp_estimate_bytes_with(
                                          a, a->fitting.reserved_bytes, a->fitting.request.world),
                                      "class", "derived", "trains_adapters",
                                      a->fitting.trains_adapters, "only_just", a->fitting.only_just)
                          : json_null();
}

static void add_cards(const vp_estimate_answer *a, json_t *settings)
{
    const vp_hf_request *q = &a->request;

    if (!vp_hf_is_shared(q))
        return;
    json_object_set_new(settings, "world", json_integer(q->world));
    json_object_set_new(settings, "parallel", json_string(q->parallel));
    json_object_set_new(settings, "offload", json_string(q->offload));
}

static json_t *host_json(const vp_hf_host *h)
{
    return h->is_known ? json_pack("{s:I, s:I, s:I, s:s}", "load_bytes", (json_int_t)h->load_bytes,
                                   "save_bytes", (json_int_t)h->save_bytes, "resume_bytes",
                                   (json_int_t)h->resume_bytes, "class", "derived")
                       : json_null();
}

json_t *vp_estimate_json(const vp_estimate_answer *a)
{
    const vp_hf_estimate *e = &a->estimate;
    const vp_hf_request  *q = &a->request;
    json_t               *settings =
        json_pack("{s:o, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s}", "device",
                  a->has_device ? json_string(a->device.name) : json_null(), "seq",
                  (json_int_t)a->estimate.seq, "micro_batch", (json_int_t)q->batch, "accumulation",
                  (json_int_t)q->accumulation, "precision", q->precision, "optimizer", q->optimizer,
                  "attention", q->attention, "recompute", q->recompute, "padding",
                  q->padded ? "mask" : "none", "task", a->estimate.task);

    if (vp_hf_has_other_adapters(q))
        json_object_set_new(settings, "peft", peft_json(q));
    else if (vp_hf_has_adapters(q))
        json_object_set_new(settings, "lora", lora_json(q));
    if (q->frozen_layers)
        json_object_set_new(settings, "freeze",
                            json_sprintf("layers:%lld", (long long)q->frozen_layers));
    else if (vp_hf_freezes(q))
        json_object_set_new(settings, "freeze", json_string(q->freeze));
    if (vp_hf_is_trl(q) && strcmp(q->trainer, "trl") != 0)
        json_object_set_new(settings, "method", json_string(q->trainer));
    if (q->images)
        json_object_set_new(settings, "images", json_integer(q->images));
    if (q->image_width)
        json_object_set_new(
            settings, "image_size",
            json_sprintf("%lldx%lld", (long long)q->image_width, (long long)q->image_height));
    if (q->target_seq)
        json_object_set_new(settings, "target_seq", json_integer(q->target_seq));
    if (strcmp(q->liger, "none") != 0)
        json_object_set_new(settings, "liger", json_string(q->liger));
    if (q->packed)
        json_object_set_new(settings, "packing", json_integer(q->packed));
    if (q->eval_batch)
        json_object_set_new(settings, "eval_batch", json_integer(q->eval_batch));
    if (a->max)
        json_object_set_new(settings, "max", json_string(a->max));
    if (q->resident || q->has_reference)
        json_object_set_new(settings, "resident",
                            json_string(q->has_reference ? "reference" : q->resident));
    if (q->compiles)
        json_object_set_new(settings, "compile", json_true());
    if (q->syncs_each)
        json_object_set_new(settings, "sync_each_batch", json_true());
    if (q->alloc_conf)
        json_object_set_new(settings, "alloc_conf", json_string(q->alloc_conf));
    add_cards(a, settings);
    json_t *j = json_pack(
        "{s:i, s:s, s:{s:s, s:I, s:I}, s:o, s:o, s:o, s:I, s:I, s:I, s:s, s:I, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:I, s:o, s:s}",
        "schema_version", 1, "trainer", vp_hf_is_trl(q) ? "trl" : q->trainer, "model", "name",
        a->model->name, "params_total", (json_int_t)e->n_params, "params_trainable",
        (json_int_t)e->n_trained, "settings", settings, "assumptions", vp_estimate_assumptions(a),
        "budget_bytes", vp_json_int_or_null(a->budget_bytes), "peak_bytes",
        (json_int_t)e->allocated_bytes, "allocated_peak_bytes", (json_int_t)e->allocated_bytes,
        "reserved_peak_bytes", (json_int_t)e->reserved_bytes, "peak_phase", e->phases[e->peak].name,
        "device_bytes", (json_int_t)vp_estimate_device_bytes(a), "interval",
        vp_estimate_interval(a), "fits",
        a->budget_bytes < 0 ? json_null() : json_boolean(vp_estimate_fits(a)), "items",
        items_json(e, &e->phases[e->peak]), "phases", phases_json(a), "remedies", remedies_json(a),
        "fits_with", fitting_json(a), "host_bytes", (json_int_t)e->host_bytes, "host",
        host_json(&e->host), "class", class_of(e));
    if (j && a->has_device)
        json_object_update_new(j, json_pack("{s:I, s:s}", "outside_bytes",
                                            (json_int_t)a->context.bytes, "outside_class",
                                            vp_figure_class_name(a->context.class_)));
    if (j && a->is_tight)
        json_object_update_new(
            j, json_pack("{s:I, s:{s:I, s:I, s:s}}", "cache_returns_per_step",
                         (json_int_t)e->n_returns, "without_limit", "allocated_peak_bytes",
                         (json_int_t)a->unlimited_allocated_bytes, "reserved_peak_bytes",
                         (json_int_t)a->unlimited_reserved_bytes, "class", "derived"));
    if (j && *a->calibration.card)
        json_object_set_new(j, "calibration",
                            vp_calibration_json(&a->calibration, a->calibration_path, a->is_kept));
    if (j && a->measured_in)
        json_object_set_new(j, "measured",
                            vp_measured_json(&a->measured, &a->estimate, a->assumed_context_bytes));
    if (j && a->loader.workers)
        json_object_set_new(j, "loader", vp_loader_json(&a->estimate.batch, &a->loader));
    if (j && a->lengths.n)
        json_object_set_new(j, "lengths", vp_lengths_json(&a->of_lengths));
    return j;
}
