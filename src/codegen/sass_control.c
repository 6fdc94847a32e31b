/* sass_control.c -- the scheduling bits of an instruction.
 *
 * From Volta on an instruction has 128 bits, and the compiler's schedule lies in bits 105 to
 * 125 of it, which nvdisasm does not show:
 *     105-108 stall, 109 yield (0: yield), 110-112 write barrier, 113-115 read barrier,
 *     116-121 wait mask, 122-124 reuse
 * Source: Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking",
 * 2018, section 2; unchanged up to sm_100.
 */
#include "sass.h"

#define NO_BARRIER 7

static unsigned bits(const eider_sass_instruction *i, int first, int n)
{
    return (unsigned)(i->words[1] >> (first - 64)) & ((1u << n) - 1);
}

static int8_t barrier(unsigned value)
{
    return value == NO_BARRIER ? -1 : (int8_t)value;
}

void eider_sass_control_decode(eider_sass_instruction *instruction)
{
    instruction->stall = (int8_t)bits(instruction, 105, 4);
    instruction->yield = !bits(instruction, 109, 1);
    instruction->write_barrier = barrier(bits(instruction, 110, 3));
    instruction->read_barrier = barrier(bits(instruction, 113, 3));
    instruction->wait = (uint8_t)bits(instruction, 116, 6);
    instruction->reuse = (uint8_t)bits(instruction, 122, 3);
}
