/* trainers/hf/hf_shelf.h: recordings that were looked for and read, for searches that ask for many steps of one model,
 * from several threads if they like.
 *     vp_hf_shelf *shelf = vp_hf_shelf_new();
 *     vp_hf_shelf_find(shelf, "recordings/llama.rec", path, sizeof path);    looked for once
 *     VP_TRY(vp_hf_shelf_open(shelf, path, &recording, err));                 read once
 *     vp_hf_shelf_free(shelf);                                   and all its recordings
 *
 * Models that were loaded are there too, for the next step that loads the same. */
#ifndef VP_TRAINERS_HF_SHELF_H
#define VP_TRAINERS_HF_SHELF_H

#include "trainers/torch/recorded_loaded.h"

#include <stddef.h>

typedef struct vp_hf_shelf vp_hf_shelf;

/* NULL: out of memory. */
vp_hf_shelf *vp_hf_shelf_new(void);
/* Takes NULL. */
void vp_hf_shelf_free(vp_hf_shelf *shelf);

/* As vp_file_find_program(): false where it is not there. */
bool vp_hf_shelf_find(vp_hf_shelf *shelf, const char *name, char *path, size_t path_size);

/* The recording stays the shelf's. VP_ERR_INPUT and others as vp_recording_open()'s. */
vp_status vp_hf_shelf_open(vp_hf_shelf *shelf, const char *path, vp_recording **out, vp_err *err);

/* What was loaded with these settings of the allocator (NULL: its own) on a card of so many bytes, by a world of these opts (NULL: none
 * has loaded), that the step loads too; NULL: nothing. It stays the shelf's. */
const vp_recorded_loaded *vp_hf_shelf_loaded(vp_hf_shelf *shelf, const char *alloc_conf,
                                             int64_t limit_bytes, const vp_recorded *step,
                                             const vp_world_opts *opts);

/* The step has loaded: that is kept, while there is room. */
vp_status vp_hf_shelf_keep(vp_hf_shelf *shelf, const char *alloc_conf, int64_t limit_bytes,
                           const vp_recorded *step, const vp_world *world,
                           const vp_world_opts *opts, vp_err *err);

/* A note under a key, both bytes; the first one of a key stays. One that there is no memory for is not kept. */
void vp_hf_shelf_note(vp_hf_shelf *shelf, const char *key, size_t key_bytes, const void *note,
                      size_t note_bytes);
/* The note, aligned for anything and the shelf's; NULL: there is none. */
const void *vp_hf_shelf_noted(vp_hf_shelf *shelf, const char *key, size_t key_bytes);

#endif
