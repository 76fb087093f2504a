/* tool_logits.c - `penstock-model logits`: token ids in, logits and greedy continuations out, a
 * JSON line each. */
#include "common/json.h"
#include "worker/tool/runner.h"
#include "worker/tool/tool.h"

#include <math.h>
#include <stdlib.h>

struct question {
    uint32_t *ids;
    uint32_t id_count;
    uint32_t top, greedy;
    bool full;
};

static enum err read_count(const struct json *root, const char *key, uint32_t max, uint32_t *out,
                           struct errmsg *why)
{
    const struct json *v = json_get(root, key);
    *out = 0;
    if (v == NULL) return OK;
    if (json_kind(v) != JSON_K_INT || json_as_int(v) < 0 || json_as_int(v) > max)
        return errmsg_set(why, ERR_INVALID, "\"%s\" must be an integer from 0 to %u", key, max);
    *out = (uint32_t)json_as_int(v);
    return OK;
}

static enum err read_question(const struct json *root, const struct runner *r, struct question *q,
                              struct errmsg *why)
{
    const struct json *ids = json_get(root, "ids");
    if (ids == NULL || json_kind(ids) != JSON_K_ARRAY || json_count(ids) == 0)
        return errmsg_set(why, ERR_INVALID, "\"ids\" must be a non-empty array of token ids");
    if (json_count(ids) > r->options.context)
        return errmsg_set(why, ERR_LIMIT, "\"ids\" has %zu tokens; --context is %u",
                          json_count(ids), r->options.context);
    q->id_count = (uint32_t)json_count(ids);
    q->ids = malloc(q->id_count * sizeof *q->ids);
    if (q->ids == NULL) return errmsg_set(why, ERR_NOMEM, "no memory for %u ids", q->id_count);
    for (uint32_t i = 0; i < q->id_count; i++) {
        const struct json *v = json_at(ids, i);
        if (json_kind(v) != JSON_K_INT || json_as_int(v) < 0 ||
            json_as_int(v) >= r->model->vocab_count)
            return errmsg_set(why, ERR_INVALID, "ids[%u] must be an integer from 0 to %u", i,
                              r->model->vocab_count - 1);
        q->ids[i] = (uint32_t)json_as_int(v);
    }
    enum err err = read_count(root, "top", r->model->vocab_count, &q->top, why);
    if (err == OK)
        err = read_count(root, "greedy", r->options.context - q->id_count, &q->greedy, why);
    const struct json *full = json_get(root, "full");
    q->full = full != NULL && json_kind(full) == JSON_K_BOOL && json_as_bool(full);
    return err;
}

/* All ids of a sequence, in steps of rows_max; the logits of the last one. */
static enum err feed(struct runner *r, const uint32_t *ids, uint32_t count, const float **logits)
{
    for (uint32_t at = 0; at < count;) {
        uint32_t n = count - at < r->options.rows_max ? count - at : r->options.rows_max;
        runner_add(r, 0, ids + at, n, false, at + n == count);
        at += n;
        enum err err = runner_run(r, logits);
        if (err != OK) return err;
    }
    return OK;
}

static void write_number(struct buffer *out, float v)
{
    if (isfinite(v))
        buffer_printf(out, "%.9g", (double)v);
    else
        buffer_add_str(out, "null");
}

/* The k largest, by repeated selection with a bound: (value, index) below the last one taken. */
static void write_top(struct buffer *out, const float *logits, uint32_t n, uint32_t k)
{
    buffer_add_str(out, "\"top\": [");
    float last = INFINITY;
    uint32_t last_index = 0;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t j = 0; j < n; j++) {
            bool open = i == 0 || logits[j] < last || (logits[j] == last && j > last_index);
            if (open && (best == UINT32_MAX || logits[j] > logits[best])) best = j;
        }
        if (best == UINT32_MAX) break;
        buffer_printf(out, "%s[%u, ", i ? ", " : "", best);
        write_number(out, logits[best]);
        buffer_add_byte(out, ']');
        last = logits[best];
        last_index = best;
    }
    buffer_add_byte(out, ']');
}

