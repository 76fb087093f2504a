/* tokenizer_fixture.h - real vocabularies for tests of common: a reader of just the GGUF metadata
 * that a tokenizer is made of (the worker's reader is not common's to use). Trusts its files. */
#ifndef PENSTOCK_TESTS_TOKENIZER_FIXTURE_H
#define PENSTOCK_TESTS_TOKENIZER_FIXTURE_H

#include "common/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

static const uint8_t *fixture_at; /* cursor into the file */

static uint64_t fixture_number(uint32_t bytes)
{
    uint64_t v = 0;
    memcpy(&v, fixture_at, bytes);
    fixture_at += bytes;
    return v;
}

static struct span fixture_string(void)
{
    size_t len = fixture_number(8);
    struct span s = span_of(fixture_at, len);
    fixture_at += len;
    return s;
}

static const uint32_t fixture_sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static struct span *fixture_strings(uint64_t count)
{
    struct span *all = malloc((count + 1) * sizeof *all);
    for (uint64_t i = 0; i < count; i++)
        all[i] = fixture_string();
    return all;
}

static void fixture_array(struct span key, struct tokenizer_spec *spec)
{
    uint32_t type = (uint32_t)fixture_number(4);
    uint64_t count = fixture_number(8);
    if (type == 8) {
        struct span *all = fixture_strings(count);
        if (span_eq_str(key, "tokenizer.ggml.tokens")) {
            spec->tokens = all;
            spec->token_count = (uint32_t)count;
        } else if (span_eq_str(key, "tokenizer.ggml.merges")) {
            spec->merges = all;
            spec->merge_count = (uint32_t)count;
        } else {
            free(all);
        }
        return;
    }
    size_t bytes = count * fixture_sizes[type];
    bool types = span_eq_str(key, "tokenizer.ggml.token_type");
    if (types || span_eq_str(key, "tokenizer.ggml.scores")) {
        void *copy = malloc(bytes);
        memcpy(copy, fixture_at, bytes);
        if (types)
            spec->types = copy;
        else
            spec->scores = copy;
    }
    fixture_at += bytes;
}

static void fixture_value(struct span key, uint32_t type, struct tokenizer_spec *spec)
{
    if (type == 9) {
        fixture_array(key, spec);
    } else if (type == 8) {
        struct span s = fixture_string();
        if (span_eq_str(key, "tokenizer.ggml.model")) spec->model = s;
        if (span_eq_str(key, "tokenizer.ggml.pre")) spec->pre = s;
    } else {
        uint32_t v = (uint32_t)fixture_number(fixture_sizes[type]);
        if (span_eq_str(key, "tokenizer.ggml.bos_token_id")) spec->bos = v;
        if (span_eq_str(key, "tokenizer.ggml.eos_token_id")) spec->eos = v;
        if (span_eq_str(key, "tokenizer.ggml.unknown_token_id")) spec->unk = v;
        if (span_eq_str(key, "tokenizer.ggml.add_space_prefix")) spec->add_space_prefix = v;
    }
}

/* The asset of a GGUF file in memory. */
static void fixture_pack(const uint8_t *file, struct buffer *asset)
{
    struct tokenizer_spec spec = {.bos = TOKEN_NONE,
                                  .eos = TOKEN_NONE,
                                  .unk = TOKEN_NONE,
                                  .pad = TOKEN_NONE,
                                  .eot = TOKEN_NONE,
                                  .eom = TOKEN_NONE,
                                  .add_space_prefix = true};
    struct errmsg why = {""};
    fixture_at = file + 16;
    uint64_t keys = fixture_number(8);
    for (uint64_t i = 0; i < keys; i++) {
        struct span key = fixture_string();
        fixture_value(key, (uint32_t)fixture_number(4), &spec);
    }
    enum err err = tokenizer_asset_pack(&spec, asset, &why);
    CHECK_MSG(err == OK, "%s", why.text);
    free((void *)(uintptr_t)spec.tokens);
    free((void *)(uintptr_t)spec.merges);
    free((void *)(uintptr_t)spec.types);
    free((void *)(uintptr_t)spec.scores);
}

/* Where the vocabulary lies: "smollm2" is the default model, the others are published vocabularies
 * beside the golden data. */
static void fixture_command(const char *name, char *command, size_t bytes)
{
    const char *golden = getenv("PENSTOCK_GOLDEN"), *smol = getenv("PENSTOCK_SMOLLM2");
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (strcmp(name, "smollm2") != 0)
        (void)snprintf(command, bytes, "gzip -dc '%s/vocab/ggml-vocab-%s.gguf.gz' 2>/dev/null",
                       golden ? golden : SOURCE_DIR "/../shared/golden", name);
    else if (smol)
        (void)snprintf(command, bytes, "cat '%s' 2>/dev/null", smol);
    else
        (void)snprintf(command, bytes,
                       "cat '%s%s/penstock/models/SmolLM2-135M-Instruct.Q4_1.gguf' 2>/dev/null",
                       cache  ? cache
                       : home ? home
                              : "",
                       cache ? "" : "/.cache");
}

/* False, with a line that says so, when the file is not there. */
static bool fixture_asset(const char *name, struct buffer *asset)
{
    char command[4096];
    fixture_command(name, command, sizeof command);
    struct buffer file;
    buffer_init(&file, 16 << 20); /* the metadata comes first */
    buffer_init(asset, TOKENIZER_ASSET_BYTES_MAX);
    FILE *pipe = popen(command, "r");
    CHECK(pipe != NULL && buffer_reserve(&file, file.max) == OK);
    file.len = fread(file.ptr, 1, file.max, pipe);
    (void)pclose(pipe);
    bool found = file.len > 24 && memcmp(file.ptr, "GGUF", 4) == 0;
    if (found)
        fixture_pack(file.ptr, asset);
    else
        printf("skipped: the vocabulary of %s is missing (%s)\n", name, command);
    buffer_deinit(&file);
    return found;
}

static struct tokenizer *fixture_tokenizer(const char *name)
{
    struct buffer asset;
    struct tokenizer *t = NULL;
    struct errmsg why = {""};
    if (fixture_asset(name, &asset)) {
        enum err err = tokenizer_create(buffer_view(&asset), &t, &why);
        CHECK_MSG(err == OK, "%s", why.text);
    }
    buffer_deinit(&asset);
    return t;
}

#endif
