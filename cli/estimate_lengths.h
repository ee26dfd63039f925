/* cli/estimate_lengths.h: samples of different lengths, and what batches of them are padded to.
 *     VP_TRY(vp_lengths_read("lengths.txt", &lengths, err));
 *     vp_lengths_of_batches(&lengths, 8, most, &batches);
 *     vp_lengths_free(&lengths); */
#ifndef VP_CLI_ESTIMATE_LENGTHS_H
#define VP_CLI_ESTIMATE_LENGTHS_H

#include "base/err.h"
#include "base/json.h"
#include "trainers/hf/hf_estimate.h"

#include <stdint.h>

/* How many samples have so many tokens. */
typedef struct vp_length {
    int64_t tokens, count;
} vp_length;

typedef struct vp_lengths {
    vp_length *of; /* rising, each once */
    int64_t    n, n_samples;
} vp_lengths;

/* Lines "TOKENS" or "TOKENS COUNT", parted by spaces, tabs or a comma; "#" begins a remark. VP_ERR_INPUT,
 * located: a line that is none, more than a billion samples, none. */
vp_status vp_lengths_read(const char *path, vp_lengths *out, vp_err *err);
void      vp_lengths_free(vp_lengths *lengths);

/* Of batches of so many samples, each cut to `most` tokens and padded to the batch's longest. */
typedef struct vp_length_batches {
    int64_t shortest, longest; /* tokens of a sample */
    double  mean;
    double  expected; /* the longest of a batch drawn by chance, on average          */
    double  share;    /* of such batches: those that hold a sample of the longest length */
    double  padding;  /* share of their tokens                                       */
    double  bucketed; /* the same where neighbours in length stand together          */
} vp_length_batches;

void vp_lengths_of_batches(const vp_lengths *lengths, int64_t batch, int64_t most,
                           vp_length_batches *out);

/* What they mean for a step: bytes of the card, -1 where that step was not recorded. */
typedef struct vp_length_answer {
    vp_length_batches batches;
    int64_t           n_samples, batch;
    int64_t           typical_seq, typical_bytes; /* a batch as long as the average one    */
    int64_t           deciding_seq; /* what the batch is padded to that takes most          */
    int64_t           packed_seq, packed_bytes; /* whole sequences of samples, no mask   */
} vp_length_answer;

/* What a batch is padded to that takes most of the card: the longest, request's, or a shorter one whose tensors
 * PyTorch's cache holds worse. */
int64_t vp_lengths_worst(const vp_lengths *lengths, const vp_model *model,
                         const vp_hf_request *request, int64_t most);

/* request is that of the deciding batch, with a sequence; context_bytes: outside PyTorch. */
void    vp_lengths_compare(const vp_lengths *lengths, const vp_model *model,
                           const vp_hf_request *request, int64_t most, int64_t context_bytes,
                           vp_length_answer *out);
json_t *vp_lengths_json(const vp_length_answer *answer);
void    vp_lengths_print(const vp_length_answer *answer);

#endif
