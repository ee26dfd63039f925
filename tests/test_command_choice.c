/* tests/test_command_choice.c: the search for the fastest setting of a command that fits, asked of spaces of which every setting
 * is known: those of a model whose memory and time are drawn here, at many budgets. What is asserted is what tuner/README.md
 * promises: nothing that fits is faster than what is returned, and how much of a space was asked for. */
#include "tests/base_test.h"

#include "base/arena.h"
#include "tuner/command_internal.h"

#include <math.h>

enum { ALL = 24, MAX_ASKED = 200 };

static double drawn(uint64_t *state) /* splitmix64 (Steele, Lea, Flood 2014), in [0, 1) */
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x          = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x          = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

static double between(uint64_t *state, double low, double high)
{
    return low + (high - low) * drawn(state);
}

/* ---- a training whose bytes and seconds follow from its setting ---- */

typedef struct law {
    double parameters, sample, kept,
        outside;      /* bytes: of parameters, a sample, what checkpointing leaves of it */
    double scattered; /* of what is allocated, by chance, reserved beside it */
    double host, card, rest,
        again; /* seconds of a micro-step: host; card a sample; how much checkpointing adds */
    double optimizer_host[2], optimizer_card[2], optimizer_bytes[2]; /* foreach, fused */
    int    times_matter;
    /* against what is assumed: bytes and seconds of the fused optimizer, and of a batch of 6, are so many times as much */
    double   fused_bytes, fused_s, six_bytes, six_s;
    uint64_t seed;
} law;

static law drawn_law(uint64_t seed)
{
    uint64_t s = seed;
    law      l = {.seed = seed, .fused_bytes = 1, .fused_s = 1, .six_bytes = 1, .six_s = 1};

    l.parameters         = between(&s, 20, 400);
    l.sample             = l.parameters * between(&s, 0.05, 2);
    l.kept               = between(&s, 0.15, 0.6);
    l.outside            = between(&s, 250, 700);
    l.scattered          = between(&s, 0, 0.12);
    l.host               = between(&s, 2e-3, 30e-3);
    l.card               = l.host * between(&s, 0.05, 1.5);
    l.rest               = between(&s, 0, 3);
    l.again              = between(&s, 0.2, 0.4);
    l.optimizer_host[0]  = between(&s, 1e-3, 10e-3);
    l.optimizer_host[1]  = l.optimizer_host[0] * between(&s, 0.2, 0.95);
    l.optimizer_card[0]  = between(&s, 1e-3, 10e-3);
    l.optimizer_card[1]  = l.optimizer_card[0] * between(&s, 0.5, 0.99);
    l.optimizer_bytes[0] = l.parameters * between(&s, 0.1, 1);
    l.times_matter       = drawn(&s) < 0.5;
    return l;
}

/* One setting of a law: what it does and what it would need without a limit. */
static vp_command_trial unlimited(const law *l, int batch, int ckpt, int fused)
{
    int              times = ALL / batch;
    uint64_t         s     = l->seed * 1000 + (uint64_t)(batch * 4 + ckpt * 2 + fused);
    double           mib = 1 << 20, held, bytes, card, host, six = batch == 6 ? l->six_s : 1;
    vp_command_trial t = {.verdict = VP_COMMAND_OK, .evidence = "", .arguments = ""};

    held  = 3 * l->parameters;
    bytes = l->parameters + batch * l->sample * (ckpt ? l->kept : 1); /* gradients, activations */
    bytes = fmax(bytes + (times > 1 ? 0.1 * l->parameters : 0),
                 l->parameters + l->optimizer_bytes[fused]);
    bytes = (held + bytes) * (fused ? l->fused_bytes : 1) * (batch == 6 ? l->six_bytes : 1);
    t.allocated_bytes  = (int64_t)(bytes * mib);
    t.reserved_bytes   = (int64_t)((bytes * (1 + l->scattered * drawn(&s)) + 2) / 2) * (2 << 20);
    t.device_bytes     = t.reserved_bytes + (int64_t)l->outside * (1 << 20);
    t.held_bytes       = (int64_t)(held * mib);
    host               = l->host * (1 + (ckpt ? l->again : 0)) * six;
    card               = l->card * (batch + l->rest) * (1 + (ckpt ? l->again : 0)) * six;
    t.optimizer_host_s = l->optimizer_host[fused] * (fused ? l->fused_s : 1);
    t.optimizer_card_s = l->optimizer_card[fused] * (fused ? l->fused_s : 1);
    t.host_s           = times * host + t.optimizer_host_s;
    t.card_s           = times * card + t.optimizer_card_s;
    t.step_s           = fmax(t.host_s, t.card_s);
    t.samples_per_s    = ALL / t.step_s;
    return t;
}

