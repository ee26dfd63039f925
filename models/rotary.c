#include "models/rotary.h"

#include "base/checked.h"
#include "base/text.h"
#include "models/config.h"
#include "plan/plan.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

/* ---- frequencies, in fp32 where transformers computes in fp32 ---- */

/* theta^(2 i / dim) */
static float wavelength(double theta, int64_t i, int64_t dim)
{
    assert(dim > 0 && i >= 0 && 2 * i < dim);
    float exponent = (float)(2 * i) / (float)dim;
    return (float)pow(theta, (double)exponent);
}

/* The pair that turns n times over the original context. */
static double correction_dim(const vp_rope *r, double n)
{
    assert(r->theta > 1 && n > 0); /* read_scaling() refuses the rest */
    return (double)r->dim * log((double)r->original_positions / (n * 2 * PI)) / (2 * log(r->theta));
}

/* Pairs below `low` keep their frequency, those above `high` have it divided by factor, a ramp
 * lies between. */
static void yarn(const vp_rope *r, double *inv_freq)
{
    double low = correction_dim(r, r->beta_fast), high = correction_dim(r, r->beta_slow);

    low  = fmax(r->truncate ? floor(low) : low, 0);
    high = fmin(r->truncate ? ceil(high) : high, (double)(r->dim - 1));
    if (low == high)
        high += 0.001;
    for (int64_t i = 0; i < r->dim / 2; i++) {
        float pos   = wavelength(r->theta, i, r->dim);
        float ramp  = ((float)i - (float)low) / (float)(high - low);
        ramp        = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float keep  = 1.0f - ramp;
        inv_freq[i] = (1.0f / ((float)r->factor * pos)) * (1.0f - keep) + (1.0f / pos) * keep;
    }
}

static double mscale(double factor, double scale)
{
    return factor <= 1 ? 1.0 : 0.1 * scale * log(factor) + 1.0;
}

static double attention_factor(const vp_rope *r)
{
    if (r->type != VP_ROPE_YARN && r->type != VP_ROPE_LONGROPE)
        return 1.0;
    if (r->attention_factor >= 0)
        return r->attention_factor;
    if (r->type == VP_ROPE_LONGROPE)
        return r->factor <= 1 ? 1.0 : sqrt(1 + log(r->factor) / log((double)r->original_positions));
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return mscale(r->factor, r->mscale) / mscale(r->factor, r->mscale_all_dim);
    return mscale(r->factor, 1.0);
}

static float llama3(const vp_rope *r, float inv)
{
    assert(inv > 0 && r->high_freq_factor > r->low_freq_factor);
    double context = (double)r->original_positions, wavelen = 2 * PI / (double)inv;

    if (wavelen < context / r->high_freq_factor)
        return inv;
    if (wavelen > context / r->low_freq_factor)
        return inv / (float)r->factor;
    float smooth = (float)((context / wavelen - r->low_freq_factor) /
                           (r->high_freq_factor - r->low_freq_factor));
    return (1.0f - smooth) * inv / (float)r->factor + smooth * inv;
}

void vp_rope_frequencies(const vp_rope *r, int64_t seq, double *inv_freq, double *scale)
{
    double theta = r->theta;

    assert(r->dim >= 2 && r->dim % 2 == 0 && r->dim / 2 <= VP_ROPE_MAX_PAIRS);
    *scale = attention_factor(r);
    if (r->type == VP_ROPE_YARN) {
        yarn(r, inv_freq);
        return;
    }
    if (r->type == VP_ROPE_DYNAMIC) {
        assert(r->dim >= 4 && r->max_positions > 0);
        double longest = (double)vp_max_i64(seq, r->max_positions);
        theta *= pow(r->factor * longest / (double)r->max_positions - (r->factor - 1),
                     (double)r->dim / (double)(r->dim - 2));
    }
    for (int64_t i = 0; i < r->dim / 2; i++) {
        float pos = wavelength(theta, i, r->dim);
        switch (r->type) {
        case VP_ROPE_LINEAR:
            inv_freq[i] = (1.0f / pos) / (float)r->factor;
            break;
        case VP_ROPE_LONGROPE:
            inv_freq[i] =
                1.0f /
                ((float)(seq > r->original_positions ? r->long_factor : r->short_factor)[i] * pos);
            break;
        case VP_ROPE_LLAMA3:
            inv_freq[i] = llama3(r, 1.0f / pos);
            break;
        default:
            inv_freq[i] = 1.0f / pos;
            break;
        }
    }
}

/* ---- from a config ---- */

