#include "tests/base_test.h"

#include "base/safetensors.h"

static vp_err         err;
static vp_checkpoint *ckpt;

static int empty_err(void **state)
{
    (void)state;
    err  = (vp_err){0};
    ckpt = NULL;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    vp_checkpoint_close(ckpt);
    ckpt = NULL;
    return 0;
}

static const char *dir; /* of the current test */
static char        index_path[200];

/* A new folder for one checkpoint. */
static void new_dir(void)
{
    static int  n;
    static char path[100];

    snprintf(path, sizeof path, "%s/c%d", test_dir, n++);
    assert_int_equal(mkdir(path, 0700), 0);
    dir = path;
    snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", dir);
}

static void put_in_dir(const char *name, const char *text)
{
    char  path[600];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    fputs(text, f);
    fclose(f);
}

/* A shard of one-byte tensors with these names, each "" ending the list. */
static void put_shard(const char *name, const char *const *names, int n)
{
    vp_tensor_data tensors[4];
    char           path[600];

    for (int i = 0; i < n; i++)
        tensors[i] = (vp_tensor_data){
            .name = names[i], .dtype = VP_ST_U8, .rank = 1, .shape = {i + 1}, .data = "xxxx"};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(vp_safetensors_write(path, tensors, n, true, &err));
}

/* Shards s1 {a, b} and s2 {c}. */
static void two_shards(void)
{
    new_dir();
    put_shard("s1", (const char *const[]){"a", "b"}, 2);
    put_shard("s2", (const char *const[]){"c"}, 1);
}

#define INDEX_REFUSED(text, line, field, part) \
    do { \
        put_in_dir("model.safetensors.index.json", text); \
        CHECK_FAILS(vp_checkpoint_open(dir, &ckpt, &err), VP_ERR_INPUT, index_path, line, field, \
                    part); \
        assert_null(ckpt); \
    } while (0)

static void a_folder_of_one_file_is_a_checkpoint(void **state)
{
    const vp_tensor_info *t;
    vp_safetensors       *in = NULL;

    (void)state;
    new_dir();
    put_shard("model.safetensors", (const char *const[]){"a", "b"}, 2);
    CHECK_OK(vp_checkpoint_open(dir, &ckpt, &err));
    assert_int_equal(vp_checkpoint_n_files(ckpt), 1);
    t = vp_checkpoint_find(ckpt, "b", &in);
    assert_int_equal(t->n_bytes, 2);
    assert_ptr_equal(in, vp_checkpoint_file(ckpt, 0));
    assert_ptr_equal(vp_checkpoint_find(ckpt, "b", NULL), t);
    assert_null(vp_checkpoint_find(ckpt, "z", &in));
    assert_null(in);
}

static void a_folder_of_shards_is_a_checkpoint(void **state)
{
    vp_safetensors *in = NULL;
    char            path[200];

    (void)state;
    two_shards();
    put_in_dir(
        "model.safetensors.index.json",
        "{\"metadata\": {\"total_size\": 4, \"x\": [1, {\"y\": null}]}, \"more\": [[\"z\"]],\n"
        "\"weight_map\": {\"c\": \"s2\", \"b\": \"s1\", \"a\": \"s1\"}}\n");
    put_in_dir("unrelated.safetensors", "not looked at");
    CHECK_OK(vp_checkpoint_open(dir, &ckpt, &err));
    assert_int_equal(vp_checkpoint_n_files(ckpt), 2);
    assert_int_equal(vp_checkpoint_find(ckpt, "b", &in)->n_bytes, 2);
    assert_ptr_equal(in, vp_checkpoint_file(ckpt, 0));
    assert_int_equal(vp_checkpoint_find(ckpt, "c", &in)->n_bytes, 1);
    assert_ptr_equal(in, vp_checkpoint_file(ckpt, 1));
    snprintf(path, sizeof path, "%s/s2", dir);
    assert_string_equal(vp_safetensors_path(in), path);
    assert_null(vp_checkpoint_find(ckpt, "d", NULL));
}

static void an_index_needs_no_total_and_may_spell_it_as_a_real(void **state)
{
    static const char *const good[] = {
        "{\"weight_map\": {\"c\": \"s2\", \"b\": \"s1\", \"a\": \"s1\"}}",
        "{\"metadata\": null, \"weight_map\": {\"c\": \"s2\", \"b\": \"s1\", \"a\": \"s1\"}}",
        "{\"metadata\": {\"total_size\": 4.0}, \"weight_map\": {\"a\": \"s1\", \"b\": \"s1\", \"c\": \"s2\"}}",
    };

    (void)state;
    two_shards();
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        put_in_dir("model.safetensors.index.json", good[i]);
        CHECK_OK(vp_checkpoint_open(dir, &ckpt, &err));
        vp_checkpoint_close(ckpt);
    }
    ckpt = NULL;
}

