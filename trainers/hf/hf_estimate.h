/* trainers/hf/hf_estimate.h: what a training step of transformers' modules takes of a card, phase by
 * phase, from a config alone.
 *     vp_hf_request request = {.trainer = "torch", .precision = "bf16", .optimizer = "adamw_torch", ...};
 *     VP_TRY(vp_hf_estimate(model, &request, &estimate, err));
 *     estimate.phases[estimate.peak].allocated_bytes ...
 *
 * A recording of the family (README.md) is evaluated for the config's sizes and played through
 * PyTorch's caching allocator for some steps. What has no recording is refused by name. */
#ifndef VP_TRAINERS_HF_HF_ESTIMATE_H
#define VP_TRAINERS_HF_HF_ESTIMATE_H

#include "models/model.h"
#include "trainers/hf/hf_shelf.h"
#include "trainers/torch/ledger.h"

enum { VP_HF_ASSUMPTIONS = 12, VP_HF_WORKSPACE_OF_CARD = -1 };

/* Beyond so many look-ups in a table its gradient is another kernel's. */
enum { VP_HF_MOST_LOOK_UPS = 3072 };

/* Adapters of peft's LoraConfig on a frozen model, or another of its methods. */
typedef struct vp_hf_lora {
    /* "none", "all-linear", or modules joined by '+': vp_hf_lora_targets(); or a method by name: "ia3", peft's own targets;
     * "prompt", virtual tokens before each sequence, which are trained; "prefix", keys and values of such in each layer */
    const char *targets;
    int64_t     virtual_tokens;
    int64_t     rank;
    double      dropout;
    bool        is_bf16; /* else fp32, peft's default */
    bool        is_dora;
    const char *save; /* whole modules trained beside them: none (or NULL), or vp_hf_lora_saved() */
    int64_t     tokens; /* rows of the input's table trained beside them: new tokens */
} vp_hf_lora;

/* Whether peft's prepare_model_for_kbit_training(), which makes fp32 what is not quantised, is called before adapters are put
 * on quantised weights. FSDP's cards join none that is fp32 with what is packed. */
typedef enum vp_hf_prepare {
    VP_HF_PREPARE_AS_TRAINER, /* it is; TRL's trainers do not call it */
    VP_HF_PREPARE_ON,
    VP_HF_PREPARE_OFF
} vp_hf_prepare;

