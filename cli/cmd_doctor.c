/* vplan doctor: what really happened when memory ran out, and what to type next. */
#include "cli/cli.h"
#include "cli/doctor_print.h"
#include "cli/rows.h"

typedef struct arguments {
    const char *oom, *snapshot, *summary;
} arguments;

static const vp_option rows[] = {
    {.name  = "--oom",
     .kind  = VP_OPTION_INPUT,
     .at    = offsetof(arguments, oom),
     .value = "FILE|-",
     .help =
         "A log, or the pasted error: which line is the reason, whose memory ran out, and what helps",
     .otherwise = "none",
     .example   = "train.log"},
    {.name  = "--snapshot",
     .kind  = VP_OPTION_INPUT,
     .at    = offsetof(arguments, snapshot),
     .value = "FILE",
     .help =
         "What torch.cuda.memory._dump_snapshot() wrote, or vplan dryrun --snapshot: who holds the memory at its "
         "peak and at the end, and what lies in pieces",
     .otherwise = "none",
     .example   = "snapshot.pickle"},
    {.name      = "--summary",
     .kind      = VP_OPTION_INPUT,
     .at        = offsetof(arguments, summary),
     .value     = "FILE|-",
     .help      = "The table of torch.cuda.memory_summary(), or nvidia-smi's, also inside a log",
     .otherwise = "none",
     .example   = "train.log"},
};
static const vp_option_set options = {NULL, VP_ROWS(rows)};

static vp_status read_oom(vp_arena *arena, const vp_cli *cli, const char *path, vp_err *err)
{
    vp_doctor_next next = {0};
    vp_oom        *oom;
    vp_status      st = VP_OK;

    VP_TRY(vp_oom_read(arena, path, &oom, err));
    VP_TRY(vp_doctor_next_of(arena, oom, &next, err));
    if (cli->json)
        VP_TRY(vp_print_json(vp_doctor_oom_json(oom, &next), err));
    else
        vp_doctor_print_oom(oom, &next);
out:
    vp_doctor_next_release(&next);
    return st;
}

static vp_status read_snapshot(vp_arena *arena, const vp_cli *cli, const char *path, vp_err *err)
{
    vp_snapshot *s;
    vp_status    st = VP_OK;

    VP_TRY(vp_snapshot_read(arena, path, &s, err));
    if (cli->json)
        VP_TRY(vp_print_json(vp_doctor_snapshot_json(s), err));
    else
        vp_doctor_print_snapshot(s);
out:
    return st;
}

static vp_status read_summary(vp_arena *arena, const vp_cli *cli, const char *path, vp_err *err)
{
    vp_summary *s;
    vp_status   st = VP_OK;

    VP_TRY(vp_summary_read(arena, path, &s, err));
    if (cli->json)
        VP_TRY(vp_print_json(vp_doctor_summary_json(s), err));
    else
        vp_doctor_print_summary(s);
out:
    return st;
}

static vp_status read_machine(vp_arena *arena, const vp_cli *cli, vp_err *err)
{
    vp_machine *m;
    vp_status   st = VP_OK;

    VP_TRY(vp_machine_read(arena, "", &m, err));
    if (cli->json)
        VP_TRY(vp_print_json(vp_doctor_machine_json(m), err));
    else
        vp_doctor_print_machine(m);
out:
    return st;
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    arguments       args  = {0};
    vp_arena       *arena = vp_arena_new();
    vp_command_line line;
    vp_status       st = VP_OK;

    VP_TRY(vp_cli_parse(&vp_cmd_doctor, argc, argv, cli, (void *[]){&args}, &line, err));
    if ((args.oom != NULL) + (args.snapshot != NULL) + (args.summary != NULL) > 1)
        VP_TRY(
            VP_FAIL(err, VP_ERR_USAGE, "--oom, --snapshot and --summary: one of them at a time"));
    VP_TRY_ALLOC(err, arena);
    VP_TRY(args.oom        ? read_oom(arena, cli, args.oom, err)
           : args.snapshot ? read_snapshot(arena, cli, args.snapshot, err)
           : args.summary  ? read_summary(arena, cli, args.summary, err)
                           : read_machine(arena, cli, err));
out:
    vp_arena_free(arena);
    return st;
}

const vp_command vp_cmd_doctor = {
    .name    = "doctor",
    .summary = "why a run ran out of memory and what helps; this machine's memory",
    .usage   = {"[--oom FILE|-] [--json]", "--snapshot FILE [--json]", "--summary FILE|- [--json]"},
    .about =
        {"Reads any log of a training, or the error alone, and finds the message that is the reason: the first refusal, not "
         "what follows from it. Tells a full card from a fragmented one, from another process on it, from a limit, and all "
         "of these from host memory, pinned memory, shared memory, and from errors that are no shortage; each with its "
         "line and with the sum that decides it.",
         "Numbers are those of the text, KB, MB and GB being powers of 1024 there. What a program cannot know (2^64 bytes) "
         "is left out. Nothing of the log is executed, and no file is opened but the one that is named.",
         "A snapshot is a Python pickle. It is read by a reader of vplan's own that knows plain data only: one that would "
         "run code is refused by the opcode's name.",
         "Without an option: this machine. What the cards have free and who holds them, the limits that a training meets on the "
         "host, and what is odd. NVML is asked where the driver has it, and /proc; nothing is changed or ended. Exit 0 whatever "
         "is found, 4 where a file is not what it is said to be."},
    .examples = {"vplan doctor --oom train.log", "vplan doctor --snapshot snapshot.pickle",
                 "nvidia-smi | vplan doctor --summary -", "vplan doctor"},
    .sets     = {&options},
    .argument = VP_TAKES_NOTHING,
    .run      = run,
};
