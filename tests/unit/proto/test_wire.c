/* Frames: round trips, damage, versions, budgets, bounds. */
#include "common/hash.h"
#include "proto/penstock.pb-c.h"
#include "proto/wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static struct wire_budget *budget;
static struct errmsg why;
static struct buffer frame;

static ProtobufCBinaryData bytes(const char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

static enum err encode(enum wire_type type, const void *message)
{
    buffer_reset(&frame);
    return wire_encode(type, message, &frame);
}

static enum err decode(struct span bytes_, const void **out)
{
    enum wire_type type;
    ProtobufCMessage *m = NULL;
    why.text[0] = '\0';
    enum err err = wire_decode(bytes_, budget, &type, &m, &why);
    *out = m;
    if (err != OK) assert_true(why.text[0] != '\0');
    return err;
}

/* A header that is right for this payload. */
static void frame_of(uint16_t version, uint16_t type, struct span payload)
{
    uint8_t head[16];
    memcpy(head, "PSTK", 4);
    store_le16(head + 4, version);
    store_le16(head + 6, type);
    store_le32(head + 8, (uint32_t)payload.len);
    store_le32(head + 12, crc32c_of(payload));
    buffer_reset(&frame);
    buffer_add(&frame, head, 16);
    buffer_add_span(&frame, payload);
}

static Penstock__SamplingParams params;
static Penstock__Request request, *request_list[1] = {&request};
static Penstock__Submit submit;
static uint32_t ids[40];

static void make_submit(void)
{
    penstock__sampling_params__init(&params);
    params.max_tokens = 10;
    params.temperature = 1;
    params.top_p = 1;
    params.repetition_penalty = 1;
    params.seed = 9;
    penstock__request__init(&request);
    request.id = 7;
    request.attempt = 1;
    request.prompt_ids = (ProtobufCBinaryData){sizeof ids, (uint8_t *)ids};
    request.choice_count = 1;
    request.params = &params;
    penstock__submit__init(&submit);
    submit.incarnation = 1;
    submit.epoch = 2;
    submit.requests = request_list;
    submit.n_requests = 1;
}

static void a_submit_round_trips(void **state)
{
    (void)state;
    const void *m;
    for (uint32_t i = 0; i < 40; i++)
        ids[i] = i * i;
    make_submit();
    assert_int_equal(encode(WIRE_SUBMIT, &submit), OK);
    assert_int_equal(decode(buffer_view(&frame), &m), OK);
    const Penstock__Submit *s = m;
    assert_int_equal(s->n_requests, 1);
    assert_int_equal(s->requests[0]->id, 7);
    assert_memory_equal(s->requests[0]->prompt_ids.data, ids, sizeof ids);
    assert_true(s->requests[0]->params->seed == 9);
}

static void damage_is_refused(void **state)
{
    (void)state;
    const void *m;
    make_submit();
    assert_int_equal(encode(WIRE_SUBMIT, &submit), OK);
    static uint8_t copy[4096];
    size_t n = frame.len;
    assert_true(n < sizeof copy);
    for (size_t i = 0; i < n; i++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, frame.ptr, n);
            copy[i] ^= (uint8_t)(1 << bit);
            assert_int_not_equal(decode(span_of(copy, n), &m), OK);
        }
        assert_int_not_equal(decode(span_of(frame.ptr, i), &m), OK);
    }
}

/* With a right checksum the bytes still may be anything: nothing may crash or leave its bounds
 * (AddressSanitizer looks). */
static void any_payload_is_survived(void **state)
{
    (void)state;
    const void *m;
    make_submit();
    assert_int_equal(encode(WIRE_SUBMIT, &submit), OK);
    static uint8_t payload[4096];
    size_t n = frame.len - 16;
    uint32_t good = 0, x = 1;
    for (int round = 0; round < 20000; round++) {
        make_submit();
        assert_int_equal(encode(WIRE_SUBMIT, &submit), OK);
        memcpy(payload, frame.ptr + 16, n);
        for (int k = 0; k < 1 + round % 3; k++) {
            x = x * 1664525u + 1013904223u;
            payload[(x >> 8) % n] = (uint8_t)(x >> 24);
        }
        frame_of(WIRE_VERSION, (uint16_t)(1 + round % (WIRE_TYPE_END_ - 1)), span_of(payload, n));
        good += decode(buffer_view(&frame), &m) == OK;
    }
    assert_true(good > 0); /* some damage hits only values */
}

