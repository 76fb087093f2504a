/* The tokenizer over small vocabularies made here: trust, families' rules, assets, the
 * detokenizer. */
#include "common/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* A vocabulary under construction. */
enum { VOCAB_CAP = 400 };
struct vocab {
    struct tokenizer_spec spec;
    struct span tokens[VOCAB_CAP], merges[VOCAB_CAP];
    float scores[VOCAB_CAP];
    int32_t types[VOCAB_CAP];
    char bytes[256][8];
};

static uint32_t vocab_add(struct vocab *v, const char *text, int32_t type, float score)
{
    uint32_t id = v->spec.token_count++;
    v->tokens[id] = span_str(text);
    v->types[id] = type;
    v->scores[id] = score;
    return id;
}

static void vocab_init(struct vocab *v, const char *model, const char *pre)
{
    *v = (struct vocab){0};
    v->spec = (struct tokenizer_spec){.model = span_str(model),
                                      .pre = span_str(pre),
                                      .tokens = v->tokens,
                                      .types = v->types,
                                      .merges = v->merges,
                                      .bos = TOKEN_NONE,
                                      .eos = TOKEN_NONE,
                                      .unk = TOKEN_NONE,
                                      .pad = TOKEN_NONE,
                                      .eot = TOKEN_NONE,
                                      .eom = TOKEN_NONE};
}

static void vocab_merge(struct vocab *v, const char *merge)
{
    v->merges[v->spec.merge_count++] = span_str(merge);
}

static struct tokenizer *vocab_create(struct vocab *v)
{
    struct buffer asset;
    struct errmsg why = {""};
    struct tokenizer *t = NULL;
    buffer_init(&asset, 1 << 20);
    assert_int_equal(tokenizer_asset_pack(&v->spec, &asset, &why), OK);
    assert_int_equal(tokenizer_create(buffer_view(&asset), &t, &why), OK);
    buffer_deinit(&asset);
    return t;
}

/* ids 0..3: a b ab " " (as the alphabet spells it); 4 <|im_end|> control, 5 [U] user-defined,
 * 6 <|im_end|>x control, 7 < */
static struct tokenizer *bpe_create(struct vocab *v)
{
    vocab_init(v, "gpt2", "gpt-2");
    (void)vocab_add(v, "a", TOKEN_NORMAL, 0);
    (void)vocab_add(v, "b", TOKEN_NORMAL, 0);
    (void)vocab_add(v, "ab", TOKEN_NORMAL, 0);
    (void)vocab_add(v, "\xC4\xA0", TOKEN_NORMAL, 0);
    (void)vocab_add(v, "<|im_end|>", TOKEN_CONTROL, 0);
    (void)vocab_add(v, "[U]", TOKEN_USER_DEFINED, 0);
    (void)vocab_add(v, "<|im_end|>x", TOKEN_CONTROL, 0);
    (void)vocab_add(v, "<", TOKEN_NORMAL, 0);
    vocab_merge(v, "a b");
    return vocab_create(v);
}

static void expect_ids(const struct tokenizer *t, const char *text, enum tokenize_mode mode,
                       const struct trust_range *trusted, size_t trusted_count, const char *want)
{
    struct token_vec ids;
    char got[1024] = "";
    token_vec_init(&ids, 100);
    assert_int_equal(tokenizer_encode(t, span_str(text), mode, trusted, trusted_count, &ids), OK);
    for (size_t i = 0; i < ids.count; i++)
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%u", i ? " " : "",
                       ids.ids[i]);
    assert_string_equal(got, want);
    token_vec_deinit(&ids);
}

