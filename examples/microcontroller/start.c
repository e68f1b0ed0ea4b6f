/* Starting without a system, printing by semihosting, and counting instructions: Cortex-M and 32-bit RISC-V. */
#include "board.h"

#include <string.h>

extern uint32_t _stack_top, _bss_begin, _bss_end, _data_begin, _data_end, _data_load;

#if defined(__arm__)
static int semihost(int operation, const void *argument)
{
    register int r0 __asm("r0") = operation;
    register const void *r1 __asm("r1") = argument;
    __asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

/* SysTick counts down 24 bits in ticks of the board's clock, and interrupts when it begins again. With qemu's
 * -icount shift=0 an instruction is a nanosecond. */
static volatile uint32_t *const systick = (volatile uint32_t *)0xE000E010;
static volatile uint32_t turns;

static void count_turn(void)
{
    ++turns;
}

static void count_begin(void)
{
    systick[1] = 0xFFFFFF;
    systick[2] = 0;
    systick[0] = 7;
    while (systick[2] == 0) { /* It begins at its next tick. */
    }
    turns = 0;
}

uint32_t count_now(void)
{
    uint32_t turn, ticks;
    do {
        turn = turns;
        ticks = 0xFFFFFF - systick[2];
    } while (turn != turns);
    return (turn << 24) + ticks;
}
#else
static int semihost(int operation, const void *argument)
{
    register int a0 __asm("a0") = operation;
    register const void *a1 __asm("a1") = argument;
    __asm volatile(".option push\n.option norvc\nslli x0, x0, 0x1f\nebreak\nsrai x0, x0, 7\n.option pop"
                   : "+r"(a0)
                   : "r"(a1)
                   : "memory");
    return a0;
}

static void count_begin(void)
{
}

uint32_t count_now(void)
{
    uint32_t count;
    __asm volatile(".option push\n.option arch, +zicsr\ncsrr %0, minstret\n.option pop" : "=r"(count));
    return count;
}
#endif

uint32_t count_from(uint32_t before)
{
    return count_now() - before;
}

void print_text(const char *text)
{
    semihost(4, text);
}

void print_number(uint32_t value)
{
    static const char digits[] = "0123456789abcdef";
    char text[10];
    for (int i = 0; i < 8; ++i) {
        text[i] = digits[value >> (28 - 4 * i) & 15];
    }
    text[8] = '\n';
    text[9] = 0;
    print_text(text);
}

void print_bytes(const void *bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i += 4) {
        uint32_t word = 0;
        memcpy(&word, (const uint8_t *)bytes + i, count - i < 4 ? count - i : 4);
        print_number(word);
    }
}

/* The stack is painted before, and looked at afterwards. */
#define PAINT 0xA5A5A5A5u
extern uint32_t _stack_limit;

static void paint(void)
{
    /* This function's own words, which lie at the top, are left. */
    uint32_t *const end = (uint32_t *)((uintptr_t)__builtin_frame_address(0) - 64);
    for (uint32_t *at = &_stack_limit; at < end; ++at) {
        *at = PAINT;
    }
}

uint32_t stack_used(void)
{
    uint32_t *at = &_stack_limit;
    while (at < &_stack_top && *at == PAINT) {
        ++at;
    }
    return (uint32_t)((char *)&_stack_top - (char *)at);
}

void start(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;
    __asm volatile("dsb\nisb");
#endif
    memset(&_bss_begin, 0, (size_t)((char *)&_bss_end - (char *)&_bss_begin));
    memcpy(&_data_begin, &_data_load, (size_t)((char *)&_data_end - (char *)&_data_begin));
    paint();
    count_begin();
    const int code = main();
    /* The reasons "application exit" and "run-time error", which qemu makes its exit codes 0 and 1. */
    semihost(0x18, (const void *)(uintptr_t)(code == 0 ? 0x20026 : 0x20023));
    for (;;) {
    }
}

#if defined(__arm__)
__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    [0] = (void *)&_stack_top,
    [1] = (void *)start,
    [15] = (void *)count_turn,
};
#else
__attribute__((section(".vectors"), naked, used)) void _start(void)
{
#if defined(__riscv_flen)
    __asm volatile("li t0, 0x2000\ncsrs mstatus, t0");
#endif
    __asm volatile("la sp, _stack_top\nj start");
}
#endif
