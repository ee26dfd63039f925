#include "runtime/data.h"

#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct vp_data {
    const vp_plan *plan;
    char           path[512];
    int            fd; /* -1: drawn */
    int64_t        token_bytes, n_per_step;
    unsigned char *raw; /* one step's tokens and the one behind them */
};

static int64_t token_bytes(vp_data_kind kind)
{
    return kind == VP_DATA_BYTES ? 1 : kind == VP_DATA_TOKENS_U16 ? 2 : 4;
}

vp_status vp_data_open(const char *path, const vp_plan *plan, int64_t n_steps, vp_data **out,
                       vp_err *err)
{
    vp_data    *d = calloc(1, sizeof *d);
    struct stat info;
    vp_status   st = VP_OK;

    assert(n_steps >= 0);
    *out = NULL;
    VP_TRY_ALLOC(err, d);
    d->plan        = plan;
    d->fd          = -1;
    d->token_bytes = token_bytes(plan->recipe.data_kind);
    d->n_per_step  = vp_plan_tokens(plan);
    assert(d->n_per_step > 0 && plan->vocab_size > 0 && plan->vocab_size <= INT32_MAX);
    if (path) {
        char shown[512];
        vp_text_escape(path, d->path, sizeof d->path);
        vp_text_escape(path, shown, sizeof shown);
        if (plan->n_classes)
            VP_TRY(VP_FAIL_AT(
                err, VP_ERR_INPUT, path, 0, NULL,
                "%s: a file of tokens holds no classes for this model to learn; without a file tokens and labels are drawn",
                shown));
        d->raw = malloc((size_t)(d->n_per_step + 1) * (size_t)d->token_bytes);
        d->fd  = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        VP_TRY_ALLOC(err, d->raw);
        if (d->fd < 0 || fstat(d->fd, &info) != 0)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL, "%s: %s", shown, strerror(errno)));
        if (!S_ISREG(info.st_mode))
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL, "%s: not a regular file", shown));
        if (info.st_size % d->token_bytes != 0)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL,
                              "%s: %lld bytes are no whole number of tokens of %lld bytes: is it "
                              "cut off, or does the recipe's data.kind not mean this file?",
                              shown, (long long)info.st_size, (long long)d->token_bytes));
        int64_t n_tokens = info.st_size / d->token_bytes;
        int64_t holds    = n_tokens > 0 ? (n_tokens - 1) / d->n_per_step : 0;
        if (holds < n_steps)
            VP_TRY(VP_FAIL_AT(
                err, VP_ERR_INPUT, path, 0, NULL,
                "%s: %lld tokens hold %lld steps of %lld tokens and the label behind the last; %lld steps were asked for",
                shown, (long long)n_tokens, (long long)holds, (long long)d->n_per_step,
                (long long)n_steps));
    }
    *out = d;
    d    = NULL;
out:
    vp_data_close(d);
    return st;
}

void vp_data_close(vp_data *d)
{
    if (!d)
        return;
    if (d->fd >= 0)
        close(d->fd);
    free(d->raw);
    free(d);
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static int32_t drawn_token(const vp_data *d, int64_t position)
{
    return (int32_t)(mix((uint64_t)d->plan->recipe.seed ^ mix((uint64_t)position)) %
                     (uint64_t)d->plan->vocab_size);
}

/* Masked language modelling (Devlin et al. 2019, section 3.1): 15 % of the tokens, and at least
 * one of each sample, are to be found again; of these 80 % are hidden behind the mask token, 10
 * % replaced by another, 10 % left as they are. */
static void mask(const vp_data *d, int64_t first, int32_t *tokens, int32_t *labels)
{
    int64_t seq = d->plan->buckets[0].seq;

    assert(seq > 0 && d->n_per_step % seq == 0 && d->plan->mask_token < d->plan->vocab_size);
    for (int64_t i = 0; i < d->n_per_step; i++) {
        uint64_t r = mix((uint64_t)d->plan->recipe.seed + mix(~(uint64_t)(first + i)));
        uint64_t always =
            mix((uint64_t)d->plan->recipe.seed + mix(~(uint64_t)((first + i) / seq) << 1)) %
            (uint64_t)seq;
        bool chosen = r % 100 < 15 || (uint64_t)(i % seq) == always;
        labels[i]   = chosen ? tokens[i] : VP_IGNORE_LABEL;
        if (chosen && (r >> 8) % 10 < 8)
            tokens[i] = (int32_t)d->plan->mask_token;
        else if (chosen && (r >> 8) % 10 == 8)
            tokens[i] = (int32_t)((r >> 32) % (uint64_t)d->plan->vocab_size);
    }
}

/* Classes are drawn, as tokens are: uniform, from (seed, position). */
static void draw_classes(const vp_data *d, int64_t first, int32_t *labels)
{
    int64_t seq = d->plan->buckets[0].seq;

    assert(seq > 0 && d->n_per_step % seq == 0 && d->plan->n_classes > 0);
    for (int64_t i = 0; i < d->n_per_step; i++) {
        bool has_label = d->plan->label_place == VP_LABEL_AT_EACH ||
                         i % seq == (d->plan->label_place == VP_LABEL_AT_FIRST ? 0 : seq - 1);
        uint64_t r = mix((uint64_t)d->plan->recipe.seed + mix(~(uint64_t)(first + i)));
        labels[i]  = has_label ? (int32_t)(r % (uint64_t)d->plan->n_classes) : VP_IGNORE_LABEL;
    }
}

static int64_t stored_token(const vp_data *d, int64_t i)
{
    const unsigned char *p = d->raw + i * d->token_bytes;

    assert(i >= 0 && i <= d->n_per_step);
    switch (d->plan->recipe.data_kind) {
    case VP_DATA_BYTES:
        return p[0];
    case VP_DATA_TOKENS_U16:
        return p[0] | p[1] << 8;
    default:
        return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                         (uint32_t)p[3] << 24);
    }
}

vp_status vp_data_step(vp_data *d, int64_t step, int32_t *tokens, int32_t *labels, vp_err *err)
{
    int64_t first = step * d->n_per_step, n_bytes = (d->n_per_step + 1) * d->token_bytes;

    assert(step >= 0 && tokens && labels);
    assert(d->fd < 0 || d->raw);
    for (int64_t done = 0; d->fd >= 0 && done < n_bytes;) {
        ssize_t got =
            pread(d->fd, d->raw + done, (size_t)(n_bytes - done), first * d->token_bytes + done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return VP_FAIL_AT(err, VP_ERR_INPUT, d->path, 0, NULL, "%s: %s", d->path,
                              got < 0 ? strerror(errno) : "the file has become shorter");
        done += got;
    }
    for (int64_t i = 0; i <= d->n_per_step; i++) {
        int64_t token = d->fd >= 0 ? stored_token(d, i) : drawn_token(d, first + i);
        if (token < 0 || token >= d->plan->vocab_size)
            return VP_FAIL_AT(err, VP_ERR_INPUT, d->path, 0, NULL,
                              "%s: token %lld is %lld; the vocabulary has %lld", d->path,
                              (long long)(first + i), (long long)token,
                              (long long)d->plan->vocab_size);
        if (i < d->n_per_step)
            tokens[i] = (int32_t)token;
        if (i > 0)
            labels[i - 1] = (int32_t)token;
    }
    if (d->plan->mask_token >= 0)
        mask(d, first, tokens, labels);
    if (d->plan->n_classes)
        draw_classes(d, first, labels);
    return VP_OK;
}
