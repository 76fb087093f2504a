/* mailbox.h - what passes between the link thread and the engine thread: two single-producer rings
 * and the buffers of outgoing frames, which go round. Bounds: MAILBOX_COMMANDS, MAILBOX_FRAMES;
 * nothing is allocated after create but a frame that is larger than any before it. */
#ifndef PENSTOCK_WORKER_MAILBOX_H
#define PENSTOCK_WORKER_MAILBOX_H

#include "common/buffer.h"
#include "worker/engine/engine.h"

enum { MAILBOX_COMMANDS = 4096, MAILBOX_FRAMES = 1024, MAILBOX_OWNERS_MAX = 64 };

enum command_kind {
    COMMAND_SUBMIT = 1, /* request is taken over */
    COMMAND_CANCEL,     /* owner, id, attempt */
    COMMAND_SESSION, /* owner speaks with a new gateway incarnation: what it had before is cancelled
                      */
    COMMAND_SESSION_LOST, /* owner's gateway is gone */
    COMMAND_DRAIN,        /* take no more, say so to all */
    COMMAND_STOP,         /* end the loop now */
};

/* One block of memory: the request and its arrays behind it. */
struct submitted {
    struct engine_request request;
    uint32_t words[]; /* prompt, output, stop ids, bias ids, bias, choice indexes */
};

struct command {
    enum command_kind kind;
    uint32_t owner;
    uint32_t attempt;
    uint64_t id;
    uint64_t incarnation;
    struct submitted *request;
};

struct frame_out { /* a wire frame for one owner; the buffer goes back by mailbox_give_back */
    uint32_t owner;
    struct buffer *frame;
};

struct mailbox;

struct mailbox *mailbox_create(uint32_t frame_bytes_max); /* NULL: no memory */
void mailbox_destroy(struct mailbox *m);

/* Any thread: a COMMAND_DRAIN or COMMAND_STOP from outside; it cannot be refused. */
void mailbox_order(struct mailbox *m, const struct command *command);

/* ---- link thread ---- */
bool mailbox_send_command(struct mailbox *m,
                          const struct command *command); /* false: full, try later */
bool mailbox_take_frame(struct mailbox *m, struct frame_out *out);
void mailbox_give_back(struct mailbox *m, struct buffer *frame);
int mailbox_link_fd(const struct mailbox *m); /* readable when frames wait; mailbox_clear_link_fd
                                                 before taking them */
void mailbox_clear_link_fd(struct mailbox *m);

/* ---- engine thread ---- */
bool mailbox_take_command(struct mailbox *m, struct command *out);
/* An empty buffer for a frame; waits (in steps of 100 us) while all are under way: the link always
 * moves on. */
struct buffer *mailbox_new_frame(struct mailbox *m);
void mailbox_post_frame(struct mailbox *m, uint32_t owner, struct buffer *frame);
void mailbox_wake_link(struct mailbox *m); /* once after a batch of posts */
/* Sleeps until a command comes or timeout_ms have passed. */
void mailbox_wait_command(struct mailbox *m, int timeout_ms);

#endif
