/* models/device_table.c: the cards that vplan knows, with a source for every figure.
 *
 * Usable bytes are CUDA's total for the whole card under Linux, which a process can allocate: `total_memory` of PyTorch's device
 * properties, the "total capacity" of its out-of-memory texts, the MiB in Ultralytics' and llama.cpp's first lines. It falls
 * with newer drivers; where several totals were found, the least stands here. Where none was found it is derived: RESERVE.
 *
 * Rates are dense, products summed in fp32. Data sheets that print only the rate with sparsity are halved. GeForce cards sum in
 * fp32 at half the rate of the sheets' headline, which sums in fp16. */
#include "models/devices.h"

#include "core/units.h"

#include <stdio.h>

#define GIB(x) ((int64_t)((x) * 1073741824.0))
#define MIB(x) ((int64_t)(x) * VP_MIB)
#define RESERVE MIB(1024)
#define LESS_RESERVE "nvidia-smi's memory.total less 1 GiB (CUDA's total is 288 to 883 MiB below it on the cited cards): "

enum {
    FP32 = 1 << VP_FIGURE_FP32, TF32 = 1 << VP_FIGURE_TF32, BF16 = 1 << VP_FIGURE_BF16, FP16 = 1 << VP_FIGURE_FP16,
    FP8 = 1 << VP_FIGURE_FP8, INT8 = 1 << VP_FIGURE_INT8, MEMORY = 1 << VP_FIGURE_MEMORY, USABLE = 1 << VP_FIGURE_USABLE,
    PEER = 1 << VP_FIGURE_PEER_LINK, TENSOR = TF32 | BF16 | FP16 | FP8 | INT8
};

typedef struct card {
    const char *name, *alias, *product;
    int         capability, sms;
    int64_t     usable_bytes;
    const char *usable;                    /* its source                                                    */
    double      gb_per_s;                  /* of device memory                                              */
    double      fp32, tf32, bf16, fp16, fp8, int8; /* 1e12 operations a second; 0: none                     */
    int         pcie, lanes;               /* generation; 0: not by PCIe                                    */
    double      c2c_gb_per_s;              /* NVLink-C2C to the CPU in place of PCIe, this card's part, both ways */
    double      nvlink_gb_per_s;           /* all links, both ways; 0: none                                 */
    const char *sheet;                     /* the source of all that the next lines do not name             */
    int         derived;                   /* figures that follow from the sheet ...                        */
    const char *rule;                      /* ... by this                                                   */
    int         assumed;                   /* figures that nobody says ...                                  */
    const char *guess;                     /* ... and why these                                             */
    const char *sms_source;                /* where the sheet says no multiprocessors: who does ...         */
    int         cores_per_sm;              /* ... or what its CUDA cores are divided by; both 0: it says    */
} card;

/* Sheets that several cards share. */
#define TURING     "NVIDIA Turing whitepaper, table of the RTX 2080 Ti, reference edition"
#define VOLTA      "NVIDIA Tesla V100 datasheet"
#define GA102      "NVIDIA Ampere GA102 whitepaper v2, Appendix A"
#define A100       "NVIDIA A100 datasheet"
#define ADA        "NVIDIA Ada whitepaper v2, Appendix A"
#define BLACKWELL  "NVIDIA RTX Blackwell whitepaper, Appendix A"
#define HOPPER     "NVIDIA H100 whitepaper v1.04, table 3"
#define H100       "NVIDIA H100 datasheet"
#define H200       "NVIDIA H200 datasheet"
#define GH200      "NVIDIA GH200 Grace Hopper datasheet"
#define B200       "NVIDIA Blackwell datasheet (3384703), figures per GPU"

/* Rules. */
#define HALF       "half of the rate with sparsity"
#define LIKE_GA102 "tf32 = fp32, bf16 = fp16 = 2 x fp32, int8 = 8 x fp32, as the GA102 whitepaper has for the RTX 3090"
#define LIKE_ADA   "tf32 = fp32, bf16 = fp16 = 2 x fp32, fp8 = 4 x fp32, int8 = 8 x fp32, as the Ada whitepaper has for the RTX 4090"
#define LIKE_GB202 "tf32 = fp32, bf16 = fp16 = 2 x fp32, fp8 = 4 x fp32, int8 = 8 x fp32, as the Blackwell whitepaper has for the 5090"

#define PROPERTIES "multi_processor_count of PyTorch's device properties"

