#include "gateway/api_params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME_BYTES_MAX = 64, TOKENS_MAX = 1 << 20 };

enum err api_wrong_type(struct api_error *error, const char *param, const char *expected,
                        const struct json *got)
{
    return api_error_set(error, 400, "invalid_type", param,
                         "Invalid type for '%s': expected %s, but got %s instead.", param, expected,
                         json_kind_name(json_kind(got)));
}

/* ---- numbers ---- */

static enum err get_real(const struct json *v, const char *name, double min, double max,
                         double *out, struct api_error *error)
{
    if (json_kind(v) != JSON_K_INT && json_kind(v) != JSON_K_REAL)
        return api_wrong_type(error, name, "a number", v);
    double d = json_as_real(v);
    if (d < min)
        return api_error_set(error, 400, "decimal_below_min_value", name,
                             "Invalid '%s': decimal below minimum value. Expected a value >= %g, "
                             "but got %g instead.",
                             name, min, d);
    if (d > max)
        return api_error_set(error, 400, "decimal_above_max_value", name,
                             "Invalid '%s': decimal above maximum value. Expected a value <= %g, "
                             "but got %g instead.",
                             name, max, d);
    *out = d;
    return OK;
}

static enum err get_integer(const struct json *v, const char *name, int64_t min, int64_t max,
                            int64_t *out, struct api_error *error)
{
    if (json_kind(v) != JSON_K_INT) return api_wrong_type(error, name, "an integer", v);
    int64_t i = json_as_int(v);
    if (i < min)
        return api_error_set(error, 400, "integer_below_min_value", name,
                             "Invalid '%s': integer below minimum value. Expected a value >= %lld, "
                             "but got %lld instead.",
                             name, (long long)min, (long long)i);
    if (i > max)
        return api_error_set(error, 400, "integer_above_max_value", name,
                             "Invalid '%s': integer above maximum value. Expected a value <= %lld, "
                             "but got %lld instead.",
                             name, (long long)max, (long long)i);
    *out = i;
    return OK;
}

static enum err get_u32(const struct json *v, const char *name, int64_t min, int64_t max,
                        uint32_t *out, struct api_error *error)
{
    int64_t i = 0;
    enum err err = get_integer(v, name, min, max, &i, error);
    if (err == OK) *out = (uint32_t)i;
    return err;
}

static enum err get_bool(const struct json *v, const char *name, bool *out, struct api_error *error)
{
    if (json_kind(v) != JSON_K_BOOL) return api_wrong_type(error, name, "a boolean", v);
    *out = json_as_bool(v);
    return OK;
}

/* ---- the parameters; v is never null ---- */

typedef enum err parse_fn(struct request *r, const char *name, const struct json *v,
                          struct api_error *error);

static enum err parse_model(struct request *r, const char *name, const struct json *v,
                            struct api_error *error)
{
    if (json_kind(v) != JSON_K_STRING) return api_wrong_type(error, name, "a string", v);
    struct span s = json_as_string(v);
    if (s.len == 0 || s.len >= MODEL_NAME_BYTES_MAX)
        return api_error_set(error, 404, "model_not_found", name,
                             "The model '%.*s' does not exist.", (int)(s.len < 128 ? s.len : 128),
                             (const char *)s.ptr);
    memcpy(r->model_name, s.ptr, s.len);
    r->model_name[s.len] = '\0';
    return OK;
}

static enum err parse_temperature(struct request *r, const char *name, const struct json *v,
                                  struct api_error *error)
{
    return get_real(v, name, 0, 2, &r->params.temperature, error);
}

static enum err parse_top_p(struct request *r, const char *name, const struct json *v,
                            struct api_error *error)
{
    enum err err = get_real(v, name, 0, 1, &r->params.top_p, error);
    if (err == OK && r->params.top_p <= 0)
        return api_error_set(error, 400, "decimal_below_min_value", name,
                             "Invalid '%s': expected a value > 0, but got 0 instead.", name);
    return err;
}

