/* tool_perplexity.c - `penstock-model perplexity`: mean negative log likelihood of given token ids,
 * by windows. Each window is one sequence from an empty cache; the first token of a window is not
 * predicted. */
#include "common/json.h"
#include "worker/tool/runner.h"
#include "worker/tool/tool.h"

#include <math.h>
#include <stdlib.h>

enum { IDS_FILE_BYTES_MAX = 256 << 20 };

static enum err read_file(const char *path, struct buffer *out, struct errmsg *why)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) return errmsg_set(why, ERR_IO, "%s: %m", path);
    uint8_t piece[65536];
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buffer_add(out, piece, n);
    fclose(f);
    if (buffer_status(out) != OK)
        return errmsg_set(why, ERR_LIMIT, "%s: larger than 256 MiB", path);
    return OK;
}

/* FILE is {"ids": [..]} or [..]. */
static enum err read_ids(const char *path, uint32_t vocab, uint32_t **ids, uint32_t *count,
                         struct errmsg *why)
{
    struct buffer text;
    struct json *root = NULL;
    buffer_init(&text, IDS_FILE_BYTES_MAX);
    uint32_t *out = NULL;
    enum err err = read_file(path, &text, why);
    if (err == OK) err = json_parse(buffer_view(&text), NULL, &root, why);
    if (err != OK) goto done;
    const struct json *list = json_kind(root) == JSON_K_ARRAY ? root : json_get(root, "ids");
    if (list == NULL || json_kind(list) != JSON_K_ARRAY || json_count(list) < 2) {
        err = errmsg_set(why, ERR_INVALID,
                         "%s: expected {\"ids\": [..]} with at least two token ids", path);
        goto done;
    }
    size_t n = json_count(list);
    out = malloc(n * sizeof *out);
    if (out == NULL || n > UINT32_MAX) {
        err = errmsg_set(why, ERR_NOMEM, "%s: too many ids", path);
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_at(list, i);
        if (json_kind(v) != JSON_K_INT || json_as_int(v) < 0 || json_as_int(v) >= vocab) {
            err = errmsg_set(why, ERR_INVALID, "%s: ids[%zu] must be an integer from 0 to %u", path,
                             i, vocab - 1);
            goto done;
        }
        out[i] = (uint32_t)json_as_int(v);
    }
    *ids = out;
    out = NULL;
    *count = (uint32_t)n;
done:
    free(out);
    json_destroy(root);
    buffer_deinit(&text);
    return err;
}

/* -log softmax(logits)[id], in double. */
static double nll_of(const float *logits, uint32_t n, uint32_t id)
{
    float max = logits[0];
    for (uint32_t i = 1; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)max);
    return log(sum) + (double)max - (double)logits[id];
}

static enum err window_nll(struct runner *r, const uint32_t *ids, uint32_t count, double *sum)
{
    runner_reset(r);
    *sum = 0;
    for (uint32_t at = 0; at < count;) {
        uint32_t n = count - at < r->options.rows_max ? count - at : r->options.rows_max;
        const float *logits;
        runner_add(r, 0, ids + at, n, true, true);
        enum err err = runner_run(r, &logits);
        if (err != OK) return err;
        for (uint32_t i = 0; i < n && at + i + 1 < count; i++)
            *sum += nll_of(logits + (size_t)i * r->model->vocab_count, r->model->vocab_count,
                           ids[at + i + 1]);
        at += n;
    }
    return OK;
}

