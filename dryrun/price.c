#include "dryrun/dryrun_internal.h"

#include "base/text.h"
#include "devices/collective.h"
#include "devices/efficiency.h"
#include "dryrun/step_clock.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The classes that a step's seconds are told by. */
typedef enum class_of_work {
    PRODUCTS,
    ATTENTION,
    CONVOLUTIONS,
    MEMORY,      /* element-wise kernels, norms, losses, the optimizer: bytes moved */
    COPIES,      /* over the link to the host */
    COLLECTIVES, /* and messages, over the links to other cards */
    UNKNOWN,
    N_CLASSES
} class_of_work;

static const char *const class_names[N_CLASSES] = {
    "products", "attention", "convolutions", "memory", "copies", "collectives", "unknown"};

enum { MAX_NUMBER = 1 << 20 }; /* of a stream or an event */

typedef struct op {
    double        seconds; /* on the card */
    double        peak_s;  /* what its products would take at the stated rate */
    double        host_s;
    class_of_work class_;
    bool          waits;
} op;

typedef struct totals {
    double  seconds[N_CLASSES];
    int64_t ops[N_CLASSES], launches[N_CLASSES];
    double  bytes[N_CLASSES], flop[N_CLASSES];
    double  host_s, peak_s;
    int64_t n_operators;                          /* all but what only orders streams */
    int64_t n_ranks;                              /* of the largest communicator      */
    double  optimizer_device_s, optimizer_host_s; /* once a step */
} totals;

/* What one module takes, by its number among the program's names. */
typedef struct module_sum {
    double  seconds, bytes, flop;
    int64_t ops, launches;
} module_sum;

static double real_at(const json_t *row, size_t i)
{
    return json_number_value(json_array_get(row, i));
}

static vp_device_rate rate_of(const char *name)
{
    static const struct {
        const char    *name;
        vp_device_rate rate;
    } names[] = {{"bf16", VP_RATE_BF16},
                 {"fp16", VP_RATE_FP16},
                 {"tf32", VP_RATE_TF32},
                 {"fp8", VP_RATE_FP8},
                 {"int8", VP_RATE_INT8}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0)
            return names[i].rate;
    return VP_RATE_FP32; /* fp64 too: no rate of it is stated */
}

/* A kernel that no operator of PyTorch's is: a library's, or Triton's own. */
static bool is_foreign(const char *name)
{
    return strcmp(name, "(outside operators)") == 0 || strncmp(name, "(kernel ", 8) == 0;
}

static class_of_work class_of(const char *name, double launches, double work, bool is_copy)
{
    if (work > 0)
        return strstr(name, "convolution") ? CONVOLUTIONS
               : strstr(name, "attention") ? ATTENTION
                                           : PRODUCTS;
    if (is_copy)
        return COPIES;
    return is_foreign(name) && launches > 0 ? UNKNOWN : MEMORY;
}

/* Of what a row moves, the bytes that the card's cache still holds. */
static double cached_bytes(const vp_device *d, const json_t *row)
{
    const json_t *near;
    double        sum = 0;
    size_t        i;

    json_array_foreach (json_array_get(row, 12), i, near)
        sum += real_at(near, 0) *
               vp_cache_share(d, fmax(real_at(near, 1), 0), fmax(real_at(near, 2), 0));
    return fmin(sum, real_at(row, 2));
}

/* A row of the program, as the probe writes it: name, launches, bytes, products as they are counted and as
 * they are done, their rate, bytes to and from the host, whether the host waits, their shape: rows, columns, depth
 * and how many alike of the largest product; keys, width of a head and whether masked of an attention; the stream; what issued it;
 * and of its bytes those used not long before (dryrun/probe/vplan_reuse.py). */
