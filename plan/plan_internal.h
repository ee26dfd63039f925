/* plan/plan_internal.h: the words of a plan file, one list for its writer and its reader. Lists of
 * words end with NULL. */
#ifndef VP_PLAN_INTERNAL_H
#define VP_PLAN_INTERNAL_H

#include "plan/expand.h"

extern const char *const vp_plan_place_words[];
extern const char *const vp_plan_pass_words[];
extern const char *const vp_plan_init_words[];
extern const char *const vp_plan_accumulate_words[];
extern const char *const vp_plan_ahead_words[]; /* by vp_arg's ahead + 2 */
extern const char *const vp_plan_phase_words[];
extern const char *const vp_plan_label_place_words[];
extern const char        vp_plan_space_letters[];

/* plan/plan_overlap.c: refuses two buffers that overlap while both live. peak_bytes: out, where the
 * buffers of each memory end. */
vp_status vp_plan_check_overlap(vp_arena *arena, const vp_expansion *x, const char *file,
                                int64_t *peak_bytes, vp_err *err);

/* plan/plan_derive.c: in what a step, or a program, differs from what recipe, parameter table and batch
 * make of it, in words that follow its name; NULL: in nothing. Indices are in range. */
const char *vp_step_contradiction(const vp_plan *plan, const vp_bucket *bucket, const vp_program *p,
                                  int pass, const vp_step *step);
const char *vp_program_contradiction(const vp_plan *plan, const vp_program *p, int64_t *param_idx);

#endif
