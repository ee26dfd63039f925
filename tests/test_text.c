#include "tests/base_test.h"

#include "base/text.h"

#include <locale.h>

static const char *escaped(const char *text)
{
    static char buf[256];
    return vp_text_escape(text, buf, sizeof buf);
}

static void text_grows_as_it_is_written(void **state)
{
    vp_text t = {0};

    (void)state;
    assert_null(t.data);
    for (int i = 0; i < 1000; i++)
        vp_text_printf(&t, "%d,", i % 10);
    assert_false(t.failed);
    assert_int_equal(t.n_bytes, 2000);
    assert_int_equal(strlen(t.data), 2000);
    assert_memory_equal(t.data + 1990, "5,6,7,8,9,", 10);
    vp_text_append(&t, "a\0b", 3);
    assert_int_equal(t.n_bytes, 2003);
    assert_memory_equal(t.data + 2000, "a\0b", 4);
    vp_text_release(&t);
    assert_null(t.data);
    assert_int_equal(t.n_bytes, 0);
}

static void appending_nothing_makes_text_that_is_empty(void **state)
{
    vp_text t = {0};

    (void)state;
    vp_text_append(&t, NULL, 0);
    assert_string_equal(t.data, "");
    vp_text_printf(&t, "%s", "");
    assert_int_equal(t.n_bytes, 0);
    vp_text_release(&t);
}

static void text_beyond_all_memory_fails_and_stays_failed(void **state)
{
    vp_text t = {0};

    (void)state;
    vp_text_printf(&t, "before");
    vp_text_append(&t, "x", SIZE_MAX - 2);
    assert_true(t.failed);
    assert_null(t.data);
    assert_int_equal(t.n_bytes, 0);
    vp_text_printf(&t, "after");
    vp_text_append(&t, "after", 5);
    assert_true(t.failed);
    assert_null(t.data);
    vp_text_release(&t);
    assert_false(t.failed);
}

static void numbers_are_printed_with_a_point_in_any_locale(void **state)
{
    vp_text t = {0};

    (void)state;
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8"))
        skip();
    vp_text_printf(&t, "%.2f", 1.5);
    assert_string_equal(t.data, "1.50");
    vp_text_release(&t);
    setlocale(LC_ALL, "C");
}

static void harmless_text_stays_as_it_is(void **state)
{
    (void)state;
    assert_string_equal(escaped(""), "");
    assert_string_equal(escaped("wte.weight [0] \\ \"x\" ~"), "wte.weight [0] \\ \"x\" ~");
    assert_string_equal(escaped("Gr\xc3\xbc\xc3\x9f"
                                "e \xe2\x82\xac \xf0\x9f\x98\x80"),
                        "Gr\xc3\xbc\xc3\x9f"
                        "e \xe2\x82\xac \xf0\x9f\x98\x80");
}

static void every_control_becomes_visible(void **state)
{
    char text[3] = "?!", want[16], buf[16];

    (void)state;
    for (int c = 1; c < 0x80; c++) {
        text[0] = (char)c;
        snprintf(want, sizeof want, c < 0x20 || c == 0x7f ? "\\x%02x!" : "%c!", c);
        assert_string_equal(vp_text_escape(text, buf, sizeof buf), want);
    }
    assert_string_equal(escaped("a\x1b[31mb\x07"), "a\\x1b[31mb\\x07");
    assert_string_equal(escaped("two\nlines\r"), "two\\x0alines\\x0d");
    for (int c = 0x80; c < 0xa0; c++) { /* C1, as UTF-8 and alone */
        char utf8[3] = {(char)0xc2, (char)c, 0}, alone[2] = {(char)c, 0};
        snprintf(want, sizeof want, "\\u%04x", c);
        assert_string_equal(vp_text_escape(utf8, buf, sizeof buf), want);
        snprintf(want, sizeof want, "\\x%02x", c);
        assert_string_equal(vp_text_escape(alone, buf, sizeof buf), want);
    }
    assert_string_equal(escaped("\xc2\xa0"), "\xc2\xa0");
}

