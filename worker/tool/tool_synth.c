/* tool_synth.c - `penstock-model synth`: a model of a well-known shape with random weights, for
 * speed tests. Text that it writes means nothing; its speed and memory are those of a real model of
 * that shape and type. */
#include "common/clock.h"
#include "common/config.h"
#include "common/hash.h"
#include "kernels/weights.h"
#include "worker/model/gguf_write.h"
#include "worker/tool/synth_vocab.h"
#include "worker/tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { CHUNK_BYTES = 4 << 20 };

#define SHAPE_CHOICES "tiny|smollm2-135m|llama-1b|llama-8b"
static const struct shape {
    const char *name;
    uint32_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, context;
    float rope_base;
    bool tied;
} shapes[] = {
    {"tiny", 256, 2, 4, 2, 64, 512, 512, 2048, 10000, true},
    {"smollm2-135m", 576, 30, 9, 3, 64, 1536, 49152, 8192, 100000, true},
    {"llama-1b", 2048, 16, 32, 8, 64, 8192, 128256, 131072, 500000, true},
    {"llama-8b", 4096, 32, 32, 8, 128, 14336, 128256, 131072, 500000, false},
};

#define TYPE_CHOICES "q4_0|q4_1|q5_0|q5_1|q8_0|f16|bf16|f32"
static const uint32_t type_ids[] = {GGML_Q4_0, GGML_Q4_1, GGML_Q5_0, GGML_Q5_1,
                                    GGML_Q8_0, GGML_F16,  GGML_BF16, GGML_F32};

struct synth {
    const char *out_path, *vocab_from;
    uint32_t shape, type, head_type; /* indexes; head_type is one higher, 0: the same as type */
    uint64_t seed;
    const struct shape *s;
    uint32_t vocab;
    FILE *file;
    char temp_path[4096];
    uint64_t total_bytes, done_bytes, shown_ms;
    uint8_t *chunk; /* CHUNK_BYTES */
};

/* ---- random weights, a block at a time ---- */

struct random {
    uint64_t state;
};

