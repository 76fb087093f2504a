#include "worker/link.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/transport.h"
#include "proto/penstock.pb-c.h"
#include "proto/wire.h"
#include "worker/intake.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { RECEIVE_BUDGET = 64, ADDRESS_BYTES_MAX = 256, POLL_MS = 50 };

struct gateway {
    char address[ADDRESS_BYTES_MAX];
    struct transport *transport;
    uint64_t incarnation; /* 0: no session */
    uint64_t last_heard_ns, next_hello_ns;
    struct buffer *backlog[LINK_BACKLOG]; /* a ring of frames not sent yet */
    uint32_t backlog_first, backlog_count;
};

struct link {
    struct link_options options;
    struct gateway gateways[MAILBOX_OWNERS_MAX];
    uint32_t gateway_count;
    struct wire_budget *budget;
    struct buffer scratch; /* frames made by this thread: Hello, Asset */
    struct hash128 tokenizer_hash, template_hash;
    struct metric *foreign, *malformed, *sessions_lost;
    _Atomic bool stop;
    _Atomic uint32_t sessions;
};

static uint32_t owner_of(const struct link *l, const struct gateway *g)
{
    return (uint32_t)(g - l->gateways);
}

static enum err add_gateway(struct link *l, struct span address, struct errmsg *why)
{
    if (address.len == 0 || address.len >= ADDRESS_BYTES_MAX)
        return errmsg_set(why, ERR_INVALID,
                          "--gateway: '%.*s' is no address such as tcp://127.0.0.1:5570",
                          (int)(address.len < 200 ? address.len : 200), (const char *)address.ptr);
    if (l->gateway_count == MAILBOX_OWNERS_MAX)
        return errmsg_set(why, ERR_LIMIT, "--gateway: more than %d gateways", MAILBOX_OWNERS_MAX);
    struct gateway *g = &l->gateways[l->gateway_count];
    memcpy(g->address, address.ptr, address.len);
    g->address[address.len] = '\0';
    for (uint32_t i = 0; i < l->gateway_count; i++)
        if (strcmp(l->gateways[i].address, g->address) == 0) return OK; /* known already */
    enum err err = transport_connect(g->address, FRAME_BYTES_MAX, &g->transport, why);
    if (err == OK) l->gateway_count++;
    return err;
}

enum err link_create(const struct link_options *options, struct link **out, struct errmsg *why)
{
    struct link *l = calloc(1, sizeof *l);
    if (l == NULL || (l->budget = wire_budget_create()) == NULL) {
        free(l);
        return errmsg_set(why, ERR_NOMEM, "no memory for the link");
    }
    l->options = *options;
    buffer_init(&l->scratch, FRAME_BYTES_MAX);
    l->tokenizer_hash = hash128_of(options->tokenizer_asset);
    l->template_hash = hash128_of(options->chat_template);
    l->foreign = metrics_counter(options->metrics, "penstock_worker_foreign_frames_total", NULL,
                                 "Frames of another epoch or incarnation, dropped.");
    l->malformed = metrics_counter(options->metrics, "penstock_worker_malformed_frames_total", NULL,
                                   "Frames that were refused.");
    l->sessions_lost =
        metrics_counter(options->metrics, "penstock_worker_gateway_sessions_lost_total", NULL,
                        "Gateways that fell silent or restarted.");
    enum err err = OK;
    for (const char *at = options->gateways; err == OK && at != NULL;) {
        const char *comma = strchr(at, ',');
        err = add_gateway(l, span_of(at, comma != NULL ? (size_t)(comma - at) : strlen(at)), why);
        at = comma != NULL ? comma + 1 : NULL;
    }
    if (err != OK) {
        link_destroy(l);
        return err;
    }
    *out = l;
    return OK;
}

void link_destroy(struct link *l)
{
    if (l == NULL) return;
    for (uint32_t i = 0; i < l->gateway_count; i++)
        transport_destroy(l->gateways[i].transport, 0);
    wire_budget_destroy(l->budget);
    buffer_deinit(&l->scratch);
    free(l);
}

static ProtobufCBinaryData bytes_of(const void *ptr, size_t len)
{
    return (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)ptr};
}

static void send_own(struct link *l, struct gateway *g, enum wire_type type,
                     const ProtobufCMessage *message)
{
    buffer_reset(&l->scratch);
    enum err err = wire_encode(type, message, &l->scratch);
    if (err == OK) err = transport_send(g->transport, NULL, buffer_view(&l->scratch));
    if (err != OK && err != ERR_AGAIN)
        log_warn("ev=link.send_failed gateway=%s err=%s", g->address, err_name(err));
}

