#include "tests/base_test.h"

#include "base/clock.h"
#include "base/safetensors.h"

#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

static vp_err          err;
static vp_safetensors *file;

static int empty_err(void **state)
{
    (void)state;
    err  = (vp_err){0};
    file = NULL;
    return 0;
}

static void close_file(void)
{
    vp_safetensors_close(file);
    file = NULL;
}

static int close_all(void **state)
{
    (void)state;
    close_file();
    return 0;
}

/* A file of a length field, a header and n_data bytes 0, 1, 2, ... */
static const char *put_tensors_sized(const char *name, uint64_t length, const char *header,
                                     size_t n_header, size_t n_data)
{
    const char *path = in_test_dir(name);
    FILE       *f    = fopen(path, "wb");

    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        putc((int)(length >> 8 * i & 0xff), f);
    fwrite(header, 1, n_header, f);
    for (size_t i = 0; i < n_data; i++)
        putc((int)(i & 0xff), f);
    assert_int_equal(fclose(f), 0);
    return path;
}

static const char *put_tensors(const char *name, const char *header, size_t n_data)
{
    return put_tensors_sized(name, strlen(header), header, strlen(header), n_data);
}

/* A header is refused, the error at this field. */
#define REFUSED(header, n_data, field, part) \
    do { \
        const char *path_ = put_tensors("x.safetensors", header, n_data); \
        CHECK_FAILS(vp_safetensors_open(path_, &file, &err), VP_ERR_INPUT, path_, 0, field, part); \
        assert_null(file); \
    } while (0)

static void accepted(const char *header, size_t n_data)
{
    close_file();
    CHECK_OK(vp_safetensors_open(put_tensors("x.safetensors", header, n_data), &file, &err));
}

#define TENSOR(dtype, shape, offsets) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void tensors_are_listed_in_the_order_of_their_data(void **state)
{
    const vp_tensor_info *t;

    (void)state;
    accepted("{\"__metadata__\":{\"format\":\"pt\"},"
             "\"b\":" TENSOR(
                 "F32", "[2,3]",
                 "[4,28]") ","
                           "\"a\":{\"data_offsets\":[0,4],\"shape\":[],\"dtype\":\"I32\"}}   ",
             28);
    assert_int_equal(vp_safetensors_count(file), 2);
    t = vp_safetensors_at(file, 0);
    assert_string_equal(t->name, "a");
    assert_int_equal(t->rank, 0);
    assert_int_equal(t->n_elements, 1);
    assert_int_equal(t->n_bytes, 4);
    t = vp_safetensors_at(file, 1);
    assert_string_equal(t->name, "b");
    assert_int_equal(t->dtype, VP_ST_F32);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->begin_byte, 4);
    assert_int_equal(t->n_elements, 6);
    assert_ptr_equal(vp_safetensors_find(file, "b"), t);
    assert_null(vp_safetensors_find(file, "c"));
    assert_null(vp_safetensors_find(file, ""));
    assert_null(vp_safetensors_find(file, "__metadata__"));
}

static void a_file_without_tensors_is_valid(void **state)
{
    (void)state;
    accepted("{}", 0);
    assert_int_equal(vp_safetensors_count(file), 0);
    assert_null(vp_safetensors_find(file, "a"));
    accepted("{\"__metadata__\":{}}", 0);
    assert_int_equal(vp_safetensors_count(file), 0);
}

static void a_file_too_short_for_a_header_is_named(void **state)
{
    const char *path = put_file("x.safetensors", "", 0);

    (void)state;
    CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "", "0 bytes long");
    path = put_file("x.safetensors", "\2\0\0\0\0\0\0", 7);
    CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "", "7 bytes long");
    path = put_file("x.safetensors", "\2\0\0\0\0\0\0\0", 8);
    CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "",
                "is cut short: its header is 2 bytes long, the file only 8 (byte 0)");
}

static void a_length_of_the_header_that_cannot_be_is_named(void **state)
{
    static const struct {
        uint64_t    length;
        const char *part;
    } cases[] = {
        {0, "has a header of 0 bytes"},
        {1, "has a header of 1 bytes"},
        {11, "is cut short: its header is 11 bytes long, the file only 18"},
        {(uint64_t)1 << 63, "would be 9223372036854775808, more than 100000000 (byte 0)"},
        {UINT64_MAX, "would be 18446744073709551615"},
        {UINT64_MAX - 7, "would be 18446744073709551608"},
        {100000001, "would be 100000001, more than 100000000"},
        {100000000, "is cut short: its header is 100000000"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = put_tensors_sized("x.safetensors", cases[i].length, "{}        ", 10, 0);
        CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "",
                    cases[i].part);
    }
}

