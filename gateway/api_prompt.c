#include "gateway/api_prompt.h"

#include "common/clock.h"
#include "gateway/api_params.h"

#include <stdio.h>

enum {
    MESSAGES_MAX = 10000,
    PARTS_MAX = 1000,
    CONTEXT_BYTES_MAX = 64 << 20,
    PROMPT_TOKENS_MAX = 1 << 20
};

static enum err out_of_memory(struct api_error *error)
{
    return api_error_set(error, 500, NULL, NULL, "Out of memory.");
}

/* ---- messages ---- */

static bool is_string(const struct json *v)
{
    return v != NULL && json_kind(v) == JSON_K_STRING;
}

/* Parts of type text are joined: half of the published templates expect a string. Anything else is
 * refused: nothing is fetched. */
static enum err write_parts(const struct json *parts, const char *param, struct buffer *out,
                            struct api_error *error)
{
    struct buffer text;
    enum err err = OK;
    if (json_count(parts) == 0)
        return api_error_set(error, 400, "empty_array", param,
                             "Invalid '%s': empty array. Expected at least one part.", param);
    if (json_count(parts) > PARTS_MAX)
        return api_error_set(error, 400, "array_above_max_length", param,
                             "Invalid '%s': at most %d parts are taken.", param, PARTS_MAX);
    buffer_init(&text, CONTEXT_BYTES_MAX);
    for (size_t i = 0; i < json_count(parts) && err == OK; i++) {
        const struct json *part = json_at(parts, i), *type = json_get(part, "type"),
                          *content = json_get(part, "text");
        if (!is_string(type)) {
            err = api_error_set(error, 400, "invalid_type", param,
                                "Invalid part %zu of '%s': expected an object with a 'type'.", i,
                                param);
        } else if (!span_eq_str(json_as_string(type), "text")) {
            err = api_error_set(error, 400, "unsupported_value", param,
                                "This model takes text only: part %zu of '%s' is of type '%.40s'.",
                                i, param, (const char *)json_as_string(type).ptr);
        } else if (!is_string(content)) {
            err = api_error_set(error, 400, "invalid_type", param,
                                "Invalid part %zu of '%s': expected a 'text' string.", i, param);
        } else {
            buffer_add_span(&text, json_as_string(content));
        }
    }
    if (err == OK) json_write_string(out, buffer_view(&text));
    buffer_deinit(&text);
    return err;
}

static enum err write_content(const struct json *content, const char *role, const char *param,
                              struct buffer *out, struct api_error *error)
{
    if (content == NULL || json_kind(content) == JSON_K_NULL)
        return api_error_set(error, 400, "invalid_type", param,
                             "Invalid value for '%s': a message of role '%s' needs a content.",
                             param, role);
    if (json_kind(content) == JSON_K_STRING) {
        json_write_string(out, json_as_string(content));
        return OK;
    }
    if (json_kind(content) == JSON_K_ARRAY) return write_parts(content, param, out, error);
    return api_wrong_type(error, param, "a string or an array of parts", content);
}

static enum err check_role(const struct json *role, const char *param, const char **out,
                           struct api_error *error)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    if (!is_string(role))
        return api_error_set(error, 400, "missing_required_parameter", param,
                             "Missing required parameter: '%s'.", param);
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (span_eq_str(json_as_string(role), roles[i])) {
            *out = roles[i];
            return OK;
        }
    return api_error_set(error, 400, "invalid_value", param,
                         "Invalid value: '%.40s'. Supported values are: 'system', 'assistant', "
                         "'user', 'tool' and 'developer'.",
                         (const char *)json_as_string(role).ptr);
}

