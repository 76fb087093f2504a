/* wire_check.h - the bounds of every message, one function each, found by type. Internal to proto/.
 */
#ifndef PENSTOCK_PROTO_WIRE_CHECK_H
#define PENSTOCK_PROTO_WIRE_CHECK_H

#include "proto/wire.h"

/* NULL: good. Else the name of the field that is out of bounds, static. */
const char *wire_check(enum wire_type type, const ProtobufCMessage *message);
const ProtobufCMessageDescriptor *wire_descriptor(enum wire_type type); /* NULL: no such type */

#endif
