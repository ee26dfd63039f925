#include "tests/base_test.h"

#include "base/options.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct values {
    bool        flag, again;
    const char *text, *input, *output, *kind, *other, *extra;
    int64_t     count, seed, size;
    double      real;
} values;

static const char *metal(int i)
{
    static const char *const metals[] = {"copper", "silver", "gold"};
    return i < 3 ? metals[i] : NULL;
}

static const vp_option rows[] = {
    {.name = "--flag", .kind = VP_OPTION_FLAG, .at = offsetof(values, flag), .help = "Switch it"},
    {.name    = "--again",
     .kind    = VP_OPTION_FLAG,
     .at      = offsetof(values, again),
     .help    = "Switch it more than once",
     .repeats = true},
    {.name      = "--text",
     .kind      = VP_OPTION_TEXT,
     .at        = offsetof(values, text),
     .value     = "WORD",
     .help      = "Say it",
     .otherwise = "nothing",
     .example   = "hello"},
    {.name    = "--input",
     .kind    = VP_OPTION_INPUT,
     .at      = offsetof(values, input),
     .value   = "FILE",
     .help    = "Read it",
     .example = "in.json"},
    {.name    = "-o",
     .kind    = VP_OPTION_OUTPUT,
     .at      = offsetof(values, output),
     .value   = "FILE",
     .help    = "Write it",
     .example = "out.json"},
};
static const vp_option more_rows[] = {
    {.name    = "--metal",
     .kind    = VP_OPTION_CHOICE,
     .at      = offsetof(values, kind),
     .word_at = metal,
     .words   = "any|none",
     .help    = "Which one it is",
     .preset  = "gold"},
    {.name  = "--other",
     .kind  = VP_OPTION_CHOICE,
     .at    = offsetof(values, other),
     .words = "full|part:N",
     .open  = true,
     .help  = "How much of it"},
    {.name   = "--count",
     .kind   = VP_OPTION_COUNT,
     .at     = offsetof(values, count),
     .value  = "N",
     .unit   = "apples",
     .min    = 1,
     .max    = 1000,
     .help   = "How many",
     .preset = "12"},
    {.name  = "--seed",
     .kind  = VP_OPTION_COUNT,
     .at    = offsetof(values, seed),
     .value = "N",
     .unit  = "any number",
     .max   = INT64_MAX,
     .help  = "Where it starts"},
    {.name  = "--budget",
     .kind  = VP_OPTION_SIZE,
     .at    = offsetof(values, size),
     .value = "SIZE",
     .help  = "How large"},
    {.name   = "--part",
     .kind   = VP_OPTION_REAL,
     .at     = offsetof(values, real),
     .value  = "F",
     .unit   = "a fraction",
     .high   = 1,
     .help   = "How much",
     .preset = "0.5"},
    {.name  = "--extra",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(values, extra),
     .value = "WORD",
     .help  = "Add it",
     .alone = "salt"},
};
static const vp_option_set        first = {NULL, rows, sizeof rows / sizeof *rows};
static const vp_option_set        more  = {"more", more_rows, sizeof more_rows / sizeof *more_rows};
static const vp_option_set *const sets[] = {&first, &more};

static bool hint(const void *ctx, const char *name, char *buf, size_t buf_size)
{
    if (strcmp(name, "--fruit") != 0)
        return false;
    snprintf(buf, buf_size, "did you mean %s?", (const char *)ctx);
    return true;
}

enum { MAX_ARGS = 8 };

