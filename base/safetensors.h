/* base/safetensors.h: read and write safetensors files, trusting nothing in them.
 *     VP_TRY(vp_safetensors_open(path, &file, err));
 *     const vp_tensor_info *t = vp_safetensors_find(file, "wte.weight");
 *     VP_TRY(vp_safetensors_read(file, t, 0, n, buf, err));
 *
 * Format: huggingface/safetensors README: 8 bytes little-endian header length (at most
 * 100,000,000), a JSON header {name: {dtype, shape, data_offsets}}, then data. Checked: header
 * begins with a brace, no duplicate names, offsets contiguous from 0 to the end of the file
 * without holes or overlap, bytes = shape x dtype without overflow, rank <= 16, names <= 4 KiB,
 * at most 1,000,000 tensors. Files are read with pread, never mapped; the header is read in
 * pieces, so that an open file costs about 200 bytes and the name of each tensor, whatever else
 * the header holds. A file of another kind (pickle, GGUF, git LFS pointer) is named as such;
 * names that end like a pickle (.bin, .pt, .pth, .ckpt, .pkl, .npz) are not opened at all. */
#ifndef VP_BASE_SAFETENSORS_H
#define VP_BASE_SAFETENSORS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { VP_TENSOR_MAX_RANK = 16 };

typedef enum vp_st_dtype {
    VP_ST_F64,
    VP_ST_F32,
    VP_ST_F16,
    VP_ST_BF16,
    VP_ST_I64,
    VP_ST_I32,
    VP_ST_I16,
    VP_ST_I8,
    VP_ST_U8,
    VP_ST_BOOL,
    VP_ST_F8_E4M3,
    VP_ST_F8_E5M2,
    VP_ST_U16,
    VP_ST_U32,
    VP_ST_U64
} vp_st_dtype;

typedef struct vp_tensor_info {
    const char *name; /* owned by the file */
    vp_st_dtype dtype;
    int         rank; /* 0: a scalar       */
    int64_t     shape[VP_TENSOR_MAX_RANK];
    int64_t     begin_byte, n_bytes; /* within the data section */
    int64_t     n_elements;
} vp_tensor_info;

typedef struct vp_safetensors vp_safetensors;

/* VP_ERR_INPUT names file and byte or tensor; free with vp_safetensors_close(), which takes
 * NULL. */
vp_status vp_safetensors_open(const char *path, vp_safetensors **out, vp_err *err);
void      vp_safetensors_close(vp_safetensors *file);

/* In the order of their data. */
int64_t               vp_safetensors_count(const vp_safetensors *file);
const vp_tensor_info *vp_safetensors_at(const vp_safetensors *file, int64_t idx);
const vp_tensor_info *vp_safetensors_find(const vp_safetensors *file, const char *name);
const char           *vp_safetensors_path(const vp_safetensors *file);

/* A folder as transformers writes it: model.safetensors, or the shards that
 * model.safetensors.index.json lists (each one relative path component, a regular file or a link to
 * one, together holding exactly the tensors listed; total_size, where there is one, their bytes).
 * Every file stays open; files are in the order of their names. */
typedef struct vp_checkpoint vp_checkpoint;
vp_status                    vp_checkpoint_open(const char *dir, vp_checkpoint **out, vp_err *err);
void                         vp_checkpoint_close(vp_checkpoint *ckpt);
int64_t                      vp_checkpoint_n_files(const vp_checkpoint *ckpt);
vp_safetensors              *vp_checkpoint_file(const vp_checkpoint *ckpt, int64_t idx);
/* The tensor and the file it lies in (*file may be NULL); NULL when there is none of that name. */
const vp_tensor_info *vp_checkpoint_find(const vp_checkpoint *ckpt, const char *name,
                                         vp_safetensors **file);

/* Copy n elements from element `first` on, as stored, into buf. A file that shrank is
 * VP_ERR_INPUT. */
vp_status vp_safetensors_read(const vp_safetensors *file, const vp_tensor_info *tensor,
                              int64_t first, int64_t n, void *buf, vp_err *err);

/* The same converted to float from F32, F64, F16 or BF16; another dtype is VP_ERR_INPUT. */
vp_status vp_safetensors_read_f32(const vp_safetensors *file, const vp_tensor_info *tensor,
                                  int64_t first, int64_t n, float *buf, vp_err *err);

int64_t     vp_st_dtype_bytes(vp_st_dtype dtype);
const char *vp_st_dtype_name(vp_st_dtype dtype);

/* Write a file of tensors given in any order; the header lists them by name, metadata format=pt;
 * the data lie widest element first, so that each tensor is aligned to its element. data holds
 * each tensor's elements, borrowed. The file appears whole or not at all. VP_ERR_INTERNAL: a
 * name that is not UTF-8, too long, reserved or there twice; otherwise as vp_file_write(). */
typedef struct vp_tensor_data {
    const char *name;
    vp_st_dtype dtype;
    int         rank;
    int64_t     shape[VP_TENSOR_MAX_RANK];
    const void *data;
} vp_tensor_data;

vp_status vp_safetensors_write(const char *path, const vp_tensor_data *tensors, int64_t n,
                               bool overwrite, vp_err *err);

#endif
