/* Uses an artifact of tests/handmade.py's rows_program in every right and wrong way; prints what fails and exits 1. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softq.h"

#define WIDTH 8

static int failures;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s\n", __LINE__, #condition); \
            __atomic_store_n(&failures, 1, __ATOMIC_RELAXED); \
        } \
    } while (0)

static const char *folder;

static float *floats(size_t count)
{
    float *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (float)((int)(i * 37 % 101) - 50) / 8;
    return values;
}

static void describe(softq_tensor *inputs, float *x, float *y, int64_t batch, int64_t length)
{
    memset(inputs, 0, 2 * sizeof *inputs);
    softq_input(0, &inputs[0]);
    softq_input(1, &inputs[1]);
    inputs[0].shape[0] = inputs[1].shape[0] = batch;
    inputs[0].shape[1] = inputs[1].shape[1] = length;
    inputs[0].data = x;
    inputs[1].data = y;
    inputs[0].bytes = (size_t)batch * (size_t)length * WIDTH * sizeof *x;
    inputs[1].bytes = (size_t)batch * (size_t)length * sizeof *y;
}

static void run_once(softq_context *model, int64_t batch, int64_t length)
{
    size_t rows = (size_t)(batch * length);
    float *x = floats(rows * WIDTH), *y = floats(rows), *mine = floats(rows * WIDTH + 1);
    softq_tensor inputs[2], outputs[5];
    describe(inputs, x, y, batch, length);
    memset(outputs, 0, sizeof outputs);
    CHECK(softq_shape(model, inputs, 2, outputs, 5) == SOFTQ_OK);
    CHECK(outputs[1].rank == 1 && outputs[1].shape[0] == (int64_t)rows && outputs[1].bytes == rows * sizeof *x);
    outputs[0].data = mine + 1; /* aligned to its elements, not to 64 bytes */
    CHECK(softq_run(model, inputs, 2, outputs, 5) == SOFTQ_OK);
    for (size_t i = 0; i < rows; i++) {
        float sum = 0;
        for (size_t j = 0; j < WIDTH; j++) {
            float expected = x[i * WIDTH + j] + (float)j + (float)j;
            CHECK(mine[1 + i * WIDTH + j] == expected);
            CHECK(((float *)outputs[2].data)[i * WIDTH + j] == x[i * WIDTH + j]);
            sum += expected;
        }
        CHECK(((float *)outputs[1].data)[i] == sum && ((float *)outputs[4].data)[i] == sum);
        CHECK(((float *)outputs[3].data)[i] == y[i]);
    }
    free(x);
    free(y);
    free(mine);
}

static void fails(softq_context *model, const softq_tensor *inputs, softq_tensor *outputs, softq_status status,
                  const char *message)
{
    softq_status found = softq_run(model, inputs, 2, outputs, 5);
    if (found != status || strstr(softq_message(model), message) == NULL) {
        printf("status %d: %s; expected %d: %s\n", (int)found, softq_message(model), (int)status, message);
        failures = 1;
    }
}

static void misuse(softq_context *model)
{
    float *x = floats(6 * WIDTH), *y = floats(6);
    softq_tensor inputs[2], outputs[5], inner;
    softq_context *none;
    char error[SOFTQ_ERROR_BYTES];
    memset(outputs, 0, sizeof outputs);

    CHECK(softq_open(NULL, 1, &none, error, sizeof error) == SOFTQ_BAD_ARGUMENT && none == NULL);
    CHECK(softq_open(folder, 1, NULL, error, sizeof error) == SOFTQ_BAD_ARGUMENT);
    CHECK(softq_open(folder, 0, &none, error, sizeof error) == SOFTQ_BAD_ARGUMENT && strstr(error, "threads is 0"));
    CHECK(softq_open("/no/such/folder", 1, &none, error, sizeof error) == SOFTQ_BAD_WEIGHTS && strstr(error, "opened"));
    CHECK(softq_open("/no/such/folder", 1, &none, NULL, 0) == SOFTQ_BAD_WEIGHTS);
    CHECK(softq_open("/no/such/folder", 1, &none, error, 5) == SOFTQ_BAD_WEIGHTS && strlen(error) == 4);
    CHECK(softq_input(2, &inner) == SOFTQ_BAD_ARGUMENT && softq_input(0, NULL) == SOFTQ_BAD_ARGUMENT);
    CHECK(softq_output(-1, &inner) == SOFTQ_BAD_ARGUMENT);
    CHECK(softq_run(NULL, inputs, 2, outputs, 5) == SOFTQ_BAD_ARGUMENT && softq_message(NULL) != NULL);
    softq_close(NULL);

    describe(inputs, x, y, 2, 3);
    CHECK(softq_run(model, inputs, 1, outputs, 5) == SOFTQ_BAD_ARGUMENT);
    CHECK(softq_run(model, NULL, 2, outputs, 5) == SOFTQ_BAD_ARGUMENT);
    CHECK(softq_run(model, inputs, 2, outputs, 4) == SOFTQ_BAD_ARGUMENT);
    CHECK(softq_run(model, inputs, 2, NULL, 5) == SOFTQ_BAD_ARGUMENT);
    inputs[1].name = "z";
    fails(model, inputs, outputs, SOFTQ_BAD_ARGUMENT, "input 1 is named 'z'; the model's is 'y'");
    inputs[1].name = NULL;
    inputs[1].dtype = SOFTQ_INT64;
    fails(model, inputs, outputs, SOFTQ_BAD_DTYPE, "input 'y' is int64 (8); expected float32");
    inputs[1].dtype = -7;
    fails(model, inputs, outputs, SOFTQ_BAD_DTYPE, "input 'y' is ? (-7)");
    describe(inputs, x, y, 2, 3);
    inputs[0].rank = 1000;
    fails(model, inputs, outputs, SOFTQ_BAD_SHAPE, "input 'x' has 1000 axes; expected 3");
    describe(inputs, x, y, -2, 3);
    fails(model, inputs, outputs, SOFTQ_BAD_SHAPE, "input 'x' has -2 elements along axis 0");
    describe(inputs, x, y, 2, 3);
    inputs[1].shape[1] = 4;
    fails(model, inputs, outputs, SOFTQ_BAD_SHAPE, "axis 1; expected 3, which is 'seq' of input 'x'");
    describe(inputs, x, y, 2, 3);
    inputs[0].shape[2] = 9;
    fails(model, inputs, outputs, SOFTQ_BAD_SHAPE, "axis 2; expected 8");
    describe(inputs, x, y, 1, 101);
    fails(model, inputs, outputs, SOFTQ_BAD_SIZE, "at most 100 tokens: it is 101");
    describe(inputs, x, y, INT64_MAX, 3);
    fails(model, inputs, outputs, SOFTQ_BAD_SIZE, "overflows");
    describe(inputs, x, y, INT64_MAX / 100, 1);
    fails(model, inputs, outputs, sizeof(size_t) == 8 ? SOFTQ_NO_MEMORY : SOFTQ_BAD_SIZE, "no memory");

    describe(inputs, x, y, 2, 3);
    inputs[1].bytes--;
    fails(model, inputs, outputs, SOFTQ_BAD_BUFFER, "input 'y' has memory of 23 bytes; it needs 24");
    describe(inputs, NULL, y, 2, 3);
    fails(model, inputs, outputs, SOFTQ_BAD_BUFFER, "input 'x' has no memory");
    describe(inputs, x, y, 2, 3);
    inputs[0].data = (char *)x + 1;
    fails(model, inputs, outputs, SOFTQ_BAD_BUFFER, "input 'x' is not aligned");
    describe(inputs, x, y, 2, 3);
    outputs[0].data = x;
    outputs[0].bytes = 6 * WIDTH * sizeof *x;
    fails(model, inputs, outputs, SOFTQ_BAD_BUFFER, "output 'shifted' overlaps input 'x'");
    float *both = floats(6);
    outputs[0].data = NULL;
    outputs[1].data = outputs[4].data = both;
    outputs[1].bytes = outputs[4].bytes = 6 * sizeof *both;
    fails(model, inputs, outputs, SOFTQ_BAD_BUFFER, "output 'again' overlaps output 'sums'");
    outputs[4].data = NULL;
    outputs[1].bytes = 23;
    fails(model, inputs, outputs, SOFTQ_BAD_BUFFER, "output 'sums' has memory of 23 bytes; it needs 24");
    free(both);
    free(x);
    free(y);
    run_once(model, 2, 3);
}

