/* doctor/pickle.h: the plain data of a Python pickle, read without Python and without executing anything.
 *     VP_TRY(vp_pickle_parse(arena, "snapshot.pickle", bytes, n, &root, err));
 *     const vp_pickle_value *segments = vp_pickle_member(root, "segments");
 *
 * Protocols 2 to 5. A pickle is a program for a small machine with a stack; here it can build None, bools, integers,
 * floats, texts, bytes, lists, tuples, sets and dicts, and nothing else: an opcode that names a class or calls
 * something is refused by its name. Limits: VP_PICKLE_MAX_BYTES, VP_PICKLE_MAX_VALUES. Values may be shared, and a list may hold
 * itself: who walks them counts the steps. */
#ifndef VP_DOCTOR_PICKLE_H
#define VP_DOCTOR_PICKLE_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define VP_PICKLE_MAX_BYTES  ((int64_t)1 << 30)
#define VP_PICKLE_MAX_VALUES ((int64_t)1 << 26)

typedef enum vp_pickle_kind {
    VP_PICKLE_NONE,
    VP_PICKLE_BOOL, /* integer: 0 or 1 */
    VP_PICKLE_INTEGER,
    VP_PICKLE_HUGE, /* an integer beyond 64 bits */
    VP_PICKLE_REAL,
    VP_PICKLE_TEXT, /* UTF-8 as it stands there, not checked */
    VP_PICKLE_BYTES,
    VP_PICKLE_LIST, /* and tuples and sets */
    VP_PICKLE_DICT  /* items: key, value, key, value, ... */
} vp_pickle_kind;

typedef struct vp_pickle_value vp_pickle_value;

typedef struct vp_pickle_items {
    vp_pickle_value *values;
    int64_t          n, cap;
} vp_pickle_items;

struct vp_pickle_value {
    vp_pickle_kind kind;
    uint32_t       n_bytes; /* of a text or bytes */
    union {
        int64_t          integer;
        double           real;
        const char      *text; /* inside what was parsed; no NUL behind it */
        vp_pickle_items *items;
    };
};

/* bytes must live as long as the values. VP_ERR_INPUT names the byte. */
vp_status vp_pickle_parse(vp_arena *arena, const char *name, const char *bytes, int64_t n_bytes,
                          const vp_pickle_value **root, vp_err *err);

/* A dict's value; NULL: it has no such key, or is no dict. */
const vp_pickle_value *vp_pickle_member(const vp_pickle_value *dict, const char *key);

/* How many elements a list has, 0 where v is none (or NULL); and one of them. */
int64_t                vp_pickle_length(const vp_pickle_value *v);
const vp_pickle_value *vp_pickle_at(const vp_pickle_value *list, int64_t idx);

/* An integer that is there and not negative; -1: it is not. */
int64_t vp_pickle_count(const vp_pickle_value *v);

bool vp_pickle_is_text(const vp_pickle_value *v, const char *text);

#endif
