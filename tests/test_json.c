#include "tests/base_test.h"

#include "base/file.h"
#include "base/json.h"

#include <fcntl.h>
#include <locale.h>
#include <sys/socket.h>
#include <sys/un.h>

static vp_err       err;
static vp_json_doc *doc;
static vp_json_node root;

static void parse_bytes(const char *bytes, int64_t n_bytes)
{
    CHECK_OK(vp_json_parse("config.json", bytes, n_bytes, &doc, &err));
    root = vp_json_root(doc);
}

static void parse(const char *text)
{
    parse_bytes(text, (int64_t)strlen(text));
}

static int empty_err(void **state)
{
    (void)state;
    err = (vp_err){0};
    doc = NULL;
    return 0;
}

static int free_doc(void **state)
{
    (void)state;
    vp_json_doc_free(doc);
    doc = NULL;
    return 0;
}

#define REFUSED_BYTES(bytes, n_bytes, line, field, part) \
    do { \
        CHECK_FAILS(vp_json_parse("config.json", bytes, n_bytes, &doc, &err), VP_ERR_INPUT, \
                    "config.json", line, field, part); \
        assert_null(doc); \
    } while (0)
#define REFUSED(text, line, field, part) \
    REFUSED_BYTES(text, (int64_t)strlen(text), line, field, part)

static void an_empty_file_is_named_empty(void **state)
{
    (void)state;
    REFUSED("", 1, "", "is empty");
    REFUSED("\xef\xbb\xbf", 1, "", "is empty");
}

static void white_space_alone_is_named(void **state)
{
    (void)state;
    REFUSED(" \t\r\n \n", 1, "", "nothing but white space");
}

static void a_byte_order_mark_is_skipped_and_noted(void **state)
{
    int64_t v = 0;

    (void)state;
    parse("\xef\xbb\xbf{\"a\":1}");
    assert_true(vp_json_had_bom(doc));
    CHECK_OK(vp_json_int(&root, "a", 0, 9, &v, &err));
    assert_int_equal(v, 1);
    CHECK_FAILS(vp_json_int(&root, "a", 2, 9, &v, &err), VP_ERR_INPUT, "config.json", 1, "a",
                "between");
    vp_json_doc_free(doc);
    parse("{\"a\":1}");
    assert_false(vp_json_had_bom(doc));
}

static void utf16_and_utf32_are_named(void **state)
{
    (void)state;
    REFUSED_BYTES("\xff\xfe{\0}\0", 6, 1, "", "is UTF-16 text; JSON is UTF-8");
    REFUSED_BYTES("\xfe\xff\0{\0}", 6, 1, "", "UTF-16");
    REFUSED_BYTES("{\0}\0", 4, 1, "", "UTF-16");
    REFUSED_BYTES("\0{\0}", 4, 1, "", "UTF-16");
    REFUSED_BYTES("\xff\xfe\0\0{\0\0\0", 8, 1, "", "UTF-32");
}

static void a_truncated_text_is_located(void **state)
{
    (void)state;
    REFUSED("{\"a\":\n\"unfin", 2, "a", "the text ends inside a string (column 7)");
    REFUSED("{\"a\": \"x\\", 1, "a", "the text ends inside a string");
    REFUSED("{\"a\": \"\\u12", 1, "a", "four hexadecimal digits");
    REFUSED("{\"a\": -", 1, "a", "the text ends inside a number (column 8)");
    REFUSED("{\"a\": 1.", 1, "a", "the text ends inside a number");
    REFUSED("{\"a\": 1e", 1, "a", "the text ends inside a number");
    REFUSED("{\"a\": 12", 1, "",
            "expected \",\" or \"}\" after a value, found the end of the text");
    REFUSED("{\"a\": 12,", 1, "", "expected a key after the comma, found the end of the text");
    REFUSED("{\"a\": [1,\n", 2, "a[1]", "expected a value, found the end of the text");
    REFUSED("{\"a\"", 1, "a", "expected \":\" after the key, found the end");
    REFUSED("{", 1, "", "expected a key in double quotes or \"}\", found the end");
    REFUSED("[", 1, "[0]", "expected a value");
    REFUSED("tru", 1, "", "\"tru\" is no JSON value");
}

static void anything_after_the_value_is_an_error(void **state)
{
    (void)state;
    REFUSED("{}\n{}", 2, "", "expected nothing more after the value, found \"{\" (column 1)");
    REFUSED("{} x", 1, "", "\"x\" is no JSON value (column 4)");
    REFUSED("{},", 1, "", "nothing more");
    REFUSED_BYTES("{}\0", 3, 1, "", "unexpected byte 0x00 (column 3)");
    parse("{} \n\t\r ");
}

