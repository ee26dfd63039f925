/* runtime/memory_print.h: what a run took of each memory, for people and scripts. */
#ifndef VP_RUNTIME_MEMORY_PRINT_H
#define VP_RUNTIME_MEMORY_PRINT_H

#include "runtime/runtime.h"

#include <jansson.h>

/* The device's first; another only where the plan uses it. touched_by: by which count the device's was
 * touched. NULL: out of memory. */
json_t *vp_memories_json(const vp_memory_report *report, const char *touched_by);

/* The same in lines of the screen. */
void vp_memories_print(const vp_memory_report *report, const char *touched_by);

#endif
