/* trainers/files/shell_reader.h: where a reader of a shell script stands, and how a word of its text becomes words of a command;
 * the commands around them are shell.c's. */
#ifndef VP_TRAINERS_FILES_SHELL_READER_H
#define VP_TRAINERS_FILES_SHELL_READER_H

#include "trainers/files/shell.h"

/* Text whose every letter knows where it stands. */
typedef struct vp_shell_piece {
    char   *text;
    int    *line, *column;
    int64_t n, cap;
} vp_shell_piece;

typedef struct vp_shell_variable {
    const char               *name;
    bool                      known;
    vp_shell_piece            text;  /* of a plain one */
    vp_shell_word            *words; /* of an array; NULL: a plain one */
    int64_t                   n_words;
    struct vp_shell_variable *next;
} vp_shell_variable;

typedef struct vp_shell {
    vp_arena          *arena;
    const char        *name;
    const char        *p, *end, *line_start;
    int                line;
    const char        *begin; /* of a command within a command, each of whose letters knows */
    const int         *at_line, *at_column; /* where it stands; NULL: by counting */
    bool               expands;             /* variables; else a list of words */
    vp_shell_variable *variables;
    vp_shell_command  *first, *last, *open; /* open: the one being read */
    int64_t            n_expanded;
    int                depth;        /* of conditions and loops */
    int                n_brackets;   /* of subshells */
    int                n_inside;     /* of commands that commands hold */
    int                in_case;      /* of case ... esac */
    bool               chained;      /* behind && or ||: runs or not */
    bool               skips_a_word; /* behind a redirection */
    char               here[64];     /* where a here-document ends; "": none is open */
    bool               here_tabs;
    vp_err            *err;
} vp_shell;

/* A word that is being made. */
typedef struct vp_shell_maker {
    vp_shell_piece word;
    bool           started, quoted;
    int            line, column;
} vp_shell_maker;

vp_status vp_shell_no_memory(const vp_shell *s);
vp_status vp_shell_unended(const vp_shell *s, const char *what, int line, int column);

/* The next letter and where it stands. */
void vp_shell_step(vp_shell *s);
int  vp_shell_line_of(const vp_shell *s);
int  vp_shell_column_of(const vp_shell *s);
bool vp_shell_is_name_letter(char c);
bool vp_shell_ends_a_word(const vp_shell *s, char c);

/* Letters and words that are known. */
vp_status vp_shell_add_letter(vp_shell *s, vp_shell_piece *t, char c, int line, int column);
vp_status vp_shell_put(vp_shell *s, vp_shell_maker *m, char c, int line, int column);
vp_status vp_shell_add_word(vp_shell *s, vp_shell_command *to, vp_shell_word word);
vp_status vp_shell_end_word(vp_shell *s, vp_shell_maker *m, vp_shell_command *to);

/* What a variable holds, as words of the command. */
vp_shell_variable *vp_shell_find_variable(const vp_shell *s, const char *name, size_t n);
vp_status          vp_shell_put_array(vp_shell *s, const vp_shell_variable *v, vp_shell_maker *m,
                                      vp_shell_command *to);
vp_status vp_shell_put_text(vp_shell *s, const vp_shell_piece *t, bool splits, vp_shell_maker *m,
                            vp_shell_command *to);

/* At p: a dollar sign, a quote, a backquote, the first letter of a word. quoted: what is expanded stays one word. */
vp_status vp_shell_expand(vp_shell *s, bool quoted, vp_shell_maker *m, vp_shell_command *to);
vp_status vp_shell_read_quoted(vp_shell *s, vp_shell_maker *m, vp_shell_command *to);
vp_status vp_shell_read_backquoted(vp_shell *s, vp_shell_maker *m);
vp_status vp_shell_read_word(vp_shell *s, vp_shell_maker *m, vp_shell_command *to);

#endif
