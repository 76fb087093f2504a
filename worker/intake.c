#include "worker/intake.h"

#include "common/clock.h"

#include <stdlib.h>

/* Copies little-endian words behind *at and moves it. */
static const uint32_t *take_words(uint32_t **at, const void *from, uint32_t count)
{
    uint32_t *start = *at;
    if (count > 0) memcpy(start, from, (size_t)count * sizeof *start);
    *at += count;
    return count > 0 ? start : NULL;
}

static enum err check_ids(const uint32_t *ids, uint32_t count, uint32_t vocab_count,
                          const char *name, struct errmsg *why)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] >= vocab_count)
            return errmsg_set(why, ERR_INVALID, "%s[%u] is %u; the vocabulary has %u tokens", name,
                              i, ids[i], vocab_count);
    return OK;
}

static void fill_params(const Penstock__SamplingParams *from, struct sampling_params *to)
{
    to->max_tokens = from->max_tokens;
    to->min_tokens = from->min_tokens;
    to->temperature = from->temperature;
    to->top_p = from->top_p;
    to->top_k = from->top_k;
    to->min_p = from->min_p;
    to->repetition_penalty = from->repetition_penalty;
    to->presence_penalty = from->presence_penalty;
    to->frequency_penalty = from->frequency_penalty;
    to->seed = from->seed;
    to->ignore_eos = from->ignore_eos;
    to->want_logprobs = from->logprobs > 0;
    to->top_logprobs = from->logprobs > 0 ? from->logprobs - 1 : 0;
}

static void fill_bias(const Penstock__SamplingParams *from, struct sampling_params *to,
                      uint32_t **at)
{
    uint32_t n = (uint32_t)from->n_logit_bias;
    uint32_t *ids = *at;
    float *bias = (float *)(*at + n);
    *at += 2 * (size_t)n;
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = from->logit_bias[i]->id;
        bias[i] = from->logit_bias[i]->bias;
    }
    to->bias_ids = n > 0 ? ids : NULL;
    to->bias = n > 0 ? bias : NULL;
    to->bias_count = n;
}

enum err intake_request(const Penstock__Request *message, uint32_t owner, uint32_t vocab_count,
                        uint64_t now_ns, struct submitted **out, struct errmsg *why)
{
    const Penstock__SamplingParams *params = message->params;
    if (params == NULL)
        return errmsg_set(why, ERR_INVALID, "a request without sampling parameters");
    uint32_t prompt_count = (uint32_t)(message->prompt_ids.len / 4),
             output_count = (uint32_t)(message->output_ids.len / 4);
    uint32_t stop_count = (uint32_t)(params->stop_ids.len / 4),
             index_count = (uint32_t)message->n_choice_indexes;
    size_t words =
        (size_t)prompt_count + output_count + stop_count + index_count + 2 * params->n_logit_bias;
    struct submitted *s = calloc(1, sizeof *s + words * sizeof(uint32_t));
    if (s == NULL)
        return errmsg_set(why, ERR_NOMEM, "no memory for a request of %u tokens", prompt_count);
    uint32_t *at = s->words;
    struct engine_request *request = &s->request;
    request->owner = owner;
    request->id = message->id;
    request->attempt = message->attempt;
    request->prompt = take_words(&at, message->prompt_ids.data, prompt_count);
    request->prompt_count = prompt_count;
    request->output = take_words(&at, message->output_ids.data, output_count);
    request->output_count = output_count;
    fill_params(params, &request->params);
    request->params.stop_ids = take_words(&at, params->stop_ids.data, stop_count);
    request->params.stop_id_count = stop_count;
    request->choice_indexes = take_words(&at, message->choice_indexes, index_count);
    fill_bias(params, &request->params, &at);
    request->choice_count = index_count > 0             ? index_count
                            : message->choice_count > 0 ? message->choice_count
                                                        : 1;
    request->salt_bytes = (uint32_t)message->tenant_salt.len;
    if (request->salt_bytes > 0)
        memcpy(request->salt, message->tenant_salt.data, request->salt_bytes);
    request->deadline_ns = message->deadline_ms > 0 ? now_ns + message->deadline_ms * NS_PER_MS : 0;

    enum err err = check_ids(request->prompt, prompt_count, vocab_count, "prompt_ids", why);
    if (err == OK) err = check_ids(request->output, output_count, vocab_count, "output_ids", why);
    if (err == OK)
        err = check_ids(request->params.stop_ids, stop_count, vocab_count, "stop_ids", why);
    if (err == OK)
        err = check_ids(request->params.bias_ids, request->params.bias_count, vocab_count,
                        "logit_bias", why);
    if (err != OK) {
        free(s);
        return err;
    }
    *out = s;
    return OK;
}