/* What a run left in an output is taken for the context's own memory again, also where it has to grow. */
static void reuse(softq_context *model)
{
    float *x = floats(60 * WIDTH), *y = floats(60);
    softq_tensor inputs[2], outputs[5];
    memset(outputs, 0, sizeof outputs);
    for (int64_t batch = 1; batch <= 20; batch += batch) {
        describe(inputs, x, y, batch, 3);
        CHECK(softq_run(model, inputs, 2, outputs, 5) == SOFTQ_OK);
        CHECK(outputs[3].bytes == (size_t)batch * 3 * sizeof *y && memcmp(outputs[3].data, y, outputs[3].bytes) == 0);
    }
    free(x);
    free(y);
}

static void *use(void *argument)
{
    softq_context *model = NULL;
    char error[SOFTQ_ERROR_BYTES];
    CHECK(softq_clone(argument, 3, &model, error, sizeof error) == SOFTQ_OK);
    for (int turn = 0; turn < 6; turn++) run_once(model, turn % 3 ? 100 * turn : turn, 70);
    softq_close(model);
    return NULL;
}

struct race {
    softq_context *model;
};

static void *collide(void *argument)
{
    struct race *race = argument;
    float *x = floats(4000 * WIDTH), *y = floats(4000);
    for (int turn = 0; turn < 50; turn++) {
        softq_tensor inputs[2], outputs[5];
        memset(outputs, 0, sizeof outputs);
        describe(inputs, x, y, 400, 10);
        softq_status status = softq_run(race->model, inputs, 2, outputs, 5);
        CHECK(status == SOFTQ_OK || status == SOFTQ_BUSY);
    }
    free(x);
    free(y);
    return NULL;
}

int main(int count, char **arguments)
{
    softq_context *model;
    char error[SOFTQ_ERROR_BYTES];
    /* The second argument is for emulators: the greatest number of threads. */
    const int most = count > 2 ? atoi(arguments[2]) : 5;
    folder = count > 1 ? arguments[1] : ".";
    for (int threads = 1; threads <= most; threads += 2) {
        if (softq_open(folder, threads, &model, error, sizeof error) != SOFTQ_OK) {
            printf("%s\n", error);
            return 1;
        }
        CHECK(softq_inputs() == 2 && softq_outputs() == 5);
        run_once(model, 1, 1);
        run_once(model, 400, 100);
        run_once(model, 0, 5);
        run_once(model, 3, 0);
        run_once(model, 2, 7);
        run_once(model, 500, 100);
        misuse(model);
        reuse(model);
        pthread_t users[4];
        for (int i = 0; i < 4; i++) pthread_create(&users[i], NULL, use, model);
        for (int i = 0; i < 4; i++) pthread_join(users[i], NULL);
        struct race race = {model};
        for (int i = 0; i < 2; i++) pthread_create(&users[i], NULL, collide, &race);
        for (int i = 0; i < 2; i++) pthread_join(users[i], NULL);
        softq_close(model);
    }
    if (!failures) puts("all is well");
    return failures;
}
