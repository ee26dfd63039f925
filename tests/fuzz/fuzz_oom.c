/* Logs: whatever stands in them, an answer whose lines are of the log, whose numbers are bytes, and whose remedies
 * stand by what they save. Accepted: a shortage was found. */
#include "fuzz.h"

#include "doctor/oom.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vp_arena *arena = vp_arena_new();
    vp_oom   *oom   = NULL;
    vp_err    err   = {0};
    int64_t   lines = 1;

    MUST(arena);
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    MUST_OK(vp_oom_read(arena, fuzz_file(data, size), &oom, &err));
    MUST(oom->class_ < VP_N_OOM_CLASSES && oom->line >= 0 && oom->line <= lines);
    MUST(oom->n_evidence <= VP_MAX_EVIDENCE && oom->n_remedies <= VP_MAX_REMEDIES);
    for (int i = 0; i < VP_N_OOM_NUMBERS; i++)
        MUST(oom->numbers.bytes[i] >= -1);
    for (int i = 0; i < oom->n_evidence; i++)
        MUST(oom->evidence[i].text && oom->evidence[i].line >= 1 && oom->evidence[i].line <= lines);
    for (int i = 0; i < oom->n_remedies; i++) {
        MUST(oom->remedies[i].text && oom->remedies[i].costs);
        MUST(!i || oom->remedies[i].saves_bytes <= oom->remedies[i - 1].saves_bytes);
    }
    for (int i = 1; i < oom->numbers.n_others; i++)
        MUST(oom->numbers.others[i].bytes <= oom->numbers.others[i - 1].bytes);
    fuzz_n_accepted += oom->class_ != VP_OOM_CLASS_NOT_OOM;
    vp_arena_free(arena);
    return 0;
}
