/* Every allocation of base/, plan/ and trainers/torch/ fails once: each scenario runs with its 1st, 2nd, ...
 * allocation failing until none fails any more, once with that call alone failing and once with
 * every later one too. The answer is VP_ERR_NOMEM, or success where the scenario could do
 * without; nothing leaks, nothing is left on disk. Linked with -Wl,--wrap=malloc,... ; jansson,
 * a shared library, is routed here by its own hook. */
#include "tests/base_test.h"

#include "base/arena.h"
#include "base/child.h"
#include "base/file.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "trainers/torch/caching_allocator.h"

#include <dirent.h>
#include <stdbool.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *text);
void  __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *text);
void  __wrap_free(void *p);

static bool    armed;   /* calls count only while a scenario runs */
static bool    lasting; /* the calls after the failing one fail too */
static int64_t n_calls, fail_at;
static int64_t n_live; /* blocks allocated under watch and not freed */

/* What was allocated while armed; anything else that is freed is none of ours. */
enum { MAX_LIVE = 4096 };
static void *live[MAX_LIVE];

static bool fails(void)
{
    if (!armed)
        return false;
    n_calls++;
    return n_calls == fail_at || (lasting && n_calls > fail_at);
}

static void *born(void *p)
{
    if (armed && p) {
        int i = 0;
        while (i < MAX_LIVE && live[i])
            i++;
        assert_true(i < MAX_LIVE);
        live[i] = p;
        n_live++;
    }
    return p;
}

