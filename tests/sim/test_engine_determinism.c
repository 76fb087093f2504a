/* The same request gives the same tokens: alone, among others, prefix cold and cached, at every
 * chunk size, with forced and with real preemption, with several choices, and resumed in the
 * middle. */
#include "kernels/cpu/cpu_ops.h"
#include "kernels/pool.h"
#include "tests/sim/fake_executor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { PROMPT = 75, OUTPUT = 40, IDS_MAX = 256 };

struct world {
    struct engine_options options;
    struct fake fake;
    struct engine *engine;
};

struct outcome {
    uint32_t ids[4][IDS_MAX], count[4], cached, stop_id[4];
    enum engine_finish finish[4];
    uint32_t terminals;
    float logprob_sum;
};

static struct engine_options options_of(uint32_t blocks, uint32_t chunk, uint32_t preempt_every,
                                        bool cache)
{
    return (struct engine_options){.sequences_max = 40,
                                   .waiting_max = 64,
                                   .context_max = 512,
                                   .kv_blocks = blocks,
                                   .step_tokens_max = 128,
                                   .chunk_tokens = chunk,
                                   .tpot_target_ms = 50,
                                   .watermark = 0.02f,
                                   .prefix_cache = cache,
                                   .preempt_every_steps = preempt_every,
                                   .kv_layout = "test",
                                   .cpu_ops = cpu_ops_get(ISA_PLAIN)};
}

static void open_world(struct world *w, struct engine_options options)
{
    struct errmsg why;
    w->options = options;
    fake_init(&w->fake, &w->options);
    struct engine_executor executor = {&w->fake, fake_forward, FAKE_VOCAB};
    if (engine_create(&w->options, &executor, &w->engine, &why) != OK) fail_msg("%s", why.text);
}

static void close_world(struct world *w)
{
    engine_check(w->engine);
    engine_destroy(w->engine);
    fake_deinit(&w->fake);
}

static void make_prompt(uint32_t *prompt, uint32_t n, uint32_t salt)
{
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (i * 7 + salt * 13 + i * i % 11) % FAKE_VOCAB;
}

static void submit(struct world *w, uint64_t id, const uint32_t *prompt, uint32_t n,
                   struct sampling_params params, uint32_t choices)
{
    struct errmsg why;
    struct engine_request r = {.id = id,
                               .attempt = 1,
                               .prompt = prompt,
                               .prompt_count = n,
                               .params = params,
                               .choice_count = choices};
    if (engine_submit(w->engine, &r, fake_now_ns, &why) != OK) fail_msg("%s", why.text);
}

/* Runs until idle; gathers what belongs to id. */
static void run(struct world *w, uint64_t id, struct outcome *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t steps = 0; engine_has_work(w->engine); steps++) {
        const struct engine_result *results;
        uint32_t count;
        assert_true(steps < 20000);
        assert_int_equal(engine_step(w->engine, fake_clock(), fake_clock, &results, &count), OK);
        engine_check(w->engine);
        for (uint32_t i = 0; i < count; i++) {
            const struct engine_result *r = &results[i];
            if (r->id != id) continue;
            assert_true(r->finish == ENGINE_RUNNING ||
                        out->finish[r->choice] == ENGINE_RUNNING); /* one end */
            assert_int_equal(r->first_index, out->count[r->choice] + (r->id_count ? 0 : 0));
            for (uint32_t k = 0; k < r->id_count; k++)
                out->ids[r->choice][out->count[r->choice]++] = r->ids[k];
            if (r->logprobs)
                out->logprob_sum += r->logprobs->logprob + r->logprobs->top_logprobs[1];
            if (r->first) out->cached = r->cached_tokens;
            out->finish[r->choice] = r->finish;
            out->stop_id[r->choice] = r->stop_id;
            out->terminals += r->finish != ENGINE_RUNNING;
        }
    }
}

static const struct sampling_params *all_params(uint32_t *n)
{
    static struct sampling_params p[6];
    for (int i = 0; i < 6; i++)
        p[i] = fake_params(OUTPUT);
    p[1].temperature = 1;
    p[2].temperature = 0.8f, p[2].top_p = 0.9f, p[2].top_k = 20, p[2].min_p = 0.02f;
    p[3].temperature = 1.2f, p[3].repetition_penalty = 1.3f, p[3].presence_penalty = 0.5f,
    p[3].frequency_penalty = 0.2f;
    p[4].temperature = 0.7f, p[4].want_logprobs = true, p[4].top_logprobs = 5, p[4].top_p = 0.5f;
    p[5].temperature = 1, p[5].seed = UINT64_MAX;
    *n = 6;
    return p;
}

static void expect(struct world *w, const uint32_t *prompt, struct sampling_params p,
                   const struct outcome *want, const char *what)
{
    struct outcome got;
    submit(w, 1, prompt, PROMPT, p, 1);
    run(w, 1, &got);
    if (got.count[0] != want->count[0] || memcmp(got.ids[0], want->ids[0], sizeof got.ids[0]) != 0)
        fail_msg("%s: other tokens", what);
    if (got.logprob_sum != want->logprob_sum) fail_msg("%s: other logprobs", what);
    assert_int_equal(got.terminals, 1);
}

