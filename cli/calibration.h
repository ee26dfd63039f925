/* cli/calibration.h: what runs on a card took beyond their estimates, kept for later ones.
 *     VP_TRY(vp_calibration_path(NULL, path, sizeof path, err));
 *     VP_TRY(vp_calibration_find(path, "NVIDIA L40S", &kept, err));          kept.card is "": none
 *     VP_TRY(vp_calibration_keep(path, &kept, err));
 *
 * A file of lines "card TAB driver TAB torch TAB context_bytes TAB cache_bytes", "-" where it is not known; "#" begins a
 * remark. Bytes are added as they are, never a factor. */
#ifndef VP_CLI_CALIBRATION_H
#define VP_CLI_CALIBRATION_H

#include "base/err.h"
#include "dryrun/dryrun_run.h"

#include <jansson.h>

#include <stddef.h>
#include <stdint.h>

enum { VP_CALIBRATION_WORD = 80, VP_CALIBRATION_PATH = 4096 };

typedef struct vp_calibration {
    char    card[VP_CALIBRATION_WORD], driver[VP_CALIBRATION_WORD], torch[VP_CALIBRATION_WORD];
    int64_t context_bytes; /* of the process what is not PyTorch's; -1: not measured */
    int64_t cache_bytes;   /* reserved beyond what was estimated, of as many allocated */
} vp_calibration;

/* given; else $XDG_STATE_HOME/vplan/calibration, ~/.local/state/vplan/calibration. "" for "none", and where there is no
 * home. VP_ERR_USAGE: too long. */
vp_status vp_calibration_path(const char *given, char *out, size_t size, vp_err *err);

/* The last line of this card. No such file, or path "": none. VP_ERR_INPUT, located. */
vp_status vp_calibration_find(const char *path, const char *card, vp_calibration *out, vp_err *err);

/* The card's name as a calibration has it. Returns buf. */
const char *vp_calibration_card(const vp_device *card, char *buf, size_t size);

/* What a process takes of this card outside PyTorch's allocator, with what was kept of earlier runs in it: out->card is "" where
 * nothing was. */
vp_status vp_calibration_outside(const char *path, const vp_device *card,
                                 vp_dryrun_context *outside, vp_calibration *out, vp_err *err);

/* What an answer says of it, as an assumption and as an object; is_new: this run's own. */
json_t *vp_calibration_said(const vp_calibration *c, const char *path, bool is_new);
json_t *vp_calibration_json(const vp_calibration *c, const char *path, bool is_new);

/* In place of a line of the same card, driver and torch, or behind the others; makes the last folders of the path. */
vp_status vp_calibration_keep(const char *path, const vp_calibration *c, vp_err *err);

#endif
