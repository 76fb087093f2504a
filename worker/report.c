#include "worker/report.h"

#include "common/log.h"
#include "proto/wire.h"

#include <stdlib.h>

enum {
    SEQUENCES_A_FRAME = 256, /* results of one Tokens message; more go into further ones */
    LOGPROBS_A_FRAME = 256,
    ACCEPTS_A_FRAME = 256,
};

struct accept {
    uint32_t owner;
    uint64_t id;
    uint32_t attempt;
};

struct report {
    struct engine *engine;
    struct mailbox *mailbox;
    uint64_t epoch;
    const uint64_t *incarnation;
    bool posted;
    struct accept accepts[ACCEPTS_A_FRAME];
    uint32_t accept_count;
    Penstock__Ref refs[ACCEPTS_A_FRAME];
    Penstock__Ref *ref_list[ACCEPTS_A_FRAME];
    Penstock__SequenceTokens sequences[SEQUENCES_A_FRAME];
    Penstock__SequenceTokens *sequence_list[SEQUENCES_A_FRAME];
    Penstock__TokenLogprobs logprobs[LOGPROBS_A_FRAME];
    Penstock__TokenLogprobs *logprob_list[LOGPROBS_A_FRAME];
    uint32_t sequence_count, logprob_count;
};

struct report *report_create(struct engine *engine, struct mailbox *mailbox, uint64_t epoch,
                             const uint64_t *incarnation)
{
    struct report *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->engine = engine;
    r->mailbox = mailbox;
    r->epoch = epoch;
    r->incarnation = incarnation;
    for (uint32_t i = 0; i < ACCEPTS_A_FRAME; i++)
        r->ref_list[i] = &r->refs[i];
    for (uint32_t i = 0; i < SEQUENCES_A_FRAME; i++)
        r->sequence_list[i] = &r->sequences[i];
    for (uint32_t i = 0; i < LOGPROBS_A_FRAME; i++)
        r->logprob_list[i] = &r->logprobs[i];
    return r;
}

void report_destroy(struct report *r)
{
    free(r);
}

static void post(struct report *r, uint32_t owner, enum wire_type type,
                 const ProtobufCMessage *message)
{
    struct buffer *frame = mailbox_new_frame(r->mailbox);
    enum err err = wire_encode(type, message, frame);
    CHECK_MSG(err == OK, "frame of type %d: %s", (int)type,
              err_name(err)); /* all our messages are bounded */
    mailbox_post_frame(r->mailbox, owner, frame);
    r->posted = true;
}

static void fill_load(const struct report *r, Penstock__Load *out)
{
    struct engine_load load;
    engine_load_get(r->engine, &load);
    penstock__load__init(out);
    out->running = load.running;
    out->waiting = load.waiting;
    out->kv_blocks_used = load.kv_blocks_used;
    out->kv_blocks_free = load.kv_blocks_free;
    out->prefill_tokens = load.prefill_tokens_pending > UINT32_MAX
                              ? UINT32_MAX
                              : (uint32_t)load.prefill_tokens_pending;
    out->prefill_tokens_per_s = load.prefill_tokens_per_s;
    out->decode_step_s = load.decode_step_s;
    out->steps = load.steps;
}

void report_accept(struct report *r, uint32_t owner, uint64_t id, uint32_t attempt)
{
    if (r->accept_count == ACCEPTS_A_FRAME) report_flush_accepts(r);
    r->accepts[r->accept_count++] = (struct accept){owner, id, attempt};
}

static void flush_accepts_of(struct report *r, uint32_t owner)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->accept_count; i++) {
        if (r->accepts[i].owner != owner) continue;
        penstock__ref__init(&r->refs[n]);
        r->refs[n].id = r->accepts[i].id;
        r->refs[n++].attempt = r->accepts[i].attempt;
    }
    if (n == 0) return;
    Penstock__Accepted message = PENSTOCK__ACCEPTED__INIT;
    message.epoch = r->epoch;
    message.incarnation = r->incarnation[owner];
    message.n_requests = n;
    message.requests = r->ref_list;
    post(r, owner, WIRE_ACCEPTED, &message.base);
}

void report_flush_accepts(struct report *r)
{
    if (r->accept_count == 0) return;
    for (uint32_t owner = 0; owner < MAILBOX_OWNERS_MAX; owner++)
        if (r->incarnation[owner] != 0) flush_accepts_of(r, owner);
    r->accept_count = 0;
}

void report_reject(struct report *r, uint32_t owner, const struct engine_request *request,
                   Penstock__RejectReason reason, const char *text)
{
    Penstock__Reject message = PENSTOCK__REJECT__INIT;
    message.epoch = r->epoch;
    message.incarnation = r->incarnation[owner];
    message.id = request->id;
    message.attempt = request->attempt;
    message.reason = reason;
    message.message = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
    log_info("ev=worker.reject id=%016llx attempt=%u reason=%d why=\"%s\"",
             (unsigned long long)request->id, request->attempt, (int)reason, text);
    post(r, owner, WIRE_REJECT, &message.base);
}