static void a_top_level_of_another_type_is_named_where_an_object_is_used(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {{"[1]", "must be an object, is an array"},
                 {"\"x\"", "must be an object, is the string \"x\""},
                 {"12", "must be an object, is 12"},
                 {"null", "must be an object, is null"}};
    int64_t v;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        parse(cases[i].text);
        assert_false(vp_json_has(&root, "a"));
        CHECK_FAILS(vp_json_int(&root, "a", 0, 9, &v, &err), VP_ERR_INPUT, "config.json", 1, "",
                    cases[i].part);
        CHECK_FAILS(vp_json_object(&root, NULL, &root, &err), VP_ERR_INPUT, "config.json", 1, "",
                    cases[i].part);
        CHECK_FAILS(vp_json_only_keys(&root, (const char *const[]){NULL}, &err), VP_ERR_INPUT,
                    "config.json", 1, "", cases[i].part);
        vp_json_doc_free(doc);
    }
    doc = NULL;
}

static void nesting_of_64_levels_is_the_limit(void **state)
{
    char text[256];

    (void)state;
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    parse_bytes(text, 128);
    vp_json_doc_free(doc);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    REFUSED_BYTES(
        text, 130, 1,
        "[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]"
        "[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]"
        "[0][0][0][0][0][0][0][0][0][0][0][0]",
        "nested deeper than 64 levels (column 65)");
}

static void a_hundred_thousand_brackets_do_no_harm(void **state)
{
    char *text = malloc(200000);

    (void)state;
    memset(text, '[', 200000);
    CHECK_FAILS(
        vp_json_parse("config.json", text, 200000, &doc, &err), VP_ERR_INPUT, "config.json", 1,
        "[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]"
        "[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]"
        "[0][0][0][0]",
        "nested deeper");
    free(text);
}

static void a_key_that_stands_twice_is_named_with_both_lines(void **state)
{
    (void)state;
    REFUSED("{\n\"hidden_size\": 1,\n\"x\": {\"hidden_size\": 3},\n\"hidden_size\": 2}", 4,
            "hidden_size", "the key \"hidden_size\" stands twice, first in line 2 (column 1)");
    REFUSED("{\"a\":\n{\"b\":1,\n\"b\":1}}", 3, "a.b", "stands twice, first in line 2");
}

static void a_duplicate_key_spelled_with_an_escape_is_found(void **state)
{
    (void)state;
    REFUSED("{\"hidden_size\": 1,\n \"hidden\\u005fsize\": 2}", 2, "hidden_size",
            "the key \"hidden_size\" stands twice, first in line 1 (column 2)");
    REFUSED("{\"\\ud83d\\ude00\": 1,\n\"\xf0\x9f\x98\x80\": 2}", 2, "\xf0\x9f\x98\x80",
            "stands twice");
}

static void a_missing_field_is_named(void **state)
{
    int64_t v = 77;

    (void)state;
    parse("{\n\"text_config\":\n {\"n\": 1}}");
    CHECK_FAILS(vp_json_int(&root, "hidden_size", 1, 9, &v, &err), VP_ERR_INPUT, "config.json", 1,
                "hidden_size", "is missing; it must be a whole number");
    CHECK_OK(vp_json_object(&root, "text_config", &root, &err));
    CHECK_FAILS(vp_json_int(&root, "hidden_size", 1, 9, &v, &err), VP_ERR_INPUT, "config.json", 2,
                "text_config.hidden_size", "is missing");
    assert_int_equal(v, 77);
}

/* Whether hidden_size written like this is taken for `want` in [1, 10^7]. */
static void hidden_size_is(const char *spelled, int64_t want)
{
    char    text[128];
    int64_t v = -77;

    snprintf(text, sizeof text, "{\n  \"hidden_size\": %s}", spelled);
    parse(text);
    CHECK_OK(vp_json_int(&root, "hidden_size", 1, 10000000, &v, &err));
    assert_int_equal(v, want);
    vp_json_doc_free(doc);
    doc = NULL;
}

static void hidden_size_fails(const char *spelled, const char *part)
{
    char    text[128];
    int64_t v = -77;

    snprintf(text, sizeof text, "{\n  \"hidden_size\": %s}", spelled);
    parse(text);
    CHECK_FAILS(vp_json_int(&root, "hidden_size", 1, 10000000, &v, &err), VP_ERR_INPUT,
                "config.json", 2, "hidden_size", part);
    assert_int_equal(v, -77);
    vp_json_doc_free(doc);
    doc = NULL;
}

