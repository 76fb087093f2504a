/* test_gguf.c - a GGUF file is read as written; every damaged field is refused with a sentence, and
 * nothing outside the bytes is read. */
#include "tests/unit/worker/model/gguf_fixture.h"
#include "worker/model/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* In memory of exactly its size, so that the address sanitizer sees any read beyond it. */
static enum err open_exact(const void *ptr, size_t len, struct gguf **g, void **copy,
                           struct errmsg *why)
{
    *copy = malloc(len > 0 ? len : 1);
    assert_non_null(*copy);
    memcpy(*copy, ptr, len);
    why->text[0] = '\0';
    return gguf_open_memory(span_of(*copy, len), g, why);
}

/* Reads every byte that is handed out. */
static uint64_t walk(const struct gguf *g)
{
    uint64_t sum = 0;
    char text[96];
    for (uint32_t i = 0; i < gguf_key_count(g); i++) {
        struct span key = gguf_key_at(g, i);
        sum += key.ptr[key.len - 1];
        gguf_value_text(g, i, text, sizeof text);
        sum += strlen(text);
    }
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        struct span data = gguf_tensor_at(g, i)->data;
        for (size_t k = 0; k < data.len; k++)
            sum += data.ptr[k];
    }
    return sum;
}

/* ---- raw files ---- */

static void raw_u32(struct buffer *b, uint32_t v)
{
    buffer_add(b, &v, 4);
}
static void raw_u64(struct buffer *b, uint64_t v)
{
    buffer_add(b, &v, 8);
}
static void raw_string(struct buffer *b, const char *s)
{
    raw_u64(b, strlen(s));
    buffer_add_str(b, s);
}
static void raw_begin(struct buffer *b, uint64_t tensors, uint64_t keys)
{
    buffer_init(b, 1 << 20);
    buffer_add_str(b, "GGUF");
    raw_u32(b, 3);
    raw_u64(b, tensors);
    raw_u64(b, keys);
}

/* word: the sentence must hold it. */
static void refuse(struct buffer *b, enum err expected, const char *word)
{
    struct gguf *g = NULL;
    struct errmsg why;
    void *copy;
    enum err err = open_exact(b->ptr, b->len, &g, &copy, &why);
    if (err != expected || strstr(why.text, word) == NULL)
        fail_msg("%s '%s'; expected %s with '%s'", err_name(err), why.text, err_name(expected),
                 word);
    assert_null(g);
    free(copy);
    buffer_deinit(b);
}

/* ---- values ---- */

static void small_file(struct buffer *out)
{
    struct gguf_writer w;
    struct span words[] = {SPAN_LIT("one"), SPAN_LIT(""), SPAN_LIT("three")};
    int32_t numbers[] = {-1, 0, 7};
    uint64_t dims[] = {4, 3}, row[] = {32};
    gguf_writer_init(&w);
    gguf_writer_u32(&w, "a.u32", 4000000000u);
    gguf_writer_f32(&w, "a.f32", 0.5f);
    gguf_writer_bool(&w, "a.bool", true);
    gguf_writer_string(&w, "a.string", SPAN_LIT("text\n"));
    gguf_writer_strings(&w, "a.words", words, 3);
    gguf_writer_i32s(&w, "a.numbers", numbers, 3);
    (void)gguf_writer_tensor(&w, "first", GGML_F32, dims, 2);
    (void)gguf_writer_tensor(&w, "second", GGML_Q4_0, row, 1);
    buffer_init(out, 1 << 16);
    assert_int_equal(gguf_writer_finish(&w, out), OK);
    for (int i = 0; i < 64 + 18; i++)
        buffer_add_byte(out, (uint8_t)i);
    gguf_writer_deinit(&w);
}

