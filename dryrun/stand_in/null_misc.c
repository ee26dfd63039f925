/* dryrun/stand_in/null_misc.c: the little of other libraries that is called without being used:
 * versions, handles, and a generator that only names a seed. Everything with a size to answer
 * (most of cuSOLVER, cuSPARSE, cuFFT) is left to the generated stubs, which end the run by name. */
#include "dryrun/stand_in/null_internal.h"

#include <stdlib.h>

#define E VP_NULL_EXPORT

#define HANDLE(create, destroy, set_stream) \
    E int create(void **h); \
    int   create(void **h) \
    { \
        *h = calloc(1, 64); \
        return *h ? 0 : 2; \
    } \
    E int destroy(void *h); \
    int   destroy(void *h) \
    { \
        free(h); \
        return 0; \
    } \
    VP_NULL_NOP(set_stream)

HANDLE(cusolverDnCreate, cusolverDnDestroy, cusolverDnSetStream)
HANDLE(cusparseCreate, cusparseDestroy, cusparseSetStream)

VP_NULL_NOP(cusparseSetPointerMode)

E const char *cusparseGetErrorString(int e);
const char   *cusparseGetErrorString(int e)
{
    return e == 0 ? "success" : "not supported in a dry run";
}

/* CUPTI: a profiler finds no GPU events. CUPTI_ERROR_NOT_SUPPORTED is 27; PyTorch's profiler
 * says so and goes on with the host's side. */
E int cuptiGetVersion(unsigned *v);
int   cuptiGetVersion(unsigned *v)
{
    *v = 130000;
    return 0;
}

E int cuptiGetResultString(int e, const char **text);
int   cuptiGetResultString(int e, const char **text)
{
    *text = e == 0 ? "CUPTI_SUCCESS" : "CUPTI_ERROR_NOT_SUPPORTED";
    return 0;
}

#define NOT_SUPPORTED(name) \
    E int name(void); \
    int   name(void) \
    { \
        return 27; \
    }

NOT_SUPPORTED(cuptiSubscribe)
NOT_SUPPORTED(cuptiUnsubscribe)
NOT_SUPPORTED(cuptiEnableCallback)
NOT_SUPPORTED(cuptiEnableDomain)
NOT_SUPPORTED(cuptiFinalize)
NOT_SUPPORTED(cuptiActivityEnable)
NOT_SUPPORTED(cuptiActivityDisable)
NOT_SUPPORTED(cuptiActivityEnableDriverApi)
NOT_SUPPORTED(cuptiActivityEnableRuntimeApi)
NOT_SUPPORTED(cuptiActivityEnableCudaEventDeviceTimestamps)
NOT_SUPPORTED(cuptiActivityFlushAll)
NOT_SUPPORTED(cuptiActivityGetNextRecord)
NOT_SUPPORTED(cuptiActivityGetNumDroppedRecords)
NOT_SUPPORTED(cuptiActivityPushExternalCorrelationId)
NOT_SUPPORTED(cuptiActivityPopExternalCorrelationId)
NOT_SUPPORTED(cuptiActivityRegisterCallbacks)
NOT_SUPPORTED(cuptiActivityRegisterTimestampCallback)
NOT_SUPPORTED(cuptiActivitySetAttribute)
