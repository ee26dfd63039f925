/* cli/names.h: models and cards as people write them: "Llama-3.1-8B", "RTX 4090", a Hub id. What
 * differs from a built-in name by case, spaces, dashes and underscores only is that name, with a
 * note; what is merely near is asked about. A file or folder of the very name comes first.
 *     VP_TRY(vp_model_named(cli, &name, err)); */
#ifndef VP_CLI_NAMES_H
#define VP_CLI_NAMES_H

#include "cli/cli.h"
#include "models/model.h"

/* A MODEL: *name stays, or becomes a built-in name that lives as long as the program. A Hub id that
 * the local cache does not hold is the built-in model of the same config, with a note; so is said
 * which one is meant where a built-in name is a file here too. VP_ERR_INPUT: it is nothing, and
 * this is what may have been meant; where nothing may, it stays for vp_model_open() to refuse. */
vp_status vp_model_named(const vp_cli *cli, const char **name, vp_err *err);

/* vp_model_open() of a model that is planned or priced, which takes vplan's own graph of it. VP_ERR_INPUT where its family has
 * none says what can be asked instead; *no_graph (or NULL) then: the config itself is sound. */
vp_status vp_model_with_graph(const char *name, const vp_model_opts *opts, vp_model **out,
                              bool *no_graph, vp_err *err);

/* The built-in model of this name or Hub id, however it is written; NULL: none. */
const char *vp_built_in_name(const char *name);

/* The same of weights that are published in 4 bits, org/name-bnb-4bit: the model that they are of; NULL: the name is none of these, or some of
 * their layers are in more bits (-unsloth-bnb-4bit). */
const char *vp_built_in_of_packed(const char *name);

/* VP_ERR_USAGE: no built-in model has this name, with the nearest one. */
vp_status vp_built_in_missing(const char *name, vp_err *err);

/* Whether this is how people write a card, or how the names of several begin: "RTX 4090", "h100", "8xh100". */
bool vp_names_a_card(const char *name);

/* A device, likewise; NULL stays. VP_ERR_USAGE. */
vp_status vp_device_named(const vp_cli *cli, const char **name, vp_err *err);

#endif
