#include "cli/estimate_remedies.h"

#include <stdio.h>
#include <string.h>

typedef struct change {
    const char *option, *costs;
    /* changes *q and returns true, or false where it is on already or means nothing here */
    bool (*apply)(vp_hf_request *q);
} change;

static bool recompute(vp_hf_request *q)
{
    bool on = strcmp(q->recompute, "full") == 0;

    q->recompute = "full";
    return !on;
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
    return true;
}

static bool half_seq(vp_hf_request *q)
{
    if (q->seq < 32 || q->seq % 16)
        return false;
    q->seq /= 2;
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

static bool quantised(vp_hf_request *q)
{
    if (strcmp(q->lora.targets, "none") == 0 || (q->load && strcmp(q->load, "none") != 0))
        return false;
    q->load      = "nf4-dq";
    q->precision = strcmp(q->precision, "bf16-mixed") == 0 ? "bf16-amp" : q->precision;
    return true;
}

static const change changes[VP_REMEDIES] = {
    {"--recompute full", "a forward pass more in each step: about a third slower", recompute},
    {"--optimizer adamw_8bit", "states of 8 bits, by bitsandbytes", small_states},
    {"--micro-batch", "as many samples a step, in twice the passes", half_batch},
    {"--seq", "shorter samples", half_seq},
    {"--precision bf16-amp", "frozen weights of 16 bits", small_weights},
    {"--load nf4-dq", "frozen weights of 4 bits, dequantised as they are used", quantised},
};

static void name_it(const change *c, const vp_hf_request *q, char *buf, size_t size)
{
    if (c->apply == half_batch)
        snprintf(buf, size, "%s %lld --accumulation %lld", c->option, (long long)q->batch,
                 (long long)q->accumulation);
    else if (c->apply == half_seq)
        snprintf(buf, size, "%s %lld", c->option, (long long)q->seq);
    else
        snprintf(buf, size, "%s", c->option);
}

int vp_remedies_find(const vp_model *model, const vp_hf_request *request, int64_t reserved_bytes,
                     vp_remedy out[VP_REMEDIES])
{
    int n = 0;

    for (int i = 0; i < VP_REMEDIES; i++) {
        vp_hf_request  q   = *request;
        vp_hf_estimate e   = {0};
        vp_err         why = {0};
        int            at  = n;
        if (!changes[i].apply(&q) || vp_hf_estimate_run(model, &q, &e, &why) != VP_OK ||
            e.reserved_bytes >= reserved_bytes)
            continue;
        for (; at > 0 && out[at - 1].reserved_bytes > e.reserved_bytes; at--)
            out[at] = out[at - 1];
        out[at] = (vp_remedy){.costs = changes[i].costs, .reserved_bytes = e.reserved_bytes};
        name_it(&changes[i], &q, out[at].option, sizeof out[at].option);
        n++;
    }
    return n;
}
