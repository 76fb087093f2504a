/* test_golden.c - GGUF files whose numbers are known: dequantized rows, logits and greedy
 * continuations, on the float32 path and on the fast ones (tests/golden/gguf/README.md). */
#include "common/json.h"
#include "kernels/isa.h"
#include "kernels/weights.h"
#include "worker/model/transformer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { CONTEXT = 128, GREEDY = 24 };

static const char *const names[] = {
    "llama64-Q4_0", "llama64-Q4_1", "llama64-Q5_0", "llama64-Q5_1", "llama64-Q8_0",
    "qwen2-Q8_0",   "llama64-F16",  "llama64-BF16", "llama64-F32",  "llama-rope3-F16"};

static bool exists(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f != NULL) fclose(f);
    return f != NULL;
}

/* In the tree, or in the larger collection where there is one. */
static bool find_file(const char *name, const char *suffix, char out[512])
{
    const char *golden = getenv("PENSTOCK_GOLDEN");
    snprintf(out, 512, "%s/gguf/%s%s", GOLDEN_DIR, name, suffix);
    if (exists(out)) return true;
    if (golden != NULL)
        snprintf(out, 512, "%s/quant/gguf/%s%s", golden, name, suffix);
    else
        snprintf(out, 512, "%s/../shared/golden/quant/gguf/%s%s", SOURCE_DIR, name, suffix);
    if (exists(out)) return true;
    print_message("skipped: %s is missing (PENSTOCK_GOLDEN names the golden data's folder)\n", out);
    return false;
}

static struct json *read_json(const char *path)
{
    struct json *root = NULL;
    struct errmsg why;
    struct buffer b;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    buffer_init(&b, 1 << 20);
    assert_int_equal(buffer_reserve(&b, 1 << 20), OK);
    b.len = fread(b.ptr, 1, 1 << 20, f);
    fclose(f);
    if (json_parse(buffer_view(&b), NULL, &root, &why) != OK) fail_msg("%s: %s", path, why.text);
    buffer_deinit(&b);
    return root;
}

struct engine {
    struct model *model;
    struct backend *backend;
    struct transformer *transformer;
    struct step step;
    struct json *expected;
};

static bool engine_open(const char *name, bool reference, struct engine *e)
{
    char path[512], json_path[512];
    struct errmsg why = {""};
    const struct model_options load = {.reference = reference, .threads = 2};
    const struct transformer_options options = {
        .limits = {.rows_max = CONTEXT,
                   .sequences_max = 1,
                   .context_max = CONTEXT,
                   .copies_max = 1},
        .logits_rows_max = 1,
        .kv_type = reference ? KV_F32 : KV_F16,
        .kv_blocks = CONTEXT / KV_BLOCK_TOKENS,
    };
    *e = (struct engine){0};
    if (!find_file(name, ".gguf", path) || !find_file(name, ".expected.json", json_path))
        return false;
    if (model_load(path, &load, &e->model, &why) != OK ||
        backend_cpu_create(2, reference ? (int)ISA_PLAIN : -1, &e->backend, &why) != OK ||
        transformer_create(e->model, e->backend, &options, &e->transformer, &why) != OK)
        fail_msg("%s: %s", name, why.text);
    assert_int_equal(step_init(&e->step, &options.limits), OK);
    e->expected = read_json(json_path);
    return true;
}

static void engine_close(struct engine *e)
{
    json_destroy(e->expected);
    step_deinit(&e->step);
    transformer_destroy(e->transformer);
    e->backend->ops->destroy(e->backend);
    model_destroy(e->model);
}

/* Tokens at positions from `at`; the logits of the last. */
static const float *feed(struct engine *e, const uint32_t *ids, uint32_t count, uint32_t at)
{
    struct step *s = &e->step;
    step_clear(s);
    s->sequences = 1;
    for (uint32_t b = 0; b < CONTEXT / KV_BLOCK_TOKENS; b++)
        s->block_table[b] = b;
    for (uint32_t i = 0; i < count; i++) {
        s->tokens[i] = ids[i];
        s->position[i] = s->slot[i] = at + i;
        s->row_sequence[i] = 0;
    }
    s->rows = count;
    s->logits_rows = 1;
    s->logits_row[0] = count - 1;
    assert_int_equal(transformer_forward(e->transformer, s), OK);
    return s->logits;
}

