/* Random requests with random aborts, a tiny KV pool, failing steps and NaNs: every invariant after
 * each step, each request ends exactly once, whatever is finished equals what it is alone, nothing
 * leaks (run it under AddressSanitizer). test_engine_random [SEED [REQUESTS]]   prints the seed of
 * a failure; the default is short, the run is `1 10000`. */
#include "kernels/cpu/cpu_ops.h"
#include "tests/sim/fake_executor.h"

#include <stdio.h>

enum { LIVE_MAX = 64, PROMPT_MAX = 120, OUTPUT_MAX = 40, FAMILIES = 6 };

struct random_state {
    uint64_t s;
};

static uint32_t draw(struct random_state *r, uint32_t n)
{
    r->s = r->s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(r->s >> 33) % n;
}

struct live { /* a request that was taken and has choices that did not end */
    bool used, cancelled, judged;
    uint64_t id;
    uint32_t prompt[PROMPT_MAX], prompt_count, choices, ended;
    struct sampling_params params;
    uint32_t ids[4][OUTPUT_MAX], count[4];
};

struct world {
    struct random_state random;
    struct engine *engine;
    struct fake fake;
    struct engine_options options;
    struct live live[LIVE_MAX];
    uint64_t submitted, ended, cancelled, failed, compared, full;
};

/* The same request on an engine of its own. */
static void judge(struct world *w, const struct live *x, uint32_t choice)
{
    struct engine_options o = w->options;
    struct fake fake;
    struct engine *e;
    struct errmsg why;
    o.kv_blocks = 64;
    o.preempt_every_steps = 0;
    o.prefix_cache = false;
    fake_init(&fake, &o);
    struct engine_executor executor = {&fake, fake_forward, FAKE_VOCAB};
    CHECK(engine_create(&o, &executor, &e, &why) == OK);
    struct engine_request r = {.id = 1,
                               .attempt = 1,
                               .prompt = x->prompt,
                               .prompt_count = x->prompt_count,
                               .params = x->params,
                               .choice_count = 1,
                               .choice_indexes = &choice};
    CHECK(engine_submit(e, &r, 0, &why) == OK);
    uint32_t at = 0;
    while (engine_has_work(e)) {
        const struct engine_result *results;
        uint32_t count;
        CHECK(engine_step(e, fake_clock(), fake_clock, &results, &count) == OK);
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t k = 0; k < results[i].id_count; k++, at++)
                CHECK_MSG(at < x->count[choice] && results[i].ids[k] == x->ids[choice][at],
                          "request %llu choice %u token %u", (unsigned long long)x->id, choice, at);
    }
    CHECK(at == x->count[choice]);
    engine_destroy(e);
    fake_deinit(&fake);
    w->compared++;
}

static void submit(struct world *w)
{
    struct live *x = NULL;
    for (uint32_t i = 0; i < LIVE_MAX && x == NULL; i++)
        if (!w->live[i].used) x = &w->live[i];
    if (x == NULL) return;
    *x = (struct live){.id = w->submitted + 1,
                       .prompt_count = 1 + draw(&w->random, PROMPT_MAX),
                       .choices = 1 + (draw(&w->random, 5) == 0) * draw(&w->random, 4)};
    if (x->choices < 1) x->choices = 1;
    uint32_t family = draw(&w->random, FAMILIES),
             own = draw(&w->random, x->prompt_count + 1); /* prefixes in common */
    for (uint32_t i = 0; i < x->prompt_count; i++)
        x->prompt[i] = i < own ? (i * 5 + family) % FAKE_VOCAB : draw(&w->random, FAKE_VOCAB);
    x->params = fake_params(1 + draw(&w->random, OUTPUT_MAX));
    x->params.temperature = (float)draw(&w->random, 3) * 0.6f;
    x->params.top_k = draw(&w->random, 2) * 10;
    x->params.top_p = draw(&w->random, 2) ? 0.8f : 1;
    x->params.repetition_penalty = draw(&w->random, 3) ? 1 : 1.2f;
    x->params.seed = draw(&w->random, 1000);
    struct engine_request r = {.owner = draw(&w->random, 2),
                               .id = x->id,
                               .attempt = 1,
                               .prompt = x->prompt,
                               .prompt_count = x->prompt_count,
                               .params = x->params,
                               .choice_count = x->choices};
    struct errmsg why;
    enum err err = engine_submit(w->engine, &r, fake_now_ns, &why);
    w->full += err == ERR_FULL;
    CHECK_MSG(err == OK || err == ERR_FULL || err == ERR_LIMIT, "%s", why.text);
    w->submitted++;
    if (err != OK) {
        w->ended++;
        return;
    }
    x->used = true;
    x->judged = draw(&w->random, 4) == 0;
    if (draw(&w->random, 5) == 0) { /* aborted at once, in every state it may be in later too */
        CHECK(engine_cancel(w->engine, r.owner, x->id, 1) == OK);
        x->cancelled = true;
    }
}

