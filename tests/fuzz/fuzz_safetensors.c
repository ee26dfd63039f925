/* A safetensors file: what is accepted lies end to end in the file, is found by name, and can be
 * read, raw and as float. */
#include "fuzz.h"

#include "base/safetensors.h"

static void follow(const vp_safetensors *file, size_t size)
{
    int64_t end = 0;
    vp_err  err = {0};

    for (int64_t i = 0; i < vp_safetensors_count(file); i++) {
        const vp_tensor_info *t = vp_safetensors_at(file, i);
        MUST(t->rank >= 0 && t->rank <= VP_TENSOR_MAX_RANK && t->begin_byte == end &&
             t->n_bytes >= 0);
        MUST(t->n_bytes == t->n_elements * vp_st_dtype_bytes(t->dtype));
        MUST(vp_safetensors_find(file, t->name) == t);
        end += t->n_bytes;
        MUST(end <= (int64_t)size);
        char  *raw    = malloc((size_t)t->n_bytes + 1);
        float *floats = malloc((size_t)t->n_elements * sizeof *floats + 1);
        MUST(raw && floats);
        MUST_OK(vp_safetensors_read(file, t, 0, t->n_elements, raw, &err));
        if (t->dtype <= VP_ST_BF16)
            MUST_OK(vp_safetensors_read_f32(file, t, 0, t->n_elements, floats, &err));
        free(raw);
        free(floats);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vp_safetensors *file = NULL;
    vp_err          err  = {0};
    vp_status       st   = vp_safetensors_open(fuzz_file(data, size), &file, &err);

    if (st == VP_OK) {
        fuzz_n_accepted++;
        follow(file, size);
    } else {
        fuzz_check_refusal(st, &err);
    }
    vp_safetensors_close(file);
    return 0;
}