static void a_header_begins_with_a_brace_and_ends_with_spaces(void **state)
{
    (void)state;
    REFUSED(" {}", 0, "", "must begin with \"{\", not with white space (byte 9)");
    REFUSED("[]", 0, "", "expected \"{\" at the beginning of the header, found \"[\" (byte 8)");
    REFUSED("\"a\"", 0, "", "expected \"{\" at the beginning");
    REFUSED("\xef\xbb\xbf{}", 0, "", "unexpected byte 0xef (byte 8)");
    REFUSED("{}x", 0, "", "\"x\" is no JSON value (byte 10)");
    REFUSED("{}{}", 0, "", "expected only white space behind the header, found \"{\" (byte 10)");
    const char *path = put_tensors_sized("x.safetensors", 4, "{}\0\0", 4, 0);
    CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "",
                "unexpected byte 0x00 (byte 10)");
    REFUSED("{\"\xff\":" TENSOR("U8", "[0]", "[0,0]") "}", 0, "",
            "byte 0xff here is not valid UTF-8 (byte 10)");
    accepted("{} \n\t ", 0);
}

static void a_header_cut_short_is_located(void **state)
{
    (void)state;
    REFUSED("{\"a\":{\"dtype\":\"F3", 0, "a.dtype", "the text ends inside a string (byte 25)");
    REFUSED("{\"a\"", 0, "a", "expected \":\" after the name, found the end of the text (byte 12)");
    REFUSED("{\"a\":{\"shape\":[1,", 0, "a.shape",
            "expected a dimension, found the end of the text");
    REFUSED("{\"a\":" TENSOR("U8", "[0]", "[0,0]") ",", 0, "",
            "expected the name of a tensor in double quotes, found the end of the text (byte 61)");
}

static void broken_offsets_are_located(void **state)
{
    (void)state;
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[2,0]") "}", 2, "a.data_offsets",
            "data [2, 0) does not lie within the 2 bytes that the file holds");
    REFUSED("{\"a\":" TENSOR("U8", "[3]", "[0,3]") "}", 2, "a.data_offsets",
            "data [0, 3) does not lie");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[-2,0]") "}", 2, "a.data_offsets",
            "an offset must not be negative, is -2 (byte 55)");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[0.0,2]") "}", 2, "a.data_offsets",
            "expected an offset, found the number 0.0");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[0,2e0]") "}", 2, "a.data_offsets",
            "found the number 2e0");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[\"0\",2]") "}", 2, "a.data_offsets",
            "found the string");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[2]") "}", 2, "a.data_offsets", "found 1");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[]") "}", 2, "a.data_offsets", "found 0");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[0,1,2]") "}", 2, "a.data_offsets",
            "more than 2 numbers stand here (byte 59)");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[0,2,]") "}", 2, "a.data_offsets",
            "a number after the comma");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[0 2]") "}", 2, "a.data_offsets",
            "expected \",\" or \"]\"");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "2") "}", 2, "a.data_offsets", "expected an array");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[0,9223372036854775808]") "}", 2, "a.data_offsets",
            "9223372036854775808 is too large");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[18446744073709551615,2]") "}", 2, "a.data_offsets",
            "is too large");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[9223372036854775807,9223372036854775807]") "}", 2,
            "a.data_offsets", "does not lie within");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[NaN,2]") "}", 2, "a.data_offsets", "found NaN");
}

static void data_with_holes_or_overlap_are_refused(void **state)
{
    (void)state;
    REFUSED("{\"a\":" TENSOR("U8", "[4]", "[0,4]") ",\"b\":" TENSOR("U8", "[4]", "[2,6]") "}", 6,
            "b", "its data begin at 2, inside those of another tensor, which end at 4 (byte 61)");
    REFUSED("{\"a\":" TENSOR("U8", "[4]", "[0,4]") ",\"b\":" TENSOR("U8", "[4]", "[0,4]") "}", 4,
            "b", "its data begin at 0, inside those of another tensor");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[0,2]") ",\"b\":" TENSOR("U8", "[2]", "[4,6]") "}", 6,
            "b", "its data begin at 4, but nothing holds the bytes from 2 on");
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[2,4]") "}", 4, "a",
            "nothing holds the bytes from 0 on");
    /* The header is 53 bytes long, the data section begins at 61. */
    REFUSED("{\"a\":" TENSOR("U8", "[2]", "[0,2]") "}", 5, "",
            "3 bytes from byte 63 on belong to no tensor");
    REFUSED("{}", 1, "", "1 bytes from byte 10 on belong to no tensor");
    /* An empty tensor inside another's data covers nothing and yet points into it. */
    REFUSED("{\"a\":" TENSOR("U8", "[4]", "[0,4]") ",\"b\":" TENSOR("U8", "[0]", "[2,2]") "}", 4,
            "b", "inside those of another tensor");
}

static void empty_tensors_lie_between_others(void **state)
{
    (void)state;
    accepted(
        "{\"a\":" TENSOR("U8", "[2]", "[0,2]") ",\"b\":" TENSOR(
            "F32", "[0]",
            "[2,2]") ",\"c\":" TENSOR("U8", "[1]",
                                      "[2,3]") ",\"d\":" TENSOR("F64", "[3,0]",
                                                                "[3,3]") ",\"e\":" TENSOR("F64",
                                                                                          "[0]",
                                                                                          "[0,0]") "}",
        3);
    assert_int_equal(vp_safetensors_count(file), 5);
    assert_string_equal(vp_safetensors_at(file, 0)->name, "e");
    assert_string_equal(vp_safetensors_at(file, 2)->name, "b");
}

