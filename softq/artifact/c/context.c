/* ---- Contexts, and the interface of softq.h ----------------------------------------------------------------------- */

struct softq_context {
    struct sq_state state;
    struct sq_model *model; /* shared with clones */
    struct sq_engine engine;
    int busy;
    int sized;  /* the sizes are those of state.dim */
    int placed; /* the slots are those of the sizes */
    unsigned char *own[SQ_OUTPUTS + 1]; /* memory of outputs for which the caller has none */
    size_t own_bytes[SQ_OUTPUTS + 1];
    char error[SOFTQ_ERROR_BYTES];
};

static int64_t sq_value(const struct sq_state *s, struct sq_ref ref)
{
    return ref.kind == SQ_NUMBER ? ref.value : ref.kind == SQ_DIM ? s->dim[ref.value] : s->size[ref.value];
}

static sq_address sq_at(const struct sq_state *s, enum sq_place place, int64_t at)
{
    return place == SQ_INPUT    ? s->input[at]
           : place == SQ_OUTPUT ? s->output[at]
           : place == SQ_SLOT   ? s->slot[at]
                                : s->weights + (size_t)at;
}

static const char *sq_dtype_name(int32_t dtype)
{
    static const char *const names[] = {
        "?",       "bool",    "int8",    "uint8",    "int16",         "uint16",          "int32",       "uint32",
        "int64",   "uint64",  "float16", "float32",  "float64",       "bfloat16",        "float8_e4m3fn",
        "float8_e4m3fnuz",    "float8_e5m2",         "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
        "int4",    "uint4",   "int2",    "uint2"};
    return dtype >= SOFTQ_BOOL && dtype <= SOFTQ_UINT2 ? names[dtype] : names[0];
}

static size_t sq_width(softq_dtype dtype)
{
    static const unsigned char widths[] = {0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
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

static softq_status sq_model_of(softq_context *c, const char *folder, const softq_context *original)
{
    if (original != NULL) {
        c->model = original->model;
        __atomic_fetch_add(&c->model->users, 1, __ATOMIC_RELAXED);
        return SOFTQ_OK;
    }
    struct sq_model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        return sq_fail(c->error, SOFTQ_NO_MEMORY, "there is no memory for a context");
    }
    softq_status status = sq_load(model, folder, c->error);
    if (status != SOFTQ_OK) {
        free(model);
        return status;
    }
    model->users = 1;
    c->model = model;
    return SOFTQ_OK;
}

static softq_status sq_start(softq_context *c, const char *folder, const softq_context *original, int threads)
{
    softq_status status = sq_model_of(c, folder, original);
    if (status == SOFTQ_OK) {
        c->state.weights = c->model->weights;
        status = sq_engine_start(&c->engine, c->model, threads, c->error);
    }
    return status;
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
    if (context->model != NULL) {
        sq_engine_stop(&context->engine, context->model);
        if (__atomic_sub_fetch(&context->model->users, 1, __ATOMIC_ACQ_REL) == 0) {
            sq_unload(context->model);
            free(context->model);
        }
    }
    for (int i = 0; i < SQ_OUTPUTS; i++) {
        free(context->own[i]);
    }
    free(context);
}

const char *softq_message(const softq_context *context)
{
    return context == NULL ? "there is no context (NULL)" : context->error;
}
