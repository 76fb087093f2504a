/* isa.c - CPUID once per question: cheap enough, and no state. */
#include "kernels/isa.h"

#include <cpuid.h>
#include <stdint.h>

static bool leaf(uint32_t number, uint32_t reg[4])
{
    return __get_cpuid_count(number, 0, &reg[0], &reg[1], &reg[2], &reg[3]) != 0;
}

/* Which register states the operating system saves (XCR0). */
static uint32_t saved_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool isa_supported(enum isa isa)
{
    if (isa == ISA_PLAIN) return true;
    uint32_t one[4], seven[4];
    if (!leaf(1, one) || !leaf(7, seven)) return false;
    if (!(one[2] & bit_OSXSAVE)) return false;
    uint32_t states = saved_states();
    bool avx2 = (states & 6) == 6 && (one[2] & bit_FMA) && (one[2] & bit_F16C) &&
                (seven[1] & bit_AVX2) && (seven[1] & bit_BMI2);
    if (isa == ISA_AVX2) return avx2;
    return isa == ISA_AVX512 && avx2 && (states & 0xe6) == 0xe6 && (seven[1] & bit_AVX512F) &&
           (seven[1] & bit_AVX512BW) && (seven[1] & bit_AVX512VL) && (seven[1] & bit_AVX512DQ) &&
           (seven[2] & bit_AVX512VNNI);
}

enum isa isa_best(void)
{
    if (isa_supported(ISA_AVX512)) return ISA_AVX512;
    return isa_supported(ISA_AVX2) ? ISA_AVX2 : ISA_PLAIN;
}

const char *isa_name(enum isa isa)
{
    static const char *const name[ISA_COUNT_] = {"plain", "avx2", "avx512-vnni"};
    return (unsigned)isa < ISA_COUNT_ ? name[isa] : "unknown";
}
