/* A target without libFuzzer: its corpus, then mutations of it from a fixed seed, 8 MiB in all and
 * 15,000 at least; says its cases in TAP.
 *
 *     build/tests/fuzz/fuzz_plan                 corpus and mutations, as tests/run.sh runs it
 *     build/tests/fuzz/fuzz_plan FILE...         these inputs only
 *
 * Files good-* of the corpus must be accepted, bad-* refused. An input that crashes or takes
 * more than 20 seconds is left as crash-NAME beside the program. VPLAN_LONG=1: twenty times as
 * much. */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>

enum { MAX_FILES = 1000, MAX_BYTES = 1 << 17, SECONDS = 20, MUTATED_BYTES = 8 << 20 };

/* Also of large inputs; a sanitizer takes ten times as long for each. */
#if defined(__SANITIZE_ADDRESS__)
enum { LEAST_MUTATIONS = 1500 };
#else
enum { LEAST_MUTATIONS = 15000 };
#endif

static uint8_t  input[MAX_BYTES];
static size_t   input_size;
static char     crash_path[1200];
static uint32_t state = 1;

static uint32_t draw(size_t n)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(state >> 8) * n) >> 24);
}

/* What libFuzzer's own does, in short: bytes changed, put in, taken out. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
    static const uint8_t bytes[] = {0,   9,   10,   ' ', '"', ',', '-', '.', '/', '0', '9',
                                    ':', '[', '\\', ']', 'e', 'u', '{', '}', 127, 128, 255};
    size_t               at      = size ? draw(size) : 0;

    switch (size ? draw(4) : 3) {
    case 0:
        data[at] ^= (uint8_t)(1u << draw(8));
        return size;
    case 1:
        data[at] = bytes[draw(sizeof bytes)];
        return size;
    case 2:
        memmove(data + at, data + at + 1, size - at - 1);
        return size - 1;
    default:
        if (size >= max_size)
            return size;
        memmove(data + at + 1, data + at, size - at);
        data[at] = bytes[draw(sizeof bytes)];
        return size + 1;
    }
}

/* Only calls that a signal handler may make. */
static void leave_input(int sig)
{
    int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if (fd >= 0 && write(fd, input, input_size) == (ssize_t)input_size) {
        static const char said[] = "the input is left in ";
        if (write(2, said, sizeof said - 1) < 0 || write(2, crash_path, strlen(crash_path)) < 0 ||
            write(2, "\n", 1) < 0)
            _exit(1);
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

/* True: it was accepted. */
static bool run_input(void)
{
    int64_t before = fuzz_n_accepted;
    /* of its very size, so that a sanitizer sees a step beyond it */
    uint8_t *exact = malloc(input_size ? input_size : 1);

    MUST(exact);
    memcpy(exact, input, input_size);
    alarm(SECONDS);
    LLVMFuzzerTestOneInput(exact, input_size);
    alarm(0);
    free(exact);
    return fuzz_n_accepted > before;
}

static void load(const char *path)
{
    FILE *f = fopen(path, "rb");

    if (!f) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(2);
    }
    input_size = fread(input, 1, sizeof input, f);
    MUST(fgetc(f) == EOF); /* else larger than MAX_BYTES */
    fclose(f);
}

static int not_hidden(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    const char     *name      = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    const int       signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
    struct dirent **files;
    char            dir[300], path[600];
    int             n_files, failed = 0;
    int64_t         longer = getenv("VPLAN_LONG") ? 20 : 1, bytes_left = longer * MUTATED_BYTES,
            n_mutations = 0, n_before;

    name += strncmp(name, "fuzz_", 5) == 0 ? 5 : 0;
    snprintf(dir, sizeof dir, "tests/fuzz/corpus/%s", name);
    snprintf(crash_path, sizeof crash_path, "%.*scrash-%s",
             (int)(strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 - argv[0] : 0), argv[0], name);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], leave_input);
    if (argc > 1) {
        for (int i = 1; i < argc; i++) {
            load(argv[i]);
            printf("%s: %s\n", argv[i], run_input() ? "accepted" : "refused");
        }
        return 0;
    }
    n_files = scandir(dir, &files, not_hidden, alphasort);
    if (n_files < 1) {
        fprintf(stderr, "no corpus in %s\n", dir);
        return 2;
    }
    printf("1..%d\n", n_files + 1);
    for (int i = 0; i < n_files; i++) {
        const char *file = files[i]->d_name;
        snprintf(path, sizeof path, "%s/%s", dir, file);
        load(path);
        bool accepted = run_input();
        bool wrong    = strncmp(file, accepted ? "bad-" : "good-", accepted ? 4 : 5) == 0;
        printf("%sok %d - %s\n", wrong ? "not " : "", i + 1, path);
        if (wrong)
            fprintf(stderr, "%s is %s (old format? see tests/fuzz/README.md)\n", path,
                    accepted ? "accepted" : "refused");
        failed += wrong;
        fflush(stdout);
    }
    n_before = fuzz_n_accepted;
    for (; bytes_left > 0 || n_mutations < longer * LEAST_MUTATIONS; n_mutations++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[draw((size_t)n_files)]->d_name);
        load(path);
        for (int left = 1 + (int)draw(3); left > 0; left--)
            input_size = LLVMFuzzerCustomMutator(input, input_size, sizeof input, draw(1 << 24));
        run_input();
        bytes_left -= (int64_t)input_size + 100;
    }
    printf("ok %d - %lld mutations, %lld accepted\n", n_files + 1, (long long)n_mutations,
           (long long)(fuzz_n_accepted - n_before));
    for (int i = 0; i < n_files; i++)
        free(files[i]);
    free(files);
    return failed != 0;
}
