#include "trainers/hf/hf_priced.h"

#include "base/checked.h"
#include "models/build.h"
#include "trainers/hf/hf_estimate.h"
#include "trainers/hf/hf_find.h"

#include <math.h>
#include <string.h>

/* LayerNorm as PyTorch has it, one kernel; RMSNorm as modules write it, of element-wise ones. Cohere's LayerNorm is written so too. */
typedef enum norm_kind { NORM_LAYER, NORM_RMS } norm_kind;

/* What runs around the two halves: a norm before each; one for both, which run side by side; one behind each as well; those behind
 * alone. Of two stacks, a layer of each, the second with attention to the first's states beside its own; or, where the first hears, a layer
 * of the second, and the first beside it, for its tokens are others. */
typedef enum block_kind {
    BLOCK_PRE,
    BLOCK_PARALLEL,
    BLOCK_SANDWICH,
    BLOCK_POST,
    BLOCK_OF_BOTH,
    BLOCK_WRITING
} block_kind;

/* A block as the family's modules have it (transformers 5.17, models/FAMILY/modeling_FAMILY.py). */
typedef struct form {
    const char *family;
    norm_kind   norm;
    block_kind  block;
    bool        gated;    /* act(gate) up, else act(up) */
    bool        norms_qk; /* each head of queries and keys */
    bool        rotates;
    bool        encodes;    /* every token sees all */
    bool        of_images;  /* whose patches are the tokens, behind one more */
    bool        resizes;    /* takes images of other sizes than the config's */
    bool        doubles;    /* layers with keys of others are twice as wide inside */
    bool        drops;      /* by the config's dropout_rate; others' dropouts cost little */
    int         full_every; /* of so many layers one has no window; 0: all have it */
    int         deltas;     /* layers of Gated DeltaNet before each one that attends */
    vp_act      act;
} form;