static void a_whole_number_is_an_integer_or_an_exact_real(void **state)
{
    (void)state;
    hidden_size_is("4096", 4096);
    hidden_size_is("4096.0", 4096);
    hidden_size_is("4.096e3", 4096);
    hidden_size_is("1E6", 1000000);
    hidden_size_fails("null", "must be a whole number, is null");
    hidden_size_fails("\"4096\"", "must be a whole number, is the string \"4096\"");
    hidden_size_fails("4096.5", "must be a whole number, is 4096.5");
    hidden_size_fails("-1", "must be between 1 and 10000000, is -1");
    hidden_size_fails("0", "must be between 1 and 10000000, is 0");
    hidden_size_fails("1e400", "must be a whole number, is a number outside the range of double");
    hidden_size_fails("1e-400", "outside the range of double");
    hidden_size_fails("9223372036854775807", "between 1 and 10000000, is 9223372036854775807");
    hidden_size_fails("9223372036854775808", "between 1 and 10000000, is 9.2233720368547758e+18");
    hidden_size_fails("18446744073709551616", "is 1.8446744073709552e+19");
    hidden_size_fails("-9223372036854775808", "is -9223372036854775808");
    hidden_size_fails("-9223372036854775809", "is -9.2233720368547758e+18");
    hidden_size_fails("9007199254740992.0", "must be a whole number between 1 and 10000000");
    hidden_size_fails("true", "must be a whole number, is true");
    hidden_size_fails("[4096]", "is an array");
    hidden_size_fails("{}", "is an object");
    hidden_size_fails("NaN", "is NaN");
    hidden_size_fails("Infinity", "is Infinity");
    hidden_size_fails("-Infinity", "is -Infinity");
}

static void every_integer_of_64_bits_is_exact(void **state)
{
    int64_t v;

    (void)state;
    parse("[9223372036854775807, -9223372036854775808, 9007199254740993, -0]");
    static const int64_t want[] = {INT64_MAX, INT64_MIN, 9007199254740993, 0};
    for (int i = 0; i < 4; i++) {
        vp_json_node element;
        CHECK_OK(vp_json_element(&root, i, &element, &err));
        CHECK_OK(vp_json_as_int(&element, INT64_MIN, INT64_MAX, &v, &err));
        assert_true(v == want[i]);
    }
}

static void numbers_that_are_not_json_are_refused(void **state)
{
    (void)state;
    REFUSED("{\"a\": 01}", 1, "a", "may not begin with a zero (column 8)");
    REFUSED("{\"a\": -01}", 1, "a", "may not begin with a zero");
    REFUSED("{\"a\": +1}", 1, "a", "unexpected character \"+\"");
    REFUSED("{\"a\": .5}", 1, "a", "unexpected character \".\"");
    REFUSED("{\"a\": 1.}", 1, "a", "a digit must follow the point");
    REFUSED("{\"a\": 1e}", 1, "a", "a digit must follow the exponent");
    REFUSED("{\"a\": 1e+}", 1, "a", "a digit must follow the exponent");
    REFUSED("{\"a\": -}", 1, "a", "a digit must follow the sign");
    REFUSED("{\"a\": 0x10}", 1, "a", "letters follow a number");
    REFUSED("{\"a\": 10n}", 1, "a", "letters follow a number");
    REFUSED("{\"a\": 1_000}", 1, "a", "letters follow a number");
    REFUSED("{\"a\": 1,5}", 1, "", "expected a key after the comma, found the number 5");
    REFUSED("{\"a\": -inf}", 1, "a", "a digit must follow the sign");
    REFUSED("{\"a\": inf}", 1, "a", "\"inf\" is no JSON value");
    REFUSED("{\"a\": nan}", 1, "a", "\"nan\" is no JSON value");
    REFUSED("{\"a\": -NaN}", 1, "a", "a digit must follow the sign");
    REFUSED("{\"a\": -Inf}", 1, "a", "\"-Inf\" is no JSON value");
    REFUSED("{\"a\": True}", 1, "a", "\"True\" is no JSON value");
}