static void test_values(void **state)
{
    (void)state;
    struct buffer b;
    struct gguf *g;
    struct errmsg why;
    void *copy;
    uint32_t u, count;
    float f, fs[3];
    bool flag;
    int32_t is[3];
    struct span s;
    const struct span *list;
    small_file(&b);
    assert_int_equal(open_exact(b.ptr, b.len, &g, &copy, &why), OK);
    assert_int_equal(gguf_get_u32(g, "a.u32", &u, &why), OK);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(gguf_get_f32(g, "a.f32", &f, &why), OK);
    assert_true(f == 0.5f);
    assert_int_equal(gguf_get_bool(g, "a.bool", &flag, &why), OK);
    assert_true(flag);
    assert_int_equal(gguf_get_string(g, "a.string", &s, &why), OK);
    assert_true(span_eq_str(s, "text\n"));
    assert_int_equal(gguf_get_string_array(g, "a.words", &list, &count, &why), OK);
    assert_int_equal(count, 3);
    assert_true(span_eq_str(list[2], "three") && list[1].len == 0);
    assert_int_equal(gguf_get_i32_array(g, "a.numbers", is, 3, &why), OK);
    assert_true(is[0] == -1 && is[2] == 7);
    assert_int_equal(gguf_get_f32_array(g, "a.numbers", fs, 3, &why), OK);
    assert_true(fs[0] == -1 && fs[2] == 7);
    /* what is asked for is not what is there */
    assert_int_equal(gguf_get_u32(g, "a.none", &u, &why), ERR_NOT_FOUND);
    assert_non_null(strstr(why.text, "a.none"));
    assert_int_equal(gguf_get_u32(g, "a.string", &u, &why), ERR_INVALID);
    assert_int_equal(gguf_get_u32(g, "a.bool", &u, &why), ERR_INVALID);
    assert_int_equal(gguf_get_bool(g, "a.u32", &flag, &why), ERR_INVALID);
    assert_int_equal(gguf_get_f32(g, "a.words", &f, &why), ERR_INVALID);
    assert_int_equal(gguf_get_i32_array(g, "a.words", is, 3, &why), ERR_INVALID);
    assert_int_equal(gguf_get_i32_array(g, "a.numbers", is, 2, &why), ERR_INVALID);
    assert_int_equal(gguf_get_string_array(g, "a.numbers", &list, &count, &why), ERR_INVALID);
    assert_int_equal(gguf_array_count(g, "a.u32", &u, &why), ERR_INVALID);
    /* tensors */
    const struct gguf_tensor *t = gguf_tensor_find(g, "second");
    assert_non_null(t);
    assert_true(t->type == GGML_Q4_0 && t->dim_count == 1 && t->dims[0] == 32 && t->dims[3] == 1);
    assert_true(t->data.len == 18 && t->data.ptr[0] == 64);
    assert_null(gguf_tensor_find(g, "secon"));
    assert_int_equal(gguf_tensor_find(g, "first")->data.len, 48);
    gguf_close(g);
    free(copy);
    buffer_deinit(&b);
}

static void test_integers_of_any_width(void **state)
{
    (void)state;
    static const struct {
        uint32_t type, bytes;
        uint64_t bits;
        bool ok;
    } all[] = {{0, 1, 200, true},         {2, 2, 200, true},          {4, 4, 200, true},
               {10, 8, 200, true},        {11, 8, 200, true},         {1, 1, 0xff, false},
               {5, 4, 0xffffffff, false}, {10, 8, 1ull << 32, false}, {10, 8, UINT64_MAX, false},
               {6, 4, 0x3f800000, false}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct buffer b;
        struct gguf *g;
        struct errmsg why;
        uint32_t v = 0;
        raw_begin(&b, 0, 1);
        raw_string(&b, "k");
        raw_u32(&b, all[i].type);
        buffer_add(&b, &all[i].bits, all[i].bytes);
        assert_int_equal(gguf_open_memory(buffer_view(&b), &g, &why), OK);
        assert_int_equal(gguf_get_u32(g, "k", &v, &why), all[i].ok ? OK : ERR_INVALID);
        if (all[i].ok) assert_int_equal(v, 200);
        gguf_close(g);
        buffer_deinit(&b);
    }
}

static void test_copied_keys_stay_the_same(void **state)
{
    (void)state;
    struct buffer b, again;
    struct gguf *g, *h;
    struct errmsg why;
    struct gguf_writer w;
    small_file(&b);
    assert_int_equal(gguf_open_memory(buffer_view(&b), &g, &why), OK);
    gguf_writer_init(&w);
    for (uint32_t i = 0; i < gguf_key_count(g); i++)
        gguf_writer_copy(&w, g, i);
    buffer_init(&again, 1 << 16);
    assert_int_equal(gguf_writer_finish(&w, &again), OK);
    assert_int_equal(gguf_open_memory(buffer_view(&again), &h, &why), OK);
    assert_int_equal(gguf_key_count(h), gguf_key_count(g));
    for (uint32_t i = 0; i < gguf_key_count(g); i++) {
        char x[96], y[96];
        gguf_value_text(g, i, x, sizeof x);
        gguf_value_text(h, i, y, sizeof y);
        assert_string_equal(x, y);
        assert_true(span_eq(gguf_key_at(g, i), gguf_key_at(h, i)));
    }
    gguf_close(g);
    gguf_close(h);
    gguf_writer_deinit(&w);
    buffer_deinit(&b);
    buffer_deinit(&again);
}

/* ---- damage ---- */

