/* The queue, the batcher and failures, over fake workers: what is sent where, what comes back, and
 * that every choice gets each of its tokens once whatever happens. */
#include "gateway/dispatch.h"
#include "tests/unit/gateway/gateway_fixture.h"

#define MS UINT64_C(1000000)

static struct served_model model, other;
static struct dispatch d;
static uint64_t now_ns;

/* What dispatch did. */
static struct {
    struct unit *sent[4096];
    struct worker *sent_to[4096];
    uint32_t sent_count, cancel_count, changed_count, failed_count;
    uint64_t last_cancelled;
    struct api_error last_error;
} seen;

static void on_send(void *arg, struct worker *w, struct unit *u)
{
    (void)arg;
    seen.sent[seen.sent_count % ARRAY_LEN(seen.sent)] = u;
    seen.sent_to[seen.sent_count++ % ARRAY_LEN(seen.sent)] = w;
}

static void on_cancel(void *arg, struct worker *w, uint64_t id, uint32_t attempt)
{
    (void)arg, (void)w, (void)attempt;
    seen.cancel_count++;
    seen.last_cancelled = id;
}

static void on_changed(void *arg, struct request *r)
{
    (void)arg, (void)r;
    seen.changed_count++;
}

static void on_failed(void *arg, struct request *r, const struct api_error *e)
{
    (void)arg;
    r->failed = true;
    seen.failed_count++;
    seen.last_error = *e;
}

static int setup(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    memset(&d, 0, sizeof d);
    now_ns = 1000 * MS;
    d.limits = (struct queue_limits){100, 10000, 1 << 20};
    d.actions = (struct dispatch_actions){NULL, on_send, on_cancel, on_changed, on_failed};
    fixture_model_init(&model);
    other = model;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dispatch_check(&d);
    fleet_deinit(&d.fleet);
    fixture_model_deinit(&model);
    return 0;
}

static struct worker *join(uint8_t name, struct served_model *m, uint32_t sequences)
{
    struct transport_peer peer;
    memset(&peer, 0, sizeof peer);
    memset(&peer, name, 3);
    struct worker_facts facts = {.epoch = name,
                                 .context_max = 200,
                                 .sequences_max = sequences,
                                 .kv_blocks = 1000,
                                 .submit_window = 64};
    bool returned;
    struct worker *w = fleet_join(&d.fleet, &peer, &facts, m, now_ns, &returned);
    assert_non_null(w);
    assert_false(returned);
    return w;
}

#define CHAT(more) "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]" more "}"

static struct request *enqueue(const char *json)
{
    struct api_error e;
    struct request *r = fixture_request(&model, ENDPOINT_CHAT, json);
    assert_int_equal(dispatch_enqueue(&d, r, now_ns, &e), OK);
    return r;
}

static void end(struct request *r)
{
    dispatch_abandon(&d, r);
    request_destroy(r);
}

static void tokens(struct worker *w, const struct unit *u, uint32_t choice, uint32_t first,
                   const uint32_t *ids, uint32_t count, enum finish finish)
{
    struct token_event e = {.id = u->id,
                            .attempt = u->attempt,
                            .choice = choice,
                            .first_index = first,
                            .id_count = count,
                            .ids = (const uint8_t *)ids,
                            .finish = finish};
    dispatch_on_tokens(&d, w, &e, now_ns);
    dispatch_check(&d);
}

static const uint32_t hello[] = {W_HE, W_LLO, W_X};

