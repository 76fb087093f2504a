#include "common/jinja_lex.h"

#include "common/unicode.h"

#include <errno.h>
#include <stdlib.h>

bool jinja_is_space(uint32_t cp)
{
    if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x1F);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

struct span jinja_strip(struct span text, bool left, bool right)
{
    uint32_t n;
    while (left && text.len > 0 && jinja_is_space(unicode_decode(text.ptr, &n)))
        text = span_of(text.ptr + n, text.len - n);
    while (right && text.len > 0) {
        size_t at = text.len - 1;
        while (at > 0 && (text.ptr[at] & 0xC0) == 0x80)
            at--;
        if (!jinja_is_space(unicode_decode(text.ptr + at, &n))) break;
        text.len = at;
    }
    return text;
}

void jlex_init(struct jlex *lex, struct arena *arena, struct span source, struct errmsg *why)
{
    *lex = (struct jlex){.arena = arena,
                         .src = source,
                         .line = 1,
                         .state = JLEX_DATA,
                         .pending = JT_EOF,
                         .line_starting = true,
                         .why = why};
}

static enum err fault(const struct jlex *lex, const char *what)
{
    return errmsg_set(lex->why, ERR_PROTO, "line %u: %s", lex->line, what);
}

static int at(const struct jlex *lex, size_t pos)
{
    return pos < lex->src.len ? lex->src.ptr[pos] : -1;
}

static void advance(struct jlex *lex, size_t end)
{
    for (; lex->pos < end; lex->pos++)
        lex->line += lex->src.ptr[lex->pos] == '\n';
}

static size_t skip_space(const struct jlex *lex, size_t pos)
{
    uint32_t n;
    while (pos < lex->src.len && jinja_is_space(unicode_decode(lex->src.ptr + pos, &n)))
        pos += n;
    return pos;
}

/* Passes over a closing bracket of two bytes at pos, and what its sign or trim_blocks takes. */
static void close_tag(struct jlex *lex, size_t pos, bool minus, bool trim)
{
    size_t end = pos + 2;
    if (minus)
        end = skip_space(lex, end);
    else if (trim && at(lex, end) == '\n')
        end++;
    lex->line_starting = lex->src.ptr[end - 1] == '\n';
    advance(lex, end);
}

/* The opening bracket at or behind pos: its kind letter ('{', '%' or '#'); 0 at the end. */
static int find_opening(const struct jlex *lex, size_t *pos)
{
    for (size_t p = *pos; p + 1 < lex->src.len; p++) {
        const uint8_t *found = memchr(lex->src.ptr + p, '{', lex->src.len - 1 - p);
        if (found == NULL) break;
        p = (size_t)(found - lex->src.ptr);
        int c = at(lex, p + 1);
        if (c == '{' || c == '%' || c == '#') {
            *pos = p;
            return c;
        }
    }
    *pos = lex->src.len;
    return 0;
}

/* What a tag's sign or lstrip_blocks leaves of the text before it. */
static struct span strip_before(const struct jlex *lex, struct span text, int sign, bool is_var)
{
    if (sign == '-') return jinja_strip(text, false, true);
    if (sign == '+' || is_var) return text;
    size_t start = text.len;
    while (start > 0 && text.ptr[start - 1] != '\n')
        start--;
    if (start == 0 && !lex->line_starting) return text;
    if (jinja_strip(span_from(text, start), true, true).len == 0) text.len = start;
    return text;
}

/* If a tag "{% word %}" begins at pos (its sign included): where its closing bracket is. */
static bool is_word_tag(const struct jlex *lex, size_t pos, const char *word, size_t *closing,
                        int *end_sign)
{
    size_t p = pos + 2, n = strlen(word);
    if (at(lex, p) == '-' || at(lex, p) == '+') p++;
    p = skip_space(lex, p);
    if (lex->src.len - p < n || memcmp(lex->src.ptr + p, word, n) != 0) return false;
    p = skip_space(lex, p + n);
    *end_sign = 0;
    if (at(lex, p) == '-' || at(lex, p) == '+') *end_sign = at(lex, p++);
    if (at(lex, p) != '%' || at(lex, p + 1) != '}') return false;
    *closing = p;
    return true;
}

