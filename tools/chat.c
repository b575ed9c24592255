// chat.c: a conversation with a model: its messages, the commands that begin with a slash, and what the template makes
// of it all. Owns the messages. A model without a template gets each text as it is, and nothing is remembered.
#include "tools/run.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct chat {
    const lq_chat_opts *o;
    cJSON *messages;    // a list of {"role", "content"}; the system's, if there is one, is the first
    lq_reply answer;
    lq_lines past;
    bool over;
} chat;

// --- messages ---

static const char *role_of(const cJSON *message) { return lq_json_str(message, "role"); }
static cJSON *last_message(const chat *c) {
    return cJSON_GetArrayItem(c->messages, cJSON_GetArraySize(c->messages) - 1);
}

static bool has_role(const cJSON *message, const char *role) {
    return message && role_of(message) && !strcmp(role_of(message), role);
}

static cJSON *new_message(const char *role, const char *text) {
    cJSON *m = cJSON_CreateObject();
    if (m && cJSON_AddStringToObject(m, "role", role) && cJSON_AddStringToObject(m, "content", text)) return m;
    cJSON_Delete(m);
    return NULL;
}

static bool say(chat *c, const char *role, const char *text, lq_err *err) {
    cJSON *m = new_message(role, text);
    return (m && cJSON_AddItemToArray(c->messages, m)) || lq_fail(err, LQ_E_MEMORY, "no memory for the conversation");
}

// The system's message becomes this, or (empty) goes.
static bool set_system(chat *c, const char *text, lq_err *err) {
    if (has_role(cJSON_GetArrayItem(c->messages, 0), "system")) cJSON_DeleteItemFromArray(c->messages, 0);
    if (!text || !*text) return true;
    cJSON *m = new_message("system", text);
    return (m && cJSON_InsertItemInArray(c->messages, 0, m)) ||
           lq_fail(err, LQ_E_MEMORY, "no memory for the conversation");
}

static bool load(chat *c, const char *path, lq_err *err) {
    const lq_json_limits limits = {64u << 20, 64};
    char *text = NULL;
    size_t n;
    cJSON *list = NULL;
    const cJSON *m;
    bool done = lq_input_read(path, limits.bytes, &text, &n, err) &&
                lq_json_parse_exact(text, n, limits, path, &list, NULL, err);
    free(text);
    if (done && !cJSON_IsArray(list))
        done = lq_fail(err, LQ_E_FORMAT, "%s: is no list of messages, {\"role\": ..., \"content\": ...} each", path);
    cJSON_ArrayForEach(m, list)
        if (done && !role_of(m)) done = lq_fail(err, LQ_E_FORMAT, "%s: a message has no role", path);
    if (!done) cJSON_Delete(list);
    else {
        cJSON_Delete(c->messages);
        c->messages = list;
    }
    return done;
}

static bool save(const chat *c, const char *path, lq_err *err) {
    lq_text text = {0};
    const cJSON *m;
    cJSON_ArrayForEach(m, c->messages) { // a line each
        lq_text_fmt(&text, "%s\n", text.n ? "," : "[");
        lq_text_tree(&text, m);
    }
    lq_text_fmt(&text, "%s\n]\n", text.n ? "" : "[");
    FILE *f = text.failed ? NULL : fopen(path, "wb");
    bool done = f && fwrite(text.p, 1, text.n, f) == text.n;
    if (f && fclose(f)) done = false;
    free(text.p);
    return done || lq_fail(err, LQ_E_IO, "%s: the conversation cannot be written", path);
}

// --- an answer ---

enum { VARS = 2 };

// The conversation as the template has it, up to where the answer begins.
static bool render(const chat *c, char **text, size_t *n, lq_err *err) {
    lq_template_var *vars = calloc(VARS + c->o->var_count, sizeof *vars);
    lq_text messages = {0};
    lq_text_tree(&messages, c->messages);
    bool done = (vars && !messages.failed) || lq_fail(err, LQ_E_MEMORY, "no memory for the conversation");
    if (done) {
        vars[0] = (lq_template_var){"messages", messages.p, messages.n};
        vars[1] = (lq_template_var){"add_generation_prompt", "true", 4};
        if (c->o->var_count) memcpy(vars + VARS, c->o->vars, c->o->var_count * sizeof *vars);
    }
    done = done && lq_template_render(c->o->tmpl, vars, VARS + c->o->var_count, text, n, err);
    free(vars);
    free(messages.p);
    return done;
}

static void tell(const chat *c) {
    if (c->o->draw) lq_reply_draws(&c->answer);
    if (!c->o->quiet) lq_reply_summary(&c->answer);
}