static void the_same_bytes_everywhere(void **state)
{
    (void)state;
    uint32_t n, prompt[PROMPT], other[PROMPT];
    const struct sampling_params *params = all_params(&n);
    make_prompt(prompt, PROMPT, 1);
    for (uint32_t k = 0; k < n; k++) {
        struct outcome want;
        struct world w;
        open_world(&w, options_of(400, 128, 0, false));
        submit(&w, 1, prompt, PROMPT, params[k], 1);
        run(&w, 1, &want);
        assert_int_equal(want.count[0], OUTPUT);
        assert_int_equal(want.finish[0], ENGINE_LENGTH);
        close_world(&w);
        for (uint32_t chunk = 1; chunk <= 80;
             chunk += chunk < 20 ? 1 : 13) { /* every chunk size; then again, from the cache */
            open_world(&w, options_of(400, chunk, 0, true));
            expect(&w, prompt, params[k], &want, "chunk");
            expect(&w, prompt, params[k], &want, "cached");
            close_world(&w);
        }
        for (uint32_t every = 1; every < 8; every++) { /* forced preemption */
            open_world(&w, options_of(400, 9, every < 3 ? 3 : every, true));
            expect(&w, prompt, params[k], &want, "preempted");
            close_world(&w);
            open_world(&w, options_of(400, 64, every < 3 ? 11 : every + 3, false));
            expect(&w, prompt, params[k], &want, "preempted without a cache");
            close_world(&w);
        }
        for (uint32_t blocks = 12; blocks < 60;
             blocks += 9) { /* among 31 others, in pools that are too small for all */
            open_world(&w, options_of(blocks, 0, 0, true));
            for (uint32_t i = 0; i < 31; i++) {
                make_prompt(other, PROMPT, i % 5 + 1);
                submit(&w, 100 + i, other, 20 + i, params[(k + i) % n], 1);
            }
            expect(&w, prompt, params[k], &want, "among others");
            close_world(&w);
        }
    }
}

static void choices_share_and_differ(void **state)
{
    (void)state;
    uint32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 2);
    struct sampling_params p = fake_params(20);
    p.temperature = 1;
    struct world w;
    struct outcome one, many;
    open_world(&w, options_of(100, 16, 0, true));
    submit(&w, 1, prompt, PROMPT, p, 4);
    run(&w, 1, &many);
    assert_int_equal(many.terminals, 4);
    assert_memory_not_equal(many.ids[0], many.ids[1], sizeof many.ids[0]);
    /* the prompt was computed once: the others found its blocks, and copied the one that is not
     * full */
    assert_true(w.fake.rows_total < PROMPT + 4 * 20 + 3 * KV_BLOCK_TOKENS);
    close_world(&w);
    for (uint32_t c = 0; c < 4; c++) { /* a choice alone, as after a failover */
        struct errmsg why;
        open_world(&w, options_of(100, 16, 0, true));
        struct engine_request r = {.id = 1,
                                   .attempt = 1,
                                   .prompt = prompt,
                                   .prompt_count = PROMPT,
                                   .params = p,
                                   .choice_count = 1,
                                   .choice_indexes = &c};
        assert_int_equal(engine_submit(w.engine, &r, fake_now_ns, &why), OK);
        run(&w, 1, &one);
        assert_memory_equal(one.ids[c], many.ids[c], sizeof one.ids[c]);
        close_world(&w);
    }
}

static void resumes_at_the_exact_token(void **state)
{
    (void)state;
    uint32_t n, prompt[PROMPT];
    const struct sampling_params *params = all_params(&n);
    make_prompt(prompt, PROMPT, 3);
    for (uint32_t k = 0; k < n; k++) {
        struct world w;
        struct outcome whole, rest;
        struct errmsg why;
        open_world(&w, options_of(100, 0, 0, true));
        submit(&w, 1, prompt, PROMPT, params[k], 1);
        run(&w, 1, &whole);
        close_world(&w);
        for (uint32_t cut = 1; cut < OUTPUT; cut += 7) {
            open_world(&w, options_of(100, 0, 0, true));
            struct engine_request r = {.id = 1,
                                       .attempt = 2,
                                       .prompt = prompt,
                                       .prompt_count = PROMPT,
                                       .output = whole.ids[0],
                                       .output_count = cut,
                                       .params = params[k],
                                       .choice_count = 1};
            assert_int_equal(engine_submit(w.engine, &r, fake_now_ns, &why), OK);
            memset(&rest, 0, sizeof rest);
            uint32_t at = cut;
            while (engine_has_work(w.engine)) {
                const struct engine_result *results;
                uint32_t count;
                assert_int_equal(engine_step(w.engine, fake_clock(), fake_clock, &results, &count),
                                 OK);
                for (uint32_t i = 0; i < count; i++)
                    for (uint32_t j = 0; j < results[i].id_count; j++, at++) {
                        assert_int_equal(results[i].first_index + j, at);
                        assert_int_equal(results[i].ids[j], whole.ids[0][at]);
                    }
            }
            assert_int_equal(at, OUTPUT);
            close_world(&w);
        }
    }
}

