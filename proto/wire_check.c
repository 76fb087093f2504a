#include "proto/wire_check.h"

#include "proto/penstock.pb-c.h"

#include <math.h>

/* ---- small pieces ---- */

static bool text_ok(ProtobufCBinaryData d, size_t max)
{
    return d.len <= max && wire_text_valid(span_of(d.data, d.len));
}

static bool name_ok(ProtobufCBinaryData d)
{
    return d.len > 0 && text_ok(d, NAME_BYTES_MAX);
}

static bool ids_ok(ProtobufCBinaryData d, size_t max_tokens)
{
    return d.len % 4 == 0 && d.len / 4 <= max_tokens;
}

static bool in_range(float v, float min, float max)
{
    return v >= min && v <= max; /* false for NaN */
}

bool wire_text_valid(struct span text)
{
    for (size_t i = 0; i < text.len;) {
        uint8_t c = text.ptr[i];
        size_t n = c < 0x80                ? 1
                   : c >= 0xC2 && c < 0xE0 ? 2
                   : c >= 0xE0 && c < 0xF0 ? 3
                   : c >= 0xF0 && c < 0xF5 ? 4
                                           : 0;
        if (n == 0 || n > text.len - i || c < 0x20 || c == 0x7F) return false;
        for (size_t k = 1; k < n; k++)
            if ((text.ptr[i + k] & 0xC0) != 0x80) return false;
        if ((c == 0xE0 && text.ptr[i + 1] < 0xA0) || (c == 0xED && text.ptr[i + 1] > 0x9F) ||
            (c == 0xF0 && text.ptr[i + 1] < 0x90) || (c == 0xF4 && text.ptr[i + 1] > 0x8F))
            return false;
        i += n;
    }
    return true;
}

/* First failing condition gives the field's name. */
#define WANT(condition, field)                                                                     \
    do {                                                                                           \
        if (!(condition)) return field;                                                            \
    } while (0)

/* ---- messages ---- */

static const char *check_load(const Penstock__Load *m)
{
    if (m == NULL) return NULL;
    WANT(in_range(m->prefill_tokens_per_s, 0, 1e12f), "load.prefill_tokens_per_s");
    WANT(in_range(m->decode_step_s, 0, 1e6f), "load.decode_step_s");
    return NULL;
}

static const char *check_hello(const ProtobufCMessage *base)
{
    const Penstock__Hello *m = (const Penstock__Hello *)base;
    WANT(name_ok(m->worker_name), "worker_name");
    WANT(m->epoch != 0, "epoch");
    WANT(name_ok(m->model), "model");
    WANT(m->model_fingerprint.len == 16, "model_fingerprint");
    WANT(m->tokenizer_hash.len == 16, "tokenizer_hash");
    WANT(m->template_hash.len == 16 || m->template_hash.len == 0, "template_hash");
    WANT(m->vocab_count > 0 && m->vocab_count <= 1u << 21, "vocab_count");
    WANT(m->context_max > 0 && m->context_max <= PROMPT_TOKENS_MAX, "context_max");
    WANT(m->sequences_max > 0 && m->sequences_max <= 65536, "sequences_max");
    WANT(m->kv_blocks > 0, "kv_blocks");
    WANT(m->submit_window > 0 && m->submit_window <= 65536, "submit_window");
    WANT(text_ok(m->device, NAME_BYTES_MAX), "device");
    WANT(m->n_model_aliases <= ALIASES_MAX, "model_aliases");
    for (size_t i = 0; i < m->n_model_aliases; i++)
        WANT(name_ok(m->model_aliases[i]), "model_aliases");
    return NULL;
}

static const char *check_welcome(const ProtobufCMessage *base)
{
    const Penstock__Welcome *m = (const Penstock__Welcome *)base;
    WANT(m->incarnation != 0, "incarnation");
    WANT(text_ok(m->gateway_name, NAME_BYTES_MAX), "gateway_name");
    WANT(m->n_ports <= PORTS_MAX, "ports");
    for (size_t i = 0; i < m->n_ports; i++)
        WANT(m->ports[i] > 0 && m->ports[i] <= 65535, "ports");
    return NULL;
}

