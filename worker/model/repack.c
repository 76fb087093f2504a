#include "worker/model/repack.h"

#include <stdatomic.h>
#include <stdlib.h>

#define SHOW(s) (int)((s).len < 64 ? (s).len : 64), (const char *)(s).ptr

/* ---- one block of 32 values ---- */

struct block {
    uint8_t q[GROUP_COLS];
    uint16_t scale, min; /* f16 bits */
};

static void read_nibbles(const uint8_t *qs, uint8_t *q)
{
    for (int j = 0; j < 16; j++) {
        q[j] = qs[j] & 15;
        q[j + 16] = qs[j] >> 4;
    }
}

static void add_fifth_bits(const uint8_t *qh, uint8_t *q)
{
    uint32_t bits = load_le32(qh);
    for (int j = 0; j < 32; j++)
        q[j] = (uint8_t)(q[j] | ((bits >> j) & 1) << 4);
}

static void read_q4_0(const uint8_t *p, struct block *b)
{
    b->scale = load_le16(p);
    read_nibbles(p + 2, b->q);
}

static void read_q4_1(const uint8_t *p, struct block *b)
{
    b->scale = load_le16(p);
    b->min = load_le16(p + 2);
    read_nibbles(p + 4, b->q);
}

static void read_q5_0(const uint8_t *p, struct block *b)
{
    b->scale = load_le16(p);
    read_nibbles(p + 6, b->q);
    add_fifth_bits(p + 2, b->q);
}

static void read_q5_1(const uint8_t *p, struct block *b)
{
    b->scale = load_le16(p);
    b->min = load_le16(p + 2);
    read_nibbles(p + 8, b->q);
    add_fifth_bits(p + 4, b->q);
}

static void read_q8_0(const uint8_t *p, struct block *b)
{
    b->scale = load_le16(p);
    for (int j = 0; j < 32; j++)
        b->q[j] = (uint8_t)(p[2 + j] ^ 0x80); /* signed to signed + 128 */
}

static const struct kind {
    uint32_t type;
    enum weight_type becomes;
    bool has_min;
    uint8_t zero;
    uint32_t block_bytes; /* 0: a float type */
    void (*read)(const uint8_t *p, struct block *b);
} kinds[] = {
    {GGML_F32, WEIGHT_F32, false, 0, 0, NULL},
    {GGML_F16, WEIGHT_F16, false, 0, 0, NULL},
    {GGML_BF16, WEIGHT_BF16, false, 0, 0, NULL},
    {GGML_Q4_0, WEIGHT_Q4, false, 8, 18, read_q4_0},
    {GGML_Q4_1, WEIGHT_Q4, true, 0, 20, read_q4_1},
    {GGML_Q5_0, WEIGHT_Q8, false, 16, 22, read_q5_0},
    {GGML_Q5_1, WEIGHT_Q8, true, 0, 24, read_q5_1},
    {GGML_Q8_0, WEIGHT_Q8, false, 128, 34, read_q8_0},
};

static const struct kind *kind_of(uint32_t type)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i].type == type) return &kinds[i];
    return NULL;
}

const char *repack_supported(void)
{
    return "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0";
}

void repack_plan(const struct gguf_tensor *t, bool as_f32, struct weight *out)
{
    const struct kind *kind = kind_of(t->type);
    *out = (struct weight){0};
    if (kind == NULL) return;
    out->type = as_f32 ? WEIGHT_F32 : kind->becomes;
    out->has_min = !as_f32 && kind->has_min;
    out->zero = as_f32 ? 0 : kind->zero;
    out->cols = (uint32_t)t->dims[0];
    out->rows = (uint32_t)t->dims[1];
}

/* ---- a matrix, panel by panel ---- */

struct job {
    const struct gguf_tensor *t;
    const struct kind *kind;
    struct weight *w;
    uint32_t head_dim;
    size_t row_bytes;
    float *scratch; /* as_f32: [threads, 16, cols] */
    _Atomic uint32_t next_panel;
    _Atomic uint64_t bad_row; /* a row with a scale or value that is not finite, plus 1 */
};

/* Where row `row` of the packed weight lies in the file: pairs (2i, 2i + 1) there are (i, i +
 * head_dim / 2) here. */
static uint32_t source_row(const struct job *job, uint32_t row)
{
    uint32_t d = job->head_dim;
    if (d == 0) return row;
    uint32_t head = row / d, at = row % d;
    return head * d + (at % (d / 2)) * 2 + at / (d / 2);
}

static bool f16_finite(uint16_t bits)
{
    return (bits & 0x7C00) != 0x7C00;
}

static const uint8_t *row_ptr(const struct job *job, uint32_t row)
{
    return job->t->data.ptr + (size_t)source_row(job, row) * job->row_bytes;
}

static void note_bad(struct job *job, uint32_t row)
{
    uint64_t none = 0;
    (void)atomic_compare_exchange_strong(&job->bad_row, &none, (uint64_t)row + 1);
}

static void pack_quantized(struct job *job, uint32_t panel)
{
    struct weight *w = job->w;
    struct panel_group group;
    struct block block = {0};
    for (uint32_t g = 0; g < w->cols / GROUP_COLS; g++) {
        memset(&group, 0, sizeof group);
        for (uint32_t i = 0; i < PANEL_ROWS && panel * PANEL_ROWS + i < w->rows; i++) {
            uint32_t row = panel * PANEL_ROWS + i;
            job->kind->read(row_ptr(job, row) + (size_t)g * job->kind->block_bytes, &block);
            if (!f16_finite(block.scale) || (w->has_min && !f16_finite(block.min)))
                note_bad(job, row);
            memcpy(group.q[i], block.q, GROUP_COLS);
            group.scale[i] = block.scale;
            group.min[i] = block.min;
        }
        weight_put_group(w, panel, g, &group);
    }
}

