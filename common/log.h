/* log.h - one line per event on stderr: `ts=... level=... ev=name key=value ...`. Any thread.
 * Never prompt or completion text. A line is at most LOG_LINE_MAX bytes, written by one write(2);
 * what cannot be written is counted, never waited for. */
#ifndef PENSTOCK_COMMON_LOG_H
#define PENSTOCK_COMMON_LOG_H

#include "common/err.h"
#include "common/span.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum { LOG_LINE_MAX = 2048 };

void log_set_level(enum log_level level);                    /* default LOG_INFO */
bool log_level_parse(struct span text, enum log_level *out); /* debug info warn error */
bool log_enabled(enum log_level level);
uint64_t log_dropped_count(void);
/* format begins with ev=...; line breaks in values are replaced by blanks. */
void log_at(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);
#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG)) log_at(LOG_DEBUG, __VA_ARGS__);                                \
    } while (0)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)

#endif
