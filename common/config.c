#include "common/config.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 64, WRAP_COLUMNS = 78, HELP_COLUMN = 30 };

/* ---- values ---- */

static bool out_of_range(const struct config_item *item, double v)
{
    return (item->min != 0 || item->max != 0) && (v < item->min || v > item->max);
}

static enum err refuse(const struct config_item *item, const char *text, const char *expected,
                       struct errmsg *why)
{
    return errmsg_set(why, ERR_INVALID, "--%s '%s': expected %s%s%s", item->name, text, expected,
                      item->unit[0] ? ", in " : "", item->unit);
}

static enum err refuse_range(const struct config_item *item, const char *text, struct errmsg *why)
{
    char range[96];
    (void)snprintf(range, sizeof range, "a number from %.15g to %.15g", item->min, item->max);
    return refuse(item, text, range, why);
}

/* Digits, and for CONFIG_U64 a suffix K, M or G. */
static enum err parse_integer(const struct config_item *item, const char *text, uint64_t limit,
                              uint64_t *out, struct errmsg *why)
{
    char *end;
    errno = 0;
    uint64_t v = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (item->kind == CONFIG_U64 && end != text && *end != '\0') {
        shift = *end == 'K' || *end == 'k'   ? 10
                : *end == 'M' || *end == 'm' ? 20
                : *end == 'G' || *end == 'g' ? 30
                                             : 0;
        if (shift != 0) end++;
    }
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || v > (limit >> shift))
        return item->min != 0 || item->max != 0
                   ? refuse_range(item, text, why)
                   : refuse(item, text, "a whole number that is not negative", why);
    v <<= shift;
    if (out_of_range(item, (double)v)) return refuse_range(item, text, why);
    *out = v;
    return OK;
}

static enum err parse_choice(const struct config_item *item, const char *text, struct errmsg *why)
{
    uint32_t index = 0;
    for (const char *at = item->choices; at != NULL; index++) {
        const char *bar = strchr(at, '|');
        size_t n = bar != NULL ? (size_t)(bar - at) : strlen(at);
        if (strlen(text) == n && memcmp(text, at, n) == 0) {
            *(uint32_t *)item->out = index;
            return OK;
        }
        at = bar != NULL ? bar + 1 : NULL;
    }
    char expected[256];
    (void)snprintf(expected, sizeof expected, "one of %s", item->choices);
    return refuse(item, text, expected, why);
}

static enum err set_value(const struct config_item *item, const char *text, struct errmsg *why)
{
    uint64_t v = 0;
    enum err err = OK;
    char *end;
    switch (item->kind) {
    case CONFIG_STRING: *(const char **)item->out = text; return OK;
    case CONFIG_U32:
        err = parse_integer(item, text, UINT32_MAX, &v, why);
        if (err == OK) *(uint32_t *)item->out = (uint32_t)v;
        return err;
    case CONFIG_U64:
        err = parse_integer(item, text, UINT64_MAX, &v, why);
        if (err == OK) *(uint64_t *)item->out = v;
        return err;
    case CONFIG_F64: {
        double d = strtod(text, &end);
        if (end == text || *end != '\0' || !isfinite(d)) return refuse(item, text, "a number", why);
        if (out_of_range(item, d)) return refuse_range(item, text, why);
        *(double *)item->out = d;
        return OK;
    }
    case CONFIG_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return refuse(item, text, "true or false", why);
        *(bool *)item->out = text[0] == 't';
        return OK;
    case CONFIG_CHOICE: return parse_choice(item, text, why);
    }
    return ERR_INVALID;
}

static void set_empty(const struct config_item *item)
{
    switch (item->kind) {
    case CONFIG_STRING: *(const char **)item->out = NULL; break;
    case CONFIG_U32:
    case CONFIG_CHOICE: *(uint32_t *)item->out = 0; break;
    case CONFIG_U64: *(uint64_t *)item->out = 0; break;
    case CONFIG_F64: *(double *)item->out = 0; break;
    case CONFIG_BOOL: *(bool *)item->out = false; break;
    }
}

