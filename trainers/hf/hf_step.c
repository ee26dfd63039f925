#include "trainers/hf/hf_step.h"

#include "base/checked.h"

/* Threads that fit on a multiprocessor. */
static int64_t threads_of(int capability)
{
    return capability == 75                                            ? 1024
           : capability == 80 || capability == 90 || capability == 100 ? 2048
                                                                       : 1536;
}

vp_status vp_hf_step_new(vp_hf_found *found, const vp_hf_request *q, int64_t seq, vp_ledger *ledger,
                         vp_recorded **out, vp_err *err)
{
    vp_symbols *symbols = &found->sizes.symbols;
    vp_status   st      = VP_OK;

    symbols->at[VP_SYM_B] = q->packed ? 1 : vp_hf_is_dpo(q) ? 2 * q->batch : q->batch;
    symbols->at[VP_SYM_S] = q->packed ? vp_mul(q->batch, seq) : seq;
    symbols->at[VP_SYM_o] = vp_mul(q->batch, q->packed);
    symbols->at[VP_SYM_r] = q->lora.rank;
    symbols->at[VP_SYM_x] = q->lora.tokens ? q->lora.tokens : q->lora.virtual_tokens;
    if (q->lora.virtual_tokens) { /* a prefix is before keys and values only */
        symbols->at[VP_SYM_u] = seq;
        symbols->at[VP_SYM_S] = seq;
        symbols->at[vp_hf_has_prefix(q) ? VP_SYM_u : VP_SYM_S] =
            vp_add(seq, q->lora.virtual_tokens);
    }
    symbols->at[VP_SYM_L] = found->sizes.n_layers[0];
    VP_TRY(vp_symbols_complete(
        symbols,
        &(vp_symbol_card){.processors = q->processors, .threads = threads_of(q->capability)}, err));
    VP_TRY(vp_recorded_new(found->program, symbols, found->sizes.n_layers, ledger, out, err));
    if (found->as >= 0)
        vp_recorded_as(*out, found->as);
out:
    return st;
}
