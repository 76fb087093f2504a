/* synth_vocab.h - the tokenizer of a synthetic model: taken from another file, or a small one made
 * here. Main thread. */
#ifndef PENSTOCK_WORKER_TOOL_SYNTH_VOCAB_H
#define PENSTOCK_WORKER_TOOL_SYNTH_VOCAB_H

#include "worker/model/gguf_write.h"

/* Copies all keys of path that begin with "tokenizer."; *count is its number of tokens. */
enum err synth_vocab_copy(struct gguf_writer *w, const char *path, uint32_t *count,
                          struct errmsg *why) MUST_CHECK;
/* A byte-level vocabulary of count tokens (at least 300): the 256 bytes, a few merges, ChatML's
 * control tokens with a chat template, and unused tokens up to count. */
enum err synth_vocab_make(struct gguf_writer *w, uint32_t count, struct errmsg *why) MUST_CHECK;

#endif
