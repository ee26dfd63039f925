#include "tests/base_test.h"

#include "base/checked.h"
#include "base/json.h"
#include "base/text.h"
#include "devices/devices.h"
#include "devices/efficiency.h"

#include <ctype.h>

static vp_err    err;
static vp_device d;

static int empty_err(void **state)
{
    (void)state;
    err = (vp_err){0};
    return 0;
}

static const vp_device *open_device(const char *name)
{
    CHECK_OK(vp_device_open(name, &d, &err));
    return &d;
}

/* The value of a figure, 0 where the device has none. */
static double value_of(const vp_device *device, vp_device_figure figure)
{
    static const char *const keys[] = {
#define X(name, key, text) key,
        VP_DEVICE_FIGURES(X)
#undef X
    };
    json_t *j = vp_device_json(device);
    double  v;

    assert_non_null(j);
    v = json_number_value(json_object_get(j, keys[figure]));
    json_decref(j);
    return v;
}

static void the_table_has_at_least_30_cards_and_no_name_twice(void **state)
{
    vp_device a, b;
    int       n = 0;

    (void)state;
    while (vp_device_at(n, &a)) {
        for (const char *c = a.name; *c; c++)
            assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '-');
        for (int i = 0; i < n; i++) {
            assert_true(vp_device_at(i, &b));
            assert_string_not_equal(a.name, b.name);
            assert_string_not_equal(a.alias, b.name);
            assert_string_not_equal(a.name, b.alias);
            assert_true(!a.alias[0] || strcmp(a.alias, b.alias));
        }
        n++;
    }
    assert_true(n >= 30);
    assert_false(vp_device_at(-1, &a));
    assert_false(vp_device_at(n, &a));
}

static void every_figure_says_its_class_and_source(void **state)
{
    vp_device a;

    (void)state;
    for (int i = 0; vp_device_at(i, &a); i++)
        for (int f = 0; f < VP_N_FIGURES; f++) {
            const vp_figure_source *s = &a.sources[f];
            if ((value_of(&a, f) > 0) != (strlen(s->text) >= 10) ||
                strlen(s->text) + 1 >= sizeof s->text)
                fail_msg("%s, figure %d: \"%s\"", a.name, f, s->text);
            assert_true(s->class_ != VP_CLASS_MEASURED);
            if (s->class_ == VP_CLASS_CITED)
                assert_null(strstr(s->text, "half of"));
        }
}

/* "t4-16gb": below 16 GiB, which no driver gives whole, and above nine tenths of 16e9 bytes. */
static void usable_bytes_are_below_what_is_on_the_box(void **state)
{
    vp_device a;

    (void)state;
    for (int i = 0; vp_device_at(i, &a); i++) {
        double gb = atof(strrchr(a.name, '-') + 1);
        if (!((double)a.usable_bytes < gb * 1073741824 && (double)a.usable_bytes > gb * 0.9e9))
            fail_msg("%s: %lld", a.name, (long long)a.usable_bytes);
        assert_true(a.outside_bytes < a.usable_bytes);
    }
}

static void narrower_formats_are_faster_and_start_with_their_generation(void **state)
{
    vp_device a;

    (void)state;
    for (int i = 0; vp_device_at(i, &a); i++) {
        bool good = (a.tf32_flop_per_s > 0) == (a.compute_capability >= 80) &&
                    (a.bf16_flop_per_s > 0) == (a.compute_capability >= 80) &&
                    (a.fp8_flop_per_s > 0) == (a.compute_capability >= 89) &&
                    a.bf16 == (a.bf16_flop_per_s > 0) && a.fp8 == (a.fp8_flop_per_s > 0) &&
                    a.fp16_flop_per_s >= a.bf16_flop_per_s && a.fp32_flop_per_s > 0;
        if (a.bf16)
            good = good && a.tf32_flop_per_s >= a.fp32_flop_per_s &&
                   a.bf16_flop_per_s >= 1.9 * a.tf32_flop_per_s;
        if (a.fp8)
            good = good && a.fp8_flop_per_s >= 1.9 * a.bf16_flop_per_s;
        if (!good)
            fail_msg("%s", a.name);
    }
}

