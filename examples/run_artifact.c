/* Runs what `softq build model.onnx FOLDER` wrote: sizes that the model leaves open are SIZE, inputs are zeros.
 *
 *     cc -O2 -IFOLDER examples/run_artifact.c FOLDER/driver.c FOLDER/kernels.o -lm -pthread -o run_artifact
 *     cc -O2 -IFOLDER examples/run_artifact.c FOLDER/driver.c -ldl -o run_artifact     (target cuda)
 *     ./run_artifact FOLDER [SIZE [FILE]]     FILE: raw values of the first input
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "softq.h"

#define MOST 16

static void show(const char *kind, const softq_tensor *tensor)
{
    printf("%s %s: type %" PRId32 ", shape", kind, tensor->name, tensor->dtype);
    for (int axis = 0; axis < tensor->rank; axis++) printf(" %" PRId64, tensor->shape[axis]);
    printf(", %zu bytes\n", tensor->bytes);
}

int main(int count, char **arguments)
{
    static const size_t widths[] = {0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8};
    const int64_t size = count > 2 ? strtoll(arguments[2], NULL, 10) : 1;
    const int given = softq_inputs(), wanted = softq_outputs();
    softq_tensor inputs[MOST] = {{0}}, outputs[MOST] = {{0}}; /* data NULL: the context's own memory */
    softq_context *model;
    char error[SOFTQ_ERROR_BYTES];
    if (count < 2 || given > MOST || wanted > MOST || size < 0 || size > 65536) {
        fprintf(stderr, "usage: run_artifact FOLDER [SIZE [FILE]]\n");
        return 2;
    }
    if (softq_open(arguments[1], 2, &model, error, sizeof error) != SOFTQ_OK) {
        fprintf(stderr, "run_artifact: %s\n", error);
        return 2;
    }
    for (int i = 0; i < given; i++) {
        softq_input(i, &inputs[i]);
        inputs[i].bytes = widths[inputs[i].dtype];
        for (int axis = 0; axis < inputs[i].rank; axis++) {
            if (inputs[i].shape[axis] < 0) inputs[i].shape[axis] = size;
            inputs[i].bytes *= (size_t)inputs[i].shape[axis];
        }
        inputs[i].data = calloc(inputs[i].bytes + 1, 1); /* no memory: softq_run says so */
        show("input", &inputs[i]);
    }
    FILE *file = count > 3 && given > 0 ? fopen(arguments[3], "rb") : NULL;
    if (count > 3 && (file == NULL || fread(inputs[0].data, 1, inputs[0].bytes, file) != inputs[0].bytes)) {
        fprintf(stderr, "run_artifact: %s has fewer than %zu bytes\n", arguments[3], inputs[0].bytes);
        return 2;
    }
    if (file != NULL) fclose(file);
    softq_status status = softq_run(model, inputs, (size_t)given, outputs, (size_t)wanted);
    if (status != SOFTQ_OK) fprintf(stderr, "run_artifact: %s\n", softq_message(model));
    for (int i = 0; i < wanted && status == SOFTQ_OK; i++) {
        show("output", &outputs[i]);
        for (int j = 0; outputs[i].dtype == SOFTQ_FLOAT32 && j < 4 && (size_t)j < outputs[i].bytes / 4; j++)
            printf("  %g\n", (double)((float *)outputs[i].data)[j]);
    }
    for (int i = 0; i < given; i++) free(inputs[i].data);
    softq_close(model);
    return status == SOFTQ_OK ? 0 : 1;
}
