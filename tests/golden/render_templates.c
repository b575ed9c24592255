// render_templates.c: renders what check_templates.py asks for. Each line of standard input is {"template": TEXT,
// "vars": {NAME: JSON AS A TEXT, ...}}; each line of the answer {"text": ...} or {"error": ...}.
#include "formats/json.h"
#include "runtime/lq.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARS = 64 };

static bool render(const cJSON *ask, char **text, size_t *n, lq_err *err) {
    const char *source = lq_json_str(ask, "template");
    lq_template *t = NULL;
    lq_template_var vars[VARS];
    size_t count = 0;
    const cJSON *one;
    if (!source) return lq_fail(err, LQ_E_USAGE, "no template was asked for");
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(ask, "vars"))
        if (count < VARS && one->valuestring) {
            vars[count].name = one->string;
            vars[count].json = one->valuestring;
            vars[count++].n = strlen(one->valuestring);
        }
    const bool done = lq_template_parse(source, strlen(source), "template", &t, err) &&
                      lq_template_render(t, vars, count, text, n, err);
    lq_template_close(t);
    return done;
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        cJSON *ask = NULL;
        lq_err err = {0};
        lq_text out = {0};
        char *text = NULL;
        size_t n = 0;
        const bool done = lq_json_parse(line, (size_t)len, (lq_json_limits){1 << 28, 64}, "the line", &ask, &err) &&
                          render(ask, &text, &n, &err);
        lq_text_fmt(&out, "{\"%s\":", done ? "text" : "error");
        if (done) lq_text_json(&out, text, n);
        else lq_text_json(&out, err.text, strlen(err.text));
        lq_text_fmt(&out, "}\n");
        fwrite(out.p, 1, out.n, stdout);
        fflush(stdout);
        lq_free(text);
        lq_text_free(&out);
        cJSON_Delete(ask);
    }
    free(line);
    return 0;
}
