#include "cli/padding.h"

#include "base/units.h"
#include "cli/screen.h"

#include <stdio.h>
#include <string.h>

const char *vp_padding_text(int64_t padded_bytes, char *buf, size_t size)
{
    char padded[32];

    if (padded_bytes)
        snprintf(buf, size,
                 "no padding: every sample fills --seq; batches with padding take %s (--padding "
                 "mask)",
                 vp_size_text(padded_bytes, padded, sizeof padded));
    else
        snprintf(buf, size, "no padding: every sample fills --seq");
    return buf;
}

const char *vp_padding_text_if_seen(int64_t needs_bytes, int64_t padded_bytes, char *buf,
                                    size_t size)
{
    char padded[32], full[32];

    vp_size_text(padded_bytes, padded, sizeof padded);
    vp_size_text(needs_bytes, full, sizeof full);
    buf[0] = '\0';
    return padded_bytes && strcmp(padded, full) != 0 ? vp_padding_text(padded_bytes, buf, size)
                                                     : buf;
}

void vp_padding_print(int64_t needs_bytes, int64_t padded_bytes, int64_t budget_bytes)
{
    char padded[32];

    if (budget_bytes >= 0 && needs_bytes <= budget_bytes && padded_bytes > budget_bytes)
        vp_screen_line("padded", "batches with padding may not fit: %s (--padding mask)",
                       vp_size_text(padded_bytes, padded, sizeof padded));
}