static struct live *find(struct world *w, uint64_t id)
{
    for (uint32_t i = 0; i < LIVE_MAX; i++)
        if (w->live[i].used && w->live[i].id == id) return &w->live[i];
    return NULL;
}

static void on_result(struct world *w, const struct engine_result *r)
{
    struct live *x = find(w, r->id);
    CHECK_MSG(x != NULL, "a result of request %llu, which has ended", (unsigned long long)r->id);
    CHECK(r->choice < x->choices && r->first_index == x->count[r->choice]);
    for (uint32_t k = 0; k < r->id_count; k++)
        x->ids[r->choice][x->count[r->choice]++] = r->ids[k];
    if (r->finish == ENGINE_RUNNING) return;
    CHECK(r->finish != ENGINE_CANCELLED || x->cancelled);
    w->cancelled += r->finish == ENGINE_CANCELLED;
    w->failed += r->finish == ENGINE_ERROR;
    if (r->finish == ENGINE_LENGTH && x->judged) judge(w, x, r->choice);
    if (++x->ended < x->choices) return;
    x->used = false;
    w->ended++;
}

static void step(struct world *w)
{
    const struct engine_result *results;
    uint32_t count;
    if (draw(&w->random, 200) == 0) w->fake.fail_at = (uint32_t)w->fake.steps + 1;
    CHECK(engine_step(w->engine, fake_clock(), fake_clock, &results, &count) == OK);
    engine_check(w->engine);
    for (uint32_t i = 0; i < count; i++)
        on_result(w, &results[i]);
    engine_check(w->engine);
}

static void abort_some(struct world *w)
{
    struct live *x = &w->live[draw(&w->random, LIVE_MAX)];
    if (!x->used || x->cancelled || draw(&w->random, 6) != 0) return;
    enum err a = engine_cancel(w->engine, 0, x->id, 1), b = engine_cancel(w->engine, 1, x->id, 1);
    x->cancelled = a == OK || b == OK;
    engine_check(w->engine);
}

static void run_seed(uint64_t seed, uint64_t requests)
{
    struct world w = {.random = {seed * 77 + 1}};
    struct errmsg why;
    struct random_state *r = &w.random;
    w.options = (struct engine_options){.sequences_max = 1 + draw(r, 24),
                                        .waiting_max = 1 + draw(r, 32),
                                        .context_max = 256,
                                        .kv_blocks = 12 + draw(r, 60),
                                        .step_tokens_max = 24 + draw(r, 100),
                                        .chunk_tokens = draw(r, 2) * (1 + draw(r, 20)),
                                        .tpot_target_ms = 1 + draw(r, 50),
                                        .watermark = 0.01f * (float)draw(r, 10),
                                        .prefix_cache = draw(r, 5) != 0,
                                        .preempt_every_steps = draw(r, 3) ? 0 : 4 + draw(r, 20),
                                        .kv_layout = "test",
                                        .cpu_ops = cpu_ops_get(isa_best())};
    fake_init(&w.fake, &w.options);
    w.fake.nan_token = draw(r, 2) ? UINT32_MAX : 63;
    struct engine_executor executor = {&w.fake, fake_forward, FAKE_VOCAB};
    CHECK_MSG(engine_create(&w.options, &executor, &w.engine, &why) == OK, "%s", why.text);
    for (uint64_t idle = 0; w.submitted < requests || engine_has_work(w.engine);) {
        if (w.submitted < requests && draw(r, 3) == 0) submit(&w);
        abort_some(&w);
        if (engine_has_work(w.engine)) step(&w);
        CHECK_MSG(++idle < 400 * requests + 100000, "no end: %llu of %llu ended",
                  (unsigned long long)w.ended, (unsigned long long)w.submitted);
    }
    CHECK(w.ended == w.submitted);
    for (uint32_t i = 0; i < LIVE_MAX; i++)
        CHECK(!w.live[i].used);
    struct engine_load load;
    engine_load_get(w.engine, &load);
    CHECK(load.kv_blocks_used == 0 && load.running == 0 && load.waiting == 0);
    printf("seed %llu: %llu requests ended once, %llu choices cancelled, %llu failed, %llu "
           "refused, %llu preempted, %llu compared with their run alone\n",
           (unsigned long long)seed, (unsigned long long)w.ended, (unsigned long long)w.cancelled,
           (unsigned long long)w.failed, (unsigned long long)w.full,
           (unsigned long long)load.preemptions, (unsigned long long)w.compared);
    engine_destroy(w.engine);
    fake_deinit(&w.fake);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0,
             requests = argc > 2 ? strtoull(argv[2], NULL, 10) : 200;
    if (seed != 0) {
        run_seed(seed, requests);
        return 0;
    }
    for (seed = 1; seed <= 12; seed++) {
        fprintf(stderr, "seed %llu\n",
                (unsigned long long)seed); /* the last one printed is the one that fails */
        run_seed(seed, requests);
    }
    return 0;
}
