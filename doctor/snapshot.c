#include "doctor/snapshot.h"

#include "base/file.h"
#include "base/units.h"
#include "doctor/pickle.h"

#include <stdlib.h>
#include <string.h>

/* What a walk over a snapshot may look at: values may be shared, so that a small file can be a long walk. */
#define MAX_STEPS  ((int64_t)1 << 27)
#define MAX_BLOCKS ((int64_t)1 << 23) /* and events */
/* More than any card has; so many blocks of it still add up in 64 bits. */
#define MAX_SIZE ((int64_t)1 << 39)

/* Live blocks by their address: what is allocated, and by which frames. */
typedef struct block {
    uint64_t               address;
    int64_t                bytes;
    const vp_pickle_value *frames; /* NULL: not recorded */
    bool                   is_live;
} block;

typedef struct walk {
    vp_arena              *arena;
    const char            *path;
    vp_err                *err;
    const vp_pickle_value *segments, *events; /* of all devices; of ours */
    vp_snapshot           *s;
    block                 *blocks; /* open addressing; an address of 0 is empty */
    int64_t                n_blocks, cap_blocks;
    int64_t                steps;
} walk;

static vp_status wrong(walk *w, const char *what)
{
    return VP_FAIL_AT(w->err, VP_ERR_INPUT, w->path, 0, NULL, "%s", what);
}

static vp_status look(walk *w, int64_t n)
{
    w->steps += n;
    return w->steps <= MAX_STEPS ? VP_OK : wrong(w, "holds more than can be looked at");
}

/* Where the block of an address is, or would be. */
static block *place_of(const walk *w, uint64_t address)
{
    uint64_t i = (address * UINT64_C(0x9E3779B97F4A7C15)) >> 20;

    for (;; i++) {
        block *b = &w->blocks[i & (uint64_t)(w->cap_blocks - 1)];
        if (b->address == 0 || b->address == address)
            return b;
    }
}

static uint64_t address_of(const vp_pickle_value *v, const char *key)
{
    const vp_pickle_value *a = vp_pickle_member(v, key);

    return a && a->kind == VP_PICKLE_INTEGER ? (uint64_t)a->integer : 0;
}

/* Room for a block of each event and of each segment's blocks. */
static vp_status make_blocks(walk *w)
{
    int64_t   n  = vp_pickle_length(w->events) + 1;
    vp_status st = VP_OK;

    for (int64_t i = 0; i < vp_pickle_length(w->segments); i++) {
        n += vp_pickle_length(vp_pickle_member(vp_pickle_at(w->segments, i), "blocks"));
        VP_TRY(look(w, 1));
        if (n > MAX_BLOCKS)
            VP_TRY(wrong(w, "holds more events and blocks than can be looked at"));
    }
    if (n > MAX_BLOCKS)
        VP_TRY(wrong(w, "holds more events and blocks than can be looked at"));
    for (w->cap_blocks = 64; w->cap_blocks < 2 * n;)
        w->cap_blocks *= 2;
    w->blocks = vp_arena_array(w->arena, w->cap_blocks, sizeof *w->blocks);
    VP_TRY_ALLOC(w->err, w->blocks);
out:
    return st;
}

static void set_live(walk *w, uint64_t address, int64_t bytes, const vp_pickle_value *frames)
{
    block *b = place_of(w, address);

    *b = (block){.address = address, .bytes = bytes, .frames = frames, .is_live = true};
}

/* ---- owners ---- */

static const char *const library_paths[] = {
    "site-packages/", "dist-packages/", "/lib/python", "<frozen ", "/torch/", "probe/vplan_", "??"};

static bool is_library(const vp_pickle_value *file)
{
    char   text[512];
    size_t n;

    if (!file || file->kind != VP_PICKLE_TEXT)
        return true;
    n = file->n_bytes < sizeof text ? file->n_bytes : sizeof text - 1;
    memcpy(text, file->text, n);
    text[n] = '\0';
    for (size_t i = 0; i < sizeof library_paths / sizeof *library_paths; i++)
        if (strstr(text, library_paths[i]))
            return true;
    return !strstr(text, ".py") && !strchr(text, '<'); /* a C++ frame, where these were recorded */
}

