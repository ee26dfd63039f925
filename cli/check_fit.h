/* cli/check_fit.h: the second half of `vplan check`: whether what the files mean fits, and what to
 * change. */
#ifndef VP_CLI_CHECK_FIT_H
#define VP_CLI_CHECK_FIT_H

#include "cli/calibration.h"
#include "cli/check_zero.h"
#include "cli/cli.h"
#include "trainers/fit/mend.h"
#include "trainers/hf/hf_loader.h"

typedef struct vp_check_fit_options {
    const char *model, *device, *calibration;
    const char *named;      /* what the files call their model, which is none of ours; NULL */
    const char *padding;    /* "mask"; NULL: none */
    const char *class_name; /* NULL: the one that the files load, else the config's */
    vp_amount   budget;
    int64_t     seq;
} vp_check_fit_options;

typedef struct vp_check_fit {
    vp_model *model;
    const char *
        class_name; /* of the model, where the files load another than its own or one is asked for; NULL */
    vp_device         device;
    vp_calibration    calibration; /* of this card; its card is "" where there is none */
    char              calibration_path[VP_CALIBRATION_PATH];
    vp_choose_request request;
    vp_mended         mended;
    vp_check_zero     zero;
    const char       *engine; /* vLLM's part of the card, which request counts with; NULL: none */
    const char       *engine_share; /* the same as plan --reserve has it, "30%" */
    vp_hf_loader_setting loader;    /* as the files write it; workers 0: they write none */
    const char          *why;       /* not answered, and this is why; NULL: mended is the answer */
    /* beside why: what is to be written for the files to run here, "bf16: false, fp16: true", and mended is of them then; NULL */
    const char *instead;
    /* what makes files faster that run as they are, and what it then needs; NULL: nothing */
    const char  *quicker;
    vp_fit_bytes quicker_bytes;
    double       quicker_s;
} vp_check_fit;

/* Model and device as cli/names.h gives them. A length that the model does not have joins the findings.
 * Released by vp_check_fit_release(), whatever comes back. */
vp_status vp_check_fit_find(vp_arena *arena, vp_checked *c, const vp_check_fit_options *o,
                            vp_check_fit *out, vp_err *err);
void      vp_check_fit_release(vp_check_fit *fit);

/* FITS or DOES NOT FIT, in a line; where `why` is NULL. */
void vp_check_fit_answer(const vp_check_fit *x);

/* fits, device_bytes, peak_phase and what goes with them, added to the answer; lines to its
 * "changes". */
void vp_check_fit_json(const vp_check_fit *fit, json_t *answer);
/* line: what was typed, for the command to type next. */
void vp_check_fit_print(const vp_check_fit *fit, const vp_checked *c, const vp_command_line *line);

/* The adapters that settings have, as plan --lora has them. */
const char *vp_check_lora_text(vp_arena *arena, const char *const *values);

#endif