static const char *check_asset_get(const ProtobufCMessage *base)
{
    const Penstock__AssetGet *m = (const Penstock__AssetGet *)base;
    WANT(m->hash.len == 16, "hash");
    WANT(m->kind == 1 || m->kind == 2, "kind");
    WANT(m->offset <= ASSET_BYTES_MAX, "offset");
    return NULL;
}

static const char *check_asset(const ProtobufCMessage *base)
{
    const Penstock__Asset *m = (const Penstock__Asset *)base;
    WANT(m->hash.len == 16, "hash");
    WANT(m->kind == 1 || m->kind == 2, "kind");
    WANT(m->total_bytes <= ASSET_BYTES_MAX, "total_bytes");
    WANT(m->data.len <= ASSET_PART_BYTES_MAX, "data");
    WANT(m->offset <= m->total_bytes && m->data.len <= m->total_bytes - m->offset, "offset");
    return NULL;
}

static const char *check_params(const Penstock__SamplingParams *m)
{
    WANT(m->max_tokens > 0 && m->max_tokens <= PROMPT_TOKENS_MAX, "params.max_tokens");
    WANT(m->min_tokens <= m->max_tokens, "params.min_tokens");
    WANT(in_range(m->temperature, 0, 100), "params.temperature");
    WANT(in_range(m->top_p, 0, 1) && m->top_p > 0, "params.top_p");
    WANT(in_range(m->min_p, 0, 1), "params.min_p");
    WANT(in_range(m->repetition_penalty, 0.01f, 100), "params.repetition_penalty");
    WANT(in_range(m->presence_penalty, -100, 100), "params.presence_penalty");
    WANT(in_range(m->frequency_penalty, -100, 100), "params.frequency_penalty");
    WANT(ids_ok(m->stop_ids, STOP_IDS_MAX), "params.stop_ids");
    WANT(m->n_logit_bias <= LOGIT_BIAS_MAX, "params.logit_bias");
    for (size_t i = 0; i < m->n_logit_bias; i++)
        WANT(in_range(m->logit_bias[i]->bias, -1000, 1000), "params.logit_bias");
    WANT(m->logprobs <= TOP_LOGPROBS_MAX + 1, "params.logprobs");
    WANT(m->allowed_ids.len == 0, "params.allowed_ids");
    return NULL;
}

static const char *check_request(const Penstock__Request *m)
{
    WANT(m->attempt > 0, "requests.attempt");
    WANT(m->prompt_ids.len > 0 && ids_ok(m->prompt_ids, PROMPT_TOKENS_MAX), "requests.prompt_ids");
    WANT(ids_ok(m->output_ids, PROMPT_TOKENS_MAX), "requests.output_ids");
    WANT(m->tenant_salt.len <= SALT_BYTES_MAX, "requests.tenant_salt");
    WANT(m->choice_count >= 1 && m->choice_count <= CHOICES_MAX, "requests.choice_count");
    WANT(m->n_choice_indexes <= CHOICES_MAX, "requests.choice_indexes");
    for (size_t i = 0; i < m->n_choice_indexes; i++)
        WANT(m->choice_indexes[i] < CHOICES_MAX, "requests.choice_indexes");
    WANT(m->output_ids.len == 0 ||
             (m->n_choice_indexes <= 1 && (m->n_choice_indexes == 1 || m->choice_count == 1)),
         "requests.output_ids");
    WANT(m->deadline_ms <= UINT64_C(86400000), "requests.deadline_ms");
    WANT(m->params != NULL, "requests.params");
    return check_params(m->params);
}

static const char *check_submit(const ProtobufCMessage *base)
{
    const Penstock__Submit *m = (const Penstock__Submit *)base;
    WANT(m->n_requests > 0 && m->n_requests <= REQUESTS_A_FRAME_MAX, "requests");
    for (size_t i = 0; i < m->n_requests; i++) {
        const char *field = check_request(m->requests[i]);
        if (field != NULL) return field;
    }
    return NULL;
}

static const char *check_accepted(const ProtobufCMessage *base)
{
    const Penstock__Accepted *m = (const Penstock__Accepted *)base;
    WANT(m->n_requests <= REQUESTS_A_FRAME_MAX, "requests");
    return NULL;
}