static int measure(struct runner *r, const char *path, uint32_t window, bool json)
{
    struct errmsg why;
    uint32_t *ids = NULL, count = 0;
    if (read_ids(path, r->model->vocab_count, &ids, &count, &why) != OK) {
        fprintf(stderr, "penstock-model perplexity: %s\n", why.text);
        return 1;
    }
    double total = 0;
    uint64_t predicted = 0;
    uint32_t windows = (count + window - 1) / window;
    for (uint32_t w = 0; w < windows; w++) {
        uint32_t n = count - w * window < window ? count - w * window : window;
        if (n < 2) break;
        double sum;
        if (window_nll(r, ids + (size_t)w * window, n, &sum) != OK) {
            fprintf(stderr, "penstock-model perplexity: the forward pass failed\n");
            free(ids);
            return 1;
        }
        total += sum;
        predicted += n - 1;
        if (json)
            printf("{\"window\": %u, \"nll\": %.9f}\n", w, sum / (n - 1));
        else
            printf("window %3u of %u: nll %.6f, perplexity so far %.5f\n", w + 1, windows,
                   sum / (n - 1), exp(total / (double)predicted));
        fflush(stdout);
    }
    double mean = total / (double)predicted;
    if (json)
        printf("{\"mean_nll\": %.9f, \"ppl\": %.6f, \"predicted\": %llu}\n", mean, exp(mean),
               (unsigned long long)predicted);
    else
        printf("mean nll %.6f, perplexity %.5f over %llu tokens\n", mean, exp(mean),
               (unsigned long long)predicted);
    free(ids);
    return 0;
}

int tool_perplexity(int argc, char **argv)
{
    struct runner_options o = {.sequences = 1, .progress = true};
    const char *ids_path = NULL;
    uint32_t window = 0, device = 0;
    bool json = false;
    const struct config_item items[] = {
        {"ids", CONFIG_STRING, &ids_path, NULL, 0, 0, NULL, "",
         "JSON file {\"ids\": [..]} with the tokens to predict."},
        {"window", CONFIG_U32, &window, "512", 2, 1 << 16, NULL, "tokens",
         "Tokens of a window; each starts from an empty cache."},
        {"reference", CONFIG_BOOL, &o.reference, NULL, 0, 0, NULL, "",
         "Plain float32 code: weights dequantized, activations and KV in float32; slow and exact."},
        {"threads", CONFIG_U32, &o.threads, "0", 0, 256, NULL, "",
         "Compute threads; 0 takes all cores."},
        {"isa", CONFIG_CHOICE, &o.isa, "auto", 0, 0, RUNNER_ISA_CHOICES, "",
         "Instruction set of the CPU ops."},
        {"kv", CONFIG_CHOICE, &o.kv, "f16", 0, 0, RUNNER_KV_CHOICES, "", "Type of the KV cache."},
        {"chunk", CONFIG_U32, &o.rows_max, "128", 1, STEP_ROWS_MAX, NULL, "tokens",
         "Tokens computed at once; results do not depend on it."},
        {"device", CONFIG_CHOICE, &device, "cpu", 0, 0, "cpu", "", "Where to compute."},
        {"json", CONFIG_BOOL, &json, NULL, 0, 0, NULL, "",
         "JSON lines; the last one holds mean_nll."},
    };
    const struct config config = {
        "penstock-model perplexity",
        "Mean negative log likelihood (natural log) of token ids under a model.",
        "MODEL --ids FILE.json [options]",
        NULL,
        items,
        ARRAY_LEN(items),
        1};
    uint32_t given = 0;
    struct errmsg why;
    enum config_result result = config_parse(&config, argc, argv, &o.path, &given, &why);
    if (result == CONFIG_EXIT_OK) return 0;
    if (result == CONFIG_RUN && (given != 1 || ids_path == NULL)) {
        errmsg_set(&why, ERR_INVALID, "%s is missing; see penstock-model perplexity --help",
                   given != 1 ? "MODEL" : "--ids FILE.json");
        result = CONFIG_EXIT_BAD;
    }
    o.context = window;
    struct runner r;
    if (result == CONFIG_EXIT_BAD || runner_open(&o, &r, &why) != OK) {
        fprintf(stderr, "penstock-model perplexity: %s\n", why.text);
        return result == CONFIG_EXIT_BAD ? 2 : 1;
    }
    int status = measure(&r, ids_path, window, json);
    runner_close(&r);
    return status;
}
