/* base/units.h: sizes and counts as people type and read them; bytes inside.
 *     VP_TRY(vp_size_parse("24GiB", &bytes, err));
 *     vp_size_text(bytes, buf, sizeof buf)      "24.00 GiB"
 * No function here depends on the locale. */
#ifndef VP_BASE_UNITS_H
#define VP_BASE_UNITS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define VP_KIB ((int64_t)1 << 10)
#define VP_MIB ((int64_t)1 << 20)
#define VP_GIB ((int64_t)1 << 30)

/* A SIZE: a decimal number, at most one point, with B, KB, KiB, MB, MiB, GB, GiB, TB or TiB in
 * upper or lower case, behind one space or none; a bare integer is bytes. 24GB is 24e9 bytes. A part of
 * a byte, as 12.3GiB has one, is left off; > 0 and < 2^53. Anything else is VP_ERR_USAGE with the valid
 * form in the text (80G asks whether 80GB or 80GiB was meant). */
vp_status vp_size_parse(const char *text, int64_t *bytes, vp_err *err);

/* A whole decimal number in [min, max], digits only; VP_ERR_USAGE names `what`. */
vp_status vp_count_parse(const char *text, const char *what, int64_t min, int64_t max,
                         int64_t *value, vp_err *err);

/* A finite decimal number such as 1e-4 in [min, max], read with '.' in any locale. */
vp_status vp_real_parse(const char *text, const char *what, double min, double max, double *value,
                        vp_err *err);

/* So many bytes, or a share of something: "24GiB" or "80%". Neither: nothing was said. */
typedef struct vp_amount {
    int64_t bytes;
    double  share; /* 0: bytes count */
} vp_amount;

/* A share is above 0 and at most 100 %. VP_ERR_USAGE, with the form that is wanted. */
vp_status vp_amount_parse(const char *text, vp_amount *amount, vp_err *err);

/* Bytes of an amount of which `all` are the whole, rounded down; 0 where nothing was said. */
int64_t vp_amount_of(const vp_amount *amount, int64_t all);

/* "24.00 GiB", "512.0 MiB", "1,234 B": for people; from 10,000 GiB on "9.77 TiB", so that no unit has more than four digits. Returns
 * buf. */
const char *vp_size_text(int64_t bytes, char *buf, size_t buf_size);

/* "6.4 of 7.6 MiB, 1.2 MiB free" or "24.00 of 23.52 GiB, short by 494.5 MiB". Returns buf. */
const char *vp_fit_text(int64_t needs_bytes, int64_t budget_bytes, char *buf, size_t buf_size);

/* "124,439,808". Returns buf. */
const char *vp_count_text(int64_t n, char *buf, size_t buf_size);

/* How many a second: "753.4", "47,850". Returns buf. */
const char *vp_rate_text(double per_s, char *buf, size_t buf_size);

/* "812 us", "1.23 ms", "4.56 s". Returns buf. */
const char *vp_time_text(double seconds, char *buf, size_t buf_size);

#endif
