#include "tests/base_test.h"

#include "base/base_internal.h"
#include "base/sha256.h"

#include <string.h>

static void digest_of(const void *data, size_t n_bytes, size_t piece, char text[65])
{
    vp_sha256 h = vp_sha256_begin();

    for (size_t at = 0; at < n_bytes; at += piece)
        vp_sha256_add(&h, (const char *)data + at, n_bytes - at < piece ? n_bytes - at : piece);
    vp_sha256_hex(&h, text);
}

/* The messages of FIPS 180-4's examples: none, one block, two, and a million letters. */
static void the_standards_examples_have_the_standards_digests(void **state)
{
    static const struct {
        const char *message, *digest;
    } examples[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlm"
         "nopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    static char million[1000000];
    char        text[65];

    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        digest_of(examples[i].message, strlen(examples[i].message), 1000, text);
        assert_string_equal(text, examples[i].digest);
    }
    memset(million, 'a', sizeof million);
    digest_of(million, sizeof million, sizeof million, text);
    assert_string_equal(text, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static uint32_t draw(uint32_t *seed)
{
    return *seed = *seed * 1664525u + 1013904223u;
}

static void however_a_message_is_cut_its_digest_is_the_same(void **state)
{
    unsigned char data[1031];
    uint32_t      seed = 1;
    char          whole[65], pieces[65];

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(draw(&seed) >> 24);
    for (size_t n = 0; n <= sizeof data; n += 17) {
        digest_of(data, n, sizeof data, whole);
        for (size_t piece = 1; piece <= 200; piece += 9) {
            digest_of(data, n, piece, pieces);
            assert_string_equal(whole, pieces);
        }
    }
}

/* Neither is tried alone where the processor has the instructions: the C ones would run nowhere. */
static void the_processors_own_instructions_leave_what_c_leaves(void **state)
{
    unsigned char data[64 * 9];
    uint32_t      seed = 2;

    (void)state;
    if (!vp_sha256_has_x86())
        skip();
    for (int round = 0; round < 2000; round++) {
        uint32_t by_c[8], by_x86[8];
        size_t   n_blocks = draw(&seed) >> 16 & 7; /* 0 to 7, from an address of any alignment */

        for (size_t i = 0; i < sizeof data; i++)
            data[i] = (unsigned char)(draw(&seed) >> 24);
        for (int i = 0; i < 8; i++)
            by_c[i] = by_x86[i] = draw(&seed);
        vp_sha256_blocks_c(by_c, data + round % 64, n_blocks);
        vp_sha256_blocks_x86(by_x86, data + round % 64, n_blocks);
        assert_memory_equal(by_c, by_x86, sizeof by_c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_standards_examples_have_the_standards_digests),
        cmocka_unit_test(however_a_message_is_cut_its_digest_is_the_same),
        cmocka_unit_test(the_processors_own_instructions_leave_what_c_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
