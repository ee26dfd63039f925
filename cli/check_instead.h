/* cli/check_instead.h: a precision that the card does not run, or runs slowly: what the files would be with another one. */
#ifndef VP_CLI_CHECK_INSTEAD_H
#define VP_CLI_CHECK_INSTEAD_H

#include "cli/check_fit.h"

/* In the files' own keys what would be written for another word: "fp16: true, bf16: false". NULL: they have none. */
const char *vp_check_in_their_keys(vp_checked *c, vp_setting setting, const char *word);

/* Where x->mended.refused: the error at the line that asks for it; where another word runs, x->mended becomes that of the files
 * with it, and x->instead says which. */
vp_status vp_check_instead_find(vp_arena *arena, vp_checked *c, vp_check_fit *x, vp_err *err);

/* bf16 that the card emulates, of a trainer that runs it: what fp16 would be, in x->quicker. */
vp_status vp_check_quicker_find(vp_checked *c, vp_check_fit *x, vp_err *err);

/* Of the files as they are nothing is answered: what the verdict below is about. */
void vp_check_instead_print(const vp_check_fit *x);
void vp_check_quicker_print(const vp_check_fit *x);

/* Where TRL's trainers run these adapters in no precision of the card's and transformers' own does: that, and its plan. */
bool vp_check_by_trainer_print(const vp_check_fit *x, const vp_checked *c);

/* Added as "changed" and "quicker". */
void vp_check_instead_json(const vp_check_fit *x, json_t *answer);

#endif
