#include "trainers/hf/hf_step.h"

#include "base/checked.h"
#include "trainers/hf/hf_cudnn.h"
#include "trainers/hf/hf_lengths.h"

#include <string.h>

/* Threads that fit on a multiprocessor. */
static int64_t threads_of(int capability)
{
    return capability == 75                                            ? 1024
           : capability == 80 || capability == 90 || capability == 100 ? 2048
                                                                       : 1536;
}

/* Why the step of some first layers cannot be counted: its layers of either kind are no whole rounds of those that take turns, or
 * there are fewer of a kind than each recorded step has, of which there are fewest. */
static vp_status say_first(const vp_hf_found *found, const vp_hf_request *q, vp_status st,
                           const vp_err *why, vp_err *err)
{
    const int64_t *n = found->sizes.n_layers, first = vp_hf_first_recomputed(q);

    if (st != VP_ERR_INPUT || !first || n[1] == 0)
        return VP_FAIL_AT(err, st, why->file[0] ? why->file : NULL, why->line, why->field, "%s",
                          why->message);
    if (!vp_recorded_repeats(found->program, n[0]) || !vp_recorded_repeats(found->program, n[1]))
        return VP_FAIL(err, st,
                       "--recompute first:%lld of %lld layers, which take turns: recorded steps "
                       "have whole rounds of them that are recomputed",
                       (long long)first, (long long)(n[0] + n[1]));
    return VP_FAIL(err, st,
                   "--recompute first:%lld of %lld layers: recorded steps have more layers that "
                   "are %srecomputed",
                   (long long)first, (long long)(n[0] + n[1]), n[0] <= n[1] ? "" : "not ");
}

vp_status vp_hf_step_new(vp_hf_found *found, const vp_hf_request *q, int64_t seq, vp_ledger *ledger,
                         vp_recorded **out, vp_err *err)
{
    vp_symbols   *symbols  = &found->sizes.symbols;
    const int64_t n_layers = found->sizes.n_layers[0] + found->sizes.n_layers[1];
    vp_err        why      = {0};
    vp_status     st       = VP_OK;

    if (vp_hf_first_recomputed(q) > n_layers)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "--recompute first:%lld: the model has %lld layers",
                       (long long)vp_hf_first_recomputed(q), (long long)n_layers));
    symbols->at[VP_SYM_B] = q->packed ? 1 : vp_hf_has_pairs(q) ? 2 * q->batch : q->batch;
    if (!vp_hf_hears(&found->sizes))
        symbols->at[VP_SYM_S] = q->packed ? vp_mul(q->batch, seq) : seq;
    symbols->at[VP_SYM_im] = vp_mul(symbols->at[VP_SYM_B], q->images);
    symbols->at[VP_SYM_o]  = vp_mul(q->batch, q->packed);
    symbols->at[VP_SYM_r]  = q->lora.rank;
    symbols->at[VP_SYM_x]  = q->lora.tokens ? q->lora.tokens : q->lora.virtual_tokens;
    if (q->lora.virtual_tokens) { /* a prefix is before keys and values only */
        symbols->at[VP_SYM_u] = seq;
        symbols->at[VP_SYM_S] = seq;
        symbols->at[vp_hf_has_prefix(q) ? VP_SYM_u : VP_SYM_S] =
            vp_add(seq, q->lora.virtual_tokens);
    }
    symbols->at[VP_SYM_L] = n_layers;
    VP_TRY(vp_symbols_complete(symbols,
                               &(vp_symbol_card){.processors = q->processors,
                                                 .threads    = threads_of(q->capability),
                                                 .workspace  = vp_hf_workspace_of(q)},
                               err));
    st = vp_recorded_new(found->program, symbols, found->sizes.n_layers, ledger, out, &why);
    if (st != VP_OK) {
        st = say_first(found, q, st, &why, err);
        goto out;
    }
    if (found->as >= 0)
        vp_recorded_as(*out, found->as);
    if (found->copies_attention)
        VP_TRY(vp_recorded_keeps(*out, n_layers, vp_hf_copy_bytes(symbols),
                                 strcmp(q->recompute, "none") != 0, err));
out:
    return st;
}
