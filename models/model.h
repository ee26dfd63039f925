/* models/model.h: from what a person names to a graph.
 *     VP_TRY(vp_model_open("config.json", &(vp_model_opts){0}, &model, err));
 *     vp_model_free(model);
 *
 * MODEL is a built-in name (vp_zoo), a config.json of any name, a folder that holds one, or a Hub id that the local Hugging
 * Face cache holds (models/hub_cache.h), in this order. A family reads its own fields; a missing one takes a default only where
 * the family's own code defines one, and model->assumptions lists it. What a family does not support is refused by name. */
#ifndef VP_MODELS_MODEL_H
#define VP_MODELS_MODEL_H

#include "core/err.h"
#include "core/json.h"
#include "models/graph.h"

#include <stdbool.h>

/* Dropout of a graph: a recipe's one number, or for trainers that take it from the config, the config's. */
typedef struct vp_model_opts {
    double dropout;
    bool   dropout_from_config;
} vp_model_opts;

typedef struct vp_model {
    vp_arena    *arena;
    const char  *name;          /* file name without ".json", folder name, or built-in name */
    const char  *family;        /* "gpt2" */
    json_t      *config;        /* the config.json object as read */
    vp_graph     graph;
    int64_t      n_params;
    const char **assumptions;   /* sentences: every default taken, every field ignored */
    int64_t      n_assumptions, cap_assumptions;
} vp_model;

/* VP_ERR_INPUT for what the file says or lacks, located; also for a MODEL that is nothing of the kind. */
vp_status vp_model_open(const char *name, const vp_model_opts *opts, vp_model **out, vp_err *err);
vp_status vp_model_from_config(const char *name, const vp_json_node *config, const vp_model_opts *opts,
                               vp_model **out, vp_err *err);
void      vp_model_free(vp_model *model);

/* ---- families: one short file each ---- */

typedef struct vp_family {
    const char *model_type; /* of the config.json */
    const char *const *keys; /* the config's fields that build() reads; others are listed as unused */
    vp_status (*build)(vp_model *model, const vp_json_node *config, const vp_model_opts *opts, vp_err *err);
} vp_family;

extern const vp_family vp_family_gpt2;

/* What families share in reading a config. */

/* Note a sentence under assumptions. */
void vp_model_assume(vp_model *model, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A required whole number. */
vp_status vp_config_int(const vp_json_node *config, const char *key, int64_t max, int64_t *out, vp_err *err);

/* With the family's default where the key is absent or null; listed. */
vp_status vp_config_int_or(vp_model *model, const vp_json_node *config, const char *key, int64_t max,
                           int64_t fallback, int64_t *out, vp_err *err);
vp_status vp_config_real_or(vp_model *model, const vp_json_node *config, const char *key, double max,
                            double fallback, double *out, vp_err *err);
vp_status vp_config_bool_or(vp_model *model, const vp_json_node *config, const char *key, bool fallback,
                            bool *out, vp_err *err);

/* ---- built in ---- */

typedef struct vp_zoo_entry {
    const char *name;
    const char *config;     /* JSON text */
    const char *source;     /* where the numbers are from */
} vp_zoo_entry;

/* NULL past the end. */
const vp_zoo_entry *vp_zoo_at(int idx);

#endif
