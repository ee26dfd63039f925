/* trainers/files/told.h: what an optimizer is told, between one word of ours and two keys of transformers'.
 *     vp_told_text(arena, "rank=8,targets=attn+mlp", true)      "attn+mlp", of which optim_target_modules is a list
 *     vp_told_text(arena, "rank=8,targets=attn+mlp", false)     "rank=8", optim_args; "" where there is nothing else */
#ifndef VP_TRAINERS_FILES_TOLD_H
#define VP_TRAINERS_FILES_TOLD_H

#include "base/arena.h"
#include "trainers/files/document.h"

const char *vp_told_text(vp_arena *arena, const char *told, bool of_targets);

/* Back: text is the value of the key as text, and becomes its part of the word. v: NULL, the key is not there. False: it says no
 * targets. */
bool vp_told_read(const vp_value *v, bool of_targets, char *text);
void vp_told_add_targets(char *told, size_t n, const char *targets);

/* Whether "a=1,name=0.9" gives the name a number that is not 0. */
bool vp_told_of(const char *told, const char *name);

#endif
