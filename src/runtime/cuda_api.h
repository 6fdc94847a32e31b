/* cuda_api.h -- the CUDA driver, opened at run time.
 *
 * Declares just what eider calls, so that building needs no CUDA toolkit.  Values are
 * those of cuda.h and part of the driver's ABI.  Only cuda_api.c and backend_cuda.c (and
 * the tests' fake driver) name anything of it.
 */
#ifndef EIDER_RUNTIME_CUDA_API_H
#define EIDER_RUNTIME_CUDA_API_H

#include "eider/eider.h"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmemPoolHandle_st *CUmemoryPool;

/* CUmemPoolProps. */
struct eider_cuda_pool_props {
    int alloc_type, handle_types;
    struct {
        int type, id;
    } location;
    void *security_attributes;
    size_t max_size; /* 0: as much as there is */
    unsigned short usage;
    unsigned char reserved[54];
};

_Static_assert(sizeof(struct eider_cuda_pool_props) == 88, "as in cuda.h");

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,  /* the first of the capture errors */
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908, /* the last */
    CUDA_ERROR_INVALID_CLUSTER_SIZE = 912
};

enum {
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,

    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,

    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    CU_JIT_GENERATE_LINE_INFO = 13,

    CU_STREAM_NON_BLOCKING = 1,
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    CU_EVENT_DEFAULT = 0,

    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4
};

struct eider_cuda_api {
#define EIDER_CUDA_FN(need, member, symbol, params, args) CUresult(*member) params;
#include "cuda_api.def"
    int driver;       /* 13000 is 13.0 */
    int has_device;   /* 0: a driver that found no GPU */
    char path[512];   /* what was opened */
    char tried[2048]; /* every candidate that was not taken and why, one per line */
};

/* Opens the first usable driver: `library` alone when it is given, else what
 * EIDER_LIBCUDA names alone, else the usual places; and initialises it.  The library is
 * never closed: the driver has threads of its own.
 * Fails with EIDER_NO_DRIVER, naming every candidate; out->tried is filled all the same. */
eider_status eider_cuda_open(const char *library, struct eider_cuda_api *out);

/* Records what `call` failed with and returns the status that fits. */
eider_status eider_cuda_fail(const struct eider_cuda_api *api, CUresult result, const char *call);

#endif
