#include "tests/base_test.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>

static vp_err err;

/* In place of libc's: what was synced, and whether the file was in its place by then. */
static int n_files_synced, n_folders_synced;
static const char
    *awaited; /* there when a folder is synced, not when a file is; NULL: nobody asks */

int fsync(int fd)
{
    struct stat info;

    assert_int_equal(fstat(fd, &info), 0);
    if (awaited)
        assert_int_equal(access(awaited, F_OK) == 0, S_ISDIR(info.st_mode));
    n_files_synced += S_ISREG(info.st_mode);
    n_folders_synced += S_ISDIR(info.st_mode);
    return fdatasync(fd);
}

static int empty_err(void **state)
{
    (void)state;
    err = (vp_err){0};
    return 0;
}

static void holds(const char *path, const char *text)
{
    char   *data;
    int64_t n;

    CHECK_OK(vp_file_read(path, 1 << 20, &data, &n, &err));
    assert_int_equal(n, strlen(text));
    assert_string_equal(data, text);
    free(data);
}

/* Files in a folder of the test, temporaries included. */
static int n_files(const char *folder)
{
    DIR *dir = opendir(in_test_dir(folder));
    int  n   = 0;

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(dir);
    return n;
}

static const char *new_folder(const char *name)
{
    const char *path = in_test_dir(name);
    CHECK_OK(vp_file_make_dir(path, &err));
    return path;
}

static void a_file_is_read_whole_with_a_nul_behind_it(void **state)
{
    const char *path = put_file("read", "a\0b", 3);
    char       *data;
    int64_t     n;

    (void)state;
    CHECK_OK(vp_file_read(path, 3, &data, &n, &err));
    assert_int_equal(n, 3);
    assert_memory_equal(data, "a\0b", 4);
    free(data);
    path = put_file("empty", "", 0);
    CHECK_OK(vp_file_read(path, 0, &data, &n, &err));
    assert_int_equal(n, 0);
    assert_string_equal(data, "");
    free(data);
}

static void a_file_that_tells_no_size_is_read_to_its_end(void **state)
{
    char   *data;
    int64_t n;

    (void)state;
    CHECK_OK(vp_file_read("/proc/self/status", 1 << 20, &data, &n, &err));
    assert_true(n > 0);
    free(data);
    CHECK_FAILS(vp_file_read("/proc/self/status", 10, &data, &n, &err), VP_ERR_INPUT,
                "/proc/self/status", 0, "", "longer than the 10 bytes");
    assert_null(data);
}

static void what_is_no_file_is_named(void **state)
{
    char       *data;
    int64_t     n;
    const char *path = in_test_dir("loop");

    (void)state;
    CHECK_FAILS(vp_file_read(test_dir, 10, &data, &n, &err), VP_ERR_INPUT, test_dir, 0, "",
                "is a directory, not a regular file");
    CHECK_FAILS(vp_file_read("/dev/null", 10, &data, &n, &err), VP_ERR_INPUT, "/dev/null", 0, "",
                "is a character device");
    assert_int_equal(symlink("loop", path), 0);
    CHECK_FAILS(vp_file_read(path, 10, &data, &n, &err), VP_ERR_INPUT, path, 0, "", "in a circle");
    path = in_test_dir("dangling");
    assert_int_equal(symlink("not-there", path), 0);
    CHECK_FAILS(vp_file_read(path, 10, &data, &n, &err), VP_ERR_INPUT, path, 0, "",
                "a link to a file that is not there");
    path = in_test_dir("fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    CHECK_FAILS(vp_file_read(path, 10, &data, &n, &err), VP_ERR_INPUT, path, 0, "", "is a FIFO");
    path = in_test_dir("not-there-either");
    CHECK_FAILS(vp_file_read(path, 10, &data, &n, &err), VP_ERR_INPUT, path, 0, "", "no such file");
    CHECK_FAILS(vp_file_read("", 10, &data, &n, &err), VP_ERR_INPUT, "", 0, "", "no such file");
}

static void standard_input_is_read_like_a_file(void **state)
{
    char   *data;
    int64_t n;
    int     keep = dup(STDIN_FILENO), ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "hello", 5), 5);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    CHECK_OK(vp_file_read("-", 5, &data, &n, &err));
    assert_string_equal(data, "hello");
    free(data);
    dup2(keep, STDIN_FILENO);
    close(keep);
}