static uint32_t argmax(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static int64_t int_at(const struct json *object, const char *key, uint32_t i)
{
    return json_as_int(json_at(json_get(object, key), i));
}

/* Along the reference's tokens; its token is asked for where the margin decides. */
static void check_greedy(const char *name, struct engine *e, const struct json *greedy,
                         const float *logits, uint32_t at, double tolerance)
{
    for (uint32_t k = 0; k < GREEDY; k++) {
        uint32_t want = (uint32_t)int_at(greedy, "ids", k);
        uint32_t got = argmax(logits, e->model->vocab_count);
        double margin = json_as_real(json_at(json_get(greedy, "margin"), k));
        if (got != want && margin > 2 * tolerance)
            fail_msg("%s: step %u gives %u, expected %u (margin %g)", name, k, got, want, margin);
        if (k + 1 < GREEDY) logits = feed(e, &want, 1, at + k);
    }
}

static void check_prompts(const char *name, bool reference, double tolerance)
{
    struct engine e;
    if (!engine_open(name, reference, &e)) return;
    const struct json *prompts = json_get(e.expected, "prompts");
    double worst = 0;
    for (uint32_t p = 0; p < json_count(prompts); p++) {
        const struct json *prompt = json_at(prompts, p), *want = json_get(prompt, "logits");
        uint32_t ids[CONTEXT], n = (uint32_t)json_count(json_get(prompt, "ids"));
        assert_true(n + GREEDY <= CONTEXT && json_count(want) == e.model->vocab_count);
        for (uint32_t i = 0; i < n; i++)
            ids[i] = (uint32_t)int_at(prompt, "ids", i);
        const float *logits = feed(&e, ids, n, 0);
        for (uint32_t i = 0; i < e.model->vocab_count; i++) {
            double error = fabs(logits[i] - json_as_real(json_at(want, i)));
            if (!(error <= tolerance))
                fail_msg("%s: prompt %u, logit %u is off by %g", name, p, i, error);
            worst = error > worst ? error : worst;
        }
        check_greedy(name, &e, json_get(prompt, "greedy"), logits, n, tolerance);
    }
    print_message("%-16s largest logit error %.3g\n", name, worst);
    engine_close(&e);
}

static void test_reference_path(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        check_prompts(names[i], true, 1e-4);
}

static void test_fast_path(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        check_prompts(names[i], false, strchr(names[i], 'Q') != NULL ? 0.8 : 3e-2);
}

/* The packed weight that has a tensor's rows, and how the file orders them. */
static const struct weight *weight_of(const struct model *m, struct span name, bool *pairs)
{
    uint32_t layer = 0;
    char part[64] = "";
    *pairs = false;
    if (span_eq_str(name, "token_embd.weight")) return &m->embed;
    if (span_eq_str(name, "output.weight")) return &m->head;
    if (sscanf((const char *)name.ptr, "blk.%u.%63s", &layer, part) != 2) return NULL;
    const struct model_layer *y = &m->layers[layer];
    const struct {
        const char *name;
        const struct weight *w;
        bool turned;
    } all[] = {{"attn_q.weight", &y->q, true},       {"attn_k.weight", &y->k, true},
               {"attn_v.weight", &y->v, false},      {"attn_output.weight", &y->o, false},
               {"ffn_gate.weight", &y->gate, false}, {"ffn_up.weight", &y->up, false},
               {"ffn_down.weight", &y->down, false}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (strcmp(part, all[i].name) == 0) {
            *pairs = all[i].turned && strcmp(m->arch, "llama") == 0;
            return all[i].w;
        }
    return NULL;
}

static void check_row(const char *name, const struct engine *e, struct span tensor, uint32_t row,
                      const struct json *want)
{
    bool pairs;
    const struct weight *w = weight_of(e->model, tensor, &pairs);
    assert_non_null(w);
    uint32_t d = e->model->head_dim, in = row % d;
    if (pairs) row = row - in + in / 2 + (in % 2) * (d / 2);
    float *out = malloc(w->cols * sizeof *out);
    assert_int_equal(json_count(want), w->cols);
    weight_get_row(w, row, out);
    for (uint32_t c = 0; c < w->cols; c++) {
        double v = json_as_real(json_at(want, c)); /* printed with nine digits at most */
        if (fabs((double)out[c] - v) > 1e-6 * fabs(v) + 1e-9)
            fail_msg("%s: packed row %u, col %u: %.9g, expected %.9g", name, row, c, (double)out[c],
                     v);
    }
    free(out);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (int reference = 0; reference < 2; reference++) {
            struct engine e;
            uint32_t checked = 0;
            if (!engine_open(names[i], reference, &e)) continue;
            const struct json *tensors = json_get(e.expected, "rows");
            for (void *t = json_first(tensors); t != NULL; t = json_next(tensors, t)) {
                const struct json *rows = json_get(json_iter_value(t), "rows");
                for (void *r = json_first(rows); r != NULL; r = json_next(rows, r), checked++)
                    check_row(names[i], &e, json_iter_key(t),
                              (uint32_t)atoi((const char *)json_iter_key(r).ptr),
                              json_iter_value(r));
            }
            assert_true(checked > 2);
            engine_close(&e);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_reference_path),
        cmocka_unit_test(test_fast_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
