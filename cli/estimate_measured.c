#include "cli/estimate_measured.h"

#include "base/file.h"
#include "base/units.h"
#include "cli/screen.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 1 << 20, NONE = -1 };

static const struct {
    const char *name, *words;
} table[] = {
#define X(name, words) {#name, words},
    VP_MEASURED_TABLE(X)
#undef X
};

/* An error that began earlier is not told again. */
static int grows_from(int i)
{
    static const int over[VP_N_MEASURED] = {[VP_MEASURED_load]      = NONE,
                                            [VP_MEASURED_forward]   = VP_MEASURED_load,
                                            [VP_MEASURED_backward]  = VP_MEASURED_forward,
                                            [VP_MEASURED_step]      = VP_MEASURED_load,
                                            [VP_MEASURED_allocated] = NONE,
                                            [VP_MEASURED_reserved]  = VP_MEASURED_allocated,
                                            [VP_MEASURED_process]   = VP_MEASURED_reserved};

    return over[i];
}

static int named(const char *text, size_t n)
{
    for (int i = 0; i < VP_N_MEASURED; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, text, n) == 0)
            return i;
    return NONE;
}

/* "driver VERSION" or "torch VERSION". */
static vp_status read_version(const char *path, int number, const char *line, const char *version,
                              vp_measured *out, vp_err *err)
{
    bool  driver = strncmp(line, "driver", 6) == 0;
    char *to     = driver ? out->driver : out->torch;

    if (!*version || strlen(version) >= VP_CALIBRATION_WORD || strpbrk(version, " \t"))
        return VP_FAIL_AT(err, VP_ERR_INPUT, path, number, driver ? "driver" : "torch",
                          "needs a version, as 550.54 or 2.11.0");
    snprintf(to, VP_CALIBRATION_WORD, "%s", version);
    return VP_OK;
}

/* "NAME SIZE" without a remark; a line of nothing says nothing. */
static vp_status read_line(const char *path, int number, char *line, vp_measured *out, vp_err *err)
{
    vp_err    why = {0};
    char     *size, *end;
    int       i;
    vp_status st = VP_OK;

    line[strcspn(line, "#\r")] = '\0';
    line += strspn(line, " \t");
    for (end = line + strlen(line); end > line && strchr(" \t", end[-1]); end--)
        end[-1] = '\0';
    if (!*line)
        goto out;
    i    = named(line, strcspn(line, " \t:="));
    size = line + strcspn(line, " \t:=");
    size += strspn(size, " \t:=");
    if (strncmp(line, "driver", 6) == 0 || strncmp(line, "torch", 5) == 0)
        return read_version(path, number, line, size, out, err);
    if (i == NONE)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, number, NULL,
                          "begins with none of load, forward, backward, step, allocated, reserved, "
                          "process, driver, torch"));
    if (out->bytes[i] >= 0)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, number, table[i].name, "is there twice"));
    if (vp_size_parse(size, &out->bytes[i], &why) != VP_OK)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, number, table[i].name, "%s", why.message));
out:
    return st;
}

vp_status vp_measured_read(const char *path, vp_measured *out, vp_err *err)
{
    char     *text = NULL, *rest;
    int64_t   n_bytes;
    int       line = 0, n = 0;
    vp_status st = VP_OK;

    for (int i = 0; i < VP_N_MEASURED; i++)
        out->bytes[i] = -1;
    strcpy(out->driver, "-");
    strcpy(out->torch, "-");
    VP_TRY(vp_file_read(path, MAX_FILE, &text, &n_bytes, err));
    for (char *at = text; at; at = rest) {
        rest = strchr(at, '\n');
        if (rest)
            *rest++ = '\0';
        VP_TRY(read_line(path, ++line, at, out, err));
    }
    for (int i = 0; i < VP_N_MEASURED; i++)
        n += out->bytes[i] >= 0;
    if (!n)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL, "holds nothing that was measured"));
    if (out->bytes[VP_MEASURED_process] >= 0 &&
        out->bytes[VP_MEASURED_reserved] > out->bytes[VP_MEASURED_process])
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, "process",
                          "is less than what PyTorch has reserved of it"));
    if (out->bytes[VP_MEASURED_reserved] >= 0 &&
        out->bytes[VP_MEASURED_allocated] > out->bytes[VP_MEASURED_reserved])
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, "reserved",
                          "is less than what is allocated of it"));
out:
    free(text);
    return st;
}

int64_t vp_measured_context(const vp_measured *m)
{
    return m->bytes[VP_MEASURED_process] >= 0 && m->bytes[VP_MEASURED_reserved] >= 0
               ? m->bytes[VP_MEASURED_process] - m->bytes[VP_MEASURED_reserved]
               : -1;
}

