#include "dryrun/dryrun_internal.h"

#include "base/text.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An error by which the probe itself ended the command: its message says all. */
static bool is_ours(const char *type)
{
    static const char *const types[] = {"version", "unsupported", "ranks", "other_rank"};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

/* What would help against an error of the command's own, or "". */
static const char *help_with(const char *message)
{
    if (strstr(message, "invalid device ordinal") || strstr(message, "Invalid device id"))
        return " (a dry run has one card, cuda:0, for each process: ranks are run by a launcher "
               "or --world, one process over several cards is not)";
    if (strstr(message, "--local_rank=") || strstr(message, "--local-rank="))
        return " (deepspeed and torch.distributed.launch give --local_rank to the script: its parser "
               "has to take it, or say --no_local_rank before the script, or start it with torchrun)";
    if (strstr(message, "'get_ipython' is not defined"))
        return " (what only a notebook runs, a %magic or a !command: take these lines out of the script)";
    if (strstr(message, "name 'null' is not defined"))
        return " (a notebook is no script: jupyter nbconvert --to script NOTEBOOK.ipynb makes one)";
    /* huggingface_hub and transformers, of a name that is neither a folder nor in the cache */
    return strstr(message, "cached files") || strstr(message, "outgoing traffic has been disabled")
               ? " (that model is not on this machine: vplan dryrun --fake-weights MODEL -o DIR "
                 "writes a folder without contents, to be named in its place)"
               : "";
}

/* The first line of an error's message, behind ": ", and the next where it ends in a colon; of one that
 * quotes the traceback of another process the last. "" where something else says it better. */
static const char *what_it_says(const char *message, char *buf, size_t size)
{
    static const char space[] = " \t\r\n";
    bool              quotes  = strstr(message, "Traceback (most recent call last)") != NULL;
    bool              of_hub  = strstr(message, "cached files") || strstr(message, "outgoing");
    char              line[1200], shown[300];
    const char       *next;
    size_t            length;

    buf[0] = '\0';
    for (;;) {
        message += strspn(message, space);
        next = message + strcspn(message, "\r\n");
        if (!quotes || !next[strspn(next, space)])
            break;
        message = next;
    }
    if (!*message || of_hub)
        return buf;
    length = strcspn(message, "\r\n");
    next   = message + length + strspn(message + length, space);
    snprintf(line, sizeof line, "%.*s", (int)length, message);
    length = strlen(line);
    if (length && line[length - 1] == ':' && *next)
        snprintf(line + length, sizeof line - length, " %.*s", (int)strcspn(next, "\r\n"), next);
    snprintf(buf, size, ": %s", vp_text_escape(line, shown, sizeof shown));
    return buf;
}

/* What PyTorch's allocator was told, where a failure may come of it; else "". Messages of torch 2.7 to 2.15. */
static const char *allocator_setting(const vp_dryrun_findings *found, const char *message,
                                     char *buf, size_t size)
{
    static const char *const words[] = {"llocator", "ConfigTokenizer", "stoull",
                                        "stod",     "garbage_collect", "roundup_power2"};
    bool                     is_it   = found->allocator_unread && !*message;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        is_it = is_it || strstr(message, words[i]);
    buf[0] = '\0';
    if (is_it && found->allocator[0])
        snprintf(buf, size,
                 " (%s; PyTorch takes NAME:VALUE pairs joined by commas, as in "
                 "expandable_segments:True,max_split_size_mb:512)",
                 found->allocator);
    return buf;
}

/* Of an error that came through a line which had read values of the device. */
static const char *values_read(const vp_json_node *error, char *buf, size_t size)
{
    const char *place = vp_dryrun_report_text(error, "read");
    char        shown[300];

    buf[0] = '\0';
    if (place[0])
        snprintf(buf, size,
                 " (nothing is computed on a card: the values that %s read there are zeros here, "
                 "which may be why)",
                 vp_text_escape(place, shown, sizeof shown));
    return buf;
}

/* Of a command that was ended though it trained: how to end it sooner. */
static const char *shorter(const vp_dryrun_opts *opts, bool trained)
{
    return trained && !opts->steps
               ? " (with --steps 3 it runs three optimizer steps, then evaluation and saving, and "
                 "ends by itself)"
               : "";
}

/* Whether ranks were asked for that nobody started. */
static bool no_ranks(const vp_dryrun_opts *opts, const vp_dryrun_findings *found)
{
    bool several = opts->ranks && (strchr(opts->ranks, ',') || strtoll(opts->ranks, NULL, 10) > 0);

    if (json_array_size(found->ranks) >= 2)
        return false;
    return vp_dryrun_all_ranks(opts) || (several && opts->world < 2 && !found->n_ranks);
}

/* The command was ended by a signal of its own. */
static void tell_signal(int number, const vp_dryrun_findings *found, vp_dryrun_judgement *out)
{
    char        setting[400];
    const char *why = "";

    if (number == SIGKILL)
        why = "; the kernel does this when host memory runs out";
    else if (number == SIGSEGV)
        why = "; host code that touches device memory ends like this";
    else if (number == SIGABRT && found->allocator_unread)
        why = allocator_setting(found, "", setting, sizeof setting);
    snprintf(out->reason, sizeof out->reason, "the command was ended by signal %d (%s)%s", number,
             strsignal(number), why);
}

static bool lacks_torch(const char *type, const vp_json_node *error)
{
    return strcmp(type, "ModuleNotFoundError") == 0 &&
           strstr(vp_dryrun_report_text(error, "message"), "'torch'");
}

/* Of the stand-in's libraries: a function that they have not, or one of them that there is not. */
static bool lacks_symbol(const char *type, const vp_json_node *error)
{
    const char *message = vp_dryrun_report_text(error, "message");

    return strcmp(type, "ImportError") == 0 &&
           (strstr(message, "undefined symbol") || strstr(message, "cannot open shared object"));
}

void vp_dryrun_judge(const vp_dryrun_opts *opts, const vp_child_result *child,
                     const vp_dryrun_findings *found, vp_dryrun_judgement *out)
{
    vp_json_node root, oom, error = {0}, cut;
    bool         have    = found->report != NULL;
    bool         was_oom = false, had_error = false, was_cut = false;
    const char  *type = "";
    char         shown[400], says[320], setting[400], read[420];

    out->verdict   = "failed";
    out->exit_code = vp_status_exit_code(VP_ERR_INPUT);
    out->reason[0] = '\0';
    if (have) {
        root      = vp_json_root(found->report);
        was_oom   = vp_dryrun_report_object(&root, "oom", &oom);
        had_error = vp_dryrun_report_object(&root, "error", &error);
        type      = had_error ? vp_dryrun_report_text(&error, "type") : "";
        was_cut   = vp_dryrun_report_object(&root, "cut", &cut);
    }
    if (child->end == VP_CHILD_INTERRUPTED) {
        out->exit_code = 128 + (child->term_signal ? child->term_signal : SIGINT);
        snprintf(out->reason, sizeof out->reason, "interrupted%s", shorter(opts, have));
    } else if (child->end == VP_CHILD_TIMED_OUT) {
        snprintf(out->reason, sizeof out->reason,
                 "the command ran longer than --timeout and was ended%s", shorter(opts, have));
    } else if (json_array_size(found->unsupported) > 0) {
        const json_t *first = json_array_get(found->unsupported, 0);

        snprintf(out->reason, sizeof out->reason, "%s of %s is not modelled",
                 json_string_value(json_object_get(first, "function")),
                 json_string_value(json_object_get(first, "library")));
    } else if (is_ours(type)) {
        vp_text_escape(vp_dryrun_report_text(&error, "message"), out->reason, sizeof out->reason);
    } else if (strcmp(type, "environment") == 0) {
        out->exit_code = vp_status_exit_code(VP_ERR_DEVICE);
        snprintf(out->reason, sizeof out->reason, "%s",
                 vp_text_escape(vp_dryrun_report_text(&error, "message"), shown, sizeof shown));
    } else if (found->host_full[0]) {
        out->exit_code = vp_status_exit_code(VP_ERR_DEVICE);
        snprintf(out->reason, sizeof out->reason,
                 "host memory ran out (%s): weights were made on the CPU. Make them on the device "
                 "(torch.device(\"cuda\")), or load them with --fake-weights and device_map or "
                 "low_cpu_mem_usage",
                 found->host_full);
    } else if (child->end == VP_CHILD_SIGNALED) {
        out->exit_code = 128 + child->term_signal;
        tell_signal(child->term_signal, found, out);
    } else if (child->exit_code != 0 && was_oom) {
        out->verdict   = "oom";
        out->exit_code = vp_status_exit_code(VP_ERR_NO_FIT);
    } else if (child->exit_code != 0 && was_cut) {
        out->verdict   = "fits"; /* the training did; what follows it met data that we ended */
        out->exit_code = 0;
        snprintf(says, sizeof says, "exit code %d", child->exit_code);
        snprintf(out->reason, sizeof out->reason,
                 "after the last step that was run the command ended with %s: what follows "
                 "training was not run to its end",
                 had_error ? vp_text_escape(type, shown, sizeof shown) : says);
    } else if (had_error && lacks_torch(type, &error)) {
        out->exit_code = vp_status_exit_code(VP_ERR_DEVICE);
        snprintf(out->reason, sizeof out->reason,
                 "the command's Python has no torch; begin the command with one that has: "
                 "/path/to/venv/bin/python");
    } else if (had_error && lacks_symbol(type, &error)) {
        snprintf(out->reason, sizeof out->reason,
                 "a library asks for what the stand-in does not have: %s",
                 vp_text_escape(vp_dryrun_report_text(&error, "message"), shown, sizeof shown));
    } else if (child->exit_code != 0) {
        const char *message = had_error ? vp_dryrun_report_text(&error, "message") : found->message;
        type                = had_error ? type : found->type;
        snprintf(out->reason, sizeof out->reason, "the command ended with exit code %d%s%s%s%s%s%s",
                 child->exit_code, type[0] ? ": " : "", vp_text_escape(type, shown, sizeof shown),
                 type[0] ? what_it_says(message, says, sizeof says) : "", help_with(message),
                 allocator_setting(found, message, setting, sizeof setting),
                 had_error ? values_read(&error, read, sizeof read) : "");
    } else if (!have && found->n_ranks) {
        out->exit_code = vp_status_exit_code(VP_ERR_DEVICE);
        snprintf(out->reason, sizeof out->reason,
                 "only ranks other than 0 were started (RANK, WORLD_SIZE): rank 0 is the one that "
                 "is run");
    } else if (!have || !vp_dryrun_report_text(&root, "torch")[0]) {
        out->exit_code = vp_status_exit_code(VP_ERR_DEVICE);
        snprintf(out->reason, sizeof out->reason,
                 "the command ended well, but no PyTorch ran under the probe "
                 "(is PYTHONPATH cleared, or python started with -I or -E?)");
    } else if (found->mismatch[0]) {
        snprintf(out->reason, sizeof out->reason, "%s", found->mismatch);
    } else if (no_ranks(opts, found)) {
        snprintf(out->reason, sizeof out->reason,
                 "--rank %.100s, and the command started no ranks: say how many with --world",
                 opts->ranks);
    } else {
        out->verdict   = "fits";
        out->exit_code = 0;
        if (was_oom)
            snprintf(out->reason, sizeof out->reason,
                     "an out-of-memory error was raised and caught by the command");
        else if (!vp_dryrun_report_bool(&root, "cuda"))
            snprintf(out->reason, sizeof out->reason, "the command never used the device");
    }
    assert((strcmp(out->verdict, "fits") == 0) == (out->exit_code == 0));
    assert(strcmp(out->verdict, "failed") != 0 || out->reason[0]); /* a failure says why */
}
