#include "doctor/log_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 18 };

/* Inside a terminal's escape sequence (ECMA-48): behind ESC, in ESC [ ... letter, in ESC ] ... BEL. */
typedef enum escape { NO_ESCAPE, AFTER_ESC, CONTROL, COMMAND, COMMAND_ESC } escape;

/* What ended a piece. */
typedef enum piece_end { LINE_END, REDRAWN, CUT, FILE_END } piece_end;

struct vp_log {
    const char   *shown;
    int           fd;
    escape        escape;
    int           line;
    unsigned char raw[READ_BYTES];
    size_t        at, n_raw;
    bool          had_return; /* "\r" was the last byte */
    char          text[VP_LOG_PIECE + 1], unescaped[VP_LOG_PIECE + 1];
    size_t        n_text;
    piece_end     end;
    bool          began; /* a piece was read, so that end says something */
    char         *parts; /* what is left of a piece that holds several */
};

vp_status vp_log_open(const char *path, vp_log **out, vp_err *err)
{
    bool        is_stdin = strcmp(path, "-") == 0;
    const char *shown    = is_stdin ? "standard input" : path;
    struct stat info;
    vp_status   st  = VP_OK;
    vp_log     *log = calloc(1, sizeof *log);

    *out = NULL;
    VP_TRY_ALLOC(err, log);
    log->shown = shown;
    log->line  = 1;
    log->fd    = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (log->fd < 0)
        VP_TRY(
            VP_FAIL_AT(err, VP_ERR_INPUT, shown, 0, NULL, "cannot open it: %s", strerror(errno)));
    if (fstat(log->fd, &info) == 0 && S_ISDIR(info.st_mode))
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, shown, 0, NULL, "is a directory, not a log"));
    *out = log;
    log  = NULL;
out:
    vp_log_close(log);
    return st;
}

void vp_log_close(vp_log *log)
{
    if (!log)
        return;
    if (log->fd > STDIN_FILENO)
        close(log->fd);
    free(log);
}

/* *any is false at the end. */
static vp_status fill(vp_log *log, bool *any, vp_err *err)
{
    ssize_t n;

    do
        n = read(log->fd, log->raw, sizeof log->raw);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return VP_FAIL_AT(err, VP_ERR_INPUT, log->shown, log->line, NULL, "cannot read it: %s",
                          strerror(errno));
    log->at    = 0;
    log->n_raw = (size_t)n;
    *any       = n > 0;
    return VP_OK;
}

/* Whether c belongs to an escape sequence, whose state moves on. */
static bool escaped(vp_log *log, unsigned char c)
{
    switch (log->escape) {
    case NO_ESCAPE:
        if (c != 0x1b)
            return false;
        log->escape = AFTER_ESC;
        return true;
    case AFTER_ESC:
        log->escape = c == '[' ? CONTROL : c == ']' ? COMMAND : NO_ESCAPE;
        return true;
    case CONTROL: /* a line end in it: it was none */
        log->escape = (c >= 0x40 && c <= 0x7e) || c == '\n' ? NO_ESCAPE : CONTROL;
        return c != '\n';
    case COMMAND:
        log->escape = c == 0x07 || c == '\n' ? NO_ESCAPE : c == 0x1b ? COMMAND_ESC : COMMAND;
        return c != '\n';
    default:
        log->escape = NO_ESCAPE;
        return c != '\n';
    }
}

/* Bytes up to the end of a piece into text. */
static vp_status take(vp_log *log, vp_err *err)
{
    vp_status st  = VP_OK;
    bool      any = true;

    while (log->n_text < VP_LOG_PIECE) {
        unsigned char c;

        if (log->at == log->n_raw)
            VP_TRY(fill(log, &any, err));
        log->end = FILE_END;
        if (!any)
            goto out;
        c        = log->raw[log->at];
        log->end = REDRAWN;
        if (log->had_return && c != '\n') {
            log->had_return = false;
            if (log->n_text)
                goto out;
        }
        log->at++;
        if ((log->escape != NO_ESCAPE || c == 0x1b) && escaped(log, c))
            continue;
        log->end = LINE_END;
        if (c == '\n') {
            log->had_return = false;
            goto out;
        }
        if (c == '\r')
            log->had_return = true;
        else if (c)
            log->text[log->n_text++] = (char)c;
    }
    log->end = CUT;
out:
    return st;
}

