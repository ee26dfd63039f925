#include "cli/screen.h"

#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/paint.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bytes of text that go on a line of this many columns: up to a space or the end. A word longer
 * than the line is not broken; a byte that continues a UTF-8 character takes no column. */
static size_t that_fit(const char *text, int columns)
{
    size_t n = 0, last = 0;

    assert(columns > 0);
    for (int column = 0; text[n]; n++) {
        if (text[n] == ' ')
            last = n;
        column += ((unsigned char)text[n] & 0xC0) != 0x80;
        if (column > columns && last)
            return last;
    }
    return n;
}

void vp_screen_entry(int column, const char *head, const char *text)
{
    bool wide = (int)strlen(head) >= column;

    assert(column > 0 && column < VP_SCREEN_COLUMNS);
    if (wide)
        printf("%s\n", head);
    else
        printf("%-*s", column, head);
    for (bool first = true; first || *text; first = false) {
        size_t n = that_fit(text, VP_SCREEN_COLUMNS - column);
        printf("%*s%.*s\n", first && !wide ? 0 : column, "", (int)n, text);
        text += n;
        while (*text == ' ')
            text++;
    }
}

void vp_screen_line(const char *label, const char *fmt, ...)
{
    char    text[4000];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    vp_screen_entry(VP_SCREEN_LABEL, label, text);
}

void vp_screen_answer(int64_t needs_bytes, int64_t budget_bytes, const char *speed)
{
    bool fits = needs_bytes <= budget_bytes;
    char text[128];

    printf("%s%s%s: %s%s%s\n", vp_paint(fits ? VP_PAINT_GOOD : VP_PAINT_BAD),
           fits ? "FITS" : "DOES NOT FIT", vp_paint_end(),
           vp_fit_text(needs_bytes, budget_bytes, text, sizeof text), fits && speed ? ", " : "",
           fits && speed ? speed : "");
}

void vp_screen_recipe(const vp_recipe *recipe, vp_attention_kind attention)
{
    vp_screen_line("recipe", "%s, %s, gradients %s, attention %s",
                   vp_precision_name(recipe->precision), vp_optimizer_name(recipe->optimizer),
                   vp_gradients_name(recipe->gradients), vp_attention_name(attention));
    if (recipe->lora.rank)
        vp_screen_line("adapters", "LoRA of rank %lld on %s, alpha %g%s%s; all else is frozen",
                       (long long)recipe->lora.rank, recipe->lora.targets, recipe->lora.alpha,
                       recipe->lora.rslora ? ", rsLoRA" : "",
                       recipe->lora.dropout > 0 ? ", with dropout" : "");
}

/* Words of 0 to n - 1 that the request allows, with commas between them. */
static void append_word(char *list, size_t size, const char *word)
{
    size_t n = strlen(list);

    snprintf(list + n, size - n, "%s%s", n ? ", " : "", word);
}

/* Beside some precision that the request leaves. */
static bool allows_gradients(const vp_plan_request *r, vp_gradients gradients)
{
    for (int p = 0; p < VP_N_PRECISIONS; p++)
        if (vp_request_allows(r, (vp_precision)p, gradients, r->recipe.optimizer))
            return true;
    return false;
}

void vp_screen_free(const vp_plan_request *r)
{
    char        list[200] = "";
    const char *label     = "free";

    for (int p = 0; r->any_precision && p < VP_N_PRECISIONS; p++)
        if (vp_request_allows(r, (vp_precision)p, VP_GRADIENTS_FP32, r->recipe.optimizer) ||
            vp_request_allows(r, (vp_precision)p, VP_GRADIENTS_BF16, r->recipe.optimizer))
            append_word(list, sizeof list, vp_precision_name((vp_precision)p));
    if (r->any_precision) {
        vp_screen_line(label, "--precision, among %s", list);
        label = "";
    }
    list[0] = '\0';
    for (int o = 0; r->any_optimizer && o < VP_N_OPTIMIZERS; o++)
        if (vp_request_allows(r, r->recipe.precision, r->recipe.gradients, (vp_optimizer)o))
            append_word(list, sizeof list, vp_optimizer_name((vp_optimizer)o));
    if (r->any_optimizer) {
        vp_screen_line(label, "--optimizer, among %s", list);
        label = "";
    }
    list[0] = '\0';
    for (int g = 0; r->any_gradients && g < VP_N_GRADIENTS; g++)
        if (allows_gradients(r, (vp_gradients)g))
            append_word(list, sizeof list, vp_gradients_name((vp_gradients)g));
    if (r->any_gradients) {
        vp_screen_line(label, "--gradients, among %s", list);
        label = "";
    }
    if (r->attention == VP_ATTENTION_ANY)
        vp_screen_line(label, "--attention, among flash, math");
}

void vp_screen_copies(const vp_simulation *step)
{
    char a[64], b[64], c[64];

    vp_screen_line("copies", "%s to the host, %s to the device; kernels wait %s for them",
                   vp_time_text(step->busy_s[VP_STREAM_TO_HOST], a, sizeof a),
                   vp_time_text(step->busy_s[VP_STREAM_TO_DEVICE], b, sizeof b),
                   vp_time_text(step->waited_s, c, sizeof c));
    if (step->busy_s[VP_STREAM_HOST] > 0)
        vp_screen_line("host", "updates %s",
                       vp_time_text(step->busy_s[VP_STREAM_HOST], a, sizeof a));
}

void vp_screen_phases(const vp_itemised *x, int64_t outside_bytes)
{
    char bytes[32], line[400] = "";

    for (int p = 0; p < VP_N_PHASES; p++) {
        size_t n = strlen(line);
        snprintf(line + n, sizeof line - n, "%s%s %s", p ? ", " : "", x->phases[p].name,
                 vp_size_text(vp_add(x->phases[p].peak_bytes, outside_bytes), bytes, sizeof bytes));
    }
    vp_screen_line("phases", "%s", line);
}

