#include "cli/words.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>

vp_status vp_say_refusal(vp_refusal x, vp_err *err)
{
    switch (x.reason) {
    case VP_REFUSED_NOT:
        return VP_OK;
    case VP_REFUSED_SEQ:
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--seq %lld is longer than the %lld positions of this model",
                       (long long)x.asked, (long long)x.limit);
    case VP_REFUSED_MICRO_BATCH:
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--micro-batch %lld does not divide the global batch %lld",
                       (long long)x.asked, (long long)x.limit);
    case VP_REFUSED_TOKENS:
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--global-batch times --seq is more tokens than 64 bits can count");
    case VP_REFUSED_LOSS_CHUNK:
        break;
    }
    return VP_FAIL(
        err, VP_ERR_USAGE,
        "--loss chunked:%lld cuts the %lld x %lld tokens of a micro-batch into %lld chunks; at most %d: chunked:%lld or more",
        (long long)x.asked, (long long)x.micro_batch, (long long)x.seq, (long long)x.n_chunks,
        VP_MAX_CHUNKS, (long long)x.limit);
}

static const char *optimizer_reason(vp_optimizer optimizer)
{
    return optimizer == VP_OPT_SGD ? "no optimizer state" : "optimizer states in 8 bits";
}

const char *vp_change_text(const vp_change *c, char *buf, size_t buf_size)
{
    static const char pins[] = "--micro-batch, --recompute and --loss free";
    size_t            n;

    switch (c->kind) {
    case VP_CHANGE_UNPIN:
        snprintf(buf, buf_size, "leave %s", pins);
        return buf;
    case VP_CHANGE_SEQ:
        snprintf(buf, buf_size, "--seq %lld", (long long)c->seq);
        break;
    case VP_CHANGE_OPTIMIZER:
        snprintf(buf, buf_size, "--optimizer %s (another recipe: %s)",
                 vp_optimizer_name(c->optimizer), optimizer_reason(c->optimizer));
        break;
    case VP_CHANGE_PRECISION:
        snprintf(buf, buf_size,
                 "--precision %s (another recipe: parameters and activations in 16 bits)",
                 vp_precision_name(c->precision));
        break;
    }
    n = strlen(buf);
    if (c->frees_pins)
        snprintf(buf + n, buf_size - n, ", with %s", pins);
    return buf;
}

const char *vp_binding_text(const vp_changes *c, char *buf, size_t buf_size)
{
    char x[32], y[32], outside[64] = "";

    if (c->outside_bytes)
        snprintf(outside, sizeof outside, ", beside %s outside the arena",
                 vp_size_text(c->outside_bytes, x, sizeof x));
    if (c->persistent_alone)
        snprintf(buf, buf_size, "parameters, gradients and optimizer state alone are %s%s",
                 vp_size_text(c->persistent_bytes, x, sizeof x), outside);
    else
        snprintf(
            buf, buf_size,
            "%s of parameters, gradients and optimizer state, and %s of activations at the leanest setting%s",
            vp_size_text(c->persistent_bytes, x, sizeof x),
            vp_size_text(c->activation_bytes, y, sizeof y), outside);
    return buf;
}
