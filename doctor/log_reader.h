/* doctor/log_reader.h: a log of any size, piece by piece, as a person would read it.
 *     vp_log *log;
 *     VP_TRY(vp_log_open("train.log", &log, err));
 *     while ((st = vp_log_next(log, &piece, err)) == VP_OK && piece.text)
 *         look_at(piece.text, piece.line);
 *     vp_log_close(log);
 *
 * A piece is a line; a redrawn progress bar gives one for each time it was drawn, all of the same
 * line. Colours and other terminal escapes are left out, and so are NULs, which makes ASCII of a
 * UTF-16 file. Where a line is a JSON or Python string with tracebacks in it, its "\n" ends a piece and its
 * "\"" is a quotation mark. A line longer than VP_LOG_PIECE is cut: each piece repeats the end of
 * the one before, so that no message is lost between two. What is no UTF-8 stays as it is. */
#ifndef VP_DOCTOR_LOG_READER_H
#define VP_DOCTOR_LOG_READER_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { VP_LOG_PIECE = 64 << 10, VP_LOG_REPEATED = 8 << 10 };

typedef struct vp_log vp_log;

typedef struct vp_log_piece {
    char  *text; /* NUL-terminated, until the next call; NULL: the end */
    size_t n_bytes;
    int    line; /* 1-based; stays at INT_MAX */
    int    rank; /* of the process that said it: "[rank3]: ", srun's "3: "; -1: nobody says */
    size_t said; /* where what it said begins, behind that */
} vp_log_piece;

/* "-" is standard input, also a pipe. VP_ERR_INPUT: it cannot be read, or is no file. */
vp_status vp_log_open(const char *path, vp_log **out, vp_err *err);
vp_status vp_log_next(vp_log *log, vp_log_piece *piece, vp_err *err);
void      vp_log_close(vp_log *log);

#endif
