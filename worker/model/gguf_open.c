/* gguf_open.c - maps the files of a model, joins splits, and answers questions about metadata and
 * tensors. */
#include "worker/model/gguf_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHOW(s) (int)((s).len < 64 ? (s).len : 64), (const char *)(s).ptr

static enum err map_file(struct gguf_file *f, const char *path, struct errmsg *why)
{
    struct stat st;
    (void)snprintf(f->path, sizeof f->path, "%s", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errmsg_set(why, ERR_IO, "%s: %s", path, strerror(errno));
    enum err err = OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        err = errmsg_set(why, ERR_IO, "%s: no regular file", path);
    else if (st.st_size < 24)
        err = errmsg_set(why, ERR_PROTO, "%s: %lld bytes are no GGUF file", path,
                         (long long)st.st_size);
    void *ptr = MAP_FAILED;
    if (err == OK) {
        ptr = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (ptr == MAP_FAILED)
            err = errmsg_set(why, ERR_IO, "%s: cannot map: %s", path, strerror(errno));
    }
    close(fd);
    if (err != OK) return err;
    f->bytes = span_of(ptr, (size_t)st.st_size);
    f->mapped = true;
    return OK;
}

static void close_file(struct gguf_file *f)
{
    for (uint32_t i = 0; i < f->value_count; i++)
        free(f->values[i].strings);
    free(f->values);
    free(f->tensors);
    if (f->mapped) (void)munmap((void *)(uintptr_t)f->bytes.ptr, f->bytes.len);
}

void gguf_close(struct gguf *g)
{
    if (g == NULL) return;
    for (uint32_t i = 0; i < g->file_count; i++)
        close_file(&g->files[i]);
    free(g->files);
    free(g->tensors);
    free(g);
}

static int by_name(const void *a, const void *b)
{
    const struct gguf_tensor *x = a, *y = b;
    size_t n = x->name.len < y->name.len ? x->name.len : y->name.len;
    int order = memcmp(x->name.ptr, y->name.ptr, n);
    return order != 0 ? order : (x->name.len > y->name.len) - (x->name.len < y->name.len);
}

/* One table of all tensors, sorted, each name once. */
static enum err join_tensors(struct gguf *g, struct errmsg *why)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < g->file_count; i++)
        total += g->files[i].tensor_count;
    if (total > GGUF_TENSORS_MAX)
        return errmsg_set(why, ERR_LIMIT, "%s: too many tensors in all parts", g->files[0].path);
    g->tensors = calloc(total > 0 ? total : 1, sizeof *g->tensors);
    if (g->tensors == NULL)
        return errmsg_set(why, ERR_NOMEM, "%s: no memory for the tensor table", g->files[0].path);
    for (uint32_t i = 0; i < g->file_count; i++) {
        if (g->files[i].tensor_count == 0) continue;
        memcpy(g->tensors + g->tensor_count, g->files[i].tensors,
               g->files[i].tensor_count * sizeof *g->tensors);
        g->tensor_count += g->files[i].tensor_count;
    }
    qsort(g->tensors, g->tensor_count, sizeof *g->tensors, by_name);
    for (uint32_t i = 1; i < g->tensor_count; i++)
        if (by_name(&g->tensors[i], &g->tensors[i - 1]) == 0)
            return errmsg_set(why, ERR_PROTO, "%s: tensor '%.*s' stands twice", g->files[0].path,
                              SHOW(g->tensors[i].name));
    return OK;
}

