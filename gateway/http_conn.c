#include "gateway/http_conn.h"

#include "common/clock.h"
#include "gateway/api_error.h"

#include <stdlib.h>
#include <sys/socket.h>

enum { LINGER_MS = 1000, LINGER_BYTES_MAX = 1 << 20, BODY_FIRST_BYTES = 65536 };

static void conn_next_request(struct http_exchange *conn);
static void conn_read(struct http_exchange *conn);

static void set_timer(struct http_exchange *conn, uint32_t ms)
{
    struct timeval tv = {ms / 1000, (suseconds_t)(ms % 1000) * 1000};
    (void)evtimer_add(conn->timer, &tv);
}

static struct evbuffer *output_of(struct http_exchange *conn)
{
    return bufferevent_get_output(conn->bev);
}

static bool in_service(const struct http_exchange *conn)
{
    return conn->state == CONN_SERVICE || conn->state == CONN_REPLIED;
}

/* ---- the end ---- */

void http_conn_close(struct http_exchange *conn)
{
    struct http_server *s = conn->server;
    conn->client_gone = true;
    if (in_service(conn)) {
        conn->state = CONN_LINGER; /* on_done comes once, whatever the handler does inside it */
        s->handlers.on_done(s->handlers.arg, conn, false);
    }
    http_server__forget(conn);
    bufferevent_free(conn->bev);
    event_free(conn->timer);
    buffer_deinit(&conn->head_bytes);
    buffer_deinit(&conn->body);
    buffer_deinit(&conn->extra_headers);
    free(conn);
}

/* A handler may be on the stack: the connection is cut at the end of this loop turn. */
static void close_soon(struct http_exchange *conn)
{
    conn->close_wanted = true;
    http_server__want_flush(conn);
}

static void start_linger(struct http_exchange *conn)
{
    conn->state = CONN_LINGER;
    (void)shutdown(bufferevent_getfd(conn->bev), SHUT_WR);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, 0);
    (void)bufferevent_enable(conn->bev, EV_READ);
    set_timer(conn, LINGER_MS);
}

/* The whole reply is out. */
static void exchange_done(struct http_exchange *conn)
{
    struct http_server *s = conn->server;
    bool close_after = conn->close_after;
    if (conn->state == CONN_REPLIED) {
        conn->state = CONN_HEAD;
        s->handlers.on_done(s->handlers.arg, conn, true);
        if (close_after)
            start_linger(
                conn); /* closing with unread input would reset the connection under the reply */
        else
            conn_next_request(conn);
    }
}

/* ---- sending ---- */

static void on_drained(struct bufferevent *bev, void *arg)
{
    struct http_exchange *conn = arg;
    if (evbuffer_get_length(output_of(conn)) > 0) return;
    (void)bufferevent_disable(bev, EV_WRITE);
    http_conn_flush(conn);
}

/* Sends directly; only what the socket does not take is left to the loop (one system call in the
 * common case, no epoll_ctl). */
void http_conn_flush(struct http_exchange *conn)
{
    struct evbuffer *out = output_of(conn);
    if (conn->close_wanted) {
        http_conn_close(conn);
        return;
    }
    if (evbuffer_get_length(out) > 0 && !(bufferevent_get_enabled(conn->bev) & EV_WRITE)) {
        (void)evbuffer_unfreeze(out, 1);
        int n = evbuffer_write(out, bufferevent_getfd(conn->bev));
        (void)evbuffer_freeze(out, 1);
        int cause = EVUTIL_SOCKET_ERROR();
        if (n < 0 && cause != EAGAIN && cause != EINTR) {
            http_conn_close(conn);
            return;
        }
    }
    size_t left = evbuffer_get_length(out);
    if (left > conn->server->limits.write_buffer_max && conn->stream_begun) {
        http_conn_close(conn); /* a reader that is too far behind */
        return;
    }
    if (left > 0) {
        (void)bufferevent_enable(conn->bev, EV_WRITE);
        return;
    }
    exchange_done(conn);
}

/* ---- receiving ---- */

