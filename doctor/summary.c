#include "doctor/summary.h"

#include "base/units.h"
#include "doctor/log_reader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CELLS = 12, CELL = 120, MAX_WORDS = 32 };

/* What is known of a line: its cells between bars, or its words. */
typedef struct reader {
    vp_arena   *arena;
    vp_summary *s;
    bool        in_processes;                  /* of nvidia-smi's table */
    int         csv_pid, csv_memory, csv_name; /* columns of a query; -1: none */
} reader;

static void trim(char *text)
{
    size_t n = strlen(text), blank = strspn(text, " \t");

    while (n > blank && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    memmove(text, text + blank, n - blank);
    text[n - blank] = '\0';
}

/* The parts of a line between separators, trimmed; bars at its ends make none. */
static int split(const char *line, char separator, char cells[MAX_CELLS][CELL])
{
    int n = 0;

    line += strspn(line, " \t");
    line += *line == separator;
    while (*line && n < MAX_CELLS) {
        const char *end  = strchr(line, separator);
        size_t      size = end ? (size_t)(end - line) : strlen(line);
        size_t      kept = size < CELL ? size : CELL - 1;

        memcpy(cells[n], line, kept);
        cells[n][kept] = '\0';
        trim(cells[n++]);
        line += size + (end != NULL);
    }
    return n;
}

/* "103460 KiB", "10240MiB", "0 B": bytes; -1: it is none. PyTorch's KB and MB are powers of 1024 too. */
static int64_t bytes_of(const char *text)
{
    static const char letters[] = "BKMGTP";
    char             *end;
    long long         value = strtoll(text, &end, 10);
    const char       *unit;

    if (end == text || value < 0)
        return -1;
    end += *end == ' ';
    unit = *end ? strchr(letters, *end) : NULL;
    if (!unit || value >> 40)
        return -1;
    for (const char *u = letters; u < unit; u++)
        if (__builtin_mul_overflow(value, 1024, &value))
            return -1;
    end++;
    end += *end == 'i';
    end += unit > letters && *end == 'B';
    return *end ? -1 : value;
}

static int64_t number_behind(const char *line, const char *words)
{
    const char *at = strstr(line, words);
    char       *end;
    long long   value = at ? strtoll(at + strlen(words), &end, 10) : -1;

    return at && end > at + strlen(words) && value >= 0 ? value : -1;
}

static void begin_table(reader *r, const char *line)
{
    vp_summary *s = r->s;

    s->has_allocator = true;
    s->n_tables++;
    s->n_ooms = s->n_retries = -1;
    s->device                = (int)number_behind(line, "device ID ");
    for (int i = 0; i < VP_N_METRICS; i++)
        s->metrics[i].now_bytes = s->metrics[i].peak_bytes = -1;
}

/* "| Allocated memory      | 103460 KiB | 173097 KiB | 472180 KiB | 368720 KiB |" */
static void read_metric(reader *r, const char *line)
{
    static const char *const rows[] = {
#define X(name, row, key, text) row,
        VP_METRICS(X)
#undef X
    };
    char cells[MAX_CELLS][CELL];
    int  n = split(line, '|', cells);

    if (n < 3)
        return;
    for (char *c = cells[0]; *c; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    for (int i = 0; i < VP_N_METRICS; i++)
        if (strcmp(cells[0], rows[i]) == 0) {
            r->s->metrics[i].now_bytes  = bytes_of(cells[1]);
            r->s->metrics[i].peak_bytes = bytes_of(cells[2]);
        }
}

/* "| 30%   41C  P2   60W / 350W |  10240MiB / 24576MiB |   98%   Default |" */
static void read_card(reader *r, const char *line)
{
    char cells[MAX_CELLS][CELL];
    int  n = split(line, '|', cells);

    for (int i = 0; i < n && r->s->n_cards < VP_MAX_CARDS; i++) {
        char   *slash = strchr(cells[i], '/');
        int64_t used, total;

        if (!slash || !strstr(slash, "MiB"))
            continue;
        *slash = '\0';
        trim(cells[i]);
        trim(slash + 1);
        used  = bytes_of(cells[i]);
        total = bytes_of(slash + 1);
        if (used >= 0 && total > 0) {
            r->s->cards[r->s->n_cards].used_bytes    = used;
            r->s->cards[r->s->n_cards++].total_bytes = total;
            return;
        }
    }
}

static void add_process(reader *r, int card, int64_t pid, const char *name, int64_t bytes)
{
    if (r->s->n_processes < VP_MAX_CARD_PROCESSES)
        r->s->processes[r->s->n_processes++] = (vp_card_process){
            .card = card, .pid = pid, .bytes = bytes, .name = vp_arena_strdup(r->arena, name)};
}

/* "|    0   N/A  N/A      1234      C   python3 train.py          10240MiB |": card, then (two words of MIG), process, kind,
 * name, memory. */
static void read_process(reader *r, const char *line)
{
    static const char *const kinds[] = {"C", "G", "C+G", "M+C"};
    char                     text[400], name[200] = "", *words[MAX_WORDS], *save = NULL;
    int                      n = 0, kind = -1;
    int64_t                  bytes;

    if (strlen(line) >= sizeof text)
        return;
    strcpy(text, line);
    for (char *w = strtok_r(text, " |\t", &save); w && n < MAX_WORDS;
         w       = strtok_r(NULL, " |\t", &save))
        words[n++] = w;
    for (int i = 2; i < n && kind < 0; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if (strcmp(words[i], kinds[k]) == 0)
                kind = i;
    if (kind < 0 || kind + 1 >= n || strspn(words[0], "0123456789") != strlen(words[0]) ||
        strspn(words[kind - 1], "0123456789") != strlen(words[kind - 1]) || strlen(words[0]) > 3)
        return;
    bytes = bytes_of(words[n - 1]);
    for (int i = kind + 1; i < n - (bytes >= 0 || strcmp(words[n - 1], "N/A") == 0); i++) {
        strncat(name, name[0] ? " " : "", sizeof name - strlen(name) - 1);
        strncat(name, words[i], sizeof name - strlen(name) - 1);
    }
    add_process(r, atoi(words[0]), atoll(words[kind - 1]), name, bytes);
}

/* The head of `nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv`, and its rows. */
static void read_csv(reader *r, const char *line)
{
    char    cells[MAX_CELLS][CELL];
    int     n = split(line, ',', cells);
    int64_t bytes;

    if (r->csv_pid < 0) {
        if (!strstr(line, "pid") || !strstr(line, "used_") || n < 2)
            return;
        for (int i = 0; i < n; i++) {
            if (strcmp(cells[i], "pid") == 0)
                r->csv_pid = i;
            else if (strncmp(cells[i], "used_", 5) == 0)
                r->csv_memory = i;
            else if (strncmp(cells[i], "process_name", 12) == 0 || strcmp(cells[i], "name") == 0)
                r->csv_name = i;
        }
        return;
    }
    if (n <= r->csv_pid || n <= r->csv_memory || r->csv_memory < 0 || !cells[r->csv_pid][0] ||
        strspn(cells[r->csv_pid], "0123456789") != strlen(cells[r->csv_pid])) {
        r->csv_pid = -1; /* it is over */
        return;
    }
    bytes = bytes_of(cells[r->csv_memory]);
    if (bytes < 0 && cells[r->csv_memory][0] &&
        strspn(cells[r->csv_memory], "0123456789") == strlen(cells[r->csv_memory])) /* nounits */
        bytes = atoll(cells[r->csv_memory]) < 1 << 30 ? atoll(cells[r->csv_memory]) * VP_MIB : -1;
    add_process(r, -1, strlen(cells[r->csv_pid]) < 12 ? atoll(cells[r->csv_pid]) : -1,
                r->csv_name >= 0 && r->csv_name < n ? cells[r->csv_name] : "", bytes);
}

static void read_line(reader *r, const char *line)
{
    int64_t ooms;

    if (strstr(line, "CUDA memory summary")) {
        begin_table(r, line);
        return;
    }
    if (r->s->has_allocator && (ooms = number_behind(line, "OOMs:")) >= 0) {
        r->s->n_ooms    = ooms;
        r->s->n_retries = number_behind(line, "retries:");
        return;
    }
    if (strstr(line, "NVIDIA-SMI")) { /* of several the last counts */
        r->s->n_cards = r->s->n_processes = 0;
        r->in_processes                   = false;
    } else if (strstr(line, "Processes:")) {
        r->in_processes = true;
    } else if (line[strspn(line, " \t")] == '|') {
        if (r->s->has_allocator)
            read_metric(r, line);
        if (strstr(line, "MiB / "))
            read_card(r, line);
        else if (r->in_processes)
            read_process(r, line);
    } else if (strchr(line, ',')) {
        read_csv(r, line);
    }
}

/* What the numbers call for. */
static void conclude(reader *r)
{
    vp_summary *s     = r->s;
    int64_t     spare = s->metrics[VP_METRIC_SPLIT].now_bytes;

    if (s->has_allocator && spare >= 64 * VP_MIB)
        s->remedies[s->n_remedies++] = (vp_remedy){
            .text =
                "PYTORCH_ALLOC_CONF=expandable_segments:True before the command (PYTORCH_CUDA_ALLOC_CONF up to PyTorch "
                "2.8)",
            .saves_bytes = spare,
            .costs       = "nothing known; not on Windows or WSL"};
    if (s->has_allocator && (s->n_ooms > 0 || s->n_retries > 0))
        s->remedies[s->n_remedies++] = (vp_remedy){
            .text = "a smaller micro-batch with more gradient accumulation: as many samples a step",
            .saves_bytes = -1,
            .costs       = "a little time"};
    for (int c = 0; c < s->n_cards; c++) {
        int64_t others = s->cards[c].used_bytes;

        for (int i = 0; i < s->n_processes; i++)
            if (s->processes[i].card == c && s->processes[i].bytes >= 0)
                others -= s->processes[i].bytes;
        s->cards[c].others_bytes = others > 0 ? others : 0;
    }
}

vp_status vp_summary_read(vp_arena *arena, const char *path, vp_summary **out, vp_err *err)
{
    reader       r   = {.arena = arena, .csv_pid = -1, .csv_memory = -1, .csv_name = -1};
    vp_log      *log = NULL;
    vp_log_piece piece;
    vp_status    st = VP_OK;

    *out = NULL;
    r.s  = vp_arena_alloc(arena, sizeof *r.s);
    VP_TRY_ALLOC(err, r.s);
    r.s->device = -1;
    VP_TRY(vp_log_open(path, &log, err));
    for (;;) {
        VP_TRY(vp_log_next(log, &piece, err));
        if (!piece.text)
            break;
        read_line(&r, piece.text + piece.said);
    }
    if (!r.s->has_allocator && !r.s->n_cards && !r.s->n_processes)
        VP_TRY(VP_FAIL_AT(
            err, VP_ERR_INPUT, strcmp(path, "-") == 0 ? "standard input" : path, 0, NULL,
            "holds no table of torch.cuda.memory_summary() and none of nvidia-smi; a log is read by --oom"));
    conclude(&r);
    if (vp_arena_failed(arena))
        VP_TRY(VP_FAIL(err, VP_ERR_NOMEM, "out of host memory"));
    *out = r.s;
out:
    vp_log_close(log);
    return st;
}

const char *vp_metric_key(vp_metric metric)
{
    static const char *const keys[] = {
#define X(name, row, key, text) key,
        VP_METRICS(X)
#undef X
    };

    assert(metric < VP_N_METRICS);
    return keys[metric];
}

const char *vp_metric_text(vp_metric metric)
{
    static const char *const texts[] = {
#define X(name, row, key, text) text,
        VP_METRICS(X)
#undef X
    };

    assert(metric < VP_N_METRICS);
    return texts[metric];
}
