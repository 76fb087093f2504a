#include "common/metrics.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum metric_kind { COUNTER, GAUGE, HISTOGRAM };

/* Doubles live in 64-bit atomics; adding is a compare-and-swap loop, which hardly ever turns twice.
 */
struct metric {
    enum metric_kind kind;
    uint32_t family; /* index of the first metric of this name */
    char *name, *labels, *help;
    _Atomic uint64_t value_bits; /* counter, gauge; sum of a histogram */
    uint32_t bound_count;
    double bounds[METRICS_BUCKETS_MAX];
    _Atomic uint64_t buckets[METRICS_BUCKETS_MAX + 1]; /* not cumulative; the last is +Inf */
};

struct metrics {
    uint32_t count;
    struct metric items[METRICS_MAX];
};

struct metrics *metrics_create(void)
{
    return calloc(1, sizeof(struct metrics));
}

void metrics_destroy(struct metrics *metrics)
{
    if (metrics == NULL) return;
    for (uint32_t i = 0; i < metrics->count; i++) {
        free(metrics->items[i].name);
        free(metrics->items[i].labels);
        free(metrics->items[i].help);
    }
    free(metrics);
}

static struct metric *add_metric(struct metrics *metrics, enum metric_kind kind, const char *name,
                                 const char *labels, const char *help)
{
    CHECK_MSG(metrics->count < METRICS_MAX, "%s", name);
    struct metric *m = &metrics->items[metrics->count];
    m->kind = kind;
    m->family = metrics->count;
    for (uint32_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->items[i].name, name) == 0) {
            CHECK_MSG(metrics->items[i].kind == kind, "%s has two kinds", name);
            m->family = i;
            break;
        }
    m->name = strdup(name);
    m->labels = labels != NULL && labels[0] != '\0' ? strdup(labels) : NULL;
    m->help = strdup(help);
    CHECK(m->name != NULL && m->help != NULL);
    metrics->count++;
    return m;
}

struct metric *metrics_counter(struct metrics *metrics, const char *name, const char *labels,
                               const char *help)
{
    return add_metric(metrics, COUNTER, name, labels, help);
}

struct metric *metrics_gauge(struct metrics *metrics, const char *name, const char *labels,
                             const char *help)
{
    return add_metric(metrics, GAUGE, name, labels, help);
}

struct metric *metrics_histogram(struct metrics *metrics, const char *name, const char *labels,
                                 const char *help, const double *bounds, uint32_t bound_count)
{
    CHECK(bound_count <= METRICS_BUCKETS_MAX);
    struct metric *m = add_metric(metrics, HISTOGRAM, name, labels, help);
    for (uint32_t i = 0; i < bound_count; i++) {
        CHECK(i == 0 || bounds[i] > bounds[i - 1]);
        m->bounds[i] = bounds[i];
    }
    m->bound_count = bound_count;
    return m;
}

static double from_bits(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t to_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

void metric_add(struct metric *m, double v)
{
    if (v == 0) return;
    uint64_t old = atomic_load_explicit(&m->value_bits, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&m->value_bits, &old, to_bits(from_bits(old) + v),
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

void metric_set(struct metric *m, double v)
{
    atomic_store_explicit(&m->value_bits, to_bits(v), memory_order_relaxed);
}

void metric_observe(struct metric *m, double v)
{
    uint32_t i = 0;
    while (i < m->bound_count && v > m->bounds[i])
        i++;
    atomic_fetch_add_explicit(&m->buckets[i], 1, memory_order_relaxed);
    metric_add(m, v);
}

static uint64_t histogram_count(const struct metric *m)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i <= m->bound_count; i++)
        n += atomic_load_explicit(&m->buckets[i], memory_order_relaxed);
    return n;
}

double metric_value(const struct metric *m)
{
    if (m->kind == HISTOGRAM) return (double)histogram_count(m);
    return from_bits(atomic_load_explicit(&m->value_bits, memory_order_relaxed));
}

/* Prometheus wants "NaN", "+Inf", "-Inf", and reads any decimal. */
static void write_value(struct buffer *out, double v)
{
    if (isnan(v))
        buffer_add_str(out, "NaN");
    else if (isinf(v))
        buffer_add_str(out, v > 0 ? "+Inf" : "-Inf");
    else
        buffer_printf(out, "%.17g", v);
}

static void write_series(struct buffer *out, const struct metric *m, const char *suffix,
                         const char *le, double v)
{
    buffer_printf(out, "%s%s", m->name, suffix);
    if (m->labels != NULL || le != NULL)
        buffer_printf(out, "{%s%s%s%s%s}", m->labels != NULL ? m->labels : "",
                      m->labels != NULL && le != NULL ? "," : "", le != NULL ? "le=\"" : "",
                      le != NULL ? le : "", le != NULL ? "\"" : "");
    buffer_add_byte(out, ' ');
    write_value(out, v);
    buffer_add_byte(out, '\n');
}

static void write_metric(struct buffer *out, const struct metric *m)
{
    if (m->kind != HISTOGRAM) {
        write_series(out, m, "", NULL, metric_value(m));
        return;
    }
    uint64_t sum = 0;
    char le[32];
    for (uint32_t i = 0; i < m->bound_count; i++) {
        sum += atomic_load_explicit(&m->buckets[i], memory_order_relaxed);
        (void)snprintf(le, sizeof le, "%.15g", m->bounds[i]);
        write_series(out, m, "_bucket", le, (double)sum);
    }
    sum += atomic_load_explicit(&m->buckets[m->bound_count], memory_order_relaxed);
    write_series(out, m, "_bucket", "+Inf", (double)sum);
    write_series(out, m, "_sum", NULL,
                 from_bits(atomic_load_explicit(&m->value_bits, memory_order_relaxed)));
    write_series(out, m, "_count", NULL, (double)sum);
}

void metrics_render(const struct metrics *metrics, struct buffer *out)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    for (uint32_t f = 0; f < metrics->count; f++) {
        const struct metric *first = &metrics->items[f];
        if (first->family != f) continue;
        buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", first->name, first->help, first->name,
                      kinds[first->kind]);
        for (uint32_t i = f; i < metrics->count; i++)
            if (metrics->items[i].family == f) write_metric(out, &metrics->items[i]);
    }
}

void metrics_label_escape(struct buffer *out, struct span value)
{
    for (size_t i = 0; i < value.len; i++) {
        uint8_t c = value.ptr[i];
        if (c == '\\' || c == '"') buffer_add_byte(out, '\\');
        if (c == '\n')
            buffer_add_str(out, "\\n");
        else
            buffer_add_byte(out, c);
    }
}