static void send_hello(struct link *l, struct gateway *g)
{
    const struct link_options *o = &l->options;
    Penstock__Hello m = PENSTOCK__HELLO__INIT;
    m.worker_name = bytes_of(o->worker_name, strlen(o->worker_name));
    m.epoch = o->epoch;
    m.model = bytes_of(o->model_id, strlen(o->model_id));
    m.model_fingerprint = bytes_of(&o->fingerprint, sizeof o->fingerprint);
    m.tokenizer_hash = bytes_of(&l->tokenizer_hash, sizeof l->tokenizer_hash);
    if (o->chat_template.len > 0)
        m.template_hash = bytes_of(&l->template_hash, sizeof l->template_hash);
    m.vocab_count = o->vocab_count;
    m.context_max = o->context_max;
    m.sequences_max = o->sequences_max;
    m.kv_blocks = o->kv_blocks;
    m.submit_window = o->submit_window;
    m.device = bytes_of(o->device, strlen(o->device));
    m.model_created = o->model_created;
    send_own(l, g, WIRE_HELLO, &m.base);
}

/* ---- sessions ---- */

static bool command(struct link *l, const struct command *c)
{
    return mailbox_send_command(l->options.mailbox, c);
}

static void drop_backlog(struct link *l, struct gateway *g)
{
    for (; g->backlog_count > 0; g->backlog_count--) {
        mailbox_give_back(l->options.mailbox, g->backlog[g->backlog_first]);
        g->backlog_first = (g->backlog_first + 1) % LINK_BACKLOG;
    }
}

static void lose_session(struct link *l, struct gateway *g, const char *why)
{
    struct command c = {.kind = COMMAND_SESSION_LOST, .owner = owner_of(l, g)};
    if (!command(l, &c)) return; /* the mailbox is full: the next turn finds the same cause */
    log_warn("ev=link.session_lost gateway=%s incarnation=%016llx why=\"%s\"", g->address,
             (unsigned long long)g->incarnation, why);
    metric_add(l->sessions_lost, 1);
    drop_backlog(l, g);
    g->incarnation = 0;
    g->next_hello_ns = 0;
    atomic_fetch_sub(&l->sessions, 1);
}

/* A gateway with several loops tells the ports of the others: they are gateways of their own to us.
 */
static void learn_ports(struct link *l, const struct gateway *g, const Penstock__Welcome *m)
{
    const char *colon = strrchr(g->address, ':');
    for (size_t i = 0; i < m->n_ports && colon != NULL; i++) {
        char address[ADDRESS_BYTES_MAX + 8];
        struct errmsg why;
        if (m->ports[i] == 0 || m->ports[i] > 65535) continue;
        int n = snprintf(address, sizeof address, "%.*s:%u", (int)(colon - g->address), g->address,
                         m->ports[i]);
        if (add_gateway(l, span_of(address, (size_t)n), &why) != OK)
            log_warn("ev=link.port_refused gateway=%s why=\"%s\"", g->address, why.text);
    }
}

static void on_welcome(struct link *l, struct gateway *g, const Penstock__Welcome *m,
                       uint64_t now_ns)
{
    if (m->epoch != l->options.epoch || m->incarnation == 0) {
        metric_add(l->foreign, 1);
        return;
    }
    g->last_heard_ns = now_ns;
    if (m->incarnation == g->incarnation) return;
    struct command c = {
        .kind = COMMAND_SESSION, .owner = owner_of(l, g), .incarnation = m->incarnation};
    if (!command(l, &c)) return; /* the next Welcome brings it */
    if (g->incarnation != 0)
        metric_add(l->sessions_lost, 1);
    else
        atomic_fetch_add(&l->sessions, 1);
    drop_backlog(l, g);
    g->incarnation = m->incarnation;
    log_info("ev=link.session gateway=%s incarnation=%016llx", g->address,
             (unsigned long long)m->incarnation);
    learn_ports(l, g, m);
}

/* ---- frames from a gateway ---- */

