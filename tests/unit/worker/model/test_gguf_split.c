/* test_gguf_split.c - a model in several files is one model; parts that are missing, swapped or of
 * another model are refused by name. */
#include "tests/unit/worker/model/gguf_fixture.h"
#include "worker/model/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

struct folder {
    char path[64];
};

static int setup(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->path, "/tmp/penstock-split-XXXXXX");
    *state = f;
    return mkdtemp(f->path) == NULL;
}

static void name_of(const struct folder *f, const char *base, int part, int parts, char out[128])
{
    snprintf(out, 128, "%s/%s-%05d-of-%05d.gguf", f->path, base, part, parts);
}

static int teardown(void **state)
{
    struct folder *f = *state;
    char path[128];
    for (int i = 1; i <= 3; i++) {
        name_of(f, "m", i, 3, path);
        (void)unlink(path);
    }
    snprintf(path, sizeof path, "%s/renamed.gguf", f->path);
    (void)unlink(path);
    (void)rmdir(f->path);
    free(f);
    return 0;
}

/* A part with one tensor of four floats, all `no`. */
static void write_part(const struct folder *f, uint32_t no, uint32_t count, uint32_t total,
                       const char *tensor)
{
    struct gguf_writer w;
    struct buffer b;
    uint64_t dims[] = {4};
    float values[8] = {0};
    char path[128];
    gguf_writer_init(&w);
    buffer_init(&b, 1 << 16);
    if (no == 0) gguf_writer_u32(&w, "only.first", 5);
    gguf_writer_u32(&w, "split.no", no);
    gguf_writer_u32(&w, "split.count", count);
    gguf_writer_u32(&w, "split.tensors.count", total);
    (void)gguf_writer_tensor(&w, tensor, GGML_F32, dims, 1);
    assert_int_equal(gguf_writer_finish(&w, &b), OK);
    for (int i = 0; i < 4; i++)
        values[i] = (float)no;
    buffer_add(&b, values, sizeof values);
    name_of(f, "m", (int)no + 1, 3, path);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(b.ptr, 1, b.len, out), b.len);
    fclose(out);
    buffer_deinit(&b);
    gguf_writer_deinit(&w);
}

static void write_all(const struct folder *f)
{
    write_part(f, 0, 3, 3, "z");
    write_part(f, 1, 3, 3, "a");
    write_part(f, 2, 3, 3, "m");
}

static void refuse(const char *path, enum err expected, const char *word)
{
    struct gguf *g;
    struct errmsg why;
    enum err err = gguf_open(path, &g, &why);
    if (err != expected || strstr(why.text, word) == NULL)
        fail_msg("%s '%s'; expected %s with '%s'", err_name(err), why.text, err_name(expected),
                 word);
}

static void test_parts_are_joined(void **state)
{
    struct gguf *g;
    struct errmsg why;
    char path[128];
    uint32_t v;
    write_all(*state);
    name_of(*state, "m", 1, 3, path);
    assert_int_equal(gguf_open(path, &g, &why), OK);
    assert_int_equal(gguf_tensor_count(g), 3);
    static const char *const names[] = {"z", "a", "m"};
    for (int i = 0; i < 3; i++) {
        const struct gguf_tensor *t = gguf_tensor_find(g, names[i]);
        float first;
        assert_non_null(t);
        memcpy(&first, t->data.ptr, sizeof first);
        assert_true(first == (float)i);
        gguf_tensor_forget(g, t);
        memcpy(&first, t->data.ptr, sizeof first); /* the file is still behind it */
        assert_true(first == (float)i);
    }
    assert_int_equal(gguf_get_u32(g, "only.first", &v, &why), OK);
    gguf_close(g);
}

static void test_wrong_parts_are_refused(void **state)
{
    char first[128], second[128], renamed[128];
    write_all(*state);
    name_of(*state, "m", 1, 3, first);
    name_of(*state, "m", 2, 3, second);
    refuse(second, ERR_INVALID, "give the first part");
    snprintf(renamed, sizeof renamed, "%s/renamed.gguf", ((struct folder *)*state)->path);
    assert_int_equal(rename(first, renamed), 0);
    refuse(renamed, ERR_INVALID, "be named");
    refuse(first, ERR_IO, "No such file");
    write_part(*state, 0, 3, 4, "z");
    refuse(first, ERR_PROTO, "says 4 tensors");
    write_part(*state, 0, 3, 3, "a");
    refuse(first, ERR_PROTO, "'a' stands twice");
    write_part(*state, 0, 600, 3, "z");
    refuse(first, ERR_INVALID, "of 600");
    write_part(*state, 0, 3, 3, "z");
    assert_int_equal(unlink(second), 0);
    refuse(first, ERR_IO, "m-00002-of-00003.gguf");
    char third[128];
    name_of(*state, "m", 3, 3, third);
    assert_int_equal(rename(third, second), 0);
    refuse(first, ERR_PROTO, "says that it is part 3 of 3");
    assert_int_equal(truncate(second, 10), 0);
    refuse(first, ERR_PROTO, "10 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parts_are_joined, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_parts_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
