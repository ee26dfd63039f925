#include "dryrun/dryrun_internal.h"

#include "base/file.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

vp_status vp_dryrun_find_libraries(char *dir, size_t dir_size, vp_err *err)
{
    vp_err    why = {0};
    vp_status st  = vp_file_find_program("null/libvplan-null.so", dir, dir_size, &why);

    if (st != VP_OK)
        return VP_FAIL(err, st, "%s: build it with make", why.message);
    *strrchr(dir, '/') = '\0'; /* found, so its name has the folder's slash */
    return VP_OK;
}

bool vp_dryrun_all_ranks(const vp_dryrun_opts *opts)
{
    return opts->ranks && strcmp(opts->ranks, "all") == 0;
}

/* A port that nothing listens on now, for the rendezvous of rank 0 with itself. */
static int free_port(void)
{
    struct sockaddr_in at  = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          len = sizeof at;
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 29500;

    if (fd < 0)
        return port;
    if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &len) == 0)
        port = ntohs(at.sin_port);
    close(fd);
    return port;
}

void vp_dryrun_env_set(vp_dryrun_env *env, const char *fmt, ...)
{
    va_list args;

    assert(env->n >= 0 && env->n < VP_DRYRUN_MAX_ENV);
    assert(!env->vars[env->n] && strchr(fmt, '=')); /* NAME=VALUE, and the list ends with NULL */
    va_start(args, fmt);
    if (vasprintf(&env->vars[env->n], fmt, args) < 0) {
        env->vars[env->n] = NULL;
        env->failed       = true;
    } else {
        env->n++;
    }
    va_end(args);
}

void vp_dryrun_env_release(vp_dryrun_env *env)
{
    for (int i = 0; i < env->n; i++)
        free(env->vars[i]);
}

/* ours, then what was there, joined by ':'. */
static void env_prepend(vp_dryrun_env *env, const char *name, const char *ours)
{
    const char *was = getenv(name);

    vp_dryrun_env_set(env, "%s=%s%s%s", name, ours, was && *was ? ":" : "", was && *was ? was : "");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* libvplan-null.so and every stand-in with a name of its own, separated by ':'. */
static vp_status preload_list(const char *dir, vp_text *out, vp_err *err)
{
    DIR           *d = opendir(dir);
    struct dirent *entry;
    char          *names[64];
    size_t         n  = 0;
    vp_status      st = VP_OK;

    if (!d || strchr(dir, ':') || strchr(dir, ' ')) {
        st = VP_FAIL(
            err, VP_ERR_DEVICE, "%s: %s", dir,
            d ? "the dynamic loader cannot preload from a folder with a colon or space in its name"
              : strerror(errno));
        goto out;
    }
    vp_text_printf(out, "%s/libvplan-null.so", dir);
    while ((entry = readdir(d)))
        if (strncmp(entry->d_name, "lib", 3) == 0 && strstr(entry->d_name, ".so.") && n < 64) {
            names[n] = strdup(entry->d_name);
            VP_TRY_ALLOC(err, names[n]);
            n++;
        }
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++)
        vp_text_printf(out, ":%s/%s", dir, names[i]);
    if (out->failed)
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
out:
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    if (d)
        closedir(d);
    return st;
}

vp_status vp_dryrun_env_add_libraries(vp_dryrun_env *env, const char *null_dir, vp_err *err)
{
    vp_text   preload = {0};
    vp_status st      = VP_OK;

    VP_TRY(preload_list(null_dir, &preload, err));
    env_prepend(env, "LD_PRELOAD", preload.data);
    env_prepend(env, "LD_LIBRARY_PATH", null_dir);
    VP_TRY_ALLOC(err, !env->failed);
out:
    vp_text_release(&preload);
    return st;
}

