#include "tests/base_test.h"

#include "base/units.h"

#include <locale.h>
#include <stdbool.h>

static int64_t size_of(const char *text)
{
    vp_err  err   = {0};
    int64_t bytes = -1;

    CHECK_OK(vp_size_parse(text, &bytes, &err));
    return bytes;
}

static void refused(const char *text, const char *part)
{
    vp_err  err   = {0};
    int64_t bytes = 77;

    CHECK_FAILS(vp_size_parse(text, &bytes, &err), VP_ERR_USAGE, "", 0, "", part);
    assert_int_equal(bytes, 77);
}

static void a_size_without_a_unit_is_bytes(void **state)
{
    (void)state;
    assert_int_equal(size_of("1"), 1);
    assert_int_equal(size_of("25769803776"), 24 * VP_GIB);
    assert_int_equal(size_of("007"), 7);
}

static void every_unit_means_what_it_says(void **state)
{
    (void)state;
    assert_int_equal(size_of("7B"), 7);
    assert_int_equal(size_of("3KB"), 3000);
    assert_int_equal(size_of("3KiB"), 3072);
    assert_int_equal(size_of("3MB"), 3000000);
    assert_int_equal(size_of("3MiB"), 3145728);
    assert_int_equal(size_of("24GB"), 24000000000);
    assert_int_equal(size_of("24GiB"), 25769803776);
    assert_int_equal(size_of("2TB"), 2000000000000);
    assert_int_equal(size_of("2TiB"), 2199023255552);
}

static void a_unit_may_be_in_any_case_and_behind_a_space(void **state)
{
    (void)state;
    assert_int_equal(size_of("24gib"), 24 * VP_GIB);
    assert_int_equal(size_of("24GIB"), 24 * VP_GIB);
    assert_int_equal(size_of("24 GiB"), 24 * VP_GIB);
    assert_int_equal(size_of("24 gb"), 24000000000);
    assert_int_equal(size_of("1.5 kIb"), 1536);
    assert_int_equal(size_of("7b"), 7);
}

static void a_fraction_that_makes_whole_bytes_is_exact(void **state)
{
    (void)state;
    assert_int_equal(size_of("1.5GiB"), 1610612736);
    assert_int_equal(size_of("0.5KiB"), 512);
    assert_int_equal(size_of("1.50KB"), 1500);
    assert_int_equal(size_of("2.0B"), 2);
    assert_int_equal(size_of("0.000000001GB"), 1);
    assert_int_equal(size_of("79.6474609375GiB"), 85520809984); /* 79.6474609375 * 2^30 */
    assert_int_equal(size_of("0.0009765625KiB"), 1);
}

static void a_fraction_of_a_byte_is_refused_or_left_off(void **state)
{
    (void)state;
    refused("0.5B", "whole number of bytes");
    assert_int_equal(size_of("0.1KiB"), 102);          /* 102.4 */
    assert_int_equal(size_of("12.3GiB"), 13207024435); /* 12.3 * 2^30 = 13207024435.2 */
    refused("1.5", "whole number of bytes");
}

static void a_size_ends_below_2_to_the_53(void **state)
{
    (void)state;
    assert_int_equal(size_of("9007199254740991"), 9007199254740991);
    assert_int_equal(size_of("8191TiB"), 9006099743113216);
    refused("9007199254740992", "too large");
    refused("8192TiB", "too large");
    refused("99999999999999999999999999TiB", "too large");
    refused("999999999999999999999999999", "too large");
    refused("0.00000000000000000000000000001TiB", "more digits");
}

