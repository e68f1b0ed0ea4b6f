/* ---- Memory: the arena, and the caller's buffers ----------------------------------------------------------------- */

/* A size, rounded up to the distance of what lies in the arena. */
static int64_t sq_padded(int *bad, int64_t bytes)
{
    *bad |= bytes < 0;
    return sq_add(bad, bytes, (SQ_ALIGNMENT - bytes % SQ_ALIGNMENT) % SQ_ALIGNMENT);
}

static int64_t sq_slots_bytes(const softq_context *c, int *bad)
{
    int64_t total = 0;
    for (int i = 0; i < SQ_SLOTS; i++) {
        total = sq_add(bad, total, sq_padded(bad, sq_value(&c->state, sq_slots[i])));
    }
    return total;
}

/* Place the slots from an address on; the one behind them comes back. */
static sq_address sq_put_slots(softq_context *c, sq_address next)
{
    int bad = 0;
    for (int i = 0; i < SQ_SLOTS; i++) {
        c->state.slot[i] = next;
        next += (size_t)sq_padded(&bad, sq_value(&c->state, sq_slots[i]));
    }
    return next;
}

static softq_status sq_check_buffer(softq_context *c, const char *kind, const struct sq_interface *what, const void *data,
                                    size_t there, int64_t needed)
{
    if (there < (uint64_t)needed) {
        return sq_fail(c->error, SOFTQ_BAD_BUFFER, "%s '%.100s' has memory of %zu bytes; it needs %" PRId64, kind,
                       what->name, there, needed);
    }
    if (data == NULL && needed > 0) {
        return sq_fail(c->error, SOFTQ_BAD_BUFFER, "%s '%.100s' has no memory (NULL)", kind, what->name);
    }
    if ((uintptr_t)data % sq_width(what->dtype) != 0) {
        return sq_fail(c->error, SOFTQ_BAD_BUFFER, "%s '%.100s' is not aligned to its elements of %zu bytes", kind,
                       what->name, sq_width(what->dtype));
    }
    return SOFTQ_OK;
}

static softq_status sq_check_inputs(softq_context *c, const softq_tensor *inputs)
{
    for (int i = 0; i < SQ_INPUTS; i++) {
        const softq_tensor *given = &inputs[i];
        int64_t needed = sq_bytes(sq_inputs[i].dtype, given->shape, sq_inputs[i].rank);
        if (needed < 0) {
            return sq_too_large(c, "an input fits no memory");
        }
        softq_status status = sq_check_buffer(c, "input", &sq_inputs[i], given->data, given->bytes, needed);
        if (status != SOFTQ_OK) {
            return status;
        }
    }
    return SOFTQ_OK;
}

/* Give an output memory of the context. */
static softq_status sq_own(softq_context *c, int number, softq_tensor *output, size_t bytes)
{
    if (c->own[number] == NULL || c->own_bytes[number] < bytes) {
        free(c->own[number]);
        c->own_bytes[number] = bytes;
        c->own[number] = malloc(bytes > 0 ? bytes : 1);
        if (c->own[number] == NULL) {
            return sq_fail(c->error, SOFTQ_NO_MEMORY, "there is no memory for output '%.100s' of %zu bytes",
                           sq_outputs[number].name, bytes);
        }
    }
    output->data = c->own[number];
    output->bytes = bytes;
    return SOFTQ_OK;
}

static int sq_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a_bytes > 0 && b_bytes > 0 && (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

static softq_status sq_check_overlap(softq_context *c, const softq_tensor *inputs, const softq_tensor *outputs, int number)
{
    const softq_tensor *one = &outputs[number];
    size_t bytes = (size_t)sq_bytes(sq_outputs[number].dtype, one->shape, one->rank);
    for (int i = 0; i < SQ_INPUTS; i++) {
        size_t others = (size_t)sq_bytes(sq_inputs[i].dtype, inputs[i].shape, inputs[i].rank);
        if (sq_overlap(one->data, bytes, inputs[i].data, others)) {
            return sq_fail(c->error, SOFTQ_BAD_BUFFER, "output '%.100s' overlaps input '%.100s'",
                           sq_outputs[number].name, sq_inputs[i].name);
        }
    }
    for (int i = 0; i < number; i++) {
        size_t others = (size_t)sq_bytes(sq_outputs[i].dtype, outputs[i].shape, outputs[i].rank);
        if (sq_overlap(one->data, bytes, outputs[i].data, others)) {
            return sq_fail(c->error, SOFTQ_BAD_BUFFER, "output '%.100s' overlaps output '%.100s'",
                           sq_outputs[number].name, sq_outputs[i].name);
        }
    }
    return SOFTQ_OK;
}

static softq_status sq_take_outputs(softq_context *c, const softq_tensor *inputs, softq_tensor *outputs)
{
    for (int i = 0; i < SQ_OUTPUTS; i++) {
        softq_tensor *output = &outputs[i];
        softq_status status = sq_describe_output(c, i, output);
        if (status != SOFTQ_OK) {
            return status;
        }
        int64_t needed = sq_bytes(sq_outputs[i].dtype, output->shape, output->rank);
        if (output->data == NULL || output->data == c->own[i]) {
            status = sq_own(c, i, output, (size_t)needed);
        } else {
            status = sq_check_buffer(c, "output", &sq_outputs[i], output->data, output->bytes, needed);
        }
        if (status == SOFTQ_OK) {
            status = sq_check_overlap(c, inputs, outputs, i);
        }
        if (status != SOFTQ_OK) {
            return status;
        }
    }
    return SOFTQ_OK;
}
