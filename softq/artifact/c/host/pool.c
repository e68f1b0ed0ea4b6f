/* ---- Threads ----------------------------------------------------------------------------------------------------- */

#include <pthread.h>
#include <signal.h>

/* A pool of threads that share the items of one step after another.
 *
 * `state` is the whole protocol: how many workers are inside the job, whether more may enter, and the job's number.
 * A worker enters a job at most once and only while it is open, so that one that wakes late finds nothing to do and
 * nobody waits for it. Whoever is about to sleep says so first and then looks once more; whoever changes what others
 * wait for does it first and then looks who sleeps. */
#define SQ_ACTIVE 0xffffu
#define SQ_OPEN 0x10000u
#define SQ_JOB 0x20000u
#define SQ_JOBS 0xfffe0000u

/* Looks at a variable before a thread sleeps: some 50 microseconds, about what waking costs. */
#define SQ_SPINS 2000

struct sq_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake; /* workers: there is a job, or the end */
    pthread_cond_t idle; /* the owner: nobody is inside the job */
    pthread_t *threads;
    int count; /* of the workers; the owner works too */
    int spins;
    pid_t process;
    unsigned state, sleepers, waiting, quit;
    /* The job. */
    sq_work *work;
    const struct sq_state *model;
    const struct sq_scratch *scratch;
    int64_t items;
    unsigned chunks, next, entered;
};

static inline void sq_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__ARM_ARCH) && __ARM_ARCH >= 7)
    __asm__ __volatile__("yield");
#endif
}

/* Do chunks of the job until none is left. */
static void sq_pool_work(struct sq_pool *pool, unsigned thread)
{
    int64_t each = pool->items / pool->chunks, rest = pool->items % pool->chunks;
    for (;;) {
        unsigned chunk = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);
        if (chunk >= pool->chunks) {
            return;
        }
        int64_t begin = chunk * each + (chunk < rest ? chunk : rest);
        pool->work(pool->model, sq_scratch_of(pool->scratch, thread), begin, begin + each + (chunk < rest));
    }
}

static int sq_pool_called(struct sq_pool *pool, unsigned seen)
{
    unsigned state = __atomic_load_n(&pool->state, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&pool->quit, __ATOMIC_SEQ_CST) || ((state & SQ_OPEN) && (state & SQ_JOBS) != seen);
}

static void sq_pool_sleep(struct sq_pool *pool, unsigned seen)
{
    pthread_mutex_lock(&pool->lock);
    __atomic_fetch_add(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
    while (!sq_pool_called(pool, seen)) {
        pthread_cond_wait(&pool->wake, &pool->lock);
    }
    __atomic_fetch_sub(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool->lock);
}

static void *sq_pool_worker(void *argument)
{
    struct sq_pool *pool = argument;
    unsigned seen = 0;
    int spins = 0;
    while (!__atomic_load_n(&pool->quit, __ATOMIC_ACQUIRE)) {
        unsigned state = __atomic_load_n(&pool->state, __ATOMIC_ACQUIRE);
        if (!(state & SQ_OPEN) || (state & SQ_JOBS) == seen) {
            if (spins++ < pool->spins) {
                sq_pause();
            } else {
                sq_pool_sleep(pool, seen);
                spins = 0;
            }
            continue;
        }
        if (!__atomic_compare_exchange_n(&pool->state, &state, state + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            continue;
        }
        seen = state & SQ_JOBS;
        /* A worker enters a job once, so that numbers up to the count of workers are enough. */
        sq_pool_work(pool, __atomic_add_fetch(&pool->entered, 1, __ATOMIC_RELAXED));
        state = __atomic_fetch_sub(&pool->state, 1, __ATOMIC_SEQ_CST);
        if ((state & SQ_ACTIVE) == 1 && !(state & SQ_OPEN) && __atomic_load_n(&pool->waiting, __ATOMIC_SEQ_CST)) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->idle);
            pthread_mutex_unlock(&pool->lock);
        }
        spins = 0;
    }
    return NULL;
}

/* Do a step on all threads, in so many chunks. */
static void sq_pool_run(struct sq_pool *pool, sq_work *work, const struct sq_state *model,
                        const struct sq_scratch *scratch, int64_t items, unsigned chunks)
{
    pool->work = work;
    pool->model = model;
    pool->scratch = scratch;
    pool->items = items;
    pool->chunks = chunks;
    __atomic_store_n(&pool->next, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&pool->entered, 0, __ATOMIC_RELAXED);
    unsigned state = __atomic_load_n(&pool->state, __ATOMIC_RELAXED);
    __atomic_store_n(&pool->state, (state + SQ_JOB) | SQ_OPEN, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool->sleepers, __ATOMIC_SEQ_CST) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
    sq_pool_work(pool, 0);
    __atomic_fetch_and(&pool->state, ~SQ_OPEN, __ATOMIC_SEQ_CST);
    for (int spins = 0; spins < pool->spins; spins++) {
        if ((__atomic_load_n(&pool->state, __ATOMIC_ACQUIRE) & SQ_ACTIVE) == 0) {
            return;
        }
        sq_pause();
    }
    pthread_mutex_lock(&pool->lock);
    __atomic_store_n(&pool->waiting, 1, __ATOMIC_SEQ_CST);
    while ((__atomic_load_n(&pool->state, __ATOMIC_SEQ_CST) & SQ_ACTIVE) != 0) {
        pthread_cond_wait(&pool->idle, &pool->lock);
    }
    __atomic_store_n(&pool->waiting, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool->lock);
}

/* Threads do not follow their process into a fork: there, the caller's thread does everything. */
static int sq_pool_here(const struct sq_pool *pool)
{
    return pool != NULL && pool->process == getpid();
}

static void sq_pool_free(struct sq_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    if (sq_pool_here(pool)) {
        pthread_mutex_lock(&pool->lock);
        __atomic_store_n(&pool->quit, 1, __ATOMIC_SEQ_CST);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
        for (int i = 0; i < pool->count; i++) {
            pthread_join(pool->threads[i], NULL);
        }
        pthread_cond_destroy(&pool->idle);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->lock);
    }
    free(pool->threads);
    free(pool);
}

/* Return a pool with so many threads beside the caller's, or NULL. */
static struct sq_pool *sq_pool_new(int count)
{
    struct sq_pool *pool = calloc(1, sizeof *pool);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pool == NULL || threads == NULL || pthread_attr_init(&attributes) != 0) {
        free(threads);
        free(pool);
        return NULL;
    }
    pool->threads = threads;
    pool->process = getpid();
    /* Threads that share a processor must not burn each other's time. */
    pool->spins = sysconf(_SC_NPROCESSORS_ONLN) > count ? SQ_SPINS : 0;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->idle, NULL);
    pthread_attr_setstacksize(&attributes, (size_t)1 << 21);
    /* The process's signals are for the process's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    while (pool->count < count && pthread_create(&threads[pool->count], &attributes, sq_pool_worker, pool) == 0) {
        pool->count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (pool->count < count) {
        sq_pool_free(pool);
        return NULL;
    }
    return pool;
}