static void what_is_no_size_is_refused_with_the_right_hint(void **state)
{
    (void)state;
    refused("80G", "80GB (powers of 1000) or 80GiB (powers of 1024)");
    refused("80g", "80GB");
    refused("1.5T", "1.5TiB");
    refused("8e1GiB", "like 24GiB");
    refused("80,5GiB", "point");
    refused("80  GiB", "like 24GiB");
    refused("80 ", "like 24GiB");
    refused("80 G", "80GB (powers of 1000) or 80GiB (powers of 1024)");
    refused("80\tGiB", "like 24GiB");
    refused("-1", "like 24GiB");
    refused("+1", "like 24GiB");
    refused("0", "at least 1 byte");
    refused("0.0GiB", "at least 1 byte");
    refused("1e30", "like 24GiB");
    refused("0x50", "like 24GiB");
    refused("", "like 24GiB");
    refused("NaN", "like 24GiB");
    refused("GiB", "like 24GiB");
    refused(".5GiB", "like 24GiB");
    refused("5.GiB", "both sides");
    refused("1.2.3GiB", "like 24GiB");
    refused("80GiBs", "like 24GiB");
    refused("80PiB", "like 24GiB");
    refused(" 80GiB", "like 24GiB");
    refused("80GiB\n", "like 24GiB");
    refused("8\x1b[31mGiB", "\\x1b");
}

static void a_count_is_digits_within_its_limits(void **state)
{
    vp_err  err = {0};
    int64_t n   = 77;

    (void)state;
    CHECK_OK(vp_count_parse("12", "--seq", 1, 4096, &n, &err));
    assert_int_equal(n, 12);
    CHECK_OK(vp_count_parse("9223372036854775807", "--seed", 0, INT64_MAX, &n, &err));
    assert_true(n == INT64_MAX);
    n = 77;
    CHECK_FAILS(vp_count_parse("0", "--seq", 1, 4096, &n, &err), VP_ERR_USAGE, "", 0, "",
                "--seq: 0 is not between 1 and 4,096");
    CHECK_FAILS(vp_count_parse("4097", "--seq", 1, 4096, &n, &err), VP_ERR_USAGE, "", 0, "",
                "between");
    CHECK_FAILS(vp_count_parse("9223372036854775808", "--seed", 0, INT64_MAX, &n, &err),
                VP_ERR_USAGE, "", 0, "", "between");
    CHECK_FAILS(vp_count_parse("18446744073709551617", "--seq", 1, 4096, &n, &err), VP_ERR_USAGE,
                "", 0, "", "between");
    CHECK_FAILS(vp_count_parse("-1", "--seq", 1, 4096, &n, &err), VP_ERR_USAGE, "", 0, "",
                "--seq: \"-1\" is not a whole number");
    CHECK_FAILS(vp_count_parse("", "--seq", 1, 4096, &n, &err), VP_ERR_USAGE, "", 0, "",
                "digits only");
    CHECK_FAILS(vp_count_parse("1e3", "--seq", 1, 4096, &n, &err), VP_ERR_USAGE, "", 0, "",
                "digits only");
    CHECK_FAILS(vp_count_parse("4,096", "--seq", 1, 4096, &n, &err), VP_ERR_USAGE, "", 0, "",
                "digits only");
    CHECK_FAILS(vp_count_parse("12 ", "--seq", 1, 4096, &n, &err), VP_ERR_USAGE, "", 0, "",
                "digits only");
    assert_int_equal(n, 77);
}

static void a_real_is_read_and_bounded(void **state)
{
    vp_err err = {0};
    double v   = 77;

    (void)state;
    CHECK_OK(vp_real_parse("1e-4", "--lr", 0, 1, &v, &err));
    assert_true(v == 1e-4);
    CHECK_OK(vp_real_parse(".5", "--lr", 0, 1, &v, &err));
    assert_true(v == 0.5);
    CHECK_OK(vp_real_parse("-2.5E+1", "x", -100, 1, &v, &err));
    assert_true(v == -25);
    CHECK_OK(vp_real_parse("0e999999", "x", 0, 1, &v, &err));
    assert_true(v == 0);
    v = 77;
    CHECK_FAILS(vp_real_parse("2", "--lr", 0, 1, &v, &err), VP_ERR_USAGE, "", 0, "",
                "--lr: 2 is not between 0 and 1");
    CHECK_FAILS(vp_real_parse("1e999", "--lr", 0, 1, &v, &err), VP_ERR_USAGE, "", 0, "", "range");
    CHECK_FAILS(vp_real_parse("1e-999", "--lr", 0, 1, &v, &err), VP_ERR_USAGE, "", 0, "", "range");
    static const char *const strange[] = {"",    "nan",   "NaN",   "inf",   "Infinity", "0x1p-3",
                                          "1,5", "1e",    "e5",    ".",     "--1",      "1 ",
                                          " 1",  "1.5.2", "1e5.5", "1e--5", "+",        "-"};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++)
        CHECK_FAILS(vp_real_parse(strange[i], "--lr", 0, 1, &v, &err), VP_ERR_USAGE, "", 0, "",
                    "is not a number; write it like 0.1 or 1e-4, between 0 and 1");
    assert_true(v == 77);
}