static const form forms[] = {
    {"gemma3", NORM_RMS, BLOCK_SANDWICH, .gated = true, .norms_qk = true, .rotates = true,
     .full_every = 6, .act = VP_ACT_GELU_TANH},
    {"gemma3_text", NORM_RMS, BLOCK_SANDWICH, .gated = true, .norms_qk = true, .rotates = true,
     .full_every = 6, .act = VP_ACT_GELU_TANH},
    {"gemma4", NORM_RMS, BLOCK_SANDWICH, .gated = true, .norms_qk = true, .rotates = true,
     .full_every = 6, .act = VP_ACT_GELU_TANH},
    {"gemma4_e4b", NORM_RMS, BLOCK_SANDWICH, .gated = true, .norms_qk = true, .rotates = true,
     .full_every = 6, .act = VP_ACT_GELU_TANH},
    {"gemma4_e2b", NORM_RMS, BLOCK_SANDWICH, .gated = true, .norms_qk = true, .rotates = true,
     .doubles = true, .full_every = 5, .act = VP_ACT_GELU_TANH},
    {"mixtral", NORM_RMS, BLOCK_PRE, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"qwen3_moe", NORM_RMS, BLOCK_PRE, .gated = true, .norms_qk = true, .rotates = true,
     .act = VP_ACT_SILU},
    {"qwen2_moe", NORM_RMS, BLOCK_PRE, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"olmoe", NORM_RMS, BLOCK_PRE, .gated = true, .norms_qk = true, .rotates = true,
     .act = VP_ACT_SILU},
    {"gpt_oss", NORM_RMS, BLOCK_PRE, .gated = true, .rotates = true, .full_every = 2,
     .act = VP_ACT_SILU},
    {"qwen3_5", NORM_RMS, BLOCK_PRE, .gated = true, .norms_qk = true, .rotates = true, .deltas = 3,
     .act = VP_ACT_SILU},
    {"qwen3_5_moe", NORM_RMS, BLOCK_PRE, .gated = true, .norms_qk = true, .rotates = true,
     .deltas = 3, .act = VP_ACT_SILU},
    {"qwen3_5_even", NORM_RMS, BLOCK_PRE, .gated = true, .norms_qk = true, .rotates = true,
     .deltas = 3, .act = VP_ACT_SILU},
    {"granite", NORM_RMS, BLOCK_PRE, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"glm4", NORM_RMS, BLOCK_SANDWICH, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"glm", NORM_RMS, BLOCK_PRE, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"seed_oss", NORM_RMS, BLOCK_PRE, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"ernie4_5", NORM_RMS, BLOCK_PRE, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"olmo3", NORM_RMS, BLOCK_POST, .gated = true, .norms_qk = true, .rotates = true,
     .full_every = 4, .act = VP_ACT_SILU},
    {"exaone4", NORM_RMS, BLOCK_POST, .gated = true, .norms_qk = true, .rotates = true,
     .full_every = 4, .act = VP_ACT_SILU},
    {"exaone4_full", NORM_RMS, BLOCK_POST, .gated = true, .norms_qk = true, .rotates = true,
     .act = VP_ACT_SILU},
    {"smollm3", NORM_RMS, BLOCK_PRE, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"stablelm", NORM_LAYER, BLOCK_PRE, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"olmo", NORM_LAYER, BLOCK_PRE, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"cohere", NORM_RMS, BLOCK_PARALLEL, .gated = true, .rotates = true, .act = VP_ACT_SILU},
    {"cohere2", NORM_RMS, BLOCK_PARALLEL, .gated = true, .rotates = true, .full_every = 4,
     .act = VP_ACT_SILU},
    {"starcoder2", NORM_LAYER, BLOCK_PRE, .rotates = true, .act = VP_ACT_GELU_TANH},
    {"falcon", NORM_LAYER, BLOCK_PARALLEL, .rotates = true, .act = VP_ACT_GELU},
    {"bloom", NORM_LAYER, BLOCK_PRE, .act = VP_ACT_GELU_TANH},
    {"gptj", NORM_LAYER, BLOCK_PARALLEL, .rotates = true, .act = VP_ACT_GELU_TANH},
    {"phi", NORM_LAYER, BLOCK_PARALLEL, .rotates = true, .act = VP_ACT_GELU_TANH},
    {"gpt_neo", NORM_LAYER, BLOCK_PRE, .act = VP_ACT_GELU_TANH},
    {"distilbert", NORM_LAYER, BLOCK_POST, .encodes = true, .act = VP_ACT_GELU},
    {"xlm-roberta", NORM_LAYER, BLOCK_POST, .encodes = true, .act = VP_ACT_GELU},
    {"modernbert", NORM_LAYER, BLOCK_PRE, .gated = true, .rotates = true, .encodes = true,
     .full_every = 3, .act = VP_ACT_GELU},
    {"t5", NORM_RMS, BLOCK_OF_BOTH, .drops = true, .act = VP_ACT_RELU},
    {"t5_gated", NORM_RMS, BLOCK_OF_BOTH, .gated = true, .drops = true, .act = VP_ACT_GELU_TANH},
    {"deberta-v2", NORM_LAYER, BLOCK_POST, .encodes = true, .act = VP_ACT_GELU},
    {"electra", NORM_LAYER, BLOCK_POST, .encodes = true, .act = VP_ACT_GELU},
    {"electra_narrow", NORM_LAYER, BLOCK_POST, .encodes = true, .act = VP_ACT_GELU},
    {"albert", NORM_LAYER, BLOCK_POST, .encodes = true, .act = VP_ACT_GELU_TANH},
    {"mpnet", NORM_LAYER, BLOCK_POST, .encodes = true, .act = VP_ACT_GELU},
    {"bart", NORM_LAYER, BLOCK_OF_BOTH, .act = VP_ACT_GELU},
    {"mbart", NORM_LAYER, BLOCK_OF_BOTH, .act = VP_ACT_GELU},
    {"pegasus", NORM_LAYER, BLOCK_OF_BOTH, .act = VP_ACT_RELU},
    {"marian", NORM_LAYER, BLOCK_OF_BOTH, .act = VP_ACT_SILU},
    {"m2m_100", NORM_LAYER, BLOCK_OF_BOTH, .act = VP_ACT_RELU},
    {"whisper", NORM_LAYER, BLOCK_WRITING, .act = VP_ACT_GELU},
    {"vit", NORM_LAYER, BLOCK_PRE, .encodes = true, .of_images = true, .act = VP_ACT_GELU},
    {"deit", NORM_LAYER, BLOCK_PRE, .encodes = true, .of_images = true, .act = VP_ACT_GELU},
    {"beit", NORM_LAYER, BLOCK_PRE, .encodes = true, .of_images = true, .act = VP_ACT_GELU},
    {"dinov2", NORM_LAYER, BLOCK_PRE, .encodes = true, .of_images = true, .resizes = true,
     .act = VP_ACT_GELU},
};