/* The highest of the phases of this name, in any step. */
static int64_t of_phase(const vp_hf_estimate *e, const char *name)
{
    int64_t most = 0;

    for (int i = 0; i < e->n_phases; i++)
        if (strncmp(e->phases[i].name, name, strlen(name)) == 0 &&
            e->phases[i].allocated_bytes > most)
            most = e->phases[i].allocated_bytes;
    return most;
}

static int64_t estimated(const vp_hf_estimate *e, int64_t context_bytes, int i)
{
    return i == VP_MEASURED_allocated  ? e->allocated_bytes
           : i == VP_MEASURED_reserved ? e->reserved_bytes
           : i == VP_MEASURED_process  ? e->reserved_bytes + context_bytes
                                       : of_phase(e, table[i].name);
}

static int64_t off(const vp_measured *m, const vp_hf_estimate *e, int64_t context_bytes, int i)
{
    return i == NONE || m->bytes[i] < 0 ? 0 : estimated(e, context_bytes, i) - m->bytes[i];
}

/* Of what i grows from; where the peak itself was not written down it is that of the highest phase. */
static int64_t off_before(const vp_measured *m, const vp_hf_estimate *e, int64_t context_bytes,
                          int i)
{
    int before = grows_from(i);

    if (before == VP_MEASURED_allocated && m->bytes[before] < 0)
        for (int k = 0; k < VP_MEASURED_allocated; k++)
            if (m->bytes[k] >= 0 && (m->bytes[before] < 0 || m->bytes[k] > m->bytes[before]))
                before = k;
    return off(m, e, context_bytes, before);
}

/* Where the largest error begins; NONE: nothing is off by more than a hundredth of the whole. */
static int likely(const vp_measured *m, const vp_hf_estimate *e, int64_t context_bytes)
{
    int64_t most   = e->reserved_bytes / 100;
    int     found  = NONE;
    bool    phases = false;

    for (int i = 0; i < VP_N_MEASURED; i++) {
        int64_t own = off(m, e, context_bytes, i) - off_before(m, e, context_bytes, i);
        phases |= i < VP_MEASURED_allocated && m->bytes[i] >= 0;
        if (m->bytes[i] < 0 || (i == VP_MEASURED_allocated && phases))
            continue;
        if (llabs(own) > most) {
            most  = llabs(own);
            found = i;
        }
    }
    return found;
}

/* A cache that is off by more than so much of the whole is an estimate that is: of another setting, or wrong. */
static const double CACHE_SHARE = 0.05;

bool vp_measured_calibrates(const vp_measured *m, const vp_hf_estimate *e, vp_calibration *out)
{
    int64_t reserved = m->bytes[VP_MEASURED_reserved], allocated = m->bytes[VP_MEASURED_allocated];
    int64_t more = reserved - e->reserved_bytes;

    if (reserved < 0)
        return false;
    if ((double)llabs(more) > CACHE_SHARE * (double)e->reserved_bytes)
        return false;
    if (allocated >= 0)
        more -= allocated - e->allocated_bytes;
    out->context_bytes = vp_measured_context(m);
    out->cache_bytes   = more > 0 ? more : 0;
    memcpy(out->driver, m->driver, sizeof out->driver);
    memcpy(out->torch, m->torch, sizeof out->torch);
    return true;
}

json_t *vp_measured_json(const vp_measured *m, const vp_hf_estimate *e, int64_t context_bytes)
{
    json_t *j  = json_object();
    int     at = likely(m, e, context_bytes);

    for (int i = 0; i < VP_N_MEASURED; i++)
        if (m->bytes[i] >= 0)
            json_object_set_new(j, table[i].name,
                                json_pack("{s:I, s:I, s:I, s:s}", "estimated_bytes",
                                          (json_int_t)estimated(e, context_bytes, i),
                                          "measured_bytes", (json_int_t)m->bytes[i], "off_bytes",
                                          (json_int_t)off(m, e, context_bytes, i), "class",
                                          "measured"));
    json_object_set_new(j, "likely", at == NONE ? json_null() : json_string(table[at].words));
    return j;
}

void vp_measured_print(const vp_measured *m, const vp_hf_estimate *e, int64_t context_bytes)
{
    int  at = likely(m, e, context_bytes);
    char x[64], y[64];

    printf("%-20s %14s %14s %9s\n", "measured", "here", "estimated", "off");
    for (int i = 0; i < VP_N_MEASURED; i++)
        if (m->bytes[i] >= 0)
            printf("%-20s %14s %14s %+8.1f%%\n", table[i].name,
                   vp_size_text(m->bytes[i], x, sizeof x),
                   vp_size_text(estimated(e, context_bytes, i), y, sizeof y),
                   100.0 * (double)off(m, e, context_bytes, i) / (double)m->bytes[i]);
    if (at == NONE)
        vp_screen_line("off", "nothing by more than 1 %% of the whole");
    else
        vp_screen_line("off", "most in %s: likely %s", table[at].name, table[at].words);
}
