#include "common/no_alloc.h"

#include "common/err.h"

#include <stdatomic.h>
#include <stdlib.h>

static _Thread_local const char *phase;
static _Thread_local uint64_t thread_count;
static _Atomic uint64_t violations;
static _Atomic bool enforce_on = true;

void no_alloc_begin(const char *name)
{
    CHECK(phase == NULL);
    phase = name;
}

void no_alloc_end(void)
{
    CHECK(phase != NULL);
    phase = NULL;
}

void no_alloc_enforce(bool enforce)
{
    atomic_store(&enforce_on, enforce);
}

uint64_t no_alloc_violations(void)
{
    return atomic_load(&violations);
}

uint64_t no_alloc_total(void)
{
    return thread_count;
}

static void count(void)
{
    thread_count++;
    if (phase == NULL) return;
    atomic_fetch_add_explicit(&violations, 1, memory_order_relaxed);
    const char *name = phase;
    phase = NULL; /* the report may allocate */
    CHECK_MSG(!atomic_load(&enforce_on), "heap used in phase '%s'", name);
    phase = name;
}

/* Names given by the linker: __wrap_f is called for f, __real_f is f. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void __wrap_free(void *p);

void *__wrap_malloc(size_t n)
{
    count();
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    count();
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    count();
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    count();
    return __real_aligned_alloc(align, n);
}

void __wrap_free(void *p)
{
    if (phase != NULL) count();
    __real_free(p);
}
