/* libFuzzer: request heads and chunked bodies. The first byte says how the rest is cut into pieces.
 */
#include "gateway/http_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    size_t piece = data[0] + 1u, scanned = 0, head_len = 0;
    struct span all = span_of(data + 1, size - 1);
    struct http_fault fault;
    static struct http_head head;
    enum err err = ERR_AGAIN;
    for (size_t n = 0; n < all.len && err == ERR_AGAIN;) {
        n = n + piece < all.len ? n + piece : all.len;
        err =
            http_head_scan(span_of(all.ptr, n), &http_limits_default, &scanned, &head_len, &fault);
    }
    if (err == OK)
        err = http_head_parse(span_of(all.ptr, head_len), &http_limits_default, &head, &fault);
    if (err == ERR_PROTO) CHECK(fault.status >= 400 && fault.message != NULL);
    struct http_chunks chunks = {0};
    uint64_t total = 0;
    for (size_t at = err == OK ? head_len : 0; at < all.len;) {
        size_t n = all.len - at < piece ? all.len - at : piece, used;
        struct span body;
        err = http_chunks_next(&chunks, span_of(all.ptr + at, n), 4096, &body, &used, &fault);
        CHECK(used <= n && body.len <= used);
        total += body.len;
        at += used;
        if (err != ERR_AGAIN || used == 0) break;
    }
    CHECK(total <= 4096);
    return 0;
}
