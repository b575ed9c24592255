// page.c: the page at /: which files it has, and what their heads say. The files are those of tools/page, which the
// build puts into the library. Owns nothing.
//
// They are the same for everybody and need no key; what the page then asks for does. It may load nothing from elsewhere
// and show nothing as HTML that came as text: the browser is told to refuse both.
#include "runtime/serve/serve.h"
#include <stdio.h>
#include <string.h>

// Name, what its bytes are called, type.
#define FILES(ROW) \
    ROW("", index_html, "text/html; charset=utf-8") \
    ROW("page.css", page_css, "text/css; charset=utf-8") \
    ROW("theme.js", theme_js, "text/javascript; charset=utf-8") \
    ROW("page.js", page_js, "text/javascript; charset=utf-8") \
    ROW("api.js", api_js, "text/javascript; charset=utf-8") \
    ROW("text.js", text_js, "text/javascript; charset=utf-8") \
    ROW("dash.js", dash_js, "text/javascript; charset=utf-8") \
    ROW("icon.svg", icon_svg, "image/svg+xml")

#define DECLARE(name, bytes, type) extern const char lq_page_##bytes[], lq_page_##bytes##_hash[]; \
    extern const size_t lq_page_##bytes##_size;
FILES(DECLARE)

typedef struct lq_page { const char *name, *type, *bytes, *hash; const size_t *size; } lq_page;
#define ROW(name, bytes, type) {name, type, lq_page_##bytes, lq_page_##bytes##_hash, &lq_page_##bytes##_size},
static const lq_page pages[] = {FILES(ROW)};

void lq_page_look(request *r, const lq_head *h) {
    const char *has = lq_head_value(h, "If-None-Match");
    char mark[80];
    if (r->route->run != lq_page_run) return;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (!strcmp(pages[i].name, r->rest)) r->page = &pages[i];
    if (!has || !r->page) return;
    snprintf(mark, sizeof mark, "\"%s\"", r->page->hash);
    r->known = lq_words_have(has, mark);
}

bool lq_page_run(request *r, const char *rest) {
    (void)rest;
    if (!r->page) return lq_refuse(&r->no, 404, NULL, "not_found", "there is nothing at this path");
    r->type = r->page->type;
    if (r->known) r->status = 304;
    else lq_text_add(&r->out, r->page->bytes, *r->page->size);
    return true;
}

int lq_page_fields(const request *r, char *to, size_t size) {
    return snprintf(to, size, "Cache-Control: no-cache\r\nETag: \"%s\"\r\nReferrer-Policy: no-referrer\r\n"
                    "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n"
                    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                    "require-trusted-types-for 'script'; trusted-types 'none'\r\n", r->page->hash);
}
