// lq_version.c: lq version: what this program is made of: its build, the libraries it
// runs with, the processor it found.
#include "tools/verb.h"
#include <gnutls/gnutls.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

// The build gives these: tools/lq_version.c alone is compiled with them.
#ifndef LQ_BUILD_TYPE
#define LQ_BUILD_TYPE "unknown"
#endif
#ifndef LQ_SANITIZERS
#define LQ_SANITIZERS ""
#endif
#ifndef LQ_PARTS_USED
#define LQ_PARTS_USED ""
#endif
#ifndef LQ_PARTS_UNUSED
#define LQ_PARTS_UNUSED ""
#endif
#ifndef LQ_PARTS_MISSING
#define LQ_PARTS_MISSING ""
#endif

typedef struct part { const char *name; char version[64]; } part;
enum { PARTS = 5 };
#define ON_DEMAND "OpenBLAS" // opened by kernels/cpu/solve.c when it is needed, and not to be asked for its version

// What is linked says its own version at run time.
static void read_parts(part p[PARTS]) {
    p[0].name = "cJSON";
    snprintf(p[0].version, sizeof p[0].version, "%s", cJSON_Version());
    p[1].name = "PCRE2";
    char text[64] = "";
    pcre2_config(PCRE2_CONFIG_VERSION, text);
    snprintf(p[1].version, sizeof p[1].version, "%.*s", (int)strcspn(text, " "), text);
    p[2].name = "utf8proc";
    snprintf(p[2].version, sizeof p[2].version, "%s", utf8proc_version());
    p[3].name = "xxHash";
    unsigned x = XXH_versionNumber();
    snprintf(p[3].version, sizeof p[3].version, "%u.%u.%u", x / 10000, x / 100 % 100, x % 100);
    p[4].name = "GnuTLS";
    snprintf(p[4].version, sizeof p[4].version, "%s", gnutls_check_version(NULL));
}

// --- the processor ---

typedef struct cpu { char name[64]; const char *has[24]; int count; } cpu;

#if defined(__x86_64__)
// The bit of one register of a cpuid leaf, and the state bits of XCR0 the system must have enabled for it.
typedef struct feature { const char *name; unsigned leaf, sub, reg, bit, state; } feature;
enum { AVX = 0x6, AVX512 = 0xe6, AMX = 0x60000 };
static const feature features[] = {
    {"sse4.2", 1, 0, 2, 20, 0},        {"avx", 1, 0, 2, 28, AVX},           {"f16c", 1, 0, 2, 29, AVX},
    {"fma", 1, 0, 2, 12, AVX},         {"avx2", 7, 0, 1, 5, AVX},           {"bmi2", 7, 0, 1, 8, 0},
    {"avx_vnni", 7, 1, 0, 4, AVX},     {"avx512f", 7, 0, 1, 16, AVX512},    {"avx512bw", 7, 0, 1, 30, AVX512},
    {"avx512vl", 7, 0, 1, 31, AVX512}, {"avx512dq", 7, 0, 1, 17, AVX512},   {"avx512_vnni", 7, 0, 2, 11, AVX512},
    {"avx512_vbmi", 7, 0, 2, 1, AVX512}, {"avx512_bf16", 7, 1, 0, 5, AVX512}, {"avx512_fp16", 7, 0, 3, 23, AVX512},
    {"amx_tile", 7, 0, 3, 24, AMX},    {"amx_int8", 7, 0, 3, 25, AMX},      {"amx_bf16", 7, 0, 3, 22, AMX},
};

static void read_cpu(cpu *c) {
    unsigned r[12], a, b, d, lo = 0, hi = 0;
    unsigned leaf1c = 0;
    if (__get_cpuid(1, &a, &b, &leaf1c, &d) && leaf1c & 1u << 27)
        __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const feature *f = &features[i];
        if (!__get_cpuid_count(f->leaf, f->sub, &r[0], &r[1], &r[2], &r[3])) continue;
        if ((r[f->reg] >> f->bit & 1) && (lo & f->state) == f->state) c->has[c->count++] = f->name;
    }
    char brand[49] = "";
    if (__get_cpuid(0x80000000u, &r[0], &r[1], &r[2], &r[3]) && r[0] >= 0x80000004u) {
        for (unsigned i = 0; i < 3; i++)
            __get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
        memcpy(brand, r, 48);
    }
    snprintf(c->name, sizeof c->name, "%s", brand + strspn(brand, " "));
}
#else
static void read_cpu(cpu *c) { snprintf(c->name, sizeof c->name, "not an x86-64"); }
#endif

