/* workers.c - a loop's conversation with its workers: frames in, frames out. */
#include "gateway/loop.h"

#include "common/clock.h"
#include "common/log.h"
#include "proto/penstock.pb-c.h"
#include "proto/wire.h"

#include <stdio.h>

enum { RECEIVE_BUDGET = 256, UNITS_A_FRAME = 64, SUBMIT_BYTES = 4 << 20, PENDING_MAX = 1024 };
#define ASSET_RETRY_NS UINT64_C(1000000000)

static ProtobufCBinaryData bytes_of(const void *ptr, size_t len)
{
    return (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)ptr};
}

static enum err send_frame(struct loop *l, const struct transport_peer *peer, enum wire_type type,
                           const ProtobufCMessage *m)
{
    buffer_reset(&l->frame);
    enum err err = wire_encode(type, m, &l->frame);
    return err == OK ? transport_send(l->transport, peer, buffer_view(&l->frame)) : err;
}

/* ---- Submit and Cancel ---- */

void loop__send(void *arg, struct worker *w, struct unit *u)
{
    struct loop *l = arg;
    (void)w;
    if (l->pending_count == PENDING_MAX) loop__flush_submits(l);
    l->pending[l->pending_count++] = u;
}

struct submit { /* one frame under construction */
    Penstock__Submit message;
    Penstock__Request requests[UNITS_A_FRAME], *request_list[UNITS_A_FRAME];
    Penstock__SamplingParams params[UNITS_A_FRAME];
    uint32_t indexes[UNITS_A_FRAME][REQUEST_CHOICES_MAX];
    uint32_t count;
    size_t bytes;
};

static void fill_params(struct submit *s, uint32_t k, const struct request *r)
{
    Penstock__SamplingParams *p = &s->params[k];
    const struct request_params *from = &r->params;
    penstock__sampling_params__init(p);
    p->max_tokens = from->max_tokens;
    p->min_tokens = from->min_tokens;
    p->temperature = (float)from->temperature;
    p->top_p = (float)from->top_p;
    p->top_k = from->top_k;
    p->min_p = (float)from->min_p;
    p->repetition_penalty = (float)from->repetition_penalty;
    p->presence_penalty = (float)from->presence_penalty;
    p->frequency_penalty = (float)from->frequency_penalty;
    p->seed = from->seed;
    p->ignore_eos = from->ignore_eos;
    p->stop_ids = bytes_of(from->stop_ids, from->stop_id_count * sizeof(uint32_t));
    p->logprobs = from->want_logprobs ? from->top_logprobs + 1 : 0;
}

static void fill_unit(struct submit *s, struct unit *u, uint64_t now_ns)
{
    struct request *r = u->request;
    uint32_t k = s->count++;
    Penstock__Request *m = &s->requests[k];
    penstock__request__init(m);
    s->request_list[k] = m;
    m->id = u->id;
    m->attempt = u->attempt;
    m->prompt_ids =
        bytes_of(r->prompts[u->prompt].ids, r->prompts[u->prompt].count * sizeof(uint32_t));
    fill_params(s, k, r);
    m->params = &s->params[k];
    m->choice_count = u->choice_count;
    m->choice_indexes = s->indexes[k];
    m->n_choice_indexes = u->choice_count;
    for (uint32_t i = 0; i < u->choice_count; i++)
        s->indexes[k][i] = r->choices[u->choices[i]].within;
    const struct choice *only = &r->choices[u->choices[0]];
    if (u->choice_count == 1)
        m->output_ids = bytes_of(only->ids, only->id_count * sizeof(uint32_t));
    m->deadline_ms = r->deadline_ns > now_ns ? (r->deadline_ns - now_ns) / NS_PER_MS + 1 : 1;
    s->bytes += m->prompt_ids.len + m->output_ids.len + 256;
}

/* A frame that could not be sent: its units come back as if the worker had refused them. */
static void units_unsent(struct loop *l, struct worker *w, const struct submit *s, uint64_t now_ns)
{
    for (uint32_t i = 0; i < s->count; i++)
        dispatch_on_rejected(&l->dispatch, w, s->requests[i].id, s->requests[i].attempt, false,
                             false, "", now_ns);
}