static void died(const void *p)
{
    for (int i = 0; p && n_live && i < MAX_LIVE; i++)
        if (live[i] == p) {
            live[i] = NULL;
            n_live--;
            return;
        }
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : born(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : born(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (fails())
        return NULL;
    died(p);
    return born(__real_realloc(p, n));
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : born(__real_strdup(text));
}

void __wrap_free(void *p)
{
    died(p);
    __real_free(p);
}

static int64_t n_files_in_test_dir(void)
{
    DIR    *dir = opendir(test_dir);
    int64_t n   = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static int64_t n_open_files(void)
{
    DIR    *dir = opendir("/proc/self/fd");
    int64_t n   = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

typedef vp_status scenario(vp_err *err);

/* Run a scenario with each allocation failing. max_files may lie in the folder afterwards. */
static void torture(scenario *run, const char *name, int64_t max_files)
{
    int64_t n_injected = 0;

    for (int persistent = 0; persistent < 2; persistent++)
        for (int64_t n = 1;; n++) {
            vp_err    err      = {0};
            int64_t   n_before = n_open_files();
            vp_status st;

            n_calls = 0;
            fail_at = n;
            lasting = persistent;
            armed   = true;
            st      = run(&err);
            armed   = false;
            if (n_live || n_open_files() != n_before || n_files_in_test_dir() > max_files ||
                (st != VP_OK && (st != VP_ERR_NOMEM || err.code != VP_ERR_NOMEM))) {
                print_error("%s, allocation %lld%s: %s (%s), %lld blocks left, %lld files\n", name,
                            (long long)n, persistent ? " and later" : "", vp_status_id(st),
                            err.message, (long long)n_live, (long long)n_files_in_test_dir());
                fail();
            }
            if (n_calls < n) {
                assert_int_equal(st, VP_OK);
                break;
            }
            n_injected++;
        }
    assert_true(n_injected > 0);
}

static int64_t n_files_at_start;

static vp_status write_text(vp_err *err)
{
    vp_status st = VP_OK;
    vp_text   t  = {0};

    for (int i = 0; i < 100; i++)
        vp_text_printf(&t, "%d %s\n", i, "words");
    vp_text_append(&t, "x", 1);
    VP_TRY_ALLOC(err, t.data);
out:
    vp_text_release(&t);
    return st;
}

static void growing_text(void **state)
{
    (void)state;
    torture(write_text, "text", n_files_at_start);
}

static vp_status build_in_arena(vp_err *err)
{
    vp_status st    = VP_OK;
    vp_arena *arena = vp_arena_new();
    int64_t  *items = NULL, cap = 0;

    VP_TRY_ALLOC(err, arena);
    for (int64_t i = 0; i < 20000; i++) {
        if (!vp_arena_grow(arena, (void **)&items, i, &cap, sizeof *items))
            break;
        items[i] = i;
    }
    vp_arena_printf(arena, "%d", 7);
    vp_arena_strdup(arena, "seven");
    if (vp_arena_failed(arena))
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
out:
    vp_arena_free(arena);
    return st;
}

static void building_in_an_arena(void **state)
{
    (void)state;
    torture(build_in_arena, "arena", n_files_at_start);
}

static const char document[] =
    "{\"a\": {\"b\": [1, 2.5, \"a string that is longer than the others, so that something grows: "
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\","
    " NaN, Infinity, 1e999, null, true]},\n \"c\": {}, \"d\": \"x\", \"e\": -1}";

static vp_status read_json(vp_err *err)
{
    vp_status    st  = VP_OK;
    vp_json_doc *doc = NULL;
    vp_json_node root, b;
    int64_t      n;
    vp_err       other = {0};
    vp_text      out   = {0};

    VP_TRY(vp_json_read(in_test_dir("doc.json"), VP_JSON_MAX_BYTES, &doc, err));
    root = vp_json_root(doc);
    VP_TRY(vp_json_object(&root, "a", &b, err));
    VP_TRY(vp_json_array(&b, "b", &b, &n, err));
    /* An error's line is looked for with memory of its own; without it the error stays an error. */
    assert_int_equal(vp_json_int(&root, "e", 0, 9, &n, &other), VP_ERR_INPUT);
    assert_string_equal(other.field, "e");
    if (!vp_json_dump(root.value, &out))
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
out:
    vp_text_release(&out);
    vp_json_doc_free(doc);
    return st;
}

static void reading_and_dumping_json(void **state)
{
    (void)state;
    put_file("doc.json", document, sizeof document - 1);
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    torture(read_json, "json", n_files_at_start + 1);
    json_set_alloc_funcs(malloc, free);
    remove(in_test_dir("doc.json"));
}

static vp_status refuse_json(vp_err *err)
{
    vp_status    st;
    vp_json_doc *doc = NULL;

    st = vp_json_parse("x", "{\"a\": [1, {\"b\": 2,\n\"b\": 3}]}", 28, &doc, err);
    assert_null(doc);
    assert_true(st == VP_ERR_INPUT || st == VP_ERR_NOMEM);
    return st == VP_ERR_INPUT ? VP_OK : st;
}

static void refusing_json(void **state)
{
    (void)state;
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    torture(refuse_json, "refused json", n_files_at_start);
    json_set_alloc_funcs(malloc, free);
}

static vp_status read_file(vp_err *err)
{
    char     *data = NULL;
    int64_t   n;
    vp_status st = vp_file_read("/proc/self/maps", 1 << 24, &data, &n, err);

    free(data);
    return st;
}

static void reading_a_file(void **state)
{
    (void)state;
    torture(read_file, "file", n_files_at_start);
}

static vp_status write_tensors(vp_err *err)
{
    static const float   data[]    = {1, 2, 3, 4};
    const vp_tensor_data tensors[] = {
        {.name = "b", .dtype = VP_ST_F32, .rank = 1, .shape = {4}, .data = data},
        {.name = "a", .dtype = VP_ST_U8, .rank = 2, .shape = {2, 2}, .data = data},
    };
    vp_status st = vp_safetensors_write(in_test_dir("t.safetensors"), tensors, 2, true, err);

    remove(in_test_dir("t.safetensors"));
    return st;
}

static void writing_tensors(void **state)
{
    (void)state;
    torture(write_tensors, "safetensors write", n_files_at_start);
}

static vp_status read_checkpoint(vp_err *err)
{
    vp_status             st   = VP_OK;
    vp_checkpoint        *ckpt = NULL;
    const vp_tensor_info *t;
    vp_safetensors       *file;
    float                 buf[4];

    VP_TRY(vp_checkpoint_open(test_dir, &ckpt, err));
    t = vp_checkpoint_find(ckpt, "b", &file);
    assert_non_null(t);
    VP_TRY(vp_safetensors_read_f32(file, t, 0, 4, buf, err));
out:
    vp_checkpoint_close(ckpt);
    return st;
}

static void reading_a_checkpoint(void **state)
{
    static const char     index[] = "{\"weight_map\": {\"b\": \"s1\", \"c\": \"s2\"}}";
    static const uint16_t data[]  = {0x3f80, 0, 0, 0};
    vp_tensor_data t = {.name = "b", .dtype = VP_ST_BF16, .rank = 1, .shape = {4}, .data = data};

    (void)state;
    assert_int_equal(vp_safetensors_write(in_test_dir("model.safetensors"), &t, 1, true, NULL),
                     VP_OK);
    torture(read_checkpoint, "checkpoint", n_files_at_start + 1);
    assert_int_equal(rename(in_test_dir("model.safetensors"), in_test_dir("s1")), 0);
    t.name = "c";
    assert_int_equal(vp_safetensors_write(in_test_dir("s2"), &t, 1, true, NULL), VP_OK);
    put_file("model.safetensors.index.json", index, sizeof index - 1);
    torture(read_checkpoint, "sharded checkpoint", n_files_at_start + 3);
    remove(in_test_dir("s1"));
    remove(in_test_dir("s2"));
    remove(in_test_dir("model.safetensors.index.json"));
}

static vp_status run_child(vp_err *err)
{
    char *const argv[] = {"sh", "-c", "seq 1 200; exit 3", NULL}, *const add[] = {"VPLAN_X=1",
                                                                                  NULL};
    vp_child_opts opts = {
        .argv = argv, .env_add = add, .search_path = true, .max_output_bytes = 300};
    vp_child_result result;
    vp_status       st = vp_child_run(&opts, &result, err);

    if (st == VP_OK)
        assert_int_equal(result.exit_code, 3);
    vp_child_result_release(&result);
    return st;
}

static void running_a_child(void **state)
{
    (void)state;
    torture(run_child, "child", n_files_at_start);
}

static vp_status simulate_an_allocator(vp_err *err)
{
    enum { N = 3000 };
    static vp_caching_block   blocks[N];
    vp_caching_allocator_opts opts = {
        .expandable_segments = true, .streams_lag = true, .device_total_bytes = (int64_t)1 << 31};
    vp_caching_allocator *a = NULL, *copy = NULL;
    vp_status             st = VP_OK;

    VP_TRY(vp_caching_allocator_new(&opts, &a, err));
    for (int i = 0; i < N; i++) {
        VP_TRY(vp_caching_allocator_alloc(a, i % 3, 600000, &blocks[i], err));
        if (i % 5 == 0)
            VP_TRY(vp_caching_allocator_record_stream(a, blocks[i], 4, err));
    }
    VP_TRY(vp_caching_allocator_copy(a, &copy, err));
    for (int i = 0; i < N; i += 2)
        vp_caching_allocator_free(a, blocks[i]);
    VP_TRY(vp_caching_allocator_empty_cache(a, err));
out:
    vp_caching_allocator_destroy(copy);
    vp_caching_allocator_destroy(a);
    return st;
}

static void simulating_an_allocator(void **state)
{
    (void)state;
    torture(simulate_an_allocator, "caching allocator", n_files_at_start);
}

static int set_up(void **state)
{
    int rc = make_test_dir(state);

    n_files_at_start = n_files_in_test_dir();
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growing_text),
        cmocka_unit_test(building_in_an_arena),
        cmocka_unit_test(reading_and_dumping_json),
        cmocka_unit_test(refusing_json),
        cmocka_unit_test(reading_a_file),
        cmocka_unit_test(writing_tensors),
        cmocka_unit_test(reading_a_checkpoint),
        cmocka_unit_test(running_a_child),
        cmocka_unit_test(simulating_an_allocator),
    };
    return cmocka_run_group_tests(tests, set_up, remove_test_dir);
}
