#include "base/units.h"
#include "base/base_internal.h"
#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int64_t     bytes;
} size_units[] = {
    {"B", 1},        {"KB", 1000},          {"KiB", VP_KIB},
    {"MB", 1000000}, {"MiB", VP_MIB},       {"GB", 1000000000},
    {"GiB", VP_GIB}, {"TB", 1000000000000}, {"TiB", (int64_t)1 << 40},
};
enum { N_SIZE_UNITS = sizeof size_units / sizeof size_units[0] };

static const char size_form[] =
    "write a number and its unit, like 24GiB, 24GB, 1.5TiB, or a whole number of bytes";

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ASCII only, so that no locale changes what a unit is. */
static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static bool same_letters(const char *a, const char *b)
{
    while (*a && upper(*a) == upper(*b))
        a++, b++;
    return !*a && !*b;
}

/* Why `unit`, which is none of ours, may have been meant. n_number digits of shown stand before
 * it. */
static vp_status unknown_unit(const char *shown, const char *unit, int n_number, vp_err *err)
{
    if (unit[0] && !unit[1] && strchr("KMGT", upper(unit[0])))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "\"%s\" is not a size: was %.*s%cB (powers of 1000) or %.*s%ciB (powers of "
                       "1024) meant?",
                       shown, n_number, shown, upper(unit[0]), n_number, shown, upper(unit[0]));
    if (unit[0] == ',')
        return VP_FAIL(
            err, VP_ERR_USAGE,
            "\"%s\" is not a size: the decimal sign is a point, and digits are not grouped", shown);
    return VP_FAIL(err, VP_ERR_USAGE, "\"%s\" is not a size: %s", shown, size_form);
}

vp_status vp_size_parse(const char *text, int64_t *bytes, vp_err *err)
{
    /* 10^26 * 2^40 < 1.1 * 10^38 < 2^127: neither the digits nor their bytes overflow. */
    enum { MAX_DIGITS = 26 };
    unsigned __int128 value = 0, divisor = 1;
    const char       *at       = text, *unit;
    int               n_digits = 0, n_zeros = 0;
    char              shown[80];
    int64_t           unit_bytes = 0;

    vp_text_escape(text, shown, sizeof shown);
    if (!is_digit(*at))
        return VP_FAIL(err, VP_ERR_USAGE, "\"%s\" is not a size: %s", shown, size_form);
    for (; is_digit(*at); at++) {
        if (!n_digits && *at == '0')
            continue;
        if (++n_digits > MAX_DIGITS)
            return VP_FAIL(err, VP_ERR_USAGE, "\"%s\" is too large for a size", shown);
        value = value * 10 + (unsigned)(*at - '0');
    }
    if (*at == '.') {
        at++;
        if (!is_digit(*at))
            return VP_FAIL(err, VP_ERR_USAGE,
                           "\"%s\" is not a size: digits stand on both sides of "
                           "the point",
                           shown);
        /* Zeros count only once a digit follows them, so 1.50 and 1.5 are the same. */
        for (; is_digit(*at); at++) {
            if (*at == '0') {
                n_zeros++;
                continue;
            }
            for (; n_zeros >= 0; n_zeros--) {
                if (value || n_zeros == 0)
                    n_digits++;
                if (n_digits > MAX_DIGITS || divisor > (unsigned __int128)1 << 80)
                    return VP_FAIL(err, VP_ERR_USAGE, "\"%s\" has more digits than a size can have",
                                   shown);
                value *= 10;
                divisor *= 10;
            }
            n_zeros = 0;
            value += (unsigned)(*at - '0');
        }
    }
    unit = at + (at[0] == ' ' && at[1] != '\0');
    for (int i = 0; i < N_SIZE_UNITS; i++)
        if (same_letters(unit, size_units[i].name))
            unit_bytes = size_units[i].bytes;
    if (!*at)
        unit_bytes = 1;
    if (!unit_bytes)
        return unknown_unit(shown, unit, (int)(at - text), err);
    value *= (unsigned __int128)unit_bytes;
    if (value % divisor && unit_bytes == 1)
        return VP_FAIL(err, VP_ERR_USAGE, "\"%s\" is not a whole number of bytes", shown);
    value /= divisor;
    if (!value)
        return VP_FAIL(err, VP_ERR_USAGE, "\"%s\" is no size: at least 1 byte is needed", shown);
    if (value >= (unsigned __int128)1 << 53)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "\"%s\" is too large: a size is below 2^53 bytes (8,192 TiB)", shown);
    *bytes = (int64_t)value;
    return VP_OK;
}