static void refuse(struct http_exchange *conn, const struct http_fault *fault)
{
    struct api_error e;
    struct buffer body;
    buffer_init(&body, 4096);
    (void)api_error_set(&e, fault->status,
                        fault->status == 413 ? "request_too_large" : "bad_request", NULL, "%s",
                        fault->message);
    api_error_write(&body, &e);
    conn->head.method = HTTP_OTHER;
    conn->close_after = true;
    evbuffer_add_printf(
        output_of(conn),
        "HTTP/1.1 %u %s\r\nDate: %.*s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
        "Connection: close\r\n\r\n",
        fault->status, http_reason(fault->status), (int)http_server__date(conn->server).len,
        conn->server->date, body.len);
    (void)evbuffer_add(output_of(conn), body.ptr, body.len);
    buffer_deinit(&body);
    (void)evbuffer_unfreeze(output_of(conn), 1);
    (void)evbuffer_write(output_of(conn), bufferevent_getfd(conn->bev));
    (void)evbuffer_freeze(output_of(conn), 1);
    start_linger(conn);
}

static void dispatch(struct http_exchange *conn)
{
    struct http_server *s = conn->server;
    (void)evtimer_del(conn->timer);
    conn->state = CONN_SERVICE;
    conn->received_ns = clock_now_ns();
    conn->close_after = !conn->head.keep_alive || s->draining;
    s->handlers.on_request(s->handlers.arg, conn);
}

static bool read_head(struct http_exchange *conn)
{
    struct http_server *s = conn->server;
    struct evbuffer *in = bufferevent_get_input(conn->bev);
    struct http_fault fault;
    size_t len = evbuffer_get_length(in), head_len;
    if (conn->scanned == 0) { /* an empty line before a request is allowed (RFC 9112 2.2) */
        char first[2];
        if (len >= 2 && evbuffer_copyout(in, first, 2) == 2 && memcmp(first, "\r\n", 2) == 0) {
            (void)evbuffer_drain(in, 2);
            len -= 2;
        }
    }
    if (len == 0) return false;
    if (!conn->timer_for_head) {
        conn->timer_for_head = true;
        set_timer(conn, s->limits.header_timeout_ms);
    }
    size_t look = len < s->limits.header_bytes_max + 1 ? len : s->limits.header_bytes_max + 1;
    struct span bytes = span_of(evbuffer_pullup(in, (ev_ssize_t)look), look);
    enum err err = http_head_scan(bytes, &s->limits, &conn->scanned, &head_len, &fault);
    if (err == ERR_AGAIN) return false;
    if (err == OK) {
        buffer_reset(&conn->head_bytes);
        buffer_add(&conn->head_bytes, bytes.ptr, head_len);
        (void)evbuffer_drain(in, head_len);
        err = http_head_parse(buffer_view(&conn->head_bytes), &s->limits, &conn->head, &fault);
    }
    if (err != OK) {
        refuse(conn, &fault);
        return false;
    }
    conn->scanned = 0;
    conn->timer_for_head = false;
    conn->state = CONN_BODY;
    conn->chunks = (struct http_chunks){0};
    buffer_reset(&conn->body);
    bool has_body = conn->head.chunked || conn->head.content_length > 0;
    if (has_body) {
        set_timer(conn, s->limits.body_timeout_ms);
        if (conn->head.expect_continue && evbuffer_get_length(in) == 0) {
            (void)evbuffer_add(output_of(conn), "HTTP/1.1 100 Continue\r\n\r\n", 25);
            http_server__want_flush(conn);
        }
    }
    return true;
}

/* Moves body bytes out of the input; true when the body is whole. */
static bool read_body(struct http_exchange *conn)
{
    struct evbuffer *in = bufferevent_get_input(conn->bev);
    struct http_fault fault = {500, "no memory for the body"};
    enum err err = ERR_AGAIN;
    bool progress = false;
    if (!conn->head.chunked) {
        uint64_t want = conn->head.content_length - conn->body.len;
        size_t n = evbuffer_get_length(in) < want ? evbuffer_get_length(in) : (size_t)want;
        if (n > 0 && buffer_reserve(&conn->body, n) == OK) {
            conn->body.len += (size_t)evbuffer_remove(in, conn->body.ptr + conn->body.len, n);
            progress = true;
        }
        err = conn->body.failed                             ? ERR_NOMEM
              : conn->body.len == conn->head.content_length ? OK
                                                            : ERR_AGAIN;
    }
    while (conn->head.chunked && err == ERR_AGAIN && evbuffer_get_length(in) > 0) {
        size_t len = evbuffer_get_contiguous_space(in), used;
        struct span data;
        err = http_chunks_next(&conn->chunks, span_of(evbuffer_pullup(in, (ev_ssize_t)len), len),
                               conn->server->limits.body_bytes_max, &data, &used, &fault);
        buffer_add_span(&conn->body, data);
        if (conn->body.failed) err = ERR_NOMEM;
        (void)evbuffer_drain(in, used);
        progress = progress || used > 0;
    }
    if (err != OK && err != ERR_AGAIN) {
        refuse(conn, &fault);
        return false;
    }
    if (err == ERR_AGAIN && progress) set_timer(conn, conn->server->limits.body_timeout_ms);
    return err == OK;
}

