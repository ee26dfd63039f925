/* trainers/files/document.h: a settings file as a tree in which everything knows its line.
 *     vp_document *doc;
 *     VP_TRY(vp_document_read(arena, "ds.json", VP_FORMAT_BY_NAME, &doc, err));
 *     const vp_value *stage = vp_value_at(doc->root, "zero_optimization.stage");
 *
 * JSON, YAML, TOML, the words of a command line and the literal part of Python give the same tree; a
 * scalar has the type that the trainer's own reader would give it (YAML as PyYAML's safe loader:
 * 2e-5 is a string there, `no` a boolean). Nothing is executed, no other file is opened. What a
 * reader takes without a word and a person would not (a key twice, a comment in JSON) stands in
 * remarks. Limits: 4 MiB, nesting 64, 100,000 values with all aliases expanded. */
#ifndef VP_TRAINERS_FILES_DOCUMENT_H
#define VP_TRAINERS_FILES_DOCUMENT_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum vp_format {
    VP_FORMAT_BY_NAME, /* by the end of the file's name, then by its first letter */
    VP_FORMAT_JSON,
    VP_FORMAT_YAML,
    VP_FORMAT_FLAGS, /* --key value; also a shell script's command */
    VP_FORMAT_PYTHON,
    VP_FORMAT_TOML,
    VP_FORMAT_NOTEBOOK /* of Jupyter: read as VP_FORMAT_PYTHON */
} vp_format;

typedef enum vp_value_kind {
    VP_VALUE_NULL,
    VP_VALUE_BOOL,
    VP_VALUE_INT,
    VP_VALUE_REAL,
    VP_VALUE_STRING,
    VP_VALUE_LIST,
    VP_VALUE_MAP
} vp_value_kind;

/* What a value of Python that is no literal calls: there is one, and it is not known. */
#define VP_VALUE_UNREAD "..."

/* Types of a default: an option whose value argparse alone would say; no option, but a parameter of a function that nothing in
 * the file calls. */
#define VP_OPTION_UNKNOWN   "?"
#define VP_OPTION_PARAMETER "()"
#define VP_OPTION_SUM       "+" /* a number that is worked out from an option's */

typedef struct vp_value {
    vp_value_kind kind;
    int           line, column;
    const char   *key;  /* of a member of a map; NULL of an element                */
    const char   *text; /* of a scalar as it stands there, of a string without quotes */
    bool          quoted;
    bool          boolean; /* of a flag without a value: true, and text is "" */
    int64_t       integer;
    double        real;        /* of an integer too */
    const char   *call;        /* of a map read from Python: what is called, "Trainer.Config" */
    bool          is_variable; /* of Python: a name that the script itself gave a value */
    bool          is_option;   /* of a command: --NAME, not NAME=VALUE */
    bool          is_taken;    /* of a command: an option whose use in its script is read */
    const char *
        given_to; /* of Python: the library's class that is called with it; NULL: none is surely its own */
    bool
        is_offered; /* of Python: dropped by the script where the class that is called with it lacks it */
    bool             asks_bf16; /* of True: that the card has bf16; of False: that it has none */
    struct vp_value *first, *last, *next;
    int64_t          n_children;
    struct vp_value_index *index; /* of a map with many members, its keys; NULL */
    /* of Python: the value is the default of this option of the script's own, "--batch-size", on this line; its type as argparse
     * has it, "int", "store_true", "": the value's own. NULL: it is none */
    const char *option, *option_type;
    const char *option_letters; /* and its names of one dash, "-b -bs"; NULL: nobody knows them */
    int         option_line;
    const char *
        source; /* of Python: the settings file of the script's own that says it; NULL: the script does */
    int source_line;
} vp_value;

/* What a reader takes without a word. */
typedef struct vp_remark {
    int         line;
    const char *key;
    const char *text;
    bool        is_error;
    bool        is_torn;      /* options that are none of the command's */
    bool        is_gap;       /* options that nobody knows */
    bool        is_uncounted; /* something that no estimate counts */
    bool        of_model; /* of a size of the model's: with a config of one's own it is counted */
    struct vp_remark *next;
} vp_remark;

