// lq.c: the program. Finds the verb, lets opts.c read its table, runs it. Owns the list of verbs; knows nothing of what
// they do. Exit status: 0 done, 1 failed, 2 wrong usage.
#include "tools/verb.h"
#include <stdlib.h>
#include <string.h>

const lq_verb *const lq_verbs[] = {&lq_verb_inspect, &lq_verb_quantize, &lq_verb_eval, &lq_verb_run, &lq_verb_serve,
                                   &lq_verb_batch, &lq_verb_bench, &lq_verb_bench_serve, &lq_verb_template,
                                   &lq_verb_tokenize, &lq_verb_version, &lq_verb_completion, &lq_verb_man,
                                   &lq_verb_help, NULL};

// How many of the words are the verb's name: 0 where they are not.
static int name_words(const lq_verb *v, int count, char **words) {
    const char *p = v->name;
    for (int i = 0; i < count && *p; i++) {
        const size_t n = strlen(words[i]);
        if (strncmp(p, words[i], n) != 0 || !n || (p[n] && p[n] != ' ')) return 0;
        p += n;
        if (!*p++) return i + 1;
    }
    return 0;
}

const lq_verb *lq_verb_take(int *count, char ***words) {
    const lq_verb *best = NULL;
    int most = 0;
    for (size_t i = 0; lq_verbs[i]; i++) {
        const int n = name_words(lq_verbs[i], *count, *words);
        if (n > most) most = n, best = lq_verbs[i];
    }
    *count -= most;
    *words += most;
    return best;
}

static const char *verb_name(const void *of, size_t i) {
    (void)of;
    return lq_verbs[i] ? lq_verbs[i]->name : NULL;
}

int lq_verb_unknown(const char *word) {
    const char *near = lq_opts_nearest(word, verb_name, NULL);
    if (near) return lq_say_usage(NULL, "unknown verb %s; did you mean %s?", word, near);
    return lq_say_usage(NULL, "unknown verb %s", word);
}

static int run_verb(const lq_verb *v, int argc, char **argv) {
    void *args = calloc(1, v->size);
    char **words = calloc((size_t)argc + 1, sizeof *words);
    int count = 0, status = 1;
    bool help = false;
    if (args && v->init) memcpy(args, v->init, v->size);
    if (!args || !words) fputs("lq: out of memory\n", stderr);
    else if ((status = lq_opts_parse(v, argc, argv, args, words, &count, &help)) == 0) {
        if (help) lq_help_print(v, stdout);
        else status = v->run(args, count, words);
    }
    if (args) lq_opts_free(v, args);
    free(args);
    free(words);
    // A result that could not be written (a full disk, a closed pipe) is a failure too.
    if ((fflush(stdout) || ferror(stdout)) && !status) {
        fputs("lq: standard output: could not be written\n", stderr);
        status = 1;
    }
    return status;
}

int main(int argc, char **argv) {
    lq_input_guard();
    if (argc < 2) {
        lq_help_print(NULL, stderr);
        return 2;
    }
    static char help[] = "help";
    char **words = argv + 1, *word = argv[1];
    int count = argc - 1;
    if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
        puts("lq " LQ_VERSION);
        return 0;
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) *words = word = help;
    if (word[0] == '-') return lq_say_usage(NULL, "%s: a verb comes first", word);
    const lq_verb *v = lq_verb_take(&count, &words);
    return v ? run_verb(v, count, words) : lq_verb_unknown(word);
}
