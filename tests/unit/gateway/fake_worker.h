/* fake_worker.h - a worker without a model, over real sockets: it speaks the protocol, and its
 * tokens are a pure function of (seed, choice, index), as the real one's are. Pumped by the test.
 */
#ifndef PENSTOCK_TESTS_FAKE_WORKER_H
#define PENSTOCK_TESTS_FAKE_WORKER_H

#include "common/clock.h"
#include "common/transport.h"
#include "proto/penstock.pb-c.h"
#include "proto/wire.h"
#include "tests/unit/gateway/gateway_fixture.h"

enum { FAKE_SEQUENCES_MAX = 256 };

struct fake_sequence {
    uint64_t id, seed;
    uint32_t attempt, choice, index, max_tokens;
    bool told_first;
};

struct fake_worker {
    struct transport *transport;
    struct wire_budget *budget;
    struct buffer frame, asset;
    uint64_t epoch, incarnation, last_heartbeat_ns;
    struct fake_sequence sequences[FAKE_SEQUENCES_MAX];
    uint32_t sequence_count, submits, cancels, resumed;
    bool silent; /* neither heartbeats nor tokens */
    bool paused; /* heartbeats only */
    bool full;   /* rejects what comes */
};

static inline uint32_t fake_token(uint64_t seed, uint32_t choice, uint32_t index)
{
    uint64_t key[3] = {seed, choice, index};
    return ID_BYTE + 'a' + (uint32_t)(hash64_of(span_of(key, sizeof key), 5) % 26);
}

static inline ProtobufCBinaryData fake_bytes(const void *ptr, size_t len)
{
    return (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)ptr};
}

static inline void fake_send(struct fake_worker *f, enum wire_type type, const ProtobufCMessage *m)
{
    buffer_reset(&f->frame);
    CHECK(wire_encode(type, m, &f->frame) == OK);
    (void)!transport_send(f->transport, NULL, buffer_view(&f->frame));
}

static inline struct fake_worker *fake_create(const char *address, uint64_t epoch)
{
    struct fake_worker *f = calloc(1, sizeof *f);
    struct errmsg why = {""};
    f->epoch = epoch;
    f->budget = wire_budget_create();
    buffer_init(&f->frame, FRAME_BYTES_MAX);
    fixture_asset(&f->asset);
    enum err err = transport_connect(address, FRAME_BYTES_MAX, &f->transport, &why);
    CHECK_MSG(err == OK, "%s", why.text);
    return f;
}

static inline void fake_destroy(struct fake_worker *f) /* as kill -9 does */
{
    transport_destroy(f->transport, 0);
    wire_budget_destroy(f->budget);
    buffer_deinit(&f->frame);
    buffer_deinit(&f->asset);
    free(f);
}

static inline void fake_hello(struct fake_worker *f)
{
    Penstock__Hello m = PENSTOCK__HELLO__INIT;
    struct hash128 tokenizer = hash128_of(buffer_view(&f->asset)),
                   template = hash128_of(span_str(fixture_template));
    m.worker_name = fake_bytes("fake", 4);
    m.epoch = f->epoch;
    m.model = fake_bytes("m", 1);
    m.model_fingerprint = fake_bytes("0123456789abcdef", 16);
    m.tokenizer_hash = fake_bytes(&tokenizer, 16);
    m.template_hash = fake_bytes(&template, 16);
    m.vocab_count = VOCAB_COUNT;
    m.context_max = 100000;
    m.sequences_max = 64;
    m.kv_blocks = 100000;
    m.submit_window = 128;
    m.device = fake_bytes("none", 4);
    fake_send(f, WIRE_HELLO, &m.base);
}

static inline void fake_asset(struct fake_worker *f, const Penstock__AssetGet *get)
{
    Penstock__Asset m = PENSTOCK__ASSET__INIT;
    struct span all = get->kind == PENSTOCK__ASSET_KIND__ASSET_TOKENIZER
                          ? buffer_view(&f->asset)
                          : span_str(fixture_template);
    size_t part = all.len - get->offset < 1000 ? all.len - get->offset : 1000;
    m.hash = get->hash;
    m.kind = get->kind;
    m.total_bytes = all.len;
    m.offset = get->offset;
    m.data = fake_bytes(all.ptr + get->offset, part);
    fake_send(f, WIRE_ASSET, &m.base);
}

static inline void fake_reject(struct fake_worker *f, const Penstock__Request *r)
{
    Penstock__Reject m = PENSTOCK__REJECT__INIT;
    m.epoch = f->epoch;
    m.incarnation = f->incarnation;
    m.id = r->id;
    m.attempt = r->attempt;
    m.reason = PENSTOCK__REJECT_REASON__REJECT_FULL;
    fake_send(f, WIRE_REJECT, &m.base);
}