typedef struct vp_document {
    vp_arena   *arena;
    const char *name;
    vp_format   format;
    bool        is_notebook; /* its format is Python */
    vp_value   *root;        /* a map */
    vp_remark  *remarks, *last_remark;
    /* what a command says before its script (trainers/files/launch.h); NULL: nothing */
    struct vp_document *launch;
    bool                has_launcher; /* of such a one: not only variables */
    bool                starts_all;   /* and its launcher's default is as many processes as cards */
    const char *
        package; /* of a file of YAML, "# @package" in its head: where Hydra puts it; NULL: no word of it */
    int tab_line; /* of YAML, where PyYAML ends at a tab that libyaml skips; 0: nowhere */
    vp_value
        *overrides; /* of a command: NAME=VALUE behind its script, a map; NULL: there is none */
    vp_value
        *environment;    /* of a command: what is set before it or exported, a map; NULL: nothing */
    const char *program; /* of a command: program, script, subcommand; NULL: options alone */
    struct vp_document *next; /* the next command of a script that has options; NULL: none */
    /* of a script of Python what a call is given that a file of its own may hold as well: adapters
     * (LoraConfig), what a model is loaded with (from_pretrained); one behind the other by next */
    struct vp_document *parts;
    /* of such a one: what is called, "peft.LoraConfig"; of a script what makes the trainer's arguments */
    const char *call;
    const char *variable; /* of such a part: the name that it is given; NULL */
    bool        may_run;  /* of such a part: behind a condition that the text does not decide */
    bool        has_gap;  /* it is given more than the text says: no default is one */
    /* of a script of Python: the line of prepare_model_for_kbit_training(); 0: it calls it nowhere */
    int prepares;
    /* and that of what has the embeddings' output require a gradient, enable_input_require_grads() or what calls it; 0: nothing does */
    int requires_grads;
    int casts; /* of such a one: a line that casts weights of a model to a format; 0: none does */
    /* what gives the model adapters of whatever kind, "get_peft_model() in line 8"; NULL: nothing does */
    const char *adapts;
    int         adapts_line;
    bool        may_adapt;    /* behind a condition that the text does not decide */
    bool        has_adapters; /* it speaks of a PeftModel besides */
    /* the command that runs the script: what it says decides conditions; NULL: none, defaults do */
    const struct vp_document *command;
    int capability; /* of the card that it is to run on, 86; 0: none is named */
    const struct vp_document *(*config)(void *of, const char *path,
                                        int line); /* vp_document_run's */
    void *config_of;
    bool  parses; /* of such a one: it has a parser of its own, whose options are no trainer's */
    bool
         takes_model; /* and its parser is given TRL's ModelConfig: the model is loaded and adapted as the command says */
    bool asks_adapters; /* by get_peft_config() of such a one */
    /* the class of a trainer's arguments that its parser reads, "SFTConfig", by its library's name; NULL: none */
    const char *parsed;
    vp_value *
        defaults; /* of a class of arguments that it makes of a trainer's and its parser reads: a map; NULL: there is none */
    /* of a script of Python: an argument that its trainer is given and nothing in the text makes, "args=training_args";
     * NULL: none is */
    const char *given;
    bool
        is_anothers; /* of a call: its class is another library's by that name, with arguments of its own */
    bool has_trainer; /* of such a script: it calls a trainer's class */
    /* of a script of Python: the settings files that it reads, a list of strings; NULL: none */
    vp_value *files;
    /* what stood in the file and was not read: statements of Python, words without a key */
    int64_t n_values;
    const char
        *commands; /* of a notebook: those that it runs, a script of the shell's; NULL: none */
    struct vp_written *written; /* and the files that its cells write; NULL: none */
} vp_document;

/* A file that a notebook or a script of the shell's writes before it is used. */
typedef struct vp_written {
    const char        *path, *bytes;
    int64_t            n_bytes;
    struct vp_written *next;
} vp_written;

