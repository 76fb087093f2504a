#include "worker/model/gguf_write.h"

#include "worker/model/gguf_internal.h"

void gguf_writer_init(struct gguf_writer *w)
{
    *w = (struct gguf_writer){0};
    buffer_init(&w->values, 1u << 28);
    buffer_init(&w->tensors, 1u << 26);
}

void gguf_writer_deinit(struct gguf_writer *w)
{
    buffer_deinit(&w->values);
    buffer_deinit(&w->tensors);
}

static void add_u32(struct buffer *out, uint32_t v)
{
    uint8_t bytes[4];
    store_le32(bytes, v);
    buffer_add(out, bytes, sizeof bytes);
}

static void add_u64(struct buffer *out, uint64_t v)
{
    uint8_t bytes[8];
    store_le64(bytes, v);
    buffer_add(out, bytes, sizeof bytes);
}

static void add_string(struct buffer *out, struct span s)
{
    add_u64(out, s.len);
    buffer_add_span(out, s);
}

static void add_padding(struct buffer *out)
{
    static const uint8_t zeros[GGUF_WRITE_ALIGN];
    buffer_add(out, zeros, (GGUF_WRITE_ALIGN - out->len % GGUF_WRITE_ALIGN) % GGUF_WRITE_ALIGN);
}

static void begin(struct gguf_writer *w, struct span key, enum gguf_value_type type)
{
    add_string(&w->values, key);
    add_u32(&w->values, type);
    w->value_count++;
}

static void begin_array(struct gguf_writer *w, struct span key, enum gguf_value_type element,
                        uint32_t count)
{
    begin(w, key, GGUF_ARRAY);
    add_u32(&w->values, element);
    add_u64(&w->values, count);
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    begin(w, span_str(key), GGUF_U32);
    add_u32(&w->values, v);
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float v)
{
    begin(w, span_str(key), GGUF_F32);
    buffer_add(&w->values, &v, sizeof v);
}

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool v)
{
    begin(w, span_str(key), GGUF_BOOL);
    buffer_add_byte(&w->values, v);
}

void gguf_writer_string(struct gguf_writer *w, const char *key, struct span v)
{
    begin(w, span_str(key), GGUF_STRING);
    add_string(&w->values, v);
}

static void put_strings(struct gguf_writer *w, struct span key, const struct span *v,
                        uint32_t count)
{
    begin_array(w, key, GGUF_STRING, count);
    for (uint32_t i = 0; i < count; i++)
        add_string(&w->values, v[i]);
}

void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct span *v,
                         uint32_t count)
{
    put_strings(w, span_str(key), v, count);
}

void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *v, uint32_t count)
{
    begin_array(w, span_str(key), GGUF_I32, count);
    buffer_add(&w->values, v, count * sizeof *v);
}

void gguf_writer_copy(struct gguf_writer *w, const struct gguf *g, uint32_t index)
{
    const struct gguf_value *v = &g->files[0].values[index];
    if (v->type == GGUF_ARRAY && v->element == GGUF_STRING) {
        put_strings(w, v->key, v->strings, v->count);
    } else if (v->type == GGUF_ARRAY) {
        begin_array(w, v->key, v->element, v->count);
        buffer_add(&w->values, v->data, (size_t)v->count * gguf__value_bytes(v->element));
    } else {
        begin(w, v->key, v->type);
        if (v->type == GGUF_STRING)
            add_string(&w->values, v->string);
        else
            buffer_add(&w->values, v->data, gguf__value_bytes(v->type));
    }
}

uint64_t gguf_writer_tensor(struct gguf_writer *w, const char *name, uint32_t type,
                            const uint64_t *dims, uint32_t dim_count)
{
    uint32_t block_values, block_bytes;
    CHECK(gguf_type_block(type, &block_values, &block_bytes) && dim_count >= 1 && dim_count <= 4 &&
          dims[0] % block_values == 0);
    uint64_t values = 1;
    add_string(&w->tensors, span_str(name));
    add_u32(&w->tensors, dim_count);
    for (uint32_t i = 0; i < dim_count; i++) {
        add_u64(&w->tensors, dims[i]);
        values *= dims[i];
    }
    add_u32(&w->tensors, type);
    add_u64(&w->tensors, w->data_bytes);
    uint64_t bytes = values / block_values * block_bytes;
    w->data_bytes += (bytes + GGUF_WRITE_ALIGN - 1) / GGUF_WRITE_ALIGN * GGUF_WRITE_ALIGN;
    w->tensor_count++;
    return bytes;
}

enum err gguf_writer_finish(const struct gguf_writer *w, struct buffer *out)
{
    enum err err = buffer_status(&w->values);
    if (err == OK) err = buffer_status(&w->tensors);
    if (err != OK) return err;
    CHECK(out->len == 0); /* padding counts from the file's beginning */
    buffer_add_str(out, "GGUF");
    add_u32(out, 3);
    add_u64(out, w->tensor_count);
    add_u64(out, w->value_count);
    buffer_add_span(out, buffer_view(&w->values));
    buffer_add_span(out, buffer_view(&w->tensors));
    add_padding(out);
    return buffer_status(out);
}
