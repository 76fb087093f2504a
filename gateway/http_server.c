#include "gateway/http_conn.h"

#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { BACKLOG = 1024, ACCEPT_PAUSE_MS = 100 };

const struct http_limits http_limits_default = {
    .connections_max = 16384,
    .header_bytes_max = 32768,
    .headers_max = 100,
    .body_bytes_max = 20u << 20,
    .header_timeout_ms = 10000,
    .body_timeout_ms = 30000,
    .idle_timeout_ms = 75000,
    .pipeline_bytes_max = 65536,
    .write_buffer_max = 4u << 20,
    .write_timeout_ms = 30000,
};

/* ---- listening ---- */

static void resume_accept(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *s = arg;
    (void)fd;
    (void)what;
    if (!s->draining && s->connection_count < s->limits.connections_max)
        (void)evconnlistener_enable(s->listener);
}

/* No file descriptors left: pause, or the loop spins on a listener that stays readable. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    struct http_server *s = arg;
    int cause = EVUTIL_SOCKET_ERROR();
    (void)evconnlistener_disable(listener);
    struct timeval pause = {0, ACCEPT_PAUSE_MS * 1000};
    (void)evtimer_add(s->accept_timer, &pause);
    log_warn("ev=http.accept_paused ms=%d why=\"%s\"", ACCEPT_PAUSE_MS, strerror(cause));
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
                      int len, void *arg)
{
    struct http_server *s = arg;
    (void)address;
    (void)len;
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one,
                     sizeof one); /* a token must not wait for an acknowledgement */
    if (!http_conn_open(s, fd)) {
        (void)evutil_closesocket(fd);
        return;
    }
    if (s->connection_count >= s->limits.connections_max) (void)evconnlistener_disable(listener);
}

static enum err resolve(const char *address, struct addrinfo **out, struct errmsg *why)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    size_t n = colon != NULL ? (size_t)(colon - address) : 0;
    if (colon == NULL || n >= sizeof host || colon[1] == '\0')
        return errmsg_set(why, ERR_INVALID, "'%s': expected HOST:PORT, e.g. 127.0.0.1:8080",
                          address);
    bool bracketed = n >= 2 && address[0] == '[' && address[n - 1] == ']';
    (void)snprintf(host, sizeof host, "%.*s", (int)(bracketed ? n - 2 : n),
                   address + (bracketed ? 1 : 0));
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    int rc = getaddrinfo(host[0] != '\0' ? host : NULL, colon + 1, &hints, out);
    if (rc != 0) return errmsg_set(why, ERR_INVALID, "'%s': %s", address, gai_strerror(rc));
    return OK;
}

static enum err start_listening(struct http_server *s, const char *address, bool reuse_port,
                                struct errmsg *why)
{
    struct addrinfo *found;
    enum err err = resolve(address, &found, why);
    if (err != OK) return err;
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
    if (reuse_port) flags |= LEV_OPT_REUSEABLE_PORT;
    s->listener = evconnlistener_new_bind(s->base, on_accept, s, flags, BACKLOG, found->ai_addr,
                                          (int)found->ai_addrlen);
    int cause = errno;
    freeaddrinfo(found);
    if (s->listener == NULL)
        return errmsg_set(why, ERR_IO, "cannot listen on %s: %s", address, strerror(cause));
    evconnlistener_set_error_cb(s->listener, on_accept_error);
    return OK;
}

/* ---- once per loop turn: what was written during it goes out, one send a connection ---- */

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *s = arg;
    (void)fd;
    (void)what;
    s->flush_wanted = false;
    struct http_exchange *list = s->flush_list;
    s->flush_list = NULL;
    while (list != NULL) {
        struct http_exchange *conn = list;
        list = conn->flush_next;
        conn->flush_next = NULL;
        conn->in_flush_list = false;
        http_conn_flush(conn);
    }
}

void http_server__want_flush(struct http_exchange *conn)
{
    struct http_server *s = conn->server;
    if (conn->in_flush_list) return;
    conn->in_flush_list = true;
    conn->flush_next = s->flush_list;
    s->flush_list = conn;
    if (s->flush_wanted) return;
    s->flush_wanted = true;
    event_active(s->flush_event, EV_TIMEOUT, 0);
}

void http_server__forget(struct http_exchange *conn)
{
    struct http_server *s = conn->server;
    for (struct http_exchange **at = &s->flush_list; conn->in_flush_list && *at != NULL;
         at = &(*at)->flush_next)
        if (*at == conn) {
            *at = conn->flush_next;
            conn->in_flush_list = false;
            break;
        }
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        s->connections = conn->next;
    if (conn->next != NULL) conn->next->prev = conn->prev;
    s->connection_count--;
    if (!s->draining && s->listener != NULL) (void)evconnlistener_enable(s->listener);
}

struct span http_server__date(struct http_server *s)
{
    int64_t now_s = clock_wall_s();
    if (now_s != s->date_s) {
        struct tm tm;
        time_t t = (time_t)now_s;
        (void)gmtime_r(&t, &tm);
        s->date_s = now_s;
        (void)strftime(s->date, sizeof s->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    }
    return span_str(s->date);
}

/* ---- the server ---- */

enum err http_server_create(struct event_base *base, const char *address, bool reuse_port,
                            const struct http_limits *limits, const struct http_handlers *handlers,
                            struct http_server **out, struct errmsg *why)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (s == NULL) return errmsg_set(why, ERR_NOMEM, "no memory for the HTTP server");
    s->base = base;
    s->limits = *limits;
    s->handlers = *handlers;
    s->flush_event = event_new(base, -1, 0, on_flush, s);
    s->accept_timer = evtimer_new(base, resume_accept, s);
    enum err err = s->flush_event != NULL && s->accept_timer != NULL
                       ? start_listening(s, address, reuse_port, why)
                       : errmsg_set(why, ERR_NOMEM, "no memory for the HTTP server");
    if (err != OK) {
        http_server_destroy(s);
        return err;
    }
    *out = s;
    return OK;
}

void http_server_drain(struct http_server *s)
{
    s->draining = true;
    if (s->listener != NULL) evconnlistener_free(s->listener);
    s->listener = NULL;
    for (struct http_exchange *conn = s->connections, *next; conn != NULL; conn = next) {
        next = conn->next;
        http_conn_drain(conn);
    }
}

void http_server_destroy(struct http_server *s)
{
    if (s == NULL) return;
    s->draining = true;
    while (s->connections != NULL)
        http_conn_close(s->connections);
    if (s->listener != NULL) evconnlistener_free(s->listener);
    if (s->flush_event != NULL) event_free(s->flush_event);
    if (s->accept_timer != NULL) event_free(s->accept_timer);
    free(s);
}

uint32_t http_server_connections(const struct http_server *s)
{
    return s->connection_count;
}

uint16_t http_server_port(const struct http_server *s)
{
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    if (s->listener == NULL ||
        getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&bound, &len) != 0)
        return 0;
    return ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                             : ((struct sockaddr_in *)&bound)->sin_port);
}