static const char *frame_text(walk *w, const vp_pickle_value *frame)
{
    const vp_pickle_value *file = vp_pickle_member(frame, "filename"),
                          *name = vp_pickle_member(frame, "name");

    if (!file || file->kind != VP_PICKLE_TEXT || !name || name->kind != VP_PICKLE_TEXT)
        return "(a frame without a name)";
    return vp_arena_printf(w->arena, "%.*s:%lld %.*s",
                           (int)(file->n_bytes < 400 ? file->n_bytes : 400), file->text,
                           (long long)vp_pickle_count(vp_pickle_member(frame, "line")),
                           (int)(name->n_bytes < 200 ? name->n_bytes : 200), name->text);
}

/* The innermost frame outside of libraries; else the innermost. *frame NULL: there is none. Frames stand innermost first. */
static vp_status frame_of(walk *w, const vp_pickle_value *frames, const vp_pickle_value **frame)
{
    int64_t   n  = vp_pickle_length(frames);
    vp_status st = VP_OK;

    *frame = vp_pickle_at(frames, 0);
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(look(w, 1));
        if (!is_library(vp_pickle_member(vp_pickle_at(frames, i), "filename"))) {
            *frame = vp_pickle_at(frames, i);
            break;
        }
    }
out:
    return st;
}

static int by_frame(const void *a, const void *b)
{
    return strcmp(((const vp_owner *)a)->frame, ((const vp_owner *)b)->frame);
}

static int by_bytes(const void *a, const void *b)
{
    const vp_owner *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->frame, y->frame);
}

/* Whoever allocated what is alive in w's blocks. */
static vp_status find_owners(walk *w, vp_owners *out)
{
    vp_owner *owners = vp_arena_array(w->arena, w->n_blocks + 1, sizeof *owners);
    int64_t   n = 0, k = 0;
    vp_status st = VP_OK;

    VP_TRY_ALLOC(w->err, owners);
    *out = (vp_owners){.owners = owners};
    for (int64_t i = 0; i < w->cap_blocks; i++) {
        const block           *b = &w->blocks[i];
        const vp_pickle_value *frame;

        if (!b->is_live)
            continue;
        VP_TRY(frame_of(w, b->frames, &frame));
        owners[n] = (vp_owner){.frame    = frame       ? frame_text(w, frame)
                                           : b->frames ? "(no Python frame: PyTorch's autograd thread)"
                                                       : "(before the history begins)",
                               .bytes    = b->bytes,
                               .n_blocks = 1};
        VP_TRY_ALLOC(w->err, owners[n].frame);
        out->bytes += b->bytes;
        n++;
    }
    qsort(owners, (size_t)n, sizeof *owners, by_frame);
    for (int64_t i = 0; i < n; i++) {
        if (k && strcmp(owners[k - 1].frame, owners[i].frame) == 0) {
            owners[k - 1].bytes += owners[i].bytes;
            owners[k - 1].n_blocks++;
        } else {
            owners[k++] = owners[i];
        }
    }
    qsort(owners, (size_t)k, sizeof *owners, by_bytes);
    out->n = k;
out:
    return st;
}

/* ---- what there is now ---- */

static vp_status add_block(walk *w, const vp_pickle_value *b, bool *any_live, int64_t *free_bytes)
{
    int64_t                size      = vp_pickle_count(vp_pickle_member(b, "size"));
    int64_t                requested = vp_pickle_count(vp_pickle_member(b, "requested_size"));
    const vp_pickle_value *state     = vp_pickle_member(b, "state");
    vp_snapshot           *s         = w->s;
    uint64_t               address   = address_of(b, "address");

    if (size < 0 || size > MAX_SIZE || requested > MAX_SIZE || !state)
        return wrong(w, "a block of a segment has no size, none that a card has, or no state");
    if (vp_pickle_is_text(state, "inactive")) {
        *free_bytes += size;
        s->largest_free_bytes = size > s->largest_free_bytes ? size : s->largest_free_bytes;
        return VP_OK;
    }
    *any_live = true;
    if (!vp_pickle_is_text(state, "active_allocated")) {
        s->pending_bytes += size;
        return VP_OK;
    }
    s->allocated_bytes += size;
    s->requested_bytes =
        requested < 0 || s->requested_bytes < 0 ? -1 : s->requested_bytes + requested;
    if (address) {
        set_live(w, address, requested >= 0 ? requested : size, vp_pickle_member(b, "frames"));
        w->n_blocks++;
    }
    return VP_OK;
}

