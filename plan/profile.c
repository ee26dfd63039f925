#include "plan/profile.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

vp_profile *vp_profile_new(void)
{
    return calloc(1, sizeof(vp_profile));
}

void vp_profile_free(vp_profile *p)
{
    if (p)
        free(p->rows);
    free(p);
}

static vp_profile_row *find(const vp_profile *p, vp_kernel kernel, vp_dtype dtype,
                            const int64_t *ints, uint32_t lacks)
{
    size_t n_bytes = (size_t)vp_kernel_info_of(kernel)->n_ints * sizeof *ints;

    for (int64_t i = 0; i < p->n_rows; i++)
        if (p->rows[i].kernel == kernel && p->rows[i].dtype == dtype && p->rows[i].lacks == lacks &&
            memcmp(p->rows[i].ints, ints, n_bytes) == 0)
            return &p->rows[i];
    return NULL;
}

vp_profile *vp_profile_copy(const vp_profile *profile)
{
    vp_profile *copy = vp_profile_new();

    for (int64_t i = 0; copy && i < profile->n_rows; i++)
        if (!vp_profile_add(copy, &profile->rows[i])) {
            vp_profile_free(copy);
            return NULL;
        }
    if (copy) {
        memcpy(copy->device, profile->device, sizeof copy->device);
        memcpy(copy->backend, profile->backend, sizeof copy->backend);
        copy->outside                 = profile->outside;
        copy->link                    = profile->link;
        copy->host_update_bytes_per_s = profile->host_update_bytes_per_s;
    }
    return copy;
}

bool vp_profile_add(vp_profile *p, const vp_profile_row *row)
{
    vp_profile_row new = *row, *old;

    assert(row->kernel < VP_N_KERNELS && row->dtype < VP_N_DTYPES);

    new.lacks = vp_kernel_lacks(row->kernel, row->dtype, row->lacks);
    old       = find(p, new.kernel, new.dtype, new.ints, new.lacks);
    if (old) {
        *old = new;
        return true;
    }
    if (p->n_rows == p->cap_rows) {
        int64_t         cap  = p->cap_rows ? p->cap_rows * 2 : 64;
        vp_profile_row *rows = realloc(p->rows, (size_t)cap * sizeof *rows);
        if (!rows)
            return false;
        p->rows     = rows;
        p->cap_rows = cap;
    }
    assert(p->n_rows < p->cap_rows);
    p->rows[p->n_rows++] = new;
    return true;
}

/* What a kernel's time grows with. */
static double work(vp_kernel kernel, vp_dtype dtype, const int64_t *ints, uint32_t lacks)
{
    double flop = vp_kernel_flop(kernel, ints);
    return flop > 0 ? flop : vp_kernel_bytes_moved(kernel, dtype, ints, lacks);
}

double vp_profile_seconds(const vp_profile *p, vp_kernel kernel, vp_dtype dtype,
                          const int64_t *ints, uint32_t absent, bool *measured)
{
    uint32_t              lacks = vp_kernel_lacks(kernel, dtype, absent);
    const vp_profile_row *row = find(p, kernel, dtype, ints, lacks), *near = NULL;
    double                w = work(kernel, dtype, ints, lacks), best = INFINITY;

    *measured = row != NULL;
    if (row)
        return row->seconds;
    for (int64_t i = 0; i < p->n_rows; i++) {
        if (p->rows[i].kernel != kernel || p->rows[i].dtype != dtype)
            continue;
        double distance =
            fabs(log((work(kernel, dtype, p->rows[i].ints, p->rows[i].lacks) + 1) / (w + 1)));
        if (distance < best) {
            best = distance;
            near = &p->rows[i];
        }
    }
    if (!near && dtype == VP_DTYPE_BF16_GRADS) { /* from before gradients could be bf16 */
        double s  = vp_profile_seconds(p, kernel, VP_DTYPE_BF16, ints, absent, measured);
        *measured = false;
        return s;
    }
    if (!near && kernel == VP_K_LINEAR_ADD_FWD) { /* from before there was one: begins alike */
        double s  = vp_profile_seconds(p, VP_K_LINEAR_FWD, dtype, ints, absent, measured);
        *measured = false;
        return s;
    }
    return near ? near->seconds * (w + 1) / (work(kernel, dtype, near->ints, near->lacks) + 1) : -1;
}

vp_algorithm vp_profile_algorithm(const vp_profile *p, vp_kernel kernel, vp_dtype dtype,
                                  const int64_t *ints, uint32_t lacks)
{
    const vp_profile_row *row = find(p, kernel, dtype, ints, vp_kernel_lacks(kernel, dtype, lacks));

    return row ? row->algorithm : (vp_algorithm){{0}};
}

