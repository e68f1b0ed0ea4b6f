/* ---- A call: rows in blocks, which onnxruntime's threads take ---- */

#define SQ_BLOCK_ELEMENTS 32768

struct sq_work {
    const struct sq_facts *facts;
    struct sq_call call;
    int scores_type;
    int64_t group_rows;   /* rows that one stride of the mask over the leading axes serves */
    int64_t blocks;       /* of a group */
    int64_t block_rows;
    size_t leading;       /* leading axes of a mask that some of them broadcast; 0 where there is one group */
    int64_t dims[SQ_MOST_AXES], strides[SQ_MOST_AXES];
    int no_memory;
};

/* Return a pointer that is so many bytes before another: kernels count rows from the first one of all. */
static void *sq_before(void *pointer, int64_t bytes)
{
    return (void *)((uintptr_t)pointer - (uintptr_t)bytes);
}

/* Give the kernel of a dense mask one for rows from `begin` on; return what of it was allocated, or NULL. */
static void *sq_make_mask(struct sq_call *call, int masked, int64_t begin, int64_t rows)
{
    const int64_t length = call->length, count = masked ? rows : 1;
    unsigned char *made = malloc((size_t)(count * length) + 1);
    if (made == NULL) {
        return NULL;
    }
    memset(made, 1, (size_t)(count * length));
    for (int64_t row = begin; masked && row < begin + rows; ++row) {
        const int64_t query = row % call->queries, head = row / call->queries % call->heads;
        const int64_t outer = row / call->queries / call->heads;
        const int64_t at = outer * call->strides[0] + head * call->strides[1] + query * call->strides[2];
        memset(made + (row - begin) * length, ((const unsigned char *)call->valid)[at], (size_t)length);
    }
    call->valid = masked ? sq_before(made, begin * length) : made;
    call->strides[2] = masked ? length : 0;
    call->strides[1] = call->queries * call->strides[2];
    call->strides[0] = call->heads * call->strides[1];
    call->strides[3] = 1;
    return made;
}

static void sq_run_block(void *given, size_t number)
{
    struct sq_work *work = given;
    const struct sq_facts *facts = work->facts;
    struct sq_call call = work->call;
    const int64_t group = (int64_t)number / work->blocks, length = call.length;
    const int64_t begin = (int64_t)number % work->blocks * work->block_rows;
    const int64_t left = work->group_rows - begin, rows = left < work->block_rows ? left : work->block_rows;
    const int64_t first = group * work->group_rows;
    const int wide = work->scores_type == facts->scores;
    const int64_t bytes = wide ? sq_type_bytes(facts->scores) : 2;
    const unsigned char *scores = (const unsigned char *)call.scores + first * length * bytes;
    for (int i = 0; i < facts->outputs; ++i) {
        call.outputs[i] = (float *)call.outputs[i] + first * (facts->is_row[i] ? length : 1);
    }
    if (work->leading) {
        const unsigned char *valid = call.valid;
        int64_t rest = group;
        for (size_t axis = work->leading; axis-- > 0;) {
            valid += rest % work->dims[axis] * work->strides[axis];
            rest /= work->dims[axis];
        }
        call.valid = valid;
    }
    float *widened = NULL;
    if (!wide) {
        widened = malloc((size_t)(rows * length) * sizeof *widened + 1);
        if (widened == NULL) {
            __atomic_store_n(&work->no_memory, 1, __ATOMIC_RELAXED);
            return;
        }
        sq_widen((const uint16_t *)(const void *)scores + begin * length, work->scores_type, widened, rows * length);
        call.scores = sq_before(widened, begin * length * (int64_t)sizeof *widened);
    } else {
        call.scores = scores;
    }
    void *scratch = NULL;
    if (facts->scratch_bytes) {
        scratch = malloc((size_t)(rows * length * facts->scratch_bytes) + 1);
        if (scratch == NULL) {
            free(widened);
            __atomic_store_n(&work->no_memory, 1, __ATOMIC_RELAXED);
            return;
        }
        call.scratch = sq_before(scratch, begin * length * facts->scratch_bytes);
    }
    void *mask = NULL;
    if (facts->dense && (!facts->masked || call.strides[3] == 0)) {
        mask = sq_make_mask(&call, facts->masked, begin, rows);
        if (mask == NULL) {
            free(scratch);
            free(widened);
            __atomic_store_n(&work->no_memory, 1, __ATOMIC_RELAXED);
            return;
        }
    }
    facts->run(&call, begin, begin + rows);
    free(mask);
    free(scratch);
    free(widened);
}

