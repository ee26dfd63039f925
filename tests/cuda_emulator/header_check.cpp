/* tests/cuda_emulator/header_check.cpp: the emulator's headers agree with NVIDIA's. Compiled
 * against the toolkit's headers, never run.
 *
 * tests/test_cuda_headers.sh takes two lists out of include/: header_calls.inc, every prototype,
 * which must be a redeclaration of NVIDIA's, and header_values.inc, VALUE(name, number) for
 * every enumerator and constant. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <type_traits>

#define VP_EMULATOR_DEFAULT(value)

extern "C" {
#include "header_calls.inc"
}

#define VALUE(name, number) \
    static_assert((long long)(name) == (number), #name " has another value");
#include "header_values.inc"

/* The fields of cudaDeviceProp that the emulator has. */
#define FIELD(name, ...) \
    static_assert(std::is_same<decltype(cudaDeviceProp::name), __VA_ARGS__>::value, \
                  "cudaDeviceProp::" #name " is of another type");
FIELD(name, char[256])
FIELD(totalGlobalMem, size_t)
FIELD(sharedMemPerBlock, size_t)
FIELD(warpSize, int)
FIELD(maxThreadsPerBlock, int)
FIELD(maxThreadsDim, int[3])
FIELD(maxGridSize, int[3])
FIELD(major, int)
FIELD(minor, int)
FIELD(multiProcessorCount, int)
FIELD(integrated, int)
FIELD(ECCEnabled, int)
FIELD(pciBusID, int)
FIELD(pciDeviceID, int)
FIELD(pciDomainID, int)
FIELD(memoryBusWidth, int)
FIELD(l2CacheSize, int)
FIELD(sharedMemPerMultiprocessor, size_t)
FIELD(sharedMemPerBlockOptin, size_t)

static_assert(sizeof(cublasLtMatrixLayoutOpaque_t) == 64 &&
                  sizeof(cublasLtMatmulDescOpaque_t) == 256 &&
                  sizeof(cublasLtMatmulPreferenceOpaque_t) == 64 &&
                  sizeof(cublasLtMatmulAlgo_t) == 64,
              "a descriptor has another size");
static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 64 + sizeof(size_t) + 4 + 4 + 16 &&
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == 64,
              "a heuristic's result lies otherwise");
