/* cli/priced_model.h: a MODEL whose steps by other trainers are priced: plan --trainer, check. */
#ifndef VP_CLI_PRICED_MODEL_H
#define VP_CLI_PRICED_MODEL_H

#include "trainers/hf/hf_priced.h"

/* As vp_model_with_graph(); of a family that vplan has no graph of, the one that its blocks are priced by (vp_hf_add_priced_graph()).
 * shelf may be NULL. VP_ERR_INPUT; *no_graph (or NULL) then: the config itself is sound. */
vp_status vp_model_to_price(const char *name, const vp_model_opts *opts, vp_hf_shelf *shelf,
                            vp_model **out, bool *no_graph, vp_err *err);

#endif
