#include "gateway/stream.h"

#include <stdlib.h>

/* Grows an array of items to hold one more. */
static bool grow(void **ptr, uint32_t *cap, uint32_t count, size_t item_bytes)
{
    if (count < *cap) return true;
    uint32_t more = *cap ? 2 * *cap : 64;
    void *bigger = realloc(*ptr, more * item_bytes);
    if (bigger == NULL) return false;
    *ptr = bigger;
    *cap = more;
    return true;
}

/* The first place at or behind from where a stop string begins; SIZE_MAX. */
static size_t find_stop(struct span text, size_t from, const struct request_params *p)
{
    size_t best = SIZE_MAX;
    for (uint32_t i = 0; i < p->stop_count; i++) {
        struct span rest = span_from(text, from);
        if (rest.len < p->stops[i].len) continue;
        const uint8_t *at = memmem(rest.ptr, rest.len, p->stops[i].ptr, p->stops[i].len);
        if (at != NULL && (size_t)(at - text.ptr) < best) best = (size_t)(at - text.ptr);
    }
    return best;
}

/* Where the longest end of text, not before from, begins that is the beginning of a stop string. */
static size_t held_from(struct span text, size_t from, const struct request_params *p)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < p->stop_count; i++) {
        size_t room = text.len - from;
        size_t most = p->stops[i].len - 1 < room ? p->stops[i].len - 1 : room;
        for (size_t n = most; n > longest; n--)
            if (memcmp(text.ptr + text.len - n, p->stops[i].ptr, n) == 0) {
                longest = n;
                break;
            }
    }
    return text.len - longest;
}

/* Text grew. A stop string may begin before what is new, but not before what was held back. */
static bool scan(struct choice *c, const struct request_params *p)
{
    struct span text = buffer_view(&c->text);
    if (p->stop_count == 0) {
        c->held_from = text.len;
        return false;
    }
    size_t stop = find_stop(text, c->held_from, p);
    if (stop == SIZE_MAX) {
        c->held_from = held_from(text, c->text_from, p);
        return false;
    }
    c->text.len = c->held_from = stop;
    return true;
}

/* Bytes that begin a code point. */
static uint32_t count_chars(struct span text)
{
    uint32_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += (text.ptr[i] & 0xC0) != 0x80;
    return n;
}

/* Where the text of a token with logprobs begins. */
static size_t begin_of(const struct choice *c, uint32_t i)
{
    return i > 0 ? c->logprobs[i - 1].end : c->text_from;
}

enum stream_step stream_take(struct choice *c, const struct request_params *params, uint32_t index,
                             uint32_t id, const struct token_logprob *logprob)
{
    if (c->finish != FINISH_RUNNING || index < c->id_count) return STREAM_OLD;
    if (index > c->id_count) return STREAM_GAP;
    if (!grow((void **)&c->ids, &c->id_cap, c->id_count, sizeof *c->ids)) return STREAM_NO_MEMORY;
    if (logprob != NULL &&
        !grow((void **)&c->logprobs, &c->logprob_cap, c->logprob_count, sizeof *c->logprobs))
        return STREAM_NO_MEMORY;
    c->ids[c->id_count++] = id;
    size_t before = c->text.len;
    detokenizer_push(&c->detok, id, &c->text);
    if (buffer_status(&c->text) != OK) return STREAM_NO_MEMORY;
    bool stopped = scan(c, params);
    if (logprob != NULL && c->text.len >= before) {
        struct token_logprob *kept = &c->logprobs[c->logprob_count++];
        *kept = *logprob;
        c->chars += count_chars(span_from(buffer_view(&c->text), before));
        kept->end_chars = c->chars;
        kept->end = c->text.len;
    }
    if (!stopped) return STREAM_MORE;
    while (c->logprob_count > c->logprob_sent && begin_of(c, c->logprob_count - 1) >= c->text.len)
        c->logprob_count--; /* tokens that lie wholly behind the cut go with it */
    c->finish = FINISH_STOP;
    return STREAM_ENDED;
}

void stream_finish(struct choice *c, enum finish finish)
{
    if (c->finish != FINISH_RUNNING) return;
    detokenizer_flush(&c->detok, &c->text);
    c->held_from = c->text.len;
    c->finish = finish;
}

struct span stream_ready(const struct choice *c)
{
    return span_of(c->text.ptr + c->sent, c->held_from > c->sent ? c->held_from - c->sent : 0);
}

uint32_t stream_ready_logprobs(const struct choice *c)
{
    if (c->finish != FINISH_RUNNING) return c->logprob_count;
    uint32_t n = c->logprob_sent;
    while (n < c->logprob_count && c->logprobs[n].end <= c->held_from)
        n++;
    return n;
}

void stream_mark_sent(struct choice *c)
{
    c->logprob_sent = stream_ready_logprobs(c);
    if (c->held_from > c->sent) c->sent = c->held_from;
}
