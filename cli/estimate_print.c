/* An answer of `vplan estimate --trainer` for people. */
#include "cli/estimate_answer.h"
#include "cli/estimate_next.h"
#include "cli/loader_text.h"
#include "cli/padding.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/checked.h"
#include "base/units.h"
#include "trainers/hf/hf_find.h"

#include <stdio.h>
#include <string.h>

/* check and plan --trainer go by the upper end, this command's answer by the middle. */
static void print_upper_end(const vp_estimate_answer *a)
{
    json_t *interval = vp_estimate_interval(a);
    int64_t low      = json_integer_value(json_object_get(interval, "low_bytes")),
            high     = json_integer_value(json_object_get(interval, "high_bytes"));
    char x[64], y[64];

    json_decref(interval);
    if (a->budget_bytes < 0 || low > a->budget_bytes || high <= a->budget_bytes)
        return;
    vp_screen_line("interval",
                   vp_estimate_fits(a)
                       ? "%s to %s: fits, but not at the upper end, by which check and "
                         "plan --trainer judge"
                       : "%s to %s: does not fit, but would at the lower end",
                   vp_size_text(low, x, sizeof x), vp_size_text(high, y, sizeof y));
}

static void print_tight(const vp_estimate_answer *a)
{
    if (a->is_tight && a->estimate.n_returns)
        vp_screen_line(
            "tight",
            "PyTorch finds room by giving back its cache, %lld times a step, which takes "
            "time",
            (long long)a->estimate.n_returns);
    else if (a->is_tight)
        vp_screen_line("tight", "PyTorch finds room by giving back its cache in the first step");
}

/* States that lie before the first step's memory leave other holes. PyTorch may still find room, by giving back what it caches. */
static void print_resumed(const vp_estimate_answer *a)
{
    const vp_hf_estimate *e = &a->estimate;
    char                  x[64];

    for (int i = 0; i < e->n_phases; i++) {
        int64_t bytes = vp_estimate_bytes_with(a, e->phases[i].reserved_bytes, a->request.world);
        if (strcmp(e->phases[i].name, "resume") == 0 && vp_estimate_fits(a) &&
            a->budget_bytes >= 0 && bytes > a->budget_bytes)
            vp_screen_line("resuming",
                           "%s: a run that goes on from a checkpoint may not fit, though a new one "
                           "does",
                           vp_size_text(bytes, x, sizeof x));
    }
}

/* With PyTorch's cache bytes can fall where a batch grows, and what is cached is given back where a card is full: what was
 * found is where fitting beside all of it ends first. */
static void print_largest(const vp_estimate_answer *a)
{
    bool    is_seq = strcmp(a->max, "seq") == 0;
    int64_t found  = is_seq ? a->estimate.seq : a->request.batch;
    char    next[160];

    snprintf(
        next, sizeof next,
        "; %lld%s does not beside all that PyTorch's cache holds, and fits, if at all, as it gives "
        "that back",
        (long long)found + (is_seq ? 8 : 1), is_seq ? ", the next multiple of 8," : "");
    vp_screen_line("largest", "--%s %lld%s", a->max, (long long)found,
                   is_seq && found == a->estimate.positions ? ", all positions of the model"
                                                            : next);
}

static void print_fitting(const vp_estimate_answer *a)
{
    char        x[64];
    const char *keeps =
        a->fitting.trains_adapters                   ? "adapters are trained, not the whole model"
        : strstr(a->fitting.options, "--alloc-conf") ? "PYTORCH_ALLOC_CONF before the command"
        : strstr(a->fitting.options, "--offload") ? "what is in host memory is copied in each step"
        : strstr(a->fitting.options, "--world")
            ? "weights, gradients and optimizer states sharded over the GPUs"
        : strstr(a->fitting.options, "--seq") ? "shorter samples"
                                              : "the same samples a step";

    if (a->has_fitting)
        vp_screen_line("fits with", "%s: %s; %s%s", a->fitting.options + 1,
                       vp_size_text(vp_estimate_bytes_with(a, a->fitting.reserved_bytes,
                                                           a->fitting.request.world),
                                    x, sizeof x),
                       keeps, a->fitting.only_just ? ", but only just: see its interval" : "");
    else if (!vp_estimate_fits(a))
        vp_screen_line("fits with",
                       "none of the changes that estimate tries: it takes a larger GPU "
                       "or a smaller model%s",
                       a->fitting.lacks_adapters
                           ? "; or adapters, whose step was not recorded with these settings"
                           : "");
}

/* What is trained beside adapters. */
static const char *beside_text(const vp_hf_request *q, char *buf, size_t size)
{
    buf[0] = '\0';
    if (q->lora.save)
        snprintf(buf, size, ", %s whole", q->lora.save);
    else if (q->lora.tokens)
        snprintf(buf, size, ", %lld tokens", (long long)q->lora.tokens);
    return buf;
}