static enum err parse_min_p(struct request *r, const char *name, const struct json *v,
                            struct api_error *error)
{
    return get_real(v, name, 0, 1, &r->params.min_p, error);
}

static enum err parse_repetition(struct request *r, const char *name, const struct json *v,
                                 struct api_error *error)
{
    return get_real(v, name, 0.01, 2, &r->params.repetition_penalty, error);
}

static enum err parse_presence(struct request *r, const char *name, const struct json *v,
                               struct api_error *error)
{
    return get_real(v, name, -2, 2, &r->params.presence_penalty, error);
}

static enum err parse_frequency(struct request *r, const char *name, const struct json *v,
                                struct api_error *error)
{
    return get_real(v, name, -2, 2, &r->params.frequency_penalty, error);
}

static enum err parse_max_tokens(struct request *r, const char *name, const struct json *v,
                                 struct api_error *error)
{
    if (r->params.max_tokens != 0)
        return api_error_set(error, 400, "invalid_value", name,
                             "Give either 'max_tokens' or 'max_completion_tokens', not both.");
    return get_u32(v, name, 1, TOKENS_MAX, &r->params.max_tokens, error);
}

static enum err parse_min_tokens(struct request *r, const char *name, const struct json *v,
                                 struct api_error *error)
{
    return get_u32(v, name, 0, TOKENS_MAX, &r->params.min_tokens, error);
}

static enum err parse_n(struct request *r, const char *name, const struct json *v,
                        struct api_error *error)
{
    return get_u32(v, name, 1, REQUEST_CHOICES_MAX, &r->params.n, error);
}

static enum err parse_top_k(struct request *r, const char *name, const struct json *v,
                            struct api_error *error)
{
    int64_t k = 0;
    enum err err = get_integer(v, name, -1, INT32_MAX, &k, error); /* -1 and 0: off, as elsewhere */
    if (err == OK) r->params.top_k = k > 0 ? (uint32_t)k : 0;
    return err;
}

static enum err parse_seed(struct request *r, const char *name, const struct json *v,
                           struct api_error *error)
{
    int64_t seed = 0;
    enum err err = get_integer(v, name, INT64_MIN, INT64_MAX, &seed, error);
    r->params.seed = (uint64_t)seed;
    r->params.has_seed = err == OK;
    return err;
}

static enum err parse_stream(struct request *r, const char *name, const struct json *v,
                             struct api_error *error)
{
    return get_bool(v, name, &r->params.stream, error);
}

static enum err parse_stream_options(struct request *r, const char *name, const struct json *v,
                                     struct api_error *error)
{
    const struct json *stream = json_get(r->json, "stream");
    if (json_kind(v) != JSON_K_OBJECT) return api_wrong_type(error, name, "an object", v);
    if (stream == NULL || json_kind(stream) != JSON_K_BOOL || !json_as_bool(stream))
        return api_error_set(error, 400, "invalid_value", name,
                             "'stream_options' may be given only when 'stream' is true.");
    for (void *it = json_first(v); it != NULL; it = json_next(v, it)) {
        struct span key = json_iter_key(it);
        const struct json *value = json_iter_value(it);
        if (json_kind(value) == JSON_K_NULL) continue;
        if (span_eq_str(key, "include_usage")) {
            enum err err =
                get_bool(value, "stream_options.include_usage", &r->params.include_usage, error);
            if (err != OK) return err;
        } else if (!span_eq_str(key, "include_obfuscation") || json_kind(value) != JSON_K_BOOL ||
                   json_as_bool(value)) {
            char param[96];
            (void)snprintf(param, sizeof param, "stream_options.%.*s",
                           (int)(key.len < 64 ? key.len : 64), (const char *)key.ptr);
            return api_error_set(error, 400, "unsupported_parameter", param,
                                 "'%s' is not supported.", param);
        }
    }
    return OK;
}

