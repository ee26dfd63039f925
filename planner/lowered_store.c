#include "planner/lowered_store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Programs kept before the older half of them is dropped: some hundred kilobytes each at most. */
enum { MOST_KEPT = 32 };

typedef struct entry {
    vp_lowered_key key;
    vp_arena      *arena; /* its own */
    vp_lowered     lowered;
    bool           unlike;
} entry;

typedef struct phase {
    struct phase   *before;
    vp_phase_key    key;
    vp_priced_phase priced;
} phase;

typedef struct head {
    struct head   *before;
    vp_lowered_key key;
    vp_priced_head priced;
} head;

typedef struct walk {
    struct walk            *before;
    const vp_priced_phase **of;
    int64_t                 n;
    double                  seconds;
} walk;

struct vp_lowered_store {
    entry    *kept; /* oldest first */
    int       n, cap;
    vp_arena *arena; /* of what follows */
    phase    *latest;
    head     *latest_head;
    walk     *latest_walk;

    vp_store_subject subject;
    bool             used;
};

vp_lowered_store *vp_lowered_store_new(void)
{
    vp_lowered_store *s = calloc(1, sizeof *s);

    if (s && !(s->arena = vp_arena_new())) {
        free(s);
        return NULL;
    }
    return s;
}

void vp_lowered_store_use(vp_lowered_store *s, const vp_store_subject *x)
{
    if (!s)
        return;
    if (!s->used)
        s->subject = *x;
    s->used = true;
    assert(s->subject.model == x->model && s->subject.device == x->device &&
           s->subject.profile == x->profile);
    assert(s->subject.clip_norm == x->clip_norm && s->subject.dropout == x->dropout &&
           s->subject.loss_scale == x->loss_scale);
}

static void drop_oldest(vp_lowered_store *s, int n)
{
    for (int i = 0; i < n; i++)
        vp_arena_free(s->kept[i].arena);
    s->n -= n;
    memmove(s->kept, s->kept + n, (size_t)s->n * sizeof *s->kept);
}

void vp_lowered_store_free(vp_lowered_store *s)
{
    if (!s)
        return;
    if (s->n)
        drop_oldest(s, s->n);
    free(s->kept);
    vp_arena_free(s->arena);
    free(s);
}

void vp_lowered_store_trim(vp_lowered_store *s)
{
    if (s && s->n > MOST_KEPT)
        drop_oldest(s, s->n - MOST_KEPT / 2);
}

static bool is_key(const vp_lowered_key *a, const vp_lowered_key *b)
{
    return a->template_idx == b->template_idx && a->micro_batch == b->micro_batch &&
           a->last_batch == b->last_batch && a->seq == b->seq && a->chunk_rows == b->chunk_rows &&
           a->recompute == b->recompute && a->offload == b->offload && a->semantics == b->semantics;
}

const vp_lowered *vp_lowered_store_find(const vp_lowered_store *s, const vp_lowered_key *key,
                                        bool *unlike)
{
    for (int i = s ? s->n - 1 : -1; i >= 0; i--) /* the latest are asked for most */
        if (is_key(&s->kept[i].key, key)) {
            *unlike = s->kept[i].unlike;
            return &s->kept[i].lowered;
        }
    return NULL;
}

bool vp_lowered_store_put(vp_lowered_store *s, const vp_lowered_key *key, vp_arena *arena,
                          const vp_lowered *lowered, bool unlike)
{
    if (s->n == s->cap) {
        int    cap  = s->cap ? 2 * s->cap : MOST_KEPT;
        entry *more = realloc(s->kept, (size_t)cap * sizeof *more);
        if (!more)
            return false;
        s->kept = more;
        s->cap  = cap;
    }
    s->kept[s->n++] = (entry){.key = *key, .arena = arena, .lowered = *lowered, .unlike = unlike};
    return true;
}

const vp_priced_head *vp_lowered_store_find_head(const vp_lowered_store *s,
                                                 const vp_lowered_key   *key)
{
    for (const head *x = s ? s->latest_head : NULL; x; x = x->before)
        if (is_key(&x->key, key))
            return &x->priced;
    return NULL;
}

bool vp_lowered_store_put_head(vp_lowered_store *s, const vp_lowered_key *key,
                               const vp_priced_head *priced)
{
    head *x = vp_arena_alloc(s->arena, sizeof *x);

    if (!x)
        return false;
    *x             = (head){.before = s->latest_head, .key = *key, .priced = *priced};
    s->latest_head = x;
    return true;
}

/* ---- norm and updates ---- */

bool vp_is_stream_place(const vp_stream_place *a, const vp_stream_place *b)
{
    return a->is == b->is && a->slot == b->slot && a->first == b->first && a->last == b->last &&
           a->second_last == b->second_last;
}

static bool is_phase_key(const vp_phase_key *a, const vp_phase_key *b)
{
    return a->template_idx == b->template_idx && a->optimizer == b->optimizer &&
           a->precision == b->precision && a->gradients == b->gradients &&
           a->host_states == b->host_states && a->host_step == b->host_step &&
           a->streamed == b->streamed && a->in_backward == b->in_backward &&
           vp_is_stream_place(&a->place, &b->place);
}

const vp_priced_phase *vp_lowered_store_find_phase(const vp_lowered_store *s,
                                                   const vp_phase_key     *key)
{
    for (const phase *x = s ? s->latest : NULL; x; x = x->before)
        if (is_phase_key(&x->key, key))
            return &x->priced;
    return NULL;
}

bool vp_lowered_store_put_phase(vp_lowered_store *s, const vp_phase_key *key,
                                const vp_program *program, const int64_t kernels_ns[VP_N_PHASES],
                                bool host_is_device)
{
    phase *x = vp_arena_alloc(s->arena, sizeof *x);

    if (!x)
        return false;
    *x = (phase){.before = s->latest, .key = *key};
    for (int k = 0; k < VP_N_PHASES; k++) {
        x->priced.kernels_ns[k] = kernels_ns[k];
        if (!vp_pass_time(s->arena, program->steps[VP_PASS_NORM + k],
                          program->n_steps[VP_PASS_NORM + k], host_is_device, &x->priced.timed[k]))
            return false;
    }
    s->latest = x;
    return true;
}

double vp_lowered_store_find_walk(const vp_lowered_store *s, const vp_priced_phase *const *of,
                                  int64_t n)
{
    for (const walk *x = s ? s->latest_walk : NULL; x; x = x->before)
        if (x->n == n && memcmp(x->of, of, (size_t)n * sizeof *of) == 0)
            return x->seconds;
    return -1;
}

bool vp_lowered_store_put_walk(vp_lowered_store *s, const vp_priced_phase *const *of, int64_t n,
                               double seconds)
{
    walk *x = vp_arena_alloc(s->arena, sizeof *x);

    assert(n > 0 && seconds >= 0);
    if (!x || !(x->of = vp_arena_array(s->arena, n, sizeof *x->of)))
        return false;
    memcpy(x->of, of, (size_t)n * sizeof *of);
    x->n           = n;
    x->seconds     = seconds;
    x->before      = s->latest_walk;
    s->latest_walk = x;
    return true;
}