json_t *vp_profile_to_json(const vp_profile *p)
{
    json_t *rows = json_array();
    char    algorithm[VP_ALGORITHM_TEXT + 1];

    for (int64_t i = 0; i < p->n_rows; i++) {
        const vp_kernel_info *info = vp_kernel_info_of(p->rows[i].kernel);
        json_t               *j    = json_pack("{s:s}", "kernel", info->name);
        if (j && p->rows[i].dtype != VP_DTYPE_F32)
            json_object_set_new(j, "dtype", json_string(vp_dtype_name(p->rows[i].dtype)));
        if (j)
            vp_ints_write(j, p->rows[i].kernel, p->rows[i].ints);
        if (j && !vp_lacks_write(j, p->rows[i].kernel, p->rows[i].lacks)) {
            json_decref(j);
            j = NULL;
        }
        if (j)
            json_object_set_new(j, "seconds", json_real(p->rows[i].seconds));
        if (j && vp_algorithm_is_set(&p->rows[i].algorithm))
            json_object_set_new(j, "algorithm",
                                json_string(vp_algorithm_text(&p->rows[i].algorithm, algorithm)));
        json_array_append_new(rows, j);
    }
    json_t *root = json_pack("{s:i, s:s, s:s, s:o}", "schema_version", 1, "device", p->device,
                             "backend", p->backend, "rows", rows);
    if (root && p->outside.measured_by != VP_OVERHEAD_NOT_MEASURED &&
        json_object_set_new(root, "outside", vp_overhead_to_json(&p->outside)) != 0) {
        json_decref(root);
        return NULL;
    }
    if (root && vp_link_rates_least(&p->link) > 0 &&
        json_object_set_new(root, "link", vp_link_rates_to_json(&p->link)) != 0) {
        json_decref(root);
        return NULL;
    }
    if (root && p->host_update_bytes_per_s > 0)
        json_object_set_new(root, "host_update_bytes_per_s", json_real(p->host_update_bytes_per_s));
    return root;
}

vp_status vp_algorithm_read(const vp_json_node *call, vp_kernel kernel, vp_algorithm *out,
                            vp_err *err)
{
    const char *text;
    vp_status   st = VP_OK;

    *out = (vp_algorithm){{0}};
    if (!vp_json_has(call, "algorithm"))
        return VP_OK;
    VP_TRY(vp_json_string(call, "algorithm", &text, err));
    if (!vp_kernel_is_product(kernel))
        VP_TRY(vp_json_fail(call, "algorithm", err, "is for matrix products, which %s is not",
                            vp_kernel_info_of(kernel)->name));
    if (!vp_algorithm_parse(text, out))
        VP_TRY(vp_json_fail(call, "algorithm", err, "is %d hexadecimal digits", VP_ALGORITHM_TEXT));
out:
    return st;
}

vp_status vp_ints_read(const vp_json_node *call, vp_kernel kernel, int64_t most, int64_t *ints,
                       vp_err *err)
{
    const vp_kernel_info *info = vp_kernel_info_of(kernel);
    vp_status             st   = VP_OK;

    for (int k = 0; k < info->n_ints; k++) {
        const vp_int_info *of = &info->ints[k];
        if (!of->if_said || vp_json_has(call, of->name))
            VP_TRY(vp_json_int(call, of->name, of->min, vp_min_i64(most, of->max), &ints[k], err));
    }
out:
    return st;
}

void vp_ints_write(json_t *call, vp_kernel kernel, const int64_t *ints)
{
    const vp_kernel_info *info = vp_kernel_info_of(kernel);

    for (int k = 0; k < info->n_ints; k++)
        if (ints[k] || !info->ints[k].if_said)
            json_object_set_new(call, info->ints[k].name, json_integer((json_int_t)ints[k]));
}

bool vp_lacks_write(json_t *call, vp_kernel kernel, uint32_t lacks)
{
    lacks         = vp_kernel_lacks(kernel, VP_DTYPE_BF16, lacks);
    json_t *names = lacks ? json_array() : NULL;

    for (int i = 0; names && i < vp_kernel_info_of(kernel)->n_operands; i++)
        if (lacks >> i & 1)
            json_array_append_new(names, json_string(vp_kernel_info_of(kernel)->operands[i].name));
    return !lacks || json_object_set_new(call, "without", names) == 0;
}

vp_status vp_lacks_read(const vp_json_node *call, vp_kernel kernel, vp_dtype dtype, uint32_t *lacks,
                        vp_err *err)
{
    vp_json_node names, node;
    const char  *name;
    int64_t      n;
    vp_status    st = VP_OK;

    *lacks = 0;
    if (!vp_json_has(call, "without"))
        return VP_OK;
    VP_TRY(vp_json_array(call, "without", &names, &n, err));
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(vp_json_element(&names, i, &node, err));
        VP_TRY(vp_json_as_string(&node, &name, err));
        int      k   = vp_kernel_operand(kernel, name);
        uint32_t bit = k < 0 ? 0 : vp_kernel_lacks(kernel, dtype, 1u << k);
        if (!bit || *lacks & bit)
            VP_TRY(vp_json_fail(call, "without", err,
                                "names what no call of %s in %s lacks, or names it twice",
                                vp_kernel_info_of(kernel)->name, vp_dtype_name(dtype)));
        *lacks |= bit;
    }
