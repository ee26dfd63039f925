/* models/hub_cache.h: a Hub id, looked up in the Hugging Face cache of this machine. Nothing here
 * goes online.
 *     VP_TRY(vp_hub_find("meta-llama/Llama-3.2-1B", VP_HUB_CONFIG, folder, sizeof folder, err));
 *     // ".../hub/models--meta-llama--Llama-3.2-1B/snapshots/COMMIT", which holds config.json
 *
 * An id is ORG/NAME or NAME, with @REVISION behind it or not; a revision is a ref ("main",
 * "refs/pr/1") or a commit of 40 hex digits. The cache is $HF_HUB_CACHE, else $HF_HOME/hub, else
 * $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub (an empty variable counts as
 * none; a leading ~ of the first two is $HOME); its layout is huggingface_hub's: refs/REF holds
 * a commit, snapshots/COMMIT/ the files, as links into blobs/. Without a revision it is
 * refs/main that counts, and where there is none the only snapshot. */
#ifndef VP_MODELS_HUB_CACHE_H
#define VP_MODELS_HUB_CACHE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Whether text can be an id: one slash at most, each part 1 to 96 of A-Z a-z 0-9 . _ -, neither
 * beginning nor ending with . or -, without ".." or "--" (the Hub's own rule), no name of a file
 * (.json, .safetensors); the revision likewise, with slashes, and 128 characters at most. So an
 * id holds nothing that a shell, a terminal or a path could mistake. */
bool vp_hub_is_id(const char *text);

/* What a snapshot must hold to be of use. */
typedef enum vp_hub_want {
    VP_HUB_CONFIG,  /* config.json                                       */
    VP_HUB_WEIGHTS, /* model.safetensors or model.safetensors.index.json */
    VP_HUB_FOLDER   /* config.json, or model_index.json of a pipeline    */
} vp_hub_want;

/* The folder of id's snapshot. VP_ERR_INPUT when the cache does not hold it, with the command
 * that downloads it; when it holds several snapshots and nothing says which; when text is no id;
 * located, when a ref's file holds no commit. */
vp_status vp_hub_find(const char *id, vp_hub_want want, char *folder, size_t folder_size,
                      vp_err *err);

#endif
