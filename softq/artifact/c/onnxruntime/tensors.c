/* ---- Tensors of a call ---- */

struct sq_tensor {
    void *data;
    int type;
    size_t rank;
    int64_t dims[SQ_MOST_AXES];
    int64_t elements;
};

static int64_t sq_type_bytes(int type)
{
    switch (type) {
    case ORT_UINT8: case ORT_INT8: case ORT_BOOL: return 1;
    case ORT_UINT16: case ORT_INT16: case ORT_FLOAT16: case ORT_BFLOAT16: return 2;
    case ORT_INT64: case ORT_UINT64: case ORT_DOUBLE: return 8;
    default: return 4;
    }
}

static struct ort_status *sq_describe(ort_api api, const char *function, const char *name,
                                      const struct ort_value *value, struct sq_tensor *tensor)
{
    struct ort_tensor_info *info = NULL;
    struct ort_status *failed =
        ORT_CALL(api, ORT_GET_INFO, const struct ort_value *, struct ort_tensor_info **)(value, &info);
    if (failed != NULL) {
        return failed;
    }
    failed = ORT_CALL(api, ORT_GET_TYPE, const struct ort_tensor_info *, int *)(info, &tensor->type);
    if (failed == NULL) {
        failed = ORT_CALL(api, ORT_GET_RANK, const struct ort_tensor_info *, size_t *)(info, &tensor->rank);
    }
    if (failed == NULL && tensor->rank > SQ_MOST_AXES) {
        failed = sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: %s has %d axes; at most %d are allowed", function,
                         name, (int)tensor->rank, SQ_MOST_AXES);
    }
    if (failed == NULL) {
        failed = ORT_CALL(api, ORT_GET_SHAPE, const struct ort_tensor_info *, int64_t *, size_t)(info, tensor->dims,
                                                                                                 tensor->rank);
    }
    ORT_RELEASE(api, ORT_RELEASE_INFO, struct ort_tensor_info *, info);
    tensor->elements = 1;
    for (size_t axis = 0; failed == NULL && axis < tensor->rank; ++axis) {
        tensor->elements *= tensor->dims[axis];
    }
    return failed;
}

static struct ort_status *sq_input(ort_api api, const char *function, struct ort_context *context, size_t index,
                                   const char *name, struct sq_tensor *tensor)
{
    const struct ort_value *value = NULL;
    struct ort_status *failed =
        ORT_CALL(api, ORT_GET_INPUT, const struct ort_context *, size_t, const struct ort_value **)(context, index,
                                                                                                   &value);
    if (failed == NULL && value == NULL) {
        failed = sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: %s is missing", function, name);
    }
    if (failed == NULL) {
        failed = sq_describe(api, function, name, value, tensor);
    }
    if (failed == NULL) {
        failed = ORT_CALL(api, ORT_GET_DATA, struct ort_value *, void **)((struct ort_value *)(uintptr_t)value,
                                                                         &tensor->data);
    }
    return failed;
}

static struct ort_status *sq_output(ort_api api, const char *function, struct ort_context *context, size_t index,
                                    const int64_t *dims, size_t rank, void **data)
{
    struct ort_value *value = NULL;
    struct ort_status *failed =
        ORT_CALL(api, ORT_GET_OUTPUT, struct ort_context *, size_t, const int64_t *, size_t, struct ort_value **)(
            context, index, dims, rank, &value);
    if (failed == NULL && value == NULL) {
        failed = sq_fail(api, ORT_INVALID_ARGUMENT, "softq::%s: output %d is missing", function, (int)index);
    }
    if (failed == NULL) {
        failed = ORT_CALL(api, ORT_GET_DATA, struct ort_value *, void **)(value, data);
    }
    return failed;
}

/* Return the float of a half, whose subnormal numbers are computed from normal ones. */
static float sq_from_half(uint16_t half)
{
    const uint32_t word = (uint32_t)half << 16, twice = word + word;
    const uint32_t bits = (twice >> 4) + (UINT32_C(0xE0) << 23), small = (twice >> 17) | (UINT32_C(126) << 23);
    float normal, subnormal, result;
    uint32_t out;
    memcpy(&normal, &bits, sizeof normal);
    memcpy(&subnormal, &small, sizeof subnormal);
    normal *= 0x1.0p-112f;
    subnormal -= 0.5f;
    memcpy(&out, twice < (UINT32_C(1) << 27) ? &subnormal : &normal, sizeof out);
    out |= word & UINT32_C(0x80000000);
    memcpy(&result, &out, sizeof result);
    return result;
}

static void sq_widen(const uint16_t *from, int type, float *to, int64_t count)
{
    if (type == ORT_FLOAT16) {
        for (int64_t i = 0; i < count; ++i) {
            to[i] = sq_from_half(from[i]);
        }
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

/* Write integers in the type of the kernel, which is narrower than the function's or has another sign. */
static void sq_convert(const void *from, int given, void *to, int taken, int64_t count)
{
    const int64_t bytes = sq_type_bytes(taken);
    for (int64_t i = 0; i < count; ++i) {
        int64_t value = given == ORT_INT64 ? ((const int64_t *)from)[i]
                        : given == ORT_INT32 ? ((const int32_t *)from)[i]
                                             : ((const uint8_t *)from)[i];
        switch (bytes) {
        case 1: ((uint8_t *)to)[i] = (uint8_t)value; break;
        case 2: ((uint16_t *)to)[i] = (uint16_t)value; break;
        case 4: ((uint32_t *)to)[i] = (uint32_t)value; break;
        default: ((uint64_t *)to)[i] = (uint64_t)value; break;
        }
    }
}
