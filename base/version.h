/* base/version.h: versions of libraries, as their releases are named: "5.17.0".
 *     if (vp_version_within(version, "5.6", NULL))
 *         ...    since 5.6
 * What is behind the numbers (a build, a list's next word) is not looked at. */
#ifndef VP_BASE_VERSION_H
#define VP_BASE_VERSION_H

#include <stdbool.h>
#include <stddef.h>

/* -1, 0, 1: "5.17" is before "5.23.0". A number that is not there is 0. */
int vp_version_compare(const char *a, const char *b);
/* since and until may be NULL. */
bool vp_version_within(const char *version, const char *since, const char *until);
/* 5.17.0 and 5.17.2, which mends mistakes of it: the first two numbers, which both have. */
bool vp_version_is_of_release(const char *a, const char *b);
/* Of "2.11.0" in "2.11.0+cu130", "5.25" in "5.25.dev0": numbers with dots between them. 0: it begins with none. */
size_t vp_version_length(const char *text);

#endif
