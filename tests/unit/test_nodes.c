// test_nodes.c: which CPUs a worker stays with, by trees of files like the system's, of the CPUs that this process has.
#include "kernels/nodes.h"
#include "tests/unit/test.h"
#include <pthread.h>
#include <sched.h>

static char dir[] = "/tmp/lq-test-nodes-XXXXXX";

static void put(const char *name, const char *text) { test_put(dir, name, text); }

static void node(int i, const char *cpus) {
    char name[40];
    snprintf(name, sizeof name, "node%d/cpulist", i);
    put(name, cpus);
}

typedef struct bound { int worker, workers; cpu_set_t set; } bound;

static void *bind(void *arg) { // a thread of its own: it stays bound
    bound *b = arg;
    lq_nodes_bind(dir, b->worker, b->workers);
    sched_getaffinity(0, sizeof b->set, &b->set);
    return NULL;
}

static cpu_set_t of(int worker, int workers) {
    bound b = {.worker = worker, .workers = workers};
    pthread_t t;
    CHECK(!pthread_create(&t, NULL, bind, &b) && !pthread_join(t, NULL), "no thread");
    return b.set;
}

int main(void) {
    char text[200];
    cpu_set_t all, near, far;
    if (!mkdtemp(dir)) return 1;
    sched_getaffinity(0, sizeof all, &all);
    const int cpus = CPU_COUNT(&all);
    int first = 0;
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&near);
    CPU_SET(first, &near);
    CPU_XOR(&far, &all, &near);
#define IS(WORKER, WORKERS, WANT) \
    do { \
        const cpu_set_t got_ = of(WORKER, WORKERS); \
        CHECK(CPU_EQUAL(&got_, &(WANT)), "worker %d of %d: %d CPUs", WORKER, WORKERS, CPU_COUNT(&got_)); \
    } while (0)
    IS(0, cpus, all); // no file
    put("online", "0\n");
    node(0, "0-1023\n");
    IS(0, cpus, all); // one node
    put("online", "0,2-3\n"); // the first has a CPU, the next none, the last all others
    snprintf(text, sizeof text, "%d\n", first);
    node(0, text);
    node(2, "\n");
    snprintf(text, sizeof text, "%d,%d-1023\n", first + 1, first + 2);
    node(3, text);
    if (cpus > 1) {
        IS(0, cpus, near);
        for (int i = 1; i < cpus; i++) IS(i, cpus, far);
        IS(0, 2 * cpus, near);
        IS(1, 2 * cpus, near);
        IS(2, 2 * cpus, far);
    } else SKIP("one CPU has one node");
    put("online", "nonsense\n");
    IS(0, cpus, all);
    put("online", "0-3,\n");
    node(0, "-7,x");
    node(1, "\n");
    node(3, "\n");
    IS(0, cpus, all);
    snprintf(text, sizeof text, "rm -r %s", dir);
    CHECK(system(text) == 0, "%s", text);
    return test_end();
}
