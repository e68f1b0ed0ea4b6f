/* ---- What clones share, and what each context has of its own ----------------------------------------------------- */

struct sq_model {
    struct sq_file file;
    sq_address weights;
    unsigned users;
};

struct sq_engine {
    struct sq_pool *pool; /* NULL with one thread */
    int threads;
    unsigned char *arena;
    size_t arena_bytes;
    struct sq_scratch scratch; /* in the arena */
    int64_t room[SQ_SLOTS + 1]; /* bytes of each slot */
};

static softq_status sq_load(struct sq_model *model, const char *folder, char *error)
{
    const char *missing = sq_missing_feature();
    if (missing != NULL) {
        return sq_fail(error, SOFTQ_BAD_CPU,
                       "this processor lacks '%s', which the model was built for (machine %s, processor %s)", missing,
                       SQ_MACHINE, SQ_CPU);
    }
    softq_status status = sq_map(&model->file, folder, error);
    model->weights = model->file.data;
    return status;
}

static void sq_unload(struct sq_model *model)
{
    sq_unmap(&model->file);
}

static softq_status sq_engine_start(struct sq_engine *engine, const struct sq_model *model, int threads, char *error)
{
    (void)model;
    engine->threads = threads;
    if (threads > 1) {
        engine->pool = sq_pool_new(threads - 1);
        if (engine->pool == NULL) {
            return sq_fail(error, SOFTQ_NO_THREADS, "%d threads cannot be started", threads - 1);
        }
    }
    return SOFTQ_OK;
}

static void sq_engine_stop(struct sq_engine *engine, const struct sq_model *model)
{
    (void)model;
    sq_pool_free(engine->pool);
    free(engine->arena);
}
