/* weights.h - the packed layout of a weight matrix: sizes, packing, reading back. Pure; any thread,
 * disjoint panels. A panel is 16 output rows; rows beyond `rows` in the last panel are zero. */
#ifndef PENSTOCK_KERNELS_WEIGHTS_H
#define PENSTOCK_KERNELS_WEIGHTS_H

#include "kernels/ops.h"

enum { PANEL_ROWS = 16, GROUP_COLS = 32 };

/* Bytes of w->data for type, rows, cols, has_min; 0 if the shape is not allowed. */
size_t weight_bytes(enum weight_type type, uint32_t rows, uint32_t cols, bool has_min);
static inline uint32_t weight_panels(const struct weight *w)
{
    return (w->rows + PANEL_ROWS - 1) / PANEL_ROWS;
}
/* Bytes that a decode step reads of it. */
static inline size_t weight_read_bytes(const struct weight *w)
{
    return weight_bytes(w->type, w->rows, w->cols, w->has_min);
}

/* One group of one panel: 16 rows x 32 columns. Rows that the panel lacks must be given as zeros.
 */
struct panel_group {
    uint8_t q[PANEL_ROWS][GROUP_COLS]; /* 0..15 or 0..255 */
    uint16_t scale[PANEL_ROWS];        /* f16 bits */
    uint16_t min[PANEL_ROWS];          /* f16 bits; ignored without has_min */
};
void weight_put_group(struct weight *w, uint32_t panel, uint32_t group,
                      const struct panel_group *g);
/* Float types: cols values of each of 16 rows; src[i] NULL for a row that is not there. bits are
 * f32, f16 or bf16 as w->type. */
void weight_put_rows(struct weight *w, uint32_t panel, const void *const src[PANEL_ROWS]);
/* Dequantized row, exact up to one float32 rounding per value: the reference path and tests.
 * out[cols]. */
void weight_get_row(const struct weight *w, uint32_t row, float *out);

/* f16 and bf16 bits, in plain C, round to nearest even; used where no instruction is. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
static inline float bf16_to_f32(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)h << 16};
    return v.f;
}

#endif