static void send_submit(struct loop *l, struct worker *w, struct submit *s)
{
    uint64_t now_ns = clock_now_ns();
    if (s->count == 0) return;
    s->message.incarnation = l->incarnation;
    s->message.epoch = w->facts.epoch;
    s->message.n_requests = s->count;
    s->message.requests = s->request_list;
    enum err err = send_frame(l, &w->peer, WIRE_SUBMIT, &s->message.base);
    if (err == ERR_NOT_FOUND) {
        log_warn("ev=worker.gone name=%s", w->facts.name);
        dispatch_drop_worker(&l->dispatch, w, true, now_ns);
    } else if (err != OK) {
        if (err != ERR_AGAIN)
            log_error("ev=submit.failed worker=%s err=%s", w->facts.name, err_name(err));
        units_unsent(l, w, s, now_ns);
    }
    s->count = 0;
    s->bytes = 0;
}

/* Biases are many and rare: such a request travels alone, with its own list. */
static void send_with_bias(struct loop *l, struct worker *w, struct submit *s, struct unit *u)
{
    static _Thread_local Penstock__LogitBias bias[REQUEST_BIAS_MAX];
    static _Thread_local Penstock__LogitBias *list[REQUEST_BIAS_MAX];
    const struct request_params *p = &u->request->params;
    send_submit(l, w, s);
    if (u->worker != w) return; /* the frame before it failed, and took the worker along */
    fill_unit(s, u, clock_now_ns());
    for (uint32_t i = 0; i < p->bias_count; i++) {
        penstock__logit_bias__init(&bias[i]);
        bias[i].id = p->bias_ids[i];
        bias[i].bias = p->bias[i];
        list[i] = &bias[i];
    }
    s->params[0].n_logit_bias = p->bias_count;
    s->params[0].logit_bias = list;
    send_submit(l, w, s);
}

/* One Submit per worker and turn, in the batcher's order. */
void loop__flush_submits(struct loop *l)
{
    static _Thread_local struct submit s;
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < l->pending_count; i++) {
        if (l->pending[i] == NULL || l->pending[i]->worker == NULL) continue;
        struct worker *w = l->pending[i]->worker;
        penstock__submit__init(&s.message);
        s.count = 0;
        s.bytes = 0;
        for (uint32_t k = i; k < l->pending_count; k++) {
            struct unit *u = l->pending[k];
            if (u == NULL || u->worker != w) continue;
            l->pending[k] = NULL;
            if (u->request->params.bias_count > 0) {
                send_with_bias(l, w, &s, u);
                continue;
            }
            fill_unit(&s, u, now_ns);
            if (s.count == UNITS_A_FRAME || s.bytes > SUBMIT_BYTES) send_submit(l, w, &s);
        }
        send_submit(l, w, &s);
    }
    l->pending_count = 0;
}

void loop__cancel(void *arg, struct worker *w, uint64_t id, uint32_t attempt)
{
    struct loop *l = arg;
    /* not sent yet: then it need not be */
    for (uint32_t i = 0; i < l->pending_count; i++)
        if (l->pending[i] != NULL && l->pending[i]->id == id) l->pending[i] = NULL;
    Penstock__Ref ref = PENSTOCK__REF__INIT, *list[1] = {&ref};
    Penstock__Cancel m = PENSTOCK__CANCEL__INIT;
    ref.id = id;
    ref.attempt = attempt;
    m.incarnation = l->incarnation;
    m.n_requests = 1;
    m.requests = list;
    (void)send_frame(
        l, &w->peer, WIRE_CANCEL,
        &m.base); /* lost: the worker's results are stale here, and its request ends by itself */
}

/* ---- Hello, assets ---- */

static void send_welcome(struct loop *l, const struct worker *w)
{
    Penstock__Welcome m = PENSTOCK__WELCOME__INIT;
    m.incarnation = l->incarnation;
    m.epoch = w->facts.epoch;
    m.gateway_name = bytes_of("penstock-gateway", 16);
    m.ports = l->set.ports;
    m.n_ports = l->set.port_count;
    (void)send_frame(l, &w->peer, WIRE_WELCOME, &m.base);
}

