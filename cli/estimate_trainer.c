/* vplan estimate --trainer torch: what a training step of PyTorch takes, from a recording of it. */
#include "cli/cmd_plan_trainer.h"
#include "cli/estimate_answer.h"
#include "cli/names.h"
#include "cli/priced_model.h"

#include "base/checked.h"
#include "trainers/hf/hf_sizes.h"
#include "trainers/hf/hf_versions.h"

#include <stdio.h>
#include <string.h>

/* ---- --max ---- */

/* The least value must have an estimate; a larger one that has none, or is beyond the positions the model was made for, does not
 * fit. */
static vp_status fits_with(vp_estimate_answer *a, bool is_least, bool *fits, vp_err *err)
{
    const vp_hf_estimate *found = &a->estimate;
    vp_err                why   = {0};
    vp_status             st    = vp_hf_estimate_run(a->model, &a->request, &a->estimate, &why);

    *fits = st == VP_OK && found->reserved_bytes + a->context.bytes <= a->budget_bytes &&
            (is_least || !found->positions || found->seq <= found->positions);
    if (st == VP_OK || (!is_least && st != VP_ERR_NOMEM))
        return VP_OK;
    *err = why;
    return st;
}

/* So many units are the shortest sequence: a completion is behind a prompt. */
static int64_t least_units(const vp_hf_request *q, int64_t unit)
{
    return vp_hf_is_grpo(q) ? q->target_seq / unit + 1 : 1;
}

