#include "doctor/amounts.h"

#include <stddef.h>
#include <string.h>

enum { IGNORED = -1, OTHER = -2, EXBIBYTE_BITS = 60, MAX_DIGITS = 24 };

/* What a number means. before ends where the number begins (blanks, brackets, colons and quotes in between), after
 * begins behind its unit. '#' is a number, a blank is any. The first rule that holds counts, so that a longer text
 * stands above one that it ends with. A number without a unit is one of bytes, before `after` never. */
typedef struct rule {
    const char *before, *after;
    int         key;
    bool        is_part;    /* of a sum */
    bool        needs_unit; /* a number without one is something else */
} rule;

static const rule rules[] = {
    /* the other numbers beside a request: TensorFlow, CuPy, MLX */
    {.before = "freed_by_count", .key = IGNORED},
    {.before = "allocated so far", .key = VP_OOM_ALLOCATED},
    {.before = "limit set to", .key = VP_OOM_CAP},
    {.before = "maximum allowed buffer size of", .key = VP_OOM_CAP},
    {.before = "out of memory allocating", .key = VP_OOM_REQUESTED},
    {.before = "out of memory to allocate", .key = VP_OOM_REQUESTED},
    {.before = "to allocate more than", .key = IGNORED},
    /* what was asked for */
    {.before = "tried to allocate", .key = VP_OOM_REQUESTED},
    {.before = "trying to allocate", .key = VP_OOM_REQUESTED},
    {.before = "attempting to allocate", .key = VP_OOM_REQUESTED},
    {.before = "failed to allocate request for", .key = VP_OOM_REQUESTED},
    {.before = "failed to allocate", .key = VP_OOM_REQUESTED},
    {.before = "unable to allocate", .key = VP_OOM_REQUESTED},
    {.before = "cannot allocate", .key = VP_OOM_REQUESTED},
    {.before = "can't allocate", .key = VP_OOM_REQUESTED},
    {.before = "could not allocate tensor with", .key = VP_OOM_REQUESTED},
    {.before = "could not allocate", .key = VP_OOM_REQUESTED},
    {.before = "couldn't allocate", .key = VP_OOM_REQUESTED},
    {.before = "allocation failed for size", .key = VP_OOM_REQUESTED},
    {.before = "allocation failed for size::", .key = VP_OOM_REQUESTED},
    {.before = "allocation size", .key = VP_OOM_REQUESTED},
    {.before = "memory allocation of", .key = VP_OOM_REQUESTED},
    {.before = "allocation of", .key = VP_OOM_REQUESTED},
    {.before = "error allocating", .key = VP_OOM_REQUESTED},
    {.before = "failed to cuda calloc async", .key = VP_OOM_REQUESTED},
    {.before = "failed to cuda host alloc", .key = VP_OOM_REQUESTED},
    {.before = "failed to cuda calloc", .key = VP_OOM_REQUESTED},
    {.before = "failed to cuda malloc", .key = VP_OOM_REQUESTED},
    {.before = "failed to cudamalloc", .key = VP_OOM_REQUESTED},
    {.before = "cudamalloc of", .key = VP_OOM_REQUESTED},
    {.before = "buffer of size", .key = VP_OOM_REQUESTED},
    {.before = "memory block of size", .key = VP_OOM_REQUESTED},
    {.before = "bytes to", .key = IGNORED},
    {.before = "requested bytes of", .key = VP_OOM_REQUESTED},
    {.before = "requested amount of gpu memory", .key = VP_OOM_REQUESTED},
    {.before = "requested memory", .key = VP_OOM_REQUESTED},
    {.before = "requested", .key = VP_OOM_REQUESTED},
    {.before = "required", .key = VP_OOM_REQUESTED},
    {.before = "allocation (size", .key = VP_OOM_REQUESTED},
    {.before = "exceed memory (size", .key = VP_OOM_TOTAL},
    {.before = "shared memory segment * (size", .key = VP_OOM_REQUESTED},
    {.before = "failed to extend * to", .key = VP_OOM_REQUESTED},
    {.before = "unable to mmap", .key = VP_OOM_REQUESTED},
    {.before = "requires more system memory", .key = VP_OOM_REQUESTED},
    {.before = "out of memory!!! request", .key = VP_OOM_REQUESTED},
    {.after = "kv cache is needed", .key = VP_OOM_REQUESTED},
    {.after = "were requested", .key = VP_OOM_REQUESTED},
    {.before = "utilization (#,", .key = VP_OOM_REQUESTED},
    {.before = "allocating", .key = VP_OOM_REQUESTED},
    /* TPU: a program that needs so much of so much */
    {.before = "used", .after = "of #", .key = VP_OOM_REQUESTED},
    {.before = "used # of", .key = VP_OOM_TOTAL},
    {.before = "capacity by", .key = IGNORED},
    /* PyTorch's own account, in brackets up to 2.0 and in sentences since */
    {.after = "total capacity", .key = VP_OOM_TOTAL},
    {.before = "total capacity of", .key = VP_OOM_TOTAL},
    {.before = "total capacty of", .key = VP_OOM_TOTAL},
    {.before = "device limit", .key = VP_OOM_TOTAL},
    {.after = "already allocated", .key = VP_OOM_ALLOCATED},
    {.after = "allocated in private pools", .key = IGNORED},
    {.after = "is allocated by pytorch", .key = VP_OOM_ALLOCATED},
    {.before = "currently allocated", .key = VP_OOM_ALLOCATED},
    {.before = "mps allocated", .key = VP_OOM_ALLOCATED},
    {.before = "other allocations", .key = IGNORED},
    {.after = "reserved in total", .key = VP_OOM_RESERVED},
    {.after = "is reserved by pytorch but unallocated", .key = VP_OOM_UNALLOCATED},
    {.after = "reserved but unallocated", .key = VP_OOM_UNALLOCATED},
    {.after = "cached", .key = VP_OOM_UNALLOCATED},
    {.after = "inactive", .key = IGNORED},
    {.after = "current active", .key = IGNORED},
    {.before = "max allowed", .key = VP_OOM_CAP},
    {.after = "allowed", .key = VP_OOM_CAP},
    {.before = "supplied memory fraction)", .key = VP_OOM_CAP, .needs_unit = true},
    {.before = "this process has", .key = VP_OOM_PROCESS},
    {.before = "process # has", .after = "memory in use", .key = OTHER},
    /* what is free */
    {.before = "free (according to cuda)", .key = VP_OOM_FREE},
    {.before = "there are", .after = "free", .key = VP_OOM_FREE},
    {.before = "free memory on device", .key = VP_OOM_FREE},
    {.before = "free memory on device cuda:#", .key = VP_OOM_FREE},
    {.before = "free memory on device (#/", .key = VP_OOM_TOTAL},
    {.before = "free memory on device cuda:# (#/", .key = VP_OOM_TOTAL},
    {.before = "current free memory", .key = VP_OOM_FREE},
    {.before = "initial free memory", .key = IGNORED},
    {.before = "available memory is only", .key = VP_OOM_FREE},
    {.before = "available memory of", .key = VP_OOM_FREE},
    {.before = "available kv cache memory", .key = VP_OOM_FREE},
    {.before = "free memory", .key = VP_OOM_FREE},
    {.before = "available memory", .key = VP_OOM_FREE},
    {.after = "is free", .key = VP_OOM_FREE},
    {.after = "free", .key = VP_OOM_FREE},
    {.after = "available", .key = VP_OOM_FREE},
    {.after = "memory has been allocated", .key = VP_OOM_ALLOCATED},
    {.before = "inuse", .key = VP_OOM_ALLOCATED},
    /* limits */
    {.before = "exceeded memory limit (# >", .key = VP_OOM_CAP},
    {.before = "exceeded memory limit", .key = VP_OOM_RSS},
    {.before = "exceeded job memory limit (# >", .key = VP_OOM_CAP},
    {.before = "oom # /", .key = VP_OOM_CAP},
    {.before = "memory: usage", .key = IGNORED},
    {.before = "hardware limit", .key = IGNORED},
    {.before = "memory limit of", .key = VP_OOM_CAP},
    {.before = "limit", .key = VP_OOM_CAP},
    /* host memory: the kernel's, Ray's, YARN's */
    {.before = "anon-rss", .key = VP_OOM_RSS, .is_part = true},
    {.before = "file-rss", .key = VP_OOM_RSS, .is_part = true},
    {.before = "shmem-rss", .key = VP_OOM_RSS, .is_part = true},
    {.before = "memory used", .key = VP_OOM_RSS},
    {.before = "exceeding memory limits.", .key = VP_OOM_RSS},
    {.after = "physical memory used", .key = VP_OOM_CAP},
};

