/* cli/loader_text.h: what a DataLoader takes of host memory, as people and programs read it: estimate's and check's. */
#ifndef VP_CLI_LOADER_TEXT_H
#define VP_CLI_LOADER_TEXT_H

#include "base/json.h"
#include "trainers/hf/hf_loader.h"

/* Nothing is said where it has no workers. each: of several processes. */
void    vp_loader_print(const vp_hf_batch *batch, const vp_hf_loader_setting *setting, bool each);
json_t *vp_loader_json(const vp_hf_batch *batch, const vp_hf_loader_setting *setting);

/* What the bytes of workers stand for. */
extern const char *const vp_loader_assumed;

#endif
