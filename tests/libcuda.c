/* A stand-in for NVIDIA's driver: its memory is the processor's, everything is checked and counted.
 *
 * The code of a kernel is a shared library with functions `void kernel(void **arguments, unsigned blocks, unsigned
 * threads)`, or text for a launcher that a test has set. What is left when the program ends, is wrong: the program then
 * ends with 97. A copy to page-locked memory arrives when the stream is waited for, as late as it may.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define MOST 4096
#define ALIGNMENT 256

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
       NO_BINARY = 209, INVALID_HANDLE = 400, NOT_FOUND = 500, UNKNOWN = 999 };

typedef int launcher(const char *code, const char *symbol, unsigned blocks, unsigned threads, void **arguments);
typedef void kernel(void **arguments, unsigned blocks, unsigned threads);

struct piece {
    unsigned char *raw, *data;
    size_t bytes;
    int page_locked;
};

struct module {
    char *code; /* a text, or NULL */
    void *library;
    int file; /* open as long as the library: another must not get its path */
};

struct function {
    struct module *module;
    char symbol[200];
    kernel *code;
    unsigned shared; /* most that a launch may give a block beside what the code says itself */
};

struct late {
    void *to, *data;
    size_t bytes;
    void *stream;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct piece pieces[MOST];
static struct module modules[MOST];
static struct function functions[MOST];
static struct late lates[MOST];
static int piece_count, module_count, function_count, late_count, retained, streams, launches, calls, fail_at;
static size_t used, limit = SIZE_MAX;
static unsigned most_shared = 227 << 10, given_shared;
static launcher *launch;
static _Thread_local void *stack[16];
static _Thread_local int depth;
static int the_context, the_stream;

/* Count a call that may fail; the one that is to fail does. */
static int due(void)
{
    return ++calls == fail_at;
}

API void standin_launcher(launcher *wanted) { launch = wanted; }
API void standin_limit(size_t bytes) { limit = bytes; }
API int standin_launches(void) { return launches; }

/* How much shared memory a block may have, and what the last launch gave it. */
API void standin_most_shared(unsigned bytes) { most_shared = bytes; }
API unsigned standin_shared(void) { return given_shared; }

/* Let the n-th call from now fail that may; 0: none. */
API void standin_fail(int n)
{
    calls = 0;
    fail_at = n;
}

/* What was not given back: memory, contexts, streams, and modules that outlive their context. */
API int standin_left(void)
{
    int left = retained + streams + depth;
    for (int i = 0; i < piece_count; i++) left += pieces[i].raw != NULL;
    return left;
}

API void standin_push_another(void) { stack[depth++] = &depth; }

/* Whether the thread's context is the one that standin_push_another set. */
API int standin_pop_another(void) { return stack[--depth] == &depth; }

__attribute__((destructor)) static void end(void)
{
    if (standin_left()) {
        fprintf(stderr, "stand-in: %d things are left\n", standin_left());
        _exit(97);
    }
}

static int here(void) { return depth > 0 && stack[depth - 1] == &the_context && retained > 0; }

static struct piece *piece_of(const void *address, size_t bytes)
{
    for (int i = 0; i < piece_count; i++) {
        const unsigned char *a = address, *from = pieces[i].data;
        if (pieces[i].raw != NULL && a >= from && a + bytes <= from + pieces[i].bytes) return &pieces[i];
    }
    return NULL;
}

static int take(size_t bytes, int page_locked, void **data)
{
    if (!here()) return INVALID_CONTEXT;
    if (bytes == 0) return INVALID_VALUE;
    if (bytes > limit - used) return OUT_OF_MEMORY;
    unsigned char *raw = malloc(bytes + ALIGNMENT);
    if (raw == NULL) return OUT_OF_MEMORY;
    memset(raw, 0xAB, bytes + ALIGNMENT);
    int at = 0;
    while (at < piece_count && pieces[at].raw != NULL) at++;
    if (at == MOST) abort();
    piece_count = at == piece_count ? at + 1 : piece_count;
    unsigned char *start = raw + (ALIGNMENT - (uintptr_t)raw % ALIGNMENT);
    pieces[at] = (struct piece){raw, start, bytes, page_locked};
    used += bytes;
    *data = start;
    return OK;
}

static int give(void *data, int page_locked)
{
    struct piece *piece = piece_of(data, 0);
    if (!here()) return INVALID_CONTEXT;
    if (piece == NULL || piece->data != data || piece->page_locked != page_locked) return INVALID_VALUE;
    used -= piece->bytes;
    free(piece->raw);
    piece->raw = NULL;
    return OK;
}

#define LOCKED(expression) \
    pthread_mutex_lock(&lock); \
    int result = due() ? UNKNOWN : (expression); \
    pthread_mutex_unlock(&lock); \
    return result

/* Whatever releases something does not fail. */
#define RELEASED(expression) \
    pthread_mutex_lock(&lock); \
    int result = (expression); \
    pthread_mutex_unlock(&lock); \
    return result

API int cuInit(unsigned flags) { LOCKED(flags != 0 ? INVALID_VALUE : getenv("STANDIN_EMPTY") ? NO_DEVICE : OK); }

API int cuGetErrorString(int code, const char **text)
{
    *text = code == OUT_OF_MEMORY ? "out of memory" : code == NO_BINARY ? "no kernel image" : "an error";
    return OK;
}

API int cuDeviceGet(int *device, int number)
{
    *device = 5;
    LOCKED(number == 0 ? OK : INVALID_DEVICE);
}

API int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Stand-in");
    return device == 5 ? OK : INVALID_DEVICE;
}

