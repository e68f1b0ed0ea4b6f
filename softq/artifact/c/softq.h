/* softq.h: running a model that softq built.
 *
 * The library libmodel.so, or driver.c and kernels.o linked into a program, holds one model; for a GPU, driver.c alone
 * (cc -IFOLDER ... FOLDER/driver.c -ldl). Its weights lie in weights.bin of the same folder. Memory is always the
 * processor's: a driver for a GPU copies what it needs.
 *
 *     softq_context *model;
 *     char error[SOFTQ_ERROR_BYTES];
 *     if (softq_open("folder", 1, &model, error, sizeof error) != SOFTQ_OK) ...
 *     softq_tensor input, output;
 *     softq_input(0, &input);             // name, type and rank; -1 stands for a size that you choose
 *     input.shape[0] = 1;
 *     input.data = values;
 *     input.bytes = sizeof values;
 *     output.data = NULL;                 // memory of the context, valid until its next run
 *     if (softq_run(model, &input, 1, &output, 1) != SOFTQ_OK) puts(softq_message(model));
 *     softq_close(model);
 *
 * A context is used by one thread at a time; several threads open one each, or share the weights with softq_clone.
 * Nothing here prints, exits or leaves the process in another state when it fails.
 */
#ifndef SOFTQ_H
#define SOFTQ_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SOFTQ_API __attribute__((visibility("default")))
#else
#define SOFTQ_API
#endif

/* Greatest number of axes of an input or output. */
#define SOFTQ_MAX_RANK 8

/* Size of a buffer that holds any message. */
#define SOFTQ_ERROR_BYTES 512

typedef enum softq_status {
    SOFTQ_OK = 0,
    SOFTQ_BAD_ARGUMENT = 1, /* a null pointer, a number out of range, a wrong count or name */
    SOFTQ_BAD_DTYPE = 2,    /* an input has another element type */
    SOFTQ_BAD_SHAPE = 3,    /* an input has another rank or another size along an axis */
    SOFTQ_BAD_BUFFER = 4,   /* memory that is missing, too small, misaligned, or that overlaps other memory */
    SOFTQ_BAD_SIZE = 5,     /* a limit of the model does not hold for these shapes, or a size overflows */
    SOFTQ_BAD_WEIGHTS = 6,  /* weights.bin is missing, of another size, or of another model */
    SOFTQ_BAD_CPU = 7,      /* the processor lacks a feature that the kernels use */
    SOFTQ_NO_MEMORY = 8,    /* memory is not to be had, the GPU's neither */
    SOFTQ_NO_THREADS = 9,   /* threads cannot be started */
    SOFTQ_BAD_DATA = 10,    /* the inputs' values make no sense to the model, an index out of range for one */
    SOFTQ_BUSY = 11,        /* another thread is using this context */
    SOFTQ_NO_DEVICE = 12,   /* there is no GPU, no driver for it, or the kernels are not for it */
    SOFTQ_DEVICE_FAILED = 13 /* the GPU's driver reports an error */
} softq_status;

/* Types of fewer than 8 bits have one element in a byte: of what an input has there the low bits alone count, and in an
 * output the others repeat the sign, so that int4 reads as int8 and uint4 as uint8. */
typedef enum softq_dtype {
    SOFTQ_BOOL = 1, /* one byte, 0 or 1 */
    SOFTQ_INT8 = 2,
    SOFTQ_UINT8 = 3,
    SOFTQ_INT16 = 4,
    SOFTQ_UINT16 = 5,
    SOFTQ_INT32 = 6,
    SOFTQ_UINT32 = 7,
    SOFTQ_INT64 = 8,
    SOFTQ_UINT64 = 9,
    SOFTQ_FLOAT16 = 10,
    SOFTQ_FLOAT32 = 11,
    SOFTQ_FLOAT64 = 12,
    SOFTQ_BFLOAT16 = 13,
    SOFTQ_FLOAT8_E4M3FN = 14,
    SOFTQ_FLOAT8_E4M3FNUZ = 15,
    SOFTQ_FLOAT8_E5M2 = 16,
    SOFTQ_FLOAT8_E5M2FNUZ = 17,
    SOFTQ_FLOAT8_E8M0FNU = 18,
    SOFTQ_FLOAT4_E2M1FN = 19,
    SOFTQ_INT4 = 20,
    SOFTQ_UINT4 = 21,
    SOFTQ_INT2 = 22,
    SOFTQ_UINT2 = 23
} softq_dtype;

/* A tensor in row-major order. */
typedef struct softq_tensor {
    const char *name;               /* of an input that is passed to softq_run: NULL, or the model's name */
    int32_t dtype;                  /* a softq_dtype */
    int32_t rank;                   /* number of axes */
    int64_t shape[SOFTQ_MAX_RANK];  /* the first `rank` count */
    void *data;                     /* aligned as its element type is; inputs are not written */
    size_t bytes;                   /* size of the memory at `data` */
} softq_tensor;

typedef struct softq_context softq_context;

/* The number of inputs, and of outputs. */
SOFTQ_API int softq_inputs(void);
SOFTQ_API int softq_outputs(void);

/* Describe an input or output: name, dtype, rank, and shape with -1 for a size known only at run time; data is NULL. */
SOFTQ_API softq_status softq_input(int index, softq_tensor *description);
SOFTQ_API softq_status softq_output(int index, softq_tensor *description);

/* Open the model whose weights.bin lies in `folder`. The context runs on `threads` threads, the caller's one of them;
 * on a GPU, the first that the driver lists, the number is without effect.
 * When it fails, *context is NULL and `error` (SOFTQ_ERROR_BYTES, or NULL) holds one sentence. */
SOFTQ_API softq_status softq_open(
    const char *folder, int threads, softq_context **context, char *error, size_t error_bytes);

/* Open another context of the same model for another thread; the weights are shared, and stay until both are closed. */
SOFTQ_API softq_status softq_clone(
    const softq_context *original, int threads, softq_context **context, char *error, size_t error_bytes);

/* Fill in name, dtype, rank, shape and bytes of the outputs for these inputs, of which only name, dtype, rank and
 * shape are read. Memory that softq_run gave out before stays valid. A size that the inputs' values decide is -1, and
 * bytes is 0 then: only softq_run knows them. */
SOFTQ_API softq_status softq_shape(
    softq_context *context, const softq_tensor *inputs, size_t input_count, softq_tensor *outputs, size_t output_count);

/* Run the model. Inputs and outputs are in the model's order. Of an output, `data` and `bytes` are read: the result is
 * written there if data is not NULL and bytes is large enough. Where data is NULL (or what the last run put there),
 * the result is in memory of the context until its next run. Name, dtype, rank and shape are filled in. */
SOFTQ_API softq_status softq_run(
    softq_context *context, const softq_tensor *inputs, size_t input_count, softq_tensor *outputs, size_t output_count);

/* What the last failure of softq_shape or softq_run on this context was, in one sentence. */
SOFTQ_API const char *softq_message(const softq_context *context);

/* Release everything; NULL is allowed. */
SOFTQ_API void softq_close(softq_context *context);

#ifdef __cplusplus
}
#endif

#endif
