/* tool_tokenize.c - `penstock-model tokenize`: JSON lines {"text"} in, {"ids"} out, with a model's
 * own vocabulary. A line that cannot be answered gives {"error"} and the next one goes on. */
#include "common/config.h"
#include "common/json.h"
#include "worker/model/vocab.h"
#include "worker/tool/tool.h"

#include <stdlib.h>

enum {
    LINE_BYTES_MAX = 256 << 20,
    ANSWER_BYTES_MAX = 1 << 30,
};

struct tokenize_options {
    bool special, pieces;
};

static void write_pieces(const struct tokenizer *t, const struct token_vec *ids, struct buffer *out)
{
    buffer_add_str(out, ", \"pieces_hex\": [");
    for (size_t i = 0; i < ids->count; i++) {
        struct span piece = tokenizer_piece(t, ids->ids[i]);
        buffer_add_str(out, i > 0 ? ", \"" : "\"");
        for (size_t k = 0; k < piece.len; k++)
            buffer_printf(out, "%02x", piece.ptr[k]);
        buffer_add_byte(out, '"');
    }
    buffer_add_byte(out, ']');
}

/* Appends the answer to one line; on an error nothing but the sentence. */
static enum err answer_line(const struct tokenizer *t, struct span line,
                            const struct tokenize_options *options, struct buffer *out,
                            struct errmsg *why)
{
    if (line.len > LINE_BYTES_MAX)
        return errmsg_set(why, ERR_LIMIT, "the line has %zu bytes, over %d", line.len,
                          LINE_BYTES_MAX);
    struct json *root = NULL;
    const struct json_limits limits = {.allow_nul = true};
    enum err err = json_parse(line, &limits, &root, why);
    if (err != OK) return err;
    struct token_vec ids;
    token_vec_init(&ids, LINE_BYTES_MAX);
    const struct json *text = json_get(root, "text");
    if (text == NULL || json_kind(text) != JSON_K_STRING)
        err = errmsg_set(why, ERR_INVALID, "expected an object with \"text\", a string");
    else if ((err = tokenizer_encode(t, json_as_string(text),
                                     options->special ? TOKENIZE_SPECIAL : TOKENIZE_PLAIN, NULL, 0,
                                     &ids)) != OK)
        (void)errmsg_set(why, err, "the text could not be encoded: %s", err_name(err));
    json_destroy(root);
    if (err == OK) {
        buffer_add_str(out, "{\"ids\": [");
        for (size_t i = 0; i < ids.count; i++)
            buffer_printf(out, i > 0 ? ", %u" : "%u", ids.ids[i]);
        buffer_add_byte(out, ']');
        if (options->pieces) write_pieces(t, &ids, out);
        buffer_add_str(out, "}\n");
        if ((err = buffer_status(out)) != OK)
            (void)errmsg_set(why, err, "the answer is larger than %d bytes", ANSWER_BYTES_MAX);
    }
    token_vec_deinit(&ids);
    return err;
}

static int answer_lines(const struct tokenizer *t, const struct tokenize_options *options)
{
    struct buffer out;
    buffer_init(&out, ANSWER_BYTES_MAX);
    char *line = NULL;
    size_t cap = 0;
    bool written = true;
    for (ssize_t len; written && (len = getline(&line, &cap, stdin)) >= 0;) {
        struct errmsg why = {""};
        buffer_reset(&out);
        if (answer_line(t, span_of(line, (size_t)len), options, &out, &why) != OK) {
            buffer_reset(&out);
            buffer_add_str(&out, "{\"error\": ");
            json_write_string(&out, span_str(why.text));
            buffer_add_str(&out, "}\n");
        }
        written = fwrite(out.ptr, 1, out.len, stdout) == out.len;
    }
    written = written && fflush(stdout) == 0 && !ferror(stdin);
    if (!written) fprintf(stderr, "penstock-model tokenize: standard input or output: %m\n");
    free(line);
    buffer_deinit(&out);
    return written ? 0 : 1;
}

int tool_tokenize(int argc, char **argv)
{
    struct tokenize_options options = {0};
    const char *path = NULL;
    uint32_t given = 0;
    const struct config_item items[] = {
        {"special", CONFIG_BOOL, &options.special, NULL, 0, 0, NULL, "",
         "Recognise control tokens (<|im_end|> ...) in the text; without it they are plain text."},
        {"pieces", CONFIG_BOOL, &options.pieces, NULL, 0, 0, NULL, "",
         "Add pieces_hex: the bytes of each token, in hexadecimal."},
    };
    const struct config config = {
        "penstock-model tokenize",
        "Token ids of texts. Reads JSON lines {\"text\": ...} from standard input, answers each "
        "with "
        "{\"ids\": [...]} or {\"error\": ...}. Never adds a BOS or EOS.",
        "MODEL [options]",
        "Example:\n  echo '{\"text\": \"Hello\"}' | penstock-model tokenize model.gguf\n",
        items,
        ARRAY_LEN(items),
        1};
    struct errmsg why = {""};
    enum config_result result = config_parse(&config, argc, argv, &path, &given, &why);
    if (result == CONFIG_EXIT_OK) return 0;
    if (result == CONFIG_RUN && given != 1) {
        (void)errmsg_set(&why, ERR_INVALID, "MODEL is missing; see penstock-model tokenize --help");
        result = CONFIG_EXIT_BAD;
    }
    struct tokenizer *t = NULL;
    if (result == CONFIG_EXIT_BAD || vocab_load(path, &t, &why) != OK) {
        fprintf(stderr, "penstock-model tokenize: %s\n", why.text);
        return result == CONFIG_EXIT_BAD ? 2 : 1;
    }
    int status = answer_lines(t, &options);
    tokenizer_destroy(t);
    return status;
}
