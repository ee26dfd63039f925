/* kernels/cpu/dynamic8.c: the two maps of dynamic8.h. */
#include "kernels/cpu/dynamic8.h"

#include <math.h>
#include <pthread.h>

enum { N_RANKS_SIGNED = 128, N_RANKS_UNSIGNED = 255 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static vp_dynamic8    maps[2]; /* without a sign, with one */

static double magnitude(int k, int j, int n_parts)
{
    return pow(10.0, k - 6) * (0.1 + 0.9 * (j + 0.5) / n_parts);
}

static void make(vp_dynamic8 *map, bool is_signed)
{
    double of_rank[N_RANKS_UNSIGNED + 1] = {0.0};
    int    rank                          = 1;

    map->is_signed = is_signed;
    map->n_ranks   = is_signed ? N_RANKS_SIGNED : N_RANKS_UNSIGNED;
    for (int k = 0; k < VP_DYNAMIC8_DECADES; k++) {
        int n_parts = 1 << (is_signed ? k : k + 1), first = rank;

        for (int j = 0; j < n_parts; j++)
            of_rank[rank++] = magnitude(k, j, n_parts);
        /* rank = first + floor((a 10^(6-k) - 0.1) / 0.9 n_parts); half a part of room below the
         * next whole number for `last` */
        map->decade[k].from  = (float)(k == 0 ? 0.0 : (of_rank[first - 1] + of_rank[first]) / 2.0);
        map->decade[k].slope = (float)(pow(10.0, 6 - k) / 0.9 * n_parts);
        map->decade[k].shift = (float)(first - n_parts / 9.0);
        map->decade[k].last  = (float)(rank - 0.5);
    }
    of_rank[rank] = 1.0;
    map->least    = (float)(of_rank[1] / 2.0);
    map->top      = (float)((of_rank[rank - 1] + 1.0) / 2.0);
    for (int r = 0; r <= map->n_ranks; r++) {
        if (!is_signed) {
            map->value[r] = (float)of_rank[r];
            continue;
        }
        map->value[127 + r] = (float)of_rank[r];
        if (r > 0 && r <= 127)
            map->value[127 - r] = (float)-of_rank[r];
    }
}

static void make_both(void)
{
    make(&maps[0], false);
    make(&maps[1], true);
}

const vp_dynamic8 *vp_cpu_dynamic8(bool is_signed)
{
    pthread_once(&once, make_both);
    return &maps[is_signed];
}