vp_status vp_count_parse(const char *text, const char *what, int64_t min, int64_t max,
                         int64_t *value, vp_err *err)
{
    char        shown[80], least[32], most[32];
    const char *at        = text;
    int64_t     v         = 0;
    bool        too_large = false;

    assert(min >= 0);
    assert(min <= max);
    vp_text_escape(text, shown, sizeof shown);
    for (; is_digit(*at); at++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *at - '0', &v)) {
            too_large = true;
            v         = 0;
        }
    if (*at || at == text)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "%s: \"%s\" is not a whole number; write digits only, between %s and %s",
                       what, shown, vp_count_text(min, least, sizeof least),
                       vp_count_text(max, most, sizeof most));
    if (too_large || v < min || v > max)
        return VP_FAIL(err, VP_ERR_USAGE, "%s: %s is not between %s and %s", what, shown,
                       vp_count_text(min, least, sizeof least),
                       vp_count_text(max, most, sizeof most));
    *value = v;
    return VP_OK;
}

bool vp_decimal_to_double(const char *digits, double *out)
{
    locale_t c_locale = vp_c_locale();
    bool     is_zero  = true;

    if (!c_locale)
        return false;
    double v = strtod_l(digits, NULL, c_locale);
    freelocale(c_locale);
    for (const char *at = digits; *at && *at != 'e' && *at != 'E'; at++)
        is_zero = is_zero && (*at < '1' || *at > '9');
    if (!isfinite(v) || (v == 0 && !is_zero))
        return false;
    *out = v;
    return true;
}

/* Whether text is [+-] digits [. digits] [e [+-] digits] with a digit before the exponent. */
static bool is_decimal(const char *text)
{
    int n_digits = 0, n_exponent = 0;

    if (*text == '+' || *text == '-')
        text++;
    for (; is_digit(*text); text++)
        n_digits++;
    if (*text == '.')
        for (text++; is_digit(*text); text++)
            n_digits++;
    if (!n_digits)
        return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '+' || *text == '-')
            text++;
        for (; is_digit(*text); text++)
            n_exponent++;
        if (!n_exponent)
            return false;
    }
    return !*text;
}

/* "%g" with a point, in any locale. */
static const char *real_text(double v, char *buf, size_t buf_size)
{
    locale_t c_locale = vp_c_locale(), before;

    buf[0] = '\0';
    if (c_locale) {
        before = uselocale(c_locale);
        snprintf(buf, buf_size, "%g", v);
        uselocale(before);
        freelocale(c_locale);
    }
    return buf;
}

vp_status vp_real_parse(const char *text, const char *what, double min, double max, double *value,
                        vp_err *err)
{
    char   shown[80], least[32], most[32];
    double v;

    assert(min <= max);
    vp_text_escape(text, shown, sizeof shown);
    real_text(min, least, sizeof least);
    real_text(max, most, sizeof most);
    if (!is_decimal(text))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "%s: \"%s\" is not a number; write it like 0.1 or 1e-4, between %s and %s",
                       what, shown, least, most);
    if (!vp_decimal_to_double(text, &v))
        return VP_FAIL(err, VP_ERR_USAGE, "%s: %s lies outside the range of double precision", what,
                       shown);
    if (v < min || v > max)
        return VP_FAIL(err, VP_ERR_USAGE, "%s: %s is not between %s and %s", what, shown, least,
                       most);
    *value = v;
    return VP_OK;
}

/* magnitude with commas; returns characters written, as snprintf counts. */
static int put_count(uint64_t magnitude, bool negative, char *buf, size_t buf_size)
{
    char digits[32], grouped[48];
    int  n    = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
    int  used = 0;

    assert(n > 0 && n + (n - 1) / 3 < (int)sizeof grouped);
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            grouped[used++] = ',';
        grouped[used++] = digits[i];
    }
    grouped[used] = '\0';
    return snprintf(buf, buf_size, "%s%s", negative ? "-" : "", grouped);
}

static uint64_t magnitude_of(int64_t n)
{
    return n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
}

const char *vp_count_text(int64_t n, char *buf, size_t buf_size)
{
    put_count(magnitude_of(n), n < 0, buf, buf_size);
    return buf;
}

const char *vp_rate_text(double per_s, char *buf, size_t buf_size)
{
    if (per_s >= 1e4 && per_s < 1e15)
        return vp_count_text((int64_t)(per_s + 0.5), buf, buf_size);
    snprintf(buf, buf_size, "%.4g", per_s);
    return buf;
}

/* bytes / unit in steps of 1 / scale, rounded to nearest, halves up. */
static uint64_t in_steps(uint64_t bytes, int64_t unit_bytes, unsigned scale)
{
    assert(unit_bytes > 0 && scale > 0);
    unsigned __int128 unit = (unsigned __int128)unit_bytes;
    return (uint64_t)(((unsigned __int128)bytes * scale * 2 + unit) / (2 * unit));
}

