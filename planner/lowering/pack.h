/* planner/lowering/pack.h: offsets for buffers with known lifetimes (dynamic storage allocation).
 *     vp_pack_item items[] = {{.bytes = 64, .first = 0, .last = 3}, ...};
 *     VP_TRY(vp_pack(items, n, VP_ALIGN_BYTES, &height, err));
 *
 * First fit in several fixed orders, best height kept, then in orders with one item moved or two
 * exchanged. Stops at a lower bound, vp_pack_least() or vp_pack_least_whole(). Deterministic. Block programs have tens of buffers and nearly
 * always meet the bound; the height that comes out is the one every figure uses, so a miss costs
 * memory, never truth. */
#ifndef VP_PLANNER_LOWERING_PACK_H
#define VP_PLANNER_LOWERING_PACK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct vp_pack_item {
    int64_t bytes;
    int64_t first, last; /* instants, inclusive            */
    bool    fixed;       /* offset is given, not chosen    */
    int64_t offset;      /* result, or where it is fixed   */
} vp_pack_item;

/* Most bytes alive at one instant, each rounded up to align; VP_OVERFLOW beyond 64 bits. first is
 * a step's index: memory is taken for each instant up to the last birth. VP_ERR_NOMEM. */
vp_status vp_pack_bound(const vp_pack_item *items, int64_t n, int64_t align, int64_t *bound,
                        vp_err *err);

/* A height that no choice of offsets can undercut: the larger of two bounds.
 *   - At any one step, the items alive that are not fixed share the gaps between the fixed ones and
 *     the space above them. A gap too small for the smallest of them stays empty.
 *   - An item alone must lie in some gap that is large enough at every step of its life, or above.
 * VP_ERR_NOMEM; VP_ERR_INPUT: beyond 64 bits. */
vp_status vp_pack_least(const vp_pack_item *items, int64_t n, int64_t align, int64_t *least,
                        vp_err *err);

/* The first of these two bounds, sharper: a gap holds whole items only, and so no more than the largest
 * sum of some of them that is no larger than it. Takes longer; a multiple of align, which the height
 * rounded up to one is no less than. The same errors. */
vp_status vp_pack_least_whole(const vp_pack_item *items, int64_t n, int64_t align, int64_t *least,
                              vp_err *err);

/* Choose the offsets, multiples of align. *height is the largest offset + bytes. VP_ERR_NOMEM. */
vp_status vp_pack(vp_pack_item *items, int64_t n, int64_t align, int64_t *height, vp_err *err);

/* The same in those orders alone that compare sizes, lives or births, none of them products. *met: one of
 * them meets vp_pack_least(), and so height and offsets are vp_pack()'s. */
vp_status vp_pack_in_first_orders(vp_pack_item *items, int64_t n, int64_t align, int64_t *height,
                                  bool *met, vp_err *err);

#endif