static const char *size_text(int64_t bytes)
{
    static char buf[64];
    return vp_size_text(bytes, buf, sizeof buf);
}

static void a_size_is_shown_in_the_unit_people_read(void **state)
{
    (void)state;
    assert_string_equal(size_text(0), "0 B");
    assert_string_equal(size_text(1234), "1,234 B");
    assert_string_equal(size_text(10239), "10,239 B");
    assert_string_equal(size_text(10240), "10.0 KiB");
    assert_string_equal(size_text(512 * VP_MIB), "512.0 MiB");
    assert_string_equal(size_text(24 * VP_GIB), "24.00 GiB");
    assert_string_equal(size_text(1536 * VP_MIB), "1.50 GiB");
    assert_string_equal(size_text(2048 * VP_GIB), "2,048.00 GiB");
    assert_string_equal(size_text(9999 * VP_GIB), "9,999.00 GiB");
    assert_string_equal(size_text(10000 * VP_GIB), "9.77 TiB");
    assert_string_equal(size_text(10000 * 1024 * VP_GIB), "9.77 PiB");
    assert_string_equal(size_text(-1536 * VP_MIB), "-1.50 GiB");
    assert_string_equal(size_text(-5), "-5 B");
    /* 2^63 / 2^30 = 2^33 */
    assert_string_equal(size_text(INT64_MIN), "-8,192.00 PiB");
    assert_string_equal(size_text(INT64_MAX), "8,192.00 PiB");
}

static void a_size_that_rounds_to_1024_moves_to_the_next_unit(void **state)
{
    (void)state;
    /* 1023.95 of a unit is the least that rounds to 1024.0. */
    assert_string_equal(size_text(1048524), "1023.9 KiB");
    assert_string_equal(size_text(1048525), "1.0 MiB");
    assert_string_equal(size_text(VP_MIB - 1), "1.0 MiB");
    assert_string_equal(size_text(VP_GIB - 1), "1.00 GiB");
    assert_string_equal(size_text(1073689395), "1023.9 MiB");
    assert_string_equal(size_text(1073689396), "1.00 GiB");
}

static void a_count_is_shown_with_commas(void **state)
{
    char buf[64];

    (void)state;
    assert_string_equal(vp_rate_text(47850.4, buf, sizeof buf), "47,850");
    assert_string_equal(vp_rate_text(9999.4, buf, sizeof buf), "9999");
    assert_string_equal(vp_rate_text(753.44, buf, sizeof buf), "753.4");
    assert_string_equal(vp_count_text(0, buf, sizeof buf), "0");
    assert_string_equal(vp_count_text(999, buf, sizeof buf), "999");
    assert_string_equal(vp_count_text(1000, buf, sizeof buf), "1,000");
    assert_string_equal(vp_count_text(124439808, buf, sizeof buf), "124,439,808");
    assert_string_equal(vp_count_text(-1234, buf, sizeof buf), "-1,234");
    assert_string_equal(vp_count_text(INT64_MIN, buf, sizeof buf), "-9,223,372,036,854,775,808");
}

static const char *time_text(double seconds)
{
    static char buf[64];
    return vp_time_text(seconds, buf, sizeof buf);
}

static void a_time_is_shown_with_three_digits(void **state)
{
    (void)state;
    assert_string_equal(time_text(0), "0 s");
    assert_string_equal(time_text(812e-6), "812 us");
    assert_string_equal(time_text(8.12e-6), "8.12 us");
    assert_string_equal(time_text(1.23e-3), "1.23 ms");
    assert_string_equal(time_text(12.34e-3), "12.3 ms");
    assert_string_equal(time_text(0.9994), "999 ms");
    assert_string_equal(time_text(0.9996), "1.00 s");
    assert_string_equal(time_text(9.996), "10.0 s");
    assert_string_equal(time_text(4.56), "4.56 s");
    assert_string_equal(time_text(12345), "12,345 s");
    assert_string_equal(time_text(-4.56), "-4.56 s");
    assert_string_equal(time_text(0.0 / 0.0), "not a time");
    assert_string_equal(time_text(1e300), "no end in sight");
}