static void a_request_is_sent_and_ends(void **state)
{
    (void)state;
    struct worker *w = join(1, &model, 4);
    struct request *r = enqueue(CHAT(""));
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent_count, 1);
    const struct unit *u = seen.sent[0];
    assert_true(u->worker == w && d.queue.units == 0 && w->choice_count == 1);
    assert_int_equal(w->prefill_tokens, r->prompts[0].count);
    dispatch_on_accepted(&d, w, u->id, 1);
    tokens(w, u, 0, 0, hello, 2, FINISH_RUNNING);
    assert_int_equal(w->prefill_tokens, 0); /* the prefill is behind it */
    tokens(w, u, 0, 2, hello + 2, 1, FINISH_LENGTH);
    assert_int_equal(r->choices_open, 0);
    assert_int_equal(r->choices[0].finish, FINISH_LENGTH);
    assert_text(buffer_view(&r->choices[0].text), "hellox");
    assert_true(w->unit_count == 0 && w->choice_count == 0 && w->kv_tokens == 0);
    assert_int_equal(seen.changed_count, 2);
    assert_int_equal(seen.cancel_count, 0);
    tokens(w, u, 0, 3, hello, 1, FINISH_RUNNING); /* late: dropped */
    assert_int_equal(r->choices[0].id_count, 3);
    end(r);
}

static void without_a_worker_it_waits(void **state)
{
    (void)state;
    struct request *r = enqueue(CHAT(""));
    (void)join(1, &other, 4); /* of another model */
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent_count, 0);
    (void)join(2, &model, 4);
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent_count, 1);
    end(r);
    assert_int_equal(seen.cancel_count, 1);
}

static void first_come_first_served_while_there_is_room(void **state)
{
    (void)state;
    struct request *r[12];
    (void)join(1, &model, 2);
    for (int i = 0; i < 12; i++)
        r[i] = enqueue(CHAT(""));
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent_count, 2 + LOOKAHEAD_SEQUENCES);
    for (uint32_t i = 0; i < seen.sent_count; i++)
        assert_ptr_equal(seen.sent[i]->request, r[i]);
    end(r[0]); /* there is room again */
    dispatch_run(&d, now_ns, 0);
    assert_ptr_equal(seen.sent[seen.sent_count - 1]->request, r[2 + LOOKAHEAD_SEQUENCES]);
    for (int i = 1; i < 12; i++)
        end(r[i]);
    assert_int_equal(d.queue.units, 0);
}

static void full_is_429_with_a_time(void **state)
{
    (void)state;
    struct api_error e;
    struct request *r[4];
    d.limits.units_max = 3;
    for (int i = 0; i < 3; i++)
        r[i] = enqueue(CHAT(""));
    r[3] = fixture_request(&model, ENDPOINT_CHAT, CHAT(""));
    assert_int_equal(dispatch_enqueue(&d, r[3], now_ns, &e), ERR_FULL);
    assert_int_equal(e.status, 429);
    assert_string_equal(e.code, "rate_limit_exceeded");
    assert_true(e.retry_after_s >= 1 && e.retry_after_s <= 60 && e.should_retry == 1);
    d.limits.units_max = 100;
    d.limits.tokens_max = d.queue.tokens + r[3]->prompts[0].count - 1;
    assert_int_equal(dispatch_enqueue(&d, r[3], now_ns, &e), ERR_FULL);
    d.limits.tokens_max++;
    assert_int_equal(dispatch_enqueue(&d, r[3], now_ns, &e), OK);
    for (int i = 0; i < 4; i++)
        end(r[i]);
}

static void a_death_resumes_at_the_next_token(void **state)
{
    (void)state;
    struct worker *a = join(1, &model, 4);
    struct request *r = enqueue(CHAT(""));
    dispatch_run(&d, now_ns, 0);
    const struct unit *u = seen.sent[0];
    tokens(a, u, 0, 0, hello, 2, FINISH_RUNNING);
    now_ns += 2001 * MS;
    struct worker *b = join(2, &model, 4);
    dispatch_tick(&d, now_ns);
    assert_int_equal(d.counts.deaths, 1);
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent_count, 2);
    assert_true(seen.sent_to[1] == b && seen.sent[1]->attempt == 2);
    assert_int_equal(r->choices[0].id_count, 2); /* what goes along as output_ids */
    struct token_event stale = {
        .id = u->id, .attempt = 1, .first_index = 2, .id_count = 1, .ids = (const uint8_t *)hello};
    dispatch_on_tokens(&d, b, &stale, now_ns);
    assert_int_equal(d.counts.stale, 1);
    assert_int_equal(r->choices[0].id_count, 2);
    tokens(b, seen.sent[1], 0, 2, hello + 2, 1, FINISH_STOP);
    assert_text(buffer_view(&r->choices[0].text), "hellox");
    assert_int_equal(seen.failed_count, 0);
    end(r);
}

