// config.h: a config.json as a stranger has it, beside the weights of a small model: what comes of reading it.
#ifndef LQ_TEST_CONFIG_H
#define LQ_TEST_CONFIG_H
#include "runtime/model/arch.h"
#include "tests/unit/test.h"
#include "tests/unit/tiny.h"

static char dir[] = "/tmp/lq-test-config-XXXXXX";

static inline bool config_begin(void) {
    lq_err err;
    if (!mkdtemp(dir)) return false;
    CHECK(tiny_model(dir, true, &err), "%s", err.text);
    return true;
}

static inline int config_end(void) {
    char rm[100];
    snprintf(rm, sizeof rm, "rm -rf %s", dir);
    return system(rm) ? 1 : test_end();
}

// With a generation_config.json beside it, or (NULL) without one.
static inline bool config_read(const char *config, const char *generation, lq_desc *d, lq_err *err) {
    lq_ckpt *c;
    char path[200];
    *err = (lq_err){0};
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    remove(path);
    if (!tiny_text(dir, "config.json", config) || (generation && !tiny_text(dir, "generation_config.json", generation)))
        return false;
    if (!lq_ckpt_open(dir, &c, err)) return false;
    const bool done = lq_desc_read(c, d, err);
    lq_ckpt_close(c);
    return done;
}

static inline lq_desc accepted_with(const char *config, const char *generation) {
    lq_desc d = {0};
    lq_err err;
    CHECK(config_read(config, generation, &d, &err), "%s: %s", config, err.text);
    return d;
}

static inline lq_desc accepted(const char *config) { return accepted_with(config, NULL); }

// Each of these configs is refused in one line that has the word behind it.
static inline void refused_all(const char *const (*rows)[2], size_t count) {
    for (size_t i = 0; i < count; i++) {
        lq_desc d;
        lq_err err;
        const bool done = config_read(rows[i][0], NULL, &d, &err);
        CHECK(!done && strstr(err.text, rows[i][1]) && !strchr(err.text, '\n'), "%s gave \"%s\"", rows[i][0],
              done ? "a description" : err.text);
        if (done) lq_desc_free(&d);
    }
}
#endif
