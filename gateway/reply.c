#include "gateway/reply.h"

#include "gateway/stream.h"

#include <math.h>

static bool is_chat(const struct request *r)
{
    return r->endpoint == ENDPOINT_CHAT;
}

static const char *finish_text(const struct choice *c)
{
    return c->finish == FINISH_LENGTH ? "\"length\"" : "\"stop\"";
}

/* ---- logprobs ---- */

/* JSON has no infinity. */
static void write_logprob(struct buffer *out, float v)
{
    buffer_printf(out, "%.6g", isfinite(v) ? (double)v : -9999.0);
}

static void write_token_and_bytes(const struct request *r, uint32_t id, float logprob,
                                  struct buffer *out)
{
    struct span piece = tokenizer_piece(r->model->tokenizer, id);
    buffer_add_str(out, "{\"token\":");
    json_write_string(out, piece);
    buffer_add_str(out, ",\"logprob\":");
    write_logprob(out, logprob);
    buffer_add_str(out, ",\"bytes\":[");
    for (size_t i = 0; i < piece.len; i++)
        buffer_printf(out, "%s%u", i ? "," : "", piece.ptr[i]);
    buffer_add_str(out, "]");
}

static void write_chat_logprobs(const struct request *r, const struct choice *c, uint32_t from,
                                uint32_t to, struct buffer *out)
{
    buffer_add_str(out, "{\"content\":[");
    for (uint32_t i = from; i < to; i++) {
        const struct token_logprob *t = &c->logprobs[i];
        if (i > from) buffer_add_byte(out, ',');
        write_token_and_bytes(r, t->id, t->logprob, out);
        buffer_add_str(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < t->top_count; k++) {
            if (k) buffer_add_byte(out, ',');
            write_token_and_bytes(r, t->top_ids[k], t->top_logprobs[k], out);
            buffer_add_byte(out, '}');
        }
        buffer_add_str(out, "]}");
    }
    buffer_add_str(out, "],\"refusal\":null}");
}

static void write_completion_logprobs(const struct request *r, const struct choice *c,
                                      uint32_t from, uint32_t to, struct buffer *out)
{
    const struct tokenizer *t = r->model->tokenizer;
    buffer_add_str(out, "{\"tokens\":[");
    for (uint32_t i = from; i < to; i++) {
        if (i > from) buffer_add_byte(out, ',');
        json_write_string(out, tokenizer_piece(t, c->logprobs[i].id));
    }
    buffer_add_str(out, "],\"token_logprobs\":[");
    for (uint32_t i = from; i < to; i++) {
        if (i > from) buffer_add_byte(out, ',');
        write_logprob(out, c->logprobs[i].logprob);
    }
    buffer_add_str(out, "],\"top_logprobs\":[");
    for (uint32_t i = from; i < to; i++) {
        buffer_add_str(out, i > from ? ",{" : "{");
        for (uint32_t k = 0; k < c->logprobs[i].top_count; k++) {
            if (k) buffer_add_byte(out, ',');
            json_write_string(out, tokenizer_piece(t, c->logprobs[i].top_ids[k]));
            buffer_add_byte(out, ':');
            write_logprob(out, c->logprobs[i].top_logprobs[k]);
        }
        buffer_add_byte(out, '}');
    }
    buffer_add_str(out, "],\"text_offset\":[");
    for (uint32_t i = from; i < to; i++)
        buffer_printf(out, "%s%u", i > from ? "," : "", i > 0 ? c->logprobs[i - 1].end_chars : 0);
    buffer_add_str(out, "]}");
}

static void write_logprobs(const struct request *r, const struct choice *c, uint32_t from,
                           uint32_t to, struct buffer *out)
{
    if (!r->params.want_logprobs || (from == to && !r->params.stream))
        buffer_add_str(out, "null");
    else if (is_chat(r))
        write_chat_logprobs(r, c, from, to, out);
    else
        write_completion_logprobs(r, c, from, to, out);
}

/* ---- usage ---- */

void reply_count_usage(struct request *r)
{
    r->prompt_tokens = r->completion_tokens = r->cached_tokens = 0;
    for (uint32_t i = 0; i < r->prompt_count; i++)
        r->prompt_tokens += r->prompts[i].count;
    for (uint32_t i = 0; i < r->choice_count; i++) {
        r->completion_tokens += r->choices[i].id_count;
        if (r->choices[i].within == 0)
            r->cached_tokens += r->choices[i].cached_tokens; /* a prompt is counted once */
    }
}

static void write_usage(struct request *r, struct buffer *out)
{
    reply_count_usage(r);
    buffer_printf(out,
                  "{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":%llu},"
                  "\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
                  (unsigned long long)r->prompt_tokens, (unsigned long long)r->completion_tokens,
                  (unsigned long long)(r->prompt_tokens + r->completion_tokens),
                  (unsigned long long)r->cached_tokens);
}