static void two_deaths_are_poison(void **state)
{
    (void)state;
    struct request *r = enqueue(CHAT(""));
    for (uint8_t i = 1; i <= 2; i++) {
        (void)join(i, &model, 4);
        dispatch_run(&d, now_ns, 0);
        now_ns += 2001 * MS;
        dispatch_tick(&d, now_ns);
        dispatch_check(&d);
    }
    assert_int_equal(seen.failed_count, 1);
    assert_int_equal(seen.last_error.status, 500);
    assert_string_equal(seen.last_error.code, "request_quarantined");
    assert_int_equal(seen.last_error.should_retry, 0);
    assert_int_equal(d.queue.units, 0);
    end(r);
}

static void leaving_in_order_is_no_death(void **state)
{
    (void)state;
    struct request *r = enqueue(CHAT(""));
    for (uint8_t i = 1; i <= 4; i++) {
        struct worker *w = join(i, &model, 4);
        dispatch_run(&d, now_ns, 0);
        dispatch_drop_worker(&d, w, false, now_ns);
    }
    assert_int_equal(seen.failed_count, 0);
    assert_int_equal(d.queue.units, 1);
    end(r);
}

/* Choices that have tokens go on as units of their own, for each has tokens of its own. */
static void several_choices_resume(void **state)
{
    (void)state;
    struct worker *a = join(1, &model, 8);
    struct request *r = enqueue(CHAT(",\"n\":3"));
    dispatch_run(&d, now_ns, 0);
    const struct unit *u = seen.sent[0];
    assert_int_equal(u->choice_count, 3);
    assert_int_equal(a->choice_count, 3);
    tokens(a, u, 1, 0, hello, 2, FINISH_RUNNING);
    tokens(a, u, 0, 0, hello, 1, FINISH_STOP);
    struct worker *b = join(2, &model, 8);
    dispatch_drop_worker(&d, a, true, now_ns);
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent_count, 3);
    assert_int_equal(b->choice_count, 2);
    for (uint32_t i = 1; i < 3; i++) {
        const struct unit *x = seen.sent[i];
        uint32_t within = r->choices[x->choices[0]].within;
        assert_int_equal(x->choice_count, 1);
        tokens(b, x, within, r->choices[x->choices[0]].id_count, hello, 1, FINISH_STOP);
    }
    assert_int_equal(r->choices_open, 0);
    assert_int_equal(r->choices[1].id_count, 3);
    assert_int_equal(r->choices[2].id_count, 1);
    end(r);
}

static void a_stop_string_cancels_when_the_unit_is_over(void **state)
{
    (void)state;
    struct worker *w = join(1, &model, 8);
    struct request *r = enqueue(CHAT(",\"n\":2,\"stop\":\"hello\""));
    dispatch_run(&d, now_ns, 0);
    const struct unit *u = seen.sent[0];
    tokens(w, u, 0, 0, hello, 2, FINISH_RUNNING);
    assert_int_equal(seen.cancel_count, 0); /* its sibling goes on */
    assert_int_equal(r->choices_open, 1);
    tokens(w, u, 1, 0, hello + 2, 1, FINISH_STOP);
    assert_int_equal(seen.cancel_count, 1); /* or the worker would go on with choice 0 */
    assert_int_equal(seen.last_cancelled, u->id);
    end(r);
    assert_int_equal(seen.cancel_count, 1);
}

static void a_gap_goes_elsewhere(void **state)
{
    (void)state;
    struct worker *w = join(1, &model, 4);
    struct request *r = enqueue(CHAT(""));
    dispatch_run(&d, now_ns, 0);
    const struct unit *u = seen.sent[0];
    tokens(w, u, 0, 1, hello + 1, 1, FINISH_RUNNING);
    assert_int_equal(d.counts.gaps, 1);
    assert_int_equal(seen.cancel_count, 1);
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent[1]->attempt, 2);
    tokens(w, u, 0, 0, hello, 1, FINISH_RUNNING);
    struct token_event lost = {.id = u->id, .attempt = 2, .first_index = 3, .finish = FINISH_STOP};
    dispatch_on_tokens(&d, w, &lost, now_ns); /* an end whose tokens never came */
    assert_int_equal(d.counts.gaps, 2);
    end(r);
}

