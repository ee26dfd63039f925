/* dryrun/stand_in/null_solver.c: cuSOLVER's singular value decomposition by Jacobi's method in fp32, which torch.linalg.svd
 * takes: its workspace. Everything else of cuSOLVER is left to the generated stubs. */
#include "devices/svd_workspace.h"
#include "dryrun/stand_in/null_internal.h"

#include <stdlib.h>

#define E VP_NULL_EXPORT

E int cusolverDnSgesvdj_bufferSize(void *handle, int job, int econ, int m, int n, const float *a,
                                   int lda, const float *s, const float *u, int ldu, const float *v,
                                   int ldv, int *lwork, void *params);
int   cusolverDnSgesvdj_bufferSize(void *handle, int job, int econ, int m, int n, const float *a,
                                   int lda, const float *s, const float *u, int ldu, const float *v,
                                   int ldv, int *lwork, void *params)
{
    (void)handle, (void)job, (void)econ, (void)a, (void)lda, (void)s, (void)u, (void)ldu, (void)v,
        (void)ldv, (void)params;
    int64_t n_elements = vp_svd_workspace_elements(m, n);

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
