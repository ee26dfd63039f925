/* The settings of PYTORCH_ALLOC_CONF. The grammar is PyTorch's: "key:value" with commas between,
 * blanks anywhere; a value may be a list, "[256:4,>:8]". */
#include "base/checked.h"
#include "base/units.h"
#include "trainers/torch/torch_internal.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#define MOST_MB (((int64_t)1 << VP_CACHING_REQUEST_BITS) / VP_MIB - 1)

enum { TOKEN_BYTES = 64 };

/* Since which 2.N there are these settings, and a list's '>' begins behind the entry before it. */
enum { FRACTION_MINOR = 10, LIST_REST_MINOR = 10, LARGE_SEGMENT_MINOR = 11 };

typedef struct scanner {
    const char *next;
    int         minor; /* of torch 2.N; INT_MAX: the newest */
    const char *key;   /* whose value it is in: for errors */
} scanner;

static vp_status refused(const scanner *s, const char *what, vp_err *err)
{
    return VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, s->key, "allocator settings: %s", what);
}

/* The next word, or one of ",:[]" by itself; "" at the end. */
static vp_status token(scanner *s, char word[TOKEN_BYTES], vp_err *err)
{
    size_t n = 0;

    for (; *s->next; s->next++) {
        if (isspace((unsigned char)*s->next))
            continue;
        if (strchr(",:[]", *s->next)) {
            if (!n)
                word[n++] = *s->next++;
            break;
        }
        if (n == TOKEN_BYTES - 1)
            return refused(s, "a word is too long", err);
        word[n++] = *s->next;
    }
    word[n] = '\0';
    return VP_OK;
}

static vp_status expect(scanner *s, const char *what, vp_err *err)
{
    vp_status st = VP_OK;
    char      word[TOKEN_BYTES];

    VP_TRY(token(s, word, err));
    if (strcmp(word, what) != 0)
        st = VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, s->key,
                        "allocator settings: expected '%s' and found '%s'", what, word);
out:
    return st;
}

static vp_status count(const scanner *s, const char *word, int64_t *value, vp_err *err)
{
    vp_err ignored = {0};

    if (vp_count_parse(word, s->key, 0, INT64_MAX, value, &ignored) != VP_OK)
        return refused(s, "expected a whole number", err);
    return VP_OK;
}

static vp_status mebibytes(scanner *s, int64_t *bytes, vp_err *err)
{
    vp_status st = VP_OK;
    char      word[TOKEN_BYTES];
    int64_t   mb;

    VP_TRY(token(s, word, err));
    VP_TRY(count(s, word, &mb, err));
    if (mb == 0)
        return refused(s, "must be more than 0", err);
    *bytes = (mb < MOST_MB ? mb : MOST_MB) * VP_MIB; /* what is more than a card means: never */
out:
    return st;
}

static vp_status fraction(scanner *s, double *value, vp_err *err)
{
    vp_status st      = VP_OK;
    vp_err    ignored = {0};
    char      word[TOKEN_BYTES];

    VP_TRY(token(s, word, err));
    if (vp_real_parse(word, s->key, 0, 1, value, &ignored) != VP_OK)
        st = refused(s, "expected a number from 0 to 1", err);
out:
    return st;
}

/* One number for all sizes, or a list "[64:8,256:4,>:2]". An entry of a list is for the sizes from
 * that many MiB on, up to twice as much; the first also for all smaller ones, '>' for all that
 * follow the entry before it, up to 2.9 for that one's too. Sizes between two entries are not
 * rounded up. */
static vp_status roundup(scanner *s, int64_t divisions[VP_CACHING_ROUNDUP_INTERVALS], vp_err *err)
{
    vp_status st = VP_OK;
    char      word[TOKEN_BYTES], sep[TOKEN_BYTES];
    int64_t   value, mb;
    int       last  = 0, at;
    bool      first = true;

    VP_TRY(token(s, word, err));
    if (strcmp(word, "[") != 0) {
        VP_TRY(count(s, word, &value, err));
        if (value < 1 || value & (value - 1))
            return refused(s, "divisions must be a power of two", err);
        for (at = 0; at < VP_CACHING_ROUNDUP_INTERVALS; at++)
            divisions[at] = value;
        return VP_OK;
    }
    memset(divisions, 0, VP_CACHING_ROUNDUP_INTERVALS * sizeof *divisions);
    for (;;) {
        VP_TRY(token(s, word, err));
        if (strcmp(word, "]") == 0)
            break;
        VP_TRY(expect(s, ":", err));
        VP_TRY(token(s, sep, err));
        VP_TRY(count(s, sep, &value, err));
        if (value & (value - 1))
            return refused(s, "divisions must be a power of two, or 0", err);
        if (strcmp(word, ">") == 0) {
            for (at = last + (s->minor >= LIST_REST_MINOR); at < VP_CACHING_ROUNDUP_INTERVALS; at++)
                divisions[at] = value;
        } else {
            VP_TRY(count(s, word, &mb, err));
            if (mb < 1 || mb & (mb - 1))
                return refused(s, "sizes must be powers of two, in MB", err);
            last = __builtin_ctzll((uint64_t)mb);
            if (last >= VP_CACHING_ROUNDUP_INTERVALS)
                last = VP_CACHING_ROUNDUP_INTERVALS - 1;
            for (at = first ? 0 : last; at <= last; at++)
                divisions[at] = value;
            first = false;
        }
        VP_TRY(token(s, sep, err));
        if (strcmp(sep, "]") == 0)
            break;
        if (strcmp(sep, ",") != 0)
            return refused(s, "expected ',' or ']' in the list", err);
    }
out:
    return st;
}