/* Words that end with NULL, parsed; the two sets fill one struct. */
static vp_status parse(const char *const *words, bool takes_rest, values *v, vp_command_line *line,
                       vp_err *err)
{
    vp_options_spec spec = {.sets       = sets,
                            .n_sets     = 2,
                            .max_words  = 2,
                            .takes_rest = takes_rest,
                            .hint       = hint,
                            .hint_ctx   = "--count"};
    static char    *argv[MAX_ARGS + 1]; /* the parsed line points into it */
    int             argc = 0;

    for (; words[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc];
    argv[argc] = NULL;
    *v         = (values){.count = -1, .seed = -1};
    return vp_options_parse(&spec, argc, argv, (void *[]){v, v}, line, err);
}

static const struct {
    const char *words[MAX_ARGS];
    const char *text, *input, *output, *kind, *other, *extra;
    int64_t     count, seed, size;
    double      real;
    bool        flag, again;
    int         n_words, n_given;
    const char *note;
} good[] = {
    {{0}, .kind = "gold", .count = 12, .seed = -1, .real = 0.5},
    {{"--count", "3"}, .kind = "gold", .count = 3, .seed = -1, .real = 0.5, .n_given = 1},
    {{"--count=1000", "--flag"},
     .kind    = "gold",
     .count   = 1000,
     .seed    = -1,
     .real    = 0.5,
     .flag    = true,
     .n_given = 2},
    {{"one", "--metal", "any", "two"},
     .kind    = "any",
     .count   = 12,
     .seed    = -1,
     .real    = 0.5,
     .n_words = 2,
     .n_given = 1},
    {{"--metal=copper", "--again", "--again"},
     .kind    = "copper",
     .count   = 12,
     .seed    = -1,
     .real    = 0.5,
     .again   = true,
     .n_given = 3},
    {{"--text", "-1", "--input", "-"},
     .text    = "-1",
     .input   = "-",
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .real    = 0.5,
     .n_given = 2},
    {{"--text=--flag", "-o=--flag"},
     .text    = "--flag",
     .output  = "--flag",
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .real    = 0.5,
     .n_given = 2},
    {{"--text=", "--other", "part:7"},
     .text    = "",
     .other   = "part:7",
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .real    = 0.5,
     .n_given = 2},
    {{"--seed", "0", "--", "--flag"},
     .kind    = "gold",
     .count   = 12,
     .seed    = 0,
     .real    = 0.5,
     .n_words = 1,
     .n_given = 1},
    {{"--extra", "pepper"},
     .extra   = "pepper",
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .real    = 0.5,
     .n_given = 1},
    {{"--extra"},
     .extra   = "salt",
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .real    = 0.5,
     .n_given = 1},
    {{"--extra", "--flag"},
     .extra   = "salt",
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .real    = 0.5,
     .n_given = 2,
     .flag    = true},
    {{"--extra", "-o", "file"},
     .extra   = "salt",
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .real    = 0.5,
     .n_given = 2,
     .output  = "file"},
    {{"--extra", "--", "word"},
     .extra   = "salt",
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .real    = 0.5,
     .n_given = 1,
     .n_words = 1},
    {{"--extra="}, .extra = "", .kind = "gold", .count = 12, .seed = -1, .real = 0.5, .n_given = 1},
    {{"-", "--part", "1"},
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .real    = 1,
     .n_words = 1,
     .n_given = 1},
    {{"--budget", "2 kib"},
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .size    = 2048,
     .real    = 0.5,
     .n_given = 1},
    {{"--budget", "24"},
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .size    = 24,
     .real    = 0.5,
     .n_given = 1,
     .note    = "--budget 24 means 24 bytes; did you mean 24GiB?"},
    {{"--budget", "24576"},
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .size    = 24576,
     .real    = 0.5,
     .n_given = 1,
     .note    = "--budget 24576 means 24576 bytes; did you mean 24576MiB?"},
    {{"--budget", "24B"},
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .size    = 24,
     .real    = 0.5,
     .n_given = 1},
    {{"--budget", "1048576"},
     .kind    = "gold",
     .count   = 12,
     .seed    = -1,
     .size    = 1048576,
     .real    = 0.5,
     .n_given = 1},
};

static void same_text(const char *a, const char *b)
{
    if (!a || !b)
        assert_true(a == b);
    else
        assert_string_equal(a, b);
}

static void what_is_typed_is_what_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        values          v;
        vp_command_line line;
        vp_err          err = {0};

        CHECK_OK(parse(good[i].words, false, &v, &line, &err));
        same_text(v.text, good[i].text);
        same_text(v.input, good[i].input);
        same_text(v.output, good[i].output);
        same_text(v.kind, good[i].kind);
        same_text(v.other, good[i].other);
        same_text(v.extra, good[i].extra);
        assert_int_equal(v.count, good[i].count);
        assert_int_equal(v.seed, good[i].seed);
        assert_int_equal(v.size, good[i].size);
        assert_true(v.real == good[i].real);
        assert_int_equal(v.flag, good[i].flag);
        assert_int_equal(v.again, good[i].again);
        assert_int_equal(line.n_words, good[i].n_words);
        assert_int_equal(line.n_given, good[i].n_given);
        assert_string_equal(line.note, good[i].note ? good[i].note : "");
    }
}

