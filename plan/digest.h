/* plan/digest.h: whether a plan file is what vplan wrote.
 *     VP_TRY(vp_plan_sign(json, err));
 *
 * A number that was changed may pass every check and train something else: fewer elements updated,
 * another clip norm. The file's "digest" is SHA-256 over all its other members, as vp_json_dump()
 * writes them: layout and line ends do not count. It tells an accident or an editor from a plan
 * as it was written, not a forger: who can write the file can write its digest. */
#ifndef VP_PLAN_DIGEST_H
#define VP_PLAN_DIGEST_H

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>

/* Give a plan's object its "digest", in place of any it has. VP_ERR_NOMEM. */
vp_status vp_plan_sign(json_t *plan, vp_err *err);

/* Whether it has the right one. VP_ERR_NOMEM. */
vp_status vp_plan_is_signed(const vp_json_node *plan, bool *is_signed, vp_err *err);

#endif
