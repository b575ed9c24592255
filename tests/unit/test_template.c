// test_template.c: chat templates through lq.h: one that many threads render, what is kept between renders (nothing),
// errors, and how much stack the deepest recursion takes. What templates give is check_templates.py's to say.
#include <pthread.h>
#include "runtime/lq.h"
#include "tests/unit/test.h"

#define VAR(name, json) {name, json, sizeof json - 1}
static const lq_template_var chat[] = {
    VAR("messages", "[{\"role\":\"user\",\"content\":\"\\u00fc <b>\"},{\"role\":\"assistant\",\"content\":null,\"reasoning\":\"r\"}]"),
    VAR("bos_token", "\"<s>\""), VAR("add_generation_prompt", "true")};
enum { VARS = sizeof chat / sizeof *chat, THREADS = 4, ROUNDS = 200 };

static lq_template *parse(const char *text) {
    lq_template *t;
    lq_err err = {0};
    CHECK(lq_template_parse(text, strlen(text), "t", &t, &err), "%s: %s", text, err.text);
    return t;
}

static void gives(const char *text, const char *want) {
    lq_template *t = parse(text);
    lq_err err = {0};
    char *out = NULL;
    size_t n = 0;
    for (int round = 0; round < 2 && t; round++) {
        const bool done = lq_template_render(t, chat, VARS, &out, &n, &err);
        CHECK(done && n == strlen(want) && !strcmp(out, want), "%s: %s, not %s", text, done ? out : err.text, want);
        lq_free(out);
    }
    lq_template_close(t);
}

static void refuses(const char *text, const lq_template_var *vars, size_t count, const char *want) {
    lq_template *t = NULL;
    lq_err err = {0};
    char *out = NULL;
    size_t n = 0;
    const bool done = lq_template_parse(text, strlen(text), "t", &t, &err) &&
        lq_template_render(t, vars, count, &out, &n, &err);
    CHECK(!done && !out && !strcmp(err.text, want), "%s: %s, not %s", text, done ? out : err.text, want);
    lq_template_close(t);
    CHECK(!lq_template_parse(text, strlen(text), "t", &t, NULL) || !lq_template_render(t, vars, count, &out, &n, NULL),
          "%s without a place for the error", text);
    lq_template_close(t);
}

static void test_given(void) {
    gives("", "");
    gives("{{ bos_token }}{{ messages[0].content }}{{ tools }}{{ documents }}{{ add_generation_prompt }}", "<s>\u00fc <b>NoneNoneTrue");
    gives("{% for m in messages %}{{ m.keys() | list }}{% endfor %}",
          "['role', 'content']['thinking', 'role', 'reasoning', 'reasoning_content']");
    gives("{{ messages[1].reasoning_content }}{{ messages[1].content is defined }}", "rFalse");
    gives("{% set x = messages %}{{ x[0].update is defined }}{{ x | length }}", "False2");
}

// Integers of any size are told as they came; what is computed with them is a float.
static void test_large(void) {
    static const lq_template_var x = VAR("x", "[18446744073709551615,-123456789012345678901234567890,9223372036854775807,1e2]");
    lq_template *t = parse("{{ x | tojson }}{{ x }}{% for v in x %} {{ v }}{{ v ~ '' }}{{ '%s' % v }}{{ '{}'.format(v) }}{{ v is integer }}{{ v is float }}"
                           "{{ v | int }}{{ v > 5 }}{% endfor %} {{ x[0] + 0.5 }}");
    lq_err err = {0};
    char *out = NULL;
    size_t n;
    CHECK(lq_template_render(t, &x, 1, &out, &n, &err) &&
          !strcmp(out, "[18446744073709551615, -123456789012345678901234567890, 9223372036854775807, 100.0]"
                  "[18446744073709551615, -123456789012345678901234567890, 9223372036854775807, 100.0]"
                  " 18446744073709551615184467440737095516151844674407370955161518446744073709551615TrueFalse18446744073709551615True"
                  " -123456789012345678901234567890-123456789012345678901234567890-123456789012345678901234567890-123456789012345678901234567890TrueFalse"
                  "-123456789012345678901234567890False"
                  " 9223372036854775807922337203685477580792233720368547758079223372036854775807TrueFalse9223372036854775807True"
                  " 100.0100.0100.0100.0FalseTrue100True 1.8446744073709552e+19"), "%s", out ? out : err.text);
    lq_free(out);
    lq_template_close(t);
}

