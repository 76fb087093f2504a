/* metrics.h - counters, gauges and histograms, shown as Prometheus text. Any thread may write:
 * plain atomics. A registry is made at start; labels come from configured sets only and are fixed
 * at registration, so the number of series is bounded (METRICS_MAX). Names carry their unit:
 * penstock_gateway_ttft_seconds. */
#ifndef PENSTOCK_COMMON_METRICS_H
#define PENSTOCK_COMMON_METRICS_H

#include "common/buffer.h"

enum { METRICS_MAX = 512, METRICS_BUCKETS_MAX = 24 };

struct metrics; /* the registry */
struct metric;  /* one series; owned by the registry, lives as long */

struct metrics *metrics_create(void);
void metrics_destroy(struct metrics *metrics);
/* labels: NULL, or ready text such as `model="smollm2",code="200"` (copied). The same name may come
 * several times with other labels; help is taken from the first. CHECKs at METRICS_MAX: the set is
 * fixed by the program, not by input. */
struct metric *metrics_counter(struct metrics *metrics, const char *name, const char *labels,
                               const char *help);
struct metric *metrics_gauge(struct metrics *metrics, const char *name, const char *labels,
                             const char *help);
/* bounds: ascending upper bounds, count <= METRICS_BUCKETS_MAX; +Inf is added. */
struct metric *metrics_histogram(struct metrics *metrics, const char *name, const char *labels,
                                 const char *help, const double *bounds, uint32_t bound_count);
void metric_add(struct metric *m, double v);     /* counter, gauge */
void metric_set(struct metric *m, double v);     /* gauge */
void metric_observe(struct metric *m, double v); /* histogram */
double metric_value(const struct metric *m);     /* counter, gauge; count of a histogram */
/* Text format 0.0.4, families together. */
void metrics_render(const struct metrics *metrics, struct buffer *out);
/* Escapes \ " and newline for use in labels. */
void metrics_label_escape(struct buffer *out, struct span value);

#endif