static vp_work_call call_of(const vp_device *d, const json_t *row, class_of_work class_)
{
    const char   *name  = json_string_value(json_array_get(row, 0));
    const char   *rate  = json_string_value(json_array_get(row, 5));
    const json_t *shape = json_array_get(row, 9);
    vp_work_call  call  = {.bytes  = real_at(row, 2),
                           .cached = cached_bytes(d, row),
                           .flop   = real_at(row, 4),
                           .rate   = rate_of(rate ? rate : "")};

    if (class_ == ATTENTION && real_at(shape, 0) > 0 && real_at(shape, 1) > 0) {
        call.work =
            name && strstr(name, "backward") ? VP_WORK_ATTENTION_BWD : VP_WORK_ATTENTION_FWD;
        call.keys     = real_at(shape, 0);
        call.head_dim = (int64_t)real_at(shape, 1);
        call.masked   = real_at(shape, 2) > 0;
    } else if (call.flop > 0) {
        call.work    = VP_WORK_PRODUCT;
        call.rows    = (int64_t)real_at(shape, 0);
        call.cols    = (int64_t)real_at(shape, 1);
        call.depth   = (int64_t)real_at(shape, 2);
        call.n_alike = (int64_t)real_at(shape, 3);
    } else {
        call.work = real_at(row, 11) > 0 || is_foreign(name ? name : "") ? VP_WORK_ELEMENTWISE
                                                                         : VP_WORK_OPERATOR;
    }
    return call;
}

/* What the host takes besides its launches, by what issues them: an operator, code of torch.compile, a CUDA graph. */
static double host_seconds(const json_t *row)
{
    double issued = real_at(row, 11), launches = real_at(row, 1);

    if (issued > 1)
        return 0;
    return (issued > 0 ? VP_FUSED_KERNEL_S : VP_OPERATOR_S) + launches * VP_LAUNCH_S;
}

static op priced(const vp_device *d, const json_t *row)
{
    const char *name     = json_string_value(json_array_get(row, 0));
    double      launches = real_at(row, 1), copied = real_at(row, 6) + real_at(row, 7);
    op          out = {.waits = real_at(row, 8) > 0};

    out.class_ =
        class_of(name ? name : "", launches, real_at(row, 4), copied > 0 && real_at(row, 2) == 0);
    vp_work_call call = call_of(d, row, out.class_);
    vp_roofline  r    = vp_roofline_of_work(d, &call);
    out.host_s        = host_seconds(row);
    out.seconds       = r.seconds - r.launch_s + launches * VP_LAUNCH_S;
    out.peak_s        = call.flop > 0 ? real_at(row, 3) / vp_device_flop_per_s(d, call.rate) : 0;
    if (copied > 0)
        out.seconds += vp_copy_seconds(d, (int64_t)copied) - VP_LAUNCH_S;
    return out;
}

/* Bytes over the links: a message or a collective of the program. */
static op priced_collective(const vp_device *d, const json_t *row, vp_collective what)
{
    int64_t n_ranks = (int64_t)real_at(json_array_get(row, 9), 0);

    return (op){.class_  = COLLECTIVES,
                .host_s  = VP_OPERATOR_S + VP_LAUNCH_S,
                .seconds = vp_collective_seconds(d, what, n_ranks, real_at(row, 2))};
}

/* A row that does no work: an event recorded or awaited, the host waiting. */
static bool ordered(vp_step_clock *clock, const char *name, const json_t *row)
{
    const json_t *numbers = json_array_get(row, 9);
    int64_t       first   = (int64_t)real_at(numbers, 0);
    int64_t       stream  = (int64_t)real_at(row, 10);

    if (first < 0 || stream < 0 || first > MAX_NUMBER || stream > MAX_NUMBER)
        return true;
    if (strcmp(name, "(record)") == 0) {
        vp_step_record(clock, stream, first);
    } else if (strcmp(name, "(await)") == 0) {
        vp_step_await(clock, stream, first);
    } else if (strcmp(name, "(synchronize)") == 0) {
        int64_t which = (int64_t)real_at(numbers, 1);

        if (which < 0 || which > MAX_NUMBER)
            return true;
        if (first == 0)
            vp_step_host_awaits_all(clock);
        else if (first == 1)
            vp_step_host_awaits_stream(clock, which);
        else
            vp_step_host_awaits_event(clock, which);
    } else {
        return false;
    }
    return true;
}

static void run_op(vp_step_clock *clock, const op *o, const json_t *row, vp_step_unit unit)
{
    int64_t stream = (int64_t)real_at(row, 10);

    stream = stream >= 0 && stream <= MAX_NUMBER ? stream : 0;
    vp_step_issue(clock, o->host_s);
    vp_step_work(clock, stream, unit, o->seconds);
    if (o->waits)
        vp_step_host_awaits_stream(clock, stream);
}

