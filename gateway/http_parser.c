#include "gateway/http_parser.h"

#include <strings.h>

static enum err fail(struct http_fault *fault, uint32_t status, const char *message)
{
    *fault = (struct http_fault){status, message};
    return ERR_PROTO;
}

const char *http_reason(uint32_t status)
{
    static const struct {
        uint32_t status;
        const char *reason;
    } known[] = {{100, "Continue"},
                 {200, "OK"},
                 {204, "No Content"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {409, "Conflict"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {417, "Expectation Failed"},
                 {422, "Unprocessable Content"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].status == status) return known[i].reason;
    return "Unknown";
}

/* RFC 9110 5.6.2 */
static bool is_token(uint8_t c)
{
    if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool all_tokens(struct span s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!is_token(s.ptr[i])) return false;
    return s.len > 0;
}

enum err http_head_scan(struct span in, const struct http_limits *limits, size_t *scanned,
                        size_t *head_len, struct http_fault *fault)
{
    size_t at = *scanned;
    bool line_seen = memchr(in.ptr, '\n', at) != NULL;
    for (; at < in.len; at++) {
        uint8_t c = in.ptr[at];
        if (at >= limits->header_bytes_max)
            return line_seen ? fail(fault, 431, "the headers are too large")
                             : fail(fault, 414, "the request line is too long");
        if (c == '\n') {
            if (at == 0 || in.ptr[at - 1] != '\r')
                return fail(fault, 400, "a line ends without CR LF");
            line_seen = true;
            if (at >= 3 && in.ptr[at - 2] == '\n') {
                *head_len = at + 1;
                return OK;
            }
        } else if (at > 0 && in.ptr[at - 1] == '\r') {
            return fail(fault, 400, "a CR stands without LF");
        } else if (c != '\r' && c != '\t' && (c < 0x20 || c == 0x7f)) {
            return fail(fault, 400, "a control character in the request head");
        }
    }
    *scanned = at;
    return ERR_AGAIN;
}

/* The next line without its CR LF; rest moves behind it. */
static struct span next_line(struct span *rest)
{
    const uint8_t *end = memchr(rest->ptr, '\n', rest->len);
    CHECK(end != NULL && end > rest->ptr); /* http_head_scan saw it */
    struct span line = span_of(rest->ptr, (size_t)(end - rest->ptr) - 1);
    *rest = span_from(*rest, line.len + 2);
    return line;
}

static enum http_method method_of(struct span text)
{
    static const struct {
        const char *name;
        enum http_method method;
    } known[] = {{"GET", HTTP_GET},    {"HEAD", HTTP_HEAD},     {"POST", HTTP_POST},
                 {"PUT", HTTP_PUT},    {"DELETE", HTTP_DELETE}, {"OPTIONS", HTTP_OPTIONS},
                 {"PATCH", HTTP_PATCH}};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (span_eq_str(text, known[i].name)) return known[i].method;
    return HTTP_OTHER;
}

static enum err parse_request_line(struct span line, const struct http_limits *limits,
                                   struct http_head *out, struct http_fault *fault)
{
    const uint8_t *first = memchr(line.ptr, ' ', line.len);
    if (first == NULL) return fail(fault, 400, "the request line is malformed");
    out->method_text = span_of(line.ptr, (size_t)(first - line.ptr));
    struct span rest = span_from(line, out->method_text.len + 1);
    const uint8_t *second = memchr(rest.ptr, ' ', rest.len);
    if (second == NULL || !all_tokens(out->method_text))
        return fail(fault, 400, "the request line is malformed");
    struct span target = span_of(rest.ptr, (size_t)(second - rest.ptr));
    struct span version = span_from(rest, target.len + 1);
    if (version.len != 8 || memcmp(version.ptr, "HTTP/", 5) != 0)
        return fail(fault, 400, "the request line is malformed");
    if (span_eq_str(version, "HTTP/1.0"))
        out->http_1_0 = true;
    else if (!span_eq_str(version, "HTTP/1.1"))
        return fail(fault, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    if (target.len > limits->header_bytes_max / 4)
        return fail(fault, 414, "the request target is too long");
    out->method = method_of(out->method_text);
    if (target.len == 1 && target.ptr[0] == '*' && out->method == HTTP_OPTIONS) {
        out->path = target;
        return OK;
    }
    if (target.len == 0 || target.ptr[0] != '/')
        return fail(fault, 400, "the request target must be a path");
    for (size_t i = 0; i < target.len; i++)
        if (target.ptr[i] <= 0x20 || target.ptr[i] >= 0x7f || target.ptr[i] == '#')
            return fail(fault, 400, "the request target holds a character that must be escaped");
    const uint8_t *mark = memchr(target.ptr, '?', target.len);
    size_t path_len = mark != NULL ? (size_t)(mark - target.ptr) : target.len;
    out->path = span_of(target.ptr, path_len);
    out->query = span_from(target, path_len + 1);
    return OK;
}

static bool name_is(struct span name, const char *lower)
{
    return name.len == strlen(lower) && strncasecmp((const char *)name.ptr, lower, name.len) == 0;
}

/* Fields whose repetition means that somebody reads the request in another way than we do. */
static const char *const single_fields[] = {"host",          "content-length", "transfer-encoding",
                                            "authorization", "content-type",   "content-encoding",
                                            "expect",        "x-request-id"};

static enum err parse_field(struct span line, const struct http_limits *limits,
                            struct http_head *out, struct http_fault *fault)
{
    if (line.ptr[0] == ' ' || line.ptr[0] == '\t') return fail(fault, 400, "a folded header line");
    const uint8_t *colon = memchr(line.ptr, ':', line.len);
    if (colon == NULL) return fail(fault, 400, "a header line without a colon");
    struct span name = span_of(line.ptr, (size_t)(colon - line.ptr));
    if (!all_tokens(name)) return fail(fault, 400, "a header name is malformed");
    struct span value = span_from(line, name.len + 1);
    while (value.len > 0 && (value.ptr[0] == ' ' || value.ptr[0] == '\t'))
        value = span_from(value, 1);
    while (value.len > 0 && (value.ptr[value.len - 1] == ' ' || value.ptr[value.len - 1] == '\t'))
        value.len--;
    for (size_t i = 0; i < ARRAY_LEN(single_fields); i++)
        if (name_is(name, single_fields[i]) && http_head_field(out, single_fields[i]).ptr != NULL)
            return fail(fault, 400, "a header that may not repeat is repeated");
    if (out->field_count == limits->headers_max || out->field_count == HTTP_HEADERS_MAX)
        return fail(fault, 431, "too many headers");
    if (value.len == 0) value = span_of("", 0);
    out->fields[out->field_count++] = (struct http_field){name, value};
    return OK;
}

struct span http_head_field(const struct http_head *head, const char *lower_case_name)
{
    for (uint32_t i = 0; i < head->field_count; i++)
        if (name_is(head->fields[i].name, lower_case_name)) return head->fields[i].value;
    return span_of(NULL, 0);
}

/* Whether a comma-separated list holds a word, whatever its case. */
static bool list_has(struct span list, const char *word)
{
    for (size_t at = 0; at < list.len;) {
        size_t end = at;
        while (end < list.len && list.ptr[end] != ',')
            end++;
        struct span item = span_of(list.ptr + at, end - at);
        while (item.len > 0 && (item.ptr[0] == ' ' || item.ptr[0] == '\t'))
            item = span_from(item, 1);
        while (item.len > 0 && (item.ptr[item.len - 1] == ' ' || item.ptr[item.len - 1] == '\t'))
            item.len--;
        if (name_is(item, word)) return true;
        at = end + 1;
    }
    return false;
}

static enum err parse_length(struct span text, const struct http_limits *limits,
                             struct http_head *out, struct http_fault *fault)
{
    if (text.len == 0) return fail(fault, 400, "Content-Length is empty");
    uint64_t value = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return fail(fault, 400, "Content-Length is no number");
        if (value > UINT64_MAX / 10 - 10) return fail(fault, 413, "the body is too large");
        value = value * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    if (value > limits->body_bytes_max) return fail(fault, 413, "the body is too large");
    out->has_length = true;
    out->content_length = value;
    return OK;
}

static enum err parse_framing(const struct http_limits *limits, struct http_head *out,
                              struct http_fault *fault)
{
    struct span host = http_head_field(out, "host"),
                length = http_head_field(out, "content-length");
    struct span coding = http_head_field(out, "transfer-encoding"),
                expect = http_head_field(out, "expect");
    if (host.ptr == NULL && !out->http_1_0) return fail(fault, 400, "the Host header is missing");
    for (size_t i = 0; i < host.len; i++)
        if (host.ptr[i] <= 0x20 || host.ptr[i] >= 0x7f || strchr("/?#@,\\", host.ptr[i]) != NULL)
            return fail(fault, 400, "the Host header is malformed");
    if (coding.ptr != NULL) {
        if (length.ptr != NULL)
            return fail(fault, 400, "Content-Length and Transfer-Encoding in one request");
        if (out->http_1_0) return fail(fault, 400, "Transfer-Encoding in an HTTP/1.0 request");
        if (!name_is(coding, "chunked"))
            return fail(fault, 501, "the only transfer coding known here is chunked");
        out->chunked = true;
    }
    if (length.ptr != NULL) {
        enum err err = parse_length(length, limits, out, fault);
        if (err != OK) return err;
    }
    struct span connection = http_head_field(out, "connection");
    out->keep_alive =
        out->http_1_0 ? list_has(connection, "keep-alive") : !list_has(connection, "close");
    if (expect.ptr != NULL) {
        if (!name_is(expect, "100-continue"))
            return fail(fault, 417, "only Expect: 100-continue is known here");
        out->expect_continue = !out->http_1_0;
    }
    return OK;
}

enum err http_head_parse(struct span head, const struct http_limits *limits, struct http_head *out,
                         struct http_fault *fault)
{
    *out = (struct http_head){0};
    struct span rest = head;
    enum err err = parse_request_line(next_line(&rest), limits, out, fault);
    while (err == OK) {
        struct span line = next_line(&rest);
        if (line.len == 0) break;
        err = parse_field(line, limits, out, fault);
    }
    return err == OK ? parse_framing(limits, out, fault) : err;
}

/* ---- chunked bodies: size line, CR LF, data, CR LF, ..., 0, CR LF, trailers, CR LF ---- */
enum {
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER,
    CHUNK_TRAILER_LF,
    CHUNK_DONE
};

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* One byte of the size line. */
static enum err size_byte(struct http_chunks *c, uint8_t byte, uint64_t body_bytes_max,
                          struct http_fault *fault)
{
    if (++c->line_bytes > HTTP_CHUNK_LINE_MAX)
        return fail(fault, 400, "a chunk's size line is too long");
    if (byte == '\r') {
        if (!c->digits) return fail(fault, 400, "a chunk without a size");
        c->state = CHUNK_SIZE_LF;
        return OK;
    }
    if (c->state == CHUNK_EXTENSION)
        return byte == '\n' || byte == 0 ? fail(fault, 400, "a chunk's size line is malformed")
                                         : OK;
    int digit = hex_value(byte);
    if (digit >= 0) {
        if (c->left > body_bytes_max / 16 + 1) return fail(fault, 413, "the body is too large");
        c->left = c->left * 16 + (uint64_t)digit;
        c->digits = true;
        return OK;
    }
    if ((byte == ';' || byte == ' ' || byte == '\t') && c->digits) {
        c->state = CHUNK_EXTENSION;
        return OK;
    }
    return fail(fault, 400, "a chunk's size is malformed");
}

static enum err size_end(struct http_chunks *c, uint8_t byte, uint64_t body_bytes_max,
                         struct http_fault *fault)
{
    if (byte != '\n') return fail(fault, 400, "a CR stands without LF");
    c->line_bytes = 0;
    c->digits = false;
    c->line_empty = true;
    if (c->left > body_bytes_max - c->total) return fail(fault, 413, "the body is too large");
    c->state = c->left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
    return OK;
}

/* Trailers are read over: nothing here uses them. */
static enum err trailer_byte(struct http_chunks *c, uint8_t byte, struct http_fault *fault)
{
    if (++c->line_bytes > HTTP_TRAILER_BYTES_MAX)
        return fail(fault, 400, "the trailers are too large");
    if (c->state == CHUNK_TRAILER_LF) {
        if (byte != '\n') return fail(fault, 400, "a CR stands without LF");
        c->state = c->line_empty ? CHUNK_DONE : CHUNK_TRAILER;
        c->line_empty = true;
    } else if (byte == '\r') {
        c->state = CHUNK_TRAILER_LF;
    } else if (byte == '\n' || byte == 0) {
        return fail(fault, 400, "a trailer is malformed");
    } else {
        c->line_empty = false;
    }
    return OK;
}

static enum err frame_byte(struct http_chunks *c, uint8_t byte, uint64_t body_bytes_max,
                           struct http_fault *fault)
{
    switch (c->state) {
    case CHUNK_SIZE:
    case CHUNK_EXTENSION: return size_byte(c, byte, body_bytes_max, fault);
    case CHUNK_SIZE_LF: return size_end(c, byte, body_bytes_max, fault);
    case CHUNK_DATA_CR:
        if (byte != '\r') return fail(fault, 400, "a chunk does not end where its size says");
        c->state = CHUNK_DATA_LF;
        return OK;
    case CHUNK_DATA_LF:
        if (byte != '\n') return fail(fault, 400, "a chunk does not end where its size says");
        c->state = CHUNK_SIZE;
        return OK;
    default: return trailer_byte(c, byte, fault);
    }
}

enum err http_chunks_next(struct http_chunks *c, struct span in, uint64_t body_bytes_max,
                          struct span *data, size_t *used, struct http_fault *fault)
{
    *data = span_of(NULL, 0);
    *used = 0;
    while (*used < in.len && c->state != CHUNK_DONE) {
        if (c->state == CHUNK_DATA) {
            struct span rest = span_from(in, *used);
            size_t n = rest.len < c->left ? rest.len : (size_t)c->left;
            *data = span_of(rest.ptr, n);
            *used += n;
            c->left -= n;
            c->total += n;
            if (c->left == 0) c->state = CHUNK_DATA_CR;
            return ERR_AGAIN;
        }
        enum err err = frame_byte(c, in.ptr[(*used)++], body_bytes_max, fault);
        if (err != OK) return err;
    }
    return c->state == CHUNK_DONE ? OK : ERR_AGAIN;
}
