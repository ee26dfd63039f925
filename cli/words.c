#include "cli/words.h"

#include "base/text.h"
#include "base/units.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

vp_status vp_say_refusal(vp_refusal x, vp_err *err)
{
    switch (x.reason) {
    case VP_REFUSED_NOT:
        return VP_OK;
    case VP_REFUSED_SEQ:
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--seq %lld is longer than the %lld positions of this model",
                       (long long)x.asked, (long long)x.limit);
    case VP_REFUSED_MICRO_BATCH:
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--micro-batch %lld does not divide the global batch %lld",
                       (long long)x.asked, (long long)x.limit);
    case VP_REFUSED_TOKENS:
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--global-batch times --seq is more tokens than 64 bits can count");
    case VP_REFUSED_SEGMENTS:
        return VP_FAIL(
            err, VP_ERR_USAGE,
            "--recompute segments:%lld: a plan has 2 segments or more, of one length, of "
            "at most %lld of this model's %lld blocks",
            (long long)x.asked, (long long)x.longest, (long long)x.limit);
    case VP_REFUSED_LOSS_CHUNK:
        break;
    }
    return VP_FAIL(
        err, VP_ERR_USAGE,
        "--loss chunked:%lld cuts the %lld x %lld tokens of a micro-batch into %lld chunks; at most %d: chunked:%lld or more",
        (long long)x.asked, (long long)x.micro_batch, (long long)x.seq, (long long)x.n_chunks,
        VP_MAX_CHUNKS, (long long)x.limit);
}

/* The first of host memory, pinned memory and drive that is short, and how much of each would do. */
static vp_status say_short(const vp_plan_request *r, const vp_host_needs *n, vp_err *err)
{
    const struct {
        const char *option, *of, *what;
        int64_t     needs, has;
    } rows[] = {{"--host-memory", "host", "", n->host_bytes, r->host_bytes},
                {"--pinned-memory", "host", "pinned ", n->pinned_bytes,
                 r->pinned_bytes ? r->pinned_bytes : INT64_MAX},
                {"--nvme", "drive", "", n->nvme_bytes, r->nvme_bytes}};
    enum { N = sizeof rows / sizeof *rows };
    vp_text   would = {0};
    char      needs[32], has[32], more[32];
    int       first = N;
    vp_status st;

    for (int i = N - 1; i >= 0; i--)
        if (rows[i].needs > rows[i].has)
            first = i;
    assert(first < N);
    for (int i = first; i < N; i++)
        if (rows[i].needs > rows[i].has)
            vp_text_printf(&would, "%s%s %lldB", i == first ? "" : " ", rows[i].option,
                           (long long)rows[i].needs);
    st = VP_FAIL(err, VP_ERR_NO_FIT,
                 "does not fit the %s: --offload %s needs %s of its %smemory at least and %s gives "
                 "%s, short by %s; %s would do, or another --offload",
                 rows[first].of, vp_offload_name(r->offload),
                 vp_size_text(rows[first].needs, needs, sizeof needs), rows[first].what,
                 rows[first].option, vp_size_text(rows[first].has, has, sizeof has),
                 vp_size_text(rows[first].needs - rows[first].has, more, sizeof more),
                 vp_text_string(&would));
    vp_text_release(&would);
    return st;
}

vp_status vp_say_empty(const vp_plan_request *r, const vp_plan_answer *a, vp_err *err)
{
    if (a->n_candidates > 0 || a->least_budget_bytes > 0)
        return VP_OK;
    if (a->least_host_bytes == INT64_MAX && vp_request_must_move(r) &&
        r->recompute == VP_RECOMPUTE_FULL)
        return VP_FAIL(
            err, VP_ERR_USAGE,
            "--offload %s beside --recompute full: a block then keeps its input alone, which "
            "stays on the device, so that nothing is left to move; ask for --offload %s, or "
            "for another --recompute",
            vp_offload_name(r->offload), vp_offload_name(vp_offload_held(r->offload)));
    if (a->least_host_bytes == INT64_MAX && r->model->graph.n_instances == 3 &&
        vp_request_must_move(r))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--offload %s: not of a model of one block; what the last block keeps is "
                       "used at once",
                       vp_offload_name(r->offload));
    if (a->least_host_bytes == INT64_MAX)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--offload %s: not of this model; blocks whose parameters come from host "
                       "memory are alike, of %d parameters at most",
                       vp_offload_name(r->offload), VP_MAX_STREAMED);
    return say_short(r, &a->nearest, err);
}

