/* Merging against a plain twin, at random vocabularies and words, and its cost on hostile text. */
#include "common/tokenizer_internal.h"
#include "tests/unit/common/tokenizer_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>
#include <cmocka.h>

static uint32_t seed = 7;
static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)seed * n >> 32);
}

/* A vocabulary of "a".."d" and random concatenations. scores: a SentencePiece one, with few
 * distinct scores, so that ties are common and ranks do not rise along a chain of merges. */
enum { RANDOM_TOKENS = 60 };
struct random_vocab {
    char text[RANDOM_TOKENS][32], merges[RANDOM_TOKENS][40];
    struct span tokens[RANDOM_TOKENS], merge_spans[RANDOM_TOKENS];
    float scores[RANDOM_TOKENS];
    uint32_t merge_count;
};

static struct tokenizer *random_create(struct random_vocab *v, bool scores)
{
    v->merge_count = 0;
    for (uint32_t i = 0; i < RANDOM_TOKENS; i++) {
        if (i < 4) {
            (void)snprintf(v->text[i], sizeof v->text[i], "%c", 'a' + (int)i);
        } else {
            uint32_t l, r;
            do {
                l = random_below(i);
                r = random_below(i);
            } while (strlen(v->text[l]) + strlen(v->text[r]) > 12);
            size_t left = strlen(v->text[l]), right = strlen(v->text[r]);
            char *merge = v->merges[v->merge_count];
            memcpy(v->text[i], v->text[l], left);
            memcpy(v->text[i] + left, v->text[r], right + 1);
            memcpy(merge, v->text[l], left);
            merge[left] = ' ';
            memcpy(merge + left + 1, v->text[r], right + 1);
            v->merge_spans[v->merge_count] = span_str(v->merges[v->merge_count]);
            v->merge_count++;
        }
        v->tokens[i] = span_str(v->text[i]);
        v->scores[i] = -(float)random_below(12);
    }
    for (uint32_t i = v->merge_count; i > 1;
         i--) { /* any order, not only one that training gives */
        uint32_t k = random_below(i);
        struct span s = v->merge_spans[i - 1];
        v->merge_spans[i - 1] = v->merge_spans[k];
        v->merge_spans[k] = s;
    }
    struct tokenizer_spec spec = {.model = scores ? SPAN_LIT("llama") : SPAN_LIT("gpt2"),
                                  .token_count = RANDOM_TOKENS,
                                  .tokens = v->tokens,
                                  .scores = scores ? v->scores : NULL,
                                  .merge_count = scores ? 0 : v->merge_count,
                                  .merges = v->merge_spans,
                                  .bos = TOKEN_NONE,
                                  .eos = TOKEN_NONE,
                                  .unk = TOKEN_NONE,
                                  .pad = TOKEN_NONE,
                                  .eot = TOKEN_NONE,
                                  .eom = TOKEN_NONE};
    struct errmsg why = {""};
    struct tokenizer *t = NULL;
    enum err err = tokenizer__build(&spec, 1, &t, &why);
    CHECK_MSG(err == OK, "%s", why.text);
    return t;
}

/* The twin: look at all pairs, merge the best, again. */
static size_t merge_plainly(const struct tokenizer *t, uint32_t *symbols, size_t count)
{
    for (;;) {
        const struct pair_slot *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            const struct pair_slot *pair = pair_find(t, symbols[i], symbols[i + 1]);
            if (pair && (best == NULL || pair->rank < best->rank)) {
                best = pair;
                at = i;
            }
        }
        if (best == NULL) return count;
        symbols[at] = best->id;
        memmove(symbols + at + 1, symbols + at + 2, (count - at - 2) * sizeof *symbols);
        count--;
    }
}

static void merging_agrees_with_the_twin(void **state)
{
    (void)state;
    struct random_vocab v;
    struct merge_scratch scratch = {0};
    for (uint32_t round = 0; round < 600; round++) {
        struct tokenizer *t = random_create(&v, round % 2);
        for (uint32_t n = 0; n < 8; n++) {
            uint8_t word[400];
            uint32_t got[400], want[400];
            size_t len = 1 + random_below(n % 2 ? 400 : MERGE_SMALL + 2);
            uint32_t letters = 1 + random_below(4);
            for (size_t i = 0; i < len; i++)
                word[i] = (uint8_t)('a' + random_below(letters));
            size_t count = merge__symbols(t, span_of(word, len), got);
            memcpy(want, got, count * sizeof *got);
            size_t want_count = merge_plainly(t, want, count);
            assert_int_equal(merge__run(t, got, &count, &scratch), OK);
            assert_int_equal(count, want_count);
            assert_memory_equal(got, want, count * sizeof *got);
        }
        tokenizer_destroy(t);
    }
    merge__deinit(&scratch);
}

