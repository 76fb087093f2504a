/* Every line of tests/golden/tokenizer, over the vocabularies they were made with. */
#include "common/json.h"
#include "tests/unit/common/tokenizer_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void text_of(const struct json *line, struct buffer *text)
{
    buffer_reset(text);
    const struct json *hex = json_get(line, "bytes_hex");
    if (hex == NULL) {
        buffer_add_span(text, json_as_string(json_get(line, "text")));
        return;
    }
    struct span digits = json_as_string(hex);
    for (size_t i = 0; i + 1 < digits.len; i += 2) {
        unsigned byte = 0;
        assert_int_equal(sscanf((const char *)digits.ptr + i, "%2x", &byte), 1);
        buffer_add_byte(text, (uint8_t)byte);
    }
}

static bool ids_match(const struct token_vec *got, const struct json *want)
{
    if (got->count != json_count(want)) return false;
    for (size_t i = 0; i < got->count; i++)
        if (got->ids[i] != json_as_int(json_at(want, i))) return false;
    return true;
}

static bool pieces_match(const struct tokenizer *t, const struct token_vec *got,
                         const struct json *want)
{
    char hex[1024];
    for (size_t i = 0; i < json_count(want); i++) {
        struct span piece = tokenizer_piece(t, got->ids[i]);
        for (size_t k = 0; k < piece.len; k++)
            (void)snprintf(hex + 2 * k, 3, "%02x", piece.ptr[k]);
        if (!span_eq(span_of(hex, 2 * piece.len), json_as_string(json_at(want, i)))) return false;
    }
    return true;
}

/* The stream of ids gives the text back. */
static bool text_returns(const struct tokenizer *t, const struct token_vec *ids, struct span text)
{
    struct detokenizer d;
    struct buffer out;
    buffer_init(&out, 1 << 20);
    detokenizer_init(&d, t, true, false);
    for (size_t i = 0; i < ids->count; i++)
        detokenizer_push(&d, ids->ids[i], &out);
    detokenizer_flush(&d, &out);
    bool same = span_eq(buffer_view(&out), text);
    buffer_deinit(&out);
    return same;
}

static uint32_t check_line(const struct tokenizer *t, const struct json *line, struct buffer *text)
{
    static const char *const keys[2] = {"ids", "ids_special"};
    static const enum tokenize_mode modes[2] = {TOKENIZE_PLAIN, TOKENIZE_SPECIAL};
    uint32_t wrong = 0;
    text_of(line, text);
    for (int k = 0; k < 2; k++) {
        struct token_vec ids;
        token_vec_init(&ids, 1 << 20);
        enum err err = tokenizer_encode(t, buffer_view(text), modes[k], NULL, 0, &ids);
        bool right = err == OK && ids_match(&ids, json_get(line, keys[k]));
        const struct json *pieces = k == 0 ? json_get(line, "pieces_hex") : NULL;
        if (right && pieces) right = pieces_match(t, &ids, pieces);
        if (right && k == 0 && json_get(line, "lossy") == NULL)
            right = text_returns(t, &ids, buffer_view(text));
        if (!right) {
            printf("wrong (%s): ", keys[k]);
            struct buffer shown;
            buffer_init(&shown, 1 << 20);
            json_write(&shown, line);
            printf("%.*s\n  got", (int)(shown.len < 300 ? shown.len : 300), (char *)shown.ptr);
            buffer_deinit(&shown);
            for (size_t i = 0; i < ids.count && i < 40; i++)
                printf(" %u", ids.ids[i]);
            printf("\n");
            wrong++;
        }
        token_vec_deinit(&ids);
    }
    return wrong;
}

static void check_family(const char *name, uint32_t lines_want)
{
    struct tokenizer *t = fixture_tokenizer(name);
    if (t == NULL) skip();
    char path[4096], *line = NULL;
    size_t cap = 0;
    ssize_t len;
    uint32_t lines = 0, wrong = 0;
    (void)snprintf(path, sizeof path, "%s/tokenizer/%s.jsonl", GOLDEN_DIR, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    struct buffer text;
    buffer_init(&text, 1 << 20);
    while ((len = getline(&line, &cap, file)) > 0) {
        struct json *root = NULL;
        struct errmsg why;
        struct json_limits limits = {.allow_nul = true};
        assert_int_equal(json_parse(span_of(line, (size_t)len), &limits, &root, &why), OK);
        wrong += check_line(t, root, &text);
        lines++;
        json_destroy(root);
    }
    free(line);
    (void)fclose(file);
    buffer_deinit(&text);
    tokenizer_destroy(t);
    printf("%s: %u lines, %u wrong answers\n", name, lines, wrong);
    assert_int_equal(wrong, 0);
    assert_int_equal(lines, lines_want);
}

static void smollm2_lines_are_right(void **state)
{
    (void)state;
    check_family("smollm2", 292);
}

static void llama_bpe_lines_are_right(void **state)
{
    (void)state;
    check_family("llama-bpe", 188);
}

static void qwen2_lines_are_right(void **state)
{
    (void)state;
    check_family("qwen2", 180);
}

static void llama_spm_lines_are_right(void **state)
{
    (void)state;
    check_family("llama-spm", 182);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2_lines_are_right),
        cmocka_unit_test(llama_bpe_lines_are_right),
        cmocka_unit_test(qwen2_lines_are_right),
        cmocka_unit_test(llama_spm_lines_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