static void a_shape_must_make_the_length(void **state)
{
    (void)state;
    REFUSED("{\"a\":" TENSOR("F32", "[2]", "[0,7]") "}", 7, "a.shape",
            "shape and dtype make 8 bytes, data_offsets 7");
    REFUSED("{\"a\":" TENSOR("F32", "[0]", "[0,4]") "}", 4, "a.shape",
            "make 0 bytes, data_offsets 4");
    REFUSED("{\"a\":" TENSOR("F32", "[]", "[0,0]") "}", 0, "a.shape",
            "make 4 bytes, data_offsets 0");
    REFUSED("{\"a\":" TENSOR("U8", "[-1]", "[0,0]") "}", 0, "a.shape",
            "a dimension must not be negative, is -1 (byte 36)");
    REFUSED("{\"a\":" TENSOR("U8", "[1.0]", "[0,1]") "}", 1, "a.shape",
            "expected a dimension, found the "
            "number 1.0");
    REFUSED("{\"a\":" TENSOR("U8", "[null]", "[0,1]") "}", 1, "a.shape", "found null");
    REFUSED("{\"a\":" TENSOR("U8", "[[1]]", "[0,1]") "}", 1, "a.shape", "found \"[\"");
}

static void a_product_of_dimensions_never_wraps(void **state)
{
    (void)state;
    /* 2^32 * 2^32 wraps to 0, 2^62 * 6 to 2^63 (negative), 2^61 * 9 to 2^61, 2^61 * 4 bytes to 0 */
    REFUSED("{\"a\":" TENSOR("U8", "[4294967296,4294967296]", "[0,0]") "}", 0, "a.shape",
            "the product of the dimensions is too large");
    REFUSED("{\"a\":" TENSOR("U8", "[4611686018427387904,6]", "[0,0]") "}", 0, "a.shape",
            "too large");
    REFUSED("{\"a\":" TENSOR("U8", "[2305843009213693952,9]", "[0,1]") "}", 1, "a.shape",
            "too large");
    REFUSED("{\"a\":" TENSOR("F32", "[4611686018427387904]", "[0,0]") "}", 0, "a.shape",
            "too large");
    REFUSED("{\"a\":" TENSOR("U8", "[9223372036854775808]", "[0,0]") "}", 0, "a.shape",
            "a dimension 9223372036854775808 is too large");
}

static void a_zero_among_huge_dimensions_makes_an_empty_tensor(void **state)
{
    (void)state;
    accepted("{\"a\":" TENSOR(
                 "F32", "[0,9223372036854775807,9223372036854775807]",
                 "[0,0]") ",\"b\":" TENSOR("F32", "[9223372036854775807,9223372036854775807,0]",
                                           "[0,0]") "}",
             0);
    assert_int_equal(vp_safetensors_at(file, 0)->n_elements, 0);
    assert_int_equal(vp_safetensors_at(file, 1)->n_elements, 0);
}

static void a_rank_of_16_is_the_limit(void **state)
{
    char header[8192], shape[4096] = "[1";

    (void)state;
    accepted("{\"a\":" TENSOR("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,2]") "}", 2);
    assert_int_equal(vp_safetensors_at(file, 0)->rank, 16);
    assert_int_equal(vp_safetensors_at(file, 0)->shape[15], 2);
    close_file();
    REFUSED("{\"a\":" TENSOR("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1,
            "a.shape", "more than 16 numbers stand here (byte 68)");
    for (int i = 1; i < 1000; i++)
        strcat(shape, ",1");
    snprintf(header, sizeof header,
             "{\"a\":{\"dtype\":\"U8\",\"shape\":%s],\"data_offsets\":[0,1]}}", shape);
    REFUSED(header, 1, "a.shape", "more than 16 numbers");
}

static void an_unknown_dtype_is_an_error_and_no_reason_to_skip_checks(void **state)
{
    static const char *const strange[] = {"F33",     "f32",     "",    "F4",
                                          "F6_E2M3", "F8_E8M0", "C64", "F32 "};

    (void)state;
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        char header[200], part[80];
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,2]}}", strange[i]);
        snprintf(part, sizeof part, "dtype \"%s\" is not supported (byte 22)", strange[i]);
        REFUSED(header, 2, "a.dtype", part);
    }
    REFUSED("{\"a\":{\"dtype\":1,\"shape\":[3],\"data_offsets\":[0,3]}}", 3, "a.dtype",
            "expected the name of a dtype, found the number 1");
}

