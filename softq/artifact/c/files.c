/* ---- Files: the weights, mapped into memory ---------------------------------------------------------------------- */

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sq_file {
    unsigned char *data;
    size_t bytes;
};

static void sq_explain(char *text, size_t bytes, int number)
{
    if (strerror_r(number, text, bytes) != 0) {
        snprintf(text, bytes, "error %d", number);
    }
}

static softq_status sq_map_file(struct sq_file *weights, const char *path, int file, char *error)
{
    struct stat status;
    char why[128];
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        return sq_fail(error, SOFTQ_BAD_WEIGHTS, "'%.300s' is not a file", path);
    }
    if ((uint64_t)status.st_size != SQ_WEIGHTS_BYTES) {
        return sq_fail(error, SOFTQ_BAD_WEIGHTS,
                       "'%.300s' has %" PRIu64 " bytes; expected %" PRIu64 ": it is truncated, or of another model",
                       path, (uint64_t)status.st_size, SQ_WEIGHTS_BYTES);
    }
    if (SQ_WEIGHTS_BYTES > SIZE_MAX / 2) {
        return sq_fail(error, SOFTQ_NO_MEMORY, "'%.300s' is larger than this processor's address space", path);
    }
    weights->bytes = (size_t)SQ_WEIGHTS_BYTES;
    void *data = mmap(NULL, weights->bytes, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) {
        sq_explain(why, sizeof why, errno);
        return sq_fail(error, SOFTQ_NO_MEMORY, "'%.300s' cannot be mapped: %s", path, why);
    }
    weights->data = data;
    if (memcmp(weights->data + (weights->bytes - sizeof sq_seal), sq_seal, sizeof sq_seal) != 0) {
        munmap(data, weights->bytes);
        return sq_fail(error, SOFTQ_BAD_WEIGHTS, "'%.300s' holds the weights of another model", path);
    }
    return SOFTQ_OK;
}

static softq_status sq_map(struct sq_file *weights, const char *folder, char *error)
{
    static const char name[] = "/weights.bin";
    char why[128];
    size_t length = strlen(folder);
    char *path = malloc(length + sizeof name);
    if (path == NULL) {
        return sq_fail(error, SOFTQ_NO_MEMORY, "there is no memory for the path of the weights");
    }
    memcpy(path, folder, length);
    memcpy(path + length, name, sizeof name);
    /* A pipe under that name must not make the caller wait. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    softq_status status;
    if (file < 0) {
        sq_explain(why, sizeof why, errno);
        status = sq_fail(error, SOFTQ_BAD_WEIGHTS, "'%.300s' cannot be opened: %s", path, why);
    } else {
        status = sq_map_file(weights, path, file, error);
        close(file);
    }
    free(path);
    return status;
}

static void sq_unmap(struct sq_file *weights)
{
    munmap(weights->data, weights->bytes);
}
