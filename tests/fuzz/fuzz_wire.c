/* libFuzzer: frames. The bytes are taken as they are, and again as the payload of a frame with a
 * right header, of the type that the first byte names: what decodes must keep every bound. */
#include "common/hash.h"
#include "proto/penstock.pb-c.h"
#include "proto/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(struct wire_budget *budget, struct span frame)
{
    enum wire_type type;
    ProtobufCMessage *message = NULL;
    struct errmsg why = {""};
    if (wire_decode(frame, budget, &type, &message, &why) != OK) {
        CHECK(why.text[0] != '\0');
        return;
    }
    struct buffer again; /* what is good can be sent on */
    buffer_init(&again, FRAME_BYTES_MAX);
    enum err err = wire_encode(type, message, &again);
    CHECK(err == OK || err == ERR_LIMIT);
    if (type == WIRE_SUBMIT) {
        const Penstock__Submit *m = (const Penstock__Submit *)message;
        for (size_t i = 0; i < m->n_requests; i++)
            CHECK(m->requests[i]->params != NULL && m->requests[i]->prompt_ids.len % 4 == 0 &&
                  m->requests[i]->choice_count <= CHOICES_MAX);
    }
    buffer_deinit(&again);
    wire_budget_reset(budget);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wire_budget *budget;
    if (budget == NULL) budget = wire_budget_create();
    if (size == 0) return 0;
    decode(budget, span_of(data, size));
    struct buffer frame;
    uint8_t head[WIRE_HEADER_BYTES];
    buffer_init(&frame, FRAME_BYTES_MAX);
    struct span payload = span_of(data + 1, size - 1);
    memcpy(head, "PSTK", 4);
    store_le16(head + 4, WIRE_VERSION);
    store_le16(head + 6, (uint16_t)(1 + data[0] % (WIRE_TYPE_END_ - 1)));
    store_le32(head + 8, (uint32_t)payload.len);
    store_le32(head + 12, crc32c_of(payload));
    buffer_add(&frame, head, sizeof head);
    buffer_add_span(&frame, payload);
    decode(budget, buffer_view(&frame));
    buffer_deinit(&frame);
    return 0;
}