static void test_refused(void) {
    refuses("{{ x.y }}", chat, VARS, "t: line 1: 'x' is undefined");
    refuses("\n{% if 1 %}\n{{ raise_exception('a\nb') }}{% endif %}", chat, VARS, "t: line 3: a?b");
    refuses("a\n{% endif %}", chat, VARS, "t: line 2: Encountered unknown tag 'endif'.");
    refuses("\xff", chat, VARS, "t: it is not UTF-8");
    refuses("{{ '&amp; &nope;' | striptags }}", chat, VARS, "t: line 1: striptags: the entity &nope; is none that lq knows");
    refuses("x", (lq_template_var[]){VAR("messages", "[]")}, 1, "messages: a list of at least one message is expected");
    refuses("x", (lq_template_var[]){VAR("messages", "[{},5]")}, 1, "messages: message 1 is no object");
    refuses("x", (lq_template_var[]){VAR("documents", "[1]")}, 1, "documents: a list of objects is expected");
}

static void *many(void *arg) {
    const lq_template *t = arg;
    long bad = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char *out;
        size_t n;
        lq_err err;
        if (!lq_template_render(t, chat, VARS, &out, &n, &err) || strcmp(out, "0 user1 assistant5050")) bad++;
        lq_free(out);
    }
    return (void *)bad;
}

static void test_threads(void) {
    lq_template *t = parse("{% set ns = namespace(n=0) %}{% for m in messages %}{{ loop.index0 }} {{ m.role }}{% endfor %}"
                           "{% for i in range(101) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}");
    pthread_t id[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&id[i], NULL, many, t), "no thread");
    for (int i = 0; i < THREADS; i++) {
        void *bad = NULL;
        pthread_join(id[i], &bad);
        CHECK(!bad, "%ld renders in a thread were wrong", (long)bad);
    }
    lq_template_close(t);
}

// What recurses as deep as it may, each in its own way; a thread of the server has to have room for it.
static const char *const deep[] = {
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    ("{% macro m(n) %}{% set x | trim %}{% filter upper %}{% for i in [1] %}{% if 1 %}{{ [((m(n + 1) ~ '') or 1) | string] }}{% endif %}"
     "{% endfor %}{% endfilter %}{% endset %}{% endmacro %}{{ m(0) }}"),
    "{% macro m(n) %}{% call(x) m(n + 1) %}{{ caller() }}{% endcall %}{{ caller(1) }}{% endmacro %}{% call(y) m(1) %}{% endcall %}",
    "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "{% set ns = namespace(a=[]) %}{% for i in range(1000) %}{% set ns.a = [{'k': (ns.a,)}] %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(a=()) %}{% for i in range(1000) %}{% set ns.a = (ns.a,) %}{% endfor %}{{ {ns.a: 1} }}",
};

static void *deepest(void *arg) {
    (void)arg;
    long passed = 0;
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        lq_template *t = NULL;
        lq_err err = {0};
        char *out = NULL;
        size_t n;
        passed += lq_template_parse(deep[i], strlen(deep[i]), "t", &t, &err) &&
            !lq_template_render(t, NULL, 0, &out, &n, &err) &&
            (strstr(err.text, "recursion") || strstr(err.text, "too deep"));
        lq_free(out);
        lq_template_close(t);
    }
    char *text = malloc(600), *p = text; // parsing recurses too
    for (int i = 0; i < 100; i++) p += sprintf(p, "%s", i ? "[(" : "{{ [(");
    lq_template *t = NULL;
    lq_err err = {0};
    passed += !lq_template_parse(text, (size_t)(p - text), "t", &t, &err);
    free(text);
    return (void *)passed;
}

static void test_stack(void) {
#if defined(__SANITIZE_ADDRESS__)
    const size_t room = 8 << 20; // frames are larger there
#else
    const size_t room = 1 << 20;
#endif
    pthread_attr_t attr;
    pthread_t id;
    void *passed = NULL;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, room);
    CHECK(!pthread_create(&id, &attr, deepest, NULL), "no thread");
    pthread_join(id, &passed);
    CHECK((size_t)passed == sizeof deep / sizeof *deep + 1, "%zu of the deepest were refused", (size_t)passed);
    pthread_attr_destroy(&attr);
}

static void test_demo(void) {
    lq_template *t = NULL;
    lq_err err = {0};
    char *out = NULL;
    size_t n;
    const lq_template_var user = VAR("messages", "[{\"role\":\"user\",\"content\":\"a\"}]");
    CHECK(lq_template_open("calib_data/demo", NULL, &t, &err), "%s", err.text);
    const bool done = t && lq_template_render(t, &user, 1, &out, &n, &err);
    CHECK(done && !strcmp(out, "<|begin|><|user|>a"), "%s", out ? out : err.text);
    lq_free(out);
    lq_template_close(t);
    CHECK(!lq_template_open("calib_data/demo", "tool_use", &t, &err) && !t, "a template that is not there");
}

int main(void) {
    test_given();
    test_large();
    test_refused();
    test_threads();
    test_stack();
    test_demo();
    return test_end();
}