static void conn_read(struct http_exchange *conn)
{
    if (conn->state == CONN_LINGER) {
        struct evbuffer *in = bufferevent_get_input(conn->bev);
        conn->lingered_bytes += evbuffer_get_length(in);
        (void)evbuffer_drain(in, evbuffer_get_length(in));
        if (conn->lingered_bytes > LINGER_BYTES_MAX) close_soon(conn);
        return;
    }
    if (conn->state == CONN_HEAD && !read_head(conn)) return;
    if (conn->state == CONN_BODY && read_body(conn)) dispatch(conn);
}

/* Keep-alive: what the client sent ahead is served now. */
static void conn_next_request(struct http_exchange *conn)
{
    conn->state = CONN_HEAD;
    conn->stream_begun = conn->chunked_reply = conn->close_after = false;
    conn->user = NULL;
    buffer_reset(&conn->extra_headers);
    if (conn->body.cap > BODY_FIRST_BYTES)
        buffer_deinit(&conn->body); /* an idle connection holds no big buffer */
    if (conn->server->draining) {
        close_soon(conn);
        return;
    }
    set_timer(conn, conn->server->limits.idle_timeout_ms);
    /* through the loop, so that a thousand pipelined requests are no recursion */
    if (evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0)
        bufferevent_trigger(conn->bev, EV_READ, BEV_TRIG_DEFER_CALLBACKS);
}

static void on_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    struct http_exchange *conn = arg;
    conn_read(conn);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct http_exchange *conn = arg;
    (void)bev;
    (void)what; /* EOF, error, or a write that made no progress in time: the client is gone */
    http_conn_close(conn);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct http_exchange *conn = arg;
    (void)fd;
    (void)what;
    bool mid_request =
        conn->state == CONN_BODY || (conn->state == CONN_HEAD && conn->timer_for_head);
    if (!mid_request) {
        http_conn_close(conn); /* idle, or lingered long enough */
        return;
    }
    struct http_fault fault = {408, "the request did not arrive in time"};
    refuse(conn, &fault);
}

bool http_conn_open(struct http_server *s, evutil_socket_t fd)
{
    struct http_exchange *conn = calloc(1, sizeof *conn);
    if (conn == NULL) return false;
    conn->server = s;
    conn->bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    conn->timer = evtimer_new(s->base, on_timer, conn);
    if (conn->bev == NULL || conn->timer == NULL) {
        if (conn->timer != NULL) event_free(conn->timer);
        if (conn->bev != NULL) {
            (void)bufferevent_setfd(conn->bev, -1);
            bufferevent_free(conn->bev);
        }
        free(conn);
        return false;
    }
    buffer_init(&conn->head_bytes, s->limits.header_bytes_max + 1u);
    buffer_init(&conn->body, s->limits.body_bytes_max);
    buffer_init(&conn->extra_headers, 16384);
    conn->next = s->connections;
    if (conn->next != NULL) conn->next->prev = conn;
    s->connections = conn;
    s->connection_count++;
    struct timeval write_limit = {s->limits.write_timeout_ms / 1000,
                                  (suseconds_t)(s->limits.write_timeout_ms % 1000) * 1000};
    (void)bufferevent_set_timeouts(conn->bev, NULL, &write_limit);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, s->limits.pipeline_bytes_max);
    bufferevent_setcb(conn->bev, on_read, on_drained, on_event, conn);
    (void)bufferevent_disable(conn->bev, EV_WRITE);
    (void)bufferevent_enable(conn->bev, EV_READ);
    set_timer(conn, s->limits.idle_timeout_ms);
    return true;
}

void http_conn_drain(struct http_exchange *conn)
{
    if (conn->state == CONN_HEAD && !conn->timer_for_head)
        close_soon(conn);
    else
        conn->close_after = true;
}

/* ---- what handlers see ---- */

