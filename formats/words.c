// words.c: numbers as people read them, with three digits that count and a unit.
#include "formats/words.h"
#include <math.h>
#include <stdio.h>

static lq_words scaled(double x, const char *const *units, const char *gap) {
    lq_words w;
    int u = 0;
    while (fabs(x) >= 999.5 && u < 5) x /= 1000, u++;
    int digits = !u && x == floor(x) ? 0 : fabs(x) >= 99.95 ? 0 : fabs(x) >= 9.995 ? 1 : 2;
    snprintf(w.text, sizeof w.text, "%.*f%s%s", digits, x, gap, units[u]);
    return w;
}

lq_words lq_words_bytes(double bytes) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    return scaled(bytes, units, " ");
}

lq_words lq_words_count(double n) {
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    return scaled(n, units, "");
}

lq_words lq_words_time(double s) {
    lq_words w;
    if (s < 0.9995e-3) snprintf(w.text, sizeof w.text, "%.0f us", s * 1e6);
    else if (s < 0.9995) snprintf(w.text, sizeof w.text, "%.*f ms", s < 0.00995 ? 1 : 0, s * 1e3);
    else if (s < 59.95) snprintf(w.text, sizeof w.text, "%.1f s", s);
    else if (s < 3599.5) snprintf(w.text, sizeof w.text, "%dm %02ds", (int)(s + 0.5) / 60, (int)(s + 0.5) % 60);
    else snprintf(w.text, sizeof w.text, "%.0fh %02dm", floor((s / 60 + 0.5) / 60), (int)fmod(s / 60 + 0.5, 60));
    return w;
}
