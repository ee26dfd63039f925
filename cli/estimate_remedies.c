#include "cli/estimate_remedies.h"

#include "base/checked.h"
#include "trainers/hf/hf_find.h"
#include "trainers/hf/hf_versions.h"
#include "trainers/torch/world.h"

#include <stdio.h>
#include <string.h>

#define EXPANDABLE "expandable_segments:True"

typedef struct change {
    const char *option, *costs;
    /* changes *q and returns true, or false where it is on already or means nothing here */
    bool (*apply)(vp_hf_request *q);
} change;

/* Nobody has set the allocator: it closes the holes that freed blocks of other sizes leave. */
static bool expandable(vp_hf_request *q)
{
    bool free = !q->alloc_conf;

    q->alloc_conf = EXPANDABLE;
    return free;
}

static bool recompute(vp_hf_request *q)
{
    if (strcmp(q->recompute, "full") == 0 || vp_hf_is_reentrant(q))
        return false;
    q->recompute = vp_hf_usual_checkpoints(q->versions, vp_hf_is_trl(q));
    return true;
}

/* Cards that cut the gradients keep whole ones while they are only added up. */
static bool sync_each(vp_hf_request *q)
{
    bool keeps =
        q->accumulation > 1 && q->world > 1 && vp_world_syncs_each(q->parallel, q->offload);

    if (!keeps || q->syncs_each)
        return false;
    q->syncs_each = true;
    return true;
}

/* As Trainer has them. */
static bool liger(vp_hf_request *q)
{
    bool on = q->liger && strcmp(q->liger, "all") == 0;

    q->liger = "all";
    return !on && strcmp(q->trainer, "hf") == 0;
}

static bool small_states(vp_hf_request *q)
{
    bool on = strstr(q->optimizer, "8bit") || strncmp(q->optimizer, "sgd", 3) == 0;

    q->optimizer = "adamw_8bit";
    return !on;
}

static bool half_batch(vp_hf_request *q)
{
    if (q->batch < 2 || q->batch % 2)
        return false;
    q->batch /= 2;
    q->accumulation *= 2;
    sync_each(q);
    return true;
}

static bool one_evaluated(vp_hf_request *q)
{
    bool more = q->eval_batch > 1;

    q->eval_batch = more ? 1 : q->eval_batch;
    return more;
}

static bool half_seq(vp_hf_request *q)
{
    if (q->seq < 4 * VP_MASKED_BY)
        return false;
    q->seq = q->seq / 2 / VP_MASKED_BY * VP_MASKED_BY;
    return true;
}

/* Of frozen weights under adapters: of trained ones it would change the numbers that are learned. */
static bool small_weights(vp_hf_request *q)
{
    if (strcmp(q->lora.targets, "none") == 0 || strcmp(q->precision, "bf16-mixed") != 0)
        return false;
    q->precision = "bf16-amp";
    return true;
}

static bool small_fp16_weights(vp_hf_request *q)
{
    if (strcmp(q->lora.targets, "none") == 0 || strcmp(q->precision, "fp16-mixed") != 0)
        return false;
    q->precision = "fp16-amp";
    return true;
}

static bool quantised(vp_hf_request *q)
{
    if (strcmp(q->lora.targets, "none") == 0 || (q->load && strcmp(q->load, "none") != 0))
        return false;
    q->load = "nf4-dq";
    if (!small_weights(q))
        small_fp16_weights(q);
    return true;
}

/* Everything that is trained over the cards there are, where each has all of it; else over twice as many. Of adapters
 * the frozen weights would be cut too, which is not known, nor is how a copy that stays would be. TRL's trainers, and what
 * checkpoints keep in host memory, were recorded on one card. */
static bool shard(vp_hf_request *q)
{
    bool on = vp_hf_is_shared(q) && !vp_world_replicates(q->parallel);

    q->world    = q->world < 2 ? 2 : on ? 2 * q->world : q->world;
    q->parallel = on ? q->parallel : "fsdp2";
    sync_each(q);
    return !vp_hf_is_trl(q) && !q->offloads && q->world <= 1024 &&
           (!q->resident || strcmp(q->resident, "none") == 0);
}

