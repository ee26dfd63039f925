#include "doctor/pickle.h"

#include <stdlib.h>
#include <string.h>

/* The opcodes of Python's pickletools that a pickle of plain data needs. */
enum {
    MARK             = '(',
    STOP             = '.',
    POP              = '0',
    POP_MARK         = '1',
    DUP              = '2',
    FLOAT            = 'F',
    INT              = 'I',
    BININT           = 'J',
    BININT1          = 'K',
    LONG             = 'L',
    BININT2          = 'M',
    NONE             = 'N',
    STRING           = 'S',
    BINSTRING        = 'T',
    SHORT_BINSTRING  = 'U',
    UNICODE          = 'V',
    BINUNICODE       = 'X',
    APPEND           = 'a',
    DICT             = 'd',
    EMPTY_DICT       = '}',
    APPENDS          = 'e',
    GET              = 'g',
    BINGET           = 'h',
    LONG_BINGET      = 'j',
    LIST             = 'l',
    EMPTY_LIST       = ']',
    PUT              = 'p',
    BINPUT           = 'q',
    LONG_BINPUT      = 'r',
    SETITEM          = 's',
    TUPLE            = 't',
    EMPTY_TUPLE      = ')',
    SETITEMS         = 'u',
    BINFLOAT         = 'G',
    PROTO            = 0x80,
    TUPLE1           = 0x85,
    TUPLE2           = 0x86,
    TUPLE3           = 0x87,
    NEWTRUE          = 0x88,
    NEWFALSE         = 0x89,
    LONG1            = 0x8a,
    LONG4            = 0x8b,
    BINBYTES         = 'B',
    SHORT_BINBYTES   = 'C',
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE8      = 0x8d,
    BINBYTES8        = 0x8e,
    EMPTY_SET        = 0x8f,
    ADDITEMS         = 0x90,
    FROZENSET        = 0x91,
    MEMOIZE          = 0x94,
    FRAME            = 0x95,
    BYTEARRAY8       = 0x96
};

/* Those that make Python run something, or ask somebody outside for a value. */
static const struct {
    unsigned char opcode;
    const char   *name;
} refused[] = {
    {'c', "GLOBAL"},     {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},
    {'i', "INST"},       {'o', "OBJ"},           {0x81, "NEWOBJ"},
    {0x92, "NEWOBJ_EX"}, {'b', "BUILD"},         {0x82, "EXT1"},
    {0x83, "EXT2"},      {0x84, "EXT4"},         {'P', "PERSID"},
    {'Q', "BINPERSID"},  {0x97, "NEXT_BUFFER"},  {0x98, "READONLY_BUFFER"},
};

enum { MAX_MARKS = 1000, OLDEST = 2, NEWEST = 5 };

typedef struct machine {
    vp_arena            *arena;
    const char          *name;
    const unsigned char *bytes;
    int64_t              n_bytes, at, opcode_at;
    vp_pickle_value     *stack;
    int64_t              n_stack, cap_stack;
    vp_pickle_value     *memo;
    bool                *is_memo;
    int64_t              n_memo, cap_memo, cap_is_memo;
    int64_t              marks[MAX_MARKS];
    int                  n_marks;
    int64_t              n_values;
    vp_err              *err;
} machine;

static vp_status fail(machine *m, const char *what)
{
    VP_FAIL_AT(m->err, VP_ERR_INPUT, m->name, 0, NULL, "byte %lld: %s", (long long)m->opcode_at,
               what);
    return VP_ERR_INPUT;
}

static vp_status no_memory(machine *m)
{
    return VP_FAIL(m->err, VP_ERR_NOMEM, "out of host memory");
}

/* n bytes of an argument. */
static vp_status take(machine *m, int64_t n, const unsigned char **out)
{
    if (n < 0 || n > m->n_bytes - m->at)
        return fail(m, "the file ends in the middle of a value");
    *out = m->bytes + m->at;
    m->at += n;
    return VP_OK;
}

/* A little-endian number of n bytes. */
static vp_status take_number(machine *m, int n, uint64_t *out)
{
    const unsigned char *p;
    vp_status            st = VP_OK;

    VP_TRY(take(m, n, &p));
    *out = 0;
    for (int i = n - 1; i >= 0; i--)
        *out = *out << 8 | p[i];
out:
    return st;
}