/* Multiprocessors x cores each x 2 x a boost clock between 1.2 and 2.8 GHz. Cores: 64 up to 8.0
 * (7.5 too), 128 from 8.6 and on 9.0. */
static void fp32_is_what_the_multiprocessors_can_do(void **state)
{
    vp_device a;

    (void)state;
    for (int i = 0; vp_device_at(i, &a); i++) {
        int    cores = a.compute_capability <= 80 ? 64 : 128;
        double clock = a.fp32_flop_per_s / ((double)a.multiprocessors * cores * 2);
        if (clock < 1.2e9 || clock > 2.8e9)
            fail_msg("%s: %.2f GHz", a.name, clock / 1e9);
    }
}

static void the_figures_people_know_are_these(void **state)
{
    (void)state;
    open_device("h200");
    assert_string_equal(d.name, "h200-sxm-141gb");
    assert_true(d.usable_bytes / 1048576 == 143155 && d.compute_capability == 90 &&
                d.multiprocessors == 132);
    assert_true(d.memory_bytes_per_s == 4.8e12 && d.fp32_flop_per_s == 67e12 &&
                d.bf16_flop_per_s == 989.5e12);
    assert_int_equal(d.sources[VP_FIGURE_BF16].class_, VP_CLASS_DERIVED);
    assert_int_equal(d.sources[VP_FIGURE_FP32].class_, VP_CLASS_CITED);
    assert_int_equal(d.sources[VP_FIGURE_OUTSIDE].class_, VP_CLASS_ASSUMED);
    /* 32 GT/s x 16 lanes x 128/130 / 8 = 63.015 GB/s; half of 900 GB/s */
    assert_true(d.host_link_bytes_per_s > 63.0e9 && d.host_link_bytes_per_s < 63.1e9 &&
                d.peer_link_bytes_per_s == 450e9);
    /* 16 GT/s x 8 lanes x 128/130 / 8 = 15.75 GB/s */
    open_device("rtx-4060-ti-16gb");
    assert_true(d.host_link_bytes_per_s > 15.7e9 && d.host_link_bytes_per_s < 15.8e9 &&
                d.peer_link_bytes_per_s == 0);
    open_device("gh200-96gb");
    assert_true(d.host_link_bytes_per_s == 450e9);
    assert_true(open_device("4090")->bf16_flop_per_s == 165.2e12);
    assert_true(open_device("t4")->fp32_flop_per_s == 8.1e12);
}

static void a_name_an_alias_or_a_clear_beginning_opens_a_card(void **state)
{
    static const char *const names[][2] = {{"l4-24gb", "l4-24gb"},
                                           {"l4", "l4-24gb"},
                                           {"4090", "rtx-4090-24gb"},
                                           {"rtx-4090", "rtx-4090-24gb"},
                                           {"3090", "rtx-3090-24gb"},
                                           {"h100", "h100-sxm-80gb"},
                                           {"h100-nvl", "h100-nvl-94gb"},
                                           {"3090-ti", "rtx-3090-ti-24gb"},
                                           {"rtx-pro", "rtx-pro-6000-96gb"},
                                           {"a10", "a10-24gb"},
                                           {"a10g", "a10g-24gb"},
                                           {"l40s", "l40s-48gb"}};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(open_device(names[i][0])->name, names[i][1]);
}

static void a_name_that_means_several_cards_lists_them(void **state)
{
    (void)state;
    CHECK_FAILS(
        vp_device_open("a100", &d, &err), VP_ERR_USAGE, "", 0, "",
        "--device a100 means several cards: a100-pcie-40gb, a100-sxm-40gb, a100-pcie-80gb, a100-sxm-80gb");
    assert_int_equal(d.usable_bytes, 0);
    CHECK_FAILS(vp_device_open("a100-sxm", &d, &err), VP_ERR_USAGE, "", 0, "",
                "a100-sxm-40gb, a100-sxm-80gb");
    CHECK_FAILS(vp_device_open("3080", &d, &err), VP_ERR_USAGE, "", 0, "",
                "rtx-3080-10gb, rtx-3080-12gb, rtx-3080-ti-12gb");
    CHECK_FAILS(vp_device_open("gh200", &d, &err), VP_ERR_USAGE, "", 0, "",
                "gh200-96gb, gh200-144gb");
    for (const char *const *name = (const char *const[]){"", "H200", "a", "rtx", "409", "gb", NULL};
         *name; name++)
        if (strcmp(*name, "rtx"))
            CHECK_FAILS(vp_device_open(*name, &d, &err), VP_ERR_USAGE, "", 0, "", "no such device");
        else
            CHECK_FAILS(vp_device_open(*name, &d, &err), VP_ERR_USAGE, "", 0, "",
                        "means several cards");
}