/* The same; who is assumed to need more reserves no less. */
static vp_command_trial in_order(const law *l, int batch, int ckpt, int fused)
{
    vp_command_trial t = unlimited(l, batch, ckpt, fused), u;

    for (int b = 1; b <= batch; b++)
        for (int c = ckpt; c < 2; c++)
            for (int f = fused; f < 2; f++) {
                if (ALL % b || (batch == ALL) != (b == ALL))
                    continue;
                u = unlimited(l, b, c, f);
                t.reserved_bytes =
                    u.reserved_bytes > t.reserved_bytes ? u.reserved_bytes : t.reserved_bytes;
            }
    t.device_bytes = t.reserved_bytes + (int64_t)l->outside * (1 << 20);
    return t;
}

/* What a trial is at a budget; growing: segments that grow leave 20 MiB at most between what is reserved and allocated. */
static vp_command_trial limited(vp_command_trial t, int64_t budget, bool growing)
{
    const int64_t mib = 1 << 20, asked = 2 * mib;
    int64_t       outside = t.device_bytes - t.reserved_bytes, room = budget - outside;

    if (growing)
        t.reserved_bytes = (t.allocated_bytes + 20 * mib - 1) / (20 * mib) * (20 * mib);
    t.device_bytes = outside + t.reserved_bytes;
    if (t.device_bytes <= budget)
        return t;
    return (vp_command_trial){
        .verdict      = VP_COMMAND_OOM_DEVICE,
        .needed_bytes = t.allocated_bytes <= room ? t.allocated_bytes + outside : budget + asked,
        .evidence     = "",
        .arguments    = ""};
}

/* ---- trainings of which every setting was played without a limit ---- */

typedef struct known {
    vp_command_trial of[ALL + 1][2][2]; /* batch, recompute, the better value; untried: none */
    int              n;
    const char      *better, *values,
        *had;   /* the axis whose second value is assumed to be better; had: its first */
    bool packs; /* segments that grow are tried too */
} known;

static void read_known(const char *path, known *k)
{
    FILE  *f = fopen(path, "r");
    char   line[1000];
    int    batch, recompute, better;
    double x[10];

    assert_non_null(f);
    k->n = 0;
    for (int i = 0; i < (ALL + 1) * 4; i++)
        k->of[i / 4][i / 2 % 2][i % 2] = (vp_command_trial){.verdict = VP_COMMAND_UNTRIED};
    assert_non_null(fgets(line, sizeof line, f)); /* the names of the columns */
    while (fgets(line, sizeof line, f)) {
        assert_int_equal(sscanf(line, "%d,%d,%d,%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf", &batch,
                                &recompute, &better, x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6,
                                x + 7, x + 8, x + 9),
                         13);
        assert_true(batch > 0 && batch <= ALL && ALL % batch == 0 && recompute >> 1 == 0 &&
                    better >> 1 == 0);
        k->of[batch][recompute][better] = (vp_command_trial){.verdict          = VP_COMMAND_OK,
                                                             .evidence         = "",
                                                             .arguments        = "",
                                                             .allocated_bytes  = (int64_t)x[0],
                                                             .reserved_bytes   = (int64_t)x[1],
                                                             .device_bytes     = (int64_t)x[2],
                                                             .held_bytes       = (int64_t)x[3],
                                                             .step_s           = x[4],
                                                             .samples_per_s    = x[5],
                                                             .host_s           = x[6],
                                                             .card_s           = x[7],
                                                             .optimizer_host_s = x[8],
                                                             .optimizer_card_s = x[9]};
        k->n++;
    }
    fclose(f);
}

