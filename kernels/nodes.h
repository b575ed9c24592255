// nodes.h: a worker stays with one of the machine's memories, so that what it reads first, and reads again, is near.
#ifndef LQ_NODES_H
#define LQ_NODES_H

// Where the system tells of them; a test has its own.
#define LQ_NODES_ROOT "/sys/devices/system/node"

// The calling thread, which is this one of so many workers, may run on the CPUs of its node alone: workers are dealt to
// nodes in order, as many to each as it has of the CPUs that the thread may use. Where these are of one node, or the
// system tells of none, nothing happens.
void lq_nodes_bind(const char *root, int worker, int workers);
#endif
