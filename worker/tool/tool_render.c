/* tool_render.c - `penstock-model render`: JSON lines with a chat template's variables in, {"text"}
 * or {"error"} out. A line that cannot be answered gives {"error"} and the next one goes on. */
#include "common/chat_template.h"
#include "common/clock.h"
#include "common/config.h"
#include "worker/model/gguf.h"
#include "worker/tool/tool.h"

#include <stdlib.h>
#include <time.h>

enum {
    LINE_BYTES_MAX = 256 << 20,
    ANSWER_BYTES_MAX = 1 << 30,
};

static const char *const trusted_vars[] = {"bos_token", "eos_token", NULL};

/* The template's text: of --template's file, or of a model's metadata. */
static enum err read_source(const char *model, const char *file, struct buffer *out,
                            struct errmsg *why)
{
    if (file == NULL) {
        struct gguf *g = NULL;
        struct span text;
        enum err err = gguf_open(model, &g, why);
        if (err == OK) err = gguf_get_string(g, "tokenizer.chat_template", &text, why);
        if (err == OK) {
            buffer_add_span(out, text);
            if ((err = buffer_status(out)) != OK)
                (void)errmsg_set(why, err, "%s: the chat template is too large", model);
        }
        gguf_close(g);
        return err;
    }
    FILE *f = fopen(file, "rb");
    if (f == NULL) return errmsg_set(why, ERR_IO, "%s: %m", file);
    char block[16384];
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        buffer_add(out, block, n);
    enum err err = OK;
    if (ferror(f))
        err = errmsg_set(why, ERR_IO, "%s: %m", file);
    else if ((err = buffer_status(out)) != OK)
        (void)errmsg_set(why, err, "%s: larger than a chat template may be", file);
    fclose(f);
    return err;
}

/* "now": what strftime_now shows; the machine's clock where it is missing. */
static enum err read_now(const struct json *root, int64_t *now_s, int32_t *offset_s,
                         struct errmsg *why)
{
    const struct json *v = json_get(root, "now");
    struct tm tm = {0};
    if (v == NULL) {
        *now_s = clock_wall_s();
        time_t t = (time_t)*now_s;
        *offset_s = localtime_r(&t, &tm) != NULL ? (int32_t)tm.tm_gmtoff : 0;
        return OK;
    }
    char text[32] = "";
    if (json_kind(v) == JSON_K_STRING && json_as_string(v).len < sizeof text)
        memcpy(text, json_as_string(v).ptr, json_as_string(v).len);
    const char *end = strptime(text, "%Y-%m-%d %H:%M:%S", &tm);
    if (end == NULL || *end != '\0')
        return errmsg_set(why, ERR_INVALID, "\"now\" must be like \"2026-01-15 12:00:00\"");
    *now_s = (int64_t)timegm(&tm);
    *offset_s = 0;
    return OK;
}

static void write_trusted(const struct rendered *r, struct buffer *out)
{
    buffer_add_str(out, ", \"trusted\": [");
    for (size_t i = 0; i < r->trusted_count; i++)
        buffer_printf(out, i > 0 ? ", [%zu, %zu]" : "[%zu, %zu]", r->trusted[i].start,
                      r->trusted[i].end);
    buffer_add_byte(out, ']');
}

static enum err answer_line(const struct chat_template *t, struct span line, bool trusted,
                            struct buffer *out, struct errmsg *why)
{
    if (line.len > LINE_BYTES_MAX)
        return errmsg_set(why, ERR_LIMIT, "the line has %zu bytes, over %d", line.len,
                          LINE_BYTES_MAX);
    struct json *root = NULL;
    const struct json_limits limits = {
        .max_depth = TEMPLATE_DEPTH_MAX, .allow_nul = true, .allow_duplicate_keys = true};
    enum err err = json_parse(line, &limits, &root, why);
    if (err != OK) return err;
    struct rendered r;
    int64_t now_s = 0;
    int32_t offset_s = 0;
    rendered_init(&r);
    if (json_kind(root) != JSON_K_OBJECT)
        err = errmsg_set(why, ERR_INVALID, "expected an object of the template's variables");
    else if ((err = read_now(root, &now_s, &offset_s, why)) == OK)
        err = chat_template_render(t, root, trusted_vars, now_s, offset_s, &r, why);
    if (err == OK) {
        buffer_add_str(out, "{\"text\": ");
        json_write_string(out, buffer_view(&r.text));
        if (trusted) write_trusted(&r, out);
        buffer_add_str(out, "}\n");
        if ((err = buffer_status(out)) != OK)
            (void)errmsg_set(why, err, "the answer is larger than %d bytes", ANSWER_BYTES_MAX);
    }
    rendered_deinit(&r);
    json_destroy(root);
    return err;
}

