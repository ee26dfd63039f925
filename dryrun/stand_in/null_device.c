/* dryrun/stand_in/null_device.c: the card that is reported, the counters, and the end by name. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

vp_null_counters vp_null_count;

static vp_null_device device;
static pthread_once_t device_once = PTHREAD_ONCE_INIT;
static int            n_devices;
static pthread_once_t n_devices_once = PTHREAD_ONCE_INIT;

static uint64_t env_u64(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    char       *end;
    uint64_t    value;

    if (!text || !*text)
        return fallback;
    value = strtoull(text, &end, 10);
    return *end ? fallback : value;
}

/* Limits per compute capability: CUDA C Programming Guide, "Technical Specifications per Compute
 * Capability". An unlisted one takes the nearest lower row. L2 is that of the common card; PyTorch
 * sizes no memory by it. */
static const struct {
    int cc, threads_per_sm, blocks_per_sm, smem_per_sm_kib, smem_optin_kib, l2_mib;
} limits[] = {
    {50, 2048, 32, 64, 48, 2},    {60, 2048, 32, 64, 48, 4},      {61, 2048, 32, 96, 48, 3},
    {70, 2048, 32, 96, 96, 6},    {75, 1024, 16, 64, 64, 4},      {80, 2048, 32, 164, 163, 40},
    {86, 1536, 16, 100, 99, 6},   {87, 1536, 16, 164, 163, 4},    {89, 1536, 24, 100, 99, 72},
    {90, 2048, 32, 228, 227, 50}, {100, 2048, 32, 228, 227, 126}, {120, 1536, 24, 100, 99, 96},
};

static void device_init(void)
{
    const char *name = getenv("VPLAN_NULL_NAME");
    int         cc   = (int)env_u64("VPLAN_NULL_CC", 90);
    size_t      row  = 0;

    snprintf(device.name, sizeof device.name, "%s", name && *name ? name : "NVIDIA H100 80GB HBM3");
    device.cc_major      = cc / 10;
    device.cc_minor      = cc % 10;
    device.sm_count      = (int)env_u64("VPLAN_NULL_SM_COUNT", 132);
    device.total_bytes   = env_u64("VPLAN_NULL_TOTAL_BYTES", (uint64_t)1 << 50);
    device.limit_bytes   = env_u64("VPLAN_NULL_LIMIT_BYTES", device.total_bytes);
    device.context_bytes = env_u64("VPLAN_NULL_CONTEXT_BYTES", 0);
    device.fill_byte     = (int)(env_u64("VPLAN_NULL_FILL", 0) & 0xff);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].cc <= cc)
            row = i;
    device.threads_per_sm    = limits[row].threads_per_sm;
    device.blocks_per_sm     = limits[row].blocks_per_sm;
    device.smem_per_sm_bytes = limits[row].smem_per_sm_kib * 1024;
    device.smem_optin_bytes  = limits[row].smem_optin_kib * 1024;
    device.l2_bytes          = limits[row].l2_mib * 1024 * 1024;
}

const vp_null_device *vp_null_device_get(void)
{
    pthread_once(&device_once, device_init);
    return &device;
}

/* As the driver reads it: the list ends at its first entry that is none, so "" and "-1" hide all. */
static void n_devices_init(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    n_devices = !visible || (*visible && *visible != '-');
}

int vp_null_n_devices(void)
{
    pthread_once(&n_devices_once, n_devices_init);
    return n_devices;
}

/* ---- the probe's side: plain C entry points for ctypes
 * ---------------------------------------- */

/* Called with kind 'r' (a device-to-host copy of n bytes), 'c' (a collective, described in `what`), 's' (file `what` of an
 * earlier run was not written) or 'u' (the
 * process is about to end because function `what` is not modelled; return after the report is written). */
typedef void (*vp_null_notify)(int kind, uint64_t n_bytes, const char *what);

static vp_null_notify notify;

VP_NULL_EXPORT void                    vplan_null_set_notify(vp_null_notify f);
VP_NULL_EXPORT const vp_null_counters *vplan_null_counters(void);
VP_NULL_EXPORT void                    vplan_null_set_fill(int byte);
VP_NULL_EXPORT void                    vplan_null_set_device(void);
VP_NULL_EXPORT void                    vplan_null_read(uint64_t n_bytes);
VP_NULL_EXPORT int                     vplan_null_version(void);
VP_NULL_EXPORT void                    vplan_null_expect(int on, uint64_t n);

void vplan_null_set_notify(vp_null_notify f)
{
    notify = f;
}

const vp_null_counters *vplan_null_counters(void)
{
    return &vp_null_count;
}

int vplan_null_version(void)
{
    return 1;
}

/* The environment is read again: for a fork that is told of another card, or of another limit, before it takes memory of one. */
void vplan_null_set_device(void)
{
    vp_null_device_get();
    device_init();
}

void vplan_null_set_fill(int byte)
{
    vp_null_device_get();
    device.fill_byte = byte & 0xff;
}

static __thread bool     expecting;
static __thread uint64_t expected;

/* Until switched off, reads of 4 or 8 bytes in this thread give the count n: how many elements a
 * boolean mask selects. */
void vplan_null_expect(int on, uint64_t n)
{
    expecting = on != 0;
    expected  = n;
}

bool vp_null_expected(void *dst, size_t bytes)
{
    if (!expecting || (bytes != 4 && bytes != 8))
        return false;
    memcpy(dst, &expected, bytes); /* little-endian, as every host of a CUDA card is */
    return true;
}

