/* models/graph.h: a model's training step, forward half, as data.
 *
 * A graph is a chain of *instances* of *templates*: embedding, block 0 .. L-1, head. Only templates
 * hold ops and tensors; instances add an index for names. Dimensions are expressions over shape
 * symbols, so one graph serves every batch and sequence. The tensor that goes from one instance to
 * the next is the template's explicit `in` and `out`; a tensor that lives across instances (tokens,
 * labels) is a *span* with the first and last instance that read it. Blocks that differ in nothing
 * but their attention window are instances of one template. Backward is not in the graph: the
 * planner derives it from the op table and the trainer's semantics.
 *
 * A graph lives in one arena and is read-only once built. */
#ifndef VP_MODELS_GRAPH_H
#define VP_MODELS_GRAPH_H

#include "base/arena.h"
#include "models/rotary.h"
#include "plan/op.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- dimensions ---- */

typedef enum vp_symbol {
    VP_SYM_BATCH,
    VP_SYM_SEQ,
    VP_SYM_IMAGE,
    VP_SYM_CAPACITY,
    VP_N_SYMBOLS
} vp_symbol;

/* coef * product of symbol^power. */
typedef struct vp_dim {
    int64_t coef;
    uint8_t power[VP_N_SYMBOLS];
} vp_dim;

vp_dim vp_dim_const(int64_t n);
vp_dim vp_dim_symbol(vp_symbol s);
vp_dim vp_dim_times(vp_dim a, vp_dim b);

/* Value under symbols[VP_N_SYMBOLS]; VP_OVERFLOW (base/checked.h) beyond 64 bits. */
int64_t vp_dim_eval(const vp_dim *d, const int64_t *symbols);

/* ---- tensors, ops, templates ---- */

/* What a tensor's elements are; the planner's semantics turn this into a dtype. */
typedef enum vp_elem {
    VP_ELEM_COMPUTE, /* activations                          */
    VP_ELEM_STAT,    /* statistics kept in full precision    */
    VP_ELEM_INDEX    /* token ids, labels                    */
} vp_elem;

/* The half of a block an op belongs to, for selective recompute. */
typedef enum vp_part { VP_PART_NONE, VP_PART_ATTENTION, VP_PART_MLP } vp_part;

enum { VP_TENSOR_MAX_DIMS = 4, VP_OP_MAX_IN = 4, VP_OP_MAX_OUT = 3, VP_OP_MAX_PARAMS = 4 };

typedef struct vp_tensor {
    const char *name; /* "attn.qkv" */
    vp_elem     elem;
    int         rank;
    vp_dim      dim[VP_TENSOR_MAX_DIMS]; /* first the rows */
    int         span;                    /* index in the graph's spans, -1: the template's own */
    int         producer;                /* op that makes it, -1: none (an input)              */
} vp_tensor;

/* A parameter an op uses. */
typedef struct vp_param_ref {
    bool used;
    bool shared; /* idx is into graph->shared, else into the template's params */
    int  idx;
} vp_param_ref;

typedef struct vp_graph_op {
    vp_op        op;
    const char  *name; /* "attn.c_attn" */
    vp_part      part;
    int          in[VP_OP_MAX_IN]; /* tensors of the template, -1: none */
    int          out[VP_OP_MAX_OUT];
    vp_param_ref param[VP_OP_MAX_PARAMS];
    bool         chunked; /* may run over chunks of rows: the head and its loss */
    /* attributes, by op */
    double           eps;         /* layernorm, rmsnorm              */
    int64_t          groups;      /* rmsnorm                         */
    bool             unit_offset; /* rmsnorm                         */
    vp_weight_layout layout;      /* linear, adapted                 */
    int64_t          heads, kv_heads, head_dim;
    vp_qkv_layout    qkv;             /* attention, rope                 */
    int64_t          rotary_dim;      /* rope                            */
    int              angles;          /* rope: index in graph->ropes     */
    bool             causal;          /* attention                       */
    int64_t          window;          /* attention; 0: none, VP_WINDOW_OF_INSTANCE */
    double           softcap;         /* attention, cross_entropy; 0: none */
    vp_act           act;             /* activation, glu                 */
    double           scale;           /* attention, embedding, adapted   */
    int64_t          position_offset; /* embedding                       */
    /* embedding: positions count tokens other than position_offset - 1 */
    bool    skip_padding;
    int64_t padding_row; /* embedding: learns nothing from look-ups; -1: none */
    double  p;           /* dropout, attention, adapted     */
    int     rng_id;      /* of random ops, unique in the template */
} vp_graph_op;

