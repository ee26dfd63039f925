/* models/hub_cache.h: a cache laid out as huggingface_hub lays it out, made in a folder of the
 * test's own. */
#include "tests/base_test.h"

#include "models/hub_cache.h"
#include "models/model.h"

#define A "0123456789abcdef0123456789abcdef01234567"
#define B "89abcdef0123456789abcdef0123456789abcdef"
#define CONFIG \
    "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2, \"vocab_size\": 30, \"n_positions\": 16}"

static void make_dirs(const char *path)
{
    char part[6000];

    for (size_t n = strlen(test_dir) + 1; n <= strlen(path); n++)
        if (path[n] == '/' || path[n] == '\0') {
            snprintf(part, sizeof part, "%.*s", (int)n, path);
            mkdir(part, 0700);
        }
}

/* A file of the cache `root` of the test's folder, its folders made. */
static void put(const char *root, const char *name, const char *text)
{
    char path[500], dir[6000];

    snprintf(path, sizeof path, "%s/%s", root, name);
    snprintf(dir, sizeof dir, "%s", in_test_dir(path));
    *strrchr(dir, '/') = '\0';
    make_dirs(dir);
    put_file(path, text, strlen(text));
}

/* As huggingface_hub stores a file: the bytes under blobs/, a relative link from the snapshot. */
static void put_linked(const char *root, const char *repo, const char *commit, const char *name,
                       const char *text)
{
    char path[400], target[200];

    snprintf(path, sizeof path, "%s/blobs/of-%s", repo, name);
    put(root, path, text);
    snprintf(path, sizeof path, "%s/snapshots/%s/.keep", repo, commit);
    put(root, path, "");
    snprintf(path, sizeof path, "%s/%s/snapshots/%s/%s", root, repo, commit, name);
    snprintf(target, sizeof target, "../../blobs/of-%s", name);
    assert_int_equal(symlink(target, in_test_dir(path)), 0);
}

