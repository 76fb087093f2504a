/* tokenizer.h - text to token ids and back, for byte-level BPE and SentencePiece BPE vocabularies.
 * A tokenizer is made from an *asset*: one self-contained byte string (vocabulary, merges, flags)
 * that a worker packs from its model file and a gateway asks for by content hash. Immutable after
 * creation: any number of threads may share one. Sources: GPT-2 byte-level BPE; SentencePiece
 * (unigram scores used as BPE merge ranks, as llama.cpp does); golden/README.md for the exact rules
 * of each family. */
#ifndef PENSTOCK_COMMON_TOKENIZER_H
#define PENSTOCK_COMMON_TOKENIZER_H

#include "common/buffer.h"
#include "common/hash.h"

struct tokenizer;

enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
};
#define TOKEN_NONE UINT32_MAX

enum {
    TOKENIZER_VOCAB_MAX = 1 << 21,        /* tokens */
    TOKENIZER_PIECE_MAX = 1 << 16,        /* bytes of one token */
    TOKENIZER_ASSET_BYTES_MAX = 96 << 20, /* a 256k vocabulary with merges is about 12 MB */
};

/* What a model file says of its vocabulary; all spans borrowed. The source of tokenizer_asset_pack.
 */
struct tokenizer_spec {
    struct span model; /* "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE) */
    struct span
        pre; /* "smollm" "gpt-2" "llama-bpe" "qwen2" ... ; empty means gpt-2's for gpt2 models */
    uint32_t token_count;
    const struct span *tokens; /* [token_count] as the GGUF file spells them (byte-level: GPT-2's
                                  printable alphabet) */
    const float *scores;       /* [token_count] or NULL */
    const int32_t *types;      /* [token_count] enum token_type, or NULL: all normal */
    uint32_t merge_count;
    const struct span *merges;             /* [merge_count] "left right" */
    uint32_t bos, eos, unk, pad, eot, eom; /* TOKEN_NONE when absent */
    bool add_bos, add_eos, add_space_prefix;
};

/* Appends the asset. Refuses (with the field named) what tokenizer_create would refuse. */
enum err tokenizer_asset_pack(const struct tokenizer_spec *spec, struct buffer *out,
                              struct errmsg *why) MUST_CHECK;

/* Every count and length in the asset is checked: it comes over the network. ERR_PROTO, ERR_LIMIT,
 * ERR_UNSUPPORTED (an unknown model or pre-tokenizer, by name), ERR_NOMEM. asset is copied where
 * needed; it may go after the call. */
enum err tokenizer_create(struct span asset, struct tokenizer **out, struct errmsg *why) MUST_CHECK;
void tokenizer_destroy(struct tokenizer *t);

uint32_t tokenizer_vocab_count(const struct tokenizer *t);
uint32_t tokenizer_bos(const struct tokenizer *t); /* TOKEN_NONE when absent, as the others */
uint32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_add_bos(
    const struct tokenizer *t); /* the model wants BOS in front of raw (untemplated) prompts */
bool tokenizer_is_control(const struct tokenizer *t, uint32_t id);
/* End of generation: eos, eot, eom, and control tokens that end a turn by their name (<|im_end|>,
 * <|eot_id|>,
 * <|end|>, <end_of_turn>, <|endoftext|>, </s>). Ascending ids, borrowed; *count of them. */
const uint32_t *tokenizer_eog(const struct tokenizer *t, uint32_t *count);
/* Id of the token spelt so (control and user-defined tokens by their text), TOKEN_NONE. */
uint32_t tokenizer_find(const struct tokenizer *t, struct span text);
/* The bytes of a token as they appear in text; control tokens give their spelling. Empty for ids
 * without bytes. */
struct span tokenizer_piece(const struct tokenizer *t, uint32_t id);

/* ---- encoding ---- */
struct token_vec { /* grows; owned by the caller, who frees with token_vec_deinit */
    uint32_t *ids;
    size_t count, cap, max; /* max: hard limit in tokens */
};
void token_vec_init(struct token_vec *v, size_t max);
void token_vec_deinit(struct token_vec *v);
enum err token_vec_push(struct token_vec *v, uint32_t id) MUST_CHECK;

/* A stretch of the text that the template wrote (not a user): only there may control tokens be
 * recognised. Ascending, disjoint, in bytes. */
struct trust_range {
    size_t start, end;
};
enum tokenize_mode {
    TOKENIZE_PLAIN, /* no control token is recognised anywhere; user-defined (type 4) tokens are, as
                       everywhere */
    TOKENIZE_SPECIAL, /* control tokens are recognised everywhere: operators' tools, and completions
                         that ask for it */
    TOKENIZE_TRUSTED, /* control tokens are recognised where all their bytes lie in trusted ranges
                       */
};
/* Appends the ids of text to out; never a BOS or EOS. The pre-tokenizer sees the text as one whole,
 * so that trust does not move token borders elsewhere. Linear in text.len for any input. Bytes
 * without a token are dropped or become unk, as the family does. ERR_PROTO: invalid UTF-8.
 * ERR_LIMIT: more than out->max tokens. ERR_NOMEM. */
enum err tokenizer_encode(const struct tokenizer *t, struct span text, enum tokenize_mode mode,
                          const struct trust_range *trusted, size_t trusted_count,
                          struct token_vec *out) MUST_CHECK;

/* ---- incremental decoding ---- */
struct detokenizer { /* small, by value; one stream of tokens */
    const struct tokenizer *t;
    bool skip_control; /* control tokens give no bytes */
    bool at_start;     /* SentencePiece: drop the first blank */
    uint8_t held[8];   /* the beginning of an unfinished code point */
    uint8_t held_count;
};
/* after_prompt: the text continues a prompt, so SentencePiece's first blank is kept. */
void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_control,
                      bool after_prompt);
/* Appends the bytes that became certain: whole code points only; invalid sequences become U+FFFD,
 * one for each maximal subpart, as soon as they are known to be invalid. */
void detokenizer_push(struct detokenizer *d, uint32_t id, struct buffer *out);
/* The end: an unfinished code point becomes U+FFFD. */
void detokenizer_flush(struct detokenizer *d, struct buffer *out);

#endif
