/* tests/dryrun/cudnn_ask.c: what cuDNN itself says of one forward convolution, asked without a
 * device and without the stand-in. Prints the workspace of the first plan that its heuristics (mode
 * A, what PyTorch uses) offer and that it accepts.
 *     cudnn_ask LIBCUDNN CARD_JSON N C H W K R STRIDE PAD DTYPE nchw|nhwc        DTYPE: 0 float, 2
 *     half, 9 bfloat16
 * Numbers of attributes and kinds are those of cudnn_graph.h. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *desc;

static int (*create)(int, desc *), (*finalize)(desc);
static int (*set)(desc, int, int, int64_t, const void *);
static int (*get)(desc, int, int, int64_t, int64_t *, void *);

static void must(int rc, const char *what)
{
    if (rc) {
        fprintf(stderr, "%s: status %d\n", what, rc);
        exit(1);
    }
}

static desc made(int kind)
{
    desc d = NULL;

    must(create(kind, &d), "create");
    return d;
}

static desc tensor(int64_t id, int dtype, const int64_t dim[4], int nhwc)
{
    int64_t align = 16, nchw_strides[] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};
    int64_t nhwc_strides[] = {dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]};
    desc    t              = made(17);

    must(set(t, 901, 1, 1, &dtype), "data type");
    must(set(t, 902, 3, 4, dim), "dimensions");
    must(set(t, 903, 3, 4, nhwc ? nhwc_strides : nchw_strides), "strides");
    must(set(t, 906, 3, 1, &id), "id");
    must(set(t, 900, 3, 1, &align), "alignment");
    must(finalize(t), "tensor");
    return t;
}

static desc graph(int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, int64_t r, int64_t stride,
                  int64_t pad, int dtype, int nhwc)
{
    int64_t x_dim[] = {n, c, h, w}, w_dim[] = {k, c, r, r}, two = 2;
    int64_t y_dim[]   = {n, k, (h + 2 * pad - r) / stride + 1, (w + 2 * pad - r) / stride + 1};
    int64_t strides[] = {stride, stride}, pads[] = {pad, pad}, ones[] = {1, 1};
    int     compute = 0, cross = 1;
    float   alpha = 1, beta = 0;
    desc    conv = made(1), op = made(10), g = made(15);
    desc    x = tensor('x', dtype, x_dim, nhwc), filter = tensor('w', dtype, w_dim, nhwc),
         y = tensor('y', dtype, y_dim, nhwc);

    must(set(conv, 100, 1, 1, &compute), "compute type");
    must(set(conv, 101, 7, 1, &cross), "mode");
    must(set(conv, 102, 3, 2, ones), "dilation");
    must(set(conv, 103, 3, 2, strides), "stride");
    must(set(conv, 104, 3, 2, pads), "padding");
    must(set(conv, 105, 3, 2, pads), "padding");
    must(set(conv, 106, 3, 1, &two), "dimensions");
    must(finalize(conv), "convolution");
    must(set(op, 700, 4, 1, &alpha), "alpha");
    must(set(op, 701, 4, 1, &beta), "beta");
    must(set(op, 702, 15, 1, &conv), "convolution");
    must(set(op, 703, 15, 1, &filter), "w");
    must(set(op, 704, 15, 1, &x), "x");
    must(set(op, 705, 15, 1, &y), "y");
    must(finalize(op), "operation");
    must(set(g, 801, 15, 1, &op), "operations");
    must(finalize(g), "graph");
    return g;
}

int main(int argc, char **argv)
{
    void   *library;
    desc    card, heuristics, configs[32], plan, g;
    int     mode = 0;
    int64_t n    = 0, one, bytes;

    if (argc != 13 || !(library = dlopen(argv[1], RTLD_NOW))) {
        fprintf(stderr, "%s\n", argc != 13 ? "12 arguments" : dlerror());
        return 2;
    }
    create   = (int (*)(int, desc *))dlsym(library, "cudnnBackendCreateDescriptor");
    finalize = (int (*)(desc))dlsym(library, "cudnnBackendFinalize");
    set =
        (int (*)(desc, int, int, int64_t, const void *))dlsym(library, "cudnnBackendSetAttribute");
    get  = (int (*)(desc, int, int, int64_t, int64_t *, void *))dlsym(library,
                                                                      "cudnnBackendGetAttribute");
    card = made(38);
    must(set(card, 2702, 24, (int64_t)strlen(argv[2]) + 1, argv[2]), "card");
    must(finalize(card), "card");
    g = graph(atoll(argv[3]), atoll(argv[4]), atoll(argv[5]), atoll(argv[6]), atoll(argv[7]),
              atoll(argv[8]), atoll(argv[9]), atoll(argv[10]), atoi(argv[11]),
              !strcmp(argv[12], "nhwc"));
    heuristics = made(4);
    must(set(heuristics, 201, 15, 1, &g), "graph");
    must(set(heuristics, 200, 8, 1, &mode), "mode");
    must(set(heuristics, 204, 15, 1, &card), "device");
    must(finalize(heuristics), "heuristics");
    for (int i = 0; i < 32; i++)
        configs[i] = made(3);
    must(get(heuristics, 202, 15, 32, &n, configs), "configurations");
    for (int64_t i = 0; i < n && i < 32; i++) {
        plan = made(5);
        must(set(plan, 401, 15, 1, &configs[i]), "configuration");
        must(set(plan, 407, 15, 1, &card), "device");
        if (finalize(plan) == 0) {
            must(get(plan, 402, 3, 1, &one, &bytes), "workspace");
            printf("workspace %lld\n", (long long)bytes);
            return 0;
        }
    }
    printf("none of %lld configurations\n", (long long)n);
    return 1;
}
