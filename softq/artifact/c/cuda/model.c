/* ---- What clones share: the GPU, the kernels and the weights; and what each context has of its own --------------- */

struct sq_model {
    struct sq_driver driver;
    int device;
    int shared;            /* most bytes of shared memory that a block may have */
    sq_cu_context context; /* the device's primary one */
    sq_cu_module module[SQ_MODULES + 1];
    sq_cu_function function[SQ_FUNCTIONS + 1];
    sq_address weights;
    unsigned users;
};

struct sq_engine {
    sq_cu_stream stream;
    int32_t *flags; /* of the steps that tell of bad data, after they ran */
    sq_address arena;
    size_t arena_bytes;
};

/* Make the GPU's context the thread's own until sq_leave_gpu, which gives it back what it had. */
static softq_status sq_enter_gpu(const struct sq_model *model, char *error)
{
    return SQ_CALL(&model->driver, error, cuCtxPushCurrent_v2, (model->context));
}

static void sq_leave_gpu(const struct sq_model *model)
{
    sq_cu_context context = NULL;
    model->driver.cuCtxPopCurrent_v2(&context);
}

static softq_status sq_open_device(struct sq_model *model, char *error)
{
    const struct sq_driver *driver = &model->driver;
    if (driver->cuInit(0) != 0) {
        return sq_fail(error, SOFTQ_NO_DEVICE,
                       "needs an NVIDIA GPU; this computer has its driver, but no GPU that the driver sees");
    }
    if (driver->cuDeviceGet(&model->device, 0) != 0) {
        return sq_fail(error, SOFTQ_NO_DEVICE, "there is no GPU of number 0");
    }
    softq_status status = SQ_CALL(driver, error, cuDeviceGetAttribute,
                                  (&model->shared, SQ_DEVICE_SHARED, model->device));
    if (status != SOFTQ_OK) {
        return status;
    }
    return SQ_CALL(driver, error, cuDevicePrimaryCtxRetain, (&model->context, model->device));
}

static softq_status sq_load_module(struct sq_model *model, int number, char *error)
{
    char why[SOFTQ_ERROR_BYTES], name[100] = "?";
    unsigned result = model->driver.cuModuleLoadData(&model->module[number], sq_code[number]);
    softq_status status = sq_result(&model->driver, why, "cuModuleLoadData", result);
    if (status == SOFTQ_OK) {
        return status;
    }
    model->module[number] = NULL;
    model->driver.cuDeviceGetName(name, (int)sizeof name, model->device);
    return sq_fail(error, status == SOFTQ_NO_MEMORY ? status : SOFTQ_NO_DEVICE,
                   "was built for " SQ_CPU "; this GPU is %.99s: %.300s", name, why);
}

static softq_status sq_load_kernels(struct sq_model *model, char *error)
{
    const struct sq_driver *driver = &model->driver;
    softq_status status = SOFTQ_OK;
    for (int i = 0; i < SQ_MODULES && status == SOFTQ_OK; i++) {
        status = sq_load_module(model, i, error);
    }
    for (int i = 0; i < SQ_FUNCTIONS && status == SOFTQ_OK; i++) {
        const struct sq_function *one = &sq_functions[i];
        status = SQ_CALL(driver, error, cuModuleGetFunction,
                         (&model->function[i], model->module[one->module], one->symbol));
        /* What the GPU does not have, sq_fitting does not choose. */
        if (status == SOFTQ_OK && one->shared > 0 && one->shared <= model->shared) {
            status = SQ_CALL(driver, error, cuFuncSetAttribute, (model->function[i], SQ_FUNCTION_SHARED, one->shared));
        }
    }
    return status;
}

