/* norm_avx2.c - norm_vec.h for AVX2. */
#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/norm_vec.h"
