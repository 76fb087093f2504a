/* sample_avx2.c - sample_vec.h for AVX2. */
#include "kernels/cpu/vec_avx2.h"
#include "kernels/cpu/vec_math.h"

#include "kernels/cpu/sample_vec.h"