static softq_status sq_upload(struct sq_model *model, const struct sq_file *file, char *error)
{
    const struct sq_driver *driver = &model->driver;
    softq_status status = SQ_CALL(driver, error, cuMemAlloc_v2, (&model->weights, file->bytes));
    if (status == SOFTQ_NO_MEMORY) {
        return sq_fail(error, status, "the GPU has no memory for weights of %zu bytes", file->bytes);
    }
    if (status == SOFTQ_OK) {
        status = SQ_CALL(driver, error, cuMemcpyHtoDAsync_v2, (model->weights, file->data, file->bytes, NULL));
    }
    /* Streams of contexts do not wait for this one. */
    return status == SOFTQ_OK ? SQ_CALL(driver, error, cuStreamSynchronize, (NULL)) : status;
}

/* Release what there is. */
static void sq_unload(struct sq_model *model)
{
    const struct sq_driver *driver = &model->driver;
    char error[SOFTQ_ERROR_BYTES];
    if (model->context != NULL && sq_enter_gpu(model, error) == SOFTQ_OK) {
        if (model->weights != 0) {
            driver->cuMemFree_v2(model->weights);
        }
        for (int i = 0; i < SQ_MODULES; i++) {
            if (model->module[i] != NULL) {
                driver->cuModuleUnload(model->module[i]);
            }
        }
        sq_leave_gpu(model);
    }
    if (model->context != NULL) {
        driver->cuDevicePrimaryCtxRelease_v2(model->device);
    }
    if (driver->library != NULL) {
        dlclose(driver->library);
    }
}

static softq_status sq_load(struct sq_model *model, const char *folder, char *error)
{
    struct sq_file file = {NULL, 0};
    if (!SQ_COMPILED) {
        return sq_fail(error, SOFTQ_NO_DEVICE, "has no code for a GPU, only its text: where it was built there was no "
                       "compiler of CUDA (pip install 'softq[cuda]')");
    }
    softq_status status = sq_map(&file, folder, error);
    if (status != SOFTQ_OK) {
        return status;
    }
    status = sq_find_driver(&model->driver, error);
    if (status == SOFTQ_OK) {
        status = sq_open_device(model, error);
    }
    if (status == SOFTQ_OK) {
        status = sq_enter_gpu(model, error);
        if (status == SOFTQ_OK) {
            status = sq_load_kernels(model, error);
            if (status == SOFTQ_OK) {
                status = sq_upload(model, &file, error);
            }
            sq_leave_gpu(model);
        }
    }
    sq_unmap(&file);
    if (status != SOFTQ_OK) {
        sq_unload(model);
    }
    return status;
}

static softq_status sq_engine_start(struct sq_engine *engine, const struct sq_model *model, int threads, char *error)
{
    const struct sq_driver *driver = &model->driver;
    (void)threads;
    softq_status status = sq_enter_gpu(model, error);
    if (status != SOFTQ_OK) {
        return status;
    }
    /* A stream of its own: contexts of several threads do not wait for each other. */
    status = SQ_CALL(driver, error, cuStreamCreate, (&engine->stream, SQ_NON_BLOCKING));
    if (status == SOFTQ_OK && SQ_FLAGS > 0) {
        void *flags = NULL;
        status = SQ_CALL(driver, error, cuMemAllocHost_v2, (&flags, SQ_FLAGS * sizeof *engine->flags));
        engine->flags = status == SOFTQ_OK ? flags : NULL;
    }
    sq_leave_gpu(model);
    return status;
}

static void sq_engine_stop(struct sq_engine *engine, const struct sq_model *model)
{
    const struct sq_driver *driver = &model->driver;
    char error[SOFTQ_ERROR_BYTES];
    if (sq_enter_gpu(model, error) != SOFTQ_OK) {
        return;
    }
    if (engine->stream != NULL) {
        driver->cuStreamDestroy_v2(engine->stream);
    }
    if (engine->flags != NULL) {
        driver->cuMemFreeHost(engine->flags);
    }
    if (engine->arena != 0) {
        driver->cuMemFree_v2(engine->arena);
    }
    sq_leave_gpu(model);
}