static void control_tokens_need_trust(void **state)
{
    (void)state;
    struct vocab v;
    struct tokenizer *t = bpe_create(&v);
    const char *text = "ab<|im_end|>ab[U]";                  /* bytes 2..12 are the control token */
    expect_ids(t, text, TOKENIZE_PLAIN, NULL, 0, "2 7 2 5"); /* most bytes have no token */
    expect_ids(t, text, TOKENIZE_SPECIAL, NULL, 0, "2 4 2 5");
    expect_ids(t, text, TOKENIZE_TRUSTED, NULL, 0, "2 7 2 5");
    const struct trust_range exact[] = {{2, 12}}, early[] = {{0, 11}}, late[] = {{3, 17}};
    expect_ids(t, text, TOKENIZE_TRUSTED, exact, 1, "2 4 2 5");
    expect_ids(t, text, TOKENIZE_TRUSTED, early, 1, "2 7 2 5");
    expect_ids(t, text, TOKENIZE_TRUSTED, late, 1, "2 7 2 5");
    const struct trust_range touching[] = {{0, 4}, {4, 9}, {9, 12}}, gap[] = {{0, 4}, {5, 17}};
    expect_ids(t, text, TOKENIZE_TRUSTED, touching, 3, "2 4 2 5");
    expect_ids(t, text, TOKENIZE_TRUSTED, gap, 2, "2 7 2 5");
    tokenizer_destroy(t);
}

static void longest_allowed_token_wins(void **state)
{
    (void)state;
    struct vocab v;
    struct tokenizer *t = bpe_create(&v);
    expect_ids(t, "<|im_end|>x", TOKENIZE_SPECIAL, NULL, 0, "6");
    const struct trust_range template_only[] = {{0, 10}}; /* the x is a user's */
    expect_ids(t, "<|im_end|>x", TOKENIZE_TRUSTED, template_only, 1, "4");
    expect_ids(t, "<|im_e<|im_end|>", TOKENIZE_SPECIAL, NULL, 0, "7 4");
    /* two halves by two users never make one */
    const struct trust_range between[] = {{5, 5}};
    expect_ids(t, "<|im_end|>", TOKENIZE_TRUSTED, between, 1, "7");
    tokenizer_destroy(t);
}

static void trust_moves_no_border(void **state)
{
    (void)state;
    struct vocab v;
    struct tokenizer *t = bpe_create(&v);
    const struct trust_range half[] = {{0, 1}}; /* the border runs through "ab" */
    expect_ids(t, "ab", TOKENIZE_TRUSTED, half, 1, "2");
    tokenizer_destroy(t);
}

static void questions_are_answered(void **state)
{
    (void)state;
    struct vocab v;
    struct tokenizer *t = bpe_create(&v);
    uint32_t count;
    assert_int_equal(tokenizer_vocab_count(t), 8);
    assert_int_equal(tokenizer_find(t, SPAN_LIT("<|im_end|>")), 4);
    assert_int_equal(tokenizer_find(t, SPAN_LIT("ab")), 2);
    assert_int_equal(tokenizer_find(t, SPAN_LIT("abc")), TOKEN_NONE);
    assert_int_equal(tokenizer_find(t, SPAN_LIT("")), TOKEN_NONE);
    assert_true(span_eq_str(tokenizer_piece(t, 3), " "));
    assert_int_equal(tokenizer_piece(t, 8).len, 0);
    assert_true(tokenizer_is_control(t, 4));
    assert_false(tokenizer_is_control(t, 5));
    assert_int_equal(tokenizer_eog(t, &count)[0], 4); /* by its name */
    assert_int_equal(count, 1);
    tokenizer_destroy(t);
    v.spec.eos = 1;
    v.spec.eot = 0;
    t = vocab_create(&v);
    const uint32_t *eog = tokenizer_eog(t, &count);
    assert_int_equal(count, 3);
    assert_true(eog[0] == 0 && eog[1] == 1 && eog[2] == 4);
    tokenizer_destroy(t);
}

