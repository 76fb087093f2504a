/* A whole gateway loop between real HTTP clients and fake workers over real sockets: streams, exact
 * failover, departures, refusals, drain. */
#include "gateway/loop.h"
#include "tests/unit/gateway/fake_worker.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static struct metrics *registry;
static struct loop_metrics metrics;
static struct loop *loop;
static pthread_t thread;
static bool running;
static char workers_address[64];
static uint16_t port;
static struct fake_worker *fakes[3];

static void *run(void *arg)
{
    loop_run(arg);
    return NULL;
}

static void start(struct queue_limits queue, uint32_t timeout_ms, uint32_t drain_ms)
{
    static int serial;
    struct errmsg why = {""};
    (void)snprintf(workers_address, sizeof workers_address, "ipc:///tmp/penstock-test-%d-%d",
                   (int)getpid(), serial++);
    memset(fakes, 0, sizeof fakes);
    registry = metrics_create();
    loop_metrics_make(&metrics, registry);
    struct loop_settings set = {.http_address = "127.0.0.1:0",
                                .workers_address = workers_address,
                                .cors_origin = "https://a.example",
                                .http = http_limits_default,
                                .queue = queue,
                                .request_timeout_ms = timeout_ms,
                                .drain_timeout_ms = drain_ms,
                                .metrics = &metrics};
    enum err err = loop_create(&set, &loop, &why);
    if (err != OK) fail_msg("%s", why.text);
    port = http_server_port(loop->http);
    assert_int_equal(pthread_create(&thread, NULL, run, loop), 0);
    running = true;
}

static int setup(void **state)
{
    (void)state;
    start((struct queue_limits){100, 1 << 20, 64 << 20}, 20000, 5000);
    return 0;
}

static void join_loop(void)
{
    (void)pthread_join(thread, NULL);
    running = false;
}

static int teardown(void **state)
{
    (void)state;
    if (running) {
        loop_stop(loop);
        loop_stop(loop);
        join_loop();
    }
    dispatch_check(&loop->dispatch);
    loop_destroy(loop);
    metrics_destroy(registry);
    for (size_t i = 0; i < ARRAY_LEN(fakes); i++)
        if (fakes[i] != NULL) fake_destroy(fakes[i]);
    (void)unlink(workers_address + strlen("ipc://"));
    return 0;
}

/* ---- clients ---- */

static struct client {
    int fd;
    struct buffer got;
} clients[40];

static void pump(int ms)
{
    for (int i = 0; i < ms; i++) {
        for (size_t k = 0; k < ARRAY_LEN(fakes); k++)
            fake_pump(fakes[k]);
        (void)poll(NULL, 0, 1);
    }
}

static struct client *client_send(size_t slot, const char *method, const char *path,
                                  const char *headers, struct span body)
{
    struct client *c = &clients[slot];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    char head[1024];
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    buffer_init(&c->got, 16 << 20);
    assert_int_equal(connect(c->fd, (struct sockaddr *)&to, sizeof to), 0);
    int n =
        snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n",
                 method, path, headers, body.len);
    assert_int_equal(send(c->fd, head, (size_t)n, MSG_NOSIGNAL), n);
    for (size_t at = 0; at < body.len;) {
        ssize_t sent = send(c->fd, body.ptr + at, body.len - at, MSG_NOSIGNAL);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
    return c;
}

static struct client *post(size_t slot, const char *path, const char *json)
{
    return client_send(slot, "POST", path, "Content-Type: application/json\r\n", span_str(json));
}

static void client_close(struct client *c)
{
    close(c->fd);
    buffer_deinit(&c->got);
}

