/* Files of other trainers: what emit writes, check reads back as the same settings; of every target.
 * 500 random settings each, those that the target cannot be told counted and not only there. */
#include "base_test.h"

#include "trainers/files/check.h"
#include "trainers/files/check_internal.h"
#include "trainers/files/emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed_state = 1;

static int below(int n)
{
    seed_state = seed_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((seed_state >> 33) % (uint64_t)n);
}

static const char *one_of(const char *words, vp_arena *arena)
{
    int n = 1;

    for (const char *p = words; *p; p++)
        n += *p == '|';
    for (int i = below(n); i > 0; i--)
        words = strchr(words, '|') + 1;
    return vp_arena_printf(arena, "%.*s", (int)strcspn(words, "|"), words);
}

static const char optimizers[] =
    "adamw_torch|adamw_torch_fused|sgd|adafactor|adamw_8bit|galore_adamw:targets=mlp|"
    "apollo_adamw:rank=8,targets=self_attn.q_proj+v_proj";

static vp_settings random_settings(vp_arena *arena)
{
    vp_settings       s                    = VP_SETTINGS_UNSAID;
    const char *const words[VP_N_SETTINGS] = {
        [VP_SETTING_PARALLEL]     = "none|ddp|fsdp|fsdp2|zero1|zero2|zero3",
        [VP_SETTING_MICRO_BATCH]  = "1|2|3|4|16|64",
        [VP_SETTING_ACCUMULATION] = "1|2|8|32",
        [VP_SETTING_SEQ]          = "128|1024|2048|32768",
        [VP_SETTING_PRECISION]    = "fp32|bf16-mixed|bf16-mixed|bf16-amp|bf16|fp16-mixed|fp16",
        [VP_SETTING_OPTIMIZER]    = optimizers,
        [VP_SETTING_RECOMPUTE]    = "none|full|full|every:2|every:5|selective|first:7|chunks:4",
        [VP_SETTING_OFFLOAD_OPTIMIZER]   = "none|none|cpu",
        [VP_SETTING_OFFLOAD_PARAMS]      = "none|none|cpu",
        [VP_SETTING_OFFLOAD_ACTIVATIONS] = "none|none|cpu",
        [VP_SETTING_LOSS]                = "full|full|full|chunked|chunked|liger",
        [VP_SETTING_ATTENTION]           = "sdpa|sdpa|sdpa|eager|flash2|flash3",
        [VP_SETTING_CLIP_NORM]           = "1.0|0.5|0.0|0.0",
        [VP_SETTING_TUNING]              = "full|full|lora|qlora",
        [VP_SETTING_ALLOCATOR]           = "default|expandable",
        [VP_SETTING_METHOD]              = "sft|sft|sft|dpo",
        [VP_SETTING_EVAL_BATCH]          = "none|none|4|16",
        [VP_SETTING_GRADIENT_SYNC]       = "step|step|step|step|step|step|step|each",
    };
    for (int i = 0; i < VP_N_SETTINGS; i++)
        s.value[i] = words[i] ? one_of(words[i], arena) : NULL;
    bool one                  = strcmp(s.value[VP_SETTING_PARALLEL], "none") == 0;
    s.value[VP_SETTING_WORLD] = one ? "1" : one_of("2|4|8|64", arena);
    if (strncmp(s.value[VP_SETTING_PARALLEL], "fsdp", 4) != 0) /* all others know one way */
        s.value[VP_SETTING_GRADIENT_SYNC] = "step";
    s.model = "meta-llama/Llama-3.1-8B";
    if (strcmp(s.value[VP_SETTING_TUNING], "full") != 0) {
        if (strcmp(s.value[VP_SETTING_TUNING], "qlora") == 0) {
            s.value[VP_SETTING_QUANT]   = one_of("nf4|nf4-dq|nf4-dq", arena);
            s.value[VP_SETTING_PREPARE] = one_of("trainer|trainer|on|off", arena);
        }
        s.value[VP_SETTING_LORA_R]       = one_of("8|16|64", arena);
        s.value[VP_SETTING_LORA_ALPHA]   = one_of("16|32", arena);
        s.value[VP_SETTING_LORA_DROPOUT] = one_of("0.0|0.05", arena);
        s.value[VP_SETTING_LORA_TARGETS] = one_of("q_proj+v_proj|all-linear|q_proj", arena);
        s.value[VP_SETTING_LORA_SAVE]    = one_of("none|none|lm_head|embed_tokens+lm_head", arena);
    }
    return s;
}

