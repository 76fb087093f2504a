/* rope_plain.c - rope_store in plain C: the reference; and how the op is shared out among threads,
 * on every instruction set. */
#include <math.h>

#include "kernels/cpu/rope.h"
#include "kernels/weights.h"

static void head_norm(float *x, const float *weight, float eps, uint32_t dim)
{
    double sum = 0;
    for (uint32_t d = 0; d < dim; d++)
        sum += (double)x[d] * (double)x[d];
    float scale = (float)(1.0 / sqrt(sum / dim + (double)eps));
    for (uint32_t d = 0; d < dim; d++)
        x[d] = x[d] * scale * weight[d];
}

static void rotate(float *x, const float *table, uint32_t rope_dim)
{
    uint32_t half = rope_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        float c = table[2 * i], s = table[2 * i + 1], a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

uint16_t kv_scale(float amax, float *inverse)
{
    uint16_t scale = f32_to_f16(amax / 127.0f); /* +Inf where amax is too large or NaN */
    float back = f16_to_f32(scale);
    *inverse = back > 0 && isfinite(back) ? 1.0f / back : 0.0f;
    return isfinite(back) ? scale : 0x7e00;
}

static float abs_max(const float *x, uint32_t n)
{
    float amax = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= amax)) amax = isnan(x[i]) ? INFINITY : fabsf(x[i]);
    return amax;
}

static int8_t to_int8(float x)
{
    long q = lrintf(x); /* the scale was rounded, so 127.06 can occur */
    return (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
}

static void store(const struct kv_layer *kv, const struct kv_head *h, uint32_t token,
                  const float *k, const float *v)
{
    size_t v_at = (size_t)token * kv_dim_padded(kv->head_dim);
    float k_inverse = 0, v_inverse = 0;
    if (kv->type == KV_Q8) {
        h->k_scale[token] = kv_scale(abs_max(k, kv->head_dim), &k_inverse);
        h->v_scale[token] = kv_scale(abs_max(v, kv->head_dim), &v_inverse);
    }
    for (uint32_t d = 0; d < kv->head_dim; d++) {
        size_t k_at = (size_t)d * KV_BLOCK_TOKENS + token;
        if (kv->type == KV_F32) {
            ((float *)(void *)h->k)[k_at] = k[d];
            ((float *)(void *)h->v)[v_at + d] = v[d];
        } else if (kv->type == KV_F16) {
            ((uint16_t *)(void *)h->k)[k_at] = f32_to_f16(k[d]);
            ((uint16_t *)(void *)h->v)[v_at + d] = f32_to_f16(v[d]);
        } else {
            ((int8_t *)h->k)[k_at] = k_inverse > 0 ? to_int8(k[d] * k_inverse) : 0;
            ((int8_t *)h->v)[v_at + d] = v_inverse > 0 ? to_int8(v[d] * v_inverse) : 0;
        }
    }
}

void rope_walk(const struct op_rope_store *op, uint32_t ith, uint32_t nth,
               const struct rope_kernel *kernel)
{
    uint32_t dim = op->kv.head_dim, kv_heads = op->kv.kv_heads, group = op->q_heads / kv_heads;
    uint64_t units = (uint64_t)op->rows * kv_heads, end = units * (ith + 1) / nth;
    for (uint64_t unit = units * ith / nth; unit < end; unit++) {
        uint32_t r = (uint32_t)(unit / kv_heads), head = (uint32_t)(unit % kv_heads);
        const float *table = op->rope + (size_t)op->position[r] * op->rope_dim;
        float *q = op->q + (size_t)r * op->q_stride + (size_t)head * group * dim;
        float *k = op->k + (size_t)r * op->kv_stride + (size_t)head * dim;
        for (uint32_t g = 0; g < group; g++) {
            if (op->q_norm) kernel->norm(q + (size_t)g * dim, op->q_norm, op->norm_eps, dim);
            kernel->rotate(q + (size_t)g * dim, table, op->rope_dim);
        }
        if (op->k_norm) kernel->norm(k, op->k_norm, op->norm_eps, dim);
        kernel->rotate(k, table, op->rope_dim);
        struct kv_head h = kv_head_at(&op->kv, op->slot[r] / KV_BLOCK_TOKENS, head);
        kernel->store(&op->kv, &h, op->slot[r] % KV_BLOCK_TOKENS, k,
                      op->v + (size_t)r * op->kv_stride + (size_t)head * dim);
    }
}

void rope_store_plain(const struct op_rope_store *op, uint32_t ith, uint32_t nth)
{
    static const struct rope_kernel kernel = {head_norm, rotate, store};
    rope_walk(op, ith, nth, &kernel);
}