static void rejects(void **state)
{
    (void)state;
    struct worker *w = join(1, &model, 4);
    struct request *r = enqueue(CHAT(""));
    dispatch_run(&d, now_ns, 0);
    dispatch_on_rejected(&d, w, seen.sent[0]->id, 1, false, false, "full", now_ns);
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent_count, 1); /* the worker is left alone for a moment */
    now_ns += 60 * MS;
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent_count, 2);
    dispatch_on_rejected(&d, w, seen.sent[1]->id, 2, true, false, "too long", now_ns);
    assert_int_equal(seen.last_error.status, 400);
    assert_string_equal(seen.last_error.code, "context_length_exceeded");
    end(r);
}

static void what_is_not_accepted_is_sent_again(void **state)
{
    (void)state;
    struct worker *w = join(1, &model, 4);
    struct request *r = enqueue(CHAT(""));
    dispatch_run(&d, now_ns, 0);
    now_ns += 2100 * MS;
    w->last_heard_ns = now_ns;
    dispatch_tick(&d, now_ns);
    assert_int_equal(seen.sent_count, 2);
    assert_true(seen.sent[1] == seen.sent[0] && seen.sent[1]->attempt == 1);
    dispatch_on_accepted(&d, w, seen.sent[0]->id, 1);
    now_ns += 2100 * MS;
    w->last_heard_ns = now_ns;
    dispatch_tick(&d, now_ns);
    assert_int_equal(seen.sent_count, 2);
    end(r);
}

static void suspects_get_nothing(void **state)
{
    (void)state;
    (void)join(1, &model, 4);
    now_ns += 1001 * MS;
    struct request *r = enqueue(CHAT(""));
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent_count, 0);
    assert_int_equal(dispatch_good_workers(&d, &model, now_ns), 0);
    struct worker *w = join(2, &model, 4);
    w->state = WORKER_DRAINING;
    dispatch_run(&d, now_ns, 0);
    assert_int_equal(seen.sent_count, 0);
    end(r);
}

/* ---- at random ---- */

/* The token that a choice has at an index: workers are pure functions, as the real ones. */
static uint32_t true_token(uint64_t seed, uint32_t within, uint32_t index)
{
    uint64_t key[3] = {seed, within, index};
    return ID_BYTE + 'a' + (uint32_t)(hash64_of(span_of(key, sizeof key), 5) % 26);
}

static uint32_t true_length(uint64_t seed, uint32_t within)
{
    return 1 + true_token(seed, within, 99999) % 17;
}

enum { LIVE = 40, ROUNDS = 30000 };
static struct request *live[LIVE];
static uint32_t ended, failed;

static void check_end(struct request *r)
{
    for (uint32_t i = 0; i < r->choice_count; i++) {
        const struct choice *c = &r->choices[i];
        assert_int_equal(c->id_count, true_length(r->params.seed, c->within));
        for (uint32_t k = 0; k < c->id_count; k++)
            assert_int_equal(c->ids[k], true_token(r->params.seed, c->within, k));
    }
}

