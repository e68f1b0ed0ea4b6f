/* What onnxruntime gives custom operators, for processors that only qemu has: runs one operator of operators.c.
 *
 *     stand_in NAME IN OUT
 *
 * IN holds the number of inputs and for each its element type, its number of axes, their lengths (int64 all) and its
 * elements; OUT gets the same of the outputs. Work is split over two threads, which take numbers in turn. */
#include "operators.c"

#include <pthread.h>

struct ort_value {
    int64_t type, rank, dims[SQ_MOST_AXES];
    void *data;
};

struct ort_status {
    char message[512];
};

struct ort_context {
    struct ort_value inputs[16], outputs[4];
    const struct ort_op *op;
};

struct ort_domain {
    const struct ort_op *ops[512];
    int count;
};

static struct ort_domain domain;

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static int64_t count_of(const struct ort_value *value)
{
    return sq_product(value->dims, (size_t)value->rank);
}

static struct ort_status *create_status(int code, const char *message)
{
    (void)code;
    struct ort_status *status = calloc(1, sizeof *status);
    snprintf(status->message, sizeof status->message, "%s", message);
    return status;
}

static struct ort_status *create_domain(const char *name, struct ort_domain **made)
{
    *made = strcmp(name, "softq") == 0 ? &domain : NULL;
    return NULL;
}

static struct ort_status *domain_add(struct ort_domain *to, const struct ort_op *op)
{
    to->ops[to->count++] = op;
    return NULL;
}

static struct ort_status *get_data(struct ort_value *value, void **data)
{
    *data = value->data;
    return NULL;
}

/* A value is its own description. */
static struct ort_status *get_info(const struct ort_value *value, const struct ort_value **info)
{
    *info = value;
    return NULL;
}

static struct ort_status *get_type(const struct ort_value *info, int *type)
{
    *type = (int)info->type;
    return NULL;
}

static struct ort_status *get_rank(const struct ort_value *info, size_t *rank)
{
    *rank = (size_t)info->rank;
    return NULL;
}

static struct ort_status *get_shape(const struct ort_value *info, int64_t *dims, size_t rank)
{
    memcpy(dims, info->dims, rank * sizeof *dims);
    return NULL;
}

static struct ort_status *get_input(struct ort_context *context, size_t index, const struct ort_value **value)
{
    *value = &context->inputs[index];
    return NULL;
}

static struct ort_status *get_output(struct ort_context *context, size_t index, const int64_t *dims, size_t rank,
                                     struct ort_value **value)
{
    struct ort_value *made = &context->outputs[index];
    made->type = context->op->output_type(context->op, index);
    made->rank = (int64_t)rank;
    memcpy(made->dims, dims, rank * sizeof *dims);
    made->data = malloc((size_t)(count_of(made) * sq_type_bytes((int)made->type)) + 1);
    *value = made;
    return NULL;
}

static void ignore(void *what)
{
    (void)what;
}

static struct ort_status *accept_entry(void *options, const void *first, const void *second)
{
    (void)options, (void)first, (void)second;
    return NULL;
}

static struct ort_status *no_entry(void *options, const char *name, char *text, size_t *size)
{
    (void)options, (void)name, (void)text, (void)size;
    return create_status(ORT_FAIL, "there is none");
}

struct work {
    void (*run)(void *given, size_t number);
    void *given;
    size_t next, total;
};

static void *work_on(void *given)
{
    struct work *work = given;
    for (size_t i; (i = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->total;) {
        work->run(work->given, i);
    }
    return NULL;
}

static struct ort_status *parallel_for(const void *context, void (*run)(void *, size_t), size_t total, size_t batches,
                                       void *given)
{
    struct work work = {run, given, 0, total};
    pthread_t other;
    (void)context, (void)batches;
    if (pthread_create(&other, NULL, work_on, &work) != 0) {
        give_up("there is no second thread");
    }
    work_on(&work);
    pthread_join(other, NULL);
    return NULL;
}

static const ort_function api[] = {
    [ORT_CREATE_STATUS] = (ort_function)create_status, [ORT_CREATE_DOMAIN] = (ort_function)create_domain,
    [ORT_DOMAIN_ADD] = (ort_function)domain_add,       [ORT_ADD_DOMAIN] = (ort_function)accept_entry,
    [ORT_GET_DATA] = (ort_function)get_data,           [ORT_GET_TYPE] = (ort_function)get_type,
    [ORT_GET_RANK] = (ort_function)get_rank,           [ORT_GET_SHAPE] = (ort_function)get_shape,
    [ORT_GET_INFO] = (ort_function)get_info,           [ORT_GET_INPUT] = (ort_function)get_input,
    [ORT_GET_OUTPUT] = (ort_function)get_output,       [ORT_RELEASE_STATUS] = (ort_function)free,
    [ORT_RELEASE_INFO] = (ort_function)ignore,         [ORT_ADD_ENTRY] = (ort_function)accept_entry,
    [ORT_GET_ENTRY] = (ort_function)no_entry,          [ORT_PARALLEL_FOR] = (ort_function)parallel_for,
};

static ort_api get_api(uint32_t version)
{
    return version <= ORT_VERSION ? api : NULL;
}

static const char *version_text(void)
{
    return "0";
}

static void check(struct ort_status *failed)
{
    if (failed != NULL) {
        give_up(failed->message);
    }
}

static void read_value(FILE *file, struct ort_value *value)
{
    if (fread(&value->type, 8, 1, file) != 1 || fread(&value->rank, 8, 1, file) != 1 ||
        fread(value->dims, 8, (size_t)value->rank, file) != (size_t)value->rank) {
        give_up("the inputs are cut short");
    }
    const size_t bytes = (size_t)(count_of(value) * sq_type_bytes((int)value->type));
    value->data = malloc(bytes + 1);
    if (fread(value->data, 1, bytes, file) != bytes) {
        give_up("an input is cut short");
    }
}

static void write_value(FILE *file, const struct ort_value *value)
{
    fwrite(&value->type, 8, 1, file);
    fwrite(&value->rank, 8, 1, file);
    fwrite(value->dims, 8, (size_t)value->rank, file);
    fwrite(value->data, 1, (size_t)(count_of(value) * sq_type_bytes((int)value->type)), file);
}

int main(int count, char **given)
{
    const struct ort_api_base base = {get_api, version_text};
    static struct ort_context context;
    void *kernel = NULL;
    int64_t inputs = 0;
    if (count != 4) {
        give_up("usage: stand_in NAME IN OUT");
    }
    check(RegisterCustomOps(NULL, &base));
    for (int i = 0; i < domain.count; ++i) {
        if (strcmp(domain.ops[i]->name(domain.ops[i]), given[1]) == 0) {
            context.op = domain.ops[i];
        }
    }
    FILE *in = fopen(given[2], "rb");
    if (context.op == NULL || in == NULL || fread(&inputs, 8, 1, in) != 1) {
        give_up("there is no such operator, or no input");
    }
    for (int64_t i = 0; i < inputs; ++i) {
        read_value(in, &context.inputs[i]);
    }
    fclose(in);
    check(context.op->create_kernel(context.op, api, NULL, &kernel));
    /* The second run finds the memory of the first. */
    check(context.op->compute(kernel, &context));
    check(context.op->compute(kernel, &context));
    FILE *out = fopen(given[3], "wb");
    const int64_t outputs = (int64_t)context.op->outputs(context.op);
    fwrite(&outputs, 8, 1, out);
    for (int64_t i = 0; i < outputs; ++i) {
        write_value(out, &context.outputs[i]);
    }
    context.op->destroy(kernel);
    return fclose(out) == 0 ? 0 : 1;
}