/* Numbers that are no bytes. Behind a name of a kind of card stands its number. */
static const char *const gpu_words[] = {"gpu",  "npu",     "mlu",  "xpu",    "hpu",  "musa", "gcu",
                                        "cuda", "ordinal", "rocm", "device", "gpu_", "dev"};
static const char *const pid_words[] = {"killed process", "kill process", "pid", "pid(s)",
                                        "killing subprocess"};

void vp_amounts_begin(vp_amounts *a)
{
    memset(a, 0, sizeof *a);
    for (int i = 0; i < VP_N_OOM_NUMBERS; i++)
        a->bytes[i] = -1;
    a->gpu = -1;
    a->pid = -1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return c >= 'a' && c <= 'z';
}

/* A number where it stands in a text. */
typedef struct number {
    const char *begin, *end; /* with its unit */
    const char *digits_end;
    int64_t     bytes; /* -1: as good as infinite */
    bool        has_unit, is_decimal;
} number;

/* The power of two that a unit means; -1: it is none. */
static int unit_bits(const char *p, const char **end)
{
    static const struct {
        const char *word;
        int         bits;
    } units[] = {{"bytes", 0}, {"byte", 0}, {"b", 0},    {"kib", 10}, {"kb", 10},
                 {"k", 10},    {"mib", 20}, {"mb", 20},  {"m", 20},   {"gib", 30},
                 {"gb", 30},   {"g", 30},   {"tib", 40}, {"tb", 40},  {"t", 40},
                 {"pib", 50},  {"pb", 50},  {"eib", 60}, {"eb", 60}};
    size_t n  = 0;

    while (*p == ' ' || *p == '\t')
        p++;
    while (is_letter(p[n]))
        n++;
    /* "16.53GiBrequested", "2.00 GiBis free": a sentence goes on without a blank */
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t w = strlen(units[i].word);
        if (strncmp(p, units[i].word, w) == 0 &&
            (n == w ||
             (w == 3 && (strncmp(p + w, "is", 2) == 0 || strncmp(p + w, "req", 3) == 0)))) {
            *end = p + w;
            return units[i].bits;
        }
    }
    return -1;
}