static void a_shard_must_be_a_plain_name_in_the_folder(void **state)
{
    static const struct {
        const char *name, *part;
    } cases[] = {
        {"../s1", "must be a plain file name in the folder of its index: \"../s1\""},
        {"/etc/passwd", "must be a plain file name"},
        {"a/b", "must be a plain file name"},
        {"a\\\\b", "must be a plain file name"},
        {".", "must be a plain file name"},
        {"..", "must be a plain file name"},
        {"", "a shard's name is empty"},
        {"s1\\u0000", "may not hold the character NUL"},
        {"s1\\u001b/", "must be a plain file name in the folder of its index: \"s1\\x1b/\""},
    };
    char text[6000], name[5001];

    (void)state;
    two_shards();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "{\"weight_map\": {\n\"a\": \"s1\",\n\"b\": \"%s\"}}",
                 cases[i].name);
        INDEX_REFUSED(text, 3, "weight_map.b", cases[i].part);
    }
    memset(name, 'x', sizeof name);
    name[5000] = '\0';
    snprintf(text, sizeof text, "{\"weight_map\": {\n\"a\": \"%s\"}}", name);
    INDEX_REFUSED(text, 2, "weight_map.a", "this string is longer than 4096 bytes (column 6)");
    name[256] = '\0';
    snprintf(text, sizeof text, "{\"weight_map\": {\n\"a\": \"%s\"}}", name);
    INDEX_REFUSED(text, 2, "weight_map.a", "a shard's name is longer than 255 bytes");
    INDEX_REFUSED("{\"weight_map\": {\n\"a\": 1}}", 2, "weight_map.a",
                  "expected the name of a shard, found the number 1");
    INDEX_REFUSED("{\"weight_map\": {\n\"a\": null}}", 2, "weight_map.a", "found null");
}

static void a_shard_may_be_a_link_to_a_file_and_to_nothing_else(void **state)
{
    static const struct {
        const char *target, *part;
    } cases[] = {
        {".", "is a directory, not a regular file"},
        {"/dev/zero", "is a character device, not a regular file"},
        {"fifo", "is a FIFO, not a regular file"},
        {"link", "is a link that leads in a circle"},
        {"nothing", "is a link to a file that is not there"},
    };
    char link_path[200], path[200];

    (void)state;
    new_dir();
    put_in_dir("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"link\"}}");
    snprintf(link_path, sizeof link_path, "%s/link", dir);
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(symlink(cases[i].target, link_path), 0);
        CHECK_FAILS(vp_checkpoint_open(dir, &ckpt, &err), VP_ERR_INPUT, link_path, 0, "",
                    cases[i].part);
        assert_int_equal(unlink(link_path), 0);
    }
    put_shard("blob", (const char *const[]){"a"}, 1);
    assert_int_equal(symlink("blob", link_path), 0);
    CHECK_OK(vp_checkpoint_open(dir, &ckpt, &err));
}

static void an_index_and_its_shards_must_agree(void **state)
{
    char path[200];

    (void)state;
    two_shards();
    snprintf(path, sizeof path, "%s/s3", dir);
    put_in_dir("model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"s1\", \"b\": \"s1\", \"c\": \"s3\"}}");
    CHECK_FAILS(vp_checkpoint_open(dir, &ckpt, &err), VP_ERR_INPUT, path, 0, "", "no such file");
    INDEX_REFUSED("{\"weight_map\": {\"a\": \"s1\",\n\"c\": \"s2\"}}", 0, "weight_map.b",
                  "s1 holds this tensor, the index does not list it");
    INDEX_REFUSED("{\"weight_map\": {\"a\": \"s1\",\n\"b\": \"s2\", \"c\": \"s2\"}}", 2,
                  "weight_map.b", "s2 holds no tensor of this name");
    INDEX_REFUSED(
        "{\"weight_map\": {\"a\": \"s1\",\n\"b\": \"s1\", \"c\": \"s2\",\n\"d\": \"s2\"}}", 3,
        "weight_map.d", "s2 holds no tensor of this name");
    put_shard("s2", (const char *const[]){"c", "b"}, 2);
    INDEX_REFUSED("{\"weight_map\": {\"a\": \"s1\",\n\"b\": \"s1\", \"c\": \"s2\"}}", 2,
                  "weight_map.b", "both s1 and s2 hold this tensor");
}

static void a_tensor_listed_twice_is_found(void **state)
{
    (void)state;
    two_shards();
    INDEX_REFUSED("{\"weight_map\": {\"a\": \"s1\",\n\"b\": \"s1\",\n\"\\u0061\": \"s2\"}}", 3,
                  "weight_map.a", "stands twice, first in line 1");
    INDEX_REFUSED("{\"weight_map\": {\"a\": \"s1\"},\n\"weight_map\": {}}", 2, "weight_map",
                  "weight_map stands twice");
}

