#include "base/options.h"

#include "base/units.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, COLUMN = 24 };

void vp_text_wrap(const char *text, int column, int indent, vp_text *out)
{
    bool first = true; /* nothing of the text stands on this line yet */

    assert(indent >= 0 && indent < WIDTH && column >= 0);
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (!first && column + 1 + n > WIDTH) {
            vp_text_printf(out, "\n");
            column = 0;
            first  = true;
        }
        if (first && column < indent) {
            vp_text_printf(out, "%*s", indent - column, "");
            column = indent;
        }
        vp_text_printf(out, "%s%.*s", first ? "" : " ", n, text);
        column += n + !first;
        first = false;
        text += n;
        text += strspn(text, " ");
    }
    vp_text_printf(out, "\n");
}

/* "tokens, 1 or more", "a number from 0 to 1"; "" where there is nothing to say. */
static void append_range(const vp_option *o, vp_text *out)
{
    char low[32], high[32];

    if (o->kind == VP_OPTION_COUNT) {
        vp_count_text(o->min, low, sizeof low);
        vp_count_text(o->max, high, sizeof high);
        vp_text_printf(out, " (%s, ", o->unit);
        if (o->max && o->max < VP_OPTION_MAX_COUNT)
            vp_text_printf(out, "%s to %s)", low, high);
        else
            vp_text_printf(out, "%s or more)", low);
    } else if (o->kind == VP_OPTION_REAL) {
        vp_text_printf(out, " (%s", o->unit);
        if (o->high != 0 && o->high < 1e30)
            vp_text_printf(out, ", %g to %g)", o->low, o->high);
        else
            vp_text_printf(out, "%s)", o->low < 0 ? "" : ", 0 or more");
    } else if (o->kind == VP_OPTION_SIZE) {
        vp_text_printf(out, " (bytes, or with a unit)");
    } else if (o->kind == VP_OPTION_AMOUNT) {
        vp_text_printf(out, " (bytes, with a unit, or percent)");
    }
}

void vp_option_describe(const vp_option *o, vp_text *out)
{
    assert(o->help); /* tests/test_help.sh names the row that has none */
    vp_text_printf(out, "%s", o->help);
    append_range(o, out);
    vp_text_printf(out, ".");
    if (o->alone)
        vp_text_printf(out, " Without a value: %s.", o->alone);
    if (o->preset || o->otherwise)
        vp_text_printf(out, " Default: %s.", o->preset ? o->preset : o->otherwise);
}

void vp_options_help(const vp_option_set *const *sets, int n_sets, vp_text *out)
{
    for (int s = 0; s < n_sets; s++) {
        if (s == 0 || sets[s]->title || sets[s - 1]->title)
            vp_text_printf(out, "\n%s\n", sets[s]->title ? sets[s]->title : "options");
        for (int i = 0; i < sets[s]->n; i++) {
            const vp_option *o    = &sets[s]->rows[i];
            vp_text          said = {0};
            char             value[256], head[300];
            int              n;

            vp_option_value_text(o, value, sizeof value);
            snprintf(head, sizeof head, "%s%s%s", o->name, value[0] ? " " : "", value);
            n = (int)strlen(head) + 2;
            vp_text_printf(out, "  ");
            if (n > WIDTH) { /* a long list of words */
                vp_text_printf(out, "%s one of\n", o->name);
                for (char *p = value; *p; p++)
                    *p = *p == '|' ? ' ' : *p;
                vp_text_wrap(value, 0, COLUMN, out);
                n = 0;
            } else {
                vp_text_printf(out, "%s", head);
                if (n + 2 > COLUMN) {
                    vp_text_printf(out, "\n");
                    n = 0;
                }
            }
            vp_option_describe(o, &said);
            vp_text_wrap(vp_text_string(&said), n, COLUMN, out);
            if (o->example)
                vp_text_printf(out, "%*sExample: %s %s\n", COLUMN, "", o->name, o->example);
            out->failed |= said.failed;
            vp_text_release(&said);
        }
    }
}
