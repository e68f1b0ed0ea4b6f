/* Runs an artifact on one raw input and writes its first output raw, for emulators: FOLDER IN OUT DIM... */
#include <stdio.h>
#include <stdlib.h>

#include "softq.h"

int main(int count, char **arguments)
{
    softq_tensor in = {0}, out = {0};
    softq_context *model;
    char error[SOFTQ_ERROR_BYTES];
    if (count < 4 || softq_open(arguments[1], 1, &model, error, sizeof error) != SOFTQ_OK) {
        fprintf(stderr, "%s\n", count < 4 ? "usage" : error);
        return 2;
    }
    softq_input(0, &in);
    for (int axis = 0, next = 4; axis < in.rank; axis++)
        if (in.shape[axis] < 0 && next < count) in.shape[axis] = strtoll(arguments[next++], NULL, 10);
    FILE *file = fopen(arguments[2], "rb");
    if (file == NULL) return 2;
    fseek(file, 0, SEEK_END);
    in.bytes = (size_t)ftell(file);
    rewind(file);
    in.data = malloc(in.bytes);
    if (in.data == NULL || fread(in.data, 1, in.bytes, file) != in.bytes) return 2;
    fclose(file);
    if (softq_run(model, &in, 1, &out, 1) != SOFTQ_OK) {
        fprintf(stderr, "%s\n", softq_message(model));
        return 1;
    }
    file = fopen(arguments[3], "wb");
    if (file == NULL || fwrite(out.data, 1, out.bytes, file) != out.bytes || fclose(file) != 0) return 2;
    softq_close(model);
    free(in.data);
    return 0;
}