static enum err add_stop(struct request *r, const char *param, const struct json *v,
                         struct api_error *error)
{
    if (json_kind(v) != JSON_K_STRING) return api_wrong_type(error, param, "a string", v);
    struct span s = json_as_string(v);
    if (s.len == 0)
        return api_error_set(error, 400, "invalid_value", param,
                             "Invalid '%s': a stop sequence must not be empty.", param);
    if (s.len > REQUEST_STOP_BYTES_MAX)
        return api_error_set(error, 400, "string_above_max_length", param,
                             "Invalid '%s': a stop sequence may have at most %d bytes.", param,
                             REQUEST_STOP_BYTES_MAX);
    char *copy = arena_dup(&r->arena, s);
    if (copy == NULL) return api_error_set(error, 500, NULL, NULL, "Out of memory.");
    r->params.stops[r->params.stop_count++] = span_of(copy, s.len);
    return OK;
}

static enum err parse_stop(struct request *r, const char *name, const struct json *v,
                           struct api_error *error)
{
    if (json_kind(v) == JSON_K_STRING) return add_stop(r, name, v, error);
    if (json_kind(v) != JSON_K_ARRAY)
        return api_wrong_type(error, name, "a string or an array of strings", v);
    if (json_count(v) > REQUEST_STOPS_MAX)
        return api_error_set(error, 400, "array_above_max_length", name,
                             "Invalid '%s': array too long. Expected an array with maximum length "
                             "%d, but got an array with length %zu instead.",
                             name, REQUEST_STOPS_MAX, json_count(v));
    for (size_t i = 0; i < json_count(v); i++) {
        char param[32];
        (void)snprintf(param, sizeof param, "stop[%zu]", i);
        enum err err = add_stop(r, param, json_at(v, i), error);
        if (err != OK) return err;
    }
    return OK;
}

static enum err parse_stop_ids(struct request *r, const char *name, const struct json *v,
                               struct api_error *error)
{
    if (json_kind(v) != JSON_K_ARRAY) return api_wrong_type(error, name, "an array of integers", v);
    size_t n = json_count(v);
    if (n > REQUEST_STOP_IDS_MAX)
        return api_error_set(error, 400, "array_above_max_length", name,
                             "Invalid '%s': at most %d ids are taken.", name, REQUEST_STOP_IDS_MAX);
    r->params.stop_ids = arena_calloc(&r->arena, n, sizeof *r->params.stop_ids);
    if (r->params.stop_ids == NULL) return api_error_set(error, 500, NULL, NULL, "Out of memory.");
    for (size_t i = 0; i < n; i++) {
        enum err err =
            get_u32(json_at(v, i), name, 0, UINT32_MAX - 1, &r->params.stop_ids[i], error);
        if (err != OK) return err;
    }
    r->params.stop_id_count = (uint32_t)n;
    return OK;
}

static enum err parse_logit_bias(struct request *r, const char *name, const struct json *v,
                                 struct api_error *error)
{
    if (json_kind(v) != JSON_K_OBJECT) return api_wrong_type(error, name, "an object", v);
    size_t n = json_count(v);
    if (n > REQUEST_BIAS_MAX)
        return api_error_set(error, 400, "invalid_value", name,
                             "Invalid '%s': at most %d tokens are taken.", name, REQUEST_BIAS_MAX);
    r->params.bias_ids = arena_calloc(&r->arena, n, sizeof *r->params.bias_ids);
    r->params.bias = arena_calloc(&r->arena, n, sizeof *r->params.bias);
    if (r->params.bias_ids == NULL || r->params.bias == NULL)
        return api_error_set(error, 500, NULL, NULL, "Out of memory.");
    for (void *it = json_first(v); it != NULL; it = json_next(v, it)) {
        struct span key = json_iter_key(it);
        uint64_t id = 0;
        for (size_t i = 0; i < key.len && id < UINT32_MAX; i++)
            id = key.ptr[i] >= '0' && key.ptr[i] <= '9' ? id * 10 + key.ptr[i] - '0' : UINT32_MAX;
        if (key.len == 0 || id >= UINT32_MAX)
            return api_error_set(
                error, 400, "invalid_value", name,
                "Invalid key in '%s': expected a token id, but got '%.*s' instead.", name,
                (int)(key.len < 40 ? key.len : 40), (const char *)key.ptr);
        double bias = 0;
        enum err err = get_real(json_iter_value(it), name, -100, 100, &bias, error);
        if (err != OK) return err;
        r->params.bias_ids[r->params.bias_count] = (uint32_t)id;
        r->params.bias[r->params.bias_count++] = (float)bias;
    }
    return OK;
}