/* Add a reason to a sentence of several. */
static void append(char *buf, size_t buf_size, const char *fmt, ...)
{
    size_t  n = strlen(buf);
    va_list args;

    assert(n < buf_size);
    n += (size_t)snprintf(buf + n, buf_size - n, "%s", n ? ", " : "");
    va_start(args, fmt);
    vsnprintf(buf + n, buf_size - n, fmt, args);
    va_end(args);
}

const char *vp_change_text(const vp_change *c, char *buf, size_t buf_size)
{
    char bytes[32];

    buf[0] = '\0';
    if (c->model)
        append(buf, buf_size, "%s, a smaller model of the family", c->model);
    if (c->device[0])
        append(buf, buf_size, "on %s, the smallest card that does", c->device);
    if (c->budget_bytes)
        append(buf, buf_size, "a budget of %s", vp_size_text(c->budget_bytes, bytes, sizeof bytes));
    if (c->host_bytes)
        append(buf, buf_size, "offload to %s of host memory",
               vp_size_text(c->host_bytes, bytes, sizeof bytes));
    if (c->frees_pinned)
        append(buf, buf_size, "all of the host memory pinned");
    if (c->nvme_bytes)
        append(buf, buf_size, "master weights and states on %s of a local drive (sized only)",
               vp_size_text(c->nvme_bytes, bytes, sizeof bytes));
    if (c->seq)
        append(buf, buf_size, "sequence %lld", (long long)c->seq);
    if (c->lora.rank)
        append(buf, buf_size, "LoRA of rank %lld on %s, all else frozen", (long long)c->lora.rank,
               c->lora.targets);
    if (c->another_precision)
        append(buf, buf_size, "%s %s", vp_dtype_name(vp_precision_dtype(c->precision)),
               vp_precision_has_master(c->precision)
                   ? "with fp32 master weights"
                   : "without master weights, rounded stochastically");
    if (c->another_gradients)
        append(buf, buf_size, "gradients in bf16");
    if (c->another_optimizer)
        append(buf, buf_size,
               c->optimizer == VP_OPT_SGD ? "SGD, which has no states and converges otherwise"
                                          : "optimizer states in 8 bits");
    if (c->frees_pins)
        append(buf, buf_size, "micro-batch, recompute and loss left free");
    return buf;
}

void vp_text_quoted(vp_text *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_./:=,+@%";
    char              shown[4200];
    bool              safe = strcmp(vp_text_escape(word, shown, sizeof shown), word) == 0;

    if (word[0] && strspn(word, plain) == strlen(word)) {
        vp_text_printf(out, "%s", word);
        return;
    }
    vp_text_printf(out, safe ? "'" : "$'"); /* what a terminal must not get is spelled out */
    for (const unsigned char *p = (const unsigned char *)word; *p; p++)
        if (!safe && (*p < ' ' || *p > '~'))
            vp_text_printf(out, "\\x%02x", *p);
        else if (!safe && *p == '\\')
            vp_text_printf(out, "\\\\");
        else
            vp_text_printf(out, *p == '\'' ? (safe ? "'\\''" : "\\'") : "%c", *p);
    vp_text_printf(out, "'");
}

bool vp_is_of_printing(const char *option)
{
    static const char *const names[] = {"--json", "-q", "-v"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(option, names[i]) == 0)
            return true;
    return false;
}

static const vp_option_change *change_of(const char *option, const vp_option_change *changes, int n)
{
    static const vp_option_change unsaid = {.leaves_out = true};

    if (vp_is_of_printing(option))
        return &unsaid;
    for (int i = 0; i < n; i++)
        if (strcmp(changes[i].option, option) == 0 &&
            (changes[i].value || changes[i].is_flag || changes[i].leaves_out))
            return &changes[i];
    return NULL;
}

static void add_option(const char *option, const char *value, vp_words *out)
{
    out->words[out->n++] = option;
    if (value)
        out->words[out->n++] = value;
}

bool vp_is_given(const vp_command_line *line, const char *option)
{
    for (int i = 0; i < line->n_given; i++)
        if (strcmp(line->given[i].option->name, option) == 0)
            return true;
    return false;
}

void vp_changed_words(const vp_command_line *line, const char *model,
                      const vp_option_change *changes, int n, vp_words *out)
{
    assert(n <= VP_MAX_CHANGED);
    *out = (vp_words){0};
    for (int i = 0; i < line->n_words; i++)
        out->words[out->n++] = i == 0 && model ? model : line->words[i];
    for (int i = 0; i < line->n_given; i++) {
        const char             *option = line->given[i].option->name;
        const vp_option_change *c      = change_of(option, changes, n);
        if (!c || !c->leaves_out)
            add_option(option, c ? c->value : line->given[i].text, out);
    }
    for (int k = 0; k < n; k++)
        if ((changes[k].value || changes[k].is_flag) && !vp_is_given(line, changes[k].option))
            add_option(changes[k].option, changes[k].value, out);
}

