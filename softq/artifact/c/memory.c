/* ---- Memory: the arena, and the caller's buffers ----------------------------------------------------------------- */

/* A size, rounded up to the distance of what lies in the arena. */
static int64_t sq_padded(int *bad, int64_t bytes)
{
    *bad |= bytes < 0;
    return sq_add(bad, bytes, (SQ_ALIGNMENT - bytes % SQ_ALIGNMENT) % SQ_ALIGNMENT);
}

/* A size as far as it is known: 0 until data have decided it. */
static int64_t sq_known(const softq_context *c, struct sq_ref size)
{
    int64_t value = sq_value(&c->state, size);
    return sq_is_unknown(value, 0) ? 0 : value;
}

/* The bytes that an output needs as far as they are known: none until data have decided its shape. */
static size_t sq_output_bytes(const softq_context *c, int number)
{
    const struct sq_interface *what = &sq_outputs[number];
    int64_t shape[SOFTQ_MAX_RANK];
    for (int i = 0; i < what->rank; i++) {
        shape[i] = sq_value(&c->state, what->shape[i]);
    }
    int64_t bytes = sq_bytes(what->dtype, shape, what->rank);
    return bytes < 0 ? 0 : (size_t)bytes;
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

/* Give an output memory of the context; what lies there stays. */
static softq_status sq_own(softq_context *c, int number, softq_tensor *output, size_t bytes)
{
    if (c->own[number] == NULL || c->own_bytes[number] < bytes) {
        unsigned char *more = realloc(c->own[number], bytes > 0 ? bytes : 1);
        if (more != NULL) {
            c->own_bytes[number] = bytes;
            c->own[number] = more;
        } else {
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
    size_t bytes = sq_output_bytes(c, number);
    for (int i = 0; i < SQ_INPUTS; i++) {
        size_t others = (size_t)sq_bytes(sq_inputs[i].dtype, inputs[i].shape, inputs[i].rank);
        if (sq_overlap(one->data, bytes, inputs[i].data, others)) {
            return sq_fail(c->error, SOFTQ_BAD_BUFFER, "output '%.100s' overlaps input '%.100s'",
                           sq_outputs[number].name, sq_inputs[i].name);
        }
    }
    for (int i = 0; i < number; i++) {
        size_t others = sq_output_bytes(c, i);
        if (sq_overlap(one->data, bytes, outputs[i].data, others)) {
            return sq_fail(c->error, SOFTQ_BAD_BUFFER, "output '%.100s' overlaps output '%.100s'",
                           sq_outputs[number].name, sq_outputs[i].name);
        }
    }
    return SOFTQ_OK;
}

/* Give an output the memory that it needs as far as that is known: the caller's, or the context's. */
static softq_status sq_take_output(softq_context *c, int number, softq_tensor *output)
{
    size_t needed = sq_output_bytes(c, number);
    if (output->data == NULL || output->data == c->own[number]) {
        return sq_own(c, number, output, needed);
    }
    return sq_check_buffer(c, "output", &sq_outputs[number], output->data, output->bytes, (int64_t)needed);
}

static softq_status sq_take_outputs(softq_context *c, const softq_tensor *inputs, softq_tensor *outputs)
{
    for (int i = 0; i < SQ_OUTPUTS; i++) {
        softq_status status = sq_describe_output(c, i, &outputs[i]);
        if (status == SOFTQ_OK) {
            status = sq_take_output(c, i, &outputs[i]);
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