static vp_status add_segment(walk *w, const vp_pickle_value *segment)
{
    const vp_pickle_value *blocks = vp_pickle_member(segment, "blocks"), *grows;
    int64_t   total = vp_pickle_count(vp_pickle_member(segment, "total_size")), free_bytes = 0;
    bool      any_live = false;
    vp_status st       = VP_OK;

    if (total < 0 || !blocks)
        VP_TRY(wrong(w, "a segment has no total_size or no blocks"));
    for (int64_t i = 0; i < vp_pickle_length(blocks); i++) {
        VP_TRY(look(w, 1));
        VP_TRY(add_block(w, vp_pickle_at(blocks, i), &any_live, &free_bytes));
    }
    grows = vp_pickle_member(segment, "is_expandable");
    w->s->n_segments++;
    w->s->n_expandable += grows && grows->kind == VP_PICKLE_BOOL && grows->integer;
    w->s->reserved_bytes += total;
    if (any_live)
        w->s->split_bytes += free_bytes;
    else
        w->s->free_segment_bytes += total;
out:
    return st;
}

static vp_status read_now(walk *w)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < vp_pickle_length(w->segments); i++) {
        const vp_pickle_value *segment = vp_pickle_at(w->segments, i);
        int64_t                device  = vp_pickle_count(vp_pickle_member(segment, "device"));

        if ((device < 0 ? 0 : device) == w->s->device)
            VP_TRY(add_segment(w, segment));
    }
    VP_TRY(find_owners(w, &w->s->now));
out:
    return st;
}

/* ---- the history ---- */

typedef enum action { ALLOC, FREE, SEGMENT_GROWS, SEGMENT_SHRINKS, OOM, ELSE } action;

/* Of an event; -1: it has none that a card has. */
static int64_t size_of(const vp_pickle_value *event)
{
    int64_t size = vp_pickle_count(vp_pickle_member(event, "size"));

    return size <= MAX_SIZE ? size : -1;
}

static action action_of(const vp_pickle_value *event)
{
    const vp_pickle_value *v = vp_pickle_member(event, "action");

    return vp_pickle_is_text(v, "alloc")            ? ALLOC
           : vp_pickle_is_text(v, "free_requested") ? FREE
           : vp_pickle_is_text(v, "segment_alloc") || vp_pickle_is_text(v, "segment_map")
               ? SEGMENT_GROWS
           : vp_pickle_is_text(v, "segment_free") || vp_pickle_is_text(v, "segment_unmap")
               ? SEGMENT_SHRINKS
           : vp_pickle_is_text(v, "oom") ? OOM
                                         : ELSE;
}

/* Backwards from what lives now to what lived when the history began: w's blocks are those then, and *bytes. */
static vp_status rewind_history(walk *w, int64_t *bytes)
{
    vp_status st = VP_OK;

    *bytes = w->s->now.bytes;
    for (int64_t i = vp_pickle_length(w->events) - 1; i >= 0; i--) {
        const vp_pickle_value *e    = vp_pickle_at(w->events, i);
        action                 what = action_of(e);
        uint64_t               at   = address_of(e, "addr");
        int64_t                size = size_of(e);
        block                 *b;

        VP_TRY(look(w, 1));
        if ((what != ALLOC && what != FREE) || !at || size < 0)
            continue;
        b = place_of(w, at);
        if (what == ALLOC && b->address && b->is_live) {
            *bytes -= b->bytes;
            b->is_live = false;
        } else if (what == FREE && !(b->address && b->is_live)) {
            w->n_blocks += !b->address;
            set_live(w, at, size, NULL);
            *bytes += size;
        }
    }
out:
    return st;
}

