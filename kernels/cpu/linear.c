/* linear.c - how a linear is shared out among threads and walked: the same for each instruction
 * set.
 *
 * Threads take runs of whole panels that hold about equally many bytes, so that each reads its own
 * stretch of the weights in sequence. Where panels do not divide well among the threads, they share
 * the rows out as well. Rows go in chunks whose activations stay in the L2 cache; a panel meets a
 * whole chunk before the next panel comes. */
#include "kernels/cpu/linear.h"

#include <string.h>

#include "kernels/act.h"
#include "kernels/layout.h"

enum {
    ROWS_CHUNK_BYTES = 512 * 1024, /* half of a core's L2 */
    SILU_PANELS = 2,               /* 32 columns: one group of out_act */
};

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t divide_up(uint32_t a, uint32_t by)
{
    return (a + by - 1) / by;
}

/* How many parts, a divisor of nth, the rows are shared out in so that the busiest thread has the
 * least to do. Each part reads the weights once more: it must be worth a tenth. */
static uint32_t row_parts(uint32_t units, uint32_t tiles, uint32_t nth)
{
    uint32_t best = 1;
    uint64_t best_cost = (uint64_t)divide_up(units, nth) * tiles;
    for (uint32_t parts = 2; parts <= min_u32(nth, tiles); parts++) {
        if (nth % parts != 0) continue;
        uint64_t cost = (uint64_t)divide_up(units, nth / parts) * divide_up(tiles, parts);
        if (cost * 10 > best_cost * 9) continue;
        best = parts;
        best_cost = cost;
    }
    return best;
}

/* Splits the threads in groups that share the rows out; *ith and *nth become those among the
 * panels. */
static void share_rows(uint32_t units, uint32_t rows, uint32_t *ith, uint32_t *nth, uint32_t *begin,
                       uint32_t *end)
{
    uint32_t tiles = divide_up(rows, ACT_TILE_ROWS), parts = row_parts(units, tiles, *nth);
    uint32_t part = *ith % parts;
    *begin = (uint32_t)((uint64_t)tiles * part / parts) * ACT_TILE_ROWS;
    *end = min_u32(rows, (uint32_t)((uint64_t)tiles * (part + 1) / parts) * ACT_TILE_ROWS);
    *ith /= parts;
    *nth /= parts;
}

static uint32_t rows_chunk(const struct act *in)
{
    size_t row_bytes = act_bytes(in->type, ACT_TILE_ROWS, in->cols) / ACT_TILE_ROWS;
    size_t rows = ROWS_CHUNK_BYTES / (row_bytes ? row_bytes : 1);
    uint32_t tiles = (uint32_t)(rows / ACT_TILE_ROWS);
    return (tiles ? tiles : 1) * ACT_TILE_ROWS;
}

/* A thread's part of one weight: panels and rows. */
struct linear_part {
    const struct op_linear *op;
    const struct linear_kernel *kernel;
    uint32_t panel_begin, panel_end, row_begin, row_end;
};

static void walk_store(const struct linear_part *part, uint32_t i)
{
    const struct op_linear *op = part->op;
    struct linear_tile t = {.weight = op->weight[i],
                            .in = &op->in,
                            .bias = op->bias[i],
                            .out_stride = op->out_stride[i],
                            .add = op->epilogue == LINEAR_ADD};
    uint32_t chunk = rows_chunk(&op->in);
    for (uint32_t row = part->row_begin; row < part->row_end; row += chunk) {
        uint32_t end = min_u32(part->row_end, row + chunk);
        for (t.panel = part->panel_begin; t.panel < part->panel_end; t.panel++) {
            for (t.row = row; t.row < end; t.row += ACT_TILE_ROWS) {
                t.rows = min_u32(ACT_TILE_ROWS, end - t.row);
                t.prefetch = t.row == row;
                t.out = op->out[i] + t.row * t.out_stride + t.panel * PANEL_ROWS;
                part->kernel->tile(&t);
            }
        }
    }
}

/* Up to 32 columns of weight i for one tile of rows, into a buffer of whole panels. */
static void silu_side(const struct linear_part *part, uint32_t i, uint32_t panel, uint32_t panels,
                      struct linear_tile *t, float *out)
{
    t->weight = part->op->weight[i];
    t->bias = part->op->bias[i];
    for (uint32_t p = 0; p < panels; p++) {
        t->panel = panel + p;
        t->out = out + p * PANEL_ROWS;
        part->kernel->tile(t);
    }
}

