/* ---- Running ----------------------------------------------------------------------------------------------------- */

static void sq_do(softq_context *c, const struct sq_step *step)
{
    int64_t items = sq_value(&c->state, step->items);
    if (items <= 0) {
        return;
    }
    int64_t chunks = 1;
    if (sq_pool_here(c->pool)) {
        int64_t worth = sq_value(&c->state, step->cost) / SQ_CHUNK_COST, most = (int64_t)c->threads * SQ_CHUNKS;
        chunks = worth < most ? worth : most;
        chunks = chunks < items ? chunks : items;
    }
    if (chunks > 1) {
        sq_pool_run(c->pool, step->work, &c->state, items, (unsigned)chunks);
    } else {
        step->work(&c->state, sq_scratch_of(&c->state, 0), 0, items);
    }
}

static softq_status sq_do_all(softq_context *c)
{
    for (int i = 0; i < SQ_STEPS; i++) {
        const struct sq_step *step = &sq_steps[i];
        int32_t flag = 0;
        if (step->flag >= 0) {
            memcpy(c->state.slot[step->flag], &flag, sizeof flag);
        }
        sq_do(c, step);
        if (step->flag >= 0) {
            memcpy(&flag, c->state.slot[step->flag], sizeof flag);
            if (flag != 0) {
                return sq_fail(c->error, SOFTQ_BAD_DATA, "%.400s", step->error);
            }
        }
    }
    return SOFTQ_OK;
}

/* Outputs that no step writes: an input, a weight, or what another output is too. */
static void sq_copy_outputs(softq_context *c, const softq_tensor *outputs)
{
    for (int i = 0; i < SQ_OUTPUTS; i++) {
        const struct sq_interface *what = &sq_outputs[i];
        size_t bytes = (size_t)sq_bytes(what->dtype, outputs[i].shape, outputs[i].rank);
        const unsigned char *from = what->place == SQ_INPUT    ? c->state.input[what->at]
                                    : what->place == SQ_OUTPUT ? c->state.output[what->at]
                                    : what->place == SQ_SLOT   ? c->state.slot[what->at]
                                                               : c->state.weights + what->at;
        if (from != c->state.output[i] && bytes > 0) {
            memcpy(c->state.output[i], from, bytes);
        }
    }
}

static softq_status sq_run(softq_context *c, const softq_tensor *inputs, size_t input_count, softq_tensor *outputs)
{
    softq_status status = sq_size(c, inputs, input_count);
    if (status == SOFTQ_OK) {
        status = sq_take_inputs(c, inputs);
    }
    if (status == SOFTQ_OK) {
        status = sq_take_outputs(c, inputs, outputs);
    }
    if (status == SOFTQ_OK && !c->placed) {
        status = sq_place_slots(c);
    }
    if (status == SOFTQ_OK) {
        status = sq_do_all(c);
    }
    if (status == SOFTQ_OK) {
        sq_copy_outputs(c, outputs);
    }
    return status;
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
            outputs[i].bytes = (size_t)sq_bytes(sq_outputs[i].dtype, outputs[i].shape, outputs[i].rank);
        }
    }
    return sq_leave(context, status);
}