/* SplitMix64 (Steele, Lea, Flood 2014): a counter and a mixer, any seed will do. */
static uint64_t random_next(struct random *r)
{
    uint64_t z = r->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Sixteen nibbles from 1 to 15, so that their mean is that of the zero point 8. */
static uint64_t random_nibbles(struct random *r)
{
    uint64_t x = random_next(r), any = x | x >> 1;
    any |= any >> 2;
    return x | (~any & UINT64_C(0x1111111111111111)) << 3;
}

/* spread: the standard deviation of the integers, so that the scale gives the weights theirs. */
static void fill_block(struct random *r, uint32_t type, float deviation, uint8_t *p)
{
    uint64_t bits[4];
    bool five = type == GGML_Q5_0 || type == GGML_Q5_1, eight = type == GGML_Q8_0;
    float spread = eight ? 73.9f : five ? 9.23f : 4.18f;
    float scale = deviation / spread * (0.9f + 0.2f * (float)(random_next(r) >> 40) * 0x1p-24f);
    store_le16(p, f32_to_f16(scale));
    p += 2;
    if (type == GGML_Q4_1 || type == GGML_Q5_1) {
        store_le16(p, f32_to_f16(-scale * (five ? 15.5f : 8.0f)));
        p += 2;
    }
    if (five) {
        store_le32(p, (uint32_t)random_next(r));
        p += 4;
    }
    for (int i = 0; i < 4; i++)
        bits[i] = eight ? random_next(r) : i < 2 ? random_nibbles(r) : 0;
    memcpy(p, bits, eight ? 32 : 16);
}

static void fill_float(struct random *r, uint32_t type, float deviation, uint8_t *p)
{
    float v = ((float)(random_next(r) >> 40) * 0x1p-23f - 1) * 1.7320508f * deviation;
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (type == GGML_F32)
        store_le32(p, bits);
    else
        store_le16(p, type == GGML_F16 ? f32_to_f16(v) : (uint16_t)(bits >> 16));
}

/* ---- tensors, the same walk for the table and for the data ---- */

struct tensor {
    char name[64];
    uint32_t type, cols, rows; /* rows 0: a vector of ones */
    float deviation;
};

typedef enum err visit(void *arg, const struct tensor *t, struct errmsg *why);

static enum err visit_matrix(void *arg, visit *fn, const char *name, uint32_t type, uint32_t cols,
                             uint32_t rows, float gain, struct errmsg *why)
{
    struct tensor t = {
        .type = type, .cols = cols, .rows = rows, .deviation = gain / sqrtf((float)cols)};
    (void)snprintf(t.name, sizeof t.name, "%s", name);
    return fn(arg, &t, why);
}

static enum err visit_layer(const struct synth *y, void *arg, visit *fn, uint32_t layer,
                            struct errmsg *why)
{
    const struct shape *s = y->s;
    const uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    /* what adds to the residual stream is made smaller with depth, as in trained models */
    const float residual = 1 / sqrtf(2 * (float)s->layers);
    const struct {
        const char *name;
        uint32_t cols, rows;
        float gain;
    } all[] = {
        {"attn_norm", s->hidden, 0, 0},
        {"attn_q", s->hidden, q, 1},
        {"attn_k", s->hidden, kv, 1},
        {"attn_v", s->hidden, kv, 1},
        {"attn_output", q, s->hidden, residual},
        {"ffn_norm", s->hidden, 0, 0},
        {"ffn_gate", s->hidden, s->ffn, 1},
        {"ffn_up", s->hidden, s->ffn, 1},
        {"ffn_down", s->ffn, s->hidden, residual},
    };
    enum err err = OK;
    for (size_t i = 0; i < ARRAY_LEN(all) && err == OK; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.%s.weight", layer, all[i].name);
        err = visit_matrix(arg, fn, name, all[i].rows == 0 ? GGML_F32 : type_ids[y->type],
                           all[i].cols, all[i].rows, all[i].gain, why);
    }
    return err;
}

static enum err visit_all(const struct synth *y, void *arg, visit *fn, struct errmsg *why)
{
    const struct shape *s = y->s;
    uint32_t type = type_ids[y->type];
    uint32_t head = y->head_type > 0 ? type_ids[y->head_type - 1] : type;
    enum err err = visit_matrix(arg, fn, "token_embd.weight", s->tied ? head : type, s->hidden,
                                y->vocab, 1, why);
    for (uint32_t i = 0; i < s->layers && err == OK; i++)
        err = visit_layer(y, arg, fn, i, why);
    if (err == OK)
        err = visit_matrix(arg, fn, "output_norm.weight", GGML_F32, s->hidden, 0, 0, why);
    if (err == OK && !s->tied)
        err = visit_matrix(arg, fn, "output.weight", head, s->hidden, y->vocab, 1, why);
    return err;
}

static enum err add_to_table(void *arg, const struct tensor *t, struct errmsg *why)
{
    (void)why;
    const uint64_t dims[2] = {t->cols, t->rows};
    (void)gguf_writer_tensor(arg, t->name, t->type, dims, t->rows > 0 ? 2 : 1);
    return OK;
}

/* ---- the file ---- */

static enum err put(struct synth *y, const void *ptr, size_t len, struct errmsg *why)
{
    if (fwrite(ptr, 1, len, y->file) != len) {
        if (errno == ENOSPC)
            return errmsg_set(why, ERR_IO,
                              "%s: the disk is full after %llu of %llu MiB; free some space or "
                              "choose another place",
                              y->out_path, (unsigned long long)y->done_bytes >> 20,
                              (unsigned long long)y->total_bytes >> 20);
        return errmsg_set(why, ERR_IO, "%s: cannot write: %s", y->temp_path, strerror(errno));
    }
    y->done_bytes += len;
    uint64_t now_ms = clock_now_ns() / 1000000;
    if (isatty(2) && now_ms - y->shown_ms > 50) {
        fprintf(stderr, "\rwriting %3u %%", (unsigned)(y->done_bytes * 100 / y->total_bytes));
        y->shown_ms = now_ms;
    }
    return OK;
}

static enum err put_tensor(void *arg, const struct tensor *t, struct errmsg *why)
{
    struct synth *y = arg;
    uint32_t block_values = 1, block_bytes = 0;
    CHECK(gguf_type_block(t->type, &block_values, &block_bytes));
    /* own numbers for each tensor: one tensor's type does not change another's weights */
    struct random r = {y->seed ^ hash64_of(span_str(t->name), y->seed)};
    uint64_t blocks = (uint64_t)t->cols * (t->rows > 0 ? t->rows : 1) / block_values;
    const float one = 1;
    enum err err = OK;
    for (uint64_t at = 0; at < blocks && err == OK;) {
        uint64_t n = blocks - at, room = CHUNK_BYTES / block_bytes;
        n = n < room ? n : room;
        for (uint64_t i = 0; i < n; i++) {
            uint8_t *p = y->chunk + i * block_bytes;
            if (t->rows == 0)
                memcpy(p, &one, sizeof one);
            else if (block_values == 1)
                fill_float(&r, t->type, t->deviation, p);
            else
                fill_block(&r, t->type, t->deviation, p);
        }
        err = put(y, y->chunk, (size_t)(n * block_bytes), why);
        at += n;
    }
    static const uint8_t zeros[GGUF_WRITE_ALIGN];
    uint64_t bytes = blocks * block_bytes;
    size_t padding = (size_t)((GGUF_WRITE_ALIGN - bytes % GGUF_WRITE_ALIGN) % GGUF_WRITE_ALIGN);
    return err == OK ? put(y, zeros, padding, why) : err;
}

static void put_shape(const struct synth *y, struct gguf_writer *w)
{
    const struct shape *s = y->s;
    char name[64];
    (void)snprintf(name, sizeof name, "synth %s, random weights", s->name);
    gguf_writer_string(w, "general.architecture", SPAN_LIT("llama"));
    gguf_writer_string(w, "general.name", span_str(name));
    gguf_writer_u32(w, "llama.block_count", s->layers);
    gguf_writer_u32(w, "llama.context_length", s->context);
    gguf_writer_u32(w, "llama.embedding_length", s->hidden);
    gguf_writer_u32(w, "llama.feed_forward_length", s->ffn);
    gguf_writer_u32(w, "llama.attention.head_count", s->heads);
    gguf_writer_u32(w, "llama.attention.head_count_kv", s->kv_heads);
    gguf_writer_u32(w, "llama.attention.key_length", s->head_dim);
    gguf_writer_u32(w, "llama.attention.value_length", s->head_dim);
    gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_writer_u32(w, "llama.rope.dimension_count", s->head_dim);
    gguf_writer_f32(w, "llama.rope.freq_base", s->rope_base);
    gguf_writer_u32(w, "llama.vocab_size", y->vocab);
}

static enum err compose_head(struct synth *y, struct buffer *head, struct errmsg *why)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    y->vocab = y->s->vocab;
    enum err err = y->vocab_from != NULL ? synth_vocab_copy(&w, y->vocab_from, &y->vocab, why)
                                         : synth_vocab_make(&w, y->vocab, why);
    if (err == OK) {
        put_shape(y, &w);
        err = visit_all(y, &w, add_to_table, why);
    }
    if (err == OK && (err = gguf_writer_finish(&w, head)) != OK)
        errmsg_set(why, err, "no memory for the file's head");
    y->total_bytes = head->len + w.data_bytes;
    gguf_writer_deinit(&w);
    return err;
}

