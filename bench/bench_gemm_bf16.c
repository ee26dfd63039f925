/* bench/bench_gemm_bf16.c: times one bf16 product after the other, as it is told on standard input.
 *     CLASS THREADS ROLE ROWS IN OUT LAYOUT SECONDS  ->  "NAME s s s ...": the class used, and each
 *     call's seconds
 * CLASS 0 .. 4: at most this class of kernels/cpu/gemm_bf16.h. ROLE: fwd, bwd_input, bwd_weight.
 * LAYOUT of w: in_out or out_in. Calls are repeated for SECONDS, after one that does not count.
 * bench/gemm_bf16_vs_torch.py speaks this. */
#include "base/checked.h"
#include "base/clock.h"
#include "kernels/backend.h"
#include "kernels/cpu/bf16_span.h"
#include "kernels/cpu/gemm_bf16.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* n numbers in (-1, 1) */
static uint16_t *numbers(int64_t n)
{
    uint16_t *x    = malloc((size_t)n * sizeof *x);
    uint32_t  seed = 1;

    if (!x)
        exit(1);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = vp_bf16_from_f32((float)(int32_t)seed * 0x1p-31f);
    }
    return x;
}

int main(void)
{
    int     isa, n_threads;
    char    role[16], layout[16];
    int64_t rows, in, out;
    double  seconds;

    while (scanf("%d %d %15s %ld %ld %ld %15s %lf", &isa, &n_threads, role, &rows, &in, &out,
                 layout, &seconds) == 8) {
        bool      out_in = strcmp(layout, "out_in") == 0;
        uint16_t *x = numbers(rows * in), *w = numbers(in * out), *dy = numbers(rows * out),
                 *bias = numbers(out);
        void *c =
            calloc((size_t)vp_max_i64(rows * vp_max_i64(in, out), 2 * in * out), sizeof(uint16_t));
        vp_gemm_bf16 g = {.c = c};
        double       start_s;

        if (!c)
            return 1;
        if (strcmp(role, "fwd") == 0)
            g = (vp_gemm_bf16){.m            = rows,
                               .n            = out,
                               .k            = in,
                               .a            = x,
                               .lda          = in,
                               .b            = w,
                               .ldb          = out_in ? in : out,
                               .b_transposed = out_in,
                               .c            = c,
                               .ldc          = out};
        else if (strcmp(role, "bwd_input") == 0)
            g = (vp_gemm_bf16){.m            = rows,
                               .n            = in,
                               .k            = out,
                               .a            = dy,
                               .lda          = out,
                               .b            = w,
                               .ldb          = out_in ? in : out,
                               .b_transposed = !out_in,
                               .c            = c,
                               .ldc          = in};
        else
            g = (vp_gemm_bf16){.m            = out_in ? out : in,
                               .n            = out_in ? in : out,
                               .k            = rows,
                               .a            = out_in ? dy : x,
                               .lda          = out_in ? out : in,
                               .a_transposed = true,
                               .b            = out_in ? x : dy,
                               .ldb          = out_in ? in : out,
                               .c            = c,
                               .ldc          = out_in ? in : out,
                               .c_f32        = true};
        vp_backend_cpu()->set_threads(n_threads);
        vp_cpu_gemm_bf16_limit((vp_gemm_bf16_isa)isa);
        printf("%s", vp_cpu_gemm_bf16_class());
        start_s = vp_now_s();
        for (int i = 0; i < 2 || vp_now_s() - start_s < seconds; i++) {
            double call_s = vp_now_s();

            vp_cpu_gemm_bf16(&g, strcmp(role, "fwd") == 0 ? bias : NULL);
            if (i > 0)
                printf(" %.9f", vp_now_s() - call_s);
        }
        printf("\n");
        fflush(stdout);
        free(x);
        free(w);
        free(dy);
        free(bias);
        free(c);
    }
    return 0;
}
