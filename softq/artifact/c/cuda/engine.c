/* ---- Executing on a GPU ------------------------------------------------------------------------------------------ */

static int64_t sq_slots_bytes(const softq_context *c, int *bad)
{
    int64_t total = 0;
    for (int i = 0; i < SQ_SLOTS; i++) {
        total = sq_add(bad, total, sq_padded(bad, sq_known(c, sq_slots[i])));
    }
    return total;
}

/* Place the slots from an address on; the one behind them comes back. */
static sq_address sq_put_slots(softq_context *c, sq_address next)
{
    int bad = 0;
    for (int i = 0; i < SQ_SLOTS; i++) {
        c->state.slot[i] = next;
        next += (size_t)sq_padded(&bad, sq_known(c, sq_slots[i]));
    }
    return next;
}

/* Memory of inputs, outputs and slots, in this order. */
static softq_status sq_place(softq_context *c, const softq_tensor *inputs, const softq_tensor *outputs)
{
    struct sq_engine *engine = &c->engine;
    int64_t input[SQ_INPUTS + 1], output[SQ_OUTPUTS + 1];
    int bad = 0;
    int64_t total = sq_slots_bytes(c, &bad);
    for (int i = 0; i < SQ_INPUTS; i++) {
        input[i] = sq_padded(&bad, sq_bytes(sq_inputs[i].dtype, inputs[i].shape, sq_inputs[i].rank));
        total = sq_add(&bad, total, input[i]);
    }
    for (int i = 0; i < SQ_OUTPUTS; i++) {
        output[i] = sq_padded(&bad, sq_bytes(sq_outputs[i].dtype, outputs[i].shape, sq_outputs[i].rank));
        total = sq_add(&bad, total, output[i]);
    }
    if (bad) {
        return sq_too_large(c, "inputs, outputs and intermediate results fit no memory");
    }
    if (engine->arena == 0 || engine->arena_bytes < (size_t)total) {
        const struct sq_driver *driver = &c->model->driver;
        sq_address old = engine->arena;
        engine->arena = 0;
        engine->arena_bytes = 0;
        softq_status status = old == 0 ? SOFTQ_OK : SQ_CALL(driver, c->error, cuMemFree_v2, (old));
        if (status == SOFTQ_OK) {
            status = SQ_CALL(driver, c->error, cuMemAlloc_v2, (&engine->arena, total > 0 ? (size_t)total : 1));
        }
        if (status == SOFTQ_NO_MEMORY) {
            sq_fail(c->error, status, "the GPU has no memory for inputs, outputs and intermediate results of %" PRId64
                    " bytes", total);
        }
        if (status != SOFTQ_OK) {
            engine->arena = 0;
            return status;
        }
        engine->arena_bytes = (size_t)total;
    }
    sq_address next = engine->arena;
    for (int i = 0; i < SQ_INPUTS; i++) {
        c->state.input[i] = next;
        next += (size_t)input[i];
    }
    for (int i = 0; i < SQ_OUTPUTS; i++) {
        c->state.output[i] = next;
        next += (size_t)output[i];
    }
    sq_put_slots(c, next);
    c->placed = 1;
    return SOFTQ_OK;
}

static softq_status sq_send_inputs(softq_context *c, const softq_tensor *inputs)
{
    softq_status status = SOFTQ_OK;
    for (int i = 0; i < SQ_INPUTS && status == SOFTQ_OK; i++) {
        size_t bytes = (size_t)sq_bytes(sq_inputs[i].dtype, inputs[i].shape, sq_inputs[i].rank);
        if (bytes > 0) {
            status = SQ_CALL(&c->model->driver, c->error, cuMemcpyHtoDAsync_v2,
                             (c->state.input[i], inputs[i].data, bytes, c->engine.stream));
        }
    }
    return status;
}

static const struct sq_form *sq_fitting(const softq_context *c, const struct sq_step *step)
{
    const struct sq_state *s = &c->state;
    for (int i = step->form; i < step->form + step->forms; i++) {
        const struct sq_form *form = &sq_forms[i];
        int fits = sq_functions[form->function].shared <= c->model->shared;
        for (int j = form->range; j < form->range + form->ranges; j++) {
            int64_t value = sq_value(s, sq_ranges[j].size);
            fits &= value >= sq_ranges[j].low && value <= sq_ranges[j].high;
        }
        if (fits) {
            return form;
        }
    }
    return NULL;
}