enum {
    VP_DOCUMENT_MAX_BYTES  = 4 << 20,
    VP_DOCUMENT_MAX_DEPTH  = 64,
    VP_DOCUMENT_MAX_VALUES = 100000
};

/* Everything lives in the arena. VP_ERR_INPUT with file, line and what was expected. */
vp_status vp_document_read(vp_arena *arena, const char *path, vp_format format, vp_document **out,
                           vp_err *err);
vp_status vp_document_parse(vp_arena *arena, const char *name, const char *bytes, int64_t n_bytes,
                            vp_format format, vp_document **out, vp_err *err);
/* The settings file that a script reads on a line; path NULL: it is one that the text does not name. NULL: it is not there. */
typedef const vp_document *vp_document_config(void *of, const char *path, int line);

/* What decides which statements of a script run: the command's words (NULL: none is known, defaults do) and the compute capability of
 * the card, 86 (0: none is named). */
typedef struct vp_document_run {
    const vp_document  *command;
    int                 capability;
    vp_document_config *config; /* NULL: no file is read */
    void               *config_of;
} vp_document_run;

vp_status vp_document_read_run(vp_arena *arena, const char *path, vp_format format,
                               const vp_document_run *run, vp_document **out, vp_err *err);
vp_status vp_document_parse_run(vp_arena *arena, const char *name, const char *bytes,
                                int64_t n_bytes, vp_format format, const vp_document_run *run,
                                vp_document **out, vp_err *err);
/* Words that were split already, as behind "--". */
vp_status vp_document_of_words(vp_arena *arena, const char *name, const char *const *words,
                               int64_t n, vp_document **out, vp_err *err);

/* A new empty document to be written. NULL: out of memory. */
vp_document *vp_document_new(vp_arena *arena, const char *name, vp_format format);

/* The value behind "a.b.c"; NULL: none. A key may hold dots itself: the longest wins. */
vp_value *vp_value_at(const vp_value *map, const char *path);

/* The last member of that key, dots and all; NULL: none. */
vp_value *vp_value_member(const vp_value *map, const char *key);

/* The value at a path, with the maps above it, made where they are missing. NULL: out of memory,
 * or something on the way is no map. */
vp_value *vp_value_make(vp_document *doc, const char *path);

/* A child at the end of a map (key) or of a list (key NULL). NULL: the limit or no memory. */
vp_value *vp_value_add(vp_document *doc, vp_value *parent, const char *key);
/* Takes the children for which drops() is true out of a map; user is handed to it. */
void vp_value_drop(vp_value   *map, bool (*drops)(const vp_value *v, const void *user),
                   const void *user);

/* Members of a map get a prefix where they have it not. */
void vp_value_prefix(vp_document *doc, vp_value *map, const char *prefix);

/* v, the last child, is taken out again. */
void vp_value_drop_last(vp_value *parent, const vp_value *v);

/* A scalar from its text: by the rules of YAML 1.1 as PyYAML has them. */
void vp_value_resolve(vp_value *v);

vp_status vp_document_remark(vp_document *doc, int line, const char *key, bool is_error,
                             vp_err *err, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* ---- the formats, each in a file of its own: what vp_document_parse() calls ---- */
vp_status vp_document_parse_json(vp_document *doc, const char *bytes, int64_t n, vp_err *err);
vp_status vp_document_parse_yaml(vp_document *doc, const char *bytes, int64_t n, vp_err *err);
vp_status vp_document_parse_flags(vp_document *doc, const char *bytes, int64_t n, vp_err *err);
vp_status vp_document_parse_python(vp_document *doc, const char *bytes, int64_t n, vp_err *err);
/* The document's format is Python's then. */
vp_status vp_document_parse_notebook(vp_document *doc, const char *bytes, int64_t n, vp_err *err);
vp_status vp_document_parse_toml(vp_document *doc, const char *bytes, int64_t n, vp_err *err);

#endif
