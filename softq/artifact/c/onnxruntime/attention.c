/* ---- A call of an attention: one step after another, whose work items onnxruntime's threads take ---- */

#define SQ_LANES 64

/* Work of a step below which no other thread is woken, and of what a thread takes at once. */
#define SQ_CHUNK_COST 20000

struct sq_attention_kernel {
    ort_api api;
    const struct sq_graph *graph;
};

/* A step while threads work on it. */
struct sq_job {
    const struct sq_state *state;
    const struct sq_step *step;
    int64_t items, chunk, next;
    size_t scratch;
    int no_memory;
};

static int64_t sq_value(const struct sq_state *s, struct sq_ref ref)
{
    return ref.kind == SQ_NUMBER ? ref.value : ref.kind == SQ_DIM ? s->dim[ref.value] : s->size[ref.value];
}

/* Take chunks of work items until there are none; a thread that comes too late needs no memory. */
static void sq_run_lane(void *given, size_t lane)
{
    struct sq_job *job = given;
    struct sq_buffer *scratch = NULL;
    (void)lane;
    for (;;) {
        const int64_t begin = __atomic_fetch_add(&job->next, job->chunk, __ATOMIC_RELAXED);
        if (begin >= job->items) {
            break;
        }
        if (scratch == NULL && job->scratch > 0) {
            scratch = sq_take_buffer(SQ_SCRATCH, job->scratch);
            if (scratch == NULL) {
                __atomic_store_n(&job->no_memory, 1, __ATOMIC_RELAXED);
                break;
            }
        }
        const int64_t end = job->items - begin < job->chunk ? job->items : begin + job->chunk;
        job->step->run(job->state, scratch == NULL ? NULL : sq_memory(scratch), begin, end);
    }
    sq_give_buffer(SQ_SCRATCH, scratch);
}

static struct ort_status *sq_run_step(const struct sq_attention_kernel *kernel, struct ort_context *context,
                                      const struct sq_state *state, const struct sq_step *step, int64_t scratch)
{
    struct sq_job job = {state, step, sq_value(state, step->items), 1, 0, (size_t)scratch, 0};
    struct ort_status *failed = NULL;
    const int64_t cost = sq_value(state, step->cost);
    if (job.items <= 0) {
        return NULL;
    }
    const int64_t chunks = cost / SQ_CHUNK_COST < job.items ? cost / SQ_CHUNK_COST : job.items;
    if (chunks <= 1) {
        job.chunk = job.items;
        sq_run_lane(&job, 0);
    } else {
        job.chunk = job.items / (chunks < 4 * SQ_LANES ? chunks : 4 * SQ_LANES);
        failed = ORT_CALL(kernel->api, ORT_PARALLEL_FOR, const struct ort_context *, void (*)(void *, size_t), size_t,
                          size_t, void *)(context, sq_run_lane, (size_t)(chunks < SQ_LANES ? chunks : SQ_LANES), 0,
                                          &job);
    }
    if (failed == NULL && job.no_memory) {
        failed = sq_fail(kernel->api, ORT_FAIL, "softq::%s: there is no memory", kernel->graph->name);
    }
    return failed;
}

/* Read the inputs, and bind the names of dimensions where they stand first. */
static struct ort_status *sq_bind(const struct sq_attention_kernel *kernel, struct ort_context *context,
                                  struct sq_tensor *given, int64_t *dim)
{
    const struct sq_graph *graph = kernel->graph;
    char bound[SQ_MOST_DIMS + 1] = {0};
    for (int i = 0; i < graph->inputs; ++i) {
        const struct sq_port *port = &graph->input[i];
        struct ort_status *failed = sq_input(kernel->api, graph->name, context, (size_t)i, port->name, &given[i]);
        if (failed != NULL) {
            return failed;
        }
        if (given[i].type != port->type || given[i].rank != (size_t)port->rank) {
            return sq_fail(kernel->api, ORT_INVALID_ARGUMENT,
                           "softq::%s: %s has element type %d and %d axes; expected %d and %d", graph->name, port->name,
                           given[i].type, (int)given[i].rank, port->type, port->rank);
        }
        for (int axis = 0; axis < port->rank; ++axis) {
            const struct sq_ref size = port->shape[axis];
            if (size.kind == SQ_DIM && !bound[size.value]) {
                bound[size.value] = 1;
                dim[size.value] = given[i].dims[axis];
            }
        }
    }
    return NULL;
}

