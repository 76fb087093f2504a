#include "gateway/prepare.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct job {
    struct request *r;
    void (*run)(struct request *r);
};

struct line { /* a ring of jobs */
    struct job jobs[PREPARE_JOBS_MAX];
    uint32_t first, count;
};

struct prepare {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct line todo, done;
    uint32_t under_way; /* todo, running and done together never exceed PREPARE_JOBS_MAX */
    bool stop;
    int fd;
    uint32_t thread_count;
    pthread_t threads[PREPARE_THREADS];
};

static void push(struct line *l, struct job job)
{
    CHECK(l->count < PREPARE_JOBS_MAX);
    l->jobs[(l->first + l->count++) % PREPARE_JOBS_MAX] = job;
}

static struct job pop(struct line *l)
{
    struct job job = l->jobs[l->first];
    l->first = (l->first + 1) % PREPARE_JOBS_MAX;
    l->count--;
    return job;
}

static void *prepare_thread(void *arg)
{
    struct prepare *p = arg;
    (void)pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->todo.count == 0 && !p->stop)
            (void)pthread_cond_wait(&p->more, &p->lock);
        if (p->stop) break;
        struct job job = pop(&p->todo);
        (void)pthread_mutex_unlock(&p->lock);
        job.run(job.r);
        (void)pthread_mutex_lock(&p->lock);
        push(&p->done, job);
        uint64_t one = 1;
        (void)!write(p->fd, &one, sizeof one);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct prepare *prepare_create(void)
{
    struct prepare *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->more, NULL);
    p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    while (p->fd >= 0 && p->thread_count < PREPARE_THREADS &&
           pthread_create(&p->threads[p->thread_count], NULL, prepare_thread, p) == 0)
        p->thread_count++;
    if (p->fd < 0 || p->thread_count < PREPARE_THREADS) {
        prepare_destroy(p);
        return NULL;
    }
    return p;
}

void prepare_destroy(struct prepare *p)
{
    if (p == NULL) return;
    (void)pthread_mutex_lock(&p->lock);
    p->stop = true;
    (void)pthread_cond_broadcast(&p->more);
    (void)pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->thread_count; i++)
        (void)pthread_join(p->threads[i], NULL);
    if (p->fd >= 0) close(p->fd);
    (void)pthread_cond_destroy(&p->more);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}

int prepare_fd(const struct prepare *p)
{
    return p->fd;
}

bool prepare_start(struct prepare *p, struct request *r, void (*run)(struct request *r))
{
    (void)pthread_mutex_lock(&p->lock);
    bool room = p->under_way < PREPARE_JOBS_MAX;
    if (room) {
        p->under_way++;
        r->in_job = true;
        push(&p->todo, (struct job){r, run});
        (void)pthread_cond_signal(&p->more);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return room;
}

struct request *prepare_take(struct prepare *p)
{
    uint64_t count;
    (void)!read(p->fd, &count, sizeof count);
    (void)pthread_mutex_lock(&p->lock);
    struct request *r = NULL;
    if (p->done.count > 0) {
        r = pop(&p->done).r;
        r->in_job = false;
        p->under_way--;
        if (p->done.count > 0) { /* the fd was cleared: say again that more wait */
            uint64_t one = 1;
            (void)!write(p->fd, &one, sizeof one);
        }
    }
    (void)pthread_mutex_unlock(&p->lock);
    return r;
}
