/* base/file.h: whole files, read with limits and written atomically.
 *     VP_TRY(vp_file_write("plan.json", text.data, text.n_bytes, false, err));
 * A written file is either the old one or the new one, whatever happens in between: temporary file
 * in the same folder, write, fsync, rename, fsync of the folder. */
#ifndef VP_BASE_FILE_H
#define VP_BASE_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Read all of a regular file ("-": standard input) of at most max_bytes; *out is the caller's,
 * freed with free(), with a NUL behind its n_bytes. VP_ERR_INPUT says what the path is instead. */
vp_status vp_file_read(const char *path, int64_t max_bytes, char **out, int64_t *n_bytes,
                       vp_err *err);

/* Replace path by n_bytes of data. overwrite false and path exists: VP_ERR_USAGE that names
 * --force, nothing touched. VP_ERR_STORAGE when the file system refuses. */
vp_status vp_file_write(const char *path, const void *data, size_t n_bytes, bool overwrite,
                        vp_err *err);

/* The same for content produced in pieces. begin opens a temporary beside path; commit makes it
 * path; abort (also after a failure, also on a zeroed struct) removes it. A link stays a link:
 * the file it leads to is replaced. Anything but a regular file is VP_ERR_USAGE, also with
 * overwrite. Temporaries left by a killed writer of the same path are removed by the next begin. */
typedef struct vp_file_writer {
    FILE *stream; /* write here: errors surface at commit; or by put: at once, with their cause */
    char  path[1024];
    char  tmp_path[1088];
    bool  overwrite;
} vp_file_writer;

vp_status vp_file_begin(const char *path, bool overwrite, vp_file_writer *w, vp_err *err);
vp_status vp_file_put(vp_file_writer *w, const void *data, size_t n_bytes, vp_err *err);
/* All of it on disk, under its temporary name: of several files each, before the first is committed. */
vp_status vp_file_settle(vp_file_writer *w, vp_err *err);
vp_status vp_file_commit(vp_file_writer *w, vp_err *err);
void      vp_file_abort(vp_file_writer *w);

/* All n bytes through a pipe, however the kernel cuts them up. False: its other end is gone, or errno says why. */
bool vp_read_all(int fd, void *to, size_t n);
bool vp_write_all(int fd, const void *from, size_t n);

/* Make a folder (parents must exist); an existing folder is fine. VP_ERR_STORAGE otherwise. */
vp_status vp_file_make_dir(const char *path, vp_err *err);

/* The folder this program lies in, with its last '/'. VP_ERR_DEVICE when /proc does not tell. */
vp_status vp_file_own_folder(char *folder, size_t folder_size, vp_err *err);

/* Where another file of vplan's lies, "vplan-run" or "null/libvplan-null.so": in this program's
 * own folder, then in ../lib/vplan. Never PATH. VP_ERR_DEVICE when it is in neither. */
vp_status vp_file_find_program(const char *name, char *path, size_t path_size, vp_err *err);

#endif