static const form *form_of(const vp_model *model)
{
    const char *family = vp_hf_recorded_family(model);

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].family, family) == 0)
            return &forms[i];
    return NULL;
}

/* ---- what the recording knows ---- */

/* Requests of steps that loading asks for: below every window, or what images make; some families were recorded with checkpoints
 * alone, classes of tokens with a mask, towers in front of texts by Trainer with pictures, some of them frozen. */
enum { N_LOADING = 7, N_BLIND = 4, IMAGE_SIDE = 448 }; /* the first ones have no pictures */

static vp_hf_request loading(int i, vp_hf_shelf *shelf)
{
    static const struct {
        int64_t     seq;
        const char *recompute, *attention;
        bool        padded;
        int64_t     images;
        const char *freeze;
    } steps[N_LOADING] = {{128, "none", "sdpa:flash", false, 0, NULL},
                          {0, "none", "sdpa:flash", false, 0, NULL},
                          {128, "full", "sdpa:flash", false, 0, NULL},
                          {128, "none", "sdpa:flash", true, 0, NULL},
                          {1024, "full", "sdpa:flash", false, 1, NULL},
                          {1024, "full", "flash_attention_2", false, 1, NULL},
                          {1024, "full", "sdpa:flash", false, 1, "vision"}};
    bool sees          = steps[i].images > 0;

    return (vp_hf_request){.trainer         = sees ? "hf" : "torch",
                           .precision       = sees ? "bf16-amp" : "bf16-mixed",
                           .attention       = steps[i].attention,
                           .images          = steps[i].images,
                           .freeze          = steps[i].freeze,
                           .image_width     = IMAGE_SIDE,
                           .image_height    = IMAGE_SIDE,
                           .optimizer       = "adamw_torch",
                           .recompute       = steps[i].recompute,
                           .padded          = steps[i].padded,
                           .lora            = {.targets = "none"},
                           .load            = "none",
                           .liger           = "none",
                           .parallel        = "none",
                           .offload         = "none",
                           .batch           = 1,
                           .accumulation    = 1,
                           .seq             = steps[i].seq,
                           .default_seq     = steps[i].seq,
                           .capability      = 90,
                           .processors      = 132,
                           .workspace_bytes = VP_HF_WORKSPACE_OF_CARD,
                           .shelf           = shelf,
                           .terse           = true,
                           .loads_only      = true};
}

/* How many of them a model may have been recorded by. */
static int n_loading(const vp_model *model)
{
    return vp_model_field(model, "vision_config") ? N_LOADING : N_BLIND;
}

int64_t vp_hf_parameters(const vp_model *model, vp_hf_shelf *shelf)
{
    vp_hf_estimate e       = {0};
    vp_err         ignored = {0};

    for (int i = 0; i < n_loading(model); i++) {
        vp_hf_request q = loading(i, shelf);
        if (vp_hf_estimate_run(model, &q, &e, &ignored) == VP_OK)
            return e.n_params;
    }
    return 0;
}

/* Sizes, and the task of the model's class. */
static vp_status read_sizes(const vp_model *model, vp_hf_shelf *shelf, vp_hf_sizes *out,
                            char task[40], vp_err *err)
{
    vp_err    why = {0};
    vp_status st  = VP_ERR_INPUT;

    for (int i = 0; i < n_loading(model) && st != VP_OK; i++) {
        why                  = (vp_err){0};
        vp_hf_request  q     = loading(i, shelf);
        vp_hf_estimate e     = {0};
        vp_hf_found    found = {0};
        q.terse              = false; /* who asks wants to read why */
        st                   = vp_hf_find(model, &q, VP_HF_STEP, &e, &found, &why);
        if (st == VP_OK) {
            *out = found.sizes;
            snprintf(task, 40, "%s", e.task);
        }
        vp_hf_found_release(&found);
    }
    if (st != VP_OK)
        *err = why;
    return st;
}

/* ---- the graph ---- */

typedef struct work {
    const form *form;
    vp_builder  b;
    int64_t     hidden, inner, heads, kv_heads, head, vocab, positions, window, patch, image, heard,
        bands, values, keys;
    int    rope;
    double dropout;
} work;

static int linear(work *w, const char *name, int x, int64_t out)
{
    return vp_build_linear(
        &w->b,
        &(vp_linear){.name = name, .x = x, .out = out, .prefix = name, .layout = VP_WEIGHT_OUT_IN});
}