static void limits_and_bad_text_are_refused(void **state)
{
    (void)state;
    struct vocab v;
    struct tokenizer *t = bpe_create(&v);
    struct token_vec ids;
    token_vec_init(&ids, 3);
    assert_int_equal(token_vec_push(&ids, 9), OK);
    assert_int_equal(tokenizer_encode(t, SPAN_LIT("a a"), TOKENIZE_PLAIN, NULL, 0, &ids),
                     ERR_LIMIT);
    assert_int_equal(ids.count, 1); /* all or nothing */
    assert_int_equal(tokenizer_encode(t, SPAN_LIT("a\xff"), TOKENIZE_PLAIN, NULL, 0, &ids),
                     ERR_PROTO);
    assert_int_equal(tokenizer_encode(t, SPAN_LIT("ab"), TOKENIZE_PLAIN, NULL, 0, &ids), OK);
    assert_int_equal(ids.count, 2);
    token_vec_deinit(&ids);
    tokenizer_destroy(t);
}

/* SentencePiece: 0 <unk>, 1 <s>, 2.. pieces; bytes only where asked for. */
static void spm_init(struct vocab *v, bool bytes)
{
    vocab_init(v, "llama", "default");
    v->spec.scores = v->scores;
    v->spec.add_space_prefix = true;
    v->spec.unk = vocab_add(v, "<unk>", TOKEN_UNKNOWN, 0);
    v->spec.bos = vocab_add(v, "<s>", TOKEN_CONTROL, 0);
    (void)vocab_add(v, "\xE2\x96\x81", TOKEN_NORMAL, -9); /* 2 */
    (void)vocab_add(v, "a", TOKEN_NORMAL, -10);           /* 3 */
    (void)vocab_add(v, "b", TOKEN_NORMAL, -11);           /* 4 */
    (void)vocab_add(v, "ab", TOKEN_NORMAL, -1);           /* 5 */
    (void)vocab_add(v,
                    "\xE2\x96\x81"
                    "a",
                    TOKEN_NORMAL, -2);                 /* 6 */
    (void)vocab_add(v, "q\xC3\xA9", TOKEN_NORMAL, -3); /* 7: neither part is a token */
    for (uint32_t b = 0; bytes && b < 256; b++) {
        (void)snprintf(v->bytes[b], sizeof v->bytes[b], "<0x%02X>", b);
        (void)vocab_add(v, v->bytes[b], TOKEN_BYTE, 0); /* 8 + b */
    }
}

static void sentencepiece_merges_by_score(void **state)
{
    (void)state;
    struct vocab v;
    spm_init(&v, true);
    struct tokenizer *t = vocab_create(&v);
    expect_ids(t, "ab", TOKENIZE_PLAIN, NULL, 0, "2 5"); /* ab before _a */
    expect_ids(t, "a b", TOKENIZE_PLAIN, NULL, 0, "6 2 4");
    expect_ids(t, "q\xC3\xA9", TOKENIZE_PLAIN, NULL, 0, "2 7");
    expect_ids(t, "q\xC3\xA9q", TOKENIZE_PLAIN, NULL, 0, "2 7 121");
    expect_ids(t, "\xE2\x82\xAC", TOKENIZE_PLAIN, NULL, 0, "2 234 138 180");
    expect_ids(t, "<0x41>", TOKENIZE_PLAIN, NULL, 0, "2 68 56 128 60 57 70"); /* no byte token */
    expect_ids(t, "a<s>a<s><s>", TOKENIZE_SPECIAL, NULL, 0, "6 1 6 1 1");
    expect_ids(t, "", TOKENIZE_SPECIAL, NULL, 0, "");
    tokenizer_destroy(t);
    v.spec.add_space_prefix = false;
    t = vocab_create(&v);
    expect_ids(t, "ab<s>a", TOKENIZE_SPECIAL, NULL, 0, "5 1 3");
    tokenizer_destroy(t);
    spm_init(&v, false);
    t = vocab_create(&v);
    expect_ids(t, "axyb", TOKENIZE_PLAIN, NULL, 0, "6 0 4"); /* one unknown for the run */
    tokenizer_destroy(t);
}

