/* kernels/cuda/cudnn_query.c: vplan-cudnn-query: what cuDNN answers about attention on cards that
 * are not there.
 *     echo attention_bwd 8 1024 12 12 64 0 1 0 | vplan-cudnn-query --sm 80,90
 *     {"sm":80,"kernel":"attention_bwd","batch":8,"seq":1024,...,"supported":true,"engine":6,"library_bytes":...}
 *
 * A line of standard input is a call: attention_fwd or attention_bwd and its whole numbers up to
 * the window, as plan/op.h orders them. A row of standard output is the answer for one compute
 * capability (all six if --sm does not choose):
 *     planned         what vp_cuda_attention_engine() says: "cudnn" or "own"
 *     chunks          calls that are made of it; what follows is of one of them
 *     supported       cuDNN has an engine for the graph that repeats its bits; else "reason"
 *     engine          its number; engine_kernel: that of its kernel, -1 where it has one;
 *                     operations: of the graph
 *     library_bytes   the workspace cuDNN asks for
 *     workspace_bytes the same with what vplan keeps beside it, and planned_bytes: what
 *     vp_workspace_bytes() gives the call
 * cuDNN 9.8 and newer answer for a card that is only described to them (a DEVICEPROP descriptor
 * made from JSON). Exit code 5 where cuDNN cannot be opened. Its engines compile their kernels
 * with the driver's library at hand: where there is no driver, the toolkit's stub of it is
 * loaded in its place (its soname is libcuda.so.1), and without either the exit code is 5 too. */
#include "kernels/cuda/attention_cudnn.h"

#include "base/text.h"
#include "base/units.h"
#include "plan/workspace.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One card of each compute capability, as cuDNN's own descriptor prints one. Limits: CUDA C
 * Programming Guide, "Technical Specifications per Compute Capability"; multiprocessors, L2 and
 * memory: NVIDIA's data sheets. */
static const struct card {
    int compute_capability, multiprocessors, smem_optin_kib, blocks_per_sm, threads_per_sm, l2_mib,
        memory_gib;
    const char *name;
} cards[] = {
    {80, 108, 163, 32, 2048, 40, 80, "NVIDIA A100-SXM4-80GB"},
    {86, 82, 99, 16, 1536, 6, 24, "NVIDIA GeForce RTX 3090"},
    {89, 128, 99, 24, 1536, 72, 24, "NVIDIA GeForce RTX 4090"},
    {90, 132, 227, 32, 2048, 50, 141, "NVIDIA H200"},
    {100, 148, 227, 32, 2048, 126, 180, "NVIDIA B200"},
    {120, 170, 99, 24, 1536, 96, 32, "NVIDIA GeForce RTX 5090"},
};

enum { N_CARDS = sizeof cards / sizeof cards[0] };

static vp_status describe(const vp_cudnn_api *api, const struct card *card, vp_cudnn_target *out,
                          vp_err *err)
{
    vp_status st = VP_OK;
    char      json[1200];
    int       n;

    out->compute_capability = card->compute_capability;
    n                       = snprintf(
                              json, sizeof json,
                              "{\"version\":1,\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"totalGlobalMem\":%lld,"
                                                    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
                                                    "\"multiProcessorCount\":%d,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
                                                    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%d,\"maxThreadsPerBlock\":1024,"
                                                    "\"maxThreadsPerSM\":%d,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":1500000,"
                                                    "\"memClockRateKHz\":1500000,\"l2CacheSize\":%d,\"deviceName\":\"%s\"}",
                              card->compute_capability * 10, (long long)card->memory_gib << 30, card->multiprocessors,
                              card->smem_optin_kib * 1024, card->blocks_per_sm, card->threads_per_sm, card->l2_mib << 20,
                              card->name);
    VP_TRY(vp_cudnn_check(api,
                          api->create(VP_CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &out->properties),
                          "description of a card", err));
    VP_TRY(vp_cudnn_check(api,
                          api->set(out->properties, VP_CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                   VP_CUDNN_TYPE_CHAR, n + 1, json),
                          "description of a card", err));
    VP_TRY(vp_cudnn_check(api, api->finalize(out->properties), "description of a card", err));
out:
    return st;
}

/* ---- calls ---- */

enum { N_ASKED = 8 }; /* batch seq heads kv_heads head_dim layout causal window */

typedef struct question {
    vp_kernel kernel;
    VP_NAMED_INTS;
} question;

static vp_status parse(char *line, int number, question *out, vp_err *err)
{
    vp_status             st   = VP_OK;
    char                 *rest = NULL, *word = strtok_r(line, " \t\r\n", &rest);
    const vp_kernel_info *info;

    *out        = (question){0};
    out->kernel = vp_kernel_by_name(word);
    if (out->kernel != VP_K_ATTENTION_FWD && out->kernel != VP_K_ATTENTION_BWD)
        return VP_FAIL_AT(err, VP_ERR_USAGE, "standard input", number, NULL,
                          "begins with neither attention_fwd nor attention_bwd");
    info = vp_kernel_info_of(out->kernel);
    for (int i = 0; i < N_ASKED; i++) {
        word = strtok_r(NULL, " \t\r\n", &rest);
        VP_TRY(vp_count_parse(word ? word : "", info->ints[i].name, info->ints[i].min,
                              info->ints[i].max, &out->ints[i], err));
    }
    if (strtok_r(NULL, " \t\r\n", &rest) || out->attention.kv_heads < 1 ||
        out->attention.heads % out->attention.kv_heads != 0)
        return VP_FAIL_AT(
            err, VP_ERR_USAGE, "standard input", number, NULL,
            "is no attention: batch seq heads kv_heads head_dim layout causal window");
out:
    return st;
}

