#include "worker/admin.h"

#include "common/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST_BYTES_MAX = 4096, REQUEST_TIMEOUT_MS = 1000, METRICS_BYTES_MAX = 1 << 20 };

struct admin {
    int listener;
    int stop_fd;
    pthread_t thread;
    const struct metrics *metrics;
    struct admin_probes probes;
    struct buffer body;
};

/* "host:port" or "[v6]:port" split in place; false when there is no port. */
static bool split_address(const char *address, char *host, size_t host_bytes, const char **port)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon[1] == '\0') return false;
    size_t n = (size_t)(colon - address);
    if (n >= 2 && address[0] == '[' && address[n - 1] == ']') {
        address++;
        n -= 2;
    }
    if (n >= host_bytes) return false;
    memcpy(host, address, n);
    host[n] = '\0';
    *port = colon + 1;
    return true;
}

static enum err listen_on(const char *address, int *out, struct errmsg *why)
{
    char host[256];
    const char *port;
    if (!split_address(address, host, sizeof host, &port))
        return errmsg_set(why, ERR_INVALID, "--admin '%s': expected HOST:PORT, e.g. 127.0.0.1:8082",
                          address);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    int rc = getaddrinfo(host[0] ? host : NULL, port, &hints, &found);
    if (rc != 0) return errmsg_set(why, ERR_INVALID, "--admin '%s': %s", address, gai_strerror(rc));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 16) != 0) {
        int cause = errno;
        if (fd >= 0) close(fd);
        freeaddrinfo(found);
        return errmsg_set(
            why, ERR_IO,
            "--admin '%s': cannot listen: %s; choose another port with --admin HOST:PORT", address,
            strerror(cause));
    }
    freeaddrinfo(found);
    *out = fd;
    return OK;
}

/* Reads up to the blank line behind the headers; false when that does not come in time or in 4 KiB.
 */
static bool read_request(int fd, char *text, size_t *len)
{
    uint64_t deadline = clock_now_ns() + REQUEST_TIMEOUT_MS * NS_PER_MS;
    *len = 0;
    while (*len < REQUEST_BYTES_MAX) {
        uint64_t now = clock_now_ns();
        struct pollfd p = {fd, POLLIN, 0};
        if (now >= deadline || poll(&p, 1, (int)((deadline - now) / NS_PER_MS) + 1) <= 0)
            return false;
        ssize_t n = recv(fd, text + *len, REQUEST_BYTES_MAX - *len, 0);
        if (n <= 0) return false;
        *len += (size_t)n;
        text[*len] = '\0';
        if (strstr(text, "\r\n\r\n") != NULL) return true;
    }
    return false;
}

static void send_all(int fd, const void *ptr, size_t len)
{
    uint64_t deadline = clock_now_ns() + REQUEST_TIMEOUT_MS * NS_PER_MS;
    const char *at = ptr;
    while (len > 0 && clock_now_ns() < deadline) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n > 0) {
            at += n;
            len -= (size_t)n;
            continue;
        }
        struct pollfd p = {fd, POLLOUT, 0};
        if (errno != EAGAIN || poll(&p, 1, 100) < 0) return;
    }
}

static void reply(struct admin *a, int fd, const char *status, const char *type)
{
    char head[256];
    int n = snprintf(
        head, sizeof head,
        "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
        status, type, a->body.len);
    send_all(fd, head, (size_t)n);
    send_all(fd, a->body.ptr, a->body.len);
}

static void probe(struct admin *a, int fd, bool good, const char *yes, const char *no)
{
    buffer_add_str(&a->body, good ? yes : no);
    reply(a, fd, good ? "200 OK" : "503 Service Unavailable", "text/plain; charset=utf-8");
}

static void serve(struct admin *a, int fd)
{
    char text[REQUEST_BYTES_MAX + 1];
    size_t len;
    buffer_reset(&a->body);
    if (!read_request(fd, text, &len)) return;
    if (strncmp(text, "GET /health/live ", 17) == 0) {
        probe(a, fd, a->probes.live(a->probes.arg), "live\n", "the engine loop does not turn\n");
    } else if (strncmp(text, "GET /health/ready ", 18) == 0) {
        probe(a, fd, a->probes.ready(a->probes.arg), "ready\n",
              "no gateway has taken this worker in\n");
    } else if (strncmp(text, "GET /metrics ", 13) == 0) {
        metrics_render(a->metrics, &a->body);
        reply(a, fd, "200 OK", "text/plain; version=0.0.4; charset=utf-8");
    } else {
        buffer_add_str(&a->body, "known: GET /health/live, /health/ready, /metrics\n");
        reply(a, fd, strncmp(text, "GET ", 4) == 0 ? "404 Not Found" : "405 Method Not Allowed",
              "text/plain; charset=utf-8");
    }
}

static void *admin_thread(void *arg)
{
    struct admin *a = arg;
    for (;;) {
        struct pollfd p[2] = {{a->listener, POLLIN, 0}, {a->stop_fd, POLLIN, 0}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) return NULL;
        if (p[1].revents) return NULL;
        if (!p[0].revents) continue;
        int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE) (void)poll(NULL, 0, 100); /* do not spin */
            continue;
        }
        serve(a, fd);
        close(fd);
    }
}

enum err admin_start(const char *address, const struct metrics *metrics,
                     const struct admin_probes *probes, struct admin **out, struct errmsg *why)
{
    struct admin *a = calloc(1, sizeof *a);
    if (a == NULL) return errmsg_set(why, ERR_NOMEM, "no memory for the admin thread");
    a->metrics = metrics;
    a->probes = *probes;
    buffer_init(&a->body, METRICS_BYTES_MAX);
    enum err err = listen_on(address, &a->listener, why);
    if (err != OK) {
        free(a);
        return err;
    }
    a->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (a->stop_fd < 0 || pthread_create(&a->thread, NULL, admin_thread, a) != 0) {
        close(a->listener);
        if (a->stop_fd >= 0) close(a->stop_fd);
        free(a);
        return errmsg_set(why, ERR_NOMEM, "cannot start the admin thread");
    }
    *out = a;
    return OK;
}

void admin_stop(struct admin *a)
{
    if (a == NULL) return;
    uint64_t one = 1;
    CHECK(write(a->stop_fd, &one, sizeof one) == sizeof one);
    (void)pthread_join(a->thread, NULL);
    close(a->stop_fd);
    close(a->listener);
    buffer_deinit(&a->body);
    free(a);
}
