/* trainers/hf/hf_versions.h: with which libraries a recorded program is known to run.
 *     found.program = ...;
 *     VP_TRY(vp_hf_choose_versions(&request, &found, &estimate, err)); */
#ifndef VP_TRAINERS_HF_VERSIONS_H
#define VP_TRAINERS_HF_VERSIONS_H

#include "base/arena.h"
#include "trainers/hf/hf_find.h"

#include <jansson.h>

/* Whether "torch=2.11.0 transformers=5.17.0" has another version of a library than "5.17", which is every 5.17.x. False: it has not the
 * library at all. */
bool vp_hf_is_other_version(const char *versions, const char *library, const char *version);

/* Whether steps are recorded with versions of this library. */
bool vp_hf_is_counted(const char *library);

/* {"transformers": "4.57", "trl": "1.16"} as vp_hf_request has them: those of libraries that steps are recorded with; NULL: none is.
 * The arena's. */
const char *vp_hf_versions_of(vp_arena *arena, const json_t *versions);

/* In versions, as vp_hf_request has them or NULL, that of a library, which ends at a comma or with them; NULL: it is not asked for. */
const char *vp_hf_asked_version(const char *versions, const char *library);

/* What gradient checkpointing is where nobody says use_reentrant: until transformers 5 that is True, but by TRL. versions: as
 * vp_hf_request has them, or NULL. */
const char *vp_hf_usual_checkpoints(const char *versions, bool is_trl);

/* Whether the found program is known to run with those of request->versions, or with their minor releases or ones before and after
 * them, or none are asked for. */
bool vp_hf_knows_versions(const vp_hf_request *request, const vp_hf_found *found);

/* Those of request->versions or the ones around them, which out's assumptions say, else the recording's own: found->as says which,
 * out->versions names them, and out's assumptions say what their defaults would do otherwise. VP_ERR_USAGE: no list of libraries and versions. VP_ERR_INPUT: the program is not known to run with
 * them, and with which it is; or what is asked for besides is known with the newest only. is_newest: the recording is of those. */
vp_status vp_hf_choose_versions(const vp_hf_request *request, bool is_newest, vp_hf_found *found,
                                vp_hf_estimate *out, vp_err *err);

#endif
