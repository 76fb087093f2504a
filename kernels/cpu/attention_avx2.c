/* attention_avx2.c - attention_vec.h for AVX2: 16 registers. */
#include "kernels/cpu/vec_avx2.h"
#include "kernels/cpu/vec_math.h"

/* register tiles: queries x vectors of keys, queries x vectors of values */
enum {
    SCORE_QUERIES = 6, /* x 2 */
    SCORE_VECS_6 = 2,
    SCORE_VECS_4 = 2,
    VALUE_VECS_6 = 2,
};

#include "kernels/cpu/attention_vec.h"