static void every_dtype_has_its_size(void **state)
{
    static const struct {
        vp_st_dtype dtype;
        int64_t     bytes;
    } sizes[] = {{VP_ST_F64, 8}, {VP_ST_F32, 4},  {VP_ST_F16, 2},     {VP_ST_BF16, 2},
                 {VP_ST_I64, 8}, {VP_ST_I32, 4},  {VP_ST_I16, 2},     {VP_ST_I8, 1},
                 {VP_ST_U8, 1},  {VP_ST_BOOL, 1}, {VP_ST_F8_E4M3, 1}, {VP_ST_F8_E5M2, 1},
                 {VP_ST_U16, 2}, {VP_ST_U32, 4},  {VP_ST_U64, 8}};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char header[200];
        assert_int_equal(vp_st_dtype_bytes(sizes[i].dtype), sizes[i].bytes);
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}",
                 vp_st_dtype_name(sizes[i].dtype), (int)sizes[i].bytes * 3);
        accepted(header, (size_t)sizes[i].bytes * 3);
        assert_int_equal(vp_safetensors_at(file, 0)->dtype, sizes[i].dtype);
    }
}

static void a_tensor_has_its_three_fields_once_and_no_others(void **state)
{
    (void)state;
    REFUSED("{\"a\":{}}", 0, "a.dtype", "dtype is missing (byte 14)");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0, "a.shape", "shape is missing");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, "a.data_offsets",
            "data_offsets is missing");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, "a.dtype",
            "dtype stands twice (byte 27)");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"d\\u0074ype\":\"U8\"}}", 0, "a.dtype",
            "dtype stands twice");
    REFUSED("{\"a\":{\"size\":1}}", 0, "a", "\"size\" is no field of a tensor (byte 14)");
    REFUSED("{\"a\":[]}", 0, "a",
            "expected an object with dtype, shape and data_offsets, found \"[\"");
    REFUSED("{\"a\":null}", 0, "a", "expected an object with dtype");
    REFUSED("{\"a\":{\"dtype\":\"U8\",}}", 0, "a.dtype", "expected a key after the comma");
    REFUSED("{\"a\":{\"dtype\":\"U8\" \"shape\":[]}}", 0, "a.dtype", "expected \",\" or \"}\"");
}

static void a_name_that_stands_twice_is_found(void **state)
{
    (void)state;
    REFUSED("{\"a\":" TENSOR("U8", "[1]", "[0,1]") ",\"a\":" TENSOR("U8", "[1]", "[0,1]") "}", 1,
            "a", "a tensor of this name stands in the header twice (byte 61)");
    REFUSED("{\"a\":" TENSOR("U8", "[1]", "[0,1]") ",\"\\u0061\":" TENSOR("I8", "[2]", "[1,3]") "}",
            3, "a", "a tensor of this name stands in the header twice (byte 61)");
}

static void metadata_are_text_and_no_tensor(void **state)
{
    (void)state;
    REFUSED("{\"__metadata__\":" TENSOR("U8", "[1]", "[0,1]") "}", 1, "__metadata__",
            "expected a string, as all metadata are, found \"[\"");
    REFUSED("{\"__metadata__\":{\"n\":1}}", 0, "__metadata__",
            "expected a string, as all metadata are, found the number 1 (byte 29)");
    REFUSED("{\"__metadata__\":{\"n\":null}}", 0, "__metadata__", "expected a string");
    REFUSED("{\"__metadata__\":{\"n\":{}}}", 0, "__metadata__", "expected a string");
    REFUSED("{\"__metadata__\":\"pt\"}", 0, "__metadata__", "expected an object of strings");
    REFUSED("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__",
            "stands twice (byte 27)");
    REFUSED("{\"__metadata__\":{\"a\":\"b\",}}", 0, "__metadata__",
            "expected a key after the comma");
    REFUSED("{\"__metadata__\":{\"a\\u0000\":\"b\"}}", 0, "__metadata__", "NUL");
    REFUSED("{\"__metadata__\":{\"a\":\"\xc0\xaf\"}}", 0, "__metadata__", "not valid UTF-8");
}

static void a_metadata_text_may_be_long_and_a_name_may_not(void **state)
{
    enum { N = 300000 };
    char *header = malloc(N);

    (void)state;
    memset(header, 'x', N);
    memcpy(header, "{\"__metadata__\":{\"tags\":\"", 25);
    memcpy(header + N - 4, "\"}}", 4);
    accepted(header, 0);
    close_file();
    memset(header, 'n', N);
    memcpy(header, "{\"", 2);
    memcpy(header + 2 + 4096, "\":" TENSOR("U8", "[1]", "[0,1]") "}",
           sizeof "\":" TENSOR("U8", "[1]", "[0,1]") "}");
    accepted(header, 1);
    assert_int_equal(strlen(vp_safetensors_at(file, 0)->name), 4096);
    close_file();
    memcpy(header + 2 + 4096, "n\":" TENSOR("U8", "[1]", "[0,1]") "}",
           sizeof "n\":" TENSOR("U8", "[1]", "[0,1]") "}");
    REFUSED(header, 1, "", "this string is longer than 4096 bytes (byte 9)");
    free(header);
}

