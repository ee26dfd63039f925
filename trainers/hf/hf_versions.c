#include "trainers/hf/hf_versions.h"

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

const char *vp_hf_versions_of(vp_arena *arena, const json_t *versions)
{
    static const char *const recorded[] = {"torch", "transformers", "peft"};
    const char              *list       = NULL;

    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        const char *version = json_string_value(json_object_get(versions, recorded[i]));
        if (version)
            list = vp_arena_printf(arena, "%s%s%s=%s", list ? list : "", list ? "," : "",
                                   recorded[i], version);
    }
    return list;
}

static const char *next_of(const char *at)
{
    at += strcspn(at, ",");
    return at + (*at == ',');
}

const char *vp_hf_usual_checkpoints(const char *versions, bool is_trl)
{
    static const char of[] = "transformers=";

    for (const char *at = versions ? versions : ""; *at && !is_trl; at = next_of(at))
        if (strncmp(at, of, sizeof of - 1) == 0 && strtol(at + sizeof of - 1, NULL, 10) < 5)
            return "full:reentrant";
    return "full";
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

static vp_status check_words(const char *wanted, const char *recorded, vp_err *err)
{
    for (const char *at = wanted; *at; at = next_of(at)) {
        size_t n = strcspn(at, ","), name = strcspn(at, "=");
        if (name >= n || name == 0 || n == name + 1 || !version_of(recorded, at, name))
            return VP_FAIL(err, VP_ERR_USAGE,
                           "--versions: \"%.*s\" is no library with its version; recorded were %s",
                           (int)n, at, recorded);
    }
    return VP_OK;
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

/* The first line with which the program is known and that is as wanted: -1 is the recording's own. NULL: none. */
static const char *next_known(const vp_hf_request *q, const vp_hf_found *found, int64_t *i)
{
    const char *at = vp_recording_versions(found->recording);

    for (*i = -1; at; at = vp_recording_also(found->recording, ++*i))
        if ((*i < 0 || vp_recorded_is_known(found->program, *i)) && !differs(at, q->versions))
            break;
    return at;
}

bool vp_hf_knows_versions(const vp_hf_request *q, const vp_hf_found *found)
{
    int64_t i;

    return !q->versions || next_known(q, found, &i);
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
            VP_TRY(refuse(q, found, err));
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
