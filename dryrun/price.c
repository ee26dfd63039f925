#include "dryrun/dryrun_internal.h"

#include "base/text.h"

#include <assert.h>
#include <string.h>

/* What PyTorch's host side takes before a kernel is launched, and the launch itself: an operator that
 * runs eagerly goes through Python, autograd and the dispatcher. Assumed; a launch as in
 * planner/lowering/cost.c. */
static const double OPERATOR_S = 5e-6, LAUNCH_S = 4e-6;

/* The classes that a step's seconds are told by. */
typedef enum class_of_work {
    PRODUCTS,
    ATTENTION,
    CONVOLUTIONS,
    MEMORY, /* element-wise kernels, norms, losses, the optimizer: bytes moved */
    COPIES, /* over the link to the host */
    UNKNOWN,
    N_CLASSES
} class_of_work;

static const char *const class_names[N_CLASSES] = {"products", "attention", "convolutions",
                                                   "memory",   "copies",    "unknown"};

typedef struct op {
    double        seconds; /* on the card */
    double        host_s;
    class_of_work class_;
    bool          waits;
} op;

typedef struct totals {
    double  seconds[N_CLASSES];
    int64_t ops[N_CLASSES], launches[N_CLASSES];
    double  bytes[N_CLASSES], flop[N_CLASSES];
    double  step_s, device_s, host_s;
} totals;

static double real_at(const json_t *row, size_t i)
{
    return json_number_value(json_array_get(row, i));
}

static double rate_of(const vp_device *d, const char *name)
{
    if (strcmp(name, "bf16") == 0)
        return vp_device_flop_per_s(d, VP_RATE_BF16);
    if (strcmp(name, "fp16") == 0)
        return vp_device_flop_per_s(d, VP_RATE_FP16);
    if (strcmp(name, "tf32") == 0)
        return vp_device_flop_per_s(d, VP_RATE_TF32);
    if (strcmp(name, "fp8") == 0)
        return vp_device_flop_per_s(d, VP_RATE_FP8);
    if (strcmp(name, "int8") == 0 && d->int8_op_per_s > 0)
        return d->int8_op_per_s;
    return d->fp32_flop_per_s; /* fp64 too: no rate of it is stated */
}

/* A row of the program, as the probe writes it: name, launches, bytes, products as they are counted and as
 * they are done, their rate, bytes to and from the host, whether the host waits. */
static op priced(const vp_device *d, const json_t *row)
{
    const char *name     = json_string_value(json_array_get(row, 0));
    const char *rate     = json_string_value(json_array_get(row, 5));
    double      launches = real_at(row, 1), bytes = real_at(row, 2), work = real_at(row, 4);
    double      copied = real_at(row, 6) + real_at(row, 7), per_s = rate ? rate_of(d, rate) : 0;
    op          out = {.waits = real_at(row, 8) > 0};

    name         = name ? name : "";
    out.class_   = strstr(name, "convolution") && work > 0                    ? CONVOLUTIONS
                   : strstr(name, "attention") && work > 0                    ? ATTENTION
                   : work > 0                                                 ? PRODUCTS
                   : copied > 0                                               ? COPIES
                   : strcmp(name, "(outside operators)") == 0 && launches > 0 ? UNKNOWN
                                                                              : MEMORY;
    out.host_s   = OPERATOR_S + launches * LAUNCH_S;
    double moved = d->memory_bytes_per_s > 0 ? bytes / d->memory_bytes_per_s : 0;
    double done  = per_s > 0 ? work / per_s : 0;
    double link  = d->host_link_bytes_per_s > 0 ? copied / d->host_link_bytes_per_s : 0;

    out.seconds = (done > moved ? done : moved) + link;
    return out;
}

/* Two clocks: the host issues operators one after the other, the card runs them in order, none before it
 * was issued; where the host reads or waits, it goes on when the card has come so far. */
static void run_op(const op *o, double *host, double *card)
{
    *host += o->host_s;
    *card = (*card > *host ? *card : *host) + o->seconds;
    if (o->waits && *host < *card)
        *host = *card;
}

static void add(totals *t, const op *o, const json_t *row)
{
    assert(o->class_ >= 0 && o->class_ < N_CLASSES);
    t->seconds[o->class_] += o->seconds;
    t->ops[o->class_]++;
    t->launches[o->class_] += (int64_t)real_at(row, 1);
    t->bytes[o->class_] += real_at(row, 2) + real_at(row, 6) + real_at(row, 7);
    t->flop[o->class_] += real_at(row, 3);
    t->device_s += o->seconds;
    t->host_s += o->host_s;
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

json_t *vp_dryrun_price(const vp_device *device, const vp_json_node *program)
{
    const json_t *rows     = json_object_get(program->value, "rows");
    const json_t *sequence = json_object_get(program->value, "sequence"), *at;
    totals        t        = {0};
    double        host = 0, card = 0;
    size_t        i;
    int64_t       samples = vp_dryrun_report_int(program, "samples");
    int64_t       flop    = vp_dryrun_report_int(program, "products_flop") +
                   vp_dryrun_report_int(program, "attention_flop") +
                   vp_dryrun_report_int(program, "convolution_flop");

    if (!json_is_array(rows) || !json_is_array(sequence) || !json_array_size(sequence))
        return NULL;
    json_array_foreach (sequence, i, at) {
        const json_t *row = json_array_get(rows, (size_t)json_integer_value(at));
        op            o   = priced(device, row);

        run_op(&o, &host, &card);
        add(&t, &o, row);
    }
    t.step_s    = card > host ? card : host;
    double peak = vp_device_flop_per_s(device, VP_RATE_BF16);
    return json_pack(
        "{s:s,s:f,s:f,s:f,s:s,s:I,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:b,s:o}", "class", "assumed",
        "step_time_s", t.step_s, "device_s", t.device_s, "host_s", t.host_s, "bound_by",
        t.host_s > t.device_s ? "launches" : "device", "samples", (json_int_t)samples,
        "samples_per_s",
        samples > 0 && t.step_s > 0 ? json_real((double)samples / t.step_s) : json_null(), "flop",
        (json_int_t)flop, "launches", (json_int_t)vp_dryrun_report_int(program, "launches"),
        "operators", (json_int_t)json_array_size(sequence), "copies_to_bytes",
        (json_int_t)vp_dryrun_report_int(program, "copies_to_bytes"), "copies_from_bytes",
        (json_int_t)vp_dryrun_report_int(program, "copies_from_bytes"), "copies_on_bytes",
        (json_int_t)vp_dryrun_report_int(program, "copies_on_bytes"), "mfu",
        peak > 0 && t.step_s > 0 ? (double)flop / t.step_s / peak : 0.0, "complete",
        (int)vp_dryrun_report_bool(program, "complete"), "classes", classes_json(&t));
}