static void a_nul_in_a_name_is_refused(void **state)
{
    (void)state;
    REFUSED("{\"a\\u0000b\":" TENSOR("U8", "[1]", "[0,1]") "}", 1, "",
            "may not hold the character NUL");
}

static void a_hostile_name_is_shown_escaped(void **state)
{
    (void)state;
    REFUSED("{\"\\u001b[2J\":" TENSOR("U8", "[1]", "[0,2]") "}", 2, "\\x1b[2J.shape",
            "make 1 bytes");
}

static void headers_are_read_across_the_pieces_they_come_in(void **state)
{
    char *header = malloc(300000), name[32];

    (void)state;
    /* Names of three-byte characters and numbers, shifted byte by byte over the edge of a piece. */
    for (int shift = 0; shift < 200; shift++) {
        size_t n =
            (size_t)sprintf(header, "{\"__metadata__\":{\"p\":\"%*s\"}", 65536 - 300 + shift, "");
        for (int i = 0; i < 10; i++)
            n += (size_t)sprintf(
                header + n, ",\"\xe2\x82\xac%03d\\ud83d\\ude00\":" TENSOR("U8", "[%d]", "[%d,%d]"),
                i, 1, i, i + 1);
        sprintf(header + n, "}");
        accepted(header, 10);
        assert_int_equal(vp_safetensors_count(file), 10);
        for (int i = 0; i < 10; i++) {
            sprintf(name, "\xe2\x82\xac%03d\xf0\x9f\x98\x80", i);
            assert_non_null(vp_safetensors_find(file, name));
        }
    }
    free(header);
}

static void a_million_tensors_are_read_in_time_and_one_more_is_refused(void **state)
{
    enum { N = 1000000 };
    char  *header = malloc(100 * (N + 1));
    size_t n      = 1;
    double start;

    (void)state;
    header[0] = '{';
    for (int i = 0; i < N; i++)
        n += (size_t)sprintf(header + n, "\"t%06d\":" TENSOR("U8", "[1]", "[%d,%d]") ",",
                             (int)((int64_t)i * 7919 % N), i, i + 1);
    header[n - 1]    = '}';
    header[n]        = '\0';
    const char *path = put_tensors("many.safetensors", header, N);
    start            = vp_now_s();
    CHECK_OK(vp_safetensors_open(path, &file, &err));
    /* 2 s on an idle machine; a sanitizer and a busy one may take their time. */
    assert_true(vp_now_s() - start < 20);
    assert_int_equal(vp_safetensors_count(file), N);
    assert_int_equal(vp_safetensors_find(file, "t999999")->n_bytes, 1);
    close_file();
    n += (size_t)sprintf(header + n - 1, ",\"u\":" TENSOR("U8", "[0]", "[0,0]") "}") - 1;
    path = put_tensors("many.safetensors", header, N);
    CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "u",
                "more than 1000000 tensors");
    remove(path);
    free(header);
}

static void a_header_of_one_endless_name_costs_no_memory(void **state)
{
    enum { N = 100000000 };
    struct rusage            before, after;
    char                    *piece   = malloc(1 << 20);
    const char              *path    = in_test_dir("long.safetensors");
    FILE                    *f       = fopen(path, "wb");
    size_t                   n       = 0;
    static const char *const heads[] = {"{\"", "{\"__metadata__\":{\"x\":\""};

    (void)state;
    memset(piece, 'n', 1 << 20);
    for (int i = 0; i < 2; i++) {
        f = freopen(path, "wb", f);
        fwrite("\x00\xe1\xf5\x05\0\0\0\0", 1, 8, f);
        n = fwrite(heads[i], 1, strlen(heads[i]), f);
        while (n < N)
            n += fwrite(piece, 1, N - n < 1 << 20 ? N - n : 1 << 20, f);
        fflush(f);
        getrusage(RUSAGE_SELF, &before);
        if (i == 0)
            CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "",
                        "this string is longer than 4096 bytes (byte 9)");
        else
            CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0,
                        "__metadata__", "the text ends inside a string (byte 100000008)");
        getrusage(RUSAGE_SELF, &after);
        assert_true(after.ru_maxrss - before.ru_maxrss < 4 * 1024); /* KiB */
    }
    fclose(f);
    remove(path);
    free(piece);
}

static void a_file_of_another_kind_is_named(void **state)
{
    static const struct {
        const char *bytes;
        size_t      n;
        const char *part;
    } cases[] = {
        {"\x80\x02}q\0(X\x01\0\0\0a", 12,
         "is no safetensors file but a pickle, which is never opened"},
        {"\x80\x04", 2, "a pickle"},
        {"PK\x03\x04\0\0\0\0\0\0\0\0", 12, "a zip archive, as torch.save writes it"},
        {"GGUF\3\0\0\0\0\0\0\0", 12, "a GGUF file"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:", 54, "a git LFS pointer"},
        {"\x89HDF\r\n\x1a\n\0\0", 10, "an HDF5 file"},
        {"\x93NUMPY\1\0v\0", 10, "a NumPy file"},
        {"<!DOCTYPE html><html>", 21, "a web page"},
    };
    static const char *const never[] = {
        "pytorch_model.bin", "x.pt", "x.pth", "x.ckpt", "x.pkl", "x.npz"};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = put_file("x.safetensors", cases[i].bytes, cases[i].n);
        CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "",
                    cases[i].part);
    }
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        const char *path = put_tensors(never[i], "{}", 0);
        CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "",
                    "never opened");
    }
}