static void what_only_looks_like_json_is_told_apart(void **state)
{
    (void)state;
    REFUSED("{'a': 1}", 1, "", "strings stand in double quotes (column 2)");
    REFUSED("{a: 1}", 1, "", "\"a\" is no JSON value");
    REFUSED("{\"a\": 1, // so\n}", 1, "", "JSON has no comments");
    REFUSED("{\"a\": 1 /* so */}", 1, "", "JSON has no comments");
    REFUSED("# x\n{}", 1, "", "JSON has no comments");
    REFUSED("{\"a\": 1,}", 1, "", "expected a key after the comma, found \"}\" (column 9)");
    REFUSED("{\"a\": [1,]}", 1, "a[1]", "expected a value after the comma, found \"]\"");
    REFUSED("{\"a\": [1 2]}", 1, "a", "expected \",\" or \"]\" after a value, found the number 2");
    REFUSED("{\"a\" 1}", 1, "a", "expected \":\" after the key, found the number 1");
    REFUSED("{\"a\": 1 \"b\": 2}", 1, "",
            "expected \",\" or \"}\" after a value, found the string \"b\"");
    REFUSED("{1: 2}", 1, "", "expected a key in double quotes or \"}\", found the number 1");
    REFUSED("{\"a\": }", 1, "a", "expected a value, found \"}\"");
    REFUSED("{\"a\": [1}]", 1, "a", "expected \",\" or \"]\"");
    REFUSED("]", 1, "", "expected a value, found \"]\"");
    REFUSED("{\"a\": \x01}", 1, "a", "unexpected byte 0x01");
    REFUSED("{\"a\": \xc3\xa9}", 1, "a", "unexpected byte 0xc3");
    REFUSED("\x1b[0m", 1, "", "unexpected byte 0x1b");
}

static void a_bare_infinity_may_stand_where_nobody_uses_it(void **state)
{
    double      v = 77;
    const char *s = NULL;
    bool        b;

    (void)state;
    parse(
        "{\"time_step_limit\": [0.0, Infinity],\n\"low\": -Infinity,\n\"bad\": NaN, \"far\": 1e400, "
        "\"n\": 2.5}");
    CHECK_OK(vp_json_real(&root, "n", 0, 3, &v, &err));
    assert_true(v == 2.5);
    v = 77;
    CHECK_FAILS(vp_json_real(&root, "low", -1, 1, &v, &err), VP_ERR_INPUT, "config.json", 2, "low",
                "must be a number, is -Infinity");
    CHECK_FAILS(vp_json_real(&root, "bad", -1, 1, &v, &err), VP_ERR_INPUT, "config.json", 3, "bad",
                "must be a number, is NaN");
    CHECK_FAILS(vp_json_real(&root, "far", -1, 1, &v, &err), VP_ERR_INPUT, "config.json", 3, "far",
                "must be a number, is a number outside the range");
    CHECK_FAILS(vp_json_string(&root, "bad", &s, &err), VP_ERR_INPUT, "config.json", 3, "bad",
                "must be a string, is NaN");
    CHECK_FAILS(vp_json_bool(&root, "bad", &b, &err), VP_ERR_INPUT, "config.json", 3, "bad",
                "must be true or false, is NaN");
    vp_json_node limits, limit;
    int64_t      n;
    CHECK_OK(vp_json_array(&root, "time_step_limit", &limits, &n, &err));
    assert_int_equal(n, 2);
    CHECK_OK(vp_json_element(&limits, 1, &limit, &err));
    CHECK_FAILS(vp_json_real(&limit, NULL, 0, 1, &v, &err), VP_ERR_INPUT, "config.json", 1,
                "time_step_limit[1]", "must be a number, is Infinity");
    assert_true(v == 77);
}

static void a_string_that_says_nan_is_a_string(void **state)
{
    const char *s;

    (void)state;
    parse("{\"a\": NaN, \"b\": \"NaN\", \"c\": \"Infinity\"}");
    CHECK_OK(vp_json_string(&root, "b", &s, &err));
    assert_string_equal(s, "NaN");
    CHECK_OK(vp_json_string(&root, "c", &s, &err));
    assert_string_equal(s, "Infinity");
}

static void an_integer_beyond_64_bits_is_a_real(void **state)
{
    double v = 0;

    (void)state;
    parse("{\"model_max_length\": 1000000000000000019884624838656, \"small\": 3}");
    CHECK_OK(vp_json_real(&root, "model_max_length", 0, 1e31, &v, &err));
    assert_true(v == 1e30);
    CHECK_OK(vp_json_real(&root, "small", 0, 3, &v, &err));
    assert_true(v == 3);
    CHECK_FAILS(vp_json_real(&root, "small", 0, 2.5, &v, &err), VP_ERR_INPUT, "config.json", 1,
                "small", "must be between 0 and 2.5, is 3");
}

