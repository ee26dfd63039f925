#include "cli/frontier_chart.h"

#include "base/units.h"
#include "cli/paint.h"

#include <assert.h>
#include <stdio.h>

enum { COLUMNS = 66, ROWS = 9, LEFT = 10 };

/* What a place of the chart is: the line runs level in it, or comes down through it. */
typedef enum mark { EMPTY, LEVEL, DOWN, CORNER_TOP, CORNER_BOTTOM, N_MARKS } mark;

/* The row of a time, 0 at the top. */
static int row_of(const vp_frontier *f, double seconds)
{
    double high = f->points[0].step_time_s, low = f->points[f->n - 1].step_time_s;

    return high > low ? (int)((high - seconds) / (high - low) * (ROWS - 1) + 0.5) : 0;
}

/* The fastest plan within so many bytes; the first where none is. */
static int64_t plan_within(const vp_frontier *f, double bytes)
{
    int64_t i = 0;

    while (i + 1 < f->n && (double)f->points[i + 1].device_bytes <= bytes)
        i++;
    return i;
}

static void draw(const vp_frontier *f, double low, double high, mark place[ROWS][COLUMNS])
{
    int before = row_of(f, f->points[0].step_time_s);

    for (int x = 0; x < COLUMNS; x++) {
        double  bytes = low + (high - low) * (x + 0.5) / COLUMNS;
        int64_t i     = plan_within(f, bytes);
        int     row   = row_of(f, f->points[i].step_time_s);
        assert(row >= before && row < ROWS); /* more memory is never slower */
        for (int y = before; y <= row; y++)
            place[y][x] = row == before ? LEVEL
                          : y == before ? CORNER_TOP
                          : y == row    ? CORNER_BOTTOM
                                        : DOWN;
        before = row;
    }
}

static int line_end(const mark row[COLUMNS])
{
    int n = COLUMNS;

    while (n > 0 && row[n - 1] == EMPTY)
        n--;
    return n;
}

static void print_chart(const vp_frontier *f)
{
    static const char *const ascii[N_MARKS]   = {" ", "-", "|", "+", "+"};
    static const char *const unicode[N_MARKS] = {" ", "─", "│", "┐", "└"};
    const char *const       *marks            = vp_paint_is_unicode() ? unicode : ascii;
    double low = (double)f->points[0].device_bytes, high = (double)f->points[f->n - 1].device_bytes;
    mark   place[ROWS][COLUMNS] = {0};
    char   time[32], from[32], to[32];

    draw(f, low, high > low ? high : low + 1, place);
    for (int y = 0; y < ROWS; y++) {
        bool   labelled = y == 0 || y == ROWS - 1;
        double seconds  = f->points[y ? f->n - 1 : 0].step_time_s;
        printf("%*s |%s", LEFT, labelled ? vp_time_text(seconds, time, sizeof time) : "",
               vp_paint(VP_PAINT_BAR));
        for (int x = 0, end = line_end(place[y]); x < end; x++)
            fputs(marks[place[y][x]], stdout);
        printf("%s\n", vp_paint_end());
    }
    printf("%*s %-*s%*s\n", LEFT, "", COLUMNS / 2,
           vp_size_text(f->points[0].device_bytes, from, sizeof from), COLUMNS - COLUMNS / 2,
           vp_size_text(f->points[f->n - 1].device_bytes, to, sizeof to));
}

void vp_frontier_print(const vp_frontier *f, int64_t budget_bytes)
{
    int64_t mine = plan_within(f, (double)budget_bytes);
    char    needs[32], time[32];

    assert(f->n > 0);
    printf("\n%s%-12s%s\n", vp_paint(VP_PAINT_HEAD), "frontier: time of a step by memory",
           vp_paint_end());
    if (f->n > 1)
        print_chart(f);
    printf("  %11s  %9s  %8s\n", "needs", "step", "slower");
    for (int64_t i = 0; i < f->n; i++)
        printf("  %11s  %9s  %+7.1f%%%s\n",
               vp_size_text(f->points[i].device_bytes, needs, sizeof needs),
               vp_time_text(f->points[i].step_time_s, time, sizeof time),
               100 * (f->points[i].step_time_s / f->points[f->n - 1].step_time_s - 1),
               i == mine ? "  the fastest in the budget" : "");
    printf("\n");
}
