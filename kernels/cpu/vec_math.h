/* vec_math.h - exp2 and log in the words of vec_avx512.h or vec_avx2.h, one of which the includer
 * has included. The polynomials are near-minimax fits of this project, errors below 1e-8 of the
 * value; what remains is the rounding of float32: about 1 ulp for exp2, 2 ulp for log away from 1.
 */
#ifndef PENSTOCK_KERNELS_CPU_VEC_MATH_H
#define PENSTOCK_KERNELS_CPU_VEC_MATH_H

#define VEC_LOG2E 1.44269504f

/* 2^x for x <= 0: exactly 1 at 0, 0 below -126, NaN for NaN. */
VEC_INLINE vec vec_exp2(vec x)
{
    vec n = vec_round(x), r = vec_sub(x, n);
    vec q = vec_fma(vec_set(1.535336188e-04f), r, vec_set(1.339887442e-03f));
    q = vec_fma(q, r, vec_set(9.618437358e-03f));
    q = vec_fma(q, r, vec_set(5.550332471e-02f));
    q = vec_fma(q, r, vec_set(2.402264791e-01f));
    q = vec_fma(q, r, vec_set(6.931472029e-01f));
    q = vec_fma(q, r, vec_set(1.0f));
    return vec_scale_keep(q, n, vec_not_less(x, vec_set(-126.0f)));
}

/* log((1 + f) * 2^e), f within [sqrt(1/2) - 1, sqrt(2) - 1] */
VEC_INLINE vec vec_log_of(vec f, vec e)
{
    vec q = vec_fma(vec_set(-7.634496525e-02f), f, vec_set(1.276157704e-01f));
    q = vec_fma(q, f, vec_set(-1.316018240e-01f));
    q = vec_fma(q, f, vec_set(1.420175800e-01f));
    q = vec_fma(q, f, vec_set(-1.662335734e-01f));
    q = vec_fma(q, f, vec_set(2.000122688e-01f));
    q = vec_fma(q, f, vec_set(-2.500082103e-01f));
    q = vec_fma(q, f, vec_set(3.333333171e-01f));
    q = vec_fma(q, f, vec_set(-0.5f));
    q = vec_fma(vec_mul(f, f), q, f);
    return vec_fma(e, vec_set(0.693147181f), q);
}

/* x = (1 + f) * 2^e; x positive and normal */
VEC_INLINE void vec_log_parts(vec x, vec *f, vec *e)
{
    ivec bits = ivec_bits_of(x), root_half = ivec_set(0x3f3504f3);
    ivec exponent = ivec_exponent(ivec_sub(bits, root_half));
    *f = vec_sub(vec_from_bits(ivec_sub(bits, ivec_shift_exponent(exponent))), vec_set(1.0f));
    *e = vec_from_signed(exponent);
}

#endif
