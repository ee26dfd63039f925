#include "doctor/oom.h"

#include "base/text.h"
#include "doctor/fragments.h"
#include "doctor/oom_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_MESSAGES  = 256,
    MAX_OPEN      = 16,   /* messages that may go on, one a rank */
    MAX_LINES_ON  = 12,   /* how many lines one may go on for */
    MAX_WHOLE     = 4096, /* bytes of one */
    MAX_SHOWN     = 400,
    MAX_COMMAND   = 4000,
    ONE_INCIDENT  = 60, /* lines that one failure takes to say it */
    LINE_OVERLAP  = 2000,
    MAX_WORDINGS  = 512,
    FRAME_ANCHORS = 3
};

/* What begins a training command on a line. */
static const char *const command_words[]            = {"torchrun ",      "accelerate launch ",
                                                       "deepspeed ",     "python -m ",
                                                       "python3 -m ",    ".py --",
                                                       "axolotl train ", "llamafactory-cli train ",
                                                       "swift sft ",     "tune run "};
static const char *const frame_words[FRAME_ANCHORS] = {"file \"", "traceback (most", ".py:"};

typedef struct reader {
    vp_arena       *arena;
    vp_err         *err;
    vp_fragments   *fragments;
    int             n_wordings, n_commands;
    vp_traceback    traceback;
    vp_oom_message *messages;
    int             n_messages;
    struct {
        vp_oom_message *message;
        int             n_lines;
    } open[MAX_OPEN];
    int            n_open;
    const char    *command;
    char           lower[VP_LOG_PIECE + 1];
    vp_oom_message exception; /* the last line of the last traceback, whatever it says */
    char           exception_text[MAX_SHOWN];
} reader;