static void test_header(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint32_t bits;
        enum err err;
        const char *word;
    } all[] = {
        {0, 0x46554748, ERR_PROTO, "GGUF"},
        {4, 1, ERR_UNSUPPORTED, "version 1"},
        {4, 4, ERR_UNSUPPORTED, "version 4"},
        {4, 0x03000000, ERR_UNSUPPORTED, "endian"},
        {8, 65537, ERR_LIMIT, "65537 tensors"},
        {12, 1, ERR_LIMIT, "tensors"},
        {16, 65537, ERR_LIMIT, "65537 metadata"},
        {20, 0x80000000, ERR_LIMIT, "metadata"},
        {16, 60000, ERR_PROTO, "inside the metadata"},
        {8, 60000, ERR_PROTO, "tensor table"},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct buffer b;
        small_file(&b);
        memcpy(b.ptr + all[i].at, &all[i].bits, 4);
        refuse(&b, all[i].err, all[i].word);
    }
}

static void refuse_key(const char *key, size_t key_len, uint32_t type, const void *bytes, size_t n,
                       enum err err, const char *word)
{
    struct buffer b;
    raw_begin(&b, 0, 1);
    raw_u64(&b, key_len);
    buffer_add(&b, key, key_len);
    raw_u32(&b, type);
    buffer_add(&b, bytes, n);
    for (int i = 0; i < 64; i++)
        buffer_add_byte(&b, 0);
    refuse(&b, err, word);
}

static void test_metadata(void **state)
{
    (void)state;
    const uint64_t huge = UINT64_MAX, many = GGUF_ARRAY_MAX + 1ull;
    struct {
        uint32_t type;
        uint64_t count;
    } __attribute__((packed)) nested = {9, 1}, unknown = {13, 1}, large = {4, many},
                              beyond = {4, 1000}, strings = {8, 1 << 20}, giant = {10, huge};
    refuse_key("k", 1, 13, "", 0, ERR_PROTO, "type 13");
    refuse_key("k", 1, 7, "\2", 1, ERR_PROTO, "bool");
    refuse_key("k", 1, 8, &huge, 8, ERR_PROTO, "inside the metadata");
    refuse_key("", 0, 0, "", 0, ERR_PROTO, "key");
    refuse_key("a\0b", 3, 0, "", 0, ERR_PROTO, "control");
    refuse_key("a\nb", 3, 0, "", 0, ERR_PROTO, "control");
    refuse_key("k", 1, 9, &nested, 12, ERR_PROTO, "array of type 9");
    refuse_key("k", 1, 9, &unknown, 12, ERR_PROTO, "array of type 13");
    refuse_key("k", 1, 9, &large, 12, ERR_LIMIT, "elements");
    refuse_key("k", 1, 9, &giant, 12, ERR_LIMIT, "elements");
    refuse_key("k", 1, 9, &beyond, 12, ERR_PROTO, "array");
    refuse_key("k", 1, 9, &strings, 12, ERR_PROTO, "array");
    static const uint32_t alignments[] = {0, 3, 4, 48, 1u << 21};
    for (size_t i = 0; i < ARRAY_LEN(alignments); i++)
        refuse_key("general.alignment", 17, 4, &alignments[i], 4, ERR_PROTO, "alignment");
    refuse_key("general.alignment", 17, 8, "\1\0\0\0\0\0\0\0x", 9, ERR_PROTO, "alignment");
    struct buffer b;
    raw_begin(&b, 0, 2);
    for (int i = 0; i < 2; i++) {
        raw_string(&b, "twice");
        raw_u32(&b, 4);
        raw_u32(&b, 1);
    }
    refuse(&b, ERR_PROTO, "'twice' stands twice");
}

struct raw_tensor {
    const char *name;
    uint32_t dim_count;
    uint64_t dims[5];
    uint32_t type;
    uint64_t offset;
};

static void refuse_tensors(const struct raw_tensor *t, uint32_t count, enum err err,
                           const char *word)
{
    struct buffer b;
    raw_begin(&b, count, 0);
    for (uint32_t i = 0; i < count; i++) {
        raw_string(&b, t[i].name);
        raw_u32(&b, t[i].dim_count);
        for (uint32_t d = 0; d < t[i].dim_count && d < 5; d++)
            raw_u64(&b, t[i].dims[d]);
        raw_u32(&b, t[i].type);
        raw_u64(&b, t[i].offset);
    }
    for (int i = 0; i < 256; i++)
        buffer_add_byte(&b, 0);
    refuse(&b, err, word);
}

