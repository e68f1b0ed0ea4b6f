/* ---- The operators, as onnxruntime asks for them ---- */

struct sq_kernel {
    ort_api api;
    const struct sq_facts *facts;
};

static struct ort_status *sq_compute(void *given, struct ort_context *context)
{
    const struct sq_kernel *kernel = given;
    const void *taken[SQ_MOST_PARAMETERS + 1];
    void *made[SQ_MOST_PARAMETERS + 1] = {NULL};
    struct ort_status *failed = sq_compute_rows(kernel->api, kernel->facts, context, taken, made);
    for (int i = 0; i < kernel->facts->parameters; ++i) {
        free(made[i]);
    }
    return failed;
}

static const struct sq_facts *sq_facts_of(const struct ort_op *op)
{
    return ((const struct sq_operator *)(const void *)op)->facts;
}

static struct ort_status *sq_create_kernel(const struct ort_op *op, ort_api api, const void *info, void **result)
{
    struct sq_kernel *kernel = malloc(sizeof *kernel);
    (void)info;
    if (kernel == NULL) {
        return sq_fail(api, ORT_FAIL, "softq::%s: there is no memory", sq_facts_of(op)->name);
    }
    kernel->api = api;
    kernel->facts = sq_facts_of(op);
    *result = kernel;
    return NULL;
}

/* The forms without a status: no runtime calls them where the others are there. */
static void *sq_create_kernel_old(const struct ort_op *op, ort_api api, const void *info)
{
    void *kernel = NULL;
    const struct ort_status *failed = sq_create_kernel(op, api, info, &kernel);
    return failed == NULL ? kernel : NULL;
}

static void sq_compute_old(void *kernel, struct ort_context *context)
{
    const ort_api api = ((const struct sq_kernel *)kernel)->api;
    ORT_RELEASE(api, ORT_RELEASE_STATUS, struct ort_status *, sq_compute(kernel, context));
}

static void sq_destroy(void *kernel)
{
    free(kernel);
}

static const char *sq_name(const struct ort_op *op)
{
    return sq_facts_of(op)->name;
}

static const char *sq_provider(const struct ort_op *op)
{
    (void)op;
    return "CPUExecutionProvider";
}

static size_t sq_count_inputs(const struct ort_op *op)
{
    const struct sq_facts *facts = sq_facts_of(op);
    return (size_t)(1 + facts->masked + facts->parameters + facts->ignored);
}

static size_t sq_count_outputs(const struct ort_op *op)
{
    return (size_t)sq_facts_of(op)->outputs;
}

/* Scores of floats may have 16 bits: any type is taken here, and checked when there is one. */
static int sq_input_type(const struct ort_op *op, size_t index)
{
    const struct sq_facts *facts = sq_facts_of(op);
    const int at = (int)index - 1 - facts->masked;
    if (index == 0) {
        return facts->scores == ORT_FLOAT ? ORT_UNDEFINED : facts->scores;
    }
    if (at < 0) {
        return ORT_BOOL;
    }
    return at < facts->parameters ? facts->parameter[at].given : ORT_INT64;
}

static int sq_output_type(const struct ort_op *op, size_t index)
{
    (void)op;
    (void)index;
    return ORT_FLOAT;
}

/* Inputs and outputs are required, and in the memory of the provider. */
static int sq_zero_at(const struct ort_op *op, size_t index)
{
    (void)op;
    (void)index;
    return 0;
}

static int sq_one(const struct ort_op *op)
{
    (void)op;
    return 1;
}

#define SQ_OP {                                                                                                        \
    ORT_VERSION, sq_create_kernel_old, sq_name, sq_provider, sq_input_type, sq_count_inputs, sq_output_type,           \
    sq_count_outputs, sq_compute_old, sq_destroy, sq_zero_at, sq_zero_at, sq_zero_at, sq_one, sq_one, sq_one, sq_one,  \
    sq_create_kernel, sq_compute, NULL /* shapes are found at run time */, sq_one, sq_one }
