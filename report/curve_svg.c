#include "report/curve_svg.h"

#include "base/units.h"

#include <assert.h>

bool vp_report_curve_svg(const vp_report_curve *c, vp_text *out)
{
    enum { WIDTH = 720, HEIGHT = 420, LEFT = 80, RIGHT = 20, TOP = 40, BOTTOM = 60 };
    const vp_report_point *first = &c->points[0], *last = &c->points[c->n - 1];
    double                 x_span = (double)(last->budget_bytes - first->budget_bytes),
           y_span                 = first->step_time_s - last->step_time_s;
    char a[32], b[32];

    assert(c->n >= 1);                  /* a budget without a plan is refused before */
    assert(x_span >= 0 && y_span >= 0); /* more budget is never slower */

    x_span = x_span > 0 ? x_span : 1;
    y_span = y_span > 0 ? y_span : 1;
    vp_text_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n",
        WIDTH, HEIGHT);
    vp_text_printf(
        out,
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"22\">Step time against memory budget, %s</text>\n",
        LEFT, c->device);
    vp_text_printf(out, "<polyline fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\" points=\"");
    for (int64_t i = 0; i < c->n; i++)
        vp_text_printf(out, "%.1f,%.1f ",
                       LEFT + (WIDTH - LEFT - RIGHT) *
                                  (double)(c->points[i].budget_bytes - first->budget_bytes) /
                                  x_span,
                       TOP + (HEIGHT - TOP - BOTTOM) *
                                 (first->step_time_s - c->points[i].step_time_s) / y_span);
    vp_text_printf(out, "\"/>\n");
    double mark =
        LEFT + (WIDTH - LEFT - RIGHT) * (double)(c->budget_bytes - first->budget_bytes) / x_span;
    if (mark >= LEFT && mark <= WIDTH - RIGHT)
        vp_text_printf(
            out,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#b03030\" stroke-dasharray=\"4 4\"/>\n<text x=\"%.1f\" y=\"%d\" fill=\"#b03030\">budget</text>\n",
            mark, TOP, mark, HEIGHT - BOTTOM, mark + 4, TOP + 12);
    vp_text_printf(
        out,
        "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"black\"/>\n<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"black\"/>\n",
        LEFT, TOP, LEFT, HEIGHT - BOTTOM, LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM);
    vp_text_printf(
        out,
        "<text x=\"%d\" y=\"%d\">%s</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
        LEFT, HEIGHT - BOTTOM + 20, vp_size_text(first->budget_bytes, a, sizeof a), WIDTH - RIGHT,
        HEIGHT - BOTTOM + 20, vp_size_text(last->budget_bytes, b, sizeof b));
    vp_text_printf(
        out,
        "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n</svg>\n",
        LEFT - 6, TOP + 5, vp_time_text(first->step_time_s, a, sizeof a), LEFT - 6, HEIGHT - BOTTOM,
        vp_time_text(last->step_time_s, b, sizeof b));
    return !out->failed;
}
