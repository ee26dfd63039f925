/* tests/call_test.h: kernel calls of tests on the backend under test, their operands being memory
 * of the test.
 *     CHECK_OK(call_try(&call, &err));
 * On the CPU's backend that is its run(). Another backend gets copies: each operand in a block
 * of its own, at the same place modulo 256 bytes and between bytes that must not change,
 * operands that overlap in one block; with the workspace that plan/workspace.h promises. What
 * the call leaves there is copied back. Where host_memory is set the way is the same.
 * VPLAN_TEST_DIGEST names a file that gets, at the end, a number made of all bytes copied back:
 * two runs with equal bits have equal numbers. */
#ifndef VP_TESTS_CALL_TEST_H
#define VP_TESTS_CALL_TEST_H

#include "tests/backend_test.h"
#include "tests/base_test.h"

#include "base/checked.h"
#include "plan/workspace.h"

static inline bool on_cpu(void)
{
    return test_backend() == vp_backend_cpu();
}

/* For a test of what only the CPU's backend has: threads, instruction sets, BLAS; or of the
 * reference alone. */
#define CPU_ONLY() \
    do { \
        if (!on_cpu()) \
            skip(); \
    } while (0)

/* For a test of TF32, which the CPU's backend refuses, and cards before 8.0. */
#define TF32_ONLY() \
    do { \
        if (test_backend()->compute_capability < VP_TF32_CAPABILITY) \
            skip(); \
    } while (0)

/* One of every test_part() cases, for a backend that is slow. */
static inline bool call_is_chosen(void)
{
    static uint64_t n_asked;

    return n_asked++ % (uint64_t)test_part() == 0;
}

enum { CALL_POISON = 0xff, CALL_ALIGN = 256, CALL_BEHIND = 64 };

/* Memory of the test, and its copy on the device: `before` poisoned bytes, the memory,
 * CALL_BEHIND poisoned bytes. */
typedef struct call_range {
    char   *host, *block;
    int64_t n_bytes, before;
} call_range;

typedef struct call_copy {
    call_range ranges[VP_MAX_OPERANDS + 1];
    int        n;
} call_copy;

static inline void call_add(call_copy *c, const void *p, int64_t n_bytes)
{
    char *begin = (char *)(uintptr_t)p, *end = begin + n_bytes;

    for (int i = 0; i < c->n;) {
        call_range *r = &c->ranges[i];

        if (begin >= r->host + r->n_bytes || r->host >= end) {
            i++;
            continue;
        }
        begin = begin < r->host ? begin : r->host;
        end   = end > r->host + r->n_bytes ? end : r->host + r->n_bytes;
        *r    = c->ranges[--c->n];
        i     = 0; /* the larger one may meet those that came before */
    }
    c->ranges[c->n++] = (call_range){.host = begin, .n_bytes = end - begin};
}

static inline void *call_place(const call_copy *c, const void *p)
{
    for (int i = 0; i < c->n; i++) {
        const call_range *r = &c->ranges[i];

        if ((const char *)p >= r->host && (const char *)p < r->host + r->n_bytes)
            return r->block + r->before + ((const char *)p - r->host);
    }
    return NULL;
}

static inline int64_t call_block_bytes(const call_range *r)
{
    return r->before + r->n_bytes + CALL_BEHIND;
}

static inline void call_upload(call_range *r)
{
    vp_err err = {0};
    char  *image;

    r->before = (int64_t)((uintptr_t)r->host % CALL_ALIGN);
    image     = malloc((size_t)call_block_bytes(r));
    assert_non_null(image);
    memset(image, CALL_POISON, (size_t)call_block_bytes(r));
    memcpy(image + r->before, r->host, (size_t)r->n_bytes);
    CHECK_OK(test_backend()->alloc(call_block_bytes(r), (void **)&r->block, &err));
    CHECK_OK(test_backend()->upload(r->block, image, call_block_bytes(r), &err));
    free(image);
}

static uint64_t call_digest_now = 14695981039346656037u;

static inline void call_digest_write(void)
{
    FILE *f = fopen(getenv("VPLAN_TEST_DIGEST"), "w");

    if (f) {
        fprintf(f, "%016llx\n", (unsigned long long)call_digest_now);
        fclose(f);
    }
}

/* FNV-1a, eight bytes at a time. */
static inline void call_digest(const char *bytes, int64_t n_bytes)
{
    static bool begun;

    if (!getenv("VPLAN_TEST_DIGEST"))
        return;
    if (!begun)
        atexit(call_digest_write);
    begun = true;
    for (int64_t i = 0; i < n_bytes; i += 8) {
        uint64_t word = 0;

        memcpy(&word, bytes + i, (size_t)vp_min_i64(8, n_bytes - i));
        call_digest_now = (call_digest_now ^ word) * 1099511628211u;
    }
}

