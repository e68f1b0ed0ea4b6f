/* ---- Running ----------------------------------------------------------------------------------------------------- */

static softq_status sq_run(softq_context *c, const softq_tensor *inputs, size_t input_count, softq_tensor *outputs)
{
    softq_status status = sq_size(c, inputs, input_count);
    if (status == SOFTQ_OK) {
        status = sq_check_inputs(c, inputs);
    }
    if (status == SOFTQ_OK) {
        status = sq_take_outputs(c, inputs, outputs);
    }
    return status == SOFTQ_OK ? sq_execute(c, inputs, outputs) : status;
}

static softq_status sq_enter(softq_context *c, const softq_tensor *outputs, size_t output_count)
{
    if (__atomic_exchange_n(&c->busy, 1, __ATOMIC_ACQUIRE)) {
        return SOFTQ_BUSY; /* the message is the other thread's */
    }
    c->error[0] = '\0';
    if (output_count != (size_t)SQ_OUTPUTS || (outputs == NULL && SQ_OUTPUTS > 0)) {
        return sq_fail(c->error, SOFTQ_BAD_ARGUMENT, "%zu outputs are given; the model has %d",
                       outputs == NULL ? (size_t)0 : output_count, SQ_OUTPUTS);
    }
    return SOFTQ_OK;
}

static softq_status sq_leave(softq_context *c, softq_status status)
{
    if (status != SOFTQ_BUSY) {
        __atomic_store_n(&c->busy, 0, __ATOMIC_RELEASE);
    }
    return status;
}

softq_status softq_run(softq_context *context, const softq_tensor *inputs, size_t input_count, softq_tensor *outputs,
                       size_t output_count)
{
    if (context == NULL) {
        return SOFTQ_BAD_ARGUMENT;
    }
    softq_status status = sq_enter(context, outputs, output_count);
    if (status == SOFTQ_OK) {
        status = sq_run(context, inputs, input_count, outputs);
    }
    return sq_leave(context, status);
}

softq_status softq_shape(softq_context *context, const softq_tensor *inputs, size_t input_count, softq_tensor *outputs,
                         size_t output_count)
{
    if (context == NULL) {
        return SOFTQ_BAD_ARGUMENT;
    }
    softq_status status = sq_enter(context, outputs, output_count);
    if (status == SOFTQ_OK) {
        status = sq_size(context, inputs, input_count);
    }
    for (int i = 0; i < SQ_OUTPUTS && status == SOFTQ_OK; i++) {
        status = sq_describe_output(context, i, &outputs[i]);
        if (status == SOFTQ_OK) {
            outputs[i].bytes = sq_output_bytes(context, i);
        }
    }
    return sq_leave(context, status);
}
