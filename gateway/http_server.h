/* http_server.h - the strict HTTP/1.1 server: listener, connections, deadlines, replies and
 * streams. A shell: it moves bytes and knows nothing of what is served. On libevent bufferevents;
 * with http_parser.[ch] (pure) the only files that know HTTP. One loop thread owns a server and
 * everything it hands out. Bounds: struct http_limits. What is malformed is answered in OpenAI's
 * error shape and the connection closes; what is well-formed reaches the handler whole (body
 * included). A connection serves pipelined requests in order, one at a time. */
#ifndef PENSTOCK_GATEWAY_HTTP_SERVER_H
#define PENSTOCK_GATEWAY_HTTP_SERVER_H

#include "common/buffer.h"

struct event_base;
struct http_server;
struct http_exchange; /* one request and its reply; valid from the handler's call until on_done */

enum http_method {
    HTTP_GET = 1,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_PUT,
    HTTP_DELETE,
    HTTP_OPTIONS,
    HTTP_PATCH,
    HTTP_OTHER
};

struct http_limits {
    uint32_t connections_max;    /* further ones wait in the kernel's backlog */
    uint32_t header_bytes_max;   /* request line and headers: 431 (414 for the line) */
    uint32_t headers_max;        /* 431 */
    uint64_t body_bytes_max;     /* 413 */
    uint32_t header_timeout_ms;  /* from the first byte to the end of the headers: 408 */
    uint32_t body_timeout_ms;    /* no body progress for so long: 408 */
    uint32_t idle_timeout_ms;    /* keep-alive without a request */
    uint32_t pipeline_bytes_max; /* read ahead of the request in service; more: reading stops */
    uint64_t write_buffer_max;   /* bytes queued for a slow reader; more, or no progress for
                                    write_timeout_ms: cut */
    uint32_t write_timeout_ms;
};
extern const struct http_limits http_limits_default;

struct http_handlers {
    void *arg;
    /* A whole request. The handler answers now, or keeps the exchange and answers later. */
    void (*on_request)(void *arg, struct http_exchange *x);
    /* Exactly once for each on_request, last of all: the reply went out (complete = true), or the
     * client left, stalled or the server closed before that (false) - at once when it happens,
     * whether the request waits, streams or not. x is gone after. */
    void (*on_done)(void *arg, struct http_exchange *x, bool complete);
};

/* address: "127.0.0.1:8080", "[::1]:8080", ":8080" (any). reuse_port for several loops. ERR_IO: the
 * sentence names address and cause ("address already in use"). */
enum err http_server_create(struct event_base *base, const char *address, bool reuse_port,
                            const struct http_limits *limits, const struct http_handlers *handlers,
                            struct http_server **out, struct errmsg *why) MUST_CHECK;
/* Stops accepting; requests in service go on, later replies carry Connection: close. */
void http_server_drain(struct http_server *s);
/* Closes everything; on_done(false) for each exchange that is open. */
void http_server_destroy(struct http_server *s);
uint32_t http_server_connections(const struct http_server *s);
uint16_t http_server_port(const struct http_server *s); /* the bound one (address may say port 0) */

/* ---- the request; all borrowed, valid until on_done ---- */
enum http_method http_method(const struct http_exchange *x);
struct span http_method_text(const struct http_exchange *x);
struct span http_path(const struct http_exchange *x);  /* raw, before '?'; compare exactly */
struct span http_query(const struct http_exchange *x); /* raw, behind '?' */
struct span http_header(const struct http_exchange *x, const char *lower_case_name); /* empty when
    absent; a repeated header that may not repeat was refused before */
bool http_has_header(const struct http_exchange *x, const char *lower_case_name);
struct span http_body(const struct http_exchange *x);
uint64_t http_received_ns(const struct http_exchange *x); /* the end of the body */
/* The handler's own pointer, kept with the exchange. */
void http_set_user(struct http_exchange *x, void *user);
void *http_user(const struct http_exchange *x);

/* ---- the reply ---- */
/* A header of the reply to come; name and value are copied, values with CR or LF CHECK. */
void http_reply_header(struct http_exchange *x, const char *name, struct span value);
/* The whole reply with Content-Length (and no body bytes for HEAD). Once per exchange. */
void http_reply(struct http_exchange *x, uint32_t status, const char *content_type,
                struct span body);
/* A streamed reply: chunked (HTTP/1.0 clients: until close). Then any number of writes, then end.
 */
void http_stream_begin(struct http_exchange *x, uint32_t status, const char *content_type);
/* Queues bytes: sent once per loop turn, however many writes came (one send per stream and step).
 */
void http_stream_write(struct http_exchange *x, struct span bytes);
/* Bytes that the client has not taken yet: the writer may hold back or merge what is behind. */
uint64_t http_stream_queued(const struct http_exchange *x);
/* The end with the last chunk. abort: the connection is cut without it, so that clients see a
 * broken reply. */
void http_stream_end(struct http_exchange *x, bool abort);
bool http_stream_begun(const struct http_exchange *x);

#endif
