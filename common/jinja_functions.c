/* jinja_functions.c - the functions a template finds without being given them. */
#include "common/jinja_run.h"

#include <locale.h>
#include <stdio.h>
#include <time.h>

static struct jval function_range(struct jrun *r, const struct jcall *c)
{
    int64_t bound[3] = {0, 0, 1};
    if (c->pos_count < 1 || c->pos_count > 3 || c->kw_count > 0)
        return jrun_type_error(r, "range needs one to three integers");
    for (uint32_t i = 0; i < c->pos_count; i++) {
        if (!jv_is_integer(c->pos[i]))
            return jrun_type_error(r, "range needs integers, not '%s'", jv_type_name(c->pos[i]));
        bound[c->pos_count == 1 ? 1 : i] = jv_as_int(c->pos[i]);
    }
    int64_t start = bound[0], stop = bound[1], step = bound[2];
    if (step == 0) return jrun_type_error(r, "range's step must not be zero");
    uint64_t count = 0, stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 && start < stop) count = ((uint64_t)stop - (uint64_t)start - 1) / stride + 1;
    if (step < 0 && start > stop) count = ((uint64_t)start - (uint64_t)stop - 1) / stride + 1;
    if (count > JRUN_RANGE_MAX)
        return jrun_fail(r, ERR_LIMIT, "a range of more than %d items", JRUN_RANGE_MAX);
    if (count <= 1) step = 1; /* never multiplied beyond what is used */
    struct jrange *range = jrun_alloc(r, 1, sizeof *range);
    if (range == NULL) return JV_UNDEF;
    *range = (struct jrange){.start = start, .step = step, .count = (uint32_t)count};
    return (struct jval){.kind = JK_RANGE, .range = range};
}

/* namespace(...) and dict(...): an optional mapping, then keywords. */
static struct jval new_mapping(struct jrun *r, const struct jcall *c, enum jkind kind)
{
    if (c->pos_count > 1 || (c->pos_count == 1 && c->pos[0].kind != JK_DICT))
        return jrun_type_error(r, "a mapping and keywords are expected");
    const struct jdict *from = c->pos_count == 1 ? c->pos[0].dict : NULL;
    struct jval v = jdict_new(r, kind, (from != NULL ? from->count : 0) + c->kw_count);
    for (uint32_t i = 0; from != NULL && i < from->count && r->err == OK; i++)
        jdict_put(r, v.dict, from->pairs[i].key, from->pairs[i].value);
    for (uint32_t i = 0; i < c->kw_count && r->err == OK; i++)
        jdict_put(r, v.dict, jv_str(c->kw_names[i]), c->kw[i]);
    return v;
}

static struct jval function_namespace(struct jrun *r, const struct jcall *c)
{
    return new_mapping(r, c, JK_SPACE);
}

static struct jval function_dict(struct jrun *r, const struct jcall *c)
{
    return new_mapping(r, c, JK_DICT);
}

static struct jval function_raise(struct jrun *r, const struct jcall *c)
{
    struct jval v = jrun_to_str(r, c->a[0]);
    if (r->err != OK) return JV_UNDEF;
    size_t len = v.s->len, most = sizeof r->why->text - 1;
    if (len > most) /* cut, but not within a character */
        for (len = most; len > 0 && (v.s->ptr[len] & 0xC0) == 0x80;)
            len--;
    r->err = ERR_INVALID;
    if (r->why == NULL) return JV_UNDEF;
    memcpy(r->why->text, v.s->ptr, len);
    r->why->text[len] = '\0';
    return JV_UNDEF;
}

static struct jval function_strftime_now(struct jrun *r, const struct jcall *c)
{
    char format[256], text[1024];
    if (c->a[0].kind != JK_STR || c->a[0].s->len >= sizeof format)
        return jrun_type_error(r, "strftime_now needs a short format");
    memcpy(format, c->a[0].s->ptr, c->a[0].s->len);
    format[c->a[0].s->len] = '\0';
    struct tm tm;
    time_t shown = (time_t)(r->now_s + r->utc_offset_s);
    if (gmtime_r(&shown, &tm) == NULL) return jrun_type_error(r, "the date cannot be shown");
    tm.tm_gmtoff = r->utc_offset_s;
    tm.tm_zone = "";
    locale_t english = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (english == (locale_t)0) return jrun_fail(r, ERR_NOMEM, "no memory for a date");
    size_t n = strftime_l(text, sizeof text, format, &tm, english);
    freelocale(english);
    if (n == 0) text[0] = '\0'; /* empty, or too long to be meant */
    return jstr_copy(r, text);
}

static const struct jbuiltin items[] = {
    {"range", NULL, 0, function_range, 0},
    {"namespace", NULL, 0, function_namespace, 0},
    {"dict", NULL, 0, function_dict, 0},
    {"raise_exception", "message", 1, function_raise, 0},
    {"strftime_now", "format", 1, function_strftime_now, 0},
};
const struct jbuiltin_table jinja_functions = {items, ARRAY_LEN(items)};
