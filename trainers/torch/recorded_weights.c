/* The weights of a recorded step, with the layers that they are of. */
#include "trainers/torch/recording_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct weight_list {
    vp_recorded_weight *at;
    int64_t             n;
    vp_weights          which;
} weight_list;

static bool is_listed(const vp_recorded *s, const weight_list *list, const token *t)
{
    vp_owner owner = s->program->slots[t->slot].owner;

    return !t->is_free && (owner == VP_OWNER_PARAMETER ||
                           (list->which != VP_WEIGHTS_TRAINED &&
                            (owner == VP_OWNER_FROZEN || owner == VP_OWNER_QUANTISED)));
}

static void list_weights(const vp_recorded *s, int phase_idx, int section_idx, int64_t layer,
                         weight_list *list)
{
    const section *x       = &s->program->phases[phase_idx].sections[section_idx];
    int64_t        n_times = vp_recorded_repetitions(s, phase_idx, section_idx), here = 0;

    for (int64_t j = 0; j < x->n; j++)
        here += is_listed(s, list, &x->tokens[j]);
    for (int64_t i = 0; i < n_times; i++)
        for (int64_t j = 0, seen = 0; j < x->n; j++) {
            const slot *weight = &s->program->slots[x->tokens[j].slot];
            if (!is_listed(s, list, &x->tokens[j]))
                continue;
            int64_t each  = s->program->every;
            int64_t of    = x->group < 0 ? layer : layer + i * each + seen++ * each / here;
            int64_t place = s->base[x->tokens[j].slot] + (weight->in_body ? i : 0);
            if (list->which == VP_WEIGHTS_THERE && (place >= s->n_clear || !s->blocks[place].block))
                continue;
            if (!vp_recorded_is_absent(s, x->tokens[j].slot) && s->sizes[weight->size])
                list->at[list->n++] = (vp_recorded_weight){
                    .bytes   = s->sizes[weight->size],
                    .layer   = of,
                    .rows    = vp_recorded_rows_of(s, s->program->recording->sizes[weight->size]),
                    .owner   = weight->owner,
                    .place   = place,
                    .is_idle = weight->owner == VP_OWNER_FROZEN &&
                               vp_recorded_is_of_rank(s->program->recording->sizes[weight->size])};
        }
}

bool vp_recorded_is_regular(const vp_recorded *s)
{
    const vp_recorded_program *p      = s->program;
    int                        inputs = vp_recorded_phase_named(p, "inputs", strlen("inputs"));

    for (int i = 0; i < inputs; i++) {
        int n_groups = 0, n_irregular = 0;
        for (int k = 0; k < p->phases[i].n_sections; k++) {
            n_groups += p->phases[i].sections[k].group >= 0;
            n_irregular += p->phases[i].sections[k].irregular > 0;
        }
        if (n_irregular && (n_groups > 1 || p->rest))
            return false;
    }
    return true;
}

/* Where what repeats of loading is no whole block, since what is freed reaches from one into the next: n weights of a phase, in blocks from
 * the first place on from which they repeat. */
static vp_status tell_layers(const vp_recorded *s, const section *body, vp_recorded_weight *x,
                             int64_t n, vp_err *err)
{
    int64_t n_blocks = s->n_blocks[body->group], each = s->program->every, of_block = 0, from = 0;

    for (int64_t i = 0; i < n; i++)
        of_block += x[i].layer >= 0;
    of_block /= n_blocks - body->irregular;
    for (; from + n_blocks * of_block <= n; from++) {
        int64_t i = from, end = from + (n_blocks - 1) * of_block;
        while (i < end && x[i].bytes == x[i + of_block].bytes &&
               x[i].owner == x[i + of_block].owner)
            i++;
        if (i == end)
            break;
    }
    if (from + n_blocks * of_block > n)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "several cards: layers of this recorded step are not all alike");
    for (int64_t i = 0; i < n; i++)
        x[i].layer = i < from                         ? VP_WEIGHT_BEFORE
                     : i < from + n_blocks * of_block ? (i - from) * each / of_block
                                                      : VP_WEIGHT_BEHIND;
    return VP_OK;
}

vp_status vp_recorded_weights(const vp_recorded *s, vp_weights which, vp_recorded_weight **out,
                              int64_t *n, vp_err *err)
{
    const vp_recorded_program *p = s->program;
    int64_t                    n_most =
        vp_recorded_count_slots(s, VP_OWNER_PARAMETER) +
        (which != VP_WEIGHTS_TRAINED ? vp_recorded_count_slots(s, VP_OWNER_FROZEN) +
                                           vp_recorded_count_slots(s, VP_OWNER_QUANTISED)
                                     : 0);
    weight_list list   = {.at = calloc((size_t)n_most + 1, sizeof *list.at), .which = which};
    int         inputs = vp_recorded_phase_named(p, "inputs", strlen("inputs"));
    vp_status   st     = VP_OK;

    *out = NULL;
    *n   = 0;
    VP_TRY_ALLOC(err, list.at);
    for (int i = 0; i < inputs; i++) {
        int64_t        layer = VP_WEIGHT_BEFORE, n_layers = 0, first = list.n, of_layer = 0;
        const section *irregular = NULL;
        for (int k = 0; k < p->phases[i].n_sections; k++) {
            bool    body = p->phases[i].sections[k].group >= 0;
            int64_t at = list.n, n_times = vp_recorded_repetitions(s, i, k) * p->every;
            list_weights(s, i, k, body ? n_layers : layer, &list);
            for (int64_t j = at; j < list.n && j - at < of_layer * p->rest; j++)
                list.at[j].layer = n_layers + (j - at) / of_layer; /* of layers beside blocks */
            of_layer = body && n_times ? (list.n - at) / n_times : 0;
            n_layers += body ? n_times : 0;
            layer     = body ? VP_WEIGHT_BEHIND : layer;
            irregular = p->phases[i].sections[k].irregular ? &p->phases[i].sections[k] : irregular;
        }
        if (irregular && which != VP_WEIGHTS_THERE && vp_recorded_is_regular(s))
            VP_TRY(tell_layers(s, irregular, list.at + first, list.n - first, err));
    }
    *out    = list.at;
    *n      = list.n;
    list.at = NULL;
out:
    free(list.at);
    return st;
}