static int64_t sq_product(const int64_t *dims, size_t count)
{
    int64_t result = 1;
    for (size_t i = 0; i < count; ++i) {
        result *= dims[i];
    }
    return result;
}

/* Find the mask's strides; where only some of the leading axes are the scores', each of them is a group of rows. */
static struct ort_status *sq_place_mask(ort_api api, const struct sq_tensor *scores, const struct sq_tensor *valid,
                                        struct sq_work *work)
{
    const char *name = work->facts->name;
    int64_t strides[SQ_MOST_AXES], stride = 1;
    size_t own = 0, shared = 0;
    if (valid->type != ORT_BOOL) {
        return sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: valid has element type %d; expected bool", name,
                       valid->type);
    }
    if (valid->rank > scores->rank) {
        return sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: valid has %d axes and the scores have %d", name,
                       (int)valid->rank, (int)scores->rank);
    }
    for (size_t back = 1; back <= scores->rank; ++back) {
        const int64_t there = scores->dims[scores->rank - back];
        const int64_t dim = back <= valid->rank ? valid->dims[valid->rank - back] : 1;
        if (dim != 1 && dim != there) {
            return sq_fail(api, ORT_INVALID_ARGUMENT,
                           "softq::%s: valid has %lld elements on axis %d from the end and the scores have %lld", name,
                           (long long)dim, (int)back, (long long)there);
        }
        strides[scores->rank - back] = dim == 1 ? 0 : stride;
        if (back > 3) {
            own += dim != 1;
            shared += dim == 1 && there != 1;
        }
        stride *= dim;
    }
    for (size_t back = 1; back <= 3; ++back) {
        work->call.strides[4 - back] = back <= scores->rank ? strides[scores->rank - back] : 0;
    }
    work->call.strides[0] = 0;
    if (own && shared) {
        work->leading = scores->rank - 3;
        memcpy(work->dims, scores->dims, sizeof work->dims);
        memcpy(work->strides, strides, sizeof work->strides);
    } else if (own) {
        work->call.strides[0] = sq_product(&valid->dims[valid->rank - 3], 3);
    }
    return NULL;
}

/* Check a parameter and return what the kernel takes of it: what it is given, or an array of the kernel's type. */
static struct ort_status *sq_parameter(ort_api api, const struct sq_facts *facts, int number, int64_t heads,
                                       size_t rank, const struct sq_tensor *given, const void **taken, void **made)
{
    const struct sq_parameter *parameter = &facts->parameter[number];
    const int64_t expected = parameter->size * (parameter->per_head ? heads : 1);
    if (given->type != parameter->given) {
        return sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: %s has element type %d; expected %d", facts->name,
                       parameter->name, given->type, parameter->given);
    }
    if (parameter->per_head && rank < 3) {
        return sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: %s is given for each head, and the scores have %d axes",
                       facts->name, parameter->name, (int)rank);
    }
    if (given->elements != expected) {
        return sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: %s has %lld elements; expected %lld", facts->name,
                       parameter->name, (long long)given->elements, (long long)expected);
    }
    *taken = given->data;
    if (parameter->given != parameter->taken) {
        *made = malloc((size_t)(expected * sq_type_bytes(parameter->taken)) + 1);
        if (*made == NULL) {
            return sq_fail(api, ORT_FAIL, "softq::%s: there is no memory", facts->name);
        }
        sq_convert(given->data, parameter->given, *made, parameter->taken, expected);
        *taken = *made;
    }
    return NULL;
}

