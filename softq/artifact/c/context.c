/* ---- The interface of softq.h ------------------------------------------------------------------------------------ */

/* A thread gets at least so many operations of a step, some 10 microseconds of work; waking it costs about as much. */
#define SQ_CHUNK_COST 20000

/* Chunks for each thread: those that are done early take more of them. */
#define SQ_CHUNKS 4

#define SQ_ALIGNMENT 64

struct softq_context {
    struct sq_state state;
    struct sq_weights *weights;
    struct sq_pool *pool; /* NULL with one thread */
    int threads;
    int busy;
    int sized;  /* the sizes are those of state.dim */
    int placed; /* the slots are those of the sizes */
    unsigned char *arena;
    size_t arena_bytes;
    unsigned char *own[SQ_OUTPUTS + 1]; /* memory of outputs for which the caller has none */
    size_t own_bytes[SQ_OUTPUTS + 1];
    char error[SOFTQ_ERROR_BYTES];
};

static int64_t sq_value(const struct sq_state *s, struct sq_ref ref)
{
    return ref.kind == SQ_NUMBER ? ref.value : ref.kind == SQ_DIM ? s->dim[ref.value] : s->size[ref.value];
}

static const char *sq_dtype_name(int32_t dtype)
{
    static const char *const names[] = {"?",     "bool",  "int8",   "uint8",   "int16",   "uint16", "int32",
                                        "uint32", "int64", "uint64", "float16", "float32", "float64"};
    return dtype >= SOFTQ_BOOL && dtype <= SOFTQ_FLOAT64 ? names[dtype] : names[0];
}

static size_t sq_width(softq_dtype dtype)
{
    static const unsigned char widths[] = {0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8};
    return widths[dtype];
}

/* The bytes of a tensor, or -1 where no memory could hold them. */
static int64_t sq_bytes(softq_dtype dtype, const int64_t *shape, int rank)
{
    int bad = 0;
    int64_t bytes = (int64_t)sq_width(dtype);
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0) {
            return -1;
        }
        bytes = sq_mul(&bad, bytes, shape[i]);
    }
    return bad || (uint64_t)bytes > SIZE_MAX / 2 ? -1 : bytes;
}

static void sq_describe(const struct sq_interface *what, softq_tensor *tensor)
{
    tensor->name = what->name;
    tensor->dtype = (int32_t)what->dtype;
    tensor->rank = what->rank;
    for (int i = 0; i < SOFTQ_MAX_RANK; i++) {
        struct sq_ref size = what->shape[i];
        tensor->shape[i] = i >= what->rank ? 0 : size.kind == SQ_NUMBER ? size.value : -1;
    }
    tensor->data = NULL;
    tensor->bytes = 0;
}

int softq_inputs(void)
{
    return SQ_INPUTS;
}

int softq_outputs(void)
{
    return SQ_OUTPUTS;
}

softq_status softq_input(int index, softq_tensor *description)
{
    if (index < 0 || index >= SQ_INPUTS || description == NULL) {
        return SOFTQ_BAD_ARGUMENT;
    }
    sq_describe(&sq_inputs[index], description);
    return SOFTQ_OK;
}

softq_status softq_output(int index, softq_tensor *description)
{
    if (index < 0 || index >= SQ_OUTPUTS || description == NULL) {
        return SOFTQ_BAD_ARGUMENT;
    }
    sq_describe(&sq_outputs[index], description);
    return SOFTQ_OK;
}

/* ---- Opening and closing ---- */

static void sq_report(const softq_context *c, char *error, size_t error_bytes)
{
    if (error != NULL && error_bytes > 0) {
        snprintf(error, error_bytes, "%s", c->error);
    }
}

static softq_status sq_say(softq_status status, const char *text, char *error, size_t error_bytes)
{
    if (error != NULL && error_bytes > 0) {
        snprintf(error, error_bytes, "%s", text);
    }
    return status;
}

static softq_status sq_weights_of(softq_context *c, const char *folder, const softq_context *original)
{
    if (original != NULL) {
        c->weights = original->weights;
        __atomic_fetch_add(&c->weights->users, 1, __ATOMIC_RELAXED);
        return SOFTQ_OK;
    }
    struct sq_weights *weights = calloc(1, sizeof *weights);
    if (weights == NULL) {
        return sq_fail(c->error, SOFTQ_NO_MEMORY, "there is no memory for a context");
    }
    softq_status status = sq_map(weights, folder, c->error);
    if (status != SOFTQ_OK) {
        free(weights);
        return status;
    }
    weights->users = 1;
    c->weights = weights;
    return SOFTQ_OK;
}

static softq_status sq_start(softq_context *c, const char *folder, const softq_context *original, int threads)
{
    const char *missing = sq_missing_feature();
    if (missing != NULL) {
        return sq_fail(c->error, SOFTQ_BAD_CPU,
                       "this processor lacks '%s', which the model was built for (machine %s, processor %s)", missing,
                       SQ_MACHINE, SQ_CPU);
    }
    softq_status status = sq_weights_of(c, folder, original);
    if (status != SOFTQ_OK) {
        return status;
    }
    c->state.weights = c->weights->data;
    c->threads = threads;
    if (threads > 1) {
        c->pool = sq_pool_new(threads - 1);
        if (c->pool == NULL) {
            return sq_fail(c->error, SOFTQ_NO_THREADS, "%d threads cannot be started", threads - 1);
        }
    }
    return SOFTQ_OK;
}

