/* trainers/files/dialect_scripts.c: what scripts beside transformers' arguments call what a model is loaded with: ModelArguments of its own
 * examples (run_clm.py) and of those who copied them. Read of commands alone, for no parser of a library has these options. */
#include "trainers/files/target.h"

#define LOADED(word, key, as, ...) \
    { \
        VP_SETTING_PRECISION, word, key, as, .read_only = true, .of_command = true, __VA_ARGS__ \
    }
#define LOADED_BY(key) \
    LOADED("fp32", key, "float32"), LOADED("bf16-mixed", key, "float32"), \
        LOADED("fp16-mixed", key, "float32"), LOADED("bf16-amp", key, "bfloat16"), \
        LOADED("bf16", key, "bfloat16"), \
        LOADED("fp16-amp", key, "float16", .when = "tuning!=full"), LOADED("fp16", key, "float16")
#define ATTENDS(word, as) \
    { \
        VP_SETTING_ATTENTION, word, "attn_implementation", as, .read_only = true, \
                                                               .of_command = true \
    }

static const vp_saying says[] = {
    LOADED_BY("torch_dtype"),
    LOADED_BY("dtype"),
    ATTENDS("eager", "eager"),
    ATTENDS("sdpa", "sdpa"),
    ATTENDS("flash2", "flash_attention_2"),
    ATTENDS("flash3", "flash_attention_3"),
    ATTENDS("flex", "flex_attention"),
};

const vp_dialect vp_dialect_scripts = {
    .name    = "a script's own options",
    .library = "transformers",
    .version = "5.24.0",
    .says    = says,
    .n_says  = sizeof says / sizeof *says,
};