static inline void call_download(const call_range *r, vp_kernel kernel)
{
    vp_err err   = {0};
    char  *image = malloc((size_t)call_block_bytes(r));

    assert_non_null(image);
    CHECK_OK(test_backend()->download(image, r->block, call_block_bytes(r), &err));
    for (int64_t i = 0; i < call_block_bytes(r); i++)
        if ((i < r->before || i >= r->before + r->n_bytes) &&
            (unsigned char)image[i] != CALL_POISON)
            fail_msg("%s wrote byte %lld of operands of %lld", vp_kernel_info_of(kernel)->name,
                     (long long)(i - r->before), (long long)r->n_bytes);
    memcpy(r->host, image + r->before, (size_t)r->n_bytes);
    call_digest(r->host, r->n_bytes);
    free(image);
}

/* Kept from call to call, as an arena is. */
static char   *call_workspace_block;
static int64_t call_workspace_bytes;

static inline void call_workspace_release(void)
{
    test_backend()->release(call_workspace_block, call_workspace_bytes);
}

/* n_bytes that end where the block ends, poisoned at their beginning. */
static inline void *call_workspace(int64_t n_bytes)
{
    vp_err err = {0};
    char  *at;

    if (n_bytes == 0)
        return NULL;
    if (n_bytes > call_workspace_bytes) {
        if (call_workspace_block)
            call_workspace_release();
        else
            atexit(call_workspace_release);
        call_workspace_bytes = vp_round_up(n_bytes, CALL_ALIGN);
        CHECK_OK(test_backend()->alloc(call_workspace_bytes, (void **)&call_workspace_block, &err));
    }
    at = call_workspace_block + call_workspace_bytes - vp_round_up(n_bytes, VP_ALIGN_BYTES);
    CHECK_OK(test_backend()->fill(at, CALL_POISON, vp_min_i64(n_bytes, 1 << 20), &err));
    return at;
}

/* A control block that scales the loss is longer. */
static inline int64_t call_operand_bytes(const vp_kernel_call *call, int i)
{
    bool control = vp_kernel_info_of(call->kernel)->operands[i].elem == VP_AS_CONTROL;

    return control && VP_IS_SCALED((const vp_control *)call->operand[i])
               ? (int64_t)sizeof(vp_scaled_control)
               : vp_kernel_operand_bytes(call->kernel, call->dtype, call->ints, i);
}

static inline vp_status call_try_copied(const vp_kernel_call *call, vp_err *err)
{
    const vp_kernel_info *info    = vp_kernel_info_of(call->kernel);
    int                   lengths = vp_kernel_operand(call->kernel, "lengths");
    vp_call_shape         shape   = {.compute_capability = test_backend()->compute_capability,
                                     .kernel             = call->kernel,
                                     .dtype              = call->dtype,
                                     .ints               = call->ints,
                                     .reals              = call->reals,
                                     .lengths            = lengths >= 0 && call->operand[lengths]};
    vp_kernel_call        there   = *call;
    call_copy             copy    = {.n = 0};
    vp_status             st;

    for (int i = 0; i < info->n_operands; i++)
        if (call->operand[i])
            call_add(&copy, call->operand[i], call_operand_bytes(call, i));
    if (call->control)
        call_add(&copy, call->control, (int64_t)sizeof *call->control);
    for (int i = 0; i < copy.n; i++)
        call_upload(&copy.ranges[i]);
    for (int i = 0; i < info->n_operands; i++)
        there.operand[i] = call_place(&copy, call->operand[i]);
    there.control         = call_place(&copy, call->control);
    there.workspace_bytes = vp_workspace_bytes(&shape);
    there.workspace       = call_workspace(there.workspace_bytes);
    st                    = test_backend()->run(&there, err);
    if (st == VP_OK)
        st = test_backend()->wait(err);
    for (int i = 0; i < copy.n; i++) {
        if (st == VP_OK)
            call_download(&copy.ranges[i], call->kernel);
        test_backend()->release(copy.ranges[i].block, call_block_bytes(&copy.ranges[i]));
    }
    return st;
}

static inline vp_status call_try(const vp_kernel_call *call, vp_err *err)
{
    return on_cpu() ? vp_backend_cpu()->run(call, err) : call_try_copied(call, err);
}

#endif
