/* prepare.h - what is too long for the loop, on a small pool of threads: parsing, rendering and
 * tokenizing large bodies. A job owns its request until it comes back; results are announced by an
 * eventfd. Bound: PREPARE_JOBS_MAX jobs. */
#ifndef PENSTOCK_GATEWAY_PREPARE_H
#define PENSTOCK_GATEWAY_PREPARE_H

#include "gateway/request.h"

enum { PREPARE_THREADS = 2, PREPARE_JOBS_MAX = 256 };

struct prepare;

struct prepare *prepare_create(void);    /* NULL: no threads or memory */
void prepare_destroy(struct prepare *p); /* waits for jobs that run */
int prepare_fd(const struct prepare *p); /* readable when results wait */
/* Hands r over (r->in_job is set). run does the work on a thread. False: full. */
bool prepare_start(struct prepare *p, struct request *r, void (*run)(struct request *r));
/* A request that is back; NULL: none. Loop thread. */
struct request *prepare_take(struct prepare *p);

#endif