out:
    return st;
}

vp_status vp_profile_from_json(const vp_json_node *root, vp_profile **out, vp_err *err)
{
    static const char *const keys[] = {"schema_version", "device", "backend",
                                       "outside",        "link",   "host_update_bytes_per_s",
                                       "rows",           NULL};
    vp_profile              *p      = vp_profile_new();
    vp_json_node             rows, node;
    const char              *text;
    int64_t                  n, version;
    vp_status                st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, p);
    VP_TRY(vp_json_int(root, "schema_version", 1, 1, &version, err));
    VP_TRY(vp_json_only_keys(root, keys, err));
    VP_TRY(vp_json_string(root, "device", &text, err));
    snprintf(p->device, sizeof p->device, "%s", text);
    VP_TRY(vp_json_string(root, "backend", &text, err));
    snprintf(p->backend, sizeof p->backend, "%s", text);
    if (vp_json_has(root, "outside")) {
        VP_TRY(vp_json_object(root, "outside", &node, err));
        VP_TRY(vp_overhead_from_json(&node, &p->outside, err));
    }
    if (vp_json_has(root, "link")) {
        VP_TRY(vp_json_object(root, "link", &node, err));
        VP_TRY(vp_link_rates_from_json(&node, &p->link, err));
    }
    if (vp_json_has(root, "host_update_bytes_per_s"))
        VP_TRY(vp_json_real(root, "host_update_bytes_per_s", 1, 1e18, &p->host_update_bytes_per_s,
                            err));
    VP_TRY(vp_json_array(root, "rows", &rows, &n, err));
    for (int64_t i = 0; i < n; i++) {
        vp_profile_row row = {.dtype = VP_DTYPE_F32};
        VP_TRY(vp_json_element(&rows, i, &node, err));
        VP_TRY(vp_json_string(&node, "kernel", &text, err));
        row.kernel = vp_kernel_by_name(text);
        if (row.kernel == VP_N_KERNELS)
            VP_TRY(vp_json_fail(&node, "kernel", err, "no such kernel"));
        if (vp_kernel_info_of(row.kernel)->kind == VP_KERNEL_TRANSFER)
            VP_TRY(
                vp_json_fail(&node, "kernel", err, "copies go by the link's rate, not a profile"));
        if (vp_json_has(&node, "dtype")) {
            VP_TRY(vp_json_string(&node, "dtype", &text, err));
            row.dtype = vp_dtype_by_name(text);
            if (!vp_dtype_is_of_calls(row.dtype))
                VP_TRY(
                    vp_json_fail(&node, "dtype", err, "a kernel runs in fp32, tf32, bf16 or fp16"));
        }
        const char *row_keys[5 + VP_MAX_INTS + 1] = {"kernel", "seconds", "dtype", "algorithm",
                                                     "without"};
        for (int k = 0; k < vp_kernel_info_of(row.kernel)->n_ints; k++)
            row_keys[5 + k] = vp_kernel_info_of(row.kernel)->ints[k].name;
        VP_TRY(vp_json_only_keys(&node, row_keys, err));
        VP_TRY(vp_ints_read(&node, row.kernel, INT64_C(1) << 40, row.ints, err));
        VP_TRY(vp_json_real(&node, "seconds", 0, 1e9, &row.seconds, err));
        VP_TRY(vp_algorithm_read(&node, row.kernel, &row.algorithm, err));
        VP_TRY(vp_lacks_read(&node, row.kernel, row.dtype, &row.lacks, err));
        VP_TRY_ALLOC(err, vp_profile_add(p, &row));
    }
    *out = p;
    p    = NULL;
out:
    vp_profile_free(p);
    return st;
}

vp_status vp_profile_read(const char *path, vp_profile **out, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_status    st  = VP_OK;

    *out = NULL;
    VP_TRY(vp_json_read(path, VP_JSON_MAX_BYTES, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_profile_from_json(&root, out, err));
out:
    vp_json_doc_free(doc);
    return st;
}

vp_status vp_profile_write(const vp_profile *profile, const char *path, bool overwrite, vp_err *err)
{
    json_t   *j    = vp_profile_to_json(profile);
    vp_text   text = {0};
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, j && vp_json_dump(j, &text));
    VP_TRY(vp_file_write(path, text.data, text.n_bytes, overwrite, err));
out:
    vp_text_release(&text);
    json_decref(j);
    return st;
}