static struct ort_status *sq_check_scores(ort_api api, const struct sq_facts *facts, const struct sq_tensor *scores)
{
    const int half = scores->type == ORT_FLOAT16 || scores->type == ORT_BFLOAT16;
    if (scores->type != facts->scores && !(half && facts->scores == ORT_FLOAT)) {
        return sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: scores have element type %d; expected %d%s", facts->name,
                       scores->type, facts->scores, facts->scores == ORT_FLOAT ? ", 10 or 16" : "");
    }
    if (scores->rank == 0) {
        return sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: scores without an axis", facts->name);
    }
    if (scores->dims[scores->rank - 1] > facts->longest) {
        return sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: a row has %lld elements; it is proved for at most %lld",
                       facts->name, (long long)scores->dims[scores->rank - 1], (long long)facts->longest);
    }
    return NULL;
}

/* Compute all rows; `taken` and `made` have a place for each parameter. */
static struct ort_status *sq_compute_rows(ort_api api, const struct sq_facts *facts, struct ort_context *context,
                                          const void **taken, void **made)
{
    struct sq_tensor scores, other;
    struct sq_work work;
    memset(&work, 0, sizeof work);
    size_t at = 0, rank;
    struct ort_status *failed = sq_input(api, facts->name, context, at++, "scores", &scores);
    if (failed == NULL) {
        failed = sq_check_scores(api, facts, &scores);
    }
    if (failed != NULL) {
        return failed;
    }
    rank = scores.rank;
    work.facts = facts;
    work.scores_type = scores.type;
    work.call.scores = scores.data;
    work.call.parameters = taken;
    work.call.length = scores.dims[rank - 1];
    work.call.queries = rank > 1 ? scores.dims[rank - 2] : 1;
    work.call.heads = rank > 2 ? scores.dims[rank - 3] : 1;
    if (facts->masked) {
        failed = sq_input(api, facts->name, context, at++, "valid", &other);
        if (failed == NULL) {
            work.call.valid = other.data;
            failed = sq_place_mask(api, &scores, &other, &work);
        }
    }
    for (int i = 0; failed == NULL && i < facts->parameters; ++i) {
        failed = sq_input(api, facts->name, context, at++, facts->parameter[i].name, &other);
        if (failed == NULL) {
            failed = sq_parameter(api, facts, i, work.call.heads, rank, &other, &taken[i], &made[i]);
        }
    }
    for (int i = 0; failed == NULL && i < facts->outputs; ++i) {
        int64_t dims[SQ_MOST_AXES];
        memcpy(dims, scores.dims, sizeof dims);
        dims[rank - 1] = facts->is_row[i] ? dims[rank - 1] : 1;
        failed = sq_output(api, facts->name, context, (size_t)i, dims, rank, &work.call.outputs[i]);
    }
    const int64_t rows = sq_product(scores.dims, rank - 1);
    if (failed != NULL || rows == 0) {
        return failed;
    }
    work.group_rows = work.leading ? work.call.heads * work.call.queries : rows;
    work.block_rows = work.call.length ? SQ_BLOCK_ELEMENTS / work.call.length : SQ_BLOCK_ELEMENTS;
    work.block_rows = work.block_rows < 1 ? 1 : work.block_rows;
    work.blocks = (work.group_rows + work.block_rows - 1) / work.block_rows;
    const size_t count = (size_t)(rows / work.group_rows * work.blocks);
    if (count == 1) {
        sq_run_block(&work, 0);
    } else {
        failed = ORT_CALL(api, ORT_PARALLEL_FOR, const struct ort_context *, void (*)(void *, size_t), size_t, size_t,
                          void *)(context, sq_run_block, count, 0, &work);
    }
    if (failed == NULL && work.no_memory) {
        failed = sq_fail(api, ORT_FAIL, "softq::%s: there is no memory", facts->name);
    }
    return failed;
}