void lq_machine_name(char *out, size_t size) {
    cpu c = {0};
    read_cpu(&c);
    snprintf(out, size, "%s", c.name);
}

static const char *compiler(void) {
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

static void add_list(lq_text *t, const char *list) {
    lq_text_add(t, "[", 1);
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        if (p != list) lq_text_add(t, ",", 1);
        lq_text_json(t, p, n);
        p += n + strspn(p + n, ", ");
    }
    lq_text_add(t, "]", 1);
}

static int print_json(const part *p, const cpu *c) {
    lq_text t = {0};
    const struct { const char *key, *value; } head[] = {{"version", LQ_VERSION}, {"compiler", compiler()},
                                                        {"build", LQ_BUILD_TYPE},
                                                        {"sanitizers", LQ_SANITIZERS}, {"cpu", c->name}};
    lq_text_fmt(&t, "{");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) {
        lq_text_fmt(&t, "%s\"%s\":", i ? "," : "", head[i].key);
        lq_text_json(&t, head[i].value, strlen(head[i].value));
    }
    lq_text_fmt(&t, ",\"cpu_features\":[");
    for (int i = 0; i < c->count; i++) lq_text_fmt(&t, "%s\"%s\"", i ? "," : "", c->has[i]);
    lq_text_fmt(&t, "],\"libraries\":{");
    for (int i = 0; i < PARTS; i++) {
        lq_text_fmt(&t, "%s\"%s\":", i ? "," : "", p[i].name);
        lq_text_json(&t, p[i].version, strlen(p[i].version));
    }
    lq_text_fmt(&t, "},\"libraries_on_demand\":");
    add_list(&t, ON_DEMAND);
    lq_text_fmt(&t, ",\"optional_used\":");
    add_list(&t, LQ_PARTS_USED);
    lq_text_fmt(&t, ",\"optional_unused\":");
    add_list(&t, LQ_PARTS_UNUSED);
    lq_text_fmt(&t, ",\"optional_missing\":");
    add_list(&t, LQ_PARTS_MISSING);
    lq_text_fmt(&t, "}");
    return lq_say_json(&t);
}

static int run(void *args, int argc, char **argv) {
    (void)argc;
    (void)argv;
    part parts[PARTS];
    cpu c = {0};
    read_parts(parts);
    read_cpu(&c);
    if (((lq_common *)args)->json) return print_json(parts, &c);
    printf("lq %s\n", LQ_VERSION);
    printf("built      %s, %s%s%s\n", compiler(), LQ_BUILD_TYPE, *LQ_SANITIZERS ? ", sanitizers " : "", LQ_SANITIZERS);
    printf("libraries  ");
    for (int i = 0; i < PARTS; i++) printf("%s%s %s", i ? ", " : "", parts[i].name, parts[i].version);
    printf("\non demand  %s, when something is solved", ON_DEMAND);
    printf("\noptional   built in: %s; there, but nothing is built with it: %s; missing: %s\n",
           *LQ_PARTS_USED ? LQ_PARTS_USED : "none", *LQ_PARTS_UNUSED ? LQ_PARTS_UNUSED : "none",
           *LQ_PARTS_MISSING ? LQ_PARTS_MISSING : "none");
    printf("processor  %s:", c.name);
    for (int i = 0; i < c.count; i++) printf(" %s", c.has[i]);
    putchar('\n');
    return 0;
}

static const char *const examples[] = {"lq version", "what this program is made of", "lq version --json",
                                       "the same for a program", NULL};
const lq_verb lq_verb_version = {.name = "version", .synopsis = "",
                                 .summary = "Tell the version, the build and the processor",
                                 .examples = examples, .size = sizeof(lq_common), .run = run};
