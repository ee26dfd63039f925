/* doctor/traceback.h: where in a Python program an error came from, read off its traceback as it passes, for each rank
 * by itself.
 *     if (vp_traceback_feed(t, &piece, lower)) continue;      // a frame, or the source line of one
 *     const vp_trace *trace = vp_traceback_of(t, &piece);     // at the exception below it; NULL: none */
#ifndef VP_DOCTOR_TRACEBACK_H
#define VP_DOCTOR_TRACEBACK_H

#include "doctor/log_reader.h"

#include <stdbool.h>

/* X(name, word, what it means for memory). The first that a traceback shows is its phase. */
#define VP_TRACE_PHASES(X) \
    X(PIN, "pinning", "batches are copied into pinned host memory") \
    X(SAVE, "save", "a checkpoint is gathered and written") \
    X(INIT, "optimizer, first step", \
      "the optimizer makes its states: a one-time rise in the first step") \
    X(OPTIMIZER, "optimizer", "the optimizer updates parameters, with temporaries of their size") \
    X(LOAD, "load", "weights are read, beside what the card already holds") \
    X(MOVE, "load", "weights are moved to the card") \
    X(EVALUATION, "evaluation", \
      "an evaluation or generation, mostly with another batch size and whole logits") \
    X(BACKWARD, "backward", "gradients are made while the forward's outputs are still there") \
    X(LOSS, "loss", "the loss takes the logits of all tokens and the whole vocabulary") \
    X(FORWARD, "forward", "the forward keeps its outputs for backward")

typedef enum vp_trace_phase {
#define X(name, word, text) VP_TRACE_##name,
    VP_TRACE_PHASES(X)
#undef X
        VP_N_TRACE_PHASES
} vp_trace_phase;

typedef struct vp_trace_frame {
    char file[200], function[100], source[160]; /* cut at their ends; a file at its beginning */
    int  line;                                  /* 0: there is none */
} vp_trace_frame;

typedef struct vp_trace {
    int            rank, at_line; /* of its last frame */
    unsigned       phases;        /* 1 << phase */
    vp_trace_frame inner, own;    /* the innermost; the innermost outside of libraries */
    bool           awaits_source; /* the next line shows its frame's */
} vp_trace;

enum { VP_MAX_TRACES = 16 };

typedef struct vp_traceback {
    vp_trace traces[VP_MAX_TRACES];
    int      n;
} vp_traceback;

void vp_traceback_begin(vp_traceback *t);

/* lower: the piece's text in lower case. True: it is part of a traceback and no message. */
bool vp_traceback_feed(vp_traceback *t, const vp_log_piece *piece, const char *lower);

/* The traceback that a message of this piece ends. */
const vp_trace *vp_traceback_of(const vp_traceback *t, const vp_log_piece *piece);

/* VP_N_TRACE_PHASES: it shows none. */
vp_trace_phase vp_trace_phase_of(const vp_trace *trace);
const char    *vp_trace_phase_word(vp_trace_phase phase);
const char    *vp_trace_phase_text(vp_trace_phase phase);

#endif