static void a_small_buffer_is_not_overrun(void **state)
{
    char buf[4] = "###";

    (void)state;
    vp_size_text(24 * VP_GIB, buf, 3);
    assert_string_equal(buf, "24");
    vp_count_text(1234567, buf, 3);
    assert_string_equal(buf, "1,");
    vp_time_text(1.5, buf, 3);
    assert_string_equal(buf, "1.");
}

/* Which decimal sign a locale has is the program's affair; numbers are not. */
static void a_comma_locale_changes_nothing(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    vp_err                   err     = {0};
    double                   v       = 0;
    bool                     have    = false;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !have; i++)
        have = setlocale(LC_ALL, names[i]) != NULL;
    if (!have)
        skip();
    CHECK_OK(vp_real_parse("1.5", "x", 0, 2, &v, &err));
    assert_true(v == 1.5);
    CHECK_FAILS(vp_real_parse("1,5", "x", 0, 2, &v, &err), VP_ERR_USAGE, "", 0, "", "not a number");
    CHECK_FAILS(vp_real_parse("3", "x", 0, 2.5, &v, &err), VP_ERR_USAGE, "", 0, "", "0 and 2.5");
    assert_string_equal(size_text(1536 * VP_MIB), "1.50 GiB");
    assert_string_equal(time_text(1.5), "1.50 s");
    setlocale(LC_ALL, "C");
}

static void an_amount_is_bytes_or_a_share(void **state)
{
    static const char *const bad[] = {"%", "0%", "101%", "-5%", "5 %%", "x%", "1e3%", "", "nan%"};
    vp_amount                a;
    vp_err                   err = {0};

    (void)state;
    CHECK_OK(vp_amount_parse("24GiB", &a, &err));
    assert_true(a.bytes == 24 * VP_GIB && a.share == 0);
    assert_int_equal(vp_amount_of(&a, 100), 24 * VP_GIB);
    CHECK_OK(vp_amount_parse("80%", &a, &err));
    assert_true(a.bytes == 0 && a.share == 0.8);
    assert_int_equal(vp_amount_of(&a, 1000), 800);
    CHECK_OK(vp_amount_parse("12.5%", &a, &err));
    assert_int_equal(vp_amount_of(&a, 1000), 125);
    CHECK_OK(vp_amount_parse("100%", &a, &err));
    assert_int_equal(vp_amount_of(&a, 999), 999);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (vp_err){0};
        assert_int_equal(vp_amount_parse(bad[i], &a, &err), VP_ERR_USAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_without_a_unit_is_bytes),
        cmocka_unit_test(every_unit_means_what_it_says),
        cmocka_unit_test(a_unit_may_be_in_any_case_and_behind_a_space),
        cmocka_unit_test(a_fraction_that_makes_whole_bytes_is_exact),
        cmocka_unit_test(a_fraction_of_a_byte_is_refused_or_left_off),
        cmocka_unit_test(a_size_ends_below_2_to_the_53),
        cmocka_unit_test(what_is_no_size_is_refused_with_the_right_hint),
        cmocka_unit_test(an_amount_is_bytes_or_a_share),
        cmocka_unit_test(a_count_is_digits_within_its_limits),
        cmocka_unit_test(a_real_is_read_and_bounded),
        cmocka_unit_test(a_size_is_shown_in_the_unit_people_read),
        cmocka_unit_test(a_size_that_rounds_to_1024_moves_to_the_next_unit),
        cmocka_unit_test(a_count_is_shown_with_commas),
        cmocka_unit_test(a_time_is_shown_with_three_digits),
        cmocka_unit_test(a_small_buffer_is_not_overrun),
        cmocka_unit_test(a_comma_locale_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
