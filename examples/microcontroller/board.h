/* What start.c has for programs: printing by semihosting, a counter, and how deep the stack was. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

void print_text(const char *text);
void print_number(uint32_t value); /* in hexadecimal, with a new line */
void print_bytes(const void *bytes, uint32_t count); /* as such numbers of four bytes, the last filled up with zeros */

/* On Arm ticks of the board's clock, on RISC-V instructions. */
uint32_t count_now(void);
uint32_t count_from(uint32_t before);

uint32_t stack_used(void); /* the most bytes until now */

int main(void);

#endif
