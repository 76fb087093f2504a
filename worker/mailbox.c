#include "worker/mailbox.h"

#include "common/ring.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct mailbox {
    struct ring *commands; /* link -> engine */
    struct ring *frames;   /* engine -> link */
    struct ring *spare;    /* link -> engine: buffers that come back */
    struct buffer *buffers;
    int engine_fd, link_fd;
    _Atomic bool engine_sleeps;
    _Atomic uint32_t bell; /* counts commands */
    uint32_t bell_seen;    /* the engine thread's */
    _Atomic int order; /* enum command_kind from outside, 0: none; beside the ring, which has one
                          producer */
};

struct mailbox *mailbox_create(uint32_t frame_bytes_max)
{
    struct mailbox *m = calloc(1, sizeof *m);
    if (m == NULL) return NULL;
    m->commands = ring_create(MAILBOX_COMMANDS, sizeof(struct command));
    m->frames = ring_create(MAILBOX_FRAMES, sizeof(struct frame_out));
    m->spare = ring_create(MAILBOX_FRAMES, sizeof(struct buffer *));
    m->buffers = calloc(MAILBOX_FRAMES, sizeof *m->buffers);
    m->engine_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->link_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!m->commands || !m->frames || !m->spare || !m->buffers || m->engine_fd < 0 ||
        m->link_fd < 0) {
        mailbox_destroy(m);
        return NULL;
    }
    for (uint32_t i = 0; i < MAILBOX_FRAMES; i++) {
        struct buffer *frame = &m->buffers[i];
        buffer_init(frame, frame_bytes_max);
        CHECK(ring_push(m->spare, &frame));
    }
    return m;
}

void mailbox_destroy(struct mailbox *m)
{
    if (m == NULL) return;
    struct command command;
    while (m->commands != NULL && ring_pop(m->commands, &command))
        if (command.kind == COMMAND_SUBMIT) free(command.request);
    for (uint32_t i = 0; m->buffers != NULL && i < MAILBOX_FRAMES; i++)
        buffer_deinit(&m->buffers[i]);
    ring_destroy(m->commands);
    ring_destroy(m->frames);
    ring_destroy(m->spare);
    free(m->buffers);
    if (m->engine_fd >= 0) close(m->engine_fd);
    if (m->link_fd >= 0) close(m->link_fd);
    free(m);
}

static void signal_fd(int fd)
{
    uint64_t one = 1;
    (void)!write(fd, &one, sizeof one); /* EAGAIN: it is signalled already */
}

bool mailbox_send_command(struct mailbox *m, const struct command *command)
{
    if (!ring_push(m->commands, command)) return false;
    /* with mailbox_wait_command, all in one order: either it sees that the bell rang, or we see
     * that it sleeps */
    atomic_fetch_add(&m->bell, 1);
    if (atomic_load(&m->engine_sleeps)) signal_fd(m->engine_fd);
    return true;
}

void mailbox_order(struct mailbox *m, const struct command *command)
{
    CHECK(command->kind == COMMAND_DRAIN || command->kind == COMMAND_STOP);
    atomic_store(&m->order, (int)command->kind);
    signal_fd(m->engine_fd);
}

bool mailbox_take_frame(struct mailbox *m, struct frame_out *out)
{
    return ring_pop(m->frames, out);
}

void mailbox_give_back(struct mailbox *m, struct buffer *frame)
{
    CHECK(ring_push(m->spare, &frame));
}

int mailbox_link_fd(const struct mailbox *m)
{
    return m->link_fd;
}

void mailbox_clear_link_fd(struct mailbox *m)
{
    uint64_t count;
    (void)!read(m->link_fd, &count, sizeof count);
}

bool mailbox_take_command(struct mailbox *m, struct command *out)
{
    int order = atomic_exchange(&m->order, 0);
    if (order != 0) {
        *out = (struct command){.kind = (enum command_kind)order};
        return true;
    }
    return ring_pop(m->commands, out);
}

struct buffer *mailbox_new_frame(struct mailbox *m)
{
    struct buffer *frame;
    while (!ring_pop(m->spare, &frame)) {
        signal_fd(m->link_fd);
        (void)nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    buffer_reset(frame);
    return frame;
}

void mailbox_post_frame(struct mailbox *m, uint32_t owner, struct buffer *frame)
{
    struct frame_out out = {owner, frame};
    CHECK(ring_push(m->frames, &out)); /* as many slots as buffers */
}

void mailbox_wake_link(struct mailbox *m)
{
    signal_fd(m->link_fd);
}

void mailbox_wait_command(struct mailbox *m, int timeout_ms)
{
    atomic_store(&m->engine_sleeps, true);
    uint32_t bell = atomic_load(&m->bell);
    if (bell == m->bell_seen && atomic_load(&m->order) == 0) {
        struct pollfd p = {m->engine_fd, POLLIN, 0};
        if (poll(&p, 1, timeout_ms) > 0) {
            uint64_t count;
            (void)!read(m->engine_fd, &count, sizeof count);
        }
    }
    m->bell_seen = bell;
    atomic_store(&m->engine_sleeps, false);
}
