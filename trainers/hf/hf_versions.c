#include "trainers/hf/hf_versions.h"

#include "base/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a library in "torch=2.11.0 transformers=5.17.0", or NULL. */
static const char *version_of(const char *versions, const char *name, size_t n)
{
    for (const char *at = versions; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return at + n + 1;
    return NULL;
}

/* "2.11" is every 2.11.x. */
static bool begins_with(const char *version, const char *wanted, size_t n)
{
    return strncmp(version, wanted, n) == 0 && strchr(". ", version[n]);
}

bool vp_hf_is_other_version(const char *versions, const char *library, const char *version)
{
    const char *has = version_of(versions, library, strlen(library));

    return has && !begins_with(has, version, strlen(version));
}

static const char *const counted[] = {"torch", "transformers", "peft"};
enum { N_COUNTED = sizeof counted / sizeof *counted };

bool vp_hf_is_counted(const char *library)
{
    for (int i = 0; i < N_COUNTED; i++)
        if (strcmp(counted[i], library) == 0)
            return true;
    return false;
}

const char *vp_hf_versions_of(vp_arena *arena, const json_t *versions)
{
    const char *list = NULL;

    for (int i = 0; i < N_COUNTED; i++) {
        const char *version = json_string_value(json_object_get(versions, counted[i]));
        if (version)
            list = vp_arena_printf(arena, "%s%s%s=%s", list ? list : "", list ? "," : "",
                                   counted[i], version);
    }
    return list;
}

static const char *next_of(const char *at)
{
    at += strcspn(at, ",");
    return at + (*at == ',');
}

const char *vp_hf_asked_version(const char *versions, const char *library)
{
    size_t n = strlen(library);

    for (const char *at = versions ? versions : ""; *at; at = next_of(at))
        if (strncmp(at, library, n) == 0 && at[n] == '=')
            return at + n + 1;
    return NULL;
}

const char *vp_hf_usual_checkpoints(const char *versions, bool is_trl)
{
    const char *asked = is_trl ? NULL : vp_hf_asked_version(versions, "transformers");

    return asked && strtol(asked, NULL, 10) < 5 ? "full:reentrant" : "full";
}

/* The first of wanted that is another; NULL: none. */
static const char *differs(const char *seen, const char *wanted)
{
    for (const char *at = wanted; *at; at = next_of(at)) {
        size_t      n = strcspn(at, ","), name = strcspn(at, "=");
        const char *version = version_of(seen, at, name);
        if (!version || !begins_with(version, at + name + 1, n - name - 1))
            return at;
    }
    return NULL;
}

/* The first of wanted that is no library with its version; NULL: all are. */
static const char *odd_word(const char *wanted, const char *recorded)
{
    for (const char *at = wanted; *at; at = next_of(at)) {
        size_t n = strcspn(at, ","), name = strcspn(at, "=");
        if (name >= n || name == 0 || n == name + 1 || !version_of(recorded, at, name))
            return at;
    }
    return NULL;
}

static vp_status check_words(const char *wanted, const char *recorded, vp_err *err)
{
    const char *odd = odd_word(wanted, recorded);

    return odd ? VP_FAIL(err, VP_ERR_USAGE,
                         "--versions: \"%.*s\" is no library with its version; recorded were %s",
                         (int)strcspn(odd, ","), odd, recorded)
               : VP_OK;
}

static bool has_ones(const vp_hf_request *q, const vp_hf_found *found)
{
    return found->as >= 0 ? vp_recorded_has_ones(found->program, found->as) : !q->padded;
}

static bool is_reentrant(const vp_hf_request *q, const vp_hf_found *found)
{
    (void)found;
    return vp_hf_is_reentrant(q);
}

static bool keeps_all(const vp_hf_request *q, const vp_hf_found *found)
{
    (void)found;
    return strcmp(q->recompute, "none") == 0;
}

static bool loads_half(const vp_hf_request *q, const vp_hf_found *found)
{
    (void)found;
    return strcmp(q->precision, "fp32") != 0 && !strstr(q->precision, "-mixed");
}

/* Defaults that were others: until a version of a library, where what they would change is asked for. */
static const struct {
    const char *library, *until;
    bool (*matters)(const vp_hf_request *q, const vp_hf_found *found);
    const char *text;
} defaults[] = {
    {"transformers", "5", has_ones,
     "batches have a mask of ones, as collators make it: without any, and without a cache, "
     "transformers 4.57 masks all pairs of tokens and flash attention does not run"},
    {"transformers", "5", is_reentrant,
     "checkpoints by use_reentrant=True, transformers 4's own default; by "
     "gradient_checkpointing_kwargs={'use_reentrant': False} they are estimate's --recompute "
     "full:non-reentrant"},
    {"transformers", "5", keeps_all,
     "config.use_cache=False; transformers 4's Trainer leaves it on, and the keys and values that "
     "layers then keep are not counted"},
    {"transformers", "5", loads_half,
     "loaded by from_pretrained(torch_dtype=...): transformers 4's own default is fp32, twice the "
     "weights"},
};

static void say_defaults(const vp_hf_request *q, const vp_hf_found *found, vp_hf_estimate *out)
{
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        const char *library = defaults[i].library;
        const char *version = version_of(out->versions, library, strlen(library));
        if (version && strtol(version, NULL, 10) < strtol(defaults[i].until, NULL, 10) &&
            defaults[i].matters(q, found))
            vp_hf_assume(out, "%s", defaults[i].text);
    }
}

