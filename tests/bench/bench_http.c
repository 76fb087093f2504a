/* bench_http - a load generator that costs little: N streams of /v1/completions over loopback, one
 * epoll loop, and what users feel. It reads only as much of HTTP as it needs: chunk framing is
 * skipped by looking for "data: " lines. Tokens are counted by the usage event of each stream;
 * token times by its events. Prints one JSON object.
 *
 *   bench_http --http 127.0.0.1:8080 --model NAME [--streams 32] [--requests 64] [--prompt 64]
 * [--tokens 128] [--ttft] */
#include "common/clock.h"
#include "common/config.h"
#include "common/json.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STREAMS_MAX = 4096, BUFFER_BYTES = 1 << 20 };

struct stream {
    int fd;
    char *buf; /* unread bytes, from the last line's start */
    size_t len;
    uint64_t start_ns, first_ns, last_ns;
    uint32_t events, tokens;
};

struct load {
    const char *http, *model;
    uint32_t streams, requests, prompt, tokens, vocab;
    bool ttft;
    struct sockaddr_in address;
    int epoll;
    struct stream *all;
    uint32_t started, ended, failed, decoding; /* decoding: streams past their first token */
    double *ttft_s, *tpot_s;
    uint64_t total_tokens, first_ns, last_ns;
    uint64_t full_from_ns, full_to_ns,
        full_tokens; /* while all streams decoded: the steady state */
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_http: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Different prompts for different seeds, so that no prefix is shared unless the seed is. */
static size_t make_request(const struct load *l, uint32_t seed, char *out, size_t out_bytes)
{
    struct buffer body;
    buffer_init(&body, 1 << 20);
    buffer_printf(&body,
                  "{\"model\":\"%s\",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
                  "\"ignore_eos\":true,\"temperature\":0,\"max_tokens\":%u,\"prompt\":[",
                  l->model, l->tokens);
    uint32_t state = seed * 2654435761u + 1;
    for (uint32_t i = 0; i < l->prompt; i++) {
        state = state * 1664525u + 1013904223u;
        buffer_printf(&body, "%s%u", i ? "," : "", 1000 + (state >> 8) % l->vocab);
    }
    buffer_add_str(&body, "]}");
    int n = snprintf(out, out_bytes,
                     "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: "
                     "application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%.*s",
                     body.len, (int)body.len, (const char *)body.ptr);
    buffer_deinit(&body);
    return (size_t)n;
}

static void open_stream(struct load *l, struct stream *s, uint32_t seed)
{
    static char request[1 << 20];
    size_t n = make_request(l, seed, request, sizeof request);
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (s->fd < 0 || connect(s->fd, (struct sockaddr *)&l->address, sizeof l->address) != 0)
        fail(l->http);
    s->start_ns = clock_now_ns();
    s->first_ns = s->last_ns = 0;
    s->events = s->tokens = 0;
    s->len = 0;
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(s->fd, request + at, n - at, MSG_NOSIGNAL);
        if (sent <= 0) fail("send");
        at += (size_t)sent;
    }
    (void)fcntl(s->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, s->fd, &e) != 0) fail("epoll");
    l->started++;
    if (l->first_ns == 0) l->first_ns = s->start_ns;
}

static void on_line(struct load *l, struct stream *s, const char *line, uint64_t now_ns)
{
    if (strncmp(line, "data: {", 7) != 0) return;
    const char *usage = strstr(line, "\"completion_tokens\":");
    if (usage != NULL) {
        s->tokens = (uint32_t)strtoul(usage + 20, NULL, 10);
        return;
    }
    if (strstr(line, "\"error\"") != NULL) fprintf(stderr, "bench_http: %s\n", line);
    if (strstr(line, "\"finish_reason\":null") == NULL) return;
    s->events++;
    if (s->first_ns == 0) {
        s->first_ns = now_ns;
        l->decoding++;
    }
    s->last_ns = now_ns;
    if (l->decoding == l->streams) { /* prefill is over, and none has ended */
        if (l->full_from_ns == 0) l->full_from_ns = now_ns;
        l->full_to_ns = now_ns;
        l->full_tokens++;
    }
}

/* False: the stream is over. */
static bool read_stream(struct load *l, struct stream *s)
{
    ssize_t n = recv(s->fd, s->buf + s->len, BUFFER_BYTES - 1 - s->len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    uint64_t now_ns = clock_now_ns();
    s->len += (size_t)n;
    s->buf[s->len] = '\0';
    char *line = s->buf;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        on_line(l, s, line, now_ns);
    }
    s->len -= (size_t)(line - s->buf);
    memmove(s->buf, line, s->len);
    return true;
}

static void end_stream(struct load *l, struct stream *s)
{
    close(s->fd);
    l->failed += s->tokens != l->tokens;
    l->ttft_s[l->ended] = s->first_ns > s->start_ns ? (double)(s->first_ns - s->start_ns) / 1e9 : 0;
    l->tpot_s[l->ended] =
        s->tokens > 1 ? (double)(s->last_ns - s->first_ns) / 1e9 / (s->tokens - 1) : 0;
    l->total_tokens += s->tokens;
    l->last_ns = clock_now_ns();
    l->ended++;
    l->decoding--;
}

