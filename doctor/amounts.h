/* doctor/amounts.h: the numbers of a message, by the words that stand beside them.
 *     vp_amounts a;
 *     vp_amounts_begin(&a);
 *     vp_amounts_read("tried to allocate 2.00 gib (gpu 0; 23.52 gib total capacity; ...", &a);
 *     a.bytes[VP_OOM_REQUESTED]      2147483648
 *
 * A number means what the text before or behind it says, in whatever order they stand. KB, MB and GB are
 * powers of 1024: so all programs whose texts vplan knows mean them. A decimal is rounded to the nearest byte. What
 * no machine has (2^60 bytes and more) is how programs write "not known". */
#ifndef VP_DOCTOR_AMOUNTS_H
#define VP_DOCTOR_AMOUNTS_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, key in JSON, what it is). */
#define VP_OOM_NUMBERS(X) \
    X(REQUESTED, "requested_bytes", "asked for") \
    X(TOTAL, "total_bytes", "on the device") \
    X(FREE, "free_bytes", "free") \
    X(ALLOCATED, "allocated_bytes", "allocated") \
    X(RESERVED, "reserved_bytes", "reserved by the allocator") \
    X(UNALLOCATED, "reserved_unallocated_bytes", "reserved but not allocated") \
    X(PROCESS, "process_bytes", "held by this process, context and libraries included") \
    X(CAP, "cap_bytes", "allowed") \
    X(RSS, "rss_bytes", "host memory of the process")

typedef enum vp_oom_number {
#define X(name, key, text) VP_OOM_##name,
    VP_OOM_NUMBERS(X)
#undef X
        VP_N_OOM_NUMBERS
} vp_oom_number;

enum { VP_MAX_OTHERS = 64 };

typedef struct vp_amounts {
    int64_t bytes[VP_N_OOM_NUMBERS]; /* -1: the text does not say */
    struct {
        int64_t bytes, pid; /* -1: not known */
    } others[VP_MAX_OTHERS];
    int     n_others;
    int     gpu; /* -1 */
    int64_t pid; /* -1 */
} vp_amounts;

void vp_amounts_begin(vp_amounts *a);

/* Adds what a text in lower case says and a does not know yet. */
void vp_amounts_read(const char *text, vp_amounts *a);

/* Adds what `more` knows and a does not. */
void vp_amounts_merge(vp_amounts *a, const vp_amounts *more);

#endif