static void print_text(const char *text)
{
    putchar('"');
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text >= ' ')
            putchar(*text);
        else
            putchar(' ');
    putchar('"');
}

static vp_status answer(const vp_cudnn_api *api, const vp_cudnn_target *target, const question *q,
                        vp_err *err)
{
    const vp_kernel_info  *info     = vp_kernel_info_of(q->kernel);
    const double           reals[]  = {1.0, 0.0, 0.0};
    const vp_call_shape    asked    = {.compute_capability = target->compute_capability,
                                       .kernel             = q->kernel,
                                       .dtype              = VP_DTYPE_BF16,
                                       .ints               = q->ints,
                                       .reals              = reals};
    int64_t                chunks   = vp_cuda_attention_chunks(&asked);
    vp_attention_workspace division = vp_cuda_attention_workspace(&asked, chunks);
    vp_cudnn_shape         shape    = vp_cudnn_shape_of(q->kernel, &q->attention, chunks);
    vp_cudnn_plan         *plan     = NULL;
    vp_err                 why      = {0};
    vp_status              st = vp_cudnn_plan_new(api, target, &shape, INT64_MAX, &plan, &why);

    printf("{\"sm\":%d,\"kernel\":\"%s\"", target->compute_capability, info->name);
    for (int i = 0; i < N_ASKED; i++)
        printf(",\"%s\":%lld", info->ints[i].name, (long long)q->ints[i]);
    printf(",\"planned\":\"%s\",\"chunks\":%lld,\"supported\":%s",
           vp_cuda_attention_engine(&asked) == VP_ATTENTION_CUDNN ? "cudnn" : "own",
           (long long)chunks, plan ? "true" : "false");
    if (plan)
        printf(
            ",\"engine\":%lld,\"engine_kernel\":%lld,\"operations\":%d,\"library_bytes\":%lld,\"workspace_bytes\":%lld",
            (long long)plan->engine, (long long)plan->kernel, plan->n_operations,
            (long long)plan->workspace_bytes,
            (long long)(division.bytes - division.library_bytes + plan->workspace_bytes));
    else {
        printf(",\"reason\":");
        print_text(why.message);
    }
    printf(",\"planned_bytes\":%lld}\n", (long long)vp_workspace_bytes(&asked));
    vp_cudnn_plan_free(api, plan);
    if (st != VP_OK && st != VP_ERR_INPUT)
        return VP_FAIL(err, st, "%s", why.message);
    return VP_OK;
}

/* ---- the program ---- */

/* Loaded under its soname a library is found again by whoever opens that name. */
static vp_status load_driver(vp_err *err)
{
    const char *home = getenv("CUDA_HOME");
    char        stub[1024];

    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        return VP_OK;
    snprintf(stub, sizeof stub, "%s/lib64/stubs/libcuda.so",
             home && *home ? home : "/usr/local/cuda");
    if (dlopen(stub, RTLD_NOW | RTLD_LOCAL))
        return VP_OK;
    return VP_FAIL(
        err, VP_ERR_DEVICE,
        "there is neither libcuda.so.1 nor its stub, %s: cuDNN's attention engines need one", stub);
}

static vp_status choose(const char *list, bool chosen[N_CARDS], vp_err *err)
{
    vp_status st = VP_OK;
    char      copy[64], *rest = NULL;

    if (snprintf(copy, sizeof copy, "%s", list) >= (int)sizeof copy)
        return VP_FAIL(err, VP_ERR_USAGE, "--sm %s: too long", list);
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int64_t compute_capability;
        int     i = 0;

        VP_TRY(vp_count_parse(word, "--sm", 1, 999, &compute_capability, err));
        while (i < N_CARDS && cards[i].compute_capability != compute_capability)
            i++;
        if (i == N_CARDS)
            return VP_FAIL(err, VP_ERR_USAGE, "--sm %s: known are 80, 86, 89, 90, 100 and 120",
                           word);
        chosen[i] = true;
    }
out:
    return st;
}

int main(int argc, char **argv)
{
    vp_err          err              = {0};
    vp_status       st               = VP_OK;
    vp_cudnn_api    api              = {0};
    vp_cudnn_target targets[N_CARDS] = {0};
    bool            chosen[N_CARDS]  = {0};
    char            line[512], text[2048];

    if (argc == 1)
        for (int i = 0; i < N_CARDS; i++)
            chosen[i] = true;
    else if (argc == 3 && strcmp(argv[1], "--sm") == 0)
        VP_TRY(choose(argv[2], chosen, &err));
    else
        VP_TRY(VP_FAIL(&err, VP_ERR_USAGE,
                       "usage: vplan-cudnn-query [--sm 80,86,89,90,100,120] < calls"));
    VP_TRY(vp_cudnn_api_open(&api, &err));
    VP_TRY(load_driver(&err));
    for (int i = 0; i < N_CARDS; i++)
        if (chosen[i])
            VP_TRY(describe(&api, &cards[i], &targets[i], &err));
    for (int number = 1; fgets(line, sizeof line, stdin); number++) {
        question q;

        if (line[strspn(line, " \t\r\n")] == '\0')
            continue;
        VP_TRY(parse(line, number, &q, &err));
        for (int i = 0; i < N_CARDS; i++)
            if (chosen[i])
                VP_TRY(answer(&api, &targets[i], &q, &err));
    }
out:
    for (int i = 0; i < N_CARDS; i++)
        if (targets[i].properties)
            api.destroy(targets[i].properties);
    vp_cudnn_api_close(&api);
    if (st != VP_OK)
        fprintf(stderr, "vplan-cudnn-query: %s\n", vp_err_text(&err, text, sizeof text));
    return vp_status_exit_code(st);
}
