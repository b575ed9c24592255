// guard.c: who may ask. Keys are compared in the time that any other would take, and never logged.
//
// Where no key is wanted, a page that a browser has open is a stranger too. It can send some requests to any address,
// but not JSON (lq_guard_type) unless the server says so, and it can give its own name the server's address; so the
// name by which the server is called must be an address, a name without a dot, which nobody can register, this
// machine's own, or one that the server was told of.
#include "runtime/serve/serve.h"
#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// --- the name ---

static bool is_address(const char *host) {
    struct in6_addr a;
    return inet_pton(AF_INET, host, &a) == 1 || inet_pton(AF_INET6, host, &a) == 1;
}

// "name:80" or "[::1]:80" without port and brackets; false: it is longer than any name.
static bool host_name(const char *from, char *to, size_t size) {
    const bool six = *from == '[';
    const size_t n = six ? strcspn(++from, "]") : strcspn(from, ":");
    if (n >= size) return false;
    memcpy(to, from, n);
    to[n] = '\0';
    if (n && to[n - 1] == '.') to[n - 1] = '\0';
    return true;
}

static bool is_local(const char *name) {
    const size_t n = strlen(name), k = sizeof ".localhost" - 1;
    return !strchr(name, '.') || (n > k && !strcasecmp(name + n - k, ".localhost"));
}

bool lq_guard_host(request *r, const lq_head *h) {
    const lq_serve_opts *o = r->s->o;
    char name[256];
    if (o->key_count || (r->route && r->route->free) || !*h->host) return true;
    const bool read = host_name(h->host, name, sizeof name);
    if (read && (is_local(name) || is_address(name))) return true;
    if (read && (!strcasecmp(name, r->s->host) || !strcasecmp(name, r->s->machine))) return true;
    for (int i = 0; read && i < o->host_count; i++)
        if (!strcasecmp(name, o->hosts[i])) return true;
    return lq_refuse(&r->no, 421, NULL, "unknown_host",
                     "this server does not know itself by the name %.100s: start it with --allow-host, or with a key",
                     read ? name : "in the Host header");
}

void lq_guard_origin(request *r, const lq_head *h) {
    const lq_serve_opts *o = r->s->o;
    const char *origin = lq_head_value(h, "Origin");
    for (int i = 0; origin && i < o->origin_count; i++)
        if (!strcmp(o->origins[i], "*") || !strcasecmp(o->origins[i], origin))
            snprintf(r->origin, sizeof r->origin, "%s", strcmp(o->origins[i], "*") ? origin : "*");
}

bool lq_guard_varies(const lq_serve_opts *o) {
    for (int i = 0; i < o->origin_count; i++)
        if (strcmp(o->origins[i], "*")) return true;
    return false;
}

// --- keys ---

// Takes as long for any key of one length.
static bool key_equal(const char *given, const char *key) {
    const size_t n = strlen(given), k = strlen(key);
    volatile unsigned char differ = n != k;
    for (size_t i = 0; i < n; i++) differ = (unsigned char)(differ | (given[i] ^ key[i % k]));
    return !differ;
}

static const char *key_given(const lq_head *h) {
    const char *bearer = lq_head_value(h, "Authorization"), *other = lq_head_value(h, "x-api-key");
    if (bearer && !strncasecmp(bearer, "Bearer ", 7)) return bearer + 7 + strspn(bearer + 7, " ");
    return other;
}

static bool admin_key(request *r, const char *given) {
    const lq_serve_opts *o = r->s->o;
    bool found = false;
    for (int i = 0; given && i < o->admin_key_count; i++) found = key_equal(given, o->admin_keys[i]) || found;
    if (!o->admin_key_count) return lq_refuse(&r->no, 404, NULL, "not_found", "there is nothing at this path");
    return found ||
        lq_refuse(&r->no, 401, NULL, "invalid_api_key", "this wants an administrator's key as a bearer token");
}

bool lq_guard_key(request *r, const lq_head *h) {
    const lq_serve_opts *o = r->s->o;
    const char *given = key_given(h);
    if (r->route && r->route->admin) return admin_key(r, given);
    if (!o->key_count || (r->route && r->route->free)) return true;
    for (int i = 0; given && i < o->key_count; i++)
        if (key_equal(given, o->keys[i])) r->client = (uint64_t)i + 1;
    return r->client ||
        lq_refuse(&r->no, 401, NULL, "invalid_api_key", "this server wants a key of its own as a bearer token");
}

// A key may ask as often as it likes in a moment, and in a minute as often as the server was told.
bool lq_guard_rate(request *r) {
    server *s = r->s;
    const double most = s->o->rate;
    if (most <= 0 || !r->route || !r->route->post) return true;
    lq_purse *p = &s->purses[r->client && s->o->key_count ? r->client - 1 : 0];
    const double now = lq_serve_clock(), full = p->tokens + (now - p->at) * most / 60;
    p->tokens = p->at > 0 && full < most ? full : most;
    p->at = now;
    if (p->tokens >= 1) {
        p->tokens--;
        return true;
    }
    r->wait = (int)ceil((1 - p->tokens) * 60 / most);
    return lq_refuse(&r->no, 429, NULL, "rate_limit_exceeded", "more than %d requests a minute", s->o->rate);
}

// --- the body's type ---

// A page in a browser can send other types to a server on loopback without asking; this one it cannot.
bool lq_guard_type(request *r, const lq_head *h) {
    static const char json[] = "application/json";
    const char *type = lq_head_value(h, "Content-Type"), *coding = lq_head_value(h, "Content-Encoding");
    const size_t n = sizeof json - 1;
    if (!type || strncasecmp(type, json, n) || (type[n] && type[n] != ';' && type[n] != ' '))
        return lq_refuse(&r->no, 415, NULL, NULL, "the body must be JSON: Content-Type: application/json");
    if (coding && strcasecmp(coding, "identity"))
        return lq_refuse(&r->no, 415, NULL, NULL, "the body must not be compressed");
    return true;
}
