/* api_tokenize.h - POST /tokenize and /detokenize, with the fields of vLLM and of llama.cpp's
 * server. Pure, over the models that are served. Loop thread: bodies are bounded. */
#ifndef PENSTOCK_GATEWAY_API_TOKENIZE_H
#define PENSTOCK_GATEWAY_API_TOKENIZE_H

#include "gateway/api_error.h"
#include "gateway/served_model.h"

enum { TOKENIZE_BODY_BYTES_MAX = 1 << 20 };

/* Append the answer's JSON to out, or fill *error (ERR_INVALID). body is any bytes. */
enum err api_tokenize(struct served_models *models, struct span body, struct buffer *out,
                      struct api_error *error) MUST_CHECK;
enum err api_detokenize(struct served_models *models, struct span body, struct buffer *out,
                        struct api_error *error) MUST_CHECK;

#endif