/* By DeepSpeed on the one card there is. */
static bool in_host(vp_hf_request *q, const char *offload)
{
    bool whole = strcmp(q->lora.targets, "none") == 0 && !vp_hf_freezes(q);

    if (q->world > 1 || vp_hf_is_shared(q) || !whole || vp_hf_is_trl(q) || q->offloads ||
        (q->resident && strcmp(q->resident, "none") != 0))
        return false;
    q->parallel = vp_world_offloads_one(offload);
    q->offload  = offload;
    return true;
}

static bool states_in_host(vp_hf_request *q)
{
    return in_host(q, "optimizer");
}

static bool weights_in_host(vp_hf_request *q)
{
    return in_host(q, "params");
}

static const change changes[VP_REMEDIES] = {
    {"--alloc-conf " EXPANDABLE,
     "in PYTORCH_ALLOC_CONF before the command; no known cost, not on Windows", expandable},
    {"--sync-each-batch",
     "sync_each_batch of Accelerate: gradients are reduced in each "
     "micro-batch, not once a step",
     sync_each},
    {"--recompute full",
     "gradient checkpointing: one more forward pass a step, about a third slower", recompute},
    {"--liger", "Liger's kernels (package liger-kernel): the logits are never whole in memory",
     liger},
    {"--optimizer adamw_8bit", "8-bit optimizer states, by bitsandbytes", small_states},
    {"--micro-batch", "the same samples a step, in twice as many micro-batches", half_batch},
    {"--eval-batch 1", "an evaluation takes longer, its loss is the same", one_evaluated},
    {"--seq", "shorter samples", half_seq},
    {"--precision bf16-amp", "frozen weights in 16 bits", small_weights},
    {"--precision fp16-amp", "frozen weights in 16 bits", small_fp16_weights},
    {"--world",
     "weights, gradients and optimizer states sharded over the GPUs, which then communicate",
     shard},
    {"--parallel zero2 --offload optimizer",
     "by DeepSpeed: optimizer states and update on the host", states_in_host},
    {"--parallel zero3 --offload params",
     "by DeepSpeed: weights and optimizer states in host memory, copied for each pass",
     weights_in_host},
    {"--load nf4-dq", "frozen weights in 4 bits, dequantised as they are used", quantised},
};

static void name_it(const change *c, const vp_hf_request *before, const vp_hf_request *q, char *buf,
                    size_t size)
{
    const char *syncs = q->syncs_each != before->syncs_each ? " --sync-each-batch" : "";

    if (c->apply == half_batch)
        snprintf(buf, size, "%s %lld --accumulation %lld%s", c->option, (long long)q->batch,
                 (long long)q->accumulation, syncs);
    else if (c->apply == half_seq)
        snprintf(buf, size, "%s %lld", c->option, (long long)q->seq);
    else if (c->apply == shard)
        snprintf(buf, size, "%s %lld --parallel %s%s", c->option, (long long)q->world, q->parallel,
                 syncs);
    else if (c->apply == quantised && strcmp(q->precision, before->precision) != 0)
        snprintf(buf, size, "%s --precision %s", c->option, q->precision);
    else
        snprintf(buf, size, "%s", c->option);
}

enum { TRIES = 4 };

/* Where samples differ in length, the sequence of the batch that decides with these settings: another one than before
 * where tensors of other sizes lie in PyTorch's cache, or samples are cut shorter. */
static void decide_length(const vp_model *model, const vp_lengths *lengths, int64_t most,
                          const vp_hf_request *before, vp_hf_request *q)
{
    int64_t longest, cut = q->seq != before->seq ? q->seq : most;

    if (!lengths)
        return;
    longest = lengths->of[lengths->n - 1].tokens;
    q->seq  = vp_round_up(longest < cut ? longest : cut, VP_MASKED_BY);
    q->seq  = vp_lengths_worst(lengths, model, q, cut);
}

/* With what cards that talk to each other take beside. */
static int64_t with_communicators(int64_t reserved_bytes, int64_t world)
{
    return reserved_bytes + vp_world_communicator_bytes(world);
}

/* The most that q may reserve to be worth it: a thousandth less than there is, which is seen on the screen. */
static int64_t worth_bytes(const vp_hf_request *q, const vp_hf_request *before,
                           int64_t reserved_bytes)
{
    int64_t now = with_communicators(reserved_bytes, before->world);

    return now - now / 1000 - with_communicators(0, q->world);
}

