#include "gateway/api_tokenize.h"

#include "gateway/api_params.h"
#include "gateway/api_prompt.h"

#include <stdio.h>

enum { TOKENS_MAX = 1 << 20, TEXT_BYTES_MAX = 16 << 20 };

static bool present(const struct json *v)
{
    return v != NULL && json_kind(v) != JSON_K_NULL;
}

static enum err parse_body(struct span body, const char *const known[], struct json **out,
                           struct api_error *e)
{
    struct errmsg why;
    if (body.len > TOKENIZE_BODY_BYTES_MAX)
        return api_error_set(e, 413, "request_too_large", NULL, "At most %d bytes are taken here.",
                             TOKENIZE_BODY_BYTES_MAX);
    if (json_parse(body, NULL, out, &why) != OK)
        return api_error_set(e, 400, NULL, NULL,
                             "We could not parse the JSON body of your request: %.300s", why.text);
    if (json_kind(*out) != JSON_K_OBJECT)
        return api_error_set(e, 400, NULL, NULL, "The request body must be a JSON object.");
    for (void *it = json_first(*out); it != NULL; it = json_next(*out, it)) {
        size_t i = 0;
        while (known[i] != NULL && !span_eq_str(json_iter_key(it), known[i]))
            i++;
        if (known[i] != NULL) continue;
        char name[64];
        (void)snprintf(name, sizeof name, "%s", (const char *)json_iter_key(it).ptr);
        return api_error_set(e, 400, "unknown_parameter", name,
                             "Unrecognized request argument supplied: %s", name);
    }
    return OK;
}

/* The one that is named, or the only one. */
static struct served_model *model_of(struct served_models *models, const struct json *root,
                                     struct api_error *e)
{
    const struct json *name = json_get(root, "model");
    struct served_model *only = NULL;
    uint32_t count = 0;
    if (present(name)) {
        if (json_kind(name) == JSON_K_STRING)
            only = served_model_find(models, (const char *)json_as_string(name).ptr);
        if (only != NULL && served_model_offered(only)) return only;
        (void)api_error_set(e, 404, "model_not_found", "model", "The model does not exist.");
        return NULL;
    }
    for (uint32_t i = 0; i < MODELS_MAX; i++)
        if (served_model_offered(&models->list[i])) {
            only = &models->list[i];
            count++;
        }
    if (count == 1) return only;
    if (count > 1)
        (void)api_error_set(e, 400, "missing_required_parameter", "model",
                            "Several models are served: name one in 'model'.");
    else
        (void)api_error_set(e, 503, "no_capacity", NULL, "No model is served at the moment.");
    return NULL;
}

static enum err get_flag(const struct json *root, const char *name, bool *out, struct api_error *e)
{
    const struct json *v = json_get(root, name);
    if (!present(v)) return OK;
    if (json_kind(v) != JSON_K_BOOL) return api_wrong_type(e, name, "a boolean", v);
    *out = json_as_bool(v);
    return OK;
}

struct tokenize_flags {
    bool add_special, parse_special, strings, pieces;
};

static enum err get_flags(const struct json *root, struct tokenize_flags *f, struct api_error *e)
{
    *f = (struct tokenize_flags){.add_special = true};
    enum err err = get_flag(root, "add_special_tokens", &f->add_special, e);
    if (err == OK) err = get_flag(root, "add_special", &f->add_special, e);
    if (err == OK) err = get_flag(root, "parse_special", &f->parse_special, e);
    if (err == OK) err = get_flag(root, "return_token_strs", &f->strings, e);
    return err == OK ? get_flag(root, "with_pieces", &f->pieces, e) : err;
}

static void write_ids(const struct served_model *m, const uint32_t *ids, size_t count,
                      const struct tokenize_flags *f, struct buffer *out)
{
    buffer_printf(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", count, m->context_max);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) buffer_add_byte(out, ',');
        if (!f->pieces) {
            buffer_printf(out, "%u", ids[i]);
            continue;
        }
        buffer_printf(out, "{\"id\":%u,\"piece\":", ids[i]);
        json_write_string(out, tokenizer_piece(m->tokenizer, ids[i]));
        buffer_add_byte(out, '}');
    }
    buffer_add_byte(out, ']');
    if (f->strings) {
        buffer_add_str(out, ",\"token_strs\":[");
        for (size_t i = 0; i < count; i++) {
            if (i > 0) buffer_add_byte(out, ',');
            json_write_string(out, tokenizer_piece(m->tokenizer, ids[i]));
        }
        buffer_add_byte(out, ']');
    }
    buffer_add_byte(out, '}');
}

/* As a chat would be: the same code makes the prompt. */
static enum err tokenize_messages(const struct served_model *m, struct json *root,
                                  const struct tokenize_flags *f, struct buffer *out,
                                  struct api_error *e)
{
    struct request *r = request_create(NULL, ENDPOINT_CHAT);
    if (r == NULL) return api_error_set(e, 500, NULL, NULL, "Out of memory.");
    r->json = root;
    r->params.add_generation_prompt = true;
    enum err err = get_flag(root, "add_generation_prompt", &r->params.add_generation_prompt, e);
    if (err == OK)
        err = get_flag(root, "continue_final_message", &r->params.continue_final_message, e);
    if (err == OK && r->params.continue_final_message) r->params.add_generation_prompt = false;
    if (err == OK) err = api_prompt_make(r, m, e);
    if (err == OK) write_ids(m, r->prompts[0].ids, r->prompts[0].count, f, out);
    r->json = NULL; /* the caller's */
    request_destroy(r);
    return err;
}

