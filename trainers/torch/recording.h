/* trainers/torch/recording.h: a family's training step as PyTorch's allocator saw it, recorded once and
 * played for any sizes.
 *     VP_TRY(vp_recording_open("recordings/llama.rec", &recording, err));
 *     VP_TRY(vp_recording_find(recording, "task=clm precision=bf16 ...", &program, err));
 *     VP_TRY(vp_recorded_new(program, &symbols, n_layers, &ledger, &step, err));
 *     VP_TRY(vp_recorded_play(step, "load", err));
 *     VP_TRY(vp_recorded_play(step, "forward", err));
 *
 * A program has phases; a phase has sections of allocations and frees, of which some run once a block
 * of layers. README.md says how a recording is made, tests/oracles/programs/ makes it. */
#ifndef VP_TRAINERS_TORCH_RECORDING_H
#define VP_TRAINERS_TORCH_RECORDING_H

#include "trainers/torch/ledger.h"
#include "trainers/torch/symbols.h"

/* Groups of equal layers: those of a decoder, or of an encoder and a decoder; behind them the tiles of Liger's loss. */
enum { VP_RECORDED_GROUPS = 2, VP_RECORDED_TILES = VP_RECORDED_GROUPS };

typedef struct vp_recording        vp_recording;
typedef struct vp_recorded_program vp_recorded_program; /* lives in its recording */
typedef struct vp_recorded         vp_recorded;

/* VP_ERR_INPUT, located: no such file, or not a recording. */
vp_status vp_recording_open(const char *path, vp_recording **out, vp_err *err);
void      vp_recording_free(vp_recording *recording);

const char *vp_recording_versions(const vp_recording *recording); /* "torch=2.11.0 ..." */

/* Other versions with which programs of the recording were played: line i, NULL past the end. */
const char *vp_recording_also(const vp_recording *recording, int64_t i);

/* Line i of those that say where a config has its sizes: "SYMBOL KEY ABSENT NULL", the last two being
 * what a key that is not there and a null mean: a number, an expression of the symbols before, "-" for
 * neither. KEY may end in "+2": the size is two more. SYMBOL is one of symbols.h, L or M (layers of a group), "tied" or "window". */
const char *vp_recording_field(const vp_recording *recording, int64_t i);

/* Whether a table of the model has a row for each position, so that no longer sequence runs. */
bool vp_recording_learns_positions(const vp_recording *recording);

/* Line i of those that say what the recorded config had: "choice KEY JSON" or "dropout KEY
 * zero|some"; NULL past the end. */
const char *vp_recording_requirement(const vp_recording *recording, int64_t i);

/* From several threads if they like. The variant of this key, read in full; *out is NULL where there is none. vp_recording_key(): the
 * key of variant i, NULL past the end. VP_ERR_INPUT: its text is broken. */
vp_status   vp_recording_find(vp_recording *recording, const char *key,
                              const vp_recorded_program **out, vp_err *err);
const char *vp_recording_key(const vp_recording *recording, int64_t i);

/* Whether so many layers are whole blocks of a program, and what it has beside them. */
bool vp_recorded_repeats(const vp_recorded_program *program, int64_t n_layers);

/* A program for these sizes and so many layers, in a ledger that is borrowed. What is
 * allocated stays until vp_recorded_free(), which takes NULL. VP_ERR_INPUT: too few layers. */
vp_status vp_recorded_new(const vp_recorded_program *program, const vp_symbols *symbols,
                          const int64_t n_layers[VP_RECORDED_GROUPS], vp_ledger *ledger,
                          vp_recorded **out, vp_err *err);
void      vp_recorded_free(vp_recorded *step);

/* cuBLAS's workspaces, taken at the first product of a thread where the recording took its own: so
 * many bytes instead of those of the recorded card; 0: none. cuBLASLt's 1 MiB stays. */
void vp_recorded_workspace(vp_recorded *step, int64_t bytes);
/* A product of somebody else's comes before the phase, whose first workspace is taken by it. Errors as the ledger's. */
vp_status vp_recorded_multiplies(vp_recorded *step, const char *phase, vp_err *err);

/* A program is the same with the versions of line i of vp_recording_also() as far as its allocations go that stay beyond an operator; what
 * of them is otherwise vp_recorded_as() plays, before the first phase. vp_recorded_has_ones(): the inputs have a mask besides. */
bool vp_recorded_is_known(const vp_recorded_program *program, int64_t i);
bool vp_recorded_has_ones(const vp_recorded_program *program, int64_t i);
void vp_recorded_as(vp_recorded *step, int64_t i);

/* Each of so many layers keeps a tensor more of so many bytes from its forward pass to its backward one; again: from that within backward,
 * where checkpoints have it run again. Once a step. */
vp_status vp_recorded_keeps(vp_recorded *step, int64_t n_layers, int64_t bytes, bool again,
                            vp_err *err);

/* What is loaded is another's that stays, not trained here: so are its weights named. */
void vp_recorded_stays(vp_recorded *step);

