/* kernels/cuda/cudnn_api.h: the part of cuDNN's backend API that vplan calls, declared here so that
 * neither building nor starting needs cuDNN: the library is opened when it is wanted.
 *     vp_cudnn_api api;
 *     VP_TRY(vp_cudnn_api_open(&api, err));
 *     VP_TRY(vp_cudnn_check(&api, api.create(&handle), "cudnnCreate", err));
 *
 * Numbers are those of cudnn_graph.h of cuDNN 9; where the header is installed,
 * tests/test_cudnn_graphs.sh compiles tests/cuda_emulator/cudnn_values.c, which compares every
 * one of them. */
#ifndef VP_KERNELS_CUDA_CUDNN_API_H
#define VP_KERNELS_CUDA_CUDNN_API_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* X(name there, value); here the name is VP_CUDNN_... */
#define VP_CUDNN_VALUES(X) \
    X(CUDNN_STATUS_SUCCESS, 0) \
    X(CUDNN_STATUS_BAD_PARAM, 2000) \
    X(CUDNN_STATUS_NOT_SUPPORTED, 3000) \
\
    X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0) \
    X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2) \
    X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3) \
    X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4) \
    X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5) \
    X(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, 7) \
    X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13) \
    X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15) \
    X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16) \
    X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17) \
    X(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18) \
    X(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19) \
    X(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21) \
    X(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22) \
    X(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31) \
    X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38) \
\
    X(CUDNN_TYPE_HANDLE, 0) \
    X(CUDNN_TYPE_DATA_TYPE, 1) \
    X(CUDNN_TYPE_BOOLEAN, 2) \
    X(CUDNN_TYPE_INT64, 3) \
    X(CUDNN_TYPE_VOID_PTR, 6) \
    X(CUDNN_TYPE_HEUR_MODE, 8) \
    X(CUDNN_TYPE_KNOB_TYPE, 9) \
    X(CUDNN_TYPE_NUMERICAL_NOTE, 11) \
    X(CUDNN_TYPE_POINTWISE_MODE, 14) \
    X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15) \
    X(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18) \
    X(CUDNN_TYPE_CHAR, 24) \
\
    X(CUDNN_DATA_FLOAT, 0) \
    X(CUDNN_DATA_INT32, 4) \
    X(CUDNN_DATA_BFLOAT16, 9) \
    X(CUDNN_DATA_BOOLEAN, 11) \
\
    X(CUDNN_POINTWISE_ADD, 0) \
    X(CUDNN_POINTWISE_MUL, 1) \
    X(CUDNN_POINTWISE_DIV, 6) \
    X(CUDNN_POINTWISE_SUB, 9) \
    X(CUDNN_POINTWISE_EXP, 13) \
    X(CUDNN_POINTWISE_LOG, 15) \
    X(CUDNN_POINTWISE_IDENTITY, 21) \
    X(CUDNN_POINTWISE_CMP_GT, 302) \
    X(CUDNN_POINTWISE_CMP_GE, 303) \
    X(CUDNN_POINTWISE_GEN_INDEX, 501) \
    X(CUDNN_POINTWISE_BINARY_SELECT, 601) \
\
    X(CUDNN_REDUCE_TENSOR_ADD, 0) \
    X(CUDNN_REDUCE_TENSOR_MAX, 3) \
\
    X(CUDNN_HEUR_MODE_A, 3) \
    X(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4) \
    X(CUDNN_NUMERICAL_NOTE_TYPE_COUNT, 10) \
    X(CUDNN_KNOB_TYPE_STAGES, 14) \
    X(CUDNN_KNOB_TYPE_KERNEL_CFG, 24) \
\
    X(CUDNN_ATTR_POINTWISE_MODE, 0) \
    X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1) \
    X(CUDNN_ATTR_POINTWISE_AXIS, 9) \
    X(CUDNN_ATTR_ENGINEHEUR_MODE, 200) \
    X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201) \
    X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202) \
    X(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204) \
    X(CUDNN_ATTR_ENGINECFG_ENGINE, 300) \
    X(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, 302) \
    X(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, 303) \
    X(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400) \
    X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401) \
    X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402) \
    X(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 600) \
    X(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 601) \
    X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750) \
    X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751) \
    X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752) \
    X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753) \
    X(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758) \
    X(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800) \
    X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801) \
    X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900) \
    X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901) \
    X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902) \
    X(CUDNN_ATTR_TENSOR_STRIDES, 903) \
    X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906) \
    X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907) \
    X(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908) \
    X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000) \
    X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001) \
    X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003) \
    X(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 1300) \
    X(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301) \
    X(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303) \
    X(CUDNN_ATTR_ENGINE_DEVICEPROP, 1307) \
    X(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500) \
    X(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520) \
    X(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521) \
    X(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522) \
    X(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523) \
    X(CUDNN_ATTR_REDUCTION_OPERATOR, 1600) \
    X(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601) \
    X(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610) \
    X(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611) \
    X(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612) \
    X(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200) \
    X(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201) \
    X(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)

enum {
#define X(name, value) VP_##name = (value),
    VP_CUDNN_VALUES(X)
#undef X
        VP_CUDNN_OLDEST =
            91900 /* the version whose graphs, engines and workspaces were looked at; older ones had attention
                             * kernels that do not repeat themselves (fixed in 9.18: Hopper forward, B200 backward) */
};

typedef void *vp_cudnn_descriptor;

/* Status codes are int: cudnnStatus_t. */
typedef struct vp_cudnn_api {
    void *library;
    size_t (*version)(void); /* 91900 for 9.19.0 */
    const char *(*status_text)(int status);
    void (*last_error)(char *text, size_t size);
    int (*handle_create)(void **handle);
    int (*handle_destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*create)(int kind, vp_cudnn_descriptor *out);
    int (*destroy)(vp_cudnn_descriptor d);
    int (*finalize)(vp_cudnn_descriptor d);
    int (*set)(vp_cudnn_descriptor d, int attribute, int type, int64_t n, const void *values);
    int (*get)(vp_cudnn_descriptor d, int attribute, int type, int64_t n_asked, int64_t *n,
               void *values);
    int (*execute)(void *handle, vp_cudnn_descriptor plan, vp_cudnn_descriptor pack);
} vp_cudnn_api;

/* Opens $VPLAN_CUDNN, a path, or else libcudnn.so.9 where the dynamic linker looks.
 * VP_ERR_DEVICE: not found, without one of the functions, older than VP_CUDNN_OLDEST. */
vp_status vp_cudnn_api_open(vp_cudnn_api *out, vp_err *err);
void      vp_cudnn_api_close(vp_cudnn_api *api);

/* cuDNN's own sentence about its last failure, in one line. Returns text. */
const char *vp_cudnn_last_error(const vp_cudnn_api *api, char *text, size_t size);

/* VP_OK for status 0; else VP_ERR_DEVICE with cuDNN's name for it and its own sentence. */
vp_status vp_cudnn_check(const vp_cudnn_api *api, int status, const char *what, vp_err *err);

#endif
