#include "report/curve_svg.h"

#include "base/units.h"
#include "report/axis.h"
#include "report/page.h"

#include <assert.h>

enum { WIDTH = 720, HEIGHT = 420, LEFT = 90, RIGHT = 40, TOP = 44, BOTTOM = 64 };

typedef struct frame {
    double low_bytes, high_bytes, low_s, high_s;
} frame;

static double x_of(const frame *f, double bytes)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (bytes - f->low_bytes) / (f->high_bytes - f->low_bytes);
}

static double y_of(const frame *f, double seconds)
{
    return TOP + (HEIGHT - TOP - BOTTOM) * (f->high_s - seconds) / (f->high_s - f->low_s);
}

/* All points and the budget, with room around them. */
static frame frame_of(const vp_report_curve *c)
{
    const vp_report_point *first = &c->points[0], *last = &c->points[c->n - 1];
    double                 high = (double)last->needs_bytes, low = (double)first->needs_bytes;
    double                 room, room_s;

    if ((double)c->budget_bytes > high && (double)c->budget_bytes < 2 * high)
        high = (double)c->budget_bytes;
    room   = high > low ? 0.05 * (high - low) : 0.05 * high;
    room_s = first->step_time_s > last->step_time_s
                 ? 0.08 * (first->step_time_s - last->step_time_s)
                 : 0.08 * first->step_time_s + 1e-9;
    return (frame){low - room, high + room, last->step_time_s - room_s,
                   first->step_time_s + room_s};
}

static void add_axes(const frame *f, vp_text *out)
{
    vp_axis x = vp_axis_of_bytes(f->low_bytes, f->high_bytes, 6),
            y = vp_axis_of(f->low_s, f->high_s, 6);
    char text[32];

    vp_text_printf(out, "<g stroke=\"#ddd\">\n");
    for (int i = 0; i < x.n; i++)
        vp_text_printf(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n",
                       x_of(f, x.first + i * x.step), TOP, x_of(f, x.first + i * x.step),
                       HEIGHT - BOTTOM);
    for (int i = 0; i < y.n; i++)
        vp_text_printf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n", LEFT,
                       y_of(f, y.first + i * y.step), WIDTH - RIGHT, y_of(f, y.first + i * y.step));
    vp_text_printf(
        out,
        "</g>\n<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"black\"/>\n",
        LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    for (int i = 0; i < x.n; i++)
        vp_text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                       x_of(f, x.first + i * x.step), HEIGHT - BOTTOM + 20,
                       vp_size_text((int64_t)(x.first + i * x.step), text, sizeof text));
    for (int i = 0; i < y.n; i++)
        vp_text_printf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
                       y_of(f, y.first + i * y.step) + 4,
                       vp_time_text(y.first + i * y.step, text, sizeof text));
    vp_text_printf(out,
                   "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">memory of the device</text>\n",
                   (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 46);
}

static void add_budget(const frame *f, const vp_report_curve *c, vp_text *out)
{
    double x = x_of(f, (double)c->budget_bytes);
    char   text[32];

    if (x < LEFT || x > WIDTH - RIGHT)
        return;
    vp_text_printf(out,
                   "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#b03030\" "
                   "stroke-dasharray=\"4 4\"/>\n<text x=\"%.1f\" y=\"%d\" fill=\"#b03030\" "
                   "text-anchor=\"%s\">budget %s</text>\n",
                   x, TOP, x, HEIGHT - BOTTOM, x > WIDTH / 2 ? x - 5 : x + 5, TOP + 16,
                   x > WIDTH / 2 ? "end" : "start",
                   vp_size_text(c->budget_bytes, text, sizeof text));
}

/* Level from each plan to the next, then down. */
static void add_steps(const frame *f, const vp_report_curve *c, vp_text *out)
{
    char bytes[32], time[32];

    vp_text_printf(out, "<path fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\" d=\"M%.1f %.1f",
                   x_of(f, (double)c->points[0].needs_bytes), y_of(f, c->points[0].step_time_s));
    for (int64_t i = 1; i < c->n; i++)
        vp_text_printf(out, " H%.1f V%.1f", x_of(f, (double)c->points[i].needs_bytes),
                       y_of(f, c->points[i].step_time_s));
    vp_text_printf(out, " H%d\"/>\n", WIDTH - RIGHT);
    for (int64_t i = 0; i < c->n; i++)
        vp_text_printf(
            out,
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#1f5fa8\"><title>%s: %s a step</title></circle>\n",
            x_of(f, (double)c->points[i].needs_bytes), y_of(f, c->points[i].step_time_s),
            vp_size_text(c->points[i].needs_bytes, bytes, sizeof bytes),
            vp_time_text(c->points[i].step_time_s, time, sizeof time));
}

bool vp_report_curve_svg(const vp_report_curve *c, vp_text *out)
{
    assert(c->n >= 1); /* a budget without a plan is refused before */
    for (int64_t i = 1; i < c->n; i++)
        assert(c->points[i].needs_bytes >= c->points[i - 1].needs_bytes &&
               c->points[i].step_time_s <= c->points[i - 1].step_time_s); /* more is never slower */

    frame f = frame_of(c);
    vp_text_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
        "<text x=\"%d\" y=\"26\">Time of a step by memory, ",
        WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    vp_page_text(out, c->device);
    vp_text_printf(out, "</text>\n");
    add_axes(&f, out);
    add_budget(&f, c, out);
    add_steps(&f, c, out);
    vp_text_printf(out, "</svg>\n");
    return !out->failed;
}