vp_status vp_dryrun_env_make(const vp_dryrun_opts *opts, const char *null_dir, const char *folder,
                             vp_dryrun_env *env, vp_err *err)
{
    const vp_device *dev           = opts->device;
    int64_t          context_bytes = vp_dryrun_context_of(dev).bytes;
    char             probe[PATH_MAX];
    struct timespec  now = {0};
    vp_status        st  = VP_OK;

    assert(opts->command && opts->command[0] && folder[0] && context_bytes >= 0);
    clock_gettime(CLOCK_REALTIME, &now);
    VP_TRY(vp_dryrun_env_add_libraries(env, null_dir, err));
    snprintf(probe, sizeof probe, "%.*s/probe", (int)sizeof probe - 8, null_dir);
    env_prepend(env, "PYTHONPATH", probe);
    if (getenv("PATH")) { /* its nvidia-smi comes first */
        snprintf(probe, sizeof probe, "%.*s/bin", (int)sizeof probe - 8, null_dir);
        env_prepend(env, "PATH", probe);
    }
    vp_dryrun_env_set(env, "CUDA_VISIBLE_DEVICES=0");
    /* no cache beside the probe; the script's own is as ever */
    if (!getenv("PYTHONDONTWRITEBYTECODE")) {
        vp_dryrun_env_set(env, "PYTHONDONTWRITEBYTECODE=1");
        vp_dryrun_env_set(env, "VPLAN_NULL_BYTECODE=1");
    }
    /* what torch.compile compiles here is for a card that is not there: it goes with the folder, and
       a compilation that is kept elsewhere would be left out of the peak */
    vp_dryrun_env_set(env, "TORCHINDUCTOR_CACHE_DIR=%s/inductor", folder);
    vp_dryrun_env_set(env, "TRITON_CACHE_DIR=%s/triton", folder);
    vp_dryrun_env_set(env, "VPLAN_NULL_REPORT=%s", folder);
    vp_dryrun_env_set(env, "VPLAN_NULL_BEGAN=%lld.%09ld", (long long)now.tv_sec, now.tv_nsec);
    vp_dryrun_env_set(env, "VPLAN_NULL_NAME=%s", dev->product[0] ? dev->product : dev->name);
    vp_dryrun_env_set(env, "VPLAN_NULL_CC=%d", dev->compute_capability);
    vp_dryrun_env_set(env, "VPLAN_NULL_SM_COUNT=%d", dev->multiprocessors);
    vp_dryrun_env_set(env, "VPLAN_NULL_TOTAL_BYTES=%lld", (long long)dev->usable_bytes);
    vp_dryrun_env_set(env, "VPLAN_NULL_LIMIT_BYTES=%lld",
                      (long long)(opts->budget_bytes - context_bytes));
    vp_dryrun_env_set(env, "VPLAN_NULL_CONTEXT_BYTES=%lld", (long long)context_bytes);
    vp_dryrun_env_set(env, "VPLAN_NULL_PADDING=%s", opts->padding ? opts->padding : "mask");
    vp_dryrun_env_set(env, "VPLAN_NULL_VALUE=%s", opts->value ? opts->value : "");
    vp_dryrun_env_set(env, "VPLAN_NULL_CUDNN=%s", opts->cudnn ? opts->cudnn : "auto");
    vp_dryrun_env_set(env, "VPLAN_NULL_SELECT=%.17g", opts->select_frac);
    vp_dryrun_env_set(env, "VPLAN_NULL_HOST_BYTES=%lld", (long long)opts->host_bytes);
    vp_dryrun_env_set(env, "VPLAN_NULL_SNAPSHOT=%s", opts->snapshot_path ? "1" : "");
    vp_dryrun_env_set(env, "VPLAN_NULL_STEPS=%lld", (long long)opts->steps);
    vp_dryrun_env_set(env, "VPLAN_NULL_TIME=%s", opts->time ? "1" : "");
    vp_dryrun_env_set(env, "VPLAN_NULL_NO_OWNERS=%s", opts->no_owners ? "1" : "");
    vp_dryrun_env_set(env, "VPLAN_NULL_WORLD=%lld", (long long)opts->world);
    vp_dryrun_env_set(env, "VPLAN_NULL_PLAYED=%s", opts->ranks ? opts->ranks : "0");
    if (vp_dryrun_all_ranks(opts))
        vp_dryrun_env_set(env, "VPLAN_NULL_MEET=1");
    if (opts->of_kinds)
        vp_dryrun_env_set(env, "VPLAN_NULL_TELL=1");
    if (opts->world > 1) {
        vp_dryrun_env_set(env, "RANK=%lld", opts->ranks ? strtoll(opts->ranks, NULL, 10) : 0);
        vp_dryrun_env_set(env, "LOCAL_RANK=0");
        vp_dryrun_env_set(env, "WORLD_SIZE=%lld", (long long)opts->world);
        vp_dryrun_env_set(env, "LOCAL_WORLD_SIZE=%lld", (long long)opts->world);
        vp_dryrun_env_set(env, "MASTER_ADDR=127.0.0.1");
        vp_dryrun_env_set(env, "MASTER_PORT=%d", free_port());
    }
    if (env->failed)
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
out:
    return st;
}
