/* The small pieces of common: buffer, arena, ring, hash, json, no_alloc. */
#include "common/arena.h"
#include "common/buffer.h"
#include "common/hash.h"
#include "common/json.h"
#include "common/no_alloc.h"
#include "common/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static void buffer_keeps_its_limit(void **state)
{
    (void)state;
    struct buffer b;
    buffer_init(&b, 10);
    buffer_add_str(&b, "12345678");
    assert_int_equal(buffer_status(&b), OK);
    buffer_add_str(&b, "abc");
    assert_int_equal(buffer_status(&b), ERR_LIMIT);
    assert_int_equal(b.len, 8);
    buffer_reset(&b);
    buffer_add_str(&b, "0123456789");
    assert_int_equal(buffer_status(&b), OK);
    buffer_consume(&b, 4);
    assert_memory_equal(b.ptr, "456789", 6);
    buffer_deinit(&b);
}

static void arena_keeps_its_limit(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 100000);
    char *first = arena_dup(&a, SPAN_LIT("hello"));
    assert_string_equal(first, "hello");
    assert_non_null(arena_alloc(&a, 50000));
    assert_non_null(arena_alloc(&a, 1));
    assert_null(arena_alloc(&a, 60000));
    assert_null(arena_calloc(&a, SIZE_MAX / 2, 4));
    assert_string_equal(first, "hello");
    arena_deinit(&a);
}

static void ring_is_fifo_and_bounded(void **state)
{
    (void)state;
    struct ring *r = ring_create(4, sizeof(uint32_t));
    for (uint32_t round = 0; round < 100; round++) {
        for (uint32_t i = 0; i < 4; i++)
            assert_true(ring_push(r, &(uint32_t){round * 4 + i}));
        assert_false(ring_push(r, &(uint32_t){9}));
        assert_int_equal(ring_count(r), 4);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t v;
            assert_true(ring_pop(r, &v));
            assert_int_equal(v, round * 4 + i);
        }
        uint32_t none;
        assert_false(ring_pop(r, &none));
    }
    ring_destroy(r);
}

static void hashes_match_published_values(void **state)
{
    (void)state;
    assert_int_equal(crc32c_of(SPAN_LIT("123456789")), 0xE3069283u);
    uint8_t zeros[32] = {0};
    assert_int_equal(crc32c_of(span_of(zeros, 32)), 0x8A9136AAu); /* RFC 3720 B.4 */
    char hex[33];
    hash128_hex(hash128_of(SPAN_LIT("")), hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f"); /* xxHash's own test vector */
    struct hash128 a = hash_block_root(SPAN_LIT("ab"), SPAN_LIT("c"), SPAN_LIT(""));
    struct hash128 b = hash_block_root(SPAN_LIT("a"), SPAN_LIT("bc"), SPAN_LIT(""));
    assert_false(hash128_eq(a, b)); /* fields are tagged */
    uint32_t ids[2] = {1, 2};
    assert_false(hash128_eq(hash_block_next(a, ids, 2), hash_block_next(a, ids, 1)));
}

static enum err parse(const char *text, struct json **out)
{
    struct errmsg why;
    return json_parse(span_str(text), NULL, out, &why);
}

static void json_is_strict(void **state)
{
    (void)state;
    struct json *root = NULL;
    static const char *const bad[] = {
        "",      "{\"a\":1,\"a\":2}", "[1]x",          "[01]",          "{\"a\":1e999}",
        "[NaN]", "[\"\\ud800\"]",     "[\"\xff\"]",    "[\"\\u0000\"]", "[9999999999999999999]",
        "[1,]",  "// c\n[]",          "\xEF\xBB\xBF[]"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_not_equal(parse(bad[i], &root), OK);
    char deep[201];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    deep[200] = 0;
    assert_int_equal(parse(deep, &root), ERR_LIMIT);
    assert_int_equal(parse("{\"b\":1.0,\"a\":[5,true,null,\"\\u00e9\\n\\\"\"]}", &root), OK);
    struct buffer out;
    buffer_init(&out, 1000);
    json_write(&out, root);
    buffer_add_byte(&out, 0);
    assert_string_equal((char *)out.ptr, "{\"b\":1.0,\"a\":[5,true,null,\"\xC3\xA9\\n\\\"\"]}");
    buffer_reset(&out);
    json_write_string(&out, SPAN_LIT("a\x01\xff\xE2\x82"));
    buffer_add_byte(&out, 0);
    assert_string_equal((char *)out.ptr, "\"a\\u0001\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    buffer_deinit(&out);
    json_destroy(root);
}

static void no_alloc_counts(void **state)
{
    (void)state;
    no_alloc_enforce(false);
    uint64_t before = no_alloc_violations();
    struct buffer b;
    buffer_init(&b, 100);
    no_alloc_begin("test");
    buffer_add_str(&b, "x"); /* the first append allocates */
    buffer_add_str(&b, "y"); /* the second does not */
    no_alloc_end();
    assert_int_equal(no_alloc_violations() - before, 1);
    buffer_deinit(&b);
    no_alloc_enforce(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffer_keeps_its_limit),   cmocka_unit_test(arena_keeps_its_limit),
        cmocka_unit_test(ring_is_fifo_and_bounded), cmocka_unit_test(hashes_match_published_values),
        cmocka_unit_test(json_is_strict),           cmocka_unit_test(no_alloc_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