static int norm(work *w, const char *name, int x, int64_t cols)
{
    static const double eps = 1e-5;

    if (w->form->norm == NORM_RMS || cols)
        return vp_build_rmsnorm(&w->b, name, x, name, &(vp_rmsnorm){.eps = eps, .cols = cols});
    return vp_build_layernorm(&w->b, name, x, name, eps);
}

static int rotated(work *w, const char *name, int x, int64_t n_heads)
{
    vp_heads heads = {.n = n_heads, .dim = w->head, .layout = VP_QKV_APART};

    return w->form->rotates ? vp_build_rope(&w->b, name, x, &heads, w->rope) : x;
}

static int dropped(work *w, const char *name, int x)
{
    return vp_build_dropout(&w->b, name, x, w->dropout);
}

/* full: every token sees all. of: whose keys and values. */
static int attention_to(work *w, int x, int of, bool full)
{
    vp_heads heads = {.n = w->heads, .n_kv = w->kv_heads, .dim = w->head, .layout = VP_QKV_APART};
    int      q     = linear(w, "q_proj", x, w->heads * w->head);
    int      k     = linear(w, "k_proj", of, w->kv_heads * w->head);
    int      v     = linear(w, "v_proj", of, w->kv_heads * w->head);

    if (w->form->norms_qk) {
        q = norm(w, "q_norm", q, w->head);
        k = norm(w, "k_norm", k, w->head);
    }
    q = rotated(w, "q_rope", q, w->heads);
    k = rotated(w, "k_rope", k, w->kv_heads);
    x = vp_build_attention(
        &w->b, &heads,
        &(vp_attention){.name    = "attention",
                        .q       = q,
                        .k       = k,
                        .v       = v,
                        .lengths = -1,
                        .full    = full,
                        .window  = w->form->full_every ? VP_WINDOW_OF_INSTANCE : w->window,
                        .scale   = 1.0 / sqrt((double)w->head)});
    return dropped(w, "o_proj.dropout", linear(w, "o_proj", x, w->hidden));
}

/* Where layers of Gated DeltaNet are between those that attend, these have a gate as wide as their queries. */
static int attention(work *w, int x)
{
    if (w->form->deltas)
        linear(w, "gate_proj", x, w->heads * w->head);
    return attention_to(w, x, x, w->form->encodes);
}

/* A head of Gated DeltaNet: its width; its chunks' products and those of its state are as many as attention's to so many tokens. */
enum { DELTA_HEAD = 128, DELTA_TOKENS = 352 };

static int delta(work *w, int x)
{
    vp_heads heads = {.n = w->values, .n_kv = w->values, .dim = DELTA_HEAD, .layout = VP_QKV_APART};
    int      gate  = linear(w, "in_proj_z", x, w->values * DELTA_HEAD);
    int      q     = linear(w, "in_proj_q", x, w->keys * DELTA_HEAD);
    int      k     = linear(w, "in_proj_k", x, w->keys * DELTA_HEAD);
    int      v     = linear(w, "in_proj_v", x, w->values * DELTA_HEAD);

    q = vp_build_attention(&w->b, &heads,
                           &(vp_attention){.name    = "delta",
                                           .q       = q,
                                           .k       = k,
                                           .v       = v,
                                           .lengths = -1,
                                           .window  = DELTA_TOKENS,
                                           .scale   = 1.0 / sqrt((double)DELTA_HEAD)});
    return linear(w, "out_proj", vp_build_glu(&w->b, "norm.gate", gate, q, VP_ACT_SILU), w->hidden);
}

static int mlp(work *w, int x)
{
    int up = linear(w, "up_proj", x, w->inner);

    x = w->form->gated
            ? vp_build_glu(&w->b, "act", linear(w, "gate_proj", x, w->inner), up, w->form->act)
            : dropped(w, "act.dropout", vp_build_activation(&w->b, "act", up, w->form->act));
    return dropped(w, "down_proj.dropout", linear(w, "down_proj", x, w->hidden));
}

static int add(work *w, const char *name, int x, int y)
{
    return vp_build_add(&w->b, name, x, y);
}

/* The second stack's keys and values of the first's states are products of as many rows as those of its own, where both sequences
 * are as long. The bias that is learnt by distance goes to sdpa as a mask of its own, beside which nothing is known to be causal: all
 * pairs are computed, in both stacks. */