static void a_nul_escape_is_refused_in_key_and_value(void **state)
{
    (void)state;
    REFUSED("{\"a\\u0000b\": 1}", 1, "", "may not hold the character NUL");
    REFUSED("{\"a\":\n\"b\\u0000c\"}", 2, "a",
            "may not hold the character NUL (\\u0000) (column 9)");
    REFUSED_BYTES("{\"a\": \"b\0c\"}", 12, 1, "a", "control character");
}

static void strings_are_decoded(void **state)
{
    const char *s;

    (void)state;
    parse("{\"a\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20ac\\uD83D\\ude00 \xc3\xa9\"}");
    CHECK_OK(vp_json_string(&root, "a", &s, &err));
    assert_string_equal(s, "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 \xc3\xa9");
}

static void broken_escapes_and_bytes_in_strings_are_located(void **state)
{
    (void)state;
    REFUSED("{\"a\": \"\\x41\"}", 1, "a", "no such escape after a backslash (column 9)");
    REFUSED("{\"a\": \"\\u12g4\"}", 1, "a", "four hexadecimal digits must follow");
    REFUSED("{\"a\": \"\\ud800\"}", 1, "a", "half of a surrogate pair");
    REFUSED("{\"a\": \"\\ud800x\"}", 1, "a", "half of a surrogate pair");
    REFUSED("{\"a\": \"\\ud800\\n\"}", 1, "a", "half of a surrogate pair");
    REFUSED("{\"a\": \"\\ud800\\ud800\"}", 1, "a", "half of a surrogate pair");
    REFUSED("{\"a\": \"\\ude00\"}", 1, "a", "half of a surrogate pair");
    REFUSED("{\"a\": \"x\ny\"}", 1, "a", "the line ends inside a string");
    REFUSED("{\"a\": \"x\ty\"}", 1, "a", "a control character stands unescaped");
    REFUSED("{\"a\": \"\xff\"}", 1, "a", "byte 0xff here is not valid UTF-8 (column 8)");
    REFUSED("{\"a\": \"\xc0\xaf\"}", 1, "a", "byte 0xc0 here is not valid UTF-8");
    REFUSED("{\"a\": \"\xed\xa0\x80\"}", 1, "a", "byte 0xed here is not valid UTF-8");
    REFUSED("{\"a\": \"\xe2\x82\"}", 1, "a", "byte 0xe2 here is not valid UTF-8");
    REFUSED("{\"a\": \"\xe2\x82", 1, "a", "byte 0xe2 here is not valid UTF-8");
    REFUSED("{\"a\": \"\xf4\x90\x80\x80\"}", 1, "a", "byte 0xf4 here is not valid UTF-8");
}

static void a_string_ends_at_64_kib(void **state)
{
    enum { N = 64 * 1024 };
    char       *text = malloc(2 * N);
    const char *s;

    (void)state;
    memset(text, 'x', 2 * N);
    memcpy(text, "{\"a\":\"", 6);
    memcpy(text + 6 + N, "\"}", 2);
    parse_bytes(text, N + 8);
    CHECK_OK(vp_json_string(&root, "a", &s, &err));
    assert_int_equal(strlen(s), N);
    vp_json_doc_free(doc);
    memcpy(text + 6 + N, "x\"}", 3);
    REFUSED_BYTES(text, N + 9, 1, "a", "this string is longer than 65536 bytes (column 6)");
    /* As a key, too. */
    memcpy(text, "{\"xxxx", 6);
    memcpy(text + 6 + N, "\":1}", 4);
    REFUSED_BYTES(text, N + 10, 1, "", "this string is longer than 65536 bytes");
    free(text);
}

static void a_document_ends_at_800000_values(void **state)
{
    enum { N = 800000 };
    char *text = malloc(2 * N + 8);

    (void)state;
    for (int i = 0; i < N; i++)
        memcpy(text + 2 * i, ",0", 2);
    text[0]         = '[';
    text[2 * N - 2] = ']'; /* the array and N - 1 elements */
    parse_bytes(text, 2 * N - 1);
    vp_json_doc_free(doc);
    memcpy(text + 2 * N - 2, ",0]", 3);
    REFUSED_BYTES(text, 2 * N + 1, 1, "[799999]", "more than 800000 values");
    free(text);
}

