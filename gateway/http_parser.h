/* http_parser.h - HTTP/1.1 request heads and chunked bodies, strictly (RFC 9112), without
 * allocation or I/O. Pure. What parsers differ on is refused: bare CR or LF, blanks before a colon,
 * folded lines, doubtful or doubled framing headers. A fault closes the connection, so that what
 * follows it is never taken for a request. */
#ifndef PENSTOCK_GATEWAY_HTTP_PARSER_H
#define PENSTOCK_GATEWAY_HTTP_PARSER_H

#include "common/err.h"
#include "common/span.h"
#include "gateway/http_server.h"

enum { HTTP_HEADERS_MAX = 128, HTTP_TRAILER_BYTES_MAX = 8192, HTTP_CHUNK_LINE_MAX = 256 };

struct http_fault { /* what the client is told */
    uint32_t status;
    const char *message; /* static */
};

struct http_field {
    struct span name;  /* as sent */
    struct span value; /* without blanks around it */
};

struct http_head { /* borrows from the bytes it was parsed from */
    enum http_method method;
    struct span method_text, path, query;
    bool http_1_0;
    bool keep_alive; /* as version and Connection say */
    bool chunked, has_length, expect_continue;
    uint64_t content_length;
    uint32_t field_count;
    struct http_field fields[HTTP_HEADERS_MAX];
};

/* Looks for the end of the head in in[0, len), going on from *scanned (0 at first), and refuses
 * what no head may hold. OK: *head_len bytes hold it, blank line included. ERR_AGAIN: not whole
 * yet. ERR_PROTO: fault is filled. */
enum err http_head_scan(struct span in, const struct http_limits *limits, size_t *scanned,
                        size_t *head_len, struct http_fault *fault) MUST_CHECK;
/* head: what http_head_scan found. ERR_PROTO: fault is filled. */
enum err http_head_parse(struct span head, const struct http_limits *limits, struct http_head *out,
                         struct http_fault *fault) MUST_CHECK;
/* Value of a field by its lower-case name; ptr NULL when absent. */
struct span http_head_field(const struct http_head *head, const char *lower_case_name);

/* ---- chunked bodies ---- */
struct http_chunks {
    uint8_t state;
    uint64_t left;       /* bytes of the current chunk still to come */
    uint64_t total;      /* body bytes so far */
    uint32_t line_bytes; /* of the current size line or of all trailers */
    bool digits;         /* the size line has at least one */
    bool line_empty;     /* the trailer line so far */
};
/* Consumes from in; *data borrows the next run of body bytes (maybe empty), *used bytes of in are
 * done with. Call again while *used > 0. OK: the body is whole (last chunk and trailers seen).
 * ERR_AGAIN: more bytes are needed. ERR_PROTO: fault. */
enum err http_chunks_next(struct http_chunks *c, struct span in, uint64_t body_bytes_max,
                          struct span *data, size_t *used, struct http_fault *fault) MUST_CHECK;

const char *http_reason(uint32_t status);

#endif
