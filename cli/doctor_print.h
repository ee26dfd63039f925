/* cli/doctor_print.h: what vplan doctor found, for people and as JSON. */
#ifndef VP_CLI_DOCTOR_PRINT_H
#define VP_CLI_DOCTOR_PRINT_H

#include "base/text.h"
#include "doctor/oom.h"
#include "doctor/snapshot.h"
#include "doctor/summary.h"
#include "doctor/this_machine.h"

#include <jansson.h>

/* Commands to type next. */
enum { VP_MAX_NEXT = 3 };
typedef struct vp_doctor_next {
    vp_text commands[VP_MAX_NEXT];
    int     n;
} vp_doctor_next;

/* After an out-of-memory text: with the model and the arguments of the command that the log shows, else with
 * what the person has to fill in, in capitals. Release with vp_doctor_next_release(). */
vp_status vp_doctor_next_of(vp_arena *arena, const vp_oom *oom, vp_doctor_next *out, vp_err *err);
void      vp_doctor_next_release(vp_doctor_next *next);

void    vp_doctor_print_oom(const vp_oom *oom, const vp_doctor_next *next);
json_t *vp_doctor_oom_json(const vp_oom *oom, const vp_doctor_next *next);

void    vp_doctor_print_snapshot(const vp_snapshot *s);
json_t *vp_doctor_snapshot_json(const vp_snapshot *s);

void    vp_doctor_print_summary(const vp_summary *s);
json_t *vp_doctor_summary_json(const vp_summary *s);

void    vp_doctor_print_machine(const vp_machine *m);
json_t *vp_doctor_machine_json(const vp_machine *m);

/* Remedies, with what they save; and their array. */
void    vp_doctor_print_remedies(const vp_remedy *remedies, int n);
json_t *vp_doctor_remedies_json(const vp_remedy *remedies, int n);

/* "FRAGMENTATION: ...", as long as it may be; good: in the colour of what is well. */
void vp_doctor_print_answer(const char *word, const char *what, bool good);

/* Bytes, and what they are, below each other. */
void vp_doctor_print_sized(int64_t bytes, const char *what);
void vp_doctor_print_next(const vp_doctor_next *next);

#endif
