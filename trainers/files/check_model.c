/* trainers/files/check_model.c: which model the files train. */
#include "trainers/files/check_internal.h"

#include "base/text.h"

#include <string.h>

typedef struct said {
    const vp_checked_file *file; /* NULL: nobody says a model */
    const vp_value        *at;
} said;

static bool is_name(const vp_value *v)
{
    return v && v->kind == VP_VALUE_STRING && v->text[0];
}

/* litgpt's checkpoints lie in folders that are called as the Hub calls their models: checkpoints/org/name. */
static const char *without_folder(const char *path)
{
    const char *name = path, *slash;
    int         n    = 0;

    for (const char *p = path; *p; p++)
        n += *p == '/' && p[1];
    for (; n > 1 && (slash = strchr(name, '/')) != NULL; n--)
        name = slash + 1;
    return name;
}

/* What litgpt trains: the last word before its options, `litgpt finetune_lora org/name`, or what its file or option says. */
static const vp_value *of_litgpt(const vp_checked *c, const vp_checked_file *file)
{
    static const char *const commands[] = {
        "finetune", "finetune_full", "finetune_lora", "finetune_adapter", "finetune_adapter_v2",
        "full",     "lora",          "adapter",       "adapter_v2",       "pretrain"};
    static const char *const keys[] = {"checkpoint_dir", "model_name"};
    const char              *last   = file->doc->program ? strrchr(file->doc->program, ' ') : NULL;
    const vp_value          *given  = NULL;
    vp_value                *v;

    for (size_t i = 0; last && i < sizeof commands / sizeof *commands; i++)
        last = strcmp(last + 1, commands[i]) == 0 ? NULL : last;
    for (size_t i = 0; !given && i < sizeof keys / sizeof *keys; i++)
        given = vp_value_at(file->doc->root, keys[i]);
    if (!last && (!is_name(given) || vp_value_is_unknown(file, given, true)))
        return NULL;
    v = vp_arena_alloc(c->arena, sizeof *v);
    if (!v)
        return NULL;
    *v      = given ? *given : (vp_value){.kind = VP_VALUE_STRING, .line = file->doc->root->line};
    v->key  = v->key ? v->key : "";
    v->text = without_folder(last ? last + 1 : given->text);
    return is_name(v) ? v : NULL;
}

static said find(const vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++)
        for (const vp_dialect *d = c->files[f].doc ? c->files[f].dialect : NULL; d; d = d->base)
            for (int i = 0; i < d->n_says; i++) {
                const vp_value *v = d->says[i].value && strcmp(d->says[i].value, "$model") == 0
                                        ? vp_value_at(c->files[f].doc->root, d->says[i].key)
                                        : NULL;
                if (is_name(v) && !vp_value_is_unknown(&c->files[f], v, true))
                    return (said){&c->files[f], v};
            }
    for (int f = 0; f < c->n_files; f++) {
        const vp_value *v = c->files[f].doc && c->files[f].dialect == &vp_dialect_litgpt
                                ? of_litgpt(c, &c->files[f])
                                : NULL;
        if (v)
            return (said){&c->files[f], v};
    }
    for (int f = 0; f < c->n_files; f++) { /* saved adapters say what they are for */
        const vp_value *v = c->files[f].doc && c->files[f].dialect == &vp_dialect_lora
                                ? vp_value_at(c->files[f].doc->root, "base_model_name_or_path")
                                : NULL;
        if (is_name(v))
            return (said){&c->files[f], v};
    }
    return (said){0};
}

const char *vp_checked_model(const vp_checked *c)
{
    said x = find(c);

    return x.file ? x.at->text : NULL;
}

void vp_check_packed(vp_checked *c)
{
    static const char *const words[] = {"gptq",  "awq",  "-int4", "-int8", "-4bit",
                                        "-8bit", "gguf", "-fp8",  "-mxfp4"};
    said                     x       = find(c);
    bool                     is      = false;
    char                     shown[128];

    for (size_t i = 0; x.file && i < sizeof words / sizeof *words; i++)
        is = is || strcasestr(x.at->text, words[i]);
    if (!is || (strcasestr(x.at->text, "bnb-4bit") && vp_checked_is_quantised(c)))
        return;
    vp_find(c, x.file, VP_NOTE, x.at, x.at->key, NULL,
            "weights that were quantised beforehand, by their name: what they take is not counted, "
            "and fit not answered");
    if (!c->uncounted)
        c->uncounted = vp_arena_strdup(c->arena, vp_text_escape(x.at->text, shown, sizeof shown));
}

vp_status vp_check_other_model(vp_checked *c, const char *counted, bool is_known, vp_err *err)
{
    said x = find(c);
    char shown[128];

    if (!x.file)
        return VP_OK;
    vp_find(c, x.file, is_known ? VP_WARNING : VP_NOTE, x.at, x.at->key, NULL,
            is_known ? "%s trains, and what is counted is another model, %s, as --model says"
                     : "%s is not built in: what is counted is %s, as --model says, whose bytes "
                       "may be others",
            vp_text_escape(x.at->text, shown, sizeof shown), counted);
    return vp_check_sort(c, err);
}
