/* ---- Executing on a processor ------------------------------------------------------------------------------------ */

/* A thread gets at least so many operations of a step, some 10 microseconds of work; waking it costs about as much. */
#define SQ_CHUNK_COST 20000

/* Chunks for each thread: those that are done early take more of them. */
#define SQ_CHUNKS 4

/* Lay out the arena for the sizes that are known. A slot that was there keeps its bytes, and never shrinks: in the next
 * run data may ask for as much again. */
static softq_status sq_place(softq_context *c)
{
    struct sq_engine *engine = &c->engine;
    int bad = 0;
    int64_t total = 0, room[SQ_SLOTS + 1];
    for (int i = 0; i < SQ_SLOTS; i++) {
        int64_t bytes = sq_padded(&bad, sq_known(c, sq_slots[i]));
        room[i] = SQ_MEASURED > 0 && c->placed && bytes < engine->room[i] ? engine->room[i] : bytes;
        total = sq_add(&bad, total, room[i]);
    }
    int64_t each = sq_padded(&bad, sq_known(c, sq_scratch));
    total = sq_add(&bad, total, sq_mul(&bad, each, engine->threads));
    if (bad || (uint64_t)total > SIZE_MAX / 2) {
        return sq_too_large(c, "the intermediate results fit no memory");
    }
    unsigned char *old = NULL;
    if (engine->arena == NULL || engine->arena_bytes < (size_t)total || c->placed) {
        if (!c->placed) {
            free(engine->arena);
            engine->arena = NULL;
        }
        unsigned char *arena = malloc((size_t)total + SQ_ALIGNMENT);
        if (arena == NULL) {
            return sq_fail(c->error, SOFTQ_NO_MEMORY, "there is no memory for intermediate results of %" PRId64 " bytes",
                           total);
        }
        old = engine->arena;
        engine->arena = arena;
        engine->arena_bytes = (size_t)total;
    }
    uintptr_t past = (uintptr_t)engine->arena % SQ_ALIGNMENT;
    unsigned char *next = engine->arena + (SQ_ALIGNMENT - past) % SQ_ALIGNMENT;
    for (int i = 0; i < SQ_SLOTS; i++) {
        if (c->placed && engine->room[i] > 0) {
            memcpy(next, c->state.slot[i], (size_t)engine->room[i]);
        }
        c->state.slot[i] = next;
        engine->room[i] = room[i];
        next += (size_t)room[i];
    }
    free(old);
    engine->scratch.data = next;
    engine->scratch.bytes = (size_t)each;
    c->placed = 1;
    return SOFTQ_OK;
}

static void sq_do(softq_context *c, const struct sq_step *step)
{
    int64_t items = sq_value(&c->state, step->items);
    if (items <= 0) {
        return;
    }
    const struct sq_engine *engine = &c->engine;
    int64_t chunks = 1;
    if (sq_pool_here(engine->pool)) {
        int64_t worth = sq_value(&c->state, step->cost) / SQ_CHUNK_COST, most = (int64_t)engine->threads * SQ_CHUNKS;
        chunks = worth < most ? worth : most;
        chunks = chunks < items ? chunks : items;
    }
    if (chunks > 1) {
        sq_pool_run(engine->pool, step->work, &c->state, &engine->scratch, items, (unsigned)chunks);
    } else {
        step->work(&c->state, sq_scratch_of(&engine->scratch, 0), 0, items);
    }
}

/* Take dimensions from data, with all that is computed of them, and find the memory. */
static softq_status sq_measure(softq_context *c, const struct sq_step *step, softq_tensor *outputs)
{
    for (int i = 0; i < step->count; i++) {
        int64_t value;
        memcpy(&value, c->state.slot[step->slot] + (size_t)i * sizeof value, sizeof value);
        if (value < 0) {
            return sq_fail(c->error, SOFTQ_BAD_DATA, "the data give an axis %" PRId64 " elements", value);
        }
        c->state.dim[step->target + i] = value;
    }
    if (sq_compute(c->state.dim, c->state.size)) {
        return sq_too_large(c, "a size overflows or is divided by 0");
    }
    softq_status status = sq_check_limits(c);
    int more = sq_known(c, sq_scratch) > (int64_t)c->engine.scratch.bytes;
    for (int i = 0; i < SQ_SLOTS; i++) {
        more |= sq_known(c, sq_slots[i]) > c->engine.room[i];
    }
    if (more && status == SOFTQ_OK) {
        status = sq_place(c);
    }
    for (int i = 0; i < SQ_OUTPUTS && status == SOFTQ_OK; i++) {
        status = sq_take_output(c, i, &outputs[i]);
        c->state.output[i] = outputs[i].data;
    }
    return status;
}

static softq_status sq_do_all(softq_context *c, softq_tensor *outputs)
{
    for (int i = 0; i < SQ_STEPS;) {
        const struct sq_step *step = &sq_steps[i];
        int32_t flag = 0;
        i++;
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
        if (step->then == SQ_JUMP) {
            memcpy(&flag, c->state.slot[step->slot], sizeof flag);
            i = flag != 0 ? step->target : i;
        } else if (step->then == SQ_MEASURE) {
            softq_status status = sq_measure(c, step, outputs);
            if (status != SOFTQ_OK) {
                return status;
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
        const unsigned char *from = sq_at(&c->state, what->place, what->at);
        if (from != c->state.output[i] && bytes > 0) {
            memcpy(c->state.output[i], from, bytes);
        }
    }
}

static softq_status sq_execute(softq_context *c, const softq_tensor *inputs, softq_tensor *outputs)
{
    softq_status status = c->placed ? SOFTQ_OK : sq_place(c);
    for (int i = 0; i < SQ_INPUTS; i++) {
        c->state.input[i] = inputs[i].data;
    }
    for (int i = 0; i < SQ_OUTPUTS; i++) {
        c->state.output[i] = outputs[i].data;
    }
    if (status == SOFTQ_OK) {
        status = sq_do_all(c, outputs);
    }
    for (int i = 0; i < SQ_OUTPUTS && SQ_MEASURED > 0 && status == SOFTQ_OK; i++) {
        status = sq_describe_output(c, i, &outputs[i]);
    }
    if (status == SOFTQ_OK) {
        sq_copy_outputs(c, outputs);
    }
    return status;
}
