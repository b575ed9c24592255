// eval_chart.c: charts of a report as inline SVG: points with names beside them, lines, a map of cells. Axes have round
// ticks, names never lie on points or on each other, and colours are those of the page's style (s0 .. s7), so that one
// chart does for light and dark. Every text of a file is escaped.
#include "tools/eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The picture's own units; the page scales it.
enum { WIDTH = 380, HEIGHT = 270, LEFT = 50, RIGHT = 16, TOP = 14, BOTTOM = 42, TICKS = 16, COLORS = 8 };
static const double letter = 6.1; // width of a letter of a label, at most

void lq_html_text(lq_text *t, const char *s) {
    char *shown = lq_say_shown(s);
    t->failed = t->failed || !shown;
    for (const char *p = shown; p && *p; p++) {
        static const char special[] = "&<>\"'";
        static const char *const name[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
        const char *at = strchr(special, *p);
        if (at) lq_text_fmt(t, "%s", name[at - special]);
        else lq_text_add(t, p, 1);
    }
    free(shown);
}

// --- axes ---

typedef struct axis {
    bool log;
    double low, high;
    double tick[TICKS];
    int ticks;
    double from, to; // where low and high lie in the picture
} axis;

static double place(const axis *a, double v) {
    const double share = a->log ? log(v / a->low) / log(a->high / a->low) : (v - a->low) / (a->high - a->low);
    return a->from + share * (a->to - a->from);
}

// 1, 2 or 5 times a power of ten, so that about `parts` of them make the span.
static double round_step(double span, int parts) {
    const double raw = span / parts, ten = pow(10, floor(log10(raw))), m = raw / ten;
    return ten * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

// An axis for values from low to high; `zero`: it begins there.
static axis linear(double low, double high, bool zero, double from, double to) {
    axis a = {.from = from, .to = to};
    if (zero) low = 0;
    if (!(high > low)) high = low + (low != 0 ? fabs(low) * 0.1 : 1), low -= zero ? 0 : high - low;
    const double pad = (high - low) * 0.12;
    a.low = zero ? 0 : low - pad;
    a.high = high + pad;
    const double step = round_step(a.high - a.low, 5);
    for (double k = ceil(a.low / step - 1e-9); k * step <= a.high * (1 + 1e-12) && a.ticks < TICKS; k++)
        a.tick[a.ticks++] = k * step;
    return a;
}

static axis logarithmic(double low, double high, double from, double to) {
    static const double in_decade[] = {1, 2, 5};
    axis a = {.log = true, .low = low / 1.5, .high = high * 1.5, .from = from, .to = to};
    const int first = (int)floor(log10(a.low)), last = (int)ceil(log10(a.high)), each = last - first > 3 ? 1 : 3;
    for (int e = first; e <= last; e++)
        for (int i = 0; i < each && a.ticks < TICKS; i++) {
            const double v = in_decade[i] * pow(10, e);
            if (v >= a.low && v <= a.high) a.tick[a.ticks++] = v;
        }
    return a;
}

static void number(lq_text *t, double v) {
    if (v != 0 && (fabs(v) < 1e-4 || fabs(v) >= 1e6)) {
        const int e = (int)floor(log10(fabs(v)) + 1e-9);
        lq_text_fmt(t, "%.3ge%d", v / pow(10, e), e);
    } else lq_text_fmt(t, "%.6g", fabs(v) < 1e-12 ? 0 : v);
}

static void open_svg(lq_text *t, double height, const char *about) {
    lq_text_fmt(t, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"", WIDTH, height);
    lq_html_text(t, about);
    lq_text_fmt(t, "\">");
}

static void draw_axes(lq_text *t, const axis *x, const axis *y, const char *x_title, const char *y_title) {
    for (int i = 0; i < y->ticks; i++) {
        const double at = place(y, y->tick[i]);
        lq_text_fmt(t, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                    LEFT, at, WIDTH - RIGHT, LEFT - 6, at + 4);
        number(t, y->tick[i]);
        lq_text_fmt(t, "</text>");
    }
    lq_text_fmt(t, "<path class=\"axis\" d=\"M%d %dH%d\"/>", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (int i = 0; i < x->ticks; i++) {
        const double at = place(x, x->tick[i]);
        lq_text_fmt(t, "<path class=\"axis\" d=\"M%.1f %dv4\"/><text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                    at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 17);
        number(t, x->tick[i]);
        lq_text_fmt(t, "</text>");
    }
    lq_text_fmt(t, "<text class=\"title\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", WIDTH - RIGHT, HEIGHT - 6,
                x_title);
    lq_text_fmt(t, "<text class=\"title\" x=\"%d\" y=\"%d\">%s</text>", LEFT + 4, TOP - 3, y_title);
}

// --- points ---

typedef struct box { double x, y, w, h; } box; // x, y: its upper left corner

static bool meets(box a, box b) { return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h; }

static bool is_free(const box *taken, int n, box b) {
    if (b.x < LEFT || b.x + b.w > WIDTH || b.y < 2 || b.y + b.h > HEIGHT - BOTTOM) return false;
    for (int i = 0; i < n; i++)
        if (meets(taken[i], b)) return false;
    return true;
}

// The nearest free place for a label beside a point; false: there is none, and the point's <title> must do.
static bool find_room(const box *taken, int n, double x, double y, double w, box *out) {
    static const double way[][2] = {{1, 0}, {0, -1}, {-1, 0}, {0, 1}, {0.7, -0.7}, {-0.7, -0.7}, {0.7, 0.7},
                                    {-0.7, 0.7}};
    const double h = 13;
    for (double far = 8; far < 90; far += 7)
        for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
            const double cx = x + way[i][0] * (far + w / 2), cy = y + way[i][1] * (far + h / 2);
            *out = (box){cx - w / 2, cy - h / 2, w, h};
            if (is_free(taken, n, *out)) return true;
        }
    return false;
}

// A line says whose name it is that stands farther off.
static void draw_lead(lq_text *t, double x, double y, box b) {
    const double nx = x < b.x ? b.x : x > b.x + b.w ? b.x + b.w : x, ny = y < b.y ? b.y : y > b.y + b.h ? b.y + b.h : y;
    if (b.w > 0 && hypot(nx - x, ny - y) > 12)
        lq_text_fmt(t, "<path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1f\"/>", x, y, nx, ny);
}

static void draw_points(lq_text *t, const axis *x, const axis *y, const eval_point *p, const box *label, int n) {
    for (int i = 0; i < n; i++) draw_lead(t, place(x, p[i].x), place(y, p[i].y), label[i]);
    for (int i = 0; i < n; i++) {
        lq_text_fmt(t, "<circle class=\"s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"><title>", p[i].color % COLORS,
                    place(x, p[i].x), place(y, p[i].y));
        lq_html_text(t, p[i].label);
        lq_text_fmt(t, ": %.6g</title></circle>", p[i].y);
    }
    for (int i = 0; i < n; i++) {
        if (!(label[i].w > 0)) continue;
        lq_text_fmt(t, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", label[i].x + label[i].w / 2,
                    label[i].y + label[i].h / 2 + 4);
        lq_html_text(t, p[i].label);
        lq_text_fmt(t, "</text>");
    }
}

void lq_chart_points(lq_text *t, const eval_chart *c, const eval_point *p, int n) {
    double x0 = INFINITY, x1 = 0, y0 = c->line > 0 ? c->line : INFINITY, y1 = c->line > 0 ? c->line : 0;
    for (int i = 0; i < n; i++) {
        x0 = fmin(x0, p[i].x), x1 = fmax(x1, p[i].x);
        y0 = fmin(y0, p[i].y), y1 = fmax(y1, p[i].y);
    }
    // What names may not cover: the line, the points, and then the names.
    box *taken = calloc((size_t)n * 2 + 1, sizeof *taken);
    t->failed = t->failed || !taken;
    if (t->failed) return free(taken);
    const axis x = linear(x0, x1, false, LEFT, WIDTH - RIGHT);
    const axis y = c->log ? logarithmic(y0, y1, HEIGHT - BOTTOM, TOP) : linear(y0, y1, false, HEIGHT - BOTTOM, TOP);
    int boxes = 0;
    open_svg(t, HEIGHT, c->about);
    draw_axes(t, &x, &y, c->x_title, c->y_title);
    if (c->line > 0) {
        const double at = place(&y, c->line);
        taken[boxes++] = (box){LEFT, at - 1, WIDTH - RIGHT - LEFT, 2};
        lq_text_fmt(t, "<path class=\"line\" d=\"M%d %.1fH%d\"><title>reference, %.6g</title></path>", LEFT, at,
                    WIDTH - RIGHT, c->line);
    }
    for (int i = 0; i < n; i++)
        taken[boxes++] = (box){place(&x, p[i].x) - 5, place(&y, p[i].y) - 5, 10, 10};
    for (int i = 0; i < n; i++) {
        box *b = &taken[boxes++];
        const double width = lq_say_width(p[i].label) * letter + 4;
        if (!find_room(taken, boxes - 1, place(&x, p[i].x), place(&y, p[i].y), width, b)) *b = (box){0};
    }
    draw_points(t, &x, &y, p, taken + boxes - n, n);
    lq_text_fmt(t, "</svg>");
    free(taken);
}

// --- lines ---

void lq_chart_lines(lq_text *t, const eval_chart *c, const eval_line *l, int n) {
    double y0 = INFINITY, y1 = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < l[i].count; k++)
            if (l[i].y[k] > 0) y0 = fmin(y0, l[i].y[k]), y1 = fmax(y1, l[i].y[k]);
    if (!(y1 > 0)) y0 = y1 = 1;
    const axis x = linear(l[0].x0, l[0].x1, l[0].x0 == 0, LEFT, WIDTH - RIGHT);
    const axis y = c->log ? logarithmic(y0, y1, HEIGHT - BOTTOM, TOP) : linear(0, y1, true, HEIGHT - BOTTOM, TOP);
    open_svg(t, HEIGHT, c->about);
    draw_axes(t, &x, &y, c->x_title, c->y_title);
    for (int i = 0; i < n; i++) {
        bool on = false;
        lq_text_fmt(t, "<path class=\"curve s%d\" d=\"", l[i].color % COLORS);
        for (int k = 0; k < l[i].count; k++) {
            if (!(l[i].y[k] > 0) && (c->log || l[i].y[k] != 0)) continue; // nothing there
            const double at = l[i].x0 + (l[i].x1 - l[i].x0) * (k + 0.5) / l[i].count;
            lq_text_fmt(t, "%s%.1f %.1f", on ? "L" : "M", place(&x, at), place(&y, l[i].y[k]));
            on = true;
        }
        lq_text_fmt(t, "\"><title>");
        lq_html_text(t, l[i].label);
        lq_text_fmt(t, "</title></path>");
    }
    lq_text_fmt(t, "</svg>");
}

// --- a map ---

void lq_chart_map(lq_text *t, const eval_map *m, const char *about) {
    enum { ROW = 22, HEAD = 6, FOOT = 34 };
    int widest = 0;
    double high = 0, low = INFINITY;
    for (int r = 0; r < m->rows; r++) widest = lq_say_width(m->row[r]) > widest ? lq_say_width(m->row[r]) : widest;
    for (int i = 0; i < m->rows * m->columns; i++) high = fmax(high, m->cell[i]), low = fmin(low, m->cell[i]);
    const double left = fmin(widest * letter + 10, 170), cell = (WIDTH - left - 4) / m->columns;
    const double foot = HEAD + m->rows * ROW;
    open_svg(t, foot + FOOT, about);
    for (int r = 0; r < m->rows; r++) {
        lq_text_fmt(t, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"end\">", left - 6, HEAD + r * ROW + 15);
        lq_html_text(t, m->row[r]);
        lq_text_fmt(t, "</text>");
        for (int k = 0; k < m->columns; k++) {
            const double v = m->cell[r * m->columns + k];
            if (isnan(v)) continue;
            lq_text_fmt(t, "<rect class=\"heat\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill-opacity=\"%.3f\"><title>layer %d, ",
                        left + k * cell, HEAD + r * ROW, cell > 3 ? cell - 1 : cell, ROW - 1,
                        high > low ? 0.1 + 0.9 * (v - low) / (high - low) : 0.5, k);
            lq_html_text(t, m->row[r]);
            lq_text_fmt(t, ": %.4g</title></rect>", v);
        }
    }
    const int step = (int)fmax(1, round_step(m->columns, 6));
    for (int k = 0; k < m->columns; k += step)
        lq_text_fmt(t, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>",
                    left + (k + 0.5) * cell, foot + 15, k);
    lq_text_fmt(t, "<text class=\"title\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">layer</text></svg>", WIDTH - 4,
                foot + 30);
}