static void add(totals *t, const op *o, const json_t *row)
{
    assert(o->class_ >= 0 && o->class_ < N_CLASSES);
    t->seconds[o->class_] += o->seconds;
    t->ops[o->class_]++;
    t->launches[o->class_] += (int64_t)real_at(row, 1);
    t->bytes[o->class_] += real_at(row, 2) + real_at(row, 6) + real_at(row, 7);
    t->flop[o->class_] += real_at(row, 3);
    t->n_operators++;
    t->host_s += o->host_s;
    t->peak_s += o->peak_s;
}

static json_t *classes_json(const totals *t)
{
    json_t *out = json_array();

    for (int c = 0; c < N_CLASSES; c++)
        if (t->ops[c])
            json_array_append_new(
                out, json_pack("{s:s,s:f,s:I,s:I,s:I,s:I}", "name", class_names[c], "seconds",
                               t->seconds[c], "operators", (json_int_t)t->ops[c], "launches",
                               (json_int_t)t->launches[c], "bytes", (json_int_t)t->bytes[c], "flop",
                               (json_int_t)t->flop[c]));
    return out;
}

static void add_module(module_sum *sums, int64_t n, const json_t *of, size_t i, const op *o,
                       const json_t *row)
{
    int64_t at = (int64_t)json_integer_value(json_array_get(of, i));

    if (!json_is_integer(json_array_get(of, i)) || at < 0 || at >= n || o->host_s <= 0)
        return;
    sums[at].seconds += o->seconds;
    sums[at].ops++;
    sums[at].launches += (int64_t)real_at(row, 1);
    sums[at].bytes += real_at(row, 2) + real_at(row, 6) + real_at(row, 7);
    sums[at].flop += real_at(row, 3);
}

/* The modules that ran something, those with the most seconds on the card first. */
static json_t *modules_json(const json_t *names, module_sum *sums, int64_t n)
{
    json_t *out = json_array();
    char    shown[300];

    for (int64_t k = 0; k < n; k++) {
        int64_t most = -1;
        for (int64_t i = 0; i < n; i++)
            if (sums[i].ops && (most < 0 || sums[i].seconds > sums[most].seconds))
                most = i;
        if (most < 0)
            break;
        const char *name = json_string_value(json_array_get(names, (size_t)most));
        json_array_append_new(
            out, json_pack("{s:s,s:f,s:I,s:I,s:I,s:I}", "name",
                           vp_text_escape(name ? name : "", shown, sizeof shown), "seconds",
                           sums[most].seconds, "operators", (json_int_t)sums[most].ops, "launches",
                           (json_int_t)sums[most].launches, "bytes", (json_int_t)sums[most].bytes,
                           "flop", (json_int_t)sums[most].flop));
        sums[most].ops = 0;
    }
    return out;
}

/* Whether operator i of the sequence is one of an optimizer's step: the program's pairs of first and one past the last. */
static bool in_optimizer(const json_t *pairs, size_t i)
{
    const json_t *pair;
    size_t        k;

    json_array_foreach (pairs, k, pair)
        if ((double)i >= real_at(pair, 0) && (double)i < real_at(pair, 1))
            return true;
    return false;
}

/* One row of the sequence: what it takes, and when. */
static op play(const vp_device *d, const json_t *row, vp_step_clock *clock, totals *t)
{
    const char   *text = json_string_value(json_array_get(row, 0)), *name = text ? text : "";
    vp_collective what;
    op            o = {0};

    if (ordered(clock, name, row))
        return o;
    if (strncmp(name, "nccl:", 5) == 0 && vp_collective_named(name + 5, &what)) {
        int64_t n_ranks = (int64_t)real_at(json_array_get(row, 9), 0);

        o = priced_collective(d, row, what);
        run_op(clock, &o, row, what == VP_RECV ? VP_STEP_RECEIVING : VP_STEP_SENDING);
        t->n_ranks = n_ranks > t->n_ranks ? n_ranks : t->n_ranks;
    } else {
        o = priced(d, row);
        run_op(clock, &o, row, o.class_ == COPIES ? VP_STEP_HOST_LINK : VP_STEP_CARD);
    }
    add(t, &o, row);
    return o;
}

static const char *bound_by(const totals *t, const vp_step_times *times)
{
    if (t->host_s > times->busy_s)
        return "launches";
    return times->exposed_s > times->busy_s / 2 ? "links" : "device";
}