/* What *e is on a card of this size, as the answer itself is judged: where all of it fits, but not beside what PyTorch caches,
 * PyTorch gives that back. Whether it fits. */
static bool fits_within(const vp_model *model, const vp_hf_request *asked,
                        const vp_remedy_room *room, const vp_hf_request *q, vp_hf_estimate *e)
{
    vp_hf_request  within  = *q;
    vp_hf_estimate limited = {0};
    vp_err         why     = {0};

    if (room->bytes < 0)
        return false;
    within.at_most_bytes = 0;
    within.limit_bytes   = room->bytes;
    if (room->has_communicator)
        within.limit_bytes -=
            vp_world_communicator_bytes(q->world) - vp_world_communicator_bytes(asked->world);
    if (e->reserved_bytes <= within.limit_bytes || e->allocated_bytes > within.limit_bytes)
        return e->reserved_bytes <= within.limit_bytes;
    if (vp_hf_estimate_run(model, &within, &limited, &why) != VP_OK)
        return false;
    *e = limited;
    return true;
}

static void look_at(void *trial)
{
    vp_remedy_trial        *t   = trial;
    const vp_remedy_search *s   = t->search;
    const change           *c   = &changes[t->change];
    vp_hf_request           q   = t->request;
    vp_hf_estimate          e   = {0};
    vp_err                  why = {0};

    decide_length(s->model, s->lengths, s->most, &s->request, &q);
    q.at_most_bytes = worth_bytes(&q, &s->request, s->reserved_bytes);
    q.counts_needed = true; /* what is reserved besides PyTorch may give back */
    q.terse         = true;
    if (q.at_most_bytes < 1)
        return;
    t->status         = vp_hf_estimate_run(s->model, &q, &e, &why);
    t->reserved_bytes = e.reserved_bytes;
    t->at_most_bytes  = q.at_most_bytes;
    t->stands_in      = e.stands_in;
    if (t->status != VP_OK)
        return;
    bool fit = fits_within(s->model, &s->request, &s->room, &q, &e);
    if (e.reserved_bytes > q.at_most_bytes)
        return;
    t->found = (vp_remedy){
        .costs = c->costs, .reserved_bytes = e.reserved_bytes, .world = q.world, .fits = fit};
    name_it(c, &s->request, &t->request, t->found.option, sizeof t->found.option);
}

void vp_remedies_begin(vp_remedy_search *s)
{
    for (int i = 0; i < VP_REMEDIES; i++) {
        vp_remedy_trial *t = &s->trials[i];

        *t = (vp_remedy_trial){
            .search = s, .change = i, .request = s->request, .status = VP_ERR_INPUT};
        t->means_nothing = t->is_done =
            !changes[i].apply(&t->request) || (changes[i].apply == liger && s->said.loss);
        if (!t->is_done)
            vp_beside_offer(&t->beside, look_at, t);
    }
}

static void finish(vp_remedy_trial *t)
{
    if (!t->is_done)
        vp_beside_finish(&t->beside);
    t->is_done = true;
}

int vp_remedies_end(vp_remedy_search *s, vp_remedy out[VP_REMEDIES])
{
    int n = 0;

    for (int i = 0; i < VP_REMEDIES; i++) {
        const vp_remedy *r  = &s->trials[i].found;
        int              at = n;
        finish(&s->trials[i]);
        if (!r->option[0])
            continue;
        for (; at > 0 && out[at - 1].reserved_bytes > r->reserved_bytes; at--)
            out[at] = out[at - 1];
        out[at] = *r;
        n++;
    }
    return n;
}

/* ---- all that it takes ---- */

enum { LEAST_SEQ = 256, QLORA_RANK = 16 };

#define TOO_LARGE INT64_MAX

/* Whether more than so many bytes are known to be reserved, or how many: the answer itself does not fit, and changes are tried alone
 * too. False: neither is known. Where samples differ in length those are other requests. */
