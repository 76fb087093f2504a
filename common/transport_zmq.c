/* transport_zmq.c - transport.h over libzmq: ROUTER where it binds, DEALER where it connects. */
#include "common/transport.h"

#include "common/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <zmq.h>

/* Not ZMQ_HEARTBEAT_*: in libzmq 4.3.4 its timer asserts, and so ends the process, when a peer goes
 * while this side's pipe is full (a gateway that was stopped for some seconds; a peer that means
 * ill). Half-open TCP is found by keep-alives and by data that nobody acknowledges. */
enum {
    KEEPALIVE_IDLE_S = 3,
    KEEPALIVE_INTERVAL_S = 1,
    KEEPALIVE_COUNT = 3,
    UNACKNOWLEDGED_MS = 5000,
    HANDSHAKE_TIMEOUT_MS = 2000,
    RECONNECT_FIRST_MS = 100,
    RECONNECT_MAX_MS = 2000,
};

struct transport {
    void *socket;
    bool bound;
    uint32_t frame_bytes_max;
    int fd;
    zmq_msg_t held; /* the last received payload: what recv handed out borrows from it */
    bool holds;
};

static void *context;
static pthread_once_t context_once = PTHREAD_ONCE_INIT;

/* One context for the process; it lives as long. */
static void make_context(void)
{
    context = zmq_ctx_new();
    CHECK(context != NULL);
    CHECK(zmq_ctx_set(context, ZMQ_MAX_SOCKETS, 1024) == 0);
}

static bool set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool set_common(struct transport *t)
{
    void *s = t->socket;
    int64_t max = t->frame_bytes_max;
    return set_int(s, ZMQ_LINGER, 0) && set_int(s, ZMQ_SNDHWM, TRANSPORT_HWM) &&
           set_int(s, ZMQ_RCVHWM, TRANSPORT_HWM) &&
           zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &max, sizeof max) == 0 &&
           set_int(s, ZMQ_TCP_KEEPALIVE, 1) &&
           set_int(s, ZMQ_TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S) &&
           set_int(s, ZMQ_TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_S) &&
           set_int(s, ZMQ_TCP_KEEPALIVE_CNT, KEEPALIVE_COUNT) &&
           set_int(s, ZMQ_TCP_MAXRT, UNACKNOWLEDGED_MS) &&
           set_int(s, ZMQ_HANDSHAKE_IVL, HANDSHAKE_TIMEOUT_MS) && set_int(s, ZMQ_IPV6, 1);
}

static bool set_dealer(struct transport *t)
{
    uint8_t id[TRANSPORT_ID_BYTES];
    clock_random(id, sizeof id);
    id[0] |= 1; /* ids that begin with a zero byte are ZeroMQ's own */
    return zmq_setsockopt(t->socket, ZMQ_ROUTING_ID, id, sizeof id) == 0 &&
           set_int(t->socket, ZMQ_IMMEDIATE, 1) &&
           set_int(t->socket, ZMQ_RECONNECT_IVL, RECONNECT_FIRST_MS) &&
           set_int(t->socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS);
}

