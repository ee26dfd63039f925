#include "trainers/hf/hf_generate.h"

#include "base/checked.h"
#include "trainers/hf/hf_trl.h"

#include <stdlib.h>
#include <string.h>

enum {
    HALF  = 2, /* bytes of an element */
    FULL  = 4,
    DRAWN = 3 /* tensors of logits' size that stay until the next token's are there */
};

/* A layer's keys grow by so much between passes that are played: where less than 1 MiB of a block is left PyTorch's allocator gives it
 * whole, so that growth by less finds the same blocks. */
enum { GROWTH = 65536 };

/* What a layer has across passes, and within one. */
typedef struct layer {
    vp_ledger_block keys, values, casts;
} layer;

/* Bytes of an element: of hidden states, keys and values; of what a product makes; of what adapters add to it, 0: none do. A model that is
 * trained whole runs under autocast, which keeps 16-bit copies of its weights through a pass. With adapters it does not: generate() is
 * the inner model's, and Accelerate wraps the outer one. */
typedef struct generation {
    const int64_t  *at;
    vp_ledger      *ledger;
    int64_t         sequences, n_layers, state, product, added;
    bool            keeps_casts, dequantises;
    layer          *layers;
    vp_ledger_block drawn[DRAWN];
} generation;

static vp_status take(generation *g, vp_owner owner, int64_t bytes, vp_ledger_block *out,
                      vp_err *err)
{
    return vp_ledger_alloc(g->ledger, owner, bytes, out, err);
}

/* A tensor that is there for a moment. */
static vp_status pass_through(generation *g, int64_t bytes, vp_err *err)
{
    vp_ledger_block block = {0};
    vp_status       st    = take(g, VP_OWNER_TEMPORARY, bytes, &block, err);

    vp_ledger_free(g->ledger, &block);
    return st;
}

/* A block in place of another, which goes when the new one is there. */
static vp_status replace(generation *g, vp_owner owner, int64_t bytes, vp_ledger_block *block,
                         vp_err *err)
{
    vp_ledger_block next = {0};
    vp_status       st   = take(g, owner, bytes, &next, err);

    if (st == VP_OK) {
        vp_ledger_free(g->ledger, block);
        *block = next;
    }
    return st;
}

/* Of so many tokens a sequence, which see so many: queries, the cache with their keys and values behind it. Masks hold padding, under
 * which transformers repeats grouped keys and values for all heads. */
static vp_status attend(generation *g, layer *l, int64_t tokens, int64_t seen, vp_err *err)
{
    const int64_t  *at   = g->at;
    int64_t         rows = vp_mul(g->sequences, tokens), all = vp_mul(g->sequences, seen);
    int64_t         heads = at[VP_SYM_a] * at[VP_SYM_d], grouped = at[VP_SYM_k] * at[VP_SYM_d];
    vp_ledger_block queries = {0}, keys = {0}, values = {0}, repeated[2] = {{0}}, out = {0};
    vp_status       st = VP_OK;

    VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(rows, heads * g->state), &queries, err));
    VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(rows, grouped * g->state), &keys, err));
    VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(rows, grouped * g->product), &values, err));
    VP_TRY(replace(g, VP_OWNER_CACHE, vp_mul(all, grouped * g->state), &l->keys, err));
    VP_TRY(replace(g, VP_OWNER_CACHE, vp_mul(all, grouped * g->state), &l->values, err));
    for (int i = 0; i < 2 && (grouped < heads || g->state != g->product); i++)
        VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(all, heads * g->product), &repeated[i], err));
    VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(rows, heads * g->product), &out, err));
out:
    vp_ledger_free(g->ledger, &queries);
    vp_ledger_free(g->ledger, &keys);
    vp_ledger_free(g->ledger, &values);
    vp_ledger_free(g->ledger, &repeated[0]);
    vp_ledger_free(g->ledger, &repeated[1]);
    vp_ledger_free(g->ledger, &out);
    return st;
}

/* What adapters do beside a product of so many bytes an element: their input in their format, what they add, the sum. */
static vp_status adapt(generation *g, int64_t rows, int64_t in, int64_t out, vp_err *err)
{
    vp_ledger_block cast = {0}, added = {0}, sum = {0};
    vp_status       st = VP_OK;

    if (!g->added)
        return VP_OK;
    if (g->added != g->state)
        VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(rows, in * g->added), &cast, err));
    VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(rows, out * g->added), &added, err));
    VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(rows, out * g->added), &sum, err));
out:
    vp_ledger_free(g->ledger, &cast);
    vp_ledger_free(g->ledger, &added);
    vp_ledger_free(g->ledger, &sum);
    return st;
}

/* What the gate lets through, what goes up, their product, what goes down. */
static vp_status feed_forward(generation *g, int64_t rows, vp_err *err)
{
    int64_t         h = g->at[VP_SYM_h], f = g->at[VP_SYM_f], bytes = vp_mul(rows, f * g->product);
    vp_ledger_block gate = {0}, up = {0}, both = {0};
    vp_status       st = VP_OK;

    VP_TRY(take(g, VP_OWNER_TEMPORARY, bytes, &gate, err));
    VP_TRY(replace(g, VP_OWNER_TEMPORARY, bytes, &gate, err));
    VP_TRY(take(g, VP_OWNER_TEMPORARY, bytes, &up, err));
    VP_TRY(adapt(g, rows, h, f, err));
    VP_TRY(take(g, VP_OWNER_TEMPORARY, bytes, &both, err));
    vp_ledger_free(g->ledger, &gate);
    vp_ledger_free(g->ledger, &up);
    VP_TRY(adapt(g, rows, f, h, err));
out:
    vp_ledger_free(g->ledger, &gate);
    vp_ledger_free(g->ledger, &up);
    vp_ledger_free(g->ledger, &both);
    return st;
}