static void other_versions_are_named(void **state)
{
    (void)state;
    const void *m;
    frame_of(77, WIRE_HELLO, span_of(NULL, 0));
    assert_int_equal(decode(buffer_view(&frame), &m), ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "version 77"));
    assert_non_null(strstr(why.text, "version 1 "));
}

static void memory_stays_in_its_budget(void **state)
{
    (void)state;
    const void *m;
    static uint8_t
        flood[1 << 20]; /* unknown fields of two bytes each: forty times as much when unpacked */
    for (size_t i = 0; i < sizeof flood; i += 2)
        flood[i] = 0x78, flood[i + 1] = 1;
    frame_of(WIRE_VERSION, WIRE_SUBMIT, span_of(flood, sizeof flood));
    assert_int_not_equal(decode(buffer_view(&frame), &m), OK);
    memset(flood, 0x0A, 34000); /* a nest of length-delimited fields */
    frame_of(WIRE_VERSION, WIRE_TOKENS, span_of(flood, 34000));
    assert_int_not_equal(decode(buffer_view(&frame), &m), OK);
    static uint8_t huge[FRAME_BYTES_MAX + 1];
    assert_int_equal(decode(span_of(huge, sizeof huge), &m), ERR_LIMIT);
}

static void bounds_are_kept(void **state)
{
    (void)state;
    const void *m;
#define REFUSED(statement, field)                                                                  \
    do {                                                                                           \
        make_submit();                                                                             \
        statement;                                                                                 \
        assert_int_equal(encode(WIRE_SUBMIT, &submit), OK);                                        \
        assert_int_equal(decode(buffer_view(&frame), &m), ERR_PROTO);                              \
        if (strstr(why.text, field) == NULL) fail_msg("%s: %s", field, why.text);                  \
    } while (0)
    REFUSED(submit.n_requests = 0, "requests");
    REFUSED(request.attempt = 0, "attempt");
    REFUSED(request.prompt_ids.len = 6, "prompt_ids");
    REFUSED(request.prompt_ids.len = 0, "prompt_ids");
    REFUSED(request.choice_count = 17, "choice_count");
    REFUSED(request.tenant_salt = bytes("0123456789012345678901234567890123"), "tenant_salt");
    REFUSED(request.params = NULL, "params");
    REFUSED(params.max_tokens = 0, "max_tokens");
    REFUSED(params.min_tokens = 11, "min_tokens");
    REFUSED(params.temperature = NAN, "temperature");
    REFUSED(params.temperature = -1, "temperature");
    REFUSED(params.top_p = 0, "top_p");
    REFUSED(params.top_p = INFINITY, "top_p");
    REFUSED(params.min_p = 2, "min_p");
    REFUSED(params.repetition_penalty = 0, "repetition_penalty");
    REFUSED(params.presence_penalty = NAN, "presence_penalty");
    REFUSED(params.logprobs = 22, "logprobs");
    REFUSED(params.stop_ids.len = 3; params.stop_ids.data = (uint8_t *)ids, "stop_ids");
    Penstock__Hello hello = PENSTOCK__HELLO__INIT;
    hello.worker_name = bytes("w");
    hello.epoch = 1;
    hello.model = bytes("m\x01");
    assert_int_equal(encode(WIRE_HELLO, &hello), OK);
    assert_int_equal(decode(buffer_view(&frame), &m), ERR_PROTO);
    assert_non_null(strstr(why.text, "model"));
    Penstock__Asset asset = PENSTOCK__ASSET__INIT;
    asset.hash = bytes("0123456789abcdef");
    asset.kind = 1;
    asset.total_bytes = 10;
    asset.offset = 8;
    asset.data = bytes("abc");
    assert_int_equal(encode(WIRE_ASSET, &asset), OK);
    assert_int_equal(decode(buffer_view(&frame), &m), ERR_PROTO);
    assert_false(wire_text_valid(SPAN_LIT("\xC3")));
    assert_false(wire_text_valid(SPAN_LIT("\xED\xA0\x80")));
    assert_true(wire_text_valid(SPAN_LIT("na\xC3\xAFve")));
}

static int setup(void **state)
{
    (void)state;
    budget = wire_budget_create();
    buffer_init(&frame, FRAME_BYTES_MAX);
    return budget == NULL;
}

static int teardown(void **state)
{
    (void)state;
    wire_budget_destroy(budget);
    buffer_deinit(&frame);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_submit_round_trips),       cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(any_payload_is_survived),    cmocka_unit_test(other_versions_are_named),
        cmocka_unit_test(memory_stays_in_its_budget), cmocka_unit_test(bounds_are_kept),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