void vp_quote_words(const char *command, const vp_words *words, vp_text *out)
{
    vp_text_printf(out, "vplan %s", command);
    for (int i = 0; i < words->n; i++) {
        vp_text_printf(out, " ");
        vp_text_quoted(out, words->words[i]);
    }
}

void vp_changed_command(const char *command, const vp_command_line *line, const char *model,
                        const vp_option_change *changes, int n, vp_text *out)
{
    vp_words words;

    vp_changed_words(line, model, changes, n, &words);
    vp_quote_words(command, &words, out);
}

void vp_change_command(const char *command, const vp_command_line *line, const vp_change *c,
                       vp_text *out)
{
    char             seq[32], budget[48], host[32], nvme[32], lora[VP_LORA_MAX_TARGETS + 64];
    bool             another_card = c->device[0] != '\0';
    vp_option_change set[]        = {
               {"--device", another_card ? c->device : NULL, false, false},
               {"--seq", c->seq ? seq : NULL, false, false},
               {"--budget", c->budget_bytes && !another_card ? budget : NULL, false, another_card},
               {"--host-memory", c->host_bytes ? host : NULL, false, false},
               {"--pinned-memory", NULL, false, c->frees_pinned},
               {"--nvme", c->nvme_bytes ? nvme : NULL, false, false},
               {"--precision", c->another_precision ? vp_precision_name(c->precision) : NULL, false,
                false},
               {"--gradients", c->another_gradients ? vp_gradients_name(c->gradients) : NULL, false,
                false},
               {"--optimizer", c->another_optimizer ? vp_optimizer_name(c->optimizer) : NULL, false,
                false},
               {"--lora", c->lora.rank ? lora : NULL, false, false},
               {"--profile", NULL, false, another_card},
               {"--micro-batch", NULL, false, c->frees_pins},
               {"--recompute", NULL, false, c->frees_pins},
               {"--loss", NULL, false, c->frees_pins},
    };

    if (vp_is_given(line, "--recipe") &&
        (c->another_precision || c->another_gradients || c->another_optimizer))
        return;
    snprintf(seq, sizeof seq, "%lld", (long long)c->seq);
    snprintf(budget, sizeof budget, "%lld", (long long)c->budget_bytes);
    snprintf(lora, sizeof lora, "r=%lld,alpha=%g,targets=%s", (long long)c->lora.rank,
             c->lora.alpha, c->lora.targets);
    snprintf(nvme, sizeof nvme, "%lldGiB", (long long)(c->nvme_bytes / VP_GIB));
    snprintf(host, sizeof host, "%lldGiB", (long long)(c->host_bytes / VP_GIB));
    vp_changed_command(command, line, c->model, set, sizeof set / sizeof *set, out);
}

const char *vp_binding_text(const vp_changes *c, char *buf, size_t buf_size)
{
    char x[32], y[32], outside[64] = "";

    if (c->outside_bytes)
        snprintf(outside, sizeof outside, ", beside %s outside the arena",
                 vp_size_text(c->outside_bytes, x, sizeof x));
    if (c->persistent_alone)
        snprintf(buf, buf_size, "parameters, gradients and optimizer state alone are %s%s",
                 vp_size_text(c->persistent_bytes, x, sizeof x), outside);
    else
        snprintf(
            buf, buf_size,
            "%s of parameters, gradients and optimizer state, and %s of activations at the leanest setting%s",
            vp_size_text(c->persistent_bytes, x, sizeof x),
            vp_size_text(c->activation_bytes, y, sizeof y), outside);
    return buf;
}

void vp_add_run(const json_t *run, bool one, vp_text *out)
{
    const json_t *ops     = json_object_get(run, "recompute");
    long long     segment = json_integer_value(json_object_get(run, "segment"));
    char          shown[128];

    if (segment > 1) {
        vp_text_printf(out, "in segments of %lld", segment);
        return;
    }
    vp_text_printf(out, "%s%s", one ? "recomputes" : "recompute",
                   json_array_size(ops) ? "" : " nothing");
    for (size_t k = 0; k < json_array_size(ops); k++) {
        const char *op = json_string_value(json_array_get(ops, k));
        vp_text_printf(out, "%s%s", k ? " + " : " ",
                       vp_text_escape(op ? op : "?", shown, sizeof shown));
    }
    ops = json_object_get(run, "offload");
    for (size_t k = 0; k < json_array_size(ops); k++) {
        const char *op = json_string_value(json_array_get(ops, k));
        vp_text_printf(out, "%s%s", k ? " + " : ", move ",
                       vp_text_escape(op ? op : "?", shown, sizeof shown));
    }
}