static softq_status sq_open(const char *folder, const softq_context *original, int threads, softq_context **context,
                            char *error, size_t error_bytes)
{
    if (context == NULL) {
        return sq_say(SOFTQ_BAD_ARGUMENT, "there is no place for the context (NULL)", error, error_bytes);
    }
    *context = NULL;
    if (folder == NULL && original == NULL) {
        return sq_say(SOFTQ_BAD_ARGUMENT, "no folder and no context is given (NULL)", error, error_bytes);
    }
    softq_context *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return sq_say(SOFTQ_NO_MEMORY, "there is no memory for a context", error, error_bytes);
    }
    softq_status status;
    if (threads < 1 || threads > SQ_MOST_THREADS) {
        status = sq_fail(c->error, SOFTQ_BAD_ARGUMENT, "threads is %d; allowed is 1 to %d", threads, SQ_MOST_THREADS);
    } else {
        status = sq_start(c, folder, original, threads);
    }
    if (status != SOFTQ_OK) {
        sq_report(c, error, error_bytes);
        softq_close(c);
        return status;
    }
    *context = c;
    return SOFTQ_OK;
}

softq_status softq_open(const char *folder, int threads, softq_context **context, char *error, size_t error_bytes)
{
    return sq_open(folder, NULL, threads, context, error, error_bytes);
}

softq_status softq_clone(const softq_context *original, int threads, softq_context **context, char *error,
                         size_t error_bytes)
{
    return sq_open(NULL, original, threads, context, error, error_bytes);
}

void softq_close(softq_context *context)
{
    if (context == NULL) {
        return;
    }
    sq_pool_free(context->pool);
    if (context->weights != NULL && __atomic_sub_fetch(&context->weights->users, 1, __ATOMIC_ACQ_REL) == 0) {
        sq_unmap(context->weights);
        free(context->weights);
    }
    for (int i = 0; i < SQ_OUTPUTS; i++) {
        free(context->own[i]);
    }
    free(context->arena);
    free(context);
}

const char *softq_message(const softq_context *context)
{
    return context == NULL ? "there is no context (NULL)" : context->error;
}

/* ---- From the inputs' shapes to all sizes ---- */

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
    if (c->sized && memcmp(dim, c->state.dim, sizeof dim) == 0) {
        return sq_check_axes(c, inputs, owner);
    }
    c->sized = c->placed = 0;
    memcpy(c->state.dim, dim, sizeof dim);
    if (sq_compute(c->state.dim, c->state.size)) {
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
    for (int i = 0; i < what->rank; i++) {
        output->shape[i] = sq_value(&c->state, what->shape[i]);
    }
    if (sq_bytes(what->dtype, output->shape, what->rank) < 0) {
        return sq_too_large(c, "an output fits no memory");
    }
    return SOFTQ_OK;
}

/* ---- Memory ---- */

static softq_status sq_place_slots(softq_context *c)
{
    int bad = 0;
    int64_t total = 0;
    for (int i = 0; i < SQ_SLOTS; i++) {
        int64_t bytes = sq_value(&c->state, sq_slots[i]);
        bad |= bytes < 0;
        int64_t padding = (SQ_ALIGNMENT - bytes % SQ_ALIGNMENT) % SQ_ALIGNMENT;
        total = sq_add(&bad, total, sq_add(&bad, bytes, padding));
    }
    if (bad || (uint64_t)total > SIZE_MAX / 2) {
        return sq_too_large(c, "the intermediate results fit no memory");
    }
    if (c->arena == NULL || c->arena_bytes < (size_t)total) {
        free(c->arena);
        c->arena_bytes = (size_t)total;
        c->arena = malloc(c->arena_bytes + SQ_ALIGNMENT);
        if (c->arena == NULL) {
            return sq_fail(c->error, SOFTQ_NO_MEMORY, "there is no memory for intermediate results of %" PRId64 " bytes",
                           total);
        }
    }
    unsigned char *next = c->arena + (SQ_ALIGNMENT - (uintptr_t)c->arena % SQ_ALIGNMENT) % SQ_ALIGNMENT;
    for (int i = 0; i < SQ_SLOTS; i++) {
        size_t bytes = (size_t)sq_value(&c->state, sq_slots[i]);
        c->state.slot[i] = next;
        next += (bytes + SQ_ALIGNMENT - 1) / SQ_ALIGNMENT * SQ_ALIGNMENT;
    }
    c->placed = 1;
    return SOFTQ_OK;
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

static softq_status sq_take_inputs(softq_context *c, const softq_tensor *inputs)
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
        c->state.input[i] = given->data;
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
        c->state.output[i] = output->data;
    }
    return SOFTQ_OK;
}

/* ---- Running ---- */

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
        step->work(&c->state, 0, items);
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