static void a_number_of_a_million_digits_is_refused(void **state)
{
    char *text = malloc(1000001);

    (void)state;
    memset(text, '1', 1000000);
    REFUSED_BYTES(text, 1000000, 1, "", "this number is longer than 1024 bytes");
    text[1] = '.';
    REFUSED_BYTES(text, 1000000, 1, "", "this number is longer than 1024 bytes");
    memset(text, 'x', 1000000);
    REFUSED_BYTES(text, 1000000, 1, "", "this word is longer");
    free(text);
}

static void every_line_end_counts_once(void **state)
{
    int64_t v;

    (void)state;
    parse("{\r\n\"a\": {\r\n\r\n\"b\": [1,\r\n2,\r\n\"x\"]}}");
    vp_json_node a, b, element;
    int64_t      n;
    CHECK_OK(vp_json_object(&root, "a", &a, &err));
    CHECK_OK(vp_json_array(&a, "b", &b, &n, &err));
    assert_int_equal(n, 3);
    CHECK_OK(vp_json_element(&b, 2, &element, &err));
    assert_string_equal(element.path, "a.b[2]");
    CHECK_FAILS(vp_json_as_int(&element, 0, 9, &v, &err), VP_ERR_INPUT, "config.json", 6, "a.b[2]",
                "must be a whole number, is the string \"x\"");
    CHECK_FAILS(vp_json_element(&b, 3, &element, &err), VP_ERR_INPUT, "config.json", 4, "a.b",
                "has 3 elements; number 3 is missing");
    CHECK_FAILS(vp_json_fail(&a, "b", &err, "is %s", "odd"), VP_ERR_INPUT, "config.json", 4, "a.b",
                "is odd");
    CHECK_FAILS(vp_json_fail(&a, "zz", &err, "is odd"), VP_ERR_INPUT, "config.json", 2, "a.zz",
                "is odd");
    CHECK_FAILS(vp_json_fail(&root, NULL, &err, "is odd"), VP_ERR_INPUT, "config.json", 1, "",
                "is odd");
}

static void hostile_keys_and_values_are_shown_escaped(void **state)
{
    const char *const known[] = {"a", NULL};
    bool              b;

    (void)state;
    parse("{\"a\": \"\\u001b[2J\\u202ex\",\n\"\\u001b]0;t\\u0007\": 1}");
    CHECK_FAILS(vp_json_bool(&root, "a", &b, &err), VP_ERR_INPUT, "config.json", 1, "a",
                "is the string \"\\x1b[2J\\u202ex\"");
    CHECK_FAILS(vp_json_only_keys(&root, known, &err), VP_ERR_INPUT, "config.json", 2,
                "\\x1b]0;t\\x07", "is no field known here");
}

static void the_path_of_a_very_long_key_is_cut(void **state)
{
    char    text[1200], key[400];
    int64_t v;

    (void)state;
    memset(key, 'k', sizeof key);
    key[300] = '\0';
    snprintf(text, sizeof text, "{\n\"%s\":\n {\"b\": \n1}}", key);
    parse(text);
    vp_json_node node;
    CHECK_OK(vp_json_object(&root, key, &node, &err));
    assert_int_equal(strlen(node.path), sizeof node.path - 1);
    assert_string_equal(node.path + sizeof node.path - 5, "k...");
    assert_int_equal(vp_json_int(&node, "b", 2, 9, &v, &err), VP_ERR_INPUT);
    assert_int_equal(err.line, 2);
    assert_string_equal(err.field, node.path);
}

