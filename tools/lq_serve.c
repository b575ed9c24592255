// lq_serve.c: the verb that serves a model over HTTP: arguments, the key, signals, the lines a person sees. The server
// is lq_serve's. Refuses a key on the command line, where every process of the machine could read it.
#include "tools/verb.h"
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct serve_args {
    lq_common common;
    lq_model_args model;
    lq_answer_args answer;
    const char *host, *key_file, *admin_file, *log, *log_format, *tls_cert, *tls_key;
    lq_list allow, cors;
    int64_t port, max_queue, age, deadline, max_connections, per_address, rate, drain;
    bool priorities, no_page;
    FILE *log_to; // NULL: nowhere
} serve_args;

// --- what a person sees ---

static void on_ready(void *arg, const char *host, int port) {
    const serve_args *a = arg;
    // A wildcard is no address to call.
    const char *call = !strcmp(host, "0.0.0.0") || !strcmp(host, "::") ? "localhost" : host;
    char url[320];
    lq_text t = {0};
    snprintf(url, sizeof url, strchr(call, ':') ? "%s://[%s]:%d" : "%s://%s:%d", a->tls_cert ? "https" : "http", call,
             port);
    if (a->common.json) {
        lq_text_fmt(&t, "{\"url\":");
        lq_text_json(&t, url, strlen(url));
        lq_text_fmt(&t, ",\"port\":%d,\"model\":", port);
        lq_text_json(&t, a->answer.name, strlen(a->answer.name));
        lq_text_fmt(&t, "}");
        lq_say_json(&t);
    } else if (!a->common.quiet) {
        lq_text_json(&t, a->answer.name, strlen(a->answer.name));
        lq_say_line(stdout, "%s is served at %s", a->answer.name, url);
        lq_say_line(stdout, "  curl %s/v1/completions -H 'Content-Type: application/json' \\", url);
        lq_say_line(stdout, "    -d '{\"model\": %.*s, \"prompt\": \"Once upon a time\", \"max_tokens\": 40}'",
                    (int)t.n, t.p ? t.p : "");
        lq_text_free(&t);
        if (!a->no_page) lq_say_line(stdout, "In a browser: %s/", url);
        puts("Ctrl-C lets what runs come to its end and stops; again: at once.");
    }
    fflush(stdout);
}

static void on_log(void *arg, const char *line) {
    const serve_args *a = arg;
    if (!a->log_to) return;
    lq_say_line(a->log_to, "%s", line);
    fflush(a->log_to);
}

static void on_signal(int sig) {
    (void)sig;
    lq_serve_stop();
}