static void running_out_of_descriptors_is_the_environments_fault(void **state)
{
    struct rlimit was, few;
    char         *data;
    int64_t       n;
    const char   *path = put_file("nofile", "x", 1);

    (void)state;
    getrlimit(RLIMIT_NOFILE, &was);
    few          = was;
    few.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &few);
    vp_status st = vp_file_read(path, 10, &data, &n, &err);
    setrlimit(RLIMIT_NOFILE, &was);
    CHECK_FAILS(st, VP_ERR_DEVICE, path, 0, "", "cannot open it: Too many open files");
}

static void a_written_file_holds_the_bytes_and_nothing_lies_beside_it(void **state)
{
    new_folder("w1");
    const char *path = in_test_dir("w1/plan.json");

    (void)state;
    CHECK_OK(vp_file_write(path, "one", 3, false, &err));
    holds(path, "one");
    CHECK_OK(vp_file_write(path, "", 0, true, &err));
    holds(path, "");
    assert_int_equal(n_files("w1"), 1);
}

/* The bytes before the name, the name before success. */
static void a_written_file_is_synced_and_then_its_folder(void **state)
{
    char path[sizeof test_dir + 20];

    (void)state;
    snprintf(path, sizeof path, "%s/synced", test_dir);
    n_files_synced = n_folders_synced = 0;
    awaited                           = path;
    CHECK_OK(vp_file_write(path, "abc", 3, false, &err));
    awaited = NULL;
    assert_int_equal(n_files_synced, 1);
    assert_int_equal(n_folders_synced, 1);
}

static void an_existing_file_is_not_overwritten_without_force(void **state)
{
    new_folder("w2");
    const char *path = in_test_dir("w2/plan.json");

    (void)state;
    CHECK_OK(vp_file_write(path, "one", 3, false, &err));
    CHECK_FAILS(vp_file_write(path, "two", 3, false, &err), VP_ERR_USAGE, path, 0, "",
                "already exists; --force replaces it");
    holds(path, "one");
    CHECK_OK(vp_file_write(path, "two", 3, true, &err));
    holds(path, "two");
    assert_int_equal(n_files("w2"), 1);
}

static void a_file_that_appears_meanwhile_is_not_overwritten(void **state)
{
    vp_file_writer w;

    (void)state;
    new_folder("w3");
    const char *path = in_test_dir("w3/plan.json");
    CHECK_OK(vp_file_begin(path, false, &w, &err));
    fputs("mine", w.stream);
    put_file("w3/plan.json", "theirs", 6);
    CHECK_FAILS(vp_file_commit(&w, &err), VP_ERR_USAGE, path, 0, "", "--force");
    holds(path, "theirs");
    assert_int_equal(n_files("w3"), 1);
}

static void an_aborted_write_leaves_the_old_file(void **state)
{
    vp_file_writer w = {0};

    (void)state;
    vp_file_abort(&w);
    new_folder("w4");
    const char *path = put_file("w4/plan.json", "old", 3);
    CHECK_OK(vp_file_begin(path, true, &w, &err));
    fputs("new", w.stream);
    assert_int_equal(n_files("w4"), 2);
    vp_file_abort(&w);
    vp_file_abort(&w);
    holds(path, "old");
    assert_int_equal(n_files("w4"), 1);
}

