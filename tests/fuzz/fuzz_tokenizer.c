/* libFuzzer: an asset from the network and a text from a user. Input: u16 length of the text, the
 * text, the asset. An input whose asset is refused runs its text over a fixed vocabulary instead.
 */
#include "common/tokenizer.h"
#include "common/unicode.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* All bytes, a few merges, a control and a user-defined token. */
static struct tokenizer *fixed_tokenizer(void)
{
    static const char *const merges[] = {"a b", "ab c", "c c", "a a", "aa aa", "c a"};
    static const char *const words[] = {"ab", "abc", "cc", "aa", "aaaa", "ca", "<|x|>", "[y]"};
    static uint8_t alphabet[256][2];
    struct span tokens[256 + 8], merge_spans[ARRAY_LEN(merges)];
    int32_t types[256 + 8];
    uint32_t count = 0, others = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        bool printable =
            (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
        uint8_t utf8[4];
        uint32_t len = unicode_encode(printable ? b : others++, utf8);
        memcpy(alphabet[b], utf8, len);
        types[count] = TOKEN_NORMAL;
        tokens[count++] = span_of(alphabet[b], len);
    }
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        types[count] = i == 6 ? TOKEN_CONTROL : i == 7 ? TOKEN_USER_DEFINED : TOKEN_NORMAL;
        tokens[count++] = span_str(words[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(merges); i++)
        merge_spans[i] = span_str(merges[i]);
    struct tokenizer_spec spec = {.model = SPAN_LIT("gpt2"),
                                  .pre = SPAN_LIT("smollm"),
                                  .token_count = count,
                                  .tokens = tokens,
                                  .types = types,
                                  .merge_count = ARRAY_LEN(merges),
                                  .merges = merge_spans,
                                  .bos = TOKEN_NONE,
                                  .eos = TOKEN_NONE,
                                  .unk = TOKEN_NONE,
                                  .pad = TOKEN_NONE,
                                  .eot = TOKEN_NONE,
                                  .eom = TOKEN_NONE};
    struct buffer asset;
    struct tokenizer *t = NULL;
    buffer_init(&asset, 1 << 20);
    CHECK(tokenizer_asset_pack(&spec, &asset, NULL) == OK);
    CHECK(tokenizer_create(buffer_view(&asset), &t, NULL) == OK);
    buffer_deinit(&asset);
    return t;
}

static void check_decoding(const struct tokenizer *t, const struct token_vec *ids, struct span text)
{
    struct detokenizer d;
    struct buffer out;
    buffer_init(&out, 64 << 20);
    detokenizer_init(&d, t, false, true);
    for (size_t i = 0; i < ids->count; i++) {
        CHECK(ids->ids[i] < tokenizer_vocab_count(t));
        detokenizer_push(&d, ids->ids[i], &out);
        CHECK(unicode_utf8_valid(buffer_view(&out)));
    }
    detokenizer_flush(&d, &out);
    CHECK(unicode_utf8_valid(buffer_view(&out)));
    if (text.ptr != NULL) CHECK(span_eq(buffer_view(&out), text));
    buffer_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *fixed;
    if (fixed == NULL) fixed = fixed_tokenizer();
    if (size < 2) return 0;
    size_t text_len = load_le16(data) < size - 2 ? load_le16(data) : size - 2;
    struct span text = span_of(data + 2, text_len),
                asset = span_of(data + 2 + text_len, size - 2 - text_len);
    struct tokenizer *t = NULL;
    struct errmsg why;
    bool own = tokenizer_create(asset, &t, &why) == OK;
    if (!own) t = fixed;
    for (int mode = TOKENIZE_PLAIN; mode <= TOKENIZE_TRUSTED; mode++) {
        const struct trust_range trusted[] = {{0, text.len / 3}, {text.len / 2, text.len}};
        struct token_vec ids;
        token_vec_init(&ids, 1 << 20);
        enum err err = tokenizer_encode(t, text, (enum tokenize_mode)mode, trusted, 2, &ids);
        CHECK((err == ERR_PROTO) == !unicode_utf8_valid(text));
        if (err == OK) check_decoding(t, &ids, own ? span_of(NULL, 0) : text);
        token_vec_deinit(&ids);
    }
    if (own) tokenizer_destroy(t);
    return 0;
}