/* ---- the search ---- */

typedef struct search {
    vp_arena        *arena;
    vp_command_space space;
    vp_choice        choice;
    vp_command_trial all[2000]; /* of each setting, at the budget */
    int64_t          asked[MAX_ASKED];
    int              n_asked, n_plain; /* settings without those that only pack tighter */
} search;

static const char *const no_command[] = {NULL};

static void add(search *q, const char *name, vp_axis_place place, vp_axis_kind kind,
                const char *values, const char *had)
{
    vp_err err = {0};

    assert_int_equal(vp_space_add_axis(&q->space,
                                       (vp_axis){.name = name, .place = place, .kind = kind},
                                       values, had, (char *const *)no_command, &err),
                     VP_OK);
}

static int value_of(const search *q, int64_t setting, int axis)
{
    return (int)vp_axis_number(&q->space.axes[axis],
                               q->space.values[setting * q->space.n_axes + axis]);
}

enum { BATCH, ACCUM, CKPT, OPTIM, PACKS };

/* Of a law, or, where that is NULL, of known trials. */
static void begin(search *q, const law *l, const known *k, int64_t budget)
{
    vp_err err = {0};

    memset(q, 0, sizeof *q);
    q->arena       = vp_arena_new();
    q->space.arena = q->arena;
    bool all       = !k || k->n == 32;
    add(q, "batch", VP_AXIS_BRACES, 0, all ? "1,2,3,4,6,8,12,24" : "2,4,6,8,12,24", "4");
    add(q, "accum", VP_AXIS_BRACES, 0, all ? "24,12,8,6,4,3,2,1" : "12,6,4,3,2,1", "6");
    add(q, "ckpt", VP_AXIS_BRACES, 0, "0,1", "0");
    add(q, k ? k->better : "optim", VP_AXIS_BRACES, 0, k ? k->values : "foreach,fused",
        k ? k->had : "foreach");
    if (!k || k->packs)
        add(q, "PYTORCH_ALLOC_CONF", VP_AXIS_VARIABLE, VP_AXIS_PACKS,
            "default,expandable_segments:True", "default");
    assert_int_equal(vp_space_settings(&q->space, &err), VP_OK);
    assert_int_equal(vp_space_keep(&q->space, "batch*accum=24", &err), VP_OK);
    q->choice =
        (vp_choice){.space    = &q->space,
                    .settings = vp_arena_array(q->arena, q->space.n, sizeof(vp_command_setting)),
                    .known    = vp_arena_array(q->arena, q->space.n, sizeof(int64_t)),
                    .state    = vp_arena_alloc(q->arena, (size_t)q->space.n),
                    .budget_bytes = budget,
                    .best         = -1,
                    .near         = -1};
    for (int64_t s = 0; s < q->space.n; s++) {
        const int *v     = q->space.values + s * q->space.n_axes;
        int        batch = value_of(q, s, BATCH);
        bool       packs = q->space.n_axes > PACKS && v[PACKS];
        q->all[s] =
            limited(l ? in_order(l, batch, v[CKPT], v[OPTIM]) : k->of[batch][v[CKPT]][v[OPTIM]],
                    budget, packs);
        q->n_plain += !packs;
        q->choice.settings[s] = (vp_command_setting){
            .value = v, .trial = {.verdict = VP_COMMAND_UNTRIED, .evidence = "", .arguments = ""}};
    }
}

