/* tool_bench.c - `penstock-model bench`: prefill and decode speed of a model on this machine, next
 * to the read bandwidth that the same threads reach in the same run. Medians of several rounds; the
 * forward pass and an argmax, nothing else. */
#include "common/clock.h"
#include "kernels/pool.h"
#include "worker/tool/runner.h"
#include "worker/tool/tool.h"

#include <stdlib.h>
#include <string.h>

enum { BATCHES_MAX = 16, STREAMS_MAX = 1024, ROUNDS_MAX = 25 };

struct bench {
    struct runner r;
    uint32_t prompt, decode, depth, rounds;
    uint32_t batch[BATCHES_MAX], batch_count, batch_max;
    uint32_t *ids;    /* pseudo-random prompt, long enough for all */
    double bandwidth; /* bytes/s */
    double prefill_tokens_per_s;
    double decode_step_s[BATCHES_MAX];
};

/* ---- read bandwidth ---- */
typedef uint64_t vec __attribute__((vector_size(64), aligned(64)));
enum { BANDWIDTH_BYTES = 512 << 20, PREFETCH_BYTES = 4096 };

struct reading {
    const vec *data;
    size_t count;
    bool prefetch;
    volatile uint64_t sink[POOL_THREADS_MAX];
};

static void read_share(void *arg, uint32_t ith, uint32_t nth)
{
    struct reading *reading = arg;
    size_t from = reading->count * ith / nth, to = reading->count * (ith + 1) / nth;
    vec a = {0}, b = {0};
    for (size_t i = from; i + 2 <= to; i += 2) {
        if (reading->prefetch) {
            __builtin_prefetch((const char *)&reading->data[i] + PREFETCH_BYTES, 0, 0);
            __builtin_prefetch((const char *)&reading->data[i + 1] + PREFETCH_BYTES, 0, 0);
        }
        a += reading->data[i];
        b += reading->data[i + 1];
    }
    a ^= b;
    reading->sink[ith] = a[0] + a[3] + a[7];
}

/* The best of several passes over 512 MiB, with and without software prefetch: a limit, so the best
 * is the honest figure. */
