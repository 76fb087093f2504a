/* UTF-8, classes and NFC against utf8proc, at every code point and at random strings. */
#include "common/unicode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>
#include <utf8proc.h>

static uint32_t seed = 1;
static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)seed * n >> 32);
}

static void utf8_agrees_with_the_library(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                    0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                    0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
    uint32_t valid = 0;
    for (uint32_t n = 0; n < 200000; n++) {
        uint8_t text[12];
        size_t len = 1 + random_below(sizeof text), at = 0;
        for (size_t i = 0; i < len; i++)
            text[i] = bytes[random_below(sizeof bytes)];
        bool want = true;
        while (want && at < len) {
            utf8proc_int32_t cp;
            utf8proc_ssize_t used = utf8proc_iterate(text + at, (utf8proc_ssize_t)(len - at), &cp);
            want = used > 0;
            at += used > 0 ? (size_t)used : 0;
        }
        assert_int_equal(unicode_utf8_valid(span_of(text, len)), want);
        valid += want;
    }
    assert_true(valid > 1000);
}

static void code_points_go_round(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= UNICODE_MAX; cp++) {
        if (cp >= 0xD800 && cp < 0xE000) continue;
        uint8_t utf8[4];
        uint32_t n = unicode_encode(cp, utf8), len;
        assert_true(unicode_utf8_valid(span_of(utf8, n)));
        assert_int_equal(unicode_utf8_len(utf8[0]), n);
        assert_int_equal(unicode_decode(utf8, &len), cp);
        assert_int_equal(len, n);
    }
}

static void classes_are_unicodes(void **state)
{
    (void)state;
    const struct unicode_tables *u = unicode_tables();
    static const struct {
        uint32_t cp;
        uint8_t class;
    } known[] = {{'a', UNICODE_LETTER},     {'7', UNICODE_NUMBER},    {' ', UNICODE_SPACE},
                 {'\n', UNICODE_NEWLINE},   {'\r', UNICODE_NEWLINE},  {0x0B, UNICODE_SPACE},
                 {0x1C, UNICODE_OTHER},     {0x85, UNICODE_SPACE},    {0xA0, UNICODE_SPACE},
                 {0xBD, UNICODE_NUMBER},    {0x2028, UNICODE_SPACE},  {0x3000, UNICODE_SPACE},
                 {0x4E2D, UNICODE_LETTER},  {0xAC00, UNICODE_LETTER}, {0x300, UNICODE_OTHER},
                 {0x180E, UNICODE_OTHER},   {0x1F600, UNICODE_OTHER}, {0x2160, UNICODE_NUMBER},
                 {0x10FFFF, UNICODE_OTHER}, {0x2FA1D, UNICODE_LETTER}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(unicode_props(u, known[i].cp) & UNICODE_CLASS_MASK, known[i].class);
}

static bool nfc_is_the_librarys(const uint32_t *cps, size_t count)
{
    uint8_t text[256], utf8[4];
    size_t len = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t n = unicode_encode(cps[i], utf8);
        memcpy(text + len, utf8, n);
        len += n;
    }
    text[len] = 0;
    struct buffer out;
    buffer_init(&out, 4096);
    assert_int_equal(unicode_nfc(unicode_tables(), span_of(text, len), &out), OK);
    utf8proc_uint8_t *want = utf8proc_NFC(text);
    bool same = span_eq(buffer_view(&out), span_str((char *)want));
    if (!same) {
        for (size_t i = 0; i < count; i++)
            printf("%04X ", cps[i]);
        printf("-> ours %.*s, the library's %s\n", (int)out.len, (char *)out.ptr, (char *)want);
    }
    bool quick = unicode_nfc_quick(unicode_tables(), span_of(text, len));
    if (quick && !span_eq(span_of(text, len), span_str((char *)want))) same = false;
    free(want);
    buffer_deinit(&out);
    return same;
}

static void nfc_agrees_with_the_library(void **state)
{
    (void)state;
    for (uint32_t cp = 1; cp <= UNICODE_MAX; cp++) {
        if (cp >= 0xD800 && cp < 0xE000) continue;
        utf8proc_int32_t parts[8];
        int boundary = 0;
        utf8proc_ssize_t n =
            utf8proc_decompose_char((int32_t)cp, parts, 8, UTF8PROC_DECOMPOSE, &boundary);
        assert_true(nfc_is_the_librarys(&cp, 1));
        assert_true(nfc_is_the_librarys((uint32_t *)parts, (size_t)n));
    }
    /* U+11A7 is no trailing consonant (the library drops it behind U+AC00) */
    struct buffer out;
    buffer_init(&out, 64);
    struct span kept = SPAN_LIT("\xEA\xB0\x80\xE1\x86\xA7");
    assert_int_equal(unicode_nfc(unicode_tables(), kept, &out), OK);
    assert_true(span_eq(buffer_view(&out), kept));
    buffer_deinit(&out);
    static const uint32_t pool[] = {'a',     'e',     '1',    0xE9,   0x301,  0x300,  0x323,  0x327,
                                    0x308,   0x345,   0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01, 0x9C7,
                                    0x9BE,   0x9D7,   0x3B9,  0x390,  0x1FB7, 0x212B, 0xF900, 0x958,
                                    0x1D15E, 0x1D165, 0x0F71, 0x0F72, 0x3099, 0x30AB, 0x344};
    for (uint32_t n = 0; n < 300000; n++) {
        uint32_t cps[12];
        size_t count = 1 + random_below(12);
        for (size_t i = 0; i < count; i++)
            cps[i] = pool[random_below(sizeof pool / sizeof *pool)];
        assert_true(nfc_is_the_librarys(cps, count));
    }
}

static double nfc_seconds(struct span text)
{
    struct buffer out;
    struct timespec a, b;
    buffer_init(&out, 4 * text.len);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    assert_int_equal(unicode_nfc(unicode_tables(), text, &out), OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    buffer_deinit(&out);
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
}

/* Marks of alternating classes: a sort by exchanges takes (64 times the text) 4096 times as long.
 */
static void nfc_of_marks_is_not_quadratic(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    uint8_t *text = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i += 4)
        memcpy(text + i, "\xCC\x81\xCC\xA3", 4);
    (void)nfc_seconds(span_of(text, BYTES));
    double small = nfc_seconds(span_of(text, BYTES / 64)),
           large = nfc_seconds(span_of(text, BYTES));
    assert_true(large < 64 * 12 * small);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_agrees_with_the_library),
        cmocka_unit_test(code_points_go_round),
        cmocka_unit_test(classes_are_unicodes),
        cmocka_unit_test(nfc_agrees_with_the_library),
        cmocka_unit_test(nfc_of_marks_is_not_quadratic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