/* Keys that are null are dropped, as the reference does; name and tool_call_id are passed on. */
static enum err write_message(const struct json *m, size_t index, struct buffer *out,
                              struct api_error *error)
{
    char param[64];
    const char *role = NULL;
    (void)snprintf(param, sizeof param, "messages[%zu]", index);
    if (json_kind(m) != JSON_K_OBJECT) return api_wrong_type(error, param, "an object", m);
    (void)snprintf(param, sizeof param, "messages[%zu].role", index);
    enum err err = check_role(json_get(m, "role"), param, &role, error);
    if (err != OK) return err;
    buffer_add_str(out, "{\"role\":");
    /* OpenAI's newer name for system; templates know only the older one */
    json_write_string(out, span_str(strcmp(role, "developer") == 0 ? "system" : role));
    buffer_add_str(out, ",\"content\":");
    (void)snprintf(param, sizeof param, "messages[%zu].content", index);
    err = write_content(json_get(m, "content"), role, param, out, error);
    for (void *it = json_first(m); it != NULL && err == OK; it = json_next(m, it)) {
        struct span key = json_iter_key(it);
        const struct json *v = json_iter_value(it);
        if (span_eq_str(key, "role") || span_eq_str(key, "content") || json_kind(v) == JSON_K_NULL)
            continue;
        (void)snprintf(param, sizeof param, "messages[%zu].%.*s", index,
                       (int)(key.len < 32 ? key.len : 32), (const char *)key.ptr);
        if (span_eq_str(key, "name") || span_eq_str(key, "tool_call_id") ||
            span_eq_str(key, "reasoning_content")) {
            if (json_kind(v) != JSON_K_STRING) return api_wrong_type(error, param, "a string", v);
            buffer_add_byte(out, ',');
            json_write_string(out, key);
            buffer_add_byte(out, ':');
            json_write_string(out, json_as_string(v));
        } else if (span_eq_str(key, "refusal") || span_eq_str(key, "annotations") ||
                   ((json_kind(v) == JSON_K_ARRAY || json_kind(v) == JSON_K_OBJECT) &&
                    json_count(v) == 0)) {
            continue; /* what our own answers carry, given back to us */
        } else {
            return api_error_set(error, 400, "unsupported_parameter", param,
                                 "Unsupported parameter: '%s' is not supported here.", param);
        }
    }
    if (err == OK && strcmp(role, "tool") == 0 && !is_string(json_get(m, "tool_call_id"))) {
        (void)snprintf(param, sizeof param, "messages[%zu].tool_call_id", index);
        return api_error_set(error, 400, "missing_required_parameter", param,
                             "Missing required parameter: '%s'.", param);
    }
    buffer_add_byte(out, '}');
    return err;
}

/* The template's other variables, as the client names them. */
static enum err write_kwargs(const struct json *kwargs, struct buffer *out, struct api_error *error)
{
    static const char *const ours[] = {"messages",  "tools",     "documents",
                                       "bos_token", "eos_token", "add_generation_prompt"};
    if (kwargs == NULL || json_kind(kwargs) == JSON_K_NULL) return OK;
    if (json_kind(kwargs) != JSON_K_OBJECT)
        return api_wrong_type(error, "chat_template_kwargs", "an object", kwargs);
    for (void *it = json_first(kwargs); it != NULL; it = json_next(kwargs, it)) {
        for (size_t i = 0; i < ARRAY_LEN(ours); i++)
            if (span_eq_str(json_iter_key(it), ours[i]))
                return api_error_set(error, 400, "invalid_value", "chat_template_kwargs",
                                     "'chat_template_kwargs' may not set '%s'.", ours[i]);
        buffer_add_byte(out, ',');
        json_write_string(out, json_iter_key(it));
        buffer_add_byte(out, ':');
        json_write(out, json_iter_value(it));
    }
    return OK;
}

enum err api_prompt_context(const struct request *r, const struct served_model *m,
                            struct buffer *out, struct api_error *error)
{
    const struct json *messages = json_get(r->json, "messages");
    if (messages == NULL || json_kind(messages) == JSON_K_NULL)
        return api_error_set(error, 400, "missing_required_parameter", "messages",
                             "Missing required parameter: 'messages'.");
    if (json_kind(messages) != JSON_K_ARRAY)
        return api_wrong_type(error, "messages", "an array of objects", messages);
    size_t n = json_count(messages);
    if (n == 0)
        return api_error_set(error, 400, "empty_array", "messages",
                             "Invalid 'messages': empty array. Expected an array with minimum "
                             "length 1, but got an empty array instead.");
    if (n > MESSAGES_MAX)
        return api_error_set(error, 400, "array_above_max_length", "messages",
                             "Invalid 'messages': at most %d are taken.", MESSAGES_MAX);
    buffer_add_str(out, "{\"messages\":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buffer_add_byte(out, ',');
        enum err err = write_message(json_at(messages, i), i, out, error);
        if (err != OK) return err;
    }
    buffer_add_str(out, "],\"tools\":null,\"documents\":null,\"bos_token\":");
    json_write_string(out, span_str(m->bos));
    buffer_add_str(out, ",\"eos_token\":");
    json_write_string(out, span_str(m->eos));
    buffer_printf(out, ",\"add_generation_prompt\":%s",
                  r->params.add_generation_prompt ? "true" : "false");
    enum err err = write_kwargs(json_get(r->json, "chat_template_kwargs"), out, error);
    buffer_add_byte(out, '}');
    if (err == OK && buffer_status(out) != OK)
        return api_error_set(error, 413, "request_too_large", NULL, "The messages are too large.");
    return err;
}

