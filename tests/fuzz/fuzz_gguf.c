/* libFuzzer: whole model files, from the header to packed weights. What is accepted is read to its
 * last byte. */
#include "worker/model/gguf.h"
#include "worker/model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t walk(const struct gguf *g)
{
    uint64_t sum = 0;
    char text[96];
    for (uint32_t i = 0; i < gguf_key_count(g); i++) {
        gguf_value_text(g, i, text, sizeof text);
        sum += strlen(text) + gguf_key_at(g, i).ptr[0];
    }
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        for (size_t k = 0; k < t->data.len; k++)
            sum += t->data.ptr[k];
        CHECK(t->dim_count >= 1 && t->dims[0] > 0 && gguf_type_name(t->type) != NULL);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct model *m;
    struct errmsg why = {""};
    if (gguf_open_memory(span_of(data, size), &g, &why) != OK) {
        CHECK(why.text[0] != '\0');
        return 0;
    }
    volatile uint64_t sum = walk(g);
    (void)sum;
    gguf_close(g);
    const struct model_options options = {.threads = 1, .reference = size % 2 == 1};
    why.text[0] = '\0';
    if (model_load_memory(span_of(data, size), &options, &m, &why) == OK)
        model_destroy(m);
    else
        CHECK(why.text[0] != '\0');
    return 0;
}
