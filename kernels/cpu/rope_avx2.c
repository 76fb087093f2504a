/* rope_avx2.c - rope_vec.h for AVX2. */
#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/rope_vec.h"