/* Digits with a point or a decimal comma, or with commas at the thousands, times a unit. False: p
 * is the inside of a word. */
static bool read_number(const char *text, const char *p, number *out)
{
    unsigned __int128 value = 0, scale = 1;
    int               digits = 0, bits;
    const char       *q      = p;

    *out = (number){.begin = p};
    for (;; q++) {
        if (is_digit(*q)) {
            if (++digits > MAX_DIGITS)
                break;
            value = 10 * value + (unsigned)(*q - '0');
            scale *= out->is_decimal ? 10 : 1;
        } else if (*q == ',' && !out->is_decimal && is_digit(q[1]) && is_digit(q[2]) &&
                   is_digit(q[3]) && !is_digit(q[4])) {
            continue;
        } else if ((*q == '.' || *q == ',') && !out->is_decimal && is_digit(q[1])) {
            out->is_decimal = true;
        } else {
            break;
        }
    }
    while (is_digit(*q))
        q++;
    out->digits_end = out->end = q;
    bits                       = unit_bits(q, &out->end);
    out->has_unit              = bits >= 0;
    if (digits > MAX_DIGITS || value >> 64)
        out->bytes = -1;
    else {
        value = ((value << (bits > 0 ? bits : 0)) * 2 + scale) / (2 * scale); /* to the nearest */
        out->bytes = value >> EXBIBYTE_BITS ? -1 : (int64_t)value;
    }
    return p == text || !(is_letter(p[-1]) || is_digit(p[-1]) || p[-1] == '_' ||
                          (p[-1] == '.' && p - 1 > text && is_digit(p[-2])));
}

static bool is_between(char c)
{
    return c != '\0' && strchr(" \t:=([\"'<~,;", c);
}