static int sign_at(const struct jlex *lex, size_t pos)
{
    int c = at(lex, pos + 2);
    return c == '-' || c == '+' ? c : 0;
}

/* pos: at a raw tag whose closing bracket is known. */
static enum err lex_raw(struct jlex *lex, size_t closing, int sign, struct jtoken *out, bool *some)
{
    close_tag(lex, closing, sign == '-', false);
    size_t start = lex->pos, p = start;
    for (;; p += 2) {
        int kind = find_opening(lex, &p);
        if (kind == 0) return fault(lex, "{% raw %} without {% endraw %}");
        if (kind == '%' && is_word_tag(lex, p, "endraw", &closing, &sign)) break;
    }
    struct span text = span_of(lex->src.ptr + start, p - start);
    text = strip_before(lex, text, sign_at(lex, p), false);
    *out = (struct jtoken){.kind = JT_TEXT, .line = lex->line, .text = text};
    *some = text.len > 0;
    advance(lex, closing);
    close_tag(lex, closing, sign == '-', sign != '+');
    return OK;
}

static enum err lex_comment(struct jlex *lex, size_t pos)
{
    size_t start = pos + 2 + (sign_at(lex, pos) != 0);
    for (size_t p = start; p + 1 < lex->src.len; p++) {
        if (lex->src.ptr[p] != '#' || lex->src.ptr[p + 1] != '}') continue;
        int sign = p > start ? lex->src.ptr[p - 1] : 0;
        advance(lex, p);
        close_tag(lex, p, sign == '-', sign != '+');
        return OK;
    }
    return fault(lex, "a comment that begins here is not closed with #}");
}

/* Text up to the next tag; *some: out holds a token. */
static enum err lex_data(struct jlex *lex, struct jtoken *out, bool *some)
{
    *some = true;
    if (lex->pending != JT_EOF) {
        *out = (struct jtoken){.kind = lex->pending, .line = lex->line};
        lex->state = lex->pending == JT_VAR_BEGIN ? JLEX_VAR : JLEX_BLOCK;
        lex->pending = JT_EOF;
        lex->bracket_count = 0;
        return OK;
    }
    if (lex->pos >= lex->src.len) {
        *out = (struct jtoken){.kind = JT_EOF, .line = lex->line};
        return OK;
    }
    size_t p = lex->pos, closing;
    int kind = find_opening(lex, &p), sign = sign_at(lex, p), end_sign;
    struct span text = span_of(lex->src.ptr + lex->pos, p - lex->pos);
    if (kind != 0) text = strip_before(lex, text, sign, kind == '{');
    *out = (struct jtoken){.kind = JT_TEXT, .line = lex->line, .text = text};
    *some = text.len > 0;
    advance(lex, p);
    if (kind == 0) return OK;
    lex->line_starting = false;
    if (kind == '#') return lex_comment(lex, p);
    if (kind == '%' && is_word_tag(lex, p, "raw", &closing, &end_sign) && end_sign != '+') {
        if (*some) return OK; /* the text first; the tag is found again, with nothing before it */
        advance(lex, closing);
        return lex_raw(lex, closing, end_sign, out, some);
    }
    lex->pending = kind == '{' ? JT_VAR_BEGIN : JT_BLOCK_BEGIN;
    advance(lex, p + 2 + (sign != 0));
    return OK;
}