static void on_asset_get(struct link *l, struct gateway *g, const Penstock__AssetGet *m)
{
    struct span content = span_of(NULL, 0);
    struct hash128 wanted;
    memcpy(&wanted, m->hash.data, sizeof wanted); /* wire.h checked the length */
    if (m->kind == PENSTOCK__ASSET_KIND__ASSET_TOKENIZER && hash128_eq(wanted, l->tokenizer_hash))
        content = l->options.tokenizer_asset;
    else if (m->kind == PENSTOCK__ASSET_KIND__ASSET_TEMPLATE &&
             hash128_eq(wanted, l->template_hash))
        content = l->options.chat_template;
    Penstock__Asset part = PENSTOCK__ASSET__INIT;
    part.hash = m->hash;
    part.kind = m->kind;
    part.total_bytes = content.len;
    part.offset = m->offset;
    struct span rest = m->offset < content.len ? span_from(content, m->offset) : span_of(NULL, 0);
    if (rest.len > ASSET_PART_BYTES_MAX) rest.len = ASSET_PART_BYTES_MAX;
    part.data = bytes_of(rest.ptr, rest.len);
    send_own(l, g, WIRE_ASSET, &part.base);
}

static void send_reject(struct link *l, struct gateway *g, const Penstock__Request *request,
                        Penstock__RejectReason reason, const char *text)
{
    Penstock__Reject m = PENSTOCK__REJECT__INIT;
    m.epoch = l->options.epoch;
    m.incarnation = g->incarnation;
    m.id = request->id;
    m.attempt = request->attempt;
    m.reason = reason;
    m.message = bytes_of(text, strlen(text));
    log_warn("ev=link.reject gateway=%s id=%016llx why=\"%s\"", g->address,
             (unsigned long long)request->id, text);
    send_own(l, g, WIRE_REJECT, &m.base);
}

static void on_submit(struct link *l, struct gateway *g, const Penstock__Submit *m, uint64_t now_ns)
{
    for (size_t i = 0; i < m->n_requests; i++) {
        struct command c = {
            .kind = COMMAND_SUBMIT, .owner = owner_of(l, g), .incarnation = g->incarnation};
        struct errmsg why;
        enum err err = intake_request(m->requests[i], c.owner, l->options.vocab_count, now_ns,
                                      &c.request, &why);
        if (err != OK) {
            send_reject(l, g, m->requests[i],
                        err == ERR_NOMEM ? PENSTOCK__REJECT_REASON__REJECT_FULL
                                         : PENSTOCK__REJECT_REASON__REJECT_BAD_REQUEST,
                        why.text);
        } else if (!command(l, &c)) {
            free(c.request);
            send_reject(l, g, m->requests[i], PENSTOCK__REJECT_REASON__REJECT_FULL,
                        "the worker's mailbox is full");
        }
    }
}

static void on_cancel(struct link *l, struct gateway *g, const Penstock__Cancel *m)
{
    for (size_t i = 0; i < m->n_requests; i++) {
        struct command c = {.kind = COMMAND_CANCEL,
                            .owner = owner_of(l, g),
                            .incarnation = g->incarnation,
                            .id = m->requests[i]->id,
                            .attempt = m->requests[i]->attempt};
        /* a cancel may not get lost: the ring empties with each turn of the engine loop */
        for (uint32_t tries = 0; !command(l, &c) && tries < 1000 && !atomic_load(&l->stop); tries++)
            (void)poll(NULL, 0, 1);
    }
}

static bool ours(struct link *l, const struct gateway *g, uint64_t incarnation, uint64_t epoch)
{
    bool good = g->incarnation != 0 && incarnation == g->incarnation && epoch == l->options.epoch;
    if (!good) metric_add(l->foreign, 1);
    return good;
}

static void on_frame(struct link *l, struct gateway *g, struct span payload, uint64_t now_ns)
{
    enum wire_type type;
    ProtobufCMessage *message = NULL;
    struct errmsg why;
    enum err err = wire_decode(payload, l->budget, &type, &message, &why);
    if (err != OK) {
        metric_add(l->malformed, 1);
        log_warn("ev=link.frame_refused gateway=%s err=%s why=\"%s\"", g->address, err_name(err),
                 why.text);
        return;
    }
    const void *m = message;
    switch (type) {
    case WIRE_WELCOME: on_welcome(l, g, m, now_ns); break;
    case WIRE_ASSET_GET: on_asset_get(l, g, m); break;
    case WIRE_SUBMIT:
        if (ours(l, g, ((const Penstock__Submit *)m)->incarnation,
                 ((const Penstock__Submit *)m)->epoch))
            on_submit(l, g, m, now_ns);
        break;
    case WIRE_CANCEL:
        if (ours(l, g, ((const Penstock__Cancel *)m)->incarnation, l->options.epoch))
            on_cancel(l, g, m);
        break;
    case WIRE_REJECT: /* of our Hello: another protocol version, or a model that clashes */
        log_error("ev=link.refused gateway=%s why=\"%.*s\"", g->address,
                  (int)((const Penstock__Reject *)m)->message.len,
                  (const char *)((const Penstock__Reject *)m)->message.data);
        break;
    default: metric_add(l->malformed, 1); break; /* a worker's own message, mirrored */
    }
    wire_budget_reset(l->budget);
}

