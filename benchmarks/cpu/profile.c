/* The driver of an artifact with a clock around each step; benchmarks/cpu/profile.py compiles it beside the driver. */

#include "driver.c"

#include <time.h>

#define PROFILE __attribute__((visibility("default")))

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

PROFILE int profile_steps(void)
{
    return SQ_STEPS;
}

PROFILE int64_t profile_items(softq_context *c, int step)
{
    return sq_value(&c->state, sq_steps[step].items);
}

/* Run once; `taken` gets the seconds of each step. */
PROFILE softq_status profile_run(softq_context *c, const softq_tensor *inputs, size_t count, softq_tensor *outputs,
                                 double *taken)
{
    softq_status status = sq_size(c, inputs, count);
    status = status != SOFTQ_OK ? status : sq_check_inputs(c, inputs);
    status = status != SOFTQ_OK ? status : sq_take_outputs(c, inputs, outputs);
    status = status != SOFTQ_OK || c->placed ? status : sq_place(c);
    for (int i = 0; i < SQ_INPUTS; i++) {
        c->state.input[i] = inputs[i].data;
    }
    for (int i = 0; i < SQ_OUTPUTS; i++) {
        c->state.output[i] = outputs[i].data;
    }
    for (int i = 0; i < SQ_STEPS && status == SOFTQ_OK; i++) {
        int32_t flag = 0;
        if (sq_steps[i].flag >= 0) {
            memcpy(c->state.slot[sq_steps[i].flag], &flag, sizeof flag);
        }
        double start = seconds();
        sq_do(c, &sq_steps[i]);
        taken[i] = seconds() - start;
    }
    return status;
}
