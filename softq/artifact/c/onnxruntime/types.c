/* ---- What is known of an operator ---- */

#define SQ_MOST_AXES 32
#define SQ_MOST_OUTPUTS 2

/* A number or table that the kernel is given: one for all rows, or one for each head. */
struct sq_parameter {
    const char *name;
    int given; /* the function's element type */
    int taken; /* the kernel's */
    int per_head;
    int64_t size;
};

/* What a kernel is called with. */
struct sq_call {
    const void *scores;
    const void *valid;
    const void *const *parameters;
    void *outputs[SQ_MOST_OUTPUTS];
    void *scratch;
    int64_t length, heads, queries;
    int64_t strides[4]; /* of the mask: over the leading axes, heads, queries, elements */
};

struct sq_facts {
    const char *name;
    int scores;
    int masked;
    int dense; /* the kernel reads a mask with an element for each of the scores, even where there is none */
    int parameters;
    const struct sq_parameter *parameter;
    int ignored; /* inputs behind the parameters: the function's offsets in tables */
    int outputs;
    int is_row[SQ_MOST_OUTPUTS];
    int64_t longest;
    int64_t scratch_bytes; /* for each element */
    void (*run)(const struct sq_call *call, int64_t begin, int64_t end);
};

/* What onnxruntime is given of an operator; it hands the pointer back. */
struct sq_operator {
    struct ort_op op;
    const struct sq_facts *facts;
};