static void take(search *q, int64_t s)
{
    assert_true(q->n_asked < MAX_ASKED);
    assert_int_equal(q->choice.state[s], VP_SETTING_UNTRIED);
    q->asked[q->n_asked++]      = s;
    q->choice.settings[s].trial = q->all[s];
    q->choice.state[s]          = VP_SETTING_DONE;
    vp_choice_better(&q->choice, s);
}

static void run(search *q)
{
    bool    verifying = false;
    int64_t next      = -1;

    for (int64_t s = 0; s < q->space.n; s++) {
        bool had = true;
        for (int a = 0; a < q->space.n_axes; a++)
            had = had && q->space.values[s * q->space.n_axes + a] == q->space.axes[a].had;
        next = had ? s : next;
    }
    take(q, next);
    while ((next = vp_choice_ask(&q->choice, &verifying)) >= 0)
        take(q, next);
}

/* How much slower than the fastest that fits; INFINITY: something fits, and nothing was returned. */
static double behind(const search *q)
{
    double fastest = 0;

    for (int64_t s = 0; s < q->space.n; s++)
        if (q->all[s].verdict == VP_COMMAND_OK && q->all[s].samples_per_s > fastest)
            fastest = q->all[s].samples_per_s;
    if (!(fastest > 0))
        return 0;
    return q->choice.best < 0 ? INFINITY : fastest / q->all[q->choice.best].samples_per_s - 1;
}

static void tell(const search *q, uint64_t seed, int64_t budget)
{
    printf("seed %llu, budget %lld MiB: %.3f %% behind, asked for", (unsigned long long)seed,
           (long long)(budget >> 20), 100 * behind(q));
    for (int i = 0; i < q->n_asked; i++) {
        printf(" (");
        for (int a = 0; a < q->space.n_axes; a++)
            printf("%s%s", a ? " " : "",
                   q->space.axes[a].values[q->space.values[q->asked[i] * q->space.n_axes + a]]);
        printf(": %s)", vp_command_verdict_name(q->all[q->asked[i]].verdict));
    }
    printf("\n");
}

static int64_t budget_of(const law *l, double share)
{
    int64_t least = unlimited(l, 1, 1, 1).device_bytes, most = unlimited(l, ALL, 0, 0).device_bytes;

    return (int64_t)((double)least + share * (double)(most - least)) >> 20 << 20;
}

/* ---- what is promised ---- */

typedef struct tally {
    int n, asked, more, wrong, noticed_bytes, noticed_seconds;
} tally;

/* Ten budgets of each of so many laws that are drawn, bent: what is off. */
static tally tried(uint64_t n_laws, void (*bend)(law *l), int axis)
{
    tally   all = {0};
    search *q   = malloc(sizeof *q);

    assert_non_null(q);
    for (uint64_t seed = 1; seed <= n_laws; seed++)
        for (int i = 0; i < 10; i++) {
            law l = drawn_law(seed);
            if (bend)
                bend(&l);
            int64_t budget = budget_of(&l, (i + 0.5) / 10);
            begin(q, &l, NULL, budget);
            run(q);
            bool more = 4 * q->n_asked > q->n_plain, wrong = behind(q) > 1e-9;
            all.n++;
            all.asked += q->n_asked;
            all.more += more;
            all.wrong += wrong;
            all.noticed_bytes += q->choice.memory_against[axis];
            all.noticed_seconds += q->choice.speed_against[axis];
            if (getenv("VPLAN_TELL") && (wrong || more))
                tell(q, seed, budget);
            vp_arena_free(q->arena);
        }
    printf(
        "%d searches: %.2f of 32 asked for, more than a quarter in %d, not the fastest in %d; against what is assumed of %d: "
        "bytes %d, seconds %d\n",
        all.n, (double)all.asked / all.n, all.more, all.wrong, axis, all.noticed_bytes,
        all.noticed_seconds);
    free(q);
    return all;
}

static void the_fastest_that_fits_from_a_quarter_of_the_space(void **state)
{
    (void)state;
    tally t = tried(100, NULL, OPTIM);
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.noticed_bytes + t.noticed_seconds, 0);
    assert_true(t.more <= t.n / 8);
}