/* True when the budget was spent: come again without waiting. */
static bool receive(struct link *l, struct gateway *g)
{
    for (uint32_t n = 0; n < RECEIVE_BUDGET; n++) {
        struct transport_peer peer;
        struct span payload;
        enum err err = transport_recv(g->transport, &peer, &payload);
        if (err == ERR_AGAIN) return false;
        if (err == OK)
            on_frame(l, g, payload, clock_now_ns());
        else
            metric_add(l->malformed, 1);
    }
    return true;
}

/* ---- frames to gateways ---- */

static void flush_backlog(struct link *l, struct gateway *g)
{
    while (g->backlog_count > 0) {
        struct buffer *frame = g->backlog[g->backlog_first];
        enum err err = transport_send(g->transport, NULL, buffer_view(frame));
        if (err == ERR_AGAIN) return;
        if (err != OK) log_error("ev=link.frame_lost gateway=%s err=%s", g->address, err_name(err));
        mailbox_give_back(l->options.mailbox, frame);
        g->backlog_first = (g->backlog_first + 1) % LINK_BACKLOG;
        g->backlog_count--;
    }
}

static void take_frames(struct link *l)
{
    struct frame_out out;
    while (mailbox_take_frame(l->options.mailbox, &out)) {
        struct gateway *g = &l->gateways[out.owner];
        if (g->incarnation == 0) { /* its session ended while the frame was under way */
            mailbox_give_back(l->options.mailbox, out.frame);
            continue;
        }
        if (g->backlog_count == LINK_BACKLOG) {
            mailbox_give_back(l->options.mailbox, out.frame);
            lose_session(l, g, "it takes no frames");
            continue;
        }
        g->backlog[(g->backlog_first + g->backlog_count++) % LINK_BACKLOG] = out.frame;
    }
    for (uint32_t i = 0; i < l->gateway_count; i++)
        flush_backlog(l, &l->gateways[i]);
}

static void tick(struct link *l, struct gateway *g, uint64_t now_ns)
{
    if (g->incarnation != 0 && now_ns - g->last_heard_ns > LINK_GATEWAY_SILENT_MS * NS_PER_MS)
        lose_session(l, g, "silent for 3 s");
    if (g->incarnation == 0 && now_ns >= g->next_hello_ns) {
        send_hello(l, g);
        g->next_hello_ns = now_ns + LINK_HELLO_MS * NS_PER_MS;
    }
}

static void turn(struct link *l)
{
    struct pollfd p[MAILBOX_OWNERS_MAX + 1];
    uint32_t n = l->gateway_count;
    bool more = false;
    for (uint32_t i = 0; i < n; i++)
        more = receive(l, &l->gateways[i]) || more;
    take_frames(l);
    for (uint32_t i = 0; i < n; i++) {
        tick(l, &l->gateways[i], clock_now_ns());
        /* the fd is edge-triggered: what came while we sent must be read before we sleep */
        more = receive(l, &l->gateways[i]) || more;
        p[i] = (struct pollfd){transport_fd(l->gateways[i].transport), POLLIN, 0};
    }
    p[n] = (struct pollfd){mailbox_link_fd(l->options.mailbox), POLLIN, 0};
    (void)poll(p, n + 1, more ? 0 : POLL_MS);
    if (p[n].revents) mailbox_clear_link_fd(l->options.mailbox);
}

void link_run(struct link *l, uint32_t linger_ms)
{
    while (!atomic_load(&l->stop))
        turn(l);
    uint64_t deadline = clock_now_ns() + linger_ms * NS_PER_MS;
    for (bool left = true; left && clock_now_ns() < deadline;) {
        take_frames(l);
        left = false;
        for (uint32_t i = 0; i < l->gateway_count; i++)
            left = left || l->gateways[i].backlog_count > 0;
        if (left) (void)poll(NULL, 0, 5);
    }
    for (uint32_t i = 0; i < l->gateway_count; i++) {
        drop_backlog(l, &l->gateways[i]);
        transport_destroy(l->gateways[i].transport, linger_ms);
    }
    l->gateway_count = 0;
}

void link_stop(struct link *l)
{
    atomic_store(&l->stop, true);
    mailbox_wake_link(l->options.mailbox);
}

uint32_t link_sessions(const struct link *l)
{
    return atomic_load(&l->sessions);
}