static void bf16_before_ampere_and_fp8_before_ada_are_refused_with_the_reason(void **state)
{
    static const char *const old[] = {"t4", "p100", "v100-pcie-16gb", "v100-sxm2-32gb", "2080-ti"};

    (void)state;
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        open_device(old[i]);
        CHECK_FAILS(vp_device_supports(&d, VP_NEEDS_BF16, &err), VP_ERR_INPUT, "", 0, "",
                    "has no bf16 tensor cores: its compute capability is");
        CHECK_FAILS(vp_device_supports(&d, VP_NEEDS_BF16 | VP_NEEDS_FP8, &err), VP_ERR_INPUT, "", 0,
                    "", "they begin with 8.0");
        CHECK_FAILS(vp_device_supports(&d, VP_NEEDS_FP8, &err), VP_ERR_INPUT, "", 0, "",
                    "they begin with 8.9");
        CHECK_OK(vp_device_supports(&d, 0, &err));
    }
    CHECK_FAILS(vp_device_supports(open_device("t4"), VP_NEEDS_BF16, &err), VP_ERR_INPUT, "", 0, "",
                "t4-16gb has no bf16 tensor cores: its "
                "compute capability is 7.5, and they begin with 8.0");
    for (const char *const *name =
             (const char *const[]){"a100-sxm-80gb", "3090", "a10g", "a6000", NULL};
         *name; name++) {
        CHECK_OK(vp_device_supports(open_device(*name), VP_NEEDS_BF16, &err));
        CHECK_FAILS(vp_device_supports(&d, VP_NEEDS_BF16 | VP_NEEDS_FP8, &err), VP_ERR_INPUT, "", 0,
                    "", "has no fp8 tensor cores");
    }
    for (const char *const *name =
             (const char *const[]){"l4", "4090", "h100", "h200", "5090", "b200", NULL};
         *name; name++)
        CHECK_OK(vp_device_supports(open_device(*name), VP_NEEDS_BF16 | VP_NEEDS_FP8, &err));
    CHECK_OK(vp_device_supports(open_device("cpu"), VP_NEEDS_BF16, &err));
    CHECK_FAILS(vp_device_supports(&d, VP_NEEDS_FP8, &err), VP_ERR_INPUT, "", 0, "",
                "cpu: the CPU backend has no fp8");
}

static void a_rate_the_device_has_not_is_the_next_wider_one(void **state)
{
    (void)state;
    open_device("t4");
    assert_true(vp_device_flop_per_s(&d, VP_RATE_FP32) == 8.1e12 &&
                vp_device_flop_per_s(&d, VP_RATE_TF32) == 8.1e12);
    assert_true(vp_device_flop_per_s(&d, VP_RATE_BF16) == 8.1e12 &&
                vp_device_flop_per_s(&d, VP_RATE_FP16) == 65e12);
    assert_true(vp_device_flop_per_s(&d, VP_RATE_FP8) == 8.1e12);
    open_device("a100-sxm-80gb");
    assert_true(vp_device_flop_per_s(&d, VP_RATE_FP32) == 19.5e12 &&
                vp_device_flop_per_s(&d, VP_RATE_TF32) == 156e12);
    assert_true(vp_device_flop_per_s(&d, VP_RATE_FP8) == 312e12);
    vp_device bare = {
        .name = "cpu", .is_cpu = true, .fp32_flop_per_s = 1e11, .memory_bytes_per_s = 1e10};
    assert_true(vp_device_flop_per_s(&bare, VP_RATE_BF16) == 1e11);
}