static enum err answer(struct runner *r, const struct question *q, struct buffer *out)
{
    const uint32_t vocab = r->model->vocab_count;
    const float *logits;
    runner_reset(r);
    enum err err = feed(r, q->ids, q->id_count, &logits);
    if (err != OK) return err;
    buffer_add_byte(out, '{');
    write_top(out, logits, vocab, q->top);
    if (q->full) {
        buffer_add_str(out, ", \"logits\": [");
        for (uint32_t i = 0; i < vocab; i++) {
            if (i) buffer_add_byte(out, ',');
            write_number(out, logits[i]);
        }
        buffer_add_byte(out, ']');
    }
    buffer_add_str(out, ", \"greedy\": [");
    for (uint32_t i = 0; i < q->greedy; i++) {
        uint32_t id = runner_argmax(r, logits);
        buffer_printf(out, "%s%u", i ? ", " : "", id);
        if (i + 1 < q->greedy && (err = feed(r, &id, 1, &logits)) != OK) return err;
    }
    buffer_add_str(out, "]}\n");
    return OK;
}

static enum err one_line(struct runner *r, struct span line, struct buffer *out, struct errmsg *why)
{
    struct json *root = NULL;
    struct question q = {0};
    enum err err = json_parse(line, NULL, &root, why);
    if (err == OK) err = read_question(root, r, &q, why);
    if (err == OK && (err = answer(r, &q, out)) != OK)
        errmsg_set(why, err, "the forward pass failed");
    free(q.ids);
    json_destroy(root);
    return err;
}

int tool_logits(int argc, char **argv)
{
    struct runner_options o = {.sequences = 1, .rows_max = 512, .progress = true};
    uint32_t device = 0;
    const struct config_item items[] = {
        {"reference", CONFIG_BOOL, &o.reference, NULL, 0, 0, NULL, "",
         "Plain float32 code: weights dequantized, activations and KV in float32; slow and exact."},
        {"threads", CONFIG_U32, &o.threads, "0", 0, 256, NULL, "",
         "Compute threads; 0 takes all cores."},
        {"isa", CONFIG_CHOICE, &o.isa, "auto", 0, 0, RUNNER_ISA_CHOICES, "",
         "Instruction set of the CPU ops."},
        {"kv", CONFIG_CHOICE, &o.kv, "f16", 0, 0, RUNNER_KV_CHOICES, "", "Type of the KV cache."},
        {"context", CONFIG_U32, &o.context, "4096", 16, 1 << 20, NULL, "tokens",
         "Longest prompt plus continuation."},
        {"chunk", CONFIG_U32, &o.rows_max, "512", 1, STEP_ROWS_MAX, NULL, "tokens",
         "Prompt tokens computed at once; results do not depend on it."},
        {"device", CONFIG_CHOICE, &device, "cpu", 0, 0, "cpu", "", "Where to compute."},
    };
    const struct config config = {
        "penstock-model logits",
        "Reads lines {\"ids\": [..], \"top\": 20, \"greedy\": 48, \"full\": false} and writes "
        "lines {\"top\": [[id, "
        "logit]..], \"greedy\": [..], \"logits\": [..]}.\nNothing is put in front of the ids, and "
        "end-of-text "
        "does not stop a continuation. A line that cannot be answered gives {\"error\": \"...\"}.",
        "MODEL [options] < questions.jsonl",
        "Example:\n  echo '{\"ids\": [504], \"top\": 5}' | penstock-model logits model.gguf\n",
        items,
        ARRAY_LEN(items),
        1};
    uint32_t given = 0;
    struct errmsg why;
    enum config_result result = config_parse(&config, argc, argv, &o.path, &given, &why);
    if (result == CONFIG_EXIT_OK) return 0;
    if (result == CONFIG_RUN && given != 1) {
        errmsg_set(&why, ERR_INVALID, "MODEL is missing; see penstock-model logits --help");
        result = CONFIG_EXIT_BAD;
    }
    if (result == CONFIG_EXIT_BAD) {
        fprintf(stderr, "penstock-model logits: %s\n", why.text);
        return 2;
    }
    struct runner r;
    if (runner_open(&o, &r, &why) != OK) {
        fprintf(stderr, "penstock-model logits: %s\n", why.text);
        return 1;
    }
    struct buffer out;
    buffer_init(&out, 64u << 20);
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        if (strspn(line, " \t\r\n") == (size_t)n) continue;
        buffer_reset(&out);
        if (one_line(&r, span_of(line, (size_t)n), &out, &why) != OK) {
            buffer_reset(&out);
            buffer_add_str(&out, "{\"error\": ");
            json_write_string(&out, span_str(why.text));
            buffer_add_str(&out, "}\n");
        }
        fwrite(out.ptr, 1, out.len, stdout);
        fflush(stdout);
    }
    free(line);
    buffer_deinit(&out);
    runner_close(&r);
    return 0;
}
