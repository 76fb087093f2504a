/* Which worker: the cost in seconds, ties, what is cached, and when there is room at all. */
#include "gateway/router.h"
#include "tests/unit/gateway/gateway_fixture.h"

static struct served_model model;
static struct fleet fleet;
static const uint64_t now_ns = UINT64_C(5000000000);

static int setup(void **state)
{
    (void)state;
    memset(&fleet, 0, sizeof fleet);
    fixture_model_init(&model);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_check(&fleet);
    fleet_deinit(&fleet);
    fixture_model_deinit(&model);
    return 0;
}

static struct worker *join(uint8_t name, uint32_t context)
{
    struct transport_peer peer;
    memset(&peer, name, sizeof peer);
    struct worker_facts facts = {.epoch = name,
                                 .context_max = context,
                                 .sequences_max = 8,
                                 .kv_blocks = 64,
                                 .submit_window = 20};
    bool returned;
    struct worker *w = fleet_join(&fleet, &peer, &facts, &model, now_ns, &returned);
    w->report.prefill_tokens_per_s = 100;
    w->report.decode_step_s = 0.01f;
    return w;
}

static struct request *make(const char *letters, uint32_t max_tokens)
{
    char json[512];
    (void)snprintf(json, sizeof json, "{\"model\":\"m\",\"prompt\":\"%s\",\"max_tokens\":%u}",
                   letters, max_tokens);
    struct request *r = fixture_request(&model, ENDPOINT_COMPLETIONS, json);
    uint32_t zero = 0;
    CHECK(request_add_unit(r, 0, &zero, 1) != NULL);
    return r;
}

#define FORTY "qrstuvwyzQRSTUVWYZqrstuvwyzQRSTUVWYZqrst"

static void the_one_with_less_to_do(void **state)
{
    (void)state;
    struct worker *a = join(1, 200), *b = join(2, 200);
    struct request *r[3] = {make(FORTY, 5), make(FORTY, 5), make("q", 5)};
    fleet_charge(&fleet, a, r[0]->unit_list[0], 0);
    assert_ptr_equal(router_pick(&fleet, r[1]->unit_list[0], now_ns, 0).worker, b);
    fleet_charge(&fleet, b, r[1]->unit_list[0], 0);
    fleet_started(r[0]->unit_list[0]); /* a has its prefill behind it */
    struct route route = router_pick(&fleet, r[2]->unit_list[0], now_ns, 0);
    assert_ptr_equal(route.worker, a);
    assert_true(route.cost_s > 0.0 && route.cost_s < 0.1);
    fleet_discharge(&fleet, r[0]->unit_list[0]);
    fleet_discharge(&fleet, r[1]->unit_list[0]);
    for (int i = 0; i < 3; i++)
        request_destroy(r[i]);
}

static void ties_are_spread(void **state)
{
    (void)state;
    struct request *r = make("q", 5);
    uint32_t got[3] = {0};
    for (uint8_t i = 0; i < 3; i++)
        (void)join(i + 1, 200);
    for (uint64_t random = 0; random < 600; random++)
        got[router_pick(&fleet, r->unit_list[0], now_ns, random).worker - fleet.workers]++;
    for (int i = 0; i < 3; i++)
        assert_true(got[i] > 50);
    request_destroy(r);
}

static void the_prefix_draws(void **state)
{
    (void)state;
    struct worker *a = join(1, 200), *b = join(2, 200);
    struct request *r = make(FORTY, 5), *longer = make(FORTY "qqq", 5),
                   *foreign = make("Q" FORTY, 5);
    router_remember(b, &r->prompts[0]);
    assert_int_equal(router_cached(b, &r->prompts[0]), 32); /* whole blocks of 16 */
    assert_int_equal(router_cached(a, &r->prompts[0]), 0);
    assert_int_equal(router_cached(b, &foreign->prompts[0]), 0);
    struct route route = router_pick(&fleet, longer->unit_list[0], now_ns, 0);
    assert_true(route.worker == b && route.cached_tokens == 32);
    b->prefill_tokens = 1000; /* but not at any price */
    assert_ptr_equal(router_pick(&fleet, longer->unit_list[0], now_ns, 0).worker, a);
    b->prefill_tokens = 0;
    request_destroy(r);
    request_destroy(longer);
    request_destroy(foreign);
}

