/* weights.c - the packed layout of a weight matrix.
 *
 * A matrix is a run of panels; a panel is 16 output rows over all columns, so a vector of 16 lanes
 * holds one value of each row and a kernel walks a panel from its first byte to its last.
 *
 * Q4, Q8: groups of 32 columns, in pairs:
 *
 *   | 16 x f16 scale, group 0 | 16 x f16 scale, group 1 |          one 64-byte line
 *   | 16 x f16 min,   group 0 | 16 x f16 min,   group 1 |          one line, only with has_min
 *   | q of group 0: lines of 64 bytes |  q of group 1   |
 *
 *   An odd last group has a whole line of scales with the second half zero, and its own q only.
 *   Line j holds four bytes of each row, row r at byte 4r: what one 8-bit dot product instruction
 *   multiplies with four activations that it broadcasts.
 *   Q8, 8 lines: byte i of row r in line j = column 4j + i.
 *   Q4, 4 lines: its low nibble = column 4j + i, its high nibble = column 16 + 4j + i.
 *
 * F32, F16, BF16: for each column the 16 rows' values; the panel is padded to 64 bytes.
 */
#include "kernels/weights.h"

#include <math.h>
#include <string.h>

#include "kernels/layout.h"

size_t weight_bytes(enum weight_type type, uint32_t rows, uint32_t cols, bool has_min)
{
    bool quantized = type == WEIGHT_Q4 || type == WEIGHT_Q8;
    if (rows == 0 || cols == 0 || type <= WEIGHT_NONE || type > WEIGHT_Q8) return 0;
    if ((quantized && cols % GROUP_COLS != 0) || (!quantized && has_min)) return 0;
    size_t panels = ((size_t)rows + PANEL_ROWS - 1) / PANEL_ROWS;
    return panels * panel_bytes(type, cols, has_min);
}

/* Where one group's parts are. */
struct group_at {
    uint16_t *scale, *min; /* [16]; min NULL without has_min */
    uint8_t *q;
};

static struct group_at group_find(const struct weight *w, uint32_t panel, uint32_t group)
{
    uint8_t *pair = weight_panel(w, panel) + group / 2 * pair_bytes(w->type, w->has_min);
    size_t half = group % 2;
    struct group_at at = {
        .scale = (uint16_t *)(void *)(pair + 32 * half),
        .min = w->has_min ? (uint16_t *)(void *)(pair + 64 + 32 * half) : NULL,
        .q = pair + pair_head_bytes(w->has_min) + half * group_q_bytes(w->type),
    };
    return at;
}

static void put_q4(uint8_t *out, const uint8_t q[PANEL_ROWS][GROUP_COLS])
{
    for (size_t r = 0; r < PANEL_ROWS; r++) {
        uint64_t low[2], high[2];
        memcpy(low, q[r], 16);
        memcpy(high, q[r] + 16, 16);
        for (size_t i = 0; i < 2; i++) {
            uint64_t both = low[i] | high[i] << 4; /* nibbles: nothing crosses a byte */
            memcpy(out + (2 * i) * 64 + 4 * r, &both, 4);
            both >>= 32;
            memcpy(out + (2 * i + 1) * 64 + 4 * r, &both, 4);
        }
    }
}

static void put_q8(uint8_t *out, const uint8_t q[PANEL_ROWS][GROUP_COLS])
{
    for (size_t r = 0; r < PANEL_ROWS; r++)
        for (size_t j = 0; j < GROUP_COLS / 4; j++)
            memcpy(out + 64 * j + 4 * r, q[r] + 4 * j, 4);
}

void weight_put_group(struct weight *w, uint32_t panel, uint32_t group, const struct panel_group *g)
{
    struct group_at at = group_find(w, panel, group);
    memcpy(at.scale, g->scale, sizeof(g->scale));
    if (w->has_min) memcpy(at.min, g->min, sizeof(g->min));
    bool last_odd = group % 2 == 0 && group + 1 == w->cols / GROUP_COLS;
    if (last_odd) {
        memset(at.scale + PANEL_ROWS, 0, sizeof(g->scale));
        if (w->has_min) memset(at.min + PANEL_ROWS, 0, sizeof(g->min));
    }
    if (w->type == WEIGHT_Q4)
        put_q4(at.q, g->q);
    else
        put_q8(at.q, g->q);
}

