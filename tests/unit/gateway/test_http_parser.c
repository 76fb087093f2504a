/* The strict HTTP/1.1 parser: what is accepted, and what parsers elsewhere disagree on and we
 * refuse. */
#include "gateway/http_parser.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static struct http_head head;
static struct http_fault fault;

/* 0: accepted; 1: not whole; else the status of the refusal. Fed whole, and then byte by byte: both
 * must agree. */
static uint32_t parse(const char *text, size_t len)
{
    uint32_t answers[2];
    for (int way = 0; way < 2; way++) {
        size_t scanned = 0, head_len = 0;
        enum err err = ERR_AGAIN;
        for (size_t n = way == 0 ? len : 1; n <= len && err == ERR_AGAIN; n++)
            err =
                http_head_scan(span_of(text, n), &http_limits_default, &scanned, &head_len, &fault);
        if (err == OK)
            err = http_head_parse(span_of(text, head_len), &http_limits_default, &head, &fault);
        answers[way] = err == OK ? 0 : err == ERR_AGAIN ? 1 : fault.status;
    }
    assert_int_equal(answers[0], answers[1]);
    return answers[0];
}
#define PARSE(literal) parse(literal, sizeof(literal) - 1)

static void accepts_plain_requests(void **state)
{
    (void)state;
    assert_int_equal(PARSE("GET /v1/models?x=1 HTTP/1.1\r\nHost: a\r\nX-Y:  b c \t\r\n\r\n"), 0);
    assert_int_equal(head.method, HTTP_GET);
    assert_true(span_eq_str(head.path, "/v1/models"));
    assert_true(span_eq_str(head.query, "x=1"));
    assert_true(span_eq_str(http_head_field(&head, "x-y"), "b c"));
    assert_true(head.keep_alive);
    assert_int_equal(
        PARSE("POST / HTTP/1.1\r\nHost:\r\nContent-Length: 12\r\nConnection: x, Close\r\n\r\n"), 0);
    assert_int_equal(head.content_length, 12);
    assert_false(head.keep_alive);
    assert_int_equal(PARSE("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"), 0);
    assert_true(head.chunked);
    assert_int_equal(PARSE("GET / HTTP/1.0\r\n\r\n"), 0);
    assert_false(head.keep_alive);
    assert_int_equal(PARSE("OPTIONS * HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n"), 0);
    assert_true(head.expect_continue);
    assert_int_equal(PARSE("GET / HTTP/1.1\r\nHost: a\r\n"), 1);
}

#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a\r\n"