/* Until text is there; false: the peer closed or the time is up. */
static bool wait_for(struct client *c, const char *text, int ms)
{
    char chunk[65536];
    for (uint64_t end = clock_now_ns() + (uint64_t)ms * NS_PER_MS; clock_now_ns() < end;) {
        ssize_t n = recv(c->fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (n > 0) buffer_add(&c->got, chunk, (size_t)n);
        if (span_has(buffer_view(&c->got), text)) return true;
        if (n == 0) return false;
        if (n < 0) pump(1);
    }
    return false;
}

static void expect(struct client *c, const char *text, int ms)
{
    if (!wait_for(c, text, ms))
        fail_msg("no \"%s\" in \"%.*s\"", text, (int)c->got.len, (const char *)c->got.ptr);
}

/* The contents of a stream's deltas, joined. */
static void deltas(const struct client *c, struct buffer *out)
{
    static const char key[] = "\"delta\":{\"content\":\"";
    struct span rest = buffer_view(&c->got);
    const uint8_t *at;
    while ((at = memmem(rest.ptr, rest.len, key, sizeof key - 1)) != NULL) {
        rest = span_from(rest, (size_t)(at - rest.ptr) + sizeof key - 1);
        const uint8_t *end = memchr(rest.ptr, '"', rest.len);
        buffer_add(out, rest.ptr, (size_t)(end - rest.ptr));
    }
}

static void add_worker(size_t slot)
{
    double before = metric_value(metrics.workers);
    fakes[slot] = fake_create(workers_address, slot + 1);
    for (int i = 0; i < 3000 && metric_value(metrics.workers) <= before; i++)
        pump(1);
    assert_true(metric_value(metrics.workers) > before);
}

#define CHAT(more) "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]" more "}"

/* ---- tests ---- */

static void a_stream_from_end_to_end(void **state)
{
    (void)state;
    add_worker(0);
    struct client *c = post(0, "/v1/chat/completions",
                            CHAT(",\"stream\":true,\"max_tokens\":20,\"seed\":5,"
                                 "\"stream_options\":{\"include_usage\":true}"));
    expect(c, "data: [DONE]\n\n\r\n0\r\n\r\n", 3000);
    expect(c, "text/event-stream", 0 + 1);
    expect(c, "x-request-id: req-", 1);
    expect(c, "\"completion_tokens\":20", 1);
    struct buffer text;
    buffer_init(&text, 4096);
    deltas(c, &text);
    assert_int_equal(text.len, 20);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(text.ptr[i], fake_token(5, 0, i) - ID_BYTE);
    buffer_deinit(&text);
    client_close(c);
    assert_int_equal(fakes[0]->submits, 1);
}

static void whole_answers_and_keep_alive(void **state)
{
    (void)state;
    add_worker(0);
    struct client *c = post(0, "/v1/chat/completions", CHAT(",\"max_tokens\":3,\"n\":2"));
    expect(c, "\"total_tokens\"", 3000);
    expect(c, "\"index\":1,\"message\"", 1);
    expect(c, "openai-processing-ms:", 1);
    buffer_reset(&c->got);
    static const char next[] = "GET /v1/models/m HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\n"
                               "Origin: https://a.example\r\n\r\n";
    assert_int_equal(send(c->fd, next, sizeof next - 1, 0), sizeof next - 1);
    expect(c, "\"max_model_len\":100000}", 1000);
    expect(c, "x-request-id: mine-1\r\n", 1);
    expect(c, "Access-Control-Allow-Origin: https://a.example\r\n", 1);
    client_close(c);
}

static void a_worker_dies_mid_stream(void **state)
{
    (void)state;
    add_worker(0);
    add_worker(1);
    enum { STREAMS = 12 };
    for (size_t i = 0; i < STREAMS; i++) {
        char json[256];
        (void)snprintf(json, sizeof json, CHAT(",\"stream\":true,\"max_tokens\":150,\"seed\":%zu"),
                       i);
        (void)post(i, "/v1/chat/completions", json);
    }
    for (size_t i = 0; i < STREAMS; i++)
        expect(&clients[i], "\"delta\":{\"content\"", 3000);
    fakes[0]->silent = true;
    for (size_t i = 0; i < STREAMS; i++) {
        expect(&clients[i], "data: [DONE]", 8000);
        struct buffer text;
        buffer_init(&text, 4096);
        deltas(&clients[i], &text);
        assert_int_equal(text.len, 150);
        for (uint32_t k = 0; k < 150; k++)
            assert_int_equal(text.ptr[k], fake_token(i, 0, k) - ID_BYTE);
        buffer_deinit(&text);
        client_close(&clients[i]);
    }
    assert_true(fakes[1]->resumed > 0);
    fakes[0]->silent = false; /* late tokens of another life */
    pump(300);
    assert_true(metric_value(metrics.deaths) >= 1);
    assert_true(metric_value(metrics.stale_frames) > 0);
}

static void who_leaves_is_cancelled(void **state)
{
    (void)state;
    add_worker(0);
    struct client *c = post(0, "/v1/chat/completions", CHAT(",\"stream\":true"));
    expect(c, "\"delta\":{\"content\"", 3000);
    client_close(c);
    pump(100);
    assert_int_equal(fakes[0]->cancels, 1);
    assert_int_equal(fakes[0]->sequence_count, 0);
    c = post(0, "/v1/chat/completions", CHAT("")); /* and one that does not stream */
    pump(50);
    client_close(c);
    pump(100);
    assert_int_equal(fakes[0]->cancels, 2);
    pump(200);
    assert_true(metric_value(metrics.disconnects) == 2);
}

static void who_leaves_the_queue_is_never_sent(void **state)
{
    (void)state;
    add_worker(0);
    fakes[0]->full = true; /* rejects: the request waits here */
    struct client *c = post(0, "/v1/chat/completions", CHAT(""));
    pump(100);
    client_close(c);
    pump(100);
    fakes[0]->full = false;
    uint32_t before = fakes[0]->submits;
    pump(300);
    assert_int_equal(fakes[0]->submits, before);
    assert_int_equal(fakes[0]->sequence_count, 0);
}

static void refusals(void **state)
{
    (void)state;
    struct client *c = post(0, "/v1/chat/completions", CHAT(""));
    expect(c, "HTTP/1.1 404", 1000); /* nothing ever served it */
    expect(c, "\"code\":\"model_not_found\"", 1);
    client_close(c);
    add_worker(0);
    c = post(0, "/v1/chat/completions", "{\"model\":\"m\",\"messages\":");
    expect(c, "could not parse the JSON body", 1000);
    client_close(c);
    c = post(0, "/v1/chat/completions", CHAT(",\"temperature\":3"));
    expect(c, "\"param\":\"temperature\"", 1000);
    client_close(c);
    c = client_send(0, "POST", "/v1/completions", "Content-Type: text/plain\r\n", SPAN_LIT("{}"));
    expect(c, "HTTP/1.1 415", 1000);
    client_close(c);
    c = client_send(0, "POST", "/v1/completions",
                    "Content-Type: application/json; charset=utf-16\r\n", SPAN_LIT("{}"));
    expect(c, "HTTP/1.1 415", 1000);
    client_close(c);
    c = client_send(0, "GET", "/v1/completions", "", SPAN_LIT(""));
    expect(c, "HTTP/1.1 405", 1000);
    expect(c, "Allow: POST, OPTIONS", 1);
    client_close(c);
    c = client_send(0, "GET", "/v1/nothing", "", SPAN_LIT(""));
    expect(c, "\"code\":\"unknown_url\"", 1000);
    client_close(c);
    c = client_send(0, "OPTIONS", "/v1/completions",
                    "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n"
                    "Access-Control-Request-Headers: x-stainless-os\r\n",
                    SPAN_LIT(""));
    expect(c, "HTTP/1.1 204", 1000);
    expect(c, "Access-Control-Allow-Headers: x-stainless-os\r\n", 1);
    client_close(c);
    fake_destroy(fakes[0]);
    fakes[0] = NULL;
    for (int i = 0; i < 400 && metric_value(metrics.deaths) < 1; i++)
        pump(10);
    c = post(0, "/v1/chat/completions", CHAT(""));
    expect(c, "HTTP/1.1 503", 1000);
    expect(c, "Retry-After: 2", 1);
    client_close(c);
}

static int setup_small(void **state)
{
    (void)state;
    start((struct queue_limits){2, 1 << 20, 64 << 20}, 1500, 500);
    return 0;
}

static void a_full_queue_is_429(void **state)
{
    (void)state;
    add_worker(0);
    fakes[0]->full = true;
    for (size_t i = 0; i < 2; i++)
        (void)post(i, "/v1/chat/completions", CHAT(",\"stream\":true"));
    pump(100);
    struct client *c = post(2, "/v1/chat/completions", CHAT(""));
    expect(c, "HTTP/1.1 429", 1000);
    expect(c, "Retry-After: ", 1);
    expect(c, "\"code\":\"rate_limit_exceeded\"", 1);
    client_close(c);
    for (size_t i = 0; i < 2; i++) { /* and the two that wait meet their deadline */
        expect(&clients[i], "HTTP/1.1 408", 3000);
        client_close(&clients[i]);
    }
}

static void a_deadline_ends_a_stream_with_an_error(void **state)
{
    (void)state;
    add_worker(0);
    struct client *c = post(0, "/v1/chat/completions", CHAT(",\"stream\":true"));
    expect(c, "\"delta\":{\"content\"", 1000);
    fakes[0]->paused = true;
    expect(c, "data: {\"error\":{\"message\":\"The request did not finish", 3000);
    expect(c, "\r\n0\r\n\r\n", 500);
    assert_false(span_has(buffer_view(&c->got), "[DONE]"));
    assert_false(span_has(buffer_view(&c->got), "\"finish_reason\":\"stop\""));
    client_close(c);
    pump(100);
    assert_int_equal(fakes[0]->cancels, 1);
}

/* Large bodies go through the threads; one whose client leaves meanwhile is forgotten. */
static void large_bodies(void **state)
{
    (void)state;
    struct buffer json;
    add_worker(0);
    buffer_init(&json, 1 << 20);
    buffer_add_str(&json, "{\"model\":\"m\",\"max_tokens\":2,\"prompt\":\"");
    for (int i = 0; i < 90000; i++)
        buffer_add_byte(&json, (uint8_t)('b' + i % 7));
    buffer_add_str(&json, "\"}");
    struct client *c = client_send(0, "POST", "/v1/completions", "", buffer_view(&json));
    expect(c, "\"prompt_tokens\":90000", 5000);
    client_close(c);
    for (size_t i = 0; i < 10; i++) {
        c = client_send(0, "POST", "/v1/completions", "", buffer_view(&json));
        if (i % 2) pump((int)i);
        client_close(c);
    }
    c = client_send(0, "POST", "/v1/completions", "", span_of(json.ptr, json.len - 1));
    expect(c, "could not parse the JSON body", 5000);
    client_close(c);
    buffer_deinit(&json);
    for (int i = 0; i < 300 && metric_value(metrics.running) > 0; i++)
        pump(10);
    assert_true(metric_value(metrics.running) == 0);
    assert_int_equal(fakes[0]->sequence_count, 0);
}

static void a_drain_lets_streams_end(void **state)
{
    (void)state;
    add_worker(0);
    struct client *c = post(0, "/v1/chat/completions", CHAT(",\"stream\":true,\"max_tokens\":200"));
    expect(c, "\"delta\":{\"content\"", 1000);
    loop_stop(loop);
    expect(c, "data: [DONE]", 5000);
    client_close(c);
    join_loop();
}

static void a_drain_that_takes_too_long_says_so(void **state)
{
    (void)state;
    add_worker(0);
    struct client *c = post(0, "/v1/chat/completions", CHAT(",\"stream\":true"));
    expect(c, "\"delta\":{\"content\"", 1000);
    fakes[0]->paused = true;
    loop_stop(loop);
    expect(c, "\"code\":\"shutting_down\"", 3000);
    client_close(c);
    join_loop();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define S(f) cmocka_unit_test_setup_teardown(f, setup_small, teardown)
    const struct CMUnitTest tests[] = {
        T(a_stream_from_end_to_end),
        T(whole_answers_and_keep_alive),
        T(a_worker_dies_mid_stream),
        T(who_leaves_is_cancelled),
        T(who_leaves_the_queue_is_never_sent),
        T(refusals),
        S(a_full_queue_is_429),
        S(a_deadline_ends_a_stream_with_an_error),
        T(large_bodies),
        T(a_drain_lets_streams_end),
        S(a_drain_that_takes_too_long_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
