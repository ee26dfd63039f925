/* trainers/files/script_options.c: `python train.py --batch_size 8` of a script with a parser of its own: what the command says stands in
 * for that option's default, wherever the script uses it, as argparse makes a value of it. */
#include "trainers/files/check_internal.h"
#include "trainers/files/script_values.h"

#include "base/text.h"

#include <string.h>

static void give_all(const vp_document *command, vp_value *v)
{
    for (vp_value *m = v->kind >= VP_VALUE_LIST ? v->first : NULL; m; m = m->next)
        give_all(command, m);
    vp_script_value_given(command, v);
}

static bool is_named(const char *path, const char *const *ends)
{
    for (size_t n = path ? strlen(path) : 0; n && *ends; ends++)
        if (n > strlen(*ends) && strcmp(path + n - strlen(*ends), *ends) == 0)
            return true;
    return false;
}

/* What a shell's script runs, where a script of Python is given beside it. */
static vp_status take_shells(vp_checked *c, const vp_check_input *in, const vp_check_input *all,
                             int n, vp_document **doc)
{
    static const char *const        shells[]   = {".sh", ".bash", ".slurm", ".sbatch", NULL},
                             *const scripts[]  = {".py", NULL};
    vp_err                          ignore     = {0};
    bool                            has_script = false;

    for (int i = 0; i < n; i++)
        has_script = has_script || is_named(all[i].path, scripts);
    if (!has_script || in->bytes || !is_named(in->path, shells))
        return VP_OK;
    return vp_document_read(c->arena, in->path, VP_FORMAT_BY_NAME, doc, &ignore);
}

vp_status vp_check_take_command(vp_checked *c, const vp_check_input *in, const vp_check_input *all,
                                int n, vp_err *err)
{
    vp_document *doc = NULL, **end = &c->command;
    vp_err       inner = {0};
    vp_status    st;

    if (in->words)
        st = vp_document_of_words(c->arena, "the command", in->words, in->n_words, &doc, &inner);
    else
        st = take_shells(c, in, all, n, &doc);
    while (st == VP_OK && doc && *end)
        end = &(*end)->next;
    if (st == VP_OK && doc)
        *end = doc;
    return st == VP_ERR_NOMEM ? VP_FAIL(err, VP_ERR_NOMEM, "out of host memory") : VP_OK;
}

const vp_document *vp_check_command_of(const vp_checked *c, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t      n = strlen(name);

    for (const vp_document *doc = c->command; doc; doc = doc->next)
        for (const char *p = doc->program; p && *p; p += strcspn(p, " "), p += *p == ' ') {
            size_t m = strcspn(p, " ");
            if (m >= n && memcmp(p + m - n, name, n) == 0 && (m == n || p[m - n - 1] == '/'))
                return doc;
        }
    return NULL;
}

/* python train.py, beside python prepare.py: of commands that say nothing themselves that which is called so. */
bool vp_check_is_called_training(const vp_document *doc)
{
    static const char *const words[] = {"train", "tun", "sft", "dpo"};
    bool                     is_one  = false;

    for (size_t i = 0; doc->program && !doc->root->first && i < sizeof words / sizeof *words; i++)
        is_one = is_one || strstr(doc->program, words[i]);
    return is_one;
}

/* What a script's own class of arguments has other defaults of, where its command does not say it. */
static void take_defaults(vp_checked *c, vp_document *command, const vp_checked_file *script)
{
    const vp_value *defaults = script->doc->defaults;
    char            shown[80];

    for (const vp_value *m = defaults ? defaults->first : NULL; m; m = m->next) {
        vp_value *v = vp_value_member(command->root, m->key);
        v           = v ? NULL : vp_value_add(command, command->root, m->key);
        if (!v)
            continue;
        vp_value   *next = v->next;
        const char *key  = v->key;
        *v               = *m;
        v->key           = key;
        v->next          = next;
        v->quoted        = false;
        v->line          = 0;
        if (vp_listed("optim bf16 fp16 gradient_checkpointing per_device_train_batch_size "
                      "gradient_accumulation_steps model_max_length max_length max_seq_length",
                      m->key))
            vp_find(c, script, VP_NOTE, m, m->key, NULL,
                    "%s is the default of the script's own arguments, which its command does not "
                    "change",
                    vp_text_escape(m->text ? m->text : "", shown, sizeof shown));
    }
}

void vp_check_options(vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++) {
        const vp_document *command = c->files[f].doc;
        if (!command || command->format != VP_FORMAT_FLAGS || !command->program)
            continue;
        for (int g = 0; g < c->n_files; g++) {
            vp_checked_file *script = &c->files[g];
            if (!script->doc || script->doc->format != VP_FORMAT_PYTHON || !script->yields_to ||
                strcmp(script->yields_to, c->files[f].name) != 0)
                continue;
            give_all(command, script->doc->root);
            take_defaults(c, c->files[f].doc, script);
        }
    }
}
