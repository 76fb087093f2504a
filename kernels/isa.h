/* isa.h - which instruction set the CPU ops run on: chosen once by CPUID, or forced. Pure; call
 * before anything else. */
#ifndef PENSTOCK_KERNELS_ISA_H
#define PENSTOCK_KERNELS_ISA_H

#include <stdbool.h>

enum isa {
    ISA_PLAIN,  /* C only: the reference, always there */
    ISA_AVX2,   /* AVX2, FMA, F16C */
    ISA_AVX512, /* AVX-512 F, BW, VL, DQ, VNNI */
    ISA_COUNT_
};

enum isa isa_best(void);            /* of this machine (CPUID and XCR0) */
bool isa_supported(enum isa isa);   /* built in, and this machine has it */
const char *isa_name(enum isa isa); /* "plain", "avx2", "avx512-vnni" */

#endif