/* The largest value that fits, sequences in eights; memory grows with both. */
static vp_status maximise(vp_estimate_answer *a, const vp_estimate_options *o, vp_err *err)
{
    bool      batch = strcmp(o->max, "micro-batch") == 0, fits;
    int64_t  *knob = batch ? &a->request.batch : &a->request.seq, unit = batch ? 1 : 8;
    int64_t   least = 0, least_not = 0;
    int64_t   first = batch ? 1 : least_units(&a->request, unit);
    vp_status st    = VP_OK;

    if (batch ? o->micro_batch : o->seq)
        VP_TRY(
            VP_FAIL(err, VP_ERR_USAGE,
                    "--max %s looks for the largest %s, and --%s gives one: leave one of them out",
                    o->max, o->max, o->max));
    if (a->budget_bytes < 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--max needs a --budget or a --device to fit into"));
    for (int64_t n = first; !least_not; n *= 2) {
        *knob = n * unit;
        VP_TRY(fits_with(a, n == first, &fits, err));
        if (fits)
            least = n;
        else
            least_not = n;
    }
    while (least_not - least > 1 && least) {
        int64_t middle = least + (least_not - least) / 2;
        *knob          = middle * unit;
        VP_TRY(fits_with(a, false, &fits, err));
        if (fits)
            least = middle;
        else
            least_not = middle;
    }
    a->max            = o->max;
    a->not_even_least = !least;
    a->seq_is_default = a->seq_is_default && batch;
    *knob             = (least ? least : first) * unit;
out:
    return st;
}

/* The batch that decides has the longest sample, and a mask with it. */
static vp_status read_lengths(const vp_estimate_options *o, vp_estimate_answer *a, vp_err *err)
{
    vp_hf_request *q = &a->request;
    int64_t        longest;
    vp_status      st = VP_OK;

    if (o->max && strcmp(o->max, "seq") == 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--max seq and --length-histogram: which lengths?"));
    VP_TRY(vp_lengths_read(o->lengths, &a->lengths, err));
    longest = a->lengths.of[a->lengths.n - 1].tokens;
    if (o->seq && longest > o->seq)
        longest = o->seq;
    q->seq            = vp_round_up(longest, VP_MASKED_BY);
    q->padded         = !o->padding || strcmp(o->padding, "mask") == 0;
    a->seq_is_default = false;
out:
    return st;
}

/* Within the budget, where PyTorch gives back its cache before it is out of memory. What a checkpoint takes stays as it
 * was. */
static vp_status estimate_within(vp_estimate_answer *a, vp_err *err)
{
    vp_hf_request         q       = a->request;
    const vp_hf_estimate *free    = &a->estimate;
    vp_hf_estimate        limited = {0};
    vp_err                why     = {0};
    vp_status             st;

    q.limit_bytes = a->budget_bytes - a->context.bytes;
    if (vp_estimate_fits(a) || free->allocated_bytes > q.limit_bytes)
        return VP_OK;
    st = vp_hf_estimate_run(a->model, &q, &limited, &why);
    if (st == VP_ERR_NO_FIT)
        return VP_OK;
    if (st != VP_OK) {
        *err = why;
        return st;
    }
    for (int i = limited.n_phases; i < free->n_phases; i++)
        limited.phases[limited.n_phases++] = free->phases[i];
    limited.host                 = free->host;
    a->unlimited_allocated_bytes = free->allocated_bytes;
    a->unlimited_reserved_bytes  = free->reserved_bytes;
    a->estimate                  = limited;
    a->is_tight                  = true;
    return VP_OK;
}

/* The answer itself: what checkpoints take too, which no search looks for. */
static vp_status estimate_whole(vp_estimate_answer *a, vp_err *err)
{
    vp_hf_request q  = a->request;
    vp_status     st = VP_OK;

    q.checkpoints = true;
    VP_TRY(vp_hf_estimate_run(a->model, &q, &a->estimate, err));
    if (!a->max)
        VP_TRY(estimate_within(a, err));
out:
    return st;
}

/* A mask over a length that is no multiple of 8 was not recorded, and takes as much as one over the next that is: from 0.03 % more to 0.4 %
 * less in dry runs of 500, 1017 and 1023 tokens. */
static vp_status run_padded(const vp_estimate_answer *a, vp_hf_request *q, vp_hf_estimate *out,
                            vp_err *err)
{
    vp_status st = vp_hf_estimate_run(a->model, q, out, err);

    if (st == VP_OK || a->estimate.seq % VP_MASKED_BY == 0)
        return st;
    q->seq = vp_round_up(a->estimate.seq, VP_MASKED_BY);
    *err   = (vp_err){0};
    return vp_hf_estimate_run(a->model, q, out, err);
}

/* Batches of several samples mostly have padding, and transformers passes a mask then: the same step with it. */
static void estimate_padded(vp_estimate_answer *a, const vp_estimate_options *o)
{
    vp_hf_request  q      = a->request;
    vp_hf_estimate padded = {0};
    vp_err         why    = {0};

    a->assumes_no_padding = !o->padding && !o->lengths && !q.padded && !q.packed && q.batch > 1 &&
                            strcmp(a->estimate.task, "imgcls") != 0 && !a->estimate.heard;
    if (!a->assumes_no_padding)
        return;
    q.padded = q.terse = true;
    if (run_padded(a, &q, &padded, &why) != VP_OK)
        return;
    a->padded_reserved_bytes = padded.reserved_bytes;
    q.limit_bytes            = a->budget_bytes - a->context.bytes;
    if (a->budget_bytes >= 0 && padded.reserved_bytes > q.limit_bytes &&
        vp_hf_estimate_run(a->model, &q, &padded, &why) == VP_OK) /* giving back its cache */
        a->padded_reserved_bytes = padded.reserved_bytes;
}

/* Of batches of all lengths the one that takes most. A batch size that was looked for goes down until that fits too. */
static vp_status estimate_worst(vp_estimate_answer *a, const vp_estimate_options *o, vp_err *err)
{
    vp_hf_request *q       = &a->request;
    int64_t        longest = q->seq;
    vp_status      st      = VP_OK;

    do {
        q->seq = longest;
        q->seq = vp_lengths_worst(&a->lengths, a->model, q, o->seq ? o->seq : INT64_MAX);
        VP_TRY(estimate_whole(a, err));
    } while (o->max && !a->not_even_least && !vp_estimate_fits(a) && q->batch > 1 && q->batch--);
    a->not_even_least |= o->max && !vp_estimate_fits(a);
out:
    return st;
}

/* What lies outside PyTorch's allocator, once it was seen on a card of this kind, is what it was. */
static vp_status read_measured(const vp_estimate_options *o, vp_estimate_answer *a, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_measured_read(o->measured, &a->measured, err));
    a->measured_in           = o->measured;
    a->assumed_context_bytes = a->context.bytes;
    if (vp_measured_context(&a->measured) >= 0) {
        a->context.bytes = a->context.least_bytes = vp_measured_context(&a->measured);
        a->context.class_                         = VP_CLASS_MEASURED;
    }
out:
    return st;
}

/* One card's: on several, NCCL's share of the context is not told apart. */
static vp_status keep_measured(vp_estimate_answer *a, vp_err *err)
{
    vp_calibration *c = &a->calibration;
    char            card[VP_CALIBRATION_WORD];

    if (!a->has_device || a->request.world > 1 || !*a->calibration_path ||
        !vp_measured_calibrates(&a->measured, &a->estimate, c))
        return VP_OK;
    snprintf(c->card, sizeof c->card, "%s", vp_calibration_card(&a->device, card, sizeof card));
    a->is_kept = true;
    return vp_calibration_keep(a->calibration_path, c, err);
}

/* Where all that is sure to fit was not found, the first single change that fits in the middle of its interval. */
static bool take_remedy(vp_estimate_answer *a, const vp_hf_request *tried)
{
    const vp_remedy *r = a->remedies, *end = r + a->n_remedies;

    while (r < end && !r->fits)
        r++;
    if (r == end)
        return false;
    a->fitting = (vp_remedy_chain){
        .request = *tried, .reserved_bytes = r->reserved_bytes, .only_just = true};
    a->fitting.request.world = r->world;
    snprintf(a->fitting.options, sizeof a->fitting.options, " %s", r->option);
    return true;
}

/* What saves less than this is named where it makes the step fit alone. */
static const double SEEN = 0.01;

static void drop_unseen(vp_estimate_answer *a, bool lacks)
{
    int64_t now = vp_estimate_bytes_with(a, a->estimate.reserved_bytes,
                                         a->request.world ? a->request.world : 1);
    int     n   = 0;

    for (int i = 0; i < a->n_remedies; i++) {
        const vp_remedy *r    = &a->remedies[i];
        int64_t          with = vp_estimate_bytes_with(a, r->reserved_bytes, r->world);
        if ((lacks && r->fits) || (double)(now - with) >= SEEN * (double)now)
            a->remedies[n++] = *r;
    }
    a->n_remedies = n;
}

/* What makes it smaller, and what makes it fit: two cores look. Where the largest batch or sequence was looked for, from the
 * least on. */
static void find_remedies(vp_estimate_answer *a, const vp_estimate_options *o)
{
    vp_remedy_search s = {
        .model          = a->model,
        .lengths        = o->lengths ? &a->lengths : NULL,
        .most           = o->seq ? o->seq : INT64_MAX,
        .request        = a->request,
        .reserved_bytes = a->estimate.reserved_bytes,
        .room           = {.bytes            = a->budget_bytes < 0 ? -1 : a->budget_bytes - a->context.bytes,
                           .has_communicator = vp_estimate_has_communicator(a)},
        .said           = {o->precision && !a->precision_is_default, o->recompute, o->loss}};
    bool lacks = !vp_estimate_fits(a);

    s.request.seq = a->estimate.seq;
    vp_remedies_begin(&s);
    a->has_fitting = lacks && vp_remedies_fit(&s, &a->fitting);
    a->n_remedies  = vp_remedies_end(&s, a->remedies);
    a->has_fitting = a->has_fitting || (lacks && take_remedy(a, &s.request));
    drop_unseen(a, lacks);
}

/* --versions: of the libraries that are named, or there, those that steps are recorded with. */
static vp_status read_versions(vp_estimate_options *o, vp_estimate_answer *a, vp_err *err)
{
    static const char *const needed[] = {"torch", "transformers"};
    vp_arena                *arena    = vp_arena_new();
    json_t                  *there    = NULL;
    const char              *list, *library;
    json_t                  *version;
    vp_status                st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    if (!o->versions)
        goto out;
    VP_TRY(vp_parse_versions(o->versions, &there, err));
    list = vp_hf_versions_of(arena, there);
    if (vp_names_versions(o->versions)) {
        json_object_foreach (there, library, version)
            if (!vp_hf_is_counted(library))
                VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                               "--versions: %s has no say in what is known of bytes; torch, "
                               "transformers and peft have",
                               library));
    } else {
        for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
            if (!json_object_get(there, needed[i]))
                VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "--versions %s: %s is not there", o->versions,
                               needed[i]));
    }
    snprintf(a->versions, sizeof a->versions, "%s", list);
    o->versions = a->versions;
