/* config.h - settings of one binary: one table gives flags, environment, --help and the docs check.
 * `--name value`, `--name=value`, environment PENSTOCK_NAME (dashes as underscores); a flag beats
 * the environment, the environment beats the default. Values are checked against the table's range;
 * an unknown flag is refused with the nearest right one. Main thread, at start. */
#ifndef PENSTOCK_COMMON_CONFIG_H
#define PENSTOCK_COMMON_CONFIG_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum config_kind {
    CONFIG_STRING, /* const char **; borrowed from argv, environ or the table */
    CONFIG_U32,    /* uint32_t *; min and max apply */
    CONFIG_U64, /* uint64_t *; min and max apply; bytes may be written 64K, 16M, 2G (powers of 1024)
                 */
    CONFIG_F64, /* double *; min and max apply */
    CONFIG_BOOL,   /* bool *; `--name`, `--name=true|false` */
    CONFIG_CHOICE, /* uint32_t *: index into choices ("auto|cpu|cuda") */
};

struct config_item {
    const char *name; /* "max-sequences" */
    enum config_kind kind;
    void *out;
    const char *default_value; /* parsed like a flag; NULL: zero, NULL or false */
    double min, max;           /* both 0: any value of the type */
    const char *choices;       /* CONFIG_CHOICE only, separated by '|' */
    const char *unit;          /* "tokens", "bytes", "ms" or "" */
    const char *help;          /* one sentence */
};

struct config {
    const char *program;  /* "penstock-worker" */
    const char *summary;  /* one or two sentences at the top of --help */
    const char *usage;    /* behind the program's name: "--model FILE [options]" */
    const char *epilogue; /* examples at the end of --help, or NULL */
    const struct config_item *items;
    uint32_t item_count;
    uint32_t positional_max; /* how many plain arguments are taken */
};

enum config_result {
    CONFIG_RUN,
    CONFIG_EXIT_OK /* --help or --version was printed */,
    CONFIG_EXIT_BAD
};

/* Fills every item's out. positional: room for positional_max pointers, count in *positional_count
 * (both may be NULL when positional_max is 0). On CONFIG_EXIT_BAD why holds one sentence; nothing
 * was printed. --help goes to stdout. */
enum config_result config_parse(const struct config *config, int argc, char **argv,
                                const char **positional, uint32_t *positional_count,
                                struct errmsg *why);
void config_print_help(const struct config *config, FILE *out);
/* Of n words the one nearest to text by edit distance, NULL if none is near. Also for subcommands.
 */
const char *config_nearest(const char *text, const char *const *words, uint32_t n);

#endif