static vp_status truth(scanner *s, bool *value, vp_err *err)
{
    vp_status st = VP_OK;
    char      word[TOKEN_BYTES];

    VP_TRY(token(s, word, err));
    *value = strcmp(word, "True") == 0;
    if (!*value && strcmp(word, "False") != 0)
        st = refused(s, "expected True or False", err);
out:
    return st;
}

/* Settings of host memory, of locks and of graphs: no bytes of the device depend on them. */
static bool passed_over(const char *key)
{
    static const char *const keys[] = {
        "release_lock_on_cudamalloc",     "pinned_use_cuda_host_register",
        "pinned_num_register_threads",    "pinned_use_background_threads",
        "pinned_reserve_segment_size_mb", "graph_capture_record_stream_reuse",
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static vp_status setting(scanner *s, vp_caching_allocator_opts *o, vp_err *err)
{
    vp_status   st  = VP_OK;
    const char *key = s->key;
    char        word[TOKEN_BYTES];
    double      f;

    if ((s->minor < LARGE_SEGMENT_MINOR && strcmp(key, "large_segment_size_mb") == 0) ||
        (s->minor < FRACTION_MINOR && strcmp(key, "per_process_memory_fraction") == 0))
        return refused(s, "not a setting of that version of PyTorch", err);
    if (strcmp(key, "max_split_size_mb") == 0)
        return mebibytes(s, &o->max_split_bytes, err);
    if (strcmp(key, "max_non_split_rounding_mb") == 0)
        return mebibytes(s, &o->max_non_split_rounding_bytes, err);
    if (strcmp(key, "large_segment_size_mb") == 0)
        return mebibytes(s, &o->large_segment_bytes, err);
    if (strcmp(key, "roundup_power2_divisions") == 0)
        return roundup(s, o->roundup_power2_divisions, err);
    if (strcmp(key, "expandable_segments") == 0)
        return truth(s, &o->expandable_segments, err);
    if (strcmp(key, "garbage_collection_threshold") == 0) {
        VP_TRY(fraction(s, &o->garbage_collection_threshold, err));
        if (o->garbage_collection_threshold <= 0 || o->garbage_collection_threshold >= 1)
            return refused(s, "must be between 0 and 1", err);
    } else if (strcmp(key, "per_process_memory_fraction") == 0) {
        VP_TRY(fraction(s, &f, err));
        if (f < 1 && !o->device_total_bytes)
            return refused(s, "a fraction of a card whose memory is not known", err);
        /* no memory at all is allowed too, and 0 would say that there is no limit */
        o->allowed_bytes = f < 1 ? vp_max_i64(1, (int64_t)(f * (double)o->device_total_bytes)) : 0;
    } else if (strcmp(key, "backend") == 0) {
        VP_TRY(token(s, word, err));
        if (strcmp(word, "native") != 0)
            return refused(s, "another allocator than the native one, which is not modelled", err);
    } else if (passed_over(key)) {
        VP_TRY(token(s, word, err));
        if (!*word || strchr(",:[]", *word))
            return refused(s, "expected a value", err);
    } else {
        return refused(s, "not a setting that is known", err);
    }
out:
    return st;
}

vp_status vp_caching_allocator_conf(const char *text, vp_caching_allocator_opts *opts, vp_err *err)
{
    vp_status                 st = VP_OK;
    vp_caching_allocator_opts o  = *opts;
    char                      key[TOKEN_BYTES], sep[TOKEN_BYTES];
    scanner s = {.next = text, .minor = opts->torch_minor ? opts->torch_minor : INT_MAX, .key = ""};

    for (;;) {
        VP_TRY(token(&s, key, err));
        if (!*key)
            break;
        s.key = key;
        VP_TRY(expect(&s, ":", err));
        VP_TRY(setting(&s, &o, err));
        VP_TRY(token(&s, sep, err));
        if (!*sep)
            break;
        if (strcmp(sep, ",") != 0)
            VP_TRY(refused(&s, "expected ',' after the value", err));
    }
    VP_TRY(vp_caching_allocator_opts_check(&o, err));
    *opts = o;
out:
    return st;
}