/* Forwards up to event `end`: the most that lived at once, and when. */
static vp_status play(walk *w, int64_t bytes, int64_t end)
{
    vp_status st = VP_OK;

    w->s->peak_bytes = bytes;
    w->s->peak_event = 0;
    for (int64_t i = 0; i < end; i++) {
        const vp_pickle_value *e    = vp_pickle_at(w->events, i);
        action                 what = action_of(e);
        uint64_t               at   = address_of(e, "addr");
        int64_t                size = size_of(e);
        block                 *b;

        VP_TRY(look(w, 1));
        if (what == OOM)
            w->s->oom_allocated_bytes = bytes;
        if ((what != ALLOC && what != FREE) || !at || size < 0)
            continue;
        b = place_of(w, at);
        if (what == ALLOC) {
            bytes += size - (b->is_live ? b->bytes : 0);
            set_live(w, at, size, vp_pickle_member(e, "frames"));
        } else if (b->is_live) {
            bytes -= b->bytes;
            b->is_live = false;
        }
        if (bytes > w->s->peak_bytes) {
            w->s->peak_bytes = bytes;
            w->s->peak_event = i + 1;
        }
    }
out:
    return st;
}

/* The last event of a shortage, with what was reserved when it came. */
static vp_status find_oom(walk *w)
{
    vp_snapshot *s        = w->s;
    int64_t      reserved = s->reserved_bytes;
    bool         changed  = false;
    vp_status    st       = VP_OK;

    for (int64_t i = vp_pickle_length(w->events) - 1; i >= 0; i--) {
        const vp_pickle_value *e    = vp_pickle_at(w->events, i), *frame;
        action                 what = action_of(e);
        int64_t                size = size_of(e);

        VP_TRY(look(w, 1));
        if (what == OOM && s->n_ooms++ == 0) {
            s->oom_requested_bytes    = size;
            s->oom_device_free_bytes  = vp_pickle_count(vp_pickle_member(e, "device_free"));
            s->oom_reserved_bytes     = reserved;
            s->oom_largest_free_bytes = changed ? -1 : s->largest_free_bytes;
            VP_TRY(frame_of(w, vp_pickle_member(e, "frames"), &frame));
            s->oom_frame = frame ? frame_text(w, frame) : NULL;
        }
        changed |=
            what == ALLOC || what == FREE || what == SEGMENT_GROWS || what == SEGMENT_SHRINKS;
        if (size > 0 && size <= reserved && what == SEGMENT_GROWS)
            reserved -= size;
        else if (size > 0 && what == SEGMENT_SHRINKS)
            reserved += size;
    }
out:
    return st;
}

static vp_status read_history(walk *w)
{
    int64_t   bytes, oom_allocated, n = vp_pickle_length(w->events);
    block    *then;
    vp_status st = VP_OK;

    w->s->n_events   = n;
    w->s->peak_bytes = -1;
    if (!n)
        goto out;
    VP_TRY(find_oom(w));
    VP_TRY(rewind_history(w, &bytes));
    w->s->is_partial = bytes > 0;
    w->n_blocks += n;
    then = vp_arena_array(w->arena, w->cap_blocks, sizeof *then);
    VP_TRY_ALLOC(w->err, then);
    memcpy(then, w->blocks, (size_t)w->cap_blocks * sizeof *then);
    VP_TRY(play(w, bytes, n));
    memcpy(w->blocks, then, (size_t)w->cap_blocks * sizeof *then);
    n             = w->s->peak_event;
    oom_allocated = w->s->oom_largest_free_bytes >= 0 ? w->s->allocated_bytes + w->s->pending_bytes
                                                      : w->s->oom_allocated_bytes;
    VP_TRY(play(w, bytes, n));
    w->s->oom_allocated_bytes = oom_allocated;
    VP_TRY(find_owners(w, &w->s->at_peak));
out:
    return st;
}

/* ---- the answer ---- */

