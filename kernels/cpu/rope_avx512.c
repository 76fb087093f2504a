/* rope_avx512.c - rope_vec.h for AVX-512. */
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/rope_vec.h"
