// help.c: the help of the program and of each verb, written from the verbs' tables, and the verb that prints it.
#include "tools/verb.h"
#include <string.h>

static void heading(FILE *f, const char *text) {
    lq_say_style(f, "1");
    fprintf(f, "%s", text);
    lq_say_style(f, "");
    fputc('\n', f);
}

// Words of `text` wrapped at 78 columns, each line after `indent` spaces; the cursor stands at column `at`.
static void wrap(FILE *f, const char *text, int indent, int at) {
    while (*text) {
        const char *end = text + strcspn(text, " \n");
        int width = (int)(end - text);
        if (at > indent && at + 1 + width > 78) {
            fprintf(f, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) at += fprintf(f, " ");
        else if (at < indent) fprintf(f, "%*s", indent - at, ""), at = indent;
        fprintf(f, "%.*s", width, text);
        at += width;
        text = *end ? end + 1 : end;
        if (end[0] == '\n' && *text == '\n') { // an empty line ends a paragraph, a single line feed is a space
            fprintf(f, "\n\n");
            at = 0;
            text++;
        }
    }
    fputc('\n', f);
}

static void print_option(FILE *f, const lq_opt *o) {
    enum { COLUMN = 26 };
    char left[96], help[320];
    char letter[8] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(left, sizeof left, "  %s--%s%s%s", letter, o->name, o->value ? " " : "", o->value ? o->value : "");
    size_t n = (size_t)snprintf(help, sizeof help, "%s", o->help);
    const char *name;
    for (size_t i = 0; o->choice && (name = o->choice(i)) && n < sizeof help; i++)
        n += (size_t)snprintf(help + n, sizeof help - n, "%s%s", i ? ", " : ": ", name);
    int at = fprintf(f, "%s", left);
    if (at > COLUMN - 2) fputc('\n', f), at = 0;
    fprintf(f, "%*s", COLUMN - at, "");
    wrap(f, help, COLUMN, COLUMN);
}

static void print_verb(const lq_verb *v, FILE *f) {
    heading(f, v->summary);
    fprintf(f, "\n  lq %s [OPTIONS]%s%s\n\n", v->name, *v->synopsis ? " " : "", v->synopsis);
    if (v->detail) {
        wrap(f, v->detail, 0, 0);
        fputc('\n', f);
    }
    heading(f, "Options");
    const lq_opt *o;
    for (size_t i = 0; (o = lq_verb_opt(v, i)); i++) print_option(f, o);
    if (!v->examples || !v->examples[0]) return;
    fputc('\n', f);
    heading(f, "Examples");
    for (size_t i = 0; v->examples[i] && v->examples[i + 1]; i += 2) {
        fprintf(f, "  %s\n      ", v->examples[i]);
        wrap(f, v->examples[i + 1], 6, 6);
    }
}

static void print_program(FILE *f) {
    heading(f, "lq " LQ_VERSION ": quantizes language models, measures what that cost, and serves them");
    fprintf(f, "\n  lq VERB [OPTIONS] ...\n\n");
    heading(f, "Verbs");
    for (size_t i = 0; lq_verbs[i]; i++) fprintf(f, "  %-12s%s\n", lq_verbs[i]->name, lq_verbs[i]->summary);
    fprintf(f, "\n`lq help VERB` explains one. Exit status: 0 done, 1 failed, 2 wrong usage.\n");
}

void lq_help_print(const lq_verb *v, FILE *f) {
    if (v) print_verb(v, f);
    else print_program(f);
}

static int run(void *args, int argc, char **argv) {
    (void)args;
    const lq_verb *v = lq_verb_take(&argc, &argv);
    if (argc && !v) return lq_verb_unknown(*argv);
    if (argc) return lq_say_usage("help", "%s is one word too many", *argv);
    lq_help_print(v, stdout);
    return 0;
}

static const char *const examples[] = {"lq help", "all verbs", "lq help run",
                                       "what `lq run` takes; `lq run --help` prints the same", NULL};
const lq_verb lq_verb_help = {.name = "help", .synopsis = "[VERB]", .summary = "Explain lq, or one verb",
                              .examples = examples,
                              .size = sizeof(lq_common), .max_args = -1, .plain = true, .run = run};
