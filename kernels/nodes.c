// nodes.c: memories of a machine (NUMA) and which CPUs are near them. Owns nothing; what cannot be read binds nobody.
#include "kernels/nodes.h"
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

// "0-3,8,10-11"
static bool list_in(const char *root, const char *name, cpu_set_t *out) {
    char path[600];
    CPU_ZERO(out);
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    for (int first, last, c = ','; c == ',' && fscanf(f, "%d", &first) == 1;) {
        last = first;
        if ((c = fgetc(f)) == '-' && fscanf(f, "%d", &last) == 1) c = fgetc(f);
        for (int i = first; i >= 0 && i <= last && i < CPU_SETSIZE; i++) CPU_SET(i, out);
    }
    fclose(f);
    return CPU_COUNT(out) > 0;
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