/* A colour as a string spells it, "\u001b[31m" or "\x1b[0m", at its first letter; its length, or 0. */
static size_t spelled_colour(const char *p)
{
    size_t n = strncmp(p, "u001b[", 6) == 0 ? 6 : strncmp(p, "x1b[", 4) == 0 ? 4 : 0;

    if (n)
        n += strspn(p + n, "0123456789;");
    return n && p[n] ? n + 1 : 0;
}

/* "\n" and the like of a string in a string: one backslash or several before a letter. */
static void unescape(const char *text, char *to)
{
    for (const char *p = text; *p;) {
        size_t n = strspn(p, "\\"), colour = n ? spelled_colour(p + n) : 0;

        if (n == 0) {
            *to++ = *p++;
        } else if (colour) {
            p += n + colour;
        } else if (p[n] && strchr("nrt\"'/", p[n])) {
            *to++ = p[n] == 't' ? '\t' : p[n] == 'n' || p[n] == 'r' ? '\n' : p[n];
            p += n + 1;
        } else {
            memcpy(to, p, n);
            to += n;
            p += n;
        }
    }
    *to = '\0';
}

/* Digits at p behind some text; -1: it does not stand there. *end: behind what closes it. */
static int number_behind(const char *p, const char *head, const char *tail, const char **end)
{
    size_t n     = strlen(head);
    int    value = 0, digits = 0;

    if (strncmp(p, head, n) != 0)
        return -1;
    for (p += n; *p >= '0' && *p <= '9' && digits < 6; digits++)
        value = 10 * value + *p++ - '0';
    if (!digits || strncmp(p, tail, strlen(tail)) != 0)
        return -1;
    *end = p + strlen(tail);
    return value;
}

/* Who says it, as torchrun, srun -l, mpirun --tag-output and others put it before a line. */
static void find_rank(vp_log_piece *piece)
{
    static const char *const forms[][2] = {
        {"[rank", "]:"},       {"[default", "]:"}, {"[1,", "]<stderr>:"},
        {"[1,", "]<stdout>:"}, {"[", "]:"},        {"rank", ":"},
        {"rank ", ":"},        {"Rank ", ":"},     {"", ": "}};
    const char *p = piece->text + strspn(piece->text, " "), *end = p;

    piece->rank = -1;
    piece->said = 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && piece->rank < 0; i++)
        piece->rank = number_behind(p, forms[i][0], forms[i][1], &end);
    if (piece->rank >= 0)
        piece->said = (size_t)(end - piece->text) + (*end == ' ');
}

/* The next piece of a line that holds several. */
static void next_part(vp_log *log, vp_log_piece *piece)
{
    char *end = strchr(log->parts, '\n');

    piece->text = log->parts;
    log->parts  = end ? end + 1 : NULL;
    if (end)
        *end = '\0';
    piece->n_bytes = strlen(piece->text);
    find_rank(piece);
}

vp_status vp_log_next(vp_log *log, vp_log_piece *piece, vp_err *err)
{
    vp_status st = VP_OK;

    *piece = (vp_log_piece){.line = log->line};
    if (!log->parts) {
        if (log->end == LINE_END && log->began && log->line < INT_MAX)
            piece->line = ++log->line;
        log->began  = true;
        log->n_text = log->end == CUT ? VP_LOG_REPEATED : 0;
        if (log->end == CUT)
            memmove(log->text, log->text + VP_LOG_PIECE - VP_LOG_REPEATED, VP_LOG_REPEATED);
        log->end = LINE_END;
        VP_TRY(take(log, err));
        if (log->end == FILE_END && log->n_text == 0)
            goto out;
        log->text[log->n_text] = '\0';
        log->parts             = log->text;
        if (memchr(log->text, '\\', log->n_text) && strpbrk(log->text, "\"'")) {
            unescape(log->text, log->unescaped);
            log->parts = log->unescaped;
        }
    }
    next_part(log, piece);
out:
    return st;
}