static bool is_known(vp_remedy_search *s, const vp_hf_request *q, int64_t at_most_bytes,
                     vp_hf_estimate *e, vp_status *st)
{
    if (s->lengths)
        return false;
    *st = VP_ERR_NO_FIT;
    if (memcmp(q, &s->request, sizeof *q) == 0)
        return s->reserved_bytes > at_most_bytes;
    for (int i = 0; i < VP_REMEDIES; i++) {
        vp_remedy_trial *t = &s->trials[i];
        if (!t->means_nothing && memcmp(q, &t->request, sizeof *q) == 0) {
            finish(t);
            e->reserved_bytes = t->reserved_bytes;
            e->stands_in      = t->stands_in;
            if (t->status == VP_OK && t->reserved_bytes <= at_most_bytes)
                *st = VP_OK;
            return t->status == VP_OK ||
                   (t->status == VP_ERR_NO_FIT && t->at_most_bytes >= at_most_bytes);
        }
    }
    return false;
}

/* Playing ends where it does not fit, and *bytes are TOO_LARGE then; -1 of what was not recorded.
 * most_bytes leave room for what q's share may be off; where another step stands in that is more. */
static bool fits(vp_remedy_search *s, const vp_hf_request *asked, int64_t most_bytes,
                 int64_t *bytes)
{
    vp_hf_request  within = *asked, *q = &within;
    vp_hf_estimate e     = {0};
    vp_err         why   = {0};
    double         share = vp_hf_reserved_share(q);
    vp_status      st;

    q->at_most_bytes = most_bytes > 0 ? most_bytes : 1;
    q->terse         = true;
    if (!is_known(s, asked, q->at_most_bytes, &e, &st))
        st = vp_hf_estimate_run(s->model, q, &e, &why);
    *bytes = st == VP_OK ? e.reserved_bytes : st == VP_ERR_NO_FIT ? TOO_LARGE : -1;
    if (e.stands_in && share < VP_HF_STAND_IN_SHARE)
        most_bytes = (int64_t)((double)most_bytes * (1 + share) / (1 + VP_HF_STAND_IN_SHARE));
    return *bytes >= 0 && *bytes <= most_bytes;
}

static bool is_even(int64_t n)
{
    return n % 2 == 0;
}

/* As large a micro-batch again as fits: what came after it made room. */
static void double_batch(vp_remedy_search *s, const vp_hf_request *asked, int64_t most_bytes,
                         vp_hf_request *q, int64_t *bytes)
{
    while (q->batch < asked->batch && is_even(q->accumulation)) {
        vp_hf_request larger = *q;
        int64_t       needs;
        larger.batch *= 2;
        larger.accumulation /= 2;
        if (!fits(s, &larger, most_bytes, &needs))
            return;
        *q     = larger;
        *bytes = needs;
    }
}

/* What came later may have made room for the optimizer that was asked for: its states of 8 bits train otherwise. */
static void take_back_optimizer(vp_remedy_search *s, const vp_hf_request *from, int64_t most_bytes,
                                vp_hf_request *q, int64_t *bytes)
{
    vp_hf_request as_asked = *q;
    int64_t       needs;

    as_asked.optimizer = from->optimizer;
    if (q->optimizer == from->optimizer || !fits(s, &as_asked, most_bytes, &needs))
        return;
    *q     = as_asked;
    *bytes = needs;
}

/* From *q on, one sample at a time first, in evaluations too, then one change after the other as far as they were recorded. False:
 * all of it together is not enough. */
static bool go_down(vp_remedy_search *s, vp_hf_request *q, int64_t most_bytes, bool shorter,
                    int64_t *bytes)
{
    static bool (*const ways[])(vp_hf_request *) = {liger,         recompute, small_states,
                                                    small_weights, quantised, half_seq};
    size_t n                                     = sizeof ways / sizeof *ways - !shorter;

    one_evaluated(q);
    sync_each(q);
    while (half_batch(q))
        ;
    if (fits(s, q, most_bytes, bytes))
        return true;
    for (size_t way = 0; way < n;) {
        vp_hf_request next    = *q;
        bool          is_last = ways[way] == half_seq;
        if ((is_last && q->seq < 2 * LEAST_SEQ) || (ways[way] == liger && s->said.loss) ||
            !ways[way](&next)) {
            way++;
            continue;
        }
        if (fits(s, &next, most_bytes, bytes)) {
            *q = next;
            return true;
        }
        if (*bytes >= 0)
            *q = next;
        way += !is_last || *bytes < 0;
    }
    return false;
}