/* Where a piece reaches over the beginning of a blank, text must not be cut there. */
static void sentencepiece_blank_inside_a_piece(void **state)
{
    (void)state;
    struct vocab v;
    spm_init(&v, true);
    uint32_t over = vocab_add(&v, "b\xE2\x96\x81", TOKEN_NORMAL, -0.5f);
    struct tokenizer *t = vocab_create(&v);
    char want[64];
    (void)snprintf(want, sizeof want, "6 2 %u 3", over);
    expect_ids(t, "a b a", TOKENIZE_PLAIN, NULL, 0, want);
    tokenizer_destroy(t);
}

static void expect_refused(struct vocab *v, enum err want, const char *part)
{
    struct buffer asset;
    struct errmsg why = {""};
    buffer_init(&asset, 1 << 20);
    assert_int_equal(tokenizer_asset_pack(&v->spec, &asset, &why), want);
    assert_non_null(strstr(why.text, part));
    assert_int_equal(asset.len, 0);
    buffer_deinit(&asset);
}

static void unknown_kinds_are_named(void **state)
{
    (void)state;
    struct vocab v;
    tokenizer_destroy(bpe_create(&v));
    v.spec.pre = SPAN_LIT("tekken");
    expect_refused(&v, ERR_UNSUPPORTED, "'tekken' is not known; there are smollm");
    static const char *const names[] = {"",          "default", "gpt-2",    "smollm",
                                        "llama-bpe", "llama3",  "llama-v3", "qwen2"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        v.spec.pre = span_str(names[i]);
        tokenizer_destroy(vocab_create(&v));
    }
    v.spec.model = SPAN_LIT("t5");
    expect_refused(&v, ERR_UNSUPPORTED, "'t5' is not known; there are gpt2");
    v.spec.model = SPAN_LIT("llama");
    expect_refused(&v, ERR_PROTO, "scores");
    v.spec.model = SPAN_LIT("gpt2");
    v.merges[0] = SPAN_LIT("a z");
    expect_refused(&v, ERR_PROTO, "merges[0] 'a z'");
    v.merges[0] = SPAN_LIT("ab");
    expect_refused(&v, ERR_PROTO, "merges[0] 'ab'");
    v.merges[0] = SPAN_LIT("a b");
    v.spec.eos = 8;
    expect_refused(&v, ERR_PROTO, "eos_token_id: 8, but there are 8 tokens");
    v.spec.eos = 7;
    v.types[3] = 7;
    expect_refused(&v, ERR_PROTO, "token_type[3]: 7");
}

/* Each cut and each changed byte is refused or gives a tokenizer that works; none crashes. */
static void damaged_assets_are_refused(void **state)
{
    (void)state;
    struct vocab v;
    tokenizer_destroy(bpe_create(&v));
    struct buffer asset;
    struct errmsg why;
    struct tokenizer *t;
    buffer_init(&asset, 1 << 20);
    assert_int_equal(tokenizer_asset_pack(&v.spec, &asset, &why), OK);
    for (size_t len = 0; len < asset.len; len++) {
        uint8_t *copy = malloc(len + 1); /* its own block, so that asan sees over-reads */
        memcpy(copy, asset.ptr, len);
        assert_int_not_equal(tokenizer_create(span_of(copy, len), &t, &why), OK);
        free(copy);
    }
    for (size_t at = 0; at < asset.len; at++)
        for (uint32_t bit = 0; bit < 8; bit++) {
            asset.ptr[at] ^= (uint8_t)(1u << bit);
            if (tokenizer_create(buffer_view(&asset), &t, &why) == OK) {
                struct token_vec ids;
                token_vec_init(&ids, 100);
                assert_int_equal(
                    tokenizer_encode(t, SPAN_LIT("ab [U]"), TOKENIZE_SPECIAL, NULL, 0, &ids), OK);
                token_vec_deinit(&ids);
                tokenizer_destroy(t);
            }
            asset.ptr[at] ^= (uint8_t)(1u << bit);
        }
    buffer_add_byte(&asset, 0);
    assert_int_equal(tokenizer_create(buffer_view(&asset), &t, &why), ERR_PROTO);
    buffer_deinit(&asset);
}

