/* plan/plan_internal.h: the words of a plan file, one list for its writer and its reader, and what the files that
 * check a plan share. Lists of words end with NULL. */
#ifndef VP_PLAN_INTERNAL_H
#define VP_PLAN_INTERNAL_H

#include "base/json.h"
#include "plan/expand.h"

extern const char *const vp_plan_place_words[];
extern const char *const vp_plan_pass_words[];
extern const char *const vp_plan_init_words[];
extern const char *const vp_plan_accumulate_words[];
extern const char *const vp_plan_ahead_words[]; /* by vp_arg's ahead + 2 */
extern const char *const vp_plan_phase_words[];
extern const char *const vp_plan_label_place_words[];
extern const char        vp_plan_space_letters[];

/* plan/plan_fields.c: a member of a plan's file, or an error that says where it is. Of word the place in
 * names; int and real are -1 where they are left out, bytes what *out was, memory the device. A string, and
 * rows, which are zeroed, live in the plan's arena; array: out, for vp_json_element(). */
enum { VP_PLAN_MAX_ROWS = 200000 };
vp_status vp_field_word(const vp_json_node *node, const char *key, const char *const *names,
                        int *out, vp_err *err);
vp_status vp_field_string(vp_plan *plan, const vp_json_node *node, const char *key,
                          const char **out, vp_err *err);
vp_status vp_field_int(const vp_json_node *node, const char *key, int64_t *out, vp_err *err);
vp_status vp_field_real(const vp_json_node *node, const char *key, double *out, vp_err *err);
vp_status vp_field_bytes(const vp_json_node *node, const char *key, int64_t most, int64_t *out,
                         vp_err *err);
vp_status vp_field_rows(vp_plan *plan, const vp_json_node *node, const char *key, size_t row_size,
                        vp_json_node *array, void **out, int64_t *n, vp_err *err);
vp_status vp_field_memory(const vp_json_node *node, const char *key, vp_memory *out, vp_err *err);
/* Of the node's key, or of the node itself where that is NULL. */
vp_status vp_field_memory_named(const char *name, const vp_json_node *node, const char *key,
                                vp_memory *out, vp_err *err);

/* plan/plan_overlap.c: refuses two buffers that overlap while both live. peak_bytes: out, where the
 * buffers of each memory end. */
vp_status vp_plan_check_overlap(vp_arena *arena, const vp_expansion *x, const char *file,
                                int64_t *peak_bytes, vp_err *err);

/* plan/plan_order.c: that the steps, in their order, use what is there. step_s: out, of one optimizer
 * step. */
vp_status vp_plan_check_order(vp_arena *arena, const vp_plan *plan, const vp_bucket *bucket,
                              const vp_expansion *x, const char *file, double *step_s, vp_err *err);

/* plan/plan_place.c: where in the file: "buckets[0].programs[1].forward[3]". plan/plan_read.c finds its
 * line. */
typedef struct vp_place_in_file {
    char field[96];
} vp_place_in_file;
vp_place_in_file vp_place_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
vp_place_in_file vp_place_of_program(const vp_plan *plan, const vp_bucket *bucket,
                                     const vp_program *p, const char *member, int64_t idx);
/* An error found in a step says where that is: only then, since the text takes longer to make than
 * the checks take that found nothing. */
vp_status vp_place_in_step(vp_status st, const vp_plan *plan, const vp_bucket *bucket,
                           const vp_program *p, const vp_step *s, vp_err *err);

/* plan/plan_derive.c: in what a step, or a program, differs from what recipe, parameter table and batch
 * make of it, in words that follow its name; NULL: in nothing. Indices are in range. */
const char *vp_step_contradiction(const vp_plan *plan, const vp_bucket *bucket, const vp_program *p,
                                  int pass, const vp_step *step);
const char *vp_program_contradiction(const vp_plan *plan, const vp_program *p, int64_t *param_idx);

/* A plan's checks: the field of `file` is named in `err`, and the function goes to its end. */
#define BAD(field, ...) \
    do { \
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file, 0, (field), __VA_ARGS__); \
        goto out; \
    } while (0)
#define NEED(condition, field, ...) \
    do { \
        if (!(condition)) \
            BAD(field, __VA_ARGS__); \
    } while (0)

#endif