static void a_wrong_total_is_refused(void **state)
{
#define WITH_TOTAL(total) \
    "{\"metadata\": {\n\"total_size\": " total "},\n" \
    "\"weight_map\": {\"a\": \"s1\", \"b\": \"s1\", \"c\": \"s2\"}}"
    (void)state;
    two_shards();
    INDEX_REFUSED(WITH_TOTAL("5"), 2, "metadata.total_size",
                  "is 5, the tensors listed hold 4 bytes");
    INDEX_REFUSED(WITH_TOTAL("-4"), 2, "metadata.total_size",
                  "expected a whole number of bytes, found the number -4 (column 15)");
    INDEX_REFUSED(WITH_TOTAL("\"4\""), 2, "metadata.total_size", "found the string \"4\"");
    INDEX_REFUSED(WITH_TOTAL("4.5"), 2, "metadata.total_size", "found the number 4.5");
    INDEX_REFUSED(WITH_TOTAL("1e999"), 2, "metadata.total_size", "found the number 1e999");
    INDEX_REFUSED(WITH_TOTAL("NaN"), 2, "metadata.total_size", "found NaN");
    INDEX_REFUSED(WITH_TOTAL("4, \"total_size\": 4"), 2, "metadata.total_size", "stands twice");
}

static void an_index_that_is_none_is_located(void **state)
{
    (void)state;
    two_shards();
    INDEX_REFUSED("", 1, "", "expected an object, found the end of the text");
    INDEX_REFUSED("[]", 1, "", "expected an object, found \"[\"");
    INDEX_REFUSED("{}", 1, "weight_map", "is missing");
    INDEX_REFUSED("{\"weight_map\": {}}", 1, "weight_map", "lists no tensor");
    INDEX_REFUSED("{\"weight_map\":\n []}", 2, "weight_map", "expected an object, found \"[\"");
    INDEX_REFUSED("{\"weight_map\": {\"a\": \"s1\"}} x", 1, "", "\"x\" is no JSON value");
    INDEX_REFUSED("{\"weight_map\": {\"a\": \"s1\",}}", 1, "weight_map",
                  "expected a key after the comma");
    INDEX_REFUSED("{\"weight_map\": {\"a\": \"s", 1, "weight_map.a",
                  "the text ends inside a string");
    INDEX_REFUSED(
        "{\"x\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        1, "", "nested too deep");
    INDEX_REFUSED("{\"x\": [1,]}", 1, "", "expected a value after the comma");
    INDEX_REFUSED("{\"x\": {\"a\":1,}}", 1, "", "expected a key after the comma");
    INDEX_REFUSED("{\"x\": {1:1}}", 1, "", "expected a key in double quotes");
    INDEX_REFUSED("{\"x\": :}", 1, "", "expected a value, found \":\"");
}

static void a_folder_without_safetensors_says_what_is_there(void **state)
{
    char path[200];

    (void)state;
    new_dir();
    CHECK_FAILS(vp_checkpoint_open(dir, &ckpt, &err), VP_ERR_INPUT, dir, 0, "",
                "holds neither model.safetensors nor model.safetensors.index.json");
    put_in_dir("pytorch_model.bin", "x");
    CHECK_FAILS(vp_checkpoint_open(dir, &ckpt, &err), VP_ERR_INPUT, dir, 0, "",
                "; pytorch_model.bin is never opened: convert it to safetensors");
    snprintf(path, sizeof path, "%s/pytorch_model.bin", dir);
    CHECK_FAILS(vp_checkpoint_open(path, &ckpt, &err), VP_ERR_INPUT, path, 0, "",
                "is a regular file, not a folder");
    snprintf(path, sizeof path, "%s/nothing", dir);
    CHECK_FAILS(vp_checkpoint_open(path, &ckpt, &err), VP_ERR_INPUT, path, 0, "",
                "cannot open this folder: No such file");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(symlink("../blobs/gone", path), 0);
    CHECK_FAILS(vp_checkpoint_open(dir, &ckpt, &err), VP_ERR_INPUT, path, 0, "",
                "is a link to a file that is not there");
}

static void a_shard_of_another_kind_is_named(void **state)
{
    char path[200];

    (void)state;
    two_shards();
    put_in_dir("model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"s1\", \"b\": \"s1\", \"c\": \"s2\"}}");
    snprintf(path, sizeof path, "%s/s2", dir);
    put_in_dir("s2", "version https://git-lfs.github.com/spec/v1\n");
    CHECK_FAILS(vp_checkpoint_open(dir, &ckpt, &err), VP_ERR_INPUT, path, 0, "", "git LFS pointer");
    put_in_dir("s2", "GGUF\3");
    CHECK_FAILS(vp_checkpoint_open(dir, &ckpt, &err), VP_ERR_INPUT, path, 0, "", "GGUF");
}

#define T(name) cmocka_unit_test_setup_teardown(name, empty_err, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_folder_of_one_file_is_a_checkpoint),
        T(a_folder_of_shards_is_a_checkpoint),
        T(an_index_needs_no_total_and_may_spell_it_as_a_real),
        T(a_shard_must_be_a_plain_name_in_the_folder),
        T(a_shard_may_be_a_link_to_a_file_and_to_nothing_else),
        T(an_index_and_its_shards_must_agree),
        T(a_tensor_listed_twice_is_found),
        T(a_wrong_total_is_refused),
        T(an_index_that_is_none_is_located),
        T(a_folder_without_safetensors_says_what_is_there),
        T(a_shard_of_another_kind_is_named),
    };
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