static void what_a_profile_measured_outside_the_arena_takes_the_place_of_the_assumption(
    void **state)
{
    vp_profile *p = vp_profile_new();

    (void)state;
    open_device("h200");
    assert_true(vp_device_bytes(&d, 5) == 5 + (512 << 20) &&
                vp_device_arena_bytes(&d, (512 << 20) + 5) == 5);
    assert_false(vp_device_calibrate(&d, p)); /* it measured nothing */
    strcpy(p->backend, "NVIDIA H200, driver 580");
    p->outside = (vp_overhead){.device = "NVIDIA L4", .measured_by = VP_OVERHEAD_BY_PROCESS};
    vp_overhead_note(&p->outside, VP_OVERHEAD_CALLS, 400000001);
    vp_overhead_note(&p->outside, VP_OVERHEAD_CONTEXT, -3); /* a count below the arena: nothing */
    assert_true(p->outside.bytes == 400000001 && p->outside.at_bytes[VP_OVERHEAD_CONTEXT] == 0);
    assert_false(vp_device_calibrate(&d, p));
    assert_int_equal(d.sources[VP_FIGURE_OUTSIDE].class_, VP_CLASS_ASSUMED);
    strcpy(p->outside.device, "NVIDIA H200");
    assert_true(vp_device_calibrate(&d, p));
    assert_int_equal(d.sources[VP_FIGURE_OUTSIDE].class_, VP_CLASS_MEASURED);
    assert_string_equal(d.sources[VP_FIGURE_OUTSIDE].text, "NVIDIA H200, driver 580");
    /* 2 MiB = 2097152: one byte takes a whole piece, one byte less than two pieces leaves one */
    assert_true(vp_device_bytes(&d, 1) == 400000001 + 2097152 &&
                vp_device_bytes(&d, 2097152) == 400000001 + 2097152);
    assert_true(vp_device_bytes(&d, 2097153) == 400000001 + 2 * 2097152 &&
                vp_overflowed(vp_device_bytes(&d, INT64_MAX - 5)));
    assert_true(vp_device_arena_bytes(&d, 400000001 + 2 * 2097152 - 1) == 2097152 &&
                vp_device_arena_bytes(&d, 400000001 + 7) == 0);
    assert_true(vp_device_arena_bytes(&d, 400000000) < 0);
    /* the host is no card's: it counts whatever the profile's card is, and never where there is none */
    open_device("l4");
    assert_true(d.host_update_bytes_per_s == 40e9);
    assert_int_equal(d.sources[VP_FIGURE_HOST_UPDATE].class_, VP_CLASS_ASSUMED);
    p->host_update_bytes_per_s = 123e9;
    assert_false(vp_device_calibrate(&d, p));
    assert_true(d.host_update_bytes_per_s == 123e9 && vp_host_bytes_per_s(&d) == 123e9);
    assert_int_equal(d.sources[VP_FIGURE_HOST_UPDATE].class_, VP_CLASS_MEASURED);
    open_device("cpu");
    assert_false(vp_device_calibrate(&d, p));
    assert_true(d.host_update_bytes_per_s == 0 && vp_host_bytes_per_s(&d) == 40e9);
    open_device("l4");
    strcpy(p->outside.device, "l4-24gb"); /* as tune calls it */
    assert_true(vp_device_calibrate(&d, p) && d.outside_bytes == 400000001);
    vp_profile_free(p);
}

/* A plan's copies go both ways at once: the least of the three rates, as it is. What nobody measured
 * carries less than it states. */
