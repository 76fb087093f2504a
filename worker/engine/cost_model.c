#include "worker/engine/scheduler.h"

enum { LEARN_ROWS_MIN = 32 };
static const double smoothing = 0.2;

static void smooth(double *value, double sample)
{
    if (sample <= 0) return;
    *value = *value == 0 ? sample : *value + smoothing * (sample - *value);
}

void cost_model_learn(struct cost_model *c, uint32_t decode_rows, uint32_t prefill_rows,
                      double seconds)
{
    if (prefill_rows == 0) {
        if (decode_rows > 0) smooth(&c->decode_step_s, seconds);
        return;
    }
    /* few rows say more about the memory's speed than about a token's cost, unless nothing better
     * is known */
    if (prefill_rows < LEARN_ROWS_MIN && c->prefill_token_s > 0) return;
    double base = decode_rows > 0 && c->decode_step_s < seconds / 2 ? c->decode_step_s : 0;
    smooth(&c->prefill_token_s, (seconds - base) / prefill_rows);
}

uint32_t cost_model_budget(const struct cost_model *c, uint32_t decode_rows, uint32_t rows_max,
                           uint32_t tpot_target_ms)
{
    if (c->prefill_token_s == 0)
        return rows_max < 64 ? rows_max : 64; /* a first, careful measurement */
    double allowed =
        (decode_rows > 0 && tpot_target_ms < STEP_MS_MAX ? tpot_target_ms : STEP_MS_MAX) / 1e3;
    if (decode_rows > 0) allowed -= c->decode_step_s;
    double tokens = allowed / c->prefill_token_s;
    if (tokens < CHUNK_TOKENS_MIN)
        tokens = CHUNK_TOKENS_MIN; /* prefill must go on, whatever the target */
    return tokens < rows_max ? (uint32_t)tokens : rows_max;
}