static void silu_tile(const struct linear_part *part, uint32_t panel, struct linear_tile *t)
{
    enum { COLS = SILU_PANELS * PANEL_ROWS };
    const struct op_linear *op = part->op;
    float gate[ACT_TILE_ROWS * COLS], up[ACT_TILE_ROWS * COLS];
    uint32_t col = panel * PANEL_ROWS, count = min_u32(COLS, op->weight[0]->rows - col);
    uint32_t panels = (count + PANEL_ROWS - 1) / PANEL_ROWS;
    if (count < COLS) {
        memset(gate, 0, sizeof(gate));
        memset(up, 0, sizeof(up));
    }
    silu_side(part, 0, panel, panels, t, gate);
    silu_side(part, 1, panel, panels, t, up);
    for (uint32_t r = 0; r < t->rows; r++)
        part->kernel->silu(gate + r * COLS, up + r * COLS, &op->out_act, t->row + r, col, count);
}

static void walk_silu(const struct linear_part *part)
{
    struct linear_tile t = {.in = &part->op->in, .out_stride = SILU_PANELS * PANEL_ROWS};
    uint32_t chunk = rows_chunk(&part->op->in);
    for (uint32_t row = part->row_begin; row < part->row_end; row += chunk) {
        uint32_t end = min_u32(part->row_end, row + chunk);
        for (uint32_t p = part->panel_begin; p < part->panel_end; p += SILU_PANELS) {
            for (t.row = row; t.row < end; t.row += ACT_TILE_ROWS) {
                t.rows = min_u32(ACT_TILE_ROWS, end - t.row);
                t.prefetch = t.row == row;
                silu_tile(part, p, &t);
            }
        }
    }
}

/* First panel of weight whose bytes begin at or after `at`, counted from `start`. */
static uint32_t panel_after(uint64_t at, uint64_t start, const struct weight *w)
{
    uint64_t bytes = panel_bytes(w->type, w->cols, w->has_min);
    if (at <= start) return 0;
    uint64_t panel = (at - start + bytes - 1) / bytes;
    return panel < weight_panels(w) ? (uint32_t)panel : weight_panels(w);
}

void linear_walk(const struct op_linear *op, uint32_t ith, uint32_t nth,
                 const struct linear_kernel *kernel)
{
    struct linear_part part = {.op = op, .kernel = kernel};
    uint32_t panels = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->weight_count; i++) {
        panels += weight_panels(op->weight[i]);
        bytes += weight_read_bytes(op->weight[i]);
    }
    if (op->epilogue == LINEAR_SILU_MUL) {
        uint32_t units = (weight_panels(op->weight[0]) + SILU_PANELS - 1) / SILU_PANELS;
        share_rows(units, op->rows, &ith, &nth, &part.row_begin, &part.row_end);
        part.panel_begin = (uint32_t)((uint64_t)units * ith / nth) * SILU_PANELS;
        part.panel_end = min_u32((uint32_t)((uint64_t)units * (ith + 1) / nth) * SILU_PANELS,
                                 weight_panels(op->weight[0]));
        walk_silu(&part);
        return;
    }
    share_rows(panels, op->rows, &ith, &nth, &part.row_begin, &part.row_end);
    uint64_t start = 0, begin = bytes * ith / nth, end = bytes * (ith + 1) / nth;
    for (uint32_t i = 0; i < op->weight_count; i++) {
        part.panel_begin = panel_after(begin, start, op->weight[i]);
        part.panel_end = panel_after(end, start, op->weight[i]);
        walk_store(&part, i);
        start += weight_read_bytes(op->weight[i]);
    }
}

void head_walk(const struct op_head *op, uint32_t ith, uint32_t nth,
               const struct linear_kernel *kernel)
{
    struct op_linear linear = {.in = op->in,
                               .weight = {op->weight},
                               .out = {op->logits},
                               .out_stride = {op->logits_stride},
                               .weight_count = 1,
                               .rows = op->rows,
                               .epilogue = LINEAR_STORE};
    linear_walk(&linear, ith, nth, kernel);
}
