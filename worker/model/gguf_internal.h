/* gguf_internal.h - one file of a GGUF model, as gguf.c reads it and gguf_open.c joins it. Internal
 * to gguf. */
#ifndef PENSTOCK_WORKER_MODEL_GGUF_INTERNAL_H
#define PENSTOCK_WORKER_MODEL_GGUF_INTERNAL_H

#include "worker/model/gguf.h"

#include <stdio.h>

enum gguf_value_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

struct gguf_value {
    struct span key; /* first: values are sorted and found by it */
    enum gguf_value_type type, element;
    uint32_t count;      /* of an array */
    const uint8_t *data; /* numbers */
    struct span string;
    struct span *strings; /* of an array of strings */
};

struct gguf_file {
    char path[4096];
    struct span bytes;
    bool mapped;
    uint32_t version, alignment;
    struct gguf_value *values; /* sorted by key */
    uint32_t value_count;
    struct gguf_tensor *tensors;
    uint32_t tensor_count;
};

/* Of one number or bool; 0 for strings and arrays. */
uint32_t gguf__value_bytes(enum gguf_value_type type);
/* Fills the tables from f->bytes; the caller frees them, on failure too. */
enum err gguf__read(struct gguf_file *f, struct errmsg *why) MUST_CHECK;

struct gguf {
    struct gguf_file *files; /* the first holds the metadata */
    uint32_t file_count;
    struct gguf_tensor *tensors; /* of all files, sorted by name */
    uint32_t tensor_count;
};

#endif