/* Sources may be unaligned: they lie in a mapped file. step[r] is 0 for a row that is not there,
 * whose src is one zero. */
static void put_rows16(uint8_t *out, const uint8_t *const src[PANEL_ROWS],
                       const size_t step[PANEL_ROWS], size_t cols)
{
    for (size_t c = 0; c < cols; c++)
        for (size_t r = 0; r < PANEL_ROWS; r++, out += 2)
            memcpy(out, src[r] + 2 * c * step[r], 2);
}

static void put_rows32(uint8_t *out, const uint8_t *const src[PANEL_ROWS],
                       const size_t step[PANEL_ROWS], size_t cols)
{
    for (size_t c = 0; c < cols; c++)
        for (size_t r = 0; r < PANEL_ROWS; r++, out += 4)
            memcpy(out, src[r] + 4 * c * step[r], 4);
}

void weight_put_rows(struct weight *w, uint32_t panel, const void *const src[PANEL_ROWS])
{
    static const uint8_t zero[4];
    const uint8_t *from[PANEL_ROWS];
    size_t step[PANEL_ROWS];
    for (size_t r = 0; r < PANEL_ROWS; r++) {
        from[r] = src[r] ? src[r] : zero;
        step[r] = src[r] ? 1 : 0;
    }
    uint8_t *out = weight_panel(w, panel);
    size_t used = (size_t)w->cols * PANEL_ROWS * float_bytes(w->type);
    memset(out + used, 0, panel_bytes(w->type, w->cols, false) - used);
    if (w->type == WEIGHT_F32)
        put_rows32(out, from, step, w->cols);
    else
        put_rows16(out, from, step, w->cols);
}

static void get_quantized_row(const struct weight *w, uint32_t row, float *out)
{
    size_t r = row % PANEL_ROWS;
    for (uint32_t g = 0; g < w->cols / GROUP_COLS; g++, out += GROUP_COLS) {
        struct group_at at = group_find(w, row / PANEL_ROWS, g);
        float scale = f16_to_f32(at.scale[r]);
        float min = w->has_min ? f16_to_f32(at.min[r]) : -(float)w->zero * scale;
        for (uint32_t c = 0; c < GROUP_COLS; c++) {
            uint32_t k = w->type == WEIGHT_Q4 ? c % 16 : c;
            uint8_t byte = at.q[64 * (k / 4) + 4 * r + k % 4];
            if (w->type == WEIGHT_Q4) byte = c < 16 ? byte & 15 : byte >> 4;
            out[c] = fmaf((float)byte, scale, min);
        }
    }
}

void weight_get_row(const struct weight *w, uint32_t row, float *out)
{
    if (w->type == WEIGHT_Q4 || w->type == WEIGHT_Q8) {
        get_quantized_row(w, row, out);
        return;
    }
    const uint8_t *in = weight_panel(w, row / PANEL_ROWS);
    for (size_t c = 0; c < w->cols; c++) {
        size_t at = c * PANEL_ROWS + row % PANEL_ROWS;
        if (w->type == WEIGHT_F32)
            out[c] = ((const float *)(const void *)in)[at];
        else if (w->type == WEIGHT_F16)
            out[c] = f16_to_f32(((const uint16_t *)(const void *)in)[at]);
        else
            out[c] = bf16_to_f32(((const uint16_t *)(const void *)in)[at]);
    }
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    union {
        uint32_t u;
        float f;
    } v;
    if (magnitude >= 0x7c00) /* Inf, NaN */
        v.u = 0x7f800000 | (magnitude & 0x3ff) << 13;
    else if (magnitude < 0x0400) /* subnormal: exact in float32 */
        v.f = (float)magnitude * 0x1p-24f;
    else
        v.u = (magnitude << 13) + 0x38000000;
    v.u |= sign;
    return v.f;
}

uint16_t f32_to_f16(float f)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = f};
    uint16_t sign = (uint16_t)(v.u >> 16 & 0x8000);
    uint32_t magnitude = v.u & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* subnormal: adding 0.5 lets the adder round at 2^-24 */
        v.u = magnitude;
        v.f += 0.5f;
        return (uint16_t)(sign | (v.u - 0x3f000000));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}
