#include "trainers/torch/ledger.h"

#include <assert.h>
#include <string.h>

static const struct {
    char        letter;
    const char *words;
} owners[] = {
#define X(name, letter, words) {letter, words},
    VP_OWNER_TABLE(X)
#undef X
};

enum {
    NEEDED_STEP = 512,
    SMALL_BYTES = 1 << 20,
    NEARLY      = 16,
    OWNERS      = 0x1f,
    SPARES      = 0x7ffffff /* bits of a block */
};
static_assert((int)VP_N_OWNERS <= OWNERS, "an owner has five bits");

const char *vp_owner_words(vp_owner owner)
{
    return owners[owner].words;
}

vp_owner vp_owner_of_letter(char letter)
{
    int i = 0;

    while (i < VP_N_OWNERS && owners[i].letter != letter)
        i++;
    return (vp_owner)i;
}

void vp_ledger_begin(vp_ledger *l, const char *name)
{
    const vp_caching_figures *f = vp_caching_allocator_figures(l->allocator);
    vp_ledger_phase          *p = &l->phases[l->n_phases];

    assert(!l->open && l->n_phases < VP_LEDGER_PHASES);
    vp_caching_allocator_reset_peaks(l->allocator);
    *p = (vp_ledger_phase){.name = name, .allocated_bytes = f->allocated_bytes.now};
    memcpy(p->owners, l->now, sizeof p->owners);
    l->n_phases++;
    l->open       = true;
    l->is_at_peak = false;
}

/* Whose the bytes are, before they are fewer. */
static void leave_peak(vp_ledger *l)
{
    if (l->is_at_peak)
        memcpy(l->phases[l->n_phases - 1].owners, l->now, sizeof l->now);
    l->is_at_peak = false;
}

void vp_ledger_end(vp_ledger *l)
{
    const vp_caching_figures *f = vp_caching_allocator_figures(l->allocator);
    vp_ledger_phase          *p = &l->phases[l->n_phases - 1];

    assert(l->open && p->allocated_bytes == f->allocated_bytes.peak);
    leave_peak(l);
    p->reserved_bytes     = f->reserved_bytes.peak;
    p->end_bytes          = f->allocated_bytes.now;
    p->end_reserved_bytes = f->reserved_bytes.now;
    l->open               = false;
}

void vp_ledger_repeat(vp_ledger *l, int i, const char *name)
{
    int64_t          reserved = vp_caching_allocator_figures(l->allocator)->reserved_bytes.now;
    vp_ledger_phase *p        = &l->phases[l->n_phases];

    assert(!l->open && i < l->n_phases && l->n_phases < VP_LEDGER_PHASES);
    *p                    = l->phases[i];
    p->name               = name;
    p->reserved_bytes     = reserved;
    p->end_reserved_bytes = reserved;
    l->n_phases++;
}

static int64_t needed_of(int64_t bytes)
{
    return (bytes + NEEDED_STEP - 1) & -(int64_t)NEEDED_STEP;
}

vp_status vp_ledger_refuse_needed(const vp_ledger *l, vp_err *err)
{
    return VP_FAIL(err, VP_ERR_NO_FIT, "more than %lld bytes are needed at once",
                   (long long)l->at_most_needed_bytes);
}

/* A pool gives memory to no other, and unless its cache is emptied none back: it has reserved what it needed at its peak. */
static void count_in_pool(vp_ledger *l, int which, int64_t bytes)
{
    vp_ledger_pool *p = &l->pools[which];

    p->now += bytes;
    if (p->now > p->most) {
        l->least_reserved_bytes += p->now - p->most;
        p->most = p->now;
    }
}

/* Needed bytes alone, without a place: block is one more than its pool. */
static vp_status count_needed(vp_ledger *l, vp_owner owner, int64_t bytes, vp_ledger_block *out,
                              vp_err *err)
{
    int which = 2 * l->stream + (needed_of(bytes) > SMALL_BYTES);

    if ((uint64_t)bytes >> VP_CACHING_REQUEST_BITS)
        return VP_FAIL(err, VP_ERR_INPUT, "a request of %lld bytes", (long long)bytes);
    if (bytes == 0)
        return VP_OK;
    assert(which >= 0 && which < VP_LEDGER_POOLS);
    *out = (vp_ledger_block){
        .block = (vp_caching_block)which + 1, .owner = owner, .bytes = needed_of(bytes)};
    l->now[owner] += out->bytes;
    l->needed_bytes += out->bytes;
    count_in_pool(l, which, out->bytes);
    return l->at_most_needed_bytes && l->least_reserved_bytes > l->at_most_needed_bytes
               ? vp_ledger_refuse_needed(l, err)
               : VP_OK;
}

vp_status vp_ledger_empty_cache(vp_ledger *l, vp_err *err)
{
    if (!l->counts_alone)
        return vp_caching_allocator_empty_cache(l->allocator, err);
    for (int i = 0; i < VP_LEDGER_POOLS; i++) {
        l->least_reserved_bytes -= l->pools[i].most - l->pools[i].now;
        l->pools[i].most = l->pools[i].now;
    }
    return VP_OK;
}

vp_status vp_ledger_alloc(vp_ledger *l, vp_owner owner, int64_t bytes, vp_ledger_block *out,
                          vp_err *err)
{
    const vp_caching_figures *f      = vp_caching_allocator_figures(l->allocator);
    vp_ledger_phase          *p      = &l->phases[l->n_phases - 1];
    int64_t                   before = f->allocated_bytes.now, needed_bytes;
    vp_status                 st     = VP_OK;

    assert(l->open);
    *out = (vp_ledger_block){0};
    if (l->counts_alone)
        return count_needed(l, owner, bytes, out, err);
    VP_TRY(vp_caching_allocator_alloc(l->allocator, l->stream, bytes, &out->block, err));
    out->owner   = owner;
    out->bytes   = f->allocated_bytes.now - before;
    needed_bytes = needed_of(bytes);
    out->spare   = (uint32_t)((uint64_t)(out->bytes - needed_bytes) / NEEDED_STEP) & SPARES;
    l->now[owner] += out->bytes;
    l->needed_bytes += needed_bytes;
    if (l->needed_bytes > l->most_needed_bytes)
        l->most_needed_bytes = l->needed_bytes;
    if (f->allocated_bytes.now > p->allocated_bytes) {
        p->allocated_bytes = f->allocated_bytes.now;
        l->is_at_peak      = true;
    }
    if (l->at_most_reserved_bytes && f->reserved_bytes.now > l->at_most_reserved_bytes) {
        l->reserves_more = true;
        if (l->needed_bytes < l->at_most_needed_bytes / NEARLY * (NEARLY - 1))
            VP_TRY(VP_FAIL(err, VP_ERR_NO_FIT, "more than %lld bytes are reserved",
                           (long long)l->at_most_reserved_bytes));
    }
    if (l->at_most_needed_bytes && l->needed_bytes > l->at_most_needed_bytes)
        VP_TRY(vp_ledger_refuse_needed(l, err));
out:
    return st;
}

void vp_ledger_give_back(vp_ledger *l, vp_ledger_block *block)
{
    if (!l->allocator)
        return;
    if (l->counts_alone)
        l->pools[block->block - 1].now -= block->bytes;
    else
        vp_caching_allocator_free(l->allocator, block->block);
    leave_peak(l);
    l->now[block->owner] -= block->bytes;
    l->needed_bytes -= block->bytes - (int64_t)block->spare * NEEDED_STEP;
    *block = (vp_ledger_block){0};
}