/* Bytes of a command's first words that end within n_bytes, or of its first word: an option and its value
 * stay together, where they can, and what stands in quotes always does. */
static size_t words_that_fit(const char *at, size_t n_bytes)
{
    size_t word = 0, option = 0, i = 0;
    bool   quoted = false, escapes = false; /* escapes: within $'...' */

    for (; (i <= n_bytes || !word) && at[i]; i++) {
        if (at[i] == '\\' && at[i + 1] && (!quoted || escapes)) {
            i++;
        } else if (at[i] == '\'') {
            escapes = !quoted && i > 0 && at[i - 1] == '$';
            quoted  = !quoted;
        } else if (at[i] == ' ' && !quoted) {
            word   = i;
            option = at[i + 1] == '-' ? i : option;
        }
    }
    return option ? option : word ? word : i;
}

/* A list of adapters that is wider than the screen goes over several lines in quotes; its reader skips the blanks that come in so.
 * Bytes of it that were printed; 0: the word is another, or it fits. */
static size_t print_adapters(const char *command, const char *at, size_t room)
{
    static const char option[] = "--lora ";
    size_t            n = strcspn(at, " "), done = 0, before = sizeof option - 1;
    bool is_list = (size_t)(at - command) >= before && memcmp(at - before, option, before) == 0 &&
                   strcspn(at, "'\"$\\`") >= n;

    if (!is_list || n <= room + 2)
        return 0;
    while (done < n) {
        size_t fits = n - done, last = 0;
        for (size_t i = 0; fits > room - 1 && i < room - 1; i++)
            last = strchr(",+", at[done + i]) ? i + 1 : last;
        fits = fits > room - 1 && last ? last : fits;
        printf("%-*s%s    %s%.*s%s%s\n", VP_SCREEN_LABEL, "", vp_paint(VP_PAINT_COMMAND),
               done ? "" : "\"", (int)fits, at + done,
               done + fits < n ? "\\"
               : at[n]         ? "\" \\"
                               : "\"",
               vp_paint_end());
        done += fits;
    }
    return n;
}

void vp_screen_command(const char *label, const char *command)
{
    enum { ROOM = VP_SCREEN_COLUMNS - VP_SCREEN_LABEL - 2 }; /* for the backslash */
    const char *at   = command;
    int         room = ROOM;

    while (*at) {
        size_t n = at > command ? print_adapters(command, at, (size_t)room) : 0;
        for (at += n; n && *at == ' ';)
            at++;
        if (n)
            continue;
        n = that_fit(at, room + 2);
        if (at[n])
            n = words_that_fit(at, that_fit(at, room));
        printf("%-*s%s%s%.*s%s%s\n", VP_SCREEN_LABEL, at == command ? label : "",
               vp_paint(VP_PAINT_COMMAND), at == command ? "" : "    ", (int)n, at,
               at[n] ? " \\" : "", vp_paint_end());
        at += n;
        while (*at == ' ')
            at++;
        room = ROOM - 4;
    }
}

void vp_screen_field(const char *text)
{
    vp_text shown = {0};

    vp_text_append_escaped(&shown, text);
    bool quoted = strpbrk(vp_text_string(&shown), ",\"") != NULL;
    if (quoted)
        putchar('"');
    for (const char *p = vp_text_string(&shown); *p; p++) {
        if (*p == '"')
            putchar('"');
        putchar(*p);
    }
    if (quoted)
        putchar('"');
    vp_text_release(&shown);
}

char *vp_screen_head(char *text, int width)
{
    while ((int)strlen(text) > width) {
        char *cut = NULL;
        for (char *p = text; p < text + width; p++)
            if (p[0] == ',' && p[1] == ' ')
                cut = p;
        if (!cut)
            break;
        printf("  %.*s\n", (int)(cut + 1 - text), text);
        text    = cut - 1; /* two spaces before what goes on */
        text[0] = text[1] = ' ';
    }
    return text;
}

const char *vp_screen_phase(const char *name, char *buf, size_t buf_size)
{
    static const struct {
        const char *name, *words;
    } alone[]     = {{"load", "loading"},      {"resume", "resuming"}, {"evaluate", "evaluation"},
                     {"eval", "evaluation"},   {"save", "saving"},     {"step", "optimizer"},
                     {"steady", "later steps"}};
    size_t      n = strcspn(name, "0123456789");
    const char *words = NULL, *dot = strchr(name, '.');

    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (strlen(alone[i].name) == n && strncmp(alone[i].name, name, n) == 0)
            words = alone[i].words;
    if (!name[n])
        snprintf(buf, buf_size, "%s", words ? words : name);
    else
        snprintf(buf, buf_size, "%.*s%s%s of step %.*s", words ? (int)strlen(words) : (int)n,
                 words ? words : name, dot ? " " : "", dot ? dot + 1 : "",
                 (int)strcspn(name + n, "."), name + n);
    return buf;
}

const char *vp_screen_size(int64_t bytes, int width, char *buf, size_t buf_size)
{
    static const char *const units[] = {"GiB", "TiB", "PiB"};
    int64_t                  unit    = VP_GIB;
    char                     count[48];

    vp_size_text(bytes, buf, buf_size);
    for (size_t i = 0; (int)strlen(buf) > width && i < sizeof units / sizeof *units; i++) {
        snprintf(buf, buf_size, "%s %s",
                 vp_count_text(bytes / unit + (bytes % unit >= unit / 2), count, sizeof count),
                 units[i]);
        unit *= 1024;
    }
    return buf;
}
