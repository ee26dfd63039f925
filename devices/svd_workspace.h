/* devices/svd_workspace.h: the workspace of cuSOLVER's singular value decomposition by Jacobi's method in fp32, which torch.linalg.svd()
 * takes on a card.
 *     bytes = 4 * vp_svd_workspace_elements(rows, columns);
 *
 * In elements, as cuSOLVER 12.0.4 (CUDA 13.0) answers whatever the card, for sides that 32 divides: asked without one, 729 pairs
 * (tests/golden/solver/svd_workspaces.csv, made by tests/oracles/svd_workspaces.py). A square matrix is decomposed at once, a taller one by
 * its QR factors, a wider one turned. For estimates and for the stand-in of the library alike. */
#ifndef VP_DEVICES_SVD_WORKSPACE_H
#define VP_DEVICES_SVD_WORKSPACE_H

#include <stdint.h>

static inline int64_t vp_svd_workspace_elements(int64_t rows, int64_t columns)
{
    int64_t k = rows < columns ? rows : columns, longer = rows < columns ? columns : rows;
    int64_t up32   = (k * k / 256 + k / 32 + 31) / 32 * 32;
    int64_t square = 2 * k * k + 64 * k + up32 + k + 1024;
    int64_t factor = 1024 * (k > 256 ? k : 256) + 524288 + k + 32;
    int64_t apply  = (k + 256) * (longer + k + 257) + k;

    factor = factor > apply ? factor : apply;
    if (rows == columns)
        return square;
    if (rows < columns)
        return factor + rows * columns;
    square += k * k;
    return square > factor ? square : factor;
}

#endif