/* An argument that ends with its line. */
static vp_status take_line(machine *m, const char **text, size_t *n)
{
    const unsigned char *from = m->bytes + m->at,
                        *end  = memchr(from, '\n', (size_t)(m->n_bytes - m->at));

    if (!end)
        return fail(m, "the file ends in the middle of a value");
    *text = (const char *)from;
    *n    = (size_t)(end - from);
    m->at += end - from + 1;
    return VP_OK;
}

static vp_status push(machine *m, vp_pickle_value v)
{
    if (++m->n_values > VP_PICKLE_MAX_VALUES)
        return fail(m, "too many values");
    if (!vp_arena_grow(m->arena, (void **)&m->stack, m->n_stack, &m->cap_stack, sizeof *m->stack))
        return no_memory(m);
    m->stack[m->n_stack++] = v;
    return VP_OK;
}

/* The values above the last mark, or above nothing. */
static int64_t floor_of(const machine *m)
{
    return m->n_marks ? m->marks[m->n_marks - 1] : 0;
}

static vp_status pop(machine *m, vp_pickle_value *out)
{
    if (m->n_stack <= floor_of(m))
        return fail(m, "takes a value that is not there");
    *out = m->stack[--m->n_stack];
    return VP_OK;
}

static vp_status push_items(machine *m, vp_pickle_kind kind, const vp_pickle_value *values,
                            int64_t n)
{
    vp_pickle_items *items = vp_arena_alloc(m->arena, sizeof *items);

    if (items && n) {
        items->values = vp_arena_array(m->arena, n, sizeof *values);
        if (items->values)
            memcpy(items->values, values, (size_t)n * sizeof *values);
        items->n = items->cap = n;
    }
    if (vp_arena_failed(m->arena))
        return no_memory(m);
    return push(m, (vp_pickle_value){.kind = kind, .items = items});
}

static vp_status pop_mark(machine *m, int64_t *from)
{
    if (!m->n_marks)
        return fail(m, "takes a mark that is not there");
    *from = m->marks[--m->n_marks];
    return VP_OK;
}

/* What stands above the last mark becomes one value. */
static vp_status gather(machine *m, vp_pickle_kind kind)
{
    int64_t   from = 0, n;
    vp_status st   = VP_OK;

    VP_TRY(pop_mark(m, &from));
    n = m->n_stack - from;
    if (kind == VP_PICKLE_DICT && n % 2)
        VP_TRY(fail(m, "a key has no value"));
    m->n_stack = from;
    VP_TRY(push_items(m, kind, m->stack + from, n));
out:
    return st;
}

/* The values from `from` on join the list or dict below them. */
static vp_status join(machine *m, int64_t from, vp_pickle_kind kind)
{
    vp_pickle_items *items;
    vp_status        st = VP_OK;

    if (from <= floor_of(m) || m->stack[from - 1].kind != kind)
        return fail(m, kind == VP_PICKLE_DICT ? "sets an item of what is no dict"
                                              : "appends to what is no list");
    items = m->stack[from - 1].items;
    if (kind == VP_PICKLE_DICT && (m->n_stack - from) % 2)
        VP_TRY(fail(m, "a key has no value"));
    for (int64_t i = from; i < m->n_stack; i++) {
        if (!vp_arena_grow(m->arena, (void **)&items->values, items->n, &items->cap,
                           sizeof *items->values))
            VP_TRY(no_memory(m));
        items->values[items->n++] = m->stack[i];
    }
    m->n_stack = from;
out:
    return st;
}

static vp_status put(machine *m, uint64_t idx)
{
    if (m->n_stack <= floor_of(m))
        return fail(m, "remembers a value that is not there");
    if (idx > (uint64_t)m->n_values + 1)
        return fail(m, "remembers a value under a number that is too large");
    while (m->n_memo <= (int64_t)idx) {
        if (!vp_arena_grow(m->arena, (void **)&m->memo, m->n_memo, &m->cap_memo, sizeof *m->memo) ||
            !vp_arena_grow(m->arena, (void **)&m->is_memo, m->n_memo, &m->cap_is_memo,
                           sizeof *m->is_memo))
            return no_memory(m);
        m->is_memo[m->n_memo++] = false;
    }
    m->memo[idx]    = m->stack[m->n_stack - 1];
    m->is_memo[idx] = true;
    return VP_OK;
}