static int digit_value(int c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

/* One escape behind a backslash at s[*i]; appends to out, which has room. */
static enum err unescape(struct jlex *lex, struct span s, size_t *i, uint8_t *out, size_t *len)
{
    static const char from[] = "ntr\\'\"abfv0", to[] = "\n\t\r\\'\"\a\b\f\v";
    int c = s.ptr[(*i)++];
    if (c == '\n') return OK;
    const char *simple = strchr(from, c);
    if (c != 0 && simple != NULL && c != '0') {
        out[(*len)++] = (uint8_t)to[simple - from];
        return OK;
    }
    uint32_t cp = 0, digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c >= '0' && c <= '7') {
        cp = (uint32_t)(c - '0');
        for (int n = 1; n < 3 && *i < s.len && digit_value(s.ptr[*i]) < 8; n++)
            cp = cp * 8 + (uint32_t)digit_value(s.ptr[(*i)++]);
    } else if (digits != 0) {
        for (; digits > 0; digits--) {
            if (*i >= s.len || digit_value(s.ptr[*i]) > 15)
                return fault(lex, "a \\x, \\u or \\U escape lacks hexadecimal digits");
            if (cp > UNICODE_MAX) break;
            cp = cp * 16 + (uint32_t)digit_value(s.ptr[(*i)++]);
        }
        if (cp > UNICODE_MAX || (cp >= 0xD800 && cp < 0xE000))
            return fault(lex, "an escape in a string names no Unicode character");
    } else if (c == 'N') {
        return fault(lex, "\\N{...} escapes are not supported");
    } else { /* an unknown escape stands for itself */
        out[(*len)++] = '\\';
        (*i)--;
        return OK;
    }
    *len += unicode_encode(cp, out + *len);
    return OK;
}

static enum err lex_string(struct jlex *lex, struct jtoken *out)
{
    uint8_t quote = lex->src.ptr[lex->pos];
    size_t start = lex->pos + 1, p = start;
    bool escaped = false;
    while (p < lex->src.len && lex->src.ptr[p] != quote) {
        if (lex->src.ptr[p] == '\\') escaped = true, p++;
        p++;
    }
    if (p >= lex->src.len) return fault(lex, "a string that begins here is not closed");
    struct span text = span_of(lex->src.ptr + start, p - start);
    *out = (struct jtoken){.kind = JT_STRING, .line = lex->line, .text = text};
    if (escaped) {
        uint8_t *bytes = arena_alloc(lex->arena, text.len + 1); /* an escape never gets longer */
        if (bytes == NULL) return errmsg_set(lex->why, ERR_LIMIT, "the template is too large");
        size_t len = 0;
        for (size_t i = 0; i < text.len;) {
            uint8_t c = text.ptr[i++];
            if (c != '\\') {
                bytes[len++] = c;
                continue;
            }
            enum err err = unescape(lex, text, &i, bytes, &len);
            if (err != OK) return err;
        }
        out->text = span_of(bytes, len);
    }
    advance(lex, p + 1);
    return OK;
}

/* Digits of a base with single underscores between them, from p; *end behind them. */
static bool scan_digits(const struct jlex *lex, size_t p, int base, size_t *end, char *text,
                        size_t *len, size_t cap)
{
    size_t first = p;
    while (digit_value(at(lex, p)) < base ||
           (p > first && at(lex, p) == '_' && digit_value(at(lex, p + 1)) < base)) {
        if (at(lex, p) != '_') {
            if (*len + 2 >= cap) return false;
            text[(*len)++] = (char)at(lex, p);
        }
        p++;
    }
    text[*len] = '\0';
    *end = p;
    return p > first;
}

static enum err lex_number(struct jlex *lex, struct jtoken *out)
{
    char text[400];
    size_t len = 0, p = lex->pos, end, q;
    int base = 10, c = at(lex, p + 1) | 0x20;
    *out = (struct jtoken){.kind = JT_INT, .line = lex->line};
    if (at(lex, p) == '0' && (c == 'x' || c == 'o' || c == 'b')) {
        base = c == 'x' ? 16 : c == 'o' ? 8 : 2;
        p += 2;
    }
    if (!scan_digits(lex, p, base, &end, text, &len, sizeof text))
        return fault(lex, "a number is malformed or too long");
    bool after_dot = lex->pos > 0 && at(lex, lex->pos - 1) == '.';
    if (base == 10 && !after_dot) {
        if (at(lex, end) == '.' && digit_value(at(lex, end + 1)) < 10) {
            text[len++] = '.';
            if (!scan_digits(lex, end + 1, 10, &end, text, &len, sizeof text))
                return fault(lex, "a number is too long");
            out->kind = JT_REAL;
        }
        q = end + 1;
        if (at(lex, q) == '+' || at(lex, q) == '-') q++;
        if ((at(lex, end) | 0x20) == 'e' && digit_value(at(lex, q)) < 10) {
            text[len++] = 'e';
            if (at(lex, end + 1) == '-') text[len++] = '-';
            if (len + 8 >= sizeof text || !scan_digits(lex, q, 10, &end, text, &len, sizeof text))
                return fault(lex, "a number is too long");
            out->kind = JT_REAL;
        }
    }
    errno = 0;
    if (out->kind == JT_REAL)
        out->d = strtod(text, NULL);
    else
        out->i = strtoll(text, NULL, base);
    if (out->kind == JT_INT && errno == ERANGE) return fault(lex, "an integer is beyond 64 bits");
    advance(lex, end);
    return OK;
}

