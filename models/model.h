/* models/model.h: from what a person names to a graph.
 *     VP_TRY(vp_model_open("config.json", &(vp_model_opts){0}, &model, err));
 *     vp_model_free(model);
 *
 * MODEL is a built-in name (vp_zoo), a config.json of any name, a folder that holds one, or a
 * Hub id that the local Hugging Face cache holds (models/hub_cache.h), in this order. The family
 * that the config names reads it: models/family.h. */
#ifndef VP_MODELS_MODEL_H
#define VP_MODELS_MODEL_H

#include "base/err.h"
#include "base/json.h"
#include "models/graph.h"

#include <stdbool.h>

/* Of a decoder, an encoder: more than any model has, and few enough to be counted in seconds. */
enum { VP_MAX_LAYERS = 4096 };

/* Dropout of a graph: a recipe's one number, or for trainers that take it from the config, the
 * config's. */
typedef struct vp_model_opts {
    double dropout;
    bool   dropout_from_config;
    bool   config_only; /* any family: name, family, class and config, no graph and n_params 0 */
    bool   is_priced;   /* never executed: a regression has a graph too, of another loss */
    const char    *class_name; /* in place of the config's architectures; NULL: those */
    int64_t        n_labels;   /* of a classifier, in place of the config's; 0: those */
    const vp_lora *lora;       /* adapters: models/lora.h; NULL, or rank 0: none */
} vp_model_opts;

/* What a class does with the last hidden states: models/head.c. */
typedef enum vp_head {
    VP_HEAD_NEXT_TOKEN, /* a language model's, causal             */
    VP_HEAD_MASKED,     /* and masked                             */
    VP_HEAD_SEQUENCE,   /* classes of samples                     */
    VP_HEAD_TOKEN,      /* classes of tokens                      */
    VP_HEAD_NONE        /* the model alone                        */
} vp_head;

typedef struct vp_model {
    vp_arena   *arena;
    const char *name;       /* file name without ".json", folder name, or built-in name */
    const char *family;     /* "gpt2" */
    const char *class_name; /* "GPT2LMHeadModel" */
    vp_head     head;
    int64_t     n_labels; /* of a classifier */
    double      head_p;   /* its dropout */
    /* the config.json object as read; names the class that was asked for */
    json_t  *config;
    vp_graph graph;
    int64_t  n_params, n_trained;
    int64_t  image_tokens;   /* of a sample that is an image; 0: it is a text */
    bool     resizes_images; /* images of another size have as many tokens as patches */
    /* the graph is for seconds: it has no names, and of parameters the large ones (trainers/hf/hf_priced.h) */
    bool    is_priced_only;
    int64_t n_other_experts;  /* its parameters of experts beside those that a token is sent to */
    const char **assumptions; /* sentences: every default taken, every field ignored */
    int64_t      n_assumptions, cap_assumptions;
} vp_model;

/* VP_ERR_INPUT for what the file says or lacks, located; also for a MODEL that is nothing of the
 * kind. VP_ERR_USAGE for a class_name that the family does not have. */
vp_status vp_model_open(const char *name, const vp_model_opts *opts, vp_model **out, vp_err *err);
vp_status vp_model_from_config(const char *name, const vp_json_node *config,
                               const vp_model_opts *opts, vp_model **out, vp_err *err);
void      vp_model_free(vp_model *model);

/* A field of its config; NULL: it has none. key: NAME, or PART.NAME of a part, as models of texts and images have them
 * (text_config). */
const json_t *vp_model_field(const vp_model *model, const char *key);
/* Of its language model, which is that part where there is one. */
const json_t *vp_model_text_field(const vp_model *model, const char *name);
/* Whether its files have weights of MXFP4. */
bool vp_model_is_mxfp4(const json_t *config);

/* ---- built in ---- */

typedef struct vp_zoo_entry {
    const char *name;
    const char *config; /* JSON text */
    const char *hub_id; /* the repository whose config.json says the same; NULL: none */
    const char *source; /* where the numbers are from */
} vp_zoo_entry;

/* By number, by name, by Hub id without a revision. NULL: no such. */
const vp_zoo_entry *vp_zoo_at(int idx);
const vp_zoo_entry *vp_zoo_find(const char *name);
const vp_zoo_entry *vp_zoo_find_hub_id(const char *id);

/* In which format the weights of a built-in model are published, "bfloat16"; NULL: not known. trained_further: of a model of its sizes
 * that is not the one of its Hub id. */
const char *vp_zoo_dtype(const char *name, bool trained_further);

/* Whether vplan has a graph of it. Of the others it knows the training steps of transformers' trainers that were recorded:
 * they open with config_only. */
bool vp_zoo_has_graph(const vp_zoo_entry *entry);

/* A model of another name with the sizes and the classes of a built-in one, so that it takes the
 * same bytes and seconds; its weights, positions and tokens are its own. */
typedef struct vp_zoo_variant {
    const char *hub_id, *built_in; /* "lmsys/vicuna-7b-v1.5" has the sizes of "llama-2-7b" */
    const char *source;            /* how that is known */
} vp_zoo_variant;

/* By number; NULL: no such. */
const vp_zoo_variant *vp_zoo_variant_at(int idx);

#endif
