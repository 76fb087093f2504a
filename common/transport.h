/* transport.h - frames between gateways and workers over ZeroMQ, without blocking. The one door to
 * libzmq. A gateway binds a ROUTER, a worker connects one DEALER per gateway. A frame is one
 * message part [routing id][payload]; the payload is proto/wire.h's business. A successful send is
 * no delivery: the protocol acknowledges. Set on every socket: LINGER, small HWM, MAXMSGSIZE,
 * IMMEDIATE (dealer), ROUTER_MANDATORY, heartbeats. One thread per transport. Its fd is
 * edge-triggered: after it turns readable, and after each batch of sends, call transport_recv until
 * ERR_AGAIN (or the budget is spent, and then come again without waiting for the fd). */
#ifndef PENSTOCK_COMMON_TRANSPORT_H
#define PENSTOCK_COMMON_TRANSPORT_H

#include "common/buffer.h"

enum { TRANSPORT_ID_BYTES = 16, TRANSPORT_HWM = 64 };

struct transport_peer { /* random per boot of the peer: never reused */
    uint8_t id[TRANSPORT_ID_BYTES];
};

struct transport;

/* address: "tcp://127.0.0.1:5570". frame_bytes_max: larger frames are refused on both sides.
 * ERR_INVALID (bad address), ERR_IO (busy port: the sentence names it). */
enum err transport_bind(const char *address, uint32_t frame_bytes_max, struct transport **out,
                        struct errmsg *why) MUST_CHECK;
/* Returns at once; the connection is made and made again in the background. A random id is drawn
 * for this socket. */
enum err transport_connect(const char *address, uint32_t frame_bytes_max, struct transport **out,
                           struct errmsg *why) MUST_CHECK;
void transport_destroy(struct transport *t, uint32_t linger_ms);

int transport_fd(const struct transport *t); /* to poll for reading */
/* payload borrowed until the next call. peer is filled on a bound transport, cleared on a connected
 * one. ERR_AGAIN: nothing. ERR_PROTO: a message of another shape was dropped (count it and go on).
 */
enum err transport_recv(struct transport *t, struct transport_peer *peer,
                        struct span *payload) MUST_CHECK;
/* ERR_AGAIN: the peer's window is full or it is not connected; ERR_NOT_FOUND: no such peer;
 * ERR_LIMIT: too large. peer is ignored on a connected transport (may be NULL). The payload is
 * copied. */
enum err transport_send(struct transport *t, const struct transport_peer *peer,
                        struct span payload) MUST_CHECK;

#endif
