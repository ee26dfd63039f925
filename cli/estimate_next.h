#ifndef VP_CLI_ESTIMATE_NEXT_H
#define VP_CLI_ESTIMATE_NEXT_H

#include "cli/cli.h"

/* What estimate --trainer found, as far as it decides what to type next. */
typedef struct vp_estimate_next {
    const char *trainer;
    const char *
        fitting; /* options with which it fits, " --micro-batch 1"; "": none were found or needed */
    bool    fits, has_budget;
    bool    has_max;    /* the largest was asked for */
    bool    free_batch; /* no --micro-batch was given */
    int64_t needs_bytes, budget_bytes;
    int     capability; /* of the card, 80: 8.0 */
    int64_t seq, global_batch;
} vp_estimate_next;

/* Print the next command: the same with what fits, with a card, or for the largest batch; where all that is known, plan for the
 * fastest settings; where nothing makes it fit, the same on a card that holds it, or on the largest there is, which says what would fit
 * there; on that one the list of models. Nothing where none of these would help. */
void vp_print_estimate_next(const vp_estimate_next *found, const vp_command_line *line);

#endif
