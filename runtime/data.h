/* runtime/data.h: the tokens of each step.
 *     VP_TRY(vp_data_open("text.bin", VP_DATA_BYTES, n_per_step, n_steps, &data, err));
 *     VP_TRY(vp_data_step(data, step, tokens, labels, err));
 *
 * Sample i of step s is tokens [(s*G + i)*T, (s*G + i)*T + T] of the file: T inputs, and the T
 * tokens after each as its labels. Without a file, tokens are drawn: uniform over the
 * vocabulary, from (seed, position). A plan whose labels are classes takes no file: they are
 * drawn too. */
#ifndef VP_RUNTIME_DATA_H
#define VP_RUNTIME_DATA_H

#include "plan/plan.h"

typedef struct vp_data vp_data;

/* path NULL: drawn. VP_ERR_INPUT when the file ends before n_steps steps; it says how many it
 * holds. Free with vp_data_close(), which takes NULL. */
vp_status vp_data_open(const char *path, const vp_plan *plan, int64_t n_steps, vp_data **out,
                       vp_err *err);
void      vp_data_close(vp_data *data);

/* Fill tokens and labels, (global_batch * seq) each, for optimizer step `step` from 0. */
vp_status vp_data_step(vp_data *data, int64_t step, int32_t *tokens, int32_t *labels, vp_err *err);

#endif
