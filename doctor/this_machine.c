#include "doctor/this_machine.h"

#include "base/nvml.h"
#include "base/units.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MAX_FILES = 65536 }; /* open ones of a process that are looked at */

typedef struct reader {
    vp_arena   *arena;
    const char *root;
    vp_machine *m;
} reader;

static void add_odd(reader *r, const char *text, const char *instead)
{
    if (text && r->m->n_odd < VP_MAX_ODD) {
        r->m->odd[r->m->n_odd].text      = text;
        r->m->odd[r->m->n_odd++].instead = instead;
    }
}

/* The first line of a file, "" where there is none. */
static const char *first_line(const reader *r, const char *path, char *buf, size_t size)
{
    char  full[PATH_MAX];
    FILE *f;

    snprintf(full, sizeof full, "%s%s", r->root, path);
    buf[0] = '\0';
    f      = fopen(full, "re");
    if (f && !fgets(buf, (int)size, f))
        buf[0] = '\0';
    if (f)
        fclose(f);
    buf[strcspn(buf, "\n")] = '\0';
    return buf;
}

/* A file of one number; -1: there is none, or it is "max" or as good as that. */
static int64_t number_in(const reader *r, const char *path)
{
    char      line[64], *end;
    long long n;

    first_line(r, path, line, sizeof line);
    n = strtoll(line, &end, 10);
    return end == line || n < 0 || n >= (long long)1 << 60 ? -1 : n;
}

static void read_meminfo(reader *r)
{
    char      path[PATH_MAX], line[200];
    long long kib;
    FILE     *f;

    snprintf(path, sizeof path, "%s/proc/meminfo", r->root);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemTotal: %lld kB", &kib) == 1 && kib >= 0 && kib >> 50 == 0)
            r->m->host_total_bytes = (int64_t)kib * 1024;
        else if (sscanf(line, "MemAvailable: %lld kB", &kib) == 1 && kib >= 0 && kib >> 50 == 0)
            r->m->host_available_bytes = (int64_t)kib * 1024;
    }
    if (f)
        fclose(f);
}

static int64_t limit_of(int what)
{
    struct rlimit l;

    return getrlimit((__rlimit_resource_t)what, &l) == 0 && l.rlim_cur != RLIM_INFINITY &&
                   l.rlim_cur < (rlim_t)1 << 60
               ? (int64_t)l.rlim_cur
               : -1;
}

