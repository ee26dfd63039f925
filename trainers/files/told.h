/* trainers/files/told.h: what an optimizer is told, between one word of ours and two keys of transformers'.
 *     vp_told_text(arena, "rank=8,targets=attn+mlp", true)      "attn+mlp", of which optim_target_modules is a list
 *     vp_told_text(arena, "rank=8,targets=attn+mlp", false)     "rank=8", optim_args; "" where there is nothing else */
#ifndef VP_TRAINERS_FILES_TOLD_H
#define VP_TRAINERS_FILES_TOLD_H

#include "base/arena.h"
#include "trainers/files/document.h"

const char *vp_told_text(vp_arena *arena, const char *told, bool of_targets);

/* What it says of a name, or transformers takes where it says nothing; NULL: out of memory. */
const char *vp_told_value(vp_arena *arena, const char *told, const char *name);
/* Targets as LLaMA-Factory's text has them: "attn,mlp", or all. */
const char *vp_told_parts(vp_arena *arena, const char *told);

/* Targets as one regular expression that takes the same modules, for a command line, where Trainer's parser reads one text:
 * ".*q_proj.*|.*v_proj.*" of "q_proj+v_proj". NULL: out of memory. */
const char *vp_told_pattern(vp_arena *arena, const char *targets);

/* Of a value of optim_target_modules: whether it is known here which modules it takes. */
typedef enum vp_told_targets {
    VP_TOLD_COUNTED,
    VP_TOLD_WHOLE_NAME, /* a plain text alone, which a module's whole name must match: "attn" takes no layer of a block */
    VP_TOLD_UNCOUNTED, /* a pattern with what only Python's re reads so, or what a word cannot hold */
    VP_TOLD_UNKNOWN    /* a variable, or no text */
} vp_told_targets;

vp_told_targets vp_told_judge(const vp_value *v);

/* Back: text, of size letters, is the value of the key as text, and becomes its part of the word; of a map all its members. v: NULL, the
 * key is not there. False: it says no targets. */
bool vp_told_read(const vp_value *v, bool of_targets, char *text, size_t size);
/* LLaMA-Factory's text of targets: "q_proj, v_proj", or all, which is all linear layers but the head. "": one is no part of a name. */
void vp_told_read_parts(char *text, size_t size);
/* "NAME=value" behind the rest, unless it is what transformers takes where nobody says it. */
void vp_told_add(char *told, size_t n, const char *name, const char *value);
void vp_told_add_targets(char *told, size_t n, const char *targets);

/* Whether "a=1,name=0.9" gives the name a number that is not 0. */
bool vp_told_of(const char *told, const char *name);

#endif
