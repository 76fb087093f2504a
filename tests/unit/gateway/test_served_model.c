/* Models and their assets: parts in order, hashes checked, what cannot be used is said. */
#include "tests/unit/gateway/gateway_fixture.h"

static struct served_models models;
static struct buffer asset;
static const struct hash128 fingerprint = {1, 2};

static int setup(void **state)
{
    (void)state;
    memset(&models, 0, sizeof models);
    fixture_asset(&asset);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    served_models_deinit(&models);
    buffer_deinit(&asset);
    return 0;
}

static struct served_model *offer(struct hash128 tokenizer, const struct hash128 *template)
{
    struct served_model *m = NULL;
    assert_int_equal(
        served_model_offer(&models, "m", fingerprint, tokenizer, template, VOCAB_COUNT, 100, 5, &m),
        OK);
    return m;
}

static void parts_make_a_whole(void **state)
{
    (void)state;
    struct hash128 hash = hash128_of(buffer_view(&asset));
    struct hash128 source = hash128_of(span_str(fixture_template));
    struct served_model *m = offer(hash, &source);
    uint64_t half = asset.len / 2;
    assert_false(served_model_ready(m));
    assert_false(served_model_take_part(m, hash, asset.len, half,
                                        span_of(asset.ptr + half, asset.len - half), 9));
    assert_false(served_model_take_part(m, hash, asset.len, 0, span_of(asset.ptr, half), 9));
    assert_int_equal(m->tokenizer_asset.bytes.len, half);
    assert_false(served_model_take_part(m, fingerprint, asset.len, half,
                                        span_of(asset.ptr + half, asset.len - half), 9));
    assert_false(served_model_take_part(m, hash, asset.len + 1, half,
                                        span_of(asset.ptr + half, asset.len - half), 9));
    assert_true(served_model_take_part(m, hash, asset.len, half,
                                       span_of(asset.ptr + half, asset.len - half), 9));
    assert_false(served_model_ready(m)); /* the template is missing */
    assert_true(served_model_take_part(m, source, strlen(fixture_template), 0,
                                       span_str(fixture_template), 9));
    assert_true(served_model_ready(m) && served_model_offered(m));
    assert_string_equal(m->bos, "<s>");
    assert_ptr_equal(served_model_find(&models, "m"), m);
    assert_null(served_model_find(&models, "n"));
}

static void a_wrong_hash_is_dropped(void **state)
{
    (void)state;
    struct served_model *m = offer(fingerprint, NULL);
    assert_false(served_model_take_part(m, fingerprint, asset.len, 0, buffer_view(&asset), 77));
    assert_true(m->tokenizer_asset.bytes.len == 0 && !m->tokenizer_asset.here);
    assert_int_equal(m->tokenizer_asset.asked_ns, 77);
}

static void what_cannot_be_used_is_said(void **state)
{
    (void)state;
    struct hash128 hash = hash128_of(SPAN_LIT("nonsense"));
    struct served_model *m = offer(hash, NULL);
    assert_true(served_model_take_part(m, hash, 8, 0, SPAN_LIT("nonsense"), 9));
    assert_true(served_model_ready(m) && !served_model_offered(m));
    assert_true(span_has(span_str(m->broken), "its tokenizer: "));
}

static void one_name_is_one_model(void **state)
{
    (void)state;
    struct hash128 hash = hash128_of(buffer_view(&asset)), elsewhere = {3, 4};
    struct served_model *m = offer(hash, NULL), *again = NULL;
    assert_int_equal(
        served_model_offer(&models, "m", elsewhere, hash, NULL, VOCAB_COUNT, 100, 5, &again),
        ERR_EXISTS);
    assert_int_equal(served_model_offer(&models, "m", fingerprint, hash, &elsewhere, VOCAB_COUNT,
                                        100, 5, &again),
                     ERR_EXISTS);
    assert_int_equal(
        served_model_offer(&models, "m", fingerprint, hash, NULL, VOCAB_COUNT, 300, 5, &again), OK);
    assert_true(again == m && m->context_max == 300); /* the roomiest worker's */
    for (int i = 1; i < MODELS_MAX; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(
            served_model_offer(&models, name, fingerprint, hash, NULL, VOCAB_COUNT, 100, 5, &again),
            OK);
    }
    assert_int_equal(
        served_model_offer(&models, "more", fingerprint, hash, NULL, VOCAB_COUNT, 100, 5, &again),
        ERR_FULL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {T(parts_make_a_whole), T(a_wrong_hash_is_dropped),
                                       T(what_cannot_be_used_is_said), T(one_name_is_one_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