/* Said before minutes of writing rather than after. */
static enum err check_room(const struct synth *y, struct errmsg *why)
{
    char folder[4096];
    struct statvfs fs;
    (void)snprintf(folder, sizeof folder, "%s", y->out_path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        (void)snprintf(folder, sizeof folder, ".");
    else
        slash[slash == folder ? 1 : 0] = '\0';
    if (statvfs(folder, &fs) != 0)
        return errmsg_set(why, ERR_IO, "%s: %s", folder, strerror(errno));
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (room >= y->total_bytes) return OK;
    return errmsg_set(why, ERR_IO, "%s: the disk has %llu MiB free; the model needs %llu MiB",
                      folder, (unsigned long long)room >> 20,
                      (unsigned long long)y->total_bytes >> 20);
}

/* Under another name until it is whole: nobody loads half a model. */
static enum err write_file(struct synth *y, const struct buffer *head, struct errmsg *why)
{
    int n = snprintf(y->temp_path, sizeof y->temp_path, "%s.%ld.part", y->out_path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof y->temp_path)
        return errmsg_set(why, ERR_INVALID, "the path of the output is too long");
    y->chunk = malloc(CHUNK_BYTES);
    if (y->chunk == NULL) return errmsg_set(why, ERR_NOMEM, "no memory to write with");
    y->file = fopen(y->temp_path, "wbx");
    if (y->file == NULL)
        return errmsg_set(why, ERR_IO, "%s: cannot create: %s", y->temp_path, strerror(errno));
    setvbuf(y->file, NULL, _IONBF, 0); /* the chunks are large already */
    enum err err = put(y, head->ptr, head->len, why);
    if (err == OK) err = visit_all(y, y, put_tensor, why);
    if (err == OK) CHECK(y->done_bytes == y->total_bytes);
    if (fclose(y->file) != 0 && err == OK)
        err = errmsg_set(why, ERR_IO, "%s: cannot write: %s", y->temp_path, strerror(errno));
    if (err == OK && rename(y->temp_path, y->out_path) != 0)
        err = errmsg_set(why, ERR_IO, "%s: cannot rename to %s: %s", y->temp_path, y->out_path,
                         strerror(errno));
    if (err != OK) (void)unlink(y->temp_path);
    if (isatty(2)) fprintf(stderr, "\r              \r");
    return err;
}

static enum err run(struct synth *y, struct errmsg *why)
{
    struct buffer head;
    buffer_init(&head, 1u << 29);
    y->s = &shapes[y->shape];
    enum err err = compose_head(y, &head, why);
    if (err == OK) err = check_room(y, why);
    if (err == OK) err = write_file(y, &head, why);
    free(y->chunk);
    buffer_deinit(&head);
    return err;
}

int tool_synth(int argc, char **argv)
{
    struct synth y = {0};
    const struct config_item items[] = {
        {"shape", CONFIG_CHOICE, &y.shape, "llama-1b", 0, 0, SHAPE_CHOICES, "",
         "The model whose shape is taken."},
        {"type", CONFIG_CHOICE, &y.type, "q4_0", 0, 0, TYPE_CHOICES, "", "Type of all matrices."},
        {"head-type", CONFIG_CHOICE, &y.head_type, "same", 0, 0, "same|" TYPE_CHOICES, "",
         "Type of the output head, which is the embedding too where the shape ties them."},
        {"vocab-from", CONFIG_STRING, &y.vocab_from, NULL, 0, 0, NULL, "",
         "GGUF file whose tokenizer and chat template are taken over, with its vocabulary size; "
         "otherwise a byte-level vocabulary, padded with unused tokens."},
        {"seed", CONFIG_U64, &y.seed, "1", 0, 0, NULL, "",
         "Of the weights: the same seed gives the same file."},
    };
    const struct config config = {
        "penstock-model synth",
        "Writes a GGUF file with random weights, for speed tests: the shape and so the speed of a "
        "real model; what it says means nothing.",
        "OUT.gguf [options]",
        "Example:\n  penstock-model synth /tmp/1b.gguf --shape llama-1b --type q4_0\n",
        items,
        ARRAY_LEN(items),
        1};
    uint32_t given = 0;
    struct errmsg why;
    enum config_result result = config_parse(&config, argc, argv, &y.out_path, &given, &why);
    if (result == CONFIG_EXIT_OK) return 0;
    if (result == CONFIG_RUN && given != 1) {
        errmsg_set(&why, ERR_INVALID, "OUT.gguf is missing; see penstock-model synth --help");
        result = CONFIG_EXIT_BAD;
    }
    if (result == CONFIG_EXIT_BAD || run(&y, &why) != OK) {
        fprintf(stderr, "penstock-model synth: %s\n", why.text);
        return result == CONFIG_EXIT_BAD ? 2 : 1;
    }
    printf("%s: %s, %.1f MiB\n", y.out_path, y.s->name, (double)y.total_bytes / (1 << 20));
    return 0;
}
