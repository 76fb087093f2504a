/* http_conn.h - inside the HTTP server: one connection, which is also the exchange that it serves
 * (one at a time). Only http_server.c and http_conn.c include this. Loop thread. */
#ifndef PENSTOCK_GATEWAY_HTTP_CONN_H
#define PENSTOCK_GATEWAY_HTTP_CONN_H

#include "gateway/http_parser.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>

enum conn_state {
    CONN_HEAD, /* reading a request head, or idle before one */
    CONN_BODY,
    CONN_SERVICE, /* the handler has it; the reply may stream */
    CONN_REPLIED, /* the whole reply is queued: when it is out, the next request */
    CONN_LINGER,  /* a fault was answered: read over what comes until the client closes, so that it
                     sees the answer */
};

struct http_exchange {
    struct http_server *server;
    struct bufferevent *bev;
    struct event *timer;
    struct http_exchange *prev, *next; /* of the server's connections */
    struct http_exchange *flush_next;
    bool in_flush_list;
    enum conn_state state;
    bool in_handler;   /* inside on_request: what would close the connection waits for its end */
    bool close_wanted; /* cut it at the next flush */
    bool stream_begun, chunked_reply, close_after, client_gone;
    bool timer_for_head; /* the head's deadline runs, not the idle one */
    size_t scanned;      /* http_head_scan's progress */
    struct buffer
        head_bytes; /* the head, kept while the exchange lives: http_head borrows from it */
    struct http_head head;
    struct http_chunks chunks;
    struct buffer body;
    struct buffer extra_headers;
    uint64_t received_ns;
    uint64_t lingered_bytes;
    void *user;
};

struct http_server {
    struct event_base *base;
    struct evconnlistener *listener; /* NULL once draining */
    struct event *flush_event, *accept_timer;
    struct http_limits limits;
    struct http_handlers handlers;
    struct http_exchange *connections, *flush_list;
    uint32_t connection_count;
    bool flush_wanted, draining;
    int64_t date_s;
    char date[40];
};

bool http_conn_open(struct http_server *s,
                    evutil_socket_t fd); /* false: no memory, fd stays the caller's */
void http_conn_close(
    struct http_exchange *conn); /* at once; on_done(false) if an exchange is open */
void http_conn_flush(
    struct http_exchange *conn); /* sends what is queued; moves on when all of it is out */
void http_conn_drain(struct http_exchange *conn); /* closes it if idle */

void http_server__want_flush(struct http_exchange *conn);
void http_server__forget(struct http_exchange *conn);
struct span http_server__date(struct http_server *s);

#endif
