/* trainers/files/python_environ.c: variables of the environment are options of another kind: `BATCH=8 python train.py` says one, and the
 * script has a default. */
#include "trainers/files/python_environ.h"

#include "trainers/files/python_calls.h"
#include "trainers/files/script_values.h"

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
    if (v->kind == VP_VALUE_STRING && v->quoted)
        vp_script_value_default(v);
    else if (was_bool_of_number)
        v->boolean = v->real != 0, v->kind = VP_VALUE_BOOL, v->text = v->boolean ? "True" : "False";
    *is_one = true;
    return VP_OK;
}