/* Every file but README.md and scripts, written and read again. */
static void read_back(vp_arena *arena, const vp_emitted *e, const vp_target *target,
                      const json_t *versions, vp_checked *c)
{
    vp_err         err = {0};
    vp_check_input inputs[VP_EMIT_MAX_FILES];
    int            n = 0;

    for (int i = 0; i < e->n_files; i++) {
        char *path = vp_arena_printf(arena, "%s/%s", test_dir, e->files[i].name);
        if (!e->files[i].dialect)
            continue;
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(e->files[i].text, f);
        fclose(f);
        inputs[n++] = (vp_check_input){.path = path};
    }
    vp_status st = vp_check(arena, inputs, n, &(vp_check_opts){target, versions}, c, &err);
    if (st != VP_OK)
        fail_msg("%s: %s", target->name, err.message);
}

static bool by_script(const vp_target *t, int setting)
{
    for (const vp_told *row = t->script; row && row->setting; row++)
        if (strncmp(row->setting, vp_setting_key(setting), strlen(vp_setting_key(setting))) == 0)
            return true;
    return setting == VP_SETTING_ALLOCATOR; /* of the launch line */
}

/* What importing Unsloth sets, whatever the launch line has. */
static bool by_import(const vp_target *t, int setting, const char *got)
{
    return t == &vp_target_unsloth && setting == VP_SETTING_ALLOCATOR && got &&
           strcmp(got, "expandable") == 0;
}

static void compare(const vp_target *t, uint64_t seed, const vp_settings *want, const vp_checked *c)
{
    for (int64_t i = 0; i < c->n_findings; i++)
        if (c->findings[i].severity == VP_ERROR)
            fail_msg("%s, seed %llu: %s:%d: %s: %s", t->name, (unsigned long long)seed,
                     c->findings[i].file, c->findings[i].line, c->findings[i].key,
                     c->findings[i].message);
    for (int i = 0; i < VP_N_SETTINGS; i++) {
        const char *got = c->settings.value[i];
        if (!want->value[i])
            continue;
        /* what a target cannot do at all has no key, and stands at nothing */
        bool nothing = vp_setting_otherwise(i) && !strcmp(want->value[i], vp_setting_otherwise(i));
        if ((!got && nothing) || (by_script(t, i) && (!got || c->by_default[i])))
            continue;
        if (c->may_be[i] && strstr(c->may_be[i], want->value[i]))
            continue;
        if (by_import(t, i, got))
            continue;
        if (!got || strcmp(got, want->value[i]) != 0)
            fail_msg("%s, seed %llu: %s: %s was written, %s is read", t->name,
                     (unsigned long long)seed, vp_setting_key(i), want->value[i],
                     got ? got : "nothing");
    }
}

/* 500 that can be said, of at most so many drawn: litgpt has words for one in some thousands. */
static void round_trip(const vp_target *t, const json_t *versions)
{
    int done = 0;

    for (uint64_t seed = 1; seed <= 4000000 && done < 500; seed++) {
        vp_arena  *arena = vp_arena_new();
        vp_err     err   = {0};
        vp_emitted e;
        vp_checked c;
        seed_state    = seed * 2654435761u;
        vp_settings s = random_settings(arena);
        s.versions    = (json_t *)versions;
        vp_status st  = vp_emit(arena, t, &s, "a test", &e, &err);
        if (st == VP_OK) {
            read_back(arena, &e, t, versions, &c);
            compare(t, seed, &s, &c);
            vp_emitted_release(&e);
            done++;
        } else {
            assert_int_equal(st, VP_ERR_INPUT);
            assert_non_null(strstr(err.message, "cannot be told"));
        }
        vp_arena_free(arena);
    }
    if (done < 500)
        fail_msg("%s: only %d settings could be said", t->name, done);
}