static softq_status sq_start_step(softq_context *c, const struct sq_step *step)
{
    const struct sq_state *s = &c->state;
    const struct sq_form *form = sq_fitting(c, step);
    union {
        sq_address address;
        int64_t wide;
        int32_t narrow;
    } values[SQ_ARGUMENTS + 1];
    void *arguments[SQ_ARGUMENTS + 1];
    if (form == NULL) {
        return sq_too_large(c, "no kernel of a step fits");
    }
    const struct sq_function *function = &sq_functions[form->function];
    const char *symbol = function->symbol;
    int count = 0;
    for (int i = step->operand; i < step->operand + step->operands; i++, count++) {
        values[count].address = sq_at(s, sq_operands[i].place, sq_operands[i].at);
        arguments[count] = &values[count];
    }
    for (int i = step->number; i < step->number + step->numbers; i++, count++) {
        int64_t value = sq_value(s, sq_numbers[i].size);
        if (sq_numbers[i].bytes == sizeof(int64_t)) {
            values[count].wide = value;
        } else if (value >= INT32_MIN && value <= INT32_MAX) {
            values[count].narrow = (int32_t)value;
        } else {
            return sq_fail(c->error, SOFTQ_BAD_SIZE, "a launch of '%.100s' has a number of 32 bits that is %" PRId64,
                           symbol, value);
        }
        arguments[count] = &values[count];
    }
    int64_t blocks = sq_value(s, form->blocks);
    if (blocks < 1) {
        return SOFTQ_OK; /* something is empty */
    }
    if (blocks > SQ_MOST_BLOCKS) {
        return sq_fail(c->error, SOFTQ_BAD_SIZE, "a launch of '%.100s' has %" PRId64 " blocks; a GPU takes at most %d",
                       symbol, blocks, SQ_MOST_BLOCKS);
    }
    return SQ_CALL(&c->model->driver, c->error, cuLaunchKernel,
                   (c->model->function[form->function], (unsigned)blocks, 1, 1, form->threads, 1, 1,
                    (unsigned)function->shared, c->engine.stream, arguments, NULL));
}

static softq_status sq_start_steps(softq_context *c)
{
    const struct sq_driver *driver = &c->model->driver;
    softq_status status = SOFTQ_OK;
    int flags = 0;
    for (int i = 0; i < SQ_STEPS && status == SOFTQ_OK; i++) {
        const struct sq_step *step = &sq_steps[i];
        int flag = step->flag < 0 ? -1 : flags++;
        if (flag >= 0) {
            c->engine.flags[flag] = 0;
        }
        if (sq_value(&c->state, step->items) <= 0) {
            continue;
        }
        if (flag >= 0) {
            status = SQ_CALL(driver, c->error, cuMemsetD32Async, (c->state.slot[step->flag], 0, 1, c->engine.stream));
        }
        if (status == SOFTQ_OK) {
            status = sq_start_step(c, step);
        }
        if (status == SOFTQ_OK && flag >= 0) {
            /* Looked at when all is done: what follows computes something or other until then, of memory of its own. */
            status = SQ_CALL(driver, c->error, cuMemcpyDtoHAsync_v2,
                             (&c->engine.flags[flag], c->state.slot[step->flag], sizeof(int32_t), c->engine.stream));
        }
    }
    return status;
}

static softq_status sq_check_flags(softq_context *c)
{
    int flags = 0;
    for (int i = 0; i < SQ_STEPS; i++) {
        if (sq_steps[i].flag >= 0 && c->engine.flags[flags++] != 0) {
            return sq_fail(c->error, SOFTQ_BAD_DATA, "%.400s", sq_steps[i].error);
        }
    }
    return SOFTQ_OK;
}

static softq_status sq_fetch_outputs(softq_context *c, const softq_tensor *outputs)
{
    softq_status status = SOFTQ_OK;
    for (int i = 0; i < SQ_OUTPUTS && status == SOFTQ_OK; i++) {
        const struct sq_interface *what = &sq_outputs[i];
        size_t bytes = (size_t)sq_bytes(what->dtype, outputs[i].shape, outputs[i].rank);
        if (bytes > 0) {
            status = SQ_CALL(&c->model->driver, c->error, cuMemcpyDtoHAsync_v2,
                             (outputs[i].data, sq_at(&c->state, what->place, what->at), bytes, c->engine.stream));
        }
    }
    return status;
}

static softq_status sq_on_gpu(softq_context *c, const softq_tensor *inputs, const softq_tensor *outputs)
{
    const struct sq_driver *driver = &c->model->driver;
    softq_status status = c->placed ? SOFTQ_OK : sq_place(c, inputs, outputs);
    if (status == SOFTQ_OK) {
        status = sq_send_inputs(c, inputs);
    }
    if (status == SOFTQ_OK) {
        status = sq_start_steps(c);
    }
    if (status == SOFTQ_OK) {
        status = SQ_CALL(driver, c->error, cuStreamSynchronize, (c->engine.stream));
    }
    if (status == SOFTQ_OK) {
        status = sq_check_flags(c);
    }
    if (status == SOFTQ_OK) {
        status = sq_fetch_outputs(c, outputs);
    }
    if (status == SOFTQ_OK) {
        return SQ_CALL(driver, c->error, cuStreamSynchronize, (c->engine.stream));
    }
    /* Nothing may read or write the caller's memory any more. */
    driver->cuStreamSynchronize(c->engine.stream);
    return status;
}

static softq_status sq_execute(softq_context *c, const softq_tensor *inputs, softq_tensor *outputs)
{
    softq_status status = sq_enter_gpu(c->model, c->error);
    if (status == SOFTQ_OK) {
        status = sq_on_gpu(c, inputs, outputs);
        sq_leave_gpu(c->model);
    }
    return status;
}
