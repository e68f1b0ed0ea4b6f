/* ---- Steps of a GPU ---------------------------------------------------------------------------------------------- */

#if UINTPTR_MAX != UINT64_MAX
#error "NVIDIA's driver is for processors of 64 bits"
#endif

/* What cuMemAlloc promises for its own addresses. */
#define SQ_ALIGNMENT 256

struct sq_function {
    int module;
    const char *symbol;
    int shared; /* bytes of shared memory that launches give a block */
};

/* What a kernel gets: addresses, then numbers. */
struct sq_operand {
    enum sq_place place;
    int64_t at;
};

struct sq_number {
    size_t bytes; /* 4 or 8 */
    struct sq_ref size;
};

/* A condition on sizes. */
struct sq_range {
    struct sq_ref size;
    int64_t low, high;
};

/* One way to start a kernel, for sizes that are in all its ranges. */
struct sq_form {
    int function;
    unsigned threads;
    struct sq_ref blocks;
    int range, ranges; /* the first and how many, here and below */
};

struct sq_step {
    int form, forms; /* the first that fits is taken */
    int operand, operands;
    int number, numbers;
    struct sq_ref items;
    int flag;          /* the slot whose int32 tells of bad data, or -1 */
    const char *error; /* what is said then */
};
