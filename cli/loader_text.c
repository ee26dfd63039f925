#include "cli/loader_text.h"

#include "base/units.h"
#include "cli/screen.h"
#include "cli/words.h"

const char *const vp_loader_assumed =
    "workers: from ones that are forked, which share the process's pages, to ones that import torch "
    "and transformers anew (Windows, macOS, Python 3.14); objects of a dataset in memory that a "
    "forked one touches come on top";

void vp_loader_print(const vp_hf_batch *batch, const vp_hf_loader_setting *s, bool each)
{
    vp_hf_loader l = vp_hf_loader_of(batch, s);
    char         pinned[40], shared[40], low[40], high[40];

    if (!s->workers)
        return;
    vp_screen_line("loader",
                   "%lld workers, %lld batches at once%s: %s pinned, %s shared at most; the "
                   "workers' own %s to %s",
                   (long long)s->workers, (long long)l.n_batches, each ? ", each process" : "",
                   vp_size_text(l.pinned_bytes, pinned, sizeof pinned),
                   vp_size_text(l.shared_bytes, shared, sizeof shared),
                   vp_size_text(l.workers_low_bytes, low, sizeof low),
                   vp_size_text(l.workers_high_bytes, high, sizeof high));
}

json_t *vp_loader_json(const vp_hf_batch *batch, const vp_hf_loader_setting *s)
{
    vp_hf_loader l = vp_hf_loader_of(batch, s);

    return json_pack("{s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "workers",
                     (json_int_t)s->workers, "batches", (json_int_t)l.n_batches, "pin_memory",
                     (int)s->pins, "batch_bytes", (json_int_t)batch->bytes, "pinned_bytes",
                     (json_int_t)l.pinned_bytes, "shared_least_bytes",
                     (json_int_t)l.shared_least_bytes, "shared_bytes", (json_int_t)l.shared_bytes,
                     "workers_low_bytes", (json_int_t)l.workers_low_bytes, "workers_high_bytes",
                     (json_int_t)l.workers_high_bytes, "class", "derived");
}
