#include "doctor/traceback.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DISTANCE = 200 }; /* lines between a traceback and the message that it belongs to */

/* What a frame's "file function" or its source line shows, in lower case. */
static const struct {
    const char    *fragment;
    bool           in_source;
    vp_trace_phase phase;
} signs[] = {
    {"_utils/pin_memory.py", false, VP_TRACE_PIN},
    {"save_checkpoint", false, VP_TRACE_SAVE},
    {"_save_checkpoint", false, VP_TRACE_SAVE},
    {"save_model", false, VP_TRACE_SAVE},
    {"save_pretrained", false, VP_TRACE_SAVE},
    {"torch.save(", true, VP_TRACE_SAVE},
    {"get_state_dict", false, VP_TRACE_SAVE},
    {" _full_state_dict", false, VP_TRACE_SAVE},
    {"full_tensor", false, VP_TRACE_SAVE},
    {"_zero3_consolidated_16bit_state_dict", false, VP_TRACE_SAVE},
    {" _init_group", false, VP_TRACE_INIT},
    {" init_state", false, VP_TRACE_INIT},
    {" initialize_optimizer_states", false, VP_TRACE_INIT},
    {"/torch/optim/", false, VP_TRACE_OPTIMIZER},
    {"bitsandbytes/optim", false, VP_TRACE_OPTIMIZER},
    {"_take_model_step", false, VP_TRACE_OPTIMIZER},
    {"optimizer.step(", true, VP_TRACE_OPTIMIZER},
    {"/torch/serialization.py", false, VP_TRACE_LOAD},
    {"load_state_dict", false, VP_TRACE_LOAD},
    {"from_pretrained", false, VP_TRACE_LOAD},
    {"_load_pretrained_model", false, VP_TRACE_LOAD},
    {"load_checkpoint", false, VP_TRACE_LOAD},
    {"resume_from_checkpoint", false, VP_TRACE_LOAD},
    {"torch.load(", true, VP_TRACE_LOAD},
    {"load_state_dict(", true, VP_TRACE_LOAD},
    {"module.py _apply", false, VP_TRACE_MOVE},
    {"module.py cuda", false, VP_TRACE_MOVE},
    {"module.py to", false, VP_TRACE_MOVE},
    {"evaluation_loop", false, VP_TRACE_EVALUATION},
    {"prediction_step", false, VP_TRACE_EVALUATION},
    {" evaluate", false, VP_TRACE_EVALUATION},
    {" validate", false, VP_TRACE_EVALUATION},
    {"validation_step", false, VP_TRACE_EVALUATION},
    {"generation/utils.py", false, VP_TRACE_EVALUATION},
    {"nested_concat", false, VP_TRACE_EVALUATION},
    {"_tensor.py backward", false, VP_TRACE_BACKWARD},
    {"autograd/__init__.py backward", false, VP_TRACE_BACKWARD},
    {"_engine_run_backward", false, VP_TRACE_BACKWARD},
    {".backward(", true, VP_TRACE_BACKWARD},
    {"cross_entropy", false, VP_TRACE_LOSS},
    {"loss_utils.py", false, VP_TRACE_LOSS},
    {"modules/loss.py", false, VP_TRACE_LOSS},
    {"forcausallmloss", false, VP_TRACE_LOSS},
    {" loss_function", false, VP_TRACE_LOSS},
    {" compute_loss_func", false, VP_TRACE_LOSS},
    {"cross_entropy(", true, VP_TRACE_LOSS},
    {"logits.float()", true, VP_TRACE_LOSS},
    {"lm_head(", true, VP_TRACE_LOSS},
    {"log_softmax(", true, VP_TRACE_LOSS},
    {" forward", false, VP_TRACE_FORWARD},
    {" _call_impl", false, VP_TRACE_FORWARD},
};

static const char *const library_paths[] = {"site-packages/", "dist-packages/", "/lib/python",
                                            "<frozen ",       "/torch/",        "importlib/"};

void vp_traceback_begin(vp_traceback *t)
{
    *t = (vp_traceback){0};
}

static void add_signs(vp_trace *trace, const char *text, bool is_source)
{
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (signs[i].in_source == is_source && strstr(text, signs[i].fragment))
            trace->phases |= 1u << signs[i].phase;
}

/* The rank's own trace; the oldest gives way. anew: an empty one. */
static vp_trace *trace_of(vp_traceback *t, int rank, bool anew)
{
    int idx = -1;

    for (int i = 0; i < t->n; i++)
        if (t->traces[i].rank == rank)
            idx = i;
    if (idx < 0 && t->n < VP_MAX_TRACES)
        idx = t->n++;
    if (idx < 0) {
        idx = 0;
        for (int i = 1; i < t->n; i++)
            if (t->traces[i].at_line < t->traces[idx].at_line)
                idx = i;
        anew = true;
    }
    if (anew || t->traces[idx].rank != rank)
        t->traces[idx] = (vp_trace){.rank = rank};
    return &t->traces[idx];
}

