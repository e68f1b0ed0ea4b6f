#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softq.h"

#define SQ_MOST_THREADS 1024

#if defined(__GNUC__)
#define SQ_MAYBE_UNUSED __attribute__((unused))
#define SQ_HIDDEN __attribute__((visibility("hidden")))
#define SQ_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#error "the driver is written for GCC and Clang"
#endif

/* Write a message of at most SOFTQ_ERROR_BYTES and return the status that it explains. */
SQ_PRINTF(3, 4) static softq_status sq_fail(char *error, softq_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, SOFTQ_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return status;
}