static void dequantize_row(const struct job *job, const uint8_t *p, uint32_t cols, float *out)
{
    struct block block = {0};
    for (uint32_t c = 0; c < cols; c++) {
        if (job->kind->becomes == WEIGHT_F32) {
            memcpy(&out[c], p + (size_t)c * 4, 4);
        } else if (job->kind->becomes == WEIGHT_F16) {
            out[c] = f16_to_f32(load_le16(p + (size_t)c * 2));
        } else if (job->kind->becomes == WEIGHT_BF16) {
            out[c] = bf16_to_f32(load_le16(p + (size_t)c * 2));
        } else {
            if (c % GROUP_COLS == 0)
                job->kind->read(p + (size_t)c / GROUP_COLS * job->kind->block_bytes, &block);
            float q = (float)block.q[c % GROUP_COLS] - (float)job->kind->zero;
            out[c] =
                q * f16_to_f32(block.scale) + (job->kind->has_min ? f16_to_f32(block.min) : 0.0f);
        }
    }
}

/* An exponent of all ones is Inf or NaN. */
static bool row_finite(enum weight_type type, const uint8_t *p, uint32_t cols)
{
    uint32_t bad = 0;
    for (uint32_t c = 0; c < cols && type == WEIGHT_F32; c++)
        bad |= (load_le32(p + (size_t)c * 4) & 0x7F800000) == 0x7F800000;
    uint16_t mask = type == WEIGHT_F16 ? 0x7C00 : 0x7F80;
    for (uint32_t c = 0; c < cols && type != WEIGHT_F32; c++)
        bad |= (load_le16(p + (size_t)c * 2) & mask) == mask;
    return bad == 0;
}

static void pack_floats(struct job *job, uint32_t panel, float *scratch)
{
    struct weight *w = job->w;
    const void *src[PANEL_ROWS] = {NULL};
    for (uint32_t i = 0; i < PANEL_ROWS && panel * PANEL_ROWS + i < w->rows; i++) {
        const uint8_t *p = row_ptr(job, panel * PANEL_ROWS + i);
        src[i] = p;
        if (scratch != NULL) {
            dequantize_row(job, p, w->cols, scratch + (size_t)i * w->cols);
            src[i] = scratch + (size_t)i * w->cols;
        }
        if (!row_finite(w->type, src[i], w->cols)) note_bad(job, panel * PANEL_ROWS + i);
    }
    weight_put_rows(w, panel, src);
}

static void pack_share(void *arg, uint32_t ith, uint32_t nth)
{
    struct job *job = arg;
    (void)nth;
    float *scratch =
        job->scratch != NULL ? job->scratch + (size_t)ith * PANEL_ROWS * job->w->cols : NULL;
    for (;;) {
        uint32_t panel = atomic_fetch_add_explicit(&job->next_panel, 1, memory_order_relaxed);
        if (panel >= weight_panels(job->w)) return;
        if (job->w->type == WEIGHT_Q4 || job->w->type == WEIGHT_Q8)
            pack_quantized(job, panel);
        else
            pack_floats(job, panel, scratch);
    }
}

enum err repack_run(const struct gguf_tensor *t, uint32_t head_dim, struct weight *w,
                    struct pool *pool, struct errmsg *why)
{
    struct job job = {.t = t, .kind = kind_of(t->type), .w = w, .head_dim = head_dim};
    CHECK(job.kind != NULL && w->data != NULL);
    job.row_bytes = t->data.len / w->rows;
    if (w->type == WEIGHT_F32 && job.kind->becomes != WEIGHT_F32) {
        job.scratch = malloc((size_t)pool_threads(pool) * PANEL_ROWS * w->cols * sizeof(float));
        if (job.scratch == NULL)
            return errmsg_set(why, ERR_NOMEM, "no memory to unpack '%.*s'", SHOW(t->name));
    }
    pool_run(pool, pack_share, &job);
    free(job.scratch);
    uint64_t bad = atomic_load(&job.bad_row);
    if (bad != 0)
        return errmsg_set(
            why, ERR_PROTO,
            "tensor '%.*s': row %u holds a %s that is not finite; the file is damaged",
            SHOW(t->name), source_row(&job, (uint32_t)(bad - 1)),
            job.kind->block_bytes != 0 ? "scale" : "value");
    return OK;
}

enum err repack_vector(const struct gguf_tensor *t, float *out, struct errmsg *why)
{
    const struct kind *kind = kind_of(t->type);
    if (kind == NULL || kind->block_bytes != 0)
        return errmsg_set(why, ERR_UNSUPPORTED,
                          "tensor '%.*s' is of type %s; a vector must be F32, F16 or BF16",
                          SHOW(t->name), gguf_type_name(t->type));
    struct job job = {.t = t, .kind = kind};
    dequantize_row(&job, t->data.ptr, (uint32_t)t->dims[0], out);
    for (uint64_t i = 0; i < t->dims[0]; i++)
        if (!__builtin_isfinite(out[i]))
            return errmsg_set(why, ERR_PROTO,
                              "tensor '%.*s': value %llu is not finite; the file is damaged",
                              SHOW(t->name), (unsigned long long)i);
    return OK;
}