static vp_status get(machine *m, uint64_t idx)
{
    if (idx >= (uint64_t)m->n_memo || !m->is_memo[idx])
        return fail(m, "asks for a value that was not remembered");
    return push(m, m->memo[idx]);
}

static vp_status push_text(machine *m, vp_pickle_kind kind, int n_length)
{
    uint64_t             n;
    const unsigned char *p;
    vp_status            st = VP_OK;

    VP_TRY(take_number(m, n_length, &n));
    if (n > UINT32_MAX)
        VP_TRY(fail(m, "a text of more than 4 GiB"));
    VP_TRY(take(m, (int64_t)n, &p));
    VP_TRY(
        push(m, (vp_pickle_value){.kind = kind, .n_bytes = (uint32_t)n, .text = (const char *)p}));
out:
    return st;
}

/* A two's complement number of any length. */
static vp_status push_long(machine *m, int n_length)
{
    uint64_t             n, value = 0;
    const unsigned char *p;
    vp_status            st = VP_OK;

    VP_TRY(take_number(m, n_length, &n));
    VP_TRY(take(m, n > INT32_MAX ? -1 : (int64_t)n, &p));
    if (n > 8) {
        VP_TRY(push(m, (vp_pickle_value){.kind = VP_PICKLE_HUGE}));
        goto out;
    }
    for (int64_t i = (int64_t)n - 1; i >= 0; i--)
        value = value << 8 | p[i];
    if (n && n < 8 && p[n - 1] & 0x80)
        value |= ~UINT64_C(0) << (8 * n);
    VP_TRY(push(m, (vp_pickle_value){.kind = VP_PICKLE_INTEGER, .integer = (int64_t)value}));
out:
    return st;
}

/* Protocol 0's numbers and texts, which newer pickles may still hold. */
static vp_status push_line(machine *m, unsigned char opcode)
{
    const char     *text;
    char            number[64];
    size_t          n;
    vp_pickle_value v;
    char           *end;
    vp_status       st = VP_OK;

    VP_TRY(take_line(m, &text, &n));
    v = (vp_pickle_value){.kind = VP_PICKLE_TEXT, .n_bytes = (uint32_t)n, .text = text};
    if (opcode == INT || opcode == LONG || opcode == FLOAT) {
        if (n >= sizeof number)
            VP_TRY(fail(m, "a number of more than 63 digits"));
        memcpy(number, text, n);
        number[n] = '\0';
        if (opcode == FLOAT) {
            v = (vp_pickle_value){.kind = VP_PICKLE_REAL, .real = 0};
        } else if (opcode == INT && (strcmp(number, "00") == 0 || strcmp(number, "01") == 0)) {
            v = (vp_pickle_value){.kind = VP_PICKLE_BOOL, .integer = number[1] == '1'};
        } else {
            v = (vp_pickle_value){.kind = VP_PICKLE_INTEGER, .integer = strtoll(number, &end, 10)};
            if (end == number || (*end && strcmp(end, "L") != 0))
                VP_TRY(fail(m, "no number"));
        }
    }
    VP_TRY(push(m, v));
out:
    return st;
}

static vp_status push_binfloat(machine *m)
{
    const unsigned char *p;
    uint64_t             bits = 0;
    vp_pickle_value      v    = {.kind = VP_PICKLE_REAL};
    vp_status            st   = VP_OK;

    VP_TRY(take(m, 8, &p));
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[i];
    memcpy(&v.real, &bits, sizeof bits);
    VP_TRY(push(m, v));
out:
    return st;
}

static vp_status push_integer(machine *m, int n)
{
    uint64_t  value;
    vp_status st = VP_OK;

    VP_TRY(take_number(m, n, &value));
    VP_TRY(
        push(m, (vp_pickle_value){.kind    = VP_PICKLE_INTEGER,
                                  .integer = n == 4 ? (int32_t)(uint32_t)value : (int64_t)value}));
out:
    return st;
}

