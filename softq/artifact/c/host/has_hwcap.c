#include <sys/auxv.h>

static int sq_has(int word, int bit)
{
    /* AT_HWCAP is 16 and AT_HWCAP2 is 26 on every Linux; old headers lack the second. */
    return ((getauxval(word == 1 ? 16 : 26) >> bit) & 1u) != 0;
}