/* The model ties its tables: what it has not is left out. False: the program has no such line. */
bool vp_recorded_tie(vp_recorded *step);

/* All that was said of it so far is final: its sizes are worked out. The first phase that is played does so too. VP_ERR_NOMEM. */
vp_status vp_recorded_ready(vp_recorded *step, vp_err *err);

/* Name of phase i in the order recorded; NULL past the end. */
const char *vp_recorded_phase(const vp_recorded *step, int i);

/* Play a phase within the ledger's open one: those that load come before "inputs"; then "forward",
 * "output" (the model's output goes), "backward", and "..._more" where gradients are there.
 * VP_ERR_NO_FIT: the device is full. */
vp_status vp_recorded_play(vp_recorded *step, const char *phase, vp_err *err);

/* Requested bytes of the trained parameters, in the order of loading. */
const int64_t *vp_recorded_parameters(const vp_recorded *step, int64_t *n);
/* Rows of the i-th, where it is as large as a look-up table; else 0. */
int64_t vp_recorded_rows(const vp_recorded *step, int64_t i);
/* Whether the i-th is a vector: of a norm, or a bias. */
bool vp_recorded_is_vector(const vp_recorded *step, int64_t i);
/* Whether the i-th has the rank of adapters for a dimension. */
bool vp_recorded_has_rank(const vp_recorded *step, int64_t i);
/* Of them the first so many are look-up tables. */
int64_t vp_recorded_tables(const vp_recorded *step);
/* Tensor i of the batch, as its phase "inputs" has it; 0 past the end. */
int64_t vp_recorded_input(const vp_recorded *step, int64_t i);
/* Weights that get no gradient; adapters on such that get none either, as those of a tower of images beside a text. */
int64_t vp_recorded_frozen_bytes(const vp_recorded *step);
int64_t vp_recorded_idle_bytes(const vp_recorded *step);
int64_t vp_recorded_quantised_bytes(const vp_recorded *step); /* without their scales */

/* A weight: of one of the layers (counted over all groups), or before or behind them. */
enum { VP_WEIGHT_BEFORE = -1, VP_WEIGHT_BEHIND = -2 };

typedef struct vp_recorded_weight {
    int64_t  bytes;
    int64_t  layer;
    int64_t  rows;    /* of a look-up table, else 0 */
    vp_owner owner;   /* PARAMETER: trained; FROZEN, QUANTISED */
    int64_t  place;   /* for vp_recorded_drop_weight() */
    bool     is_idle; /* an adapter that is to be trained and gets no gradient, which is FROZEN */
} vp_recorded_weight;

/* Weights in the order of loading: what is trained; what is frozen and quantised as well; of these what is in the ledger now.
 * Bytes of gradients in the order in which backward has them. Both are the caller's, to be freed. Which layer a weight is
 * of is known where layers are regular: loaded one like the other. */
typedef enum vp_weights { VP_WEIGHTS_TRAINED, VP_WEIGHTS_ALL, VP_WEIGHTS_THERE } vp_weights;
bool      vp_recorded_is_regular(const vp_recorded *step);
vp_status vp_recorded_weights(const vp_recorded *step, vp_weights which, vp_recorded_weight **out,
                              int64_t *n, vp_err *err);
vp_status vp_recorded_gradients(const vp_recorded *step, int64_t **out, int64_t *n, vp_err *err);

/* Who looks on while phases are played. */
typedef struct vp_recorded_watch {
    void *user;
    bool  holds_weights; /* trained weights are the watcher's: they are not allocated here */
    bool  holds_frozen;  /* likewise frozen ones */
    bool  holds_casts;   /* likewise autocast's copies of weights in 16 bits */
    /* A layer's part of the phase begins, counted in the order of the phase; behind the last one with
     * their number. */
    vp_status (*layer)(void *user, const char *phase, int64_t i, vp_err *err);
    /* NULL, or: the gradient of the logits is there, so that backward goes on to what made them. */
    vp_status (*logits)(void *user, vp_err *err);
    /* Gradient i of backward is whole, as a hook on it sees it; who frees the block leaves it empty. */
    vp_status (*gradient)(void *user, int64_t i, vp_ledger_block *block, vp_err *err);
    /* NULL, or: what was freed behind gradients is, and something else is allocated next, so that hooks on their parameters have
     * run. Not behind the phase's last. */
    vp_status (*settled)(void *user, vp_err *err);
} vp_recorded_watch;

void vp_recorded_watched(vp_recorded *step, const vp_recorded_watch *watch); /* borrowed */

/* Where a weight that was loaded is: who lets it go puts another there, or leaves it empty. */
vp_ledger_block *vp_recorded_weight_block(vp_recorded *step, const vp_recorded_weight *weight);
/* A weight that was loaded goes: another has a part of it. */
void vp_recorded_drop_weight(vp_recorded *step, const vp_recorded_weight *weight);

/* zero_grad(set_to_none=True); the batch goes. */
void vp_recorded_drop_gradients(vp_recorded *step);
void vp_recorded_drop_inputs(vp_recorded *step);

#endif
