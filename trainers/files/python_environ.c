/* trainers/files/python_environ.c: variables of the environment are options of another kind: `BATCH=8 python train.py` says one, and the
 * script has a default. */
#include "trainers/files/python_environ.h"

#include "trainers/files/python_calls.h"
#include "trainers/files/script_values.h"

#include <stdlib.h>
#include <string.h>

/* What launchers set for each process (torch/distributed/run.py of 2.11, man srun): no command says it. */
static bool is_launchers(const char *name)
{
    static const char *const begins[] = {"WORLD_SIZE", "RANK",         "LOCAL_RANK", "LOCAL_WORLD_",
                                         "GROUP_RANK", "NODE_RANK",    "MASTER_",    "SLURM_",
                                         "OMPI_",      "TORCHELASTIC", "ACCELERATE_"};

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

vp_status vp_python_take_environ(vp_python_reader *r, vp_value *v, bool *is_one)
{
    static const char *const calls[] = {"os.environ.get", "os.getenv", "environ.get", "getenv"};
    const vp_value          *name = vp_value_member(v, "0"), *otherwise = vp_value_member(v, "1"),
                   *by_name    = vp_value_member(v, "default");
    const vp_document *command = r->doc->command;
    vp_value           own     = *v;
    vp_status          st      = VP_OK;

    *is_one = false;
    for (size_t i = 0; v->call && i < sizeof calls / sizeof *calls; i++)
        *is_one = *is_one || strcmp(v->call, calls[i]) == 0;
    otherwise = otherwise ? otherwise : by_name;
    *is_one   = *is_one && name && name->kind == VP_VALUE_STRING && name->quoted && otherwise &&
              otherwise->kind < VP_VALUE_LIST && !otherwise->call && !otherwise->option &&
              !(otherwise->kind == VP_VALUE_STRING && !otherwise->quoted);
    if (!*is_one)
        return VP_OK;
    bool is_ours = !is_launchers(name->text);
    if (!is_ours && !(command && !(command->launch && command->launch->has_launcher))) {
        *is_one = false; /* one process or many: nobody says */
        return VP_OK;
    }
    vp_python_be_same(v, otherwise);
    v->key = own.key, v->next = own.next, v->line = own.line, v->column = own.column;
    if (!is_ours)
        return VP_OK;
    v->option      = vp_arena_printf(r->doc->arena, "$%s", name->text);
    v->option_type = "str", v->option_letters = "";
    v->option_line = own.line;
    VP_TRY_ALLOC(r->err, v->option);
    if (command)
        vp_script_value_given(command, v);
out:
    return st;
}

vp_status vp_python_convert_environ(vp_python_reader *r, vp_value *v, bool *is_one)
{
    static const char *const types[] = {"int", "float", "bool"};
    const vp_value          *first   = vp_value_member(v, "0");
    vp_value                 own     = *v;
    const char              *type    = NULL;

    (void)r;
    *is_one = false;
    for (size_t i = 0; v->call && i < sizeof types / sizeof *types; i++)
        type = strcmp(v->call, types[i]) == 0 ? types[i] : type;
    if (!type || v->n_children != 1 || !first || !first->option || first->option[0] != '$' ||
        first->call)
        return VP_OK;
    bool was_bool_of_number = strcmp(type, "bool") == 0 && first->kind != VP_VALUE_STRING;
    vp_python_be_same(v, first);
    v->key = own.key, v->next = own.next, v->line = own.line, v->column = own.column;
    bool is_text   = strcmp(v->option_type, "str") == 0;
    v->option_type = is_text ? type : VP_OPTION_SUM;
    char *end      = NULL;
    if (v->kind == VP_VALUE_STRING && v->quoted && strcmp(type, "float") == 0 && *v->text)
        v->real = strtod(v->text, &end);
    if (end && !*end) /* 5e-5, which YAML takes for a text */
        v->kind = VP_VALUE_REAL, v->quoted = false;
    else if (v->kind == VP_VALUE_STRING && v->quoted)
        vp_script_value_default(v);
    else if (was_bool_of_number)
        v->boolean = v->real != 0, v->kind = VP_VALUE_BOOL, v->text = v->boolean ? "True" : "False";
    *is_one = true;
    return VP_OK;
}

/* PyTorch answers yes where it emulates bf16, too (torch/cuda/__init__.py), unless Unsloth answers in its place. */
static void answer_bf16(const vp_python_reader *r, vp_value *v)
{
    bool by_card = v->n_children || (r->imports & VP_PYTHON_UNSLOTH) ||
                   !vp_python_ends_in(v->call, "cuda.is_bf16_supported");

    *v = (vp_value){.key       = v->key,
                    .next      = v->next,
                    .line      = v->line,
                    .column    = v->column,
                    .kind      = VP_VALUE_BOOL,
                    .boolean   = true,
                    .text      = "True",
                    .asks_bf16 = by_card};
}

/* torch.cuda.get_device_capability(), (8, 6), or with [0] behind it 8: of the card that is named. */
static vp_status answer_capability(vp_python_reader *r, vp_value *v)
{
    const int of_card[] = {r->doc->capability / 10, r->doc->capability % 10};
    int       which     = -1;
    vp_status st        = VP_OK;

    if (!r->doc->capability)
        return VP_OK;
    if (r->end - r->at > 2 && r->at[0] == '[' && strchr("01", r->at[1]) && r->at[2] == ']')
        which = r->at[1] - '0', r->at += 3;
    v->call = NULL, v->first = v->last = NULL, v->n_children = 0, v->index = NULL;
    v->kind = VP_VALUE_LIST;
    for (int i = 0; i < 2; i++) {
        vp_value *one = v;
        if (which < 0)
            VP_TRY(vp_python_add(r, v, NULL, &one));
        else if (i != which)
            continue;
        one->kind = VP_VALUE_INT, one->integer = of_card[i], one->real = of_card[i];
        VP_TRY_ALLOC(r->err, one->text = vp_arena_printf(r->doc->arena, "%d", of_card[i]));
        one->line = r->line;
    }
out:
    return st;
}

vp_status vp_python_answer_card(vp_python_reader *r, vp_value *v, const char *name, bool *is_one)
{
    *is_one = true;
    if (vp_python_ends_in(name, "is_bf16_supported") ||
        vp_python_ends_in(name, "is_bfloat16_supported")) {
        answer_bf16(r, v);
        return VP_OK;
    }
    if (vp_python_ends_in(name, "cuda.get_device_capability"))
        return answer_capability(r, v);
    *is_one = vp_python_ends_in(name, "torch.cuda.is_available");
    if (*is_one)
        *v = (vp_value){.key     = v->key,
                        .next    = v->next,
                        .line    = v->line,
                        .column  = v->column,
                        .kind    = VP_VALUE_BOOL,
                        .boolean = true,
                        .text    = "True"};
    return VP_OK;
}
