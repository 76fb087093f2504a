/* norm_avx512.c - norm_vec.h for AVX-512. */
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/norm_vec.h"
