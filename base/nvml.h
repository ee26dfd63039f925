/* base/nvml.h: what NVIDIA's driver says of its cards. Each question opens the driver's management
 * library (NVML) where there is one, and closes it again; it makes no CUDA context.
 *     vp_nvml_card card;
 *     if (vp_nvml_card_at(0, &card)) ... card.product, card.free_bytes ... */
#ifndef VP_BASE_NVML_H
#define VP_BASE_NVML_H

#include <stdbool.h>
#include <stdint.h>

typedef struct vp_nvml_card {
    char    product[96];
    int64_t free_bytes, total_bytes, used_bytes;
} vp_nvml_card;

/* The card with this number, in the driver's own order. false: no library, or no such card. */
bool vp_nvml_card_at(unsigned idx, vp_nvml_card *out);

/* Who computes on that card: up to max of them; how many, or -1: the driver does not tell. In a container without the
 * host's process numbers there may be none. */
typedef struct vp_nvml_process {
    int64_t pid, bytes; /* bytes -1: not told */
} vp_nvml_process;
int vp_nvml_processes_at(unsigned idx, vp_nvml_process *list, int max);

/* Of the card at a bus ("" for none): its bytes in use by this process and by everybody, -1 where
 * the driver does not tell; the driver's version, "" likewise. */
typedef struct vp_nvml_answer {
    int64_t process_bytes, all_bytes;
    char    driver[32];
} vp_nvml_answer;
vp_nvml_answer vp_nvml_ask(const char *bus);

#endif
