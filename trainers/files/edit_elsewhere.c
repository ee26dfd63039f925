/* trainers/files/edit_elsewhere.c: which of a target's files says what an edited one has no word for: the settings hold once all of
 * them are changed. */
#include "trainers/files/check_internal.h"
#include "trainers/files/edit.h"
#include "trainers/files/emit.h"

#include <string.h>

static bool has_word(const vp_saying *row, vp_setting s, const char *word)
{
    const char *argument;

    return row->setting == (int)s && !row->read_only && row->key[0] &&
           vp_word_is(word, row->word, &argument);
}

/* Whether a file of that dialect could be told it. */
static bool can_say(const vp_checked *c, const vp_dialect *dialect, const vp_settings *wanted,
                    vp_setting s)
{
    const char *target = c->target ? c->target->name : NULL;

    for (const vp_dialect *d = dialect; d; d = d->base_says ? d->base : NULL)
        for (int i = 0; i < d->n_says; i++)
            if (has_word(&d->says[i], s, wanted->value[s]) &&
                vp_when_holds(d->says[i].when, wanted, target))
                return true;
    return false;
}

/* Whether the file that is written anew says it. */
static bool says(const vp_emitted_file *file, vp_setting s, const char *word)
{
    for (const vp_dialect *d = file->dialect; d; d = d->base_says ? d->base : NULL)
        for (int i = 0; i < d->n_says; i++)
            if (has_word(&d->says[i], s, word) && d->says[i].value &&
                vp_value_at(file->document->root, d->says[i].key))
                return true;
    return false;
}

const char *vp_edit_elsewhere(const vp_checked *c, const vp_settings *wanted, const vp_edit *edits,
                              int64_t n, const vp_emitted *anew, vp_setting s)
{
    const char *word = wanted->value[s], *usual = vp_setting_otherwise(s),
               *said = c->by_default[s] ? NULL : c->settings.value[s];

    if (!word || !usual || strcmp(word, usual) == 0 || (said && strcmp(said, word) == 0))
        return NULL;
    for (int64_t i = 0; i < n; i++)
        if (edits[i].setting == s)
            return NULL;
    for (int f = 0; f < c->n_files; f++)
        if (c->files[f].doc && can_say(c, c->files[f].dialect, wanted, s))
            return NULL;
    for (int f = 0; f < anew->n_files; f++)
        if (anew->files[f].dialect && anew->files[f].document && says(&anew->files[f], s, word))
            return anew->files[f].name;
    return NULL;
}
