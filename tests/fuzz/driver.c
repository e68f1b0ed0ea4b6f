/* Uses a built model as libFuzzer says: weights, shapes, element types, memory and numbers of inputs, in every order.
 * Linked with the driver and the kernels of an artifact, and run with the artifact's folder in SOFTQ_ARTIFACT and a
 * folder for the changed weights in TMPDIR. What is wrong must come back as an error. Memory of inputs and outputs ends
 * where a page ends that cannot be read, so that kernels are watched, too, which no sanitizer has gone through. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "softq.h"

#define MOST 8
#define ROOM ((size_t)1 << 20)
#define PAGE ((size_t)4096)

struct given {
    const uint8_t *data;
    size_t bytes, at;
};

static unsigned take(struct given *from)
{
    return from->at < from->bytes ? from->data[from->at++] : 0;
}

static unsigned char *weights;
static size_t weights_bytes;
static char folder[1024];
static unsigned char *room[2 * MOST];

/* Memory of so many bytes, which end where a page ends that cannot be read. */
static void *ends(int place, size_t bytes)
{
    if (room[place] == NULL) {
        room[place] = mmap(NULL, ROOM + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room[place] == MAP_FAILED || mprotect(room[place] + ROOM, PAGE, PROT_NONE) != 0) abort();
    }
    return room[place] + ROOM - bytes;
}

static void write_weights(const unsigned char *data, size_t bytes)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/weights.bin", folder);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) abort();
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count;
    (void)arguments;
    const char *artifact = getenv("SOFTQ_ARTIFACT");
    char path[4096];
    snprintf(path, sizeof path, "%s/weights.bin", artifact == NULL ? "." : artifact);
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) abort();
    weights_bytes = (size_t)ftell(file);
    weights = malloc(weights_bytes);
    rewind(file);
    if (weights == NULL || fread(weights, 1, weights_bytes, file) != weights_bytes) abort();
    fclose(file);
    const char *place = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s", place == NULL ? "." : place);
    return 0;
}

/* The weights with some bytes changed, one time in four with fewer or more of them. */
static void change_weights(struct given *from)
{
    size_t bytes = weights_bytes;
    unsigned char *data = malloc(2 * weights_bytes + 256);
    if (data == NULL) abort();
    memcpy(data, weights, weights_bytes);
    memset(data + weights_bytes, 7, weights_bytes + 256);
    for (unsigned i = take(from) % 16; i > 0; i--) {
        size_t place = (take(from) << 8 | take(from)) % weights_bytes;
        data[place] = (unsigned char)take(from);
    }
    unsigned size = take(from);
    if (size % 4 == 3) bytes = size & 64 ? bytes + size : bytes * size / 512;
    write_weights(data, bytes);
    free(data);
}

static void fill(struct given *from, unsigned char *data, size_t bytes)
{
    unsigned kind = take(from), last = 1;
    for (size_t i = 0; i < bytes; i++) {
        data[i] = kind % 4 == 0 ? 0 : kind % 4 == 1 ? (unsigned char)take(from) : (unsigned char)(last = last * 37 + kind);
    }
    if (kind % 4 == 3) {
        for (size_t i = 0; i < bytes; i++) data[i] = i % 8 == 0 ? data[i] % 8 : 0; /* small integers of 64 bits */
    }
}

static size_t width(int32_t dtype)
{
    static const size_t widths[] = {1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    return dtype >= 0 && (size_t)dtype < sizeof widths / sizeof *widths ? widths[dtype] : 1;
}

/* Describe and fill an input, mostly as the model wants it. */
static void make_input(struct given *from, int index, softq_tensor *tensor, const int64_t *sizes)
{
    softq_input(index, tensor);
    size_t bytes = width(tensor->dtype);
    for (int axis = 0; axis < tensor->rank; axis++) {
        unsigned kind = take(from);
        if (tensor->shape[axis] < 0) tensor->shape[axis] = sizes[kind % 16 == 15 ? 1 : 0];
        if (kind == 250) tensor->shape[axis] = (int64_t)1 << (take(from) % 63);
        if (kind == 251) tensor->shape[axis] = -(int64_t)take(from);
        if (kind == 252) tensor->shape[axis] = INT64_MAX - take(from);
        if (kind == 253) tensor->shape[axis] = 0;
        if (tensor->shape[axis] < 0 || tensor->shape[axis] > 4096 || bytes * (size_t)tensor->shape[axis] > ROOM) {
            bytes = 64; /* less than it says, and `bytes` tells that */
        } else {
            bytes *= (size_t)tensor->shape[axis];
        }
    }
    unsigned odd = take(from);
    if (odd == 240) tensor->dtype = (int32_t)take(from) - 8;
    if (odd == 241) tensor->rank = (int32_t)take(from) - 8;
    if (odd == 242) tensor->name = "another";
    if (odd == 243 && bytes > 0) bytes--;
    tensor->bytes = bytes;
    tensor->data = odd == 244 ? NULL : ends(index, bytes);
    if (tensor->data != NULL) fill(from, tensor->data, bytes);
    if (odd == 245 && bytes > 8) tensor->data = (char *)tensor->data + 1, tensor->bytes--;
}

static void use(struct given *from, softq_context *model)
{
    int inputs = softq_inputs(), outputs = softq_outputs();
    softq_tensor in[MOST], out[MOST];
    int64_t sizes[2] = {take(from) % 9, take(from) % 40};
    memset(out, 0, sizeof out);
    for (int i = 0; i < inputs; i++) make_input(from, i, &in[i], sizes);
    unsigned how = take(from);
    size_t count = how == 230 ? (size_t)take(from) % MOST : (size_t)inputs;
    if (how & 1) {
        softq_status status = softq_shape(model, in, count, out, (size_t)outputs);
        for (int i = 0; i < outputs && status == SOFTQ_OK && (how & 2); i++) {
            if (out[i].bytes > ROOM) {
                out[i].data = NULL;
                continue;
            }
            if ((how & 12) == 12 && out[i].bytes > 0) out[i].bytes--;
            out[i].data = ends(MOST + i, out[i].bytes);
        }
    }
    if (softq_run(model, in, count, out, (size_t)outputs) == SOFTQ_OK) {
        volatile unsigned char last;
        for (int i = 0; i < outputs; i++) {
            for (size_t byte = 0; byte < out[i].bytes && byte < ROOM; byte++) last = ((unsigned char *)out[i].data)[byte];
        }
        (void)last;
    } else if (softq_message(model)[0] == '\0') {
        abort(); /* a failure that says nothing */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct given from = {data, bytes, 0};
    static int changed = 1;
    char error[SOFTQ_ERROR_BYTES] = "";
    unsigned how = take(&from);
    if (softq_inputs() > MOST || softq_outputs() > MOST) abort();
    if (how & 1) {
        change_weights(&from);
        changed = 1;
    } else if (changed) {
        write_weights(weights, weights_bytes);
        changed = 0;
    }
    softq_context *model, *clone;
    if (softq_open(folder, how & 2 ? 2 : 1, &model, error, sizeof error) != SOFTQ_OK) {
        if (model != NULL || error[0] == '\0') abort();
        return 0;
    }
    for (unsigned times = how >> 2 & 3; times < 4; times++) use(&from, model);
    if ((how & 16) && softq_clone(model, 1, &clone, error, sizeof error) == SOFTQ_OK) {
        softq_close(model);
        model = clone;
        use(&from, model);
    }
    softq_close(model);
    return 0;
}