static struct ort_status *sq_check_sizes(const struct sq_attention_kernel *kernel, const struct sq_tensor *given,
                                         const struct sq_state *state)
{
    const struct sq_graph *graph = kernel->graph;
    for (int i = 0; i < graph->inputs; ++i) {
        for (int axis = 0; axis < graph->input[i].rank; ++axis) {
            const int64_t expected = sq_value(state, graph->input[i].shape[axis]);
            if (given[i].dims[axis] != expected) {
                return sq_fail(kernel->api, ORT_INVALID_ARGUMENT,
                               "softq::%s: %s has %lld elements along axis %d; expected %lld", graph->name,
                               graph->input[i].name, (long long)given[i].dims[axis], axis, (long long)expected);
            }
        }
    }
    for (int i = 0; i < graph->limits; ++i) {
        const int64_t value = sq_value(state, graph->limit[i].size);
        if (value < graph->limit[i].low || value > graph->limit[i].high) {
            return sq_fail(kernel->api, ORT_INVALID_ARGUMENT, "softq::%s: %.300s: it is %lld", graph->name,
                           graph->limit[i].because, (long long)value);
        }
    }
    return NULL;
}

static struct ort_status *sq_make_outputs(const struct sq_attention_kernel *kernel, struct ort_context *context,
                                          const struct sq_state *state, unsigned char **output)
{
    struct ort_status *failed = NULL;
    for (int i = 0; failed == NULL && i < kernel->graph->outputs; ++i) {
        const struct sq_port *port = &kernel->graph->output[i];
        int64_t dims[SQ_MOST_RANK];
        void *data = NULL;
        for (int axis = 0; axis < port->rank; ++axis) {
            dims[axis] = sq_value(state, port->shape[axis]);
        }
        failed = sq_output(kernel->api, kernel->graph->name, context, (size_t)i, dims, (size_t)port->rank, &data);
        output[i] = data;
    }
    return failed;
}

/* Find the memory of the steps' results, and run the steps. */
static struct ort_status *sq_run_steps(const struct sq_attention_kernel *kernel, struct ort_context *context,
                                       const struct sq_state *state, unsigned char **slot)
{
    const struct sq_graph *graph = kernel->graph;
    int bad = 0;
    int64_t total = 0, at[SQ_MOST_SLOTS + 1];
    for (int i = 0; i < graph->slots; ++i) {
        at[i] = total;
        const int64_t bytes = sq_value(state, graph->slot[i]);
        total = sq_add(&bad, total, sq_mul(&bad, sq_floordiv(&bad, sq_add(&bad, bytes, SQ_ALIGNMENT - 1), SQ_ALIGNMENT),
                                           SQ_ALIGNMENT));
    }
    const int64_t scratch = sq_value(state, graph->scratch);
    struct sq_buffer *arena = bad || (uint64_t)total > SIZE_MAX / 2 || (uint64_t)scratch > SIZE_MAX / 2
                                  ? NULL
                                  : sq_take_buffer(SQ_ARENA, (size_t)total);
    if (arena == NULL) {
        return sq_fail(kernel->api, ORT_FAIL, "softq::%s: there is no memory", graph->name);
    }
    for (int i = 0; i < graph->slots; ++i) {
        slot[i] = sq_memory(arena) + at[i];
    }
    struct ort_status *failed = NULL;
    for (int i = 0; failed == NULL && i < graph->steps; ++i) {
        failed = sq_run_step(kernel, context, state, &graph->step[i], scratch);
    }
    sq_give_buffer(SQ_ARENA, arena);
    return failed;
}