static const struct {
    const char *words[MAX_ARGS];
    const char *says;
} bad[] = {
    {{"--flag", "--flag"}, "--flag is given twice"},
    {{"--count", "3", "--count=4"}, "--count is given twice"},
    {{"--flag=yes"}, "--flag takes no value"},
    {{"--count"}, "--count needs a value"},
    {{"-o"}, "-o needs a value"},
    {{"-o", "--"}, "-o needs a value"},
    {{"-o", "--flag"},
     "-o needs a value, and --flag looks like an option; if it is meant, write "
     "-o=--flag"},
    {{"--text", "-o", "x"},
     "--text needs a value, and -o looks like an option; if it is meant, "
     "write --text=-o"},
    {{"--text", "--nothing-known"}, "--text needs a value, and --nothing-known looks like"},
    {{"-o", "-"},
     "-o -: what it writes goes to a file, standard output has the answer; name a "
     "file, like -o out.json"},
    {{"-o=-"}, "-o -: what it writes goes to a file"},
    {{"--count", "0"}, "--count: 0 is not between 1 and 1,000"},
    {{"--count", "1001"}, "--count: 1001 is not between 1 and 1,000"},
    {{"--count", "many"}, "--count: \"many\" is not a whole number"},
    {{"--seed", "-1"}, "--seed: \"-1\" is not a whole number"},
    {{"--part", "1.01"}, "--part: 1.01 is not between 0 and 1"},
    {{"--part", "-0.1"}, "--part: -0.1 is not between 0 and 1"},
    {{"--metal", "tin"}, "--metal tin: one of copper, silver, gold, any, none"},
    {{"--metal", "Sliver"}, "any, none; did you mean silver?"},
    {{"--metal", ""}, "--metal : one of copper"},
    {{"--budget", "80G"}, "was 80GB (powers of 1000) or 80GiB"},
    {{"--budget", "24", "GB"}, "--budget 24 GB: a size is one word, like 24GB"},
    {{"--budget", "1.5", "tib", "a"}, "--budget 1.5 tib: a size is one word, like 1.5tib"},
    {{"--coutn", "3"}, "unknown option --coutn; did you mean --count?"},
    {{"--COUNT", "3"}, "unknown option --COUNT; did you mean --count?"},
    {{"--cuont=3"}, "unknown option --cuont; did you mean --count?"},
    {{"--fruit"}, "unknown option --fruit; did you mean --count?"}, /* by meaning */
    {{"-x"}, "unknown option -x"},
    {{"--frobnicate"}, "unknown option --frobnicate"},
    {{"--\x1b[31m"}, "unknown option --\\x1b[31m"},
    {{"a", "b", "c"}, "one argument too many: c"},
    {{"a", "b", "--", "-o"}, "one argument too many: -o"},
};

static void what_cannot_be_meant_is_refused_with_what_could(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        values          v;
        vp_command_line line;
        vp_err          err = {0};

        CHECK_FAILS(parse(bad[i].words, false, &v, &line, &err), VP_ERR_USAGE, "", 0, "",
                    bad[i].says);
        if (!strstr(bad[i].says, "did you mean"))
            assert_null(strstr(err.message, "did you mean"));
    }
}

static void a_command_without_its_two_dashes_is_told_of_them(void **state)
{
    static const char *const words[] = {"python", "train.py", "more", NULL};
    values                   v;
    vp_command_line          line;
    vp_err                   err = {0};

    (void)state;
    CHECK_FAILS(
        parse(words, true, &v, &line, &err), VP_ERR_USAGE, "", 0, "",
        "one argument too many: more; a command of yours stands behind --, as in: -- python");
}

static void a_command_behind_two_dashes_is_left_alone(void **state)
{
    const char *const words[] = {"--flag", "--", "python", "--flag", "--", NULL};
    values            v;
    vp_command_line   line;
    vp_err            err = {0};

    (void)state;
    CHECK_OK(parse(words, true, &v, &line, &err));
    assert_int_equal(line.n_words, 0);
    assert_string_equal(line.rest[0], "python");
    assert_string_equal(line.rest[1], "--flag");
    assert_string_equal(line.rest[2], "--");
    assert_null(line.rest[3]);
    CHECK_OK(parse((const char *const[]){"--flag", NULL}, true, &v, &line, &err));
    assert_null(line.rest);
}

static void what_was_given_is_listed_as_it_was_typed(void **state)
{
    const char *const words[] = {"--count=007", "--flag", "--budget", "2 KiB", NULL};
    values            v;
    vp_command_line   line;
    vp_err            err = {0};

    (void)state;
    CHECK_OK(parse(words, false, &v, &line, &err));
    assert_int_equal(line.n_given, 3);
    assert_string_equal(line.given[0].option->name, "--count");
    assert_string_equal(line.given[0].text, "007");
    assert_string_equal(line.given[1].option->name, "--flag");
    assert_null(line.given[1].text);
    assert_string_equal(line.given[2].text, "2 KiB");
}