static vp_status refuse(const vp_hf_request *q, const vp_hf_found *found, vp_err *err)
{
    const char *also;
    char        known[400] = "";
    size_t      n          = 0;

    for (int64_t i = 0; (also = vp_recording_also(found->recording, i)); i++)
        if (vp_recorded_is_known(found->program, i) && n < sizeof known)
            n += (size_t)snprintf(known + n, sizeof known - n, "; also with %s", also);
    return VP_FAIL(err, VP_ERR_INPUT,
                   "--versions: this step with %s was not recorded, but with %s%s", q->versions,
                   vp_recording_versions(found->recording), known);
}

/* Number by number: < 0, 0, > 0 as strcmp(). What one of them does not say is equal: 5.17 is 5.17.0, and 5.17.2 too. */
static int compare(const char *a, const char *b)
{
    char *a_end, *b_end;

    for (;; a = a_end + 1, b = b_end + 1) {
        long x = strtol(a, &a_end, 10), y = strtol(b, &b_end, 10);
        if (x != y || *a_end != '.' || *b_end != '.')
            return (x > y) - (x < y);
    }
}

static bool is_known(const vp_hf_found *found, int64_t i)
{
    return i < 0 || vp_recorded_is_known(found->program, i);
}

static bool is_of_one_major(const char *a, const char *b)
{
    return strtol(a, NULL, 10) == strtol(b, NULL, 10);
}

/* The program is the same with the version's release, or with an older and a newer one that begin with the same number. */
static bool is_between(const vp_hf_found *found, const char *library, size_t n, const char *version)
{
    bool        is_above = false, is_below = false;
    const char *line = vp_recording_versions(found->recording);

    for (int64_t i = -1; line; line = vp_recording_also(found->recording, ++i)) {
        const char *known = version_of(line, library, n);
        if (!known || !is_known(found, i) || !is_of_one_major(known, version))
            continue;
        if (vp_version_is_of_release(known, version))
            return true;
        is_above = is_above || compare(known, version) < 0;
        is_below = is_below || compare(known, version) > 0;
    }
    return is_above && is_below;
}

/* What peft is matters to adapters alone. */
static bool matters(const vp_hf_request *q, const char *library, size_t n)
{
    return n != strlen("peft") || strncmp(library, "peft", n) != 0 || vp_hf_has_adapters(q);
}

static bool are_between(const vp_hf_request *q, const vp_hf_found *found)
{
    for (const char *at = q->versions; *at; at = next_of(at)) {
        size_t n = strcspn(at, "=");
        if (matters(q, at, n) && !is_between(found, at, n, at + n + 1))
            return false;
    }
    return true;
}

static bool are_of_one_major(const vp_hf_request *q, const char *line)
{
    for (const char *at = q->versions; *at; at = next_of(at)) {
        size_t n = strcspn(at, "=");
        if (matters(q, at, n) && !is_of_one_major(version_of(line, at, n), at + n + 1))
            return false;
    }
    return true;
}

/* The first line with the same defaults, where the step is the same on both sides of what is asked for; NULL: it is not. */
static const char *next_around(const vp_hf_request *q, const vp_hf_found *found, int64_t *i)
{
    const char *at = vp_recording_versions(found->recording);

    if (!are_between(q, found))
        return NULL;
    for (*i = -1; at; at = vp_recording_also(found->recording, ++*i))
        if (is_known(found, *i) && are_of_one_major(q, at))
            break;
    return at;
}

/* The first line with which the program is known and that is as wanted: -1 is the recording's own. NULL: none. */
static const char *next_known(const vp_hf_request *q, const vp_hf_found *found, int64_t *i)
{
    const char *at = vp_recording_versions(found->recording);

    for (*i = -1; at; at = vp_recording_also(found->recording, ++*i))
        if (is_known(found, *i) && !differs(at, q->versions))
            break;
    return at;
}

static vp_status choose_around(const vp_hf_request *q, vp_hf_found *found, vp_hf_estimate *out,
                               const char **also, vp_err *err)
{
    *also = next_around(q, found, &found->as);
    if (!*also)
        return refuse(q, found, err);
    vp_hf_assume(out,
                 "%s: not recorded, but the step is the same with its minor release, or with one "
                 "before it and one after it",
                 q->versions);
    return VP_OK;
}

bool vp_hf_knows_versions(const vp_hf_request *q, const vp_hf_found *found)
{
    int64_t i;

    return !q->versions || (!odd_word(q->versions, vp_recording_versions(found->recording)) &&
                            (next_known(q, found, &i) || next_around(q, found, &i)));
}

vp_status vp_hf_choose_versions(const vp_hf_request *q, bool is_newest, vp_hf_found *found,
                                vp_hf_estimate *out, vp_err *err)
{
    const char *own = vp_recording_versions(found->recording), *also = own;
    vp_status   st = VP_OK;

    found->as = -1;
    if (q->versions) {
        VP_TRY(check_words(q->versions, own, err));
        also = next_known(q, found, &found->as);
        if (!also)
            VP_TRY(choose_around(q, found, out, &also, err));
        if ((found->as >= 0 || !is_newest) && (vp_hf_is_shared(q) || q->compiles))
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                           "--versions: %s with %s was not recorded, but with %s",
                           q->compiles ? "torch.compile" : "a step of several cards", also,
                           is_newest ? own : "the newest"));
    }
    snprintf(out->versions, sizeof out->versions, "%s", also);
    say_defaults(q, found, out);
out:
    return st;
}