enum http_method http_method(const struct http_exchange *x)
{
    return x->head.method;
}
struct span http_method_text(const struct http_exchange *x)
{
    return x->head.method_text;
}
struct span http_path(const struct http_exchange *x)
{
    return x->head.path;
}
struct span http_query(const struct http_exchange *x)
{
    return x->head.query;
}
struct span http_body(const struct http_exchange *x)
{
    return buffer_view(&x->body);
}
uint64_t http_received_ns(const struct http_exchange *x)
{
    return x->received_ns;
}
void http_set_user(struct http_exchange *x, void *user)
{
    x->user = user;
}
void *http_user(const struct http_exchange *x)
{
    return x->user;
}
bool http_stream_begun(const struct http_exchange *x)
{
    return x->stream_begun;
}

struct span http_header(const struct http_exchange *x, const char *lower_case_name)
{
    return http_head_field(&x->head, lower_case_name);
}

bool http_has_header(const struct http_exchange *x, const char *lower_case_name)
{
    return http_head_field(&x->head, lower_case_name).ptr != NULL;
}

void http_reply_header(struct http_exchange *x, const char *name, struct span value)
{
    for (size_t i = 0; i < value.len; i++)
        CHECK(value.ptr[i] != '\r' && value.ptr[i] != '\n');
    buffer_add_str(&x->extra_headers, name);
    buffer_add_str(&x->extra_headers, ": ");
    buffer_add_span(&x->extra_headers, value);
    buffer_add_str(&x->extra_headers, "\r\n");
}

static void write_head(struct http_exchange *x, uint32_t status, const char *content_type)
{
    struct evbuffer *out = output_of(x);
    struct span date = http_server__date(x->server);
    if (x->server->draining) x->close_after = true;
    evbuffer_add_printf(out, "HTTP/1.1 %u %s\r\nDate: %.*s\r\n", status, http_reason(status),
                        (int)date.len, (const char *)date.ptr);
    if (content_type != NULL) evbuffer_add_printf(out, "Content-Type: %s\r\n", content_type);
    (void)evbuffer_add(out, x->extra_headers.ptr, x->extra_headers.len);
    if (x->close_after)
        evbuffer_add_printf(out, "Connection: close\r\n");
    else if (x->head.http_1_0)
        evbuffer_add_printf(out, "Connection: keep-alive\r\n");
}

void http_reply(struct http_exchange *x, uint32_t status, const char *content_type,
                struct span body)
{
    CHECK(x->state == CONN_SERVICE && !x->stream_begun);
    write_head(x, status, content_type);
    if (status == 204)
        evbuffer_add_printf(output_of(x), "\r\n");
    else
        evbuffer_add_printf(output_of(x), "Content-Length: %zu\r\n\r\n", body.len);
    if (x->head.method != HTTP_HEAD && status != 204)
        (void)evbuffer_add(output_of(x), body.ptr, body.len);
    x->state = CONN_REPLIED;
    http_server__want_flush(x);
}

void http_stream_begin(struct http_exchange *x, uint32_t status, const char *content_type)
{
    CHECK(x->state == CONN_SERVICE && !x->stream_begun);
    x->stream_begun = true;
    x->chunked_reply = !x->head.http_1_0;
    if (!x->chunked_reply) x->close_after = true;
    write_head(x, status, content_type);
    evbuffer_add_printf(output_of(x),
                        x->chunked_reply ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    http_server__want_flush(x);
}

void http_stream_write(struct http_exchange *x, struct span bytes)
{
    CHECK(x->state == CONN_SERVICE && x->stream_begun);
    if (bytes.len == 0) return;
    if (x->chunked_reply) evbuffer_add_printf(output_of(x), "%zx\r\n", bytes.len);
    (void)evbuffer_add(output_of(x), bytes.ptr, bytes.len);
    if (x->chunked_reply) (void)evbuffer_add(output_of(x), "\r\n", 2);
    http_server__want_flush(x);
}

uint64_t http_stream_queued(const struct http_exchange *x)
{
    return evbuffer_get_length(bufferevent_get_output(x->bev));
}

void http_stream_end(struct http_exchange *x, bool abort)
{
    CHECK(x->state == CONN_SERVICE && x->stream_begun);
    if (abort) {
        close_soon(x);
        return;
    }
    if (x->chunked_reply) (void)evbuffer_add(output_of(x), "0\r\n\r\n", 5);
    x->state = CONN_REPLIED;
    http_server__want_flush(x);
}
