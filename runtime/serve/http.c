// http.c: reads heads and bodies of HTTP/1.1. Owns nothing.
//
// Refuses line ends that are not CR LF, folded lines, spaces before a colon, two lengths, a length beside a coding,
// codings other than chunked, and any control character.
#include "runtime/serve/http.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_fault(lq_fault *fault, int status, const char *text) {
    *fault = (lq_fault){status, text};
    return false;
}

// --- a head ---

size_t lq_head_find(const char *p, size_t n, size_t *from, lq_fault *fault) {
    *fault = (lq_fault){0, NULL};
    for (size_t i = *from; i < n && i < LQ_HEAD_BYTES; i++) {
        if (p[i] != '\n') continue;
        if (!i || p[i - 1] != '\r') return is_fault(fault, 400, "a line must end with CR and LF");
        if (i >= 3 && p[i - 2] == '\n') return i + 1;
    }
    if (n >= LQ_HEAD_BYTES) {
        const bool line = memchr(p, '\n', LQ_HEAD_BYTES) == NULL;
        return is_fault(fault, line ? 414 : 431, line ? "the URL is too long" : "the headers are larger than 32 KiB");
    }
    *from = n;
    return 0;
}

// Characters of methods, names and other words.
static bool is_token(unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
        (c && strchr("!#$%&'*+-.^_`|~", c));
}

static int hex(unsigned char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// "/a%20b" in place.
static bool path_decode(char *p) {
    char *to = p;
    for (; *p; p++) {
        if (*p != '%') {
            *to++ = *p;
            continue;
        }
        const int high = hex((unsigned char)p[1]), low = high < 0 ? -1 : hex((unsigned char)p[2]);
        if (low < 0 || high * 16 + low < 0x20 || high * 16 + low == 0x7f) return false;
        *to++ = (char)(high * 16 + low);
        p += 2;
    }
    *to = '\0';
    return true;
}

// An absolute URL stands for its path, as a proxy sends it.
static bool target_read(char *p, lq_head *h, lq_fault *fault) {
    if (strlen(p) > LQ_TARGET_BYTES) return is_fault(fault, 414, "the URL is too long");
    for (const char *c = p; *c; c++)
        if ((unsigned char)*c < 0x21 || (unsigned char)*c > 0x7e)
            return is_fault(fault, 400, "the URL has a character that none may have");
    if (!strncasecmp(p, "http://", 7) || !strncasecmp(p, "https://", 8)) {
        p = strchr(p, ':') + 2; // the second slash
        char *path = strchr(p + 1, '/');
        if (path) p = path;
        else p[1] = '\0';
    }
    char *query = strchr(p, '?');
    if (query) *query++ = '\0';
    h->query = query ? query : "";
    h->path = p;
    if (*p != '/' && strcmp(p, "*")) return is_fault(fault, 400, "the URL must begin with /");
    return path_decode(p) || is_fault(fault, 400, "the URL has a % that begins no character");
}

static bool line_read(char *p, lq_head *h, lq_fault *fault) {
    char *target = strchr(p, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version) return is_fault(fault, 400, "expected a line like GET /path HTTP/1.1");
    *target++ = *version++ = '\0';
    h->method = p;
    while (is_token((unsigned char)*p)) p++;
    if (*p || !*h->method) return is_fault(fault, 400, "the method is no word");
    if (strncmp(version, "HTTP/", 5)) return is_fault(fault, 400, "expected a line like GET /path HTTP/1.1");
    if (strncmp(version, "HTTP/1.", 7) || version[7] < '0' || version[7] > '9' || version[8])
        return is_fault(fault, 505, "this server speaks HTTP/1.1");
    h->old = version[7] == '0';
    h->keep = !h->old;
    return target_read(target, h, fault);
}

static bool field_read(char *p, lq_head *h, lq_fault *fault) {
    char *colon = strchr(p, ':');
    if (!colon || colon == p) return is_fault(fault, 400, "a header must be a name, a colon and a value");
    for (const char *c = p; c < colon; c++)
        if (!is_token((unsigned char)*c)) return is_fault(fault, 400, "a header's name is no word");
    if (h->fields == LQ_HEAD_FIELDS) return is_fault(fault, 431, "there are more than 100 headers");
    *colon++ = '\0';
    while (*colon == ' ' || *colon == '\t') colon++;
    for (const char *c = colon; *c; c++)
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f)
            return is_fault(fault, 400, "a header's value has a control character");
    char *end = colon + strlen(colon);
    while (end > colon && (end[-1] == ' ' || end[-1] == '\t')) *--end = '\0';
    h->field[h->fields++] = (lq_field){p, colon};
    return true;
}

