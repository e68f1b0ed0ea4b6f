/* ---- Sizes ------------------------------------------------------------------------------------------------------ */

/* A size: a number, a dimension of the inputs, or one that sq_compute computes of them. */
enum sq_kind { SQ_NUMBER, SQ_DIM, SQ_SIZE };

struct sq_ref {
    enum sq_kind kind;
    int64_t value; /* the number, or the index in `dim` or `size` */
};

/* ---- Arithmetic on sizes: int64 with a note of overflow --------------------------------------------------------- */

/* A dimension that data decide, until a step has measured it, and every size that is computed of it. */
#define SQ_UNKNOWN INT64_MIN

SQ_MAYBE_UNUSED static int sq_is_unknown(int64_t a, int64_t b)
{
    return SQ_MEASURED > 0 && (a == SQ_UNKNOWN || b == SQ_UNKNOWN);
}

SQ_MAYBE_UNUSED static int64_t sq_add(int *bad, int64_t a, int64_t b)
{
    if (sq_is_unknown(a, b)) {
        return SQ_UNKNOWN;
    }
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) {
        *bad = 1;
        return 0;
    }
    return a + b;
}

SQ_MAYBE_UNUSED static int64_t sq_sub(int *bad, int64_t a, int64_t b)
{
    if (sq_is_unknown(a, b)) {
        return SQ_UNKNOWN;
    }
    if (b > 0 ? a < INT64_MIN + b : a > INT64_MAX + b) {
        *bad = 1;
        return 0;
    }
    return a - b;
}

SQ_MAYBE_UNUSED static int64_t sq_mul(int *bad, int64_t a, int64_t b)
{
    if (sq_is_unknown(a, b)) {
        return SQ_UNKNOWN;
    }
    int over = 0;
    if (a > 0) {
        over = b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a;
    } else if (a < 0) {
        over = b > 0 ? a < INT64_MIN / b : b != 0 && a < INT64_MAX / b;
    }
    if (over) {
        *bad = 1;
        return 0;
    }
    return a * b;
}

SQ_MAYBE_UNUSED static int64_t sq_floordiv(int *bad, int64_t a, int64_t b)
{
    if (sq_is_unknown(a, b)) {
        return SQ_UNKNOWN;
    }
    if (b <= 0) {
        *bad = 1;
        return 0;
    }
    return a / b - (a % b < 0);
}

SQ_MAYBE_UNUSED static int64_t sq_floormod(int *bad, int64_t a, int64_t b)
{
    if (sq_is_unknown(a, b)) {
        return SQ_UNKNOWN;
    }
    if (b <= 0) {
        *bad = 1;
        return 0;
    }
    return a % b + (a % b < 0 ? b : 0);
}

SQ_MAYBE_UNUSED static int64_t sq_min(int *bad, int64_t a, int64_t b)
{
    (void)bad;
    return sq_is_unknown(a, b) ? SQ_UNKNOWN : a < b ? a : b;
}

SQ_MAYBE_UNUSED static int64_t sq_max(int *bad, int64_t a, int64_t b)
{
    (void)bad;
    return sq_is_unknown(a, b) ? SQ_UNKNOWN : a > b ? a : b;
}

/* The greater one of those that are known: memory that is taken before data have decided all dimensions. */
SQ_MAYBE_UNUSED static int64_t sq_room(int *bad, int64_t a, int64_t b)
{
    (void)bad;
    return a > b ? a : b; /* SQ_UNKNOWN is the least number. */
}