static void a_path_that_is_no_regular_file_is_named(void **state)
{
    const char *path = in_test_dir("fifo");

    (void)state;
    CHECK_FAILS(vp_safetensors_open(test_dir, &file, &err), VP_ERR_INPUT, test_dir, 0, "",
                "is a directory");
    CHECK_FAILS(vp_safetensors_open("/dev/zero", &file, &err), VP_ERR_INPUT, "/dev/zero", 0, "",
                "is a character device");
    assert_int_equal(mkfifo(path, 0600), 0);
    CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "", "is a FIFO");
    path = in_test_dir("nothing");
    CHECK_FAILS(vp_safetensors_open(path, &file, &err), VP_ERR_INPUT, path, 0, "", "no such file");
}

static void elements_are_read_from_any_position(void **state)
{
    unsigned char buf[8] = {0};

    (void)state;
    accepted("{\"a\":" TENSOR("U8", "[4]", "[0,4]") ",\"b\":" TENSOR("U16", "[2,2]", "[4,12]") "}",
             12);
    CHECK_OK(vp_safetensors_read(file, vp_safetensors_find(file, "b"), 1, 2, buf, &err));
    assert_memory_equal(buf, "\6\7\10\11\0\0\0\0", 8);
    CHECK_OK(vp_safetensors_read(file, vp_safetensors_find(file, "a"), 4, 0, buf, &err));
    CHECK_OK(vp_safetensors_read(file, vp_safetensors_find(file, "a"), 0, 4, buf, &err));
    assert_memory_equal(buf, "\0\1\2\3", 4);
}

static void a_file_that_shrinks_is_an_error_and_no_fault(void **state)
{
    char        buf[200000];
    const char *path;

    (void)state;
    accepted("{\"a\":" TENSOR("U8", "[200000]", "[0,200000]") "}", 200000);
    path = vp_safetensors_path(file);
    assert_int_equal(truncate(path, 1000), 0);
    CHECK_FAILS(vp_safetensors_read(file, vp_safetensors_at(file, 0), 0, 200000, buf, &err),
                VP_ERR_INPUT, path, 0, "", "became shorter while it was read: byte 1000 is gone");
}

static void halves_and_doubles_become_floats(void **state)
{
    /* f16: 1, -2, 65504, 2^-24 (least), 2^-14 (least normal), inf, nan, -0, 0.333251953125 */
    static const uint16_t f16[]     = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x0400,
                                       0x7c00, 0x7e00, 0x8000, 0x3555};
    static const float    want[]    = {1,        -2,  65504, 0x1p-24f,       0x1p-14f,
                                       INFINITY, NAN, -0.0f, 0.333251953125f};
    static const uint16_t bf16[]    = {0x3f80, 0xc000, 0x7f80, 0x0001, 0x3eab};
    static const double   f64[]     = {1, -2.5, 1e300, 1e-300, 0.1};
    static const float    f32[]     = {1.5f, -0.0f};
    static const int32_t  i32[]     = {1};
    const vp_tensor_data  tensors[] = {
         {.name = "half", .dtype = VP_ST_F16, .rank = 1, .shape = {9}, .data = f16},
         {.name = "brain", .dtype = VP_ST_BF16, .rank = 1, .shape = {5}, .data = bf16},
         {.name = "double", .dtype = VP_ST_F64, .rank = 1, .shape = {5}, .data = f64},
         {.name = "float", .dtype = VP_ST_F32, .rank = 1, .shape = {2}, .data = f32},
         {.name = "int", .dtype = VP_ST_I32, .rank = 1, .shape = {1}, .data = i32},
    };
    const char *path = in_test_dir("floats.safetensors");
    float       got[9];

    (void)state;
    CHECK_OK(vp_safetensors_write(path, tensors, 5, true, &err));
    CHECK_OK(vp_safetensors_open(path, &file, &err));
    CHECK_OK(vp_safetensors_read_f32(file, vp_safetensors_find(file, "half"), 0, 9, got, &err));
    for (int i = 0; i < 9; i++)
        assert_true(isnan(want[i]) ? isnan(got[i]) : got[i] == want[i]);
    assert_true(signbit(got[7]));
    CHECK_OK(vp_safetensors_read_f32(file, vp_safetensors_find(file, "half"), 2, 1, got, &err));
    assert_true(got[0] == 65504);
    CHECK_OK(vp_safetensors_read_f32(file, vp_safetensors_find(file, "brain"), 0, 5, got, &err));
    assert_true(got[0] == 1 && got[1] == -2 && isinf(got[2]) && got[3] == 0x1p-133f);
    assert_true(got[4] == 0.333984375f); /* 1.0101011b * 2^-2 = 171/128 / 4 */
    CHECK_OK(vp_safetensors_read_f32(file, vp_safetensors_find(file, "double"), 0, 5, got, &err));
    assert_true(got[0] == 1 && got[1] == -2.5f && isinf(got[2]) && got[3] == 0 && got[4] == 0.1f);
    CHECK_OK(vp_safetensors_read_f32(file, vp_safetensors_find(file, "float"), 0, 2, got, &err));
    assert_true(got[0] == 1.5f && signbit(got[1]));
    CHECK_FAILS(vp_safetensors_read_f32(file, vp_safetensors_find(file, "int"), 0, 1, got, &err),
                VP_ERR_INPUT, path, 0, "int", "dtype I32 cannot be read as float");
}

