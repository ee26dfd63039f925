/* plan/plan_internal.h: the words of a plan file, one list for its writer and its reader. Lists of
 * words end with NULL. */
#ifndef VP_PLAN_INTERNAL_H
#define VP_PLAN_INTERNAL_H

#include "plan/plan.h"

extern const char *const vp_plan_place_words[];
extern const char *const vp_plan_pass_words[];
extern const char *const vp_plan_init_words[];
extern const char *const vp_plan_accumulate_words[];
extern const char *const vp_plan_ahead_words[]; /* by vp_arg's ahead + 1 */
extern const char *const vp_plan_phase_words[];
extern const char *const vp_plan_label_place_words[];
extern const char        vp_plan_space_letters[];

#endif