out:
    json_decref(there);
    vp_arena_free(arena);
    return st;
}

static vp_status set_up(const char *name, const vp_estimate_options *given, vp_estimate_answer *a,
                        vp_err *err)
{
    vp_hf_request      *q  = &a->request;
    vp_estimate_options o  = *given;
    vp_status           st = VP_OK;

    VP_TRY(vp_estimate_refuse(&o, err));
    VP_TRY(read_versions(&o, a, err));
    VP_TRY(vp_estimate_open_device(&o, a, err));
    if (o.measured)
        VP_TRY(read_measured(&o, a, err));
    o                       = vp_estimate_with_qlora(&o);
    a->precision_is_default = !given->precision;
    a->batch_is_default     = !o.micro_batch && !(o.max && strcmp(o.max, "micro-batch") == 0);
    bool is_quantised       = o.load && strcmp(o.load, "none") != 0;
    if (!o.precision)
        o.precision = vp_estimate_precision(&o, a, is_quantised);
    if (is_quantised && !o.lora)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--load %s: quantised weights are not trained; say which "
                       "adapters are, with --lora",
                       o.load));
    if (o.prepare && !is_quantised)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--prepare %s is of quantised weights: --qlora, or --load nf4 with --lora",
                       o.prepare));
    VP_TRY(vp_estimate_open_model(name, &o, &a->model, err));
    VP_TRY(vp_estimate_open_second(&o, a, err));
    vp_estimate_fill(&o, a);
    a->loader = (vp_hf_loader_setting){o.workers, o.prefetch, !o.no_pin_memory};
    q->shelf  = vp_hf_shelf_new();
    VP_TRY_ALLOC(err, q->shelf);
    if (o.lora) {
        VP_TRY(vp_estimate_read_lora(o.lora, vp_hf_recorded_family(a->model), &a->lora, err));
        q->lora = a->lora.lora;
    }
    if (o.freeze)
        VP_TRY(vp_estimate_read_freeze(o.freeze, q, err));
    if (o.image_size)
        VP_TRY(vp_estimate_read_image(o.image_size, q, err));
    if (o.peft)
        VP_TRY(vp_estimate_read_peft(o.peft, &q->lora, err));
    if (o.lengths)
        VP_TRY(read_lengths(&o, a, err));
    if (o.max)
        VP_TRY(maximise(a, &o, err));
    VP_TRY(o.lengths ? estimate_worst(a, &o, err) : estimate_whole(a, err));
    if (o.lengths)
        vp_lengths_compare(&a->lengths, a->model, q, o.seq ? o.seq : INT64_MAX, a->context.bytes,
                           &a->of_lengths);
    estimate_padded(a, &o);
    find_remedies(a, &o);