static void a_measured_link_takes_the_place_of_the_stated_one(void **state)
{
    vp_profile *p = vp_profile_new();
    double      stated_s, measured_s;

    (void)state;
    open_device("h200");
    stated_s = vp_copy_seconds(&d, 1000000000);
    strcpy(p->backend, "NVIDIA H200, driver 580");
    p->link = (vp_link_rates){.device                  = "NVIDIA L4",
                              .to_device_bytes_per_s   = 55e9,
                              .from_device_bytes_per_s = 54e9,
                              .together_bytes_per_s    = 40e9};
    vp_device_calibrate(&d, p);
    assert_true(vp_copy_seconds(&d, 1000000000) == stated_s); /* of another card */
    strcpy(p->link.device, "NVIDIA H200");
    assert_false(vp_device_calibrate(&d, p)); /* nothing outside the arena was measured */
    measured_s = vp_copy_seconds(&d, 1000000000) - vp_copy_seconds(&d, 0);
    assert_true(measured_s > 0.025 - 1e-9 && measured_s < 0.025 + 1e-9 && measured_s > stated_s);
    assert_int_equal(d.sources[VP_FIGURE_HOST_LINK].class_, VP_CLASS_MEASURED);
    p->link.from_device_bytes_per_s = 20e9;
    vp_device_calibrate(&d, p);
    assert_true(d.host_link_bytes_per_s == 20e9);
    /* the CPU's: what its threads carry from one part of its memory to another; a card's is not its own */
    open_device("cpu");
    vp_device_calibrate(&d, p);
    assert_true(d.host_link_bytes_per_s == 0);
    strcpy(p->link.device, "cpu");
    vp_device_calibrate(&d, p);
    measured_s = vp_copy_seconds(&d, 1000000000) - vp_copy_seconds(&d, 0);
    assert_true(measured_s > 0.05 - 1e-9 && measured_s < 0.05 + 1e-9);
    vp_profile_free(p);
}

static vp_status parse(const char *text)
{
    return vp_device_parse("d.json", text, (int64_t)strlen(text), &d, &err);
}

static void every_card_can_be_written_and_read_again(void **state)
{
    vp_device a;

    (void)state;
    for (int i = 0; vp_device_at(i, &a); i++) {
        json_t *j    = vp_device_json(&a), *again;
        vp_text text = {0};
        assert_non_null(j);
        assert_true(vp_json_dump(j, &text));
        CHECK_OK(parse(text.data));
        again = vp_device_json(&d);
        assert_true(json_equal(j, again));
        assert_true(d.bf16 == a.bf16 && d.fp8 == a.fp8 && d.usable_bytes == a.usable_bytes &&
                    d.is_cpu == false);
        json_decref(j);
        json_decref(again);
        vp_text_release(&text);
    }
}

#define HEAD \
    "{\"schema_version\": 1, \"name\": \"mine\", \"usable_bytes\": 1000, \"fp32_flop_per_s\": 1e12, \"memory_bytes_per_s\": 1e12"

static void a_device_file_of_the_first_version_still_opens(void **state)
{
    (void)state;
    CHECK_OK(parse(
        HEAD ", \"outside_bytes\": 10, \"compute_capability\": 89, \"multiprocessors\": 20}"));
    assert_true(d.bf16 && d.fp8 && d.bf16_flop_per_s == 0 && d.outside_bytes == 10);
    assert_int_equal(d.sources[VP_FIGURE_USABLE].class_, VP_CLASS_ASSUMED);
    CHECK_OK(parse(HEAD "}"));
    assert_true(!d.bf16 && !d.fp8 && d.compute_capability == 0);
    CHECK_FAILS(vp_device_supports(&d, VP_NEEDS_BF16, &err), VP_ERR_INPUT, "", 0, "",
                "says nothing of bf16");
    /* another maker's card: no compute capability, but rates, or plainly said */
    CHECK_OK(parse(HEAD ", \"bf16_flop_per_s\": 2e12, \"fp8\": true}"));
    assert_true(d.bf16 && d.fp8);
    CHECK_OK(parse(
        HEAD
        ", \"tf32_flop_per_s\": null, \"sources\": {\"fp32_flop_per_s\": {\"class\": \"measured\", \"source\": \"a run\"}}}"));
    assert_int_equal(d.sources[VP_FIGURE_FP32].class_, VP_CLASS_MEASURED);
    assert_string_equal(d.sources[VP_FIGURE_FP32].text, "a run");
}