static void a_shared_prefix_is_computed_once(void **state)
{
    (void)state;
    static uint32_t prompt[420];
    make_prompt(prompt, 420, 4);
    struct world w;
    struct outcome out;
    open_world(&w, options_of(800, 0, 0, true));
    for (uint32_t i = 0; i < 32; i++) {
        prompt[400] = i; /* 400 tokens in common, then their own */
        submit(&w, i, prompt, 420, fake_params(4), 1);
    }
    run(&w, 31, &out);
    assert_true(w.fake.rows_total < 420 + 32 * (20 + 4 + KV_BLOCK_TOKENS));
    assert_true(out.cached >= 400 - 400 % KV_BLOCK_TOKENS);
    close_world(&w);
}

static void tenants_do_not_share(void **state)
{
    (void)state;
    uint32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 5);
    struct world w;
    struct outcome out;
    struct errmsg why;
    open_world(&w, options_of(100, 0, 0, true));
    submit(&w, 1, prompt, PROMPT, fake_params(4), 1);
    run(&w, 1, &out);
    struct engine_request r = {.id = 2,
                               .attempt = 1,
                               .prompt = prompt,
                               .prompt_count = PROMPT,
                               .params = fake_params(4),
                               .choice_count = 1,
                               .salt = "b",
                               .salt_bytes = 1};
    assert_int_equal(engine_submit(w.engine, &r, fake_now_ns, &why), OK);
    run(&w, 2, &out);
    assert_int_equal(out.cached, 0);
    submit(&w, 3, prompt, PROMPT, fake_params(4), 1);
    run(&w, 3, &out);
    assert_true(out.cached >= PROMPT - 1 - KV_BLOCK_TOKENS);
    close_world(&w);
}

static void failures_stay_where_they_happen(void **state)
{
    (void)state;
    uint32_t good[20], bad[20];
    for (uint32_t i = 0; i < 20; i++)
        good[i] = i, bad[i] = i + 20;
    struct world w;
    struct outcome out, alone;
    open_world(&w, options_of(100, 0, 0, true));
    w.fake.nan_token = 39; /* bad's last token */
    submit(&w, 1, good, 20, fake_params(10), 1);
    run(&w, 1, &alone);
    submit(&w, 1, good, 20, fake_params(10), 1);
    submit(&w, 2, bad, 20, fake_params(10), 1);
    struct outcome broken;
    run(&w, 1, &out);
    assert_memory_equal(out.ids[0], alone.ids[0], sizeof out.ids[0]);
    submit(&w, 2, bad, 20, fake_params(10), 1);
    run(&w, 2, &broken);
    assert_int_equal(broken.finish[0], ENGINE_ERROR);
    assert_int_equal(broken.cached, 0); /* nothing of it was published */
    w.fake.nan_token = UINT32_MAX;
    w.fake.fail_at = (uint32_t)w.fake.steps +
                     1; /* the device fails one step: its sequences end, the next ones do not */
    uint32_t fresh[20];
    make_prompt(fresh, 20, 9);
    submit(&w, 3, fresh, 20, fake_params(10), 1);
    run(&w, 3, &broken);
    assert_int_equal(broken.finish[0], ENGINE_ERROR);
    submit(&w, 4, fresh, 20, fake_params(10), 1);
    run(&w, 4, &out);
    assert_int_equal(out.cached, 0); /* a failed step unpublishes */
    assert_int_equal(out.finish[0], ENGINE_LENGTH);
    close_world(&w);
}

static void impossible_requests_name_both_numbers(void **state)
{
    (void)state;
    static uint32_t prompt[600];
    struct world w;
    struct errmsg why;
    open_world(&w, options_of(10, 0, 0, true));
    struct engine_request r = {.id = 1,
                               .attempt = 1,
                               .prompt = prompt,
                               .prompt_count = 150,
                               .params = fake_params(20),
                               .choice_count = 1};
    assert_int_equal(engine_submit(w.engine, &r, 0, &why), ERR_LIMIT);
    assert_non_null(strstr(why.text, "150"));
    assert_non_null(strstr(why.text, "160"));
    r.prompt_count = 600;
    assert_int_equal(engine_submit(w.engine, &r, 0, &why), ERR_LIMIT);
    assert_non_null(strstr(why.text, "512"));
    r.prompt_count = 10;
    assert_int_equal(engine_submit(w.engine, &r, 0, &why), OK);
    assert_int_equal(engine_submit(w.engine, &r, 0, &why), ERR_EXISTS);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_everywhere),
        cmocka_unit_test(choices_share_and_differ),
        cmocka_unit_test(resumes_at_the_exact_token),
        cmocka_unit_test(a_shared_prefix_is_computed_once),
        cmocka_unit_test(tenants_do_not_share),
        cmocka_unit_test(failures_stay_where_they_happen),
        cmocka_unit_test(impossible_requests_name_both_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
