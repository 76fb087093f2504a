/* api_params.h - the JSON body of a completion request, checked field by field: each parameter
 * works, or is refused by its name. Pure; fills the request's params from the tree, strings
 * borrowed from it or copied to its arena. */
#ifndef PENSTOCK_GATEWAY_API_PARAMS_H
#define PENSTOCK_GATEWAY_API_PARAMS_H

#include "gateway/request.h"

/* r->json is the body. On ERR_INVALID *error says what is wrong, in OpenAI's terms. Sets model_name
 * and params; messages and prompt are api_prompt.h's. */
enum err api_params_parse(struct request *r, struct api_error *error) MUST_CHECK;

/* For the other readers of JSON: a type fault in OpenAI's words. */
enum err api_wrong_type(struct api_error *error, const char *param, const char *expected,
                        const struct json *got);

#endif
