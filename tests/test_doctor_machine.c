/* vplan doctor without an option, over folders that look like a machine's /proc, /sys and /dev. */
#include "tests/base_test.h"

#include "doctor/this_machine.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static char root[300];

static void make_folders(const char *path)
{
    char full[600];

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        mkdir(full, 0755);
    }
}

static void put(const char *path, const char *text)
{
    char  full[600];
    FILE *f;

    make_folders(path);
    snprintf(full, sizeof full, "%s%s", root, path);
    f = fopen(full, "we");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void put_link(const char *path, const char *to)
{
    char full[600];

    make_folders(path);
    snprintf(full, sizeof full, "%s%s", root, path);
    assert_int_equal(symlink(to, full), 0);
}

/* Of the machine whose folders begin() began. */
static vp_machine *read_machine(vp_arena *arena)
{
    vp_machine *m   = NULL;
    vp_err      err = {0};

    assert_int_equal(vp_machine_read(arena, root, &m, &err), VP_OK);
    return m;
}

static void begin(const char *name)
{
    snprintf(root, sizeof root, "%s/%s", test_dir, name);
    assert_int_equal(mkdir(root, 0755), 0);
}

static bool says(const vp_machine *m, const char *words)
{
    for (int i = 0; i < m->n_odd; i++)
        if (strstr(m->odd[i].text, words))
            return m->odd[i].instead[0];
    return false;
}

static void processes_with_a_cards_file_open_are_named(void **state)
{
    vp_arena   *arena = vp_arena_new();
    vp_machine *m;

    (void)state;
    begin("holders");
    put("/proc/4321/comm", "python3\n");
    put_link("/proc/4321/fd/0", "/dev/null");
    put_link("/proc/4321/fd/7", "/dev/nvidiactl"); /* opened by whoever asks what cards there are */
    put_link("/proc/4321/fd/8", "/dev/nvidia1");
    put_link("/proc/4321/fd/9", "/dev/nvidia1");
    put("/proc/99/comm", "nvidia-smi\n");
    put_link("/proc/99/fd/3", "/dev/nvidiactl");
    put("/proc/100/comm", "wsl-train\n");
    put_link("/proc/100/fd/3", "/dev/dxg");
    put("/proc/self/comm", "no process\n");
    m = read_machine(arena);
    assert_int_equal(m->n_holders, 2);
    for (int i = 0; i < 2; i++) {
        bool first = m->holders[i].pid == 4321;
        assert_int_equal(m->holders[i].pid, first ? 4321 : 100);
        assert_int_equal(m->holders[i].card, first ? 1 : -1);
        assert_int_equal(m->holders[i].bytes, -1);
        assert_string_equal(m->holders[i].name, first ? "python3" : "wsl-train");
    }
    vp_arena_free(arena);
}

static void limits_of_both_kinds_of_containers_are_found(void **state)
{
    vp_arena   *arena = vp_arena_new();
    vp_machine *m;

    (void)state;
    begin("v2");
    put("/proc/meminfo",
        "MemTotal:       65536000 kB\nMemFree:  1 kB\nMemAvailable:   32768000 kB\n");
    put("/sys/fs/cgroup/memory.max", "17179869184\n");
    put("/sys/fs/cgroup/memory.current", "1073741824\n");
    m = read_machine(arena);
    assert_int_equal(m->host_total_bytes, 65536000LL * 1024);
    assert_int_equal(m->host_available_bytes, 32768000LL * 1024);
    assert_int_equal(m->group_limit_bytes, 17179869184LL);
    assert_int_equal(m->group_used_bytes, 1073741824LL);
    assert_int_equal(m->shm_bytes, -1);

    begin("v1");
    put("/proc/meminfo", "MemTotal:       65536000 kB\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8589934592\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n");
    m = read_machine(arena);
    assert_int_equal(m->group_limit_bytes, 8589934592LL);
    assert_int_equal(m->group_used_bytes, 4096);

    /* version 1 writes 2^63 - 4096 for no limit; version 2 "max"; a limit above the machine's memory is none */
    begin("none");
    put("/proc/meminfo", "MemTotal:       65536000 kB\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(read_machine(arena)->group_limit_bytes, -1);
    begin("max");
    put("/proc/meminfo", "MemTotal:       65536000 kB\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    put("/sys/fs/cgroup/memory.current", "5\n");
    assert_int_equal(read_machine(arena)->group_limit_bytes, -1);
    begin("above");
    put("/proc/meminfo", "MemTotal:       1000 kB\n");
    put("/sys/fs/cgroup/memory.max", "1024001\n");
    assert_int_equal(read_machine(arena)->group_limit_bytes, -1);
    vp_arena_free(arena);
}

static void what_is_odd_is_said_with_what_to_do_and_nothing_else_is(void **state)
{
    vp_arena   *arena = vp_arena_new();
    vp_machine *m;

    (void)state;
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("PYTORCH_ALLOC_CONF");
    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    begin("plain");
    put("/proc/version", "Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)\n");
    put("/proc/sys/vm/overcommit_memory", "0\n");
    assert_int_equal(read_machine(arena)->n_odd, 0);

    begin("wsl");
    put("/proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2\n");
    put("/proc/sys/vm/overcommit_memory", "2\n");
    put("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05\n");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 1);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128", 1);
    m = read_machine(arena);
    assert_true(says(m, "WSL") && says(m, "overcommit_memory") &&
                says(m, "kernel module is loaded") && says(m, "hides every card") &&
                says(m, "are both set, and differ"));
    assert_int_equal(m->n_odd, 5);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 1);
    assert_int_equal(read_machine(arena)->n_odd, 4);
    vp_arena_free(arena);
}

static void a_machine_without_anything_is_an_answer(void **state)
{
    vp_arena   *arena = vp_arena_new();
    vp_machine *m;

    (void)state;
    begin("nothing");
    m = read_machine(arena);
    assert_int_equal(m->n_cards, 0);
    assert_int_equal(m->n_holders, 0);
    assert_int_equal(m->host_total_bytes, -1);
    put("/proc/meminfo", "MemTotal: 99999999999999999999 kB\nMemAvailable: -5 kB\nMemTotal:\n");
    put("/sys/fs/cgroup/memory.max", "garbage\n");
    put("/proc/77/comm", "");
    m = read_machine(arena);
    assert_int_equal(m->host_available_bytes, -1);
    assert_int_equal(m->group_limit_bytes, -1);
    vp_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_with_a_cards_file_open_are_named),
        cmocka_unit_test(limits_of_both_kinds_of_containers_are_found),
        cmocka_unit_test(what_is_odd_is_said_with_what_to_do_and_nothing_else_is),
        cmocka_unit_test(a_machine_without_anything_is_an_answer),
    };

    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