static void environment_name(const char *name, char *out, size_t out_bytes)
{
    (void)snprintf(out, out_bytes, "PENSTOCK_%s", name);
    for (char *at = out; *at != '\0'; at++)
        *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
}

static enum err set_defaults(const struct config *config, struct errmsg *why)
{
    for (uint32_t i = 0; i < config->item_count; i++) {
        const struct config_item *item = &config->items[i];
        char name[NAME_MAX_BYTES + 16];
        set_empty(item);
        if (item->default_value != NULL)
            CHECK_MSG(set_value(item, item->default_value, why) == OK, "%s", why->text);
        environment_name(item->name, name, sizeof name);
        const char *text = getenv(name);
        if (text == NULL || text[0] == '\0') continue;
        enum err err = set_value(item, text, why);
        if (err != OK) {
            char first[300];
            (void)snprintf(first, sizeof first, "%.290s", why->text);
            return errmsg_set(why, err, "%s in the environment: %s", name, first);
        }
    }
    return OK;
}

/* ---- flags ---- */

/* Edit distance, swaps of neighbours counted as one. */
static uint32_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    uint32_t row[3][NAME_MAX_BYTES + 1];
    if (n > NAME_MAX_BYTES || m > NAME_MAX_BYTES) return UINT32_MAX;
    for (size_t j = 0; j <= m; j++)
        row[0][j] = (uint32_t)j;
    for (size_t i = 1; i <= n; i++) {
        uint32_t *now = row[i % 3], *before = row[(i - 1) % 3], *earlier = row[(i + 1) % 3];
        now[0] = (uint32_t)i;
        for (size_t j = 1; j <= m; j++) {
            uint32_t best = before[j - 1] + (a[i - 1] != b[j - 1]);
            if (before[j] + 1 < best) best = before[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                earlier[j - 2] + 1 < best)
                best = earlier[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[n % 3][m];
}

const char *config_nearest(const char *text, const char *const *words, uint32_t n)
{
    const char *best = NULL;
    uint32_t best_distance = (uint32_t)strlen(text) / 3 + 2; /* farther is no help */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d = distance(text, words[i]);
        bool begins = strlen(text) >= 3 && strncmp(words[i], text, strlen(text)) == 0;
        if (begins) d = 1;
        if (d < best_distance) {
            best_distance = d;
            best = words[i];
        }
    }
    return best;
}

static enum err unknown_flag(const struct config *config, const char *flag, struct errmsg *why)
{
    const char *names[256];
    uint32_t n = 0;
    for (; n < config->item_count && n < 255; n++)
        names[n] = config->items[n].name;
    names[n++] = "help";
    const char *plain = flag + strspn(flag, "-");
    const char *near = config_nearest(plain, names, n);
    if (near != NULL)
        return errmsg_set(why, ERR_INVALID,
                          "unknown flag '%.80s'; did you mean --%s? (%s --help lists all)", flag,
                          near, config->program);
    return errmsg_set(why, ERR_INVALID, "unknown flag '%.80s'; %s --help lists all", flag,
                      config->program);
}

static const struct config_item *find_item(const struct config *config, const char *name,
                                           size_t len)
{
    for (uint32_t i = 0; i < config->item_count; i++)
        if (strlen(config->items[i].name) == len && memcmp(config->items[i].name, name, len) == 0)
            return &config->items[i];
    return NULL;
}

/* One flag at argv[*at]; takes its value too, where that is a word of its own. */
static enum err parse_flag(const struct config *config, int argc, char **argv, int *at,
                           struct errmsg *why)
{
    const char *flag = argv[*at];
    if (strncmp(flag, "--", 2) != 0) return unknown_flag(config, flag, why);
    const char *name = flag + 2, *equals = strchr(name, '=');
    const struct config_item *item =
        find_item(config, name, equals != NULL ? (size_t)(equals - name) : strlen(name));
    if (item == NULL) {
        char plain[NAME_MAX_BYTES + 1];
        (void)snprintf(plain, sizeof plain, "--%.*s",
                       (int)(equals != NULL ? equals - name : (ptrdiff_t)strlen(name)), name);
        return unknown_flag(config, plain, why);
    }
    if (equals != NULL) return set_value(item, equals + 1, why);
    if (item->kind == CONFIG_BOOL) return set_value(item, "true", why);
    if (*at + 1 >= argc)
        return errmsg_set(why, ERR_INVALID, "--%s needs a value; %s --help tells which", item->name,
                          config->program);
    return set_value(item, argv[++*at], why);
}

enum config_result config_parse(const struct config *config, int argc, char **argv,
                                const char **positional, uint32_t *positional_count,
                                struct errmsg *why)
{
    uint32_t given = 0;
    bool only_positional = false;
    if (positional_count != NULL) *positional_count = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) break;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            config_print_help(config, stdout);
            return CONFIG_EXIT_OK;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("%s %s\n", config->program, PENSTOCK_VERSION);
            return CONFIG_EXIT_OK;
        }
    }
    if (set_defaults(config, why) != OK) return CONFIG_EXIT_BAD;
    for (int i = 1; i < argc; i++) {
        if (!only_positional && strcmp(argv[i], "--") == 0) {
            only_positional = true;
        } else if (!only_positional && argv[i][0] == '-' && argv[i][1] != '\0') {
            if (parse_flag(config, argc, argv, &i, why) != OK) return CONFIG_EXIT_BAD;
        } else if (given < config->positional_max) {
            positional[given++] = argv[i];
        } else {
            errmsg_set(why, ERR_INVALID,
                       "'%.80s' is one argument too many; %s --help shows the usage", argv[i],
                       config->program);
            return CONFIG_EXIT_BAD;
        }
    }
    if (positional_count != NULL) *positional_count = given;
    return CONFIG_RUN;
}

