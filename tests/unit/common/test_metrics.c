/* Metrics: values, histograms, and the text that Prometheus reads. */
#include "common/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void renders_prometheus_text(void **state)
{
    (void)state;
    static const double bounds[] = {0.5, 1};
    struct metrics *m = metrics_create();
    struct metric *a = metrics_counter(m, "a_total", "code=\"200\"", "Requests.");
    struct metric *h = metrics_histogram(m, "h_seconds", NULL, "Times.", bounds, 2);
    struct metric *b = metrics_counter(m, "a_total", "code=\"400\"", "Requests.");
    metric_add(a, 2);
    metric_add(b, 1);
    metric_observe(h, 0.5);
    metric_observe(h, 0.75);
    metric_observe(h, 9);
    assert_true(metric_value(h) == 3);
    struct buffer out;
    buffer_init(&out, 1 << 16);
    metrics_render(m, &out);
    buffer_add_byte(&out, 0);
    assert_string_equal(
        (char *)out.ptr,
        "# HELP a_total Requests.\n# TYPE a_total counter\n"
        "a_total{code=\"200\"} 2\na_total{code=\"400\"} 1\n"
        "# HELP h_seconds Times.\n# TYPE h_seconds histogram\n"
        "h_seconds_bucket{le=\"0.5\"} 1\nh_seconds_bucket{le=\"1\"} 2\n"
        "h_seconds_bucket{le=\"+Inf\"} 3\nh_seconds_sum 10.25\nh_seconds_count 3\n");
    buffer_reset(&out);
    metrics_label_escape(&out, SPAN_LIT("a\"b\\c\n"));
    assert_memory_equal(out.ptr, "a\\\"b\\\\c\\n", 9);
    buffer_deinit(&out);
    metrics_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(renders_prometheus_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