static void what_emit_writes_check_reads_as_the_same_settings(void **state)
{
    const vp_target *t;

    (void)state;
    for (int i = 0; (t = vp_target_at(i)); i++)
        round_trip(t, NULL);
}

static void so_for_older_versions(void **state)
{
    json_t *old = json_pack("{s:s, s:s, s:s, s:s, s:s}", "transformers", "5.17.0", "trl", "1.12.0",
                            "deepspeed", "0.16.0", "axolotl", "0.19.0", "accelerate", "1.7.0");

    (void)state;
    round_trip(&vp_target_hf, old);
    round_trip(&vp_target_trl, old);
    round_trip(&vp_target_axolotl, old);
    round_trip(&vp_target_deepspeed, old);
    json_decref(old);
}

/* A name that scripts have beside the dialect's own keys. */
static bool is_of_scripts(const vp_dialect *d, const char *name)
{
    for (int i = 0; i < d->n_sections; i++)
        if (d->sections[i].scripts && vp_listed(d->sections[i].scripts, name))
            return true;
    return false;
}

/* A name at the top of its files that it, or who it is based on, knows and has no key for. */
static bool is_known(const vp_dialect *d, const char *name)
{
    for (; d; d = d->base)
        for (int i = 0; i < d->n_sections; i++)
            if (!d->sections[i].path[0] && vp_listed(d->sections[i].known, name))
                return true;
    return false;
}

/* Words of a table that nobody would notice: every key of a saying and of a rule is known; what is only read may be a script's. */
static void tables_name_only_keys_that_they_have(void **state)
{
    const vp_dialect *d;

    (void)state;
    for (int i = 0; (d = vp_dialect_at(i)); i++) {
        for (int k = 0; k < d->n_says; k++) {
            if (!vp_dialect_key(d, d->says[k].key, NULL) &&
                !(d->says[k].read_only &&
                  (d->says[k].of_command || is_of_scripts(d, d->says[k].key))))
                fail_msg("%s says %s, which is none of its keys", d->name, d->says[k].key);
            vp_when_holds(d->says[k].when, &(vp_settings){0}, NULL); /* asserts the names */
        }
        for (int k = 0; k < d->n_rules; k++) {
            if (!vp_dialect_key(d, d->rules[k].key, NULL) && !is_known(d, d->rules[k].key))
                fail_msg("%s: a rule on %s, which is none of its keys", d->name, d->rules[k].key);
            if (d->rules[k].other && !strchr(d->rules[k].other, '.') &&
                !vp_dialect_key(d, d->rules[k].other, NULL) && !is_known(d, d->rules[k].other))
                fail_msg("%s: a rule with %s, which is none of its keys", d->name,
                         d->rules[k].other);
        }
    }
}

static void versions_compare_by_number(void **state)
{
    (void)state;
    assert_int_equal(vp_version_compare("5.9", "5.17"), -1);
    assert_int_equal(vp_version_compare("5.17", "5.17.0"), 0);
    assert_int_equal(vp_version_compare("1.16.0", "1.7"), 1);
    assert_true(vp_version_within("0.19.8", "0.19", NULL));
    assert_false(vp_version_within("5.23.0", NULL, "5.23"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_compare_by_number),
        cmocka_unit_test(tables_name_only_keys_that_they_have),
        cmocka_unit_test(what_emit_writes_check_reads_as_the_same_settings),
        cmocka_unit_test(so_for_older_versions),
    };
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
