/* test_model.c - what loads, what it holds then, and what is refused: everything that would change
 * numbers and is not known, by name. */
#include "tests/unit/worker/model/gguf_fixture.h"
#include "worker/model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static enum err load_with(const struct fixture *f, const struct model_options *o, struct model **m,
                          struct errmsg *why)
{
    struct buffer b;
    *m = NULL;
    why->text[0] = '\0';
    fix_build(f, &b);
    enum err err = model_load_memory(buffer_view(&b), o, m, why);
    buffer_deinit(&b); /* a loaded model needs the file no more */
    return err;
}

static struct model *load(const struct fixture *f)
{
    struct model *m;
    struct errmsg why;
    const struct model_options o = {.threads = 2};
    if (load_with(f, &o, &m, &why) != OK) fail_msg("%s", why.text);
    return m;
}

static void refuse(const struct fixture *f, enum err expected, const char *word)
{
    struct model *m;
    struct errmsg why;
    const struct model_options o = {.threads = 1};
    enum err err = load_with(f, &o, &m, &why);
    if (err != expected || strstr(why.text, word) == NULL)
        fail_msg("%s '%s'; expected %s with '%s'", err_name(err), why.text, err_name(expected),
                 word);
    assert_null(m);
}

static void test_families(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        bool bias, norm;
    } all[] = {{"llama", false, false}, {"qwen2", true, false}, {"qwen3", false, true}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct fixture f = {.arch = all[i].arch, .type = GGML_Q4_0, .head = i == 1};
        struct model *m = load(&f);
        assert_string_equal(m->arch, all[i].arch);
        assert_true(m->layer_count == FIX_LAYERS && m->hidden == FIX_HIDDEN &&
                    m->head_dim == FIX_HEAD_DIM && m->vocab_count == FIX_VOCAB &&
                    m->context_train == 256);
        assert_true(m->tied == (i != 1) && (m->head.data == m->embed.data) == m->tied);
        for (uint32_t l = 0; l < FIX_LAYERS; l++) {
            const struct model_layer *y = &m->layers[l];
            assert_true((y->q_bias != NULL) == all[i].bias && (y->v_bias != NULL) == all[i].bias);
            assert_true((y->q_norm != NULL) == all[i].norm && (y->k_norm != NULL) == all[i].norm);
            assert_true(y->q_heads == FIX_HEADS && y->kv_heads == FIX_KV_HEADS &&
                        y->ffn == FIX_FFN);
            assert_true(y->q.rows == FIX_HEADS * FIX_HEAD_DIM && y->k.rows == FIX_HEAD_DIM);
            assert_int_equal((uintptr_t)y->down.data % 64, 0);
        }
        assert_true(m->chat_template.len == strlen("{{ messages }}"));
        assert_true(m->tokenizer_asset.len > 0 && m->rope_factors == NULL && m->rope_linear == 1);
        model_destroy(m);
    }
}

/* llama's q and k are turned to half-split pairs, qwen2's are half-split already; v is never. */
static void test_rotary_rows(void **state)
{
    (void)state;
    float a[FIX_HIDDEN], b[FIX_HIDDEN];
    struct fixture llama = {.arch = "llama"}, qwen = {.arch = "qwen3"};
    /* the same seed fills the same tensors with the same values up to layer 0's q and k */
    struct model *x = load(&llama), *y = load(&qwen);
    for (uint32_t r = 0; r < FIX_HEAD_DIM; r++) {
        uint32_t from = r < FIX_HEAD_DIM / 2 ? 2 * r : 2 * (r - FIX_HEAD_DIM / 2) + 1;
        weight_get_row(&x->layers[0].k, r, a);
        weight_get_row(&y->layers[0].k, from, b);
        assert_memory_equal(a, b, sizeof a);
        weight_get_row(&x->layers[0].v, r, a);
        weight_get_row(&y->layers[0].v, r, b);
        assert_memory_equal(a, b, sizeof a);
    }
    model_destroy(x);
    model_destroy(y);
}

static void test_types_may_differ(void **state)
{
    (void)state;
    struct fixture f = {.type = GGML_Q4_1,
                        .vector_type = GGML_F16,
                        .odd = "blk.1.ffn_down.weight",
                        .odd_type = GGML_Q8_0};
    struct model *m = load(&f);
    assert_int_equal(m->layers[0].down.type, WEIGHT_Q4);
    assert_int_equal(m->layers[1].down.type, WEIGHT_Q8);
    model_destroy(m);
    f.vector_type = GGML_BF16;
    model_destroy(load(&f));
}