static void a_device_file_that_contradicts_itself_is_refused_at_its_place(void **state)
{
    (void)state;
    CHECK_FAILS(parse(HEAD ",\n\"compute_capability\": 75, \"bf16\": true}"), VP_ERR_INPUT,
                "d.json", 2, "bf16",
                "compute_capability 75 has no bf16 tensor cores; they begin with 80");
    CHECK_FAILS(parse(HEAD ",\n\"compute_capability\": 80,\n\"fp8_flop_per_s\": 1e12}"),
                VP_ERR_INPUT, "d.json", 3, "fp8_flop_per_s",
                "is given, but the device has no fp8 by its compute_capability");
    CHECK_FAILS(parse(HEAD ",\n\"bf16\": false, \"bf16_flop_per_s\": 1e12}"), VP_ERR_INPUT,
                "d.json", 2, "bf16_flop_per_s", "is given, but the device has no bf16");
    CHECK_FAILS(
        parse(HEAD
              ",\n\"sources\": {\"fp8_flop_per_s\": {\"class\": \"cited\", \"source\": \"x\"}}}"),
        VP_ERR_INPUT, "d.json", 2, "sources.fp8_flop_per_s",
        "is the source of a figure that the file does not give");
    CHECK_FAILS(
        parse(HEAD
              ",\n\"sources\": {\"usable_bytes\": {\"class\": \"exact\", \"source\": \"x\"}}}"),
        VP_ERR_INPUT, "d.json", 2, "sources.usable_bytes.class",
        "must be cited, derived, measured or assumed, is \"exact\"");
    CHECK_FAILS(parse(HEAD ",\n\"sources\": {\"usable\": {}}}"), VP_ERR_INPUT, "d.json", 2,
                "sources.usable", "is no field known here");
    CHECK_FAILS(parse("{\"schema_version\": 1, \"name\": \"cpu\"}"), VP_ERR_INPUT, "d.json", 1,
                "name", "is this machine's own");
    CHECK_FAILS(parse("{\"schema_version\": 1, \"name\": \"\"}"), VP_ERR_INPUT, "d.json", 1, "name",
                "is empty");
    CHECK_OK(parse(HEAD ", \"host_update_bytes_per_s\": 2e11}"));
    assert_true(vp_host_bytes_per_s(&d) == 2e11 && vp_host_update_seconds(&d, 2e11) > 1);
    CHECK_FAILS(parse(HEAD ", \"host_update_bytes_per_s\": -1}"), VP_ERR_INPUT, "d.json", 1,
                "host_update_bytes_per_s", "must be between 1 and");
    CHECK_FAILS(parse(HEAD ", \"unified_memory\": true, \"host_update_bytes_per_s\": 2e11}"),
                VP_ERR_INPUT, "d.json", 1, "host_update_bytes_per_s", "nothing can be offloaded");
    CHECK_FAILS(parse(HEAD ", \"host_link_bytes_per_s\": 0}"), VP_ERR_INPUT, "d.json", 1,
                "host_link_bytes_per_s", "must be between 1 and");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_table_has_at_least_30_cards_and_no_name_twice, empty_err),
        cmocka_unit_test_setup(every_figure_says_its_class_and_source, empty_err),
        cmocka_unit_test_setup(usable_bytes_are_below_what_is_on_the_box, empty_err),
        cmocka_unit_test_setup(narrower_formats_are_faster_and_start_with_their_generation,
                               empty_err),
        cmocka_unit_test_setup(fp32_is_what_the_multiprocessors_can_do, empty_err),
        cmocka_unit_test_setup(the_figures_people_know_are_these, empty_err),
        cmocka_unit_test_setup(a_name_an_alias_or_a_clear_beginning_opens_a_card, empty_err),
        cmocka_unit_test_setup(a_name_that_means_several_cards_lists_them, empty_err),
        cmocka_unit_test_setup(bf16_before_ampere_and_fp8_before_ada_are_refused_with_the_reason,
                               empty_err),
        cmocka_unit_test_setup(
            what_a_profile_measured_outside_the_arena_takes_the_place_of_the_assumption, empty_err),
        cmocka_unit_test_setup(a_measured_link_takes_the_place_of_the_stated_one, empty_err),
        cmocka_unit_test_setup(a_rate_the_device_has_not_is_the_next_wider_one, empty_err),
        cmocka_unit_test_setup(every_card_can_be_written_and_read_again, empty_err),
        cmocka_unit_test_setup(a_device_file_of_the_first_version_still_opens, empty_err),
        cmocka_unit_test_setup(a_device_file_that_contradicts_itself_is_refused_at_its_place,
                               empty_err),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
