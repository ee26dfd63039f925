/* Pickles: whatever stands in them, an answer that adds up or a refusal; what is accepted has no more owners' bytes than it has
 * live blocks. */
#include "fuzz.h"

#include "doctor/snapshot.h"

static void look_at(const vp_owners *o)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < o->n; i++) {
        MUST(o->owners[i].frame && o->owners[i].n_blocks >= 1 && o->owners[i].bytes >= 0);
        MUST(!i || o->owners[i].bytes <= o->owners[i - 1].bytes);
        sum += o->owners[i].bytes;
    }
    MUST(sum == o->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vp_arena    *arena = vp_arena_new();
    vp_snapshot *s     = NULL;
    vp_err       err   = {0};
    vp_status    st;

    MUST(arena);
    st = vp_snapshot_read(arena, fuzz_file(data, size), &s, &err);
    if (st != VP_OK) {
        fuzz_check_refusal(st, &err);
    } else {
        fuzz_n_accepted++;
        MUST(s->allocated_bytes >= 0 && s->reserved_bytes >= 0 && s->split_bytes >= 0);
        MUST(s->n_ooms == 0 || s->because);
        look_at(&s->now);
        look_at(&s->at_peak);
    }
    vp_arena_free(arena);
    return 0;
}