static void run(struct load *l, uint32_t seed, uint32_t seed_step)
{
    struct epoll_event events[256];
    l->started = l->ended = l->decoding = 0;
    for (uint32_t i = 0; i < l->streams && l->started < l->requests; i++)
        open_stream(l, &l->all[i], seed + l->started * seed_step);
    while (l->ended < l->started) {
        int n = epoll_wait(l->epoll, events, 256, 60000);
        if (n == 0) fail("nothing came for a minute");
        for (int i = 0; i < n; i++) {
            struct stream *s = events[i].data.ptr;
            if (read_stream(l, s)) continue;
            end_stream(l, s);
            if (l->started < l->requests) open_stream(l, s, seed + l->started * seed_step);
        }
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *v, uint32_t n, double q)
{
    qsort(v, n, sizeof *v, by_value);
    return n == 0 ? 0 : v[(uint32_t)((n - 1) * q)];
}

/* One stream; each prompt once cold and then warm. */
static void measure_ttft(struct load *l)
{
    enum { ROUNDS = 5 };
    double cold[ROUNDS], warm[ROUNDS];
    l->streams = l->requests = 1;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t seed = (uint32_t)clock_now_ns();
        run(l, seed, 0);
        cold[i] = l->ttft_s[0];
        run(l, seed, 0);
        warm[i] = l->ttft_s[0];
    }
    double c = quantile(cold, ROUNDS, 0.5), w = quantile(warm, ROUNDS, 0.5);
    printf("{\"prompt_tokens\": %u, \"ttft_cold_s\": %.5f, \"ttft_warm_s\": %.5f, "
           "\"warm_over_cold\": %.4f, \"failed\": %u}\n",
           l->prompt, c, w, w / c, l->failed);
}

int main(int argc, char **argv)
{
    struct load l = {0};
    const struct config_item items[] = {
        {"http", CONFIG_STRING, &l.http, "127.0.0.1:8080", 0, 0, NULL, "",
         "IPv4 address and port of the gateway."},
        {"model", CONFIG_STRING, &l.model, NULL, 0, 0, NULL, "", "Model id."},
        {"streams", CONFIG_U32, &l.streams, "32", 1, STREAMS_MAX, NULL, "", "Streams at a time."},
        {"requests", CONFIG_U32, &l.requests, "64", 1, 1 << 20, NULL, "", "Requests in all."},
        {"prompt", CONFIG_U32, &l.prompt, "64", 1, 100000, NULL, "tokens", "Prompt length."},
        {"tokens", CONFIG_U32, &l.tokens, "128", 1, 100000, NULL, "tokens",
         "Tokens of each answer."},
        {"vocab", CONFIG_U32, &l.vocab, "40000", 1, 1 << 20, NULL, "",
         "Prompt ids are drawn from 1000 to 1000 plus this."},
        {"ttft", CONFIG_BOOL, &l.ttft, NULL, 0, 0, NULL, "",
         "Measure the first token, cold and warm, of one stream."},
    };
    const struct config config = {
        "bench_http",
        "Streams completions from a gateway and measures what clients see.",
        "--model NAME [options]",
        NULL,
        items,
        ARRAY_LEN(items),
        0};
    struct errmsg why;
    enum config_result result = config_parse(&config, argc, argv, NULL, NULL, &why);
    if (result == CONFIG_EXIT_OK) return 0;
    if (result == CONFIG_EXIT_BAD || l.model == NULL) {
        fprintf(stderr, "bench_http: %s\n",
                result == CONFIG_EXIT_BAD ? why.text : "--model is missing");
        return 2;
    }
    char host[64];
    const char *colon = strrchr(l.http, ':');
    (void)snprintf(host, sizeof host, "%.*s", colon != NULL ? (int)(colon - l.http) : 0, l.http);
    l.address = (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)strtoul(colon != NULL ? colon + 1 : "0", NULL, 10))};
    if (inet_pton(AF_INET, host, &l.address.sin_addr) != 1) fail(l.http);
    l.epoll = epoll_create1(0);
    l.all = calloc(l.streams, sizeof *l.all);
    l.ttft_s = calloc(l.requests, sizeof *l.ttft_s);
    l.tpot_s = calloc(l.requests, sizeof *l.tpot_s);
    if (l.all == NULL || l.ttft_s == NULL || l.tpot_s == NULL || l.epoll < 0) fail("memory");
    for (uint32_t i = 0; i < l.streams; i++)
        if ((l.all[i].buf = malloc(BUFFER_BYTES)) == NULL) fail("memory");
    if (l.ttft) {
        measure_ttft(&l);
    } else {
        run(&l, (uint32_t)clock_now_ns(), 1);
        double steady =
            l.full_to_ns > l.full_from_ns
                ? (double)l.full_tokens / ((double)(l.full_to_ns - l.full_from_ns) / 1e9)
                : 0;
        printf("{\"streams\": %u, \"requests\": %u, \"failed\": %u, \"tokens\": %llu, "
               "\"tokens_per_s\": %.1f, \"steady_events_per_s\": %.1f, "
               "\"ttft_p50_s\": %.5f, \"ttft_p99_s\": %.5f, \"tpot_p50_ms\": %.3f, "
               "\"tpot_p99_ms\": %.3f}\n",
               l.streams, l.requests, l.failed, (unsigned long long)l.total_tokens,
               (double)l.total_tokens / ((double)(l.last_ns - l.first_ns) / 1e9), steady,
               quantile(l.ttft_s, l.ended, 0.5), quantile(l.ttft_s, l.ended, 0.99),
               quantile(l.tpot_s, l.ended, 0.5) * 1e3, quantile(l.tpot_s, l.ended, 0.99) * 1e3);
    }
    for (uint32_t i = 0; i < l.streams; i++)
        free(l.all[i].buf);
    free(l.all);
    free(l.ttft_s);
    free(l.tpot_s);
    return l.failed > 0 ? 1 : 0;
}