typedef struct vp_hf_request {
    /* torch, a plain loop; hf, transformers' Trainer; trl, SFTTrainer; dpo and reward, DPOTrainer and RewardTrainer, of whose
     * batch each is a pair; grpo, GRPOTrainer, of whose batch each is a completion behind its prompt */
    const char *trainer;
    const char *task;      /* clm, mlm, seq2seq, ...; NULL: that of the config's class */
    const char *precision; /* fp32, bf16-mixed, bf16, bf16-amp, fp16, fp16-mixed */
    const char *versions;  /* "transformers=4.57,torch=2.11": with these; NULL: as recorded */
    bool        precision_is_default; /* nobody gave it: what refuses it says so */
    const char *attention;            /* sdpa:flash, sdpa:efficient, sdpa:math, eager */
    const char *optimizer;            /* vp_optimizer_step_name() */
    const char *recompute; /* none, full, full:reentrant, every:N (layers), first:N of them */
    bool        offloads;  /* what a checkpoint keeps is in pinned host memory */
    bool        padded;    /* a mask with padding is passed */
    int64_t     packed;    /* documents in a sequence, all of a batch's in one row; 0: not packed */
    bool
        has_reference; /* grpo: beta is not 0, and a second model is there unless adapters are trained */
    bool        counts_engine; /* grpo: vLLM's part of the card is added to what comes out */
    bool        generates;     /* grpo: the model makes the completions itself, no engine does */
    bool        keep_output;
    const char *liger; /* use_liger_kernel: none (or NULL), loss (its loss alone), all */
    bool        clips; /* gradients to a norm, before the optimizer's step */
    vp_hf_lora  lora;
    /* of a model that is trained whole: none (or NULL), embeddings, layers: those and the first. vision: a tower of pictures and
     * what stands between it and the language model, adapters there too */
    const char     *freeze;
    int64_t         frozen_layers;
    const char     *load;         /* of the frozen model: none (or NULL), nf4, nf4-dq, int8 */
    vp_hf_prepare   prepare;      /* where it is loaded so */
    const char     *resident;     /* what else stays: none (or NULL), or vp_hf_resident_is() */
    const vp_model *second;       /* the second model of some; NULL: as the first. Borrowed */
    const char     *parallel;     /* of trainers/torch/world.h, or none (or NULL) */
    const char     *offload;      /* none (or NULL), optimizer, params */
    int64_t         world;        /* ranks; 0 is 1 */
    int64_t         device_bytes; /* of the card, which DeepSpeed asks for; 0: enough */
    int64_t         batch, accumulation;
    bool syncs_each; /* of several cards: each micro-batch's gradients are reduced, not their sum */
    int64_t eval_batch; /* of an evaluation behind the second step; 0: none */
    int64_t
        target_seq; /* of seq2seq, 0: as seq; of grpo the completion's tokens, which seq counts too */
    int64_t images; /* pictures of a sample, in front of a text; 0: texts alone */
    int64_t image_width, image_height; /* in pixels, where a model takes others; 0: not said */
    int64_t seq, default_seq;          /* 0: the smaller of the model's positions and default_seq */
    int     capability;                /* 90 */
    bool
        prefers_cudnn; /* PyTorch on it takes cuDNN's attention where it may: vp_hf_prefers_cudnn() */
    int64_t processors; /* multiprocessors */
    /* of cuBLAS, a thread; 0: none, VP_HF_WORKSPACE_OF_CARD: by the compute capability */
    bool
        addresses_rise; /* of all segments, as where a stand-in gave them so; no card's driver does */
    int64_t     workspace_bytes;
    const char *alloc_conf; /* PYTORCH_ALLOC_CONF, or NULL */
    int64_t
         limit_bytes; /* what the card has for PyTorch's allocator, which gives back its cache where that ends; 0: enough */
    bool checkpoints; /* asks for the phases save and resume too, where vp_hf_knows_checkpoints() */
    bool
         compiles; /* by torch.compile: the eager step stands in, as far off as VP_HF_COMPILED_LOW and _HIGH */
    bool terse; /* nobody reads why it is refused: the nearest step is not looked for */
    /* for searches: more reserved bytes than so many, at the upper end of an interval of this share of them, are VP_ERR_NO_FIT;
     * where another step stands in, and there is a share, it is VP_HF_STAND_IN_SHARE at least. What is at rest, and needed where that
     * counts alone, is judged by the least share of all that are compared, for it is theirs too. 0: any number is answered */
    int64_t at_most_bytes;
    double  at_most_share, least_share;
    bool    counts_needed; /* of at_most_bytes: what any setting of the allocator gives alone */
    /* and nothing else is asked: no bytes are answered, only whether any setting reserves more (ledger.h) */
    bool counts_alone;
    bool loads_only; /* the model, and no step */
    bool rests_only; /* of at_most_bytes: whether what is at rest is more */
    bool
                 of_usual_sizes; /* heads of more than 128, and one key and value head, are as others: of a sibling, hf_composed.h */
    vp_hf_shelf *shelf; /* recordings are read once for all requests of it; NULL: for each */
} vp_hf_request;

/* Of host memory, at their peaks and of one process: vp_hf_host_of(). */
typedef struct vp_hf_host {
    bool    is_known;
    int64_t load_bytes, save_bytes, resume_bytes;
} vp_hf_host;

/* A batch's tensors: as asked for; in pages, as shared memory has them; in powers of two, as pinned memory does. */
typedef struct vp_hf_batch {
    int64_t bytes, paged_bytes, pinned_bytes;
} vp_hf_batch;

