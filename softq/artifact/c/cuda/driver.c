/* ---- NVIDIA's driver: found when a model is opened, so that nothing of CUDA is needed before --------------------- */

#include <dlfcn.h>

typedef struct CUctx_st *sq_cu_context;
typedef struct CUmod_st *sq_cu_module;
typedef struct CUfunc_st *sq_cu_function;
typedef struct CUstream_st *sq_cu_stream;

/* Of cuda.h: the result of each is a CUresult. */
#define SQ_DRIVER(F) \
    F(cuInit, (unsigned flags)) \
    F(cuGetErrorString, (unsigned result, const char **text)) \
    F(cuDeviceGet, (int *device, int number)) \
    F(cuDeviceGetName, (char *name, int bytes, int device)) \
    F(cuDeviceGetAttribute, (int *value, unsigned attribute, int device)) \
    F(cuDevicePrimaryCtxRetain, (sq_cu_context *context, int device)) \
    F(cuDevicePrimaryCtxRelease_v2, (int device)) \
    F(cuCtxPushCurrent_v2, (sq_cu_context context)) \
    F(cuCtxPopCurrent_v2, (sq_cu_context *context)) \
    F(cuModuleLoadData, (sq_cu_module *module, const void *code)) \
    F(cuModuleUnload, (sq_cu_module module)) \
    F(cuModuleGetFunction, (sq_cu_function *function, sq_cu_module module, const char *symbol)) \
    F(cuFuncSetAttribute, (sq_cu_function function, unsigned attribute, int value)) \
    F(cuMemAlloc_v2, (sq_address *memory, size_t bytes)) \
    F(cuMemFree_v2, (sq_address memory)) \
    F(cuMemAllocHost_v2, (void **memory, size_t bytes)) \
    F(cuMemFreeHost, (void *memory)) \
    F(cuMemcpyHtoDAsync_v2, (sq_address to, const void *from, size_t bytes, sq_cu_stream stream)) \
    F(cuMemcpyDtoHAsync_v2, (void *to, sq_address from, size_t bytes, sq_cu_stream stream)) \
    F(cuMemsetD32Async, (sq_address to, unsigned value, size_t count, sq_cu_stream stream)) \
    F(cuStreamCreate, (sq_cu_stream *stream, unsigned flags)) \
    F(cuStreamSynchronize, (sq_cu_stream stream)) \
    F(cuStreamDestroy_v2, (sq_cu_stream stream)) \
    F(cuLaunchKernel, (sq_cu_function function, unsigned x, unsigned y, unsigned z, unsigned threads_x, \
                       unsigned threads_y, unsigned threads_z, unsigned shared_bytes, sq_cu_stream stream, \
                       void **arguments, void **extra))

/* Of cuda.h: CUDA_ERROR_OUT_OF_MEMORY, CU_STREAM_NON_BLOCKING, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN and
 * CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES. */
#define SQ_OUT_OF_MEMORY 2u
#define SQ_NON_BLOCKING 1u
#define SQ_DEVICE_SHARED 97
#define SQ_FUNCTION_SHARED 8

#define SQ_MEMBER(name, parameters) unsigned (*name) parameters;

struct sq_driver {
    void *library;
    SQ_DRIVER(SQ_MEMBER)
};

#define SQ_LIBRARY "libcuda.so.1"

/* Turn a result into a status; the message names the function. */
static softq_status sq_result(const struct sq_driver *driver, char *error, const char *function, unsigned result)
{
    const char *text = NULL;
    if (result == 0) {
        return SOFTQ_OK;
    }
    if (driver->cuGetErrorString(result, &text) != 0 || text == NULL) {
        text = "?";
    }
    return sq_fail(error, result == SQ_OUT_OF_MEMORY ? SOFTQ_NO_MEMORY : SOFTQ_DEVICE_FAILED,
                   "the GPU's driver fails in %s: %.200s (%u)", function, text, result);
}

/* Call a function of the driver; its arguments stand in parentheses. */
#define SQ_CALL(driver, error, name, arguments) sq_result(driver, error, #name, (driver)->name arguments)

static softq_status sq_find_driver(struct sq_driver *driver, char *error)
{
    /* The driver has threads: it stays where it is when nobody uses it any more. */
    driver->library = dlopen(SQ_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (driver->library == NULL) {
        return sq_fail(error, SOFTQ_NO_DEVICE,
                       "needs an NVIDIA GPU; this computer has no driver for one (" SQ_LIBRARY ")");
    }
    void *found = NULL;
#define SQ_FIND(name, parameters) \
    found = dlsym(driver->library, #name); \
    if (found == NULL) { \
        return sq_fail(error, SOFTQ_NO_DEVICE, "this computer's driver for GPUs is too old: it has no " #name); \
    } \
    memcpy(&driver->name, &found, sizeof found);
    SQ_DRIVER(SQ_FIND)
    return SOFTQ_OK;
}
