/* trainers/files/python_calls.h: what the calls in a script of Python are about, by their names. */
#ifndef VP_TRAINERS_FILES_PYTHON_CALLS_H
#define VP_TRAINERS_FILES_PYTHON_CALLS_H

#include "trainers/files/document.h"

bool vp_python_ends_in(const char *text, const char *end);

/* Whether a call makes the arguments of a trainer, of which a script has one as a rule. */
bool vp_python_makes_arguments(const char *call);

/* Whether these are the trainer's own, not those of a script's model or data. */
bool vp_python_trains(const char *call);

/* Whether what a call is given are settings: a trainer's arguments, a configuration, what Unsloth's classes are told. Tokenizers,
 * data sets and all else have arguments by such names too. */
bool vp_python_tells_settings(const char *call);

/* Whether a call is of one of Unsloth's classes, FastLanguageModel; FastAPI is none. */
bool vp_python_is_unsloths(const char *call);

/* Whether a call loads a model of transformers'. */
bool vp_python_loads_model(const char *call);

/* Whether a call is given what stands in a file of its own elsewhere: adapters, a model. */
bool vp_python_is_part(const vp_value *v);

/* Of a document that was read: whether the model is given adapters whose kind is not known. */
bool vp_python_adapts_otherwise(const vp_document *doc);

bool vp_python_is_quantisation(const vp_value *v);

/* ds_config = {"zero_optimization": {...}}: a file of DeepSpeed's in place of one. */
bool vp_python_is_of_deepspeed(const vp_value *v);

/* torch.bfloat16 is bfloat16 in a file: of v and of what it holds. */
void vp_python_name_as_files_do(vp_value *v);

/* What of a script counts once all of it was read. arguments: the call that makes a trainer's; NULL: none. trainer: the class that is
 * given them; NULL: none. */
void vp_python_settle(vp_document *doc, const char *arguments, const char *trainer);

#endif
