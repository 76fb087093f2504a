/* gguf.h - one GGUF file (v2, v3), mapped and validated before anything is used; split files are
 * joined. Owns the mapping. Immutable after open; any thread. Every count, offset, alignment,
 * overlap, type and shape is checked, so a view handed out lies inside the file. Source: the GGUF
 * specification (ggml docs/gguf.md). */
#ifndef PENSTOCK_WORKER_MODEL_GGUF_H
#define PENSTOCK_WORKER_MODEL_GGUF_H

#include "common/err.h"
#include "common/span.h"

enum {
    GGUF_KEYS_MAX = 65536,
    GGUF_TENSORS_MAX = 65536,
    GGUF_ARRAY_MAX = 1 << 22, /* elements of a metadata array */
    GGUF_SPLITS_MAX = 512,
};

enum ggml_type {
    GGML_F32 = 0,
    GGML_F16 = 1,
    GGML_Q4_0 = 2,
    GGML_Q4_1 = 3,
    GGML_Q5_0 = 6,
    GGML_Q5_1 = 7,
    GGML_Q8_0 = 8,
    GGML_BF16 = 30,
};

struct gguf;
struct gguf_tensor {
    struct span name;
    uint32_t
        type; /* enum ggml_type, or another id of the format (known by name, not readable here) */
    uint32_t dim_count; /* 1..4 */
    uint64_t dims[4];   /* dims[0]: contiguous row length; unused ones are 1 */
    struct span data;   /* exact bytes, in the mapping */
};

/* path: the file, or the first of a split (name-00001-of-0000N.gguf): the others are found beside
 * it. The sentence names the file and the field or tensor. ERR_IO, ERR_PROTO, ERR_LIMIT,
 * ERR_UNSUPPORTED (version, type), ERR_NOMEM. */
enum err gguf_open(const char *path, struct gguf **out, struct errmsg *why) MUST_CHECK;
/* The same over bytes in memory (tests, fuzzing); bytes must outlive it. One file, no splits. */
enum err gguf_open_memory(struct span bytes, struct gguf **out, struct errmsg *why) MUST_CHECK;
void gguf_close(struct gguf *g);

uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g);
uint32_t gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint32_t index);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g,
                                           const char *name); /* NULL when absent */
const char *
gguf_type_name(uint32_t type); /* "Q4_1"; "type 99" for ids that the format does not know */
/* Values and bytes of one block (floats: 1 value); false for a type that is not known or was
 * removed from the format. */
bool gguf_type_block(uint32_t type, uint32_t *values, uint32_t *bytes);
/* Drops the pages of a tensor that was read (madvise), so that loading needs little more than the
 * packed weights. */
void gguf_tensor_forget(const struct gguf *g, const struct gguf_tensor *t);

/* Metadata. ERR_NOT_FOUND: no such key (why names it). ERR_INVALID: another type or out of the
 * target's range. Integers of any width are accepted where an integer is asked for. */
bool gguf_has(const struct gguf *g, const char *key);
enum err gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out,
                      struct errmsg *why) MUST_CHECK;
enum err gguf_get_f32(const struct gguf *g, const char *key, float *out,
                      struct errmsg *why) MUST_CHECK;
enum err gguf_get_bool(const struct gguf *g, const char *key, bool *out,
                       struct errmsg *why) MUST_CHECK;
enum err gguf_get_string(const struct gguf *g, const char *key, struct span *out,
                         struct errmsg *why) MUST_CHECK;
/* Arrays: count, then elements by index (strings are indexed at open, so each call is O(1)). */
enum err gguf_array_count(const struct gguf *g, const char *key, uint32_t *out,
                          struct errmsg *why) MUST_CHECK;
enum err gguf_get_string_array(const struct gguf *g, const char *key, const struct span **out,
                               uint32_t *count, struct errmsg *why) MUST_CHECK; /* borrowed */
/* Numbers copied and converted: i32 into out[count], f32 likewise; count must be the array's. */
enum err gguf_get_i32_array(const struct gguf *g, const char *key, int32_t *out, uint32_t count,
                            struct errmsg *why) MUST_CHECK;
enum err gguf_get_f32_array(const struct gguf *g, const char *key, float *out, uint32_t count,
                            struct errmsg *why) MUST_CHECK;
/* Iteration for `penstock-model info`: key by index, and its value as short text. */
uint32_t gguf_key_count(const struct gguf *g);
struct span gguf_key_at(const struct gguf *g, uint32_t index);
void gguf_value_text(const struct gguf *g, uint32_t index, char *out, size_t out_bytes);

#endif