static void types_are_told_apart(void **state)
{
    vp_json_node node;
    bool         b = false;
    const char  *s = NULL;
    double       v = 0;
    int64_t      n = 0;

    (void)state;
    parse(
        "{\"t\": true, \"f\": false, \"n\": null, \"s\": \"x\", \"o\": {}, \"l\": [1, \"y\"], \"i\": 3}");
    CHECK_OK(vp_json_bool(&root, "t", &b, &err));
    assert_true(b);
    CHECK_OK(vp_json_bool(&root, "f", &b, &err));
    assert_false(b);
    assert_true(vp_json_has(&root, "f"));
    assert_false(vp_json_has(&root, "n"));
    assert_false(vp_json_has(&root, "zz"));
    CHECK_OK(vp_json_string(&root, "s", &s, &err));
    assert_string_equal(s, "x");
    CHECK_OK(vp_json_array(&root, "l", &node, &n, &err));
    assert_int_equal(n, 2);
    CHECK_OK(vp_json_element(&node, 1, &node, &err));
    CHECK_OK(vp_json_as_string(&node, &s, &err));
    assert_string_equal(s, "y");
    CHECK_OK(vp_json_object(&root, "o", &node, &err));
    CHECK_FAILS(vp_json_bool(&root, "i", &b, &err), VP_ERR_INPUT, "config.json", 1, "i",
                "must be true or false, is 3");
    CHECK_FAILS(vp_json_bool(&root, "s", &b, &err), VP_ERR_INPUT, "config.json", 1, "s",
                "must be true or false, is the string \"x\"");
    CHECK_FAILS(vp_json_real(&root, "t", 0, 1, &v, &err), VP_ERR_INPUT, "config.json", 1, "t",
                "must be a number, is true");
    CHECK_FAILS(vp_json_string(&root, "i", &s, &err), VP_ERR_INPUT, "config.json", 1, "i",
                "must be a string, is 3");
    CHECK_FAILS(vp_json_array(&root, "o", &node, &n, &err), VP_ERR_INPUT, "config.json", 1, "o",
                "must be an array, is an object");
    CHECK_FAILS(vp_json_object(&root, "l", &node, &err), VP_ERR_INPUT, "config.json", 1, "l",
                "must be an object, is an array");
    CHECK_FAILS(vp_json_element(&root, 0, &node, &err), VP_ERR_INPUT, "config.json", 1, "",
                "must be an array, is an object");
    assert_string_equal(vp_json_name(doc), "config.json");
}

static void the_first_error_stays(void **state)
{
    int64_t v;

    (void)state;
    parse("{\"a\": -1,\n\"b\": -2}");
    assert_int_equal(vp_json_int(&root, "a", 0, 9, &v, &err), VP_ERR_INPUT);
    assert_int_equal(vp_json_int(&root, "b", 0, 9, &v, &err), VP_ERR_INPUT);
    assert_string_equal(err.field, "a");
    assert_int_equal(vp_json_int(&root, "b", 0, 9, &v, NULL), VP_ERR_INPUT);
}

static void a_file_that_is_no_regular_file_is_named(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int                fd      = socket(AF_UNIX, SOCK_STREAM, 0);
    const char        *path;

    (void)state;
    path = in_test_dir("folder");
    mkdir(path, 0700);
    CHECK_FAILS(vp_json_read(path, 100, &doc, &err), VP_ERR_INPUT, path, 0, "",
                "is a directory, not a regular file");
    path = in_test_dir("fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    CHECK_FAILS(vp_json_read(path, 100, &doc, &err), VP_ERR_INPUT, path, 0, "", "is a FIFO");
    CHECK_FAILS(vp_json_read("/dev/zero", 100, &doc, &err), VP_ERR_INPUT, "/dev/zero", 0, "",
                "is a character device");
    path = in_test_dir("socket");
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_FAILS(vp_json_read(path, 100, &doc, &err), VP_ERR_INPUT, path, 0, "", "is a socket");
    close(fd);
    path = in_test_dir("nothing.json");
    CHECK_FAILS(vp_json_read(path, 100, &doc, &err), VP_ERR_INPUT, path, 0, "", "no such file");
}

static void a_file_is_read_up_to_its_limit(void **state)
{
    const char *path = put_file("limit.json", "{\"a\": 1}", 8);

    (void)state;
    CHECK_OK(vp_json_read(path, 8, &doc, &err));
    assert_string_equal(vp_json_name(doc), path);
    vp_json_doc_free(doc);
    CHECK_FAILS(vp_json_read(path, 7, &doc, &err), VP_ERR_INPUT, path, 0, "",
                "is 8 bytes long; at most 7 are read");
    assert_null(doc);
}

static void standard_input_is_a_file_named_so(void **state)
{
    int keep = dup(STDIN_FILENO), ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "{\n\"a\": x}", 9), 9);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    CHECK_FAILS(vp_json_read("-", 100, &doc, &err), VP_ERR_INPUT, "standard input", 2, "a",
                "\"x\" is no JSON value (column 6)");
    dup2(keep, STDIN_FILENO);
    close(keep);
}

static void a_dump_keeps_order_and_every_digit(void **state)
{
    vp_text out = {0};

    (void)state;
    parse("{\"z\": 0.1, \"a\": [1, {}], \"s\": \"\\u0001\\\"\xc3\xa9\", \"n\": null}");
    assert_true(vp_json_dump(root.value, &out));
    assert_string_equal(out.data,
                        "{\n  \"z\": 0.10000000000000001,\n  \"a\": [\n    1,\n    {}\n  ],\n"
                        "  \"s\": \"\\u0001\\\"\xc3\xa9\",\n  \"n\": null\n}\n");
    vp_json_doc_free(doc);
    parse_bytes(out.data, (int64_t)out.n_bytes);
    vp_text again = {0};
    assert_true(vp_json_dump(root.value, &again));
    assert_string_equal(again.data, out.data);
    vp_text_release(&again);
    vp_text_release(&out);
}

