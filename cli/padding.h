/* cli/padding.h: what estimate and check say where nobody said how long samples are: that each was taken to fill the
 * sequence, and what batches with padding take, whose mask transformers passes on, so that PyTorch runs another attention.
 *     json_string(vp_padding_text(padded_bytes, buf, sizeof buf))
 *     vp_padding_print(needs_bytes, padded_bytes, budget_bytes) */
#ifndef VP_CLI_PADDING_H
#define VP_CLI_PADDING_H

#include <stddef.h>
#include <stdint.h>

/* The assumption. padded_bytes: of the card, or 0 where they are not known. Returns buf. */
const char *vp_padding_text(int64_t padded_bytes, char *buf, size_t size);

/* The same where it is worth a word: "" where they are not known, or are the same number. */
const char *vp_padding_text_if_seen(int64_t needs_bytes, int64_t padded_bytes, char *buf,
                                    size_t size);

/* A line of the screen where padding decides: full samples fit into the budget and padded ones do not. */
void vp_padding_print(int64_t needs_bytes, int64_t padded_bytes, int64_t budget_bytes);

#endif
