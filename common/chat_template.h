/* chat_template.h - the Jinja subset that published chat templates use, with budgets.
 * Parsed once per template (immutable, shared by threads), rendered per request. Whoever renders
 * learns which bytes of the output came from the template's own text and which from a message: only
 * the former may become control tokens. Reference: jinja2 3.1.6 in transformers' environment
 * (trim_blocks, lstrip_blocks, loopcontrols, generation tag). */
#ifndef PENSTOCK_COMMON_CHAT_TEMPLATE_H
#define PENSTOCK_COMMON_CHAT_TEMPLATE_H

#include "common/json.h"
#include "common/tokenizer.h"

struct chat_template;

enum {
    TEMPLATE_SOURCE_BYTES_MAX = 1 << 20,
    TEMPLATE_OUTPUT_BYTES_MAX = 16 << 20,  /* output, and live values, each */
    TEMPLATE_STEPS_MAX = 10 * 1000 * 1000, /* nodes evaluated, loop turns */
    TEMPLATE_DEPTH_MAX = 200,              /* parser nesting, calls, values compared or printed */
};

/* ERR_PROTO: a syntax error ("line 3: ..."); ERR_LIMIT: too long or too deep; ERR_NOMEM. source is
 * copied. */
enum err chat_template_create(struct span source, struct chat_template **out,
                              struct errmsg *why) MUST_CHECK;
void chat_template_destroy(struct chat_template *t);

struct rendered {
    struct buffer text; /* UTF-8 */
    struct trust_range
        *trusted; /* ascending, merged: the bytes that the template's literals, bos_token and
                   * eos_token wrote. A value computed from a message is never trusted, however it
                   * was passed on (sliced, joined, through macros, namespaces, filters). */
    size_t trusted_count;
};
void rendered_init(struct rendered *r);
void rendered_deinit(struct rendered *r);

/* context: a JSON object of the template's variables (messages, tools, add_generation_prompt,
 * bos_token, ...). The names in trusted_vars (NULL-terminated, e.g. bos_token, eos_token) hold text
 * that counts as the template's own. now_s: what strftime_now shows (seconds since 1970, shown in
 * UTC+utc_offset_s). ERR_INVALID: the template called raise_exception (why is its message, whole up
 * to the array's size) or failed (type error, undefined); ERR_LIMIT: a budget was spent; ERR_NOMEM.
 * On failure out is empty. Recursion is bounded: 2 MiB of stack suffice. */
enum err chat_template_render(const struct chat_template *t, const struct json *context,
                              const char *const *trusted_vars, int64_t now_s, int32_t utc_offset_s,
                              struct rendered *out, struct errmsg *why) MUST_CHECK;

/* What the template's source shows it can do (found in its syntax tree, not by searching text). */
struct chat_template_caps {
    bool tools;           /* reads `tools` */
    bool content_parts;   /* iterates over a message's content: lists of parts may be handed in as
                             they are */
    bool enable_thinking; /* reads `enable_thinking` */
};
struct chat_template_caps chat_template_caps_of(const struct chat_template *t);

#endif
