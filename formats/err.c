// err.c: the text of a failure. Keeps it to one clean line whatever names a file put into it.
#include "formats/json.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// A cut may have gone through a character: drops the torn end.
static void end_trim(char *s, size_t n) {
    size_t i = n;
    while (i > 0 && n - i < 3 && ((unsigned char)s[i - 1] & 0xc0) == 0x80) i--;
    if (i == 0) return;
    unsigned char lead = (unsigned char)s[i - 1];
    size_t need = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
    if (need > n - i) s[i - 1] = 0;
}

// What a terminal would obey, and what is no character, becomes '?'. Returns the length.
static size_t text_clean(char *s, size_t size, bool cut) {
    if (cut) end_trim(s, size - 1);
    unsigned char *p = (unsigned char *)s, *to = p;
    const unsigned char *end = p + strlen(s);
    while (p < end) {
        size_t n = lq_utf8_len(p, end);
        if (n && !lq_utf8_unseen(p, n)) {
            memmove(to, p, n);
            to += n, p += n;
        } else {
            *to++ = '?';
            p += n ? n : 1;
        }
    }
    *to = 0;
    return (size_t)((char *)to - s);
}

bool lq_fail(lq_err *err, lq_code code, const char *fmt, ...) {
    if (!err) return false;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n < 0) snprintf(err->text, sizeof err->text, "error %d", (int)code);
    err->code = code;
    text_clean(err->text, sizeof err->text, n >= (int)sizeof err->text);
    return false;
}

bool lq_fail_in(lq_err *err, const char *fmt, ...) {
    if (!err) return false;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    old[sizeof old - 1] = 0;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n < 0) err->text[0] = 0;
    size_t at = text_clean(err->text, sizeof err->text, n >= (int)sizeof err->text);
    if (!strncmp(old, err->text, at) && !strncmp(old + at, ": ", 2)) { // it was said already
        memcpy(err->text, old, sizeof old);
        return false;
    }
    int m = snprintf(err->text + at, sizeof err->text - at, ": %s", old);
    text_clean(err->text, sizeof err->text, m < 0 || at + (size_t)m >= sizeof err->text);
    return false;
}