/* The memo, by number or by a line of digits. */
static vp_status remember(machine *m, unsigned char opcode)
{
    uint64_t    idx = (uint64_t)m->n_memo;
    const char *text;
    size_t      n;
    vp_status   st = VP_OK;

    if (opcode == BINPUT || opcode == BINGET)
        VP_TRY(take_number(m, 1, &idx));
    else if (opcode == LONG_BINPUT || opcode == LONG_BINGET)
        VP_TRY(take_number(m, 4, &idx));
    else if (opcode != MEMOIZE) {
        VP_TRY(take_line(m, &text, &n));
        idx = 0;
        for (size_t i = 0; i < n; i++) {
            if (text[i] < '0' || text[i] > '9' || i > 9)
                VP_TRY(fail(m, "no number"));
            idx = 10 * idx + (uint64_t)(text[i] - '0');
        }
    }
    VP_TRY(opcode == GET || opcode == BINGET || opcode == LONG_BINGET ? get(m, idx) : put(m, idx));
out:
    return st;
}

/* Containers and the stack itself. */
static vp_status arrange(machine *m, unsigned char opcode)
{
    vp_pickle_value dropped;
    int64_t         from = 0;
    vp_status       st   = VP_OK;

    switch (opcode) {
    case MARK:
        if (m->n_marks == MAX_MARKS)
            return fail(m, "nested too deep");
        m->marks[m->n_marks++] = m->n_stack;
        return VP_OK;
    case POP:
        return pop(m, &dropped);
    case POP_MARK:
        VP_TRY(pop_mark(m, &from));
        m->n_stack = from;
        return VP_OK;
    case DUP:
        VP_TRY(pop(m, &dropped));
        VP_TRY(push(m, dropped));
        return push(m, dropped);
    case EMPTY_LIST:
    case EMPTY_TUPLE:
    case EMPTY_SET:
        return push_items(m, VP_PICKLE_LIST, NULL, 0);
    case EMPTY_DICT:
        return push_items(m, VP_PICKLE_DICT, NULL, 0);
    case LIST:
    case TUPLE:
    case FROZENSET:
        return gather(m, VP_PICKLE_LIST);
    case DICT:
        return gather(m, VP_PICKLE_DICT);
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
        from = m->n_stack - (opcode - TUPLE1 + 1);
        if (from < floor_of(m))
            return fail(m, "takes a value that is not there");
        m->n_stack = from;
        return push_items(m, VP_PICKLE_LIST, m->stack + from, opcode - TUPLE1 + 1);
    case APPEND:
        return join(m, m->n_stack - 1, VP_PICKLE_LIST);
    case SETITEM:
        return join(m, m->n_stack - 2, VP_PICKLE_DICT);
    default: /* APPENDS, ADDITEMS, SETITEMS */
        VP_TRY(pop_mark(m, &from));
        return join(m, from, opcode == SETITEMS ? VP_PICKLE_DICT : VP_PICKLE_LIST);
    }
out:
    return st;
}

/* An opcode that is not of plain data: which, and what it names. */
static vp_status refuse(machine *m, unsigned char opcode)
{
    char what[300] = "";

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const unsigned char *module = m->bytes + m->at, *end;
        size_t               n      = (size_t)(m->n_bytes - m->at);

        if (refused[i].opcode != opcode)
            continue;
        end = opcode == 'c' || opcode == 'i' ? memchr(module, '\n', n < 100 ? n : 100) : NULL;
        if (end) {
            n = (size_t)(end - module);
            for (size_t k = 0; k < n; k++)
                what[k] = module[k] >= 0x20 && module[k] < 0x7f ? (char)module[k] : '?';
            what[n] = '\0';
        }
        return VP_FAIL_AT(
            m->err, VP_ERR_INPUT, m->name, 0, NULL,
            "byte %lld: the opcode %s%s%s%s would run code or make an object; a snapshot is plain data, and "
            "nothing else is read",
            (long long)m->opcode_at, refused[i].name, what[0] ? " (of the module " : "", what,
            what[0] ? ")" : "");
    }
    return VP_FAIL_AT(m->err, VP_ERR_INPUT, m->name, 0, NULL,
                      "byte %lld: 0x%02x is no opcode of a pickle", (long long)m->opcode_at,
                      opcode);
}