/* ---- results ---- */

static Penstock__FinishReason finish_of(enum engine_finish finish)
{
    switch (finish) {
    case ENGINE_STOP: return PENSTOCK__FINISH_REASON__FINISH_STOP;
    case ENGINE_LENGTH: return PENSTOCK__FINISH_REASON__FINISH_LENGTH;
    case ENGINE_CANCELLED: return PENSTOCK__FINISH_REASON__FINISH_CANCELLED;
    case ENGINE_ERROR: return PENSTOCK__FINISH_REASON__FINISH_ERROR;
    case ENGINE_RUNNING: break;
    }
    return PENSTOCK__FINISH_REASON__FINISH_NONE;
}

static void fill_logprobs(struct report *r, const struct engine_result *result,
                          Penstock__SequenceTokens *out)
{
    out->n_logprobs = result->id_count;
    out->logprobs = &r->logprob_list[r->logprob_count];
    for (uint32_t i = 0; i < result->id_count; i++) {
        const struct engine_logprobs *from = &result->logprobs[i];
        Penstock__TokenLogprobs *to = &r->logprobs[r->logprob_count++];
        penstock__token_logprobs__init(to);
        to->logprob = from->logprob;
        to->n_top_ids = to->n_top_logprobs = from->top_count;
        to->top_ids = (uint32_t *)(uintptr_t)from->top_ids;
        to->top_logprobs = (float *)(uintptr_t)from->top_logprobs;
    }
}

/* Everything is borrowed: ids go out as the little-endian words that they are. */
static void fill_sequence(struct report *r, const struct engine_result *result)
{
    Penstock__SequenceTokens *out = &r->sequences[r->sequence_count++];
    penstock__sequence_tokens__init(out);
    out->id = result->id;
    out->attempt = result->attempt;
    out->choice = result->choice;
    out->first_index = result->first_index;
    out->ids = (ProtobufCBinaryData){result->id_count * sizeof(uint32_t),
                                     (uint8_t *)(uintptr_t)result->ids};
    if (result->logprobs != NULL) fill_logprobs(r, result, out);
    out->finish = finish_of(result->finish);
    if (result->first) {
        out->cached_tokens = result->cached_tokens;
        out->prompt_us = result->prompt_ns / 1000 > UINT32_MAX
                             ? UINT32_MAX
                             : (uint32_t)(result->prompt_ns / 1000);
    }
    if (result->error != NULL)
        out->error =
            (ProtobufCBinaryData){strlen(result->error), (uint8_t *)(uintptr_t)result->error};
    if (result->finish == ENGINE_STOP && result->stop_id != UINT32_MAX)
        out->stop_id = result->stop_id + 1;
}

static void flush_tokens(struct report *r, uint32_t owner, Penstock__Load *load)
{
    if (r->sequence_count == 0) return;
    Penstock__Tokens message = PENSTOCK__TOKENS__INIT;
    message.epoch = r->epoch;
    message.incarnation = r->incarnation[owner];
    message.n_sequences = r->sequence_count;
    message.sequences = r->sequence_list;
    message.load = load;
    post(r, owner, WIRE_TOKENS, &message.base);
    r->sequence_count = r->logprob_count = 0;
}

void report_results(struct report *r, const struct engine_result *results, uint32_t count)
{
    if (count == 0) return;
    Penstock__Load load;
    fill_load(r, &load);
    for (uint32_t owner = 0; owner < MAILBOX_OWNERS_MAX; owner++) {
        if (r->incarnation[owner] == 0) continue;
        for (uint32_t i = 0; i < count; i++) {
            if (results[i].owner != owner) continue;
            uint32_t logprobs = results[i].logprobs != NULL ? results[i].id_count : 0;
            CHECK(logprobs <= LOGPROBS_A_FRAME);
            if (r->sequence_count == SEQUENCES_A_FRAME ||
                r->logprob_count + logprobs > LOGPROBS_A_FRAME)
                flush_tokens(r, owner, &load);
            fill_sequence(r, &results[i]);
        }
        flush_tokens(r, owner, &load);
    }
}

void report_heartbeat(struct report *r, uint32_t owner, bool draining)
{
    Penstock__Load load;
    fill_load(r, &load);
    Penstock__Heartbeat message = PENSTOCK__HEARTBEAT__INIT;
    message.epoch = r->epoch;
    message.incarnation = r->incarnation[owner];
    message.load = &load;
    message.draining = draining;
    post(r, owner, WIRE_HEARTBEAT, &message.base);
}

void report_drain(struct report *r, uint32_t owner)
{
    Penstock__Drain message = PENSTOCK__DRAIN__INIT;
    message.epoch = r->epoch;
    post(r, owner, WIRE_DRAIN, &message.base);
}

void report_wake(struct report *r)
{
    if (!r->posted) return;
    r->posted = false;
    mailbox_wake_link(r->mailbox);
}
