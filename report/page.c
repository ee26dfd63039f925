#include "report/page.h"

#include <string.h>

void vp_page_text(vp_text *out, const char *text)
{
    char shown[1200];

    vp_text_escape(text, shown, sizeof shown);
    for (const char *p = shown; *p; p++)
        switch (*p) {
        case '&':
            vp_text_printf(out, "&amp;");
            break;
        case '<':
            vp_text_printf(out, "&lt;");
            break;
        case '>':
            vp_text_printf(out, "&gt;");
            break;
        case '"':
            vp_text_printf(out, "&quot;");
            break;
        default:
            vp_text_append(out, p, 1);
        }
}

static void element(vp_text *out, const char *tag, const char *text)
{
    vp_text_printf(out, "<%s>", tag);
    vp_page_text(out, text);
    vp_text_printf(out, "</%s>\n", tag);
}

void vp_page_begin(vp_text *out, const char *title, const char *answer)
{
    vp_text_printf(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    element(out, "title", title);
    vp_text_printf(
        out, "<style>\n"
             "body { font: 15px/1.4 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; "
             "color: #222; background: #fff }\n"
             "svg { width: 100%%; height: auto; border: 1px solid #ddd }\n"
             "svg rect:hover { stroke: #000; stroke-width: 1.5 }\n"
             "table { border-collapse: collapse }\n"
             "td, th { padding: .15em .8em; text-align: right; border-bottom: 1px solid #eee }\n"
             "td:first-child, th:first-child { text-align: left }\n"
             ".answer { font-size: 1.2em; font-weight: bold }\n"
             "</style>\n</head>\n<body>\n");
    element(out, "h1", title);
    vp_text_printf(out, "<p class=\"answer\">");
    vp_page_text(out, answer);
    vp_text_printf(out, "</p>\n");
}

void vp_page_end(vp_text *out)
{
    vp_text_printf(out, "</body>\n</html>\n");
}

void vp_page_heading(vp_text *out, const char *text)
{
    element(out, "h2", text);
}

void vp_page_paragraph(vp_text *out, const char *text)
{
    element(out, "p", text);
}

void vp_page_table_begin(vp_text *out)
{
    vp_text_printf(out, "<table>\n");
}

void vp_page_row(vp_text *out, int heads, const char *const *cells, int n)
{
    vp_text_printf(out, "<tr>");
    for (int i = 0; i < n; i++) {
        vp_text_printf(out, heads ? "<th>" : "<td>");
        vp_page_text(out, cells[i]);
        vp_text_printf(out, heads ? "</th>" : "</td>");
    }
    vp_text_printf(out, "</tr>\n");
}

void vp_page_table_end(vp_text *out)
{
    vp_text_printf(out, "</table>\n");
}
