// test_dev.c: the device "cpu" at its border: who uses it, memory that costs nothing until it is written, how much is
// left, what it refuses. Its slots are checkkern's.
#include "kernels/ops.h"
#include "tests/unit/test.h"
#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static lq_dev *open_cpu(const char *isa) {
    lq_dev *d = NULL;
    lq_err err;
    if (!lq_dev_open("cpu", &(lq_dev_opts){.threads = 2, .isa = isa}, &d, &err)) {
        printf("%s\n", err.text);
        exit(1);
    }
    return d;
}

static size_t file_number(const char *path, const char *format) {
    size_t n = 0;
    char line[256];
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, format, &n) == 1) break;
    if (f) fclose(f);
    return n;
}

static size_t resident(void) { return file_number("/proc/self/statm", "%*u %zu") * (size_t)sysconf(_SC_PAGESIZE); }

static void test_users(void) {
    lq_dev *d = open_cpu(NULL);
    lq_dev *e = lq_dev_use(d);
    CHECK(e == d && d->users == 2, "users: %d", d->users);
    lq_dev_close(d); // the other one still has it
    void *p;
    lq_err err;
    CHECK(d->ops.alloc(d, 100, &p, &err), "a device that one of two closed: %s", err.text);
    d->ops.free(d, p);
    lq_dev_close(d);
    lq_dev_close(NULL);
}

static void test_alloc(void) {
    static const size_t sizes[] = {0, 1, 63, 64, 4000, 65535, 65536, 1000001, (size_t)64 << 20};
    lq_dev *d = open_cpu(NULL);
    lq_err err;
    for (int pass = 0; pass < 3; pass++) // what was freed comes back as zeros
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *p, any = 0;
            if (!d->ops.alloc(d, sizes[i], (void **)&p, &err)) abort();
            CHECK((uintptr_t)p % (sizes[i] >= 65536 ? 4096 : 64) == 0, "%zu bytes at %p", sizes[i], (void *)p);
            for (size_t j = 0; j < sizes[i]; j++) any |= p[j];
            CHECK(!any, "%zu bytes are not 0", sizes[i]);
            if (sizes[i]) memset(p, 0xee, sizes[i]);
            d->ops.free(d, p);
        }
    void *huge = NULL;
    CHECK(!d->ops.alloc(d, SIZE_MAX, &huge, &err) && !huge && strstr(err.text, "no memory"), "all bytes there are: %s",
          err.text);
    d->ops.free(d, NULL);
    if (SANITIZED) SKIP("pages that nobody wrote, more bytes than there can be: a sanitizer has its own allocator");
    else {
        CHECK(!d->ops.alloc(d, SIZE_MAX / 2, &huge, &err) && !huge, "half of all bytes");
        const size_t before = resident();
        char *p;
        CHECK(d->ops.alloc(d, (size_t)1 << 30, (void **)&p, &err), "1 GB: %s", err.text);
        const size_t after = resident();
        CHECK(after < before + ((size_t)1 << 20), "1 GB that nobody wrote takes %zu bytes", after - before);
        p[(size_t)1 << 29] = 1;
        CHECK(resident() < before + ((size_t)4 << 20), "one byte of 1 GB takes %zu", resident() - before);
        d->ops.free(d, p);
    }
    lq_dev_close(d);
}

static void test_room(void) {
    lq_dev *d = open_cpu(NULL);
    const size_t room = d->ops.room(d), left = file_number("/proc/meminfo", "MemAvailable: %zu") * 1024;
    // it moves while we look; groups may leave less
    CHECK(room > 0 && room < left + left / 4, "%zu bytes left, the system says %zu", room, left);
    struct rlimit old, some;
    getrlimit(RLIMIT_AS, &old);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), used = file_number("/proc/self/statm", "%zu") * page;
    const size_t more = (size_t)300 << 20;
    if (SANITIZED || room < 2 * more)
        SKIP("room under a limit of addresses: a sanitizer has taken them all, or memory is short");
    else {
        some = (struct rlimit){.rlim_cur = used + more, .rlim_max = old.rlim_max};
        setrlimit(RLIMIT_AS, &some);
        const size_t held = d->ops.room(d);
        void *p = NULL;
        lq_err err;
        CHECK(held <= more && held > more / 2, "%zu left under a limit of %zu more", held, more);
        CHECK(d->ops.alloc(d, held / 2, &p, &err), "half of what is left: %s", err.text);
        d->ops.free(d, p);
        setrlimit(RLIMIT_AS, &old);
    }
    lq_dev_close(d);
}

