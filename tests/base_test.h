/* tests/base_test.h: what the tests of base/ share: a folder of their own, and errors looked at
 * whole.
 *     CHECK_FAILS(vp_json_read(path, 100, &doc, &err), VP_ERR_INPUT, path, 3, "a.b", "must be");
 * Every assertion is on here, also in release builds. */
#ifndef VP_TESTS_BASE_TEST_H
#define VP_TESTS_BASE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder of this test program; made on first use, removed by remove_test_dir(). */
static char test_dir[64];

static inline int remove_one(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info, (void)type, (void)ftw;
    return remove(path);
}

static inline int make_test_dir(void **state)
{
    (void)state;
    strcpy(test_dir, "/tmp/vplan-test-XXXXXX");
    return mkdtemp(test_dir) ? 0 : -1;
}

static inline int remove_test_dir(void **state)
{
    (void)state;
    return nftw(test_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A path in the folder; four are valid at a time. */
static inline const char *in_test_dir(const char *name)
{
    static char paths[4][6000];
    static int  next;

    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", test_dir, name);
    return paths[next];
}

static inline const char *put_file(const char *name, const void *bytes, size_t n_bytes)
{
    const char *path = in_test_dir(name);
    FILE       *f    = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline void check_error(const vp_err *err, vp_status st, vp_status want, const char *file,
                               int line, const char *field, const char *part, const char *at_file,
                               int at_line)
{
    if (st != want || err->code != want || strcmp(err->file, file) || err->line != line ||
        strcmp(err->field, field) || !strstr(err->message, part)) {
        print_error("%s:%d: wanted %s, %s:%d, field \"%s\", \"...%s...\"\n", at_file, at_line,
                    vp_status_id(want), file, line, field, part);
        print_error("got    %s, %s:%d, field \"%s\", \"%s\"\n", vp_status_id(st), err->file,
                    err->line, err->field, err->message);
        _fail(at_file, at_line);
    }
}

/* call, which fills a vp_err called err, fails like this; err is empty again afterwards. */
#define CHECK_FAILS(call, want, file, line, field, part) \
    do { \
        vp_status st_ = (call); \
        check_error(&err, st_, (want), (file), (line), (field), (part), __FILE__, __LINE__); \
        err = (vp_err){0}; \
    } while (0)

#define CHECK_OK(call) \
    do { \
        vp_status st_ = (call); \
        if (st_ != VP_OK) { \
            print_error("%s:%d: %s: %s\n", err.file, err.line, err.field, err.message); \
            _fail(__FILE__, __LINE__); \
        } \
    } while (0)

#endif