static double measure_bandwidth(struct backend *backend)
{
    struct reading reading = {.count = BANDWIDTH_BYTES / sizeof(vec)};
    void *data = backend->ops->alloc(backend, BANDWIDTH_BYTES);
    if (data == NULL) return 0;
    memset(data, 1, BANDWIDTH_BYTES);
    reading.data = data;
    double best = 0;
    for (int pass = 0; pass < 8; pass++) {
        reading.prefetch = pass % 2 == 1;
        uint64_t start = clock_now_ns();
        pool_run(backend_cpu_pool(backend), read_share, &reading);
        double rate = BANDWIDTH_BYTES / ((double)(clock_now_ns() - start) / 1e9);
        best = rate > best ? rate : best;
    }
    backend->ops->release(backend, data);
    return best;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* ---- prefill: one prompt from an empty cache, logits of its last token ---- */
static enum err prefill_once(struct bench *b, double *seconds)
{
    struct runner *r = &b->r;
    runner_reset(r);
    uint64_t start = clock_now_ns();
    for (uint32_t at = 0; at < b->prompt;) {
        uint32_t n = b->prompt - at < r->options.rows_max ? b->prompt - at : r->options.rows_max;
        const float *logits;
        runner_add(r, 0, b->ids + at, n, false, at + n == b->prompt);
        at += n;
        enum err err = runner_run(r, &logits);
        if (err != OK) return err;
    }
    *seconds = (double)(clock_now_ns() - start) / 1e9;
    return OK;
}

/* ---- decode: `streams` sequences of `depth` tokens, one new token each a step ---- */
static enum err fill_sequences(struct bench *b, uint32_t streams)
{
    struct runner *r = &b->r;
    runner_reset(r);
    for (uint32_t s = 0; s < streams; s++)
        for (uint32_t at = 0; at < b->depth;) {
            uint32_t n = b->depth - at < r->options.rows_max ? b->depth - at : r->options.rows_max;
            const float *logits;
            runner_add(r, s, b->ids + s + at, n, false, true);
            at += n;
            enum err err = runner_run(r, &logits);
            if (err != OK) return err;
        }
    return OK;
}

static enum err decode_round(struct bench *b, uint32_t streams, double *step_seconds)
{
    struct runner *r = &b->r;
    uint32_t token[STREAMS_MAX]; /* any ids do for the first step */
    memcpy(token, b->ids, streams * sizeof *token);
    enum err err = fill_sequences(b, streams);
    uint64_t start = clock_now_ns();
    for (uint32_t step = 0; step < b->decode && err == OK; step++) {
        const float *logits;
        for (uint32_t s = 0; s < streams; s++)
            runner_add(r, s, &token[s], 1, false, true);
        err = runner_run(r, &logits);
        for (uint32_t s = 0; s < streams && err == OK; s++)
            token[s] = runner_argmax(r, logits + (size_t)s * r->model->vocab_count);
    }
    *step_seconds = (double)(clock_now_ns() - start) / 1e9 / b->decode;
    return err;
}

static enum err measure(struct bench *b)
{
    double values[ROUNDS_MAX], seconds;
    enum err err = prefill_once(b, &seconds); /* warm-up */
    for (uint32_t i = 0; i < b->rounds && err == OK; i++)
        err = prefill_once(b, &values[i]);
    if (err != OK) return err;
    b->prefill_tokens_per_s = b->prompt / median(values, b->rounds);
    for (uint32_t k = 0; k < b->batch_count; k++) {
        for (uint32_t i = 0; i < b->rounds && err == OK; i++)
            err = decode_round(b, b->batch[k], &values[i]);
        if (err != OK) return err;
        b->decode_step_s[k] = median(values, b->rounds);
    }
    return OK;
}

/* Weights once a step, and each stream's keys and values at half of the way. */
static double step_bytes(const struct bench *b, uint32_t streams)
{
    size_t block = transformer_kv_block_bytes(b->r.model, b->r.backend, KV_F16);
    double kv = (double)block / KV_BLOCK_TOKENS * (b->depth + b->decode / 2.0) * streams;
    return (double)b->r.model->decode_read_bytes + kv;
}

static void print_json(const struct bench *b, const char *device)
{
    printf("{\"model\": \"%s\", \"device\": \"%s\", \"threads\": %u, \"weight_bytes\": %llu, "
           "\"read_bytes_per_token\": %llu, \"read_bandwidth_bytes_per_s\": %.0f, \"prefill\": "
           "{\"tokens\": %u, "
           "\"tokens_per_s\": %.1f}, \"decode\": [",
           b->r.model->name, device, b->r.options.threads,
           (unsigned long long)b->r.model->weight_bytes,
           (unsigned long long)b->r.model->decode_read_bytes, b->bandwidth, b->prompt,
           b->prefill_tokens_per_s);
    for (uint32_t k = 0; k < b->batch_count; k++)
        printf("%s{\"streams\": %u, \"tokens_per_s\": %.1f, \"tpot_ms\": %.3f, "
               "\"read_bytes_per_step\": %.0f, "
               "\"bandwidth_share\": %.3f}",
               k ? ", " : "", b->batch[k], b->batch[k] / b->decode_step_s[k],
               b->decode_step_s[k] * 1e3, step_bytes(b, b->batch[k]),
               step_bytes(b, b->batch[k]) / b->decode_step_s[k] / b->bandwidth);
    printf("]}\n");
}

static void print_text(const struct bench *b, const char *device)
{
    printf("%s on %s\n", b->r.model->name, device);
    printf("weights %.1f MB, read per decode step %.1f MB; read bandwidth %.1f GB/s\n",
           (double)b->r.model->weight_bytes / 1e6, (double)b->r.model->decode_read_bytes / 1e6,
           b->bandwidth / 1e9);
    printf("prefill of %u tokens: %.0f tokens/s\n", b->prompt, b->prefill_tokens_per_s);
    for (uint32_t k = 0; k < b->batch_count; k++)
        printf("decode, %2u stream%s: %.1f tokens/s, TPOT %.2f ms, %.0f %% of the read bandwidth\n",
               b->batch[k], b->batch[k] == 1 ? " " : "s", b->batch[k] / b->decode_step_s[k],
               b->decode_step_s[k] * 1e3,
               100 * step_bytes(b, b->batch[k]) / b->decode_step_s[k] / b->bandwidth);
}

static enum err parse_batches(const char *text, struct bench *b, struct errmsg *why)
{
    for (const char *at = text; *at != '\0';) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        if (end == at || v < 1 || v > STREAMS_MAX || (*end != ',' && *end != '\0') ||
            b->batch_count == BATCHES_MAX)
            return errmsg_set(why, ERR_INVALID,
                              "--batch '%s': expected up to %d numbers from 1 to 1024, e.g. 1,8,32",
                              text, BATCHES_MAX);
        b->batch[b->batch_count++] = (uint32_t)v;
        b->batch_max = v > b->batch_max ? (uint32_t)v : b->batch_max;
        at = *end == ',' ? end + 1 : end;
    }
    return b->batch_count > 0 ? OK : errmsg_set(why, ERR_INVALID, "--batch is empty");
}

