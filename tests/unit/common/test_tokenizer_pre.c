/* The pre-tokenizers' scanners against the published regular expressions, run by PCRE2, at random
 * strings of awkward characters. */
#include "common/tokenizer_internal.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <pcre2.h>
#include <cmocka.h>

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static uint32_t seed = 3;
static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)seed * n >> 32);
}

static size_t random_text(uint8_t text[256])
{
    static const uint32_t pool[] = {
        ' ',  ' ',   ' ',    '\n',    '\r', '\t', 0x0B,   0x85,   0xA0,   0x3000, '\'', '\'',
        '\'', 's',   'S',    0x17F,   't',  'T',  'r',    'R',    'e',    'E',    'v',  'm',
        'l',  'L',   'd',    'a',     'Z',  '1',  '2',    0xBD,   0x660,  0x2160, '!',  '-',
        '_',  0x301, 0x4E2D, 0x1F600, 0x1C, 0x00, 0x200B, 0xAC00, 0x212A, 0x149,  0xDF, 0x10FFFF};
    size_t len = 0;
    for (uint32_t n = random_below(20) + 1; n > 0; n--)
        len += unicode_encode(pool[random_below(ARRAY_LEN(pool))], text + len);
    return len;
}

static size_t regex_end(pcre2_code *re, pcre2_match_data *match, const uint8_t *text, size_t at,
                        size_t len)
{
    int found = pcre2_match(re, text, len, at, PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, match, NULL);
    CHECK_MSG(found > 0, "pcre2_match: %d", found);
    return pcre2_get_ovector_pointer(match)[1];
}

static pcre2_code *regex_compile(const char *pattern)
{
    int code;
    PCRE2_SIZE where;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP, &code, &where, NULL);
    CHECK_MSG(re != NULL, "pcre2_compile: %d at %zu", code, where);
    return re;
}

static void expect_equal(size_t got, size_t want, const uint8_t *text, size_t at, size_t len)
{
    if (got == want) return;
    for (size_t i = 0; i < len; i++)
        printf("%02x%s", text[i], i + 1 == at ? "|" : " ");
    fail_msg("from %zu: the scanner stops at %zu, the expression at %zu", at, got, want);
}

static void check_pattern(enum pre_kind kind, const char *pattern)
{
    const struct unicode_tables *u = unicode_tables();
    pcre2_code *re = regex_compile(pattern);
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(re, NULL);
    uint8_t text[256];
    for (uint32_t n = 0; n < 200000; n++) {
        size_t len = random_text(text);
        for (size_t at = 0; at < len;) {
            size_t want = regex_end(re, match, text, at, len);
            expect_equal(pre__next(u, kind, text, at, len), want, text, at, len);
            at = want;
        }
    }
    pcre2_match_data_free(match);
    pcre2_code_free(re);
}

static void gpt2_is_its_expression(void **state)
{
    (void)state;
    check_pattern(PRE_GPT2, GPT2);
}

static void llama3_is_its_expression(void **state)
{
    (void)state;
    check_pattern(PRE_LLAMA3, LLAMA3("\\p{N}{1,3}"));
}

static void qwen2_is_its_expression(void **state)
{
    (void)state;
    check_pattern(PRE_QWEN2, LLAMA3("\\p{N}"));
}

/* Digits are cut out one by one; each part between them is matched as a text by itself. */
static void smollm_is_two_steps(void **state)
{
    (void)state;
    const struct unicode_tables *u = unicode_tables();
    pcre2_code *part = regex_compile("\\p{N}|[^\\p{N}]+"), *re = regex_compile(GPT2);
    pcre2_match_data *match = pcre2_match_data_create(16, NULL);
    uint8_t text[256];
    for (uint32_t n = 0; n < 200000; n++) {
        size_t len = random_text(text);
        for (size_t at = 0; at < len;) {
            size_t end = regex_end(part, match, text, at, len);
            while (at < end) {
                size_t want = regex_end(re, match, text, at, end);
                expect_equal(pre__next(u, PRE_SMOLLM, text, at, len), want, text, at, len);
                at = want;
            }
        }
    }
    pcre2_match_data_free(match);
    pcre2_code_free(part);
    pcre2_code_free(re);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_is_its_expression),
        cmocka_unit_test(llama3_is_its_expression),
        cmocka_unit_test(qwen2_is_its_expression),
        cmocka_unit_test(smollm_is_two_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
