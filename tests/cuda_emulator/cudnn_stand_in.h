/* tests/cuda_emulator/cudnn_stand_in.h: cuDNN's backend API for operation graphs, interpreted on
 * host memory, between the files that make it up.
 *
 * Descriptors are recorded and checked attribute by attribute: unknown names, wrong types or
 * counts, use before finalisation and shapes that do not fit are refused, as is whatever the
 * attention graphs do not use. An execution walks the operations in order with plain loops in
 * double; each tensor, those inside the kernel too, is stored in its declared type, so that a
 * matrix declared bf16 is rounded as bf16. This is what the documentation says the operations mean,
 * by dimensions and strides, and shares no code with kernels/cuda.
 *
 * Heuristics propose two engines: one that notes NONDETERMINISTIC and needs no workspace, one that
 * notes nothing and wants the first factor of a backward graph's last product as bf16, and 128
 * bytes. Engines named by their index are taken with any knobs and want no workspace. What an
 * execution is given as workspace is overwritten.
 *
 * Built into the emulated plugin, where executions go through cudaLaunchHostFunc() and so into
 * graphs that are being recorded; as a library by itself it executes at once.
 *
 *     cudnn_stand_in_descriptors.c   descriptors, their attributes, the table of what each takes
 *     cudnn_stand_in_graph.c         tensors, operations and graphs, checked
 *     cudnn_stand_in_execution.c     an execution
 *     cudnn_stand_in.c               the API */
#ifndef VP_CUDNN_STAND_IN_H
#define VP_CUDNN_STAND_IN_H

#include "kernels/cuda/cudnn_api.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_DIMS = 4, MAX_OPS = 64, MAX_TENSORS = 128 };

/* ---- cudnn_stand_in_descriptors.c ---- */

typedef struct attribute {
    struct attribute *next;
    int               name, type;
    int64_t           n;
    unsigned char    *bytes;
} attribute;

typedef struct object {
    int            kind;
    bool           finalized;
    attribute     *attributes;
    struct object *owned; /* a proposed configuration's engine */
} object;

/* One attribute of a kind of descriptor. */
typedef struct vp_dnn_rule {
    int  kind, name, type, most;
    bool needed;
} vp_dnn_rule;

/* Keeps the sentence and returns VP_CUDNN_STATUS_BAD_PARAM. */
int         vp_dnn_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *vp_dnn_last_error(void);

size_t vp_dnn_type_bytes(int type);

/* NULL where a descriptor of this kind has no such attribute. */
const vp_dnn_rule *vp_dnn_rule_of(int kind, int name);

bool vp_dnn_is_kind(int kind);

/* All attributes that it needs are there, and the descriptors among them finalised. */
int vp_dnn_check_complete(const object *o);

/* NULL where it was not set. */
attribute *vp_dnn_find(const object *o, int name);
int64_t    vp_dnn_int(const object *o, int name, int64_t fallback);
object    *vp_dnn_object(const object *o, int name, int64_t i);

/* Values are copied; an attribute given twice is the second. */
int  vp_dnn_put(object *o, int name, int type, int64_t n, const void *values);
void vp_dnn_free_attributes(object *o);

/* ---- cudnn_stand_in_graph.c ---- */

typedef struct tensor {
    int64_t id, dims[MAX_DIMS], strides[MAX_DIMS];
    int     dtype;
    bool    is_virtual, by_value;
} tensor;

/* Of a tensor's descriptor that is complete. */
void vp_dnn_read_tensor(const object *o, tensor *t);

/* The tensors of an operation, y last: how many. */
int vp_dnn_operands_of(const object *op, const object *out[4]);

/* Of descriptors that are complete: 0, or why not. */
int vp_dnn_check_tensor(const object *o);
int vp_dnn_check_operation(const object *op);
int vp_dnn_check_graph(const object *graph);

/* ---- cudnn_stand_in_execution.c ---- */

typedef struct place {
    tensor  t;
    void   *given; /* the caller's memory, or NULL */
    double *held;  /* of a virtual tensor          */
    double  value; /* of a scalar                  */
} place;

typedef struct execution {
    const object *graph;
    void         *workspace;
    int64_t       workspace_bytes;
    int           n_places;
    place         places[];
} execution;

/* The graph's tensors, with the memory that the pack gives them and the values of scalars. */
int vp_dnn_place_tensors(execution *e, const object *pack);

/* The operations of an execution, in order. */
void vp_dnn_execute(void *data);

#endif