vp_status vp_amount_parse(const char *text, vp_amount *amount, vp_err *err)
{
    size_t n = strlen(text);
    char   number[32], shown[80];
    double percent;

    *amount = (vp_amount){0};
    if (!n || text[n - 1] != '%')
        return vp_size_parse(text, &amount->bytes, err);
    vp_text_escape(text, shown, sizeof shown);
    if (n > sizeof number)
        return VP_FAIL(err, VP_ERR_USAGE, "\"%s\" is not a share", shown);
    memcpy(number, text, n - 1);
    number[n - 1] = '\0';
    if (vp_real_parse(number, "share", 0, 100, &percent, &(vp_err){0}) != VP_OK || percent <= 0)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "\"%s\" is not a share: write a number above 0 and at most 100, and %%",
                       shown);
    amount->share = percent / 100;
    return VP_OK;
}

int64_t vp_amount_of(const vp_amount *amount, int64_t all)
{
    return amount->share > 0 ? (int64_t)(amount->share * (double)all) : amount->bytes;
}

const char *vp_size_text(int64_t bytes, char *buf, size_t buf_size)
{
    static const int64_t large[] = {VP_GIB, 1024 * VP_GIB, 1024 * 1024 * VP_GIB};
    const int64_t       *unit = large, *last = large + sizeof large / sizeof *large - 1;
    uint64_t             m = magnitude_of(bytes), steps;
    char                 whole[48];

    if (m < 10 * (uint64_t)VP_KIB) {
        put_count(m, bytes < 0, whole, sizeof whole);
        snprintf(buf, buf_size, "%s B", whole);
        return buf;
    }
    /* A value that rounds to 1024.0 of a unit is shown in the next one. */
    steps = in_steps(m, VP_KIB, 10);
    if (steps < 10240) {
        snprintf(buf, buf_size, "%s%u.%u KiB", bytes < 0 ? "-" : "", (unsigned)(steps / 10),
                 (unsigned)(steps % 10));
        return buf;
    }
    steps = in_steps(m, VP_MIB, 10);
    if (steps < 10240) {
        snprintf(buf, buf_size, "%s%u.%u MiB", bytes < 0 ? "-" : "", (unsigned)(steps / 10),
                 (unsigned)(steps % 10));
        return buf;
    }
    /* From here on no more than four digits before the point. */
    steps = in_steps(m, *unit, 100);
    while (steps >= 1000000 && unit < last)
        steps = in_steps(m, *++unit, 100);
    put_count(steps / 100, bytes < 0, whole, sizeof whole);
    snprintf(buf, buf_size, "%s.%02u %ciB", whole, (unsigned)(steps % 100), "GTP"[unit - large]);
    return buf;
}

const char *vp_time_text(double seconds, char *buf, size_t buf_size)
{
    static const struct {
        const char *name;
        double      s;
    } units[]        = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    const char *sign = seconds < 0 ? "-" : "";
    double      m    = fabs(seconds);
    char        whole[48];

    if (!isfinite(seconds) || m >= 1e15) {
        snprintf(buf, buf_size, "%s", isnan(seconds) ? "not a time" : "no end in sight");
        return buf;
    }
    if (m == 0) {
        snprintf(buf, buf_size, "0 s");
        return buf;
    }
    /* Three significant digits, counted in hundredths, tenths or ones of the unit. */
    for (int i = 0; i < 3; i++) {
        double  x = m / units[i].s;
        int64_t hundredths;

        if (i < 2 && x >= 999.5)
            continue;
        hundredths = x < 9.995   ? llround(x * 100)
                     : x < 99.95 ? llround(x * 10) * 10
                                 : llround(x) * 100;
        put_count((uint64_t)(hundredths / 100), false, whole, sizeof whole);
        if (x < 9.995)
            snprintf(buf, buf_size, "%s%s.%02d %s", sign, whole, (int)(hundredths % 100),
                     units[i].name);
        else if (x < 99.95)
            snprintf(buf, buf_size, "%s%s.%d %s", sign, whole, (int)(hundredths % 100 / 10),
                     units[i].name);
        else
            snprintf(buf, buf_size, "%s%s %s", sign, whole, units[i].name);
        break;
    }
    return buf;
}

const char *vp_fit_text(int64_t needs_bytes, int64_t budget_bytes, char *buf, size_t buf_size)
{
    bool    fits       = needs_bytes <= budget_bytes;
    int64_t left_bytes = fits ? budget_bytes - needs_bytes : needs_bytes - budget_bytes;
    char    needs[32], budget[32], left[32];
    char   *unit, *same;

    vp_size_text(needs_bytes, needs, sizeof needs);
    vp_size_text(budget_bytes, budget, sizeof budget);
    vp_size_text(left_bytes, left, sizeof left);
    unit = strchr(needs, ' ');
    same = strchr(budget, ' ');
    if (unit && same && strcmp(unit, same) == 0)
        *unit = '\0'; /* said once */
    snprintf(buf, buf_size, fits ? "%s of %s, %s free" : "%s of %s, short by %s", needs, budget,
             left);
    return buf;
}
