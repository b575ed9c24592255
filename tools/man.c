// man.c: man pages in troff, written from the verbs' tables: lq.1 of the program, lq-<verb>.1 of each verb.
#include "tools/verb.h"
#include <string.h>

// Text that troff takes literally.
static void put(FILE *f, const char *text) {
    for (const char *p = text; *p; p++) {
        if (*p == '\\') fputs("\\e", f);
        else if (*p == '-') fputs("\\-", f);
        else if (*p == '\n' && p[1] == '\n') fputs("\n.PP\n", f), p++;
        else if ((*p == '.' || *p == '\'') && (p == text || p[-1] == '\n')) fprintf(f, "\\&%c", *p);
        else fputc(*p, f);
    }
}

static void head(FILE *f, const char *page, const char *summary) {
    fprintf(f, ".TH %s 1 \"\" \"lq %s\" \"lq\"\n.SH NAME\n", page, LQ_VERSION);
    put(f, page);
    fputs(" \\- ", f);
    put(f, summary);
    fputc('\n', f);
}

static void option(FILE *f, const lq_opt *o) {
    fputs(".TP\n", f);
    if (o->letter) fprintf(f, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", f);
    put(f, o->name);
    fputs("\\fR", f);
    if (o->value) {
        fputs(" \\fI", f);
        put(f, o->value);
        fputs("\\fR", f);
    }
    fputc('\n', f);
    put(f, o->help);
    const char *name;
    for (size_t i = 0; o->choice && (name = o->choice(i)); i++) {
        fputs(i ? ", " : ": ", f);
        put(f, name);
    }
    fputc('\n', f);
}

// "lq-bench-serve": a page has no blank in its name.
static void page_name(const lq_verb *v, char *out, size_t size) {
    snprintf(out, size, "lq-%s", v->name);
    for (char *p = out; *p; p++)
        if (*p == ' ') *p = '-';
}

static void page_of_verb(FILE *f, const lq_verb *v) {
    char page[64];
    page_name(v, page, sizeof page);
    head(f, page, v->summary);
    fprintf(f, ".SH SYNOPSIS\n\\fBlq %s\\fR [\\fIOPTIONS\\fR] ", v->name);
    put(f, v->synopsis);
    fputs("\n.SH DESCRIPTION\n", f);
    put(f, v->detail ? v->detail : v->summary);
    fputs("\n.SH OPTIONS\n", f);
    const lq_opt *o;
    for (size_t i = 0; (o = lq_verb_opt(v, i)); i++) option(f, o);
    if (v->examples && v->examples[0]) {
        fputs(".SH EXAMPLES\n", f);
        for (size_t i = 0; v->examples[i] && v->examples[i + 1]; i += 2) {
            fputs(".TP\n\\fB", f);
            put(f, v->examples[i]);
            fputs("\\fR\n", f);
            put(f, v->examples[i + 1]);
            fputc('\n', f);
        }
    }
    fputs(".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage.\n.SH SEE ALSO\n\\fBlq\\fR(1)\n", f);
}

static void page_of_program(FILE *f) {
    head(f, "lq", "quantizes language models, measures what that cost, and serves them");
    fputs(".SH SYNOPSIS\n\\fBlq\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR] ...\n.SH VERBS\n", f);
    for (size_t i = 0; lq_verbs[i]; i++) {
        fprintf(f, ".TP\n\\fB%s\\fR\n", lq_verbs[i]->name);
        put(f, lq_verbs[i]->summary);
        fputc('\n', f);
    }
    fputs(".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage.\n.SH SEE ALSO\n", f);
    for (size_t i = 0; lq_verbs[i]; i++) {
        char page[64];
        page_name(lq_verbs[i], page, sizeof page);
        fputs("\\fB", f);
        put(f, page);
        fprintf(f, "\\fR(1)%s\n", lq_verbs[i + 1] ? "," : "");
    }
}

static int run(void *args, int argc, char **argv) {
    (void)args;
    const lq_verb *v = lq_verb_take(&argc, &argv);
    if (argc && !v) return lq_verb_unknown(*argv);
    if (argc) return lq_say_usage("man", "%s is one word too many", *argv);
    if (v) page_of_verb(stdout, v);
    else page_of_program(stdout);
    return 0;
}

static const char *const examples[] = {"lq man run | man -l -", "read the page of `lq run`", NULL};
const lq_verb lq_verb_man = {.name = "man", .synopsis = "[VERB]", .summary = "Print a man page", .examples = examples,
                             .size = sizeof(lq_common), .max_args = -1, .plain = true, .run = run};
