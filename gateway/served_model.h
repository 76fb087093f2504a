/* served_model.h - the models that workers offer, and their assets: tokenizer and chat template,
 * asked for by content hash from the worker that named them, checked, and kept. A model is servable
 * once its assets are here. Loop thread; tokenizers and templates are immutable, so prepare threads
 * share them while the request holds the model. Bounds: MODELS_MAX models, ASSET_BYTES_MAX each. */
#ifndef PENSTOCK_GATEWAY_SERVED_MODEL_H
#define PENSTOCK_GATEWAY_SERVED_MODEL_H

#include "common/chat_template.h"
#include "common/hash.h"
#include "common/tokenizer.h"

enum { MODELS_MAX = 64 };

struct asset {
    struct hash128 hash;
    uint32_t kind; /* AssetKind of the protocol */
    bool wanted, here;
    uint64_t total_bytes; /* 0: not known yet */
    struct buffer bytes;  /* what came so far; freed once used */
    uint64_t asked_ns;    /* of the last AssetGet; 0: none is under way */
};

struct served_model {
    bool used;
    char name[256];
    struct hash128 fingerprint;
    int64_t created;
    uint32_t vocab_count;
    uint32_t context_max; /* of the roomiest worker so far */
    uint32_t holders;     /* requests that live */
    struct asset tokenizer_asset, template_asset;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template; /* NULL: the model has none */
    char bos[64], eos[64];               /* spellings for the template */
    char broken[256];                    /* why its assets cannot be used; empty: they can */
};

struct served_models {
    struct served_model list[MODELS_MAX];
};

struct served_model *served_model_find(struct served_models *m, const char *name);
/* The model as a worker's Hello has it. ERR_EXISTS: a model of this name has other numbers
 * (fingerprint or assets); ERR_FULL. */
enum err served_model_offer(struct served_models *m, const char *name, struct hash128 fingerprint,
                            struct hash128 tokenizer_hash, const struct hash128 *template_hash,
                            uint32_t vocab_count, uint32_t context_max, int64_t created,
                            struct served_model **out) MUST_CHECK;
/* A part of an asset. True when something became whole. What does not match its hash is dropped,
 * and asked for again after a while. */
bool served_model_take_part(struct served_model *m, struct hash128 hash, uint64_t total_bytes,
                            uint64_t offset, struct span data, uint64_t now_ns);
bool served_model_ready(const struct served_model *m);   /* its assets are here */
bool served_model_offered(const struct served_model *m); /* and they can be used */
void served_models_deinit(struct served_models *m);

#endif