static void every_bidirectional_control_becomes_visible(void **state)
{
    static const unsigned codes[] = {0x061c, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c,
                                     0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069};

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        unsigned c       = codes[i];
        char     text[4] = {0}, want[16];

        if (c < 0x800) {
            text[0] = (char)(0xc0 | c >> 6), text[1] = (char)(0x80 | (c & 0x3f));
        } else {
            text[0] = (char)(0xe0 | c >> 12), text[1] = (char)(0x80 | (c >> 6 & 0x3f)),
            text[2] = (char)(0x80 | (c & 0x3f));
        }
        snprintf(want, sizeof want, "\\u%04x", c);
        assert_string_equal(escaped(text), want);
    }
    assert_string_equal(escaped("\xe2\x80\xad"), "\\u202d");
    assert_string_equal(escaped("\xe2\x80\xaf"), "\xe2\x80\xaf"); /* U+202F is a space */
}

static void what_is_not_utf8_becomes_visible_byte_by_byte(void **state)
{
    (void)state;
    assert_string_equal(escaped("\xff\xfe"), "\\xff\\xfe");
    assert_string_equal(escaped("\xc0\xaf"), "\\xc0\\xaf");                   /* overlong "/"     */
    assert_string_equal(escaped("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");          /* the same, longer */
    assert_string_equal(escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80");          /* a surrogate      */
    assert_string_equal(escaped("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80"); /* > U+10FFFF  */
    assert_string_equal(escaped("\xf5"), "\\xf5");
    assert_string_equal(escaped("a\xe2\x82"), "a\\xe2\\x82"); /* cut short        */
    assert_string_equal(escaped("\xe2\x82z"), "\\xe2\\x82z");
}

static void a_cut_shows_as_dots_and_splits_nothing(void **state)
{
    char buf[16];

    (void)state;
    assert_string_equal(vp_text_escape("12345678", buf, 9), "12345678");
    assert_string_equal(vp_text_escape("12345678", buf, 8), "1234...");
    assert_string_equal(vp_text_escape("1234\x1b"
                                       "8",
                                       buf, 10),
                        "1234\\x1b8");
    assert_string_equal(vp_text_escape("1234\x1b"
                                       "89",
                                       buf, 10),
                        "1234...");
    assert_string_equal(vp_text_escape("1\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", buf, 10),
                        "1\xe2\x82\xac...");
    assert_string_equal(vp_text_escape("12345678", buf, 4), "...");
    assert_string_equal(vp_text_escape("12345678", buf, 3), "..");
    assert_string_equal(vp_text_escape("12345678", buf, 1), "");
    buf[0] = '#';
    vp_text_escape("12345678", buf, 0);
    assert_int_equal(buf[0], '#');
}

static void no_buffer_size_and_no_bytes_do_harm(void **state)
{
    unsigned seed = 12345;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        char   text[24], *buf;
        size_t n = (size_t)(seed >> 8) % sizeof text, size;

        for (size_t k = 0; k < n; k++) {
            seed    = seed * 1103515245u + 12345u;
            text[k] = (char)(seed >> 16 | 1);
        }
        text[n] = '\0';
        seed    = seed * 1103515245u + 12345u;
        size    = 1 + (seed >> 16) % 40;
        buf     = malloc(size); /* exactly, so that a sanitizer sees one byte too many */
        vp_text_escape(text, buf, size);
        assert_true(strlen(buf) < size);
        for (char *at = buf; *at; at++)
            assert_true((unsigned char)*at >= 0x20 && *at != 0x7f);
        free(buf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_grows_as_it_is_written),
        cmocka_unit_test(appending_nothing_makes_text_that_is_empty),
        cmocka_unit_test(text_beyond_all_memory_fails_and_stays_failed),
        cmocka_unit_test(numbers_are_printed_with_a_point_in_any_locale),
        cmocka_unit_test(harmless_text_stays_as_it_is),
        cmocka_unit_test(every_control_becomes_visible),
        cmocka_unit_test(every_bidirectional_control_becomes_visible),
        cmocka_unit_test(what_is_not_utf8_becomes_visible_byte_by_byte),
        cmocka_unit_test(a_cut_shows_as_dots_and_splits_nothing),
        cmocka_unit_test(no_buffer_size_and_no_bytes_do_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
