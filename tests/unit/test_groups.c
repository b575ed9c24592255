// test_groups.c: what control groups leave a process, read off trees of files like the system's, newer and older kind.
#include "kernels/groups.h"
#include "tests/unit/test.h"
#include <limits.h>
#include <stdint.h>

static char dir[] = "/tmp/lq-test-groups-XXXXXX";

static void put(const char *name, const char *text) { test_put(dir, name, text); }

static int cores(const char *self) {
    char at[300], root[300];
    put("self", self);
    snprintf(at, sizeof at, "%s/self", dir);
    snprintf(root, sizeof root, "%s/fs", dir);
    return lq_groups_cores(at, root);
}

static size_t room(void) {
    char at[300], root[300];
    snprintf(at, sizeof at, "%s/self", dir);
    snprintf(root, sizeof root, "%s/fs", dir);
    return lq_groups_room(at, root);
}

#define CORES(SELF, WANT) \
    do { \
        const int n_ = cores(SELF); \
        CHECK(n_ == (WANT), "%s: %d cores, expected %d", SELF, n_, WANT); \
    } while (0)

static void newer(void) {
    put("fs/a/b/cpu.max", "max 100000\n");
    CORES("0::/a/b\n", INT_MAX);
    put("fs/a/cpu.max", "350000 100000\n"); // of the group above
    CORES("0::/a/b\n", 3);
    put("fs/a/b/cpu.max", "25000 50000\n"); // half a core is one
    CORES("0::/a/b\n", 1);
    CORES("0::/elsewhere/of/the/host\n", INT_MAX); // in a container only the root is seen
    put("fs/cpu.max", "200000 100000\n");
    CORES("0::/elsewhere/of/the/host\n", 2);
    CORES("0::/\n", 2);
    put("fs/cpu.max", "nonsense\n");
    CORES("0::/\n", INT_MAX);
    put("fs/cpu.max", "max 100000\n");
    put("fs/a/memory.max", "1000000\n");
    put("fs/a/memory.current", "700000\n");
    put("fs/a/memory.stat", "anon 5\nactive_file 30000\ninactive_file 20000\n");
    cores("0::/a/b\n");
    CHECK(room() == 350000, "%zu bytes of room", room());
    put("fs/a/memory.max", "max\n");
    CHECK(room() == SIZE_MAX, "%zu bytes of room", room());
}

static void older(void) {
    static const char self[] = "9:name=cpu:/no\n5:cpuset:/no\n4:cpuacct,cpu:/x/y\n3:memory:/x\n0::/\n";
    put("fs/cpu/no/cpu.cfs_quota_us", "100000\n");
    put("fs/cpu/no/cpu.cfs_period_us", "100000\n");
    put("fs/cpu/x/y/cpu.cfs_quota_us", "-1\n");
    put("fs/cpu/x/y/cpu.cfs_period_us", "100000\n");
    CORES(self, INT_MAX);
    put("fs/cpu/x/cpu.cfs_quota_us", "400000\n");
    put("fs/cpu/x/cpu.cfs_period_us", "100000\n");
    CORES(self, 4);
    put("fs/cpu/x/y/cpu.cfs_quota_us", "50000\n");
    CORES(self, 1);
    put("fs/memory/x/memory.limit_in_bytes", "5000\n");
    put("fs/memory/x/memory.usage_in_bytes", "6000\n");
    CHECK(room() == 0, "%zu bytes of room", room());
}

int main(void) {
    char line[100];
    if (!mkdtemp(dir)) return 1;
    CORES("", INT_MAX);
    newer();
    older();
    CHECK(lq_groups_cores("/no/such/file", "/no") == INT_MAX && lq_groups_room("/no/such/file", "/no") == SIZE_MAX,
          "limits out of nothing");
    snprintf(line, sizeof line, "rm -r %s", dir);
    CHECK(system(line) == 0, "%s", line);
    return test_end();
}