static void a_distance_counts_letters(void **state)
{
    static const struct {
        const char *a, *b;
        int         distance;
    } pairs[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"abc", "abc", 0},
        {"ABC", "abc", 0},
        {"kitten", "sitting", 3}, /* k/s, e/i, +g */
        {"estimte", "estimate", 1},
        {"paln", "plan", 1}, /* neighbours swapped */
        {"ca", "abc", 3},    /* letters once swapped are not parted again */
        {"budegt", "budget", 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_int_equal(vp_word_distance(pairs[i].a, pairs[i].b), pairs[i].distance);
        assert_int_equal(vp_word_distance(pairs[i].b, pairs[i].a), pairs[i].distance);
    }
    /* 64 letters are compared, 65 are not */
    char a[70] = {0}, b[70] = {0};
    memset(a, 'x', 64);
    memset(b, 'x', 64);
    b[0] = 'y';
    assert_int_equal(vp_word_distance(a, b), 1);
    a[64] = 'x';
    assert_int_equal(vp_word_distance(a, b), 99);
    assert_int_equal(vp_word_distance(b, a), 99);
}

static void the_nearest_word_is_near(void **state)
{
    static const char *const words[] = {"--loss", "--seq", "--json", "--micro-batch", "-o"};

    (void)state;
    assert_int_equal(vp_word_nearest("--lora", words, 5), -1); /* 2 of 4 letters */
    assert_int_equal(vp_word_nearest("--lost", words, 5), 0);
    assert_int_equal(vp_word_nearest("--csv", words, 5), -1);
    assert_int_equal(vp_word_nearest("--sqe", words, 5), 1);
    assert_int_equal(vp_word_nearest("--micro_btach", words, 5), 3);
    assert_int_equal(vp_word_nearest("-b", words, 5), -1);
    assert_int_equal(vp_word_nearest("", words, 5), -1);
    assert_int_equal(vp_word_nearest("--seq", words, 0), -1);
}

static void help_says_all_that_a_row_says(void **state)
{
    vp_text out = {0};

    (void)state;
    vp_options_help(sets, 2, &out);
    assert_false(out.failed);
    assert_string_equal(out.data,
                        "\noptions\n"
                        "  --flag                Switch it.\n"
                        "  --again               Switch it more than once.\n"
                        "  --text WORD           Say it. Default: nothing.\n"
                        "                        Example: --text hello\n"
                        "  --input FILE          Read it.\n"
                        "                        Example: --input in.json\n"
                        "  -o FILE               Write it.\n"
                        "                        Example: -o out.json\n"
                        "\nmore\n"
                        "  --metal copper|silver|gold|any|none\n"
                        "                        Which one it is. Default: gold.\n"
                        "  --other full|part:N   How much of it.\n"
                        "  --count N             How many (apples, 1 to 1,000). Default: 12.\n"
                        "  --seed N              Where it starts (any number, 0 or more).\n"
                        "  --budget SIZE         How large (bytes, or with a unit).\n"
                        "  --part F              How much (a fraction, 0 to 1). Default: 0.5.\n"
                        "  --extra WORD          Add it. Without a value: salt.\n");
    vp_text_release(&out);
}

static void text_is_broken_at_80_columns(void **state)
{
    vp_text out = {0};
    char    a[41], b[41], text[100];

    (void)state;
    memset(a, 'a', 40);
    memset(b, 'b', 39);
    a[40] = b[39] = '\0';
    snprintf(text, sizeof text, "%s %s c", a, b); /* 40 + 1 + 39 = 80 */
    vp_text_wrap(text, 0, 0, &out);
    assert_int_equal(strcspn(out.data, "\n"), 80);
    assert_string_equal(out.data + 81, "c\n");
    vp_text_release(&out);
    out = (vp_text){0};
    vp_text_wrap(text, 0, 1, &out); /* one column to the right they do not fit */
    assert_int_equal(strcspn(out.data, "\n"), 41);
    vp_text_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_typed_is_what_is_read),
        cmocka_unit_test(what_cannot_be_meant_is_refused_with_what_could),
        cmocka_unit_test(a_command_without_its_two_dashes_is_told_of_them),
        cmocka_unit_test(a_command_behind_two_dashes_is_left_alone),
        cmocka_unit_test(what_was_given_is_listed_as_it_was_typed),
        cmocka_unit_test(a_distance_counts_letters),
        cmocka_unit_test(the_nearest_word_is_near),
        cmocka_unit_test(help_says_all_that_a_row_says),
        cmocka_unit_test(text_is_broken_at_80_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