static void send_hello_refusal(struct loop *l, const struct transport_peer *peer,
                               Penstock__RejectReason reason, const char *text)
{
    Penstock__Reject m = PENSTOCK__REJECT__INIT;
    m.incarnation = l->incarnation;
    m.reason = reason;
    m.message = bytes_of(text, strlen(text));
    (void)send_frame(l, peer, WIRE_REJECT, &m.base);
}

static void ask_asset(struct loop *l, struct worker *w, struct asset *a, uint64_t now_ns)
{
    if (!a->wanted || a->here || (a->asked_ns != 0 && now_ns - a->asked_ns < ASSET_RETRY_NS))
        return;
    Penstock__AssetGet m = PENSTOCK__ASSET_GET__INIT;
    m.hash = bytes_of(&a->hash, sizeof a->hash);
    m.kind = a->kind;
    m.offset = a->bytes.len;
    if (send_frame(l, &w->peer, WIRE_ASSET_GET, &m.base) == OK) a->asked_ns = now_ns;
}

static void ask_assets(struct loop *l, struct worker *w, uint64_t now_ns)
{
    ask_asset(l, w, &w->model->tokenizer_asset, now_ns);
    ask_asset(l, w, &w->model->template_asset, now_ns);
}

static struct hash128 hash_from(ProtobufCBinaryData d)
{
    struct hash128 h;
    memcpy(&h, d.data, sizeof h); /* wire.h checked the length */
    return h;
}

static void on_hello(struct loop *l, const struct transport_peer *peer, const Penstock__Hello *m,
                     uint64_t now_ns)
{
    struct worker_facts facts = {.epoch = m->epoch,
                                 .context_max = m->context_max,
                                 .sequences_max = m->sequences_max,
                                 .kv_blocks = m->kv_blocks,
                                 .submit_window = m->submit_window};
    char model_name[256];
    struct served_model *model = NULL;
    struct hash128 template_hash;
    bool returned = false;
    (void)snprintf(facts.name, sizeof facts.name, "%.*s",
                   (int)(m->worker_name.len < 255 ? m->worker_name.len : 255),
                   (const char *)m->worker_name.data);
    (void)snprintf(model_name, sizeof model_name, "%.*s",
                   (int)(m->model.len < 255 ? m->model.len : 255), (const char *)m->model.data);
    if (m->template_hash.len > 0) template_hash = hash_from(m->template_hash);
    enum err err = served_model_offer(&l->models, model_name, hash_from(m->model_fingerprint),
                                      hash_from(m->tokenizer_hash),
                                      m->template_hash.len > 0 ? &template_hash : NULL,
                                      m->vocab_count, m->context_max, m->model_created, &model);
    if (err != OK) {
        const char *text = err == ERR_EXISTS
                               ? "a model of this name, with other weights or assets, is served "
                                 "already: give it another --model-name"
                               : "too many models";
        log_error("ev=worker.refused name=%s model=%s why=\"%s\"", facts.name, model_name, text);
        send_hello_refusal(l, peer, PENSTOCK__REJECT_REASON__REJECT_FOREIGN, text);
        return;
    }
    struct worker *known = fleet_find(&l->dispatch.fleet, peer);
    if (known != NULL && known->facts.epoch != facts.epoch)
        dispatch_drop_worker(&l->dispatch, known, true, now_ns);
    struct worker *w = fleet_join(&l->dispatch.fleet, peer, &facts, model, now_ns, &returned);
    if (w == NULL) {
        log_error("ev=worker.refused name=%s why=\"%d workers are here already\"", facts.name,
                  WORKERS_MAX);
        return;
    }
    if (!returned)
        log_info("ev=worker.joined name=%s model=%s epoch=%016llx context=%u sequences=%u "
                 "device=\"%.*s\"",
                 facts.name, model_name, (unsigned long long)facts.epoch, facts.context_max,
                 facts.sequences_max, (int)m->device.len, (const char *)m->device.data);
    send_welcome(l, w);
    ask_assets(l, w, now_ns);
}