static void test_reference_is_float32(void **state)
{
    (void)state;
    float a[FIX_HIDDEN], b[FIX_HIDDEN];
    const struct fixture f = {.type = GGML_Q5_1};
    const struct model_options o = {.reference = true, .threads = 1};
    struct model *m = load(&f), *r;
    struct errmsg why;
    assert_int_equal(load_with(&f, &o, &r, &why), OK);
    assert_int_equal(m->layers[1].q.type, WEIGHT_Q8);
    assert_int_equal(r->layers[1].q.type, WEIGHT_F32);
    for (uint32_t row = 0; row < r->layers[1].q.rows; row++) {
        weight_get_row(&m->layers[1].q, row, a);
        weight_get_row(&r->layers[1].q, row, b);
        for (uint32_t c = 0; c < FIX_HIDDEN; c++)
            assert_true(fabsf(a[c] - b[c]) <= 1.2e-7f * fabsf(a[c]) + 1e-9f);
    }
    assert_false(hash128_eq(m->fingerprint, r->fingerprint));
    model_destroy(m);
    model_destroy(r);
}

static void test_fingerprint(void **state)
{
    (void)state;
    const struct fixture f = {.type = GGML_Q8_0};
    struct fixture others[] = {f, f, f, f};
    others[0].seed = 1;
    others[1].type = GGML_Q4_0;
    others[2].head = true;
    others[3].rope_freqs = true;
    struct model *m = load(&f), *again = load(&f);
    assert_true(hash128_eq(m->fingerprint, again->fingerprint));
    model_destroy(again);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct model *other = load(&others[i]);
        assert_false(hash128_eq(m->fingerprint, other->fingerprint));
        model_destroy(other);
    }
    model_destroy(m);
}

static void count_progress(void *arg, uint64_t done, uint64_t total)
{
    uint64_t *seen = arg;
    assert_true(done <= total && done > seen[0]);
    seen[0] = done;
    seen[1] = total;
}

static void test_plan_and_progress(void **state)
{
    (void)state;
    const struct fixture f = {.type = GGML_Q4_0, .head = true};
    uint64_t seen[2] = {0};
    const struct model_options plan = {.plan_only = true};
    const struct model_options whole = {
        .threads = 1, .progress = count_progress, .progress_arg = seen};
    struct model *p, *m, *v;
    struct errmsg why;
    assert_int_equal(load_with(&f, &plan, &p, &why), OK);
    assert_int_equal(load_with(&f, &whole, &m, &why), OK);
    assert_true(seen[1] > 0 && seen[0] == seen[1]);
    assert_true(p->embed.data == NULL && m->embed.data != NULL);
    assert_int_equal(p->weight_bytes, m->weight_bytes);
    assert_int_equal(p->decode_read_bytes, m->decode_read_bytes);
    assert_true(m->decode_read_bytes < m->weight_bytes); /* the embedding is not read whole */
    assert_true(hash128_eq(p->fingerprint, m->fingerprint));
    /* of another type than any supported one: the plan refuses it, the vocabulary does not care */
    struct fixture strange = f;
    const struct model_options vocab = {.vocab_only = true};
    strange.odd = "blk.0.ffn_up.weight";
    strange.odd_type = 20;
    assert_int_equal(load_with(&strange, &plan, &v, &why), ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "IQ4_NL"));
    assert_int_equal(load_with(&strange, &vocab, &v, &why), OK);
    assert_int_equal(v->tokenizer_asset.len, m->tokenizer_asset.len);
    model_destroy(v);
    model_destroy(p);
    model_destroy(m);
}

/* ---- rope ---- */

static void linear_keys(struct gguf_writer *w)
{
    gguf_writer_string(w, "llama.rope.scaling.type", SPAN_LIT("linear"));
    gguf_writer_f32(w, "llama.rope.scaling.factor", 4);
    gguf_writer_f32(w, "llama.rope.freq_base", 500000);
}

