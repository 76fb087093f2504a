/* gguf_write.h - composes the head of a GGUF v3 file: metadata and tensor table. The caller writes
 * the head, then each tensor's bytes in the order of gguf_writer_tensor, each padded with zeros to
 * GGUF_WRITE_ALIGN. Owns its buffers; one thread; nothing touches a file. Source: the GGUF
 * specification (ggml docs/gguf.md). */
#ifndef PENSTOCK_WORKER_MODEL_GGUF_WRITE_H
#define PENSTOCK_WORKER_MODEL_GGUF_WRITE_H

#include "common/buffer.h"
#include "worker/model/gguf.h"

enum { GGUF_WRITE_ALIGN = 32 };

struct gguf_writer {
    struct buffer values, tensors;
    uint64_t value_count, tensor_count;
    uint64_t data_bytes; /* of all tensors so far, padded */
};

void gguf_writer_init(struct gguf_writer *w);
void gguf_writer_deinit(struct gguf_writer *w);

/* Appends are void; gguf_writer_finish reports a failure. Keys and names are the caller's to keep
 * unique. */
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float v);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_writer_string(struct gguf_writer *w, const char *key, struct span v);
void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct span *v,
                         uint32_t count);
void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *v, uint32_t count);
/* The index-th key of g with its value, as it stands there. */
void gguf_writer_copy(struct gguf_writer *w, const struct gguf *g, uint32_t index);

/* Adds a tensor to the table; dims[0] is the row length, a multiple of the type's block (CHECK).
 * Returns the bytes that it has without padding. */
uint64_t gguf_writer_tensor(struct gguf_writer *w, const char *name, uint32_t type,
                            const uint64_t *dims, uint32_t dim_count);

/* Appends the whole head, padded so that tensor data begins right behind it. ERR_LIMIT, ERR_NOMEM.
 */
enum err gguf_writer_finish(const struct gguf_writer *w, struct buffer *out) MUST_CHECK;

#endif
