/* base/options.h: the options of a program as records. Parsing, help, completion and the man page
 * all come from the same rows, so that none of them can forget an option.
 *
 *     typedef struct values { int64_t budget_bytes; bool force; } values;
 *     static const vp_option rows[] = {
 *         {.name = "--budget", .kind = VP_OPTION_SIZE, .at = offsetof(values, budget_bytes),
 *          .value = "SIZE", .help = "the memory there is", .otherwise = "what the device has",
 *          .example = "24GiB"},
 *         {.name = "--force", .kind = VP_OPTION_FLAG, .at = offsetof(values, force),
 *          .help = "replace files that exist"},
 *     };
 *     static const vp_option_set set = {NULL, rows, 2};
 *
 *     vp_options_spec spec = {.sets = (const vp_option_set *[]){&set}, .n_sets = 1};
 *     VP_TRY(vp_options_parse(&spec, argc - 1, argv + 1, (void *[]){&v}, &line, err));
 *
 * Rows that several programs or subcommands take stand in a set of their own, filled into a struct
 * of its own. */
#ifndef VP_BASE_OPTIONS_H
#define VP_BASE_OPTIONS_H

#include "base/err.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum vp_option_kind {
    VP_OPTION_FLAG,   /* bool, takes no value                                      */
    VP_OPTION_TEXT,   /* const char *                                              */
    VP_OPTION_INPUT,  /* const char *, a file or folder that is read               */
    VP_OPTION_OUTPUT, /* const char *, a file or folder that is written, never "-" */
    VP_OPTION_CHOICE, /* const char *, one of the row's words                      */
    VP_OPTION_COUNT,  /* int64_t, a whole number in [min, max]                     */
    VP_OPTION_SIZE,   /* int64_t, bytes, as base/units.h reads them                */
    VP_OPTION_AMOUNT, /* vp_amount: bytes, or a share: "80%"                       */
    VP_OPTION_REAL    /* double, in [low, high]                                    */
} vp_option_kind;

/* The most a count goes to where its row does not say. */
#define VP_OPTION_MAX_COUNT INT64_C(1000000000000)

typedef struct vp_option {
    const char    *name; /* "--budget" or "-o" */
    vp_option_kind kind;
    size_t         at;    /* offset of its field in the set's struct */
    const char    *value; /* what help calls the value, "SIZE"; NULL for a choice: its words */
    const char    *unit;  /* of a count or a real number: "tokens" */
    const char    *help;  /* what it does: part of a sentence, of one line or several */
    /* the value where it is not given, as one would type it: it is parsed first */
    const char *preset;
    /* or the same in words, where the program works it out */
    const char *otherwise;
    const char *example; /* a value worth copying; of a flag nothing */
    /* the value where none is typed: another option follows, or nothing does */
    const char *alone;
    /* A choice: the words of a table (NULL past its end), then these, "auto|off". */
    const char *(*word_at)(int i);
    const char *words;
    const char *(*meant)(const char *text); /* the word others call so, or a sentence; or NULL */
    bool    open;      /* of a choice: there are other values, which the program reads itself */
    int64_t min, max;  /* of a count; max 0: VP_OPTION_MAX_COUNT */
    double  low, high; /* of a real number; high 0: 1e30 */
    bool    repeats;   /* may be given twice; of a value, the last stands and given[] has all */
    bool    any_word;  /* a value may begin with dashes */
    /* what a shell can offer for an open value besides its words; NULL past the end */
    const char *(*suggest)(int i);
} vp_option;

typedef struct vp_option_set {
    const char      *title; /* over these rows in help; NULL: "options" */
    const vp_option *rows;
    int              n;
} vp_option_set;

typedef struct vp_options_spec {
    const vp_option_set *const *sets;
    int                         n_sets;
    int  max_words;  /* words that belong to no option; at most VP_MAX_WORDS */
    bool takes_rest; /* "-- CMD..."; else "--" only ends the options */
    /* What to say of an unknown option that is no misspelling: "--epochs" of a program that counts
     * steps. Writes a part of a sentence, or returns false. May be NULL. */
    bool (*hint)(const void *ctx, const char *name, char *buf, size_t buf_size);
    /* The same of a word too many. May be NULL. */
    bool (*word_hint)(const void *ctx, const char *word, char *buf, size_t buf_size);
    const void *hint_ctx;
} vp_options_spec;

enum { VP_MAX_WORDS = 16, VP_MAX_GIVEN = 64 };

/* What stood on the command line. Everything points into argv. */
typedef struct vp_command_line {
    const char *words[VP_MAX_WORDS];
    int         n_words;
    char      **rest; /* what is behind "--", NULL-terminated as argv is; NULL: no "--" */
    struct {
        const vp_option *option;
        const char      *text; /* NULL of a flag */
    } given[VP_MAX_GIVEN];
    int  n_given;
    char note[200]; /* of a value that is right and looks wrong; "" if there is none */
} vp_command_line;

/* Read argv[0 .. argc), which holds no program's name. values[i] is the struct that the rows of
 * spec->sets[i] fill; what is not given keeps its value, or gets the row's preset. Options stand in
 * any place before "--", as "--name value" and "--name=value".
 * VP_ERR_USAGE: an unknown option (with the nearest known one), a missing or malformed value, a
 * value that is itself an option, the same option twice, a word too many. */
vp_status vp_options_parse(const vp_options_spec *spec, int argc, char **argv, void *const *values,
                           vp_command_line *line, vp_err *err);

/* The row of this name; NULL if there is none. */
const vp_option *vp_option_find(const vp_option_set *const *sets, int n_sets, const char *name);

/* Word i of a choice, in buf; false past the end. */
bool vp_option_word(const vp_option *option, int i, char *buf, size_t buf_size);

/* What stands for the value in help: "SIZE", "none|mask"; "" of a flag. */
const char *vp_option_value_text(const vp_option *option, char *buf, size_t buf_size);

/* What the row says, as sentences: what it does, its unit and range, its default. Plain text
 * without line ends. */
void vp_option_describe(const vp_option *option, vp_text *out);

/* The rows of some sets in two columns, at most 80 wide. */
void vp_options_help(const vp_option_set *const *sets, int n_sets, vp_text *out);

/* Text broken at spaces into lines of at most 80 columns, each behind `indent` spaces; the first
 * continues a line of `column` columns. */
void vp_text_wrap(const char *text, int column, int indent, vp_text *out);

/* ---- words that were nearly right ---- */

/* How many letters must be put in, left out, changed or swapped with their neighbour to turn one
 * word into the other, whatever their case; 99 for words longer than 64. */
int vp_word_distance(const char *a, const char *b);

/* The nearest of n words, or -1 where none is so near that it was probably meant: at most one
 * letter in three is wrong, and at most three. */
int vp_word_nearest(const char *word, const char *const *words, int n);

#endif
