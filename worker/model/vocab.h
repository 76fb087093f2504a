/* vocab.h - tokenizer asset and chat template of a model file. Reads metadata only; no tensor is
 * touched. */
#ifndef PENSTOCK_WORKER_MODEL_VOCAB_H
#define PENSTOCK_WORKER_MODEL_VOCAB_H

#include "common/tokenizer.h"
#include "worker/model/gguf.h"

/* Appends the asset (tokenizer_asset_pack) made from tokenizer.ggml.*. ERR_UNSUPPORTED names the
 * model or pre-tokenizer. */
enum err vocab_pack(const struct gguf *g, struct buffer *asset, struct errmsg *why) MUST_CHECK;
/* Opens the file, packs, creates: what a tool wants. */
enum err vocab_load(const char *path, struct tokenizer **out, struct errmsg *why) MUST_CHECK;
/* tokenizer.chat_template, borrowed from g; empty when there is none. */
struct span vocab_chat_template(const struct gguf *g);

#endif