static void room(void **state)
{
    (void)state;
    struct worker *w = join(1, 60);
    struct request *r = make(FORTY, 5), *big = make(FORTY, 30), *first = make("q", 5);
    const struct unit *u = r->unit_list[0];
    struct route route = router_pick(&fleet, big->unit_list[0], now_ns, 0);
    assert_true(route.worker == NULL && !route.possible); /* 70 tokens never fit 60 */
    assert_ptr_equal(router_pick(&fleet, u, now_ns, 0).worker, w);
    fleet_charge(&fleet, w, first->unit_list[0], 0);
    assert_true(worker_has_room(&fleet, w, u));
    w->facts.submit_window = 1;
    route = router_pick(&fleet, u, now_ns, 0);
    assert_true(route.worker == NULL && route.possible);
    w->facts.submit_window = 20;
    w->facts.sequences_max = 1;
    w->choice_count += LOOKAHEAD_SEQUENCES;
    assert_false(worker_has_room(&fleet, w, u));
    w->choice_count -= LOOKAHEAD_SEQUENCES;
    assert_true(worker_has_room(&fleet, w, u));
    w->facts.kv_blocks = 2; /* 6 + 45 tokens do not fit 32 */
    assert_false(worker_has_room(&fleet, w, u));
    w->facts.kv_blocks = 64;
    w->prefill_tokens += PREFILL_AHEAD_TOKENS;
    assert_false(worker_has_room(&fleet, w, u));
    w->report.prefill_tokens_per_s = 1e6f; /* a fast one may have more before it */
    assert_true(worker_has_room(&fleet, w, u));
    w->prefill_tokens -= PREFILL_AHEAD_TOKENS;
    w->state = WORKER_DRAINING;
    assert_null(router_pick(&fleet, u, now_ns, 0).worker);
    w->state = WORKER_LIVE;
    fleet_discharge(&fleet, first->unit_list[0]);
    w->facts.kv_blocks = 2; /* an idle worker takes what it can ever take */
    assert_true(worker_has_room(&fleet, w, u));
    request_destroy(r);
    request_destroy(big);
    request_destroy(first);
}

/* What answers will hold is learnt from those that ended. */
static void outputs_are_guessed_from_the_past(void **state)
{
    (void)state;
    struct worker *w = join(1, 200);
    struct request *r = make("q", 190);
    struct unit *u = r->unit_list[0];
    fleet_charge(&fleet, w, u, 0);
    uint64_t before = w->kv_tokens;
    assert_int_equal(before, 191); /* nothing known: max_tokens bounds the guess */
    r->choices[0].id_count = 9;
    fleet_choice_over(&fleet, u, &r->choices[0]);
    fleet_discharge(&fleet, u);
    assert_int_equal(w->kv_tokens, 0);
    struct request *next = make("q", 190);
    fleet_charge(&fleet, w, next->unit_list[0], 0);
    assert_int_equal(w->kv_tokens, 1 + 11);
    fleet_discharge(&fleet, next->unit_list[0]);
    request_destroy(r);
    request_destroy(next);
}

static void leases(void **state)
{
    (void)state;
    struct worker *w = join(1, 200);
    assert_true(worker_good(w, now_ns + SUSPECT_NS - 1));
    assert_false(worker_good(w, now_ns + SUSPECT_NS));
    assert_false(worker_dead(w, now_ns + DEAD_NS - 1));
    assert_true(worker_dead(w, now_ns + DEAD_NS));
    bool returned;
    struct worker_facts facts = w->facts;
    assert_ptr_equal(fleet_join(&fleet, &w->peer, &facts, &model, now_ns + 9, &returned), w);
    assert_true(returned && w->last_heard_ns == now_ns + 9);
    assert_true(fleet_serves(&fleet, &model));
    fleet_remove(&fleet, w);
    assert_int_equal(fleet.count, 0);
    assert_false(fleet_serves(&fleet, &model));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(the_one_with_less_to_do),           T(ties_are_spread), T(the_prefix_draws), T(room),
        T(outputs_are_guessed_from_the_past), T(leases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
