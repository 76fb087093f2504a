/* request.h - one HTTP request for tokens, from its JSON to its last byte. One owner (the loop that
 * read it), one arena. A request has prompts (one for chat, one or more for completions) and n
 * choices of each; choices are numbered through. What is sent to a worker is a *unit*: one prompt
 * with one or more of its choices. Loop thread, but for request_prepare (prepare.h). */
#ifndef PENSTOCK_GATEWAY_REQUEST_H
#define PENSTOCK_GATEWAY_REQUEST_H

#include "common/arena.h"
#include "common/json.h"
#include "common/tokenizer.h"
#include "gateway/api_error.h"
#include "gateway/http_server.h"

enum {
    REQUEST_CHOICES_MAX = 16, /* n */
    REQUEST_PROMPTS_MAX = 64,
    REQUEST_ALL_CHOICES_MAX = 128,
    REQUEST_STOPS_MAX = 4,
    REQUEST_STOP_BYTES_MAX = 256,
    REQUEST_STOP_IDS_MAX = 64,
    REQUEST_BIAS_MAX = 1024,
    REQUEST_ARENA_BYTES_MAX = 96 << 20,
    REQUEST_ID_BYTES_MAX = 64,
    MODEL_NAME_BYTES_MAX = 256,
};

enum endpoint { ENDPOINT_CHAT, ENDPOINT_COMPLETIONS };

struct request_params {
    uint32_t max_tokens; /* 0: the rest of the context */
    uint32_t min_tokens, n, top_k, top_logprobs;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    uint64_t seed;
    bool has_seed, stream, include_usage, want_logprobs, echo, ignore_eos, add_generation_prompt,
        continue_final_message, keep_special_tokens;
    struct span stops[REQUEST_STOPS_MAX];
    uint32_t stop_count;
    uint32_t *stop_ids, stop_id_count;
    uint32_t *bias_ids, bias_count;
    float *bias;
};

struct token_logprob {
    uint32_t id;
    float logprob;
    uint32_t top_count;
    uint32_t top_ids[20];
    float top_logprobs[20];
    size_t end;         /* bytes of decoded text behind this token */
    uint32_t end_chars; /* the same in code points */
};

enum finish { FINISH_RUNNING, FINISH_STOP, FINISH_LENGTH, FINISH_FAILED };

struct choice {
    uint32_t prompt; /* which prompt */
    uint32_t within; /* its number among the prompt's choices: part of the random key */
    uint32_t *ids;   /* tokens so far: what a resumed request goes on from */
    uint32_t id_count, id_cap;
    struct detokenizer detok;
    struct buffer text; /* echoed prompt and decoded text */
    size_t text_from;   /* where the echo ends: stop strings are looked for behind it */
    uint32_t chars;     /* code points in text; counted only where logprobs want offsets */
    size_t sent;        /* bytes given out */
    size_t held_from;   /* bytes from here may become a stop string */
    struct token_logprob *logprobs;
    uint32_t logprob_count, logprob_cap, logprob_sent;
    enum finish finish;
    bool role_sent, finish_sent;
    uint32_t cached_tokens;
};

struct prompt {
    uint32_t *ids;
    uint32_t count;
};

struct unit {                 /* one engine request on its way */
    struct unit *prev, *next; /* of the queue, or of a worker's units */
    struct request *request;
    uint64_t id;
    uint32_t attempt;
    uint32_t deaths;                                     /* workers that died while they had it */
    uint32_t prompt;                                     /* index */
    uint32_t choices[REQUEST_CHOICES_MAX], choice_count; /* indexes into request->choices */
    uint32_t open_choices;                               /* not finished */
    struct worker *worker;                               /* who has it */
    struct unit *same_bucket;                            /* of the fleet's table of sent units */
    bool queued, accepted, started;                      /* started: the first token came */
    bool cut; /* a choice ended here before it did at the worker: cancelled when the unit is over */
    uint64_t queued_ns, sent_ns, first_sent_ns;
    uint32_t charged_prefill; /* what fleet_charge added, given back exactly once */
    uint64_t charged_tokens;
};

struct request {
    struct request *prev, *next; /* of the loop's requests */
    struct arena arena;
    struct http_exchange *x; /* NULL: the client is gone */
    enum endpoint endpoint;
    bool in_job; /* a prepare thread has it: all but this, x and the ids is the thread's alone */
    char request_id[REQUEST_ID_BYTES_MAX + 1];
    char public_id[48]; /* "chatcmpl-..." */
    char model_name[MODEL_NAME_BYTES_MAX];
    struct served_model *model; /* retained while the request lives */
    struct json *json;          /* the body; destroyed once prepared */
    struct request_params params;
    struct prompt *prompts;
    uint32_t prompt_count;
    struct choice *choices;
    uint32_t choice_count, choices_open;
    struct unit **unit_list;
    uint32_t unit_count, unit_cap;
    bool failed;
    struct api_error error;
    uint64_t received_ns, first_token_ns, last_token_ns, last_write_ns, deadline_ns;
    int64_t created_s;
    uint64_t completion_tokens, prompt_tokens, cached_tokens;
    struct span body;         /* ptr is good until the request is prepared */
    uint8_t *body_copy;       /* NULL: body is the exchange's */
    struct buffer chunk_head; /* the part of each SSE event that does not change */
};

struct request *request_create(struct http_exchange *x,
                               enum endpoint endpoint); /* NULL: no memory */
void request_destroy(struct request *r);
/* Allocates the choices once prompts and n are known. ERR_NOMEM. */
enum err request_make_choices(struct request *r, const struct tokenizer *tokenizer) MUST_CHECK;
/* A new unit for some choices of one prompt. NULL: no memory. */
struct unit *request_add_unit(struct request *r, uint32_t prompt, const uint32_t *choices,
                              uint32_t count);

#endif