/* ---- text to ids ---- */

static enum err encode(struct request *r, const struct served_model *m, struct span text,
                       enum tokenize_mode mode, const struct trust_range *trusted,
                       size_t trusted_count, bool add_bos, struct prompt *out,
                       struct api_error *error)
{
    struct token_vec ids;
    token_vec_init(&ids, PROMPT_TOKENS_MAX);
    enum err err = add_bos ? token_vec_push(&ids, tokenizer_bos(m->tokenizer)) : OK;
    if (err == OK) err = tokenizer_encode(m->tokenizer, text, mode, trusted, trusted_count, &ids);
    out->count = (uint32_t)ids.count;
    out->ids = err == OK ? arena_alloc(&r->arena, ids.count * sizeof *out->ids + 1) : NULL;
    if (out->ids != NULL && ids.count > 0) memcpy(out->ids, ids.ids, ids.count * sizeof *out->ids);
    token_vec_deinit(&ids);
    if (err == ERR_LIMIT)
        return api_error_set(error, 400, "context_length_exceeded",
                             r->endpoint == ENDPOINT_CHAT ? "messages" : "prompt",
                             "The prompt has more than %d tokens.", PROMPT_TOKENS_MAX);
    if (err == ERR_PROTO)
        return api_error_set(error, 400, "invalid_value", NULL, "The text is not valid UTF-8.");
    return err == OK && out->ids != NULL ? OK : out_of_memory(error);
}

/* Cuts what the template wrote behind the last message, so that the model goes on inside it. */
static enum err cut_after_final(const struct request *r, struct rendered *out,
                                struct api_error *error)
{
    const struct json *messages = json_get(r->json, "messages");
    const struct json *last = json_at(messages, json_count(messages) - 1);
    const struct json *content = json_get(last, "content");
    if (!is_string(content) || !is_string(json_get(last, "role")) ||
        !span_eq_str(json_as_string(json_get(last, "role")), "assistant"))
        return api_error_set(error, 400, "invalid_value", "continue_final_message",
                             "'continue_final_message' needs a last message of role 'assistant' "
                             "with a string for its content.");
    struct span want = json_as_string(content), text = buffer_view(&out->text);
    while (want.len > 0 && strchr(" \t\r\n", want.ptr[want.len - 1]) != NULL)
        want.len--; /* templates trim */
    while (want.len > 0 && strchr(" \t\r\n", want.ptr[0]) != NULL)
        want = span_from(want, 1);
    size_t at = text.len + 1;
    while (at-- > 0)
        if (text.len - at >= want.len && memcmp(text.ptr + at, want.ptr, want.len) == 0) break;
    if (want.len == 0 || at == SIZE_MAX)
        return api_error_set(error, 400, "invalid_value", "continue_final_message",
                             "The chat template does not show the last message as it is: it cannot "
                             "be continued.");
    out->text.len = at + want.len;
    while (out->trusted_count > 0 && out->trusted[out->trusted_count - 1].start >= out->text.len)
        out->trusted_count--;
    if (out->trusted_count > 0 && out->trusted[out->trusted_count - 1].end > out->text.len)
        out->trusted[out->trusted_count - 1].end = out->text.len;
    return OK;
}

