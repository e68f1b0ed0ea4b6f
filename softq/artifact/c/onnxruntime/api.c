#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__GNUC__)
#error "the operators are written for GCC and Clang"
#endif
#define SQ_HIDDEN __attribute__((visibility("hidden")))
#define SQ_MAYBE_UNUSED __attribute__((unused))

/* ---- onnxruntime's interface for C, version 17: a table of functions that only grows at its end ---- */

#define ORT_VERSION 17
#define ORT_EXPORT __attribute__((visibility("default")))

typedef void (*ort_function)(void);
typedef const ort_function *ort_api;

struct ort_api_base {
    ort_api (*get_api)(uint32_t version);
    const char *(*version_text)(void);
};

struct ort_status;
struct ort_value;
struct ort_context;
struct ort_tensor_info;
struct ort_domain;
struct ort_session_options;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 };

enum {
    ORT_UNDEFINED = 0, ORT_FLOAT = 1, ORT_UINT8 = 2, ORT_INT8 = 3, ORT_UINT16 = 4, ORT_INT16 = 5, ORT_INT32 = 6,
    ORT_INT64 = 7, ORT_BOOL = 9, ORT_FLOAT16 = 10, ORT_DOUBLE = 11, ORT_UINT32 = 12, ORT_UINT64 = 13, ORT_BFLOAT16 = 16
};

/* Positions in the table. */
enum {
    ORT_CREATE_STATUS = 0,
    ORT_CREATE_DOMAIN = 26,
    ORT_DOMAIN_ADD = 27,
    ORT_ADD_DOMAIN = 28,
    ORT_GET_DATA = 51,
    ORT_GET_TYPE = 60,
    ORT_GET_RANK = 61,
    ORT_GET_SHAPE = 62,
    ORT_GET_INFO = 65,
    ORT_GET_INPUT = 90,
    ORT_GET_OUTPUT = 91,
    ORT_RELEASE_STATUS = 93,
    ORT_RELEASE_INFO = 99,
    ORT_ADD_ENTRY = 130,
    ORT_GET_ENTRY = 238,
    ORT_PARALLEL_FOR = 274
};

#define ORT_CALL(api, at, ...) ((struct ort_status * (*)(__VA_ARGS__))(api)[at])
#define ORT_RELEASE(api, at, type, what) (((void (*)(type))(api)[at])(what))

struct ort_op {
    uint32_t version;
    void *(*create)(const struct ort_op *op, ort_api api, const void *info);
    const char *(*name)(const struct ort_op *op);
    const char *(*provider)(const struct ort_op *op);
    int (*input_type)(const struct ort_op *op, size_t index);
    size_t (*inputs)(const struct ort_op *op);
    int (*output_type)(const struct ort_op *op, size_t index);
    size_t (*outputs)(const struct ort_op *op);
    void (*compute_old)(void *kernel, struct ort_context *context);
    void (*destroy)(void *kernel);
    int (*input_kind)(const struct ort_op *op, size_t index);
    int (*output_kind)(const struct ort_op *op, size_t index);
    int (*input_memory)(const struct ort_op *op, size_t index);
    int (*least_variadic_inputs)(const struct ort_op *op);
    int (*variadic_inputs_alike)(const struct ort_op *op);
    int (*least_variadic_outputs)(const struct ort_op *op);
    int (*variadic_outputs_alike)(const struct ort_op *op);
    struct ort_status *(*create_kernel)(const struct ort_op *op, ort_api api, const void *info, void **kernel);
    struct ort_status *(*compute)(void *kernel, struct ort_context *context);
    struct ort_status *(*infer_shapes)(const struct ort_op *op, void *context);
    int (*first_version)(const struct ort_op *op);
    int (*last_version)(const struct ort_op *op);
};

/* Return a status with a message. */
__attribute__((format(printf, 3, 4))) static struct ort_status *sq_fail(ort_api api, int code, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return ORT_CALL(api, ORT_CREATE_STATUS, int, const char *)(code, message);
}