/* Whether one of the words of "a|b" stands in text. */
static bool has_one(const char *text, const char *words)
{
    char word[80];

    for (const char *p = words; *p;) {
        size_t n = strcspn(p, "|");
        assert(n && n < sizeof word);
        memcpy(word, p, n);
        word[n] = '\0';
        if (strstr(text, word))
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

/* Behind what Ray puts before the lines of its workers: "(Trainer pid=41, ip=10.0.0.1) ". */
static const char *after_worker(const char *said)
{
    const char *start = said + strspn(said, " \t"), *end = strchr(start, ')');
    const char *pid = strstr(start, " pid=");

    return *start == '(' && pid && end && pid < end ? end + 1 : said;
}

/* "Killed", and a shell's "run.sh: line 3: 4321 Killed   python train.py". */
static bool is_whole_line(const char *said, const char *word)
{
    const char *at = strstr(said, word), *line = strstr(said, "line "), *start = after_worker(said);
    size_t      n = strlen(word);

    if (!at)
        return false;
    if (at == start + strspn(start, " \t") && !at[n + strspn(at + n, " \t.")])
        return true;
    return line && line < at && at > said && at[-1] == ' ' && at[n] == ' ' &&
           strchr("0123456789 ", at[-2]);
}

static bool fits(const vp_wording *w, const char *said)
{
    if (w->whole_line && !is_whole_line(said, w->anchor))
        return false;
    return (!w->with || has_one(said, w->with)) && (!w->and_with || has_one(said, w->and_with)) &&
           !(w->without && has_one(said, w->without));
}

static bool is_word_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (unsigned char)c >= 0x80;
}

/* Plain words of a sentence right before a message: "i get this error all day: ". A log has a time, a level and a
 * name of an exception there. */
static int n_words_before(const char *said, const char *at)
{
    int n = 0;

    for (const char *p = at; p > said && at - p < 200;) {
        const char *end;

        while (p > said && p[-1] == ' ')
            p--;
        end = p;
        while (p > said && p[-1] != ' ')
            p--;
        if (end == p)
            break;
        for (const char *c = p; c < end; c++)
            if (!is_word_byte(*c) && !(c == end - 1 && (*c == ',' || *c == ':')))
                goto next;
        n += end - p >= 2;
    next:;
    }
    return n;
}

/* Whether the words are quoted: a sample of a data set, a line of a program, a sentence of a person. */
static bool is_quoted(const vp_wording *w, const char *said, const vp_amounts *numbers)
{
    static const char keys[] =
        "\"prompt\"|\"instruction\"|\"question\"|\"messages\"|\"completion\"|\"response\"|"
        "\"content\"|'content'|'prompt'|<|user|>|### instruction|sample:|prompt:|question:";
    static const char code[] = "except |raise |\" in str(|' in str(|in str(e)|in repr(e)";
    const char       *at     = strstr(said, w->anchor);
    bool              told   = numbers->bytes[VP_OOM_REQUESTED] >= 0;
    char              before[512];
    size_t            n;
    int               words;

    if (!at || w->tier == VP_TIER_NOTICE)
        return false;
    n = (size_t)(at - said) < sizeof before ? (size_t)(at - said) : sizeof before - 1;
    memcpy(before, at - n, n);
    before[n] = '\0';
    words     = n_words_before(said, at);
    if (has_one(before, keys))
        return words >= 2 || !told;
    if (has_one(before, code) && !told)
        return true;
    return words >= 4 && !told && w->any_class;
}

/* The smaller, the stronger. */
static int strength(const vp_oom_message *m)
{
    return m->is_quoted ? VP_TIER_NOTICE + 1 : (int)m->wording->tier;
}

/* Where a message of this strength is kept: after many, in place of the last weaker one; NULL: nowhere. */
static vp_oom_message *place_for(reader *r, int strength_)
{
    vp_oom_message *to = NULL;

    if (r->n_messages < MAX_MESSAGES)
        return &r->messages[r->n_messages++];
    for (int i = MAX_MESSAGES - 1; i >= 0 && !to; i--)
        if (strength(&r->messages[i]) > strength_)
            to = &r->messages[i];
    for (int i = 0; to && i < r->n_open; i++) /* it goes on no longer */
        if (r->open[i].message == to)
            r->open[i--] = r->open[--r->n_open];
    return to;
}

static char *cut_copy(vp_arena *arena, const char *text, size_t n_bytes, size_t max)
{
    size_t n  = n_bytes < max ? n_bytes : max;
    char  *to = vp_arena_alloc(arena, n + 1);

    if (to)
        memcpy(to, text, n);
    return to;
}

static void close_message(reader *r, int idx)
{
    vp_oom_message *m = r->open[idx].message;

    vp_amounts_begin(&m->numbers);
    vp_amounts_read(m->whole, &m->numbers);
    r->open[idx] = r->open[--r->n_open];
}

static bool is_complete(const char *whole)
{
    return has_one(whole, "but unallocated|by pytorch)| cached)| inactive)");
}

/* Lines behind a message may be a part of it: people paste what a terminal has broken. */
static vp_status go_on(reader *r, const vp_log_piece *piece, const char *said)
{
    vp_status st = VP_OK;

    for (int i = 0; i < r->n_open; i++) {
        vp_oom_message *m = r->open[i].message;
        size_t          n = strlen(m->whole), more = strlen(said);

        if (m->rank != piece->rank || piece->line == m->line)
            continue;
        if (!said[strspn(said, " \t")] || strstr(said, "traceback (most") ||
            ++r->open[i].n_lines > MAX_LINES_ON || n + more > MAX_WHOLE || is_complete(m->whole)) {
            close_message(r, i--);
            continue;
        }
        m->whole = vp_arena_printf(r->arena, "%s %s", m->whole, said);
        VP_TRY_ALLOC(r->err, m->whole);
    }
out:
    return st;
}

/* The part of a long line around a fragment; the line is cut behind it. */
static const char *window(char *said, const char *anchor, size_t *n)
{
    char *at = strstr(said, anchor), *from = said;

    if (at && at - said > LINE_OVERLAP)
        from = at - LINE_OVERLAP;
    *n = strlen(from);
    if (*n > MAX_WHOLE + LINE_OVERLAP)
        from[ *n = MAX_WHOLE + LINE_OVERLAP] = '\0';
    return from;
}

static vp_status look_at(reader *r, const vp_log_piece *piece, const vp_wording *w)
{
    char           *said = r->lower + piece->said;
    const char     *from;
    vp_oom_message  m = {.wording = w, .line = piece->line, .rank = piece->rank}, *kept;
    const vp_trace *trace;
    size_t          n, at;
    vp_status       st = VP_OK;

    from = window(said, w->anchor, &n);
    at   = (size_t)(from - r->lower);
    vp_amounts_begin(&m.numbers);
    vp_amounts_read(from, &m.numbers);
    m.is_quoted = is_quoted(w, from, &m.numbers);
    kept        = place_for(r, strength(&m));
    if (!kept)
        goto out;
    m.text  = cut_copy(r->arena, piece->text + at, n, MAX_SHOWN);
    m.whole = cut_copy(r->arena, from, n, MAX_WHOLE);
    trace   = vp_traceback_of(&r->traceback, piece);
    if (trace && !m.is_quoted) {
        vp_trace *copy = vp_arena_alloc(r->arena, sizeof *copy);
        VP_TRY_ALLOC(r->err, copy);
        *copy   = *trace;
        m.trace = copy;
    }
    *kept = m;
    VP_TRY_ALLOC(r->err, m.text && m.whole);
    if (w->goes_on && !m.is_quoted && r->n_open < MAX_OPEN) {
        r->open[r->n_open].message   = kept;
        r->open[r->n_open++].n_lines = 0;
    }
out:
    return st;
}

/* A line that runs a training program, from its program's name. */
static vp_status keep_command(reader *r, const vp_log_piece *piece, const char *word)
{
    const char *said = r->lower + piece->said, *at = strstr(said, word), *from;
    vp_status   st = VP_OK;

    if (r->command || !at)
        return VP_OK;
    from = at;
    if (word[0] == '.' || strncmp(word, "python", 6) == 0) { /* back to python, or to the script */
        const char *python = strstr(said, "python");
        while (from > said && from[-1] != ' ' && from[-1] != '\'' && from[-1] != '"')
            from--;
        if (python && python < from) {
            from = python;
            while (from > said && from[-1] != ' ' && from[-1] != '\'' && from[-1] != '"')
                from--;
        } else if (from > said && from[-1] == '\0') {
            return VP_OK;
        }
    }
    if (!strstr(from, " --") && !strstr(from, ".py"))
        return VP_OK;
    r->command = cut_copy(r->arena, piece->text + (from - r->lower), strlen(from), MAX_COMMAND);
    VP_TRY_ALLOC(r->err, r->command);
out:
    return st;
}

/* "ValueError: ..." behind a traceback: what a run without a shortage died of. */
static void keep_exception(reader *r, const vp_log_piece *piece)
{
    const char *text = piece->text + piece->said;
    size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.0123456789");

    if (n < 5 || (text[n] && text[n] != ':') || !vp_traceback_of(&r->traceback, piece) ||
        !(strncmp(text + n - 5, "Error", 5) == 0 || strncmp(text + n - 5, "ption", 5) == 0 ||
          strncmp(text + n - 5, "rrupt", 5) == 0))
        return;
    r->exception.line = piece->line;
    snprintf(r->exception_text, sizeof r->exception_text, "%s", text);
}

/* The line in which PyTorch repeats what NCCL said of an error: a part of PyTorch's message. */
static bool is_last_error(const reader *r, const vp_log_piece *piece, const vp_wording *w)
{
    if (!w->framework || strcmp(w->framework, "nccl") != 0)
        return false;
    for (int i = 0; i < r->n_open; i++)
        if (r->open[i].message->rank == piece->rank &&
            strstr(r->open[i].message->whole, "last error:"))
            return true;
    return false;
}

static vp_status read_piece(reader *r, const vp_log_piece *piece)
{
    int found[VP_MAX_FOUND],
        n             = vp_fragments_find(r->fragments, piece->text, piece->n_bytes, found);
    int         first = r->n_wordings, command = -1;
    bool        awaits = r->n_open > 0, frames = false;
    const char *said;
    vp_status   st = VP_OK;

    for (int i = 0; i < r->traceback.n; i++)
        awaits |= r->traceback.traces[i].awaits_source ||
                  piece->line - r->traceback.traces[i].at_line <= 4;
    if (!n && !awaits)
        return VP_OK;
    for (size_t i = 0; i <= piece->n_bytes; i++) {
        char c      = piece->text[i];
        r->lower[i] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    said = r->lower + piece->said;
    VP_TRY(go_on(r, piece, said));
    for (int i = 0; i < n; i++)
        frames |= found[i] >= r->n_wordings + r->n_commands;
    if ((frames || awaits) && vp_traceback_feed(&r->traceback, piece, r->lower))
        goto out;
    for (int i = 0; i < n; i++) {
        if (found[i] < first && fits(vp_wording_at(found[i]), said))
            first = found[i];
        else if (found[i] >= r->n_wordings && found[i] < r->n_wordings + r->n_commands &&
                 command < 0)
            command = found[i] - r->n_wordings;
    }
    if (first < r->n_wordings && !is_last_error(r, piece, vp_wording_at(first)))
        VP_TRY(look_at(r, piece, vp_wording_at(first)));
    else if (command >= 0)
        VP_TRY(keep_command(r, piece, command_words[command]));
    if (awaits)
        keep_exception(r, piece);
out:
    return st;
}

static vp_status begin(reader *r)
{
    const char       *anchors[MAX_WORDINGS];
    const vp_wording *w;
    int               n  = 0;
    vp_status         st = VP_OK;

    for (; (w = vp_wording_at(n)); n++) {
        assert(n < MAX_WORDINGS - 32);
        anchors[n] = w->anchor;
    }
    r->n_wordings = n;
    r->n_commands = sizeof command_words / sizeof *command_words;
    for (int i = 0; i < r->n_commands; i++)
        anchors[n++] = command_words[i];
    for (int i = 0; i < FRAME_ANCHORS; i++)
        anchors[n++] = frame_words[i];
    r->fragments = vp_fragments_new(r->arena, anchors, n);
    r->messages  = vp_arena_array(r->arena, MAX_MESSAGES, sizeof *r->messages);
    VP_TRY_ALLOC(r->err, r->fragments && r->messages);
    vp_traceback_begin(&r->traceback);
out:
    return st;
}

/* A message that needs lines which did not come is none; one of NCCL's means what its last line says. */
static void settle(reader *r)
{
    int n = 0;

    while (r->n_open)
        close_message(r, r->n_open - 1);
    for (int i = 0; i < r->n_messages; i++)
        if (!r->messages[i].wording->later ||
            strstr(r->messages[i].whole, r->messages[i].wording->later))
            r->messages[n++] = r->messages[i];
    r->n_messages = n;
}

static bool same_framework(const vp_oom_message *a, const vp_oom_message *b)
{
    return a->wording->framework && b->wording->framework &&
           strcmp(a->wording->framework, b->wording->framework) == 0;
}

/* The first of the strongest; of a kernel's report the line that names who was killed. */
static vp_oom_message *choose(reader *r)
{
    vp_oom_message *best = NULL;

    for (int i = 0; i < r->n_messages; i++)
        if (!best || strength(&r->messages[i]) < strength(best))
            best = &r->messages[i];
    if (!best || !best->wording->framework || strcmp(best->wording->framework, "linux") != 0 ||
        best->numbers.bytes[VP_OOM_RSS] >= 0)
        return best;
    for (vp_oom_message *m = best;
         m < r->messages + r->n_messages && m->line - best->line <= ONE_INCIDENT; m++)
        if (same_framework(m, best) && m->numbers.bytes[VP_OOM_RSS] >= 0)
            return m;
    return best;
}

static void add_evidence(vp_oom *oom, const vp_oom_message *m)
{
    for (int i = 0; i < oom->n_evidence; i++)
        if (oom->evidence[i].line == m->line)
            return;
    if (oom->n_evidence < VP_MAX_EVIDENCE)
        oom->evidence[oom->n_evidence++] = (vp_evidence){.line = m->line, .text = m->text};
}

static int by_line(const void *a, const void *b)
{
    return ((const vp_evidence *)a)->line - ((const vp_evidence *)b)->line;
}

/* What other lines of the same failure know, and what followed. */
static void gather(reader *r, const vp_oom_message *best, vp_oom *oom)
{
    add_evidence(oom, best);
    for (int pass = 0; pass < 2; pass++) /* first what is of the same failure */
        for (int i = 0; i < r->n_messages; i++) {
            const vp_oom_message *m = &r->messages[i];
            bool near = abs(m->line - best->line) <= ONE_INCIDENT && same_framework(m, best) &&
                        m->rank == best->rank;

            if (m == best || m->is_quoted || near != (pass == 0))
                continue;
            if (near)
                vp_amounts_merge(&oom->numbers, &m->numbers);
            if (near || m->wording->tier != VP_TIER_NOTICE)
                add_evidence(oom, m);
        }
    qsort(oom->evidence, (size_t)oom->n_evidence, sizeof *oom->evidence, by_line);
}

/* The narrowest range of versions that the message's parts allow. */
static void find_versions(const vp_oom_message *m, vp_oom *oom)
{
    const vp_dated_fragment *f;

    oom->since = m->wording->since;
    oom->until = m->wording->until;
    for (int i = 0; oom->framework && (f = vp_dated_fragment_at(i)); i++)
        if (strncmp(oom->framework, f->framework, strlen(f->framework)) == 0 &&
            strstr(m->whole, f->fragment)) {
            if (f->since && (!oom->since || strverscmp(f->since, oom->since) > 0))
                oom->since = f->since;
            if (f->until && (!oom->until || strverscmp(f->until, oom->until) < 0))
                oom->until = f->until;
        }
}

/* The answer from what was read. */
static vp_status conclude(reader *r, vp_oom *oom)
{
    vp_oom_message *best = choose(r);
    vp_status       st   = VP_OK;

    oom->command = r->command;
    oom->phase   = VP_N_TRACE_PHASES;
    if (!best || (r->exception.line && strength(best) >= VP_TIER_NOTICE)) {
        oom->class_ = VP_OOM_CLASS_NOT_OOM;
        oom->line   = r->exception.line;
        oom->says   = oom->line ? "no line says that memory ran out; this ended the program"
                                : "no line says that memory ran out";
        if (oom->line)
            add_evidence(oom, &r->exception);
        goto out;
    }
    oom->line      = best->line;
    oom->rank      = best->rank;
    oom->numbers   = best->numbers;
    oom->framework = best->wording->framework ? best->wording->framework
                                              : vp_oom_framework_by_words(best->whole);
    oom->trace     = best->trace;
    if (best->trace)
        oom->phase = vp_trace_phase_of(best->trace);
    gather(r, best, oom);
    find_versions(best, oom);
    VP_TRY(vp_oom_classify(r->arena, best, oom, r->err));
    VP_TRY(vp_oom_find_remedies(r->arena, best, oom, r->err));
out:
    return st;
}

vp_status vp_oom_read(vp_arena *arena, const char *path, vp_oom **out, vp_err *err)
{
    vp_log      *log = NULL;
    vp_log_piece piece;
    vp_status    st  = VP_OK;
    vp_oom      *oom = vp_arena_alloc(arena, sizeof *oom);
    reader      *r   = vp_arena_alloc(arena, sizeof *r);

    *out = NULL;
    VP_TRY_ALLOC(err, oom && r);
    r->arena          = arena;
    r->exception.text = r->exception_text;
    r->err            = err;
    oom->rank         = -1;
    vp_amounts_begin(&oom->numbers);
    VP_TRY(begin(r));
    VP_TRY(vp_log_open(path, &log, err));
    for (;;) {
        VP_TRY(vp_log_next(log, &piece, err));
        if (!piece.text)
            break;
        oom->n_lines = piece.line;
        VP_TRY(read_piece(r, &piece));
    }
    settle(r);
    VP_TRY(conclude(r, oom));
    *out = oom;
out:
    vp_log_close(log);
    return st;
}

const char *vp_oom_class_word(vp_oom_class class_)
{
    static const char *const words[] = {
#define X(name, word, text) word,
        VP_OOM_CLASSES(X)
#undef X
    };

    assert(class_ < VP_N_OOM_CLASSES);
    return words[class_];
}

const char *vp_oom_class_text(vp_oom_class class_)
{
    static const char *const texts[] = {
#define X(name, word, text) text,
        VP_OOM_CLASSES(X)
#undef X
    };

    assert(class_ < VP_N_OOM_CLASSES);
    return texts[class_];
}

const char *vp_oom_number_key(vp_oom_number number)
{
    static const char *const keys[] = {
#define X(name, key, text) key,
        VP_OOM_NUMBERS(X)
#undef X
    };

    assert(number < VP_N_OOM_NUMBERS);
    return keys[number];
}

const char *vp_oom_number_text(vp_oom_number number)
{
    static const char *const texts[] = {
#define X(name, key, text) text,
        VP_OOM_NUMBERS(X)
#undef X
    };

    assert(number < VP_N_OOM_NUMBERS);
    return texts[number];
}
