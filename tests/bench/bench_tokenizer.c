/* bench_tokenizer MODEL TEXT ROUNDS [IDS] - encodes a file's bytes as plain text on one thread,
 * ROUNDS times; prints the best time as JSON and writes the ids (uint32, little-endian) to IDS.
 * tests/bench/tokenizer.py runs it next to Hugging Face tokenizers. */
#include "common/clock.h"
#include "worker/model/vocab.h"

#include <stdio.h>
#include <stdlib.h>

enum { TEXT_BYTES_MAX = 256 << 20 };

static bool read_file(const char *path, struct buffer *out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    static uint8_t part[65536];
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;)
        buffer_add(out, part, n);
    bool good = !ferror(file) && buffer_status(out) == OK;
    return fclose(file) == 0 && good;
}

static bool write_ids(const char *path, const struct token_vec *ids)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL) return false;
    bool good = fwrite(ids->ids, sizeof *ids->ids, ids->count, file) == ids->count;
    return fclose(file) == 0 && good;
}

int main(int argc, char **argv)
{
    struct errmsg why;
    struct tokenizer *t;
    struct buffer text;
    struct token_vec ids;
    long rounds = argc >= 4 ? strtol(argv[3], NULL, 10) : 0;
    if (rounds < 1) {
        fprintf(stderr, "usage: bench_tokenizer MODEL TEXT ROUNDS [IDS]\n");
        return 2;
    }
    buffer_init(&text, TEXT_BYTES_MAX);
    token_vec_init(&ids, TEXT_BYTES_MAX);
    uint64_t start_ns = clock_now_ns();
    if (vocab_load(argv[1], &t, &why) != OK) {
        fprintf(stderr, "bench_tokenizer: %s\n", why.text);
        return 1;
    }
    uint64_t load_ns = clock_now_ns() - start_ns, best_ns = UINT64_MAX;
    if (!read_file(argv[2], &text)) {
        fprintf(stderr, "bench_tokenizer: %s could not be read\n", argv[2]);
        return 1;
    }
    for (long i = 0; i < rounds; i++) {
        ids.count = 0;
        start_ns = clock_now_ns();
        enum err err = tokenizer_encode(t, buffer_view(&text), TOKENIZE_PLAIN, NULL, 0, &ids);
        uint64_t ns = clock_now_ns() - start_ns;
        if (err != OK) {
            fprintf(stderr, "bench_tokenizer: %s\n", err_name(err));
            return 1;
        }
        best_ns = ns < best_ns ? ns : best_ns;
    }
    printf("{\"bytes\": %zu, \"tokens\": %zu, \"seconds\": %.9f, \"load_seconds\": %.6f}\n",
           text.len, ids.count, (double)best_ns * 1e-9, (double)load_ns * 1e-9);
    bool good = argc < 5 || write_ids(argv[4], &ids);
    buffer_deinit(&text);
    token_vec_deinit(&ids);
    tokenizer_destroy(t);
    return good ? 0 : 1;
}