// What the model says to the messages; its answer is the next of them.
static bool answer(chat *c, double loaded, lq_err *err) {
    char *text = NULL;
    size_t n;
    lq_reply_free(&c->answer);
    c->answer.loaded = loaded;
    bool done = render(c, &text, &n, err);
    if (done) {
        done = lq_reply_get(&c->answer, c->o->model, c->o->engine, c->o->ask, text, n, LQ_TOK_PARSE, err);
        lq_reply_end(&c->answer);
    }
    lq_free(text);
    lq_text_add(&c->answer.text, "", 1); // its end
    c->answer.text.n--;
    return done && say(c, "assistant", c->answer.text.p ? c->answer.text.p : "", err);
}

static bool begin(chat *c, const lq_chat_opts *o, lq_err *err) {
    *c = (chat){.o = o, .messages = cJSON_CreateArray()};
    c->answer = (lq_reply){.quiet = o->json, .special = o->special, .keep_draws = o->draw};
    if (!c->messages) return lq_fail(err, LQ_E_MEMORY, "no memory for a conversation");
    return (!o->messages || load(c, o->messages, err)) && (!o->system || set_system(c, o->system, err));
}

static void end(chat *c) {
    cJSON_Delete(c->messages);
    lq_reply_free(&c->answer);
    lq_lines_free(&c->past);
}

// A text that is continued as it is.
static bool complete(chat *c, const char *prompt, size_t n, double loaded, lq_err *err) {
    lq_reply_free(&c->answer);
    c->answer.loaded = loaded;
    const int flags = c->o->no_special ? 0 : LQ_TOK_SPECIAL | LQ_TOK_PARSE;
    const bool done = lq_reply_get(&c->answer, c->o->model, c->o->engine, c->o->ask, prompt, n, flags, err);
    lq_reply_end(&c->answer);
    return done;
}

int lq_chat_once(const lq_chat_opts *o, const char *prompt, size_t n) {
    chat c;
    lq_err err = {0};
    int status = 0;
    bool done = begin(&c, o, &err);
    lq_input_catch();
    if (done && o->tmpl) {
        char *own = prompt ? strndup(prompt, n) : NULL;
        if (prompt && !own) done = lq_fail(&err, LQ_E_MEMORY, "no memory for the prompt");
        done = done && (!own || say(&c, "user", own, &err)) && answer(&c, o->loaded, &err);
        free(own);
    } else done = done && complete(&c, prompt ? prompt : "", n, o->loaded, &err);
    if (done && o->json) status = lq_reply_json(&c.answer);
    else if (done) tell(&c);
    end(&c);
    return done ? status : lq_say_error(&err);
}

// --- commands ---

typedef struct command {
    const char *name, *value, *help; // value: what stands behind it; NULL: nothing
    bool (*run)(chat *c, const char *value, lq_err *err);
} command;
static const command commands[];

static bool do_help(chat *c, const char *value, lq_err *err) {
    (void)c, (void)value, (void)err;
    for (const command *k = commands; k->name; k++) {
        char left[40];
        snprintf(left, sizeof left, "/%s %s", k->name, k->value ? k->value : "");
        lq_say_line(stderr, "  %-16s %s", left, k->help);
    }
    lq_say_line(stderr, "Alt-Enter, Ctrl-J or a backslash at the end begins a new line; Ctrl-C stops an answer; Ctrl-D leaves.");
    return true;
}

static bool do_reset(chat *c, const char *value, lq_err *err) {
    (void)value, (void)err;
    const int keep = has_role(cJSON_GetArrayItem(c->messages, 0), "system");
    while (cJSON_GetArraySize(c->messages) > keep) cJSON_DeleteItemFromArray(c->messages, keep);
    return true;
}

static bool do_system(chat *c, const char *value, lq_err *err) {
    const cJSON *first = cJSON_GetArrayItem(c->messages, 0);
    if (*value) return set_system(c, strcmp(value, "-") ? value : "", err);
    const char *text = has_role(first, "system") ? lq_json_str(first, "content") : NULL;
    lq_say_line(stderr, "%s", text ? text : "there is no system prompt; /system TEXT sets one");
    return true;
}

static bool do_save(chat *c, const char *value, lq_err *err) {
    if (!*value) return lq_fail(err, LQ_E_USAGE, "/save FILE: the file is missing");
    if (!access(value, F_OK)) return lq_fail(err, LQ_E_USAGE, "%s: is there already", value);
    if (!save(c, value, err)) return false;
    lq_say_line(stderr, "%s: %d messages", value, cJSON_GetArraySize(c->messages));
    return true;
}