static void read_host(reader *r)
{
    char           path[PATH_MAX];
    struct statvfs fs;
    vp_machine    *m = r->m;

    m->host_total_bytes = m->host_available_bytes = m->shm_bytes = m->shm_free_bytes = -1;
    read_meminfo(r);
    m->group_limit_bytes = number_in(r, "/sys/fs/cgroup/memory.max");
    m->group_used_bytes  = number_in(r, "/sys/fs/cgroup/memory.current");
    if (m->group_limit_bytes < 0 && m->group_used_bytes < 0) { /* version 1 */
        m->group_limit_bytes = number_in(r, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
        m->group_used_bytes  = number_in(r, "/sys/fs/cgroup/memory/memory.usage_in_bytes");
    }
    if (m->host_total_bytes >= 0 && m->group_limit_bytes > m->host_total_bytes)
        m->group_limit_bytes = -1;
    snprintf(path, sizeof path, "%s/dev/shm", r->root);
    if (statvfs(path, &fs) == 0) {
        m->shm_bytes      = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
        m->shm_free_bytes = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    }
    m->locked_limit_bytes  = limit_of(RLIMIT_MEMLOCK);
    m->address_limit_bytes = limit_of(RLIMIT_AS);
}

/* ---- who holds a card ---- */

static vp_holder *holder_of(reader *r, int64_t pid, int card)
{
    vp_machine *m = r->m;
    char        path[64], name[64];

    if (pid == getpid()) /* NVML's question alone */
        return NULL;
    for (int i = 0; i < m->n_holders; i++)
        if (m->holders[i].pid == pid &&
            (card < 0 || m->holders[i].card < 0 || m->holders[i].card == card))
            return &m->holders[i];
    if (m->n_holders == VP_MAX_HOLDERS)
        return NULL;
    snprintf(path, sizeof path, "/proc/%lld/comm", (long long)pid);
    m->holders[m->n_holders] =
        (vp_holder){.card  = card,
                    .pid   = pid,
                    .bytes = -1,
                    .name  = vp_arena_strdup(r->arena, first_line(r, path, name, sizeof name))};
    return &m->holders[m->n_holders++];
}

static void read_cards(reader *r)
{
    vp_nvml_card    card;
    vp_nvml_process list[VP_MAX_HOLDERS];

    for (int c = 0; c < VP_MAX_MACHINE_CARDS && vp_nvml_card_at((unsigned)c, &card); c++) {
        int     n      = vp_nvml_processes_at((unsigned)c, list, VP_MAX_HOLDERS);
        int64_t unseen = card.used_bytes;

        for (int i = 0; i < n; i++) {
            vp_holder *h = holder_of(r, list[i].pid, c);
            if (h)
                h->bytes = list[i].bytes;
            unseen -= list[i].bytes > 0 ? list[i].bytes : 0;
        }
        r->m->cards[c].product      = vp_arena_strdup(r->arena, card.product);
        r->m->cards[c].total_bytes  = card.total_bytes;
        r->m->cards[c].free_bytes   = card.free_bytes;
        r->m->cards[c].used_bytes   = card.used_bytes;
        r->m->cards[c].unseen_bytes = unseen > 0 ? unseen : 0;
        r->m->n_cards               = c + 1;
    }
}

/* The card whose device file this is; -1: another file; -2: a card's without a number (WSL, AMD). */
static int card_of(const char *file)
{
    char *end;
    long  n;

    if (strcmp(file, "/dev/dxg") == 0 || strcmp(file, "/dev/kfd") == 0)
        return -2;
    if (strncmp(file, "/dev/nvidia", 11) != 0)
        return -1;
    n = strtol(file + 11, &end, 10);
    return end > file + 11 && !*end && n >= 0 && n < 1024 ? (int)n : -1;
}

static void look_at_files(reader *r, const char *pid)
{
    char           folder[PATH_MAX], path[PATH_MAX + 300], to[256];
    DIR           *d;
    struct dirent *e;

    snprintf(folder, sizeof folder, "%s/proc/%s/fd", r->root, pid);
    d = opendir(folder);
    if (!d) {
        r->m->n_hidden += errno == EACCES || errno == EPERM;
        return;
    }
    for (int i = 0; i < MAX_FILES && (e = readdir(d)); i++) {
        ssize_t n;
        int     card;

        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        n = readlink(path, to, sizeof to - 1);
        if (n <= 0)
            continue;
        to[n] = '\0';
        card  = card_of(to);
        if (card != -1)
            holder_of(r, atoll(pid), card < 0 ? -1 : card);
    }
    closedir(d);
}

static void read_processes(reader *r)
{
    char           path[PATH_MAX];
    DIR           *d;
    struct dirent *e;

    snprintf(path, sizeof path, "%s/proc", r->root);
    d = opendir(path);
    while (d && (e = readdir(d)))
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            look_at_files(r, e->d_name);
    if (d)
        closedir(d);
}

/* ---- what is odd ---- */

static bool is_there(const reader *r, const char *path)
{
    char full[PATH_MAX];

    snprintf(full, sizeof full, "%s%s", r->root, path);
    return access(full, F_OK) == 0;
}

static void find_odd_cards(reader *r)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char        line[300], a[32];

    for (int c = 0; c < r->m->n_cards; c++)
        if (r->m->cards[c].unseen_bytes >= 512 * VP_MIB)
            add_odd(
                r,
                vp_arena_printf(
                    r->arena,
                    "GPU %d: %s are used, and no process that can be seen here holds them", c,
                    vp_size_text(r->m->cards[c].unseen_bytes, a, sizeof a)),
                "look from outside the container (nvidia-smi on the host); a process that ended badly holds memory "
                "until it is gone");
    if (!r->m->n_cards &&
        (is_there(r, "/proc/driver/nvidia/version") || is_there(r, "/dev/nvidia0")))
        add_odd(
            r, "NVIDIA's kernel module is loaded, and its library does not answer",
            "in a container: docker run --gpus all; after an update of the driver: restart the machine");
    if (visible && (!visible[0] || strcmp(visible, "-1") == 0))
        add_odd(r, "CUDA_VISIBLE_DEVICES hides every card from programs that are started here",
                "unset CUDA_VISIBLE_DEVICES");
    if (strstr(first_line(r, "/proc/version", line, sizeof line), "icrosoft"))
        add_odd(
            r,
            "WSL: what does not fit on the card moves to host memory without a word, and each step takes many times as long",
            "keep a stated reserve; expandable_segments is not available here");
}

static void find_odd_host(reader *r)
{
    const vp_machine *m   = r->m;
    const char       *old = getenv("PYTORCH_CUDA_ALLOC_CONF"), *new_ = getenv("PYTORCH_ALLOC_CONF");
    char              a[32];

    if (m->shm_bytes >= 0 && m->shm_bytes <= 64 * VP_MIB)
        add_odd(r,
                vp_arena_printf(
                    r->arena,
                    "/dev/shm has %s, a container's default: DataLoader workers and NCCL need more",
                    vp_size_text(m->shm_bytes, a, sizeof a)),
                "docker run --shm-size=16g, or --ipc=host");
    if (m->address_limit_bytes >= 0)
        add_odd(
            r,
            vp_arena_printf(
                r->arena,
                "ulimit -v allows %s of address space; CUDA reserves more than the machine's memory",
                vp_size_text(m->address_limit_bytes, a, sizeof a)),
            "ulimit -v unlimited");
    if (number_in(r, "/proc/sys/vm/overcommit_memory") == 2)
        add_odd(
            r,
            "the kernel promises no more memory than there is (vm.overcommit_memory is 2): fork() and large reservations fail early",
            "sysctl vm.overcommit_memory=0");
    if (old && new_ && strcmp(old, new_) != 0)
        add_odd(r, "PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF are both set, and differ",
                "unset one of them");
}

vp_status vp_machine_read(vp_arena *arena, const char *root, vp_machine **out, vp_err *err)
{
    reader    r  = {.arena = arena, .root = root};
    vp_status st = VP_OK;

    *out = NULL;
    r.m  = vp_arena_alloc(arena, sizeof *r.m);
    VP_TRY_ALLOC(err, r.m);
    read_host(&r);
    read_cards(&r);
    read_processes(&r);
    find_odd_cards(&r);
    find_odd_host(&r);
    if (vp_arena_failed(arena))
        VP_TRY(VP_FAIL(err, VP_ERR_NOMEM, "out of host memory"));
    *out = r.m;
out:
    return st;
}