API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 75 ? 9 : attribute == 97 ? (int)most_shared : 0;
    LOCKED(device == 5 ? OK : INVALID_DEVICE);
}

static int retain(void **context)
{
    retained++;
    *context = &the_context;
    return OK;
}

static void forget(struct module *module)
{
    if (module->library != NULL) {
        dlclose(module->library);
        close(module->file);
    }
    free(module->code);
    module->library = NULL;
    module->code = NULL;
}

static int release(void)
{
    if (retained == 0) return INVALID_CONTEXT;
    retained--;
    for (int i = 0; retained == 0 && i < module_count; i++) {
        forget(&modules[i]);
    }
    return OK;
}

API int cuDevicePrimaryCtxRetain(void **context, int device) { LOCKED(device == 5 ? retain(context) : INVALID_DEVICE); }
API int cuDevicePrimaryCtxRelease_v2(int device) { RELEASED(device == 5 ? release() : INVALID_DEVICE); }

static int push(void *context)
{
    if (context != &the_context || depth == 16) return INVALID_CONTEXT;
    stack[depth++] = context;
    return OK;
}

API int cuCtxPushCurrent_v2(void *context) { LOCKED(push(context)); }

API int cuCtxPopCurrent_v2(void **context)
{
    if (depth == 0) return INVALID_CONTEXT;
    *context = stack[--depth];
    return OK;
}

static int load(void **module, const char *code)
{
    if (!here()) return INVALID_CONTEXT;
    if (module_count == MOST) abort();
    struct module *one = &modules[module_count++];
    if (memcmp(code, "\177ELF", 4) != 0) {
        if (launch == NULL) return NO_BINARY;
        one->code = strdup(code);
    } else {
        /* The length is not told; the headers of sections end what a linker writes. */
        const uint64_t sections = *(const uint64_t *)(code + 40);
        const uint16_t *size = (const uint16_t *)(code + 58);
        size_t bytes = (size_t)sections + (size_t)size[0] * size[1];
        char path[64];
        one->file = memfd_create("kernels", 0);
        if (one->file < 0 || write(one->file, code, bytes) != (ssize_t)bytes) abort();
        snprintf(path, sizeof path, "/proc/self/fd/%d", one->file);
        one->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (one->library == NULL) {
            close(one->file);
            return NO_BINARY;
        }
    }
    *module = one;
    return OK;
}

static int unload(struct module *module)
{
    if (!here()) return INVALID_CONTEXT;
    forget(module);
    return OK;
}

static int look_up(void **function, struct module *module, const char *symbol)
{
    if (!here()) return INVALID_CONTEXT;
    if (function_count == MOST) abort();
    struct function *one = &functions[function_count++];
    one->module = module;
    one->shared = 48 << 10;
    snprintf(one->symbol, sizeof one->symbol, "%s", symbol);
    void *found = module->library != NULL ? dlsym(module->library, symbol) : NULL;
    memcpy(&one->code, &found, sizeof found);
    *function = one;
    return module->library == NULL || found != NULL ? OK : NOT_FOUND;
}

static int allow(struct function *function, int attribute, int value)
{
    if (!here()) return INVALID_CONTEXT;
    if (attribute != 8 || value < 0 || (unsigned)value > most_shared) return INVALID_VALUE;
    function->shared = (unsigned)value;
    return OK;
}

