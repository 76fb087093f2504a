#include "proto/wire.h"

#include "common/hash.h"
#include "proto/wire_check.h"

#include <stdlib.h>

#define WIRE_MAGIC 0x4B545350u /* "PSTK" */

const char *wire_type_name(enum wire_type type)
{
    const ProtobufCMessageDescriptor *d = wire_descriptor(type);
    return d != NULL ? d->short_name : "unknown";
}

enum err wire_encode(enum wire_type type, const ProtobufCMessage *message, struct buffer *out)
{
    CHECK(message->descriptor == wire_descriptor(type));
    size_t size = protobuf_c_message_get_packed_size(message);
    if (size > FRAME_BYTES_MAX - WIRE_HEADER_BYTES) return ERR_LIMIT;
    enum err err = buffer_reserve(out, WIRE_HEADER_BYTES + size);
    if (err != OK) return err;
    uint8_t *head = out->ptr + out->len, *payload = head + WIRE_HEADER_BYTES;
    CHECK(protobuf_c_message_pack(message, payload) == size);
    store_le32(head, WIRE_MAGIC);
    store_le16(head + 4, WIRE_VERSION);
    store_le16(head + 6, (uint16_t)type);
    store_le32(head + 8, (uint32_t)size);
    store_le32(head + 12, crc32c_of(span_of(payload, size)));
    out->len += WIRE_HEADER_BYTES + size;
    return OK;
}

/* ---- the budget: a bump allocator; nothing is freed singly ---- */

enum { BUDGET_FIRST_BYTES = 256 << 10, BUDGET_FACTOR = 8, BUDGET_SLACK_BYTES = 64 << 10 };

struct wire_budget {
    ProtobufCAllocator allocator;
    uint8_t *block;
    size_t cap, used, allowed;
};

static void *budget_alloc(void *data, size_t size)
{
    struct wire_budget *b = data;
    size = (size + 15) & ~(size_t)15;
    if (size > b->allowed - b->used || b->allowed < b->used) return NULL;
    void *ptr = b->block + b->used;
    b->used += size;
    return ptr;
}

static void budget_free(void *data, void *ptr)
{
    (void)data;
    (void)ptr;
}

struct wire_budget *wire_budget_create(void)
{
    struct wire_budget *b = calloc(1, sizeof *b);
    if (b == NULL) return NULL;
    b->allocator = (ProtobufCAllocator){budget_alloc, budget_free, b};
    return b;
}

void wire_budget_destroy(struct wire_budget *budget)
{
    if (budget == NULL) return;
    free(budget->block);
    free(budget);
}

void wire_budget_reset(struct wire_budget *budget)
{
    budget->used = budget->allowed = 0;
    if (budget->cap >
        4 * (size_t)BUDGET_FIRST_BYTES) { /* one huge frame should not be paid for ever */
        free(budget->block);
        budget->block = NULL;
        budget->cap = 0;
    }
}

static enum err budget_prepare(struct wire_budget *b, size_t frame_bytes)
{
    size_t want = BUDGET_FACTOR * frame_bytes + BUDGET_SLACK_BYTES;
    b->used = 0;
    if (want > b->cap) {
        size_t cap = want > BUDGET_FIRST_BYTES ? want : BUDGET_FIRST_BYTES;
        free(b->block);
        b->block = aligned_alloc(16, (cap + 15) & ~(size_t)15);
        b->cap = b->block != NULL ? cap : 0;
        if (b->block == NULL) return ERR_NOMEM;
    }
    b->allowed = want;
    return OK;
}

/* ---- decoding ---- */

static enum err check_header(struct span frame, enum wire_type *type, struct errmsg *why)
{
    if (frame.len < WIRE_HEADER_BYTES)
        return errmsg_set(why, ERR_PROTO, "a frame of %zu bytes; the header alone takes %d",
                          frame.len, WIRE_HEADER_BYTES);
    if (frame.len > FRAME_BYTES_MAX)
        return errmsg_set(why, ERR_LIMIT, "a frame of %zu bytes; at most %d are taken", frame.len,
                          FRAME_BYTES_MAX);
    if (load_le32(frame.ptr) != WIRE_MAGIC)
        return errmsg_set(why, ERR_PROTO, "a frame that does not begin with PSTK");
    uint16_t version = load_le16(frame.ptr + 4);
    *type = (enum wire_type)load_le16(frame.ptr + 6);
    if (version > WIRE_VERSION || version < WIRE_VERSION_OLDEST)
        return errmsg_set(
            why, ERR_UNSUPPORTED,
            "protocol version %u was received; version %d is spoken here: upgrade the older side",
            version, WIRE_VERSION);
    size_t payload = frame.len - WIRE_HEADER_BYTES;
    if (load_le32(frame.ptr + 8) != payload)
        return errmsg_set(why, ERR_PROTO,
                          "a frame whose header says %u payload bytes and that has %zu",
                          load_le32(frame.ptr + 8), payload);
    if (load_le32(frame.ptr + 12) != crc32c_of(span_from(frame, WIRE_HEADER_BYTES)))
        return errmsg_set(why, ERR_PROTO, "a frame with a wrong checksum");
    if (wire_descriptor(*type) == NULL)
        return errmsg_set(why, ERR_PROTO, "a frame of unknown type %d", (int)*type);
    return OK;
}

enum err wire_decode(struct span frame, struct wire_budget *budget, enum wire_type *type,
                     ProtobufCMessage **message, struct errmsg *why)
{
    enum err err = check_header(frame, type, why);
    if (err != OK) return err;
    struct span payload = span_from(frame, WIRE_HEADER_BYTES);
    if (budget_prepare(budget, frame.len) != OK)
        return errmsg_set(why, ERR_NOMEM, "no memory to decode a frame of %zu bytes", frame.len);
    ProtobufCMessage *m = protobuf_c_message_unpack(wire_descriptor(*type), &budget->allocator,
                                                    payload.len, payload.ptr);
    if (m == NULL) {
        bool spent = budget->allowed - budget->used < 4096;
        return errmsg_set(why, spent ? ERR_LIMIT : ERR_PROTO, "a %s message that %s",
                          wire_type_name(*type),
                          spent ? "takes more memory than its size allows" : "cannot be decoded");
    }
    const char *field = wire_check(*type, m);
    if (field != NULL)
        return errmsg_set(why, ERR_PROTO, "a %s message whose field %s is out of bounds",
                          wire_type_name(*type), field);
    *message = m;
    return OK;
}
