/* wire.h - frames: a header of ours, then one protobuf message of penstock.proto. Everything that
 * comes from the other side is checked here, so that what a decode hands out keeps every bound
 * below. Header, 16 bytes little-endian: magic "PSTK", version u16, type u16, payload bytes u32,
 * CRC-32C of the payload u32. Unpacking runs under a byte budget (8 x frame + 64 KiB): protobuf-c
 * could be made to allocate forty times the frame. */
#ifndef PENSTOCK_PROTO_WIRE_H
#define PENSTOCK_PROTO_WIRE_H

#include "common/buffer.h"

#include <protobuf-c/protobuf-c.h>

enum {
    WIRE_VERSION = 1,
    WIRE_VERSION_OLDEST = 1, /* one version back interoperates, once there is one */
    WIRE_HEADER_BYTES = 16,
    FRAME_BYTES_MAX = 16 << 20,
    ASSET_PART_BYTES_MAX = 1 << 20,
    ASSET_BYTES_MAX = 96 << 20,
    NAME_BYTES_MAX = 256,  /* names of workers, models, gateways, devices */
    TEXT_BYTES_MAX = 1024, /* sentences */
    ALIASES_MAX = 16,
    PORTS_MAX = 64,
    REQUESTS_A_FRAME_MAX = 1024,
    SEQUENCES_A_FRAME_MAX = 4096,
    PROMPT_TOKENS_MAX = 1 << 20,
    CHOICES_MAX = 16,
    STOP_IDS_MAX = 64,
    LOGIT_BIAS_MAX = 1024,
    TOP_LOGPROBS_MAX = 20,
    SALT_BYTES_MAX = 32,
};

enum wire_type {
    WIRE_HELLO = 1,
    WIRE_WELCOME,
    WIRE_ASSET_GET,
    WIRE_ASSET,
    WIRE_SUBMIT,
    WIRE_ACCEPTED,
    WIRE_TOKENS,
    WIRE_CANCEL,
    WIRE_REJECT,
    WIRE_DRAIN,
    WIRE_HEARTBEAT,
    WIRE_TYPE_END_,
};
const char *wire_type_name(enum wire_type type); /* "Hello" */

/* Appends one frame. message must be of type's kind (CHECK). ERR_LIMIT: over FRAME_BYTES_MAX or
 * out's own limit. */
enum err wire_encode(enum wire_type type, const ProtobufCMessage *message,
                     struct buffer *out) MUST_CHECK;

/* Memory of one decoded message, used over and over; one thread. */
struct wire_budget;
struct wire_budget *wire_budget_create(void); /* NULL: no memory */
void wire_budget_destroy(struct wire_budget *budget);
void wire_budget_reset(struct wire_budget *budget); /* what was decoded under it is gone */

/* *message lives in the budget until wire_budget_reset or the next decode. ERR_PROTO: not a frame,
 * damaged, or a field is out of its bounds (the sentence names it); ERR_LIMIT: too large, or over
 * the budget; ERR_UNSUPPORTED: another protocol version (the sentence holds both; *type is set, so
 * that a Hello can be answered). */
enum err wire_decode(struct span frame, struct wire_budget *budget, enum wire_type *type,
                     ProtobufCMessage **message, struct errmsg *why) MUST_CHECK;

/* Whether text is UTF-8 without control characters. */
bool wire_text_valid(struct span text);

#endif