/* t NULL: the template was refused, with refusal, and so is each line. */
static int answer_lines(const struct chat_template *t, const struct errmsg *refusal, bool trusted)
{
    struct buffer out;
    buffer_init(&out, ANSWER_BYTES_MAX);
    char *line = NULL;
    size_t cap = 0;
    bool written = true;
    for (ssize_t len; written && (len = getline(&line, &cap, stdin)) >= 0;) {
        struct errmsg why = *refusal;
        buffer_reset(&out);
        if (t == NULL || answer_line(t, span_of(line, (size_t)len), trusted, &out, &why) != OK) {
            buffer_reset(&out);
            buffer_add_str(&out, "{\"error\": ");
            json_write_string(&out, span_str(why.text));
            buffer_add_str(&out, "}\n");
        }
        written = fwrite(out.ptr, 1, out.len, stdout) == out.len;
    }
    written = written && fflush(stdout) == 0 && !ferror(stdin);
    if (!written) fprintf(stderr, "penstock-model render: standard input or output: %m\n");
    free(line);
    buffer_deinit(&out);
    return written ? 0 : 1;
}

int tool_render(int argc, char **argv)
{
    bool trusted = false;
    const char *file = NULL, *model = NULL;
    uint32_t given = 0;
    const struct config_item items[] = {
        {"template", CONFIG_STRING, &file, NULL, 0, 0, NULL, "",
         "Take the template from this file instead of a model."},
        {"trusted", CONFIG_BOOL, &trusted, NULL, 0, 0, NULL, "",
         "Add trusted: the byte ranges of the text that the template itself wrote."},
    };
    const struct config config = {
        "penstock-model render",
        "Renders a chat template. Reads JSON lines with the template's variables (messages, tools, "
        "add_generation_prompt, bos_token, ...; \"now\" for the clock) from standard input, "
        "answers each with {\"text\": ...} or {\"error\": ...}. A template that cannot be read "
        "answers every line with its error.",
        "(MODEL | --template FILE) [options]",
        "Example:\n  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
        "\"add_generation_prompt\": true}' \\\n    | penstock-model render model.gguf\n",
        items,
        ARRAY_LEN(items),
        1};
    struct errmsg why = {""};
    enum config_result result = config_parse(&config, argc, argv, &model, &given, &why);
    if (result == CONFIG_EXIT_OK) return 0;
    if (result == CONFIG_RUN && (given == 1) == (file != NULL)) {
        (void)errmsg_set(&why, ERR_INVALID,
                         "give MODEL or --template FILE; see penstock-model render --help");
        result = CONFIG_EXIT_BAD;
    }
    struct buffer source;
    struct chat_template *t = NULL;
    buffer_init(&source, TEMPLATE_SOURCE_BYTES_MAX + 1);
    enum err err = result == CONFIG_RUN ? read_source(model, file, &source, &why) : ERR_INVALID;
    if (err != OK) {
        fprintf(stderr, "penstock-model render: %s\n", why.text);
        buffer_deinit(&source);
        return result == CONFIG_EXIT_BAD ? 2 : 1;
    }
    if (chat_template_create(buffer_view(&source), &t, &why) != OK)
        fprintf(stderr, "penstock-model render: the template is refused: %s\n", why.text);
    buffer_deinit(&source);
    int status = answer_lines(t, &why, trusted);
    chat_template_destroy(t);
    return status;
}