static const struct gguf_value *find_in(const struct gguf_file *f, const char *key)
{
    struct span wanted = span_str(key);
    uint32_t low = 0, high = f->value_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        struct span have = f->values[mid].key;
        size_t n = have.len < wanted.len ? have.len : wanted.len;
        int order = memcmp(have.ptr, wanted.ptr, n);
        if (order == 0) order = (have.len > wanted.len) - (have.len < wanted.len);
        if (order == 0) return &f->values[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* An integer of any width as int64; false when it is none, or beyond int64. */
static bool as_integer(enum gguf_value_type type, const uint8_t *p, int64_t *out)
{
    switch (type) {
    case GGUF_U8:
    case GGUF_BOOL: *out = p[0]; return true;
    case GGUF_I8: *out = (int8_t)p[0]; return true;
    case GGUF_U16: *out = load_le16(p); return true;
    case GGUF_I16: *out = (int16_t)load_le16(p); return true;
    case GGUF_U32: *out = load_le32(p); return true;
    case GGUF_I32: *out = (int32_t)load_le32(p); return true;
    case GGUF_U64:
    case GGUF_I64: *out = (int64_t)load_le64(p); return type == GGUF_I64 || *out >= 0;
    default: return false;
    }
}

/* A part that was renamed, or belongs to another model. */
static enum err check_part(const struct gguf_file *f, uint32_t number, uint32_t parts,
                           struct errmsg *why)
{
    const struct gguf_value *no = find_in(f, "split.no"), *count = find_in(f, "split.count");
    int64_t have_no = -1, have_count = -1;
    if (no != NULL) (void)as_integer(no->type, no->data, &have_no);
    if (count != NULL) (void)as_integer(count->type, count->data, &have_count);
    if (have_no == number && have_count == parts) return OK;
    return errmsg_set(why, ERR_PROTO,
                      "%s: says that it is part %lld of %lld; by its name it is part %u of %u",
                      f->path, (long long)have_no + 1, (long long)have_count, number + 1, parts);
}

/* name-00001-of-0000N.gguf: the others lie beside it. */
static enum err open_parts(struct gguf *g, uint32_t parts, struct errmsg *why)
{
    const char *path = g->files[0].path;
    char suffix[32], part[4096 + 32];
    (void)snprintf(suffix, sizeof suffix, "-00001-of-%05u.gguf", parts);
    size_t n = strlen(path), m = strlen(suffix);
    if (n < m || strcmp(path + n - m, suffix) != 0)
        return errmsg_set(why, ERR_INVALID,
                          "%s: the first of %u parts must be given, and be named *%s", path, parts,
                          suffix);
    for (uint32_t i = 1; i < parts; i++) {
        (void)snprintf(part, sizeof part, "%.*s-%05u-of-%05u.gguf", (int)(n - m), path, i + 1,
                       parts);
        struct gguf_file *f = &g->files[g->file_count++];
        enum err err = map_file(f, part, why);
        if (err == OK) err = gguf__read(f, why);
        if (err == OK) err = check_part(f, i, parts, why);
        if (err != OK) return err;
    }
    return OK;
}

static enum err open_all(struct gguf *g, const char *path, struct errmsg *why)
{
    enum err err = map_file(&g->files[0], path, why);
    g->file_count = 1;
    if (err == OK) err = gguf__read(&g->files[0], why);
    if (err != OK) return err;
    uint32_t parts = 1, number = 0;
    if (gguf_has(g, "split.count")) err = gguf_get_u32(g, "split.count", &parts, why);
    if (err == OK && gguf_has(g, "split.no")) err = gguf_get_u32(g, "split.no", &number, why);
    if (err != OK) return err;
    if (parts > GGUF_SPLITS_MAX || number != 0)
        return errmsg_set(why, ERR_INVALID,
                          "%s: part %u of %u; give the first part (at most %d parts are read)",
                          path, number + 1, parts, GGUF_SPLITS_MAX);
    if (parts > 1) err = open_parts(g, parts, why);
    if (err == OK) err = join_tensors(g, why);
    uint32_t stated;
    if (err == OK && gguf_has(g, "split.tensors.count") &&
        (err = gguf_get_u32(g, "split.tensors.count", &stated, why)) == OK &&
        stated != g->tensor_count)
        err =
            errmsg_set(why, ERR_PROTO, "%s: split.tensors.count says %u tensors; the parts hold %u",
                       path, stated, g->tensor_count);
    return err;
}

static struct gguf *make(void)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (g != NULL) g->files = calloc(GGUF_SPLITS_MAX, sizeof *g->files);
    if (g == NULL || g->files == NULL) {
        free(g);
        return NULL;
    }
    return g;
}

enum err gguf_open(const char *path, struct gguf **out, struct errmsg *why)
{
    struct gguf *g = make();
    if (g == NULL) return errmsg_set(why, ERR_NOMEM, "%s: no memory", path);
    enum err err = open_all(g, path, why);
    if (err != OK) {
        gguf_close(g);
        return err;
    }
    *out = g;
    return OK;
}

enum err gguf_open_memory(struct span bytes, struct gguf **out, struct errmsg *why)
{
    struct gguf *g = make();
    if (g == NULL) return errmsg_set(why, ERR_NOMEM, "no memory");
    g->file_count = 1;
    g->files[0].bytes = bytes;
    (void)snprintf(g->files[0].path, sizeof g->files[0].path, "(memory)");
    enum err err = gguf__read(&g->files[0], why);
    if (err == OK) err = join_tensors(g, why);
    if (err != OK) {
        gguf_close(g);
        return err;
    }
    *out = g;
    return OK;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->files[0].version;
}
uint32_t gguf_tensor_count(const struct gguf *g)
{
    return g->tensor_count;
}
uint32_t gguf_key_count(const struct gguf *g)
{
    return g->files[0].value_count;
}
struct span gguf_key_at(const struct gguf *g, uint32_t index)
{
    return g->files[0].values[index].key;
}
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint32_t index)
{
    return &g->tensors[index];
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->file_count; i++)
        n += g->files[i].bytes.len;
    return n;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    struct gguf_tensor key = {.name = span_str(name)};
    return g->tensor_count == 0
               ? NULL
               : bsearch(&key, g->tensors, g->tensor_count, sizeof *g->tensors, by_name);
}

