/* base/err.h: how every function of vplan says what went wrong.
 *     vp_err err = {0};
 *     if (vp_plan_read("plan.json", &plan, &err) != VP_OK) fprintf(stderr, "%s\n", err.message);
 *
 * What the world can do wrong returns a vp_status and fills a vp_err on the caller's stack; the
 * first error stays. What only we can do wrong is an assert, on in release builds too. A function
 * has one way out, `out:`, which frees what it still owns; VP_TRY goes there on failure and wants
 * a local `vp_status st`. Library code never prints and never exits. */
#ifndef VP_BASE_ERR_H
#define VP_BASE_ERR_H

/* X(name, exit code of the program, stable id, meaning). */
#define VP_STATUS_TABLE(X) \
    X(OK, 0, "ok", "done; for a question, it was answered and the answer is yes") \
    X(ERR_INTERNAL, 1, "internal", "a fault of vplan itself") \
    X(ERR_USAGE, 2, "usage", "the command line is wrong") \
    X(ERR_NO_FIT, 3, "no-fit", "does not fit, or no feasible plan") \
    X(ERR_INPUT, 4, "input", "a file or value is invalid or not supported") \
    X(ERR_DEVICE, 5, "device", "the device or the environment") \
    X(ERR_NO_TRIAL, 6, "no-trial", "no trial succeeded") \
    X(ERR_STORAGE, 7, "storage", "a file could not be written or kept") \
    X(ERR_LIMIT, 8, "limit", "a limit was reached; the answer is valid but unproven") \
    X(ERR_NOMEM, 1, "no-memory", "the host has no memory left for vplan itself")

typedef enum vp_status {
#define X(name, exit_code, id, text) VP_##name,
    VP_STATUS_TABLE(X)
} vp_status;
#undef X

typedef struct vp_err {
    vp_status code;
    char      message[1024]; /* one sentence a user can act on; text from outside is escaped */
    char      file[512];     /* the input the error lies in; "" if none                     */
    int       line;          /* 1-based; 0 if not known                                     */
    char      field[256];    /* path of the field, like "optimizer.lr"; "" if none          */
} vp_err;

/* The process exit code for a status (docs/design.md, conventions). */
int vp_status_exit_code(vp_status st);

/* The stable id scripts may match, like "input". Static storage. */
const char *vp_status_id(vp_status st);

/* Fill *err unless it already holds an error; returns st. err may be NULL. file and field may be
 * NULL, line 0. The message is formatted as by printf. */
vp_status vp_fail(vp_err *err, vp_status st, const char *file, int line, const char *field,
                  const char *fmt, ...) __attribute__((format(printf, 6, 7)));

#define VP_FAIL(err, st, ...) vp_fail((err), (st), (const char *)0, 0, (const char *)0, __VA_ARGS__)
#define VP_FAIL_AT(err, st, file, line, field, ...) \
    vp_fail((err), (st), (file), (line), (field), __VA_ARGS__)

#define VP_TRY(call) \
    do { \
        st = (call); \
        if (st != VP_OK) \
            goto out; \
    } while (0)

/* For pointers, or conditions, that are NULL or false only because memory ran out. */
#define VP_TRY_ALLOC(err, pointer) \
    do { \
        if (!(pointer)) { \
            st = VP_FAIL((err), VP_ERR_NOMEM, "out of host memory"); \
            goto out; \
        } \
    } while (0)

#endif
