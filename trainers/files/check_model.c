/* trainers/files/check_model.c: which model the files train. */
#include "trainers/files/check_internal.h"

#include <string.h>

const char *vp_checked_model(const vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++)
        for (const vp_dialect *d = c->files[f].doc ? c->files[f].dialect : NULL; d; d = d->base)
            for (int i = 0; i < d->n_says; i++) {
                const vp_value *v = d->says[i].value && strcmp(d->says[i].value, "$model") == 0
                                        ? vp_value_at(c->files[f].doc->root, d->says[i].key)
                                        : NULL;
                if (v && v->kind == VP_VALUE_STRING && v->text[0] &&
                    !vp_value_is_unknown(&c->files[f], v, true))
                    return v->text;
            }
    for (int f = 0; f < c->n_files; f++) { /* saved adapters say what they are for */
        const vp_value *v = c->files[f].doc && c->files[f].dialect == &vp_dialect_lora
                                ? vp_value_at(c->files[f].doc->root, "base_model_name_or_path")
                                : NULL;
        if (v && v->kind == VP_VALUE_STRING && v->text[0])
            return v->text;
    }
    return NULL;
}