static int both_layers(work *w, int x)
{
    x = add(w, "encoder.attention.residual", x,
            attention_to(w, norm(w, "encoder.attention.norm", x, 0), x, true));
    x = add(w, "encoder.mlp.residual", x, mlp(w, norm(w, "encoder.mlp.norm", x, 0)));
    x = add(w, "attention.residual", x, attention_to(w, norm(w, "attention.norm", x, 0), x, true));
    x = add(w, "cross.residual", x, attention_to(w, norm(w, "cross.norm", x, 0), x, true));
    return add(w, "mlp.residual", x, mlp(w, norm(w, "mlp.norm", x, 0)));
}

/* Attention to what was heard: keys and values are products of the sound's tokens, and so many that asking them is a product too. */
static int attention_heard(work *w, int x)
{
    x = linear(w, "cross.q_proj", x, w->heads * w->head);
    x = linear(w, "cross.values", linear(w, "cross.keys", x, w->heard), w->heads * w->head);
    return linear(w, "cross.o_proj", x, w->hidden);
}

static void block(work *w)
{
    int x, y;

    vp_build_block_template(&w->b, "layers");
    x = vp_build_input(&w->b, w->hidden);
    switch (w->form->block) {
    case BLOCK_PARALLEL:
        y = norm(w, "input_layernorm", x, 0);
        x = add(w, "attention.residual", x, attention(w, y));
        x = add(w, "mlp.residual", x, mlp(w, y));
        break;
    case BLOCK_POST:
        x = norm(w, "attention.norm", add(w, "attention.residual", x, attention(w, x)), 0);
        x = norm(w, "mlp.norm", add(w, "mlp.residual", x, mlp(w, x)), 0);
        break;
    case BLOCK_SANDWICH:
        y = norm(w, "post_attention_layernorm", attention(w, norm(w, "input_layernorm", x, 0)), 0);
        x = add(w, "attention.residual", x, y);
        y = mlp(w, norm(w, "pre_feedforward_layernorm", x, 0));
        x = add(w, "mlp.residual", x, norm(w, "post_feedforward_layernorm", y, 0));
        break;
    case BLOCK_OF_BOTH:
        x = both_layers(w, x);
        break;
    case BLOCK_WRITING:
        x = add(w, "attention.residual", x, attention(w, norm(w, "attention.norm", x, 0)));
        x = add(w, "cross.residual", x, attention_heard(w, norm(w, "cross.norm", x, 0)));
        x = add(w, "mlp.residual", x, mlp(w, norm(w, "mlp.norm", x, 0)));
        break;
    case BLOCK_PRE:
        for (int i = 0; i < w->form->deltas; i++) {
            x = add(w, "delta.residual", x, delta(w, norm(w, "delta.norm", x, 0)));
            x = add(w, "delta.mlp.residual", x, mlp(w, norm(w, "delta.mlp.norm", x, 0)));
        }
        x = add(w, "attention.residual", x, attention(w, norm(w, "input_layernorm", x, 0)));
        x = add(w, "mlp.residual", x, mlp(w, norm(w, "post_attention_layernorm", x, 0)));
        break;
    }
    vp_build_output(&w->b, x);
}

static void embedding(work *w)
{
    bool learns = w->b.model->graph.learns_positions;

    vp_build_template(&w->b, "embedding");
    int x = vp_build_embedding(&w->b, &(vp_embedding){.name        = "embed_tokens",
                                                      .table       = "embed_tokens",
                                                      .rows        = w->vocab,
                                                      .cols        = w->hidden,
                                                      .positions   = learns ? "positions" : NULL,
                                                      .n_positions = w->positions,
                                                      .padding_row = -1});
    vp_build_output(&w->b, w->form->encodes ? norm(w, "norm", x, 0) : x);
}

/* Patches of three colours are rows of a product; the row that stands before them takes part in it, which is 1 of 197. */
static void patches(work *w)
{
    vp_build_template(&w->b, "embedding");
    int x = vp_build_embedding(&w->b, &(vp_embedding){.name        = "pixels",
                                                      .table       = "pixels",
                                                      .rows        = 2,
                                                      .cols        = 3 * w->patch * w->patch,
                                                      .padding_row = -1});
    vp_build_output(&w->b, linear(w, "projection", x, w->hidden));
}

