/* A recorded program with other libraries: what is not there, and a mask beside the inputs. Worked by hand. */
#include "tests/base_test.h"

#include "base/file.h"
#include "trainers/torch/recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A weight of 1024 bytes and a buffer of 512 are loaded; 2048 bytes come in. */
static const char *const text = "vplan-recording 2\n"
                                "family llama\n"
                                "versions torch=2.11.0 transformers=5.17.0\n"
                                "also 0 torch=2.11.0 transformers=4.57.6\n"
                                "also 1 torch=2.9.0 transformers=5.17.0\n"
                                "device capability=90\n"
                                "size 1024\n"
                                "size 512\n"
                                "size 2048\n"
                                "part P0 U1\n"
                                "part I2\n"
                                "program task=clm\n"
                                "%s\n"
                                "phase load 0\n"
                                "phase inputs 1\n"
                                "end\n";

/* The file with this line of its program. */
static vp_status open_with(const char *line, vp_recording **out,
                           const vp_recorded_program **program, vp_err *err)
{
    char      path[] = "/tmp/vplan-recording-XXXXXX", whole[1024];
    int       fd     = mkstemp(path);
    vp_status st     = VP_OK;

    assert_true(fd >= 0);
    snprintf(whole, sizeof whole, text, line);
    assert_int_equal(write(fd, whole, strlen(whole)), (ssize_t)strlen(whole));
    close(fd);
    *program = NULL;
    st       = vp_recording_open(path, out, err);
    if (st == VP_OK)
        st = vp_recording_find(*out, "task=clm", program, err);
    unlink(path);
    return st;
}

/* What is allocated when all is there, of 3 samples of 100 tokens; as: with which libraries, -1 for its own. */
static int64_t bytes_of(const vp_recorded_program *program, int64_t as)
{
    vp_symbols symbols = {
        .at = {[VP_SYM_B] = 3, [VP_SYM_S] = 100, [VP_SYM_h] = 64, [VP_SYM_a] = 1}};
    vp_ledger                 ledger   = {0};
    vp_recorded              *step     = NULL;
    vp_err                    err      = {0};
    int64_t                   layers[] = {2, 0};
    vp_caching_allocator_opts options  = {.device_total_bytes = VP_CACHING_DEVICE_UNLIMITED};

    symbols.at[VP_SYM_d] = 64;
    CHECK_OK(
        vp_symbols_complete(&symbols, &(vp_symbol_card){.processors = 132, .threads = 2048}, &err));
    CHECK_OK(vp_caching_allocator_new(&options, &ledger.allocator, &err));
    CHECK_OK(vp_recorded_new(program, &symbols, layers, &ledger, &step, &err));
    if (as >= 0)
        vp_recorded_as(step, as);
    vp_ledger_begin(&ledger, "load");
    CHECK_OK(vp_recorded_play(step, "load", &err));
    CHECK_OK(vp_recorded_play(step, "inputs", &err));
    vp_ledger_end(&ledger);
    int64_t there = ledger.phases[0].end_bytes;
    vp_ledger_begin(&ledger, "after");
    vp_recorded_drop_inputs(step);
    vp_ledger_end(&ledger);
    /* whatever came in is gone; without the buffer the weight is alone */
    assert_int_equal(ledger.phases[1].end_bytes, as == 0 ? 1024 : 1024 + 512);
    vp_recorded_free(step);
    vp_caching_allocator_destroy(ledger.allocator);
    return there;
}

static void other_libraries_leave_out_a_buffer_and_have_a_mask(void **state)
{
    vp_recording              *recording = NULL;
    const vp_recorded_program *program   = NULL;
    vp_err                     err       = {0};

    (void)state;
    CHECK_OK(open_with("also 0 ones load:a1", &recording, &program, &err));
    assert_string_equal(vp_recording_also(recording, 0), "torch=2.11.0 transformers=4.57.6");
    assert_string_equal(vp_recording_also(recording, 1), "torch=2.9.0 transformers=5.17.0");
    assert_null(vp_recording_also(recording, 2));
    assert_true(vp_recorded_is_known(program, 0) && vp_recorded_has_ones(program, 0));
    assert_false(vp_recorded_is_known(program, 1) || vp_recorded_has_ones(program, 1));
    assert_int_equal(bytes_of(program, -1), 1024 + 512 + 2048);
    /* a mask of 8 bytes for each of 300 tokens, rounded up to 2560 */
    assert_int_equal(bytes_of(program, 0), 1024 + 2048 + 2560);
    vp_recording_free(recording);
}

static void the_same_program_has_no_word_more(void **state)
{
    vp_recording              *recording = NULL;
    const vp_recorded_program *program   = NULL;
    vp_err                     err       = {0};

    (void)state;
    CHECK_OK(open_with("also 1", &recording, &program, &err));
    assert_true(vp_recorded_is_known(program, 1) && !vp_recorded_has_ones(program, 1));
    assert_int_equal(bytes_of(program, 1), 1024 + 512 + 2048);
    vp_recording_free(recording);
}

static void a_broken_line_is_located(void **state)
{
    static const char *const lines[] = {"also 2",          "also x",         "also 0 one",
                                        "also 0 load:a3",  "also 0 step:a0", "also 0 load:1",
                                        "also 0 load:a1x", "also -1"};

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        vp_recording              *recording = NULL;
        const vp_recorded_program *program   = NULL;
        vp_err                     err       = {0};
        assert_int_equal(open_with(lines[i], &recording, &program, &err), VP_ERR_INPUT);
        assert_non_null(strstr(err.message, "other versions"));
        vp_recording_free(recording);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_libraries_leave_out_a_buffer_and_have_a_mask),
        cmocka_unit_test(the_same_program_has_no_word_more),
        cmocka_unit_test(a_broken_line_is_located),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