static void test_can(void) {
    static const char *const isas[] = {"c", "avx2", "avxvnni", "avx512", "avx512bf16", "amx"};
    static const char *const names[] = {"f32", "bf16", "f16", "int4 g32 sym f16", "int8 row sym f16",
                                        "int3 g64 asym f32", "e4m3 g128 r128 f32"};
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        lq_dev *d = open_cpu(isas[i]);
        lq_err err;
        lq_wtype t;
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            CHECK(lq_wtype_parse(names[n], &t, &err), "%s", err.text);
            CHECK(d->ops.can(d, &t, LQ_ANY, &err), "%s: %s", names[n], err.text);
            const bool x86 = lq_pack_has(LQ_X86, &t, 64, 256) && (n > 2 || d->layout == LQ_X86) &&
                             (n != 6 || (strstr(d->isa, "bf16") && !strstr(d->isa, "amx")));
            CHECK(d->ops.can(d, &t, LQ_X86, &err) == x86, "%s in x86: %s", names[n], err.text);
            CHECK(lq_dev_layout(d, &t, 64, 256) == (x86 ? d->layout : LQ_ANY), "where %s wants %s", isas[i], names[n]);
        }
        lq_dev *rough = NULL; // for calibration
        CHECK(lq_dev_open("cpu", &(lq_dev_opts){.threads = 1, .isa = isas[i], .rough = true}, &rough, &err), "%s",
              err.text);
        for (size_t n = 0; n < 3 && rough; n++) {
            CHECK(lq_wtype_parse(names[n], &t, &err), "%s", err.text);
            CHECK(lq_dev_layout(rough, &t, 64, 256) == LQ_ANY && !rough->ops.can(rough, &t, LQ_X86, &err) &&
                  rough->ops.can(rough, &t, LQ_ANY, &err), "%s of %s stays rows for calibration", names[n], isas[i]);
        }
        if (rough) lq_dev_close(rough);
        CHECK(lq_wtype_parse("f64", &t, &err), "%s", err.text);
        CHECK(!d->ops.can(d, &t, LQ_X86, &err) && strstr(err.text, "f64") && strstr(err.text, "x86"),
              "a type without a kernel: %s", err.text);
        lq_dev_close(d);
    }
}

static size_t threads(void) { return file_number("/proc/self/status", "Threads: %zu"); }
static bool factor(lq_dev *d, double diagonal) {
    double h[4] = {diagonal, 0, 0, diagonal};
    bool ok = false;
    d->ops.factor(d, &(lq_factor_args){.h = h, .n = 2, .ok = &ok});
    return ok && h[0] == 1 / sqrt(diagonal) && h[1] == 0;
}

// OpenBLAS comes when something is solved, starts no threads, and its absence is told.
static void test_solve(void) {
    lq_dev *d = open_cpu(NULL);
    lq_err err;
    const size_t before = threads();
    if (SANITIZED) SKIP("no addresses left for OpenBLAS: a sanitizer has taken them all");
    else {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            const size_t used = file_number("/proc/self/statm", "%zu") * (size_t)sysconf(_SC_PAGESIZE);
            setrlimit(RLIMIT_AS, &(struct rlimit){.rlim_cur = used + ((size_t)4 << 20), .rlim_max = RLIM_INFINITY});
            const bool done = factor(d, 4), said = !d->ops.sync(d, &err) && strstr(err.text, "OpenBLAS");
            _exit(done || !said);
        }
        int status = -1;
        waitpid(child, &status, 0);
        CHECK(status == 0, "without memory for OpenBLAS: status %d", status);
    }
    const bool done = factor(d, 4);
    if (!d->ops.sync(d, &err)) SKIP("%s", err.text);
    else {
        CHECK(done && !factor(d, -4) && !factor(d, NAN) && d->ops.sync(d, &err), "factor: %s", err.text);
        CHECK(threads() == before, "%zu threads, and after OpenBLAS came %zu", before, threads());
    }
    lq_dev_close(d);
}

static void bump(void *arg) { ++*(int *)arg; }
static void test_record(void) {
    lq_dev *d = open_cpu(NULL);
    lq_graph *g;
    lq_err err;
    int n = 0;
    CHECK(d->ops.record(d, bump, &n, &g, &err), "record: %s", err.text);
    n = 0;
    for (int i = 0; i < 3; i++) d->ops.replay(d, g);
    CHECK(n == 3, "replayed %d times", n);
    d->ops.forget(d, g);
    lq_dev_close(d);
}

static void test_refusals(void) {
    lq_dev *d;
    lq_err err;
    CHECK(!lq_dev_open("cpu", &(lq_dev_opts){.isa = "sse9"}, &d, &err) && !d && strstr(err.text, "\"sse9\""), "sse9: %s",
          err.text);
    CHECK(!lq_dev_open("cpu", &(lq_dev_opts){.threads = -1}, &d, &err) && !d, "-1 threads: %s", err.text);
    CHECK(!lq_dev_open("gpu", NULL, &d, &err) && !d && strstr(err.text, "\"gpu\""), "gpu: %s", err.text);
    CHECK(!lq_dev_open("cuda:x", NULL, &d, &err) && !d && strstr(err.text, "\"cuda:x\""), "cuda:x: %s", err.text);
}

int main(void) {
    test_users();
    test_alloc();
    test_room();
    test_can();
    test_solve();
    test_record();
    test_refusals();
    return test_end();
}
