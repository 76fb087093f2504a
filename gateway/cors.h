/* cors.h - cross-origin headers for browsers. Off unless origins are configured. Adds headers to
 * replies; knows nothing else. Loop thread. */
#ifndef PENSTOCK_GATEWAY_CORS_H
#define PENSTOCK_GATEWAY_CORS_H

#include "gateway/http_server.h"

/* origins: "" (off), "*", or exact origins separated by commas. Adds what the reply to x needs.
 * True: x is a preflight that the headers answer (204, no body). */
bool cors_apply(struct http_exchange *x, const char *origins);

#endif
