#include "cli/bytes_table.h"

#include "base/text.h"
#include "base/units.h"
#include "cli/paint.h"
#include "cli/screen.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

typedef enum byte_group {
    PARAMETERS,
    GRADIENTS,
    MASTER,
    STATES,
    BLOCK_ACTIVATIONS,
    OTHER_ACTIVATIONS,
    TEMPORARIES,
    STAGING,
    REST,
    N_GROUPS
} byte_group;

static const char *const group_names[N_GROUPS] = {
    [PARAMETERS]        = "parameters",
    [GRADIENTS]         = "gradients",
    [MASTER]            = "master weights",
    [STATES]            = "optimizer states",
    [BLOCK_ACTIVATIONS] = "activations, blocks",
    [OTHER_ACTIVATIONS] = "activations, head and embedding",
    [TEMPORARIES]       = "temporaries and workspace",
    [STAGING]           = "copies from and to the host",
    [REST]              = "batch, constants, padding",
};

static byte_group group_of(const vp_item *item)
{
    static const byte_group of[VP_N_COMPONENTS] = {
        [VP_COMP_PARAMETERS]      = PARAMETERS,
        [VP_COMP_GRADIENTS]       = GRADIENTS,
        [VP_COMP_MASTER]          = MASTER,
        [VP_COMP_OPTIMIZER_STATE] = STATES,
        [VP_COMP_TEMPORARIES]     = TEMPORARIES,
        [VP_COMP_WORKSPACE]       = TEMPORARIES,
        [VP_COMP_STAGING]         = STAGING,
        [VP_COMP_BATCH_INPUT]     = REST,
        [VP_COMP_CONSTANTS]       = REST,
        [VP_COMP_CONTROL]         = REST,
        [VP_COMP_PADDING]         = REST,
    };

    assert(item->component < VP_N_COMPONENTS);
    if (item->component == VP_COMP_ACTIVATIONS)
        return item->of_blocks ? BLOCK_ACTIVATIONS : OTHER_ACTIVATIONS;
    return of[item->component];
}

/* How a matrix's states are kept; with 8 bits small parameters have fp32. */
static const char *state_format(vp_optimizer optimizer)
{
    static const vp_update_shape matrix = {
        .rows = 4096, .cols = 4096, .block_matrix = true, .decay = true};

    switch (vp_optimizer_state_kind(optimizer, &matrix)) {
    case VP_STATE_BF16:
        return "bf16";
    case VP_STATE_BLOCK8:
        return "8-bit";
    default:
        return "fp32";
    }
}

static const char *format_of(const vp_recipe *recipe, byte_group group)
{
    switch (group) {
    case PARAMETERS:
    case BLOCK_ACTIVATIONS:
    case OTHER_ACTIVATIONS:
        return vp_dtype_name(vp_precision_dtype(recipe->precision));
    case GRADIENTS:
        return vp_gradients_name(recipe->gradients);
    case MASTER:
        return "fp32";
    case STATES:
        return state_format(recipe->optimizer);
    default:
        return "";
    }
}

static void print_group(const char *name, const char *format, int64_t bytes, int64_t of_bytes)
{
    enum { BAR = 16 };
    char   size[64], bar[4 * BAR];
    double share = (double)bytes / (double)of_bytes;

    assert(bytes >= 0 && of_bytes >= bytes && of_bytes > 0);
    printf("  %-32s %-7s %11s %6.1f%%  %s%s%s\n", name, format,
           vp_screen_size(bytes, 11, size, sizeof size), 100 * share, vp_paint(VP_PAINT_BAR),
           vp_bar(share, BAR, bar, sizeof bar), vp_paint_end());
}

static void print_kind(const char *name, int64_t bytes, int64_t of_bytes)
{
    char size[64], shown[200]; /* a plan's own name: it may come from anywhere */

    printf("  %-56.56s %12s %6.1f%%\n", vp_text_escape(name, shown, sizeof shown),
           vp_screen_size(bytes, 12, size, sizeof size), 100.0 * (double)bytes / (double)of_bytes);
}

static void sum_groups(const vp_itemised *x, int64_t bytes[N_GROUPS])
{
    memset(bytes, 0, N_GROUPS * sizeof *bytes);
    for (int64_t i = 0; i < x->n_items; i++)
        bytes[group_of(&x->items[i])] += x->items[i].bytes;
}

void vp_screen_bytes(const vp_plan *plan, const vp_itemised *x, bool all)
{
    int64_t groups[N_GROUPS], of_bytes = plan->peak_bytes + plan->outside_bytes;
    char    title[64], size[64];

    sum_groups(x, groups);
    snprintf(title, sizeof title, "at the peak, in %s", x->peak_phase);
    printf("%s%-*s %11s %7s%s\n", vp_paint(VP_PAINT_HEAD), all ? 59 : 42, title, "bytes", "share",
           vp_paint_end());
    for (int64_t i = 0; all && i < x->n_items; i++)
        print_kind(x->items[i].name, x->items[i].bytes, of_bytes);
    for (int g = 0; !all && g < N_GROUPS; g++)
        if (groups[g])
            print_group(group_names[g], format_of(&plan->recipe, (byte_group)g), groups[g],
                        of_bytes);
    if (plan->outside_bytes && all)
        print_kind("outside the arena (CUDA context, libraries)", plan->outside_bytes, of_bytes);
    else if (plan->outside_bytes)
        print_group("CUDA context, libraries", "", plan->outside_bytes, of_bytes);
    printf("  %-*s %12s\n", all ? 56 : 39, "all of it",
           vp_screen_size(of_bytes, 12, size, sizeof size));
}

void vp_screen_per_param(const vp_plan *plan, const vp_itemised *x)
{
    static const char *const names[] = {[PARAMETERS] = "weights",
                                        [GRADIENTS]  = "gradients",
                                        [MASTER]     = "master weights",
                                        [STATES]     = "optimizer states"};
    static const char        more[]  = "; with gradients in bf16, as often counted, %.3g";
    int64_t                  groups[N_GROUPS];
    char                     line[240] = "", rule[80] = "";
    double                   sum = 0;

    assert(plan->n_params > 0);
    sum_groups(x, groups);
    for (int g = PARAMETERS; g <= STATES; g++) {
        double each = (double)groups[g] / (double)plan->n_params;
        size_t n    = strlen(line);
        if (groups[g])
            snprintf(line + n, sizeof line - n, "%s%.3g %s", n ? " + " : "", each, names[g]);
        sum += each;
    }
    if (vp_precision_dtype(plan->recipe.precision) == VP_DTYPE_BF16 &&
        plan->recipe.gradients == VP_GRADIENTS_FP32 && !vp_plan_offloads(plan))
        snprintf(rule, sizeof rule, more,
                 sum - (double)groups[GRADIENTS] / 2 / (double)plan->n_params);
    vp_screen_line("per param", "%s = %.3g bytes%s%s", line, sum,
                   vp_plan_offloads(plan) ? " on the device" : "", rule);
}