/* Whether what stands before p is `before`, '*' being any word. */
static bool stands_before(const char *text, const char *p, const char *before)
{
    size_t n = strlen(before);

    while (p > text && is_between(p[-1]) && !(n && before[n - 1] == p[-1]))
        p--;
    while (n) {
        char c = before[--n];
        if (c == ' ') {
            if (p == text || (p[-1] != ' ' && p[-1] != '\t' && !is_between(p[-1])))
                return false;
            while (p > text && (p[-1] == ' ' || p[-1] == '\t'))
                p--;
        } else if (c == '#') { /* with its unit, or without */
            while (p > text && is_letter(p[-1]))
                p--;
            if (p == text || !is_digit(p[-1]))
                return false;
            while (p > text && (is_digit(p[-1]) || p[-1] == '.'))
                p--;
            if (p > text && p[-1] == '.')
                return false;
        } else if (c == '*') {
            if (p == text || p[-1] == ' ')
                return false;
            while (p > text && p[-1] != ' ')
                p--;
        } else if (p == text || p[-1] != c) {
            return false;
        } else {
            p--;
        }
    }
    /* "gpu" is not the end of "vgpu"; "#" may be of a longer number */
    return p == text || !is_letter(p[-1]) || !is_letter(before[0]);
}

static bool stands_behind(const char *p, const char *after)
{
    size_t n = strlen(after);

    while (*p == ' ' || *p == ')' || *p == ':')
        p++;
    if (n && after[n - 1] == '#')
        return strncmp(p, after, n - 1) == 0 && is_digit(p[n - 1]);
    return strncmp(p, after, n) == 0 && !is_letter(p[n]);
}

/* "(3.50/79.10 GiB)": one unit for two. */
static void share_unit(const char *text, number *x)
{
    number      second, whole;
    const char *unit;
    char        joined[64];
    size_t      n = (size_t)(x->digits_end - x->begin), n_unit;

    if (x->has_unit || *x->end != '/' || !is_digit(x->end[1]))
        return;
    read_number(text, x->end + 1, &second);
    if (unit_bits(second.digits_end, &unit) <= 0)
        return;
    n_unit = (size_t)(unit - second.digits_end);
    if (n + n_unit >= sizeof joined)
        return;
    memcpy(joined, x->begin, n);
    memcpy(joined + n, second.digits_end, n_unit);
    joined[n + n_unit] = '\0';
    read_number(joined, joined, &whole);
    x->bytes    = whole.bytes;
    x->has_unit = true;
}

static const rule *rule_of(const char *text, const number *x)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const rule *r = &rules[i];
        if (r->before && !stands_before(text, x->begin, r->before))
            continue;
        if (r->after && !stands_behind(x->end, r->after))
            continue;
        if (!x->has_unit && (r->after || r->needs_unit || x->is_decimal))
            continue;
        return r;
    }
    return NULL;
}

/* "2.00GiB (rounded to 2147483648)", "7.50G (8053063680 bytes)": the same to the byte. */
static bool exact_behind(const char *text, const number *x, number *out)
{
    const char *p = x->end;

    while (*p == ' ')
        p++;
    if (*p++ != '(')
        return false;
    if (strncmp(p, "rounded to ", 11) == 0)
        p += 11;
    if (!is_digit(*p) || !read_number(text, p, out))
        return false;
    return !out->is_decimal && (*out->end == ')' || *out->end == ' ') && out->bytes >= 0;
}

/* The product of a shape, "shape[8,1024,50257] and type float": bytes, or -1. */
static int64_t shape_bytes(const char *text)
{
    static const struct {
        const char *word;
        int         bytes;
    } types[]     = {{"float", 4},  {"half", 2},   {"bfloat16", 2}, {"double", 8},   {"int32", 4},
                     {"int64", 8},  {"uint8", 1},  {"int8", 1},     {"bool", 1},     {"int16", 2},
                     {"uint16", 2}, {"uint32", 4}, {"uint64", 8},   {"complex64", 8}};
    const char *p = strstr(text, "allocating tensor with shape[");
    int64_t     product = 1;

    if (!p)
        return -1;
    for (p = strchr(p, '[') + 1; is_digit(*p); p += *p == ',') {
        number  x;
        int64_t d = 0;
        for (; is_digit(*p) && d < INT64_C(1) << 40; p++)
            d = 10 * d + *p - '0';
        x.bytes = d;
        if (x.bytes && product > (INT64_C(1) << EXBIBYTE_BITS) / x.bytes)
            return -1;
        product *= x.bytes;
    }
    if (strncmp(p, "] and type ", 11) != 0)
        return -1;
    p += 11;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t n = strlen(types[i].word);
        if (strncmp(p, types[i].word, n) == 0 && !is_letter(p[n]) && !is_digit(p[n]))
            return product <= (INT64_C(1) << EXBIBYTE_BITS) / types[i].bytes
                       ? product * types[i].bytes
                       : -1;
    }
    return -1;
}

