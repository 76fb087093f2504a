/* Frames over real ZeroMQ sockets on loopback. */
#include "common/clock.h"
#include "common/transport.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zmq.h>
#include <cmocka.h>

enum { FRAME_MAX = 4096 };
static char address[64];
static struct errmsg why;

static struct transport *bind_some(void)
{
    struct transport *t = NULL;
    for (int port = 21000 + getpid() % 5000; t == NULL && port < 32000; port++) {
        (void)snprintf(address, sizeof address, "tcp://127.0.0.1:%d", port);
        if (transport_bind(address, FRAME_MAX, &t, &why) != OK) t = NULL;
    }
    assert_non_null(t);
    return t;
}

/* Within two seconds; the fd is edge-triggered, so recv is tried first. */
static enum err wait_recv(struct transport *t, struct transport_peer *peer, struct span *payload)
{
    uint64_t end = clock_now_ns() + 2 * NS_PER_S;
    enum err err;
    while ((err = transport_recv(t, peer, payload)) == ERR_AGAIN && clock_now_ns() < end) {
        struct pollfd p = {transport_fd(t), POLLIN, 0};
        (void)poll(&p, 1, 20);
    }
    return err;
}

static enum err wait_send(struct transport *t, struct span payload)
{
    uint64_t end = clock_now_ns() + 2 * NS_PER_S;
    enum err err;
    while ((err = transport_send(t, NULL, payload)) == ERR_AGAIN && clock_now_ns() < end)
        (void)poll(NULL, 0, 5);
    return err;
}

static void frames_go_both_ways(void **state)
{
    (void)state;
    struct transport *router = bind_some(), *dealer = NULL;
    struct transport_peer peer, unknown = {{1}};
    struct span got;
    assert_int_equal(transport_connect(address, FRAME_MAX, &dealer, &why), OK);
    assert_int_equal(wait_send(dealer, SPAN_LIT("one")), OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(wait_send(dealer, SPAN_LIT("more")), OK);
    assert_int_equal(wait_recv(router, &peer, &got), OK);
    assert_true(span_eq_str(got, "one"));
    for (int i = 0; i < 3; i++)
        assert_int_equal(wait_recv(router, &peer, &got), OK);
    assert_int_equal(transport_recv(router, &peer, &got), ERR_AGAIN);
    assert_int_equal(transport_send(router, &unknown, SPAN_LIT("x")), ERR_NOT_FOUND);
    assert_int_equal(wait_send(dealer, SPAN_LIT("two")), OK);
    assert_int_equal(wait_recv(router, &peer, &got), OK);
    assert_int_equal(transport_send(router, &peer, SPAN_LIT("back")), OK);
    struct transport_peer none;
    assert_int_equal(wait_recv(dealer, &none, &got), OK);
    assert_true(span_eq_str(got, "back"));
    static uint8_t big[FRAME_MAX + 1];
    assert_int_equal(transport_send(dealer, NULL, span_of(big, sizeof big)), ERR_LIMIT);
    assert_int_equal(wait_send(dealer, span_of(big, FRAME_MAX)), OK);
    assert_int_equal(wait_recv(router, &peer, &got), OK);
    assert_int_equal(got.len, FRAME_MAX);
    transport_destroy(dealer, 0);
    transport_destroy(router, 0);
}

static void a_reader_that_stops_fills_its_window(void **state)
{
    (void)state;
    struct transport *router = bind_some(), *dealer = NULL;
    struct transport_peer peer;
    struct span got;
    assert_int_equal(transport_connect(address, FRAME_MAX, &dealer, &why), OK);
    assert_int_equal(wait_send(dealer, SPAN_LIT("hello")), OK);
    assert_int_equal(wait_recv(router, &peer, &got), OK);
    static uint8_t frame[FRAME_MAX];
    int sent = 0;
    enum err err = OK;
    for (;
         sent < 100000 && (err = transport_send(router, &peer, span_of(frame, sizeof frame))) == OK;
         sent++) {
    }
    assert_int_equal(err, ERR_AGAIN); /* never blocks, never buffers without bound */
    for (int i = 0; i < sent; i++) {
        struct transport_peer none;
        assert_int_equal(wait_recv(dealer, &none, &got), OK);
    }
    transport_destroy(dealer, 0);
    transport_destroy(router, 0);
}

/* libzmq's own heartbeats ended the process here: see transport_zmq.c. */
static void a_peer_goes_while_its_pipe_is_full(void **state)
{
    (void)state;
    static uint8_t frame[FRAME_MAX];
    struct transport *router = bind_some(), *dealer = NULL;
    struct transport_peer peer;
    struct span got;
    assert_int_equal(transport_connect(address, FRAME_MAX, &dealer, &why), OK);
    for (int quiet = 0; quiet < 100;) { /* until nothing goes any more */
        if (transport_send(dealer, NULL, span_of(frame, sizeof frame)) == OK) {
            quiet = 0;
        } else {
            quiet++;
            (void)poll(NULL, 0, 2);
        }
    }
    transport_destroy(dealer, 0);
    (void)poll(NULL, 0, 1500);
    assert_int_equal(wait_recv(router, &peer, &got), OK);
    transport_destroy(router, 0);
}

static void odd_shapes_are_dropped(void **state)
{
    (void)state;
    struct transport *router = bind_some();
    void *context = zmq_ctx_new(), *raw = zmq_socket(context, ZMQ_DEALER);
    assert_int_equal(zmq_connect(raw, address), 0);
    assert_int_equal(zmq_send(raw, "a", 1, 0), 1); /* an id of ZeroMQ's making: 5 bytes */
    struct transport_peer peer;
    struct span got;
    assert_int_equal(wait_recv(router, &peer, &got), ERR_PROTO);
    zmq_close(raw);
    raw = zmq_socket(context, ZMQ_DEALER);
    assert_int_equal(zmq_setsockopt(raw, ZMQ_ROUTING_ID, "0123456789abcdef", 16), 0);
    assert_int_equal(zmq_connect(raw, address), 0);
    zmq_send(raw, "a", 1, ZMQ_SNDMORE);
    zmq_send(raw, "b", 1, 0);
    assert_int_equal(wait_recv(router, &peer, &got), ERR_PROTO);
    zmq_send(raw, "good", 4, 0);
    assert_int_equal(wait_recv(router, &peer, &got), OK);
    assert_true(span_eq_str(got, "good"));
    int linger = 0;
    zmq_setsockopt(raw, ZMQ_LINGER, &linger, sizeof linger);
    zmq_close(raw);
    zmq_ctx_term(context);
    transport_destroy(router, 0);
}

static void bad_addresses_get_a_sentence(void **state)
{
    (void)state;
    struct transport *a = bind_some(), *b = NULL;
    assert_int_equal(transport_bind(address, FRAME_MAX, &b, &why), ERR_IO);
    assert_non_null(strstr(why.text, address));
    assert_int_equal(transport_connect("nonsense", FRAME_MAX, &b, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "nonsense"));
    transport_destroy(a, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_go_both_ways),
        cmocka_unit_test(a_reader_that_stops_fills_its_window),
        cmocka_unit_test(a_peer_goes_while_its_pipe_is_full),
        cmocka_unit_test(odd_shapes_are_dropped),
        cmocka_unit_test(bad_addresses_get_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
