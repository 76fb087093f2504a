/* no_alloc.h - the guard that proves a decode step allocates nothing.
 * Between begin and end, any malloc, calloc, realloc, aligned_alloc or free made by this thread
 * from code of ours is counted; with no_alloc_enforce(true) (the default) it fails a CHECK that
 * names the phase. Our calls are seen by the linker's --wrap (see CMakeLists.txt); a library's own
 * calls are not, and no library runs in a decode step. */
#ifndef PENSTOCK_COMMON_NO_ALLOC_H
#define PENSTOCK_COMMON_NO_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

void no_alloc_begin(const char *phase); /* does not nest */
void no_alloc_end(void);
void no_alloc_enforce(bool enforce); /* of the whole process; false: only count */
uint64_t no_alloc_violations(void);  /* counted so far, all threads */
uint64_t no_alloc_total(void); /* allocations of this thread so far, guarded or not: for tests */

#endif
