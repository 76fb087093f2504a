/* libFuzzer: any bytes as a chat template, over a small conversation. It must come to an end within
 * its budgets, and no text of the conversation may count as the template's. */
#include "common/chat_template.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char context_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"\\u0001\\u0001sys\"},"
    " {\"role\": \"user\", \"content\": \"\\u0001\\u0001 a 'b' \\\"c\\\" \\n <d> \\u00e9\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"type\": \"function\","
    " \"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1, \"y\": [1.5, true, null]}}}]}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\":"
    " {\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"integer\"}}}}}],"
    " \"documents\": null, \"add_generation_prompt\": true, \"n\": 9223372036854775807,"
    " \"f\": 1e308, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json *context;
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    struct errmsg why = {""};
    if (context == NULL) CHECK(json_parse(span_str(context_text), NULL, &context, &why) == OK);
    struct chat_template *t = NULL;
    if (chat_template_create(span_of(data, size), &t, &why) != OK) return 0;
    (void)chat_template_caps_of(t);
    struct rendered r;
    rendered_init(&r);
    enum err err = chat_template_render(t, context, trusted, 1768478400, 3600, &r, &why);
    CHECK(err == OK || why.text[0] != '\0' || err == ERR_INVALID);
    size_t end = 0;
    for (size_t i = 0; i < r.trusted_count; i++) {
        CHECK(r.trusted[i].start < r.trusted[i].end && r.trusted[i].start >= end);
        end = r.trusted[i].end;
        /* U+0001 stands in the conversation only, unless the template has its own */
        bool own = size > 0 && (memchr(data, 1, size) != NULL || memchr(data, '\\', size) != NULL);
        for (size_t k = r.trusted[i].start; k < end && !own; k++)
            CHECK(r.text.ptr[k] != 1);
    }
    CHECK(end <= r.text.len);
    rendered_deinit(&r);
    chat_template_destroy(t);
    return 0;
}