/* ---- host memory
 * ---------------------------------------------------------------------------------- */

static long long meminfo_kib(const char *path, const char *name)
{
    FILE     *f = fopen(path, "r");
    char      line[200];
    size_t    n     = strlen(name);
    long long value = -1;

    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, n) == 0) {
            value = strtoll(line + n, NULL, 10);
            break;
        }
    if (f)
        fclose(f);
    return value;
}

static long long file_number(const char *folder, const char *name)
{
    char      path[1024], line[64] = "";
    FILE     *f     = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path
                          ? fopen(path, "r")
                          : NULL;
    long long value = -1;

    if (f && fgets(line, sizeof line, f) && line[0] >= '0' && line[0] <= '9')
        value = strtoll(line, NULL, 10);
    if (f)
        fclose(f);
    return value;
}

typedef struct host_memory {
    long long total_kib, left_kib, mine_kib; /* -1: not known */
} host_memory;

/* What this process may use: the machine, or the control group (a container) where that has
 * less. */
static host_memory host_memory_now(void)
{
    const char *meminfo = getenv("VPLAN_NULL_MEMINFO"), *group = getenv("VPLAN_NULL_CGROUP");
    char        stat[1024];
    host_memory m;
    long long   most, used, cached;

    if (!meminfo)
        meminfo = "/proc/meminfo";
    if (!group)
        group = "/sys/fs/cgroup";
    m.total_kib = meminfo_kib(meminfo, "MemTotal:");
    m.left_kib  = meminfo_kib(meminfo, "MemAvailable:");
    m.mine_kib  = meminfo_kib("/proc/self/status", "RssAnon:");
    most        = file_number(group, "memory.max");
    used        = file_number(group, "memory.current");
    if (most > 0 && used >= 0 && (m.total_kib < 0 || most / 1024 < m.total_kib)) {
        snprintf(stat, sizeof stat, "%.1000s/memory.stat", group);
        /* bytes there: the page cache, which is given back */
        cached      = meminfo_kib(stat, "file ");
        m.total_kib = most / 1024;
        used -= cached > 0 && cached < used ? cached : 0;
        if (m.left_kib < 0 || (most - used) / 1024 < m.left_kib)
            m.left_kib = (most - used) / 1024;
    }
    return m;
}

/* A script that makes a large model on the CPU first would take the machine down with it. This
 * process ends, with a word about it, when it holds more than VPLAN_NULL_HOST_BYTES, or more
 * than half of the host's memory with less than a twentieth left. */
static void *guard(void *unused)
{
    long long limit_kib = (long long)(env_u64("VPLAN_NULL_HOST_BYTES", 0) / 1024);

    (void)unused;
    prctl(PR_SET_NAME, "vplan-guard");
    for (;;) {
        struct timespec pause = {.tv_nsec = 100000000};
        host_memory     m     = host_memory_now();

        if ((limit_kib > 0 && m.mine_kib > limit_kib) ||
            (m.total_kib > 0 && m.left_kib >= 0 && m.mine_kib > m.total_kib / 2 &&
             m.left_kib < m.total_kib / 20)) {
            const char *folder = getenv("VPLAN_NULL_REPORT");
            char        path[1024];
            int         fd;

            if (folder && snprintf(path, sizeof path, "%s/hostfull.%ld", folder, (long)getpid()) <
                              (int)sizeof path) {
                fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                if (fd >= 0) {
                    dprintf(fd,
                            "the process held %lld MiB; there are %lld MiB, %lld MiB of them free",
                            m.mine_kib / 1024, m.total_kib / 1024, m.left_kib / 1024);
                    close(fd);
                }
            }
            dprintf(
                2,
                "vplan dryrun: host memory is full: this process holds %lld MiB; the run ends here\n",
                m.mine_kib / 1024);
            _exit(5);
        }
        nanosleep(&pause, NULL);
    }
    return NULL;
}

void vplan_null_guard(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, guard, NULL) == 0)
        pthread_detach(thread);
}

void vp_null_tell(int kind, uint64_t n, const char *what)
{
    if (notify)
        notify(kind, n, what);
}

void vplan_null_read(uint64_t n_bytes)
{
    __atomic_add_fetch(&vp_null_count.n_read, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&vp_null_count.read_bytes, n_bytes, __ATOMIC_RELAXED);
    vp_null_tell('r', n_bytes, "");
}

_Noreturn void vp_null_unsupported(const char *library, const char *function, const char *why)
{
    static __thread bool inside; /* the report itself may reach a second one */
    const char          *folder = getenv("VPLAN_NULL_REPORT");
    char                 text[512], path[1024];
    int                  n, fd;

    n = snprintf(text, sizeof text, "%s\t%s\t%s\n", library, function, why);
    if (n >= (int)sizeof text)
        n = (int)sizeof text - 1;
    if (folder && *folder &&
        snprintf(path, sizeof path, "%s/unsupported.%ld", folder, (long)getpid()) <
            (int)sizeof path) {
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd >= 0) {
            if (write(fd, text, (size_t)n) != n)
                dprintf(2, "vplan dryrun: cannot write %s\n", path);
            close(fd);
        }
    }
    dprintf(2, "vplan dryrun: %s: %s is not modelled (%s); the run ends here\n", library, function,
            why);
    if (notify && !inside) {
        inside = true;
        notify('u', 0, function);
    }
    _exit(4);
}
