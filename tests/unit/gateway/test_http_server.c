/* The HTTP server over real sockets on loopback: replies, keep-alive, pipelining, streams,
 * disconnects, deadlines, slow readers. */
#include "common/clock.h"
#include "gateway/http_server.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static struct event_base *base;
static struct http_server *server;
static struct http_exchange *held; /* the exchange that /hold keeps */
static int requests, done_complete, done_gone;

static void on_request(void *arg, struct http_exchange *x)
{
    (void)arg;
    requests++;
    if (span_eq_str(http_path(x), "/hold")) {
        held = x;
    } else if (span_eq_str(http_path(x), "/stream")) {
        http_stream_begin(x, 200, "text/event-stream");
        http_stream_write(x, SPAN_LIT("data: 1\n\n"));
        http_stream_write(x, SPAN_LIT("data: 2\n\n"));
        http_stream_end(x, false);
    } else {
        struct buffer body;
        buffer_init(&body, 1 << 20);
        buffer_printf(&body, "%.*s %zu ", (int)http_path(x).len, http_path(x).ptr,
                      http_body(x).len);
        buffer_add_span(&body, http_body(x));
        http_reply_header(x, "x-request-id", SPAN_LIT("r1"));
        http_reply(x, 200, "text/plain", buffer_view(&body));
        buffer_deinit(&body);
    }
}

static void on_done(void *arg, struct http_exchange *x, bool complete)
{
    (void)arg;
    if (x == held) held = NULL;
    if (complete)
        done_complete++;
    else
        done_gone++;
}

static int setup_with(struct http_limits limits)
{
    struct errmsg why;
    requests = done_complete = done_gone = 0;
    held = NULL;
    base = event_base_new();
    struct http_handlers handlers = {NULL, on_request, on_done};
    return http_server_create(base, "127.0.0.1:0", false, &limits, &handlers, &server, &why) == OK
               ? 0
               : -1;
}

static int setup(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default;
    limits.header_timeout_ms = 300;
    limits.body_timeout_ms = 300;
    limits.idle_timeout_ms = 600;
    limits.write_timeout_ms = 300;
    limits.write_buffer_max = 1 << 20;
    limits.connections_max = 8;
    return setup_with(limits);
}

static int teardown(void **state)
{
    (void)state;
    http_server_destroy(server);
    event_base_free(base);
    return 0;
}

static int dial(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(http_server_port(server)),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void run_ms(int ms)
{
    struct timeval tv = {ms / 1000, (ms % 1000) * 1000};
    event_base_loopexit(base, &tv);
    event_base_dispatch(base);
}

/* Sends, lets the server run, returns what came within ms (NUL-terminated); *closed: the server
 * closed. */
static char reply_text[1 << 16];
static char *talk(int fd, const char *text, size_t len, int ms, bool *closed)
{
    size_t n = 0;
    uint64_t end = clock_now_ns() + (uint64_t)ms * NS_PER_MS;
    if (len) assert_int_equal(send(fd, text, len, MSG_NOSIGNAL), (ssize_t)len);
    *closed = false;
    while (clock_now_ns() < end && !*closed) {
        run_ms(5);
        ssize_t got = recv(fd, reply_text + n, sizeof reply_text - 1 - n, MSG_DONTWAIT);
        if (got > 0) n += (size_t)got;
        if (got == 0) *closed = true;
    }
    reply_text[n] = '\0';
    return reply_text;
}
#define TALK(fd, literal, ms) talk(fd, literal, sizeof(literal) - 1, ms, &closed)

static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        n++;
    return n;
}

