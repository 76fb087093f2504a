/* err.h - the one error type, and the sentence that goes with it.
 * Three failures (docs/architecture.md): the programmer's is a CHECK, the world's is an enum err,
 * the enemy's is refused in a parser or decoder as ERR_PROTO or ERR_LIMIT and never reaches a
 * CHECK. */
#ifndef PENSTOCK_COMMON_ERR_H
#define PENSTOCK_COMMON_ERR_H

#include <stddef.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(at, first) __attribute__((__format__(__printf__, at, first)))

enum err {
    OK = 0,
    ERR_AGAIN,       /* not whole yet, or would block: call again */
    ERR_PROTO,       /* malformed input: can never become valid */
    ERR_LIMIT,       /* well-formed, but over a stated limit */
    ERR_FULL,        /* a bounded container has no room now */
    ERR_NOT_FOUND,   /* no such key, id, file */
    ERR_EXISTS,      /* already there */
    ERR_UNSUPPORTED, /* known to exist, not implemented, refused by name */
    ERR_INVALID,     /* a value that its field does not allow */
    ERR_IO,          /* the operating system said no */
    ERR_NOMEM,       /* memory could not be had */
    ERR_CLOSED,      /* the other side is gone */
    ERR_TIMEOUT,     /* a deadline passed */
    ERR_COUNT_
};

/* Static text such as "ERR_LIMIT". Any value is accepted. */
const char *err_name(enum err err);

/* One sentence for an operator or a client: what was found, what was expected, what to do. The
 * caller's storage. */
struct errmsg {
    char text[512];
};

/* Writes the sentence (cut at the array's end) and returns err, so that a refusal is one line:
 *     return errmsg_set(why, ERR_PROTO, "tensor '%s': ...", name);
 * why may be NULL. */
enum err errmsg_set(struct errmsg *why, enum err err, const char *format, ...) PRINTF_LIKE(3, 4);

/* The programmer's mistake: prints place, expression and message, aborts. Stays on in release
 * builds. */
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0)) check__failed(__FILE__, __LINE__, #cond, "-");           \
    } while (0)
#define CHECK_MSG(cond, ...)                                                                       \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0)) check__failed(__FILE__, __LINE__, #cond, __VA_ARGS__);   \
    } while (0)
_Noreturn void check__failed(const char *file, int line, const char *expr, const char *format, ...)
    PRINTF_LIKE(4, 5);

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