/* ---- events ---- */

static void write_identity(const struct request *r, const char *object, struct buffer *out)
{
    buffer_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", r->public_id,
                  object, (long long)r->created_s);
    json_write_string(out, span_str(r->model->name));
    buffer_printf(out, ",\"system_fingerprint\":\"fp_%08x\"", (unsigned)r->model->fingerprint.lo);
}

void reply_prepare(struct request *r)
{
    buffer_reset(&r->chunk_head);
    buffer_add_str(&r->chunk_head, "data: ");
    write_identity(r, is_chat(r) ? "chat.completion.chunk" : "text_completion", &r->chunk_head);
    buffer_add_str(&r->chunk_head, ",\"choices\":[");
}

static void end_event(const struct request *r, struct buffer *out)
{
    buffer_add_str(out, r->params.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

void reply_roles(struct request *r, struct buffer *out)
{
    for (uint32_t i = 0; i < r->choice_count; i++) {
        struct choice *c = &r->choices[i];
        if (c->role_sent) continue;
        c->role_sent = true;
        if (!is_chat(r)) continue;
        buffer_add_span(out, buffer_view(&r->chunk_head));
        buffer_printf(out,
                      "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                      "\"logprobs\":null,\"finish_reason\":null}",
                      i);
        end_event(r, out);
    }
}

void reply_delta(struct request *r, uint32_t i, struct buffer *out)
{
    struct choice *c = &r->choices[i];
    struct span text = stream_ready(c);
    uint32_t to = stream_ready_logprobs(c);
    if (text.len > 0 || to > c->logprob_sent) {
        buffer_add_span(out, buffer_view(&r->chunk_head));
        buffer_printf(
            out,
            is_chat(r) ? "{\"index\":%u,\"delta\":{\"content\":" : "{\"index\":%u,\"text\":", i);
        json_write_string(out, text);
        buffer_add_str(out, is_chat(r) ? "},\"logprobs\":" : ",\"logprobs\":");
        write_logprobs(r, c, c->logprob_sent, to, out);
        buffer_add_str(out, ",\"finish_reason\":null}");
        end_event(r, out);
        stream_mark_sent(c);
    }
    if (c->finish == FINISH_RUNNING || c->finish == FINISH_FAILED || c->finish_sent) return;
    c->finish_sent = true;
    buffer_add_span(out, buffer_view(&r->chunk_head));
    buffer_printf(out,
                  is_chat(r)
                      ? "{\"index\":%u,\"delta\":{},\"logprobs\":null,\"finish_reason\":%s}"
                      : "{\"index\":%u,\"text\":\"\",\"logprobs\":null,\"finish_reason\":%s}",
                  i, finish_text(c));
    end_event(r, out);
}

void reply_end(struct request *r, struct buffer *out)
{
    if (r->params.include_usage) {
        buffer_add_span(out, buffer_view(&r->chunk_head));
        buffer_add_str(out, "],\"usage\":");
        write_usage(r, out);
        buffer_add_str(out, "}\n\n");
    }
    buffer_add_str(out, "data: [DONE]\n\n");
}

void reply_error_event(const struct api_error *e, struct buffer *out)
{
    buffer_add_str(out, "data: ");
    api_error_write(out, e);
    buffer_add_str(out, "\n\n");
}

/* ---- whole answers ---- */

static void write_choice(struct request *r, uint32_t i, struct buffer *out)
{
    struct choice *c = &r->choices[i];
    if (is_chat(r)) {
        buffer_printf(out, "{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", i);
        json_write_string(out, buffer_view(&c->text));
        buffer_add_str(out, ",\"refusal\":null},\"logprobs\":");
    } else {
        buffer_printf(out, "{\"index\":%u,\"text\":", i);
        json_write_string(out, buffer_view(&c->text));
        buffer_add_str(out, ",\"logprobs\":");
    }
    write_logprobs(r, c, 0, c->logprob_count, out);
    buffer_printf(out, ",\"finish_reason\":%s}", finish_text(c));
}

void reply_whole(struct request *r, struct buffer *out)
{
    write_identity(r, is_chat(r) ? "chat.completion" : "text_completion", out);
    buffer_add_str(out, ",\"choices\":[");
    for (uint32_t i = 0; i < r->choice_count; i++) {
        if (i) buffer_add_byte(out, ',');
        write_choice(r, i, out);
    }
    buffer_add_str(out, "],\"usage\":");
    write_usage(r, out);
    buffer_add_byte(out, '}');
}

void reply_model(const struct served_model *m, struct buffer *out)
{
    buffer_add_str(out, "{\"id\":");
    json_write_string(out, span_str(m->name));
    buffer_printf(
        out,
        ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"penstock\",\"max_model_len\":%u}",
        (long long)m->created, m->context_max);
}
