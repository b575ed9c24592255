// groups.c: control groups, of the newer kind (one tree) and of the older (one for each controller). A group is held by
// its own limits and by those of all above it. In a container the path may be one of the host, of which only the root
// is seen. Owns nothing; what cannot be read limits nothing.
#include "kernels/groups.h"
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef size_t limit_fn(const char *folder, bool newer); // of one group

static size_t less(size_t a, size_t b) { return a < b ? a : b; }
static size_t minus(size_t a, size_t b) { return a > b ? a - b : 0; }

bool lq_file_number(const char *path, const char *key, size_t *out) {
    char line[256];
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        const size_t n = strlen(key);
        char *end;
        if (strncmp(line, key, n)) continue;
        *out = strtoull(line + n, &end, 10);
        found = end != line + n;
    }
    if (f) fclose(f);
    return found;
}

static bool number_in(const char *folder, const char *name, const char *key, size_t *out) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lq_file_number(path, key, out);
}

// The limit, less what is used, but for pages of files: the system gives them up.
static size_t memory_of(const char *folder, bool newer) {
    size_t limit, used, active = 0, inactive = 0;
    if (!number_in(folder, newer ? "memory.max" : "memory.limit_in_bytes", "", &limit)) return SIZE_MAX;
    if (!number_in(folder, newer ? "memory.current" : "memory.usage_in_bytes", "", &used)) return SIZE_MAX;
    number_in(folder, "memory.stat", "active_file ", &active);
    number_in(folder, "memory.stat", "inactive_file ", &inactive);
    return minus(limit, minus(used, active + inactive));
}

// Rounded down: a thread without a core of its own stands still for most of each period, and all others wait for it.
static size_t cores_of(const char *folder, bool newer) {
    char path[700];
    long long quota = -1, period = 0;
    snprintf(path, sizeof path, "%s/%s", folder, newer ? "cpu.max" : "cpu.cfs_quota_us");
    FILE *f = fopen(path, "re");
    if (!f) return SIZE_MAX;
    const int have = fscanf(f, "%lld %lld", &quota, &period);
    fclose(f);
    size_t older = 0;
    if (!newer && number_in(folder, "cpu.cfs_period_us", "", &older)) period = (long long)older;
    if (have < 1 || quota <= 0 || period <= 0) return SIZE_MAX; // "max 100000", or -1
    return quota < period ? 1 : (size_t)(quota / period);
}

static size_t least_above(char *folder, size_t root, limit_fn *of, bool newer) {
    size_t least = SIZE_MAX;
    for (;;) {
        least = less(least, of(folder, newer));
        char *last = strrchr(folder + root, '/');
        if (!last) return least;
        *last = 0;
    }
}

static bool names(const char *list, const char *name) { // "cpu,cpuacct" names cpu
    const size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ',') && (p[n] == ',' || !p[n])) return true;
    return false;
}

static size_t least_of(const char *self, const char *root, const char *controller, limit_fn *of) {
    char line[400], folder[600];
    size_t least = SIZE_MAX;
    FILE *f = fopen(self, "re");
    while (f && fgets(line, sizeof line, f)) { // 0::/path, or 4:cpu,cpuacct:/path of the older kind
        line[strcspn(line, "\n")] = 0;
        char *kind = strchr(line, ':'), *path = kind ? strchr(kind + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        const bool newer = !*++kind;
        if (!newer && !names(kind, controller)) continue;
        snprintf(folder, sizeof folder, "%s%s%s", root, newer ? "" : "/", newer ? "" : controller);
        const size_t at = strlen(folder);
        snprintf(folder + at, sizeof folder - at, "%s", path);
        least = less(least, least_above(folder, at, of, newer));
    }
    if (f) fclose(f);
    return least;
}

size_t lq_groups_room(const char *self, const char *root) { return least_of(self, root, "memory", memory_of); }

int lq_groups_cores(const char *self, const char *root) {
    const size_t n = least_of(self, root, "cpu", cores_of);
    return n < INT_MAX ? (int)n : INT_MAX;
}