/* Of another method of peft's than LoRA. */
static void print_method(const vp_hf_lora *lora)
{
    if (lora->virtual_tokens)
        vp_screen_line("adapters", "%s tuning, %lld virtual tokens in fp32", lora->targets,
                       (long long)lora->virtual_tokens);
    else
        vp_screen_line("adapters", "IA3 on peft's own targets, fp32");
}

/* Where a run dies although the card has room: its host's memory. Little is told where all is asked for. */
static void print_host(const vp_hf_host *h, int64_t world, bool all)
{
    int64_t most = vp_max_i64(vp_max_i64(h->load_bytes, h->save_bytes), h->resume_bytes);
    char    x[64], y[64], z[64];

    if (!h->is_known || (most < VP_GIB && !all))
        return;
    vp_screen_line("host", "%s while it loads, %s to save, %s to resume%s",
                   vp_size_text(h->load_bytes, x, sizeof x),
                   vp_size_text(h->save_bytes, y, sizeof y),
                   vp_size_text(h->resume_bytes, z, sizeof z), world > 1 ? ", each process" : "");
}

static void print_setting(const vp_estimate_answer *a, bool all)
{
    const vp_hf_request *q = &a->request;
    char                 x[64], y[64];

    vp_screen_line("model", "%s, %s parameters, %s of them trained, trainer %s%s%s", a->model->name,
                   vp_count_text(a->estimate.n_params, x, sizeof x),
                   vp_count_text(a->estimate.n_trained, y, sizeof y),
                   vp_hf_is_dpo(q)      ? "trl (DPOTrainer)"
                   : vp_hf_is_reward(q) ? "trl (RewardTrainer)"
                   : vp_hf_is_grpo(q)   ? "trl (GRPOTrainer)"
                                        : q->trainer,
                   a->has_device ? ", on " : "", a->has_device ? a->device.name : "");
    vp_screen_line("recipe", "%s, %s, attention %s, recompute %s%s", q->precision, q->optimizer,
                   a->estimate.attention, q->recompute,
                   strcmp(q->liger, "all") == 0    ? ", Liger's kernels"
                   : strcmp(q->liger, "loss") == 0 ? ", Liger's loss"
                                                   : "");
    if (vp_hf_has_other_adapters(q))
        print_method(&q->lora);
    else if (vp_hf_has_adapters(q))
        vp_screen_line("adapters", "LoRA of rank %lld on %s, %s%s%s%s%s%s", (long long)q->lora.rank,
                       q->lora.targets, vp_hf_trains_halves(q) ? "bf16" : "fp32",
                       q->lora.is_dora ? ", DoRA" : "", beside_text(q, x, sizeof x),
                       vp_hf_is_quantised(q) ? "; frozen weights in " : "",
                       vp_hf_is_quantised(q) ? q->load : "",
                       !q->prepare        ? ""
                       : vp_hf_upcasts(q) ? ", prepared"
                                          : ", not prepared");
    if (q->frozen_layers)
        vp_screen_line("frozen", "the embeddings and the first %lld layers",
                       (long long)q->frozen_layers);
    else if (vp_hf_freezes(q))
        vp_screen_line("frozen", strcmp(q->freeze, "vision") == 0
                                     ? "the tower of pictures and its projector"
                                     : "the embeddings");
    if (vp_hf_is_shared(q))
        vp_screen_line("cards", "%lld, %s, offload %s%s", (long long)q->world, q->parallel,
                       q->offload, q->world > 1 ? ": rank 0, which takes most" : "");
    if (a->estimate.host_bytes)
        vp_screen_line("host", "%s a card, of it pinned %s",
                       vp_size_text(a->estimate.host_bytes, x, sizeof x),
                       vp_size_text(a->estimate.pinned_bytes, y, sizeof y));
    if (q->compiles)
        vp_screen_line("compiled", "by torch.compile: the eager step's bytes, in a wider interval");
    if (q->alloc_conf)
        vp_screen_line("allocator", "%s", q->alloc_conf);
    print_host(&a->estimate.host, q->world, all);
    vp_loader_print(&a->estimate.batch, &a->loader, q->world > 1);
    x[0] = '\0';
    if (q->eval_batch)
        snprintf(x, sizeof x, ", evaluation by %lld", (long long)q->eval_batch);
    if (q->packed)
        snprintf(x, sizeof x, ", %lld documents packed in each", (long long)q->packed);
    if (q->images)
        snprintf(x, sizeof x, ", %lld picture%s a sample", (long long)q->images,
                 q->images > 1 ? "s" : "");
    vp_screen_line("setting", "micro-batch %lld%s, sequence %lld, accumulation %lld%s%s",
                   (long long)q->batch,
                   vp_hf_has_pairs(q) ? " pairs"
                   : vp_hf_is_grpo(q) ? " completions"
                                      : "",
                   (long long)a->estimate.seq, (long long)q->accumulation,
                   q->syncs_each ? " (each is reduced)" : "", x);
    if (a->reserve_bytes)
        vp_screen_line("reserve", "%s kept free", vp_size_text(a->reserve_bytes, x, sizeof x));
    printf("\n");
}

