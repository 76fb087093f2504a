/* detokenizer.c - ids to text as they come. Bytes are held back only while they are the beginning
 * of a code point that may still become whole. */
#include "common/tokenizer_internal.h"

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_control,
                      bool after_prompt)
{
    *d = (struct detokenizer){.t = t,
                              .skip_control = skip_control,
                              .at_start = !after_prompt && t->family == FAMILY_SENTENCEPIECE &&
                                          t->add_space_prefix};
}

static void replace_held(struct detokenizer *d, struct buffer *out)
{
    if (d->held_count > 0) buffer_add_str(out, REPLACEMENT);
    d->held_count = 0;
}

static void push_byte(struct detokenizer *d, uint8_t byte, struct buffer *out)
{
    if (d->held_count > 0 && !unicode_utf8_continues(d->held[0], d->held_count, byte))
        replace_held(d, out); /* a maximal subpart; byte begins anew */
    if (d->held_count == 0 && unicode_utf8_len(byte) == 0) {
        buffer_add_str(out, REPLACEMENT);
        return;
    }
    d->held[d->held_count++] = byte;
    if (d->held_count < unicode_utf8_len(d->held[0])) return;
    buffer_add(out, d->held, d->held_count);
    d->held_count = 0;
}

void detokenizer_push(struct detokenizer *d, uint32_t id, struct buffer *out)
{
    bool control = tokenizer_is_control(d->t, id);
    if (control && d->skip_control) return;
    struct span piece = tokenizer_piece(d->t, id);
    if (!control && piece.len > 0) {
        if (d->at_start && piece.ptr[0] == ' ') piece = span_from(piece, 1);
        d->at_start = false;
    }
    for (size_t i = 0; i < piece.len;) {
        size_t ascii = i;
        while (d->held_count == 0 && ascii < piece.len && piece.ptr[ascii] < 0x80)
            ascii++;
        buffer_add(out, piece.ptr + i, ascii - i);
        i = ascii;
        if (i < piece.len) push_byte(d, piece.ptr[i++], out);
    }
}

void detokenizer_flush(struct detokenizer *d, struct buffer *out)
{
    replace_held(d, out);
}
