/* gguf.c - reads and checks one GGUF file: header, metadata table, tensor table. What is handed out
 * lies in the mapping. */
#include "worker/model/gguf_internal.h"

#include <stdlib.h>

/* ---- a cursor over untrusted bytes ---- */

struct cursor {
    struct span bytes;
    uint64_t at;
};

static bool take(struct cursor *c, uint64_t n, const uint8_t **out)
{
    if (n > c->bytes.len - c->at) return false;
    *out = c->bytes.ptr + c->at;
    c->at += n;
    return true;
}

static bool take_u32(struct cursor *c, uint32_t *out)
{
    const uint8_t *p;
    if (!take(c, 4, &p)) return false;
    *out = load_le32(p);
    return true;
}

static bool take_u64(struct cursor *c, uint64_t *out)
{
    const uint8_t *p;
    if (!take(c, 8, &p)) return false;
    *out = load_le64(p);
    return true;
}

static bool take_string(struct cursor *c, struct span *out)
{
    uint64_t n;
    const uint8_t *p;
    if (!take_u64(c, &n) || n > c->bytes.len || !take(c, n, &p)) return false;
    *out = span_of(p, (size_t)n);
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct span *x = a, *y = b; /* the name is the first member of what is sorted */
    size_t n = x->len < y->len ? x->len : y->len;
    int order = n > 0 ? memcmp(x->ptr, y->ptr, n) : 0;
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

#define SHOW(s) (int)((s).len < 64 ? (s).len : 64), (const char *)(s).ptr

/* ---- metadata ---- */

uint32_t gguf__value_bytes(enum gguf_value_type type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return bytes[type];
}

/* Names end up in log lines and sentences: no control characters, which no writer uses. */
static bool name_ok(struct span name, size_t max)
{
    for (size_t i = 0; i < name.len && name.len <= max; i++)
        if (name.ptr[i] < 0x20 || name.ptr[i] == 0x7f) return false;
    return name.len >= 1 && name.len <= max;
}

static enum err truncated(const struct gguf_file *f, const char *what, struct errmsg *why)
{
    return errmsg_set(why, ERR_PROTO, "%s: the file ends inside %s; is it a whole download?",
                      f->path, what);
}

static enum err read_array(const struct gguf_file *f, struct cursor *c, struct gguf_value *v,
                           struct errmsg *why)
{
    uint32_t type;
    uint64_t count;
    if (!take_u32(c, &type) || !take_u64(c, &count)) return truncated(f, "a metadata array", why);
    if (type > GGUF_F64 || type == GGUF_ARRAY)
        return errmsg_set(why, ERR_PROTO,
                          "%s: key '%.*s' is an array of type %u, which the format does not have",
                          f->path, SHOW(v->key), type);
    if (count > GGUF_ARRAY_MAX)
        return errmsg_set(why, ERR_LIMIT,
                          "%s: key '%.*s' is an array of %llu elements; at most %d are read",
                          f->path, SHOW(v->key), (unsigned long long)count, GGUF_ARRAY_MAX);
    v->element = (enum gguf_value_type)type;
    v->count = (uint32_t)count;
    if (type != GGUF_STRING)
        return take(c, count * gguf__value_bytes(v->element), &v->data)
                   ? OK
                   : truncated(f, "a metadata array", why);
    if (count > (c->bytes.len - c->at) / 8)
        return truncated(f, "a metadata array", why); /* before the allocation */
    v->strings = calloc(count > 0 ? count : 1, sizeof *v->strings);
    if (v->strings == NULL)
        return errmsg_set(why, ERR_NOMEM, "%s: no memory for %llu strings", f->path,
                          (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++)
        if (!take_string(c, &v->strings[i])) return truncated(f, "a metadata array", why);
    return OK;
}

static enum err read_value(const struct gguf_file *f, struct cursor *c, struct gguf_value *v,
                           struct errmsg *why)
{
    uint32_t type;
    if (!take_string(c, &v->key) || !take_u32(c, &type)) return truncated(f, "the metadata", why);
    if (!name_ok(v->key, 65535))
        return errmsg_set(why, ERR_PROTO,
                          "%s: a metadata key of %zu bytes is empty, longer than 65535 or holds a "
                          "control character",
                          f->path, v->key.len);
    if (type > GGUF_F64)
        return errmsg_set(why, ERR_PROTO,
                          "%s: key '%.*s' has type %u, which the format does not have", f->path,
                          SHOW(v->key), type);
    v->type = (enum gguf_value_type)type;
    if (v->type == GGUF_ARRAY) return read_array(f, c, v, why);
    if (v->type == GGUF_STRING)
        return take_string(c, &v->string) ? OK : truncated(f, "the metadata", why);
    if (!take(c, gguf__value_bytes(v->type), &v->data)) return truncated(f, "the metadata", why);
    if (v->type == GGUF_BOOL && v->data[0] > 1)
        return errmsg_set(why, ERR_PROTO, "%s: key '%.*s' is a bool of value %u", f->path,
                          SHOW(v->key), v->data[0]);
    return OK;
}

static enum err read_metadata(struct gguf_file *f, struct cursor *c, uint64_t count,
                              struct errmsg *why)
{
    if (count > GGUF_KEYS_MAX)
        return errmsg_set(why, ERR_LIMIT, "%s: %llu metadata keys; at most %d are read", f->path,
                          (unsigned long long)count, GGUF_KEYS_MAX);
    if (count > (c->bytes.len - c->at) / 12) return truncated(f, "the metadata", why);
    f->values = calloc(count > 0 ? count : 1, sizeof *f->values);
    if (f->values == NULL)
        return errmsg_set(why, ERR_NOMEM, "%s: no memory for the metadata", f->path);
    for (; f->value_count < count; f->value_count++) {
        struct gguf_value *v = &f->values[f->value_count];
        enum err err = read_value(f, c, v, why);
        if (err != OK) {
            free(v->strings);
            v->strings = NULL;
            return err;
        }
    }
    qsort(f->values, f->value_count, sizeof *f->values, by_name);
    for (uint32_t i = 1; i < f->value_count; i++)
        if (span_eq(f->values[i].key, f->values[i - 1].key))
            return errmsg_set(why, ERR_PROTO, "%s: metadata key '%.*s' stands twice", f->path,
                              SHOW(f->values[i].key));
    return OK;
}

/* ---- tensors ---- */

static const struct gguf_type_info {
    uint32_t id;
    const char *name;
    uint32_t block_values, block_bytes; /* 0: removed from the format */
} types[] = {
    {0, "F32", 1, 4},
    {1, "F16", 1, 2},
    {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17},
    {4, "Q4_2 (removed)", 0, 0},
    {5, "Q4_3 (removed)", 0, 0},
    {31, "Q4_0_4_4 (removed)", 0, 0},
    {32, "Q4_0_4_8 (removed)", 0, 0},
    {33, "Q4_0_8_8 (removed)", 0, 0},
    {36, "IQ4_NL_4_4 (removed)", 0, 0},
    {37, "IQ4_NL_4_8 (removed)", 0, 0},
    {38, "IQ4_NL_8_8 (removed)", 0, 0},
};

static const struct gguf_type_info *type_info(uint32_t id)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (types[i].id == id) return &types[i];
    return NULL;
}

const char *gguf_type_name(uint32_t type)
{
    static _Thread_local char unknown[24];
    const struct gguf_type_info *info = type_info(type);
    if (info != NULL) return info->name;
    (void)snprintf(unknown, sizeof unknown, "type %u", type);
    return unknown;
}

bool gguf_type_block(uint32_t type, uint32_t *values, uint32_t *bytes)
{
    const struct gguf_type_info *info = type_info(type);
    if (info == NULL || info->block_values == 0) return false;
    *values = info->block_values;
    *bytes = info->block_bytes;
    return true;
}

/* Dimensions, and the bytes that they mean. */
static enum err read_shape(const struct gguf_file *f, struct cursor *c, struct gguf_tensor *t,
                           uint64_t *bytes, struct errmsg *why)
{
    uint64_t values = 1;
    if (!take_u32(c, &t->dim_count)) return truncated(f, "the tensor table", why);
    if (t->dim_count < 1 || t->dim_count > 4)
        return errmsg_set(why, ERR_PROTO,
                          "%s: tensor '%.*s' has %u dimensions; 1 to 4 are possible", f->path,
                          SHOW(t->name), t->dim_count);
    for (uint32_t i = 0; i < 4; i++)
        t->dims[i] = 1;
    for (uint32_t i = 0; i < t->dim_count; i++) {
        if (!take_u64(c, &t->dims[i])) return truncated(f, "the tensor table", why);
        if (t->dims[i] == 0 || t->dims[i] > INT64_MAX ||
            __builtin_mul_overflow(values, t->dims[i], &values) || values > INT64_MAX / 8)
            return errmsg_set(why, ERR_PROTO, "%s: tensor '%.*s' has an impossible dimension %llu",
                              f->path, SHOW(t->name), (unsigned long long)t->dims[i]);
    }
    if (!take_u32(c, &t->type)) return truncated(f, "the tensor table", why);
    const struct gguf_type_info *info = type_info(t->type);
    if (info == NULL || info->block_values == 0)
        return errmsg_set(why, ERR_UNSUPPORTED,
                          "%s: tensor '%.*s' is of %s, which is not known here", f->path,
                          SHOW(t->name), gguf_type_name(t->type));
    if (t->dims[0] % info->block_values != 0)
        return errmsg_set(
            why, ERR_PROTO, "%s: tensor '%.*s' of type %s has rows of %llu values; blocks hold %u",
            f->path, SHOW(t->name), info->name, (unsigned long long)t->dims[0], info->block_values);
    *bytes = values / info->block_values * info->block_bytes;
    return OK;
}

static enum err read_tensor(const struct gguf_file *f, struct cursor *c, struct gguf_tensor *t,
                            uint64_t *expected_offset, struct errmsg *why)
{
    uint64_t bytes = 0, offset = 0;
    if (!take_string(c, &t->name)) return truncated(f, "the tensor table", why);
    if (!name_ok(t->name, 127))
        return errmsg_set(why, ERR_PROTO,
                          "%s: a tensor name of %zu bytes is empty, longer than 127 or holds a "
                          "control character",
                          f->path, t->name.len);
    enum err err = read_shape(f, c, t, &bytes, why);
    if (err != OK) return err;
    if (!take_u64(c, &offset)) return truncated(f, "the tensor table", why);
    if (offset != *expected_offset)
        return errmsg_set(why, ERR_PROTO,
                          "%s: tensor '%.*s' starts at %llu; %llu was expected (tensors follow "
                          "each other, without holes or overlaps)",
                          f->path, SHOW(t->name), (unsigned long long)offset,
                          (unsigned long long)*expected_offset);
    uint64_t padded = (bytes + f->alignment - 1) / f->alignment * f->alignment;
    if (padded < bytes || __builtin_add_overflow(*expected_offset, padded, expected_offset))
        return errmsg_set(why, ERR_PROTO, "%s: tensor '%.*s' is too large", f->path, SHOW(t->name));
    t->data = span_of((const uint8_t *)(uintptr_t)offset,
                      (size_t)bytes); /* an offset until place_tensors */
    return OK;
}

/* Data begins at the next aligned place behind the table; the last tensor may lack its padding. */
static enum err place_tensors(struct gguf_file *f, uint64_t table_end, struct errmsg *why)
{
    uint64_t start = (table_end + f->alignment - 1) / f->alignment * f->alignment;
    for (uint32_t i = 0; i < f->tensor_count; i++) {
        struct gguf_tensor *t = &f->tensors[i];
        uint64_t offset = (uintptr_t)t->data.ptr;
        if (start > f->bytes.len || offset > f->bytes.len - start ||
            t->data.len > f->bytes.len - start - offset)
            return errmsg_set(why, ERR_PROTO,
                              "%s: tensor '%.*s' needs bytes up to %llu; the file has %zu: is it a "
                              "whole download?",
                              f->path, SHOW(t->name),
                              (unsigned long long)(start + offset + t->data.len), f->bytes.len);
        t->data.ptr = f->bytes.ptr + start + offset;
    }
    return OK;
}

static enum err read_tensors(struct gguf_file *f, struct cursor *c, uint64_t count,
                             struct errmsg *why)
{
    if (count > GGUF_TENSORS_MAX)
        return errmsg_set(why, ERR_LIMIT, "%s: %llu tensors; at most %d are read", f->path,
                          (unsigned long long)count, GGUF_TENSORS_MAX);
    if (count > (c->bytes.len - c->at) / 24) return truncated(f, "the tensor table", why);
    f->tensors = calloc(count > 0 ? count : 1, sizeof *f->tensors);
    if (f->tensors == NULL)
        return errmsg_set(why, ERR_NOMEM, "%s: no memory for the tensor table", f->path);
    uint64_t offset = 0;
    for (; f->tensor_count < count; f->tensor_count++) {
        enum err err = read_tensor(f, c, &f->tensors[f->tensor_count], &offset, why);
        if (err != OK) return err;
    }
    return place_tensors(f, c->at, why);
}

static enum err read_alignment(struct gguf_file *f, struct errmsg *why)
{
    f->alignment = 32;
    for (uint32_t i = 0; i < f->value_count; i++) {
        const struct gguf_value *v = &f->values[i];
        if (!span_eq_str(v->key, "general.alignment")) continue;
        uint32_t a = v->type == GGUF_U32 ? load_le32(v->data) : 0;
        if (a < 8 || (a & (a - 1)) != 0 || a > 1 << 20)
            return errmsg_set(why, ERR_PROTO,
                              "%s: general.alignment must be a u32 power of two from 8 to 1048576",
                              f->path);
        f->alignment = a;
    }
    return OK;
}

enum err gguf__read(struct gguf_file *f, struct errmsg *why)
{
    struct cursor c = {f->bytes, 0};
    const uint8_t *magic;
    uint64_t tensors, keys;
    if (!take(&c, 4, &magic) || memcmp(magic, "GGUF", 4) != 0)
        return errmsg_set(why, ERR_PROTO, "%s: no GGUF file (it does not begin with GGUF)",
                          f->path);
    if (!take_u32(&c, &f->version)) return truncated(f, "the header", why);
    if ((f->version & 0xFFFF) == 0)
        return errmsg_set(why, ERR_UNSUPPORTED,
                          "%s: a big-endian GGUF file; only little-endian ones are read", f->path);
    if (f->version != 2 && f->version != 3)
        return errmsg_set(why, ERR_UNSUPPORTED, "%s: GGUF version %u; versions 2 and 3 are read",
                          f->path, f->version);
    if (!take_u64(&c, &tensors) || !take_u64(&c, &keys)) return truncated(f, "the header", why);
    enum err err = read_metadata(f, &c, keys, why);
    if (err == OK) err = read_alignment(f, why);
    if (err == OK) err = read_tensors(f, &c, tensors, why);
    return err;
}
