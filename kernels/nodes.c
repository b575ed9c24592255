// nodes.c: memories of a machine (NUMA) and which CPUs are near them. Owns nothing and allocates nothing (a worker may
// come here while the first run is under way); what cannot be read binds nobody.
#include "kernels/nodes.h"
#include <ctype.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

// A number below CPU_SETSIZE; -1: there is none.
static int number(const char **p) {
    int n = 0;
    if (!isdigit((unsigned char)**p)) return -1;
    for (; isdigit((unsigned char)**p); ++*p) n = n < CPU_SETSIZE ? n * 10 + (**p - '0') : n;
    return n < CPU_SETSIZE ? n : CPU_SETSIZE - 1;
}

// "0-3,8,10-11"
static bool list_in(const char *root, const char *name, cpu_set_t *out) {
    char path[600], text[8192];
    CPU_ZERO(out);
    snprintf(path, sizeof path, "%s/%s", root, name);
    const int f = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = f < 0 ? -1 : read(f, text, sizeof text - 1);
    if (f >= 0) close(f);
    text[n > 0 ? n : 0] = 0;
    for (const char *p = text;; p++) {
        const int first = number(&p);
        int last = first;
        if (*p == '-' && first >= 0) p++, last = number(&p);
        for (int i = first; i >= 0 && i <= last; i++) CPU_SET(i, out);
        if (*p != ',') return CPU_COUNT(out) > 0;
    }
}

void lq_nodes_bind(const char *root, int worker, int workers) {
    cpu_set_t mine, nodes, node;
    char name[40];
    if (sched_getaffinity(0, sizeof mine, &mine) || !list_in(root, "online", &nodes)) return;
    // The worker's CPU, would each have one of its own, counted node by node.
    long at = (long)CPU_COUNT(&mine) * worker / workers;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &nodes)) continue;
        snprintf(name, sizeof name, "node%d/cpulist", i);
        if (!list_in(root, name, &node)) continue;
        CPU_AND(&node, &node, &mine);
        const int have = CPU_COUNT(&node);
        if (at >= have) {
            at -= have;
            continue;
        }
        if (have < CPU_COUNT(&mine)) sched_setaffinity(0, sizeof node, &node);
        return;
    }
}