static bool length_read(const char *v, lq_head *h, lq_fault *fault) {
    const size_t n = strspn(v, "0123456789");
    if (!n || v[n]) return is_fault(fault, 400, "Content-Length: expected a number");
    while (*v == '0') v++;
    if (strlen(v) > 18) return is_fault(fault, 413, "the body is too large");
    h->length = strtoull(v, NULL, 10);
    return true;
}

// What the fields say of the message itself. A proxy may see another end of a body with two lengths, and take what is
// behind it for a request (RFC 9112, 6.3).
static bool fields_weigh(lq_head *h, lq_fault *fault) {
    int lengths = 0, codings = 0, hosts = 0;
    for (int i = 0; i < h->fields; i++) {
        const char *name = h->field[i].name, *v = h->field[i].value;
        if (!strcasecmp(name, "Host")) {
            hosts++;
            h->host = v;
        } else if (!strcasecmp(name, "Content-Length")) {
            lengths++;
            if (!length_read(v, h, fault)) return false;
        } else if (!strcasecmp(name, "Transfer-Encoding")) {
            codings++;
            h->chunked = !strcasecmp(v, "chunked");
        } else if (!strcasecmp(name, "Connection")) {
            if (lq_words_have(v, "close")) h->keep = false;
            else if (h->old && lq_words_have(v, "keep-alive")) h->keep = true;
        } else if (!strcasecmp(name, "Expect")) {
            if (strcasecmp(v, "100-continue")) return is_fault(fault, 417, "Expect: only 100-continue is known here");
            h->waits = !h->old;
        }
    }
    if (hosts > 1 || (!hosts && !h->old)) return is_fault(fault, 400, "expected one Host header");
    if (lengths > 1 || codings > 1 || (lengths && codings))
        return is_fault(fault, 400, "expected one Content-Length or one Transfer-Encoding");
    if (codings && h->old) return is_fault(fault, 400, "HTTP/1.0 has no Transfer-Encoding");
    return !codings || h->chunked || is_fault(fault, 501, "Transfer-Encoding: only chunked is known here");
}

bool lq_head_read(char *p, size_t n, lq_head *h, lq_fault *fault) {
    char *const end = p + n - 2; // the empty line
    *h = (lq_head){.method = "", .path = "", .query = "", .host = ""};
    *fault = (lq_fault){0, NULL};
    if (memchr(p, '\0', n)) return is_fault(fault, 400, "a head has no NUL");
    for (bool first = true; p < end; first = false) {
        char *stop = memchr(p, '\n', (size_t)(end - p));
        char *next = stop + 1;
        stop[-1] = '\0';
        if (memchr(p, '\r', strlen(p))) return is_fault(fault, 400, "a line must end with CR and LF");
        if (!first && (*p == ' ' || *p == '\t')) return is_fault(fault, 400, "a header may not be folded");
        if (!(first ? line_read(p, h, fault) : field_read(p, h, fault))) return false;
        p = next;
    }
    return fields_weigh(h, fault);
}

const char *lq_head_value(const lq_head *h, const char *name) {
    for (int i = 0; i < h->fields; i++)
        if (!strcasecmp(h->field[i].name, name)) return h->field[i].value;
    return NULL;
}

bool lq_words_have(const char *list, const char *word) {
    const size_t n = strlen(word);
    while (*list) {
        list += strspn(list, " \t,");
        const size_t k = strcspn(list, " \t,");
        if (k == n && !strncasecmp(list, word, n)) return true;
        list += k;
    }
    return false;
}