/* Every MiB between the least that fits and where all does. */
static tally at_every_budget(const char *path, known *k)
{
    const int64_t mib   = 1 << 20;
    tally         all   = {0};
    search       *q     = malloc(sizeof *q);
    int64_t       least = INT64_MAX, most = 0;

    assert_non_null(q);
    read_known(path, k);
    for (int i = 0; i < (ALL + 1) * 4; i++) {
        const vp_command_trial *t = &k->of[i / 4][i / 2 % 2][i % 2];
        least = t->device_bytes && t->device_bytes < least ? t->device_bytes : least;
        most  = t->device_bytes > most ? t->device_bytes : most;
    }
    for (int64_t budget = least / mib * mib; budget <= most; budget += mib) {
        begin(q, NULL, k, budget);
        run(q);
        bool more = 4 * q->n_asked > q->n_plain, wrong = behind(q) > 1e-9;
        all.n++;
        all.asked += q->n_asked;
        all.more += more;
        all.wrong += wrong;
        if (getenv("VPLAN_TELL") && (wrong || more))
            tell(q, 0, budget);
        vp_arena_free(q->arena);
    }
    printf(
        "%s: %d budgets, %.2f of %d asked for, more than a quarter in %d, not the fastest in %d\n",
        path, all.n, (double)all.asked / all.n, k->n, all.more, all.wrong);
    free(q);
    return all;
}

/* Commands that tests/dryrun/tune_commands.py has, each setting played. */
static void real_commands_too(void **state)
{
    known *k = malloc(sizeof *k);
    tally  t, h100, h200;

    (void)state;
    assert_non_null(k);
    *k   = (known){.better = "optim", .values = "foreach,fused", .had = "foreach", .packs = true};
    t    = at_every_budget("tests/golden/spaces/trl-sft-h100.csv", k);
    *k   = (known){.better = "attention", .values = "eager,sdpa", .had = "eager"};
    h100 = at_every_budget("tests/golden/spaces/gpt2-h100.csv", k);
    h200 = at_every_budget("tests/golden/spaces/gpt2-h200.csv", k);
    assert_int_equal(k->n, 24);
    assert_int_equal(t.wrong + h100.wrong + h200.wrong, 0);
    assert_true(t.more <= t.n / 8 && h100.more <= h100.n / 10 && h200.more <= h200.n / 10);
    free(k);
}

static void slower_fused(law *l)
{
    l->fused_s = 2.5;
}

static void larger_fused(law *l)
{
    l->fused_bytes = 1.15;
}

static void slower_six(law *l)
{
    l->six_s = 1.5;
}

static void larger_six(law *l)
{
    l->six_bytes = 1.4;
}

/* Where no trial shows it (the other value fits nowhere, or that batch is not tried), it is not noticed: the share that was, and
 * that the search goes on without the assumption. A batch of 6 that is slower than one of 4 is no loss unless one of 8 fails. */
static void what_contradicts_an_order_is_noticed(void **state)
{
    (void)state;
    tally t = tried(60, slower_fused, OPTIM);
    assert_true(t.noticed_seconds > t.n * 9 / 10 && t.noticed_bytes == 0);
    assert_true(t.wrong < t.n / 20);
    t = tried(60, larger_fused, OPTIM);
    assert_true(t.noticed_bytes > t.n * 9 / 10 && t.noticed_seconds == 0);
    assert_true(t.wrong < t.n / 50);
    t = tried(60, slower_six, BATCH);
    assert_true(t.noticed_seconds > t.n / 4 && t.noticed_bytes == 0);
    t = tried(60, larger_six, BATCH);
    assert_true(t.noticed_bytes > 0 && t.noticed_seconds == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_that_fits_from_a_quarter_of_the_space),
        cmocka_unit_test(real_commands_too),
        cmocka_unit_test(what_contradicts_an_order_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
