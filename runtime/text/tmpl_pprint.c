// tmpl_pprint.c: the filter `pprint`: a value as Python's pprint writes it: on one line while it fits into 80 columns,
// else a line for each item, with the keys of dicts in order and long strings in parts.
#include "runtime/text/tmpl.h"
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 80 };

// --- one line ---

// Python has no order between kinds; pprint then takes that of their types' names.
static int kind_order(lq_tv v) {
    return v.kind == LQ_TV_NONE ? 0 : lq_tv_is_num(v) ? 1 : v.kind == LQ_TV_STR ? 2 : 3;
}

// The items of a dict, by key.
static bool sorted_items(lq_tm *m, const lq_tdict *d, lq_tv **key, lq_tv **value) {
    size_t n = 0;
    *key = lq_tm_take(m, d->n + 1, sizeof **key);
    *value = lq_tm_take(m, d->n + 1, sizeof **value);
    if (!*key || !*value) return false;
    for (int kind = 0; kind < 4; kind++) {
        const size_t from = n;
        for (size_t i = 0; i < d->n; i++) {
            if (kind_order(d->key[i]) != kind) continue;
            (*key)[n] = d->key[i];
            (*value)[n++] = d->value[i];
        }
        if (n - from > 1 && !lq_tv_sort(m, *value + from, *key + from, n - from, false)) return false;
    }
    return lq_tm_steps(m, n);
}

static bool put_plain(lq_tm *m, lq_tv v);

static bool put_plain_items(lq_tm *m, lq_tv v) {
    const bool list = v.kind == LQ_TV_LIST;
    bool done = lq_tm_puts(m, list ? "[" : "(");
    for (size_t i = 0; done && i < v.l->n; i++) done = (!i || lq_tm_puts(m, ", ")) && put_plain(m, v.l->p[i]);
    return done && lq_tm_puts(m, list ? "]" : v.l->n == 1 ? ",)" : ")");
}

static bool put_plain_dict(lq_tm *m, const lq_tdict *d) {
    lq_tv *key, *value;
    bool done = sorted_items(m, d, &key, &value) && lq_tm_puts(m, "{");
    for (size_t i = 0; done && i < d->n; i++)
        done = (!i || lq_tm_puts(m, ", ")) && put_plain(m, key[i]) && lq_tm_puts(m, ": ") && put_plain(m, value[i]);
    return done && lq_tm_puts(m, "}");
}

// What pprint takes apart; a group of `groupby` and markup it prints as they are.
static bool has_parts(lq_tv v) {
    return v.kind == LQ_TV_LIST || v.kind == LQ_TV_DICT || (v.kind == LQ_TV_TUPLE && !v.safe);
}

// repr(), but for the order of keys.
static bool put_plain(lq_tm *m, lq_tv v) {
    if (!has_parts(v)) return lq_tv_put_repr(m, v);
    if (!lq_tm_steps(m, 1)) return false;
    if (++m->values > LQ_TM_NESTED) return lq_tm_fail(m, "values are nested too deep");
    const bool done = v.kind == LQ_TV_DICT ? put_plain_dict(m, v.d) : put_plain_items(m, v);
    m->values--;
    return done;
}

// --- many lines ---

static bool put_line(lq_tm *m, const char *end, int64_t indent) {
    bool done = lq_tm_puts(m, end) && lq_tm_puts(m, "\n");
    for (int64_t i = 0; done && i < indent; i++) done = lq_tm_put(m, " ", 1);
    return done;
}

// indent: where the value begins; after: columns that are needed behind its end; level: 0 for the whole.
static bool put_value(lq_tm *m, lq_tv v, int64_t indent, int64_t after, int level);

static bool put_dict(lq_tm *m, const lq_tdict *d, int64_t indent, int64_t after, int level) {
    lq_tv *key, *value, text;
    bool done = sorted_items(m, d, &key, &value) && lq_tm_puts(m, "{");
    for (size_t i = 0; done && i < d->n; i++) {
        if (i && !put_line(m, ",", indent + 1)) return false;
        const size_t from = m->out_n;
        done = put_plain(m, key[i]) && lq_tm_cut(m, from, &text) && lq_tm_put(m, text.s->p, text.s->n) &&
               lq_tm_puts(m, ": ") &&
               put_value(m, value[i], indent + 3 + (int64_t)text.s->chars, i + 1 < d->n ? 1 : after + 1, level);
    }
    return done && lq_tm_puts(m, "}");
}

