#include "gateway/queue.h"

bool queue_admits(const struct queue *q, const struct queue_limits *limits, const struct request *r)
{
    uint64_t tokens = 0;
    if (q->units == 0) return true;
    for (uint32_t i = 0; i < r->prompt_count; i++)
        tokens += r->prompts[i].count;
    return (uint64_t)q->units + r->prompt_count <= limits->units_max &&
           q->tokens + tokens <= limits->tokens_max &&
           q->bytes + r->body.len * r->prompt_count <= limits->bytes_max;
}

/* Models are never forgotten, so neither is a line: there are as many as models at most. */
static struct queue_line *line_of(struct queue *q, const struct served_model *model)
{
    for (uint32_t i = 0; i < q->line_count; i++)
        if (q->lines[i].model == model) return &q->lines[i];
    CHECK(q->line_count < MODELS_MAX);
    struct queue_line *line = &q->lines[q->line_count++];
    *line = (struct queue_line){.model = model};
    return line;
}

static uint64_t tokens_of(const struct unit *u)
{
    return u->request->prompts[u->prompt].count;
}

static void count_in(struct queue *q, struct unit *u)
{
    CHECK(!u->queued && u->worker == NULL);
    u->queued = true;
    q->units++;
    q->tokens += tokens_of(u);
    q->bytes += u->request->body.len;
}

void queue_push_back(struct queue *q, struct unit *u)
{
    struct queue_line *line = line_of(q, u->request->model);
    count_in(q, u);
    u->next = NULL;
    u->prev = line->tail;
    if (line->tail != NULL)
        line->tail->next = u;
    else
        line->head = u;
    line->tail = u;
}

void queue_push_front(struct queue *q, struct unit *u)
{
    struct queue_line *line = line_of(q, u->request->model);
    count_in(q, u);
    u->prev = NULL;
    u->next = line->head;
    if (line->head != NULL)
        line->head->prev = u;
    else
        line->tail = u;
    line->head = u;
}

void queue_take(struct queue *q, struct unit *u)
{
    struct queue_line *line = line_of(q, u->request->model);
    CHECK(u->queued);
    if (u->prev != NULL)
        u->prev->next = u->next;
    else
        line->head = u->next;
    if (u->next != NULL)
        u->next->prev = u->prev;
    else
        line->tail = u->prev;
    u->prev = u->next = NULL;
    u->queued = false;
    q->units--;
    q->tokens -= tokens_of(u);
    q->bytes -= u->request->body.len;
}

void queue_check(const struct queue *q)
{
    uint32_t units = 0;
    uint64_t tokens = 0, bytes = 0;
    for (uint32_t i = 0; i < q->line_count; i++) {
        const struct queue_line *line = &q->lines[i];
        CHECK((line->head == NULL) == (line->tail == NULL));
        for (const struct unit *u = line->head; u != NULL; u = u->next, units++) {
            CHECK(u->queued && u->worker == NULL && u->request->model == line->model);
            CHECK(u->next == NULL ? line->tail == u : u->next->prev == u);
            tokens += tokens_of(u);
            bytes += u->request->body.len;
        }
    }
    CHECK(units == q->units && tokens == q->tokens && bytes == q->bytes);
}
