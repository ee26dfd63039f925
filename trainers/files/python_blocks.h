/* trainers/files/python_blocks.h: the statements that a line of a script stands in, by their indentation, and whether they run: of a
 * condition whose value the text says (USE_LORA = False) or a command's options do (`if args.lora:`) one side is not there. */
#ifndef VP_TRAINERS_FILES_PYTHON_BLOCKS_H
#define VP_TRAINERS_FILES_PYTHON_BLOCKS_H

#include "trainers/files/python_reader.h"
#include "trainers/files/python_scan.h"

typedef enum vp_python_runs { VP_PYTHON_MAYBE, VP_PYTHON_RUNS, VP_PYTHON_NEVER } vp_python_runs;

typedef struct vp_python_blocks {
    struct {
        int  indent;
        bool is_condition, is_switch; /* about checkpoints */
        bool is_loop;
        bool is_dead; /* if False: */
        bool is_told; /* of a dead one: what stands in it was named */
        /* of if, elif, else: whether one of them was taken so far */
        bool           is_chain;
        bool           is_function; /* or a class */
        bool           returns;     /* of what is taken for sure: the function ends there */
        vp_python_runs taken;
        const char    *by; /* the option whose default, or absence, it is dead by; NULL: none's */
        int            by_line;
    } open[VP_DOCUMENT_MAX_DEPTH];
    int n;
} vp_python_blocks;

/* At the first letter of a line; r->conditional is set by it. */
vp_status vp_python_enter_line(vp_python_blocks *b, vp_python_reader *r);

bool vp_python_is_dead(const vp_python_blocks *b);

/* Behind a line that does not run, from its first letter on: where that is an option's default and it is about adapters, packed weights or
 * arguments, that is told once. */
vp_status vp_python_say_dead(vp_python_blocks *b, vp_python_reader *r, const char *from, int line);

/* In a block whose condition is about checkpoints. */
bool vp_python_is_switched(const vp_python_blocks *b);

/* Whether a condition of its own stands around that nothing decides. */
bool vp_python_is_open(const vp_python_blocks *b);

/* What a condition comes to: `a if CONDITION else b`. */
vp_status vp_python_decide(vp_python_reader *r, const char *from, const char *end,
                           vp_python_runs *runs);

/* Of a piece `a if CONDITION else b` both sides, and whether the first is taken; not *is_one: it is none. */
vp_status vp_python_choose(vp_python_reader *r, const vp_piece *p, vp_piece *first,
                           vp_piece *second, vp_python_runs *runs, bool *is_one);

/* Whether a condition, or a loop, stands around that nothing decides. */
bool vp_python_is_maybe(const vp_python_blocks *b);

#endif