static bool do_load(chat *c, const char *value, lq_err *err) {
    if (!*value) return lq_fail(err, LQ_E_USAGE, "/load FILE: the file is missing");
    if (!load(c, value, err)) return false;
    lq_say_line(stderr, "%s: %d messages", value, cJSON_GetArraySize(c->messages));
    return true;
}

// Takes the last answer back, and (`question`) what it answered.
static void take_back(chat *c, bool question) {
    while (last_message(c) && !has_role(last_message(c), "user") && !has_role(last_message(c), "system"))
        cJSON_DeleteItemFromArray(c->messages, cJSON_GetArraySize(c->messages) - 1);
    if (question && has_role(last_message(c), "user"))
        cJSON_DeleteItemFromArray(c->messages, cJSON_GetArraySize(c->messages) - 1);
}

static bool do_undo(chat *c, const char *value, lq_err *err) {
    (void)value, (void)err;
    take_back(c, true);
    lq_say_line(stderr, "%d messages are left", cJSON_GetArraySize(c->messages));
    return true;
}

static bool do_again(chat *c, const char *value, lq_err *err) {
    (void)value;
    take_back(c, false);
    if (!has_role(last_message(c), "user")) return lq_fail(err, LQ_E_USAGE, "nothing was asked so far");
    if (!answer(c, 0, err)) return false;
    tell(c);
    return true;
}

static bool do_draw(chat *c, const char *value, lq_err *err) {
    (void)value, (void)err;
    if (c->answer.draws) lq_reply_draws(&c->answer);
    c->answer.keep_draws = true;
    if (!c->answer.draws) lq_say_line(stderr, "kept from the next answer on; then /draw shows it");
    return true;
}

static bool do_quit(chat *c, const char *value, lq_err *err) {
    (void)value, (void)err;
    c->over = true;
    return true;
}

static const command commands[] = {
    {"help", NULL, "this list", do_help},
    {"reset", NULL, "forget the conversation, but for the system prompt", do_reset},
    {"system", "TEXT", "change the system prompt (-: none); without TEXT show it", do_system},
    {"again", NULL, "another answer to the last question", do_again},
    {"undo", NULL, "take the last question and its answer back", do_undo},
    {"save", "FILE", "write the conversation, as `lq template --messages` reads it", do_save},
    {"load", "FILE", "go on with a conversation that was saved", do_load},
    {"draw", NULL, "how sure the model was of the last answer's tokens", do_draw},
    {"quit", NULL, "leave", do_quit},
    {NULL, NULL, NULL, NULL},
};

static bool obey(chat *c, const char *text, lq_err *err) {
    const size_t n = strcspn(text + 1, " \n");
    const char *value = text + 1 + n;
    while (*value == ' ') value++;
    for (const command *k = commands; k->name; k++)
        if (strlen(k->name) == n && !strncmp(k->name, text + 1, n)) return k->run(c, value, err);
    return lq_fail(err, LQ_E_USAGE, "%.*s: there is no such command; /help lists them, // begins a text with a slash",
                   (int)n + 1, text);
}

static bool turn(chat *c, const char *text, lq_err *err) {
    if (text[0] == '/' && text[1] != '/') return obey(c, text, err);
    if (text[0] == '/') text++;
    if (!c->o->tmpl) {
        if (!complete(c, text, strlen(text), 0, err)) return false;
    } else if (!say(c, "user", text, err)) return false;
    else if (!answer(c, 0, err)) {
        take_back(c, true);
        return false;
    }
    tell(c);
    return true;
}

int lq_chat_talk(const lq_chat_opts *o) {
    chat c;
    lq_err err = {0};
    if (!begin(&c, o, &err)) {
        end(&c);
        return lq_say_error(&err);
    }
    if (!o->quiet) {
        lq_model_info info;
        lq_model_describe(o->model, &info);
        lq_say_line(stderr, "%s, %s, %s, loaded in %s. %s /help lists commands.", info.arch, info.quant, info.device,
                    lq_say_time(o->loaded), o->tmpl ? "A conversation:" : "Texts are continued as they are:");
    }
    for (int stops = 0; !c.over;) {
        char *text;
        const lq_line_end how = lq_line_read(&c.past, "> ", &text);
        if (how == LQ_LINE_OVER || (how == LQ_LINE_STOPPED && stops++)) break;
        if (how == LQ_LINE_STOPPED) lq_say_line(stderr, "Ctrl-C once more, or Ctrl-D, leaves");
        else stops = 0;
        err = (lq_err){0};
        if (text && *text && !turn(&c, text, &err)) lq_say_error(&err);
        free(text);
    }
    end(&c);
    return 0;
}