static inline void fake_take(struct fake_worker *f, const Penstock__Request *r)
{
    Penstock__Accepted m = PENSTOCK__ACCEPTED__INIT;
    Penstock__Ref ref = PENSTOCK__REF__INIT, *refs[1] = {&ref};
    f->resumed += r->output_ids.len > 0;
    for (uint32_t i = 0; i < r->choice_count; i++) {
        uint32_t choice = r->n_choice_indexes > 0 ? r->choice_indexes[i] : i;
        CHECK(f->sequence_count < FAKE_SEQUENCES_MAX);
        f->sequences[f->sequence_count++] = (struct fake_sequence){r->id,
                                                                   r->params->seed,
                                                                   r->attempt,
                                                                   choice,
                                                                   (uint32_t)r->output_ids.len / 4,
                                                                   r->params->max_tokens,
                                                                   false};
        for (uint32_t k = 0; k < r->output_ids.len / 4; k++)
            CHECK(load_le32(r->output_ids.data + 4 * k) == fake_token(r->params->seed, choice, k));
    }
    m.epoch = f->epoch;
    m.incarnation = f->incarnation;
    ref.id = r->id;
    ref.attempt = r->attempt;
    m.n_requests = 1;
    m.requests = refs;
    fake_send(f, WIRE_ACCEPTED, &m.base);
}

static inline void fake_cancel(struct fake_worker *f, const Penstock__Ref *ref)
{
    f->cancels++;
    for (uint32_t i = f->sequence_count; i-- > 0;)
        if (f->sequences[i].id == ref->id && f->sequences[i].attempt == ref->attempt)
            f->sequences[i] = f->sequences[--f->sequence_count];
}

static inline void fake_receive(struct fake_worker *f)
{
    struct transport_peer peer;
    struct span payload;
    enum wire_type type;
    ProtobufCMessage *message;
    struct errmsg why;
    while (transport_recv(f->transport, &peer, &payload) == OK) {
        CHECK(wire_decode(payload, f->budget, &type, &message, &why) == OK);
        if (type == WIRE_WELCOME) {
            f->incarnation = ((const Penstock__Welcome *)message)->incarnation;
        } else if (type == WIRE_ASSET_GET) {
            fake_asset(f, (const Penstock__AssetGet *)message);
        } else if (type == WIRE_CANCEL) {
            const Penstock__Cancel *c = (const Penstock__Cancel *)message;
            for (size_t i = 0; i < c->n_requests; i++)
                fake_cancel(f, c->requests[i]);
        } else if (type == WIRE_SUBMIT) {
            const Penstock__Submit *s = (const Penstock__Submit *)message;
            CHECK(s->epoch == f->epoch && s->incarnation == f->incarnation);
            f->submits++;
            for (size_t i = 0; i < s->n_requests; i++)
                if (f->full)
                    fake_reject(f, s->requests[i]);
                else
                    fake_take(f, s->requests[i]);
        }
        wire_budget_reset(f->budget);
    }
}

static inline void fake_heartbeat(struct fake_worker *f)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns - f->last_heartbeat_ns < 100 * NS_PER_MS) return;
    f->last_heartbeat_ns = now_ns;
    if (f->incarnation == 0) {
        fake_hello(f);
        return;
    }
    Penstock__Heartbeat m = PENSTOCK__HEARTBEAT__INIT;
    m.epoch = f->epoch;
    m.incarnation = f->incarnation;
    fake_send(f, WIRE_HEARTBEAT, &m.base);
}

/* One token for each sequence, all in one message. */
static inline void fake_step(struct fake_worker *f)
{
    static Penstock__SequenceTokens sequences[FAKE_SEQUENCES_MAX], *list[FAKE_SEQUENCES_MAX];
    static uint32_t ids[FAKE_SEQUENCES_MAX];
    Penstock__Tokens m = PENSTOCK__TOKENS__INIT;
    if (f->sequence_count == 0) return;
    m.n_sequences = f->sequence_count;
    for (uint32_t i = f->sequence_count; i-- > 0;) {
        struct fake_sequence *s = &f->sequences[i];
        penstock__sequence_tokens__init(&sequences[i]);
        list[i] = &sequences[i];
        ids[i] = fake_token(s->seed, s->choice, s->index);
        sequences[i].id = s->id;
        sequences[i].attempt = s->attempt;
        sequences[i].choice = s->choice;
        sequences[i].first_index = s->index++;
        sequences[i].ids = fake_bytes(&ids[i], 4);
        if (s->index >= s->max_tokens) {
            sequences[i].finish = PENSTOCK__FINISH_REASON__FINISH_LENGTH;
            *s = f->sequences[--f->sequence_count];
        }
    }
    m.epoch = f->epoch;
    m.incarnation = f->incarnation;
    m.sequences = list;
    fake_send(f, WIRE_TOKENS, &m.base);
}

static inline void fake_pump(struct fake_worker *f)
{
    if (f == NULL || f->silent) return;
    fake_receive(f);
    fake_heartbeat(f);
    if (!f->paused && f->incarnation != 0) fake_step(f);
}

#endif