/* An encoder's class puts a layer between its last states and what is learnt. */
static void head(work *w, bool tied)
{
    vp_builder *b = &w->b;

    vp_build_template(b, "head");
    int x = vp_build_input(b, w->hidden);
    if (w->form->of_images) {
        vp_build_classifier(b, norm(w, "norm", x, 0), "classifier", true, VP_LABEL_AT_FIRST);
        return;
    }
    if (w->form->block == BLOCK_OF_BOTH)
        x = norm(w, "encoder.norm", x, 0);
    if (!w->form->encodes)
        x = norm(w, "norm", x, 0);
    else if (b->model->head != VP_HEAD_TOKEN)
        x = vp_build_activation(b, "dense.act", linear(w, "dense", x, w->hidden), w->form->act);
    if (w->form->encodes && b->model->head == VP_HEAD_MASKED)
        x = norm(w, "dense.norm", x, 0);
    vp_build_decoder_head(
        b, &(vp_lm_head){.x = x, .vocab = w->vocab, .tied = tied, .prefix = "lm_head"}, "score");
}

/* What products see of a layer with experts: those that a token is sent to, and a layer beside them. The others are read besides. */
static void route(work *w, const vp_symbols *sizes, int64_t n_layers)
{
    int64_t n = sizes->at[VP_SYM_E], seen = sizes->at[VP_SYM_t];

    if (!n)
        return;
    w->b.model->n_other_experts = n_layers * (n - seen) * 3 * w->hidden * w->inner;
    w->inner                    = w->inner * seen + sizes->at[VP_SYM_s];
}

/* Layers are priced alike: the wider heads of those that attend to all, and what is wider inside, are spread over all. */
static void spread(work *w, const vp_hf_sizes *s)
{
    int64_t all = w->form->full_every, n = s->n_layers[0] + s->n_layers[1];

    if (s->symbols.at[VP_SYM_v])
        w->head = vp_round_up(((all - 1) * w->head + s->symbols.at[VP_SYM_v]) / all, 2);
    if (w->form->doubles)
        w->inner = w->inner * (n + s->n_layers[1]) / n;
}

static int64_t *windows_of(work *w, int64_t n_layers)
{
    int64_t *list = vp_arena_array(w->b.model->arena, n_layers, sizeof *list);

    for (int64_t i = 0; list && i < n_layers; i++)
        list[i] = (i + 1) % w->form->full_every ? w->window : 0;
    return list;
}

/* What runs over the tokens of a sound: two convolutions, of which the first has twice as many rows; the first stack's layers; of each of
 * the second's the keys and values. */
static void heard(work *w, int which)
{
    static const char *const names[] = {"convolutions", "encoder", "cross"};
    int                      x;

    if (which == 1)
        vp_build_block_template(&w->b, names[which]);
    else
        vp_build_template(&w->b, names[which]);
    w->b.model->graph.templates[w->b.template_idx].seq = w->heard;
    x = vp_build_input(&w->b, which == 0 ? 6 * w->bands : w->hidden);
    if (which == 0)
        x = linear(w, "conv2", linear(w, "conv1", x, w->hidden), 3 * w->hidden);
    else if (which == 1) {
        x = add(w, "attention.residual", x,
                attention_to(w, norm(w, "attention.norm", x, 0), x, true));
        x = add(w, "mlp.residual", x, mlp(w, norm(w, "mlp.norm", x, 0)));
    } else
        x = linear(w, "kv_proj", x, 2 * w->heads * w->head);
    vp_build_output(&w->b, x);
}

/* The chain of what is written has these before it: n of each. */
static vp_status hear(work *w, const int64_t n[3], vp_err *err)
{
    vp_graph    *g    = &w->b.model->graph;
    int64_t      more = n[0] + n[1] + n[2], at = 0;
    vp_instance *chain = vp_arena_array(w->b.model->arena, g->n_instances + more, sizeof *chain);
    vp_status    st    = VP_OK;

    VP_TRY_ALLOC(err, chain);
    memcpy(chain + more, g->instances, (size_t)g->n_instances * sizeof *chain);
    for (int which = 0; which < 3; which++) {
        heard(w, which);
        for (int64_t i = 0; i < n[which]; i++)
            chain[at++] = (vp_instance){.template_idx = w->b.template_idx, .index = i};
    }
    for (int64_t i = 0; i < g->n_instances + more; i++)
        chain[i].chain_idx = i;
    g->instances = chain;
    g->n_instances += more;
    g->spans[g->labels_span].first_instance = g->spans[g->labels_span].last_instance =
        g->n_instances - 1;
out:
    return st;
}