static void long_tensors_are_converted_whole(void **state)
{
    enum { N = 20000 };
    double        *data   = malloc(N * sizeof *data);
    float         *got    = malloc(N * sizeof *got);
    vp_tensor_data tensor = {
        .name = "a", .dtype = VP_ST_F64, .rank = 1, .shape = {N}, .data = data};
    const char *path = in_test_dir("long-f64.safetensors");

    (void)state;
    for (int i = 0; i < N; i++)
        data[i] = i + 0.5;
    CHECK_OK(vp_safetensors_write(path, &tensor, 1, true, &err));
    CHECK_OK(vp_safetensors_open(path, &file, &err));
    CHECK_OK(vp_safetensors_read_f32(file, vp_safetensors_at(file, 0), 3, N - 3, got, &err));
    for (int i = 3; i < N; i++)
        assert_true(got[i - 3] == (float)i + 0.5f);
    free(data);
    free(got);
}

static void a_written_file_lists_by_name_and_aligns_every_tensor(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[20,23]},"
        "\"b\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"c\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[8,20]},"
        "\"d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[20,20]}}";
    static const float   c[]       = {1, 2, 3};
    static const double  b         = 4;
    const vp_tensor_data tensors[] = {
        {.name = "c", .dtype = VP_ST_F32, .rank = 2, .shape = {1, 3}, .data = c},
        {.name = "d", .dtype = VP_ST_F32, .rank = 1, .shape = {0}, .data = NULL},
        {.name = "a", .dtype = VP_ST_U8, .rank = 1, .shape = {3}, .data = "xyz"},
        {.name = "b", .dtype = VP_ST_F64, .rank = 0, .data = &b},
    };
    const char *path = in_test_dir("written.safetensors");
    char        bytes[512];
    float       got[3];
    FILE       *f;
    size_t      n, n_header = (sizeof header - 1 + 7) / 8 * 8;

    (void)state;
    CHECK_OK(vp_safetensors_write(path, tensors, 4, false, &err));
    CHECK_FAILS(vp_safetensors_write(path, tensors, 4, false, &err), VP_ERR_USAGE, path, 0, "",
                "--force");
    CHECK_OK(vp_safetensors_write(path, tensors, 4, true, &err));
    f = fopen(path, "rb");
    n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_int_equal(n, 8 + n_header + 23);
    assert_int_equal((unsigned char)bytes[0] | (unsigned char)bytes[1] << 8, n_header);
    assert_memory_equal(bytes + 2, "\0\0\0\0\0\0", 6);
    assert_memory_equal(bytes + 8, header, sizeof header - 1);
    for (size_t i = sizeof header - 1; i < n_header; i++)
        assert_int_equal(bytes[8 + i], ' ');
    CHECK_OK(vp_safetensors_open(path, &file, &err));
    CHECK_OK(vp_safetensors_read(file, vp_safetensors_find(file, "c"), 0, 3, got, &err));
    assert_memory_equal(got, c, sizeof c);
    CHECK_OK(vp_safetensors_read(file, vp_safetensors_find(file, "a"), 0, 3, got, &err));
    assert_memory_equal(got, "xyz", 3);
}

static void any_name_survives_being_written_and_read(void **state)
{
    static const char *const names[] = {
        "q\"uote", "back\\slash", "tab\tnew\nline\x01", "\xe2\x82\xac",
        " ",       "\x7f",        "a.b.0.weight",       ""};
    vp_tensor_data tensors[8];
    const char    *path = in_test_dir("names.safetensors");

    (void)state;
    for (int i = 0; i < 8; i++)
        tensors[i] = (vp_tensor_data){
            .name = names[i], .dtype = VP_ST_U8, .rank = 1, .shape = {1}, .data = "x"};
    CHECK_OK(vp_safetensors_write(path, tensors, 8, true, &err));
    CHECK_OK(vp_safetensors_open(path, &file, &err));
    for (int i = 0; i < 8; i++)
        assert_non_null(vp_safetensors_find(file, names[i]));
    close_file();
    CHECK_OK(vp_safetensors_write(path, NULL, 0, true, &err));
    CHECK_OK(vp_safetensors_open(path, &file, &err));
    assert_int_equal(vp_safetensors_count(file), 0);
}