/* Weights alone, and for each that is trained a gradient like it and states of 8 bits; in half bytes. */
static bool may_fit(const vp_model *model, const vp_hf_request *q, int64_t most_bytes)
{
    bool trains    = strcmp(q->lora.targets, "none") == 0,
         wide      = strstr(q->precision, "-mixed") || strcmp(q->precision, "fp32") == 0;
    int64_t halves = q->load && strcmp(q->load, "none") != 0 ? 1
                     : trains && !vp_hf_freezes(q)           ? wide ? 20 : 12
                                                             : 4;

    return q->world > 1 || model->n_params <= 2 * (most_bytes / halves); /* cards may share them */
}

/* What differs, as options; what --qlora brings only where another was typed, which would stand beside it. */
static void tell(const vp_hf_request *asked, const vp_remedy_said *said, vp_remedy_chain *out)
{
    const vp_hf_request *q     = &out->request;
    bool                 qlora = out->trains_adapters;
    size_t               n     = 0;
    char                *buf   = out->options;

#define TELL(differs, ...) \
    if ((differs) && n < sizeof out->options) \
    n += (size_t)snprintf(buf + n, sizeof out->options - n, __VA_ARGS__)
    buf[0] = '\0';
    TELL(qlora, " --qlora");
    TELL(q->alloc_conf != asked->alloc_conf, " --alloc-conf %s", q->alloc_conf);
    TELL(vp_hf_freezes(asked) && !vp_hf_freezes(q), " --freeze none");
    TELL(q->world != asked->world || strcmp(q->parallel, asked->parallel) != 0,
         " --world %lld --parallel %s", (long long)q->world, q->parallel);
    TELL(strcmp(q->offload, asked->offload) != 0, " --offload %s", q->offload);
    TELL(q->batch != asked->batch, " --micro-batch %lld --accumulation %lld", (long long)q->batch,
         (long long)q->accumulation);
    TELL(q->syncs_each != asked->syncs_each && q->accumulation > 1, " --sync-each-batch");
    TELL(q->eval_batch != asked->eval_batch, " --eval-batch %lld", (long long)q->eval_batch);
    TELL(strcmp(q->liger, asked->liger) != 0, " --liger");
    TELL((!qlora || said->recompute) && strcmp(q->recompute, asked->recompute) != 0,
         " --recompute %s", q->recompute);
    TELL(strcmp(q->optimizer, asked->optimizer) != 0, " --optimizer %s", q->optimizer);
    TELL((!qlora || said->precision) && strcmp(q->precision, asked->precision) != 0,
         " --precision %s", q->precision);
    TELL(!qlora && strcmp(q->load, asked->load) != 0, " --load %s", q->load);
    TELL(q->seq != asked->seq, " --seq %lld", (long long)q->seq);
#undef TELL
}

/* What --qlora computes in unasked: vp_estimate_precision(). */
static const char *qlora_precision(const vp_hf_request *q)
{
    bool has_bf16 = q->capability >= 80;

    if (vp_hf_is_trl(q))
        return "bf16-amp"; /* on any card: vp_hf_find() says why */
    if (vp_hf_is_plain(q))
        return has_bf16 ? "bf16" : "fp16";
    return has_bf16 ? "bf16-amp" : "fp16-amp";
}

/* Adapters that are cut over cards were not recorded: each card has all of them. */
static vp_hf_request with_adapters(const vp_hf_request *asked)
{
    vp_hf_request q = *asked;

    q.lora          = (vp_hf_lora){.targets = "all-linear", .rank = QLORA_RANK};
    q.load          = "nf4-dq";
    q.freeze        = "none";
    q.frozen_layers = 0;
    q.recompute     = vp_hf_usual_checkpoints(q.versions, vp_hf_is_trl(&q));
    q.precision     = qlora_precision(&q);
    q.offload       = "none";
    if (q.world > 1)
        q.parallel = "ddp";
    return q;
}

/* More than the cards that were asked for talk over more of NCCL's memory. What may be off has to fit too, as where
 * check and plan --trainer judge. */