typedef struct vp_hf_estimate {
    vp_ledger_phase phases[VP_LEDGER_PHASES];
    int             n_phases, peak; /* peak: the phase of the largest allocated_bytes */
    int64_t         allocated_bytes, reserved_bytes, seq;
    int64_t         positions; /* that the model was made for; 0: its config names none */
    int64_t
        heard; /* tokens that a sample's sound makes, where there is one; seq is what is written of it */
    int64_t     pinned_bytes, host_bytes; /* of one rank: pinned, and all that is offloaded */
    vp_hf_host  host;
    vp_hf_batch batch;
    int64_t
        n_returns; /* times in the last step that PyTorch gave back its cache: none without a limit */
    int64_t     n_trained, n_params; /* parameters */
    const char *attention;           /* what runs: as asked, or what sdpa takes instead */
    char        versions[128], task[40];
    char        step[660]; /* the recorded one that was played: family and key */
    char        assumptions[VP_HF_ASSUMPTIONS][200];
    int         n_assumptions;
    /* beside VP_ERR_NO_FIT: weights, gradients and states alone are more, whatever the batch and what is recomputed */
    bool is_too_large_at_rest;
    bool is_needed_too_large; /* beside VP_ERR_NO_FIT: whatever the allocator's settings */
    bool stands_in;     /* another step, for this one was not recorded: VP_HF_STAND_IN_SHARE */
    bool is_composed;   /* put together from steps that were recorded: hf_composed.h */
    bool is_unrecorded; /* beside VP_ERR_INPUT: nothing else speaks against it */
} vp_hf_estimate;

/* What the reserved bytes may be off by, as a share of them: as vp_world_reserved_share(), and more of TRL's steps: its
 * own script, played (tests/emit/end_to_end.py), was 2.8 % above, since holes still grew in the third step. */
#define VP_HF_TRL_SHARE 0.04
/* Rows of adapters on several cards (adapted_worlds.csv): of quantised weights 7 % either way, for loading leaves holes whose order
 * the recording does not have; under ZeRO 3 one of three is 17 % above. */
#define VP_HF_QUANTISED_WORLD_SHARE 0.08
#define VP_HF_ADAPTED_ZERO3_SHARE   0.18
double vp_hf_reserved_share(const vp_hf_request *request);

/* The same where checkpoints by use_reentrant=False stand in for those by True: of 290 settings that have both the latter reserve 3.4 % less
 * to 6.7 % more. A plain loop's step that stands in for Trainer's needs none: of 631 rows of Trainer's that are answered so
 * the farthest is 1.3 % off, and 95 in 100 are within 0.005 %. */
#define VP_HF_STAND_IN_SHARE 0.10

/* What a step that torch.compile has compiled takes beside the eager one, as shares of its reserved bytes. Pairs of steps that were
 * played (tests/oracles/compiled.csv) took 1 to 48 % less: 18 of 18 are within, so the next one is with probability 19/20. They were chosen, not
 * drawn; so the interval reaches further. Inductor fuses what works element by
 * element and computes some of it again in the backward pass; of small steps the most is left. */
#define VP_HF_COMPILED_LOW  0.60
#define VP_HF_COMPILED_HIGH 0.10

/* Steps with a mask were recorded over sequences that are multiples of it: of others memory-efficient attention copies the mask. */
enum { VP_MASKED_BY = 8 };

/* A card that PyTorch asks cuDNN's attention on first: what runs there under a mask was not recorded, but by rule (hf_cudnn.h). Where no
 * card is named nobody asks. */
bool vp_hf_prefers_cudnn(int capability);

/* vp_err.field of what a card does not run: the option of the setting with this key. */
#define VP_HF_REFUSED_BY_CARD "--"

/* VP_ERR_NO_FIT: more than request->at_most_bytes. VP_ERR_INPUT: a family, a variant or a field of the config without a recording, with what there
 * is. */
vp_status vp_hf_estimate_run(const vp_model *model, const vp_hf_request *request,
                             vp_hf_estimate *out, vp_err *err);

#endif
