/* tests/fuzz/fuzz.h: what the fuzz targets share.
 *
 * A target is one file fuzz_NAME.c with LLVMFuzzerTestOneInput(): whatever the bytes, the reader
 * answers or refuses with a good error, and what it accepts is followed to the end. It is linked
 * with libFuzzer (tests/fuzz/fuzz_long.sh) or with replay.c, and with mutate.c in both. The
 * corpus of NAME is corpus/NAME/. */
#ifndef VP_TESTS_FUZZ_H
#define VP_TESTS_FUZZ_H

#include "base/err.h"
#include "base/json.h"
#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Called by libFuzzer and by replay.c. Returns 0. */
int    LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* Inputs that a target has accepted so far: replay.c asks that good ones are. In mutate.c. */
extern int64_t fuzz_n_accepted;

/* What must hold of every input. */
#define MUST(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

/* What must succeed. call fills a vp_err called err. */
#define MUST_OK(call) \
    do { \
        if ((call) != VP_OK) { \
            fprintf(stderr, "%s:%d: %s: %s:%d: %s: %s\n", __FILE__, __LINE__, #call, err.file, \
                    err.line, err.field, err.message); \
            abort(); \
        } \
    } while (0)

/* A refusal of what stands in an input: VP_ERR_INPUT, a sentence, nothing that a terminal would
 * act on. */
static inline void fuzz_check_refusal(vp_status st, const vp_err *err)
{
    MUST(st == VP_ERR_INPUT && err->code == st);
    MUST(err->message[0] && err->file[0] && err->line >= 0);
    for (const char *c = err->message; *c; c++)
        MUST((unsigned char)*c >= 0x20 && *c != 0x7f);
}

/* The input as a document; NULL: refused. */
static inline vp_json_doc *fuzz_parse(const uint8_t *data, size_t size)
{
    vp_json_doc *doc = NULL;
    vp_err       err = {0};
    vp_status    st  = vp_json_parse("input", (const char *)data, (int64_t)size, &doc, &err);

    if (st != VP_OK)
        fuzz_check_refusal(st, &err);
    return doc;
}

/* What vplan would write: the text of a JSON value, whose reference it takes. Free with
 * vp_text_release(). */
static inline vp_text fuzz_text(json_t *value)
{
    vp_text text = {0};

    MUST(value && vp_json_dump(value, &text));
    json_decref(value);
    return text;
}

/* The input as a regular file without a disk: its path, valid until the next call. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int  fd = -1;
    static char path[40];

    if (fd < 0) {
        fd = memfd_create("input", MFD_CLOEXEC);
        MUST(fd >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    MUST(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    return path;
}

#endif
