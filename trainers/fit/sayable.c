#include "trainers/fit/sayable.h"

#include "base/hash.h"
#include "base/text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N_CHAINS = 1 << 10 };

typedef struct answer {
    struct answer *next;
    bool           holds;
    size_t         n_bytes;
    char           key[];
} answer;

struct vp_sayable {
    pthread_mutex_t lock;
    answer         *chains[N_CHAINS];
};

vp_sayable *vp_sayable_new(void)
{
    vp_sayable *sayable = calloc(1, sizeof *sayable);

    if (sayable)
        pthread_mutex_init(&sayable->lock, NULL); /* of default attributes: it cannot fail */
    return sayable;
}

void vp_sayable_free(vp_sayable *sayable)
{
    if (!sayable)
        return;
    for (int i = 0; i < N_CHAINS; i++)
        for (answer *a = sayable->chains[i], *next; a; a = next) {
            next = a->next;
            free(a);
        }
    pthread_mutex_destroy(&sayable->lock);
    free(sayable);
}

static void put_word(vp_text *out, const char *word)
{
    const char *text = word ? word : "";

    vp_text_append(out, text, strlen(text) + (word != NULL)); /* a word ends in its 0 */
    vp_text_append(out, "\n", 1);
}

/* All that files are written from, but the length of sequences: any number is written, and no rule hangs on it. */
static void put_key(const vp_target *target, const vp_settings *s, vp_text *out)
{
    const char *library;
    json_t     *version;

    put_word(out, target->name);
    put_word(out, s->model);
    put_word(out, s->model_class);
    for (int i = 0; i < VP_N_SETTINGS; i++)
        put_word(out, i == VP_SETTING_SEQ ? NULL : s->value[i]);
    json_object_foreach (s->versions, library, version) {
        put_word(out, library);
        put_word(out, json_string_value(version));
    }
}

/* The answer of the key, in chain; NULL: nobody asked yet. */
static const answer *find(const answer *chain, const vp_text *key)
{
    while (chain &&
           (chain->n_bytes != key->n_bytes || memcmp(chain->key, key->data, key->n_bytes) != 0))
        chain = chain->next;
    return chain;
}

/* Where there is no memory for it, it is asked again. */
static void keep(answer **chain, const vp_text *key, bool holds)
{
    answer *a = malloc(sizeof *a + key->n_bytes);

    if (!a)
        return;
    *a = (answer){.next = *chain, .holds = holds, .n_bytes = key->n_bytes};
    memcpy(a->key, key->data, key->n_bytes);
    *chain = a;
}

static bool ask(const vp_target *target, const vp_settings *s, vp_err *why)
{
    vp_arena  *arena = vp_arena_new();
    vp_emitted emitted;
    vp_err     ignored = {0};
    bool holds = arena && vp_emit(arena, target, s, NULL, &emitted, why ? why : &ignored) == VP_OK;

    if (holds)
        vp_emitted_release(&emitted);
    vp_arena_free(arena);
    return holds;
}

bool vp_sayable_holds(vp_sayable *sayable, const vp_target *target, const vp_settings *s,
                      vp_err *why)
{
    vp_text       key = {0};
    const answer *known;
    answer      **chain;
    bool          is_known, holds = false;

    put_key(target, s, &key);
    if (!sayable || key.failed) {
        vp_text_release(&key);
        return ask(target, s, why);
    }
    chain = &sayable->chains[vp_hash(key.data, key.n_bytes) % N_CHAINS];
    pthread_mutex_lock(&sayable->lock);
    known    = find(*chain, &key);
    is_known = known != NULL;
    holds    = known && known->holds;
    pthread_mutex_unlock(&sayable->lock);
    if (!is_known) {
        holds = ask(target, s, why);
        pthread_mutex_lock(&sayable->lock);
        keep(chain, &key, holds); /* twice where two threads asked at once */
        pthread_mutex_unlock(&sayable->lock);
    } else if (!holds && why) {
        ask(target, s, why);
    }
    vp_text_release(&key);
    return holds;
}
