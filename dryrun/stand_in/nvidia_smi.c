/* dryrun/stand_in/nvidia_smi.c: `nvidia-smi` as scripts and loggers call it: the card that is reported, and what the processes of this
 * dry run have of it. An idle card: nothing is computed. What else it can do is refused by name.
 *     nvidia-smi                                         the table
 *     nvidia-smi -L | --list-gpus                        names
 *     nvidia-smi --query-gpu=F,F --format=csv[,noheader][,nounits]
 *     nvidia-smi --query-compute-apps=F,F --format=...   processes
 *     -i N | --id=N, -l S | --loop=S, -f FILE            of this card, again and again, into a file */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PROCESSES = 64, MIB_SHIFT = 20 };

typedef struct process {
    int      pid;
    uint64_t used_bytes;
} process;

/* free_bytes: of the budget, as cudaMemGetInfo says it. */
typedef struct card {
    const char *name;
    int         capability;
    uint64_t    total_bytes, used_bytes, free_bytes;
    process     processes[MAX_PROCESSES];
    int         n_processes;
} card;

static uint64_t number(const char *name)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : 0;
}

/* The numbers that the processes of this run keep (null_used.c). */
static void read_processes(card *c)
{
    const char    *folder = getenv("VPLAN_NULL_REPORT");
    DIR           *d      = folder ? opendir(folder) : NULL;
    struct dirent *entry;
    char           path[4096];

    while (d && (entry = readdir(d)) && c->n_processes < MAX_PROCESSES) {
        process p = {.pid = 0};
        FILE   *f;

        if (sscanf(entry->d_name, "used.%d", &p.pid) != 1 || kill(p.pid, 0) != 0 ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            continue;
        f = fopen(path, "rb");
        if (f && fread(&p.used_bytes, sizeof p.used_bytes, 1, f) == 1 && p.used_bytes) {
            c->processes[c->n_processes++] = p;
            c->used_bytes += p.used_bytes;
        }
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
}

static void read_card(card *c)
{
    const char *name = getenv("VPLAN_NULL_NAME");

    *c = (card){.name        = name ? name : "NVIDIA GPU",
                .capability  = (int)number("VPLAN_NULL_CC"),
                .total_bytes = number("VPLAN_NULL_TOTAL_BYTES")};
    read_processes(c);
    c->free_bytes = number("VPLAN_NULL_LIMIT_BYTES") + number("VPLAN_NULL_CONTEXT_BYTES");
    c->free_bytes = c->used_bytes < c->free_bytes ? c->free_bytes - c->used_bytes : 0;
}

/* ---- fields ---- */

typedef struct field {
    const char *name, *unit;
} field;

static const field units[] = {
    {"memory.total", "MiB"},
    {"memory.used", "MiB"},
    {"memory.free", "MiB"},
    {"memory.reserved", "MiB"},
    {"utilization.gpu", "%"},
    {"utilization.memory", "%"},
    {"power.draw", "W"},
    {"power.draw.instant", "W"},
    {"fan.speed", "%"},
    {"clocks.sm", "MHz"},
    {"clocks.mem", "MHz"},
    {"clocks.gr", "MHz"},
    {"clocks.current.sm", "MHz"},
    {"clocks.current.graphics", "MHz"},
    {"clocks.current.memory", "MHz"},
    {"used_memory", "MiB"},
    {"used_gpu_memory", "MiB"},
};

static const char *unit_of(const char *name)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, name) == 0)
            return units[i].unit;
    return NULL;
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* What a query's field is of this card, or of one of its processes; false: nobody knows here. */
static bool value_of(const card *c, const process *p, const char *name, char out[200])
{
    const char *unit = unit_of(name);

    if (p && is(name, "pid"))
        snprintf(out, 200, "%d", p->pid);
    else if (p && (is(name, "used_memory") || is(name, "used_gpu_memory")))
        snprintf(out, 200, "%llu", (unsigned long long)(p->used_bytes >> MIB_SHIFT));
    else if (is(name, "name") || is(name, "gpu_name"))
        snprintf(out, 200, "%s", c->name);
    else if (is(name, "memory.total"))
        snprintf(out, 200, "%llu", (unsigned long long)(c->total_bytes >> MIB_SHIFT));
    else if (is(name, "memory.used"))
        snprintf(out, 200, "%llu", (unsigned long long)(c->used_bytes >> MIB_SHIFT));
    else if (is(name, "memory.free"))
        snprintf(out, 200, "%llu", (unsigned long long)(c->free_bytes >> MIB_SHIFT));
    else if (is(name, "index"))
        snprintf(out, 200, "0");
    else if (is(name, "count"))
        snprintf(out, 200, "1");
    else if (is(name, "uuid") || is(name, "gpu_uuid"))
        snprintf(out, 200, "GPU-76706c61-6e2d-6472-792d-72756e2d3000");
    else if (is(name, "driver_version"))
        snprintf(out, 200, "580.00");
    else if (is(name, "compute_cap"))
        snprintf(out, 200, "%d.%d", c->capability / 10, c->capability % 10);
    else if (is(name, "temperature.gpu"))
        snprintf(out, 200, "30");
    else if (unit && is(unit, "W"))
        snprintf(out, 200, "0.00");
    else if (unit)
        snprintf(out, 200, "0");
    else
        return false;
    return true;
}

