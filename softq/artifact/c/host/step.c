/* ---- Steps of a processor ---------------------------------------------------------------------------------------- */

#define SQ_ALIGNMENT 64

/* Memory that each thread has of its own. */
struct sq_scratch {
    unsigned char *data;
    size_t bytes; /* of each thread */
};

static unsigned char *sq_scratch_of(const struct sq_scratch *scratch, unsigned thread)
{
    return scratch->data + thread * scratch->bytes;
}

/* The work items of a step from `begin` up to `end`; `scratch` is memory of the calling thread. */
typedef void sq_work(const struct sq_state *s, unsigned char *scratch, int64_t begin, int64_t end);

struct sq_step {
    sq_work *work;
    struct sq_ref items;
    struct sq_ref cost;
    int flag;          /* the slot whose int32 tells of bad data, or -1 */
    const char *error; /* what is said then */
};