static void on_asset(struct loop *l, struct worker *w, const Penstock__Asset *m, uint64_t now_ns)
{
    if (served_model_take_part(w->model, hash_from(m->hash), m->total_bytes, m->offset,
                               span_of(m->data.data, m->data.len), now_ns) &&
        served_model_ready(w->model))
        log_info("ev=model.ready model=%s", w->model->name);
    ask_assets(l, w, now_ns); /* the next part, or what is still missing */
}

/* ---- results ---- */

static void take_load(struct worker *w, const Penstock__Load *m)
{
    if (m == NULL) return;
    w->report = (struct worker_report){
        m->running,       m->waiting, m->kv_blocks_used, m->kv_blocks_free, m->prefill_tokens_per_s,
        m->decode_step_s, m->steps};
}

static void on_sequence(struct loop *l, struct worker *w, const Penstock__SequenceTokens *m,
                        uint64_t now_ns)
{
    static _Thread_local struct token_logprob logprobs[256];
    char error[256] = "";
    struct token_event e = {.id = m->id,
                            .attempt = m->attempt,
                            .choice = m->choice,
                            .first_index = m->first_index,
                            .id_count = (uint32_t)(m->ids.len / 4),
                            .ids = m->ids.data,
                            .cached_tokens = m->cached_tokens};
    for (size_t i = 0; i < m->n_logprobs && i < ARRAY_LEN(logprobs); i++) {
        const Penstock__TokenLogprobs *from = m->logprobs[i];
        struct token_logprob *to = &logprobs[i];
        *to = (struct token_logprob){.id = load_le32(m->ids.data + 4 * i),
                                     .logprob = from->logprob,
                                     .top_count = (uint32_t)from->n_top_ids};
        for (size_t k = 0; k < from->n_top_ids && k < ARRAY_LEN(to->top_ids); k++) {
            to->top_ids[k] = from->top_ids[k];
            to->top_logprobs[k] = from->top_logprobs[k];
        }
    }
    if (m->n_logprobs > 0) e.logprobs = logprobs;
    switch (m->finish) {
    case PENSTOCK__FINISH_REASON__FINISH_STOP: e.finish = FINISH_STOP; break;
    case PENSTOCK__FINISH_REASON__FINISH_LENGTH: e.finish = FINISH_LENGTH; break;
    case PENSTOCK__FINISH_REASON__FINISH_CANCELLED:
        e.cancelled = true;
        __attribute__((fallthrough));
    case PENSTOCK__FINISH_REASON__FINISH_ERROR: e.finish = FINISH_FAILED; break;
    default: break;
    }
    if (m->error.len > 0) {
        (void)snprintf(error, sizeof error, "%.*s", (int)(m->error.len < 255 ? m->error.len : 255),
                       (const char *)m->error.data);
        e.error = error;
        log_warn("ev=sequence.failed worker=%s id=%016llx why=\"%s\"", w->facts.name,
                 (unsigned long long)m->id, error);
    }
    dispatch_on_tokens(&l->dispatch, w, &e, now_ns);
}

static void on_reject(struct loop *l, struct worker *w, const Penstock__Reject *m, uint64_t now_ns)
{
    char text[256];
    (void)snprintf(text, sizeof text, "%.*s", (int)(m->message.len < 255 ? m->message.len : 255),
                   (const char *)m->message.data);
    log_info("ev=unit.rejected worker=%s id=%016llx reason=%d why=\"%s\"", w->facts.name,
             (unsigned long long)m->id, (int)m->reason, text);
    if (m->reason == PENSTOCK__REJECT_REASON__REJECT_DRAINING) w->state = WORKER_DRAINING;
    dispatch_on_rejected(&l->dispatch, w, m->id, m->attempt,
                         m->reason == PENSTOCK__REJECT_REASON__REJECT_TOO_LONG,
                         m->reason == PENSTOCK__REJECT_REASON__REJECT_BAD_REQUEST, text, now_ns);
}

/* Every message of a worker in session names its epoch and our incarnation; what does not match is
 * of another life. */