static enum err parse_logprobs(struct request *r, const char *name, const struct json *v,
                               struct api_error *error)
{
    if (r->endpoint == ENDPOINT_CHAT) return get_bool(v, name, &r->params.want_logprobs, error);
    enum err err = get_u32(v, name, 0, 20, &r->params.top_logprobs, error);
    r->params.want_logprobs = err == OK;
    return err;
}

static enum err parse_top_logprobs(struct request *r, const char *name, const struct json *v,
                                   struct api_error *error)
{
    const struct json *logprobs = json_get(r->json, "logprobs");
    enum err err = get_u32(v, name, 0, 20, &r->params.top_logprobs, error);
    if (err == OK &&
        (logprobs == NULL || json_kind(logprobs) != JSON_K_BOOL || !json_as_bool(logprobs)))
        return api_error_set(error, 400, "invalid_value", name,
                             "'top_logprobs' may be given only when 'logprobs' is true.");
    return err;
}

static enum err parse_ignore_eos(struct request *r, const char *name, const struct json *v,
                                 struct api_error *error)
{
    return get_bool(v, name, &r->params.ignore_eos, error);
}

static enum err parse_skip_special(struct request *r, const char *name, const struct json *v,
                                   struct api_error *error)
{
    bool skip = true;
    enum err err = get_bool(v, name, &skip, error);
    r->params.keep_special_tokens = !skip;
    return err;
}

static enum err parse_continue_final(struct request *r, const char *name, const struct json *v,
                                     struct api_error *error)
{
    return get_bool(v, name, &r->params.continue_final_message, error);
}

static enum err parse_echo(struct request *r, const char *name, const struct json *v,
                           struct api_error *error)
{
    return get_bool(v, name, &r->params.echo, error);
}

static enum err parse_generation_prompt(struct request *r, const char *name, const struct json *v,
                                        struct api_error *error)
{
    return get_bool(v, name, &r->params.add_generation_prompt, error);
}

static enum err parse_response_format(struct request *r, const char *name, const struct json *v,
                                      struct api_error *error)
{
    (void)r;
    const struct json *type = json_get(v, "type");
    if (json_kind(v) != JSON_K_OBJECT) return api_wrong_type(error, name, "an object", v);
    if (type == NULL || json_kind(type) != JSON_K_STRING)
        return api_error_set(error, 400, "missing_required_parameter", "response_format.type",
                             "Missing required parameter: 'response_format.type'.");
    if (!span_eq_str(json_as_string(type), "text"))
        return api_error_set(error, 400, "unsupported_value", "response_format.type",
                             "Only the response format 'text' is supported.");
    return OK;
}

static enum err parse_best_of(struct request *r, const char *name, const struct json *v,
                              struct api_error *error)
{
    uint32_t best_of = 0, n = 1;
    const struct json *given = json_get(r->json, "n");
    enum err err = get_u32(v, name, 1, REQUEST_CHOICES_MAX, &best_of, error);
    if (err == OK && given != NULL && json_kind(given) == JSON_K_INT)
        n = (uint32_t)json_as_int(given);
    if (err == OK && best_of != n)
        return api_error_set(error, 400, "unsupported_value", name,
                             "'best_of' other than 'n' is not supported.");
    return err;
}

static enum err parse_modalities(struct request *r, const char *name, const struct json *v,
                                 struct api_error *error)
{
    (void)r;
    if (json_kind(v) != JSON_K_ARRAY) return api_wrong_type(error, name, "an array", v);
    for (size_t i = 0; i < json_count(v); i++)
        if (json_kind(json_at(v, i)) != JSON_K_STRING ||
            !span_eq_str(json_as_string(json_at(v, i)), "text"))
            return api_error_set(error, 400, "unsupported_value", name,
                                 "Only the modality 'text' is supported.");
    return OK;
}

