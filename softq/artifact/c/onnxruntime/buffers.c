/* ---- Memory between calls: operators of one library share it, layer after layer finds it in the caches ---- */

#define SQ_SPARES 64
#define SQ_ALIGNMENT 64

/* Stands in front of the memory, in the last bytes before it. */
struct sq_buffer {
    size_t bytes;
    void *start;
};

/* Of each kind there are soon only buffers large enough for every operator. */
enum sq_use { SQ_ARENA, SQ_SCRATCH, SQ_USES };

static struct sq_buffer *sq_spares[SQ_USES][SQ_SPARES];
static int sq_users;

static unsigned char *sq_memory(struct sq_buffer *buffer)
{
    return (unsigned char *)(buffer + 1);
}

static void sq_free_buffer(struct sq_buffer *buffer)
{
    if (buffer != NULL) {
        free(buffer->start);
    }
}

/* Return at least so many bytes, a spare buffer's if one is large enough, or NULL. */
static struct sq_buffer *sq_take_buffer(enum sq_use use, size_t bytes)
{
    struct sq_buffer **spares = sq_spares[use];
    for (int i = 0; i < SQ_SPARES; ++i) {
        if (__atomic_load_n(&spares[i], __ATOMIC_RELAXED) == NULL) {
            continue;
        }
        struct sq_buffer *spare = __atomic_exchange_n(&spares[i], NULL, __ATOMIC_ACQ_REL);
        if (spare != NULL && spare->bytes >= bytes) {
            return spare;
        }
        sq_free_buffer(spare);
    }
    void *start = malloc(bytes + sizeof(struct sq_buffer) + SQ_ALIGNMENT);
    if (start == NULL) {
        return NULL;
    }
    uintptr_t at = ((uintptr_t)start + sizeof(struct sq_buffer) + SQ_ALIGNMENT - 1) & ~(uintptr_t)(SQ_ALIGNMENT - 1);
    struct sq_buffer *buffer = (struct sq_buffer *)at - 1;
    buffer->bytes = bytes;
    buffer->start = start;
    return buffer;
}

static void sq_give_buffer(enum sq_use use, struct sq_buffer *buffer)
{
    for (int i = 0; buffer != NULL && i < SQ_SPARES; ++i) {
        struct sq_buffer *none = NULL;
        if (__atomic_compare_exchange_n(&sq_spares[use][i], &none, buffer, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            return;
        }
    }
    sq_free_buffer(buffer);
}

static void sq_start_use(void)
{
    __atomic_add_fetch(&sq_users, 1, __ATOMIC_ACQ_REL);
}

/* The last kernel that goes takes the spare buffers with it. */
static void sq_end_use(void)
{
    if (__atomic_sub_fetch(&sq_users, 1, __ATOMIC_ACQ_REL) == 0) {
        for (int i = 0; i < SQ_USES * SQ_SPARES; ++i) {
            sq_free_buffer(__atomic_exchange_n(&sq_spares[i / SQ_SPARES][i % SQ_SPARES], NULL, __ATOMIC_ACQ_REL));
        }
    }
}