static void print_row(FILE *to, const card *c, const process *p, const char *fields, bool units_too)
{
    char *list = strdup(fields), *rest = list, *name;
    char  value[200];

    for (bool first = true; list && (name = strsep(&rest, ",")); first = false) {
        name += strspn(name, " ");
        if (!value_of(c, p, name, value))
            snprintf(value, sizeof value, "[N/A]");
        fprintf(to, "%s%s%s%s", first ? "" : ", ", value,
                units_too && unit_of(name) && value[0] != '[' ? " " : "",
                units_too && unit_of(name) && value[0] != '[' ? unit_of(name) : "");
    }
    fprintf(to, "\n");
    free(list);
}

static void print_header(FILE *to, const char *fields)
{
    char *list = strdup(fields), *rest = list, *name;

    for (bool first = true; list && (name = strsep(&rest, ",")); first = false) {
        name += strspn(name, " ");
        fprintf(to, unit_of(name) ? "%s%s [%s]" : "%s%s", first ? "" : ", ", name, unit_of(name));
    }
    fprintf(to, "\n");
    free(list);
}

static void print_query(FILE *to, const card *c, const char *gpus, const char *apps,
                        const char *format)
{
    bool units_too = !strstr(format, "nounits");

    if (!strstr(format, "noheader"))
        print_header(to, gpus ? gpus : apps);
    if (gpus)
        print_row(to, c, NULL, gpus, units_too);
    for (int i = 0; apps && i < c->n_processes; i++)
        print_row(to, c, &c->processes[i], apps, units_too);
}

static void print_table(FILE *to, const card *c)
{
    static const char line[] =
        "+-----------------------------------------------------------------------------+\n";
    char row[100];

    fprintf(to, "%s| %-75s |\n%s", line,
            "NVIDIA-SMI 580.00      Driver Version: 580.00      CUDA Version: 13.0", line);
    snprintf(row, sizeof row, "  0  %-32.32s  P8     0W  %7lluMiB / %7lluMiB     0%%", c->name,
             (unsigned long long)(c->used_bytes >> MIB_SHIFT),
             (unsigned long long)(c->total_bytes >> MIB_SHIFT));
    fprintf(to, "| %-75.75s |\n%s", row, line);
    for (int i = 0; i < c->n_processes; i++) {
        snprintf(row, sizeof row, "  0  %10d      C  %38lluMiB", c->processes[i].pid,
                 (unsigned long long)(c->processes[i].used_bytes >> MIB_SHIFT));
        fprintf(to, "| %-75.75s |\n", row);
    }
    fprintf(to, "%s", line);
}

/* The value of an option in a word, or in the next; NULL: it is another. */
static const char *option(char **argv, int *i, const char *name, const char *letter)
{
    size_t n = strlen(name);

    if (strncmp(argv[*i], name, n) == 0 && argv[*i][n] == '=')
        return argv[*i] + n + 1;
    if ((is(argv[*i], name) || (letter && is(argv[*i], letter))) && argv[*i + 1])
        return argv[++*i];
    return NULL;
}

int main(int argc, char **argv)
{
    const char *gpus = NULL, *apps = NULL, *format = "csv", *value, *path = NULL;
    bool        list    = false;
    double      every_s = 0;
    FILE       *to      = stdout;
    card        c;

    for (int i = 1; i < argc; i++) {
        if ((value = option(argv, &i, "--query-gpu", NULL)))
            gpus = value;
        else if ((value = option(argv, &i, "--query-compute-apps", NULL)))
            apps = value;
        else if ((value = option(argv, &i, "--format", NULL)))
            format = value;
        else if ((value = option(argv, &i, "--filename", "-f")))
            path = value;
        else if ((value = option(argv, &i, "--loop", "-l")))
            every_s = strtod(value, NULL);
        else if ((value = option(argv, &i, "--loop-ms", "-lms")))
            every_s = strtod(value, NULL) / 1e3;
        else if (is(argv[i], "-L") || is(argv[i], "--list-gpus"))
            list = true;
        else if ((value = option(argv, &i, "--id", "-i"))) {
            if (!is(value, "0") && strncmp(value, "GPU-", 4) != 0) {
                printf("No devices were found\n");
                return 6;
            }
        } else {
            fprintf(stderr,
                    "vplan dryrun: this nvidia-smi knows the card's table, -L, --query-gpu and "
                    "--query-compute-apps, not %s\n",
                    argv[i]);
            return 2;
        }
    }
    if (path && !(to = fopen(path, "w"))) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    do {
        struct timespec pause = {.tv_sec  = (time_t)every_s,
                                 .tv_nsec = (long)((every_s - (double)(time_t)every_s) * 1e9)};

        read_card(&c);
        if (list)
            fprintf(to, "GPU 0: %s (UUID: GPU-76706c61-6e2d-6472-792d-72756e2d3000)\n", c.name);
        else if (gpus || apps)
            print_query(to, &c, gpus, apps, format);
        else
            print_table(to, &c);
        fflush(to);
        if (every_s > 0)
            nanosleep(&pause, NULL);
    } while (every_s > 0 && !ferror(to));
    return ferror(to) || (to != stdout && fclose(to)) ? 1 : 0;
}