static enum err render_chat(struct request *r, const struct served_model *m, struct prompt *out,
                            struct api_error *error)
{
    static const char *const trusted_vars[] = {"bos_token", "eos_token", NULL};
    struct buffer context;
    struct json *tree = NULL;
    struct rendered rendered;
    struct errmsg why = {""};
    buffer_init(&context, CONTEXT_BYTES_MAX);
    rendered_init(&rendered);
    struct json_limits limits = {.max_depth = 70, .allow_nul = true};
    enum err err = api_prompt_context(r, m, &context, error);
    if (err == OK && (err = json_parse(buffer_view(&context), &limits, &tree, &why)) != OK)
        err = api_error_set(error, 400, NULL, "messages", "%s", why.text);
    if (err == OK) {
        err = chat_template_render(m->chat_template, tree, trusted_vars, clock_wall_s(), 0,
                                   &rendered, &why);
        if (err == ERR_NOMEM)
            err = out_of_memory(error);
        else if (err != OK)
            err =
                api_error_set(error, 400, "invalid_value", "messages",
                              "The model's chat template refuses these messages: %.400s", why.text);
    }
    if (err == OK && r->params.continue_final_message) err = cut_after_final(r, &rendered, error);
    if (err == OK) /* the template writes BOS itself where the model wants one */
        err = encode(r, m, buffer_view(&rendered.text), TOKENIZE_TRUSTED, rendered.trusted,
                     rendered.trusted_count, false, out, error);
    rendered_deinit(&rendered);
    json_destroy(tree);
    buffer_deinit(&context);
    return err;
}

/* ---- completion prompts ---- */

static enum err take_ids(struct request *r, const struct served_model *m, const struct json *list,
                         struct prompt *out, struct api_error *error)
{
    size_t n = json_count(list);
    if (n == 0)
        return api_error_set(error, 400, "empty_array", "prompt",
                             "Invalid 'prompt': an empty list of token ids.");
    if (n > PROMPT_TOKENS_MAX)
        return api_error_set(error, 400, "context_length_exceeded", "prompt",
                             "The prompt has more than %d tokens.", PROMPT_TOKENS_MAX);
    out->ids = arena_alloc(&r->arena, n * sizeof *out->ids);
    if (out->ids == NULL) return out_of_memory(error);
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_at(list, i);
        if (json_kind(v) != JSON_K_INT)
            return api_wrong_type(error, "prompt", "token ids or strings, not both", v);
        if (json_as_int(v) < 0 || json_as_int(v) >= m->vocab_count)
            return api_error_set(error, 400, "invalid_value", "prompt",
                                 "Invalid 'prompt': token id %lld is not in the vocabulary of %u.",
                                 (long long)json_as_int(v), m->vocab_count);
        out->ids[i] = (uint32_t)json_as_int(v);
    }
    out->count = (uint32_t)n;
    return OK;
}

static enum err take_text(struct request *r, const struct served_model *m, const struct json *v,
                          struct prompt *out, struct api_error *error)
{
    struct span text = json_as_string(v);
    enum err err =
        encode(r, m, text, TOKENIZE_PLAIN, NULL, 0, tokenizer_add_bos(m->tokenizer), out, error);
    if (err == OK &&
        out->count == 0) { /* nothing to go on from: begin as the model begins a text */
        uint32_t start = tokenizer_bos(m->tokenizer) != TOKEN_NONE ? tokenizer_bos(m->tokenizer)
                                                                   : tokenizer_eos(m->tokenizer);
        if (start == TOKEN_NONE)
            return api_error_set(error, 400, "invalid_value", "prompt",
                                 "Invalid 'prompt': this model needs at least one token.");
        out->ids = arena_alloc(&r->arena, sizeof *out->ids);
        if (out->ids == NULL) return out_of_memory(error);
        out->ids[0] = start;
        out->count = 1;
    }
    return err;
}

