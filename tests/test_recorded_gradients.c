/* Of which gradients a recorded step tells who looks on, and when. Worked by hand. */
#include "tests/base_test.h"

#include "base/file.h"
#include "trainers/torch/recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two weights; as Liger's loss has it, the gradient of the second, 1024 bytes, is made in the forward pass, that of the first, 512,
 * in backward, behind scratch that goes. */
static const char text[] = "vplan-recording 2\n"
                           "family llama\n"
                           "versions torch=2.11.0 transformers=5.17.0\n"
                           "device capability=90\n"
                           "size 512\n"
                           "size 1024\n"
                           "size 2048\n"
                           "part P0 P1\n"
                           "part I2\n"
                           "part A2 -0 G1 A2\n"
                           "part G0 T2 -1 T2 -2\n"
                           "program task=clm\n"
                           "phase load 0\n"
                           "phase inputs 1\n"
                           "phase forward 2\n"
                           "phase output -\n"
                           "phase backward 3\n"
                           "end\n";

typedef struct told {
    char    phase; /* that is played */
    int     n;
    char    phases[4];
    int64_t places[4], bytes[4];
} told;

static vp_status no_layer(void *user, const char *phase, int64_t i, vp_err *err)
{
    (void)user;
    (void)phase;
    (void)i;
    (void)err;
    return VP_OK;
}

static vp_status note(void *user, int64_t i, vp_ledger_block *block, vp_err *err)
{
    told *t = user;

    (void)err;
    assert_true(t->n < 4);
    t->phases[t->n]  = t->phase;
    t->places[t->n]  = i;
    t->bytes[t->n++] = block->bytes;
    return VP_OK;
}

static void play_step(vp_recorded *step, vp_ledger *ledger, told *t)
{
    static const char *const names[] = {"forward", "output", "backward"};
    vp_err                   err     = {0};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        t->phase = names[i][0];
        vp_ledger_begin(ledger, names[i]);
        CHECK_OK(vp_recorded_play(step, names[i], &err));
        vp_ledger_end(ledger);
    }
    vp_recorded_drop_gradients(step);
}

static void a_gradient_of_the_forward_pass_is_told_first_in_backward(void **state)
{
    char                       path[]    = "/tmp/vplan-recording-XXXXXX";
    int                        fd        = mkstemp(path);
    vp_recording              *recording = NULL;
    const vp_recorded_program *program   = NULL;
    vp_recorded               *step      = NULL;
    vp_ledger                  ledger    = {0};
    vp_err                     err       = {0};
    int64_t                    layers[] = {2, 0}, *bytes = NULL, n = 0;
    vp_caching_allocator_opts  options = {.device_total_bytes = VP_CACHING_DEVICE_UNLIMITED};
    vp_symbols                 symbols = {
                        .at = {[VP_SYM_B] = 3, [VP_SYM_S] = 100, [VP_SYM_h] = 64, [VP_SYM_a] = 1, [VP_SYM_d] = 64}};
    told                    t     = {0};
    const vp_recorded_watch watch = {.user = &t, .layer = no_layer, .gradient = note};

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    CHECK_OK(vp_recording_open(path, &recording, &err));
    CHECK_OK(vp_recording_find(recording, "task=clm", &program, &err));
    unlink(path);
    CHECK_OK(
        vp_symbols_complete(&symbols, &(vp_symbol_card){.processors = 132, .threads = 2048}, &err));
    CHECK_OK(vp_caching_allocator_new(&options, &ledger.allocator, &err));
    CHECK_OK(vp_recorded_new(program, &symbols, layers, &ledger, &step, &err));
    vp_ledger_begin(&ledger, "load");
    CHECK_OK(vp_recorded_play(step, "load", &err));
    CHECK_OK(vp_recorded_play(step, "inputs", &err));
    vp_ledger_end(&ledger);

    CHECK_OK(vp_recorded_gradients(step, &bytes, &n, &err));
    assert_int_equal(n, 2);
    assert_true(bytes[0] == 1024 && bytes[1] == 512);
    vp_recorded_watched(step, &watch);
    for (int i = 0; i < 2; i++) /* the second step begins at 0 again */
        play_step(step, &ledger, &t);
    assert_int_equal(t.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(t.phases[i], 'b');
        assert_int_equal(t.places[i], i % 2);
        assert_int_equal(t.bytes[i], i % 2 ? 512 : 1024);
    }
    free(bytes);
    vp_recorded_free(step);
    vp_caching_allocator_destroy(ledger.allocator);
    vp_recording_free(recording);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gradient_of_the_forward_pass_is_told_first_in_backward),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