void gguf_tensor_forget(const struct gguf *g, const struct gguf_tensor *t)
{
    if (!g->files[0].mapped) return;
    uintptr_t from = ((uintptr_t)t->data.ptr + 4095) & ~(uintptr_t)4095;
    uintptr_t to = (uintptr_t)(t->data.ptr + t->data.len) & ~(uintptr_t)4095;
    if (to > from) (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

/* ---- metadata ---- */

static const struct gguf_value *find(const struct gguf *g, const char *key)
{
    return find_in(&g->files[0], key);
}

static enum err need(const struct gguf *g, const char *key, const struct gguf_value **out,
                     struct errmsg *why)
{
    *out = find(g, key);
    return *out != NULL ? OK
                        : errmsg_set(why, ERR_NOT_FOUND, "%s: metadata key '%s' is missing",
                                     g->files[0].path, key);
}

static enum err wrong(const struct gguf *g, const char *key, const char *expected,
                      struct errmsg *why)
{
    return errmsg_set(why, ERR_INVALID, "%s: metadata key '%s' is not %s", g->files[0].path, key,
                      expected);
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return find(g, key) != NULL;
}

static bool as_float(enum gguf_value_type type, const uint8_t *p, double *out)
{
    int64_t i;
    if (type == GGUF_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        *out = (double)f;
    } else if (type == GGUF_F64) {
        memcpy(out, p, sizeof *out);
    } else if (as_integer(type, p, &i)) {
        *out = (double)i;
    } else {
        return false;
    }
    return true;
}

enum err gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct errmsg *why)
{
    const struct gguf_value *v;
    int64_t i;
    enum err err = need(g, key, &v, why);
    if (err != OK) return err;
    if (v->type == GGUF_ARRAY || v->type == GGUF_BOOL || !as_integer(v->type, v->data, &i) ||
        i < 0 || i > UINT32_MAX)
        return wrong(g, key, "an integer from 0 to 4294967295", why);
    *out = (uint32_t)i;
    return OK;
}

enum err gguf_get_f32(const struct gguf *g, const char *key, float *out, struct errmsg *why)
{
    const struct gguf_value *v;
    double d;
    enum err err = need(g, key, &v, why);
    if (err != OK) return err;
    if (v->type == GGUF_ARRAY || !as_float(v->type, v->data, &d) || !__builtin_isfinite(d))
        return wrong(g, key, "a finite number", why);
    *out = (float)d;
    return OK;
}

enum err gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct errmsg *why)
{
    const struct gguf_value *v;
    enum err err = need(g, key, &v, why);
    if (err != OK) return err;
    if (v->type != GGUF_BOOL) return wrong(g, key, "a bool", why);
    *out = v->data[0] != 0;
    return OK;
}