static bool try_from(vp_remedy_search *s, const vp_hf_request *asked, const vp_hf_request *from,
                     int64_t most_bytes, bool shorter, vp_remedy_chain *out)
{
    most_bytes -=
        vp_world_communicator_bytes(from->world) - vp_world_communicator_bytes(asked->world);
    most_bytes = (int64_t)((double)most_bytes / (1 + vp_hf_reserved_share(from)));
    *out       = (vp_remedy_chain){.request = *from};
    if (!may_fit(s->model, from, most_bytes) ||
        !go_down(s, &out->request, most_bytes, shorter, &out->reserved_bytes))
        return false;
    take_back_optimizer(s, from, most_bytes, &out->request, &out->reserved_bytes);
    double_batch(s, asked, most_bytes, &out->request, &out->reserved_bytes);
    return true;
}

/* In host memory, as little as it takes, where the cards cut the weights. */
static bool try_offload(vp_remedy_search *s, const vp_hf_request *asked,
                        const vp_hf_request *shared, int64_t most_bytes, vp_remedy_chain *out)
{
    static const char *const more[] = {"optimizer", "params"};
    vp_hf_request            q      = *shared;

    if (q.world < 2 || strcmp(asked->offload, "none") != 0)
        return false;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        q.offload = more[i];
        if (vp_world_offloads(q.parallel, q.offload) &&
            try_from(s, asked, &q, most_bytes, false, out))
            return true;
    }
    return false;
}

/* As it was asked for, in another allocator. */
static bool try_allocator(vp_remedy_search *s, const vp_hf_request *asked, int64_t most_bytes,
                          vp_remedy_chain *out)
{
    *out = (vp_remedy_chain){.request = *asked};
    return expandable(&out->request) &&
           fits(s, &out->request, (int64_t)((double)most_bytes / (1 + vp_hf_reserved_share(asked))),
                &out->reserved_bytes);
}

enum { DOUBLED = 3 }; /* times that there may be more cards */

static bool find_chain(vp_remedy_search *s, const vp_hf_request *request, int64_t most_bytes,
                       vp_remedy_chain *out)
{
    bool all   = strcmp(request->lora.targets, "none") == 0,
         whole = all && request->world > 1 && vp_world_replicates(request->parallel);
    bool found = try_allocator(s, request, most_bytes, out) ||
                 try_from(s, request, request, most_bytes, !all, out);
    vp_hf_request shared = *request;
    bool          lacks  = false;

    if (!found && whole && shard(&shared))
        found = try_from(s, request, &shared, most_bytes, false, out);
    if (!found && all)
        found = try_offload(s, request, &shared, most_bytes, out);
    if (!found && all) {
        vp_hf_request adapters = with_adapters(request);
        int64_t       bytes;
        found                = try_from(s, request, &adapters, most_bytes, true, out);
        out->trains_adapters = true;
        lacks                = !found && !fits(s, &adapters, most_bytes, &bytes) && bytes < 0;
    }
    for (int i = 0; !found && all && i < DOUBLED && shard(&shared); i++)
        found = try_from(s, request, &shared, most_bytes, false, out) ||
                (request->world > 1 && try_offload(s, request, &shared, most_bytes, out));
    out->lacks_adapters = lacks;
    if (found)
        tell(request, &s->said, out);
    return found;
}

bool vp_remedies_fit(vp_remedy_search *s, vp_remedy_chain *out)
{
    const vp_hf_request *tried = &s->request;
    int64_t              room  = s->room.bytes;

    for (int i = 0; i < TRIES && find_chain(s, tried, room, out); i++) {
        vp_hf_request  q     = out->request;
        int64_t        found = out->reserved_bytes;
        vp_hf_estimate e     = {0};
        vp_err         why   = {0};
        if (!s->lengths)
            return true;
        decide_length(s->model, s->lengths, s->most, tried, &q);
        if (vp_hf_estimate_run(s->model, &q, &e, &why) != VP_OK)
            return false;
        out->reserved_bytes = e.reserved_bytes;
        if (out->reserved_bytes <= found ||
            (q.world == tried->world &&
             (double)out->reserved_bytes * (1 + vp_hf_reserved_share(&q)) <= (double)s->room.bytes))
            return true;
        room -= out->reserved_bytes - found;
    }
    return false;
}
