// err.c: the text of a failure. Keeps it to one clean line whatever names a file put into it.
#include "formats/err.h"
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

static void text_clean(char *s, size_t size, bool cut) {
    for (char *p = s; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    if (cut) end_trim(s, size - 1);
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
    if (n < 0) n = 0;
    size_t at = (size_t)n < sizeof err->text ? (size_t)n : sizeof err->text - 1;
    if (!strncmp(old, err->text, at) && !strncmp(old + at, ": ", 2)) { // it was said already
        memcpy(err->text, old, sizeof old);
        return false;
    }
    int m = snprintf(err->text + at, sizeof err->text - at, ": %s", old);
    text_clean(err->text, sizeof err->text, m < 0 || at + (size_t)m >= sizeof err->text);
    return false;
}