static void test_tensors(void **state)
{
    (void)state;
    char long_name[129];
    memset(long_name, 'n', 128);
    long_name[128] = '\0';
    const struct {
        struct raw_tensor t;
        enum err err;
        const char *word;
    } one[] = {
        {{"t", 0, {0}, 0, 0}, ERR_PROTO, "0 dimensions"},
        {{"t", 5, {1, 1, 1, 1, 1}, 0, 0}, ERR_PROTO, "5 dimensions"},
        {{"t", 1, {0}, 0, 0}, ERR_PROTO, "dimension 0"},
        {{"t", 1, {UINT64_MAX}, 0, 0}, ERR_PROTO, "dimension"},
        {{"t", 2, {1ull << 32, 1ull << 32}, 0, 0}, ERR_PROTO, "dimension"},
        {{"t", 3, {1ull << 30, 1ull << 30, 1ull << 4}, 0, 0}, ERR_PROTO, "dimension"},
        {{"t", 1, {1ull << 59}, 28, 0}, ERR_PROTO, "needs bytes"},
        {{"t", 1, {65}, 0, 0}, ERR_PROTO, "whole download"},
        {{"t", 1, {32}, 4, 0}, ERR_UNSUPPORTED, "removed"},
        {{"t", 1, {32}, 31, 0}, ERR_UNSUPPORTED, "removed"},
        {{"t", 1, {32}, 99, 0}, ERR_UNSUPPORTED, "type 99"},
        {{"t", 1, {33}, 2, 0}, ERR_PROTO, "blocks hold 32"},
        {{"t", 1, {32}, 12, 0}, ERR_PROTO, "blocks hold 256"},
        {{"t", 1, {4}, 0, 32}, ERR_PROTO, "starts at 32"},
        {{"t", 1, {4}, 0, 1}, ERR_PROTO, "starts at 1"},
        {{"t", 1, {4}, 0, UINT64_MAX - 31}, ERR_PROTO, "starts at"},
        {{"", 1, {4}, 0, 0}, ERR_PROTO, "name"},
        {{"a\x1b[1m", 1, {4}, 0, 0}, ERR_PROTO, "control"},
        {{long_name, 1, {4}, 0, 0}, ERR_PROTO, "name of 128"},
    };
    for (size_t i = 0; i < ARRAY_LEN(one); i++)
        refuse_tensors(&one[i].t, 1, one[i].err, one[i].word);
    const struct raw_tensor overlap[] = {{"a", 1, {16}, 0, 0}, {"b", 1, {16}, 0, 32}};
    const struct raw_tensor hole[] = {{"a", 1, {8}, 0, 0}, {"b", 1, {8}, 0, 64}};
    const struct raw_tensor twice[] = {{"a", 1, {8}, 0, 0}, {"a", 1, {8}, 0, 32}};
    refuse_tensors(overlap, 2, ERR_PROTO, "'b' starts at 32; 64 was expected");
    refuse_tensors(hole, 2, ERR_PROTO, "'b' starts at 64; 32 was expected");
    refuse_tensors(twice, 2, ERR_PROTO, "'a' stands twice");
}

static void refuse_cuts(const struct buffer *b, size_t step)
{
    for (size_t n = 0; n < b->len; n += step) {
        struct gguf *g = NULL;
        struct errmsg why;
        void *copy;
        if (open_exact(b->ptr, n, &g, &copy, &why) == OK)
            fail_msg("cut at %zu of %zu, accepted", n, b->len);
        assert_true(why.text[0] != '\0' && g == NULL);
        free(copy);
    }
}

/* Cut anywhere, it is refused: only padding behind the last tensor may be missing. */
static void test_truncation(void **state)
{
    (void)state;
    struct buffer b;
    struct fixture f = {.type = GGML_Q4_0};
    small_file(&b);
    refuse_cuts(&b, 1);
    buffer_deinit(&b);
    fix_build(&f, &b);
    refuse_cuts(&b, 7);
    buffer_deinit(&b);
}

static void test_flipped_bytes(void **state)
{
    (void)state;
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    struct buffer b;
    uint32_t accepted = 0, refused = 0;
    small_file(&b);
    for (size_t at = 0; at < b.len; at++)
        for (size_t k = 0; k < sizeof flips; k++) {
            struct gguf *g;
            struct errmsg why;
            void *copy;
            b.ptr[at] ^= flips[k];
            if (open_exact(b.ptr, b.len, &g, &copy, &why) == OK) {
                (void)walk(g);
                gguf_close(g);
                accepted++;
            } else {
                assert_true(why.text[0] != '\0');
                refused++;
            }
            free(copy);
            b.ptr[at] ^= flips[k];
        }
    assert_true(accepted > 0 && refused > 0);
    buffer_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_integers_of_any_width),
        cmocka_unit_test(test_copied_keys_stay_the_same),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_flipped_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
