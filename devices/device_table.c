/* devices/device_table.c: a row of cards.def becomes a device: what each figure is, and where it comes from. */
#include "devices/devices.h"
#include "devices/efficiency.h"

#include "base/units.h"

#include <stdio.h>

#define GIB(x)  ((int64_t)((x)*1073741824.0))
#define MIB(x)  ((int64_t)(x)*VP_MIB)
#define RESERVE MIB(1024)
#define LESS_RESERVE \
    "nvidia-smi's memory.total less 1 GiB (CUDA's total is 288 to 883 MiB below it on the cited cards): "

enum {
    FP32   = 1 << VP_FIGURE_FP32,
    TF32   = 1 << VP_FIGURE_TF32,
    BF16   = 1 << VP_FIGURE_BF16,
    FP16   = 1 << VP_FIGURE_FP16,
    FP8    = 1 << VP_FIGURE_FP8,
    INT8   = 1 << VP_FIGURE_INT8,
    MEMORY = 1 << VP_FIGURE_MEMORY,
    USABLE = 1 << VP_FIGURE_USABLE,
    PEER   = 1 << VP_FIGURE_PEER_LINK,
    CACHE  = 1 << VP_FIGURE_CACHE,
    TENSOR = TF32 | BF16 | FP16 | FP8 | INT8
};

typedef struct card {
    const char *name, *alias, *product;
    int         capability, sms;
    /* 0: too small to hold a step's tensors, or nobody says */
    int l2_mib;
    /* 0: the sheet */
    const char *l2_source;
    int64_t     usable_bytes;
    /* its source */
    const char *usable;
    /* of device memory */
    double gb_per_s;
    /* 1e12 operations a second; 0: none */
    double fp32, tf32, bf16, fp16, fp8, int8;
    /* generation; 0: not by PCIe */
    int pcie, lanes;
    /* NVLink-C2C to the CPU in place of PCIe, this card's part, both ways */
    double c2c_gb_per_s;
    /* all links, both ways; 0: none */
    double nvlink_gb_per_s;
    /* the source of all that the next lines do not name */
    const char *sheet;
    /* figures that follow from the sheet ... */
    int derived;
    /* ... by this */
    const char *rule;
    /* figures that nobody says ... */
    int assumed;
    /* ... and why these */
    const char *guess;
    /* where the sheet says no multiprocessors: who does ... */
    const char *sms_source;
    /* ... or what its CUDA cores are divided by; both 0: it says */
    int cores_per_sm;
} card;

static const card cards[] = {
#include "devices/cards.def"
};

enum { N_CARDS = sizeof cards / sizeof *cards };

static void say(vp_device *d, vp_device_figure figure, vp_figure_class class_, const char *text)
{
    d->sources[figure].class_ = class_;
    snprintf(d->sources[figure].text, sizeof d->sources[figure].text, "%s", text);
}

/* The class and words of a figure that comes from the sheet, or by the card's rule from it, or
 * is a guess. */
static void say_of_sheet(vp_device *d, const card *c, vp_device_figure figure, bool there)
{
    char text[sizeof d->sources->text];

    if (!there)
        return;
    if (c->assumed & 1 << figure) {
        say(d, figure, VP_CLASS_ASSUMED, c->guess);
    } else if (c->derived & 1 << figure) {
        snprintf(text, sizeof text, "%s: %s", c->sheet, c->rule);
        say(d, figure, VP_CLASS_DERIVED, text);
    } else {
        say(d, figure, VP_CLASS_CITED, c->sheet);
    }
}

/* Links: one way, which is half of what sheets print for NVLink. PCIe: 8, 16, 32 GT/s a lane,
 * 128 of 130 bits payload. */