static void refuses_what_parsers_differ_on(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        uint32_t status;
    } rows[] = {
#define ROW(text, status) {text, sizeof(text) - 1, status}
        ROW(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400),
        ROW(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        ROW(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ROW(POST "Content-Length : 5\r\n\r\n", 400),
        ROW(POST "Content-Length: +5\r\n\r\n", 400),
        ROW(POST "Content-Length: 5,5\r\n\r\n", 400),
        ROW(POST "Content-Length: 0x5\r\n\r\n", 400),
        ROW(POST "Content-Length:\r\n\r\n", 400),
        ROW(POST "Content-Length: -1\r\n\r\n", 400),
        ROW(POST "Content-Length: 99999999999999999999\r\n\r\n", 413),
        ROW(POST "Content-Length: 20971521\r\n\r\n", 413),
        ROW(POST "Transfer-Encoding: xchunked\r\n\r\n", 501),
        ROW(POST "Transfer-Encoding: chunked, gzip\r\n\r\n", 501),
        ROW(POST "Transfer-Encoding: gzip\r\n\r\n", 501),
        ROW(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ROW("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ROW("GET / HTTP/1.1\r\n\r\n", 400),
        ROW(GET "Host: b\r\n\r\n", 400),
        ROW("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ROW(GET " folded: x\r\n\r\n", 400),
        ROW(GET "X: a\r\n\tb\r\n\r\n", 400),
        ROW(GET ": empty name\r\n\r\n", 400),
        ROW(GET "no colon\r\n\r\n", 400),
        ROW(GET "X: a\0b\r\n\r\n", 400),
        ROW(GET "X: a\rb\r\n\r\n", 400),
        ROW("GET / HTTP/1.1\nHost: a\n\n", 400),
        ROW("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ROW("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ROW("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ROW("GET /\xC3\xA9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ROW("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ROW("GET /\r\n\r\n", 400),
        ROW("GET / HTTP/1.9\r\nHost: a\r\n\r\n", 505),
        ROW("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ROW("GET / HTTP/-1.-1\r\n\r\n", 400),
        ROW("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        ROW(GET "Expect: 200-ok\r\n\r\n", 417),
        ROW(GET "Authorization: a\r\nauthorization: b\r\n\r\n", 400),
#undef ROW
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t status = parse(rows[i].text, rows[i].len);
        if (status != rows[i].status) print_error("row %zu: %s\n", i, rows[i].text);
        assert_int_equal(status, rows[i].status);
    }
}

static void limits_have_their_statuses(void **state)
{
    (void)state;
    static char text[70000];
    memset(text, 'a', sizeof text);
    memcpy(text, "GET /", 5);
    size_t scanned = 0, len;
    assert_int_equal(
        http_head_scan(span_of(text, 40000), &http_limits_default, &scanned, &len, &fault),
        ERR_PROTO);
    assert_int_equal(fault.status, 414);
    memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
    scanned = 0;
    assert_int_equal(
        http_head_scan(span_of(text, 40000), &http_limits_default, &scanned, &len, &fault),
        ERR_PROTO);
    assert_int_equal(fault.status, 431);
    char many[4096] = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (int i = 0; i < 101; i++)
        strcat(many, "A: b\r\n");
    strcat(many, "\r\n");
    assert_int_equal(parse(many, strlen(many)), 431);
}

/* The body, fed in pieces of n bytes; returns the refusal's status, 1 when not whole, 0 when whole.
 */
static uint32_t chunks(const char *text, size_t len, size_t piece, char *body)
{
    struct http_chunks c = {0};
    size_t at = 0, have = 0, body_len = 0;
    enum err err = ERR_AGAIN;
    while (err == ERR_AGAIN) {
        struct span data;
        size_t used;
        err = http_chunks_next(&c, span_of(text + at, have - at), 1000, &data, &used, &fault);
        if (data.len) memcpy(body + body_len, data.ptr, data.len);
        body_len += data.len;
        at += used;
        if (err == ERR_AGAIN && used == 0) {
            if (have == len) return 1;
            have = have + piece < len ? have + piece : len;
        }
    }
    body[body_len] = '\0';
    return err == OK ? 0 : fault.status;
}

static void chunked_bodies(void **state)
{
    (void)state;
    static const struct {
        const char *text, *body;
        uint32_t status;
    } rows[] = {
        {"5\r\nhello\r\n0\r\n\r\n", "hello", 0},
        {"5;a=b\r\nhello\r\nA\r\n0123456789\r\n000\r\nX: y\r\n\r\n", "hello0123456789", 0},
        {"5\r\nhello\r\n0\r\n", NULL, 1},
        {"5\r\nhelloX\r\n0\r\n\r\n", NULL, 400},
        {"+5\r\nhello\r\n0\r\n\r\n", NULL, 400},
        {"0x5\r\nhello\r\n0\r\n\r\n", NULL, 400},
        {"\r\nhello", NULL, 400},
        {"5\nhello\r\n0\r\n\r\n", NULL, 400},
        {"3e9\r\n", NULL, 413},
        {"fffffffffffffffff\r\n", NULL, 413},
    };
    char body[2000];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t piece = 1; piece < 40; piece++) {
            assert_int_equal(chunks(rows[i].text, strlen(rows[i].text), piece, body),
                             rows[i].status);
            if (rows[i].body) assert_string_equal(body, rows[i].body);
        }
    static char endless[20000];
    memset(endless, '0', sizeof endless); /* a size line without an end */
    assert_int_equal(chunks(endless, sizeof endless, 1000, body), 400);
    memcpy(endless, "0\r\n", 3); /* trailers without an end */
    memset(endless + 3, 'x', sizeof endless - 3);
    assert_int_equal(chunks(endless, sizeof endless, 1000, body), 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_plain_requests),
        cmocka_unit_test(refuses_what_parsers_differ_on),
        cmocka_unit_test(limits_have_their_statuses),
        cmocka_unit_test(chunked_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