static vp_status read_factors(const vp_json_node *scaling, const char *key, int64_t n, double *out,
                              vp_err *err)
{
    vp_json_node list, element;
    int64_t      n_found;
    vp_status    st = VP_OK;

    assert(n >= 1 && n <= VP_ROPE_MAX_PAIRS);
    VP_TRY(vp_json_array(scaling, key, &list, &n_found, err));
    if (n_found != n)
        VP_TRY(vp_json_fail(scaling, key, err, "has %lld factors, the rotated half of a head %lld",
                            (long long)n_found, (long long)n));
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(vp_json_element(&list, i, &element, err));
        VP_TRY(vp_json_as_real(&element, 1e-9, 1e9, &out[i], err));
    }
out:
    return st;
}

static vp_status optional_real(const vp_json_node *node, const char *key, double fallback,
                               double *out, vp_err *err)
{
    *out = fallback;
    return vp_json_has(node, key) ? vp_json_real(node, key, 0, 1e12, out, err) : VP_OK;
}

static vp_status read_type(const vp_json_node *scaling, const vp_rope_rules *rules, vp_rope *r,
                           vp_err *err)
{
    static const char *const names[] = {"default", "linear",   "dynamic",
                                        "yarn",    "longrope", "llama3"};
    const char              *key     = vp_json_has(scaling, "rope_type") ? "rope_type" : "type";
    const char              *name    = "default";
    char                     shown[64];
    int                      t  = 0;
    vp_status                st = VP_OK;

    if (vp_json_has(scaling, key))
        VP_TRY(vp_json_string(scaling, key, &name, err));
    /* what Phi-3 files called it first */
    if (strcmp(name, "su") == 0 || (rules->longrope_only && strcmp(name, "yarn") == 0))
        name = "longrope";
    while (t < VP_N_ROPE_TYPES && strcmp(names[t], name) != 0)
        t++;
    if (t == VP_N_ROPE_TYPES)
        VP_TRY(vp_json_fail(
            scaling, key, err,
            "the RoPE scaling \"%s\" is not supported; supported: default, linear, dynamic, yarn, longrope, llama3",
            vp_text_escape(name, shown, sizeof shown)));
    r->type = (vp_rope_type)t;
    if (rules->longrope_only && r->type != VP_ROPE_DEFAULT && r->type != VP_ROPE_LONGROPE)
        VP_TRY(vp_json_fail(
            scaling, key, err,
            "the RoPE scaling \"%s\" is not one of this family's; supported: default, longrope",
            name));
out:
    return st;
}

/* Numbers of the scaling; those of other types are not read. */
static vp_status read_scaling(const vp_json_node *config, const vp_json_node *scaling,
                              const vp_rope_rules *rules, vp_rope *r, vp_err *err)
{
    bool in_config =
        rules->original_positions || vp_json_has(config, "original_max_position_embeddings");
    vp_status st = VP_OK;

    r->original_positions =
        rules->original_positions ? rules->original_positions : r->max_positions;
    if (r->type == VP_ROPE_YARN || r->type == VP_ROPE_LONGROPE || r->type == VP_ROPE_LLAMA3) {
        const vp_json_node *from = in_config ? config : scaling;
        if (vp_json_has(from, "original_max_position_embeddings"))
            VP_TRY(vp_json_int(from, "original_max_position_embeddings", 2, 1000000000,
                               &r->original_positions, err));
        VP_TRY(optional_real(scaling, "attention_factor", -1, &r->attention_factor, err));
    }
    if (r->type == VP_ROPE_LONGROPE) {
        VP_TRY(read_factors(scaling, "short_factor", r->dim / 2, r->short_factor, err));
        VP_TRY(read_factors(scaling, "long_factor", r->dim / 2, r->long_factor, err));
    }
    if (vp_json_has(scaling, "factor") || (r->type != VP_ROPE_YARN && r->type != VP_ROPE_LONGROPE))
        VP_TRY(vp_json_real(scaling, "factor", 1e-6, 1e9, &r->factor, err));
    else
        r->factor = (double)r->max_positions / (double)r->original_positions;
    if (r->type == VP_ROPE_LLAMA3) {
        VP_TRY(vp_json_real(scaling, "low_freq_factor", 1e-6, 1e9, &r->low_freq_factor, err));
        VP_TRY(vp_json_real(scaling, "high_freq_factor", 1e-6, 1e9, &r->high_freq_factor, err));
        if (r->high_freq_factor <= r->low_freq_factor)
            VP_TRY(vp_json_fail(scaling, "high_freq_factor", err, "must be above low_freq_factor"));
    }
    if (r->type == VP_ROPE_YARN) {
        VP_TRY(optional_real(scaling, "beta_fast", 32, &r->beta_fast, err));
        VP_TRY(optional_real(scaling, "beta_slow", 1, &r->beta_slow, err));
        VP_TRY(optional_real(scaling, "mscale", 0, &r->mscale, err));
        VP_TRY(optional_real(scaling, "mscale_all_dim", 0, &r->mscale_all_dim, err));
        if (r->beta_fast < 1e-6 || r->beta_slow < 1e-6 || r->theta <= 1)
            VP_TRY(vp_json_fail(
                scaling, NULL, err,
                "beta_fast and beta_slow must be at least 1e-6 and rope_theta above 1"));
        r->truncate = true;
        if (vp_json_has(scaling, "truncate"))
            VP_TRY(vp_json_bool(scaling, "truncate", &r->truncate, err));
    }
    if (r->type == VP_ROPE_DYNAMIC && r->dim < 4)
        VP_TRY(vp_json_fail(scaling, NULL, err,
                            "dynamic scaling needs at least 4 rotated dimensions"));
    if (!(attention_factor(r) <= VP_MAX_ROPE_SCALE))
        VP_TRY(vp_json_fail(scaling, NULL, err, "scales cosines and sines by %g: more than %g",
                            attention_factor(r), VP_MAX_ROPE_SCALE));
out:
    return st;
}

