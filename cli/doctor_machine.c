#include "cli/doctor_print.h"

#include "base/json.h"
#include "base/units.h"
#include "cli/paint.h"
#include "cli/screen.h"

#include <stdio.h>

static void print_answer(const vp_machine *m)
{
    char a[32], b[32], shown[120], text[300];
    int  best = 0;

    for (int c = 1; c < m->n_cards; c++)
        if (m->cards[c].free_bytes > m->cards[best].free_bytes)
            best = c;
    if (m->n_cards)
        snprintf(text, sizeof text, "GPU %d (%s) has %s free of %s", best,
                 vp_text_escape(m->cards[best].product, shown, sizeof shown),
                 vp_size_text(m->cards[best].free_bytes, a, sizeof a),
                 vp_size_text(m->cards[best].total_bytes, b, sizeof b));
    else
        snprintf(text, sizeof text,
                 "no GPU that NVIDIA's driver answers for; %s of host memory available",
                 m->host_available_bytes >= 0 ? vp_size_text(m->host_available_bytes, a, sizeof a)
                                              : "an unknown amount");
    vp_doctor_print_answer("machine", text, m->n_odd == 0);
}

static void print_cards(const vp_machine *m)
{
    char text[400], shown[200];

    if (m->n_cards)
        printf("\n%sfree on the cards%s\n", vp_paint(VP_PAINT_HEAD), vp_paint_end());
    for (int c = 0; c < m->n_cards; c++) {
        snprintf(text, sizeof text, "GPU %d, %s", c,
                 vp_text_escape(m->cards[c].product, shown, sizeof shown));
        vp_doctor_print_sized(m->cards[c].free_bytes, text);
    }
    if (m->n_holders)
        printf("\n%sheld by%s\n", vp_paint(VP_PAINT_HEAD), vp_paint_end());
    for (int i = 0; i < m->n_holders; i++) {
        char gpu[32] = "";
        if (m->holders[i].card >= 0)
            snprintf(gpu, sizeof gpu, " on GPU %d", m->holders[i].card);
        snprintf(text, sizeof text, "process %lld%s: %s", (long long)m->holders[i].pid, gpu,
                 m->holders[i].name[0] ? vp_text_escape(m->holders[i].name, shown, sizeof shown)
                                       : "another's, its name is not known");
        vp_doctor_print_sized(m->holders[i].bytes, text);
    }
}

static void print_limit(int64_t bytes, const char *what, const char *without)
{
    if (bytes >= 0)
        vp_doctor_print_sized(bytes, what);
    else if (without)
        vp_doctor_print_sized(-1, without);
}

void vp_doctor_print_machine(const vp_machine *m)
{
    char a[32];

    print_answer(m);
    for (int i = 0; i < m->n_odd; i++) {
        vp_screen_line(i ? "" : "odd", "%s", m->odd[i].text);
        vp_screen_line("", "-> %s", m->odd[i].instead);
    }
    print_cards(m);
    printf("\n%son the host%s\n", vp_paint(VP_PAINT_HEAD), vp_paint_end());
    print_limit(m->host_total_bytes, "memory", NULL);
    print_limit(m->host_available_bytes, "available now", NULL);
    print_limit(m->group_limit_bytes, "the most that this container or job may have (cgroup)",
                "no limit of a container or job (cgroup)");
    if (m->group_limit_bytes >= 0)
        print_limit(m->group_used_bytes, "of that in use", NULL);
    print_limit(m->shm_bytes, "shared memory (/dev/shm)", "no /dev/shm");
    print_limit(m->locked_limit_bytes, "may be locked, pinned for network cards (ulimit -l)",
                "no limit on locked memory (ulimit -l)");
    print_limit(m->address_limit_bytes, "of address space (ulimit -v)",
                "no limit on address space (ulimit -v)");
    if (m->n_hidden)
        vp_screen_line("not seen", "the open files of %s processes, which belong to others",
                       vp_count_text(m->n_hidden, a, sizeof a));
    printf("\n");
    vp_screen_command(
        "next", m->n_cards ? "vplan estimate MODEL --trainer hf --seq TOKENS"
                           : "vplan devices --fits MODEL --seq TOKENS --global-batch SAMPLES");
}

json_t *vp_doctor_machine_json(const vp_machine *m)
{
    json_t *cards = json_array(), *holders = json_array(), *odd = json_array();

    for (int c = 0; c < m->n_cards; c++)
        json_array_append_new(cards,
                              json_pack("{s:i, s:o, s:I, s:I, s:I, s:I}", "gpu", c, "product",
                                        vp_json_text_or_null(m->cards[c].product), "total_bytes",
                                        (json_int_t)m->cards[c].total_bytes, "free_bytes",
                                        (json_int_t)m->cards[c].free_bytes, "used_bytes",
                                        (json_int_t)m->cards[c].used_bytes, "unseen_bytes",
                                        (json_int_t)m->cards[c].unseen_bytes));
    for (int i = 0; i < m->n_holders; i++)
        json_array_append_new(holders, json_pack("{s:o, s:I, s:o, s:o}", "gpu",
                                                 vp_json_int_or_null(m->holders[i].card), "pid",
                                                 (json_int_t)m->holders[i].pid, "name",
                                                 vp_json_text_or_null(m->holders[i].name), "bytes",
                                                 vp_json_int_or_null(m->holders[i].bytes)));
    for (int i = 0; i < m->n_odd; i++)
        json_array_append_new(
            odd, json_pack("{s:s, s:s}", "text", m->odd[i].text, "instead", m->odd[i].instead));
    return json_pack("{s:i, s:s, s:o, s:o, s:I, s:{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}, s:o}",
                     "schema_version", 1, "kind", "machine", "cards", cards, "processes", holders,
                     "hidden_processes", (json_int_t)m->n_hidden, "host", "total_bytes",
                     vp_json_int_or_null(m->host_total_bytes), "available_bytes",
                     vp_json_int_or_null(m->host_available_bytes), "group_limit_bytes",
                     vp_json_int_or_null(m->group_limit_bytes), "group_used_bytes",
                     vp_json_int_or_null(m->group_used_bytes), "shm_bytes",
                     vp_json_int_or_null(m->shm_bytes), "shm_free_bytes",
                     vp_json_int_or_null(m->shm_free_bytes), "locked_limit_bytes",
                     vp_json_int_or_null(m->locked_limit_bytes), "address_limit_bytes",
                     vp_json_int_or_null(m->address_limit_bytes), "odd", odd);
}
