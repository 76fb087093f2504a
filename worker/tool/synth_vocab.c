#include "worker/tool/synth_vocab.h"

#include "common/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

enum err synth_vocab_copy(struct gguf_writer *w, const char *path, uint32_t *count,
                          struct errmsg *why)
{
    static const struct span prefix = SPAN_LIT("tokenizer.");
    struct gguf *g;
    enum err err = gguf_open(path, &g, why);
    if (err != OK) return err;
    err = gguf_array_count(g, "tokenizer.ggml.tokens", count, why);
    for (uint32_t i = 0; err == OK && i < gguf_key_count(g); i++) {
        struct span key = gguf_key_at(g, i);
        if (key.len > prefix.len && memcmp(key.ptr, prefix.ptr, prefix.len) == 0)
            gguf_writer_copy(w, g, i);
    }
    gguf_close(g);
    return err;
}

/* GPT-2's printable alphabet: bytes that are printable in Latin-1 stand for themselves, the others
 * for U+0100 and up, in order. */
static uint32_t byte_letter(uint32_t byte)
{
    bool own = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    if (own) return byte;
    if (byte <= 0x20) return 0x100 + byte;
    if (byte == 0xad) return 0x143;
    return 0x121 + (byte - 0x7f);
}

struct vocab {
    struct span *tokens;
    int32_t *types;
    char *texts; /* [count, TEXT_BYTES] */
    uint32_t at;
};
enum { TEXT_BYTES = 24 };

static uint32_t add_token(struct vocab *v, const char *text, enum token_type type)
{
    char *to = v->texts + (size_t)v->at * TEXT_BYTES;
    (void)snprintf(to, TEXT_BYTES, "%s", text);
    v->tokens[v->at] = span_str(to);
    v->types[v->at] = (int32_t)type;
    return v->at++;
}

static void add_bytes(struct vocab *v)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = byte_letter(b);
        char text[3] = {(char)c, 0, 0};
        if (c >= 0x80) {
            text[0] = (char)(0xc0 | c >> 6);
            text[1] = (char)(0x80 | (c & 0x3f));
        }
        add_token(v, text, TOKEN_NORMAL);
    }
}

static void fill(struct gguf_writer *w, struct vocab *v, uint32_t count)
{
    /* the commonest English pairs, each merge with the token that it makes */
    static const struct {
        const char *merge, *token;
    } merges[] = {
        {"h e", "he"}, {"i n", "in"}, {"r e", "re"}, {"o n", "on"}, {"e r", "er"}, {"a t", "at"},
    };
    struct span merge_spans[ARRAY_LEN(merges)];
    add_bytes(v);
    for (size_t i = 0; i < ARRAY_LEN(merges); i++) {
        merge_spans[i] = span_str(merges[i].merge);
        add_token(v, merges[i].token, TOKEN_NORMAL);
    }
    uint32_t end = add_token(v, "<|endoftext|>", TOKEN_CONTROL);
    add_token(v, "<|im_start|>", TOKEN_CONTROL);
    uint32_t turn_end = add_token(v, "<|im_end|>", TOKEN_CONTROL);
    while (v->at < count) {
        char text[TEXT_BYTES];
        (void)snprintf(text, sizeof text, "<unused%u>", v->at);
        add_token(v, text, TOKEN_UNUSED);
    }
    gguf_writer_string(w, "tokenizer.ggml.model", SPAN_LIT("gpt2"));
    gguf_writer_string(w, "tokenizer.ggml.pre", SPAN_LIT("gpt-2"));
    gguf_writer_strings(w, "tokenizer.ggml.tokens", v->tokens, count);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", v->types, count);
    gguf_writer_strings(w, "tokenizer.ggml.merges", merge_spans, ARRAY_LEN(merges));
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", end);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", turn_end);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_writer_string(w, "tokenizer.chat_template",
                       SPAN_LIT("{% for message in messages %}{{ '<|im_start|>' + message['role'] "
                                "+ '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
                                "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                                "{% endif %}"));
}

enum err synth_vocab_make(struct gguf_writer *w, uint32_t count, struct errmsg *why)
{
    CHECK(count >= 300);
    struct vocab v = {
        .tokens = calloc(count, sizeof *v.tokens),
        .types = calloc(count, sizeof *v.types),
        .texts = calloc(count, TEXT_BYTES),
    };
    enum err err = OK;
    if (v.tokens == NULL || v.types == NULL || v.texts == NULL)
        err = errmsg_set(why, ERR_NOMEM, "no memory for %u tokens", count);
    else
        fill(w, &v, count);
    free(v.tokens);
    free(v.types);
    free(v.texts);
    return err;
}
