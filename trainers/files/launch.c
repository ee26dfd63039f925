/* trainers/files/launch.c: the launchers and the environment, as far as a step's memory depends on
 * them. Read in accelerate 1.15, torch 2.11's torchrun, DeepSpeed 0.19. */
#include "trainers/files/launch.h"

#include "trainers/files/target.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static bool is_one_of(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return true;
    return false;
}

static const char *base_of(const char *word)
{
    const char *slash = strrchr(word, '/');

    return slash ? slash + 1 : word;
}

bool vp_launch_is_launcher(const char *before, const char *word)
{
    static const char *const programs[] = {"torchrun", "deepspeed", "accelerate-launch", NULL};
    static const char *const modules[]  = {"torch.distributed.run", "torch.distributed.launch",
                                           "accelerate.commands.launch", "deepspeed.launcher.runner",
                                           NULL};

    if (before && strcmp(before, "-m") == 0)
        return is_one_of(word, modules);
    if (before && strcmp(base_of(before), "accelerate") == 0)
        return strcmp(word, "launch") == 0;
    if (before && strcmp(base_of(before), "tune") == 0) /* torchtune's, with torchrun's options */
        return strcmp(word, "run") == 0;
    return is_one_of(base_of(word), programs);
}

bool vp_launch_is_wrapper(const char *word)
{
    static const char *const wrappers[] = {
        "srun",   "sbatch", "salloc",      "mpirun",    "mpiexec", "horovodrun", "docker",
        "podman", "modal",  "singularity", "apptainer", "numactl", "nsys",       "timeout",
        "ray",    "sky",    "gantry",      "uv",        "conda",   "mamba",      "micromamba",
        "poetry", "pdm",    "pixi",        "hatch",     "pipenv",  "rye",        "sudo",
        "env",    "nice",   "ionice",      "taskset",   "stdbuf",  "chrt",       "time",
        "nohup",  "setsid", "xvfb-run",    "unbuffer",  NULL};

    return is_one_of(base_of(word), wrappers);
}

bool vp_launch_is_program(const char *word)
{
    static const char *const programs[] = {"accelerate",       "trl",    "axolotl",
                                           "llamafactory-cli", "swift",  "tune",
                                           "megatron",         "litgpt", NULL};
    const char              *base       = base_of(word);
    size_t                   n          = strlen(base);

    return is_one_of(base, programs) || strncmp(base, "python", 6) == 0 ||
           (n > 3 && strcmp(base + n - 3, ".py") == 0);
}

bool vp_launch_is_switch(const char *name)
{
    static const char *const switches[] = {"cpu",
                                           "multi_gpu",
                                           "tpu",
                                           "use_xpu",
                                           "use_deepspeed",
                                           "use_fsdp",
                                           "use_parallelism_config",
                                           "use_megatron_lm",
                                           "quiet",
                                           "module",
                                           "no_python",
                                           "debug",
                                           "standalone",
                                           "use_env",
                                           "run_path",
                                           "force_multi",
                                           "no_ssh",
                                           "no_ssh_check",
                                           "save_pid",
                                           "no_local_rank",
                                           "bind_cores_to_rank",
                                           "enable_cpu_affinity",
                                           NULL};

    return is_one_of(name, switches);
}