/* Absent, null, false, "none", "auto" or empty change nothing here; anything else would be ignored,
 * so it is refused. */
static enum err parse_only_neutral(struct request *r, const char *name, const struct json *v,
                                   struct api_error *error)
{
    (void)r;
    bool neutral =
        (json_kind(v) == JSON_K_BOOL && !json_as_bool(v)) ||
        ((json_kind(v) == JSON_K_ARRAY || json_kind(v) == JSON_K_OBJECT) && json_count(v) == 0);
    if (json_kind(v) == JSON_K_STRING) {
        struct span s = json_as_string(v);
        neutral = s.len == 0 || span_eq_str(s, "none") || span_eq_str(s, "auto") ||
                  span_eq_str(s, "default");
    }
    return neutral ? OK
                   : api_error_set(error, 400, "unsupported_parameter", name,
                                   "Unsupported parameter: '%s' is not supported here.", name);
}

/* Labels for the operator's own books: checked, without effect on the answer. */
static enum err parse_label(struct request *r, const char *name, const struct json *v,
                            struct api_error *error)
{
    (void)r;
    if (json_kind(v) != JSON_K_STRING) return api_wrong_type(error, name, "a string", v);
    if (json_as_string(v).len > 512)
        return api_error_set(error, 400, "string_above_max_length", name,
                             "Invalid '%s': at most 512 bytes are taken.", name);
    return OK;
}

static enum err parse_metadata(struct request *r, const char *name, const struct json *v,
                               struct api_error *error)
{
    (void)r;
    if (json_kind(v) != JSON_K_OBJECT) return api_wrong_type(error, name, "an object", v);
    if (json_count(v) > 16)
        return api_error_set(error, 400, "object_above_max_properties", name,
                             "Invalid '%s': at most 16 pairs are taken.", name);
    for (void *it = json_first(v); it != NULL; it = json_next(v, it)) {
        if (json_kind(json_iter_value(it)) != JSON_K_STRING)
            return api_wrong_type(error, name, "an object of strings", json_iter_value(it));
        if (json_iter_key(it).len > 64 || json_as_string(json_iter_value(it)).len > 512)
            return api_error_set(
                error, 400, "string_above_max_length", name,
                "Invalid '%s': keys of at most 64 and values of at most 512 bytes are taken.",
                name);
    }
    return OK;
}

static enum err parse_elsewhere(struct request *r, const char *name, const struct json *v,
                                struct api_error *error)
{
    (void)r, (void)name, (void)v, (void)error;
    return OK;
}

enum { CHAT = 1, COMPLETIONS = 2, BOTH = 3 };