/* The same with nothing but a blank or a colon in between: an error code in brackets is no card. */
static bool stands_right_before(const char *text, const char *p, const char *before)
{
    return (p == text || p[-1] != '(') && stands_before(text, p, before);
}

/* A number of a card or of a process. */
static void read_id(const char *text, const number *x, vp_amounts *a)
{
    if (x->is_decimal || x->has_unit || x->bytes < 0 || *x->end == '%' || *x->end == '/')
        return;
    for (size_t i = 0; a->gpu < 0 && x->bytes < 1024 && i < sizeof gpu_words / sizeof *gpu_words;
         i++)
        if (stands_right_before(text, x->begin, gpu_words[i]))
            a->gpu = (int)x->bytes;
    for (size_t i = 0; a->pid < 0 && x->bytes > 0 && i < sizeof pid_words / sizeof *pid_words; i++)
        if (stands_before(text, x->begin, pid_words[i]))
            a->pid = x->bytes;
}

/* The process of "process 123 has 1.00 GiB": before the size. */
static int64_t pid_before(const char *text, const char *p)
{
    int64_t pid = 0, scale = 1;

    while (p > text && !is_digit(p[-1]))
        p--;
    for (; p > text && is_digit(p[-1]) && scale < 10000000000; scale *= 10)
        pid += scale * (*--p - '0');
    return pid;
}

static void keep(const char *text, const rule *r, const number *x, bool was_known[VP_N_OOM_NUMBERS],
                 vp_amounts *a)
{
    if (r->key == OTHER) {
        if (x->bytes < 0 || a->n_others == VP_MAX_OTHERS)
            return;
        a->others[a->n_others].pid     = pid_before(text, x->begin);
        a->others[a->n_others++].bytes = x->bytes;
    } else if (r->key != IGNORED && x->bytes >= 0 && !was_known[r->key]) {
        if (r->is_part && a->bytes[r->key] >= 0)
            a->bytes[r->key] += x->bytes;
        else if (a->bytes[r->key] < 0)
            a->bytes[r->key] = x->bytes;
    }
}

void vp_amounts_read(const char *text, vp_amounts *a)
{
    bool    was_known[VP_N_OOM_NUMBERS];
    int64_t of_shape = shape_bytes(text);

    for (int i = 0; i < VP_N_OOM_NUMBERS; i++)
        was_known[i] = a->bytes[i] >= 0;
    for (const char *p = text; *p;) {
        number      x, exact;
        const rule *r;

        if (!is_digit(*p)) {
            p++;
            continue;
        }
        if (!read_number(text, p, &x)) {
            if (p > text && (is_letter(p[-1]) || p[-1] == '_'))
                read_id(text, &x, a); /* "CUDA0", "GPU_0_bfc" */
            p = x.digits_end;
            continue;
        }
        share_unit(text, &x);
        r = rule_of(text, &x);
        if (!r)
            read_id(text, &x, a);
        else {
            if (r->key >= 0 && x.has_unit && exact_behind(text, &x, &exact))
                x = exact;
            keep(text, r, &x, was_known, a);
        }
        p = x.end > p ? x.end : p + 1;
    }
    if (of_shape >= 0 && a->bytes[VP_OOM_REQUESTED] < 0)
        a->bytes[VP_OOM_REQUESTED] = of_shape;
    if (a->bytes[VP_OOM_REQUESTED] == 0) /* "0GB": cut off, not said */
        a->bytes[VP_OOM_REQUESTED] = -1;
}

void vp_amounts_merge(vp_amounts *a, const vp_amounts *more)
{
    for (int i = 0; i < VP_N_OOM_NUMBERS; i++)
        if (a->bytes[i] < 0)
            a->bytes[i] = more->bytes[i];
    if (!a->n_others) {
        memcpy(a->others, more->others, sizeof a->others);
        a->n_others = more->n_others;
    }
    if (a->gpu < 0)
        a->gpu = more->gpu;
    if (a->pid < 0)
        a->pid = more->pid;
}