/* The device that ran out of memory last, else the one with the most reserved. */
static vp_status choose_device(walk *w, const vp_pickle_value *traces)
{
    enum { MAX_DEVICES = 256 };
    int64_t   reserved[MAX_DEVICES] = {0}, best = 0;
    bool      short_of[MAX_DEVICES] = {false};
    vp_status st                    = VP_OK;

    for (int64_t i = 0; i < vp_pickle_length(w->segments); i++) {
        int64_t device = vp_pickle_count(vp_pickle_member(vp_pickle_at(w->segments, i), "device"));
        int64_t total =
            vp_pickle_count(vp_pickle_member(vp_pickle_at(w->segments, i), "total_size"));

        VP_TRY(look(w, 1));
        device = device < 0 ? 0 : device;
        if (total > MAX_SIZE || device >= MAX_DEVICES)
            VP_TRY(wrong(w, "a segment of a device or size that no machine has"));
        reserved[device] += total > 0 ? total : 0;
    }
    for (int64_t d = 0; d < vp_pickle_length(traces) && d < MAX_DEVICES; d++) {
        const vp_pickle_value *events = vp_pickle_at(traces, d);

        VP_TRY(look(w, vp_pickle_length(events)));
        for (int64_t i = vp_pickle_length(events) - 1; i >= 0 && !short_of[d]; i--)
            short_of[d] = action_of(vp_pickle_at(events, i)) == OOM;
    }
    for (int d = 0; d < MAX_DEVICES; d++) {
        w->s->n_devices += reserved[d] > 0;
        if (short_of[d] > short_of[best] ||
            (short_of[d] == short_of[best] && reserved[d] > reserved[best]))
            best = d;
    }
    w->s->device = (int)best;
    w->events    = vp_pickle_at(traces, best);
out:
    return st;
}

static void conclude(walk *w)
{
    vp_snapshot *s     = w->s;
    int64_t      spare = s->oom_reserved_bytes - s->oom_allocated_bytes;
    char         a[32], b[32], c[32];

    s->class_ = VP_OOM_CLASS_NOT_OOM;
    if (s->n_ooms && spare >= s->oom_requested_bytes &&
        s->oom_device_free_bytes < s->oom_requested_bytes) {
        s->class_  = VP_OOM_CLASS_FRAGMENTATION;
        s->because = vp_arena_printf(
            w->arena,
            "%s were asked for; %s were reserved and not allocated, in pieces that are each too small",
            vp_size_text(s->oom_requested_bytes, a, sizeof a), vp_size_text(spare, b, sizeof b));
    } else if (s->n_ooms) {
        s->class_  = VP_OOM_CLASS_DEVICE_SHORTAGE;
        s->because = vp_arena_printf(
            w->arena,
            "%s were asked for; %s were free on the card, and %s reserved and not allocated",
            vp_size_text(s->oom_requested_bytes, a, sizeof a),
            vp_size_text(s->oom_device_free_bytes, b, sizeof b),
            vp_size_text(spare > 0 ? spare : 0, c, sizeof c));
    }
    if (s->n_expandable < s->n_segments && s->split_bytes >= 64 * VP_MIB)
        s->remedies[s->n_remedies++] = (vp_remedy){
            .text =
                "PYTORCH_ALLOC_CONF=expandable_segments:True before the command (PYTORCH_CUDA_ALLOC_CONF up "
                "to PyTorch 2.8)",
            .saves_bytes = s->split_bytes,
            .costs       = "nothing known; not on Windows or WSL"};
}

vp_status vp_snapshot_read(vp_arena *arena, const char *path, vp_snapshot **out, vp_err *err)
{
    walk w = {.arena = arena, .path = strcmp(path, "-") == 0 ? "standard input" : path, .err = err};
    char                  *bytes = NULL;
    int64_t                n     = 0;
    const vp_pickle_value *root;
    vp_status              st = VP_OK;

    *out = NULL;
    w.s  = vp_arena_alloc(arena, sizeof *w.s);
    VP_TRY_ALLOC(err, w.s);
    VP_TRY(vp_file_read(path, VP_PICKLE_MAX_BYTES, &bytes, &n, err));
    VP_TRY(vp_pickle_parse(arena, w.path, bytes, n, &root, err));
    w.segments = vp_pickle_member(root, "segments");
    if (!w.segments && root->kind == VP_PICKLE_LIST) /* torch.cuda.memory_snapshot() alone */
        w.segments = root;
    if (!w.segments || w.segments->kind != VP_PICKLE_LIST)
        VP_TRY(
            wrong(&w, "is a pickle, but no snapshot of PyTorch's allocator: it has no segments"));
    VP_TRY(choose_device(&w, vp_pickle_member(root, "device_traces")));
    VP_TRY(make_blocks(&w));
    VP_TRY(read_now(&w));
    VP_TRY(read_history(&w));
    conclude(&w);
    if (vp_arena_failed(arena))
        VP_TRY(VP_FAIL(err, VP_ERR_NOMEM, "out of host memory"));
    *out = w.s;
out:
    free(bytes);
    return st;
}