static struct ort_status *sq_attend(void *given, struct ort_context *context)
{
    const struct sq_attention_kernel *kernel = given;
    const struct sq_graph *graph = kernel->graph;
    struct sq_tensor inputs[SQ_MOST_INPUTS + 1];
    int64_t dim[SQ_MOST_DIMS + 1] = {0}, size[SQ_MOST_SIZES + 1] = {0};
    unsigned char *slot[SQ_MOST_SLOTS + 1], *input[SQ_MOST_INPUTS + 1], *output[SQ_MOST_RESULTS + 1];
    const struct sq_state state = {dim, size, slot, input, output, graph->constants};
    struct ort_status *failed = sq_bind(kernel, context, inputs, dim);
    if (failed != NULL) {
        return failed;
    }
    if (graph->compute(dim, size)) {
        return sq_fail(kernel->api, ORT_INVALID_ARGUMENT, "softq::%s: a size overflows", graph->name);
    }
    for (int i = 0; i < graph->inputs; ++i) {
        input[i] = inputs[i].data;
    }
    failed = sq_check_sizes(kernel, inputs, &state);
    if (failed == NULL) {
        failed = sq_make_outputs(kernel, context, &state, output);
    }
    return failed == NULL ? sq_run_steps(kernel, context, &state, slot) : failed;
}

/* ---- The operators, as onnxruntime asks for them ---- */

static const struct sq_graph *sq_graph_of(const struct ort_op *op)
{
    return ((const struct sq_attention_operator *)(const void *)op)->graph;
}

static struct ort_status *sq_create_attention(const struct ort_op *op, ort_api api, const void *info, void **result)
{
    struct sq_attention_kernel *kernel = malloc(sizeof *kernel);
    (void)info;
    if (kernel == NULL) {
        return sq_fail(api, ORT_FAIL, "softq::%s: there is no memory", sq_graph_of(op)->name);
    }
    kernel->api = api;
    kernel->graph = sq_graph_of(op);
    sq_start_use();
    *result = kernel;
    return NULL;
}

/* The forms without a status: no runtime calls them where the others are there. */
static void *sq_create_attention_old(const struct ort_op *op, ort_api api, const void *info)
{
    void *kernel = NULL;
    const struct ort_status *failed = sq_create_attention(op, api, info, &kernel);
    return failed == NULL ? kernel : NULL;
}

static void sq_attend_old(void *kernel, struct ort_context *context)
{
    const ort_api api = ((const struct sq_attention_kernel *)kernel)->api;
    ORT_RELEASE(api, ORT_RELEASE_STATUS, struct ort_status *, sq_attend(kernel, context));
}

static void sq_destroy_attention(void *kernel)
{
    sq_end_use();
    free(kernel);
}

static const char *sq_attention_name(const struct ort_op *op)
{
    return sq_graph_of(op)->name;
}

static size_t sq_count_attention_inputs(const struct ort_op *op)
{
    return (size_t)sq_graph_of(op)->inputs;
}

static size_t sq_count_attention_outputs(const struct ort_op *op)
{
    return (size_t)sq_graph_of(op)->outputs;
}

static int sq_attention_input_type(const struct ort_op *op, size_t index)
{
    return sq_graph_of(op)->input[index].type;
}

static int sq_attention_output_type(const struct ort_op *op, size_t index)
{
    return sq_graph_of(op)->output[index].type;
}

#define SQ_ATTENTION_OP {                                                                                              \
    ORT_VERSION, sq_create_attention_old, sq_attention_name, sq_provider, sq_attention_input_type,                     \
    sq_count_attention_inputs, sq_attention_output_type, sq_count_attention_outputs, sq_attend_old,                    \
    sq_destroy_attention, sq_zero_at, sq_zero_at, sq_zero_at, sq_one, sq_one, sq_one, sq_one, sq_create_attention,     \
    sq_attend, NULL /* shapes are found at run time */, sq_one, sq_one }
