/* tuner/study_internal.h: a study's file, as what stands in it is read and written: study_file.c
 * for study.c. */
#ifndef VP_TUNER_STUDY_INTERNAL_H
#define VP_TUNER_STUDY_INTERNAL_H

#include "tuner/study.h"

#include <limits.h>
#include <sqlite3.h>

struct vp_study {
    sqlite3 *db;
    /* without links, so that two names of one study meet at one lock */
    char path[PATH_MAX];
    char lock_path[PATH_MAX + 8];
    int  lock_fd;
    bool owns_lock; /* the lock file is a tuner's, not somebody else's file of that name */
};

/* A question, to be finalized by the caller. types: its parameters by a letter each, i int64_t,
 * r double, t text (NULL: null). */
vp_status   vp_study_query(vp_study *s, sqlite3_stmt **stmt, vp_err *err, const char *sql,
                           const char *types, ...);
vp_status   vp_study_next_row(vp_study *s, sqlite3_stmt *stmt, bool *any, vp_err *err);
const char *vp_study_text_at(sqlite3_stmt *stmt, int column);

/* One statement that changes something. */
vp_status vp_study_change(vp_study *s, vp_err *err, const char *sql, const char *types, ...);

/* Around several of them. With st OK they are on disk or the error says why; else nothing of them
 * is. */
vp_status vp_study_begin_change(vp_study *s, vp_err *err);
vp_status vp_study_end_change(vp_study *s, vp_status st, vp_err *err);

#endif