out:
    return st;
}

vp_status vp_estimate_trainer(const vp_command_line *line, const char *model_name,
                              const vp_estimate_options *o, vp_cli *cli, vp_err *err)
{
    vp_estimate_answer a  = {0};
    vp_status          st = VP_OK;

    VP_TRY(set_up(model_name, o, &a, err));
    vp_cli_detail(cli, "recorded step of %s", a.estimate.step);
    if (o->measured)
        VP_TRY(keep_measured(&a, err));
    if (cli->json)
        VP_TRY(vp_print_json(vp_estimate_json(&a), err));
    else
        vp_estimate_print(&a, line, o->all);
    cli->exit_code = vp_estimate_fits(&a) ? 0 : 3;
out:
    vp_hf_shelf_free(a.request.shelf);
    vp_lengths_free(&a.lengths);
    vp_model_free(a.model);
    vp_model_free(a.second);
    return st;
}

/* Whether what was asked of vplan's own step is something that Trainer does too. */
static bool have_the_same(const vp_estimate_options *o)
{
    return (!o->recompute || strcmp(o->recompute, "none") == 0 ||
            strcmp(o->recompute, "full") == 0) &&
           (!o->optimizer || strcmp(o->optimizer, "adamw") == 0) &&
           (!o->gradients || strcmp(o->gradients, "fp32") == 0);
}

bool vp_estimate_beside(const char *model_name, const vp_estimate_options *given,
                        int64_t *device_bytes_out)
{
    vp_estimate_options o   = *given;
    vp_estimate_answer  a   = {0};
    vp_err              why = {0};
    bool                ok;

    o.trainer   = "hf";
    o.loss      = NULL;
    o.attention = NULL;
    o.optimizer = NULL;
    ok          = have_the_same(given) && vp_estimate_open_device(&o, &a, &why) == VP_OK &&
         vp_estimate_open_model(model_name, &o, &a.model, &why) == VP_OK;
    if (ok) {
        vp_estimate_fill(&o, &a);
        ok = vp_hf_estimate_run(a.model, &a.request, &a.estimate, &why) == VP_OK;
    }
    if (ok)
        *device_bytes_out = vp_estimate_device_bytes(&a);
    vp_model_free(a.model);
    return ok;
}

bool vp_estimate_is_only_recorded(const char *name, const vp_estimate_options *o)
{
    vp_model     *model = NULL;
    vp_model_opts opts  = {.dropout_from_config = true, .class_name = o->class_name};
    bool          no_graph, is_known;
    vp_err        ignored = {0};

    if (vp_model_with_graph(name, &opts, &model, &no_graph, &ignored) == VP_OK || !no_graph) {
        vp_model_free(model);
        return false;
    }
    is_known = vp_estimate_open_model(name, o, &model, &ignored) == VP_OK &&
               vp_hf_parameters(model, NULL) > 0;
    vp_model_free(model);
    return is_known;
}