static vp_status run_layer(generation *g, layer *l, int64_t tokens, int64_t seen, vp_err *err)
{
    const int64_t  *at   = g->at;
    int64_t         rows = vp_mul(g->sequences, tokens), states = vp_mul(rows, at[VP_SYM_h]);
    int64_t         wide = vp_mul(at[VP_SYM_h], at[VP_SYM_f]), head = at[VP_SYM_d] * at[VP_SYM_h];
    vp_ledger_block residual = {0}, normed = {0};
    vp_status       st = VP_OK;

    VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(states, g->state), &residual, err));
    VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(states, g->state), &normed, err));
    if (g->keeps_casts)
        VP_TRY(take(g, VP_OWNER_CAST, HALF * (2 * (at[VP_SYM_a] + at[VP_SYM_k]) * head + 3 * wide),
                    &l->casts, err));
    if (g->dequantises)
        VP_TRY(pass_through(g, wide * HALF, err));
    VP_TRY(attend(g, l, tokens, seen, err));
    VP_TRY(feed_forward(g, rows, err));
out:
    vp_ledger_free(g->ledger, &residual);
    vp_ledger_free(g->ledger, &normed);
    return st;
}

/* Logits of the last token of each sequence, in fp32 what transformers makes of them to draw the next one: logits, scores, probabilities,
 * of which each goes when the next token's is there. */
static vp_status draw(generation *g, vp_err *err)
{
    int64_t         each  = vp_mul(g->sequences, g->at[VP_SYM_V]);
    int64_t         table = vp_mul(g->at[VP_SYM_V], g->at[VP_SYM_h]);
    vp_ledger_block head = {0}, logits = {0};
    vp_status       st = VP_OK;

    if (g->keeps_casts)
        VP_TRY(take(g, VP_OWNER_CAST, table * HALF, &head, err));
    VP_TRY(take(g, VP_OWNER_LOGITS, each * g->product, &logits, err));
    vp_ledger_free(g->ledger, &head);
    for (int64_t i = 0; i < g->n_layers; i++)
        vp_ledger_free(g->ledger, &g->layers[i].casts);
    for (int i = 0; i < DRAWN; i++)
        VP_TRY(replace(g, VP_OWNER_LOGITS, each * FULL, &g->drawn[i], err));
out:
    vp_ledger_free(g->ledger, &head);
    vp_ledger_free(g->ledger, &logits);
    return st;
}

static vp_status forward(generation *g, int64_t tokens, int64_t seen, vp_err *err)
{
    int64_t         rows   = vp_mul(g->sequences, tokens);
    vp_ledger_block states = {0};
    vp_status       st     = VP_OK;

    VP_TRY(take(g, VP_OWNER_TEMPORARY, vp_mul(rows, g->at[VP_SYM_h] * g->state), &states, err));
    for (int64_t i = 0; i < g->n_layers; i++)
        VP_TRY(run_layer(g, &g->layers[i], tokens, seen, err));
    VP_TRY(draw(g, err));
out:
    vp_ledger_free(g->ledger, &states);
    return st;
}

/* A pass for one token more, of which only what outlives it or grows is played. */
static vp_status grow(generation *g, int64_t seen, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < g->n_layers; i++)
        VP_TRY(attend(g, &g->layers[i], 1, seen, err));
out:
    return st;
}

vp_status vp_hf_generate(const vp_hf_sizes *sizes, const vp_hf_request *q, int64_t seq,
                         vp_ledger *ledger, vp_err *err)
{
    bool       is_fp32 = strcmp(q->precision, "fp32") == 0, adapted = vp_hf_has_adapters(q);
    bool       is_mixed   = strstr(q->precision, "-mixed") != NULL;
    generation g          = {.at          = sizes->symbols.at,
                             .ledger      = ledger,
                             .sequences   = vp_mul(q->batch, q->accumulation),
                             .n_layers    = sizes->n_layers[0] + sizes->n_layers[1],
                             .state       = is_fp32 || is_mixed ? FULL : HALF,
                             .product     = is_fp32 || (is_mixed && adapted) ? FULL : HALF,
                             .keeps_casts = is_mixed && !adapted,
                             .dequantises = vp_hf_is_quantised(q)};
    int64_t    completion = vp_hf_trl_completion_of(q, seq), prompt = seq - completion;
    int64_t    stride =
        vp_max_i64(1, GROWTH / vp_mul(g.sequences, g.at[VP_SYM_k] * g.at[VP_SYM_d] * g.state));
    vp_status st = VP_OK;

    if (vp_hf_has_lora(q) && strcmp(q->lora.targets, "all-linear") == 0)
        g.added = vp_hf_trains_halves(q) ? HALF : FULL;
    g.layers = calloc((size_t)g.n_layers, sizeof *g.layers);
    if (!g.layers)
        return VP_FAIL(err, VP_ERR_NOMEM, "%lld layers", (long long)g.n_layers);
    VP_TRY(forward(&g, prompt, prompt, err));
    for (int64_t i = stride; i < completion - 1; i += stride)
        VP_TRY(grow(&g, prompt + i, err));
    if (completion > 1)
        VP_TRY(forward(&g, 1, seq - 1, err));
out:
    for (int64_t i = 0; i < g.n_layers; i++) {
        vp_ledger_free(ledger, &g.layers[i].keys);
        vp_ledger_free(ledger, &g.layers[i].values);
        vp_ledger_free(ledger, &g.layers[i].casts);
    }
    for (int i = 0; i < DRAWN; i++)
        vp_ledger_free(ledger, &g.drawn[i]);
    free(g.layers);
    return st;
}
