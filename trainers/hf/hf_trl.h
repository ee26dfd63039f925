/* trainers/hf/hf_trl.h: what TRL's trainers (1.16) do that transformers' does not.
 *     VP_TRY(vp_hf_trl_runs(&request, err));
 *     vp_hf_trl_assume(&request, &estimate); */
#ifndef VP_TRAINERS_HF_TRL_H
#define VP_TRAINERS_HF_TRL_H

#include "trainers/hf/hf_request.h"

/* Whether a trainer of TRL's (1.16, in torch 2.11) trains so. VP_ERR_INPUT: its step ends with an error. */
typedef struct vp_hf_trl_question {
    const char *precision;
    int         capability;   /* 80: 8.0 */
    bool        is_quantised; /* adapters over such weights */
    bool        is_default;   /* nobody gave the precision, and the error says so */
    bool        of_files;     /* files say it: the error has no advice in options */
} vp_hf_trl_question;
vp_status vp_hf_check_trl(const vp_hf_trl_question *q, vp_err *err);

/* The precision in which it does where it does not in this one; NULL: in none. */
const char *vp_hf_trl_instead(const vp_hf_trl_question *q);

/* The same of a request. */
vp_status vp_hf_trl_runs(const vp_hf_request *request, vp_err *err);

/* max_completion_length of TRL 1.16's GRPOConfig, tokens. */
enum { VP_HF_USUAL_COMPLETION = 512 };

/* How many tokens of a sequence are the completion that GRPOTrainer learns from, behind its prompt. */
int64_t vp_hf_trl_completion_of(const vp_hf_request *request, int64_t seq);
/* The same of out->seq; out says so where nobody did. VP_ERR_USAGE: the prompt would have none. */
vp_status vp_hf_trl_completion(const vp_hf_request *request, vp_hf_estimate *out, int64_t *tokens,
                               vp_err *err);

/* Says what the recorded step is of. */
void vp_hf_trl_assume(const vp_hf_request *request, vp_hf_estimate *out);

#endif