static void signals_catch(void) {
    struct sigaction stop = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN}, was;
    sigemptyset(&stop.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    // What nohup wants ignored stays so.
    if (sigaction(SIGHUP, NULL, &was) == 0 && was.sa_handler != SIG_IGN) sigaction(SIGHUP, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

// --- what is asked ---

static const char *const log_formats[] = {"text", "json"};
static const char *log_format_name(size_t i) { return i < 2 ? log_formats[i] : NULL; }

// Words of a text, in place.
typedef struct words { char *text; const char **p; int n; } words;

static void words_free(words *w) {
    free(w->text);
    free(w->p);
}

static bool words_read(words *w, const char *between, lq_err *err) {
    if (!w->text) return true;
    if (!(w->p = calloc(strlen(w->text) + 1, sizeof *w->p))) return lq_fail(err, LQ_E_MEMORY, "out of memory");
    for (char *save, *p = strtok_r(w->text, between, &save); p; p = strtok_r(NULL, between, &save)) w->p[w->n++] = p;
    return true;
}

// The lines of the file, or what the environment has.
static bool keys_read(const char *file, const char *name, words *keys, lq_err *err) {
    size_t n = 0;
    if (!file) {
        const char *env = getenv(name);
        keys->text = env && *env ? strdup(env) : NULL;
        if (env && *env && !keys->text) return lq_fail(err, LQ_E_MEMORY, "out of memory");
    } else if (!lq_input_read(file, 1 << 20, &keys->text, &n, err)) return false;
    if (!words_read(keys, "\r\n", err)) return false;
    return !file || keys->n || lq_fail(err, LQ_E_USAGE, "%s: expected a key on each line", file);
}

static void files_allow(void) { // a connection is a descriptor
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

// scheme://host[:port], as a browser names where a page is from.
static bool is_origin(const char *p) {
#define WORD "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."
    const size_t scheme = strspn(p, WORD "+");
    if (!scheme || strncmp(p + scheme, "://", 3) != 0) return false;
    p += scheme + 3;
    const bool six = *p == '[';
    const size_t host = six ? 1 + strspn(p + 1, "0123456789abcdefABCDEF:.") : strspn(p, WORD "_");
#undef WORD
    if (host < 1 + (size_t)six || (six && p[host] != ']')) return false;
    p += host + six;
    const size_t port = *p == ':' ? strspn(p + 1, "0123456789") : 0;
    return port ? port < 6 && !p[1 + port] : !*p;
}

static int origins_check(const lq_list *l) {
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->p[i], "*") != 0 && !is_origin(l->p[i]))
            return lq_say_usage("serve", "--cors: %s is no origin like https://a.example:8443, nor *", l->p[i]);
    return 0;
}

static bool is_loopback(const char *host) {
    return !host || !strcmp(host, "localhost") || !strcmp(host, "::1") || !strncmp(host, "127.", 4);
}

static bool serve(const char *path, serve_args *a, const lq_serve_opts *so, lq_err *err) {
    lq_model *m = NULL;
    lq_engine *e = NULL;
    const lq_model_opts mo = lq_model_args_opts(&a->model);
    lq_engine_opts eo = lq_answer_args_opts(&a->answer);
    eo.max_queue = (int)a->max_queue;
    eo.age_ms = (int)a->age * 1000;
    bool done = lq_serve_try(so, err) && lq_model_open(path, &mo, &m, err) && lq_engine_open(m, &eo, &e, err) &&
                lq_engine_warm(e, err);
    if (done) {
        if (!a->common.quiet) lq_ctx_warn("serve", m);
        signals_catch();
        files_allow();
        done = lq_serve(m, e, so, err);
    }
    if (e) lq_engine_close(e);
    if (m) lq_model_close(m);
    return done;
}

static int run(void *args, int argc, char **argv) {
    serve_args *a = args;
    lq_err err = {0};
    char *texts[2];
    words keys = {0}, admins = {0};
    (void)argc;
    if (lq_model_args_check("serve", &a->model) || lq_answer_args_check("serve", &a->answer) || origins_check(&a->cors))
        return 2;
    if (!a->tls_cert != !a->tls_key)
        return lq_say_usage("serve", "--tls-cert and --tls-key: expected both, or neither");
    bool done = lq_answer_args_read(&a->answer, argv[0], texts, &err) &&
                keys_read(a->key_file, "LQ_API_KEY", &keys, &err) &&
                keys_read(a->admin_file, "LQ_ADMIN_KEY", &admins, &err);
    a->log_to = a->common.quiet ? NULL : stderr;
    if (done && a->log && strcmp(a->log, "-") != 0 && !(a->log_to = fopen(a->log, "a")))
        done = lq_fail(&err, LQ_E_IO, "%s: %s", a->log, strerror(errno));
    if (done && !keys.n && !is_loopback(a->host) && !a->common.quiet)
        lq_say_line(stderr, "lq serve: whoever reaches %s may use this server: no key was given (--api-key-file)",
                    a->host);
    const lq_serve_opts so = {.host = a->host, .port = a->port ? (int)a->port : -1, .name = a->answer.name,
                              .keys = keys.p,
                              .key_count = keys.n, .admin_keys = admins.p, .admin_key_count = admins.n,
                              .rate = (int)a->rate, .tls_cert = a->tls_cert, .tls_key = a->tls_key,
                              .hosts = a->allow.p, .host_count = (int)a->allow.n,
                              .origins = a->cors.p, .origin_count = (int)a->cors.n,
                              .max_connections = (int)a->max_connections,
                              .max_per_address = (int)a->per_address, .max_body = a->answer.max_body,
                              .priorities = a->priorities, .no_page = a->no_page,
                              .chat_template = a->answer.chat_template,
                              .drain_seconds = (int)a->drain, .deadline_seconds = (int)a->deadline,
                              .ready = on_ready, .log = on_log,
                              .log_json = a->log_format && !strcmp(a->log_format, "json"), .arg = a};
    done = done && serve(argv[0], a, &so, &err);
    if (a->log_to && a->log_to != stderr) fclose(a->log_to);
    words_free(&keys);
    words_free(&admins);
    for (int i = 0; i < 2; i++) free(texts[i]);
    return done ? 0 : lq_say_error(&err);
}

static const serve_args init = {.port = 8080};
static const lq_opt opts[] = {
    {"host", 0, LQ_OPT_TEXT, offsetof(serve_args, host), "ADDR",
     "address to listen on (default: 127.0.0.1, this machine alone)", NULL, 0, 0},
    {"port", 'p', LQ_OPT_INT, offsetof(serve_args, port), "N",
     "port to listen on (default: 8080); 0: any free one, which the first line tells", NULL, 0, 65535},
    {"api-key-file", 0, LQ_OPT_FILE, offsetof(serve_args, key_file), "FILE",
     "clients must send a line of this file as a bearer token; clients of several keys take turns", NULL, 0, 0},
    {"admin-key-file", 0, LQ_OPT_FILE, offsetof(serve_args, admin_file), "FILE",
     "who sends a line of this file may drain the server (POST /admin/drain, /admin/resume)", NULL, 0, 0},
    {"rate-limit", 0, LQ_OPT_INT, offsetof(serve_args, rate), "N",
     "requests a minute that each key may make (default: any number)", NULL, 1, 1000000},
    {"tls-cert", 0, LQ_OPT_FILE, offsetof(serve_args, tls_cert), "FILE",
     "serve https with this certificate (PEM, its chain behind it)", NULL, 0, 0},
    {"tls-key", 0, LQ_OPT_FILE, offsetof(serve_args, tls_key), "FILE", "and its key (PEM)", NULL, 0, 0},
    {"allow-host", 0, LQ_OPT_LIST, offsetof(serve_args, allow), "NAME",
     "where no key is wanted: a name by which clients may call this server", NULL, 0, 0},
    {"cors", 0, LQ_OPT_LIST, offsetof(serve_args, cors), "ORIGIN",
     "whose pages may use this server from a browser (https://a.example); *: any", NULL, 0, 0},
    {"no-page", 0, LQ_OPT_FLAG, offsetof(serve_args, no_page), NULL,
     "serve no page at /: the API alone", NULL, 0, 0},
    {"max-queue", 0, LQ_OPT_INT, offsetof(serve_args, max_queue), "N",
     "requests that may wait; more get a 429 (default: 1024)", NULL, 1, 1 << 20},
    {"priorities", 0, LQ_OPT_FLAG, offsetof(serve_args, priorities), NULL,
     "requests may have a \"priority\": lower is sooner", NULL, 0, 0},
    {"age", 0, LQ_OPT_INT, offsetof(serve_args, age), "SECONDS",
     "who has waited so long goes before all priorities (default: 10)", NULL, 1, 86400},
    {"deadline", 0, LQ_OPT_INT, offsetof(serve_args, deadline), "SECONDS",
     "how long any request may take, also one that names no \"deadline_ms\" (default: as long as it needs)", NULL, 1, 1 << 20},
    {"max-connections", 0, LQ_OPT_INT, offsetof(serve_args, max_connections), "N",
     "clients at once (default: 1024; no more than the limit of open files leaves)", NULL, 1, 65536},
    {"max-per-address", 0, LQ_OPT_INT, offsetof(serve_args, per_address), "N",
     "of these, from one address (default: any number)", NULL, 1, 65536},
    {"grace", 0, LQ_OPT_INT, offsetof(serve_args, drain), "SECONDS",
     "how long requests may go on after a signal (default: 30); -1: not at all", NULL, -1, 86400},
    {"log", 0, LQ_OPT_FILE, offsetof(serve_args, log), "FILE",
     "where a line for each request goes (default: -, standard error)", NULL, 0, 0},
    {"log-format", 0, LQ_OPT_CHOICE, offsetof(serve_args, log_format), "FORM",
     "a line of words, or a JSON object (default: text)", log_format_name, 0, 0},
    LQ_ANSWER_OPTS(serve_args, answer),
    LQ_MODEL_OPTS(serve_args, model),
};
static const char *const examples[] = {
    "lq serve demo.lq", "serve it at http://127.0.0.1:8080/v1",
    "lq serve demo.lq --host 0.0.0.0 --api-key-file key.txt", "for others on the network who have a key",
    "lq serve demo.lq --tls-cert cert.pem --tls-key key.pem --api-key-file key.txt", "the same over https",
    "lq serve demo.lq --port 0 --json", "on any free port, which the first line tells", NULL};
const lq_verb lq_verb_serve = {
    .name = "serve", .synopsis = "MODEL", .summary = "Serve a model over HTTP, as OpenAI's API",
    .detail = "Answers POST /v1/chat/completions, /v1/completions and /v1/responses as OpenAI's clients know them, /v1/messages and "
              "/v1/messages/count_tokens as Anthropic's, /generate, /generate_stream and / as text-generation-inference's, whole or streamed; "
              "/tokenize, /detokenize; GET /v1/models, /tokenizer_info, /health, /ready, /metrics (Prometheus) and /kv_blocks. Every OpenAI client works "
              "with the URL and /v1, Anthropic's with the URL.\n\n"
              "At / there is a page for a browser: a conversation with the model or a text that it continues, and what the server does right now, "
              "from /metrics. The page asks for a key where the server wants one; its own files need none.\n\n"
              "What an earlier request left in the KV cache is there for those that begin alike (a system prompt, a conversation): they read what "
              "is new alone, and their answers are the same. usage.prompt_tokens_details.cached_tokens says how much of a prompt that was.\n\n"
              "Where a request says nothing of temperature, top_p, top_k, min_p or repetition_penalty, the model's generation_config.json "
              "does. Conversations need the chat template that came with the model, or --chat-template.\n\n"
              "Keys come from --api-key-file or the environment variable LQ_API_KEY (--admin-key-file, LQ_ADMIN_KEY), never from the command line. The log names routes, "
              "times, counts and the X-Request-Id that each answer has, the client's or one of its own; no text, no key.\n\n"
              "On SIGTERM, SIGHUP or Ctrl-C new requests get a 503, running ones go on for up to --grace seconds, and the exit status is 0. "
              "A second signal ends them at once.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(serve_args),
    .init = &init, .min_args = 1, .max_args = 1, .run = run};
