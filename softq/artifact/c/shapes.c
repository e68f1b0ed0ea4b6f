/* ---- From the inputs' shapes to all sizes ------------------------------------------------------------------------ */

static softq_status sq_check_input(softq_context *c, int number, const softq_tensor *given)
{
    const struct sq_interface *wanted = &sq_inputs[number];
    if (given->name != NULL && strcmp(given->name, wanted->name) != 0) {
        return sq_fail(c->error, SOFTQ_BAD_ARGUMENT, "input %d is named '%.100s'; the model's is '%.100s'", number,
                       given->name, wanted->name);
    }
    if (given->dtype != (int32_t)wanted->dtype) {
        return sq_fail(c->error, SOFTQ_BAD_DTYPE, "input '%.100s' is %s (%" PRId32 "); expected %s, and nothing is cast",
                       wanted->name, sq_dtype_name(given->dtype), given->dtype, sq_dtype_name((int32_t)wanted->dtype));
    }
    if (given->rank != wanted->rank) {
        return sq_fail(c->error, SOFTQ_BAD_SHAPE, "input '%.100s' has %" PRId32 " axes; expected %d", wanted->name,
                       given->rank, wanted->rank);
    }
    for (int i = 0; i < wanted->rank; i++) {
        if (given->shape[i] < 0) {
            return sq_fail(c->error, SOFTQ_BAD_SHAPE, "input '%.100s' has %" PRId64 " elements along axis %d",
                           wanted->name, given->shape[i], i);
        }
    }
    return SOFTQ_OK;
}

/* Give every dimension the size of the first axis that bears its name. */
static void sq_bind(const softq_tensor *given, int64_t *dim, int *owner)
{
    for (int d = 0; d < SQ_DIMS; d++) {
        owner[d] = -1;
    }
    for (int i = 0; i < SQ_INPUTS; i++) {
        for (int axis = 0; axis < sq_inputs[i].rank; axis++) {
            struct sq_ref size = sq_inputs[i].shape[axis];
            if (size.kind == SQ_DIM && owner[size.value] < 0) {
                owner[size.value] = i;
                dim[size.value] = given[i].shape[axis];
            }
        }
    }
}

static softq_status sq_check_axes(softq_context *c, const softq_tensor *given, const int *owner)
{
    for (int i = 0; i < SQ_INPUTS; i++) {
        for (int axis = 0; axis < sq_inputs[i].rank; axis++) {
            struct sq_ref size = sq_inputs[i].shape[axis];
            int64_t there = given[i].shape[axis], wanted = sq_value(&c->state, size);
            if (there == wanted) {
                continue;
            }
            if (size.kind == SQ_DIM) {
                return sq_fail(c->error, SOFTQ_BAD_SHAPE,
                               "input '%.100s' has %" PRId64 " elements along axis %d; expected %" PRId64
                               ", which is '%.60s' of input '%.100s'",
                               sq_inputs[i].name, there, axis, wanted, sq_dims[size.value],
                               sq_inputs[owner[size.value]].name);
            }
            return sq_fail(c->error, SOFTQ_BAD_SHAPE,
                           "input '%.100s' has %" PRId64 " elements along axis %d; expected %" PRId64,
                           sq_inputs[i].name, there, axis, wanted);
        }
    }
    return SOFTQ_OK;
}

static softq_status sq_check_limits(softq_context *c)
{
    for (int i = 0; i < SQ_LIMITS; i++) {
        const struct sq_limit *limit = &sq_limits[i];
        int64_t value = sq_value(&c->state, limit->size);
        if (sq_is_unknown(value, 0)) {
            continue; /* until it is measured */
        }
        if (value < limit->low || value > limit->high) {
            return sq_fail(c->error, SOFTQ_BAD_SIZE, "%.300s: it is %" PRId64 ", allowed is %" PRId64 " to %" PRId64,
                           limit->because, value, limit->low, limit->high);
        }
    }
    return SOFTQ_OK;
}

static softq_status sq_too_large(softq_context *c, const char *what)
{
    char dims[200] = "";
    size_t used = 0;
    for (int d = 0; d < SQ_DIMS && used < sizeof dims; d++) {
        int more = snprintf(dims + used, sizeof dims - used, "%s%.40s = %" PRId64, d ? ", " : "", sq_dims[d],
                            c->state.dim[d]);
        used += more < 0 ? sizeof dims : (size_t)more;
    }
    return sq_fail(c->error, SOFTQ_BAD_SIZE, "%s for these dimensions: %s", what, dims);
}

/* Compute every size that does not depend on data. */
static int sq_compute_known(softq_context *c)
{
    for (int i = SQ_DIMS - SQ_MEASURED; i < SQ_DIMS; i++) {
        c->state.dim[i] = SQ_UNKNOWN;
    }
    return sq_compute(c->state.dim, c->state.size);
}

/* Bring every size to these inputs' shapes. */
static softq_status sq_size(softq_context *c, const softq_tensor *inputs, size_t count)
{
    int64_t dim[SQ_DIMS + 1] = {0};
    int owner[SQ_DIMS + 1] = {0};
    if (count != (size_t)SQ_INPUTS || (inputs == NULL && SQ_INPUTS > 0)) {
        return sq_fail(c->error, SOFTQ_BAD_ARGUMENT, "%zu inputs are given; the model has %d",
                       inputs == NULL ? (size_t)0 : count, SQ_INPUTS);
    }
    for (int i = 0; i < SQ_INPUTS; i++) {
        softq_status status = sq_check_input(c, i, &inputs[i]);
        if (status != SOFTQ_OK) {
            return status;
        }
    }
    sq_bind(inputs, dim, owner);
    const size_t given = (SQ_DIMS - SQ_MEASURED) * sizeof *dim;
    if (c->sized && memcmp(dim, c->state.dim, given) == 0) {
        if (SQ_MEASURED > 0) {
            (void)sq_compute_known(c); /* the last run left what its data decided */
        }
        return sq_check_axes(c, inputs, owner);
    }
    c->sized = c->placed = 0;
    memcpy(c->state.dim, dim, given);
    if (sq_compute_known(c)) {
        return sq_too_large(c, "a size overflows or is divided by 0");
    }
    softq_status status = sq_check_axes(c, inputs, owner);
    if (status == SOFTQ_OK) {
        status = sq_check_limits(c);
    }
    c->sized = status == SOFTQ_OK;
    return status;
}

static softq_status sq_describe_output(softq_context *c, int number, softq_tensor *output)
{
    const struct sq_interface *what = &sq_outputs[number];
    output->name = what->name;
    output->dtype = (int32_t)what->dtype;
    output->rank = what->rank;
    int unknown = 0;
    for (int i = 0; i < what->rank; i++) {
        int64_t size = sq_value(&c->state, what->shape[i]);
        unknown |= sq_is_unknown(size, 0);
        output->shape[i] = sq_is_unknown(size, 0) ? -1 : size;
    }
    if (!unknown && sq_bytes(what->dtype, output->shape, what->rank) < 0) {
        return sq_too_large(c, "an output fits no memory");
    }
    return SOFTQ_OK;
}
