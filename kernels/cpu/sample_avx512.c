/* sample_avx512.c - sample_vec.h for AVX-512. */
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/vec_math.h"

#include "kernels/cpu/sample_vec.h"