typedef struct vp_template {
    const char  *name;
    vp_tensor   *tensors;
    int64_t      n_tensors, cap_tensors;
    vp_graph_op *ops;
    int64_t      n_ops, cap_ops;
    vp_param    *params;
    int64_t      n_params, cap_params;
    int          in, out; /* tensors; -1: none */
    int64_t seq; /* tokens of a sample in it, where they are others than the model's; 0: those */
} vp_template;

/* The window of an attention that its instance decides. */
enum { VP_WINDOW_OF_INSTANCE = -1 };

typedef struct vp_instance {
    int64_t window; /* of attentions with VP_WINDOW_OF_INSTANCE; 0: none */
    int     template_idx;
    int64_t index;     /* "{}" in parameter names                     */
    int64_t chain_idx; /* place of its first block in the whole chain */
} vp_instance;

enum { VP_MAX_SPANS = 4 };

typedef struct vp_span {
    const char *name;
    vp_elem     elem;
    vp_dim      rows;
    int64_t     first_instance, last_instance;
} vp_span;

/* A parameter of one instance used by other templates. */
typedef struct vp_shared_param {
    int64_t instance_idx;
    int     param_idx;
} vp_shared_param;

typedef struct vp_graph {
    vp_template     *templates;
    int64_t          n_templates, cap_templates;
    vp_instance     *instances;
    int64_t          n_instances;
    vp_span         *spans;
    int64_t          n_spans;
    int              tokens_span, labels_span, types_span, lengths_span; /* -1: none */
    vp_rope          ropes[VP_MAX_ROPES];
    int              n_ropes;
    vp_shared_param *shared;
    int64_t          n_shared;
    int64_t          vocab_size, hidden;
    int64_t          max_seq;          /* positions that the model was made for          */
    bool             learns_positions; /* from a table: no longer sequence runs          */
    int64_t          n_token_types;    /* rows of the token-type table; 0: none            */
    int64_t          mask_token;       /* of masked language modelling; -1: none           */
    int64_t          n_classes;        /* that a label names; 0: it names a token          */
    vp_label_place   label_place;      /* where the label of a class stands                */
    bool             windows_vary;     /* some attention has VP_WINDOW_OF_INSTANCE         */
} vp_graph;

/* Number of elements of all parameters, and of those that are trained; VP_OVERFLOW beyond 64 bits. A
 * shared parameter counts once. */
int64_t vp_graph_param_count(const vp_graph *graph);
int64_t vp_graph_trained_count(const vp_graph *graph);

/* The longest sequence that runs: rotary positions are computed, whatever the model was made for. */
int64_t vp_graph_longest(const vp_graph *graph);

/* Bytes of a tensor's elements under symbols, at elem_bytes each. */
int64_t vp_tensor_elements(const vp_tensor *t, const int64_t *symbols);

/* ---- transformations: graph to graph ---- */

/* Blocks of the chain grouped: n_blocks of them in segments of `segment`, which divides
 * n_blocks. */
typedef struct vp_grouping {
    int64_t n_blocks, segment;
} vp_grouping;

/* The same model with the blocks between first and last instance grouped, in chain order;
 * together the groups are all blocks. A segment of m > 1 blocks is one instance of a template
 * with the tensors, ops and parameters of all m. Shares what it can with the graph it comes
 * from; the rest lives in arena. Check vp_arena_failed(). */
vp_graph vp_graph_grouped(vp_arena *arena, const vp_graph *graph, const vp_grouping *groups,
                          int n_groups);

/* ---- building ---- */

typedef struct vp_graph_builder {
    vp_arena *arena;
    vp_graph *graph;
} vp_graph_builder;

/* Append; each returns the new index. Out of memory shows in vp_arena_failed(). */
int vp_graph_add_template(vp_graph_builder *b, const char *name);
int vp_graph_add_tensor(vp_graph_builder *b, int template_idx, vp_tensor tensor);
int vp_graph_add_param(vp_graph_builder *b, int template_idx, vp_param param);
/* Also notes this op as the producer of its outputs. An optional input that is absent is -1. */
int vp_graph_add_op(vp_graph_builder *b, int template_idx, vp_graph_op op);

/* An activation of (batch * seq) rows by cols. */
vp_tensor vp_tensor_rows(const char *name, int64_t cols);

#endif