static void keep_alive_and_pipelining(void **state)
{
    (void)state;
    bool closed;
    int fd = dial();
    char *r = TALK(
        fd,
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: "
        "x\r\n\r\n"
        "\r\nPOST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n",
        60);
    assert_int_equal(count_of(r, "HTTP/1.1 200 OK"), 3);
    assert_non_null(strstr(r, "/a 3 abc"));
    assert_non_null(strstr(r, "/c 2 xy"));
    assert_non_null(strstr(r, "x-request-id: r1"));
    assert_true(strstr(r, "/a 3") < strstr(r, "/b 0"));
    assert_false(closed);
    r = TALK(fd, "HEAD /d HTTP/1.1\r\nHost: x\r\n\r\n", 30);
    assert_non_null(strstr(r, "Content-Length: 5"));
    assert_null(strstr(r, "/d 0"));
    assert_int_equal(done_complete, 4);
    r = TALK(fd, "GET /e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 100);
    assert_true(closed);
    close(fd);
}

static void streams_are_chunked(void **state)
{
    (void)state;
    bool closed;
    int fd = dial();
    char *r = TALK(fd, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n", 30);
    assert_non_null(strstr(r, "\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"));
    r = TALK(fd, "GET /stream HTTP/1.0\r\n\r\n", 100);
    assert_non_null(strstr(r, "\r\n\r\ndata: 1\n\ndata: 2\n\n"));
    assert_true(closed);
    close(fd);
}

static void faults_are_answered_and_closed(void **state)
{
    (void)state;
    bool closed;
    int fd = dial();
    char *r = TALK(fd,
                   "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: "
                   "5\r\n\r\nGET /smuggled HTTP/1.1\r\n",
                   60);
    assert_non_null(strstr(r, "HTTP/1.1 400 Bad Request"));
    assert_non_null(strstr(r, "{\"error\":"));
    assert_true(closed);
    assert_int_equal(requests, 0);
    close(fd);
    fd = dial();
    r = TALK(
        fd,
        "POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n",
        60);
    assert_non_null(strstr(r, "HTTP/1.1 413"));
    assert_null(strstr(r, "100 Continue"));
    close(fd);
    fd = dial();
    r = TALK(fd, "POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
             30);
    assert_non_null(strstr(r, "HTTP/1.1 100 Continue"));
    r = TALK(fd, "ok", 30);
    assert_non_null(strstr(r, "/a 2 ok"));
    close(fd);
}

static void deadlines(void **state)
{
    (void)state;
    bool closed;
    int fd = dial();
    (void)TALK(fd, "GET / HT", 100);
    char *r = TALK(fd, "TP", 400); /* a drip does not move the head's deadline */
    assert_non_null(strstr(r, "HTTP/1.1 408"));
    close(fd);
    fd = dial();
    r = TALK(fd, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab", 500);
    assert_non_null(strstr(r, "HTTP/1.1 408"));
    close(fd);
    fd = dial();
    (void)TALK(fd, "", 900); /* idle: closed without a word */
    assert_true(closed);
    close(fd);
}

static void a_leaving_client_is_seen_at_once(void **state)
{
    (void)state;
    bool closed;
    int fd = dial();
    (void)TALK(fd, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 20);
    assert_non_null(held);
    close(fd);
    run_ms(20);
    assert_null(held);
    assert_int_equal(done_gone, 1);
    fd = dial(); /* while a stream is open */
    (void)TALK(fd, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 20);
    http_stream_begin(held, 200, "text/event-stream");
    run_ms(20);
    close(fd);
    run_ms(20);
    assert_null(held);
    assert_int_equal(done_gone, 2);
    assert_int_equal(http_server_connections(server), 0);
}

static void a_slow_reader_is_cut(void **state)
{
    (void)state;
    bool closed;
    int fd = dial();
    (void)TALK(fd, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 20);
    http_stream_begin(held, 200, "text/event-stream");
    static uint8_t piece[65536];
    uint64_t queued = 0;
    for (int i = 0; i < 400 && held != NULL; i++) {
        http_stream_write(held, span_of(piece, sizeof piece));
        run_ms(1);
        if (held != NULL && http_stream_queued(held) > queued) queued = http_stream_queued(held);
    }
    assert_null(held);
    assert_int_equal(done_gone, 1);
    assert_true(queued <= (1 << 20) + sizeof piece + 16);
    close(fd);
    fd = dial(); /* fewer bytes than the limit, but no progress in time */
    (void)TALK(fd, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 20);
    http_stream_begin(held, 200, "text/event-stream");
    for (int i = 0; i < 400 && http_stream_queued(held) < 300000; i++) {
        http_stream_write(held, span_of(piece, sizeof piece));
        run_ms(1);
    }
    assert_non_null(held);
    run_ms(600);
    assert_null(held);
    close(fd);
}

static void drains(void **state)
{
    (void)state;
    bool closed;
    int idle = dial(), busy = dial();
    (void)TALK(busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 20);
    http_server_drain(server);
    (void)talk(idle, "", 0, 1300, &closed);
    assert_true(closed);
    assert_non_null(held);
    http_reply(held, 200, "text/plain", SPAN_LIT("bye"));
    char *r = talk(busy, "", 0, 100, &closed);
    assert_non_null(strstr(r, "Connection: close"));
    assert_true(closed);
    close(idle);
    close(busy);
}

static void connections_are_bounded(void **state)
{
    (void)state;
    bool closed;
    int fds[12];
    for (int i = 0; i < 12; i++) {
        fds[i] = dial();
        run_ms(5);
    }
    assert_true(http_server_connections(server) <= 8);
    for (int i = 0; i < 11; i++)
        close(fds[i]);
    run_ms(20);
    char *r = TALK(fds[11], "GET /z HTTP/1.1\r\nHost: x\r\n\r\n", 100);
    assert_non_null(strstr(r, "/z 0"));
    close(fds[11]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keep_alive_and_pipelining, setup, teardown),
        cmocka_unit_test_setup_teardown(streams_are_chunked, setup, teardown),
        cmocka_unit_test_setup_teardown(faults_are_answered_and_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(deadlines, setup, teardown),
        cmocka_unit_test_setup_teardown(a_leaving_client_is_seen_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slow_reader_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(drains, setup, teardown),
        cmocka_unit_test_setup_teardown(connections_are_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