static void a_comma_locale_changes_neither_reading_nor_writing(void **state)
{
    vp_text out = {0};
    double  v   = 0;

    (void)state;
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8"))
        skip();
    parse("[2.5, 4096.5]");
    vp_json_node element;
    CHECK_OK(vp_json_element(&root, 0, &element, &err));
    CHECK_OK(vp_json_real(&element, NULL, 0, 9, &v, &err));
    assert_true(v == 2.5);
    CHECK_FAILS(vp_json_real(&element, NULL, 0, 1.5, &v, &err), VP_ERR_INPUT, "config.json", 1,
                "[0]", "must be between 0 and 1.5, is 2.5");
    assert_true(vp_json_dump(root.value, &out));
    assert_string_equal(out.data, "[\n  2.5,\n  4096.5\n]\n");
    vp_text_release(&out);
    setlocale(LC_ALL, "C");
}

/* Every prefix and every changed byte of a good document: an answer, never a crash. */
static void no_damage_to_a_document_does_harm(void **state)
{
    static const char good[] =
        "{\"a\": [1, -2.5e3, true, null, \"\\u00e9\\ud83d\\ude00\xc3\xa9\"],\n"
        " \"b\": {\"c\": NaN, \"d\": -Infinity, \"e\": \"\\\\n\"}}";
    size_t n = sizeof good - 1;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        char *bytes = malloc(n);
        memcpy(bytes, good, i);
        vp_status st = vp_json_parse("x", i ? bytes : "", (int64_t)i, &doc, &err);
        assert_int_equal(st, VP_ERR_INPUT);
        assert_true(err.line > 0);
        err = (vp_err){0};
        free(bytes);
    }
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 256; c++) {
            char *bytes = malloc(n);
            memcpy(bytes, good, n);
            bytes[i]     = (char)c;
            vp_status st = vp_json_parse("x", bytes, (int64_t)n, &doc, &err);
            assert_true(st == VP_OK || (st == VP_ERR_INPUT && err.message[0]));
            vp_json_doc_free(doc);
            doc = NULL;
            err = (vp_err){0};
            free(bytes);
        }
}

#define T(name) cmocka_unit_test_setup_teardown(name, empty_err, free_doc)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(an_empty_file_is_named_empty),
        T(white_space_alone_is_named),
        T(a_byte_order_mark_is_skipped_and_noted),
        T(utf16_and_utf32_are_named),
        T(a_truncated_text_is_located),
        T(anything_after_the_value_is_an_error),
        T(a_top_level_of_another_type_is_named_where_an_object_is_used),
        T(nesting_of_64_levels_is_the_limit),
        T(a_hundred_thousand_brackets_do_no_harm),
        T(a_key_that_stands_twice_is_named_with_both_lines),
        T(a_duplicate_key_spelled_with_an_escape_is_found),
        T(a_missing_field_is_named),
        T(a_whole_number_is_an_integer_or_an_exact_real),
        T(every_integer_of_64_bits_is_exact),
        T(numbers_that_are_not_json_are_refused),
        T(what_only_looks_like_json_is_told_apart),
        T(a_bare_infinity_may_stand_where_nobody_uses_it),
        T(a_string_that_says_nan_is_a_string),
        T(an_integer_beyond_64_bits_is_a_real),
        T(a_nul_escape_is_refused_in_key_and_value),
        T(strings_are_decoded),
        T(broken_escapes_and_bytes_in_strings_are_located),
        T(a_string_ends_at_64_kib),
        T(a_document_ends_at_800000_values),
        T(a_number_of_a_million_digits_is_refused),
        T(every_line_end_counts_once),
        T(hostile_keys_and_values_are_shown_escaped),
        T(the_path_of_a_very_long_key_is_cut),
        T(types_are_told_apart),
        T(the_first_error_stays),
        T(a_file_that_is_no_regular_file_is_named),
        T(a_file_is_read_up_to_its_limit),
        T(standard_input_is_a_file_named_so),
        T(a_dump_keeps_order_and_every_digit),
        T(a_comma_locale_changes_neither_reading_nor_writing),
        T(no_damage_to_a_document_does_harm),
    };
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
