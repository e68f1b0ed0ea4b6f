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

/* What comes behind a step: the next one, another one if the int32 in its slot is not 0, or new sizes of dimensions that
 * are the int64 in its slot. */
enum sq_then { SQ_NEXT, SQ_JUMP, SQ_MEASURE };

struct sq_step {
    sq_work *work;
    struct sq_ref items;
    struct sq_ref cost;
    int flag;          /* the slot whose int32 tells of bad data, or -1 */
    const char *error; /* what is said then */
    enum sq_then then;
    int slot;
    int target; /* the step, or the first of the dimensions */
    int count;  /* of the dimensions */
};

