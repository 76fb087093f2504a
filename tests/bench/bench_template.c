/* bench_template: microseconds to parse a chat template and to render 20 messages with it.
 * Arguments: template files; without any a short ChatML template of its own is measured. */
#include "common/chat_template.h"
#include "common/clock.h"

#include <stdio.h>

enum { MESSAGES = 20, ROUNDS = 2000 };

static const char chatml[] =
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + "
    "'<|im_end|>' + '\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- "
    "'<|im_start|>assistant\\n' }}{%- endif %}";

static struct json *conversation(void)
{
    struct buffer text;
    struct json *out = NULL;
    buffer_init(&text, 1 << 20);
    buffer_add_str(&text, "{\"messages\": [");
    for (int i = 0; i < MESSAGES; i++)
        buffer_printf(&text,
                      "%s{\"role\": \"%s\", \"content\": \"Message %d says something of a common "
                      "length: the quick brown fox jumps over the lazy dog, twice a day, and then "
                      "rests until the next morning comes.\"}",
                      i > 0 ? ", " : "", i % 2 == 0 ? "user" : "assistant", i);
    buffer_add_str(&text,
                   "], \"tools\": null, \"documents\": null, \"add_generation_prompt\": true,"
                   " \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    CHECK(json_parse(buffer_view(&text), NULL, &out, NULL) == OK);
    buffer_deinit(&text);
    return out;
}

static void measure(const char *name, struct span source, const struct json *context)
{
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    struct errmsg why = {""};
    struct chat_template *t = NULL;
    struct rendered r;
    rendered_init(&r);
    uint64_t start_ns = clock_now_ns();
    enum err err = chat_template_create(source, &t, &why);
    double parse_us = (double)(clock_now_ns() - start_ns) / 1e3;
    start_ns = clock_now_ns();
    for (int i = 0; i < ROUNDS && err == OK; i++)
        err = chat_template_render(t, context, trusted, 0, 0, &r, &why);
    double render_us = (double)(clock_now_ns() - start_ns) / 1e3 / ROUNDS;
    if (err != OK)
        printf("%-60s %s\n", name, why.text);
    else
        printf("%-60s parse_us=%.1f render_us=%.1f bytes=%zu ranges=%zu\n", name, parse_us,
               render_us, r.text.len, r.trusted_count);
    rendered_deinit(&r);
    chat_template_destroy(t);
}

int main(int argc, char **argv)
{
    static char source[TEMPLATE_SOURCE_BYTES_MAX];
    struct json *context = conversation();
    if (argc < 2) measure("chatml", span_str(chatml), context);
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (f == NULL) {
            fprintf(stderr, "bench_template: %s: %m\n", argv[i]);
            return 1;
        }
        size_t n = fread(source, 1, sizeof source, f);
        fclose(f);
        measure(argv[i], span_of(source, n), context);
    }
    json_destroy(context);
    return 0;
}