/* Only these variables are set; NULL: not set. */
static void set_variables(const char *hub_cache, const char *hf_home, const char *xdg,
                          const char *home)
{
    const char *const names[]  = {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"};
    const char *const values[] = {hub_cache, hf_home, xdg, home};

    for (int i = 0; i < 4; i++)
        if (values[i])
            setenv(names[i], values[i], 1);
        else
            unsetenv(names[i]);
}

/* id is found, at root/tail. */
static void check_found(const char *id, vp_hub_want want, const char *root, const char *tail)
{
    char   folder[5000], wanted[6000];
    vp_err err = {0};

    snprintf(wanted, sizeof wanted, "%s/%s/%s", test_dir, root, tail);
    CHECK_OK(vp_hub_find(id, want, folder, sizeof folder, &err));
    assert_string_equal(folder, wanted);
}

static void check_refused(const char *id, vp_hub_want want, const char *part)
{
    char   folder[5000];
    vp_err err = {0};

    CHECK_FAILS(vp_hub_find(id, want, folder, sizeof folder, &err), VP_ERR_INPUT, "", 0, "", part);
}

static void an_id_is_what_the_hub_allows(void **state)
{
    char              long_name[200], long_revision[300];
    const char *const good[] = {
        "gpt2",          "meta-llama/Llama-3.2-1B", "a/b",       "A_b/c.d-e_f",   "0/_",
        "org/name@main", "org/name@refs/pr/1",      "name@v1.0", ("org/name@" A), "a.-b/c"};
    const char *const bad[] = {"",
                               "/",
                               "/a",
                               "a/",
                               "a/b/c",
                               "../a",
                               "a/..",
                               "..",
                               ".",
                               "./a",
                               "a/.b",
                               "a/b.",
                               "-a/b",
                               "a/b-",
                               "a--b/c",
                               "a/b--c",
                               "a..b/c",
                               "a b/c",
                               "a/b c",
                               "a/b;rm",
                               "a/$HOME",
                               "a/b\n",
                               "a/b\x1b[31m",
                               "\xc3\xa4/b",
                               "a/b@",
                               "a/b@/",
                               "a/b@../x",
                               "a/b@x/..",
                               "a/b@-r",
                               "a/b@x//y",
                               "a/b@x/",
                               "a/b@x@y",
                               "a/b@x y",
                               "@main",
                               "dir/model.json",
                               "config.json",
                               "a/model.safetensors",
                               "~/a",
                               "a\\b",
                               "-"};

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!vp_hub_is_id(good[i]))
            fail_msg("%s is an id", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (vp_hub_is_id(bad[i]))
            fail_msg("\"%s\" is no id", bad[i]);
    memset(long_name, 'x', sizeof long_name);
    long_name[1]  = '/';
    long_name[98] = '\0'; /* x/ and 96 of them: the Hub's limit */
    assert_true(vp_hub_is_id(long_name));
    long_name[98] = 'x';
    long_name[99] = '\0';
    assert_false(vp_hub_is_id(long_name));
    memset(long_revision, 'x', sizeof long_revision);
    memcpy(long_revision, "a/b@", 4);
    long_revision[4 + 128] = '\0';
    assert_true(vp_hub_is_id(long_revision));
    long_revision[4 + 128] = 'x';
    long_revision[4 + 129] = '\0';
    assert_false(vp_hub_is_id(long_revision));
}

static void the_variables_count_in_the_order_of_huggingface_hub(void **state)
{
    char dirs[4][5000];

    (void)state;
    put("1", "models--o--n/snapshots/" A "/config.json", CONFIG);
    put("2/hub", "models--o--n/snapshots/" A "/config.json", CONFIG);
    put("3/huggingface/hub", "models--o--n/snapshots/" A "/config.json", CONFIG);
    put("4/.cache/huggingface/hub", "models--o--n/snapshots/" A "/config.json", CONFIG);
    for (int i = 0; i < 4; i++)
        snprintf(dirs[i], sizeof dirs[i], "%s/%d", test_dir, i + 1);
    set_variables(dirs[0], dirs[1], dirs[2], dirs[3]);
    check_found("o/n", VP_HUB_CONFIG, "1", "models--o--n/snapshots/" A);
    set_variables(NULL, dirs[1], dirs[2], dirs[3]);
    check_found("o/n", VP_HUB_CONFIG, "2/hub", "models--o--n/snapshots/" A);
    set_variables("", "", dirs[2], dirs[3]);
    check_found("o/n", VP_HUB_CONFIG, "3/huggingface/hub", "models--o--n/snapshots/" A);
    set_variables(NULL, NULL, "", dirs[3]);
    check_found("o/n", VP_HUB_CONFIG, "4/.cache/huggingface/hub", "models--o--n/snapshots/" A);
    set_variables("~/.cache/huggingface/hub", NULL, NULL, dirs[3]);
    check_found("o/n", VP_HUB_CONFIG, "4/.cache/huggingface/hub", "models--o--n/snapshots/" A);
    set_variables(NULL, NULL, NULL, NULL);
    check_refused("o/n", VP_HUB_CONFIG, "there is no Hugging Face cache");
}

static void a_revision_is_a_ref_or_a_commit(void **state)
{
    char path[5000];

    (void)state;
    put_linked("r", "models--org--name", A, "config.json", CONFIG);
    put("r", "models--org--name/snapshots/" B "/config.json", CONFIG);
    put("r", "models--org--name/refs/main", A);
    put("r", "models--org--name/refs/v1", B "\n");
    put("r", "models--org--name/refs/refs/pr/1", B);
    put("r", "models--org--name/refs/gone", "ffffffffffffffffffffffffffffffffffffffff");
    put("r", "models--legacy/snapshots/" A "/config.json", CONFIG);
    snprintf(path, sizeof path, "%s", in_test_dir("r"));
    set_variables(path, NULL, NULL, NULL);
    check_found("org/name", VP_HUB_CONFIG, "r", "models--org--name/snapshots/" A);
    check_found("org/name@main", VP_HUB_CONFIG, "r", "models--org--name/snapshots/" A);
    check_found("org/name@v1", VP_HUB_CONFIG, "r", "models--org--name/snapshots/" B);
    check_found("org/name@refs/pr/1", VP_HUB_CONFIG, "r", "models--org--name/snapshots/" B);
    check_found("org/name@" B, VP_HUB_CONFIG, "r", "models--org--name/snapshots/" B);
    check_found("legacy", VP_HUB_CONFIG, "r", "models--legacy/snapshots/" A);
    check_refused(
        "org/name@v2", VP_HUB_CONFIG,
        "does not hold config.json of org/name at revision v2; to download it: hf download org/name config.json --revision v2");
    check_refused("org/name@gone", VP_HUB_CONFIG,
                  "hf download org/name config.json --revision gone");
    check_refused("legacy@" B, VP_HUB_CONFIG, "hf download legacy config.json --revision " B);
    check_refused(
        "org/other", VP_HUB_CONFIG,
        "does not hold config.json of org/other; to download it: hf download org/other config.json");
    check_refused(
        "org/name", VP_HUB_WEIGHTS,
        "does not hold the weights of org/name; to download them: hf download org/name --include \"model*.safetensors*\"");
    put_linked("r", "models--org--name", A, "model.safetensors.index.json", "{}");
    check_found("org/name", VP_HUB_WEIGHTS, "r", "models--org--name/snapshots/" A);
    put("r", "models--legacy/snapshots/" A "/model.safetensors", "");
    check_found("legacy", VP_HUB_WEIGHTS, "r", "models--legacy/snapshots/" A);
    check_found("org/name", VP_HUB_FOLDER, "r", "models--org--name/snapshots/" A);
    put("r", "models--pipe/snapshots/" A "/model_index.json", "{}");
    check_found("pipe", VP_HUB_FOLDER, "r", "models--pipe/snapshots/" A);
    check_refused("pipe", VP_HUB_CONFIG, "hf download pipe config.json");
    check_refused("org/other", VP_HUB_FOLDER,
                  "does not hold config.json or model_index.json of org/other; to download what is "
                  "no weights: hf download org/other --include \"*.txt\" --include \"*.json\"");
    check_refused("org/../name", VP_HUB_CONFIG, "is no id of the Hugging Face Hub");
}

static void without_main_the_only_snapshot_counts(void **state)
{
    char   path[5000], folder[5000];
    vp_err err = {0};

    (void)state;
    put("s", "models--a--one/snapshots/" B "/config.json", CONFIG);
    put("s", "models--a--one/snapshots/.DS_Store", "");
    put("s", "models--a--two/snapshots/" B "/config.json", CONFIG);
    put("s", "models--a--two/snapshots/" A "/config.json", CONFIG);
    put("s", "models--a--broken/snapshots/" A "/config.json", CONFIG);
    put("s", "models--a--broken/refs/main", "../../../../etc");
    put("s", "models--a--blob-gone/refs/main", A);
    put_linked("s", "models--a--blob-gone", A, "config.json", CONFIG);
    assert_int_equal(remove(in_test_dir("s/models--a--blob-gone/blobs/of-config.json")), 0);
    snprintf(path, sizeof path, "%s", in_test_dir("s"));
    set_variables(path, NULL, NULL, NULL);
    check_found("a/one", VP_HUB_CONFIG, "s", "models--a--one/snapshots/" B);
    check_refused("a/two", VP_HUB_CONFIG,
                  "holds 2 snapshots of a/two and no refs/main; say which is meant: a/two@" A
                  ", a/two@" B);
    check_found("a/two@" A, VP_HUB_CONFIG, "s", "models--a--two/snapshots/" A);
    CHECK_FAILS(vp_hub_find("a/broken", VP_HUB_CONFIG, folder, sizeof folder, &err), VP_ERR_INPUT,
                in_test_dir("s/models--a--broken/refs/main"), 1, "", "holds no commit");
    check_refused("a/blob-gone", VP_HUB_CONFIG, "hf download a/blob-gone config.json");
}

static void a_model_is_opened_by_its_id(void **state)
{
    char      path[5000];
    vp_model *model = NULL;
    vp_err    err   = {0};
    bool      said  = false;

    (void)state;
    put_linked("m", "models--org--small", A, "config.json", CONFIG);
    put("m", "models--org--small/refs/main", A);
    put("m", "models--gpt2-tiny/snapshots/" A "/config.json", CONFIG);
    snprintf(path, sizeof path, "%s", in_test_dir("m"));
    set_variables(path, NULL, NULL, NULL);
    CHECK_OK(vp_model_open("org/small", &(vp_model_opts){0}, &model, &err));
    assert_string_equal(model->name, "org/small");
    assert_int_equal(model->graph.vocab_size, 30);
    for (int64_t i = 0; i < model->n_assumptions; i++)
        said |= strstr(model->assumptions[i], "snapshot " A) != NULL;
    assert_true(said);
    vp_model_free(model);
    CHECK_OK(vp_model_open("gpt2-tiny", &(vp_model_opts){0}, &model, &err));
    assert_int_equal(model->graph.vocab_size, 256); /* the built-in one: the cache's has 30 */
    vp_model_free(model);
    CHECK_FAILS(
        vp_model_open("org/none", &(vp_model_opts){0}, &model, &err), VP_ERR_INPUT, "org/none", 0,
        "",
        "neither a built-in model (see vplan models) nor a file or folder: No such file or directory; the Hugging Face cache ");
    CHECK_FAILS(vp_model_open("org/none", &(vp_model_opts){0}, &model, &err), VP_ERR_INPUT,
                "org/none", 0, "", "hf download org/none config.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_what_the_hub_allows),
        cmocka_unit_test(the_variables_count_in_the_order_of_huggingface_hub),
        cmocka_unit_test(a_revision_is_a_ref_or_a_commit),
        cmocka_unit_test(without_main_the_only_snapshot_counts),
        cmocka_unit_test(a_model_is_opened_by_its_id),
    };

    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