static bool in_session(struct loop *l, const struct worker *w, uint64_t epoch, uint64_t incarnation)
{
    bool good = w != NULL && epoch == w->facts.epoch && incarnation == l->incarnation;
    if (!good) l->dispatch.counts.stale++;
    return good;
}

static void on_message(struct loop *l, const struct transport_peer *peer, enum wire_type type,
                       const void *m, uint64_t now_ns)
{
    struct worker *w = fleet_find(&l->dispatch.fleet, peer);
    if (type == WIRE_HELLO) {
        on_hello(l, peer, m, now_ns);
        return;
    }
    if (type == WIRE_TOKENS) {
        const Penstock__Tokens *t = m;
        if (!in_session(l, w, t->epoch, t->incarnation)) return;
        take_load(w, t->load);
        w->last_heard_ns = now_ns;
        for (size_t i = 0; i < t->n_sequences; i++)
            on_sequence(l, w, t->sequences[i], now_ns);
    } else if (type == WIRE_HEARTBEAT) {
        const Penstock__Heartbeat *h = m;
        if (!in_session(l, w, h->epoch, h->incarnation)) return;
        take_load(w, h->load);
        w->last_heard_ns = now_ns;
        if (h->draining) w->state = WORKER_DRAINING;
        send_welcome(l, w);
    } else if (type == WIRE_ACCEPTED) {
        const Penstock__Accepted *a = m;
        if (!in_session(l, w, a->epoch, a->incarnation)) return;
        for (size_t i = 0; i < a->n_requests; i++)
            dispatch_on_accepted(&l->dispatch, w, a->requests[i]->id, a->requests[i]->attempt);
    } else if (type == WIRE_REJECT) {
        const Penstock__Reject *r = m;
        if (in_session(l, w, r->epoch, r->incarnation)) on_reject(l, w, r, now_ns);
    } else if (type == WIRE_ASSET && w != NULL) {
        on_asset(l, w, m, now_ns);
    } else if (type == WIRE_DRAIN && w != NULL &&
               ((const Penstock__Drain *)m)->epoch == w->facts.epoch) {
        w->state = WORKER_DRAINING;
        log_info("ev=worker.draining name=%s", w->facts.name);
    } else {
        metric_add(l->set.metrics->malformed_frames, 1);
    }
}

static void on_frame(struct loop *l, const struct transport_peer *peer, struct span payload)
{
    enum wire_type type;
    ProtobufCMessage *message = NULL;
    struct errmsg why;
    enum err err = wire_decode(payload, l->budget, &type, &message, &why);
    if (err == OK) {
        on_message(l, peer, type, message, clock_now_ns());
        wire_budget_reset(l->budget);
        return;
    }
    metric_add(l->set.metrics->malformed_frames, 1);
    log_warn("ev=frame.refused err=%s why=\"%s\"", err_name(err), why.text);
    if (err == ERR_UNSUPPORTED)
        send_hello_refusal(l, peer, PENSTOCK__REJECT_REASON__REJECT_VERSION, why.text);
}

void loop__workers_pump(struct loop *l)
{
    for (uint32_t n = 0; n < RECEIVE_BUDGET; n++) {
        struct transport_peer peer;
        struct span payload;
        enum err err = transport_recv(l->transport, &peer, &payload);
        if (err == ERR_AGAIN) {
            loop__dispatch(l);
            /* sending may have swallowed the edge */
            if (transport_recv(l->transport, &peer, &payload) != OK) return;
            err = OK;
        }
        if (err == OK)
            on_frame(l, &peer, payload);
        else
            metric_add(l->set.metrics->malformed_frames, 1);
    }
    loop__dispatch(l);
    loop__again(l); /* the budget is spent: others first, then on */
}

void loop__worker_tick(struct loop *l, uint64_t now_ns)
{
    for (uint32_t i = 0; i < l->dispatch.fleet.count; i++) {
        struct worker *w = &l->dispatch.fleet.workers[i];
        if (w->state == WORKER_NONE) continue;
        ask_assets(l, w, now_ns);
    }
}
