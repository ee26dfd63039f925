/* tests/cuda_emulator/cudnn_values.c: compiled, not run: every number of
 * kernels/cuda/cudnn_api.h is that of cuDNN's header. */
#include "kernels/cuda/cudnn_api.h"

#include <cudnn_graph.h>

#define X(name, value) _Static_assert((int)(name) == (value), #name);
VP_CUDNN_VALUES(X)
#undef X

/* What is passed by address has the size cuDNN reads. */
_Static_assert(sizeof(cudnnDataType_t) == sizeof(int), "data types");
_Static_assert(sizeof(cudnnPointwiseMode_t) == sizeof(int), "pointwise modes");
_Static_assert(sizeof(cudnnReduceTensorOp_t) == sizeof(int), "reductions");
_Static_assert(sizeof(cudnnBackendHeurMode_t) == sizeof(int), "heuristic modes");
_Static_assert(sizeof(cudnnBackendKnobType_t) == sizeof(int), "knobs");
_Static_assert(sizeof(cudnnBackendNumericalNote_t) == sizeof(int), "numerical notes");
_Static_assert(sizeof(cudnnStatus_t) == sizeof(int), "status codes");
_Static_assert(sizeof(cudnnBackendDescriptor_t) == sizeof(void *), "descriptors");