API int cuFuncSetAttribute(void *function, int attribute, int value) { LOCKED(allow(function, attribute, value)); }
API int cuModuleLoadData(void **module, const void *code) { LOCKED(load(module, code)); }
API int cuModuleUnload(void *module) { RELEASED(unload(module)); }
API int cuModuleGetFunction(void **f, void *module, const char *symbol) { LOCKED(look_up(f, module, symbol)); }
API int cuMemAlloc_v2(uint64_t *memory, size_t bytes) { LOCKED(take(bytes, 0, (void **)memory)); }
API int cuMemFree_v2(uint64_t memory) { RELEASED(give((void *)memory, 0)); }
API int cuMemAllocHost_v2(void **memory, size_t bytes) { LOCKED(take(bytes, 1, memory)); }
API int cuMemFreeHost(void *memory) { RELEASED(give(memory, 1)); }

static int is_stream(void *stream) { return stream == NULL || (stream == &the_stream && streams > 0); }

static int copy(void *to, const void *from, size_t bytes, int to_device, void *stream)
{
    const struct piece *device = piece_of(to_device ? to : from, bytes), *host = piece_of(to_device ? from : to, bytes);
    if (!here()) return INVALID_CONTEXT;
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (bytes == 0 || device == NULL || device->page_locked || (host != NULL && !host->page_locked))
        return INVALID_VALUE;
    if (host == NULL || to_device) {
        memcpy(to, from, bytes);
        return OK;
    }
    if (late_count == MOST) abort();
    lates[late_count] = (struct late){to, malloc(bytes), bytes, stream};
    memcpy(lates[late_count++].data, from, bytes);
    return OK;
}

static int wait(void *stream)
{
    if (!here()) return INVALID_CONTEXT;
    if (!is_stream(stream)) return INVALID_HANDLE;
    for (int i = 0; i < late_count; i++) {
        /* All at once: streams are not told apart. */
        memcpy(lates[i].to, lates[i].data, lates[i].bytes);
        free(lates[i].data);
    }
    late_count = 0;
    return OK;
}

static int fill(uint64_t to, unsigned value, size_t count, void *stream)
{
    if (!here()) return INVALID_CONTEXT;
    if (!is_stream(stream) || to % 4 != 0 || piece_of((void *)to, 4 * count) == NULL) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++) memcpy((char *)to + 4 * i, &value, 4);
    return OK;
}

static int new_stream(void **stream, unsigned flags)
{
    if (!here()) return INVALID_CONTEXT;
    streams++;
    *stream = &the_stream;
    return flags <= 1 ? OK : INVALID_VALUE;
}

static int end_stream(void *stream)
{
    if (stream == NULL || !is_stream(stream)) return INVALID_HANDLE;
    streams--;
    return OK;
}

static int start(const struct function *function, const unsigned *sizes, unsigned shared, void *stream,
                 void **arguments, void **extra)
{
    if (!here()) return INVALID_CONTEXT;
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (sizes[0] < 1 || sizes[0] > INT32_MAX || sizes[3] < 1 || sizes[3] > 1024 || extra != NULL || shared > function->shared)
        return INVALID_VALUE;
    for (int i = 1; i < 6; i++) {
        if (i != 3 && sizes[i] != 1) return INVALID_VALUE;
    }
    launches++;
    given_shared = shared;
    if (function->module->library == NULL)
        return launch(function->module->code, function->symbol, sizes[0], sizes[3], arguments);
    function->code(arguments, sizes[0], sizes[3]);
    return OK;
}

API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { LOCKED(copy((void *)to, from, bytes, 1, NULL)); }
API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { LOCKED(copy(to, (void *)from, bytes, 0, NULL)); }

API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
    LOCKED(copy((void *)to, from, bytes, 1, stream));
}

API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
    LOCKED(copy(to, (void *)from, bytes, 0, stream));
}

API int cuMemsetD32Async(uint64_t to, unsigned v, size_t count, void *stream) { LOCKED(fill(to, v, count, stream)); }
API int cuStreamCreate(void **stream, unsigned flags) { LOCKED(new_stream(stream, flags)); }
API int cuStreamSynchronize(void *stream) { LOCKED(wait(stream)); }
API int cuStreamDestroy_v2(void *stream) { RELEASED(end_stream(stream)); }

API int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                       unsigned threads_z, unsigned shared, void *stream, void **arguments, void **extra)
{
    const unsigned sizes[] = {x, y, z, threads_x, threads_y, threads_z};
    LOCKED(start(function, sizes, shared, stream, arguments, extra));
}