static vp_status read_theta(vp_model *model, const vp_json_node *config,
                            const vp_json_node *scaling, const vp_rope_rules *rules, vp_rope *r,
                            vp_err *err)
{
    vp_status st = VP_OK;

    r->theta = rules->theta;
    if (scaling && vp_json_has(scaling, "rope_theta"))
        VP_TRY(vp_json_real(scaling, "rope_theta", 1e-6, 1e15, &r->theta, err));
    else if (!rules->own_names)
        VP_TRY(vp_config_real_or(model, config, "rope_theta", 1e15, rules->theta, &r->theta, err));
    if (r->theta < 1e-6)
        VP_TRY(vp_json_fail(config, "rope_theta", err, "must be at least 1e-6"));
out:
    return st;
}

/* How many dimensions of a head are rotated. */
static vp_status read_dim(vp_model *model, const vp_json_node *config, const vp_json_node *scaling,
                          const vp_rope_rules *rules, vp_rope *r, vp_err *err)
{
    const char         *key     = "partial_rotary_factor";
    const vp_json_node *from    = scaling && vp_json_has(scaling, key) ? scaling
                                  : rules->own_names                   ? NULL
                                                                       : config;
    double              partial = rules->partial;
    vp_status           st      = VP_OK;

    if (from && vp_json_has(from, key))
        VP_TRY(vp_json_real(from, key, 1e-6, 1, &partial, err));
    if (rules->partial == 0) {
        if (partial != 0 && partial != 1 && r->type != VP_ROPE_DEFAULT)
            VP_TRY(vp_json_fail(from, key, err,
                                "a part of each head, and scaled: not supported in this family"));
        if (partial != 0 && partial != 1)
            vp_model_assume(model, "%s is not used: this family rotates whole heads", key);
        partial = 1;
    }
    r->dim = (int64_t)((double)rules->head_dim * partial);
    if (r->dim < 2 || r->dim % 2 != 0 || r->dim / 2 > VP_ROPE_MAX_PAIRS)
        VP_TRY(vp_json_fail(
            config, NULL, err,
            "%lld of %lld dimensions of a head would be rotated; supported: an even number from 2 to %d",
            (long long)r->dim, (long long)rules->head_dim, 2 * VP_ROPE_MAX_PAIRS));
out:
    return st;
}

vp_status vp_config_rope(vp_model *model, const vp_json_node *config, const vp_rope_rules *rules,
                         vp_rope *r, vp_err *err)
{
    json_t     *old   = json_object_get(config->value, "rope_scaling");
    bool        empty = json_is_object(old) && json_object_size(old) == 0;
    const char *key =
        vp_json_has(config, "rope_scaling") && !empty ? "rope_scaling" : "rope_parameters";
    bool         given = vp_json_has(config, key);
    vp_json_node scaling;
    vp_status    st = VP_OK;

    *r = (vp_rope){.factor             = 1,
                   .attention_factor   = -1,
                   .max_positions      = rules->max_positions,
                   .original_positions = rules->max_positions};
    if (given) {
        VP_TRY(vp_json_object(config, key, &scaling, err));
        VP_TRY(read_type(&scaling, rules, r, err));
    }
    VP_TRY(read_theta(model, config, given ? &scaling : NULL, rules, r, err));
    VP_TRY(read_dim(model, config, given ? &scaling : NULL, rules, r, err));
    if (r->type != VP_ROPE_DEFAULT)
        VP_TRY(read_scaling(config, &scaling, rules, r, err));
out:
    return st;
}