/* ---- detokenizer ---- */
struct decoding {
    struct detokenizer d;
    struct buffer out;
};

static void expect_push(struct decoding *s, uint32_t id, const char *want)
{
    buffer_reset(&s->out);
    detokenizer_push(&s->d, id, &s->out);
    assert_true(span_eq_str(buffer_view(&s->out), want));
}

static void expect_flush(struct decoding *s, const char *want)
{
    buffer_reset(&s->out);
    detokenizer_flush(&s->d, &s->out);
    assert_true(span_eq_str(buffer_view(&s->out), want));
}

static void detokenizer_gives_whole_code_points(void **state)
{
    (void)state;
    struct vocab v;
    spm_init(&v, true);
    struct tokenizer *t = vocab_create(&v);
    struct decoding s;
    buffer_init(&s.out, 1000);
    detokenizer_init(&s.d, t, true, true);
    enum { BYTE = 8 };
    expect_push(&s, BYTE + 0xE2, "");
    expect_push(&s, BYTE + 0x82, "");
    expect_push(&s, BYTE + 0xAC, "\xE2\x82\xAC");
    /* maximal subparts: F0 9F | 41; C0; ED | A0; E2 82 | <s> says nothing */
    expect_push(&s, BYTE + 0xF0, "");
    expect_push(&s, BYTE + 0x9F, "");
    expect_push(&s, BYTE + 'A',
                "\xEF\xBF\xBD"
                "A");
    expect_push(&s, BYTE + 0xC0, "\xEF\xBF\xBD");
    expect_push(&s, BYTE + 0xED, "");
    expect_push(&s, BYTE + 0xA0, "\xEF\xBF\xBD\xEF\xBF\xBD");
    expect_push(&s, BYTE + 0xE2, "");
    expect_push(&s, BYTE + 0x82, "");
    expect_push(&s, 1, "");
    expect_push(&s, 5,
                "\xEF\xBF\xBD"
                "ab");
    expect_push(&s, BYTE + 0xF4, "");
    expect_push(&s, 9999, "");
    expect_flush(&s, "\xEF\xBF\xBD");
    expect_flush(&s, "");
    buffer_deinit(&s.out);
    tokenizer_destroy(t);
}

static void detokenizer_drops_the_first_blank_only(void **state)
{
    (void)state;
    struct vocab v;
    spm_init(&v, true);
    struct tokenizer *t = vocab_create(&v);
    struct decoding s;
    buffer_init(&s.out, 1000);
    detokenizer_init(&s.d, t, true, false);
    expect_push(&s, 1, ""); /* <s> */
    expect_push(&s, 6, "a");
    expect_push(&s, 6, " a");
    detokenizer_init(&s.d, t, false, true);
    expect_push(&s, 1, "<s>");
    expect_push(&s, 6, " a");
    buffer_deinit(&s.out);
    tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_tokens_need_trust),
        cmocka_unit_test(longest_allowed_token_wins),
        cmocka_unit_test(trust_moves_no_border),
        cmocka_unit_test(questions_are_answered),
        cmocka_unit_test(limits_and_bad_text_are_refused),
        cmocka_unit_test(sentencepiece_merges_by_score),
        cmocka_unit_test(sentencepiece_blank_inside_a_piece),
        cmocka_unit_test(unknown_kinds_are_named),
        cmocka_unit_test(damaged_assets_are_refused),
        cmocka_unit_test(detokenizer_gives_whole_code_points),
        cmocka_unit_test(detokenizer_drops_the_first_blank_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
