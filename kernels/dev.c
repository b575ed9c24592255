// dev.c: opens a device by name, counts who uses it, loads the CUDA plug-in. What a CPU is stands in cpu/cpu.c.
// Owns what lq_dev_open makes. Refuses names it does not know and accelerators that are not there.
#include "kernels/cpu/cpu.h"
#include <dlfcn.h>
#include <string.h>

// --- CUDA ---

typedef bool lq_cuda_open_fn(int version, const char *name, const lq_dev_opts *o, lq_dev **out, lq_err *err);
typedef void lq_cuda_close_fn(lq_dev *d);

static void *plugin(lq_err *err) {
    void *lib = dlopen("liblq_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (!lib) lq_fail(err, LQ_E_UNSUPPORTED, "device cuda: the plug-in liblq_cuda.so cannot be loaded (%s)", dlerror());
    return lib;
}

static bool cuda_open(const char *name, const lq_dev_opts *o, lq_dev **out, lq_err *err) {
    void *lib = plugin(err);
    if (!lib) return false;
    lq_cuda_open_fn *open;
    *(void **)&open = dlsym(lib, "lq_cuda_open");
    return open ? open(LQ_OPS_VERSION, name, o, out, err)
                : lq_fail(err, LQ_E_UNSUPPORTED,
                          "device cuda: liblq_cuda.so has no lq_cuda_open: it is of another version");
}

static void cuda_close(lq_dev *d) {
    void *lib = plugin(NULL);
    lq_cuda_close_fn *close = NULL;
    if (lib) *(void **)&close = dlsym(lib, "lq_cuda_close");
    if (close) close(d);
}

static bool cuda_name(const char *name) {
    if (strncmp(name, "cuda", 4)) return false;
    if (!name[4]) return true;
    return name[4] == ':' && name[5] && strlen(name) < 9 && strspn(name + 5, "0123456789") == strlen(name + 5);
}

// --- any device ---

bool lq_dev_open(const char *name, const lq_dev_opts *o, lq_dev **out, lq_err *err) {
    const lq_dev_opts none = {0};
    *out = NULL;
    if (!o) o = &none;
    const bool cpu = !strcmp(name, "cpu");
    if (!cpu && !cuda_name(name))
        return lq_fail(err, LQ_E_USAGE, "device: found \"%.40s\", expected cpu, cuda or cuda:N", name);
    if (!(cpu ? lq_cpu_open(o, out, err) : cuda_open(name, o, out, err))) return false;
    (*out)->users = 1;
    return true;
}

lq_dev *lq_dev_use(lq_dev *d) {
    d->users++;
    return d;
}

lq_layout lq_dev_layout(lq_dev *d, const lq_wtype *t, int64_t n, int64_t k) {
    lq_err none;
    // Rows of numbers stay if padding would add much to them.
    const bool numbers = t->kind == LQ_W_PLAIN || t->kind == LQ_W_FLOAT;
    if (d->host && numbers && n % LQ_X86_ROWS && n < 32 * LQ_X86_ROWS) return LQ_ANY;
    return lq_pack_has(d->layout, t, n, k) && d->ops.can(d, t, d->layout, &none) ? d->layout : LQ_ANY;
}

void lq_dev_close(lq_dev *d) {
    if (!d || --d->users > 0) return;
    if (d->host) lq_cpu_close(d);
    else cuda_close(d);
}