static void test_rope_table(void **state)
{
    (void)state;
    enum { CONTEXT = 64, HALF = FIX_HEAD_DIM / 2 };
    static float table[CONTEXT * HALF * 2];
    struct fixture f = {.rope_freqs = true, .more_keys = linear_keys};
    struct model *m = load(&f);
    assert_true(m->rope_linear == 4 && m->rope_base == 500000 && m->rope_factors != NULL);
    model_rope_table(m, CONTEXT, table);
    for (uint32_t p = 0; p < CONTEXT; p++)
        for (uint32_t i = 0; i < HALF; i++) {
            double angle = p / 4.0 / m->rope_factors[i] * pow(500000, -(double)i / HALF);
            assert_true(fabs(table[(p * HALF + i) * 2] - cos(angle)) < 1e-7);
            assert_true(fabs(table[(p * HALF + i) * 2 + 1] - sin(angle)) < 1e-7);
        }
    model_destroy(m);
}

/* ---- refusals ---- */

static void test_tensors_are_refused(void **state)
{
    (void)state;
    const struct {
        struct fixture f;
        enum err err;
        const char *word;
    } all[] = {
        {{.omit = "token_embd.weight"}, ERR_PROTO, "'token_embd.weight' is missing"},
        {{.omit = "blk.1.attn_v.weight"}, ERR_PROTO, "'blk.1.attn_v.weight' is missing"},
        {{.omit = "blk.0.ffn_norm.weight"}, ERR_PROTO, "'blk.0.ffn_norm.weight' is missing"},
        {{.omit = "output_norm.weight"}, ERR_PROTO, "'output_norm.weight' is missing"},
        {{.arch = "qwen2", .omit = "blk.1.attn_k.bias"}, ERR_PROTO, "attn_k.bias' is missing"},
        {{.arch = "qwen3", .omit = "blk.0.attn_q_norm.weight"}, ERR_PROTO, "attn_q_norm"},
        {{.extra = "blk.0.ffn_gate_inp.weight"}, ERR_UNSUPPORTED, "blk.0.ffn_gate_inp.weight"},
        {{.extra = "blk.0.attn_q.bias"}, ERR_UNSUPPORTED, "blk.0.attn_q.bias"},
        {{.extra = "blk.2.attn_norm.weight"}, ERR_UNSUPPORTED, "blk.2.attn_norm.weight"},
        {{.extra = "blk.0.attn_norm.weight.lora_a"}, ERR_UNSUPPORTED, "lora_a"},
        {{.extra = "cls.weight"}, ERR_UNSUPPORTED, "cls.weight"},
        {{.wider = "blk.0.attn_q.weight"}, ERR_PROTO, "'blk.0.attn_q.weight' is [64, 65"},
        {{.wider = "blk.1.ffn_down.weight"}, ERR_PROTO, "calls for [96, 64]"},
        {{.wider = "output_norm.weight"}, ERR_PROTO, "'output_norm.weight' is [65"},
        {{.head = true, .wider = "output.weight"}, ERR_PROTO, "calls for [64, 40]"},
        {{.rope_freqs = true, .wider = "rope_freqs.weight"}, ERR_PROTO, "rope_freqs"},
        {{.odd = "blk.1.attn_k.weight", .odd_type = 20}, ERR_UNSUPPORTED, "supported types: F32"},
        {{.odd = "blk.1.attn_norm.weight", .odd_type = GGML_Q8_0}, ERR_UNSUPPORTED, "a vector"},
        {{.poison = "blk.1.ffn_up.weight"}, ERR_PROTO, "'blk.1.ffn_up.weight': row 95"},
        {{.type = GGML_Q4_0, .poison = "token_embd.weight"}, ERR_PROTO, "row 39 holds a scale"},
        {{.poison = "blk.0.ffn_norm.weight"}, ERR_PROTO, "value 63 is not finite"},
        {{.tokens = FIX_VOCAB + 1}, ERR_PROTO, "41 tokens"},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        refuse(&all[i].f, all[i].err, all[i].word);
}

static void key_window(struct gguf_writer *w)
{
    gguf_writer_u32(w, "llama.attention.sliding_window", 4096);
}
static void key_experts(struct gguf_writer *w)
{
    gguf_writer_u32(w, "llama.expert_count", 8);
}
static void key_yarn(struct gguf_writer *w)
{
    gguf_writer_string(w, "llama.rope.scaling.type", SPAN_LIT("yarn"));
}
static void key_softcap(struct gguf_writer *w)
{
    gguf_writer_f32(w, "llama.final_logit_softcapping", 30);
}
static void key_encoder(struct gguf_writer *w)
{
    gguf_writer_bool(w, "llama.attention.causal", false);
}
static void key_base(struct gguf_writer *w)
{
    gguf_writer_f32(w, "llama.rope.freq_base", 0);
}
static void key_base_nan(struct gguf_writer *w)
{
    gguf_writer_f32(w, "llama.rope.freq_base", NAN);
}
static void key_odd_head(struct gguf_writer *w)
{
    gguf_writer_u32(w, "llama.attention.key_length", 33);
}
static void key_value_length(struct gguf_writer *w)
{
    gguf_writer_u32(w, "llama.attention.value_length", 16);
}
static void key_bos(struct gguf_writer *w)
{
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1000);
}
static void key_pre(struct gguf_writer *w)
{
    gguf_writer_string(w, "tokenizer.ggml.pre", SPAN_LIT("of-tomorrow"));
}
static void key_factor(struct gguf_writer *w)
{
    gguf_writer_string(w, "llama.rope.scaling.type", SPAN_LIT("linear"));
    gguf_writer_f32(w, "llama.rope.scaling.factor", -1);
}
static void key_head_count(struct gguf_writer *w)
{
    gguf_writer_u32(w, "llama.attention.head_count", 3);
    gguf_writer_u32(w, "llama.attention.key_length", FIX_HEAD_DIM);
}
static void key_layers_of_heads(struct gguf_writer *w)
{
    const int32_t counts[] = {2, 0};
    gguf_writer_i32s(w, "llama.attention.head_count", counts, 2);
}
static void key_too_few_layers(struct gguf_writer *w)
{
    const int32_t counts[] = {2};
    gguf_writer_i32s(w, "llama.attention.head_count", counts, 1);
}
static void key_many_layers(struct gguf_writer *w)
{
    gguf_writer_u32(w, "llama.block_count", 1 << 20);
}