static void a_killed_writer_leaves_the_old_file_and_the_next_one_cleans_up(void **state)
{
    (void)state;
    new_folder("w5");
    const char *path = put_file("w5/plan.json", "old", 3);
    put_file("w5/other.json.vplan-tmp-0123456789abcdef", "x", 1);
    put_file("w5/plan.json.vplan-tmp-mine", "x", 1);
    pid_t pid = fork();
    if (pid == 0) {
        vp_file_writer w;
        if (vp_file_begin(path, true, &w, NULL) == VP_OK) {
            fputs("new", w.stream);
            fflush(w.stream);
        }
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    holds(path, "old");
    assert_int_equal(n_files("w5"), 4);
    CHECK_OK(vp_file_write(path, "newer", 5, true, &err));
    holds(path, "newer");
    assert_int_equal(n_files("w5"), 3);
}

static void the_temporary_of_a_living_writer_stays(void **state)
{
    vp_file_writer w;

    (void)state;
    new_folder("w6");
    const char *path = in_test_dir("w6/plan.json");
    CHECK_OK(vp_file_begin(path, true, &w, &err));
    fputs("first", w.stream);
    CHECK_OK(vp_file_write(path, "second", 6, true, &err));
    holds(path, "second");
    CHECK_OK(vp_file_commit(&w, &err));
    holds(path, "first");
    assert_int_equal(n_files("w6"), 1);
}

static void a_link_stays_and_its_file_is_replaced(void **state)
{
    struct stat info;

    (void)state;
    new_folder("w7");
    new_folder("w7/real");
    const char *target    = put_file("w7/real/plan.json", "old", 3);
    const char *link_path = in_test_dir("w7/plan.json");
    assert_int_equal(symlink("real/plan.json", link_path), 0);
    CHECK_FAILS(vp_file_write(link_path, "new", 3, false, &err), VP_ERR_USAGE, link_path, 0, "",
                "--force");
    CHECK_OK(vp_file_write(link_path, "new", 3, true, &err));
    holds(target, "new");
    assert_int_equal(lstat(link_path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
}

static void only_a_regular_file_is_replaced(void **state)
{
    (void)state;
    new_folder("w8");
    const char *path = new_folder("w8/folder");
    CHECK_FAILS(vp_file_write(path, "x", 1, true, &err), VP_ERR_USAGE, path, 0, "",
                "is a directory");
    path = in_test_dir("w8/null");
    assert_int_equal(symlink("/dev/null", path), 0);
    CHECK_FAILS(vp_file_write(path, "x", 1, true, &err), VP_ERR_USAGE, path, 0, "",
                "is a character device; only a regular file can be replaced");
    CHECK_FAILS(vp_file_write("/dev/full", "x", 1, true, &err), VP_ERR_USAGE, "/dev/full", 0, "",
                "is a character device");
    path = in_test_dir("w8/fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    CHECK_FAILS(vp_file_write(path, "x", 1, true, &err), VP_ERR_USAGE, path, 0, "", "is a FIFO");
    CHECK_FAILS(vp_file_write("", "x", 1, true, &err), VP_ERR_USAGE, "", 0, "",
                "not the name of a file");
    path = in_test_dir("w8/new/");
    CHECK_FAILS(vp_file_write(path, "x", 1, true, &err), VP_ERR_USAGE, path, 0, "",
                "not the name of a file");
    assert_int_equal(n_files("w8"), 3);
}

static void a_folder_that_is_not_there_is_a_storage_error(void **state)
{
    const char *path = in_test_dir("not/there/plan.json");

    (void)state;
    CHECK_FAILS(vp_file_write(path, "x", 1, false, &err), VP_ERR_STORAGE, path, 0, "",
                "cannot create a file in its folder: No such file or directory");
}

static void a_full_disk_is_a_storage_error_and_the_old_file_stays(void **state)
{
    struct rlimit was, small;
    void (*was_handler)(int);
    char *big = calloc(1, 100000);

    (void)state;
    new_folder("w9");
    const char *path = put_file("w9/plan.json", "old", 3);
    /* A limit on file size stands in for the end of the disk. */
    getrlimit(RLIMIT_FSIZE, &was);
    small          = was;
    small.rlim_cur = 50000;
    was_handler    = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    vp_status st = vp_file_write(path, big, 100000, true, &err);
    setrlimit(RLIMIT_FSIZE, &was);
    signal(SIGXFSZ, was_handler);
    CHECK_FAILS(st, VP_ERR_STORAGE, path, 0, "", "cannot write it: File too large");
    holds(path, "old");
    assert_int_equal(n_files("w9"), 1);
    free(big);
}

static void the_mode_of_a_replaced_file_stays(void **state)
{
    struct stat info;
    mode_t      was = umask(027);

    (void)state;
    new_folder("w10");
    const char *path = in_test_dir("w10/a");
    CHECK_OK(vp_file_write(path, "x", 1, false, &err));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(chmod(path, 0604), 0);
    CHECK_OK(vp_file_write(path, "y", 1, true, &err));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0604);
    umask(was);
}

static void a_path_longer_than_its_room_is_refused(void **state)
{
    char path[2000];

    (void)state;
    memset(path, 'x', sizeof path);
    for (size_t i = 100; i < sizeof path; i += 100)
        path[i] = '/';
    path[1100] = '\0';
    assert_int_equal(vp_file_write(path, "x", 1, true, &err), VP_ERR_USAGE);
    assert_non_null(strstr(err.message, "longer than a path to write may be"));
}

static void files_are_written_relative_to_the_current_folder(void **state)
{
    char here[PATH_MAX];

    (void)state;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(new_folder("w11")), 0);
    CHECK_OK(vp_file_write("plain", "x", 1, false, &err));
    holds("plain", "x");
    assert_int_equal(chdir(here), 0);
    assert_int_equal(n_files("w11"), 1);
}

static void a_folder_is_made_once(void **state)
{
    const char *path = in_test_dir("made");

    (void)state;
    CHECK_OK(vp_file_make_dir(path, &err));
    CHECK_OK(vp_file_make_dir(path, &err));
    path = put_file("made/file", "x", 1);
    CHECK_FAILS(vp_file_make_dir(path, &err), VP_ERR_STORAGE, path, 0, "",
                "is a regular file, not a folder");
    path = in_test_dir("made/a/b");
    CHECK_FAILS(vp_file_make_dir(path, &err), VP_ERR_STORAGE, path, 0, "",
                "cannot make this folder");
}

static void a_program_is_found_beside_this_one_and_never_in_path(void **state)
{
    char    self[PATH_MAX], folder[PATH_MAX], path[PATH_MAX], below[PATH_MAX], tiny[4];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char   *base, *last;

    (void)state;
    assert_true(n > 0);
    self[n] = '\0';
    base    = strrchr(self, '/') + 1;
    snprintf(folder, sizeof folder, "%.*s", (int)(base - self), self);
    CHECK_OK(vp_file_find_program(base, path, sizeof path, &err));
    assert_string_equal(path, self);
    CHECK_FAILS(vp_file_find_program("sh", path, sizeof path, &err), VP_ERR_DEVICE, "", 0, "",
                "sh is neither in ");
    CHECK_OK(vp_file_own_folder(path, sizeof path, &err));
    assert_string_equal(path, folder);
    CHECK_FAILS(vp_file_own_folder(tiny, sizeof tiny, &err), VP_ERR_DEVICE, "", 0, "",
                "File name too long");
    /* a name may have a folder: "../tests/test_file" */
    folder[base - self - 1] = '\0';
    assert_non_null(last = strrchr(folder, '/'));
    snprintf(below, sizeof below, "..%s/%s", last, base);
    CHECK_OK(vp_file_find_program(below, path, sizeof path, &err));
    assert_non_null(strstr(path, below));
    CHECK_FAILS(vp_file_find_program(base, tiny, sizeof tiny, &err), VP_ERR_DEVICE, "", 0, "",
                "is neither in ");
}

#define T(name) cmocka_unit_test_setup(name, empty_err)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_file_is_read_whole_with_a_nul_behind_it),
        T(a_file_that_tells_no_size_is_read_to_its_end),
        T(what_is_no_file_is_named),
        T(standard_input_is_read_like_a_file),
        T(running_out_of_descriptors_is_the_environments_fault),
        T(a_written_file_holds_the_bytes_and_nothing_lies_beside_it),
        T(a_written_file_is_synced_and_then_its_folder),
        T(an_existing_file_is_not_overwritten_without_force),
        T(a_file_that_appears_meanwhile_is_not_overwritten),
        T(an_aborted_write_leaves_the_old_file),
        T(a_killed_writer_leaves_the_old_file_and_the_next_one_cleans_up),
        T(the_temporary_of_a_living_writer_stays),
        T(a_link_stays_and_its_file_is_replaced),
        T(only_a_regular_file_is_replaced),
        T(a_folder_that_is_not_there_is_a_storage_error),
        T(a_full_disk_is_a_storage_error_and_the_old_file_stays),
        T(the_mode_of_a_replaced_file_stays),
        T(a_path_longer_than_its_room_is_refused),
        T(files_are_written_relative_to_the_current_folder),
        T(a_folder_is_made_once),
        T(a_program_is_found_beside_this_one_and_never_in_path),
    };
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
