/* trainers/files/python_reader.h: values of Python as they stand in a text, one by one; the statements around them are
 * document_python.c's. A name for a value that stands above is that value; what is no literal sets unread. */
#ifndef VP_TRAINERS_FILES_PYTHON_READER_H
#define VP_TRAINERS_FILES_PYTHON_READER_H

#include "trainers/files/document.h"

/* Whose classes a script imports. */
enum {
    VP_PYTHON_LIGHTNING          = 1,
    VP_PYTHON_LIGHTNINGS_TRAINER = 2, /* by its own name */
    VP_PYTHON_TRANSFORMERS       = 4, /* Trainer or Seq2SeqTrainer, by their own names */
    VP_PYTHON_TRL                = 8,
    VP_PYTHON_UNSLOTH            = 16,
    VP_PYTHON_ARGUMENTS          = 32, /* the class that makes Trainer's arguments */
    VP_PYTHON_TRLS_ARGUMENTS     = 64,
    VP_PYTHON_SEQ2SEQ_ARGUMENTS  = 256,
    VP_PYTHON_OTHERS_LORA    = 1024, /* a class called LoraConfig, of another library than peft */
    VP_PYTHON_OTHERS_TRLS    = 512,  /* a class called SFTTrainer, of another library */
    VP_PYTHON_OTHERS_TRAINER = 128 /* a class called Trainer, of a library that is none of these */
};

typedef struct vp_python_reader {
    vp_document *doc;
    const char  *begin, *at, *end, *line_start;
    int          line;
    bool         unread;      /* what was met is no literal: no error, but not read */
    bool         in_sum;      /* what is read is one of several numbers that signs join */
    bool         inside;      /* the statement stands in a function or behind a condition */
    bool         conditional; /* behind a condition or in a loop */
    bool         may_run;     /* behind a condition, or in a function that is called there */
    int          indent;      /* of its first letter */
    const char  *arguments;   /* the call that makes a trainer's, "TrainingArguments"; NULL: none */
    const char  *trainer;     /* the class that is given them, "SFTTrainer"; NULL: none */
    int          trains_line; /* the last that makes a trainer; 0: none does yet */
    unsigned     imports;     /* VP_PYTHON_TRL and others */
    vp_value    *aliases;     /* of "import peft as p" p: "peft"; NULL: none */
    struct vp_python_names     *names;     /* python_names.h; NULL: none is followed */
    struct vp_python_trained   *trained;   /* python_trained.h */
    struct vp_python_lightning *lightning; /* python_lightning.h; NULL: it has nothing of it */
    struct vp_python_given     *given;     /* python_given.c; NULL: nobody asked for a name yet */
    vp_err                     *err;
} vp_python_reader;

/* The member of a call or a dictionary that stands for `**names`, of which nothing is known; its text is what stands there. */
#define VP_PYTHON_UNKNOWN "**"

/* Spaces and comments; inside brackets line ends too. */
void  vp_python_skip(vp_python_reader *r, bool lines);
bool  vp_python_at_word(const vp_python_reader *r, const char *word);
char *vp_python_take_name(vp_python_reader *r);

vp_status vp_python_read_string(vp_python_reader *r, vp_value *v);
vp_status vp_python_read_value(vp_python_reader *r, vp_value *v, int depth);

/* A child at the end; VP_ERR_INPUT where there are too many. */
vp_status vp_python_add(vp_python_reader *r, vp_value *parent, const char *key, vp_value **out);

/* m as a member of a map, in place of one of that key; where not certain, one that says something else is not known any more. */
vp_status vp_python_put(vp_python_reader *r, vp_value *map, const vp_value *m, bool certain);

/* What a statement takes out of a dictionary, from its first letter to where the reader is: kwargs.pop("a"), del kwargs["a"]. */
vp_status vp_python_note_taken(vp_python_reader *r, const char *from);

/* There is a value, and it is not known: no default stands in for it. */
void vp_python_be_unread(vp_value *v);

/* What stands above under another key. */
void vp_python_be_same(vp_value *v, const vp_value *known);

/* What the script gave a name last, among what stands at the root; NULL: nothing. */
vp_value *vp_python_value_of(vp_python_reader *r, const char *name, const vp_value *but);

/* One value that the script gave a name, and those before it: of the same name, of any. */
typedef struct vp_python_name {
    const char            *key;
    vp_value              *v;
    struct vp_python_name *before, *older;
} vp_python_name;

/* The last value at the root of a name, its first n letters; NULL: there is none. */
const vp_python_name *vp_python_name_last(vp_python_reader *r, const char *name, size_t n);

/* v, the last value at the root, is taken out again. */
void vp_python_drop_last(vp_python_reader *r, const vp_value *v);

/* The part of a script that v is (vp_document.parts), behind those that there are. */
vp_status vp_python_add_part(vp_python_reader *r, const vp_value *v);

/* What v, "**" in a call, gives besides, nobody sees: no default of the document's is one. */
vp_status vp_python_say_gap(vp_python_reader *r, vp_document *of, const vp_value *call,
                            const vp_value *v);

/* Members of a call's, at the root too: what they are about is known by their names. */
vp_status vp_python_join_root(vp_python_reader *r, const vp_value *map);

/* "import ..." and "from ... import (...)", whose names may be a trainer's; not *is_one: the statement is another. */
vp_status vp_python_read_import(vp_python_reader *r, bool *is_one);

/* A name as its library has it: of "import peft as p" p.LoraConfig is peft.LoraConfig, of "from peft import LoraConfig as C" C is
 * LoraConfig. What no import renames is itself. NULL: out of memory. */
const char *vp_python_imported(const vp_python_reader *r, const char *name);

/* From here on alias is that name. */
vp_status vp_python_add_alias(vp_python_reader *r, const char *name, const char *alias);

/* Whether a call makes a trainer: of a library that is known here, or of a class that somebody made of its. */
bool vp_python_trains_model(const char *call);

/* The class whose arguments a call makes, where the script has it surely from its library: "TrainingArguments"; NULL. */
const char *vp_python_arguments_class(const vp_python_reader *r, const char *call);

/* Which of two sets of arguments the trainer gets is not followed: what they say differently, nobody knows. */
vp_status vp_python_forget_what_differs(vp_python_reader *r, const vp_value *first,
                                        const vp_value *second);

/* Something gives the model adapters, of whatever kind; the first counts. */
vp_status vp_python_note_adapters(vp_python_reader *r, const char *by, int line);

/* What such a call says: its arguments are the root's, or a part. */
vp_status vp_python_take_trainer(vp_python_reader *r, const vp_value *v);

#endif
