/* base/guarded_folder.h: a temporary folder that does not outlive its process, however that ends.
 *     char            path[PATH_MAX] = "/tmp/mine-XXXXXX";
 *     vp_folder_guard guard          = {0};
 *     if (!vp_guarded_folder_make(path, &guard)) ...errno says why...
 *     ...
 *     vp_folder_empty(open(path, ...));  rmdir(path);
 *     vp_guard_dismiss(&guard);
 *
 * A process of its own knows the name before the folder is there and removes it, with all that lies in it, when
 * this one ends without a word, by SIGKILL too. */
#ifndef VP_BASE_GUARDED_FOLDER_H
#define VP_BASE_GUARDED_FOLDER_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct vp_folder_guard {
    pid_t pid; /* 0: none */
    int   fd;  /* whose end it waits for */
} vp_folder_guard;

/* The last six letters of path become those of a folder that nobody else has, of mode 0700. False: errno says why, and
 * there is no guard. */
bool vp_guarded_folder_make(char *path, vp_folder_guard *guard);

/* The folder is removed, or another's to remove. */
void vp_guard_dismiss(vp_folder_guard *guard);

/* Remove what lies in the folder fd, which is closed. Links are removed, never followed; what lies deeper than 32
 * folders stays. */
void vp_folder_empty(int fd);

#endif
