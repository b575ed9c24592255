// room.c: how much memory this process may still take: the least of what the machine has left, what its control groups
// leave and what the limit on addresses leaves. Owns nothing. Pages of files count as free: the system gives them up.
// What cannot be read limits nothing.
#include "kernels/cpu/cpu.h"
#include "kernels/groups.h"
#include <sys/resource.h>
#include <unistd.h>

static size_t less(size_t a, size_t b) { return a < b ? a : b; }

size_t lq_room_cpu(lq_dev *d) {
    (void)d;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room, pages;
    if (lq_file_number("/proc/meminfo", "MemAvailable:", &room)) room *= 1024;
    else room = (size_t)sysconf(_SC_PHYS_PAGES) * page / 2;
    room = less(room, lq_groups_room(LQ_GROUPS_SELF, LQ_GROUPS_ROOT));
    struct rlimit addresses;
    if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY &&
        lq_file_number("/proc/self/statm", "", &pages)) {
        const size_t most = (size_t)addresses.rlim_cur, used = pages * page;
        room = less(room, most > used ? most - used : 0);
    }
    return room;
}
