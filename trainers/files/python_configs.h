/* trainers/files/python_configs.h: settings that a script of Python reads from a file of its own and takes by its own names:
 *     cfg = yaml.safe_load(open("config.yaml"))
 *     TrainingArguments(per_device_train_batch_size=cfg["train"]["batch"])
 * The file is one that is there (vp_document_run.config); what no file says is no value. */
#ifndef VP_TRAINERS_FILES_PYTHON_CONFIGS_H
#define VP_TRAINERS_FILES_PYTHON_CONFIGS_H

#include "trainers/files/python_names_internal.h"

/* yaml.safe_load(f), OmegaConf.load("a.yaml"), edict(cfg): what a call named so, with these brackets, gives; kind VP_OWNER_NOTHING: no such
 * thing. */
vp_owner vp_names_config_made(const vp_python_reader *r, const vp_piece *call,
                              const vp_piece *brackets, int depth);

/* What `@hydra.main(...)` above a function hands it. */
vp_owner vp_names_config_handed(const vp_python_reader *r, int function);

/* Of one the part that `.a["b"].get("c")` is, from *at on, which goes behind it; is_missing: it has none of that name, and *otherwise is
 * what stands in its place: at NULL: nothing, where `get` asks None. */
vp_owner vp_names_config_part(const vp_owner *of, const char **at, const char *end,
                              bool *is_missing, bool *is_asked, vp_piece *otherwise);

/* A name whose first letter is at `from` and behind which the reader stands: where it begins a piece of such settings, its value, and the
 * reader goes behind it. */
vp_status vp_python_read_config(vp_python_reader *r, const char *from, int line, vp_value *v,
                                bool *is_one);

#endif
