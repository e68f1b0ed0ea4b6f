/* ---- Types ------------------------------------------------------------------------------------------------------ */

/* Where a tensor's memory is: the number of the input, output or slot, or the offset in the weights. */
enum sq_place { SQ_INPUT, SQ_OUTPUT, SQ_WEIGHT, SQ_SLOT };

struct sq_interface {
    const char *name;
    softq_dtype dtype;
    int rank;
    struct sq_ref shape[SOFTQ_MAX_RANK];
    enum sq_place place;
    int64_t at;
};

struct sq_limit {
    struct sq_ref size;
    int64_t low, high;
    const char *because;
};

/* All that a step reads. */
struct sq_state {
    int64_t dim[SQ_DIMS + 1];
    int64_t size[SQ_SIZES + 1];
    sq_address slot[SQ_SLOTS + 1];
    sq_address input[SQ_INPUTS + 1];
    sq_address output[SQ_OUTPUTS + 1];
    sq_address weights;
};
