/* tests/test_study_sync.c: a trial that is in the study is on the disk. */
#include "tests/study_test.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* In place of libc's, for SQLite too: what was synced. */
static int n_files_synced, n_folders_synced;

static int note_sync(int fd, long call)
{
    struct stat info;

    assert_int_equal(fstat(fd, &info), 0);
    n_files_synced += S_ISREG(info.st_mode);
    n_folders_synced += S_ISDIR(info.st_mode);
    return (int)syscall(call, fd);
}

int fsync(int fd)
{
    return note_sync(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return note_sync(fd, SYS_fdatasync);
}

/* Of each of a trial's two writes: the journal, its folder, the study, and the folder again when the
 * journal is gone. Without the last one a lost power may bring the journal back, which undoes the write. */
static void a_trial_is_synced_and_the_folder_after_its_journal_is_gone(void **state)
{
    const char *path = in_test_dir("synced.study");
    int64_t     request_id, profile_id;
    vp_study   *study = new_study(path, &request_id, &profile_id);

    (void)state;
    n_files_synced = n_folders_synced = 0;
    add_done(study, request_id, profile_id, "{}");
    assert_int_equal(n_files_synced, 6); /* the journal twice: its length is written last */
    assert_int_equal(n_folders_synced, 4);
    vp_study_close(study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trial_is_synced_and_the_folder_after_its_journal_is_gone),
    };
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
