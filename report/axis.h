/* report/axis.h: round numbers along an axis.
 *     vp_axis axis = vp_axis_of(low, high, 6);
 *     for (int i = 0; i < axis.n; i++) ... axis.first + i * axis.step ... */
#ifndef VP_REPORT_AXIS_H
#define VP_REPORT_AXIS_H

typedef struct vp_axis {
    double first, step; /* 1, 2 or 5 times a power of ten, or of two for bytes */
    int    n;
} vp_axis;

/* Ticks within [low, high], about as many as asked. */
vp_axis vp_axis_of(double low, double high, int about);

/* The same for bytes: whole numbers of a power of two. */
vp_axis vp_axis_of_bytes(double low, double high, int about);

#endif
