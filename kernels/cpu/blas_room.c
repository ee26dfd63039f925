/* kernels/cpu/blas_room.c: is there address space for OpenBLAS's buffers? It takes one for each
 * thread that calls it, and where it gets none it asks again for ever: for its own threads before
 * main(), for ours in their first product. So this asks first. */
#include "kernels/cpu/cpu_internal.h"

#include "base/units.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    BUFFER_MIB = 128, /* OpenBLAS 0.3.21 on x86-64: BUFFER_SIZE of common_x86_64.h, 32 << 22 */
    STACK_MIB  = 8,
    REST_MIB   = 32 /* what else such a process maps while it runs */
};

static int64_t bytes_for(int n_threads)
{
    return (n_threads * (int64_t)(BUFFER_MIB + STACK_MIB) + REST_MIB) * VP_MIB;
}

static bool has_room(int n_threads)
{
    size_t n_bytes = (size_t)bytes_for(n_threads);
    void  *p       = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return false;
    munmap(p, n_bytes);
    return true;
}

static void explain(int n_threads, const char *variable, char *text, size_t text_size)
{
    snprintf(
        text, text_size,
        "OpenBLAS needs %lld MiB of address space for %d thread%s, more than the limit leaves: "
        "raise it (ulimit -v)%s%s%s",
        (long long)(bytes_for(n_threads) / VP_MIB), n_threads, n_threads == 1 ? "" : "s",
        n_threads == 1 ? "" : " or set ", n_threads == 1 ? "" : variable,
        n_threads == 1 ? "" : "=1");
}

vp_status vp_cpu_blas_room(vp_err *err)
{
    char text[200];
    int  n = vp_cpu_threads();

    if (has_room(n))
        return VP_OK;
    explain(n, "OMP_NUM_THREADS", text, sizeof text);
    return VP_FAIL(err, VP_ERR_DEVICE, "%s", text);
}

/* As OpenBLAS counts them: its variable, then OpenMP's, and no more than there are processors. */
static int threads_at_start(char **env)
{
    static const char *const names[] = {
        "OPENBLAS_NUM_THREADS=", "GOTO_NUM_THREADS=", "OMP_NUM_THREADS="};
    cpu_set_t cpus;
    int       n = 0, n_cpus = 1;

    if (!sched_getaffinity(0, sizeof cpus, &cpus))
        n_cpus = CPU_COUNT(&cpus);
    for (size_t i = 0; i < sizeof names / sizeof *names && n < 1; i++)
        for (char **e = env; *e; e++) /* getenv() knows nothing yet */
            if (!strncmp(*e, names[i], strlen(names[i])))
                n = atoi(*e + strlen(names[i]));
    return n < 1 || n > n_cpus ? n_cpus : n;
}

/* Before any library's own start: nothing but plain calls, and no way to return an error. */
static void look_first(int argc, char **argv, char **env)
{
    bool json = false;
    char why[200], text[600];
    int  n = threads_at_start(env), length;

    if (n == 1 || has_room(n)) /* one starts none, and asks in its first product */
        return;
    for (int i = 1; i < argc; i++)
        json = json || !strcmp(argv[i], "--json");
    explain(n, "OPENBLAS_NUM_THREADS", why, sizeof why);
    length = snprintf(text, sizeof text, "vplan-run: %s\n", why);
    if (write(STDERR_FILENO, text, (size_t)length) == length && json) {
        length = snprintf(text, sizeof text,
                          "{\"schema_version\": 1, \"error\": {\"code\": \"%s\", \"message\": "
                          "\"%s\", \"file\": null, \"line\": null, \"field\": null}}\n",
                          vp_status_id(VP_ERR_DEVICE), why);
        length -= (int)write(STDOUT_FILENO, text, (size_t)length);
    }
    _exit(vp_status_exit_code(VP_ERR_DEVICE));
}

/* The only functions of a program that run before its libraries' (gABI, DT_PREINIT_ARRAY). */
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **,
                                                                            char **) = look_first;
