// groups.h: what the control groups of this process leave it of memory and cores.
#ifndef LQ_GROUPS_H
#define LQ_GROUPS_H
#include <stdbool.h>
#include <stddef.h>

// Where the system tells which groups they are, and has them; a test has its own.
#define LQ_GROUPS_SELF "/proc/self/cgroup"
#define LQ_GROUPS_ROOT "/sys/fs/cgroup"

size_t lq_groups_room(const char *self, const char *root); // bytes; SIZE_MAX: they limit nothing
int lq_groups_cores(const char *self, const char *root);   // whole ones, at least 1; INT_MAX: they limit nothing
// The number behind `key` at the beginning of a line, or in a file that is only numbers (""; "max" is none).
bool lq_file_number(const char *path, const char *key, size_t *out);
#endif