/* ---- help ---- */

/* Prints words from column `column` on, broken before WRAP_COLUMNS; newlines in text are kept. */
static void print_wrapped(FILE *out, const char *text, int indent, int column)
{
    while (*text != '\0') {
        size_t n = strcspn(text, " \n");
        if (column + (int)n > WRAP_COLUMNS && column > indent) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        fwrite(text, 1, n, out);
        column += (int)n;
        text += n;
        if (*text == '\n') {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            text++;
        } else if (*text == ' ') {
            if (column < WRAP_COLUMNS) fputc(' ', out);
            column++;
            text++;
        }
    }
    fputc('\n', out);
}

static void print_item(FILE *out, const struct config_item *item)
{
    static const char *const kinds[] = {"TEXT", "N", "N", "X", "", ""};
    char left[128], help[1024];
    const char *value = item->kind == CONFIG_CHOICE ? item->choices : kinds[item->kind];
    (void)snprintf(left, sizeof left, "  --%s%s%s", item->name, value[0] ? " " : "", value);
    int n = snprintf(help, sizeof help, "%s", item->help);
    if (item->max != 0 || item->min != 0)
        n += snprintf(help + n, sizeof help - (size_t)n, " Range %.15g to %.15g%s%s.", item->min,
                      item->max, item->unit[0] ? " " : "", item->unit);
    if (item->default_value != NULL &&
        !(item->kind == CONFIG_BOOL && item->default_value[0] == 'f'))
        (void)snprintf(help + n, sizeof help - (size_t)n, " Default %s.", item->default_value);
    int column = fprintf(out, "%s", left);
    if (column >= HELP_COLUMN - 1) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", HELP_COLUMN - column, "");
    print_wrapped(out, help, HELP_COLUMN, HELP_COLUMN);
}

void config_print_help(const struct config *config, FILE *out)
{
    fprintf(out, "Usage: %s %s\n\n", config->program, config->usage);
    print_wrapped(out, config->summary, 0, 0);
    fputs("\nOptions:\n", out);
    for (uint32_t i = 0; i < config->item_count; i++)
        print_item(out, &config->items[i]);
    fprintf(out, "  --help                      This text.\n  --version                   Name and "
                 "version.\n");
    fprintf(
        out,
        "\nEach option may also be given in the environment: --some-name as PENSTOCK_SOME_NAME.\n");
    if (config->epilogue != NULL) fprintf(out, "\n%s", config->epilogue);
}