static void test_metadata_is_refused(void **state)
{
    (void)state;
    const struct {
        void (*keys)(struct gguf_writer *w);
        const char *omit;
        enum err err;
        const char *word;
    } all[] = {
        {key_window, NULL, ERR_UNSUPPORTED, "'llama.attention.sliding_window' is 4096"},
        {key_experts, NULL, ERR_UNSUPPORTED, "'llama.expert_count' is 8"},
        {key_yarn, NULL, ERR_UNSUPPORTED, "rope scaling 'yarn'"},
        {key_softcap, NULL, ERR_UNSUPPORTED, "'llama.final_logit_softcapping'"},
        {key_encoder, NULL, ERR_UNSUPPORTED, "'llama.attention.causal'"},
        {key_base, NULL, ERR_INVALID, "'llama.rope.freq_base'"},
        {key_base_nan, NULL, ERR_INVALID, "'llama.rope.freq_base' is not a finite number"},
        {key_odd_head, NULL, ERR_UNSUPPORTED, "33"},
        {key_value_length, NULL, ERR_UNSUPPORTED, "16 (values)"},
        {key_bos, NULL, ERR_INVALID, "'tokenizer.ggml.bos_token_id' is 1000"},
        {key_pre, NULL, ERR_UNSUPPORTED, "of-tomorrow"},
        {key_factor, NULL, ERR_INVALID, "'llama.rope.scaling.factor'"},
        {key_head_count, "attention.head_count", ERR_PROTO, "attn_q"},
        {key_layers_of_heads, "attention.head_count", ERR_UNSUPPORTED, "0 for layer 1"},
        {key_too_few_layers, "attention.head_count", ERR_INVALID, "1 elements; expected 2"},
        {key_many_layers, "block_count", ERR_INVALID, "'llama.block_count' is 1048576"},
        {NULL, "block_count", ERR_NOT_FOUND, "'llama.block_count' is missing"},
        {NULL, "embedding_length", ERR_NOT_FOUND, "'llama.embedding_length' is missing"},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const struct fixture f = {.more_keys = all[i].keys, .omit_key = all[i].omit};
        refuse(&f, all[i].err, all[i].word);
    }
    refuse(&(struct fixture){.arch = "mamba"}, ERR_UNSUPPORTED, "'mamba' is not known");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_rotary_rows),
        cmocka_unit_test(test_types_may_differ),
        cmocka_unit_test(test_reference_is_float32),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_plan_and_progress),
        cmocka_unit_test(test_rope_table),
        cmocka_unit_test(test_tensors_are_refused),
        cmocka_unit_test(test_metadata_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