static enum err tokenize_text(const struct served_model *m, const struct json *text,
                              const struct tokenize_flags *f, struct buffer *out,
                              struct api_error *e)
{
    struct token_vec ids;
    enum err err = OK;
    token_vec_init(&ids, TOKENS_MAX);
    if (f->add_special && tokenizer_add_bos(m->tokenizer))
        err = token_vec_push(&ids, tokenizer_bos(m->tokenizer));
    if (err == OK)
        err = tokenizer_encode(m->tokenizer, json_as_string(text),
                               f->parse_special ? TOKENIZE_SPECIAL : TOKENIZE_PLAIN, NULL, 0, &ids);
    if (err == OK)
        write_ids(m, ids.ids, ids.count, f, out);
    else
        err = api_error_set(e, 400, "invalid_value", "prompt", "The text has more than %d tokens.",
                            TOKENS_MAX);
    token_vec_deinit(&ids);
    return err;
}

static enum err finish(struct json *root, enum err err, const struct buffer *out,
                       struct api_error *e)
{
    json_destroy(root);
    if (err == OK && buffer_status(out) != OK)
        return api_error_set(e, 413, "request_too_large", NULL, "The answer would be too large.");
    return err;
}

enum err api_tokenize(struct served_models *models, struct span body, struct buffer *out,
                      struct api_error *error)
{
    static const char *const known[] = {"model",
                                        "prompt",
                                        "content",
                                        "add_special_tokens",
                                        "add_special",
                                        "parse_special",
                                        "with_pieces",
                                        "messages",
                                        "add_generation_prompt",
                                        "return_token_strs",
                                        "continue_final_message",
                                        "chat_template_kwargs",
                                        NULL};
    struct json *root = NULL;
    struct tokenize_flags flags;
    enum err err = parse_body(body, known, &root, error);
    const struct served_model *m = NULL;
    if (err == OK && (m = model_of(models, root, error)) == NULL) err = ERR_INVALID;
    if (err == OK) err = get_flags(root, &flags, error);
    if (err != OK) return finish(root, err, out, error);
    const struct json *text = json_get(root, "prompt");
    if (!present(text)) text = json_get(root, "content");
    if (present(json_get(root, "messages")))
        err = present(text) ? api_error_set(error, 400, "invalid_value", "messages",
                                            "Give either 'prompt' or 'messages', not both.")
                            : tokenize_messages(m, root, &flags, out, error);
    else if (!present(text))
        err = api_error_set(error, 400, "missing_required_parameter", "prompt",
                            "Missing required parameter: 'prompt'.");
    else if (json_kind(text) != JSON_K_STRING)
        err = api_wrong_type(error, "prompt", "a string", text);
    else
        err = tokenize_text(m, text, &flags, out, error);
    return finish(root, err, out, error);
}

static enum err decode(const struct served_model *m, const struct json *list, struct buffer *text,
                       struct api_error *e)
{
    struct detokenizer d;
    detokenizer_init(&d, m->tokenizer, false, false);
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *v = json_at(list, i);
        if (json_kind(v) != JSON_K_INT) return api_wrong_type(e, "tokens", "integers", v);
        if (json_as_int(v) < 0 || json_as_int(v) >= m->vocab_count)
            return api_error_set(e, 400, "invalid_value", "tokens",
                                 "Token id %lld is not in the vocabulary of %u.",
                                 (long long)json_as_int(v), m->vocab_count);
        detokenizer_push(&d, (uint32_t)json_as_int(v), text);
    }
    detokenizer_flush(&d, text);
    return buffer_status(text) == OK
               ? OK
               : api_error_set(e, 413, "request_too_large", NULL, "The text would be too large.");
}

enum err api_detokenize(struct served_models *models, struct span body, struct buffer *out,
                        struct api_error *error)
{
    static const char *const known[] = {"model", "tokens", NULL};
    struct json *root = NULL;
    struct buffer text;
    enum err err = parse_body(body, known, &root, error);
    const struct served_model *m = NULL;
    if (err == OK && (m = model_of(models, root, error)) == NULL) err = ERR_INVALID;
    if (err != OK) return finish(root, err, out, error);
    const struct json *list = json_get(root, "tokens");
    buffer_init(&text, TEXT_BYTES_MAX);
    if (!present(list))
        err = api_error_set(error, 400, "missing_required_parameter", "tokens",
                            "Missing required parameter: 'tokens'.");
    else if (json_kind(list) != JSON_K_ARRAY)
        err = api_wrong_type(error, "tokens", "an array of integers", list);
    else
        err = decode(m, list, &text, error);
    if (err == OK) { /* vLLM's name for it, and llama.cpp's */
        buffer_add_str(out, "{\"prompt\":");
        json_write_string(out, buffer_view(&text));
        buffer_add_str(out, ",\"content\":");
        json_write_string(out, buffer_view(&text));
        buffer_add_byte(out, '}');
    }
    buffer_deinit(&text);
    return finish(root, err, out, error);
}