static void describe_links(vp_device *d, const card *c)
{
    char text[sizeof d->sources->text];

    if (c->pcie) {
        d->host_link_bytes_per_s = (double)(1 << c->pcie) * 1e9 * c->lanes * 128 / 130 / 8;
        snprintf(text, sizeof text,
                 "PCIe %d.0 x%d: %d GT/s a lane, 128 of 130 bits, one way, before packets", c->pcie,
                 c->lanes, 1 << c->pcie);
        say(d, VP_FIGURE_HOST_LINK, VP_CLASS_DERIVED, text);
    } else {
        d->host_link_bytes_per_s = c->c2c_gb_per_s / 2 * 1e9;
        snprintf(text, sizeof text, "%s: half of NVLink-C2C's 900 GB/s both ways%s", c->sheet,
                 c->c2c_gb_per_s < 900 ? ", and of that each of two GPUs at one Grace" : "");
        say(d, VP_FIGURE_HOST_LINK, c->c2c_gb_per_s < 900 ? VP_CLASS_ASSUMED : VP_CLASS_DERIVED,
            text);
    }
    if (c->nvlink_gb_per_s > 0) {
        d->peer_link_bytes_per_s = c->nvlink_gb_per_s / 2 * 1e9;
        snprintf(text, sizeof text, "%s: half of NVLink's %g GB/s both ways",
                 c->assumed & PEER ? c->guess : c->sheet, c->nvlink_gb_per_s);
        say(d, VP_FIGURE_PEER_LINK, c->assumed & PEER ? VP_CLASS_ASSUMED : VP_CLASS_DERIVED, text);
    }
}

bool vp_device_at(int idx, vp_device *out)
{
    const card *c;
    char        text[sizeof out->sources->text];

    if (idx < 0 || idx >= N_CARDS)
        return false;
    c    = &cards[idx];
    *out = (vp_device){.usable_bytes       = c->usable_bytes,
                       .memory_bytes_per_s = c->gb_per_s * 1e9,
                       .fp32_flop_per_s    = c->fp32 * 1e12,
                       .tf32_flop_per_s    = c->tf32 * 1e12,
                       .bf16_flop_per_s    = c->bf16 * 1e12,
                       .fp16_flop_per_s    = c->fp16 * 1e12,
                       .fp8_flop_per_s     = c->fp8 * 1e12,
                       .int8_op_per_s      = c->int8 * 1e12,
                       .compute_capability = c->capability,
                       .multiprocessors    = c->sms,
                       .l2_bytes           = MIB(c->l2_mib),
                       .bf16               = c->capability >= 80,
                       .fp8                = c->capability >= 89};
    snprintf(out->name, sizeof out->name, "%s", c->name);
    snprintf(out->alias, sizeof out->alias, "%s", c->alias);
    snprintf(out->product, sizeof out->product, "%s", c->product);

    say(out, VP_FIGURE_USABLE, c->derived & USABLE ? VP_CLASS_DERIVED : VP_CLASS_CITED, c->usable);
    /* Context and kernels with lazy loading, rounded up: an assumption until measured. */
    out->outside_bytes = MIB(512);
    say(out, VP_FIGURE_OUTSIDE, VP_CLASS_ASSUMED,
        "context and kernels, rounded up from 287,047,680 B (pytorch#86509) to 426 MiB (unsloth-zoo#1053)");
    say_of_sheet(out, c, VP_FIGURE_MEMORY, true);
    say_of_sheet(out, c, VP_FIGURE_FP32, true);
    say_of_sheet(out, c, VP_FIGURE_TF32, c->tf32 > 0);
    say_of_sheet(out, c, VP_FIGURE_BF16, c->bf16 > 0);
    say_of_sheet(out, c, VP_FIGURE_FP16, c->fp16 > 0);
    say_of_sheet(out, c, VP_FIGURE_FP8, c->fp8 > 0);
    say_of_sheet(out, c, VP_FIGURE_INT8, c->int8 > 0);
    describe_links(out, c);
    out->host_update_bytes_per_s = VP_HOST_BYTES_PER_S;
    say(out, VP_FIGURE_HOST_UPDATE, VP_CLASS_ASSUMED,
        "four fifths of two channels of DDR4-3200, 51.2 GB/s; a server's host has more");
    say(out, VP_FIGURE_CAPABILITY, VP_CLASS_CITED,
        "NVIDIA's list of CUDA GPUs and their compute capability");
    if (c->l2_source)
        say(out, VP_FIGURE_CACHE, c->assumed & CACHE ? VP_CLASS_ASSUMED : VP_CLASS_CITED,
            c->l2_source);
    else
        say_of_sheet(out, c, VP_FIGURE_CACHE, c->l2_mib > 0);
    if (c->cores_per_sm) {
        snprintf(text, sizeof text, "%s: CUDA cores over %d a multiprocessor", c->sheet,
                 c->cores_per_sm);
        say(out, VP_FIGURE_MULTIPROCESSORS, VP_CLASS_DERIVED, text);
    } else if (c->sms_source) {
        say(out, VP_FIGURE_MULTIPROCESSORS, VP_CLASS_CITED, c->sms_source);
    } else {
        say_of_sheet(out, c, VP_FIGURE_MULTIPROCESSORS, true);
    }
    return true;
}