bool lq_words_plain(const char *list) {
    for (const char *p = list;; p++) {
        p += strspn(p, " \t");
        while (is_token((unsigned char)*p)) p++;
        p += strspn(p, " \t");
        if (*p != ',') return !*p;
    }
}

// --- a body ---

lq_body lq_body_of(const lq_head *h) {
    return (lq_body){.at = h->chunked ? LQ_BODY_SIZE : h->length ? LQ_BODY_DATA : LQ_BODY_WHOLE, .chunked = h->chunked,
                     .left = h->chunked ? 0 : h->length};
}

// One more byte of a line; *whole: it has ended, and line is what it said. Returns false on what ends no line.
static bool line_add(lq_body *b, char c, bool *whole, lq_fault *fault) {
    *whole = false;
    if (b->line_n && b->line[b->line_n - 1] == '\r') {
        if (c != '\n') return is_fault(fault, 400, "a chunk's line must end with CR and LF");
        b->line[--b->line_n] = '\0';
        return *whole = true;
    }
    if (((unsigned char)c < 0x20 && c != '\r' && c != '\t') || b->line_n == sizeof b->line - 1)
        return is_fault(fault, 400, "a chunk's line is too long, or has a control character");
    b->line[b->line_n++] = c;
    return true;
}

// "1f", or "1f;what=ever".
static bool size_read(lq_body *b, lq_fault *fault) {
    size_t n = 0;
    for (b->left = 0; hex((unsigned char)b->line[n]) >= 0; n++) {
        if (n == 15) return is_fault(fault, 413, "a chunk is too large");
        b->left = b->left * 16 + (uint64_t)hex((unsigned char)b->line[n]);
    }
    if (!n || (b->line[n] && b->line[n] != ';' && b->line[n] != ' ' && b->line[n] != '\t'))
        return is_fault(fault, 400, "a chunk must begin with its size");
    b->at = b->left ? LQ_BODY_DATA : LQ_BODY_TRAILER;
    return true;
}

static bool line_done(lq_body *b, lq_fault *fault) {
    const size_t n = b->line_n;
    b->line_n = 0;
    switch (b->at) {
    case LQ_BODY_SIZE: return size_read(b, fault);
    case LQ_BODY_GAP:
        b->at = LQ_BODY_SIZE;
        return !n || is_fault(fault, 400, "a chunk is longer than its size says");
    default:
        if (!n) b->at = LQ_BODY_WHOLE;
        return ++b->trailers <= LQ_HEAD_FIELDS || is_fault(fault, 431, "there are more than 100 trailers");
    }
}

size_t lq_body_take(lq_body *b, const char *p, size_t n, const char **data, size_t *data_n, lq_fault *fault) {
    size_t used = 0;
    *fault = (lq_fault){0, NULL};
    *data_n = 0;
    while (used < n && b->at != LQ_BODY_WHOLE && b->at != LQ_BODY_DATA) {
        bool whole;
        if (!line_add(b, p[used++], &whole, fault) || (whole && !line_done(b, fault))) return used;
    }
    if (b->at != LQ_BODY_DATA || used == n) return used;
    *data = p + used;
    *data_n = n - used < b->left ? n - used : (size_t)b->left;
    b->left -= *data_n;
    if (!b->left) b->at = b->chunked ? LQ_BODY_GAP : LQ_BODY_WHOLE;
    return used + *data_n;
}

const char *lq_status_text(int status) {
    static const struct { int status; const char *text; } rows[] = {
        {200, "OK"}, {204, "No Content"}, {304, "Not Modified"}, {400, "Bad Request"}, {401, "Unauthorized"},
        {403, "Forbidden"}, {404, "Not Found"}, {405, "Method Not Allowed"}, {408, "Request Timeout"},
        {413, "Content Too Large"}, {414, "URI Too Long"}, {415, "Unsupported Media Type"},
        {417, "Expectation Failed"}, {421, "Misdirected Request"}, {422, "Unprocessable Content"},
        {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"},
        {501, "Not Implemented"}, {503, "Service Unavailable"}, {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status) return rows[i].text;
    return "Unknown";
}