/* One unit of a worker makes some tokens, seldom with a fault of the wire. */
static void step_worker(struct worker *w)
{
    struct unit *u = w->units;
    for (int skip = rand() % 4; skip > 0 && u != NULL && u->next != NULL; skip--)
        u = u->next;
    if (u == NULL) return;
    const struct request *r = u->request;
    const struct choice *c = &r->choices[u->choices[(uint32_t)rand() % u->choice_count]];
    uint32_t ids[4], n = 0, from = c->id_count, length = true_length(r->params.seed, c->within);
    int fault = rand() % 60;
    if (fault == 0) from += 2;          /* a frame was lost */
    if (fault == 1 && from > 0) from--; /* one came twice */
    for (; n < 1 + (uint32_t)rand() % 4 && from + n < length; n++)
        ids[n] = true_token(r->params.seed, c->within, from + n);
    struct token_event e = {.id = u->id,
                            .attempt = fault == 2 ? u->attempt + 1 : u->attempt,
                            .choice = c->within,
                            .first_index = from,
                            .id_count = n,
                            .ids = (const uint8_t *)ids,
                            .finish = from + n >= length ? FINISH_STOP : FINISH_RUNNING};
    if (fault == 3)
        dispatch_on_rejected(&d, w, u->id, u->attempt, false, false, "full", now_ns);
    else
        dispatch_on_tokens(&d, w, &e, now_ns);
}

static void step_client(void)
{
    struct request **at = &live[rand() % LIVE];
    if (*at != NULL && (*at)->choices_open == 0) {
        check_end(*at);
        ended++;
        end(*at);
        *at = NULL;
    } else if (*at != NULL && ((*at)->failed || rand() % 50 == 0)) { /* it leaves, at any time */
        failed += (*at)->failed;
        end(*at);
        *at = NULL;
    } else if (*at == NULL) {
        static const char *const bodies[] = {CHAT(""), CHAT(",\"n\":2"), CHAT(",\"n\":5")};
        struct api_error e;
        *at = fixture_request(&model, ENDPOINT_CHAT, bodies[rand() % 3]);
        (*at)->params.seed = (uint64_t)rand();
        if (dispatch_enqueue(&d, *at, now_ns, &e) != OK) {
            end(*at);
            *at = NULL;
        }
    }
}

static void random_faults(void **state)
{
    (void)state;
    uint8_t next_name = 1;
    srand(3);
    for (int round = 0; round < ROUNDS; round++) {
        now_ns += (uint64_t)(rand() % 20) * MS;
        if (d.fleet.count < 3) {
            (void)join(next_name, &model, 6);
            next_name = next_name == 255 ? 1 : next_name + 1;
        }
        struct worker *w = &d.fleet.workers[rand() % (int)d.fleet.count];
        for (uint32_t i = 0; i < d.fleet.count; i++)
            d.fleet.workers[i].last_heard_ns = now_ns;
        if (w->state == WORKER_LIVE) {
            if (rand() % 1500 == 0) w->last_heard_ns -= 3000 * MS; /* silent for long */
            if (rand() % 3000 == 0) dispatch_drop_worker(&d, w, false, now_ns);
        }
        if (w->state == WORKER_LIVE) step_worker(w);
        step_client();
        dispatch_tick(&d, now_ns);
        dispatch_run(&d, now_ns, (uint64_t)rand());
        dispatch_check(&d);
    }
    for (int i = 0; i < LIVE; i++)
        if (live[i] != NULL) end(live[i]);
    dispatch_check(&d);
    assert_int_equal(d.queue.units, 0);
    for (uint32_t i = 0; i < d.fleet.count; i++)
        assert_true(d.fleet.workers[i].kv_tokens == 0 && d.fleet.workers[i].prefill_tokens == 0);
    printf("ended %u failed %u deaths %llu gaps %llu requeued %llu\n", ended, failed,
           (unsigned long long)d.counts.deaths, (unsigned long long)d.counts.gaps,
           (unsigned long long)d.counts.retries);
    assert_true(ended > 1000 && d.counts.deaths > 3 && d.counts.gaps > 100);
    assert_int_equal(failed, d.counts.quarantined);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_request_is_sent_and_ends),
        T(without_a_worker_it_waits),
        T(first_come_first_served_while_there_is_room),
        T(full_is_429_with_a_time),
        T(a_death_resumes_at_the_next_token),
        T(two_deaths_are_poison),
        T(leaving_in_order_is_no_death),
        T(several_choices_resume),
        T(a_stop_string_cancels_when_the_unit_is_over),
        T(a_gap_goes_elsewhere),
        T(rejects),
        T(what_is_not_accepted_is_sent_again),
        T(suspects_get_nothing),
        T(random_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