static void copy(char *to, size_t size, const char *from, size_t n)
{
    n = n < size ? n : size - 1;
    memcpy(to, from, n);
    to[n] = '\0';
}

/* `File "x.py", line 12, in f`, or IPython's `File ~/x.py:12, in f(self)`. */
static bool read_frame(const char *text, vp_trace_frame *out)
{
    const char *file = strstr(text, "File "), *end, *line, *in;

    if (!file)
        return false;
    file += 5;
    if (*file == '"') {
        file++;
        end  = strchr(file, '"');
        line = end ? strstr(end, ", line ") : NULL;
        line = line ? line + 7 : NULL;
    } else {
        end  = strstr(file, ".py:");
        end  = end ? end + 3 : NULL;
        line = end ? end + 1 : NULL;
    }
    if (!line || end == file)
        return false;
    *out      = (vp_trace_frame){0};
    out->line = (int)strtol(line, NULL, 10);
    in        = strstr(line, ", in ");
    if (out->line < 1)
        return false;
    /* of a long path the end is what tells */
    if (end - file >= (long)sizeof out->file)
        file = end - sizeof out->file + 1;
    copy(out->file, sizeof out->file, file, (size_t)(end - file));
    if (in)
        copy(out->function, sizeof out->function, in + 5, strcspn(in + 5, "(\n"));
    return true;
}

static bool is_library(const char *file)
{
    for (size_t i = 0; i < sizeof library_paths / sizeof *library_paths; i++)
        if (strstr(file, library_paths[i]))
            return true;
    return false;
}

/* The line below a frame, which shows its source. */
static void keep_source(vp_trace *trace, const vp_log_piece *piece, const char *lower)
{
    const char *text  = piece->text + piece->said;
    size_t      blank = strspn(text, " \t");

    add_signs(trace, lower + piece->said, true);
    copy(trace->inner.source, sizeof trace->inner.source, text + blank, strlen(text + blank));
    if (!is_library(trace->inner.file))
        trace->own = trace->inner;
}

bool vp_traceback_feed(vp_traceback *t, const vp_log_piece *piece, const char *lower)
{
    const char    *text = piece->text + piece->said;
    vp_trace_frame frame;
    vp_trace      *trace;
    char           said[400];

    if (strstr(text, "Traceback (most recent call last)")) {
        trace_of(t, piece->rank, true)->at_line = piece->line;
        return true;
    }
    if (read_frame(text, &frame)) {
        trace          = trace_of(t, piece->rank, false);
        trace->at_line = piece->line;
        trace->inner   = frame;
        if (!is_library(frame.file))
            trace->own = frame;
        snprintf(said, sizeof said, "%s %s", frame.file, frame.function);
        for (char *c = said; *c; c++)
            *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
        add_signs(trace, said, false);
        trace->awaits_source = true;
        return true;
    }
    for (int i = 0; i < t->n; i++)
        if (t->traces[i].rank == piece->rank && t->traces[i].awaits_source) {
            bool is_source = strncmp(text, "    ", 4) == 0; /* Python indents it by four */

            if (is_source)
                keep_source(&t->traces[i], piece, lower);
            t->traces[i].awaits_source = false;
            return is_source;
        }
    return false;
}

const vp_trace *vp_traceback_of(const vp_traceback *t, const vp_log_piece *piece)
{
    for (int i = 0; i < t->n; i++)
        if (t->traces[i].rank == piece->rank && t->traces[i].inner.line &&
            piece->line - t->traces[i].at_line <= MAX_DISTANCE)
            return &t->traces[i];
    return NULL;
}

vp_trace_phase vp_trace_phase_of(const vp_trace *trace)
{
    for (int i = 0; i < VP_N_TRACE_PHASES; i++)
        if (trace->phases & 1u << i)
            return (vp_trace_phase)i;
    return VP_N_TRACE_PHASES;
}

const char *vp_trace_phase_word(vp_trace_phase phase)
{
    static const char *const words[] = {
#define X(name, word, text) word,
        VP_TRACE_PHASES(X)
#undef X
    };

    return phase < VP_N_TRACE_PHASES ? words[phase] : NULL;
}

const char *vp_trace_phase_text(vp_trace_phase phase)
{
    static const char *const texts[] = {
#define X(name, word, text) text,
        VP_TRACE_PHASES(X)
#undef X
    };

    return phase < VP_N_TRACE_PHASES ? texts[phase] : NULL;
}
