/* api_prompt.h - what a request asks, as token ids: chat messages through the model's template and
 * tokenizer, completion prompts as text or ids. Pure; runs on the loop or on a prepare thread
 * (prepare.h): touches only the request and immutable model assets. Control tokens come from the
 * template alone: what a user writes is never taken for one. */
#ifndef PENSTOCK_GATEWAY_API_PROMPT_H
#define PENSTOCK_GATEWAY_API_PROMPT_H

#include "gateway/request.h"
#include "gateway/served_model.h"

/* Fills r->prompts (ids in the arena), checks lengths against the model's context and settles
 * max_tokens. */
enum err api_prompt_make(struct request *r, const struct served_model *m,
                         struct api_error *error) MUST_CHECK;
/* Appends the JSON of a template context made of messages. NULL tools and documents, the markers,
 * and the extra variables. */
enum err api_prompt_context(const struct request *r, const struct served_model *m,
                            struct buffer *out, struct api_error *error) MUST_CHECK;

#endif