static const card cards[] = {
    /* ---- Pascal, Volta, Turing: no bf16 ---- */
    {.name = "p100-pcie-16gb", .alias = "p100", .product = "Tesla P100-PCIE-16GB", .capability = 60, .sms = 56,
     .usable_bytes = MIB(16269), .usable = "Ultralytics: \"CUDA:0 (Tesla P100-PCIE-16GB, 16269MiB)\" (torch 2.11)",
     .gb_per_s = 732, .fp32 = 9.3, .fp16 = 18.7, .pcie = 3, .lanes = 16, .sheet = "NVIDIA Tesla P100 PCIe datasheet",
     .cores_per_sm = 64},
    {.name = "v100-pcie-16gb", .alias = "", .product = "Tesla V100-PCIE-16GB", .capability = 70, .sms = 80,
     .usable_bytes = MIB(16160), .usable = "PyTorch's device properties: \"Tesla V100-PCIE-16GB\", total_memory=16160MB",
     .gb_per_s = 900, .fp32 = 14, .fp16 = 112, .pcie = 3, .lanes = 16, .sheet = VOLTA, .sms_source = PROPERTIES},
    {.name = "v100-pcie-32gb", .alias = "", .product = "Tesla V100-PCIE-32GB", .capability = 70, .sms = 80,
     .usable_bytes = MIB(32510), .usable = "PyTorch's device properties: \"Tesla V100-PCIE-32GB\", total_memory=32510MB",
     .gb_per_s = 900, .fp32 = 14, .fp16 = 112, .pcie = 3, .lanes = 16, .sheet = VOLTA, .sms_source = PROPERTIES},
    {.name = "v100-sxm2-16gb", .alias = "", .product = "Tesla V100-SXM2-16GB", .capability = 70, .sms = 80,
     .usable_bytes = MIB(16130), .usable = "YOLOv5: \"CUDA:0 (Tesla V100-SXM2-16GB, 16130MB)\"",
     .gb_per_s = 900, .fp32 = 15.7, .fp16 = 125, .pcie = 3, .lanes = 16, .nvlink_gb_per_s = 300, .sheet = VOLTA, .cores_per_sm = 64},
    {.name = "v100-sxm2-32gb", .alias = "", .product = "Tesla V100-SXM2-32GB", .capability = 70, .sms = 80,
     .usable_bytes = MIB(32494), .usable = "Ultralytics: \"CUDA:0 (Tesla V100-SXM2-32GB, 32494MiB)\" (torch 2.6)",
     .gb_per_s = 900, .fp32 = 15.7, .fp16 = 125, .pcie = 3, .lanes = 16, .nvlink_gb_per_s = 300, .sheet = VOLTA, .cores_per_sm = 64},
    {.name = "t4-16gb", .alias = "t4", .product = "Tesla T4", .capability = 75, .sms = 40,
     .usable_bytes = MIB(14912), .usable = "llama.cpp and Ultralytics: \"Tesla T4\", 14912 MiB; older drivers more, 14.75 GiB (unsloth#465)",
     .gb_per_s = 320, .fp32 = 8.1, .fp16 = 65, .int8 = 130, .pcie = 3, .lanes = 16, .sheet = "NVIDIA T4 datasheet", .cores_per_sm = 64},
    {.name = "rtx-2080-ti-11gb", .alias = "2080-ti", .product = "NVIDIA GeForce RTX 2080 Ti", .capability = 75, .sms = 68,
     .usable_bytes = MIB(10825), .usable = "Ultralytics: \"CUDA:0 (NVIDIA GeForce RTX 2080 Ti, 10825MiB)\" (torch 2.6)",
     .gb_per_s = 616, .fp32 = 13.4, .fp16 = 53.8, .int8 = 215.2, .pcie = 3, .lanes = 16, .nvlink_gb_per_s = 100, .sheet = TURING},

    /* ---- Ampere, GeForce ---- */
    {.name = "rtx-3060-12gb", .alias = "3060", .product = "NVIDIA GeForce RTX 3060", .capability = 86, .sms = 28,
     .usable_bytes = MIB(11910), .usable = "Ultralytics: \"CUDA:0 (NVIDIA GeForce RTX 3060, 11910MiB)\" (torch 2.10)",
     .gb_per_s = 360, .fp32 = 12.74, .tf32 = 12.74, .bf16 = 25.5, .fp16 = 25.5, .int8 = 101.9, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA's GeForce RTX 3060 page", .derived = FP32 | TENSOR | MEMORY,
     .rule = "3,584 cores x 2 x 1.777 GHz; 192 bit x 15 Gbit/s; " LIKE_GA102, .sms_source = PROPERTIES},
    {.name = "rtx-3070-8gb", .alias = "3070", .product = "NVIDIA GeForce RTX 3070", .capability = 86, .sms = 46,
     .usable_bytes = MIB(7753), .usable = "Ultralytics: \"CUDA:0 (NVIDIA GeForce RTX 3070, 7753MiB)\" (torch 2.6)",
     .gb_per_s = 448, .fp32 = 20.3, .tf32 = 20.3, .bf16 = 40.6, .fp16 = 40.6, .int8 = 162.6, .pcie = 4, .lanes = 16, .sheet = GA102},
    {.name = "rtx-3080-10gb", .alias = "", .product = "NVIDIA GeForce RTX 3080", .capability = 86, .sms = 68,
     .usable_bytes = MIB(10002), .usable = "Ultralytics: \"CUDA:0 (NVIDIA GeForce RTX 3080, 10002MiB)\" (torch 2.6)",
     .gb_per_s = 760, .fp32 = 29.8, .tf32 = 29.8, .bf16 = 59.5, .fp16 = 59.5, .int8 = 238, .pcie = 4, .lanes = 16, .sheet = GA102},
    {.name = "rtx-3080-12gb", .alias = "", .product = "NVIDIA GeForce RTX 3080", .capability = 86, .sms = 70,
     .usable_bytes = MIB(11910), .usable = "that of the RTX 3080 Ti, whose memory is the same; 12117 MiB with an older driver (Ultralytics)",
     .gb_per_s = 912, .fp32 = 30.6, .tf32 = 30.6, .bf16 = 61.3, .fp16 = 61.3, .int8 = 245.1, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA's GeForce RTX 3080 page", .derived = USABLE | FP32 | TENSOR | MEMORY,
     .rule = "8,960 cores x 2 x 1.71 GHz; 384 bit x 19 Gbit/s; " LIKE_GA102, .cores_per_sm = 128},
    {.name = "rtx-3080-ti-12gb", .alias = "3080-ti", .product = "NVIDIA GeForce RTX 3080 Ti", .capability = 86, .sms = 80,
     .usable_bytes = MIB(11910), .usable = "YOLOv5: \"CUDA:0 (NVIDIA GeForce RTX 3080 Ti, 11910.625MB)\"",
     .gb_per_s = 912, .fp32 = 34.1, .tf32 = 34.1, .bf16 = 68.2, .fp16 = 68.2, .int8 = 272.8, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA's GeForce RTX 3080 Ti page", .derived = FP32 | TENSOR | MEMORY,
     .rule = "10,240 cores x 2 x 1.665 GHz; 384 bit x 19 Gbit/s; " LIKE_GA102, .cores_per_sm = 128},
    {.name = "rtx-3090-24gb", .alias = "3090", .product = "NVIDIA GeForce RTX 3090", .capability = 86, .sms = 82,
     .usable_bytes = MIB(24124), .usable = "Ultralytics: \"CUDA:0 (NVIDIA GeForce RTX 3090, 24124MiB)\" (torch 2.13)",
     .gb_per_s = 936, .fp32 = 35.6, .tf32 = 35.6, .bf16 = 71, .fp16 = 71, .int8 = 284, .pcie = 4, .lanes = 16, .nvlink_gb_per_s = 112.5,
     .sheet = GA102 ", table 9"},
    {.name = "rtx-3090-ti-24gb", .alias = "3090-ti", .product = "NVIDIA GeForce RTX 3090 Ti", .capability = 86, .sms = 84,
     .usable_bytes = MIB(24110), .usable = "Ultralytics: \"CUDA:0 (NVIDIA GeForce RTX 3090 Ti, 24110MiB)\" (torch 2.9)",
     .gb_per_s = 1008, .fp32 = 40, .tf32 = 40, .bf16 = 80, .fp16 = 80, .int8 = 320, .pcie = 4, .lanes = 16, .nvlink_gb_per_s = 112.5,
     .sheet = "NVIDIA's GeForce RTX 3090 Ti page", .derived = FP32 | TENSOR | MEMORY,
     .rule = "10,752 cores x 2 x 1.86 GHz; 384 bit x 21 Gbit/s; " LIKE_GA102, .cores_per_sm = 128},

    /* ---- Ampere, workstation and data center ---- */
    {.name = "a2-16gb", .alias = "a2", .product = "NVIDIA A2", .capability = 86, .sms = 10,
     .usable_bytes = MIB(15356) - RESERVE, .usable = LESS_RESERVE "15,356 MiB (the A16's, 16 GB with ECC too)",
     .gb_per_s = 200, .fp32 = 4.5, .tf32 = 9, .bf16 = 18, .fp16 = 18, .int8 = 36, .pcie = 4, .lanes = 8, .sheet = "NVIDIA A2 datasheet",
     .derived = USABLE, .cores_per_sm = 128},
    {.name = "a10-24gb", .alias = "a10", .product = "NVIDIA A10", .capability = 86, .sms = 72,
     .usable_bytes = MIB(22731), .usable = "llama.cpp: \"Device 0: NVIDIA A10 ... VRAM: 22731 MiB\"",
     .gb_per_s = 600, .fp32 = 31.2, .tf32 = 62.5, .bf16 = 125, .fp16 = 125, .int8 = 250, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA A10 datasheet", .cores_per_sm = 128},
    {.name = "a10g-24gb", .alias = "a10g", .product = "NVIDIA A10G", .capability = 86, .sms = 80,
     .usable_bytes = MIB(22513), .usable = "Ultralytics: \"CUDA:0 (NVIDIA A10G, 22513MiB)\" (ultralytics#7673)",
     .gb_per_s = 600, .fp32 = 35, .tf32 = 35, .bf16 = 70, .fp16 = 70, .int8 = 140, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA A10G datasheet for AWS (2022-02-17)", .sms_source = PROPERTIES},
    {.name = "a30-24gb", .alias = "a30", .product = "NVIDIA A30", .capability = 80, .sms = 56,
     .usable_bytes = GIB(23.53), .usable = "out-of-memory text of an A30: total capacity of 23.53 GiB (google/RB-Modulation#5)",
     .gb_per_s = 933, .fp32 = 10.3, .tf32 = 82, .bf16 = 165, .fp16 = 165, .int8 = 330, .pcie = 4, .lanes = 16, .nvlink_gb_per_s = 200,
     .sheet = "NVIDIA A30 datasheet", .cores_per_sm = 64},
    {.name = "a40-48gb", .alias = "a40", .product = "NVIDIA A40", .capability = 86, .sms = 84,
     .usable_bytes = MIB(45416), .usable = "PyTorch's device properties: \"NVIDIA A40\", total_memory=45416MB (ECC on, as shipped)",
     .gb_per_s = 696, .fp32 = 37.4, .tf32 = 74.8, .bf16 = 149.7, .fp16 = 149.7, .int8 = 299.3, .pcie = 4, .lanes = 16,
     .nvlink_gb_per_s = 112.5, .sheet = "NVIDIA A40 datasheet", .sms_source = PROPERTIES},
    {.name = "rtx-a4000-16gb", .alias = "a4000", .product = "NVIDIA RTX A4000", .capability = 86, .sms = 48,
     .usable_bytes = GIB(15.61), .usable = "out-of-memory text of an RTX A4000: total capacity of 15.61 GiB (VGGT-Long#6)",
     .gb_per_s = 448, .fp32 = 19.2, .tf32 = 38.3, .bf16 = 76.7, .fp16 = 76.7, .int8 = 153.4, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA RTX A4000 datasheet", .derived = TENSOR,
     .rule = "the sheet's tensor rate is fp16 with sparsity, 153.4: bf16 = fp16 = half, tf32 = a quarter, int8 = the same", .cores_per_sm = 128},
    {.name = "rtx-a5000-24gb", .alias = "a5000", .product = "NVIDIA RTX A5000", .capability = 86, .sms = 64,
     .usable_bytes = MIB(24138), .usable = "PyTorch's device properties: \"NVIDIA RTX A5000\", total_memory=24138MB (ECC off; on, 22721 MiB)",
     .gb_per_s = 768, .fp32 = 27.8, .tf32 = 55.5, .bf16 = 111.1, .fp16 = 111.1, .int8 = 222.2, .pcie = 4, .lanes = 16,
     .nvlink_gb_per_s = 112.5, .sheet = "NVIDIA RTX A5000 datasheet", .derived = TENSOR,
     .rule = "the sheet's tensor rate is fp16 with sparsity, 222.2: bf16 = fp16 = half, tf32 = a quarter, int8 = the same",
     .sms_source = PROPERTIES},
    {.name = "rtx-a6000-48gb", .alias = "a6000", .product = "NVIDIA RTX A6000", .capability = 86, .sms = 84,
     .usable_bytes = MIB(48676), .usable = "PyTorch's device properties: \"NVIDIA RTX A6000\", total_memory=48676MB (ECC off)",
     .gb_per_s = 768, .fp32 = 38.7, .tf32 = 77.4, .bf16 = 154.8, .fp16 = 154.8, .int8 = 309.7, .pcie = 4, .lanes = 16,
     .nvlink_gb_per_s = 112.5, .sheet = "NVIDIA Ampere GA102 whitepaper v2, table 3"},
    {.name = "a100-pcie-40gb", .alias = "", .product = "NVIDIA A100-PCIE-40GB", .capability = 80, .sms = 108,
     .usable_bytes = MIB(40377), .usable = "Ultralytics: \"CUDA:0 (NVIDIA A100-PCIE-40GB, 40377MiB)\" (torch 2.3)",
     .gb_per_s = 1555, .fp32 = 19.5, .tf32 = 156, .bf16 = 312, .fp16 = 312, .int8 = 624, .pcie = 4, .lanes = 16,
     .nvlink_gb_per_s = 600, .sheet = A100, .sms_source = "NVIDIA A100 whitepaper, table 4"},
    {.name = "a100-sxm-40gb", .alias = "", .product = "NVIDIA A100-SXM4-40GB", .capability = 80, .sms = 108,
     .usable_bytes = MIB(40441), .usable = "Ultralytics: \"CUDA:0 (NVIDIA A100-SXM4-40GB, 40441MiB)\" (torch 2.11)",
     .gb_per_s = 1555, .fp32 = 19.5, .tf32 = 156, .bf16 = 312, .fp16 = 312, .int8 = 624, .pcie = 4, .lanes = 16,
     .nvlink_gb_per_s = 600, .sheet = A100, .sms_source = "NVIDIA A100 whitepaper, table 4"},
    {.name = "a100-pcie-80gb", .alias = "", .product = "NVIDIA A100 80GB PCIe", .capability = 80, .sms = 108,
     .usable_bytes = GIB(79.14), .usable = "out-of-memory texts beside nvidia-smi's 81,920 MiB, an A100 80 GB: total capacity of 79.14 GiB",
     .gb_per_s = 1935, .fp32 = 19.5, .tf32 = 156, .bf16 = 312, .fp16 = 312, .int8 = 624, .pcie = 4, .lanes = 16,
     .nvlink_gb_per_s = 600, .sheet = A100, .sms_source = "NVIDIA A100 whitepaper, table 4"},
    {.name = "a100-sxm-80gb", .alias = "", .product = "NVIDIA A100-SXM4-80GB", .capability = 80, .sms = 108,
     .usable_bytes = GIB(79.14), .usable = "out-of-memory texts beside nvidia-smi's 81,920 MiB, an A100 80 GB: total capacity of 79.14 GiB",
     .gb_per_s = 2039, .fp32 = 19.5, .tf32 = 156, .bf16 = 312, .fp16 = 312, .int8 = 624, .pcie = 4, .lanes = 16,
     .nvlink_gb_per_s = 600, .sheet = A100, .sms_source = "NVIDIA A100 whitepaper, table 4"},

    /* ---- Ada, GeForce ---- */
    {.name = "rtx-4060-ti-16gb", .alias = "4060-ti", .product = "NVIDIA GeForce RTX 4060 Ti", .capability = 89, .sms = 34,
     .usable_bytes = MIB(15944), .usable = "llama.cpp: \"Device 0: NVIDIA GeForce RTX 4060 Ti ... VRAM: 15944 MiB\"",
     .gb_per_s = 288, .fp32 = 22.06, .tf32 = 22.06, .bf16 = 44.1, .fp16 = 44.1, .fp8 = 88.2, .int8 = 176.5, .pcie = 4, .lanes = 8,
     .sheet = "NVIDIA's GeForce RTX 4060 Ti page", .derived = FP32 | TENSOR | MEMORY,
     .rule = "4,352 cores x 2 x 2.535 GHz; 128 bit x 18 Gbit/s; " LIKE_ADA, .cores_per_sm = 128},
    {.name = "rtx-4070-12gb", .alias = "4070", .product = "NVIDIA GeForce RTX 4070", .capability = 89, .sms = 46,
     .usable_bytes = MIB(11994), .usable = "YOLOv5: \"CUDA:0 (NVIDIA GeForce RTX 4070, 11994MiB)\"",
     .gb_per_s = 504, .fp32 = 29.1, .tf32 = 29.1, .bf16 = 58.3, .fp16 = 58.3, .fp8 = 116.6, .int8 = 233.2, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA's GeForce RTX 4070 page", .derived = FP32 | TENSOR | MEMORY,
     .rule = "5,888 cores x 2 x 2.475 GHz; 192 bit x 21 Gbit/s; " LIKE_ADA, .cores_per_sm = 128},
    {.name = "rtx-4080-16gb", .alias = "4080", .product = "NVIDIA GeForce RTX 4080", .capability = 89, .sms = 76,
     .usable_bytes = MIB(16049), .usable = "PyTorch's device properties: \"NVIDIA GeForce RTX 4080\", total_memory=16049MB",
     .gb_per_s = 716.8, .fp32 = 48.7, .tf32 = 48.7, .bf16 = 97.5, .fp16 = 97.5, .fp8 = 194.9, .int8 = 389.9, .pcie = 4, .lanes = 16,
     .sheet = ADA},
    {.name = "rtx-4090-24gb", .alias = "4090", .product = "NVIDIA GeForce RTX 4090", .capability = 89, .sms = 128,
     .usable_bytes = MIB(24080), .usable = "24,080 MiB as LLM.Q's logs print it",
     .gb_per_s = 1008, .fp32 = 82.6, .tf32 = 82.6, .bf16 = 165.2, .fp16 = 165.2, .fp8 = 330.3, .int8 = 660.6, .pcie = 4, .lanes = 16,
     .sheet = ADA ", table 2"},

    /* ---- Ada, workstation and data center ---- */
    {.name = "l4-24gb", .alias = "l4", .product = "NVIDIA L4", .capability = 89, .sms = 58,
     .usable_bytes = MIB(22563), .usable = "Ultralytics: \"CUDA:0 (NVIDIA L4, 22563MiB)\" (torch 2.11)",
     .gb_per_s = 300, .fp32 = 30.3, .tf32 = 60, .bf16 = 121, .fp16 = 121, .fp8 = 242.5, .int8 = 242.5, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA L4 datasheet", .derived = TENSOR, .rule = HALF, .cores_per_sm = 128},
    {.name = "l40-48gb", .alias = "l40", .product = "NVIDIA L40", .capability = 89, .sms = 142,
     .usable_bytes = GIB(44.40), .usable = "out-of-memory text of an L40: total capacity of 44.40 GiB (Qwen3-VL#2097)",
     .gb_per_s = 864, .fp32 = 90.5, .tf32 = 90.5, .bf16 = 181.05, .fp16 = 181.05, .fp8 = 362, .int8 = 362, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA L40 datasheet", .cores_per_sm = 128},
    {.name = "l40s-48gb", .alias = "l40s", .product = "NVIDIA L40S", .capability = 89, .sms = 142,
     .usable_bytes = GIB(44.40), .usable = "llama.cpp: \"Device 0: NVIDIA L40S ... VRAM: 45467 MiB\", 44.40 GiB",
     .gb_per_s = 864, .fp32 = 91.6, .tf32 = 183, .bf16 = 362.05, .fp16 = 362.05, .fp8 = 733, .int8 = 733, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA L40S datasheet", .sms_source = PROPERTIES},
    {.name = "rtx-5000-ada-32gb", .alias = "5000-ada", .product = "NVIDIA RTX 5000 Ada Generation", .capability = 89, .sms = 100,
     .usable_bytes = MIB(32760) - RESERVE, .usable = LESS_RESERVE "32,760 MiB",
     .gb_per_s = 576, .fp32 = 65.3, .tf32 = 130.5, .bf16 = 261.1, .fp16 = 261.1, .fp8 = 522.2, .int8 = 522.2, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA RTX 5000 Ada datasheet", .derived = USABLE | TENSOR,
     .rule = "the sheet's tensor rate is fp8 with sparsity, 1,044.4: fp8 = int8 = half, bf16 = fp16 = 1/4, tf32 = 1/8", .cores_per_sm = 128},
    {.name = "rtx-6000-ada-48gb", .alias = "6000-ada", .product = "NVIDIA RTX 6000 Ada Generation", .capability = 89, .sms = 142,
     .usable_bytes = MIB(48497),
     .usable = "Ultralytics: \"CUDA:0 (NVIDIA RTX 6000 Ada Generation, 48497MiB)\" (ECC off; on, 44.43 GiB: MTVCrafter#21)",
     .gb_per_s = 960, .fp32 = 91.1, .tf32 = 182.1, .bf16 = 364.2, .fp16 = 364.2, .fp8 = 728.5, .int8 = 728.5, .pcie = 4, .lanes = 16,
     .sheet = "NVIDIA RTX 6000 Ada datasheet", .derived = TENSOR,
     .rule = "the sheet's tensor rate is fp8 with sparsity, 1,457.0: fp8 = int8 = half, bf16 = fp16 = 1/4, tf32 = 1/8",
     .sms_source = PROPERTIES},

    /* ---- Hopper ---- */
    {.name = "h100-pcie-80gb", .alias = "", .product = "NVIDIA H100 PCIe", .capability = 90, .sms = 114,
     .usable_bytes = MIB(81008), .usable = "PyTorch's device properties: \"NVIDIA H100 PCIe\", total_memory=81008MB",
     .gb_per_s = 2000, .fp32 = 51.2, .tf32 = 378, .bf16 = 756, .fp16 = 756, .fp8 = 1513, .int8 = 1513, .pcie = 5, .lanes = 16,
     .nvlink_gb_per_s = 600, .sheet = HOPPER "; memory: H100 PCIe product brief"},
    {.name = "h100-sxm-80gb", .alias = "h100", .product = "NVIDIA H100 80GB HBM3", .capability = 90, .sms = 132,
     .usable_bytes = GIB(79.10), .usable = "out-of-memory text: total capacity of 79.10 GiB (trl#3342)",
     .gb_per_s = 3350, .fp32 = 66.9, .tf32 = 494.7, .bf16 = 989.4, .fp16 = 989.4, .fp8 = 1978.9, .int8 = 1978.9, .pcie = 5, .lanes = 16,
     .nvlink_gb_per_s = 900, .sheet = HOPPER "; memory: " H100},
    {.name = "h100-nvl-94gb", .alias = "", .product = "NVIDIA H100 NVL", .capability = 90, .sms = 132,
     .usable_bytes = MIB(95320), .usable = "Ultralytics: \"CUDA:0 (NVIDIA H100 NVL, 95320MiB)\" (torch 2.13)",
     .gb_per_s = 3900, .fp32 = 60, .tf32 = 417.5, .bf16 = 835.5, .fp16 = 835.5, .fp8 = 1670.5, .int8 = 1670.5, .pcie = 5, .lanes = 16,
     .nvlink_gb_per_s = 600, .sheet = H100 ", column NVL", .derived = TENSOR, .rule = HALF, .cores_per_sm = 128},
    {.name = "h20-96gb", .alias = "h20", .product = "NVIDIA H20", .capability = 90, .sms = 78,
     .usable_bytes = GIB(95.00), .usable = "a log of PyTorch's properties: \"Device: cuda:0 (NVIDIA H20), total=95.00 GiB\"",
     .gb_per_s = 4000, .fp32 = 39.5, .tf32 = 74, .bf16 = 148, .fp16 = 148, .fp8 = 296, .int8 = 296, .pcie = 5, .lanes = 16,
     .nvlink_gb_per_s = 900, .sheet = "no datasheet: bf16 148 TFLOP/s as veRL's flops_counter.py has it", .derived = FP32 | TF32 | FP8 | INT8,
     .rule = "78 multiprocessors x 128 x 2 x 1.98 GHz; tf32 = bf16 / 2, fp8 = int8 = 2 x bf16, as the H100 has",
     .assumed = MEMORY | PEER, .guess = "as the GH200 with 96 GB and the H100 SXM: no datasheet was found", .sms_source = PROPERTIES},
    {.name = "h200-nvl-141gb", .alias = "", .product = "NVIDIA H200 NVL", .capability = 90, .sms = 132,
     .usable_bytes = MIB(143771) - RESERVE, .usable = LESS_RESERVE "143,771 MiB",
     .gb_per_s = 4800, .fp32 = 60, .tf32 = 417.5, .bf16 = 835.5, .fp16 = 835.5, .fp8 = 1670.5, .int8 = 1670.5, .pcie = 5, .lanes = 16,
     .nvlink_gb_per_s = 900, .sheet = H200 ", column NVL", .derived = USABLE | TENSOR, .rule = HALF, .cores_per_sm = 128},
    {.name = "h200-sxm-141gb", .alias = "h200", .product = "NVIDIA H200", .capability = 90, .sms = 132,
     .usable_bytes = GIB(139.80), .usable = "PyTorch's device properties: \"NVIDIA H200\", total_memory=143156MB, 139.80 GiB",
     .gb_per_s = 4800, .fp32 = 67, .tf32 = 494.5, .bf16 = 989.5, .fp16 = 989.5, .fp8 = 1979, .int8 = 1979, .pcie = 5, .lanes = 16,
     .nvlink_gb_per_s = 900, .sheet = H200, .derived = TENSOR, .rule = HALF, .sms_source = PROPERTIES},
    {.name = "gh200-96gb", .alias = "", .product = "NVIDIA GH200 480GB", .capability = 90, .sms = 132,
     .usable_bytes = GIB(94.88), .usable = "out-of-memory text of a GH200: total capacity of 94.88 GiB (litgpt#1892)",
     .gb_per_s = 4000, .fp32 = 67, .tf32 = 494, .bf16 = 990, .fp16 = 990, .fp8 = 1979, .int8 = 1979, .c2c_gb_per_s = 900,
     .sheet = GH200, .cores_per_sm = 128},
    {.name = "gh200-144gb", .alias = "", .product = "NVIDIA GH200 144G HBM3e", .capability = 90, .sms = 132,
     .usable_bytes = MIB(146831) - RESERVE, .usable = LESS_RESERVE "146,831 MiB",
     .gb_per_s = 4900, .fp32 = 67, .tf32 = 494, .bf16 = 990, .fp16 = 990, .fp8 = 1979, .int8 = 1979, .c2c_gb_per_s = 900,
     .sheet = GH200, .derived = USABLE, .cores_per_sm = 128},

    /* ---- Blackwell ---- */
    {.name = "rtx-5060-ti-16gb", .alias = "5060-ti", .product = "NVIDIA GeForce RTX 5060 Ti", .capability = 120, .sms = 36,
     .usable_bytes = MIB(15841), .usable = "PyTorch's device properties: \"NVIDIA GeForce RTX 5060 Ti\", total_memory=15841MB",
     .gb_per_s = 448, .fp32 = 23.7, .tf32 = 23.7, .bf16 = 47.4, .fp16 = 47.4, .fp8 = 94.8, .int8 = 189.6, .pcie = 5, .lanes = 8,
     .sheet = "NVIDIA's GeForce RTX 5060 Ti page", .derived = FP32 | TENSOR | MEMORY,
     .rule = "4,608 cores x 2 x 2.572 GHz; 128 bit x 28 Gbit/s; " LIKE_GB202, .cores_per_sm = 128},
    {.name = "rtx-5070-ti-16gb", .alias = "5070-ti", .product = "NVIDIA GeForce RTX 5070 Ti", .capability = 120, .sms = 70,
     .usable_bytes = MIB(15842), .usable = "llama.cpp: \"Device 0: NVIDIA GeForce RTX 5070 Ti ... VRAM: 15842 MiB\"",
     .gb_per_s = 896, .fp32 = 43.9, .tf32 = 43.9, .bf16 = 87.9, .fp16 = 87.9, .fp8 = 175.8, .int8 = 351.5, .pcie = 5, .lanes = 16,
     .sheet = "NVIDIA's GeForce RTX 5070 Ti page", .derived = FP32 | TENSOR | MEMORY,
     .rule = "8,960 cores x 2 x 2.452 GHz; 256 bit x 28 Gbit/s; " LIKE_GB202, .cores_per_sm = 128},
    {.name = "rtx-5080-16gb", .alias = "5080", .product = "NVIDIA GeForce RTX 5080", .capability = 120, .sms = 84,
     .usable_bytes = MIB(15840), .usable = "Ultralytics: \"CUDA:0 (NVIDIA GeForce RTX 5080, 15840MiB)\"",
     .gb_per_s = 960, .fp32 = 56.3, .tf32 = 56.3, .bf16 = 112.6, .fp16 = 112.6, .fp8 = 225.1, .int8 = 450.2, .pcie = 5, .lanes = 16,
     .sheet = "NVIDIA's GeForce RTX 5080 page", .derived = FP32 | TENSOR | MEMORY,
     .rule = "10,752 cores x 2 x 2.617 GHz; 256 bit x 30 Gbit/s; " LIKE_GB202, .sms_source = PROPERTIES},
    {.name = "rtx-5090-32gb", .alias = "5090", .product = "NVIDIA GeForce RTX 5090", .capability = 120, .sms = 170,
     .usable_bytes = MIB(32109), .usable = "llama.cpp: \"NVIDIA GeForce RTX 5090 ... VRAM: 32109 MiB\"; 31.36 GiB, TrajectoryCrafter#20",
     .gb_per_s = 1792, .fp32 = 104.8, .tf32 = 104.8, .bf16 = 209.5, .fp16 = 209.5, .fp8 = 419, .int8 = 838, .pcie = 5, .lanes = 16,
     .sheet = BLACKWELL},
    {.name = "rtx-pro-6000-96gb", .alias = "pro-6000", .product = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", .capability = 120,
     .sms = 188, .usable_bytes = MIB(97247), .usable = "llama.cpp: \"NVIDIA RTX PRO 6000 Blackwell Workstation Edition\", 97247 MiB",
     .gb_per_s = 1792, .fp32 = 125, .tf32 = 250, .bf16 = 500, .fp16 = 500, .fp8 = 1000, .int8 = 1000, .pcie = 5, .lanes = 16,
     .sheet = "NVIDIA RTX PRO 6000 Blackwell Workstation datasheet", .derived = TENSOR,
     .rule = "the sheet's 4,000 AI TOPS are fp4 with sparsity: fp8 = int8 = 1/4, bf16 = fp16 = 1/8, tf32 = 1/16", .cores_per_sm = 128},
    {.name = "b200-sxm-180gb", .alias = "b200", .product = "NVIDIA B200", .capability = 100, .sms = 148,
     .usable_bytes = MIB(182631), .usable = "PyTorch's device properties: \"NVIDIA B200\", total_memory=182631MB",
     .gb_per_s = 7700, .fp32 = 75, .tf32 = 1100, .bf16 = 2250, .fp16 = 2250, .fp8 = 4500, .int8 = 4500, .pcie = 5, .lanes = 16,
     .nvlink_gb_per_s = 1800, .sheet = B200 ", HGX B200", .derived = TENSOR, .rule = HALF, .sms_source = PROPERTIES},
    {.name = "gb200-186gb", .alias = "gb200", .product = "NVIDIA GB200", .capability = 100, .sms = 152,
     .usable_bytes = MIB(189471) - RESERVE, .usable = LESS_RESERVE "189,471 MiB",
     .gb_per_s = 8000, .fp32 = 80, .tf32 = 1250, .bf16 = 2500, .fp16 = 2500, .fp8 = 5000, .int8 = 5000, .c2c_gb_per_s = 450,
     .nvlink_gb_per_s = 1800, .sheet = B200 ", GB200 NVL72", .derived = USABLE | TENSOR, .rule = HALF,
     .sms_source = "a public run's device line: \"One NVIDIA GB200, compute capability 10.0, 152 SMs\""},
    {.name = "b300-sxm-288gb", .alias = "b300", .product = "NVIDIA B300 SXM6 AC", .capability = 103, .sms = 148,
     .usable_bytes = MIB(275040) - RESERVE, .usable = LESS_RESERVE "275,040 MiB",
     .gb_per_s = 7700, .fp32 = 75, .tf32 = 1100, .bf16 = 2250, .fp16 = 2250, .fp8 = 4500, .int8 = 150, .pcie = 5, .lanes = 16,
     .nvlink_gb_per_s = 1800, .sheet = "NVIDIA Blackwell Ultra datasheet, HGX B300 per GPU, dense", .derived = USABLE,
     .sms_source = "public runs' device line: \"NVIDIA B300 SXM6 AC, 148 SMs\""},
};

enum { N_CARDS = sizeof cards / sizeof *cards };

static void say(vp_device *d, vp_device_figure figure, vp_figure_class class_, const char *text)
{
    d->sources[figure].class_ = class_;
    snprintf(d->sources[figure].text, sizeof d->sources[figure].text, "%s", text);
}

/* The class and words of a figure that comes from the sheet, or by the card's rule from it, or is a guess. */
static void say_of_sheet(vp_device *d, const card *c, vp_device_figure figure, bool there)
{
    char text[sizeof d->sources->text];

    if (!there)
        return;
    if (c->assumed & 1 << figure) {
        say(d, figure, VP_CLASS_ASSUMED, c->guess);
    } else if (c->derived & 1 << figure) {
        snprintf(text, sizeof text, "%s: %s", c->sheet, c->rule);
        say(d, figure, VP_CLASS_DERIVED, text);
    } else {
        say(d, figure, VP_CLASS_CITED, c->sheet);
    }
}

/* Links: one way, which is half of what sheets print for NVLink. PCIe: 8, 16, 32 GT/s a lane, 128 of 130 bits payload. */
static void describe_links(vp_device *d, const card *c)
{
    char text[sizeof d->sources->text];

    if (c->pcie) {
        d->host_link_bytes_per_s = (double)(1 << c->pcie) * 1e9 * c->lanes * 128 / 130 / 8;
        snprintf(text, sizeof text, "PCIe %d.0 x%d: %d GT/s a lane, 128 of 130 bits, one way, before packets", c->pcie, c->lanes, 1 << c->pcie);
        say(d, VP_FIGURE_HOST_LINK, VP_CLASS_DERIVED, text);
    } else {
        d->host_link_bytes_per_s = c->c2c_gb_per_s / 2 * 1e9;
        snprintf(text, sizeof text, "%s: half of NVLink-C2C's 900 GB/s both ways%s", c->sheet,
                 c->c2c_gb_per_s < 900 ? ", and of that each of two GPUs at one Grace" : "");
        say(d, VP_FIGURE_HOST_LINK, c->c2c_gb_per_s < 900 ? VP_CLASS_ASSUMED : VP_CLASS_DERIVED, text);
    }
    if (c->nvlink_gb_per_s > 0) {
        d->peer_link_bytes_per_s = c->nvlink_gb_per_s / 2 * 1e9;
        snprintf(text, sizeof text, "%s: half of NVLink's %g GB/s both ways", c->assumed & PEER ? c->guess : c->sheet, c->nvlink_gb_per_s);
        say(d, VP_FIGURE_PEER_LINK, c->assumed & PEER ? VP_CLASS_ASSUMED : VP_CLASS_DERIVED, text);
    }
}

bool vp_device_at(int idx, vp_device *out)
{
    const card *c;
    char        text[sizeof out->sources->text];

    if (idx < 0 || idx >= N_CARDS)
        return false;
    c    = &cards[idx];
    *out = (vp_device){
        .usable_bytes = c->usable_bytes, .memory_bytes_per_s = c->gb_per_s * 1e9, .fp32_flop_per_s = c->fp32 * 1e12,
        .tf32_flop_per_s = c->tf32 * 1e12, .bf16_flop_per_s = c->bf16 * 1e12, .fp16_flop_per_s = c->fp16 * 1e12,
        .fp8_flop_per_s = c->fp8 * 1e12, .int8_op_per_s = c->int8 * 1e12, .compute_capability = c->capability,
        .multiprocessors = c->sms, .bf16 = c->capability >= 80, .fp8 = c->capability >= 89};
    snprintf(out->name, sizeof out->name, "%s", c->name);
    snprintf(out->alias, sizeof out->alias, "%s", c->alias);
    snprintf(out->product, sizeof out->product, "%s", c->product);

    say(out, VP_FIGURE_USABLE, c->derived & USABLE ? VP_CLASS_DERIVED : VP_CLASS_CITED, c->usable);
    /* Context and kernels with lazy loading, rounded up: an assumption until measured. */
    out->outside_bytes = MIB(512);
    say(out, VP_FIGURE_OUTSIDE, VP_CLASS_ASSUMED,
        "context and kernels, rounded up from 287,047,680 B (pytorch#86509) to 426 MiB (unsloth-zoo#1053)");
    say_of_sheet(out, c, VP_FIGURE_MEMORY, true);
    say_of_sheet(out, c, VP_FIGURE_FP32, true);
    say_of_sheet(out, c, VP_FIGURE_TF32, c->tf32 > 0);
    say_of_sheet(out, c, VP_FIGURE_BF16, c->bf16 > 0);
    say_of_sheet(out, c, VP_FIGURE_FP16, c->fp16 > 0);
    say_of_sheet(out, c, VP_FIGURE_FP8, c->fp8 > 0);
    say_of_sheet(out, c, VP_FIGURE_INT8, c->int8 > 0);
    describe_links(out, c);
    say(out, VP_FIGURE_CAPABILITY, VP_CLASS_CITED, "NVIDIA's list of CUDA GPUs and their compute capability");
    if (c->cores_per_sm) {
        snprintf(text, sizeof text, "%s: CUDA cores over %d a multiprocessor", c->sheet, c->cores_per_sm);
        say(out, VP_FIGURE_MULTIPROCESSORS, VP_CLASS_DERIVED, text);
    } else if (c->sms_source) {
        say(out, VP_FIGURE_MULTIPROCESSORS, VP_CLASS_CITED, c->sms_source);
    } else {
        say_of_sheet(out, c, VP_FIGURE_MULTIPROCESSORS, true);
    }
    return true;
}
