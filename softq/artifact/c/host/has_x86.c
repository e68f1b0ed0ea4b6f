#include <cpuid.h>

static int sq_has(unsigned leaf, unsigned subleaf, int word, int bit, unsigned saved)
{
    unsigned registers[4] = {0, 0, 0, 0};
    if (__get_cpuid_max(leaf & 0x80000000u, NULL) < leaf) {
        return 0;
    }
    __cpuid_count(leaf, subleaf, registers[0], registers[1], registers[2], registers[3]);
    if (((registers[word] >> bit) & 1u) == 0) {
        return 0;
    }
    if (saved == 0) {
        return 1;
    }
    unsigned a = 0, b = 0, c = 0, d = 0;
    __cpuid_count(1u, 0u, a, b, c, d);
    if (((c >> 27) & 1u) == 0) {
        return 0;
    }
    __asm__ __volatile__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & saved) == saved;
}