/* What is alive at the peak; items below a thousandth together, unless all are wanted. */
static void print_items(const vp_ledger_phase *p, bool all)
{
    int64_t least = all ? 1 : p->allocated_bytes / 1000, small = 0;
    char    x[64], name[40];

    printf("%-40s %12s %7s\n", "at the peak", "bytes", "share");
    for (int i = 0; i < VP_N_OWNERS; i++) {
        snprintf(name, sizeof name, "%s", vp_owner_words((vp_owner)i));
        for (char *c = name; *c; c++)
            *c = *c == '_' ? ' ' : *c;
        if (p->owners[i] >= least && p->owners[i])
            printf("%-40s %12s %6.1f%%\n", name, vp_screen_size(p->owners[i], 12, x, sizeof x),
                   100.0 * (double)p->owners[i] / (double)p->allocated_bytes);
        else
            small += p->owners[i];
    }
    if (small)
        printf("%-40s %12s %6.1f%%\n", "the rest", vp_screen_size(small, 12, x, sizeof x),
               100.0 * (double)small / (double)p->allocated_bytes);
}

static void print_phases(const vp_estimate_answer *a)
{
    const vp_hf_estimate *e = &a->estimate;
    char                  x[64], y[64], phase[48];

    printf("\n%-20s %14s %14s\n", "phase", "allocated", "reserved");
    for (int i = 0; i < e->n_phases; i++)
        printf("%-20s %14s %14s\n", vp_screen_phase(e->phases[i].name, phase, sizeof phase),
               vp_size_text(e->phases[i].allocated_bytes, x, sizeof x),
               vp_size_text(e->phases[i].reserved_bytes, y, sizeof y));
}

static void print_next(const vp_estimate_answer *a, const vp_command_line *line)
{
    const vp_hf_request *q = &a->request;

    vp_print_estimate_next(
        &(vp_estimate_next){.trainer      = q->trainer,
                            .fitting      = a->has_fitting ? a->fitting.options : "",
                            .fits         = vp_estimate_fits(a),
                            .has_budget   = a->budget_bytes >= 0,
                            .has_max      = a->max != NULL,
                            .free_batch   = a->batch_is_default,
                            .needs_bytes  = vp_estimate_device_bytes(a),
                            .budget_bytes = a->budget_bytes,
                            .capability   = q->capability,
                            .seq          = a->estimate.seq,
                            .global_batch = q->batch * q->accumulation * q->world},
        line);
}

void vp_estimate_print(const vp_estimate_answer *a, const vp_command_line *line, bool all)
{
    const vp_hf_estimate  *e = &a->estimate;
    const vp_ledger_phase *p = &e->phases[e->peak];
    char                   x[64], phase[48];

    if (a->budget_bytes >= 0)
        vp_screen_answer(vp_estimate_device_bytes(a), a->budget_bytes, NULL);
    else
        printf("NEEDS %s; --device 4090 says whether that fits\n",
               vp_size_text(vp_estimate_device_bytes(a), x, sizeof x));
    print_upper_end(a);
    print_tight(a);
    vp_padding_print(vp_estimate_device_bytes(a), vp_estimate_padded_bytes(a), a->budget_bytes);
    print_resumed(a);
    if (a->not_even_least)
        printf("           not even --%s %lld\n", a->max,
               (long long)(strcmp(a->max, "seq") == 0 ? e->seq : a->request.batch));
    else if (a->max)
        print_largest(a);
    print_fitting(a);
    if (a->lengths.n)
        vp_lengths_print(&a->of_lengths);
    print_setting(a, all);
    print_items(p, all);
    printf("%-40s %12s   in %s\n", "allocated", vp_screen_size(e->allocated_bytes, 12, x, sizeof x),
           vp_screen_phase(p->name, phase, sizeof phase));
    printf("%-40s %12s   with PyTorch's cache\n", "reserved",
           vp_screen_size(e->reserved_bytes, 12, x, sizeof x));
    if (a->has_device)
        printf("%-40s %12s   %s\n", "the process on the card",
               vp_screen_size(vp_estimate_device_bytes(a), 12, x, sizeof x),
               "context, libraries too");
    if (all)
        print_phases(a);
    printf("\n");
    if (a->measured_in)
        vp_measured_print(&a->measured, &a->estimate, a->assumed_context_bytes);
    for (int i = 0; i < a->n_remedies; i++)
        vp_screen_line(i ? "" : "less with", "%s: %s%s; %s", a->remedies[i].option,
                       vp_size_text(vp_estimate_bytes_with(a, a->remedies[i].reserved_bytes,
                                                           a->remedies[i].world),
                                    x, sizeof x),
                       a->remedies[i].fits && !vp_estimate_fits(a) ? ", fits" : "",
                       a->remedies[i].costs);
    json_t *list = vp_estimate_assumptions(a);
    for (size_t i = 0; i < json_array_size(list); i++)
        vp_screen_line("assumed", "%s", json_string_value(json_array_get(list, i)));
    json_decref(list);
    print_next(a, line);
}