static json_t *time_json(const vp_json_node *program, const totals *t, const vp_step_times *times,
                         const char *link)
{
    int64_t samples = vp_dryrun_report_int(program, "samples");
    int64_t flop    = vp_dryrun_report_int(program, "products_flop") +
                   vp_dryrun_report_int(program, "attention_flop") +
                   vp_dryrun_report_int(program, "convolution_flop");

    return json_pack(
        "{s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:s,s:s,s:I,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:b,s:o}",
        "class", "assumed", "step_time_s", times->step_s, "step_time_least_s",
        VP_STEP_LEAST_FRAC * times->step_s, "step_time_most_s", VP_STEP_MOST_FRAC * times->step_s,
        "device_s", times->busy_s, "host_s", t->host_s, "optimizer_device_s", t->optimizer_device_s,
        "optimizer_host_s", t->optimizer_host_s, "collectives_s", times->talk_s,
        "collectives_exposed_s", times->exposed_s, "link", link, "bound_by", bound_by(t, times),
        "samples", (json_int_t)samples, "samples_per_s",
        samples > 0 && times->step_s > 0 ? json_real((double)samples / times->step_s) : json_null(),
        "flop", (json_int_t)flop, "launches", (json_int_t)vp_dryrun_report_int(program, "launches"),
        "operators", (json_int_t)t->n_operators, "copies_to_bytes",
        (json_int_t)vp_dryrun_report_int(program, "copies_to_bytes"), "copies_from_bytes",
        (json_int_t)vp_dryrun_report_int(program, "copies_from_bytes"), "copies_on_bytes",
        (json_int_t)vp_dryrun_report_int(program, "copies_on_bytes"), "copies_inside_to_bytes",
        (json_int_t)vp_dryrun_report_int(program, "copies_inside_to_bytes"),
        "copies_inside_from_bytes",
        (json_int_t)vp_dryrun_report_int(program, "copies_inside_from_bytes"), "mfu",
        times->step_s > 0 ? t->peak_s / times->step_s : 0.0, "complete",
        (int)vp_dryrun_report_bool(program, "complete"), "classes", classes_json(t));
}

json_t *vp_dryrun_price(const vp_device *device, const vp_json_node *program)
{
    const json_t  *rows     = json_object_get(program->value, "rows");
    const json_t  *sequence = json_object_get(program->value, "sequence"), *at;
    const json_t  *names    = json_object_get(program->value, "modules");
    const json_t  *of       = json_object_get(program->value, "module_of");
    int64_t        n_names  = (int64_t)json_array_size(names);
    module_sum    *sums     = NULL;
    totals         t        = {0};
    vp_step_times  times    = {0};
    vp_step_clock *clock;
    json_t        *out = NULL;
    size_t         i;

    if (!json_is_array(rows) || !json_is_array(sequence) || !json_array_size(sequence))
        return NULL;
    clock = vp_step_clock_new();
    sums  = calloc((size_t)n_names + 1, sizeof *sums);
    if (!clock || !sums)
        goto out;
    json_array_foreach (sequence, i, at) {
        const json_t *row = json_array_get(rows, (size_t)json_integer_value(at));
        op            o   = play(device, row, clock, &t);

        add_module(sums, n_names, of, i, &o, row);
        if (in_optimizer(json_object_get(program->value, "optimizer"), i)) {
            t.optimizer_device_s += o.seconds;
            t.optimizer_host_s += o.host_s;
        }
    }
    if (vp_step_times_of(clock, &times, NULL) == VP_OK)
        out = time_json(program, &t, &times,
                        t.n_ranks > 1 ? vp_ring_link_of(device, t.n_ranks).name : "");
    if (out && vp_dryrun_report_int(program, "tokens") > 0 && times.step_s > 0) {
        json_object_set_new(out, "tokens",
                            json_integer((json_int_t)vp_dryrun_report_int(program, "tokens")));
        json_object_set_new(
            out, "tokens_per_s",
            json_real((double)vp_dryrun_report_int(program, "tokens") / times.step_s));
    }
    if (out)
        json_object_set_new(out, "modules", modules_json(names, sums, n_names));
out:
    free(sums);
    if (clock)
        vp_step_clock_free(clock);
    return out;
}