static int run_bench(struct bench *b, bool json)
{
    uint32_t need = b->prompt + b->depth + b->batch_max + 1;
    b->ids = malloc(need * sizeof *b->ids);
    if (b->ids == NULL) return 1;
    uint64_t state = 88172645463325252u; /* xorshift64: any tokens do, the same each run */
    for (uint32_t i = 0; i < need; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b->ids[i] = (uint32_t)(state % b->r.model->vocab_count);
    }
    b->bandwidth = measure_bandwidth(b->r.backend);
    enum err err = measure(b);
    char device[128];
    b->r.backend->ops->describe(b->r.backend, device, sizeof device);
    if (err != OK)
        fprintf(stderr, "penstock-model bench: the forward pass failed\n");
    else if (json)
        print_json(b, device);
    else
        print_text(b, device);
    free(b->ids);
    return err == OK ? 0 : 1;
}

/* -p, -n, -b, -t, -d as in the field's bench tools. */
static char *long_name(char *arg)
{
    static char *const names[][2] = {{"-p", "--prompt"},
                                     {"-n", "--tokens"},
                                     {"-b", "--batch"},
                                     {"-t", "--threads"},
                                     {"-d", "--depth"}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(arg, names[i][0]) == 0) return names[i][1];
    return arg;
}

int tool_bench(int argc, char **argv)
{
    struct bench b = {0};
    struct runner_options o = {.progress = true};
    const char *batches = NULL;
    uint32_t device = 0;
    bool json = false;
    const struct config_item items[] = {
        {"prompt", CONFIG_U32, &b.prompt, "512", 1, 1 << 17, NULL, "tokens",
         "Length of the prefilled prompt (-p)."},
        {"tokens", CONFIG_U32, &b.decode, "64", 1, 1 << 17, NULL, "tokens",
         "Decode steps of a round (-n)."},
        {"batch", CONFIG_STRING, &batches, "1,8,32", 0, 0, NULL, "",
         "Numbers of streams to decode together (-b)."},
        {"depth", CONFIG_U32, &b.depth, "64", 1, 1 << 17, NULL, "tokens",
         "Tokens in each stream's cache before decoding (-d)."},
        {"rounds", CONFIG_U32, &b.rounds, "5", 1, ROUNDS_MAX, NULL, "",
         "Rounds of each measurement; medians are shown."},
        {"threads", CONFIG_U32, &o.threads, "0", 0, 256, NULL, "",
         "Compute threads; 0 takes all cores (-t)."},
        {"chunk", CONFIG_U32, &o.rows_max, "512", 1, STEP_ROWS_MAX, NULL, "tokens",
         "Prompt tokens computed at once."},
        {"isa", CONFIG_CHOICE, &o.isa, "auto", 0, 0, RUNNER_ISA_CHOICES, "",
         "Instruction set of the CPU ops."},
        {"kv", CONFIG_CHOICE, &o.kv, "f16", 0, 0, RUNNER_KV_CHOICES, "", "Type of the KV cache."},
        {"device", CONFIG_CHOICE, &device, "cpu", 0, 0, "cpu", "", "Where to compute."},
        {"json", CONFIG_BOOL, &json, NULL, 0, 0, NULL, "", "One JSON object instead of text."},
    };
    const struct config config = {
        "penstock-model bench",
        "Prefill and decode speed, and the share of the read bandwidth measured in the same run.",
        "MODEL [-p 512] [-n 64] [-b 1,8,32] [-t N] [--json]",
        NULL,
        items,
        ARRAY_LEN(items),
        1};
    for (int i = 1; i < argc; i++)
        argv[i] = long_name(argv[i]);
    uint32_t given = 0;
    struct errmsg why;
    enum config_result result = config_parse(&config, argc, argv, &o.path, &given, &why);
    if (result == CONFIG_EXIT_OK) return 0;
    if (result == CONFIG_RUN && given != 1) {
        errmsg_set(&why, ERR_INVALID, "MODEL is missing; see penstock-model bench --help");
        result = CONFIG_EXIT_BAD;
    }
    if (result == CONFIG_EXIT_BAD || parse_batches(batches, &b, &why) != OK) {
        fprintf(stderr, "penstock-model bench: %s\n", why.text);
        return 2;
    }
    o.sequences = b.batch_max;
    o.context = (b.prompt > b.depth + b.decode ? b.prompt : b.depth + b.decode) + KV_BLOCK_TOKENS;
    if (o.rows_max < b.batch_max) o.rows_max = b.batch_max;
    if (runner_open(&o, &b.r, &why) != OK) {
        fprintf(stderr, "penstock-model bench: %s\n", why.text);
        return 1;
    }
    int status = run_bench(&b, json);
    runner_close(&b.r);
    return status;
}
