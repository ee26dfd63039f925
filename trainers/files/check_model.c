/* trainers/files/check_model.c: which model the files train. */
#include "trainers/files/check_internal.h"

#include "base/text.h"

#include <ctype.h>
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

/* What torchtune trains its builder says: torchtune.models.qwen2_5.lora_qwen2_5_0_5b (torchtune/models/qwen2_5/_model_builders.py of 0.6). */
static const vp_value *of_torchtune(const vp_checked *c, const vp_checked_file *file)
{
    static const struct {
        const char *module, *name, *after;
    } rows[] = {{"llama2", "llama-2-", ""},       {"llama3", "llama-3-", ""},
                {"llama3_1", "llama-3.1-", ""},   {"llama3_2", "llama-3.2-", ""},
                {"llama3_3", "llama-3.3-", ""},   {"code_llama2", "codellama-", ""},
                {"mistral", "mistral-", "-v0.1"}, {"qwen2", "qwen2-", ""},
                {"qwen2_5", "qwen2.5-", ""},      {"qwen3", "qwen3-", ""},
                {"gemma", "gemma-", ""},          {"gemma2", "gemma-2-", ""}};
    static const char        models[] = "torchtune.models.";
    static const char *const before[] = {"lora_", "qlora_", "dora_", "qdora_"}, *const behind[] = {
                                                                                    "_instruct",
                                                                                    "_base"};
    const vp_value *built = vp_value_at(file->doc->root, "model._component_");
    const char     *at    = is_name(built) && strncmp(built->text, models, sizeof models - 1) == 0
                                ? built->text + sizeof models - 1
                                : "";
    size_t          n     = strcspn(at, "."), m;
    const char     *name  = at[n] ? at + n + 1 : "";

    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        name += strncmp(name, before[i], strlen(before[i])) == 0 ? strlen(before[i]) : 0;
    if (!n || strncmp(name, at, n) != 0 || name[n] != '_' || !isdigit((unsigned char)name[n + 1]))
        return NULL;
    name += n + 1;
    m = strlen(name);
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
        m -= m > strlen(behind[i]) && strcmp(name + m - strlen(behind[i]), behind[i]) == 0
                 ? strlen(behind[i])
                 : 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strlen(rows[i].module) != n || strncmp(rows[i].module, at, n) != 0)
            continue;
        vp_value *v = vp_arena_alloc(c->arena, sizeof *v);
        char     *text =
            vp_arena_printf(c->arena, "%s%.*s%s", rows[i].name, (int)m, name, rows[i].after);
        if (!v || !text)
            return NULL;
        for (char *p = text; *p; p++)
            *p = *p == '_' ? '.' : *p; /* 0_5b */
        *v      = *built;
        v->text = text;
        return v;
    }
    return NULL;
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
    for (int f = 0; f < c->n_files; f++) {
        const vp_value *v = c->files[f].doc && c->files[f].dialect == &vp_dialect_torchtune
                                ? of_torchtune(c, &c->files[f])
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