static enum err take_completion_prompts(struct request *r, const struct served_model *m,
                                        struct api_error *error)
{
    const struct json *prompt = json_get(r->json, "prompt");
    if (prompt == NULL || json_kind(prompt) == JSON_K_NULL)
        return api_error_set(error, 400, "missing_required_parameter", "prompt",
                             "Missing required parameter: 'prompt'.");
    bool list = json_kind(prompt) == JSON_K_ARRAY;
    bool one_of_ids = list && json_count(prompt) > 0 && json_kind(json_at(prompt, 0)) == JSON_K_INT;
    if (!list && json_kind(prompt) != JSON_K_STRING)
        return api_wrong_type(error, "prompt", "a string, an array of strings, or token ids",
                              prompt);
    if (list && json_count(prompt) == 0)
        return api_error_set(error, 400, "empty_array", "prompt", "Invalid 'prompt': empty array.");
    size_t count = list && !one_of_ids ? json_count(prompt) : 1;
    if (count > REQUEST_PROMPTS_MAX || count * r->params.n > REQUEST_ALL_CHOICES_MAX)
        return api_error_set(
            error, 400, "array_above_max_length", "prompt",
            "Invalid 'prompt': at most %d prompts, and %d choices in all, are taken.",
            REQUEST_PROMPTS_MAX, REQUEST_ALL_CHOICES_MAX);
    r->prompts = arena_calloc(&r->arena, count, sizeof *r->prompts);
    if (r->prompts == NULL) return out_of_memory(error);
    for (size_t i = 0; i < count; i++) {
        const struct json *v = list && !one_of_ids ? json_at(prompt, i) : prompt;
        enum err err = json_kind(v) == JSON_K_STRING ? take_text(r, m, v, &r->prompts[i], error)
                       : json_kind(v) == JSON_K_ARRAY
                           ? take_ids(r, m, v, &r->prompts[i], error)
                           : api_wrong_type(error, "prompt", "strings, or arrays of token ids", v);
        if (err != OK) return err;
    }
    r->prompt_count = (uint32_t)count;
    return OK;
}

/* ---- the whole ---- */

static enum err check_length(struct request *r, const struct served_model *m,
                             struct api_error *error)
{
    uint32_t longest = 0;
    const char *param = r->endpoint == ENDPOINT_CHAT ? "messages" : "prompt";
    for (uint32_t i = 0; i < r->prompt_count; i++)
        longest = r->prompts[i].count > longest ? r->prompts[i].count : longest;
    if (longest >= m->context_max)
        return api_error_set(error, 400, "context_length_exceeded", param,
                             "This model's maximum context length is %u tokens. However, your "
                             "prompt resulted in %u tokens. Please shorten it.",
                             m->context_max, longest);
    if (r->params.max_tokens == 0) r->params.max_tokens = m->context_max - longest;
    if (r->params.min_tokens > r->params.max_tokens) r->params.min_tokens = r->params.max_tokens;
    if ((uint64_t)longest + r->params.max_tokens > m->context_max)
        return api_error_set(error, 400, "context_length_exceeded", param,
                             "This model's maximum context length is %u tokens. However, you "
                             "requested %u tokens (%u in the prompt, %u for the completion).",
                             m->context_max, longest + r->params.max_tokens, longest,
                             r->params.max_tokens);
    return OK;
}

static enum err check_ids(const struct request *r, const struct served_model *m,
                          struct api_error *error)
{
    for (uint32_t i = 0; i < r->params.stop_id_count; i++)
        if (r->params.stop_ids[i] >= m->vocab_count)
            return api_error_set(error, 400, "invalid_value", "stop_token_ids",
                                 "Invalid 'stop_token_ids': %u is not in the vocabulary of %u.",
                                 r->params.stop_ids[i], m->vocab_count);
    for (uint32_t i = 0; i < r->params.bias_count; i++)
        if (r->params.bias_ids[i] >= m->vocab_count)
            return api_error_set(error, 400, "invalid_value", "logit_bias",
                                 "Invalid 'logit_bias': %u is not in the vocabulary of %u.",
                                 r->params.bias_ids[i], m->vocab_count);
    return OK;
}

enum err api_prompt_make(struct request *r, const struct served_model *m, struct api_error *error)
{
    enum err err = check_ids(r, m, error);
    if (err != OK) return err;
    if (r->endpoint == ENDPOINT_COMPLETIONS) {
        err = take_completion_prompts(r, m, error);
    } else if (m->chat_template == NULL) {
        return api_error_set(error, 400, "unsupported_value", "model",
                             "The model '%s' has no chat template; use /v1/completions.", m->name);
    } else {
        r->prompts = arena_calloc(&r->arena, 1, sizeof *r->prompts);
        if (r->prompts == NULL) return out_of_memory(error);
        r->prompt_count = 1;
        err = render_chat(r, m, &r->prompts[0], error);
        if (err == OK && r->prompts[0].count == 0)
            return api_error_set(error, 400, "invalid_value", "messages",
                                 "The messages gave an empty prompt.");
    }
    return err == OK ? check_length(r, m, error) : err;
}