static vp_status step(machine *m, unsigned char opcode)
{
    const unsigned char *p;

    switch (opcode) {
    case PROTO:
        return take(m, 1, &p);
    case FRAME:
        return take(m, 8, &p);
    case NONE:
        return push(m, (vp_pickle_value){.kind = VP_PICKLE_NONE});
    case NEWTRUE:
    case NEWFALSE:
        return push(m, (vp_pickle_value){.kind = VP_PICKLE_BOOL, .integer = opcode == NEWTRUE});
    case BININT:
        return push_integer(m, 4);
    case BININT1:
        return push_integer(m, 1);
    case BININT2:
        return push_integer(m, 2);
    case LONG1:
        return push_long(m, 1);
    case LONG4:
        return push_long(m, 4);
    case BINFLOAT:
        return push_binfloat(m);
    case INT:
    case LONG:
    case FLOAT:
    case STRING:
    case UNICODE:
        return push_line(m, opcode);
    case SHORT_BINUNICODE:
    case SHORT_BINSTRING:
        return push_text(m, VP_PICKLE_TEXT, 1);
    case BINUNICODE:
    case BINSTRING:
        return push_text(m, VP_PICKLE_TEXT, 4);
    case BINUNICODE8:
        return push_text(m, VP_PICKLE_TEXT, 8);
    case SHORT_BINBYTES:
        return push_text(m, VP_PICKLE_BYTES, 1);
    case BINBYTES:
        return push_text(m, VP_PICKLE_BYTES, 4);
    case BINBYTES8:
    case BYTEARRAY8:
        return push_text(m, VP_PICKLE_BYTES, 8);
    case PUT:
    case BINPUT:
    case LONG_BINPUT:
    case MEMOIZE:
    case GET:
    case BINGET:
    case LONG_BINGET:
        return remember(m, opcode);
    default:
        return opcode && strchr("(012])}ltdaseu\x85\x86\x87\x8f\x90\x91", opcode)
                   ? arrange(m, opcode)
                   : refuse(m, opcode);
    }
}

vp_status vp_pickle_parse(vp_arena *arena, const char *name, const char *bytes, int64_t n_bytes,
                          const vp_pickle_value **root, vp_err *err)
{
    machine          m = {.arena   = arena,
                          .name    = name,
                          .bytes   = (const unsigned char *)bytes,
                          .n_bytes = n_bytes,
                          .err     = err};
    vp_pickle_value *out;
    vp_status        st = VP_OK;

    *root = NULL;
    if (n_bytes < 2 || m.bytes[0] != PROTO || m.bytes[1] < OLDEST || m.bytes[1] > NEWEST)
        VP_TRY(VP_FAIL_AT(
            err, VP_ERR_INPUT, name, 0, NULL,
            n_bytes > 4 && memcmp(bytes, "PK\3\4", 4) == 0
                ? "is a file of torch.save, no pickle of torch.cuda.memory._dump_snapshot()"
                : "is no pickle of protocol 2 to 5, as _dump_snapshot() writes; a log is read by --oom"));
    for (;;) {
        unsigned char opcode;

        m.opcode_at = m.at;
        if (m.at == n_bytes)
            VP_TRY(fail(&m, "the file ends before the pickle does"));
        opcode = m.bytes[m.at++];
        if (opcode == STOP)
            break;
        VP_TRY(step(&m, opcode));
    }
    out = vp_arena_alloc(arena, sizeof *out);
    VP_TRY_ALLOC(err, out);
    VP_TRY(pop(&m, out));
    *root = out;
out:
    return st;
}

const vp_pickle_value *vp_pickle_member(const vp_pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != VP_PICKLE_DICT)
        return NULL;
    for (int64_t i = dict->items->n - 2; i >= 0; i -= 2) /* the last of a key counts */
        if (vp_pickle_is_text(&dict->items->values[i], key))
            return &dict->items->values[i + 1];
    return NULL;
}

int64_t vp_pickle_length(const vp_pickle_value *v)
{
    return v && v->kind == VP_PICKLE_LIST ? v->items->n : 0;
}

const vp_pickle_value *vp_pickle_at(const vp_pickle_value *list, int64_t idx)
{
    return idx >= 0 && idx < vp_pickle_length(list) ? &list->items->values[idx] : NULL;
}

int64_t vp_pickle_count(const vp_pickle_value *v)
{
    return v && v->kind == VP_PICKLE_INTEGER && v->integer >= 0 ? v->integer : -1;
}

bool vp_pickle_is_text(const vp_pickle_value *v, const char *text)
{
    size_t n = strlen(text);

    return v && v->kind == VP_PICKLE_TEXT && v->n_bytes == n && memcmp(v->text, text, n) == 0;
}