static void names_that_nobody_could_read_are_not_written(void **state)
{
    char           longest[4098];
    vp_tensor_data tensors[2] = {
        {.name = "a", .dtype = VP_ST_U8, .rank = 1, .shape = {1}, .data = "x"},
        {.name = "a", .dtype = VP_ST_U8, .rank = 1, .shape = {1}, .data = "x"}};
    const char              *path  = in_test_dir("never.safetensors");
    static const char *const bad[] = {"\xff", "__metadata__"};

    (void)state;
    CHECK_FAILS(vp_safetensors_write(path, tensors, 2, true, &err), VP_ERR_INTERNAL, "", 0, "",
                "\"a\"");
    for (int i = 0; i < 2; i++) {
        tensors[0].name = bad[i];
        CHECK_FAILS(vp_safetensors_write(path, tensors, 1, true, &err), VP_ERR_INTERNAL, "", 0, "",
                    "cannot be a tensor's name");
    }
    memset(longest, 'x', sizeof longest);
    longest[4097]   = '\0';
    tensors[0].name = longest;
    CHECK_FAILS(vp_safetensors_write(path, tensors, 1, true, &err), VP_ERR_INTERNAL, "", 0, "",
                "too long");
    assert_int_equal(access(path, F_OK), -1);
}

/* Every prefix and every changed byte of good files: an answer, never a crash. */
static void no_damage_to_a_file_does_harm(void **state)
{
    static const char good[] = "{\"__metadata__\":{\"a\":\"b\"},\"x\":" TENSOR(
        "F32", "[1,2]", "[0,8]") ",\"\\u0079\":" TENSOR("U8", "[3]", "[8,11]") "} ";
    const char *path = in_test_dir("damaged.safetensors");
    char        whole[512];
    size_t      n = 8 + strlen(good) + 11;
    int         fd;

    (void)state;
    memset(whole, 0, sizeof whole);
    whole[0] = (char)strlen(good);
    memcpy(whole + 8, good, strlen(good));
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (size_t i = 0; i <= n; i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, whole, i, 0), i);
        vp_status st = vp_safetensors_open(path, &file, &err);
        assert_int_equal(st, i == n ? VP_OK : VP_ERR_INPUT);
        close_file();
        err = (vp_err){0};
    }
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 256; c++) {
            char      was = whole[i];
            vp_status st;

            whole[i] = (char)c;
            assert_int_equal(pwrite(fd, whole, n, 0), n);
            whole[i] = was;
            st       = vp_safetensors_open(path, &file, &err);
            assert_true(st == VP_OK || (st == VP_ERR_INPUT && err.message[0]));
            if (file)
                for (int64_t k = 0; k < vp_safetensors_count(file); k++) {
                    char buf[16];
                    CHECK_OK(vp_safetensors_read(file, vp_safetensors_at(file, k), 0,
                                                 vp_safetensors_at(file, k)->n_elements, buf,
                                                 &err));
                }
            close_file();
            err = (vp_err){0};
        }
    close(fd);
}

#define T(name) cmocka_unit_test_setup_teardown(name, empty_err, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(tensors_are_listed_in_the_order_of_their_data),
        T(a_file_without_tensors_is_valid),
        T(a_file_too_short_for_a_header_is_named),
        T(a_length_of_the_header_that_cannot_be_is_named),
        T(a_header_begins_with_a_brace_and_ends_with_spaces),
        T(a_header_cut_short_is_located),
        T(broken_offsets_are_located),
        T(data_with_holes_or_overlap_are_refused),
        T(empty_tensors_lie_between_others),
        T(a_shape_must_make_the_length),
        T(a_product_of_dimensions_never_wraps),
        T(a_zero_among_huge_dimensions_makes_an_empty_tensor),
        T(a_rank_of_16_is_the_limit),
        T(an_unknown_dtype_is_an_error_and_no_reason_to_skip_checks),
        T(every_dtype_has_its_size),
        T(a_tensor_has_its_three_fields_once_and_no_others),
        T(a_name_that_stands_twice_is_found),
        T(metadata_are_text_and_no_tensor),
        T(a_metadata_text_may_be_long_and_a_name_may_not),
        T(a_nul_in_a_name_is_refused),
        T(a_hostile_name_is_shown_escaped),
        T(headers_are_read_across_the_pieces_they_come_in),
        T(a_million_tensors_are_read_in_time_and_one_more_is_refused),
        T(a_header_of_one_endless_name_costs_no_memory),
        T(a_file_of_another_kind_is_named),
        T(a_path_that_is_no_regular_file_is_named),
        T(elements_are_read_from_any_position),
        T(a_file_that_shrinks_is_an_error_and_no_fault),
        T(halves_and_doubles_become_floats),
        T(long_tensors_are_converted_whole),
        T(a_written_file_lists_by_name_and_aligns_every_tensor),
        T(any_name_survives_being_written_and_read),
        T(names_that_nobody_could_read_are_not_written),
        T(no_damage_to_a_file_does_harm),
    };
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