static bool put_list(lq_tm *m, lq_tv v, int64_t indent, int64_t after, int level) {
    const char *shut = v.kind == LQ_TV_LIST ? "]" : v.l->n == 1 ? ",)" : ")";
    bool done = lq_tm_puts(m, v.kind == LQ_TV_LIST ? "[" : "(");
    for (size_t i = 0; done && i < v.l->n; i++)
        done = (!i || put_line(m, ",", indent + 1)) &&
               put_value(m, v.l->p[i], indent + 1, i + 1 < v.l->n ? 1 : after + (int64_t)strlen(shut), level);
    return done && lq_tm_puts(m, shut);
}

// --- long strings ---

// The parts of a long string as they are written, each a line.
typedef struct parts { lq_tlist list; lq_tm *m; } parts;

static bool repr_of(lq_tm *m, const char *p, size_t n, lq_tv *out) {
    lq_tv s;
    const size_t from = m->out_n;
    return lq_tstr_part(m, p, n, &s) && lq_tv_put_repr(m, s) && lq_tm_cut(m, from, out);
}

static bool part_add(parts *to, const char *p, size_t n) {
    lq_tv text;
    return repr_of(to->m, p, n, &text) && lq_tv_list_add(to->m, &to->list, text);
}

// A word and the space behind it.
static size_t word_end(const char *p, size_t n) {
    size_t at = 0, len;
    while (at < n && !lq_tchar_is_space(lq_tstr_char(p + at, &len))) at += len;
    while (at < n && lq_tchar_is_space(lq_tstr_char(p + at, &len))) at += len;
    return at;
}

// A line that does not fit, in runs of words that do.
static bool words_split(parts *to, const char *p, size_t n, bool last, int64_t room, int64_t after) {
    size_t begin = 0;
    for (size_t at = 0, end; at < n; at = end) {
        lq_tv text;
        end = at + word_end(p + at, n - at);
        if (end == n && last) room -= after;
        if (!repr_of(to->m, p + begin, end - begin, &text)) return false;
        if ((int64_t)text.s->chars <= room) continue;
        if (at > begin && !part_add(to, p + begin, at - begin)) return false;
        begin = at;
    }
    return begin == n || part_add(to, p + begin, n - begin);
}

static bool put_str(lq_tm *m, lq_tv v, int64_t indent, int64_t after, int level) {
    parts to = {.m = m};
    const char *p = v.s->p, *end = p + v.s->n;
    if (level == 1) indent++, after++;
    for (size_t n, mark; p < end; p += n) {
        lq_tv text;
        n = lq_tstr_line_end(p, (size_t)(end - p), &mark);
        n += mark;
        const bool last = p + n == end;
        if (!repr_of(m, p, n, &text)) return false;
        const bool fits = (int64_t)text.s->chars <= WIDTH - indent - (last ? after : 0);
        if (fits ? !lq_tv_list_add(m, &to.list, text) : !words_split(&to, p, n, last, WIDTH - indent, after))
            return false;
    }
    const bool round = level == 1 && to.list.n > 1;
    bool done = !round || lq_tm_puts(m, "(");
    for (size_t i = 0; done && i < to.list.n; i++)
        done = (!i || put_line(m, "", indent)) && lq_tm_put(m, to.list.p[i].s->p, to.list.p[i].s->n);
    return done && (!round || lq_tm_puts(m, ")"));
}

static bool put_value(lq_tm *m, lq_tv v, int64_t indent, int64_t after, int level) {
    lq_tv text;
    const size_t from = m->out_n;
    if (!put_plain(m, v) || !lq_tm_cut(m, from, &text)) return false;
    const bool fits = (int64_t)text.s->chars <= WIDTH - indent - after;
    if (fits || (!has_parts(v) && (v.kind != LQ_TV_STR || v.safe || !v.s->n)))
        return lq_tm_put(m, text.s->p, text.s->n);
    if (++m->values > LQ_TM_NESTED) return lq_tm_fail(m, "values are nested too deep");
    const bool done = v.kind == LQ_TV_STR ? put_str(m, v, indent, after, level + 1)
                      : v.kind == LQ_TV_DICT ? put_dict(m, v.d, indent, after, level + 1)
                                             : put_list(m, v, indent, after, level + 1);
    m->values--;
    return done;
}

bool lq_tmpl_pprint(lq_tm *m, lq_tv v, const lq_targs *a, lq_tv *out) {
    const size_t from = m->out_n;
    if (a->n || a->named) return lq_tm_fail(m, "pprint takes no arguments");
    return put_value(m, v, 0, 0, 0) && lq_tm_cut(m, from, out);
}