static const struct {
    const char *name;
    int endpoints;
    parse_fn *parse;
} table[] = {
    {"model", BOTH, parse_model},
    {"messages", CHAT, parse_elsewhere},
    {"prompt", COMPLETIONS, parse_elsewhere},
    {"temperature", BOTH, parse_temperature},
    {"top_p", BOTH, parse_top_p},
    {"top_k", BOTH, parse_top_k},
    {"min_p", BOTH, parse_min_p},
    {"repetition_penalty", BOTH, parse_repetition},
    {"presence_penalty", BOTH, parse_presence},
    {"frequency_penalty", BOTH, parse_frequency},
    {"max_tokens", BOTH, parse_max_tokens},
    {"max_completion_tokens", CHAT, parse_max_tokens},
    {"min_tokens", BOTH, parse_min_tokens},
    {"n", BOTH, parse_n},
    {"seed", BOTH, parse_seed},
    {"stop", BOTH, parse_stop},
    {"stop_token_ids", BOTH, parse_stop_ids},
    {"ignore_eos", BOTH, parse_ignore_eos},
    {"skip_special_tokens", BOTH, parse_skip_special},
    {"continue_final_message", CHAT, parse_continue_final},
    {"logit_bias", BOTH, parse_logit_bias},
    {"logprobs", BOTH, parse_logprobs},
    {"top_logprobs", CHAT, parse_top_logprobs},
    {"stream", BOTH, parse_stream},
    {"stream_options", BOTH, parse_stream_options},
    {"response_format", CHAT, parse_response_format},
    {"modalities", CHAT, parse_modalities},
    {"chat_template_kwargs", CHAT, parse_elsewhere},
    {"add_generation_prompt", CHAT, parse_generation_prompt},
    {"echo", COMPLETIONS, parse_echo},
    {"best_of", COMPLETIONS, parse_best_of},
    {"suffix", COMPLETIONS, parse_only_neutral},
    {"user", BOTH, parse_label},
    {"safety_identifier", CHAT, parse_label},
    {"prompt_cache_key", CHAT, parse_label},
    {"metadata", CHAT, parse_metadata},
    {"store", CHAT, parse_only_neutral},
    {"service_tier", CHAT, parse_only_neutral},
    {"tools", CHAT, parse_only_neutral},
    {"tool_choice", CHAT, parse_only_neutral},
    {"parallel_tool_calls", CHAT, parse_only_neutral},
    {"functions", CHAT, parse_only_neutral},
    {"function_call", CHAT, parse_only_neutral},
    {"audio", CHAT, parse_only_neutral},
    {"prediction", CHAT, parse_only_neutral},
    {"reasoning_effort", CHAT, parse_only_neutral},
    {"verbosity", CHAT, parse_only_neutral},
    {"web_search_options", CHAT, parse_only_neutral},
};

static enum err parse_field(struct request *r, struct span key, const struct json *v,
                            struct api_error *error)
{
    int here = r->endpoint == ENDPOINT_CHAT ? CHAT : COMPLETIONS;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if ((table[i].endpoints & here) == 0 || !span_eq_str(key, table[i].name)) continue;
        return json_kind(v) == JSON_K_NULL ? OK : table[i].parse(r, table[i].name, v, error);
    }
    char name[NAME_BYTES_MAX + 1];
    (void)snprintf(name, sizeof name, "%.*s",
                   (int)(key.len < NAME_BYTES_MAX ? key.len : NAME_BYTES_MAX),
                   (const char *)key.ptr);
    return api_error_set(error, 400, "unknown_parameter", name,
                         "Unrecognized request argument supplied: %s", name);
}

enum err api_params_parse(struct request *r, struct api_error *error)
{
    r->params = (struct request_params){.n = 1,
                                        .temperature = 1,
                                        .top_p = 1,
                                        .repetition_penalty = 1,
                                        .add_generation_prompt = true};
    if (json_kind(r->json) != JSON_K_OBJECT)
        return api_error_set(error, 400, NULL, NULL,
                             "The request body must be a JSON object, not %s.",
                             json_kind_name(json_kind(r->json)));
    for (void *it = json_first(r->json); it != NULL; it = json_next(r->json, it)) {
        enum err err = parse_field(r, json_iter_key(it), json_iter_value(it), error);
        if (err != OK) return err;
    }
    if (r->model_name[0] == '\0')
        return api_error_set(error, 400, "missing_required_parameter", "model",
                             "Missing required parameter: 'model'.");
    if (r->params.max_tokens > 0 && r->params.min_tokens > r->params.max_tokens)
        return api_error_set(error, 400, "invalid_value", "min_tokens",
                             "'min_tokens' must not be above 'max_tokens'.");
    if (r->params.continue_final_message && r->params.add_generation_prompt) {
        const struct json *given = json_get(r->json, "add_generation_prompt");
        if (given != NULL && json_kind(given) == JSON_K_BOOL)
            return api_error_set(error, 400, "invalid_value", "continue_final_message",
                                 "'continue_final_message' and 'add_generation_prompt' exclude "
                                 "each other.");
        r->params.add_generation_prompt = false;
    }
    if (r->params.echo && r->params.want_logprobs)
        return api_error_set(error, 400, "unsupported_value", "echo",
                             "'echo' together with 'logprobs' is not supported.");
    return OK;
}