bool vp_launch_is_variable(const char *word)
{
    static const char *const names[] = {"PYTORCH_ALLOC_CONF=",
                                        "PYTORCH_CUDA_ALLOC_CONF=",
                                        "NPROC_PER_NODE=",
                                        "CUDA_VISIBLE_DEVICES=",
                                        "NNODES=",
                                        "ACCELERATE_MIXED_PRECISION=",
                                        NULL};

    for (int i = 0; names[i]; i++)
        if (strncmp(word, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static bool ends_in(const char *text, size_t n, const char *end)
{
    size_t m = strlen(end);

    return n > m && strncmp(text + n - m, end, m) == 0;
}

bool vp_launch_is_path(const char *text, size_t n)
{
    return n < PATH_MAX && !memchr(text, '$', n) && !memchr(text, '{', n) &&
           !memchr(text, '*', n) && !memchr(text, '?', n) && !memchr(text, '\n', n) &&
           !strstr(text, "://") &&
           (ends_in(text, n, ".json") || ends_in(text, n, ".yaml") || ends_in(text, n, ".yml") ||
            ends_in(text, n, ".toml"));
}

/* NAME=x.json before a command is a variable, and name=x.yaml behind one an override. */
static bool is_assignment(const char *text, size_t n)
{
    size_t name = 0;

    while (name < n && (isalnum((unsigned char)text[name]) || text[name] == '_'))
        name++;
    return name && name < n && text[name] == '=';
}

bool vp_launch_is_argument(const char *word, size_t n)
{
    return vp_launch_is_path(word, n) && !is_assignment(word, n);
}

bool vp_launch_names_file(const char *program)
{
    for (const char *p = program; p && *p;) {
        size_t n = strcspn(p, " ");
        if (vp_launch_is_argument(p, n))
            return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

/* The first of the keys that is there; NULL: none. */
static const vp_value *first_of(const vp_document *doc, const char *const *keys)
{
    const vp_value *v = NULL;

    for (; *keys && !v; keys++)
        v = vp_value_at(doc->root, *keys);
    return v;
}

static vp_status add_text(vp_document *doc, const char *key, const vp_value *at, const char *text,
                          vp_err *err)
{
    vp_value *v = vp_value_add(doc, doc->root, key);

    if (!v || !text)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    v->line = at->line, v->column = at->column;
    v->text = text;
    vp_value_resolve(v);
    return VP_OK;
}

enum { MOST = 1000000 };

static bool is_count(const vp_value *v)
{
    return v->kind == VP_VALUE_INT && v->integer > 0 && v->integer <= MOST;
}

enum { A_SHELL_SAYS = -1 };

/* Devices of a list like "0,1,2" or "GPU-8932f937,GPU-aa11" as CUDA counts them: up to the first entry that names none, and none
 * where one stands twice (torch 2.11, torch/cuda/__init__.py, _parse_visible_devices). 0: none, or it is not said. */
static int n_visible(const vp_value *v)
{
    const char *text = v && v->text ? v->text : "";
    int         n    = 0;

    if (strpbrk(text, "$`"))
        return A_SHELL_SAYS;
    for (const char *p = text;; p++) {
        p += strspn(p, " ");
        size_t m = strcspn(p, ",");
        if (!isdigit((unsigned char)*p) && strncmp(p, "GPU-", 4) != 0 && strncmp(p, "MIG-", 4) != 0)
            return n;
        for (const char *q = text; q < p; q += strcspn(q, ",") + 1) {
            q += strspn(q, " ");
            if (strcspn(q, ",") == m && strncmp(q, p, m) == 0)
                return 0;
        }
        n++;
        p += m;
        if (!*p)
            return n;
    }
}

/* Cards that DeepSpeed is told: "localhost:0,1", "worker-0:0,2@worker-1:1" (deepspeed/launcher/runner.py of 0.19). 0: all of a
 * machine, or it is not said. */
static int n_included(const vp_value *v)
{
    const char *text = v && v->text ? v->text : "";
    int         n    = 0;

    for (const char *p = text, *end; *p; p = end + (*end == '@')) {
        end               = p + strcspn(p, "@");
        const char *colon = memchr(p, ':', (size_t)(end - p));
        if (!colon || colon + 1 == end ||
            strspn(colon + 1, "0123456789,") != (size_t)(end - colon - 1))
            return 0;
        for (p = colon; p; p = memchr(p + 1, ',', (size_t)(end - p - 1)))
            n++;
    }
    return n;
}

/* Those before the first word are variables that nobody here knows. */
bool vp_launch_is_begun_by(const char *program, const char *const *names)
{
    const char *p = program ? program : "";
    char        first[32];

    for (size_t n; n = strcspn(p, " "), is_assignment(p, n);)
        p += n + (p[n] == ' ');
    snprintf(first, sizeof first, "%.*s", (int)strcspn(p, " "), p);
    return is_one_of(base_of(first), names);
}

/* LLaMA-Factory 0.9.5, hparams/parser.py, read_args(): behind a settings file all is an override. */
bool vp_launch_takes_overrides(const char *program)
{
    static const char *const factory[] = {"llamafactory-cli", "lmf", NULL};

    return program && (strncmp(program, "tune run ", 9) == 0 ||
                       (vp_launch_is_begun_by(program, factory) && vp_launch_names_file(program)));
}

/* Whether a launcher, or a trainer's own program by the one that it takes unless --launcher names another, starts a process for
 * each card that it sees. */
static bool starts_all(const vp_document *command)
{
    static const char *const programs[] = {"llamafactory-cli", "axolotl", "trl", NULL};
    /* says which cards, or which machines' */
    static const char *const others[] = {"include", "exclude", "hostfile", "config_file", NULL};
    static const char *const as_many_as_seen[] = {"gpu", "auto", NULL};
    const vp_value          *launcher          = vp_value_at(command->root, "launcher"),
                   *each = vp_value_at(command->launch->root, "nproc_per_node");

    if (each && each->text && is_one_of(each->text, as_many_as_seen))
        return true;
    if (first_of(command->launch, others) ||
        (launcher && launcher->text && strcmp(launcher->text, "accelerate") != 0))
        return false;
    return command->launch->starts_all || vp_launch_is_begun_by(command->program, programs);
}

/* As the options and variables say it; where they do not, the cards that the command sees, if it starts a process for each of
 * them. */
static vp_status add_processes(vp_document *command, vp_err *err)
{
    static const char *const all[]    = {"num_processes", NULL};
    static const char *const each[]   = {"nproc_per_node", "num_gpus", "NPROC_PER_NODE", NULL};
    static const char *const many[]   = {"nnodes", "num_nodes", "NNODES", NULL};
    vp_document             *doc      = command->launch;
    const vp_value          *launcher = vp_value_at(command->root, "launcher"),
                   *seen              = vp_value_at(doc->root, "CUDA_VISIBLE_DEVICES"),
                   *included = vp_value_at(doc->root, "include"), *total = first_of(doc, all),
                   *own = first_of(doc, each), *nodes = first_of(doc, many),
                   *at = total ? total
                         : own ? own
                               : nodes;
    int       n_seen = n_visible(seen), n_in = n_included(included);
    int64_t   n  = 1;
    vp_status st = VP_OK;

    if (launcher && launcher->text && strcmp(launcher->text, "python") != 0)
        doc->has_launcher = true;
    if (n_seen > 0)
        VP_TRY(add_text(doc, "cards", seen, vp_arena_printf(doc->arena, "%d", n_seen), err));
    if (n_seen && !total && (!own || !is_count(own)) && starts_all(command)) {
        n  = n_seen;
        at = seen;
    } else if (n_in && !at) {
        n  = n_in;
        at = included;
    } else if (!at) {
        return VP_OK;
    } else if (!is_count(at) || (!total && !own && starts_all(command))) {
        n = A_SHELL_SAYS; /* of each machine all cards, and nobody says how many that are */
    } else {
        n = total ? total->integer : own ? own->integer : 1;
    }
    if (n < 0 || (!total && nodes && !is_count(nodes)))
        VP_TRY(add_text(doc, "processes", at, "unknown", err));
    else
        VP_TRY(add_text(doc, "processes", at,
                        vp_arena_printf(doc->arena, "%lld",
                                        (long long)(n * (nodes && !total ? nodes->integer : 1))),
                        err));
out:
    return st;
}

static vp_status add_allocator(vp_document *doc, vp_err *err)
{
    static const char *const names[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", NULL};
    const vp_value          *v       = first_of(doc, names);

    if (!v || !v->text)
        return VP_OK;
    return add_text(doc, "allocator", v,
                    strstr(v->text, "expandable_segments:True") ? "expandable" : "default", err);
}

vp_status vp_launch_settle(vp_document *command, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(add_processes(command, err));
    VP_TRY(add_allocator(command->launch, err));
out:
    return st;
}

vp_status vp_launch_of_comment(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    static const char sign[] = "# run with: ";
    const char       *p = bytes, *end = bytes + n;
    int               line = 1;
    vp_document      *inner;
    vp_status         st = VP_OK;

    /* it stands above the first key: in the lines that begin with # */
    for (; p < end && *p == '#'; line++) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        size_t      m   = (size_t)((eol ? eol : end) - p);
        if (m > sizeof sign && memcmp(p, sign, sizeof sign - 1) == 0) {
            VP_TRY(vp_document_parse(doc->arena, doc->name, p + sizeof sign - 1,
                                     (int64_t)(m - sizeof sign + 1), VP_FORMAT_FLAGS, &inner, err));
            doc->launch = inner->launch;
            for (vp_value *v = doc->launch ? doc->launch->root->first : NULL; v; v = v->next)
                v->line = line;
            break;
        }
        p = eol ? eol + 1 : end;
    }
out:
    return st;
}

static const vp_key keys[] = {
    {"processes", VP_KEY_INT},
    {"cards", VP_KEY_INT}, /* that the command sees */
    {"allocator", VP_KEY_WORD, NULL, "default|expandable"},
    {"mixed_precision", VP_KEY_WORD, NULL, "no|fp16|bf16|fp8"},
    {"use_fsdp", VP_KEY_BOOL, "false"},
    {"fsdp_version", VP_KEY_INT, "1"},
    {"use_deepspeed", VP_KEY_BOOL, "false"},
    {"zero_stage", VP_KEY_INT, "2"},
    {"offload_optimizer_device", VP_KEY_WORD, "none", "none|cpu|nvme"},
    {"offload_param_device", VP_KEY_WORD, "none", "none|cpu|nvme"},
    {"fsdp_offload_params", VP_KEY_BOOL, "false"},
    {"config_file", VP_KEY_TEXT, .opens = "accelerate"},
    {"deepspeed_config_file", VP_KEY_TEXT, .opens = "deepspeed"},
};

static const vp_saying says[] = {
    {VP_SETTING_WORLD, "*", "processes", "$"},
    {VP_SETTING_ALLOCATOR, "*", "allocator", "$"},
    {VP_SETTING_PRECISION, "bf16-mixed", "mixed_precision", "bf16"},
    {VP_SETTING_PRECISION, "bf16-amp", "mixed_precision", "bf16"},
    {VP_SETTING_PRECISION, "fp16-mixed", "mixed_precision", "fp16"},
    {VP_SETTING_PRECISION, "fp16-amp", "mixed_precision", "fp16"},
    {VP_SETTING_PRECISION, "bf16-mixed", "ACCELERATE_MIXED_PRECISION", "bf16"},
    {VP_SETTING_PRECISION, "bf16-amp", "ACCELERATE_MIXED_PRECISION", "bf16"},
    {VP_SETTING_PRECISION, "fp16-mixed", "ACCELERATE_MIXED_PRECISION", "fp16"},
    {VP_SETTING_PRECISION, "fp16-amp", "ACCELERATE_MIXED_PRECISION", "fp16"},
    {VP_SETTING_PARALLEL, "fsdp", "use_fsdp", "true"},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_version", "1"},
    {VP_SETTING_PARALLEL, "fsdp2", "use_fsdp", "true"},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_version", "2"},
    {VP_SETTING_PARALLEL, "zero1", "use_deepspeed", "true"},
    {VP_SETTING_PARALLEL, "zero1", "zero_stage", "1"},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed_config_file", NULL},
    {VP_SETTING_PARALLEL, "zero2", "use_deepspeed", "true"},
    {VP_SETTING_PARALLEL, "zero2", "zero_stage", "2"},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed_config_file", NULL},
    {VP_SETTING_PARALLEL, "zero3", "use_deepspeed", "true"},
    {VP_SETTING_PARALLEL, "zero3", "zero_stage", "3"},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed_config_file", NULL},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "offload_optimizer_device", "cpu"},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "offload_param_device", "cpu", "parallel=zero3"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "fsdp_offload_params", "true", "parallel=fsdp|fsdp2"},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "fsdp_offload_params", "true", "parallel=fsdp|fsdp2"},
};

const vp_dialect vp_dialect_launch = {
    .name    = "launch",
    .library = "accelerate",
    .version = "1.15.0",
    .keys    = keys,
    .n_keys  = sizeof keys / sizeof *keys,
    .says    = says,
    .n_says  = sizeof says / sizeof *says,
    .flags   = true,
};