static const char *check_cancel(const ProtobufCMessage *base)
{
    const Penstock__Cancel *m = (const Penstock__Cancel *)base;
    WANT(m->n_requests <= REQUESTS_A_FRAME_MAX, "requests");
    return NULL;
}

static const char *check_reject(const ProtobufCMessage *base)
{
    const Penstock__Reject *m = (const Penstock__Reject *)base;
    WANT((int)m->reason > 0 && (int)m->reason <= (int)PENSTOCK__REJECT_REASON__REJECT_VERSION,
         "reason");
    WANT(text_ok(m->message, TEXT_BYTES_MAX), "message");
    return NULL;
}

static const char *check_sequence(const Penstock__SequenceTokens *m)
{
    WANT(m->choice < CHOICES_MAX, "sequences.choice");
    WANT(ids_ok(m->ids, PROMPT_TOKENS_MAX), "sequences.ids");
    WANT(m->first_index <= PROMPT_TOKENS_MAX, "sequences.first_index");
    WANT(m->n_logprobs == 0 || m->n_logprobs == m->ids.len / 4, "sequences.logprobs");
    for (size_t i = 0; i < m->n_logprobs; i++) {
        const Penstock__TokenLogprobs *p = m->logprobs[i];
        WANT(p->n_top_ids <= TOP_LOGPROBS_MAX && p->n_top_ids == p->n_top_logprobs,
             "sequences.logprobs.top_ids");
        WANT(!isnan(p->logprob), "sequences.logprobs.logprob");
        for (size_t k = 0; k < p->n_top_logprobs; k++)
            WANT(!isnan(p->top_logprobs[k]), "sequences.logprobs.top_logprobs");
    }
    WANT((int)m->finish >= 0 && (int)m->finish <= (int)PENSTOCK__FINISH_REASON__FINISH_ERROR,
         "sequences.finish");
    WANT(text_ok(m->error, TEXT_BYTES_MAX), "sequences.error");
    return NULL;
}

static const char *check_tokens(const ProtobufCMessage *base)
{
    const Penstock__Tokens *m = (const Penstock__Tokens *)base;
    WANT(m->n_sequences <= SEQUENCES_A_FRAME_MAX, "sequences");
    for (size_t i = 0; i < m->n_sequences; i++) {
        const char *field = check_sequence(m->sequences[i]);
        if (field != NULL) return field;
    }
    return check_load(m->load);
}

static const char *check_heartbeat(const ProtobufCMessage *base)
{
    const Penstock__Heartbeat *m = (const Penstock__Heartbeat *)base;
    WANT(m->epoch != 0, "epoch");
    return check_load(m->load);
}

static const char *check_drain(const ProtobufCMessage *base)
{
    WANT(((const Penstock__Drain *)base)->epoch != 0, "epoch");
    return NULL;
}

static const struct {
    const ProtobufCMessageDescriptor *descriptor;
    const char *(*check)(const ProtobufCMessage *message);
} kinds[WIRE_TYPE_END_] = {
    [WIRE_HELLO] = {&penstock__hello__descriptor, check_hello},
    [WIRE_WELCOME] = {&penstock__welcome__descriptor, check_welcome},
    [WIRE_ASSET_GET] = {&penstock__asset_get__descriptor, check_asset_get},
    [WIRE_ASSET] = {&penstock__asset__descriptor, check_asset},
    [WIRE_SUBMIT] = {&penstock__submit__descriptor, check_submit},
    [WIRE_ACCEPTED] = {&penstock__accepted__descriptor, check_accepted},
    [WIRE_TOKENS] = {&penstock__tokens__descriptor, check_tokens},
    [WIRE_CANCEL] = {&penstock__cancel__descriptor, check_cancel},
    [WIRE_REJECT] = {&penstock__reject__descriptor, check_reject},
    [WIRE_DRAIN] = {&penstock__drain__descriptor, check_drain},
    [WIRE_HEARTBEAT] = {&penstock__heartbeat__descriptor, check_heartbeat},
};

const ProtobufCMessageDescriptor *wire_descriptor(enum wire_type type)
{
    return (unsigned)type < WIRE_TYPE_END_ ? kinds[type].descriptor : NULL;
}

const char *wire_check(enum wire_type type, const ProtobufCMessage *message)
{
    return kinds[type].check(message);
}
