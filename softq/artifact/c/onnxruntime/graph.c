/* ---- What is known of an attention ---- */

/* What a step reads. */
struct sq_state {
    const int64_t *dim, *size;
    unsigned char *const *slot;
    unsigned char *const *input;
    unsigned char *const *output;
    unsigned char *weights;
};

/* An input or output. */
struct sq_port {
    const char *name;
    int type;
    int rank;
    struct sq_ref shape[SQ_MOST_RANK];
};

struct sq_step {
    void (*run)(const struct sq_state *s, unsigned char *scratch, int64_t begin, int64_t end);
    struct sq_ref items;
    struct sq_ref cost; /* of all items, in elements that are moved */
};

struct sq_limit {
    struct sq_ref size;
    int64_t low, high;
    const char *because;
};

struct sq_graph {
    const char *name;
    int inputs, outputs, dims, sizes, slots, steps, limits;
    const struct sq_port *input, *output;
    const struct sq_ref *slot; /* bytes */
    const struct sq_step *step;
    const struct sq_limit *limit;
    unsigned char *constants;
    int (*compute)(const int64_t *dim, int64_t *size);
    struct sq_ref scratch; /* bytes for each thread */
};

/* What onnxruntime is given of an attention; it hands the pointer back. */
struct sq_attention_operator {
    struct ort_op op;
    const struct sq_graph *graph;
};