/* A word taken whole is what merging its symbols gives. */
static void whole_words_are_merged_words(void **state)
{
    (void)state;
    struct random_vocab v;
    uint32_t whole = 0, not_whole = 0;
    for (uint32_t round = 0; round < 200; round++) {
        struct tokenizer *t = random_create(&v, round % 2);
        for (uint32_t i = 0; i <= t->word_mask; i++) {
            if (t->words[i].id == TOKEN_NONE) continue;
            uint32_t id = t->words[i].id & ~(uint32_t)WORD_WHOLE, symbols[32];
            size_t count = merge__symbols(t, piece_of(t, id), symbols);
            count = merge_plainly(t, symbols, count);
            bool flag = t->words[i].id & (uint32_t)WORD_WHOLE;
            assert_int_equal(flag, count == 1 && symbols[0] == id);
            whole += flag;
            not_whole += !flag;
        }
        tokenizer_destroy(t);
    }
    assert_true(whole > 100 && not_whole > 100);
}

static double seconds_of(const struct tokenizer *t, struct span text)
{
    struct token_vec ids;
    struct timespec a, b;
    token_vec_init(&ids, 8 << 20);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    assert_int_equal(tokenizer_encode(t, text, TOKENIZE_SPECIAL, NULL, 0, &ids), OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    token_vec_deinit(&ids);
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
}

/* 64 times the text may take 64 * 12 times the time (caches, the logarithm); a quadratic step
 * takes 64 * 64. */
static void expect_linear(const struct tokenizer *t, const char *name, const char *unit)
{
    enum { BYTES = 1 << 20 };
    uint8_t *text = malloc(BYTES);
    size_t n = strlen(unit), whole = BYTES / 64 / n * n;
    for (size_t i = 0; i < BYTES; i++)
        text[i] = (uint8_t)unit[i % n];
    (void)seconds_of(t, span_of(text, whole * 64));
    double small = seconds_of(t, span_of(text, whole));
    double large = seconds_of(t, span_of(text, whole * 64));
    if (large > 64 * 12 * small)
        fail_msg("%s, '%s': %.6f s for 16 KB, %.3f s for 1 MB", name, unit, small, large);
    free(text);
}

static void hostile_text_is_linear(void **state)
{
    (void)state;
    static const char *const names[] = {"smollm2", "llama-bpe", "qwen2", "llama-spm"};
    static const char *const units[] = {"a",
                                        " ",
                                        "\n",
                                        "\xCC\x81",
                                        "\xCC\x81\xCC\xA3",
                                        "qzxjkvbwyp",
                                        "!",
                                        "7",
                                        " \n",
                                        "<|im_end|",
                                        "<|im_end|>",
                                        "\xE4\xB8\xAD",
                                        "\xF0\x9F\x98\x80",
                                        "'s",
                                        "\xE1\x84\x80\xE1\x85\xA1",
                                        "<s><s",
                                        "\xC2\xA0",
                                        "thequickbrownfox"};
    uint32_t found = 0;
    struct random_vocab v;
    for (int scores = 0; scores < 2; scores++) { /* these need no file */
        struct tokenizer *t = random_create(&v, scores);
        expect_linear(t, "random", "a");
        expect_linear(t, "random", "abcdbacdacbd");
        tokenizer_destroy(t);
    }
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        struct tokenizer *t = fixture_tokenizer(names[k]);
        if (t == NULL) continue;
        found++;
        for (size_t i = 0; i < ARRAY_LEN(units); i++)
            expect_linear(t, names[k], units[i]);
        tokenizer_destroy(t);
    }
    printf("%u real vocabularies\n", found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merging_agrees_with_the_twin),
        cmocka_unit_test(whole_words_are_merged_words),
        cmocka_unit_test(hostile_text_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
