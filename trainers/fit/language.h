/* trainers/fit/language.h: what each trainer can be told, as axes: the words of a setting that a
 * search may try, and whose training step its bytes are those of.
 *     VP_TRY(vp_language_of(target, &language, err));
 *
 * The words are those of settings.h. Whether the trainer's files have one, in the versions that are
 * written, its own tables say (vp_emit()); a word here that they lack is not tried. */
#ifndef VP_TRAINERS_FIT_LANGUAGE_H
#define VP_TRAINERS_FIT_LANGUAGE_H

#include "trainers/files/target.h"
#include "trainers/hf/hf_estimate.h"

typedef enum vp_axis_kind {
    VP_AXIS_FREE,  /* every word is tried unless one is pinned                      */
    VP_AXIS_ALIKE, /* the first unless pinned; all where it is left open by "any"   */
    VP_AXIS_FIXED  /* the same of the words that the trainer can be told            */
} vp_axis_kind;

typedef struct vp_axis {
    vp_setting   setting;
    vp_axis_kind kind;
    const char  *words; /* "none|full"; the first is what is meant where nothing is said */
} vp_axis;

/* A step nearer to the trainer's than step_of's is, amended by what its sources say; as vp_fit_by_unsloth(). */
typedef struct vp_nearer_step {
    vp_status (*bytes)(const vp_model *model, const vp_hf_request *asked, vp_hf_estimate *out,
                       bool *found, vp_err *err);
    double      low, high;
    const char *basis, *why; /* as a language's */
} vp_nearer_step;

typedef struct vp_language {
    const char *target;
    /* whose step is estimated: a trainer of vp_hf_request; NULL: nobody's, and why says the reason */
    const char *step_of;
    double      low, high; /* what the reserved bytes may be off by, as shares of them */
    const char *basis;     /* where these are from */
    const char *why;       /* what is assumed of it; NULL: nothing */
    /* the trainer of vp_hf_request that some steps of its own are recorded by; those are not assumed,
     * and within VP_HF_TRL_SHARE; NULL: none */
    const char           *own;
    const vp_nearer_step *nearer; /* of the settings that it has; NULL: none */
    const vp_axis        *axes;
    int                   n_axes;
    /* why its step of 16 bits on weights that nobody cuts is not that of step_of; NULL: it is */
    const char *wraps;
    /* whether its own code, or the files that are written for it, prepare quantised weights; 0: as step_of */
    vp_hf_prepare prepare;
    bool          is_foreign; /* its modules are not transformers': step_of stands for other code */
    const char
        *families; /* by transformers' names, of the models that it has, by spaces; NULL: any */
    const char *liger_families; /* that it has kernels of Liger's for; NULL: not known */
    /* its files say that the first layers alone are recomputed; where the user's code says so nobody gets that unasked */
    bool first_by_files;
    bool next_token; /* it trains models that predict the next token alone */
} vp_language;

/* Of some 1,900 rows of recorded steps (tests/golden/trainers/) the reserved bytes of one are farther off, 2.5 %. */
#define VP_LANGUAGE_RECORDED 0.02
#define VP_LANGUAGE_RECORDED_BASIS \
    "of 1,900 steps that PyTorch ran on a simulated GPU one was farther off"

/* How often the reserved bytes are within low and high. */
#define VP_LANGUAGE_PROBABILITY 0.95

/* VP_ERR_INPUT: the bytes of this trainer's own modules are not modelled. */
vp_status vp_language_of(const vp_target *target, const vp_language **out, vp_err *err);

/* VP_ERR_INPUT: the trainer trains no models with this head. option: by which the user names another. */
vp_status vp_language_trains(const vp_language *language, const vp_model *model, const char *option,
                             vp_err *err);

/* The word of the loss by which all of Liger's kernels are in place; NULL: the trainer has no switch for them, or they are not of
 * this family (NULL: of whichever). */
const char *vp_language_liger(const vp_language *language, const char *family);

/* Whether a word of the loss is one of Liger's, alone or with its other kernels. */
bool vp_language_is_liger(const char *loss);

/* Whether the word is one of a list by spaces; NULL: an empty one. */
bool vp_language_lists(const char *list, const char *word);

#endif
