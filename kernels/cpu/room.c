// room.c: how much memory this process may still take: the least of what the machine has left, what its control groups
// leave and what the limit on addresses leaves. Owns nothing. Pages of files count as free: the system gives them up.
// What cannot be read limits nothing.
#include "kernels/cpu/cpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t less(size_t a, size_t b) { return a < b ? a : b; }
static size_t minus(size_t a, size_t b) { return a > b ? a - b : 0; }

// The number behind `key` at the beginning of a line, or in a file that is only a number ("": "max" is none).
static bool file_number(const char *path, const char *key, size_t *out) {
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

// One group: its limit, less what it uses, but for pages of files. `name` is memory.max or
// memory.limit_in_bytes, `use` its counterpart.
static size_t group_room(const char *folder, const char *name, const char *use) {
    char path[600];
    size_t limit, used, active = 0, inactive = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!file_number(path, "", &limit)) return SIZE_MAX;
    snprintf(path, sizeof path, "%s/%s", folder, use);
    if (!file_number(path, "", &used)) return SIZE_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    file_number(path, "active_file ", &active);
    file_number(path, "inactive_file ", &inactive);
    return minus(limit, minus(used, active + inactive));
}

// A group and all above it. In a container the path may be one of the host, of which only the root is seen.
static size_t groups_room(const char *root, char *path, const char *name, const char *use) {
    char folder[512];
    size_t room = SIZE_MAX;
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s", root, path);
        room = less(room, group_room(folder, name, use));
        char *last = strrchr(path, '/');
        if (!last) return room;
        *last = 0;
    }
}

static size_t all_groups_room(void) {
    char line[400];
    size_t room = SIZE_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) { // 0::/path, or 4:memory:/path of the older kind
        line[strcspn(line, "\n")] = 0;
        char *kind = strchr(line, ':'), *path = kind ? strchr(kind + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        if (!strcmp(kind, ":")) room = less(room, groups_room("/sys/fs/cgroup", path, "memory.max", "memory.current"));
        if (!strcmp(kind, ":memory"))
            room = less(room, groups_room("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                          "memory.usage_in_bytes"));
    }
    if (f) fclose(f);
    return room;
}

size_t lq_room_cpu(lq_dev *d) {
    (void)d;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room, pages;
    if (file_number("/proc/meminfo", "MemAvailable:", &room)) room *= 1024;
    else room = (size_t)sysconf(_SC_PHYS_PAGES) * page / 2;
    room = less(room, all_groups_room());
    struct rlimit addresses;
    if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY &&
        file_number("/proc/self/statm", "", &pages))
        room = less(room, minus((size_t)addresses.rlim_cur, pages * page));
    return room;
}