enum err gguf_get_string(const struct gguf *g, const char *key, struct span *out,
                         struct errmsg *why)
{
    const struct gguf_value *v;
    enum err err = need(g, key, &v, why);
    if (err != OK) return err;
    if (v->type != GGUF_STRING) return wrong(g, key, "a string", why);
    *out = v->string;
    return OK;
}

enum err gguf_array_count(const struct gguf *g, const char *key, uint32_t *out, struct errmsg *why)
{
    const struct gguf_value *v;
    enum err err = need(g, key, &v, why);
    if (err != OK) return err;
    if (v->type != GGUF_ARRAY) return wrong(g, key, "an array", why);
    *out = v->count;
    return OK;
}

enum err gguf_get_string_array(const struct gguf *g, const char *key, const struct span **out,
                               uint32_t *count, struct errmsg *why)
{
    const struct gguf_value *v;
    enum err err = need(g, key, &v, why);
    if (err != OK) return err;
    if (v->type != GGUF_ARRAY || v->element != GGUF_STRING)
        return wrong(g, key, "an array of strings", why);
    *out = v->strings;
    *count = v->count;
    return OK;
}

static const uint8_t *element_at(const struct gguf_value *v, uint32_t i)
{
    return v->data + (size_t)i * gguf__value_bytes(v->element);
}

enum err gguf_get_i32_array(const struct gguf *g, const char *key, int32_t *out, uint32_t count,
                            struct errmsg *why)
{
    const struct gguf_value *v;
    enum err err = need(g, key, &v, why);
    if (err != OK) return err;
    if (v->type != GGUF_ARRAY || v->element == GGUF_STRING)
        return wrong(g, key, "an array of numbers", why);
    if (v->count != count)
        return errmsg_set(why, ERR_INVALID, "%s: metadata key '%s' has %u elements; expected %u",
                          g->files[0].path, key, v->count, count);
    for (uint32_t i = 0; i < count; i++) {
        int64_t x;
        if (!as_integer(v->element, element_at(v, i), &x) || x < INT32_MIN || x > INT32_MAX)
            return wrong(g, key, "an array of 32-bit integers", why);
        out[i] = (int32_t)x;
    }
    return OK;
}

enum err gguf_get_f32_array(const struct gguf *g, const char *key, float *out, uint32_t count,
                            struct errmsg *why)
{
    const struct gguf_value *v;
    enum err err = need(g, key, &v, why);
    if (err != OK) return err;
    if (v->type != GGUF_ARRAY || v->element == GGUF_STRING)
        return wrong(g, key, "an array of numbers", why);
    if (v->count != count)
        return errmsg_set(why, ERR_INVALID, "%s: metadata key '%s' has %u elements; expected %u",
                          g->files[0].path, key, v->count, count);
    for (uint32_t i = 0; i < count; i++) {
        double x;
        if (!as_float(v->element, element_at(v, i), &x))
            return wrong(g, key, "an array of numbers", why);
        out[i] = (float)x;
    }
    return OK;
}

void gguf_value_text(const struct gguf *g, uint32_t index, char *out, size_t out_bytes)
{
    const struct gguf_value *v = &g->files[0].values[index];
    int64_t i;
    double d;
    if (v->type == GGUF_ARRAY)
        (void)snprintf(out, out_bytes, "[%u values]", v->count);
    else if (v->type == GGUF_STRING)
        (void)snprintf(out, out_bytes, "%.*s%s", SHOW(v->string), v->string.len > 64 ? "..." : "");
    else if (v->type == GGUF_BOOL)
        (void)snprintf(out, out_bytes, "%s", v->data[0] ? "true" : "false");
    else if (as_integer(v->type, v->data, &i))
        (void)snprintf(out, out_bytes, "%lld", (long long)i);
    else if (as_float(v->type, v->data, &d))
        (void)snprintf(out, out_bytes, "%.9g", d);
    for (char *at = out; *at != '\0'; at++)
        if ((uint8_t)*at < 0x20) *at = ' ';
}
