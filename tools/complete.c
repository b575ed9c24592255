// complete.c: completion for bash and zsh, written from the same tables that parse. What it prints is sourced by a
// shell; it asks nothing of lq at run time.
#include "tools/verb.h"
#include <string.h>

// "a|b|c" as "a b c".
static void print_choices(FILE *f, const char *choices) {
    for (const char *p = choices; *p; p++) fputc(*p == '|' ? ' ' : *p, f);
}

static void print_values(FILE *f, const lq_opt *o) {
    const char *name;
    for (size_t i = 0; (name = o->choice(i)); i++) fprintf(f, "%s%s", i ? " " : "", name);
}

static bool is_verb_word(const lq_verb *v) { return strstr(v->synopsis, "VERB") != NULL; }
static bool is_choice_word(const lq_verb *v) { return strchr(v->synopsis, '|') != NULL; }

// The second word of a verb below another one, NULL: it has one word.
static const char *below(const lq_verb *v) {
    const char *blank = strchr(v->name, ' ');
    return blank ? blank + 1 : NULL;
}

static void print_verbs(FILE *f) {
    for (size_t i = 0; lq_verbs[i]; i++)
        if (!below(lq_verbs[i])) fprintf(f, "%s%s", i ? " " : "", lq_verbs[i]->name);
}

// Calls each verb below v.
static const lq_verb *next_below(const lq_verb *v, size_t *i) {
    const size_t n = strlen(v->name);
    for (const lq_verb *at; (at = lq_verbs[*i]);) {
        ++*i;
        if (at != v && !strncmp(at->name, v->name, n) && at->name[n] == ' ') return at;
    }
    return NULL;
}

// --- bash ---

// The case that completes the value of an option.
static void bash_value(FILE *f, const lq_verb *v, const lq_opt *o) {
    if (o->kind == LQ_OPT_FLAG) return;
    fprintf(f, "        '%s':--%s", v->name, o->name);
    if (o->letter) fprintf(f, "|'%s':-%c", v->name, o->letter);
    fprintf(f, ") ");
    if (o->kind == LQ_OPT_CHOICE) {
        fprintf(f, "COMPREPLY=($(compgen -W '");
        print_values(f, o);
        fprintf(f, "' -- \"$cur\"))");
    } else if (o->kind == LQ_OPT_FILE) fprintf(f, "_lq_files \"$cur\"");
    else fprintf(f, ":");
    fprintf(f, "; return ;;\n");
}

static void bash_words(FILE *f, const lq_verb *v) {
    fprintf(f, "        '%s') opts='", v->name);
    const lq_opt *o;
    for (size_t i = 0; (o = lq_verb_opt(v, i)); i++) fprintf(f, "%s--%s", i ? " " : "", o->name);
    fprintf(f, "'");
    if (is_verb_word(v) || is_choice_word(v)) {
        fprintf(f, "; words='");
        if (is_verb_word(v)) print_verbs(f);
        else print_choices(f, v->synopsis);
        fprintf(f, "'");
    }
    size_t i = 0;
    for (const lq_verb *at; (at = next_below(v, &i));)
        fprintf(f, "; ((COMP_CWORD == 2)) && more='%s'", below(at));
    fprintf(f, " ;;\n");
}

static void print_bash(FILE *f) {
    fprintf(f, "# bash completion of lq %s, written by `lq completion bash`\n"
               "# a line is a name, so that one may have spaces\n"
               "_lq_files() { compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$1\"); }\n_lq() {\n",
               LQ_VERSION);
    fprintf(f, "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} opts= words= more=\n"
               "    COMPREPLY=()\n"
               "    # bash cuts --name=value into three words\n"
               "    if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
               "    if ((COMP_CWORD == 1)); then COMPREPLY=($(compgen -W '");
    print_verbs(f);
    fprintf(f, " --help --version' -- \"$cur\")); return; fi\n");
    for (size_t i = 0; lq_verbs[i]; i++)
        if (below(lq_verbs[i]))
            fprintf(f, "    ((COMP_CWORD > 2)) && [[ \"$verb ${COMP_WORDS[2]}\" == '%s' ]] && verb='%s'\n",
                    lq_verbs[i]->name, lq_verbs[i]->name);
    fprintf(f, "    case $verb:$prev in\n");
    const lq_opt *o;
    for (size_t k = 0; lq_verbs[k]; k++)
        for (size_t i = 0; (o = lq_verb_opt(lq_verbs[k], i)); i++) bash_value(f, lq_verbs[k], o);
    fprintf(f, "    esac\n    case $verb in\n");
    for (size_t k = 0; lq_verbs[k]; k++) bash_words(f, lq_verbs[k]);
    fprintf(f, "    esac\n"
               "    if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$opts\" -- \"$cur\"))\n"
               "    elif [[ $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
               "    else\n        _lq_files \"$cur\"\n"
               "        [[ $more ]] && COMPREPLY+=($(compgen -W \"$more\" -- \"$cur\"))\n    fi\n"
               "}\ncomplete -F _lq lq\n");
}