static bool is_name_byte(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80 ||
           (c >= '0' && c <= '9');
}

static enum err lex_operator(struct jlex *lex, struct jtoken *out)
{
    static const int doubles[] = {JTOP2('=', '='), JTOP2('!', '='), JTOP2('<', '='),
                                  JTOP2('>', '='), JTOP2('/', '/'), JTOP2('*', '*')};
    int c = at(lex, lex->pos), two = JTOP2(c, at(lex, lex->pos + 1));
    *out = (struct jtoken){.kind = JT_OP, .line = lex->line, .op = c};
    for (size_t i = 0; i < ARRAY_LEN(doubles); i++)
        if (doubles[i] == two) out->op = two;
    if (out->op == c && (c == 0 || strchr("+-*/%~[](){}=<>.:|,;", c) == NULL))
        return errmsg_set(lex->why, ERR_PROTO, "line %u: unexpected character '%c'", lex->line,
                          c >= 0x20 && c < 0x7F ? c : '?');
    if (c == '(' || c == '[' || c == '{') {
        if (lex->bracket_count == JLEX_BRACKETS_MAX)
            return errmsg_set(lex->why, ERR_LIMIT, "line %u: brackets nest too deep", lex->line);
        lex->brackets[lex->bracket_count++] = (char)(c == '(' ? ')' : c + 2);
    } else if (c == ')' || c == ']' || c == '}') {
        if (lex->bracket_count == 0 || lex->brackets[--lex->bracket_count] != (char)c)
            return errmsg_set(lex->why, ERR_PROTO, "line %u: unexpected '%c'", lex->line, c);
    }
    lex->pos += out->op == c ? 1 : 2;
    return OK;
}

static enum err lex_inside(struct jlex *lex, struct jtoken *out)
{
    advance(lex, skip_space(lex, lex->pos));
    int c = at(lex, lex->pos);
    if (c < 0) {
        *out = (struct jtoken){.kind = JT_EOF, .line = lex->line};
        return OK;
    }
    bool var = lex->state == JLEX_VAR;
    int first = var ? '}' : '%';
    if (lex->bracket_count == 0) {
        bool sign = c == '-' || (c == '+' && !var);
        size_t p = lex->pos + sign;
        if (at(lex, p) == first && at(lex, p + 1) == '}') {
            *out = (struct jtoken){.kind = var ? JT_VAR_END : JT_BLOCK_END, .line = lex->line};
            lex->state = JLEX_DATA;
            advance(lex, p);
            close_tag(lex, p, c == '-', !var && c != '+');
            return OK;
        }
    }
    if (c == '\'' || c == '"') return lex_string(lex, out);
    if (c >= '0' && c <= '9') return lex_number(lex, out);
    if (!is_name_byte(c)) return lex_operator(lex, out);
    size_t p = lex->pos;
    while (is_name_byte(at(lex, p)))
        p++;
    *out = (struct jtoken){
        .kind = JT_NAME, .line = lex->line, .text = span_of(lex->src.ptr + lex->pos, p - lex->pos)};
    lex->pos = p;
    return OK;
}

enum err jlex_next(struct jlex *lex, struct jtoken *out)
{
    if (lex->state != JLEX_DATA) return lex_inside(lex, out);
    for (;;) {
        bool some;
        enum err err = lex_data(lex, out, &some);
        if (err != OK || some) return err;
    }
}