static enum err open_socket(bool bind, const char *address, uint32_t frame_bytes_max,
                            struct transport **out, struct errmsg *why)
{
    (void)pthread_once(&context_once, make_context);
    struct transport *t = calloc(1, sizeof *t);
    if (t == NULL) return errmsg_set(why, ERR_NOMEM, "no memory for a connection to %s", address);
    t->bound = bind;
    t->frame_bytes_max = frame_bytes_max;
    t->socket = zmq_socket(context, bind ? ZMQ_ROUTER : ZMQ_DEALER);
    size_t size = sizeof t->fd;
    enum err err = OK;
    if (t->socket == NULL || !set_common(t) ||
        (bind ? !set_int(t->socket, ZMQ_ROUTER_MANDATORY, 1) : !set_dealer(t)) ||
        zmq_getsockopt(t->socket, ZMQ_FD, &t->fd, &size) != 0) {
        err = errmsg_set(why, ERR_IO, "cannot make a socket for %s: %s", address,
                         zmq_strerror(zmq_errno()));
    } else if ((bind ? zmq_bind(t->socket, address) : zmq_connect(t->socket, address)) != 0) {
        int cause = zmq_errno();
        bool taken = cause == EADDRINUSE || cause == EACCES || cause == EADDRNOTAVAIL;
        err = taken
                  ? errmsg_set(why, ERR_IO, "cannot listen on %s: %s", address, zmq_strerror(cause))
                  : errmsg_set(why, ERR_INVALID,
                               "'%s' is no address (%s); expected one such as tcp://127.0.0.1:5570",
                               address, zmq_strerror(cause));
    }
    if (err != OK) {
        if (t->socket != NULL) (void)zmq_close(t->socket);
        free(t);
        return err;
    }
    *out = t;
    return OK;
}

enum err transport_bind(const char *address, uint32_t frame_bytes_max, struct transport **out,
                        struct errmsg *why)
{
    return open_socket(true, address, frame_bytes_max, out, why);
}

enum err transport_connect(const char *address, uint32_t frame_bytes_max, struct transport **out,
                           struct errmsg *why)
{
    return open_socket(false, address, frame_bytes_max, out, why);
}

void transport_destroy(struct transport *t, uint32_t linger_ms)
{
    if (t == NULL) return;
    if (t->holds) (void)zmq_msg_close(&t->held);
    (void)set_int(t->socket, ZMQ_LINGER, (int)linger_ms);
    (void)zmq_close(t->socket);
    free(t);
}

int transport_fd(const struct transport *t)
{
    return t->fd;
}

/* One part into t->held. *more: another part follows. */
static enum err recv_part(struct transport *t, bool *more)
{
    if (t->holds) (void)zmq_msg_close(&t->held);
    (void)zmq_msg_init(&t->held);
    t->holds = true;
    while (zmq_msg_recv(&t->held, t->socket, ZMQ_DONTWAIT) < 0) {
        if (zmq_errno() == EAGAIN) return ERR_AGAIN;
        if (zmq_errno() != EINTR) return ERR_IO;
    }
    *more = zmq_msg_more(&t->held) != 0;
    return OK;
}

enum err transport_recv(struct transport *t, struct transport_peer *peer, struct span *payload)
{
    bool more = false, good = true;
    memset(peer, 0, sizeof *peer);
    enum err err = recv_part(t, &more);
    if (err != OK) return err;
    if (t->bound) {
        good = more && zmq_msg_size(&t->held) == TRANSPORT_ID_BYTES;
        if (good) memcpy(peer->id, zmq_msg_data(&t->held), TRANSPORT_ID_BYTES);
        if (more) err = recv_part(t, &more);
        if (err != OK) return err;
    }
    /* exactly one payload part; ids of another length are not of our making and could not be
     * answered */
    good = good && !more;
    while (more && err == OK)
        err = recv_part(t, &more);
    if (!good) return ERR_PROTO;
    *payload = span_of(zmq_msg_data(&t->held), zmq_msg_size(&t->held));
    return OK;
}

static enum err send_error(void)
{
    switch (zmq_errno()) {
    case EAGAIN: return ERR_AGAIN;
    case EHOSTUNREACH: return ERR_NOT_FOUND;
    default: return ERR_IO;
    }
}

enum err transport_send(struct transport *t, const struct transport_peer *peer, struct span payload)
{
    if (payload.len > t->frame_bytes_max) return ERR_LIMIT;
    if (t->bound &&
        zmq_send(t->socket, peer->id, TRANSPORT_ID_BYTES, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0)
        return send_error();
    if (zmq_send(t->socket, payload.ptr, payload.len, ZMQ_DONTWAIT) < 0) return send_error();
    return OK;
}
