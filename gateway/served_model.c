#include "gateway/served_model.h"

#include "common/log.h"
#include "proto/wire.h"

#include <stdio.h>

struct served_model *served_model_find(struct served_models *m, const char *name)
{
    for (uint32_t i = 0; i < MODELS_MAX; i++)
        if (m->list[i].used && strcmp(m->list[i].name, name) == 0) return &m->list[i];
    return NULL;
}

static void want_asset(struct asset *a, struct hash128 hash, uint32_t kind)
{
    *a = (struct asset){.hash = hash, .kind = kind, .wanted = true};
    buffer_init(&a->bytes, ASSET_BYTES_MAX);
}

enum err served_model_offer(struct served_models *m, const char *name, struct hash128 fingerprint,
                            struct hash128 tokenizer_hash, const struct hash128 *template_hash,
                            uint32_t vocab_count, uint32_t context_max, int64_t created,
                            struct served_model **out)
{
    struct served_model *x = served_model_find(m, name);
    if (x != NULL) {
        bool same = hash128_eq(x->fingerprint, fingerprint) &&
                    hash128_eq(x->tokenizer_asset.hash, tokenizer_hash) &&
                    x->template_asset.wanted == (template_hash != NULL) &&
                    (template_hash == NULL || hash128_eq(x->template_asset.hash, *template_hash));
        if (!same) return ERR_EXISTS;
        if (context_max > x->context_max) x->context_max = context_max;
        *out = x;
        return OK;
    }
    for (uint32_t i = 0; i < MODELS_MAX && x == NULL; i++)
        if (!m->list[i].used) x = &m->list[i];
    if (x == NULL) return ERR_FULL;
    *x = (struct served_model){.used = true,
                               .fingerprint = fingerprint,
                               .created = created,
                               .vocab_count = vocab_count,
                               .context_max = context_max};
    (void)snprintf(x->name, sizeof x->name, "%s", name);
    want_asset(&x->tokenizer_asset, tokenizer_hash, 1);
    if (template_hash != NULL) want_asset(&x->template_asset, *template_hash, 2);
    *out = x;
    return OK;
}

static void copy_spelling(const struct tokenizer *t, uint32_t id, char *out, size_t out_bytes)
{
    struct span s = id == TOKEN_NONE ? span_of(NULL, 0) : tokenizer_piece(t, id);
    (void)snprintf(out, out_bytes, "%.*s", (int)(s.len < out_bytes ? s.len : 0),
                   (const char *)s.ptr);
}

/* A whole asset: checked against its hash, then made into what it is for. */
static void use_asset(struct served_model *m, struct asset *a, uint64_t now_ns)
{
    struct errmsg why = {""};
    enum err err = hash128_eq(hash128_of(buffer_view(&a->bytes)), a->hash) ? OK : ERR_PROTO;
    if (err != OK) {
        log_warn("ev=asset.wrong_hash model=%s kind=%u", m->name, a->kind);
        buffer_reset(&a->bytes);
        a->total_bytes = 0;
        a->asked_ns = now_ns; /* as if it were under way: not again at once */
        return;
    }
    if (a->kind == 1) {
        err = tokenizer_create(buffer_view(&a->bytes), &m->tokenizer, &why);
        if (err == OK) {
            copy_spelling(m->tokenizer, tokenizer_bos(m->tokenizer), m->bos, sizeof m->bos);
            copy_spelling(m->tokenizer, tokenizer_eos(m->tokenizer), m->eos, sizeof m->eos);
        }
    } else {
        err = chat_template_create(buffer_view(&a->bytes), &m->chat_template, &why);
    }
    a->here = true;
    buffer_deinit(&a->bytes);
    if (err == OK) return;
    (void)snprintf(m->broken, sizeof m->broken, "%s: %.200s",
                   a->kind == 1 ? "its tokenizer" : "its chat template", why.text);
    log_error("ev=asset.refused model=%s kind=%u why=\"%s\"", m->name, a->kind, why.text);
}

bool served_model_take_part(struct served_model *m, struct hash128 hash, uint64_t total_bytes,
                            uint64_t offset, struct span data, uint64_t now_ns)
{
    struct asset *all[] = {&m->tokenizer_asset, &m->template_asset};
    for (size_t i = 0; i < 2; i++) {
        struct asset *a = all[i];
        if (!a->wanted || a->here || !hash128_eq(a->hash, hash)) continue;
        a->asked_ns = 0;
        if (offset != a->bytes.len || total_bytes == 0 ||
            (a->total_bytes != 0 && total_bytes != a->total_bytes))
            return false;
        a->total_bytes = total_bytes;
        buffer_add_span(&a->bytes, data);
        if (a->bytes.len < total_bytes || buffer_status(&a->bytes) != OK) return false;
        use_asset(m, a, now_ns);
        return a->here;
    }
    return false;
}

bool served_model_ready(const struct served_model *m)
{
    return m->used && m->tokenizer_asset.here &&
           (!m->template_asset.wanted || m->template_asset.here);
}

bool served_model_offered(const struct served_model *m)
{
    return served_model_ready(m) && m->broken[0] == '\0';
}

void served_models_deinit(struct served_models *m)
{
    for (uint32_t i = 0; i < MODELS_MAX; i++) {
        struct served_model *x = &m->list[i];
        if (!x->used) continue;
        buffer_deinit(&x->tokenizer_asset.bytes);
        buffer_deinit(&x->template_asset.bytes);
        tokenizer_destroy(x->tokenizer);
        chat_template_destroy(x->chat_template);
        x->used = false;
    }
}
