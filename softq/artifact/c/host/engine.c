/* ---- Executing on a processor ------------------------------------------------------------------------------------ */

/* A thread gets at least so many operations of a step, some 10 microseconds of work; waking it costs about as much. */
#define SQ_CHUNK_COST 20000

/* Chunks for each thread: those that are done early take more of them. */
#define SQ_CHUNKS 4

static softq_status sq_place(softq_context *c)
{
    struct sq_engine *engine = &c->engine;
    int bad = 0;
    int64_t each = sq_padded(&bad, sq_value(&c->state, sq_scratch));
    int64_t total = sq_add(&bad, sq_slots_bytes(c, &bad), sq_mul(&bad, each, engine->threads));
    if (bad || (uint64_t)total > SIZE_MAX / 2) {
        return sq_too_large(c, "the intermediate results fit no memory");
    }
    if (engine->arena == NULL || engine->arena_bytes < (size_t)total) {
        free(engine->arena);
        engine->arena_bytes = (size_t)total;
        engine->arena = malloc(engine->arena_bytes + SQ_ALIGNMENT);
        if (engine->arena == NULL) {
            return sq_fail(c->error, SOFTQ_NO_MEMORY, "there is no memory for intermediate results of %" PRId64 " bytes",
                           total);
        }
    }
    uintptr_t past = (uintptr_t)engine->arena % SQ_ALIGNMENT;
    engine->scratch.data = sq_put_slots(c, engine->arena + (SQ_ALIGNMENT - past) % SQ_ALIGNMENT);
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
        status = sq_do_all(c);
    }
    if (status == SOFTQ_OK) {
        sq_copy_outputs(c, outputs);
    }
    return status;
}
