/* attention_avx512.c - attention_vec.h for AVX-512: 32 registers. */
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/vec_math.h"

/* register tiles: queries x vectors of keys, queries x vectors of values */
enum {
    SCORE_QUERIES = 12, /* x 2 */
    SCORE_VECS_6 = 4,
    SCORE_VECS_4 = 4,
    VALUE_VECS_6 = 4,
};

#include "kernels/cpu/attention_vec.h"