static vp_status build(vp_model *model, const form *f, const vp_hf_sizes *sizes, vp_err *err)
{
    const int64_t *at       = sizes->symbols.at;
    work           w        = {.form      = f,
                               .hidden    = at[VP_SYM_h],
                               .inner     = at[VP_SYM_f],
                               .heads     = at[VP_SYM_a],
                               .kv_heads  = at[VP_SYM_k],
                               .head      = at[VP_SYM_d],
                               .vocab     = at[VP_SYM_V],
                               .positions = at[VP_SYM_P] - sizes->unused_positions,
                               .window    = sizes->window,
                               .patch     = at[VP_SYM_p],
                               .heard     = at[VP_SYM_c] ? at[VP_SYM_S] : 0,
                               .bands     = at[VP_SYM_c],
                               .values    = at[VP_SYM_z],
                               .keys      = at[VP_SYM_j] ? at[VP_SYM_j] : at[VP_SYM_z],
                               .image = at[VP_SYM_S] ? at[VP_SYM_S] : vp_patches_of(&sizes->symbols) + 1,
                               .dropout = f->drops ? json_number_value(vp_model_field(model, "dropout_rate")) : 0};
    int64_t        n_layers = sizes->n_layers[0] + sizes->n_layers[1], *windows = NULL;
    vp_status      st = VP_OK;

    spread(&w, sizes);
    int64_t rotated_dim = at[VP_SYM_q] ? at[VP_SYM_q] : w.head;
    vp_build_begin(&w.b, model, 0.02);
    route(&w, &sizes->symbols, n_layers);
    if (f->rotates)
        w.rope = vp_build_add_rope(
            &w.b, &(vp_rope){.type = VP_ROPE_DEFAULT, .dim = rotated_dim, .theta = 1e4});
    if (f->full_every) {
        windows = windows_of(&w, n_layers);
        VP_TRY_ALLOC(err, windows);
    }
    if (f->block == BLOCK_OF_BOTH || w.heard)
        n_layers = sizes->n_layers[w.heard ? 1 : 0];
    n_layers /= f->deltas + 1;
    model->graph.max_seq          = f->of_images ? w.image : w.positions;
    model->graph.learns_positions = (f->of_images && !f->resizes) || sizes->learns_positions;
    model->image_tokens           = f->of_images ? w.image : 0;
    model->resizes_images         = f->resizes;
    if (f->of_images)
        patches(&w);
    else
        embedding(&w);
    block(&w);
    head(&w, sizes->tied);
    VP_TRY(vp_build_finish(&w.b, n_layers, windows, err));
    if (w.heard)
        VP_TRY(hear(&w, (int64_t[]){1, sizes->n_layers[0], n_layers}, err));
    VP_TRY_ALLOC(err, !vp_arena_failed(model->arena));
out:
    return st;
}

static bool head_of(const char *task, vp_head *out)
{
    static const struct {
        const char *task;
        vp_head     head;
    } known[] = {{"clm", VP_HEAD_NEXT_TOKEN},
                 {"mlm", VP_HEAD_MASKED},
                 {"seqcls", VP_HEAD_SEQUENCE},
                 {"tokcls", VP_HEAD_TOKEN},
                 {"imgcls", VP_HEAD_SEQUENCE},
                 {"seq2seq", VP_HEAD_MASKED}}; /* a label is the token at its place */

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].task, task) == 0) {
            *out = known[i].head;
            return true;
        }
    return false;
}

vp_status vp_hf_add_priced_graph(vp_model *model, vp_hf_shelf *shelf, vp_err *err)
{
    const form *f     = form_of(model);
    vp_hf_sizes sizes = {0};
    char        task[40];
    vp_status   st = VP_OK;

    VP_TRY(read_sizes(model, shelf, &sizes, task, err));
    if (!f || !head_of(task, &model->head) ||
        (f->block == BLOCK_OF_BOTH && sizes.n_layers[0] != sizes.n_layers[1]))
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, "model_type",
                          "steps of %s have bytes and no seconds yet, so no plan: vplan estimate "
                          "--trainer hf says what they take",
                          model->class_name[0] ? model->class_name : model->family));
    model->n_labels = sizes.symbols.at[VP_SYM_C];
    VP_TRY(build(model, f, &sizes, err));
    model->n_params       = vp_hf_parameters(model, shelf);
    model->n_trained      = model->n_params;
    model->is_priced_only = true;
out:
    return st;
}