// --- zsh ---

// Text inside a single-quoted _arguments spec: brackets, colons and quotes would end it.
static void zsh_text(FILE *f, const char *text) {
    for (const char *p = text; *p; p++) {
        if (*p == '\'') fprintf(f, "'\\''");
        else if (strchr("[]:\\", *p)) fprintf(f, "\\%c", *p);
        else fputc(*p, f);
    }
}

static void zsh_value(FILE *f, const lq_opt *o) {
    if (o->kind == LQ_OPT_FLAG) return;
    fputc(':', f);
    zsh_text(f, o->value ? o->value : "value");
    fputc(':', f);
    if (o->kind == LQ_OPT_FILE) fprintf(f, "_files");
    else if (o->kind == LQ_OPT_CHOICE) {
        fputc('(', f);
        print_values(f, o);
        fputc(')', f);
    } else fputc(' ', f);
}

static void zsh_option(FILE *f, const lq_opt *o) {
    const char *many = o->kind == LQ_OPT_LIST ? "*" : "", *eq = o->kind == LQ_OPT_FLAG ? "" : "=";
    fprintf(f, "                '%s--%s%s[", many, o->name, eq);
    zsh_text(f, o->help);
    fputc(']', f);
    zsh_value(f, o);
    fprintf(f, "' \\\n");
    if (!o->letter) return;
    fprintf(f, "                '%s-%c%s[", many, o->letter, o->kind == LQ_OPT_FLAG ? "" : "+");
    zsh_text(f, o->help);
    fputc(']', f);
    zsh_value(f, o);
    fprintf(f, "' \\\n");
}

static void zsh_verb(FILE *f, const lq_verb *v) {
    fprintf(f, "        '%s')\n            _arguments -s -S \\\n", v->name);
    const lq_opt *o;
    for (size_t i = 0; (o = lq_verb_opt(v, i)); i++) zsh_option(f, o);
    fprintf(f, "                '*:");
    zsh_text(f, *v->synopsis ? v->synopsis : "nothing");
    fputc(':', f);
    if (is_verb_word(v) || is_choice_word(v)) {
        fputc('(', f);
        if (is_verb_word(v)) print_verbs(f);
        else print_choices(f, v->synopsis);
        fputc(')', f);
    } else fprintf(f, "%s", *v->synopsis ? "_files" : " ");
    fprintf(f, "' ;;\n");
}

static void print_zsh(FILE *f) {
    fprintf(f, "#compdef lq\n# zsh completion of lq %s, written by `lq completion zsh`\n_lq() {\n    local -a verbs\n    verbs=(\n", LQ_VERSION);
    for (size_t i = 0; lq_verbs[i]; i++) {
        if (below(lq_verbs[i])) continue;
        fprintf(f, "        '%s:", lq_verbs[i]->name);
        zsh_text(f, lq_verbs[i]->summary);
        fprintf(f, "'\n");
    }
    fprintf(f, "    )\n    if ((CURRENT == 2)); then _describe verb verbs; return; fi\n"
               "    local verb=$words[2]\n    shift words\n    ((CURRENT--))\n");
    for (size_t i = 0; lq_verbs[i]; i++)
        if (below(lq_verbs[i]))
            fprintf(f, "    if ((CURRENT > 2)) && [[ \"$verb $words[2]\" == '%s' ]]; then verb='%s'; shift words; ((CURRENT--)); fi\n",
                    lq_verbs[i]->name, lq_verbs[i]->name);
    fprintf(f, "    case $verb in\n");
    for (size_t i = 0; lq_verbs[i]; i++) zsh_verb(f, lq_verbs[i]);
    fprintf(f, "    esac\n}\nif [[ $funcstack[1] == _lq ]]; then _lq \"$@\"; else compdef _lq lq; fi\n");
}

static int run(void *args, int argc, char **argv) {
    (void)args;
    (void)argc;
    if (!strcmp(argv[0], "bash")) print_bash(stdout);
    else if (!strcmp(argv[0], "zsh")) print_zsh(stdout);
    else return lq_say_usage("completion", "%s is none of bash|zsh", argv[0]);
    return 0;
}

static const char *const examples[] = {"source <(lq completion bash)", "complete lq's verbs and options in this shell",
                                       "lq completion zsh > ~/.zfunc/_lq",
                                       "the same for zsh, where ~/.zfunc is in fpath", NULL};
const lq_verb lq_verb_completion = {.name = "completion", .synopsis = "bash|zsh",
                                    .summary = "Print completion for a shell",
                                    .examples = examples, .size = sizeof(lq_common), .min_args = 1, .max_args = 1,
                                    .plain = true, .run = run};
