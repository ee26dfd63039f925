/* dryrun/stand_in/null_solver.c: cuSOLVER's singular value decomposition by Jacobi's method in fp32, which torch.linalg.svd
 * takes: its workspace. Everything else of cuSOLVER is left to the generated stubs. */
#include "dryrun/stand_in/null_internal.h"

#include <stdlib.h>

#define E VP_NULL_EXPORT

static int64_t up32(int64_t n)
{
    return (n + 31) / 32 * 32;
}

static int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* In elements. As cuSOLVER 12.0.4 (CUDA 13.0) answers, whatever the card, for sides that 32 divides
 * (tests/golden/solver/svd_workspaces.csv): a square matrix is decomposed at once, a taller one by its QR factors, a wider one
 * turned. */
static int64_t workspace(int64_t m, int64_t n)
{
    int64_t k = m < n ? m : n, longer = max(m, n);
    int64_t square = 2 * k * k + 64 * k + up32(k * k / 256 + k / 32) + k + 1024;
    int64_t factor = 1024 * max(k, 256) + 524288 + k + 32;
    int64_t apply  = (k + 256) * (longer + k + 257) + k;

    if (m == n)
        return square;
    return m > n ? max(square + k * k, max(factor, apply)) : max(factor, apply) + m * n;
}

E int cusolverDnSgesvdj_bufferSize(void *handle, int job, int econ, int m, int n, const float *a,
                                   int lda, const float *s, const float *u, int ldu, const float *v,
                                   int ldv, int *lwork, void *params);
int   cusolverDnSgesvdj_bufferSize(void *handle, int job, int econ, int m, int n, const float *a,
                                   int lda, const float *s, const float *u, int ldu, const float *v,
                                   int ldv, int *lwork, void *params)
{
    (void)handle, (void)job, (void)econ, (void)a, (void)lda, (void)s, (void)u, (void)ldu, (void)v,
        (void)ldv, (void)params;
    int64_t n_elements = workspace(m, n);

    if (n_elements > INT32_MAX)
        return 3; /* CUSOLVER_STATUS_INVALID_VALUE */
    *lwork = (int)n_elements;
    return 0;
}

VP_NULL_WORK(cusolverDnSgesvdj)

E int cusolverDnCreateGesvdjInfo(void **info);
int   cusolverDnCreateGesvdjInfo(void **info)
{
    *info = calloc(1, 64);
    return *info ? 0 : 2;
}

E int cusolverDnDestroyGesvdjInfo(void *info);
int   cusolverDnDestroyGesvdjInfo(void *info)
{
    free(info);
    return 0;
}

VP_NULL_NOP(cusolverDnXgesvdjSetTolerance)
VP_NULL_NOP(cusolverDnXgesvdjSetMaxSweeps)
VP_NULL_NOP(cusolverDnXgesvdjSetSortEig)
